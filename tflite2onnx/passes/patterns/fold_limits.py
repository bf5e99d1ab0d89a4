"""Replace integers by constants where two equal limits determine them.

    min(max(x, n), n) = n

Keras's CategoryEncoding and TextVectorization count numbers by Bincount with equal `minlength` and
`maxlength`. The size of the output is then constant, though the graph computes it from the numbers.
This pass runs between two inferences of shapes.
"""

from tflite2onnx.graph import Graph, copy_op
from tflite2onnx.passes.fold_constants import fold_small_values
from tflite2onnx.passes.patterns.matching import Match, OneOf
from tflite2onnx.passes.patterns.rules import Rule, Rules


def _has_equal_limits(found: Match) -> bool:
    low, high = found.tensors["low#"], found.tensors["high#"]
    is_integer = found.output.dtype.is_integer and not found.output.quantization
    one = high.elements == 1 == found.output.elements and low.elements == 1
    return is_integer and one and low.values.item() == high.values.item()


_RULES = Rules(
    Rule(
        "min(max(x, n), n) of an integer",
        "n",
        OneOf(
            ("MINIMUM", ("MAXIMUM", "x", "low#"), "high#"),
            ("MAXIMUM", ("MINIMUM", "x", "low#"), "high#"),
        ),
        lambda found: copy_op(found.last, found.tensors["high#"], found.output),
        _has_equal_limits,
        "both limits must be one equal integer",
        dtype=None,
    ),
)


def fold_limits(graph: Graph) -> Graph:
    """Return the graph with constants in place of integers between equal limits."""
    changed = _RULES(graph)
    return graph if changed is graph else fold_small_values(changed)

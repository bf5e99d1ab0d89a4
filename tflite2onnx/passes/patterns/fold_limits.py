"""Replace integers by constants where two equal limits determine them.

    min(max(x, n), n) = n

Keras's CategoryEncoding and TextVectorization count numbers by Bincount with equal `minlength` and
`maxlength`. The size of the output is then constant, though the graph computes it from the numbers.
This pass runs between two inferences of shapes.
"""

from collections.abc import Iterable

from tflite2onnx.graph import Graph, Op, copy_op
from tflite2onnx.op import find_facts
from tflite2onnx.op.facts import Fact
from tflite2onnx.passes.fold_constants import Folder
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
        dtype=None,
    ),
)


def fold_limits(graph: Graph) -> Graph:
    """Return the graph with constants in place of integers between equal limits.

    Operators on constants are folded. Those on shapes stay: a declared size may be any size.
    """
    changed = _RULES(graph)
    if changed is graph:
        return graph
    folder = Folder(changed)

    def fold(op: Op) -> Iterable[Op]:
        stays = Fact.SHAPE_ONLY in find_facts(op)
        return [op.with_inputs(folder.known)] if stays else folder.list_remaining_ops(op)

    return changed.rewrite(fold, folder.known)

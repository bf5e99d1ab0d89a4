"""A mask of zeros that is added to the scores of attention is dropped.

PyTorch's exporters write the mask of an attention that hides no token, too: each transformer of
images, and each encoder, adds a constant of [1, 1, rows, keys] zeros to the scores of all heads.
The sum is dropped if SOFTMAX alone reads it, for which -0 and 0 are equal, and if the scores have
as many elements.
"""

from tflite2onnx.graph import Op
from tflite2onnx.passes.patterns.matching import Match, Named
from tflite2onnx.passes.patterns.rules import rule
from tflite2onnx.passes.rewriter import Rewriter


@rule("softmax of the sum of scores and zeros", "SOFTMAX", ("SOFTMAX", Named("y", ("ADD", "x", 0))))
def drop_masks(found: Match) -> list[Op] | str:
    """Return what replaces the match, or why nothing does."""
    x, y = found.x, found.tensors["y"]
    if x.elements != y.elements or {*x.symbols, *y.symbols}:
        return "the scores must have as many elements as the sum, of known sizes"
    rw = Rewriter(found.last)
    scores = x if x.shape == y.shape else rw.reshape(x, y.shape, like=y)
    return [*rw.ops, found.last.with_inputs({y: scores})]

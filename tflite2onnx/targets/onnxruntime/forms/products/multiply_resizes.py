"""RESIZE_BILINEAR of an image with channels first becomes two products, for ONNX Runtime.

    resize(x) = R x C, where each row of R and each column of C has two numbers other than 0

ONNX Runtime computes Resize pixel by pixel; a product of matrices
computes 8 or 16 columns at once. A RESIZE_BILINEAR is replaced if

1. its input is a float32 image that the plan stores with channels first; the sizes are known, the
   batch may be dynamic;
2. the products are expected to be faster (`costs.py`): up to 40 multiplications for each element of
   the output. Processors with AVX2 alone need about twice the time for both;
3. ONNX Runtime does not compute it in the blocks of convolutions, as for multiples of 8 channels
   whose rows and columns are multiplied by an integer.

The products add the same two or four terms in another sequence, and zeros: the results differ by
1e-7 of the range. An infinite or NaN element makes its rows and columns NaN.
"""

import numpy as np

from tflite2onnx.graph import Op
from tflite2onnx.passes.operands import is_float
from tflite2onnx.passes.patterns.matching import Match
from tflite2onnx.passes.patterns.rules import rule
from tflite2onnx.passes.rewriter import Rewriter, make_constant
from tflite2onnx.targets.onnxruntime.blocks import NOT_IN_BLOCKS, is_blocked
from tflite2onnx.targets.onnxruntime.costs import Terms, explain_nodes
from tflite2onnx.tensor import Array

_BLOCK = 8  # channels
_LARGEST = 1 << 12  # height or width: a damaged file may claim any


@rule(
    "RESIZE_BILINEAR of small images after convolutions",
    "TRANSPOSE, two BATCH_MATMUL, TRANSPOSE",
    ("RESIZE_BILINEAR", "x", ...),
)
def multiply_resizes(found: Match) -> list[Op] | str:
    """Return what replaces the match, or why nothing does."""
    options, x, y = found.last.options, found.x, found.output
    if not is_float(x) or {*x.symbols, *y.symbols} - {0}:
        return "the height and width must be known, and the image float32"
    (batch, *old, channels), new = x.shape, list(y.shape[1:3])
    if old == new or not all(old + new) or max(new) > _LARGEST:
        return "the image keeps its size, or has no pixels, or too many"
    products, loads = batch * channels * new[0] * old[1] * (old[0] + new[1]), y.elements
    made = [("matmul", Terms(products=products))]
    if loss := explain_nodes(made, [("resize", Terms(loads=loads))]):
        return loss
    steps = [b % a for a, b in zip(old, new, strict=True)]
    if channels % _BLOCK == 0 and not any(steps):
        return "it is resized in blocks of channels"
    if not is_blocked(found.graph, found.graph.producers.trace(x, "RESIZE_BILINEAR")):
        return NOT_IN_BLOCKS
    align, half = bool(options.align_corners), bool(options.half_pixel_centers)
    rows, columns = (
        _make_weights(a, b, align=align, half=half) for a, b in zip(old, new, strict=True)
    )
    rw, planes = Rewriter(found.last), (batch, channels)
    value = rw.transpose(x, (0, 3, 1, 2), like=x)
    first = make_constant(f"{y.name}/rows", rows[None, None], y)
    value = rw.multiply(first, value, like=y, shape=(*planes, new[0], old[1]))
    second = make_constant(f"{y.name}/columns", columns.T[None, None], y)
    value = rw.multiply(value, second, like=y, shape=(*planes, *new))
    rw.transpose(value, (0, 2, 3, 1), output=y)
    return rw.ops


def _make_weights(size: int, new: int, *, align: bool, half: bool) -> Array:
    """Return the weights of the elements of a row or column, [new, size], as LiteRT's kernel."""
    spans = align and new > 1
    step = np.float32((size - spans) / (new - spans))
    shift = np.float32(half / 2)
    position = (np.arange(new, dtype=np.float32) + shift) * step - shift
    below = np.clip(np.floor(position), 0, size - 1).astype(np.int64)
    above = np.minimum(below + 1, size - 1)
    part = np.clip(position - below, 0, 1)
    weights = np.zeros((new, size), np.float32)
    np.add.at(weights, (np.arange(new), below), 1 - part)
    np.add.at(weights, (np.arange(new), above), part)
    return weights

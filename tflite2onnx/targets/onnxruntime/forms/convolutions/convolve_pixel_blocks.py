"""A convolution of few filters computes blocks of pixels: each pixel has filters of its own.

ONNX Runtime computes filters in blocks: 16 with AVX-512, 8 with AVX2. The last convolution of a
network that makes a picture has 3 filters, so most of a block is wasted. A convolution with strides
of b computes b * b pixels at once: its windows are larger by b - 1, and each filter stands in it
b * b times, moved by a pixel each time. DEPTH_TO_SPACE then puts the pixels in their places. The
larger windows have more multiplications, but fill the blocks.

Time of the convolution with one of 1x1 filters before it, on one thread with AVX-512:

    64x64, 32 channels to 3, 9x9      2.45 ms, 2x2 pixels 0.89 ms
    64x64, 64 channels to 3, 3x3      0.58 ms, 2x2 pixels 0.37 ms
    128x128, 32 channels to 1, 3x3    0.97 ms, 2x2 pixels 0.57 ms, 4x4 pixels 0.44 ms

A convolution is replaced if

1. the image is float32, and filters and bias are constant, the filters float32 or int8 without
   zero points;
2. its strides and dilations are 1, it has no groups, and its height and width are known multiples
   of the size of a block;
3. `cost` expects a shorter time, and the filters are small: see `_MOST`.

An infinite number gives NaN in other pixels of the block.
"""

from itertools import product

from tflite2onnx.graph import Op
from tflite2onnx.made_options import WindowOptions
from tflite2onnx.op.common.windows import make_window
from tflite2onnx.passes.operands import has_unit_steps, is_float
from tflite2onnx.passes.patterns.matching import Activated, Match
from tflite2onnx.passes.patterns.rules import rule
from tflite2onnx.passes.rewriter import (
    Rewriter,
    assemble_constant,
    make_like,
    repeat_biases,
    repeat_channels,
    shift_filters,
)
from tflite2onnx.targets.onnxruntime.costs import FACTORS, Times, choose_form, estimate_convolution
from tflite2onnx.tensor import DType, Shape, Tensor

_SIZES = (2, 4)  # of a block, in pixels
_MOST = 1 << 16  # bytes of the filters: the file must not grow much


def _meets_conditions(found: Match) -> bool:
    """Return whether conditions 1 and 2 hold, but for the size of a block."""
    x, w, y = found.x, found.tensors["filters#"], found.output
    static = (x.symbols.keys() | y.symbols.keys()) <= {0}
    has_zeros = is_float(w) or (w.dtype is DType.INT8 and w.is_symmetric)
    return static and has_zeros and has_unit_steps(found.last) and w.shape[-1] == x.shape[-1]


@rule(
    "convolution of few filters",
    "CONV_2D of blocks of pixels, DEPTH_TO_SPACE",
    Activated(("CONV_2D", "x", "filters#", "bias#?")),
    _meets_conditions,
    "strides must be 1, filters float32 or of zero point 0, and sizes known but for the batch",
)
def convolve_pixel_blocks(found: Match) -> list[Op] | str:
    """Return the convolution of blocks and DEPTH_TO_SPACE; nothing if no block is faster."""
    op, x, w, y = found.last, found.x, found.tensors["filters#"], found.output
    fitting = [b for b in _SIZES if not (y.shape[1] % b or y.shape[2] % b) and _is_small(w, b)]
    expected = {b: _estimate(x, w, y, b) for b in (1, *fitting)}
    best = choose_form(expected, 1)
    if isinstance(best, str):
        return best
    rw = Rewriter(op)
    pads = make_window(op, *w.shape[1:3]).make_attributes(x.shape[1:3])["pads"]
    options = {**op.options, "padding": "VALID", "stride_h": best, "stride_w": best}
    made = WindowOptions(pads=tuple(pads))
    biases = repeat_biases(found.tensors.get("bias#"), "blocks", best**2)
    blocks = make_like(y, "blocks", _join_blocks(y.shape, best))
    rw.op("CONV_2D", x, _repeat_filters(w, best), biases, output=blocks, made=made, **options)
    rw.op("DEPTH_TO_SPACE", blocks, output=y, block_size=best)
    return rw.ops


def _is_small(w: Tensor, size: int) -> bool:
    outputs, height, width, channels = w.shape
    repeated = outputs * size**2 * channels * (height + size - 1) * (width + size - 1)
    return repeated * w.dtype.bits <= 8 * _MOST


def _join_blocks(image: Shape, size: int) -> Shape:
    n, height, width, channels = image
    return n, height // size, width // size, channels * size**2


def _estimate(x: Tensor, w: Tensor, y: Tensor, size: int) -> Times:
    """Return the expected times with blocks of a size, and of moving the pixels."""
    filters = (w.shape[-1], w.shape[1] + size - 1, w.shape[2] + size - 1)
    moves = 8 * y.elements
    return Times(
        *(
            estimate_convolution(block, filters, x.shape, _join_blocks(y.shape, size))
            + factors["reorder"].estimate_move(moves)
            + (factors["pixels"].estimate_move(moves) if size > 1 else 0)
            for block, factors in FACTORS.items()
        )
    )


def _repeat_filters(w: Tensor, size: int) -> Tensor:
    """Return the filters of each pixel of a block, those of its first row first."""
    window = [n + size - 1 for n in w.shape[1:3]]
    filters = shift_filters(w, [*product(range(size), range(size))], window)
    return repeat_channels(assemble_constant(f"{w.name}/blocks", filters, w), w, size**2)

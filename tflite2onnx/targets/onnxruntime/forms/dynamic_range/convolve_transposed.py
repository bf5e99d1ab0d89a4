"""TRANSPOSE_CONV of float data by integers becomes CONV_2D of blocks of pixels.

A transposed convolution with strides of s makes a block of s * s pixels around each pixel of the
data. A pixel of a block depends on the same few pixels of the data in each block, so a convolution
without strides computes all of them as channels. Its filters have the elements of the transposed
filters at distances of s, and zeros elsewhere. The convolution can be a product of integers. ONNX
Runtime has no transposed convolution of integers.

Time of ConvTranspose of rounded floats and of this form, between two depthwise convolutions, us on
one thread (AMD EPYC, Zen 5), by the multiplications for each number; SAME, strides of 2:

    32   64x64, 16 channels to 4, 4x4 filters       244 and 279
    21   64x64, 32 channels to 16, 2x2 filters      302 and 291
    43   32x32, 64 channels to 32, 2x2 filters      183 and 141
    51   16x16, 64 channels to 64, 2x2 filters       87 and  67
    51   80x80, 16 channels to 16, 3x3 filters      647 and 491
    85   80x80, 32 channels to 16, 3x3 filters      796 and 596
   102   32x32, 32 channels to 32, 4x4 filters      362 and 169

The operator is replaced if the sizes of the image are known, the strides are equal and larger than
1, the filters are int8 without zero points, the bias is constant, and a product of integers is
expected to be faster (`costs.py`): from about 56 multiplications for each number on, in the mean of
processors with AVX-512 and with AVX2.
"""

from typing import NamedTuple

import numpy as np

from tflite2onnx.graph import ABSENT, Op
from tflite2onnx.made_options import WindowOptions
from tflite2onnx.op.vision.conv import TransposeConv
from tflite2onnx.passes.rewriter import Rewriter, make_constant, make_like, repeat_channels
from tflite2onnx.targets.onnxruntime.costs import explain_floats
from tflite2onnx.targets.onnxruntime.operators.blocks import LAST
from tflite2onnx.targets.onnxruntime.operators.convolution import IntegerConvolution
from tflite2onnx.tensor import DType, Shape, Tensor


class _Axis(NamedTuple):
    """Blocks along the height or width; the first `skipped` pixels are not part of the output."""

    blocks: int
    before: int
    after: int
    skipped: int


def convolve_transposed(op: Op, operator: TransposeConv) -> list[Op] | str:
    """Return the operators that replace a transposed convolution, or why nothing does."""
    x, y, (stride, *others) = op.operand(2), op.outputs[0], operator.read_window().strides
    is_static = x.symbols.keys() <= {0} and y.symbols.keys() <= {0}
    if not is_static or others != [stride] or stride == 1 or not _has_constants(op):
        return "strides must be equal, sizes known, and filters int8 of the zero point 0"
    axes = _place_blocks(operator, x.shape[1:3], y.shape[1:3])
    return _convolve_blocks(op, axes, stride)


def _has_constants(op: Op) -> bool:
    """Return whether filters are int8 without zero points, and no bias is computed."""
    w, bias = op.operand(1), op.operand(3)
    return w.dtype is DType.INT8 and w.is_symmetric and (bias is ABSENT or bias.has_data)


def _place_blocks(operator: TransposeConv, old: Shape, image: Shape) -> list[_Axis]:
    """Return the blocks along the height and along the width of the output."""
    window = operator.read_window()
    excess = [full - size for full, size in zip(window.compute_full_size(old), image, strict=True)]
    cropped = window.list_cropping_attributes(excess)["pads"]
    axes = []
    for axis in (0, 1):
        stride = window.strides[axis]
        first = cropped[axis] // stride
        last = (cropped[axis] + image[axis] - 1) // stride
        before = _count_places(window.kernel[axis], stride) - 1 - first
        after = last + 1 - old[axis]
        axes.append(_Axis(last + 1 - first, before, after, cropped[axis] % stride))
    return axes


def _count_places(size: int, stride: int) -> int:
    """Return the number of data pixels along an axis on which an output pixel depends."""
    return -(-size // stride)


def _convolve_blocks(op: Op, axes: list[_Axis], stride: int) -> list[Op] | str:
    """Return CONV_2D, DEPTH_TO_SPACE and SLICE, or why integers are not faster."""
    rw, x, y = Rewriter(op), op.operand(2), op.outputs[0]
    batch, outputs = y.shape[0], y.shape[-1]
    bias = op.operand(3)
    values = bias.values.reshape(-1) if bias.has_data else np.zeros(outputs, np.float32)
    size = [axis.blocks for axis in axes]
    pads = (*(axis.before for axis in axes), *(axis.after for axis in axes))
    blocks = rw.op(
        "INTEGER_CONV_2D",
        x,
        _arrange_filters(op.operand(1), stride),
        make_constant(f"{y.name}/bias", np.tile(values, stride**2), x),
        output=make_like(y, "blocks", (batch, *size, outputs * stride**2)),
        padding="VALID",
        stride_h=1,
        stride_w=1,
        fused_activation_function=op.activation,
        made=WindowOptions(pads=pads),
    )
    product = IntegerConvolution(rw.ops[0])
    if loss := explain_floats(product, "transposed"):
        return loss
    whole = (batch, *(n * stride for n in size), outputs)
    if whole == y.shape:
        rw.op("DEPTH_TO_SPACE", blocks, output=y, block_size=stride, made=LAST)
        return rw.ops
    pixels = make_like(y, "pixels", whole)
    rw.op("DEPTH_TO_SPACE", blocks, output=pixels, block_size=stride, made=LAST)
    rw.crop(pixels, [axis.skipped for axis in axes], y)
    return rw.ops


def _arrange_filters(w: Tensor, stride: int) -> Tensor:
    """Return a filter for each pixel of a block, row by row."""
    outputs, height, width, channels = w.shape
    places = [_count_places(n, stride) for n in (height, width)]
    rest = [n * stride - k for n, k in zip(places, (height, width), strict=True)]
    weights = np.pad(w.values, [(0, 0), (0, rest[0]), (0, rest[1]), (0, 0)])
    split = weights.reshape(outputs, places[0], stride, places[1], stride, channels)
    # Elements farther from the first element multiply an earlier pixel.
    arranged = split[:, ::-1, :, ::-1].transpose(2, 4, 0, 1, 3, 5)
    filters = np.ascontiguousarray(arranged.reshape(-1, *places, channels))
    return repeat_channels(make_constant(f"{w.name}/blocks", filters, w), w, stride**2)

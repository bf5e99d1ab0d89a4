"""A convolution of few filters, of float data by integers, computes several pixels at once.

ONNX Runtime has no convolution of integers with float sums: windows are copied into the rows of a
matrix, which is multiplied (`Conv2D`). A network whose output is a picture ends with few filters
and large windows, for which copies take longer than the product. Windows of neighbouring pixels
have most of their elements in common, so a row for several pixels is shorter than their rows
together. There are filters for each of the pixels, which are 0 outside of the pixel's window.
RESHAPE from [height, width / n, n * filters] gives the output of the convolution.

A window can also be split into windows of one row each. One product computes the sums of all these
windows, and an ADD for each row adds them. The matrix of the product is smaller by the height of
the window, so fewer elements are copied.

Time of the convolution, us on one thread (AMD EPYC, Zen 5), by the pixels that it makes at once,
with whole windows and with windows of one row:

    image, channels to filters, window      1      2      4      1 row      2      4      8
    128x128, 32 to 3, 3x3                 899    575    450        535    379    343    330
    160x160, 32 to 3, 9x9               13274   6868   3999       2706   2226   1568   1494
    64x64, 64 to 16, 5x5                 1063    722    690        629    556    599    761
    128x128, 32 to 16, 3x3                999    677    745        854    900    919   1061
    40x40, 128 to 8, 3x3                  194    141    130        121    105    117    153
    96x96, 32 to 32, 3x3                  659    698    652        954    867    988   1157

A convolution is replaced if

1. a product of integers computes it (`explain_floats`), with zero points of the data;
2. its window has several columns, its filters have the zero point 0, and it has no dilations;
3. a shorter time is expected (`costs.py`), and the filters do not grow by more than `_MOST`.
   Windows of one row need a stride of 1 from row to row.
"""

from dataclasses import replace
from math import inf
from typing import Any, NamedTuple

import numpy as np

from tflite2onnx.graph import Op
from tflite2onnx.made_options import WindowOptions
from tflite2onnx.op import find_operator
from tflite2onnx.op.common.hybrid import is_hybrid
from tflite2onnx.op.common.windows import Window
from tflite2onnx.op.vision.conv import Conv2D
from tflite2onnx.passes.operands import is_float
from tflite2onnx.passes.patterns.matching import Activated, Match
from tflite2onnx.passes.patterns.rules import rule
from tflite2onnx.passes.rewriter import (
    Rewriter,
    assemble_constant,
    make_constant,
    make_int32,
    make_like,
    repeat_biases,
    repeat_channels,
    shift_filters,
)
from tflite2onnx.quantization.storage import BOUNDS
from tflite2onnx.targets.onnxruntime.costs import (
    Gain,
    Terms,
    Times,
    choose_form,
    estimate_nodes,
    explain_floats,
)
from tflite2onnx.targets.onnxruntime.operators.convolution import CopiedWindow
from tflite2onnx.tensor import DType, Tensor

_PIXELS = (1, 2, 4, 8)  # pixels that are computed at once
_FILTERS = 16  # filters that a kernel computes together
_MOST = 1 << 16  # Bytes by which filters may grow, so that the file grows little.
# For 46 layers, some of them in the table above, the chosen form takes 1.03 of the time of the best
# form in the mean. It never takes more time than the form of one pixel.
_GAIN = Gain(0, part=0.05, loss=inf)
_WEIGHT = 2  # processors with VNNI for each without


class _WindowForm(NamedTuple):
    """The pixels that are computed at once, and whether windows have one row."""

    pixels: int
    splits_rows: bool


_PLAIN = _WindowForm(1, splits_rows=False)


@rule(
    "convolution of few filters, of float data by integers",
    "INTEGER_CONV_2D of several pixels, RESHAPE; or of single rows, SLICE, ADD",
    Activated(("CONV_2D", "x", "filters#", "bias#")),
)
def join_windows(found: Match) -> list[Op] | str:
    """Return what replaces the match, or why nothing does."""
    op = found.last
    if not is_hybrid(op.operand(0), op.operand(1)):
        return "the data must be floats, and the filters integers"
    operator = find_operator(op)
    if not isinstance(operator, Conv2D) or not _meets_conditions(op, operator):
        return "the window must have several columns, and the filters the zero point 0"
    if loss := explain_floats(operator):
        return loss
    window, width = operator.read_window(), op.outputs[0].shape[2]
    forms = [
        _WindowForm(pixels, splits_rows)
        for pixels in _PIXELS
        if width % pixels == 0 and _count_bytes(pixels, operator) <= _MOST
        for splits_rows in (False, True)
        if not splits_rows or window.strides[0] == 1 < window.kernel[0]
    ]
    best = choose_form({form: _estimate_time(form, operator) for form in forms}, _PLAIN, _GAIN)
    return best if isinstance(best, str) else _replace_convolution(op, best, operator)


def _meets_conditions(op: Op, operator: Conv2D) -> bool:
    """Return whether conditions 1 and 2 hold."""
    w, window = op.operand(1), operator.read_window()
    is_plain = set(window.dilations) == {1} and window.kernel[1] > 1 and w.dtype is DType.INT8
    if not is_plain or not operator.is_hybrid or op.activation not in ("NONE", *BOUNDS):
        return False
    bias = op.operand(2)
    if not (w.is_symmetric and bias.has_data and is_float(bias)):
        return False
    return bias.elements == w.shape[0]


def _estimate_time(form: _WindowForm, operator: Conv2D) -> Times:
    (_, height, width, outputs) = operator.output.shape
    window = CopiedWindow(*operator.read_window())
    rows, channels = window.pad_size(operator.find_image_sizes(0))[0], operator.sizes(1)["I"]
    columns = width // form.pixels
    line = _count_columns(form.pixels, window) * channels
    copied, kernel_rows, filters = rows * columns * line, window.kernel[0], form.pixels * outputs
    nodes = 1 if form.pixels > 1 else 0
    if form.splits_rows:
        height, filters, kernel_rows = rows, filters * kernel_rows, 1
        nodes += 2 * window.kernel[0]
    elif kernel_rows > 1:
        copied += height * columns * line * kernel_rows
    products = height * columns * line * kernel_rows * -(-filters // _FILTERS) * _FILTERS
    terms = Terms(products, size=copied, activated=height * columns * filters)
    return estimate_nodes(("integers", terms), *nodes * [("sum", Terms())], weight=_WEIGHT)


def _count_columns(pixels: int, window: Window) -> int:
    """Return the number of columns of an image that the windows of several pixels read."""
    return window.kernel[1] + window.strides[1] * (pixels - 1)


def _count_bytes(pixels: int, operator: Conv2D) -> int:
    """Return the bytes by which filters for several pixels are larger than for one pixel."""
    elements, window = operator.input(1).elements, operator.read_window()
    return elements * pixels * _count_columns(pixels, window) // window.kernel[1] - elements


def _replace_convolution(op: Op, form: _WindowForm, operator: Conv2D) -> list[Op]:
    rw, (x, w, bias), y = Rewriter(op), op.present, op.outputs[0]
    window, filters = operator.read_window(), _arrange_filters(w, form, operator.read_window())
    pads = tuple(window.make_attributes(operator.find_image_sizes(0))["pads"])
    stride = window.strides[1] * form.pixels
    options = {**op.options, "padding": "VALID", "stride_w": stride}
    made = WindowOptions(pads=pads)
    n, height, width, outputs = y.shape
    blocks = make_like(y, "blocks", (n, height, width // form.pixels, outputs * form.pixels))
    if form.splits_rows:
        _sum_rows(rw, (x, filters, bias), blocks, made, options)
    else:
        biases = repeat_biases(bias, "blocks", form.pixels)
        rw.op("INTEGER_CONV_2D", x, filters, biases, output=blocks, made=made, **options)
    rw.reshape(blocks, output=y)
    return rw.ops


def _sum_rows(
    rw: Rewriter,
    inputs: tuple[Tensor, Tensor, Tensor],
    y: Tensor,
    made: WindowOptions,
    options: dict[str, Any],
) -> None:
    """Add the convolution of windows of one row, and the sums of its outputs and of the bias."""
    (x, filters, bias), (n, _, width, outputs) = inputs, y.shape
    rows, count = x.shape[1] + sum(made.pads[::2]), len(filters.values) // outputs
    zeros = make_constant(f"{bias.name}/rows", np.zeros(len(filters.values), np.float32), bias)
    product = make_like(y, "rows", (n, rows, width, len(filters.values)))
    settings = {**options, "fused_activation_function": "NONE"}
    rw.op("INTEGER_CONV_2D", x, filters, zeros, output=product, made=made, **settings)
    total = None
    for row in range(count):
        begin = make_int32(f"{product.name}/begin{row}", [0, row, 0, row * outputs])
        size = make_int32(f"{product.name}/size", [-1, *y.shape[1:]])
        part = rw.op("SLICE", product, begin, size, output=make_like(y, f"row{row}"))
        total = rw.op("ADD", total, part, like=y, name=f"sum{row}") if total else part
    # ONNX Runtime adds rows of pixels faster than single pixels, see `_multiply_images`.
    line = np.resize(bias.values, (1, 1, width, outputs))
    activation = options["fused_activation_function"]
    biases = make_constant(f"{bias.name}/line", line, bias)
    rw.op("ADD", total, biases, output=y, fused_activation_function=activation)


def _arrange_filters(w: Tensor, form: _WindowForm, window: Window) -> Tensor:
    """Return the filters of each pixel; if rows are split, in the sequence of rows."""
    height, count = w.shape[1], form.pixels
    shifts = [(0, pixel * window.strides[1]) for pixel in range(count)]
    filters = shift_filters(w, shifts, (height, _count_columns(count, window)))
    if form.splits_rows:
        outputs, _, *size = filters.shape
        rows = (height * outputs, 1, *size)
        filters, count = replace(filters, permutation=(1, 0, 2, 3), shape=rows), count * height
    return repeat_channels(assemble_constant(f"{w.name}/windows", filters, w), w, count)

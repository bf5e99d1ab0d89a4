"""An 8-bit convolution reads and makes several pixels at once, for a faster kernel.

ONNX Runtime has a direct kernel for convolutions of int8 filters with the zero point 0
(MlasConvSymPackWSize in convsym.cpp). The direct kernel supports multiples of 4 channels, and at
least 16 filters: multiples of 4 with AVX-512, of 8 with AVX2. For other convolutions QLinearConv
copies each window into a row of a matrix, and scales the sums of a row in a separate pass. Both
take longer than the product of a small window. The first convolution of a network, of 1 or 3
channels, has no direct kernel.

The columns of an image with channels last are pieces of any size without a copy: RESHAPE from
[height, width, channels] to [height, width / n, n * channels]. A convolution of pieces has filters
for each of the pixels that it computes. The filters are 0 where a piece is wider than the window.
RESHAPE makes an image of the output. Columns that do not fill a piece are added by PAD, and columns
of the output removed by SLICE.

Time of QLinearConv with VNNI, us on one thread (AMD EPYC, Zen 5), by the pixels it makes at once:

    image, channels to filters, window, stride      1      2      4      8
    320x320, 3 to 32, 3x3, 2                      492    208    284    485
    640x640, 3 to 16, 3x3, 2                     1738    557    628    997
    224x224, 3 to 64, 7x7, 2                      678    467    814   1572
    96x96, 1 to 8, 3x3, 2                          41     13     10      9
    224x224, 3 to 32, 3x3, 1                      946    739    450    740
    112x112, 16 to 8, 1x1, 1                       55     18     21     31

A dense layer for each pixel of an image is a convolution, too (`convolve_pixels`): Dense of Keras
after Conv2D. A convolution is replaced if

1. its data, filters and output are integers of 8 bits, the filters and the bias are constant, and
   all filters have the same zero point;
2. it is not dilated along the width, has no groups, and its image has a known size;
3. a shorter time is expected on the whole (`costs.py`). On processors without VNNI the filters are
   uint8, for which there is no direct kernel. There the larger windows may take more time than
   pieces save, and a loss is refused. Filters with another zero point than 0 as int8 stay uint8 on
   all processors: two published networks with such filters take 0.71 and 0.90 of the time, and 0.85
   and 0.93 with AVX2 (AMD EPYC, family 25, model 17).

If processors with VNNI gain more from pieces that the others do not take, the model has both forms
(`choose_pixels`), of which the processor has one at load. Thirteen published networks take 0.72 to
0.98 of the time with VNNI (AMD EPYC, family 25, model 17; mean 0.84), and 0.93 to 1.04 with uint8
filters. The file has 3 to 10 KB more.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from math import inf, prod
from typing import NamedTuple

import numpy as np

from tflite2onnx.graph import Op
from tflite2onnx.made_options import WindowOptions
from tflite2onnx.op.common.windows import make_window
from tflite2onnx.passes.patterns.matching import Activated, Match
from tflite2onnx.passes.patterns.rules import rule
from tflite2onnx.passes.rewriter import (
    Rewriter,
    as_builtin,
    assemble_constant,
    make_int32,
    make_like,
    repeat_biases,
    repeat_channels,
    shift_filters,
)
from tflite2onnx.planning import has_channels_first
from tflite2onnx.quantization.storage import is_quantized
from tflite2onnx.targets.onnxruntime.costs import Gain, Terms, Times, choose_form, estimate_nodes
from tflite2onnx.targets.onnxruntime.operators.convolution import AnyOrderOptions
from tflite2onnx.targets.onnxruntime.operators.reshape import MovedOptions
from tflite2onnx.tensor import DType, Shape, Tensor

_IMAGE = 4  # axes
# The zero points of filters by element type: int8 with the zero point 0, as uint8 or int8.
_ZEROS = {DType.INT8: 0, DType.UINT8: 128}
_BLOCKS = (2, 4, 8)  # pixels that are computed at once
_FILTERS = 16  # filters that a kernel computes together
_GAIN = Gain(part=0.1, loss=0)  # the factors have an error of about a tenth
# A choice adds 25 nodes to the file. Zen 4 multiplies half as many numbers in an instruction as the
# processor of the factors: a network whose convolution was expected to save 14 % took 1.02.
_CHOSEN_GAIN = Gain(2, part=0.2, loss=inf)
_MOST_BYTES = 1 << 15  # of the filters of joined pixels, which the file has beside the others
_WEIGHT = 2  # processors with VNNI for each without

_UNLESS = "all tensors must have 8 bits, and the filters one zero point and the dilation 1"


def _computes_pixels(match: Match) -> bool:
    """Return whether a dense layer computes each pixel of an image with channels first."""
    x, w, y = match.tensors["x"], match.tensors["weights#"], match.last.outputs[0]
    bytes_alone = all(is_quantized(t) and t.dtype in _ZEROS for t in (x, w, y))
    fits = bytes_alone and w.shape[1:] == x.shape[-1:]
    return fits and all(has_channels_first(match.graph, t) for t in (x, y))


@rule(
    "dense layer of 8 bits for each pixel of an image",
    "CONV_2D",
    Activated(("FULLY_CONNECTED", "x", "weights#", ...)),
    _computes_pixels,
    "the data must be images with channels first, and all tensors have 8 bits",
    dtype=None,
)
def convolve_pixels(match: Match) -> Op:
    """Return the layer as the convolution that it is."""
    x, w, bias = match.tensors["x"], match.tensors["weights#"], match.last.inputs[2:]
    filters = w.reshape_constant((w.shape[0], 1, 1, w.shape[1]))
    return as_builtin(
        match.last,
        "CONV_2D",
        *(x, filters, *bias),
        padding="VALID",
        stride_h=1,
        stride_w=1,
        fused_activation_function=match.last.activation,
    )


class _Pieces(NamedTuple):
    """How a convolution reads pieces; `offset` are the pixels before the first window."""

    made: int  # pixels that are computed at once
    joined: int  # pixels of a piece
    read: int  # pieces of a window
    offset: int
    width: int  # pieces of a row of the image
    pads: tuple[int, int]

    @property
    def blocks(self) -> int:
        """The number of blocks of pixels in a row of the output."""
        return self.width + sum(self.pads) - self.read + 1


def _meets_conditions(match: Match) -> bool:
    """Return whether conditions 1 and 2 hold."""
    op, x, w = match.last, match.tensors["x"], match.tensors["filters#"]
    y = op.outputs[0]
    if not all(is_quantized(t) and t.dtype in _ZEROS for t in (x, w, y)):
        return False
    constants = all(t.has_data for t in op.present[1:])
    is_dilated = op.options.get("dilation_w_factor", 1) != 1
    static = x.symbols.keys() <= {0} and y.symbols.keys() <= {0}
    images = (x.rank, w.rank, y.rank) == (_IMAGE, _IMAGE, _IMAGE)
    if not (constants and static and images) or is_dilated:
        return False
    has_zero = w.quantization and len({*w.quantization.zero_point.tolist()}) == 1
    return bool(has_zero and w.shape[-1] == x.shape[-1]) and not _reads_pieces(match)


@rule(
    "convolution of few channels of 8 bits",
    "CONV_2D of pieces of several pixels, between two RESHAPEs",
    Activated(("CONV_2D", "x", "filters#", ...)),
    _meets_conditions,
    _UNLESS,
    dtype=None,
)
def join_pixels(match: Match) -> list[Op] | str:
    """Return the convolution of pieces between two RESHAPEs; nothing if no piece is faster."""
    forms = _list_forms(match)
    best = choose_form(forms, next(iter(forms)), _GAIN)
    return best if isinstance(best, str) else _convolve_pieces(match.last, best)


@rule(
    "convolution of few channels of 8 bits, on processors with VNNI",
    "CONV_2D of pieces where products of int8 are exact, else the form above",
    Activated(("CONV_2D", "x", "filters#", ...)),
    _meets_conditions,
    _UNLESS,
    dtype=None,
)
def choose_pixels(match: Match) -> list[Op] | str:
    """Return the convolution in both forms, and the choice between them."""
    forms = _list_forms(match)
    single, *_ = forms
    common = choose_form(forms, single, _GAIN)
    other = single if isinstance(common, str) else common
    times = {form: Times(each.avx512, each.avx512) for form, each in forms.items()}
    best = choose_form(times, other, _CHOSEN_GAIN)
    if isinstance(best, str):
        return best
    op, w = match.last, match.tensors["filters#"]
    if w.shape[1] * best.read * best.joined * w.shape[3] * best.made * w.shape[0] > _MOST_BYTES:
        return f"both forms of the filters must have at most {_MOST_BYTES} bytes"
    y, rw = op.outputs[0], Rewriter(op)
    exact, inexact = (replace(op, outputs=(make_like(y, name),)) for name in ("exact", "inexact"))
    rw.op("EXACT_CHOICE", *exact.outputs, *inexact.outputs, output=y)
    if other != single:
        return [*_convolve_pieces(exact, best), *_convolve_pieces(inexact, other), *rw.ops]
    plain = replace(inexact, made=op.read_made(AnyOrderOptions).replace(any_order=True))
    return [*_convolve_pieces(exact, best), plain, *rw.ops]


def _reads_pieces(match: Match) -> bool:
    """Return whether one of these forms made the convolution."""
    x = match.tensors["x"]
    source = match.graph.producers.find(x)
    is_made = isinstance(source.made, MovedOptions) and source.made.joins_columns
    return is_made and source.operand(0).shape[-1] < x.shape[-1]


def _list_forms(match: Match) -> Mapping[_Pieces, Times]:
    """Return the forms, that of single pixels first, and their expected times."""
    op, x, w = match.last, match.tensors["x"], match.tensors["filters#"]
    window = make_window(op, *w.shape[1:3])
    pads = window.make_attributes(x.shape[1:3])["pads"]
    is_input = not {x, *match.graph.producers.find(x).present}.isdisjoint(match.graph.inputs)
    is_adaptive = _find_zero(w) == _ZEROS[w.dtype]
    shapes = x.shape, w.shape, op.outputs[0].shape
    return _estimate_forms(
        *shapes, window.strides[1], pads[1], is_input=is_input, is_adaptive=is_adaptive
    )


@lru_cache(maxsize=1 << 10)  # layers of a network have equal shapes, and two rules ask
def _estimate_forms(
    x: Shape, w: Shape, y: Shape, stride: int, pad: int, *, is_input: bool, is_adaptive: bool
) -> Mapping[_Pieces, Times]:
    """Return the forms and their expected times; `pad` is the padding on the left."""
    single = _Pieces(1, 1, w[2], 0, x[2], (0, 0))
    several = [_place_pieces(n, x, w, y, stride, pad) for n in _BLOCKS]
    times = {form: _estimate_time(form, x, w, y, is_input=is_input) for form in (single, *several)}
    if is_adaptive:
        return times
    return {form: each._replace(avx512=each.avx2) for form, each in times.items()}


def _convolve_pieces(op: Op, pieces: _Pieces) -> list[Op]:
    rw, x, w, y = Rewriter(op), op.operand(0), op.operand(1), op.outputs[0]
    window = make_window(op, *w.shape[1:3])
    pads = window.make_attributes(x.shape[1:3])["pads"]
    bias = op.inputs[2] if op.inputs[2:] else None
    n, height, width, channels = x.shape
    count = pieces.width * pieces.joined - width
    if count:
        columns = make_int32(
            f"{x.name}/columns", np.array([0, 0, 0, 0, 0, count, 0, 0]).reshape(4, 2)
        )
        shape = (n, height, width + count, channels)
        x = rw.op("PAD", x, columns, like=x, name="padded", shape=shape)
    shape = (n, height, pieces.width, pieces.joined * channels)
    data = _join_columns(rw, x, make_like(x, "pieces", shape))
    n, height, width, outputs = y.shape
    options = {**op.options, "padding": "VALID", "stride_w": 1}
    made = WindowOptions(pads=(pads[0], pieces.pads[0], pads[2], pieces.pads[1]))
    blocks = rw.op(
        "CONV_2D",
        data,
        _arrange_filters(w, pieces, window.strides[1]),
        repeat_biases(bias, "pieces", pieces.made),
        output=make_like(y, "blocks", (n, height, pieces.blocks, outputs * pieces.made)),
        made=made,
        **options,
    )
    whole = (n, height, pieces.blocks * pieces.made, outputs)
    if whole == y.shape:
        _join_columns(rw, blocks, y)
        return rw.ops
    pixels = _join_columns(rw, blocks, make_like(y, "pixels", whole))
    rw.crop(pixels, (0, 0), y)
    return rw.ops


def _join_columns(rw: Rewriter, x: Tensor, y: Tensor) -> Tensor:
    """Return an image with columns joined to channels, or with channels split into columns."""
    sizes = (-1, *y.shape[1:])  # the size of the batch may be dynamic
    made = MovedOptions(joins_columns=True)
    return rw.op("RESHAPE", x, output=y, made=made, new_shape=sizes)


def _place_pieces(block: int, x: Shape, w: Shape, y: Shape, stride: int, pad: int) -> _Pieces:
    """Return the pieces for blocks of `block` pixels; `pad` is the padding on the left."""
    joined = block * stride
    width, blocks, before = (-(-n // m) for n, m in ((x[2], joined), (y[2], block), (pad, joined)))
    count = before + ((block - 1) * stride + w[2] - 1 - pad) // joined + 1
    after = max(blocks - 1 + count - width - before, 0)
    return _Pieces(block, joined, count, before * joined - pad, width, (before, after))


def _estimate_time(pieces: _Pieces, x: Shape, w: Shape, y: Shape, *, is_input: bool) -> Times:
    outputs, height, _, channels = w
    numbers, size = pieces.made * outputs, channels * pieces.joined
    has_direct_kernel = not (size % 4 or numbers % 8) and numbers >= _FILTERS
    rows = prod(y[1:3]) / pieces.made
    products = rows * height * pieces.read * size * -(-numbers // _FILTERS) * _FILTERS
    # QLinearConv reads the image itself if each window is a pixel.
    blocks = (1, 1, y[1], -(-y[2] // pieces.made))
    is_matrix = (height, pieces.read, x[1], pieces.width) == blocks
    copies = 0 if is_matrix else rows * height
    terms = Terms(products, loads=copies, size=rows * numbers, rows=rows)
    kernel = "int8" if has_direct_kernel else "int8 rows"
    nodes = [(kernel, terms)]
    image, made = (Terms(size=prod(each[1:])) for each in (x, y))
    if pieces.made == 1:
        # The model's input is planned with channels first, its pieces are not.
        nodes += [("transpose", image)] * is_input
    else:
        nodes += 2 * [("copy", Terms())]  # RESHAPE
        nodes += [("copy", image)] * (pieces.width * pieces.joined != x[2])
        nodes += [("copy", made)] * (pieces.blocks * pieces.made != y[2])
    return estimate_nodes(*nodes, weight=_WEIGHT)


def _find_zero(w: Tensor) -> int:
    """Return the zero point of filters, which all of them have."""
    return int(w.quantization.zero_point[0]) if w.quantization else 0


def _arrange_filters(w: Tensor, pieces: _Pieces, stride: int) -> Tensor:
    """Return the filters of each pixel of a block."""
    _, height, _, channels = w.shape
    shifts = [(0, pieces.offset + pixel * stride) for pixel in range(pieces.made)]
    filters = shift_filters(w, shifts, (height, pieces.read * pieces.joined), _find_zero(w))
    shape = (filters.shape[0], height, pieces.read, pieces.joined * channels)
    assembled = assemble_constant(f"{w.name}/pieces", replace(filters, shape=shape), w)
    return repeat_channels(assembled, w, pieces.made)

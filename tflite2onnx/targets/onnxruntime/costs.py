"""The expected time of operators in ONNX Runtime, in microseconds, which chooses between forms.

A time is known for two kinds of processors: with AVX-512 and VNNI, where convolutions compute
blocks of 16 channels, and with AVX2 alone, where blocks have 8 channels. It is the sum of terms.
The terms are: the nodes, the multiplications (of whole blocks), the numbers that are loaded for
multiplications (once for four blocks of filters), the bytes of the input and output images, the
bytes of the filters, the bytes to which an activation other than Relu is applied in a separate pass
(of integers the number of sums, which are scaled), and the rows of a matrix of windows. The factors
depend on the kernel:

    pointwise   1x1 filters, in blocks
    window      larger filters, in blocks
    depthwise   in blocks
    direct      reads fewer channels than a block has, so channels-first: from a ReorderOutput, if
                the image comes from another convolution
    planar      outside of the blocks: filters of a block or more that read channels that are no
                multiple of 4; loads are the numbers of windows, which are copied
    channels    depthwise outside of the blocks, channel by channel: no multiple of 4
    transposed  ConvTranspose
    reorder     ReorderOutput
    pixels      DepthToSpace
    int8        QLinearConv of int8 filters that copies no windows (MlasConvSym); loads are the rows
                of windows
    int8 rows   QLinearConv of a matrix whose rows are windows; loads are the rows of windows, each
                of which is copied at once, 0 for the image itself
    copy        Pad, Slice, Reshape
    move        Slice, Split, Concat or Transpose of floats; loads are the runs of numbers
    rows        Gather of floats; loads are the rows
    transpose   Transpose of an image of 8 bits and few channels
    integers    MatMulInteger of a matrix whose rows are windows; bytes are those of the windows
                among forms of windows
    gather      the nodes that copy windows; loads are the numbers of both, bytes those of windows,
                rows the rows of windows, of which the factor is the mean of Zen 4 and Zen 5
    extremes    the nodes that find the lowest number of each row, and subtract its zero point
    sum         RESHAPE, SLICE and ADD of sums
    quantize    the nodes that quantize float data and scale sums; loads are the numbers of both
    matmul      MatMul of planes of an image
    resize      Resize of an image with channels first; loads are the numbers that it makes
    elu         Elu; loads are numbers
    exponentials  Min, Exp, Sub, Max; loads are numbers
    function    Add, Mul, Exp, Sigmoid or Tanh of floats; loads are numbers
    softplus    Softplus; loads are numbers
    elements    Transpose of floats that copies single numbers; loads are numbers
    axis        Transpose of floats that moves one axis; loads are numbers
    mean        ReduceMean of columns of floats; loads are numbers
    integer runs  QLinearAdd or QLinearMul with a constant; loads are numbers, rows the runs of them
                that have one constant, or one each
    row         MatMul of one row of floats; loads are the numbers of the other matrix, whose rows
                are whole blocks of 16
    integer row Gemm of one row of integers
    small       a node over few numbers
    part        one more part of Split or Concat
    reshape     Reshape
    matrices    Gather of the matrices of experts; bytes are those of the copies
    step        of a Scan over experts
    expert      the nodes of a step that has rows

`scripts/fit_convolutions.py` measures nodes of random networks, and prints the factors of the
kernels from `pointwise` to `direct`, `reorder` and `pixels`. `scripts/benchmark_products.py --fit`
prints those of `integers` (but for bytes and sums), `quantize`, `extremes` and `gather`.
`scripts/fit_nodes.py` prints those of most other nodes below the rows that stand here. The others
restate break-even points that the forms' docstrings have measured; a single factor of these rows is
no measurement. The factor of `exponentials` with AVX-512 is assumed to be half of that with AVX2.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, lru_cache, partial
from math import inf, prod
from operator import mul
from typing import NamedTuple, TypeVar

from tflite2onnx.graph import Graph
from tflite2onnx.op.vision.conv import Conv2D
from tflite2onnx.passes.operands import CONVOLUTIONS
from tflite2onnx.targets.onnxruntime.blocks import is_blocked
from tflite2onnx.targets.onnxruntime.operators.convolution import CopiedWindow
from tflite2onnx.tensor import Shape, Tensor

T = TypeVar("T")

_ALIGNMENT = 4  # channels: no image of another number is in blocks (nchwc_transformer.cc)
_TOGETHER = 4  # blocks of filters that read a number once
_FLOAT = 4  # bytes
_BYTE = 8  # bits
_FILTERS = 16  # that a product of integers computes together
_FEWEST_BYTES = 8  # Gather is slow if it copies fewer bytes at a time
# Bytes of memory, no times. A network with more constants than CACHED reads them from memory each
# time. NEAR is the second cache of a core (1 MB of Zen 4 and Zen 5, 1 to 2 MB of Intel's servers).
CACHED = 1 << 25
NEAR = 1 << 20
_MOST_ESTIMATED = 1 << 18  # operators, in all trials of a pass, which takes some seconds


_logger = logging.getLogger(__name__)


class Terms(NamedTuple):
    """The terms of a node's time: multiplications, loaded numbers, bytes, and rows."""

    products: float = 0
    loads: float = 0
    size: float = 0
    filters: float = 0
    activated: float = 0
    rows: float = 0


class Factors(NamedTuple):
    """Microseconds of a node, and of a million multiplications, loads, bytes and rows."""

    node: float
    products: float
    loads: float
    megabytes: float
    filters: float = 0
    activated: float = 0
    rows: float = 0

    def estimate(self, terms: Terms) -> float:
        parts: Iterator[float] = map(mul, self[1:], terms)
        return self.node + 1e-6 * sum(parts)

    def estimate_move(self, size: float) -> float:
        """Return the microseconds of a node that only moves bytes."""
        return self.estimate(Terms(size=size))


class Gain(NamedTuple):
    """What a form must save: microseconds, and a part of the time.

    `loss` is the part of the time with AVX2 that a gain with AVX-512 may cost. The default is less
    than the error of the table, and than the difference of two measurements.
    """

    microseconds: float = 1
    part: float = 0
    loss: float = 0.03


GAIN, ANY_GAIN = Gain(), Gain(0, loss=inf)
MOVED = Gain(part=0.1)  # the factors of moves have an error of about a tenth
# Products of integers: a tenth is the error of the factors. Networks of dynamic range take about as
# long as in LiteRT with AVX2, and longer with VNNI, so that a layer may cost more with AVX2.
_INTEGERS = Gain(part=0.1, loss=0.25)
# A choice adds a kilobyte to the file, and nodes over few numbers cost more than the table says.
_CHOSEN = Gain(20, part=0.2)
# Zen 4 multiplies 64 bytes in two halves. Its convolutions and integer products take 2.75 times the
# time of the table, and nodes that move or scale numbers the same time. This is the mean of both.
_HALVES = 1.65


class Times(NamedTuple):
    """The expected microseconds with AVX-512 and VNNI, and with AVX2.

    In the mean, `weight` processors have AVX-512 and VNNI for each one with AVX2 alone.
    """

    avx512: float
    avx2: float
    weight: float = 1

    def __str__(self) -> str:
        return f"{self.avx512:.1f} us with AVX-512 and {self.avx2:.1f} us with AVX2"

    @property
    def mean(self) -> float:
        """The geometric mean over processors."""
        mean: float = (self.avx512**self.weight * self.avx2) ** (1 / (self.weight + 1))
        return mean

    def explain_loss(self, other: Times, gain: Gain = GAIN, first: Times | None = None) -> str:
        """Return why these times are not enough shorter than others, "" if they are.

        With AVX2 they must be about as short as the first times, before all changes.
        """
        is_shorter = self.are_shorter(other, gain, first)
        return "" if is_shorter else f"{self} are expected in place of {other}"

    def are_shorter(self, other: Times, gain: Gain, first: Times | None = None) -> bool:
        """Return whether these times are enough shorter than others; see `explain_loss`."""
        saved = other.mean - self.mean
        enough = saved > max(gain.microseconds, gain.part * other.mean)
        return enough and self.avx2 <= (1 + gain.loss) * (first or other).avx2


def choose_form(times: Mapping[T, Times], plain: T, gain: Gain = GAIN) -> T | str:
    """Return the fastest form that saves enough, or why the plain one is kept."""
    # A list: of forms with equal times the first one counts.
    shorter = [form for form, each in times.items() if each.are_shorter(times[plain], gain)]
    best = min(shorter or times, key=lambda form: times[form].mean)
    if best == plain:
        return f"no other form is expected to take less than {times[plain]}"
    return best if shorter else times[best].explain_loss(times[plain], gain)


# The factors by channels of a block and by kernel: `python scripts/fit_convolutions.py 400`, ONNX
# Runtime 1.32, one thread of an AMD EPYC (family 26, Zen 5). The median error of a node is 6 %
# (pointwise) to 15 % (depthwise). Blocks of 8 channels were measured on the same processor, with a
# copy of ONNX Runtime that does not use AVX-512.
#
# Products of integers with AVX2: `python scripts/benchmark_products.py --fit` on an AMD EPYC
# (family 25, Zen 3, without AVX-512), whose convolutions take 1.6 times the time of the table; the
# fitted factors are divided by this. The median error is 5 %. `int8` was fitted in the same way to
# 96 nodes QLinearConv of uint8 filters: 24 convolutions of 1 to 24 channels, 1x1 to 7x7, by 1, 2, 4
# and 8 pixels (median error 2 %). Nodes with 9 to 15 numbers in the last block of 16 take up to 1.4
# times the expected time.
# With AVX-512 the factors are fitted to the times of docs/integer-kernels.md (median error 6 %).
# Those of `int8` and `int8 rows` are fitted to 110 nodes as above on an AMD EPYC (family 25, model
# 17; median error 3 and 5 %), and divided by 1.4. The factors of products are those of Zen 5, which
# multiplies 64 bytes at once: the times of join_pixels.py have an error of 5 and 6 % (root of the
# mean square). `extremes` has the microseconds of AVX2.
#
# `move` and `rows`: images of 14x14 to 112x112 pixels and 4 to 384 channels, rolled, cut into
# windows and joined by pixels, between two Relu (AMD EPYC, family 25, model 17, with AVX-512; error
# up to a tenth). A memcpy takes 7.5 ns beside its bytes. The kernels do not depend on AVX-512.
# `small`, `part` and `reshape`: nodes of 64 and 128 floats in a row, on the same processor.
# `function` to `row`: chains of two and of ten nodes of 1 to 400,000 numbers, same processor.
# With AVX-512 hidden (`scripts/hide_avx512.py`) `function` is equal, but Exp takes twice its time;
# the other rows were not measured so. `python scripts/fit_nodes.py` repeats these chains (same
# processor, with AVX-512 and with it hidden; seven other programs ran). Its loads of `softplus`,
# `elements` and `move` are within a seventh of those that stand; `elu` has 0.8 of them, `row` 0.4
# and 0.7, `axis` and `mean` 0.2. A node takes 0.2 to 0.4 us, QGemm of `integer row` 0.7.
# Of the loads of `function` Add takes 0.3, Exp 0.5, Tanh 0.7 and Sigmoid 0.85.
# `integer row`: 2 to 16 rows of 5 to 64 numbers, joined by `join_rows` and not, in turns.
# `integer runs`: `fit_nodes.py`; with AVX-512 hidden the factors are 5 % smaller.
# `channels`, and the loads of `planar`: `fit_nodes.py`, divided by the ratio of convolutions in
# blocks to the table on the same processor (2.2, with AVX-512 hidden 1.2).
# Kernels with the same factors for both kinds of processors.
_OF_BOTH: Mapping[str, Factors] = {
    "move": Factors(0.5, 0, 2500, 23),
    "rows": Factors(1, 0, 7500, 13),
    "extremes": Factors(8.8, 0, 0, 0),
    "sum": Factors(1.5, 0, 0, 0),
    "elu": Factors(0.7, 0, 2350, 0),
    "function": Factors(0.3, 0, 400, 0),
    "softplus": Factors(0.3, 0, 11500, 0),
    "elements": Factors(0.5, 0, 3700, 0),
    "axis": Factors(0.5, 0, 800, 0),
    "mean": Factors(0.5, 0, 700, 0),
    "row": Factors(0.6, 0, 100, 0),
    "integer row": Factors(1.4, 0, 0, 0),
    "integer runs": Factors(1.5, 0, 130, 0, rows=15500),
    "small": Factors(0.4, 0, 0, 0),
    "part": Factors(0.15, 0, 0, 0),
    "reshape": Factors(0.3, 0, 0, 0),
    "matrices": Factors(0, 0, 0, 80),
    "step": Factors(3, 0, 0, 0),
    "expert": Factors(11, 0, 0, 0),
}
FACTORS: Mapping[int, Mapping[str, Factors]] = {
    16: {
        **_OF_BOTH,
        "pointwise": Factors(2.834, 7.165, 45.49, 1.983, 12.22, 17.54),
        "window": Factors(2.828, 6.726, 77.04, 0, 16.69, 6.492),
        "depthwise": Factors(2.67, 10.3, 0, 6.091, 109.9, 21.78),
        "direct": Factors(3.154, 5.563, 89.22, 26.45, 97.44, 20.81),
        "reorder": Factors(1.888, 0, 0, 9.529, 0, 0),
        "pixels": Factors(2.874, 0, 0, 143.6, 0, 0),
        "planar": Factors(2.834, 11.77, 140, 0),
        "channels": Factors(4.8, 70, 0, 0),
        "transposed": Factors(2.834, 12.66, 0, 0),
        "int8": Factors(3.16, 1.812, 1630, 30.1, rows=908),
        "int8 rows": Factors(3.16, 2.084, 3847, 150, rows=2125),
        "copy": Factors(1.2, 0, 0, 50),
        "transpose": Factors(1.2, 0, 0, 220),
        "integers": Factors(1.5, 2.29, 0, 65, activated=500),
        "quantize": Factors(1.74, 0, 404.3, 0),
        "gather": Factors(0, 0, 134, 6.38, rows=3000),
        "matmul": Factors(0, 27.5, 0, 0),
        "resize": Factors(0, 0, 1100, 0),
        "exponentials": Factors(1.85, 0, 490, 0),
    },
    8: {
        **_OF_BOTH,
        "pointwise": Factors(2.746, 10.73, 151.6, 1.306, 17.33, 17.91),
        "window": Factors(3.067, 10.83, 145.3, 0, 9.72, 19.66),
        "depthwise": Factors(2.845, 22.42, 0, 7.871, 152.1, 22.39),
        "direct": Factors(3.526, 9.265, 173.5, 16.51, 100.1, 18.98),
        "reorder": Factors(2.103, 0, 0, 13.05, 0, 0),
        "pixels": Factors(3.055, 0, 0, 145.5, 0, 0),
        "planar": Factors(2.746, 17.63, 200, 0),
        "channels": Factors(8.8, 125, 0, 0),
        "transposed": Factors(2.746, 16.81, 0, 0),
        # Without VNNI the filters are uint8, for which there is no kernel without rows.
        "int8": Factors(4.007, 9.353, 4196, 189.3, rows=1455),
        "int8 rows": Factors(4.007, 9.353, 4196, 189.3, rows=1455),
        "copy": Factors(2, 0, 0, 50),
        "transpose": Factors(2, 0, 0, 220),
        "integers": Factors(1.5, 10.12, 0, 65, filters=44.18, activated=500),
        "quantize": Factors(5.88, 0, 641.9, 0),
        "gather": Factors(0, 0, 282.6, 0),
        "matmul": Factors(0, 55, 0, 0),
        "resize": Factors(0, 0, 2200, 0),
        "exponentials": Factors(1.85, 0, 980, 0),
    },
}


def list_terms(
    block: int, filters: tuple[int, ...], outputs: int, pixels: tuple[int, int], *, depthwise: bool
) -> tuple[str, Terms]:
    """Return the kernel of a convolution, and its terms.

    `filters` are the channels that a filter reads, its height and its width. `pixels` are the
    numbers of pixels of the input and of the output image.
    """
    channels, *window = filters
    read = outputs if depthwise else channels
    kernel = find_kernel(block, read, tuple(window), depthwise=depthwise)
    if kernel in ("planar", "channels"):
        copied = prod(filters) * pixels[1] if kernel == "planar" and prod(window) > 1 else 0
        return kernel, Terms(outputs * prod(filters) * pixels[1], copied)
    width = round_up(outputs, block)
    if kernel in ("pointwise", "window"):
        channels = round_up(channels, block)
    loads = (
        0 if depthwise else channels * prod(window) * pixels[1] * -(-width // (_TOGETHER * block))
    )
    size = (width if depthwise else channels) * pixels[0] + width * pixels[1]
    filters_size = channels * prod(window) * width
    return kernel, Terms(filters_size * pixels[1], loads, _FLOAT * size, _FLOAT * filters_size)


def find_kernel(block: int, read: int, window: tuple[int, ...], *, depthwise: bool) -> str:
    """Return the kernel of a convolution that reads channels, a name in the list above."""
    if depthwise:
        return "channels" if read % _ALIGNMENT else "depthwise"
    if read < block:
        return "direct"
    if read % _ALIGNMENT:
        return "planar"
    return "pointwise" if prod(window) == 1 else "window"


def round_up(channels: int, block: int) -> int:
    """Return the channels of whole blocks."""
    return -(-channels // block) * block


def estimate_nodes(*nodes: tuple[str, Terms], weight: float = 1) -> Times:
    """Return the expected time of nodes: the kernel and the terms of each."""
    first, second = (sum(each[k].estimate(t) for k, t in nodes) for each in FACTORS.values())
    return Times(first, second, weight)


def explain_nodes(
    made: Iterable[tuple[str, Terms]], replaced: Iterable[tuple[str, Terms]], gain: Gain = ANY_GAIN
) -> str:
    """Return why nodes are not faster than those that they replace, "" if they are."""
    return estimate_nodes(*made).explain_loss(estimate_nodes(*replaced), gain)


def explain_floats(
    conv: Conv2D, kernel: str = "", *, signed: bool = False, vnni: bool = False
) -> str:
    """Return why a product of integers is not faster than a convolution of floats, "" if it is.

    With a kernel the floats take the time of its multiplications alone, else that of blocks.
    `signed` is set if pixels with a scale each may have negative numbers. With `vnni` processors
    with AVX2 alone do not count.
    """
    x, y, filters = conv.input(0), conv.output, conv.sizes(1)
    window, pixels = (filters["H"], filters["W"]), prod(y.shape[1:3])
    channels, outputs = filters["I"], round_up(filters["O"], _FILTERS)
    copied, columns = pixels * prod(window) * channels, prod(window) * channels * outputs
    numbers = Terms(loads=prod(x.shape[1:3]) * channels + pixels * outputs)
    product = Terms(products=pixels * columns, filters=columns)
    nodes = []
    # DynamicQuantizeLinear quantizes a single pixel.
    if pixels > 1 or x.symbols:
        nodes.append(("quantize", numbers))
        nodes += [("extremes", Terms())] if signed else []
    if not conv.quantizes_pixels:
        static = x.symbols.keys() <= {0} and x.shape[-1] == channels
        is_wide = (
            CopiedWindow(*conv.read_window()).count_joined_pixels(x.shape[2]) * channels
            >= _FEWEST_BYTES
        )
        if not static or not is_wide or conv.input(1).dtype.bits != _BYTE:
            return "the sizes must be known, the weights 8 bits, and 8 bytes copied at once"
        # Each image of an unknown number has its own extremes and its own bias.
        rows = pixels * window[0]
        nodes.append(("gather", numbers._replace(size=copied, rows=rows)))
        nodes += 2 * len(x.symbols) * [("extremes", Terms())]
    floats = (
        estimate_nodes((kernel, product._replace(filters=0)))
        if kernel
        else Times(
            *(estimate_convolution(n, (channels, *window), x.shape, y.shape) for n in FACTORS)
        )
    )
    fast, others = estimate_nodes(("integers", product)), estimate_nodes(*nodes)
    integers = Times(_HALVES * fast.avx512 + others.avx512, fast.avx2 + others.avx2)
    slow = floats._replace(avx512=_HALVES * floats.avx512)
    if vnni:
        integers, slow = (times._replace(avx2=times.avx512) for times in (integers, slow))
        return integers.explain_loss(slow, _CHOSEN)
    # Times of transposed convolutions were measured with AVX-512 only.
    return integers.explain_loss(slow, ANY_GAIN if kernel else _INTEGERS)


def keep_faster(name: str, graph: Graph, changes: Sequence[Callable[[Graph], Graph]]) -> Graph:
    """Return the graph after those changes, one by one, that are expected to make it faster.

    `name` says what changes, for the log. Each change is one of the graph after the changes before
    it; it returns the graph itself if the graph is no longer one to change.
    """
    if not changes:
        return graph
    # An image that a change makes takes the place of one that is in blocks.
    is_outside = cache(partial(_is_outside_of_blocks, graph))
    first = times = estimate_times(graph, is_outside)
    for change in changes[: _MOST_ESTIMATED // max(len(graph.ops), 1)]:
        other = change(graph)
        if other is graph:
            continue
        expected = estimate_times(other, is_outside)
        loss = expected.explain_loss(times, first=first)
        _logger.debug("%s: %s", name, loss or f"{expected} in place of {times}")
        if not loss:
            graph, times = other, expected
    return graph


def _is_outside_of_blocks(graph: Graph, image: Tensor) -> bool:
    """Return whether a planned graph computes an image that is not in blocks of channels."""
    return image in graph.producers and not is_blocked(graph, image)


def estimate_times(graph: Graph, is_outside: Callable[[Tensor], bool]) -> Times:
    """Return the expected time of the convolutions of a graph, and of the reorders before them.

    `is_outside` returns whether an image is not in blocks of channels.
    """
    return Times(*(sum(_estimate_nodes(graph, is_outside, block)) for block in FACTORS))


@lru_cache(maxsize=1 << 10)
def estimate_convolution(block: int, filters: tuple[int, ...], x: Shape, y: Shape) -> float:
    """Return the microseconds of a convolution of an image x, [N, H, W, C], to an image y.

    `filters` are the channels that a filter reads, the height, and the width.
    """
    depthwise = filters[0] == 1 < x[-1]
    pixels = prod(x[:-1]), prod(y[:-1])
    kernel, terms = list_terms(block, filters, y[-1], pixels, depthwise=depthwise)
    return FACTORS[block][kernel].estimate(terms)


def _estimate_nodes(
    graph: Graph, is_outside: Callable[[Tensor], bool], block: int
) -> Iterator[float]:
    read, planar = list[Tensor](), set[Tensor]()
    for op in graph.ops:
        if op.is_builtin(*CONVOLUTIONS):
            x, w = op.operand(0), op.operand(1)
            depth = w.shape[-1] if op.code == "CONV_2D" else 1
            yield estimate_convolution(block, (depth, *w.shape[1:3]), x.shape, op.outputs[0].shape)
            is_planar = x.shape[-1] % _ALIGNMENT > 0 and (depth >= block or op.code != "CONV_2D")
            planar.update(op.outputs if is_planar else ())
            if is_planar or (op.code == "CONV_2D" and depth < block):
                read.append(x)
    for x in dict.fromkeys(read):
        if x not in graph.inputs and x not in planar and not is_outside(x):
            yield FACTORS[block]["reorder"].estimate_move(8 * x.elements)

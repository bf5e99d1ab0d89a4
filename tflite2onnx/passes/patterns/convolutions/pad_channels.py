"""Channels between convolutions are padded to a multiple of 8, or to 16, by filters of zeros.

ONNX Runtime computes a convolution in blocks of channels if their number is a multiple of its
alignment (4, or the size of a block of 8 in old versions); otherwise it computes a depthwise
convolution channel by channel. In a network of inverted bottlenecks with 210 channels, 6 channels
more in each take 0.5 of the time. A convolution reads a block of 16 channels with AVX-512, or of 8
with AVX2. Fewer channels must leave the blocks: 12 channels padded to 16 take 0.74 of the time
with AVX-512, and 0.96 with AVX2.

Of integers, ONNX Runtime has a direct kernel for depthwise convolutions of int8 filters with the
zero point 0, if their channels are a multiple of 16 (MlasConvSymPackWSize in convsym.cpp). On an
AMD EPYC (Zen 5) with VNNI, 3x3 filters for 64x64 pixels of 24 channels take 91 us, and of 32
channels 44 us; for 28x28 pixels of 72 channels 40 us, of 80 channels 18 us. Without VNNI the
filters are uint8, and padding changes little: 90 and 94 us, 41 and 41 us.

Channels of two images correspond if one is computed from the other channel by channel: by a
depthwise convolution, an activation, a pool, a sum. The channels of all images that correspond are
padded together if

1. their number is above 4 and known. Integers become a multiple of 16. A number of floats that is
   no multiple of 4 becomes a multiple of 8; else it becomes 16, if it is smaller and the times that
   `cost` expects of the graph are shorter;
2. CONV_2D and operators that compute channel by channel compute all of them and read all of them,
   with constant filters, biases and slopes; none is an input or an output of a graph;
3. all are float32 or all are int8, whose filters have the zero point 0. A depthwise convolution is
   among them, or of floats three operators and more, or the number is a multiple of 4;
4. without a depthwise convolution, a number above 16 that is no multiple of 4 is near whole blocks:
   a convolution outside of the blocks computes no padded channels. 3x3 convolutions of 33 channels
   take 1.2 times as long with 48, those of 27 channels 0.74 of the time with 32 (AVX-512).

The padded channels are finite numbers, which the next convolution multiplies by zeros.

This is no rule (`rules.py`): the channels of all images that correspond change together.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property, partial
from math import prod

import numpy as np

from tflite2onnx.graph import ABSENT, Graph, Op
from tflite2onnx.passes.operands import is_float, normalize_axes
from tflite2onnx.passes.patterns.convolutions.cost import keep_faster
from tflite2onnx.quantization.storage import is_quantized
from tflite2onnx.tensor import Assembly, DType, Quantization, Tensor
from tflite2onnx.utils.disjoint_sets import DisjointSets

_ALIGNMENT = 4
_BLOCK = 8
_LARGEST_BLOCK = 16
_FEW = 4  # channels
_IMAGE = 4  # axes
# By channel: the outputs and the inputs that are images correspond.
_ACTIVATIONS = (
    *("ABS", "ELU", "GELU", "HARD_SIGMOID", "HARD_SWISH", "LEAKY_RELU", "LOGISTIC", "NEG"),
    *("PRELU", "RELU", "RELU6", "RELU_0_TO_1", "RELU_N1_TO_1", "TANH"),
)
_POOLS = ("AVERAGE_POOL_2D", "MAX_POOL_2D")
_RESIZES = ("RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR")
_SUMS = ("ADD", "MAXIMUM", "MINIMUM", "MUL", "SUB")
_BY_CHANNEL = ("DEPTHWISE_CONV_2D", *_ACTIVATIONS, *_POOLS, *_RESIZES, *_SUMS)
_ENOUGH = 3  # operators
# The product of the multiplications with both blocks, relative to those without padding, up to
# which padding is faster in the geometric mean.
_MORE = 2.7
_SUFFIX = "/padded"  # of the names of constants


def pad_channels(graph: Graph) -> Graph:
    """Return the graph with padded channels where that keeps blocks."""
    if not any(map(_needs_padding, (t for op in graph.ops for t in op.outputs))):
        return graph
    channels = Channels(graph)
    groups = channels.find_groups()
    blocks = {root: _BLOCK for root in groups if root.shape[-1] % _ALIGNMENT}
    blocks |= {root: _LARGEST_BLOCK for root in groups if _is_int8(root)}
    others = [{root: _LARGEST_BLOCK} for root in groups if root not in blocks]
    return keep_faster(
        channels.pad(blocks, graph), [partial(channels.pad, each) for each in others]
    )


class Channels(DisjointSets[Tensor]):
    """The images of a graph, as sets of those whose channels correspond."""

    def __init__(self, graph: Graph) -> None:
        super().__init__()
        self._graph = graph
        by_channel = [op for op in graph.ops if _computes_by_channel(op)]
        self._convolved = {*by_channel, *filter(_is_convolution, graph.ops)}
        for op in by_channel:
            self.join(t for t in (*op.present, *op.outputs) if _is_image(t))

    @cached_property
    def fixed(self) -> set[Tensor]:
        """The images that stand for those whose channels must stay: condition 2 and types."""
        fixed = {*self._graph.inputs, *self._graph.outputs}
        for op in self._graph.ops:
            fixed.update(t for inner in op.graphs for t in inner.read_tensors())
            fixed.update(t for t in self._list_images(op) if not self._is_free(op, t))
        return {*map(self.find, fixed)}

    def _is_free(self, op: Op, tensor: Tensor) -> bool:
        typed = is_float(tensor) or _is_int8(tensor)
        return op in self._convolved and typed and _IMAGE - 1 not in tensor.symbols

    def _list_images(self, op: Op) -> tuple[Tensor, ...]:
        """Return the outputs, and the inputs without those that correspond and the parameters."""
        return (*op.present[: 1 if op in self._convolved else None], *op.outputs)

    def find_groups(self) -> list[Tensor]:
        """Return the images that stand for those that may be padded: conditions 1 to 4."""
        ops: dict[Tensor, int] = {}
        depthwise: set[Tensor] = set()
        for op in self._graph.ops:
            is_depthwise = op.is_builtin("DEPTHWISE_CONV_2D")
            for root in map(self.find, self._list_images(op)):
                ops[root] = ops.get(root, 0) + (_ENOUGH if is_depthwise else 1)
                if is_depthwise:
                    depthwise.add(root)
        return [
            root
            for root, count in ops.items()
            if _needs_padding(root)
            and count >= (_ENOUGH if root.shape[-1] % _ALIGNMENT else 1)
            and root not in self.fixed
            if root in depthwise or (is_float(root) and _fills_blocks(root.shape[-1]))
        ]

    def pad(self, blocks: Mapping[Tensor, int], graph: Graph) -> Graph:
        """Return the graph with padded channels: multiples of the blocks of groups."""
        roots = {t: self.find(t) for op in graph.ops for t in op.outputs}
        sizes = {t: _round_up(t.shape[-1], blocks[r]) for t, r in roots.items() if r in blocks}
        known = {
            t: replace(t, shape=(*t.shape[:-1], size), shape_signature=())
            for t, size in sizes.items()
        }
        return graph.rewrite(lambda op: [_pad_operator(op, known)])


def _needs_padding(tensor: Tensor) -> bool:
    channels = tensor.shape[-1] if tensor.rank == _IMAGE else 0
    if _is_int8(tensor):
        return channels > _FEW and channels % _LARGEST_BLOCK > 0
    unaligned = channels % _ALIGNMENT > 0 or channels < _LARGEST_BLOCK
    return is_float(tensor) and channels > _FEW and unaligned


def _is_int8(tensor: Tensor) -> bool:
    return tensor.dtype is DType.INT8 and is_quantized(tensor)


def _is_weight(tensor: Tensor) -> bool:
    """Return whether a constant is real, or are integers whose 0 is the number 0."""
    integers = tensor.dtype in (DType.INT8, DType.INT32) and tensor.is_symmetric
    return tensor.has_data and (is_float(tensor) or integers)


def _is_image(tensor: Tensor) -> bool:
    return not tensor.has_data and tensor.rank == _IMAGE


def _computes_by_channel(op: Op) -> bool:
    """Return whether each channel of the output is computed from this channel of the inputs."""
    if not op.inputs or len(op.outputs) != 1:
        return False
    if not (op.is_builtin(*_BY_CHANNEL) or _averages_pixels(op)):
        return False
    x, y = op.inputs[0], op.outputs[0]
    count = y.shape[-1] if y.rank else 0
    images = [t for t in op.present if _is_image(t)]
    others = [t for t in op.present if not _is_image(t)]
    alike = images and all(t.shape[-1] == count for t in (*images, y))
    only_data = images == [x] or not op.is_builtin("DEPTHWISE_CONV_2D", "PRELU")
    return bool(alike) and only_data and all(_is_parameter(op, t, count) for t in others)


def _averages_pixels(op: Op) -> bool:
    """Return whether the operator is MEAN over height and width, which stay axes."""
    axes = op.operand(1).values
    averages = op.is_builtin("MEAN") and op.options.get("keep_dims") and axes.dtype.kind == "i"
    is_image = op.outputs[0].rank == _IMAGE
    return bool(averages) and is_image and normalize_axes(axes, _IMAGE) == {1, 2}


def _is_parameter(op: Op, tensor: Tensor, channels: int) -> bool:
    """Return whether a constant has one element for each channel, one for all, or none for any."""
    if op.is_builtin("MEAN", *_RESIZES):
        return tensor.has_data
    return _is_weight(tensor) and tensor.shape[-1:] in ((), (1,), (channels,))


def _is_convolution(op: Op) -> bool:
    """Return whether the operator is CONV_2D of one group with constant filters and biases."""
    x, filters = op.operand(0), op.operand(1)
    if not op.is_builtin("CONV_2D"):
        return False
    fixed = all(map(_is_weight, op.present[1:]))
    return fixed and filters.rank == x.rank == _IMAGE and filters.shape[-1] == x.shape[-1]


def _fills_blocks(channels: int) -> bool:
    """Return whether channels are few or a multiple of 4, or padding adds few multiplications.

    Fewer channels than a block are read outside of the blocks in any case. The multiplications
    grow with the square of the channels, in blocks of 8 and of 16.
    """
    products = prod((_round_up(channels, n) / channels) ** 2 for n in (_BLOCK, _LARGEST_BLOCK))
    return channels < _LARGEST_BLOCK or channels % _ALIGNMENT == 0 or products <= _MORE


def _round_up(channels: int, block: int) -> int:
    return -(-channels // block) * block


def _pad_operator(op: Op, known: dict[Tensor, Tensor]) -> Op:
    """Return an operator with padded operands, and with padded constants."""
    x, y = op.operand(0), op.outputs[0] if op.outputs else ABSENT
    if y not in known and x not in known:
        return op
    outputs = tuple(known.get(t, t) for t in op.outputs)
    more = [known[t].shape[-1] - t.shape[-1] if t and t in known else 0 for t in (y, x)]

    def pad(t: Tensor) -> Tensor:
        if t in known:
            return known[t]
        if _is_convolution(op):
            counts = [more[0], *[0] * (t.rank - 2), more[1]][: t.rank]
        else:
            same = y in known and t.has_data and t.shape[-1:] == y.shape[-1:]
            counts = [0] * (t.rank - 1) + more[:1] if same else []
        return _pad_constant(t, counts)

    return replace(op.map_inputs(pad), outputs=outputs)


def _pad_constant(tensor: Tensor, more: list[int]) -> Tensor:
    """Return a constant with zeros behind its elements along each axis."""
    if not tensor.has_data or not any(more):
        return tensor
    shape = tuple(size + count for size, count in zip(tensor.shape, more, strict=True))
    padded = tensor.assembly if tensor.name.endswith(_SUFFIX) else None
    source = padded.source if padded else tensor.values
    pads = tuple((0, new - old) for new, old in zip(shape, source.shape, strict=True))
    made = Assembly(source, (pads,), tuple(range(tensor.rank)), shape)
    scales = tensor.quantization
    if scales and scales.per_axis:
        count = (0, more[scales.axis])
        scale, zero = (np.pad(t, count, mode="edge") for t in (scales.scale, scales.zero_point))
        scales = Quantization(scale, zero, scales.axis)
    name = tensor.name.removesuffix(_SUFFIX) + _SUFFIX
    return replace(
        tensor, name=name, data=made.elements, shape=shape, quantization=scales, assembly=made
    )

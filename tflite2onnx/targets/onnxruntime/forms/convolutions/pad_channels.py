"""Channels between convolutions are padded to a multiple of 8, or to 16, by filters of zeros.

ONNX Runtime computes a convolution in blocks of channels if their number is a multiple of its
alignment (4, or the size of a block of 8 in old versions), else a depthwise convolution channel by
channel: inverted bottlenecks of 210 channels take 0.5 of the time with 6 channels more in each. A
convolution reads a block of 16 channels with AVX-512, or of 8 with AVX2, and fewer channels must
leave the blocks: 12 channels padded to 16 take 0.74 of the time with AVX-512, 0.96 with AVX2.

Of integers, ONNX Runtime has a direct kernel for depthwise convolutions of int8 filters with the
zero point 0, if their channels are a multiple of 16 (MlasConvSymPackWSize in convsym.cpp). On an
AMD EPYC (Zen 5) with VNNI, 3x3 filters for 64x64 pixels of 24 channels take 91 us, and of 32
channels 44 us. Without VNNI the filters are uint8, and padding changes little: 90 and 94 us.
Other convolutions need a multiple of 4 channels. With 5, 10, 30 and 50 channels padded to 8, 12, 32
and 52, 1x1 filters for 148x148 pixels and 3x3 filters take 0.34, 0.57, 0.73 and 0.78 of the time,
with uint8 filters 1.03, 1.07, 1.01 and 1.04 (EPYC family 25, model 17, with VNNI).

Channels of two images correspond if one is computed from the other channel by channel: by a
depthwise convolution, an activation, a pool, a sum. The channels of all images that correspond are
padded together if

1. their number is known. Integers become a multiple of 16 around depthwise convolutions, else of 4.
   A number of floats that is no multiple of 4 becomes a multiple of 8; else it becomes 16, if it is
   smaller. Floats are padded if the times that `costs` expects of the graph are shorter;
2. CONV_2D and operators that compute channel by channel compute all of them and read all of them,
   with constant filters, biases and slopes; none is an input or an output of a graph;
3. all are float32 or all are int8, whose filters have the zero point 0. Of integers a depthwise
   convolution is among them, or a convolution for which there is a direct kernel.

A convolution outside of the blocks computes no padded channels: 3x3 convolutions of 33 channels
take 1.2 times as long with 48, those of 27 channels 0.74 of the time with 32 (AVX-512). A
convolution to 9 to 50 channels and one from them to 32 channels take 0.46 to 1.30 of the time with
padded channels, to one channel 0.54 to 1.81 (1x1 and 3x3 filters, 6x6 to 56x56 pixels, EPYC family
25, model 17, with AVX-512 and without, busy).

Integers need no condition on their number. A convolution to 32 channels and one from them, with 1
to 17 channels between, take 0.40 to 0.98 of the time with a multiple of 4 and int8 filters, 0.84 to
1.15 with uint8 filters; 3x3 filters of 2 to 20 channels each with a multiple of 16 take 0.3 to 0.9
and 0.4 to 1.26 (1x1 and 3x3 filters, 14x14 to 56x56 pixels, EPYC family 25, model 17, busy).

The padded channels are finite numbers, which the next convolution multiplies by zeros.

PAD of the channels of int8 images (BlazeFace) pads fewer channels, or none: both images are padded
if no operator around the first one makes other numbers of zeros, as LOGISTIC does, so that the
padded channels are those of PAD. 24 and 28 channels both become 32. A face detection of 128x128
pixels takes 0.72 to 0.89 of the time (EPYC family 25, model 17, with VNNI, beside other programs).

`leave_out_copies`: a convolution that copies channels and pads them with zeros (`keep_blocks`)
takes as long as a layer of the network, and padded channels of a block no time at all: 24, 28 and
32 channels are two blocks of 16. It is left out, and its input is computed with all channels, if
condition 2 holds for the input, its padded channels stay zeros, and `costs` expects a shorter time
of the graph: large images first, one by one. The short-range face detection takes 0.79 of the time,
0.89 with AVX2.

This is no rule (`rules.py`): the channels of all images that correspond change together.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, lru_cache, partial

import numpy as np

from tflite2onnx.graph import Graph, Op
from tflite2onnx.op.facts import Fact
from tflite2onnx.passes.operands import has, has_unit_steps, is_float, normalize_axes
from tflite2onnx.passes.rewriter import make_int32
from tflite2onnx.quantization.storage import is_quantized
from tflite2onnx.targets.onnxruntime.costs import keep_faster, round_up
from tflite2onnx.tensor import Assembly, DType, Quantization, Tensor
from tflite2onnx.utils.disjoint_sets import DisjointSets

_logger = logging.getLogger(__name__)
_ALIGNMENT = 4
_BLOCK = 8
_LARGEST_BLOCK = 16
_IMAGE = 4  # axes
# By channel: the outputs and the inputs that are images correspond. Constants have elements for
# channels, but for those of _SIZED, which list axes or sizes.
_SIZED = ("MEAN", "RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR")
_BY_CHANNEL = (
    *("ABS", "ADD", "AVERAGE_POOL_2D", "DEPTHWISE_CONV_2D", "ELU", "MAXIMUM", "MAX_POOL_2D"),
    *("MINIMUM", "MUL", "NEG", "SUB", *_SIZED),
)


def leave_out_copies(graph: Graph) -> Graph:
    """Return the graph with padded channels in place of convolutions that only pad channels."""
    copies = [op.outputs[0] for op in graph.ops if _copies_channels(op)]
    if not copies:
        return graph
    copies.sort(key=lambda copy: -copy.elements)
    join_channels = lru_cache(maxsize=1)(Channels)
    changes = [partial(_leave_out, copy.name, join_channels) for copy in copies]
    # The times of images that are padded in any case are those of their padded channels.
    return keep_faster("padded channels in place of copies", pad_channels(graph), changes)


def _copies_channels(op: Op) -> bool:
    """Return whether the operator is a convolution that pads after the channels."""
    alone = op.is_builtin("CONV_2D") and len(op.present) == 2 and op.activation == "NONE"
    if not alone or not has_unit_steps(op) or not is_float(op.operand(1)):
        return False
    filters = op.operand(1).values
    eye = np.eye(len(filters), filters.shape[-1])
    return filters.shape[1:3] == (1, 1) and np.array_equal(filters[:, 0, 0, :], eye)


def _leave_out(name: str, join_channels: Callable[[Graph], Channels], graph: Graph) -> Graph:
    """Return the graph without the convolution that computes an image, if condition 2 holds."""
    outputs = {*graph.walk_outputs()}
    for copy in filter(_copies_channels, graph.ops):
        (y,), channels = copy.outputs, join_channels(graph)
        root = channels.find(copy.operand(0))
        free = root not in channels.fixed and root not in channels.not_zeros
        if y.name == name and y not in outputs and free:
            padded = channels.pad({root: y.shape[-1]}, graph)
            source = padded.producers[y].operand(0)
            ops = tuple(op for op in padded.ops if y not in op.outputs)
            return replace(padded, ops=ops).replace_tensors({y: source})
    return graph


def pad_channels(graph: Graph) -> Graph:
    """Return the graph with padded channels where that keeps blocks."""
    if not any(_find_block(t) for op in graph.ops for t in op.outputs):
        return graph
    channels = Channels(graph)
    blocks = channels.find_groups()
    integers = {root: block for root, block in blocks.items() if not is_float(root)}
    others = [partial(channels.pad, {root: blocks[root]}) for root in blocks if is_float(root)]
    return keep_faster("padded channels", channels.pad(integers, graph), others)


class Channels(DisjointSets[Tensor]):
    """The images of a graph, as sets of those whose channels correspond."""

    def __init__(self, graph: Graph) -> None:
        super().__init__()
        self._graph = graph
        self._by_channel = [op for op in graph.ops if _computes_by_channel(op)]
        self._pads = [op for op in graph.ops if _pads_channels(op)]
        self._convolved = {*self._by_channel, *self._pads, *filter(_is_convolution, graph.ops)}
        for op in self._by_channel:
            self.join(filter(_is_image, op.tensors))

    @cached_property
    def not_zeros(self) -> set[Tensor]:
        """The images that stand for those whose padded channels are not zeros."""
        return {self.find(op.outputs[0]) for op in self._by_channel if not _keeps_zeros(op)}

    @cached_property
    def fixed(self) -> set[Tensor]:
        """The images that stand for those whose channels must stay: condition 2 and types."""
        fixed = {*self._graph.inputs, *self._graph.outputs}
        for op in self._graph.ops:
            fixed.update(t for inner in op.graphs for t in inner.read_tensors())
            free = op in self._convolved
            fixed.update(t for t in self._list_images(op) if not (free and _may_be_padded(t)))
        fixed = {*map(self.find, fixed)}
        return fixed | self.not_zeros.intersection(self.find(op.operand(0)) for op in self._pads)

    def _list_images(self, op: Op) -> tuple[Tensor, ...]:
        """Return the outputs, and the inputs without those that correspond and the parameters."""
        return (*op.present[: 1 if op in self._convolved else None], *op.outputs)

    def find_groups(self) -> dict[Tensor, int]:
        """Return the images that stand for those that may be padded, and what they become.

        Padded channels are a multiple of this number: conditions 1 to 3.
        """
        ops: dict[Tensor, list[Op]] = defaultdict(list)
        for op in self._graph.ops:
            for tensor in self._list_images(op):
                ops[self.find(tensor)].append(op)
        groups = {
            root: block
            for root, around in ops.items()
            if root not in self.fixed and (block := _find_block_of_group(root, around))
        }
        for op in reversed(self._pads):  # PAD makes no fewer channels than it reads
            x, y = map(self.find, (op.operand(0), op.outputs[0]))
            if x in groups and round_up(x.shape[-1], groups[x]) > round_up(
                y.shape[-1], groups.get(y, 1)
            ):
                del groups[x]
        return groups

    def pad(self, blocks: Mapping[Tensor, int], graph: Graph) -> Graph:
        """Return the graph with padded channels: multiples of the blocks of groups."""
        known: dict[Tensor, Tensor] = {}
        for tensor in (t for op in graph.ops for t in op.outputs):
            if block := blocks.get(self.find(tensor)):
                shape = (*tensor.shape[:-1], round_up(tensor.shape[-1], block))
                known[tensor] = replace(tensor, shape=shape, shape_signature=())
        padded = graph.rewrite(lambda op: [_pad_operator(op, known)])
        outputs = {*graph.walk_outputs()}
        same = {
            op.outputs[0]: op.operand(0)
            for op in padded.ops
            if _pads_channels(op)
            and not op.operand(1).values.any()
            and op.outputs[0] not in outputs
        }
        ops = tuple(op for op in padded.ops if same.keys().isdisjoint(op.outputs))
        return replace(padded, ops=ops).replace_tensors(same)


def _find_block(image: Tensor) -> int:
    """Return the number of which padded channels are a multiple, 0 if none are padded."""
    channels = image.shape[-1] if image.rank == _IMAGE else 0
    if _is_int8(image):
        return _LARGEST_BLOCK if channels % _LARGEST_BLOCK else 0
    if is_float(image) and channels % _ALIGNMENT:
        return _BLOCK
    return _LARGEST_BLOCK if is_float(image) and channels < _LARGEST_BLOCK else 0


def _may_be_padded(tensor: Tensor) -> bool:
    return (is_float(tensor) or _is_int8(tensor)) and _IMAGE - 1 not in tensor.symbols


def _find_block_of_group(image: Tensor, ops: Sequence[Op]) -> int:
    """Return the number of which padded channels are a multiple, 0 if none are padded.

    `ops` are around the images of a group.
    """
    block, channels = _find_block(image), image.shape[-1] if image.rank == _IMAGE else 0
    if not _is_int8(image) or any(op.is_builtin("DEPTHWISE_CONV_2D") for op in ops):
        return block
    reads_directly = any(op.operand(0).shape[-1] == channels and _is_direct(op) for op in ops)
    return _ALIGNMENT if block and reads_directly else 0


def _is_direct(op: Op) -> bool:
    """Return whether the direct kernel computes the filters of a convolution of integers."""
    filters = op.outputs[0].shape[-1]
    return _is_convolution(op) and filters >= _LARGEST_BLOCK and filters % _BLOCK == 0


def _is_int8(tensor: Tensor) -> bool:
    return tensor.dtype is DType.INT8 and is_quantized(tensor)


def _is_image(tensor: Tensor) -> bool:
    return not tensor.has_data and tensor.rank == _IMAGE


def _is_weight(tensor: Tensor) -> bool:
    """Return whether a constant is real, or are integers whose 0 is the number 0."""
    integers = tensor.dtype in (DType.INT8, DType.INT32) and tensor.is_symmetric
    return tensor.has_data and (is_float(tensor) or integers)


def _is_convolution(op: Op) -> bool:
    """Return whether the operator is CONV_2D of one group with constant filters and biases."""
    one = op.is_builtin("CONV_2D") and op.operand(1).shape[-1] == op.operand(0).shape[-1]
    return one and all(map(_is_weight, op.present[1:]))


def _computes_by_channel(op: Op) -> bool:
    """Return whether each channel of the output is computed from this channel of the inputs."""
    if not op.is_builtin(*_BY_CHANNEL) and not has(op, Fact.ACTIVATION):
        return False
    count, images = op.outputs[0].shape[-1:], [t for t in op.present if _is_image(t)]
    constants = [t for t in op.present if t not in images]
    if not images or any(t.shape[-1:] != count for t in images):
        return False
    if op.is_builtin("MEAN"):
        pixels = normalize_axes(op.operand(1).values, _IMAGE) == {1, 2}
        return pixels and bool(op.options.get("keep_dims"))
    if op.is_builtin(*_SIZED):
        return all(t.has_data for t in constants)
    only_data = images == [op.operand(0)] or not op.is_builtin("DEPTHWISE_CONV_2D", "PRELU")
    by_channel = all(_is_weight(t) and t.shape[-1:] in ((), (1,), count) for t in constants)
    return only_data and by_channel


def _keeps_zeros(op: Op) -> bool:
    """Return whether an operator that computes by channel makes zeros of zeros.

    Of these operators only LOGISTIC makes another number of 0. A constant of one number is not
    padded: MUL by it makes zeros of zeros, ADD does not.
    """
    single = any(t.has_data and t.elements == 1 for t in op.present)
    sums = single and op.is_builtin("ADD", "MAXIMUM", "MINIMUM", "SUB")
    return op.code != "LOGISTIC" and not sums


def _pads_channels(op: Op) -> bool:
    """Return whether an operator pads an image of int8 after its channels, and nothing else."""
    x, pads = op.operand(0), op.operand(1)
    if not op.is_builtin("PAD") or not (_is_int8(x) and _is_image(x) and pads.has_data):
        return False
    *others, after = pads.values.reshape(-1)
    return not any(others) and after >= 0


def _pad_operator(op: Op, known: Mapping[Tensor, Tensor]) -> Op:
    """Return an operator with padded operands, and with padded constants."""
    if known.keys().isdisjoint(op.tensors):
        return op
    x, y = op.operand(0), op.outputs[0]
    made, read = (known[t].shape[-1] - t.shape[-1] if t in known else 0 for t in (y, x))

    def pad(t: Tensor) -> Tensor:
        if t.has_data and op.is_builtin("PAD"):
            more = np.array([0] * (2 * _IMAGE - 1) + [made - read]).reshape(_IMAGE, 2)
            return make_int32(f"{y.name}/pads", t.values + more)
        if not t.has_data or op.is_builtin(*_SIZED):
            return known.get(t, t)
        if op.is_builtin("CONV_2D"):
            return _pad_constant(t, (made, *[0] * (t.rank - 2), read)[: t.rank])
        return _pad_constant(t, (*[0] * (t.rank - 1), made)) if t.shape[-1:] == y.shape[-1:] else t

    return replace(op.map_inputs(pad), outputs=tuple(known.get(t, t) for t in op.outputs))


def _pad_constant(tensor: Tensor, more: Sequence[int]) -> Tensor:
    """Return a constant with zeros after its elements along each axis."""
    if not any(more):
        return tensor
    shape = tuple(size + count for size, count in zip(tensor.shape, more, strict=True))
    name, source, before = f"{tensor.name}/padded", tensor.values, tensor.assembly
    if before and before.appends_zeros:  # zeros after zeros are one padding
        name, source = tensor.name, before.source
    pads = tuple((0, new - old) for new, old in zip(shape, source.shape, strict=True))
    made = Assembly(source, (pads,), tuple(range(tensor.rank)), shape)
    scales = tensor.quantization
    if scales and scales.per_axis:
        count = (0, more[scales.axis])
        scale, zero = (np.pad(t, count, mode="edge") for t in (scales.scale, scales.zero_point))
        scales = Quantization(scale, zero, scales.axis)
    return replace(
        tensor, name=name, data=made.elements, shape=shape, quantization=scales, assembly=made
    )

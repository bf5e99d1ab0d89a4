"""More channels for convolutions where ONNX Runtime computes in blocks of 16 (AVX-512).

With AVX2 a block has 8 channels, and images of 8 channels are blocks. With AVX-512 these images are
not blocks (`costs.py`). If a convolution has groups of 8 channels, the image is
copied, and the groups are computed one by one. Filters of zeros that fill blocks of 16 are faster
with AVX-512 and slower with AVX2, so the model tests the size of blocks:

    Softmax of constants -> Gather -> Less -> If: Pad of filters, Conv; or Conv

Softmax adds exponentials in as many sums as a register has floats. Here the exponentials are 1 and
two numbers of 0.8 times the least number that changes 1. With 8 sums the two numbers are added to 1
one by one, and the sum is 1. With 16 sums they are first added to each other
(`ComputeSumExpF32Kernel` of MLAS). ONNX Runtime computes the condition when it loads the model, and
replaces each If by the nodes of one branch (`builder.adaptive_weights`). With its optimizations
disabled the If runs.

Channels of images correspond if one is computed from the other channel by channel. Images get more
channels if all nodes that make and read them are convolutions or compute channel by channel, and

1. images have 8 channels, and the convolutions that read them are expected to be faster with 16; or
2. a convolution of an odd number of groups of 8 or 24 channels makes or reads them. Two groups
   become one, of 16 or 48 channels.

Images of few channels stay unless a fiftieth of the expected time is saved, and 5 microseconds.
"""

import logging
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from tflite2onnx.builder.builder import Body, Builder, find_bodies, walk_nodes
from tflite2onnx.builder.node_passes import Rewritten
from tflite2onnx.builder.nodes import Node, Value
from tflite2onnx.targets.onnxruntime.costs import FACTORS, Gain, Times, list_terms
from tflite2onnx.tensor import Array, DType, Shape
from tflite2onnx.utils.disjoint_sets import DisjointSets

_logger = logging.getLogger(__name__)
_BLOCK, _HALF = 16, 8
_GROUPS = (8, 24)  # Channels of a group; larger groups have too many multiplications by zero.
_GAIN = Gain(5, part=0.02)
_FLOAT = 4  # bytes
_DECODE = ("Cast", "Mul")  # Nodes that decode stored filters, whose shape they keep.
_IMAGE = 4  # axes
_BY_CHANNEL = frozenset(
    {
        *("Add", "AveragePool", "Clip", "GlobalAveragePool", "HardSigmoid", "HardSwish"),
        *("LeakyRelu", "Max", "MaxPool", "Min", "Mul", "Relu", "Sigmoid", "Sub", "Tanh"),
    }
)
# The exponentials of these numbers are 1, almost 0, and two numbers of 0.8 * 2^-24: each is too
# small to change 1 in float32, but their sum is not.
_EXPONENTS = np.full(32, -200, np.float32)
_EXPONENTS[[0, _HALF, 3 * _HALF]] = 0, *[np.log(0.8 * 2.0**-24)] * 2


class _ConvNode(NamedTuple):
    """A Conv with constant or decoded filters, and the pixels of its input and its output."""

    node: Node
    filters: Shape
    groups: int
    pixels: tuple[int, int]

    @property
    def is_depthwise(self) -> bool:
        """Whether each filter reads one channel, and each channel has one filter."""
        return self.filters[1] == 1 and self.groups == self.filters[0]

    @property
    def counts(self) -> dict[Value, int]:
        """The channels of the input and of the output."""
        channels = self.filters[1] * self.groups, self.filters[0]
        return dict(zip((self.node.present[0], *self.node.outputs), channels, strict=True))

    @property
    def paired(self) -> dict[Value, int]:
        """The channels with an even number of groups; {} if two groups are no whole blocks."""
        whole = self.filters[1] in _GROUPS and self.filters[0] // self.groups % _HALF == 0
        if self.groups == 1 or not whole:
            return {}
        added = self.groups % 2
        return {value: n + added * n // self.groups for value, n in self.counts.items()}

    def estimate(self, read: int) -> float:
        """Return the expected microseconds with this number of input channels."""
        depthwise = self.is_depthwise
        filters = (1 if depthwise else read, *self.filters[2:])
        outputs, factors = self.filters[0], FACTORS[_BLOCK]
        kernel, terms = list_terms(_BLOCK, filters, outputs, self.pixels, depthwise=depthwise)
        time = factors[kernel].estimate(terms)
        if kernel == "direct":
            time += factors["reorder"].estimate_move(2 * _FLOAT * read * self.pixels[0])
        return time


def widen_blocks(g: Builder, nodes: Sequence[Node], results: Sequence[Value]) -> Rewritten:
    """Return the nodes of the main graph, and the values whose channels depend on the processor."""
    if not g.plan.finds_processor:
        return Rewritten((*nodes,))
    convolutions = {conv.node.outputs: conv for conv in _find_convolutions(g, nodes)}
    if not any(_HALF in conv.counts.values() or conv.paired for conv in convolutions.values()):
        return Rewritten((*nodes,))
    channels, unchanged = _join_channels(g, nodes, convolutions, results)
    pairs, wider = _choose_pairs(convolutions.values(), channels, unchanged)
    wider |= _choose_narrow(convolutions.values(), channels, unchanged | wider.keys())
    added = {
        value: wider.get(channels.find(value), n) - n
        for conv in convolutions.values()
        for value, n in conv.counts.items()
    }
    condition = Value(dtype=DType.BOOL, name="has_blocks_of_16")
    replaced = {
        outputs: _choose_branch(g, conv, added, condition, paired=outputs in pairs)
        for outputs, conv in convolutions.items()
        if outputs in pairs or any(added[value] for value in conv.counts)
    }
    if not replaced:
        return Rewritten((*nodes,))
    roots = {channels.find(value) for value, n in added.items() if n}
    values = frozenset(v for node in nodes for v in node.outputs if channels.find(v) in roots)
    for value in values:
        g.types.pop(value, None)
    padded = (replaced.get(node.outputs, node) for node in nodes)
    return Rewritten((*_find_blocks(g, condition), *padded), changed=values)


def _find_convolutions(g: Builder, nodes: Sequence[Node]) -> Iterator[_ConvNode]:
    decoded: dict[Value, Array] = {}  # filters that nodes make of constants
    for node in nodes:
        if node.op_type in _DECODE:
            first, *others = node.present
            filters = decoded.get(first, first.data)
            if filters is not None and all(other.data is not None for other in others):
                decoded[node.outputs[0]] = filters
        elif node.op_type == "Conv":
            x, w, *_ = node.present
            data = decoded.get(w, w.data)
            sizes = [g.types[v][1] if v in g.types else () for v in (x, *node.outputs)]
            numbers = [n for shape in sizes for n in shape[2:] if isinstance(n, int)]
            if data is not None and data.ndim == _IMAGE and len(numbers) == 2 * (_IMAGE - 2):
                pixels = numbers[0] * numbers[1], numbers[2] * numbers[3]
                yield _ConvNode(node, data.shape, node.attributes.get("group", 1), pixels)


def _join_channels(
    g: Builder,
    nodes: Sequence[Node],
    convolutions: Mapping[tuple[Value, ...], _ConvNode],
    outputs: Sequence[Value],
) -> tuple[DisjointSets[Value], set[Value]]:
    """Return sets of values with corresponding channels, and the sets that must not change."""
    channels = DisjointSets[Value]()
    fixed = set(outputs)
    for node in nodes:
        images = [*(v for v in node.present if v.data is None), *node.outputs]
        if node.outputs in convolutions:
            if convolutions[node.outputs].is_depthwise:
                channels.join((node.present[0], *node.outputs))
        elif node.op_type in _BY_CHANNEL and _has_equal_channels(g, node, images):
            channels.join(images)
        else:
            fixed.update(node.outputs, node.present)
            if find_bodies(node):
                fixed.update(*(inner.present for inner in walk_nodes([node])))
    results = {value for node in nodes for value in node.outputs}
    return channels, {channels.find(v) for v in fixed | (g.types.keys() - results)}


def _has_equal_channels(g: Builder, node: Node, images: Sequence[Value]) -> bool:
    """Return whether all operands are images of equal channels, or constants of one element."""
    sizes = [g.types[v][1] if v in g.types else () for v in images]
    constants = [v.data for v in node.present if v.data is not None]
    equal = {shape[1:2] for shape in sizes if len(shape) == _IMAGE}
    same = len(equal) == 1 and all(len(shape) == _IMAGE for shape in sizes)
    return same and all(shape.size == 1 for shape in constants)


def _choose_pairs(
    convolutions: Iterable[_ConvNode], channels: DisjointSets[Value], fixed: set[Value]
) -> tuple[set[tuple[Value, ...]], dict[Value, int]]:
    """Return the outputs of convolutions whose groups are paired, and the channels of sets."""
    grouped = [pair for pair in convolutions if pair.groups > 1 and not pair.is_depthwise]
    pairs = {pair.node.outputs for pair in grouped if pair.paired}
    while True:
        counts: dict[Value, set[int]] = defaultdict(set)
        for pair in grouped:
            wanted = pair.paired if pair.node.outputs in pairs else pair.counts
            for value, n in wanted.items():
                root = channels.find(value)
                counts[root] |= {n, *([pair.counts[value]] if root in fixed else [])}
        refused = {
            pair.node.outputs
            for pair in grouped
            if any(len(counts[channels.find(value)]) > 1 for value in pair.counts)
        }
        if pairs.isdisjoint(refused):
            return pairs, {root: n for root, (n, *_) in counts.items()}
        pairs -= refused


def _choose_narrow(
    convolutions: Collection[_ConvNode], channels: DisjointSets[Value], fixed: Collection[Value]
) -> dict[Value, int]:
    """Return the sets of few channels that are faster with a whole block."""
    gains: dict[Value, float] = defaultdict(float)
    for conv in convolutions:
        (x, n), _ = conv.counts.items()
        if n == _HALF and conv.groups == 1 and channels.find(x) not in fixed:
            gains[channels.find(x)] += conv.estimate(n) - conv.estimate(_BLOCK)
    whole = sum(conv.estimate(next(iter(conv.counts.values()))) for conv in convolutions)
    chosen = {root: gain for root, gain in gains.items() if gain > 0}
    wide = whole - sum(chosen.values())
    loss = Times(wide, wide).explain_loss(Times(whole, whole), _GAIN)
    _logger.debug("convolutions with 16 channels in place of 8: %s", loss or "faster")
    return {} if loss else dict.fromkeys(chosen, _BLOCK)


def _choose_branch(
    g: Builder, conv: _ConvNode, added: Mapping[Value, int], condition: Value, *, paired: bool
) -> Node:
    """Return an If of a convolution with padded filters, and of the convolution itself."""
    inner = g.make_nested()
    x, w, *biases = conv.node.present
    (y,) = conv.node.outputs
    groups, read = conv.groups, added[x]
    if paired:
        half, rows = conv.filters[1], np.arange(conv.filters[0])
        own = np.eye(2, dtype=np.float32)[rows * groups // len(rows) % 2]
        mask = np.repeat(own, half, axis=1)[:, :, None, None]
        w = inner.Mul(inner.Concat(w, w, axis=1), mask)
        groups, read = -(-groups // 2), 0
    elif conv.is_depthwise:
        groups, read = groups + added[y], 0
    padded = [
        _pad(inner, w, (added[y], read, 0, 0)),
        *(_pad(inner, b, (added[y],)) for b in biases),
    ]
    (wide,) = inner.add("Conv", 1, (x, *padded), {**conv.node.attributes, "group": groups})
    other = Value()
    branches = {
        "then_branch": Body("blocks_of_16", (), tuple(inner.nodes), (wide,), ()),
        "else_branch": Body(
            "blocks_of_8", (), (conv.node._replace(outputs=(other,)),), (other,), ()
        ),
    }
    return Node("If", (condition,), conv.node.outputs, branches)


def _pad(inner: Builder, value: Value, amounts: tuple[int, ...]) -> Value:
    """Return a value with zeros after its elements along each axis."""
    return inner.Pad(value, inner.ints([0] * len(amounts) + [*amounts])) if any(amounts) else value


def _find_blocks(g: Builder, condition: Value) -> Sequence[Node]:
    """Return nodes that compute whether ONNX Runtime computes in blocks of 16 channels."""
    shares, first = Value(), Value()
    zero, one = g.constant(np.array(0, np.int64)), g.constant(np.array(1, np.float32))
    return [
        Node("Softmax", (g.constant(_EXPONENTS),), (shares,), {"axis": 0}),
        Node("Gather", (shares, zero), (first,), {"axis": 0}),
        Node("Less", (first, one), (condition,), {}),
    ]

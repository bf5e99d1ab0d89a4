"""Nodes as RKNN computes them right, where its compiler refuses or spoils other ones.

What its simulator did with models of one operator (tests/targets/rknn):

- An output that other nodes read ends in an error. Two Reshapes part it from them.
- A dense layer of a flattened image of 30, 36 or 49 pixels is up to 3 steps off, and of other
  sizes right. A Conv with a window of the whole image is right.
- An average of more than 7 rows or columns is one of averages, which are rounded: up to 3 steps. A
  depthwise Conv of ones is right.
- A Conv of several groups with a bias and a scale for each channel may be refused ("clip_truncate <
  0"): the scale of the bias is not that of the weights of its group. One group is right.
- A Conv of floats whose stride is even and over 7 is refused beside integers. Rows become channels.
- A function whose input has larger numbers than its range (`RANGES`) reads them stretched to this
  range: up to 120 steps. Another zero point before it has this range.
- What a Relu or Clip reads, an input or what a node computes, gets the scale and zero point of its
  result if nodes read this: up to 185 steps. A Max parts them.
- A Reshape from [1, C, 1] to [1, C, 1, 1] before a Conv is moved without end. A Max parts them.
- A Conv and some functions after it become one, which neither rounds nor saturates what the Conv
  computes: up to 175 steps. So do other functions and a Relu, two Negs, and two sums or products of
  constants (`NoChainOfConstants`): up to 255 steps. A Max with the smallest number of the tensor
  parts them. It stands before a Split of what a Gemm computes, too.
- A Max of two tensors of integers runs on the NPU. A Max of a float, and each Min, run on the CPU.
- The compiler moves Reshapes and Transposes of rows to and fro, without end, if one of two tensors
  of an Add has such a Max. Both have it.
- Two means of a tensor become one, whose scale is that of the last one: numbers that this lacks are
  lost, up to 49 steps. A Max parts them.
- RKNN reads a tensor whose zero point is the middle (0 for int8, 128 for uint8) as a symmetric one,
  of -128 to 128 steps, which it divides into 127 steps at each side: weights are rounded again, and
  data are read in 128/127 of their scale. Zero points beside the middle avoid it.
"""

from collections.abc import Collection, Generator, Iterator, Mapping, Sequence
from math import prod

import numpy as np

from tflite2onnx.builder.builder import Builder, find_makers
from tflite2onnx.builder.node_passes import NodePass, Stayed, Yielded, drop_dead_nodes, keep
from tflite2onnx.builder.nodes import Node, Value
from tflite2onnx.builder.rewrites import find_static_shape
from tflite2onnx.emit import PLAIN_PASSES
from tflite2onnx.quantization.storage import find_integer_range
from tflite2onnx.targets.npu_nodes import (
    dequantize_moves,
    requantize,
    reshape_twice,
    separate_constants,
)
from tflite2onnx.targets.rknn.rules import (
    BEFORE_MUL,
    LARGEST_STRIDE,
    LARGEST_WINDOW,
    LIMITS,
    PAIRS,
    PRODUCTS,
    RANGES,
)
from tflite2onnx.targets.rules import (
    MIDDLES,
    QDQ,
    RESHAPES,
    is_reshaped_pixel,
    joins_constants,
)
from tflite2onnx.tensor import DType, Shape

_IMAGE_RANK = 4
_CENTERS = {"HardSwish": 0.0, "Sigmoid": 0.5, "Tanh": 0.0}  # what the functions are of 0
_LOW, _HIGH = -128, 127  # steps around the middle
_SUMS = ("Add", "Sub")
_MEANS = ("GlobalAveragePool", "ReduceMean")
_PARTED = (*PAIRS, (PRODUCTS, ("Slice", "Split")))


def _join_groups(g: Builder, nodes: Sequence[Node], _: Sequence[Value]) -> Yielded:
    """Yield the nodes, with one group in place of several, whose other weights are zeros."""
    made = find_makers(nodes)
    for node in nodes:
        groups = int(node.attributes.get("group", 1)) if node.op_type == "Conv" else 1
        weights = made.get(node.present[1]) if groups > 1 and len(node.present) > 2 else None
        numbers = [x.data for x in weights.present] if weights else []
        stored, scales, zero = numbers if len(numbers) > 2 else [None] * 3
        if weights is None or stored is None or scales is None or zero is None:
            yield keep(node, ("Conv",), "it must have several groups and quantized weights")
            continue
        count, width, *window = stored.shape
        if width == 1 or scales.size == 1:  # one channel in each group: RKNN has depthwise Conv
            yield keep(
                node,
                ("Conv",),
                "its groups must have several channels and scales",
            )
            continue
        whole = np.empty((groups, count // groups, groups, width, *window), stored.dtype)
        whole[:] = zero.reshape(groups, -1, *[1] * (len(window) + 2))
        each = range(groups)
        whole[each, :, each] = stored.reshape(groups, -1, width, *window)
        kernel = whole.reshape(count, -1, *window)
        x, read = weights.present[0], Value()
        dense = g.make_separate_constant(kernel, x.dtype or DType.INT8, x.name)
        yield weights._replace(inputs=(dense, *weights.inputs[1:]), outputs=(read,))
        yield node._replace(
            inputs=(node.inputs[0], read, *node.inputs[2:]),
            attributes={**node.attributes, "group": 1},
        )


def _fold_strides(g: Builder, nodes: Sequence[Node], _: Sequence[Value]) -> Yielded:
    """Yield the nodes, with the rows of a stride as channels of a Conv of floats."""
    has_integers = any(node.op_type in QDQ for node in nodes)
    for node in nodes:
        strides = node.attributes.get("strides", ()) if node.op_type == "Conv" else ()
        large = [
            i for i, stride in enumerate(strides) if stride > LARGEST_STRIDE and stride % 2 == 0
        ]
        weights = node.present[1].data if large and has_integers else None
        shape = find_static_shape(node.present[0], g.types) or ()
        if weights is None or len(large) > 1 or not _is_plain(node, shape, large[0]):
            yield keep(
                node,
                ("Conv",),
                "it must have one large even stride, of an image without pads",
            )
            continue
        axis, stride = large[0] + 2, strides[large[0]]
        windows = -(-weights.shape[axis] // stride)
        pads = [(0, 0)] * weights.ndim
        pads[axis] = (0, windows * stride - weights.shape[axis])
        rows = np.pad(weights, pads)
        rows = rows.reshape(*rows.shape[:axis], windows, stride, *rows.shape[axis + 1 :])
        rows = np.moveaxis(rows, axis + 1, 2)
        kernel = rows.reshape(rows.shape[0], -1, *rows.shape[3:])
        parts = (*shape[:axis], shape[axis] // stride, stride, *shape[axis + 1 :])
        order = [*range(len(parts))]
        order.insert(2, order.pop(axis + 1))
        split, moved, image = (Value() for _ in range(3))
        yield Node("Reshape", (node.inputs[0], g.ints(parts)), (split,), {})
        yield Node("Transpose", (split,), (moved,), {"perm": order})
        sizes = (shape[0], shape[1] * stride, *(parts[i] for i in order[3:]))
        yield Node("Reshape", (moved, g.ints(sizes)), (image,), {})
        stored = g.make_separate_constant(kernel, DType.FLOAT32, node.present[1].name)
        steps = [1 if i == large[0] else each for i, each in enumerate(strides)]
        window = {"kernel_shape": kernel.shape[2:], "strides": steps}
        yield node._replace(
            inputs=(image, stored, *node.inputs[2:]), attributes={**node.attributes, **window}
        )


def _is_plain(node: Node, shape: Shape, side: int) -> bool:
    """Return whether a Conv of one group adds no pixels, and its stride divides the side."""
    own = node.attributes
    is_whole = len(shape) == _IMAGE_RANK and shape[side + 2] % own["strides"][side] == 0
    dilations = max(own.get("dilations", (1,)))
    return is_whole and own.get("group", 1) == dilations == 1 and not any(own.get("pads", ()))


def _convolve_averages(g: Builder, nodes: Sequence[Node], _: Sequence[Value]) -> Yielded:
    """Yield the nodes, with a depthwise Conv in place of an average of a large window."""
    operands = {n.inputs[0]: n.inputs[1:] for n in nodes if n.op_type == "QuantizeLinear"}
    real = {n.outputs[0] for n in nodes if n.op_type == "DequantizeLinear"}
    for node in nodes:
        scale = operands.get(node.outputs[0])
        shape = (
            find_static_shape(node.present[0], g.types) if scale and real & {*node.inputs} else ()
        )
        window = _find_window(node, shape or ())
        if not shape or not scale or max(window, default=0) <= LARGEST_WINDOW:
            yield keep(node, ("AveragePool", "ReduceMean"), "it must average a large window")
            continue
        ones = np.full((shape[1], 1, *window), 128, np.uint8)
        weights, around = g.make_separate_constant(ones, DType.UINT8), g.scalar(127, DType.UINT8)
        part, read = g.scalar(1 / prod(window), DType.FLOAT32), Value()
        # The stride of a window of all rows is any number.
        strides = node.attributes.get("strides", (1, 1))
        sides = zip(strides, shape[2:], window, strict=True)
        moves = [1 if side == size else stride for stride, side, size in sides]
        attributes = {"kernel_shape": window, "group": shape[1], "strides": moves}
        yield Node("DequantizeLinear", (weights, part, around), (read,), {})
        if node.op_type == "AveragePool":
            yield Node("Conv", (node.inputs[0], read), node.outputs, attributes)
            continue
        result = Value()
        yield Node("Conv", (node.inputs[0], read), (result,), attributes)
        whole = yield from requantize(result, scale)
        sizes = shape[:2] if node.attributes.get("keepdims") == 0 else (*shape[:2], 1, 1)
        yield Node("Reshape", (whole, g.ints(sizes)), node.outputs, {})


def _find_window(node: Node, shape: Shape) -> Shape:
    """Return the rows and columns that a node averages, none if it does something else."""
    axes = node.present[-1].data if node.op_type == "ReduceMean" else None
    if axes is not None and sorted(axes.tolist()) == [2, 3] and len(shape) == _IMAGE_RANK:
        return shape[2:]
    is_pool = node.op_type == "AveragePool" and not any(node.attributes.get("pads", ()))
    return tuple(node.attributes["kernel_shape"]) if is_pool and len(shape) == _IMAGE_RANK else ()


def _convolve_images(g: Builder, nodes: Sequence[Node], _: Sequence[Value]) -> Yielded:
    """Yield the nodes, with a Conv in place of a Gemm of a flattened image."""
    made = find_makers(nodes)
    operands = {n.inputs[0]: n.inputs[1:] for n in nodes if n.op_type == "QuantizeLinear"}
    for node in nodes:
        sources = [made.get(x) for x in node.present] if node.op_type == "Gemm" else []
        data, weights = sources[:2] if sources else (None, None)
        quantized = made.get(data.present[0]) if data else None
        flat = made.get(quantized.present[0]) if quantized else None
        image = flat.present[0] if flat and flat.op_type == "Reshape" else None
        shape = find_static_shape(image, g.types) or ()
        stored = weights.present[0].data if weights else None
        is_written = node.outputs[0] in operands and node.attributes.get("transB") == 1
        if image is None or weights is None or stored is None or not is_written:
            yield keep(node, ("Gemm",), "it must multiply a flattened image by quantized weights")
            continue
        # Rows of tokens, as attention has, are no image.
        is_image = len(shape) == _IMAGE_RANK and prod(shape) == stored.shape[1]
        if not is_image or shape[0] != 1 or prod(shape[2:]) == 1:
            yield keep(node, ("Gemm",), "what it multiplies must be one image of several pixels")
            continue
        windows = g.make_separate_constant(
            stored.reshape(-1, *shape[1:]), weights.present[0].dtype or DType.INT8, ""
        )
        read, result = Value(), Value()
        yield weights._replace(inputs=(windows, *weights.inputs[1:]), outputs=(read,))
        yield Node("Conv", (image, read, *node.inputs[2:]), (result,), {"kernel_shape": shape[2:]})
        real = yield from requantize(result, operands[node.outputs[0]])
        yield Node("Reshape", (real, g.ints([1, len(stored)])), node.outputs, {})


def _part_products(g: Builder, nodes: Sequence[Node], _: Sequence[Value]) -> Yielded:
    """Yield the nodes, with a Max between two functions that RKNN joins, or a Reshape and a Conv.

    A Max parts data from a Relu or Clip (`NoRescaledData`), and a Conv from a Reshape to an image
    of one pixel (`NoReshapedPixels`), too.
    """
    made = find_makers(nodes)
    ends = {n.inputs[0]: n.inputs[1:] for n in nodes if n.op_type == "QuantizeLinear"}
    for node in nodes:
        before = [x for first, second in _PARTED if node.op_type in second for x in first]
        joined, reads = [], []
        for read in [made[x] for x in node.present if x in made]:
            source = made.get(_find_source(read.outputs[0], made, (*QDQ, "Reshape", "Transpose")))
            is_after = source is not None and source.op_type in before
            numbers = [x.data for x in read.present[1:] if x.data is not None]
            if read.op_type != "DequantizeLinear" or len(numbers) < 2:
                continue
            reads.append(read)
            is_after = is_after or _joins_constants(node, source, made)
            is_apart = is_after or _limits_data(node, read, made, ends)
            if is_apart or _reads_pixel(g, node, read, made):
                joined.append(read)
        # A Max at one of two tensors of rows lets the compiler move Reshapes without end.
        rank = len(find_static_shape(node.outputs[0], g.types) or ())
        if joined and node.op_type in _SUMS and rank < _IMAGE_RANK:
            joined = [read for read in reads if read.present[0].data is None]
        apart = {}
        for read in joined:
            least = find_integer_range(read.present[2].dtype or DType.INT8)[0]
            limited = yield from _limit(g, read, least)
            apart[read.outputs[0]] = yield from requantize(limited, read.inputs[1:])
        kinds = (node.op_type,) if before else ()
        reason = "RKNN must join it with what is before it"
        yield node.with_inputs(apart) if apart else keep(node, kinds, reason)


def _part_means(g: Builder, nodes: Sequence[Node], _: Sequence[Value]) -> Yielded:
    """Yield the nodes, with a Max before means of a tensor that has a mean with another scale."""
    made = find_makers(nodes)
    ends = {n.inputs[0]: n.inputs[1:] for n in nodes if n.op_type == "QuantizeLinear"}
    first: dict[Value, Sequence[Value | None]] = {}
    for node in nodes:
        read = made.get(node.present[0]) if node.op_type in _MEANS else None
        end = ends.get(node.outputs[0])
        is_read = read is not None and read.op_type == "DequantizeLinear" and len(read.present) > 2
        if read is None or end is None or not is_read:
            yield keep(node, _MEANS, "its data and its result must be integers")
            continue
        known = first.setdefault(read.present[0], end)
        if not any(_differ(x, y) for x, y in zip(end, known, strict=True) if x is not None):
            yield keep(node, _MEANS, "no mean of these data before it has another scale")
            continue
        least = find_integer_range(read.present[2].dtype or DType.INT8)[0]
        limited = yield from _limit(g, read, least)
        real = yield from requantize(limited, read.inputs[1:])
        yield node._replace(inputs=(real, *node.inputs[1:]))


def _limit(g: Builder, read: Node, least: int) -> Generator[Node, None, Value]:
    """Yield a Max of dequantized numbers and of a stored number, and return the result.

    RKNN runs a Max of two tensors of integers on the NPU, and one of a float on the CPU.
    """
    x, result, bound = read.outputs[0], Value(), Value()
    dtype = read.present[2].dtype or DType.INT8
    sizes = [1] * len(find_static_shape(x, g.types) or ())
    number = g.make_separate_constant(np.full(sizes, least, dtype.numpy), dtype)
    yield Node("DequantizeLinear", (number, *read.inputs[1:]), (bound,), {})
    yield Node("Max", (x, bound), (result,), {})
    return result


def _find_limited(read: Node, made: Mapping[Value | None, Node]) -> Value | None:
    """Return the result of the Max that a node dequantizes, if there is one."""
    stored = made.get(read.present[0])
    limit = made.get(stored.present[0]) if stored else None
    return limit.outputs[0] if limit and limit.op_type == "Max" else None


def _find_source(x: Value, made: Mapping[Value | None, Node], moves: Collection[str]) -> Value:
    """Return the value whose numbers nodes move to x, or x itself."""
    while x in made and made[x].op_type in moves:
        x = made[x].present[0]
    return x


def _limits_data(
    node: Node,
    read: Node,
    made: Mapping[Value | None, Node],
    ends: Mapping[Value | None, Sequence[Value | None]],
) -> bool:
    """Return whether a Relu or Clip of integers has another scale or zero point than they have."""
    is_limit = node.op_type in LIMITS and node.inputs[0] == read.outputs[0]
    stored, end = made.get(read.present[0]), ends.get(node.outputs[0])
    if not is_limit or (stored is not None and stored.present[0] not in made):
        return False
    return end is None or any(map(_differ, read.present[1:], end))


def _differ(x: Value, y: Value | None) -> bool:
    return x.data is None or y is None or y.data is None or not np.array_equal(x.data, y.data)


def _joins_constants(node: Node, source: Node | None, made: Mapping[Value | None, Node]) -> bool:
    """Return whether RKNN joins two sums or products of constants."""
    if source is None:
        return False
    shapes = _list_constants(source, made), _list_constants(node, made)
    return joins_constants((source.op_type, node.op_type), shapes, BEFORE_MUL)


def _list_constants(node: Node, made: Mapping[Value | None, Node]) -> list[Shape]:
    """Return the shapes of a node's constants, which DequantizeLinear reads."""
    reads = (made[x] for x in node.present if x in made)
    arrays = (read.present[0].data for read in reads if read.op_type == "DequantizeLinear")
    return [array.shape for array in arrays if array is not None]


def _reads_pixel(g: Builder, node: Node, read: Node, made: Mapping[Value | None, Node]) -> bool:
    """Return whether a Conv reads an image of one pixel, which a Reshape makes of such sizes."""
    if node.op_type != "Conv" or node.inputs[0] != read.outputs[0]:
        return False
    shape = find_static_shape(node.inputs[0], g.types)
    x = _find_source(read.present[0], made, (*QDQ, *RESHAPES))
    return shape is not None and is_reshaped_pixel(find_static_shape(x, g.types) or (), shape)


def _narrow_inputs(g: Builder, nodes: Sequence[Node], _: Sequence[Value]) -> Yielded:
    """Yield the nodes, with another zero point before functions whose input has a larger range.

    Outside of the range the results do not change. If a range has more steps than the type, numbers
    below and above 0 have a function each, whose results are added. Another scale would round each
    number again: results would be 2 steps off.
    """
    made = find_makers(nodes)
    scales = {n.inputs[0]: n.inputs[1:] for n in nodes if n.op_type == "QuantizeLinear"}
    for node in nodes:
        source = made.get(node.present[0]) if node.op_type in _CENTERS else None
        known = source.present[1:] if source and source.op_type == "DequantizeLinear" else ()
        numbers = [x.data.reshape(-1) for x in known if x.data is not None]
        end = scales.get(node.outputs[0])
        if source is None or end is None or [x.size for x in numbers] != [1, 1]:
            yield keep(node, _CENTERS, "its data and its result must have one known scale each")
            continue
        x, (scale, zero) = source.outputs[0], (float(each[0]) for each in numbers)
        dtype = known[1].dtype or DType.INT8
        least, greatest = find_integer_range(dtype)
        lowest, highest = RANGES[node.op_type]
        span, low = (greatest - least) * scale, (least - zero) * scale
        if span <= highest - lowest:
            nearest = round(least - min(max(low, lowest), highest - span) / scale)
            if nearest != zero:
                # ONNX Runtime joins two pairs of QuantizeLinear and DequantizeLinear without a node
                # between them, and rounds to a scale of its own.
                limited = _find_limited(source, made) or (yield from _limit(g, source, least))
                x = yield from requantize(limited, (known[0], g.scalar(nearest, dtype)))
            yield node._replace(inputs=(x, *node.inputs[1:]))
            continue
        step = scale / int(span / highest)
        zeros = [round(least - lowest / step), round(greatest - highest / step)]
        size = g.scalar(step, DType.FLOAT32)
        halves = [(size, g.scalar(z, dtype)) for z in zeros]
        yield from _split_function(g, node, source, int(zero), halves, end)


def _split_function(
    g: Builder,
    node: Node,
    read: Node,
    zero: int,
    halves: Sequence[Sequence[Value]],
    end: Sequence[Value | None],
) -> Iterator[Node]:
    """Yield nodes in place of a function, which compute it of numbers below 0, and above.

    `zero` is the zero point of these numbers, `halves` are their scales, and `end` is that of the
    result.
    """
    above = yield from requantize((yield from _limit(g, read, zero)), read.inputs[1:])
    below = Value()
    # RKNN runs Min on the CPU.
    yield Node("Sub", (read.outputs[0], above), (below,), {})
    sides = (below, (yield from _limit(g, read, zero)))
    parts = []
    for side, operands in zip(sides, halves, strict=True):
        real, result = (yield from requantize(side, operands)), Value()
        yield node._replace(inputs=(real,), outputs=(result,))
        parts.append((yield from requantize(result, end)))
    below, above = parts
    if _CENTERS[node.op_type]:
        rest = Value()
        center = g.scalar(_CENTERS[node.op_type], DType.FLOAT32)
        yield Node("Sub", (above, center), (rest,), {})
        above = yield from requantize(rest, end)
    yield Node("Add", (below, above), node.outputs, {})


def _part_outputs(g: Builder, nodes: Sequence[Node], results: Sequence[Value]) -> Yielded:
    """Yield the nodes; none reads an output."""
    read = {x for node in nodes for x in node.present}
    quantized = {node.outputs[0] for node in nodes if node.op_type == "QuantizeLinear"}
    inside = {x: g.annotate(Value(), *g.types[x]) for x in results if x in read & quantized}
    for node in nodes:
        kept = node.with_inputs(inside)
        result = node.outputs[0]
        if result not in inside:
            kinds = ("QuantizeLinear",) if result in results else ()
            yield keep(kept, kinds, "no node reads the output")
            continue
        yield kept._replace(outputs=(inside[result],))
        real, shape = Value(), find_static_shape(result, g.types) or ()
        yield Node("DequantizeLinear", (inside[result], *node.inputs[1:]), (real,), {})
        yield from reshape_twice(g, real, node, shape)


def _move_weights(g: Builder, nodes: Sequence[Node], _: Sequence[Value]) -> Yielded:
    """Yield the nodes; weights with both extremes of their type have no room, and stay."""
    made: dict[tuple[Value | None, ...], tuple[Value, Value]] = {}
    for node in nodes:
        x = node.inputs[0] if node.op_type == "DequantizeLinear" else None
        if x is None or x.data is None or not _is_in_the_middle(node):
            yield node
            continue
        scale, zero = node.present[1:]
        steps = x.data.astype(np.int16) - MIDDLES[(zero.dtype or DType.INT8).label]
        low, high = int(steps.min(initial=0)), int(steps.max(initial=0))
        if low <= _LOW and high >= _HIGH:
            yield Stayed(node, "its weights have both extremes of their type")
            continue
        place = 129 if low == _LOW else 127
        if (x, zero) not in made:
            weights = g.make_separate_constant(
                (steps + place).astype(np.uint8), DType.UINT8, x.name
            )
            shape = [] if zero.data is None else zero.data.shape
            made[x, zero] = weights, g.constant(np.full(shape, place, np.uint8), DType.UINT8)
        x, zero = made[x, zero]
        yield node._replace(inputs=(x, scale, zero))


def _move_data(g: Builder, nodes: Sequence[Node], results: Sequence[Value]) -> Yielded:
    """Yield the nodes; a tensor inside loses the lowest number of its type.

    Inputs and outputs keep the file's zero points.
    """
    quantized = {n.outputs[0] for n in nodes if n.op_type == "QuantizeLinear"} - {*results}
    for node in nodes:
        tensor = node.outputs[0] if node.op_type == "QuantizeLinear" else node.inputs[0]
        if tensor not in quantized or not _is_in_the_middle(node):
            reason = "its integers must be inside, with a zero point in the middle"
            yield keep(node, QDQ, reason)
            continue
        x, scale, zero = node.present
        dtype = zero.dtype or DType.INT8
        yield node._replace(inputs=(x, scale, g.scalar(MIDDLES[dtype.label] - 1, dtype)))


def _is_in_the_middle(node: Node) -> bool:
    """Return whether a node quantizes or dequantizes with such zero points."""
    zero = node.present[2] if node.op_type in QDQ and node.inputs[2:] else None
    if zero is None or zero.data is None or zero.dtype is None:
        return False
    return bool(np.all(zero.data == MIDDLES.get(zero.dtype.label, -1)))


PASSES: tuple[NodePass, ...] = (
    # The other passes expect real numbers between QuantizeLinear and DequantizeLinear.
    dequantize_moves,
    # The passes of a Conv and a Gemm look at the nodes around it.
    drop_dead_nodes,
    # These make other Convs, and Convs of other nodes, before Convs are parted from functions.
    _join_groups,
    _fold_strides,
    _convolve_averages,
    _convolve_images,
    # RKNN joins a Conv and the functions after it.
    _part_products,
    # RKNN computes means of one tensor once, with one scale.
    _part_means,
    # _part_products has put a Max before some functions, which get no second one.
    _narrow_inputs,
    # What computes an output stays from here on.
    _part_outputs,
    # Constants that only dead nodes read need no copy.
    drop_dead_nodes,
    # Zero points move for each scale of a constant.
    separate_constants,
    _move_weights,
    # No pass below adds a zero point in the middle.
    _move_data,
    *PLAIN_PASSES,
)

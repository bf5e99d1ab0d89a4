"""Nodes as the HTP computes them right, where its compiler refuses or spoils other ones.

What the simulator of the HTP did with models of one operator (tests/targets/qnn):

- A Slice or Split of an image between convolutions that starts in the middle of a block of 8 pixels
  reads outside of the block: the results are wrong, or the process ends with a fault. Gather of the
  same rows is right. So is a Concat whose inputs end in the middle of a block, if Gather of all
  rows follows. Channels are right without it.
- AveragePool and a depthwise Conv of int16 are refused, and those of uint16 are right.
- A constant has one scale: the provider adds a tensor once. Weights are integers: a QuantizeLinear
  of floats with a scale for each channel is refused. Networks trained with quantization have it.
- Such networks have a Relu or Clip between a Conv and QuantizeLinear, too. It is refused unless its
  range is that of the integers. After QuantizeLinear Relu, Max and Min are right, and Clip is lost.
- Weights become int8 with the zero point 0: those that are over 127 steps from their zero point are
  rounded again, so that a quarter of the results differ by a step or two. Parts of such weights,
  each with the same data, are right. Conv of several groups with parts is wrong, and the difference
  of two such Conv of uint16 is right: 0 to 0.5 % differ by a step, in place of 17 to 28 %.
- A Conv or Gemm of 8 bits rounds twice. It drops the low bits of a sum, so that 8 to 16 steps of
  what is left are one of the result: 2 to 3 % of the results differ by a step, and 1 % of those of
  an Add. No scale or bias of 8 bits avoids it. With uint16 before and after them the sum is exact,
  and the result is the nearest step of uint16. An odd number of these in one of uint8 lets no
  number be a half, so that the second rounding is right, too. The HTP converts by a constant of a
  few bits: of the odd numbers 193 with a zero point that is 1 more is exact, for all zero points
  (simulators of v68 to v81). 256 steps have halves, which go up: 0.2 % differ.
- A bias of such a product lacks its low 8 bits, towards 0. Data have 256 steps of uint16, so that a
  bias in steps of 8 bits is whole; it is a little more, because a float may be below it.
- A Gemm of uint16 whose rows have 32 numbers and less, and its weights several scales, may not load
  (MEM_ALLOC) if the rows were 8 bits, as an input of the model is. It loads if they become uint16
  in an image.
- A Conv, or a dense layer of an image, and the activation after it become one function, which does
  not round or limit what is computed to its scale. A third of the results differ by a step, after a
  dense layer by up to 67. A MaxPool of single pixels parts them.
- A Pad and a mean of its image become one average, which counts other pixels: results are up to 50
  steps off. Of two Pads of an image, the second one writes wrong borders. A MaxPool parts both.
- DepthToSpace and SpaceToDepth ignore the scale of their result. ONNX Runtime gives them another
  one, because it makes one QuantizeLinear of two. A Max between these two stops it.
- GatherND by indices of five axes ends the process. It is right by rows of indices.
- Max and Min with a constant of 8 bits for each number of the data do not load (MEM_ALLOC) if both
  have one scale. With a constant of floats they load, and are up to a step off.
- CumSum ignores zero points. A MatMul with ones and zeros is right.
- Most functions of five axes are refused; of two axes they are right.
- ONNX Runtime moves the Transpose after a Conv through DequantizeLinear and QuantizeLinear to the
  output, where a Transpose of int8 or int16 is refused. A Reshape stops it.
"""

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from itertools import chain
from math import prod

import numpy as np

from tflite2onnx.builder.builder import Builder, find_makers, find_readers
from tflite2onnx.builder.node_passes import (
    NodePass,
    Rewritten,
    Yielded,
    drop_dead_nodes,
    keep,
)
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
from tflite2onnx.targets.qnn.rules import BORDERS
from tflite2onnx.targets.rules import QDQ, count_steps
from tflite2onnx.tensor import Array, DType, Shape

_LONGEST_SUM = 1024  # numbers, whose weights are 1 MB
_BLOCK = 8  # pixels
_LEAST_RANK = 3  # of an image
_IMAGE_RANK = 4  # of one that MaxPool reads
_CHANNELS = 1  # their axis
# The type without a sign, and its number in place of 0.
_UNSIGNED = {
    DType.UINT8: (DType.UINT8, 0),
    DType.INT8: (DType.UINT8, 1 << 7),
    DType.INT16: (DType.UINT16, 1 << 15),
}
_PRODUCTS = ("Conv", "ConvTranspose", "Gemm")
_SUMS = ("Add", "Mul", "Sub")
_HIGH = 127  # of int8
_LAST = 65535  # of uint16
# Steps of uint16 in one of uint8, and how many more the zero point has, see above.
_DATA, _RESULTS = (256, 0), (193, 1)
_LARGEST_BIAS = 2.0**30  # steps: half of int32, whose rest is for the sum of products
# How much a bias is farther from 0 than whole steps of 8 bits: more than floats are rounded.
_REST, _ROUNDED = 2.0**-7, 2.0**-20
_MOST_NUMBERS = 32  # of a row that a Gemm of uint16 does not load
_OPERANDS = 4  # weights, their scales and zero points, and the scale of the data
_MOST_AXES = 4  # of functions
_FUNCTIONS = (
    *("Ceil", "Elu", "Floor", "Gelu", "HardSwish", "Log", "Max", "Min", "Neg", "Reciprocal"),
    *("Round", "Sign", "Sin", "Softplus", "Sqrt", "Tanh"),
)
_ACTIVATIONS = ("HardSwish", "LeakyRelu", "PRelu", "Relu")
_BLOCKS = ("DepthToSpace", "SpaceToDepth")
_SCALES = 4  # two scales and two zero points


def _is_row(shape: Shape | None) -> bool:
    """Return whether a result has one row of channels, so that weights take most of the time."""
    return shape is not None and len(shape) > 1 and prod(shape) == shape[1]


def _flatten_functions(g: Builder, nodes: Sequence[Node], _: Sequence[Value]) -> Yielded:
    """Yield the nodes; functions of one tensor compute one row in place of five axes."""
    rows: dict[Value, tuple[Value, Shape]] = {}
    for node in nodes:
        x, *others = node.present or (Value(),)
        row, shape = rows.get(x, (None, find_static_shape(x, g.types) or ()))
        is_function = node.op_type in _FUNCTIONS and all(
            other.data is not None and other.data.size == 1 for other in others
        )
        if not is_function or len(shape) <= _MOST_AXES:
            yield keep(
                node,
                _FUNCTIONS,
                "it has 4 axes or less, or a second tensor",
            )
            continue
        if row is None:
            row = Value()
            yield Node("Reshape", (x, g.ints([1, -1])), (row,), {})
        made = Value()
        yield node._replace(inputs=(row, *node.inputs[1:]), outputs=(made,))
        yield Node("Reshape", (made, g.ints(shape)), node.outputs, {})
        rows[node.outputs[0]] = made, shape


def _simplify_gathers(g: Builder, nodes: Sequence[Node], _: Sequence[Value]) -> Yielded:
    """Yield the nodes; GatherND by one index for each element becomes Gather.

    Integers are gathered by rows of indices in place of five axes.
    """
    made = find_makers(nodes)
    for node in nodes:
        x, indices = node.present if node.op_type == "GatherND" else (None, None)
        cast = made.get(indices)
        integers = cast.present[0] if cast and cast.op_type == "Cast" else indices
        shape = find_static_shape(integers, g.types) if integers else None
        if shape and shape[-1] == 1 and not node.attributes.get("batch_dims"):
            places = Value()
            yield Node("Squeeze", (indices, g.ints([len(shape) - 1])), (places,), {})
            yield node._replace(op_type="Gather", inputs=(x, places), attributes={"axis": 0})
            continue
        sizes = find_static_shape(x, g.types) if x else None
        source = made.get(x)
        is_read = source is not None and source.op_type == "DequantizeLinear"
        if source is None or not is_read or not shape or not sizes or len(shape) <= _MOST_AXES:
            yield keep(
                node,
                ("GatherND",),
                "it must gather by one index, or integers of five axes",
            )
            continue
        rows, gathered = Value(), Value()
        yield Node("Reshape", (indices, g.ints([-1, shape[-1]])), (rows,), {})
        yield node._replace(inputs=(x, rows), outputs=(gathered,))
        real = yield from requantize(gathered, source.inputs[1:])
        whole = (*shape[:-1], *sizes[shape[-1] :])
        yield Node("Reshape", (real, g.ints(whole)), node.outputs, {})


def _multiply_sums(g: Builder, nodes: Sequence[Node], _: Sequence[Value]) -> Yielded:
    """Yield the nodes, with a MatMul in place of a CumSum of integers."""
    made = find_makers(nodes)
    ends = {n.inputs[0]: n.inputs[1:] for n in nodes if n.op_type == "QuantizeLinear"}
    for node in nodes:
        x, *others = node.present if node.op_type == "CumSum" else (None,)
        source, end = made.get(x) if x else None, ends.get(node.outputs[0])
        shape = find_static_shape(x, g.types) if x else None
        place = others[0].data if others else None
        is_read = source is not None and source.op_type == "DequantizeLinear"
        if x is None or source is None or not is_read or not shape or not end or place is None:
            yield keep(node, ("CumSum",), "it must add integers of known sizes along an axis")
            continue
        axis = int(place) % len(shape)
        if shape[axis] > _LONGEST_SUM:
            yield keep(node, ("CumSum",), "the matrix of ones would be too large")
            continue
        # The places that each sum adds: those up to its own.
        ones = np.triu(
            np.ones([shape[axis]] * 2, np.uint8), int(node.attributes.get("exclusive", 0))
        )
        weights = ones.T if node.attributes.get("reverse") else ones
        stored = g.make_separate_constant(weights, DType.UINT8)
        real = Value()
        steps = (g.scalar(1, DType.FLOAT32), g.scalar(0, DType.UINT8))
        yield Node("DequantizeLinear", (stored, *steps), (real,), {})
        if axis == len(shape) - 1:
            yield Node("MatMul", (x, real), node.outputs, {})
            continue
        order = [*range(len(shape))]
        order[axis], order[-1] = order[-1], order[axis]
        moved, product = Value(), Value()
        yield Node("Transpose", (x,), (moved,), {"perm": order})
        rows = yield from requantize(moved, source.inputs[1:])
        yield Node("MatMul", (rows, real), (product,), {})
        sums = yield from requantize(product, end)
        yield Node("Transpose", (sums,), node.outputs, {"perm": order})


def _store_constants(g: Builder, nodes: Sequence[Node], results: Sequence[Value]) -> Yielded:
    """Yield the nodes, with the integers in place of a QuantizeLinear of a constant."""
    stored: dict[Value, Value] = {}
    for node in nodes:
        result, arrays = node.outputs[0], [x.data for x in node.present]
        known = [array for array in arrays if array is not None]
        if node.op_type != "QuantizeLinear" or len(known) < len(arrays) or result in results:
            kept = node.with_inputs(stored)
            yield keep(kept, ("QuantizeLinear",), "it must quantize a constant, and be no output")
            continue
        numbers, scale, zero = known
        shape = [1] * numbers.ndim
        if scale.ndim:
            shape[int(node.attributes.get("axis", 1))] = -1
        steps = np.rint(numbers / scale.reshape(shape)) + zero.reshape(shape)
        dtype = g.types[result][0]
        integers = np.clip(steps, *find_integer_range(dtype)).astype(zero.dtype)
        stored[result] = g.make_separate_constant(integers, dtype, result.name)


def _limit_by_floats(g: Builder, nodes: Sequence[Node], _: Sequence[Value]) -> Yielded:
    """Yield the nodes, with floats in place of 8-bit constants of a whole image in Max and Min."""
    made = find_makers(nodes)
    for node in nodes:
        floats = {}
        for x in node.present if node.op_type in ("Max", "Min") else ():
            arrays = [each.data for each in made[x].present] if x in made else []
            known = [array for array in arrays if array is not None]
            if len(known) < 3 or known[1].size > 1 or known[0].dtype.itemsize > 1:
                continue
            shape = find_static_shape(node.outputs[0], g.types)
            if known[0].size > 1 and shape and known[0].size == prod(shape):
                numbers = (known[0].astype(np.float32) - known[2]) * known[1]
                floats[x] = g.constant(numbers.astype(np.float32), DType.FLOAT32)
        reason = "it must have a constant of 8 bits for each number"
        yield node.with_inputs(floats) if floats else keep(node, ("Max", "Min"), reason)


def _quantize_products(g: Builder, nodes: Sequence[Node], results: Sequence[Value]) -> Yielded:
    """Yield the nodes, with a QuantizeLinear between a Conv and a Relu or Clip.

    It is that after the Relu. The results do not change, because rounding keeps the order.
    """
    made = find_makers(nodes)
    readers = {x: found for x, found in find_readers(nodes).items() if x not in results}
    for node in nodes:
        source = made.get(node.present[0]) if node.op_type in ("Clip", "Relu") else None
        found = readers.get(node.outputs[0], ()) if source else ()
        while len(found) == 1 and found[0].op_type in ("Reshape", "Transpose"):
            found = readers.get(found[0].outputs[0], ())
        operands = found[0].inputs[1:] if [n.op_type for n in found] == ["QuantizeLinear"] else ()
        is_product = source is not None and source.op_type in _PRODUCTS
        if not is_product or len(operands) < 2 or _has_range(node, operands[1]):
            yield keep(
                node, ("Clip", "Relu"), "no product is before it, or integers have its range"
            )
            continue
        (_, *bounds), dtype = node.inputs, g.types[found[0].outputs[0]][0]
        stored = g.annotate(Value(), dtype, g.types[node.outputs[0]][1])
        real = yield from requantize(node.present[0], operands, stored)
        if node.op_type == "Relu":
            yield node._replace(inputs=(real,))
            continue
        limited = Value()
        yield Node("Max", (real, bounds[0]), (limited,), {})
        yield Node("Min", (limited, bounds[1]), node.outputs, {})


def _has_range(node: Node, zero: Value | None) -> bool:
    """Return whether integers with this zero point stand for the results of a Relu only."""
    if node.op_type != "Relu" or zero is None or zero.data is None or zero.dtype is None:
        return False
    return bool(zero.data == find_integer_range(zero.dtype)[0])


def _divide_weights(g: Builder, nodes: Sequence[Node], _: Sequence[Value]) -> Yielded:
    """Yield the nodes, with parts of weights, for the same data, if int8 lacks the weights."""
    made = find_makers(nodes)
    for node in nodes:
        sources = [made.get(x) for x in node.present[:2]] if node.op_type in _PRODUCTS else []
        data, weights = sources if len(sources) > 1 else (None, None)
        steps = _find_steps(weights)
        is_whole = node.attributes.get("group", 1) == 1 and not node.attributes.get("transA", 0)
        if data is None or weights is None or steps is None or not is_whole:
            yield keep(node, _PRODUCTS, "int8 has all weights, or the product has several groups")
            continue
        axis = int(node.op_type == "Conv" or node.attributes.get("transB") == 1)  # of the data
        count = -(-max(int(steps.max()), -int(steps.min())) // _HIGH)
        # Their sum is `steps`.
        divided = np.concatenate([(steps + i) // count for i in range(count)], axis)
        both, read = Value(), Value()
        yield Node("Concat", (node.inputs[0],) * count, (both,), {"axis": 1})
        real = yield from requantize(both, data.inputs[1:])
        parts = g.make_separate_constant(divided.astype(np.int8), DType.INT8)
        # ONNX Runtime with "session.x64quantprecision" makes uint8 of each, and names it once.
        zeros = np.zeros_like(weights.present[2].data, np.int8)
        middle = g.make_separate_constant(zeros, DType.INT8)
        operands = (parts, weights.inputs[1], middle)
        yield weights._replace(inputs=operands, outputs=(read,))
        yield node._replace(inputs=(real, read, *node.inputs[2:]))


def _find_steps(weights: Node | None) -> Array | None:
    """Return the steps of weights from their zero point, None unless int8 lacks one of them."""
    known = weights.present if weights and weights.op_type == QDQ[1] else ()
    arrays = [x.data for x in known if x.data is not None]
    if weights is None or len(arrays) < 3 or arrays[0].dtype.itemsize > 1:
        return None
    steps = count_steps(arrays[0], arrays[2], weights.attributes.get("axis", 1))
    low, high = find_integer_range(DType.INT8)
    return steps if steps.min() < low or steps.max() > high else None


def _widen_rows(g: Builder, nodes: Sequence[Node], _: Sequence[Value]) -> Yielded:
    """Return the nodes, with uint16 around products of 8 bits whose results are one row."""
    return _widen_products(g, nodes, lambda y: _is_row(find_static_shape(y, g.types)))


def _widen_all(g: Builder, nodes: Sequence[Node], _: Sequence[Value]) -> Yielded:
    """Return the nodes, with uint16 around all products and sums of 8 bits."""
    return _widen_products(g, nodes, lambda _: True)


def _widen_products(g: Builder, nodes: Sequence[Node], is_wide: Callable[[Value], bool]) -> Yielded:
    """Yield the nodes, with uint16 before and after some products and sums of 8 bits."""
    made = find_makers(nodes)
    readers = find_readers(nodes)
    wide: dict[Value, Value] = {}  # the data of products
    ends: dict[Value, Sequence[Value]] = {}  # the scales of what is quantized
    for node in nodes:
        x, *others = node.inputs or (None,)
        result = node.outputs[0]
        if result in ends:  # a Relu, which the limits of the integers make
            continue
        if x in ends and node.op_type == "QuantizeLinear":
            real = yield from _round_widely(g, x, ends[x])
            yield node._replace(inputs=(real, *others))
            continue
        result, rounding = _find_end(node, readers)
        end = _find_wide_scale(g, rounding, *_RESULTS)
        is_product = node.op_type in _PRODUCTS
        data = node.present[: 1 if is_product else 2]
        scales = [_find_wide_scale(g, made.get(each), *_DATA) for each in data]
        is_rounded = bool(end) and all(scales) and is_wide(result)
        if node.op_type not in (*_PRODUCTS, *_SUMS) or not is_rounded:
            yield keep(
                node,
                (*_PRODUCTS, *_SUMS),
                "it must make 8 bits of one scale, of such data",
            )
            continue
        operands: Sequence[Value] = ()
        if is_product:
            weights = made.get(node.present[1])
            operands = yield from _widen_operands(g, node, weights, scales[0][0])
            if not operands:
                yield keep(
                    node,
                    _PRODUCTS,
                    "its weights are equal, or tiny beside the bias",
                )
                continue
        read = yield from _widen_data(g, node, made, scales, wide)
        ends[result] = end
        product = node._replace(inputs=(*read, *operands), outputs=(result,))
        is_stored = node.op_type == "Conv" and operands[0] == node.present[1]
        weights = made.get(node.present[1]) if is_stored else None
        steps = _find_steps(weights)
        if weights is None or steps is None or rounding is None:
            yield product
        else:
            yield from _subtract_products(g, product, (weights, steps), made[data[0]], rounding)


def _find_end(node: Node, readers: Mapping[Value, Sequence[Node]]) -> tuple[Value, Node | None]:
    """Return the real numbers that only a QuantizeLinear reads, and this node, if there is one.

    It may read a Relu, if its integers stand for numbers that are not negative.
    """
    result = node.outputs[0]
    found = readers.get(result, ())
    relu = found[0] if [n.op_type for n in found] == ["Relu"] else None
    if relu is not None:
        result = relu.outputs[0]
        found = readers.get(result, ())
    if [n.op_type for n in found] != ["QuantizeLinear"]:
        return result, None
    return result, found[0] if relu is None or _has_range(relu, found[0].present[-1]) else None


def _widen_operands(
    g: Builder, node: Node, weights: Node | None, step: Value
) -> Generator[Node, None, Sequence[Value]]:
    """Yield nodes of the weights of a product whose data are uint16 in a `step`.

    Return the weights and the bias, nothing if 8 bits are better: equal weights make averages,
    which are rounded once.

    The HTP stores a bias as int32 in steps of the data and weights: results of a squeezed layer
    that had more were 179 steps off. Channels whose weights are tiny beside their bias have weights
    of larger steps, unless all channels have the same.
    """
    sources = weights.present if weights and weights.op_type == QDQ[1] else ()
    known = [x.data for x in (*sources, step, *node.present[2:])]
    arrays = [array for array in known if array is not None]
    if weights is None or len(arrays) < len(known) or len(known) < _OPERANDS:
        return ()
    stored, factors, zeros, size = arrays[:_OPERANDS]
    bias = np.zeros(1) if len(known) == _OPERANDS else arrays[-1].reshape(-1)
    least = np.abs(bias) / (size * _LARGEST_BIAS)
    is_average = stored.size > 1 and not np.ptp(stored)
    has_room = np.all(factors >= least)
    if is_average or (factors.size == 1 and not has_room):
        return ()
    steps = np.maximum(factors, least)
    unit = steps * size * _DATA[0]
    whole = np.rint(bias / unit)
    rest = (_REST + _ROUNDED * np.abs(whole)) * np.sign(whole)
    moved = ((whole + rest) * unit).astype(np.float32)
    operands = [g.constant(moved, DType.FLOAT32)] if moved.any() else []
    if has_room:
        return node.present[1], *operands
    sizes = [1] * stored.ndim
    sizes[int(weights.attributes.get("axis", 1))] = -1
    zero = zeros.reshape(sizes).astype(int)
    rounded = np.rint((stored - zero) * (factors / steps).reshape(sizes)) + zero
    dtype, real = weights.present[0].dtype or DType.INT8, Value()
    kernel = g.make_separate_constant(rounded.astype(stored.dtype), dtype)
    larger = g.constant(steps.astype(np.float32), DType.FLOAT32)
    yield weights._replace(inputs=(kernel, larger, *weights.inputs[2:]), outputs=(real,))
    return real, *operands


def _subtract_products(
    g: Builder, node: Node, kernel: tuple[Node, Array], read: Node, rounding: Node
) -> Iterator[Node]:
    """Yield the difference of two products: of weights limited to int8, and of what is too much.

    Both have one scale, in which neither is limited before the result is: a second product in a
    finer one was up to 7 steps off.
    """
    weights, steps = kernel
    limited = np.clip(steps, *find_integer_range(DType.INT8))
    excess = limited - steps  # its negative may be 128
    factors = np.asarray(weights.present[1].data).reshape(-1, 1)
    sums = np.multiply.outer(-excess.reshape(len(steps), -1) * factors, _find_range(read))
    low, high = sums.min(-1).sum(1).min(), sums.max(-1).sum(1).max()
    least, most = _find_range(rounding)
    size = float(most - low - least + high) / _LAST
    scale = g.scalar(size, DType.FLOAT32), g.scalar(round((high - least) / size), DType.UINT16)
    middle = np.zeros_like(weights.present[2].data, np.int8)
    parts = []
    for numbers, operands in ((limited, node.inputs[2:]), (excess, ())):
        stored, zero = (  # see _divide_weights
            g.make_separate_constant(array, DType.INT8)
            for array in (numbers.astype(np.int8), middle)
        )
        real, made = Value(), Value()
        yield weights._replace(inputs=(stored, weights.inputs[1], zero), outputs=(real,))
        yield node._replace(inputs=(node.inputs[0], real, *operands), outputs=(made,))
        parts.append((yield from requantize(made, scale)))
    yield Node("Sub", tuple(parts), node.outputs, {})


def _find_range(node: Node) -> tuple[float, float]:
    """Return the least and the largest number that integers of a node stand for."""
    scale, zero = (np.asarray(x.data).reshape(-1) for x in node.present[1:])
    bounds = np.iinfo(zero.dtype)
    least, most = ((bound - int(zero[0])) * float(scale[0]) for bound in (bounds.min, bounds.max))
    return least, most


def _quantize_widely(
    g: Builder, x: Value, read: Node, scale: Sequence[Value]
) -> Generator[Node, None, Value]:
    """Yield nodes that quantize and dequantize what a node reads, and return the result."""
    source = read.present[0].data
    if source is None:
        return (yield from _round_widely(g, x, scale))
    numbers = (source.astype(np.int32) - np.iinfo(source.dtype).min) * _DATA[0]
    constant, real = g.make_separate_constant(numbers.astype(np.uint16), DType.UINT16), Value()
    yield Node("DequantizeLinear", (constant, *scale), (real,), {})
    return real


def _widen_data(
    g: Builder,
    node: Node,
    made: Mapping[Value | None, Node],
    scales: Sequence[Sequence[Value]],
    wide: dict[Value, Value],
) -> Generator[Node, None, Sequence[Value]]:
    """Yield nodes that quantize the data of a node to uint16, and return what it reads.

    `wide` are such data by the real numbers. A Gemm of a few numbers in a row, whose weights have
    several scales, reads rows that were quantized as an image.
    """
    weights = made.get(node.present[1]) if node.op_type == "Gemm" else None
    sizes = weights.present[1].data if weights and weights.op_type == QDQ[1] else None
    x, shape = node.present[0], find_static_shape(node.present[0], g.types) or ()
    is_whole = sizes is not None and sizes.size > 1 and not node.attributes.get("transA", 0)
    if is_whole and shape and shape[1] <= _MOST_NUMBERS:
        image, rows = Value(), Value()
        yield Node("Reshape", (x, g.ints([1, shape[0], 1, shape[1]])), (image,), {})
        real = yield from requantize(image, scales[0])
        yield Node("Reshape", (real, g.ints(shape)), (rows,), {})
        return [(yield from requantize(rows, scales[0]))]
    data = node.present[: len(scales)]
    for each, scale in zip(data, scales, strict=True):
        if each not in wide:
            wide[each] = yield from _quantize_widely(g, each, made[each], scale)
    return [wide[each] for each in data]


def _round_widely(g: Builder, x: Value, scale: Sequence[Value]) -> Generator[Node, None, Value]:
    """Yield nodes that quantize real numbers to uint16 and dequantize them; return the result."""
    stored = g.annotate(Value(), DType.UINT16, g.types[x][1]) if x in g.types else None
    return (yield from requantize(x, scale, stored))


def _find_wide_scale(g: Builder, node: Node | None, count: int, more: int) -> Sequence[Value]:
    """Return the scale and zero point of uint16 in place of those of 8 bits, if a node has them."""
    known = node.present[1:] if node is not None and node.op_type in QDQ else ()
    arrays = [x.data for x in known if x.data is not None]
    if len(arrays) < 2 or arrays[0].size != 1 or arrays[1].dtype.itemsize != 1:
        return ()
    scale, zero = arrays
    number = (int(zero.reshape(-1)[0]) - np.iinfo(zero.dtype).min) * count + more
    step = float(scale.reshape(-1)[0]) / count
    return g.scalar(step, DType.FLOAT32), g.scalar(number, DType.UINT16)


def _gather_rows(g: Builder, nodes: Sequence[Node], _: Sequence[Value]) -> Yielded:
    """Yield the nodes, with Gather in place of a Slice or Split that starts within a block."""
    return chain.from_iterable(_gather_slice(g, node) for node in nodes)


def _gather_slice(g: Builder, node: Node) -> Yielded:
    """Yield nodes in place of a Slice or Split, which gather what starts within a block."""
    x = node.inputs[0] if node.inputs else None
    shape = find_static_shape(x, g.types)
    rows = [] if shape is None or len(shape) < _LEAST_RANK else _list_rows(node, shape)
    within = [_is_within(axis, each) for found in rows for axis, each in found.items()]
    if x is None or not any(within):
        yield keep(
            node,
            ("Slice", "Split"),
            "it must start within a block of pixels",
        )
        return
    for result, found in zip(node.outputs, rows, strict=True):
        value = x
        for last, (axis, each) in enumerate(found.items(), 1 - len(found)):
            made = Value() if last else result
            if _is_within(axis, each):
                yield Node("Gather", (value, g.ints(each)), (made,), {"axis": axis})
            else:
                bounds = (g.ints([each.start]), g.ints([each.stop]), g.ints([axis]))
                yield Node("Slice", (value, *bounds, g.ints([each.step])), (made,), {})
            value = made


def _is_within(axis: int, rows: range) -> bool:
    return axis != _CHANNELS and bool(rows) and rows.start % _BLOCK != 0


def _gather_joined(g: Builder, nodes: Sequence[Node], _: Sequence[Value]) -> Yielded:
    """Yield the nodes, with a Gather of all rows after each Concat that needs one."""
    joined = {node.outputs[0]: node for node in nodes if node.op_type == "Concat"}
    return chain.from_iterable(_gather_concat(g, node, joined) for node in nodes)


def _gather_concat(g: Builder, node: Node, joined: Mapping[Value, Node]) -> Yielded:
    """Yield a QuantizeLinear, with a Gather after it if it reads a Concat that needs one."""
    x = node.inputs[0] if node.op_type == "QuantizeLinear" else None
    concat = None if x is None else joined.get(x)
    shapes = [find_static_shape(x, g.types) for x in concat.inputs] if concat else []
    known = [shape for shape in shapes if shape is not None]
    rank = len(known[0]) if known else 0
    axis = int(concat.attributes["axis"]) % rank if concat and rank else _CHANNELS
    ends = np.cumsum([shape[axis] for shape in known]) if axis != _CHANNELS else np.zeros(1, int)
    if rank < _LEAST_RANK or len(known) < len(shapes) or not (ends[:-1] % _BLOCK).any():
        kinds = ("QuantizeLinear",) if concat else ()
        yield keep(node, kinds, "a joined tensor must end within a block of pixels")
        return
    # The same integers in the same shape, whose type _move_zero_points needs.
    stored = g.annotate(Value(), *g.types[node.outputs[0]])
    real, rows = Value(), Value()
    yield node._replace(outputs=(stored,))
    yield Node("DequantizeLinear", (stored, *node.inputs[1:]), (real,), {})
    yield Node("Gather", (real, g.ints(range(ends[-1]))), (rows,), {"axis": axis})
    yield node._replace(inputs=(rows, *node.inputs[1:]))


def _part_nodes(g: Builder, nodes: Sequence[Node], _: Sequence[Value]) -> Yielded:
    """Yield the nodes, with another one between two that the HTP joins wrongly.

    A MaxPool of single pixels parts a product from an activation to another scale. A Max with the
    smallest number parts a Pad from what reads its borders, which may have any number of axes.
    """
    made = find_makers(nodes)
    scales = {n.inputs[0]: n.inputs[1:] for n in nodes if n.op_type == "QuantizeLinear"}
    for node in nodes:
        is_border = node.op_type in BORDERS
        real = made.get(node.present[0]) if is_border or node.op_type in _ACTIVATIONS else None
        source = real if real and real.op_type == "DequantizeLinear" else None
        while source is not None and source.op_type in (*QDQ, "Reshape", "Transpose"):
            source = made.get(source.present[0])
        operands, stored = (real.present[1:], real.present[0]) if real else ((), None)
        rank = len(find_static_shape(stored, g.types) or ())
        before = ("Conv", "Gemm") if rank == _IMAGE_RANK else ("Conv",)
        if is_border:
            is_joined = source is not None and source.op_type == "Pad" and rank <= _MOST_AXES
        else:
            is_other = scales.get(node.outputs[0], operands) != operands
            is_joined = source is not None and source.op_type in before and is_other
        if real is None or stored is None or not is_joined:
            yield keep(
                node,
                (*_ACTIVATIONS, *BORDERS),
                "no product or Pad is before it, or its result has the same scale",
            )
            continue
        again = g.annotate(Value(), *g.types[stored])
        if is_border:
            read = yield from _limit_below(g, real, again)
        else:
            pooled = Value()
            yield Node("MaxPool", real.outputs, (pooled,), {"kernel_shape": [1, 1]})
            read = yield from requantize(pooled, operands, again)
        yield node._replace(inputs=(read, *node.inputs[1:]))


def _part_scales(g: Builder, nodes: Sequence[Node], _: Sequence[Value]) -> Yielded:
    """Yield the nodes, with a Max between blocks that became pixels and another scale of these."""
    made = find_makers(nodes)
    for node in nodes:
        real = made.get(node.present[0]) if node.op_type == "QuantizeLinear" else None
        source = real
        while source is not None and source.op_type in QDQ:
            source = made.get(source.present[0])
        is_moved = source is not None and source.op_type in _BLOCKS
        operands = real.present[1:] if real and real.op_type == "DequantizeLinear" else ()
        if real is None or not is_moved or _has_same_steps(node.inputs[1:], operands):
            yield keep(node, ("QuantizeLinear",), "it must give moved blocks another scale")
            continue
        read = yield from _limit_below(g, real)
        yield node._replace(inputs=(read, *node.inputs[1:]))


def _limit_below(
    g: Builder, read: Node, stored: Value | None = None
) -> Generator[Node, None, Value]:
    """Yield a Max of dequantized numbers and the smallest one, and return the result.

    Neither the HTP nor ONNX Runtime joins what is before the Max with what is after it.
    """
    least, limited = g.scalar(_find_range(read)[0], DType.FLOAT32), Value()
    yield Node("Max", (*read.outputs, least), (limited,), {})
    return (yield from requantize(limited, read.inputs[1:], stored))


def _has_same_steps(first: Sequence[Value | None], second: Sequence[Value | None]) -> bool:
    """Return whether two scales and zero points are equal but for the sign, or not known."""
    arrays = [x.data for x in (*first, *second) if x is not None and x.data is not None]
    if len(arrays) < _SCALES:
        return True
    (scale, zero), (other, middle) = arrays[:2], arrays[2:]
    least, lowest = (int(np.iinfo(each.dtype).min) for each in (zero, middle))
    return np.array_equal(scale, other) and np.array_equal(
        zero.astype(int) - least, middle.astype(int) - lowest
    )


def _list_rows(node: Node, shape: Shape) -> list[Mapping[int, range]]:
    """Return the rows that each output of a Slice or Split has, by axis; none if unknown."""
    rank, numbers = len(shape), [None if x is None else x.data for x in node.inputs[1:]]
    if node.op_type not in ("Slice", "Split") or any(x is None for x in numbers):
        return []
    arrays = [[int(i) for i in x.reshape(-1)] for x in numbers if x is not None]
    if node.op_type == "Slice" and len(arrays) > 2:
        starts, ends, axes = arrays[:3]
        steps = arrays[3] if arrays[3:] else [1] * len(axes)
        places = zip((axis % rank for axis in axes), starts, ends, steps, strict=True)
        return [{i: range(*slice(a, b, c).indices(shape[i])) for i, a, b, c in places if c > 0}]
    if node.op_type == "Split" and len(arrays) == 1:
        ends = np.cumsum(arrays[0]).tolist()
        axis = int(node.attributes.get("axis", 0)) % rank
        return [{axis: range(b - n, b)} for n, b in zip(arrays[0], ends, strict=True)]
    return []


def _move_zero_points(g: Builder, nodes: Sequence[Node], results: Sequence[Value]) -> Rewritten:
    """Return nodes that store int16 as uint16, except inputs and outputs, and what int16 was.

    After the DequantizeLinear of an input uint16 follows, because a Conv of int16 may be refused.

    Other nodes than QuantizeLinear and DequantizeLinear must read no int16: else nothing changes.
    """
    made = {node.outputs[0] for node in nodes if node.op_type == "QuantizeLinear"}
    made = {value for value in made if _find_type(g, value) is DType.INT16}
    made -= {*results}
    made -= {x for node in nodes if node.op_type not in QDQ for x in node.present}
    new = {value: Value() for value in made}
    computed = {value for node in nodes for value in node.outputs}
    read = {x for node in nodes for x in node.present if x not in computed and x.data is None}
    ends = {x for x in read if _find_type(g, x) is DType.INT16}
    moved = []
    for node in nodes:
        (x, *operands), result = node.inputs or (None,), node.outputs[0]
        if node.op_type in QDQ and (x in new or result in new):
            zero = _add_zero_point(g, node, DType.INT16)
            inputs = (x and new.get(x, x), operands[0], zero)
            moved.append(node._replace(inputs=inputs, outputs=(new.get(result, result),)))
        elif node.op_type == "DequantizeLinear" and x in ends:
            inside, real = Value(), Value()
            middle = (operands[0], _add_zero_point(g, node, DType.INT16))
            moved.append(node._replace(outputs=(real,)))
            moved.append(Node("QuantizeLinear", (real, *middle), (inside,), {}))
            moved.append(Node("DequantizeLinear", (inside, *middle), (result,), {}))
        else:
            moved.append(node)
    return Rewritten((*moved,), changed=made)


def _find_type(g: Builder, value: Value) -> DType | None:
    return g.types[value][0] if value in g.types else None


def _reshape_ends(g: Builder, nodes: Sequence[Node], results: Sequence[Value]) -> Yielded:
    """Yield the nodes, with a Reshape before and after the QuantizeLinear of each output."""
    real = {n.outputs[0]: n.present[-1].dtype for n in nodes if n.op_type == "DequantizeLinear"}
    return chain.from_iterable(_reshape_end(g, node, real, results) for node in nodes)


def _reshape_end(
    g: Builder,
    node: Node,
    dequantized: Mapping[Value, DType | None],
    results: Sequence[Value],
) -> Yielded:
    """Yield nodes in place of the QuantizeLinear of an output: a Reshape before and after it.

    The Reshape moves integers without a sign, also if the node quantizes what a Conv computes.
    `dequantized` are real numbers, with the types of zero points.
    """
    x, result = node.inputs[0] if node.inputs else None, node.outputs[0]
    dtype = _find_type(g, result)
    is_wide = dtype in (DType.INT8, DType.UINT8) and x and dequantized.get(x) is DType.UINT16
    is_end = node.op_type == "QuantizeLinear" and result in results and dtype in _UNSIGNED
    shape = find_static_shape(result, g.types) or ()
    is_moved = is_end and (dtype is not DType.UINT8 or is_wide)
    if x is None or dtype is None or not is_moved or len(shape) < _LEAST_RANK:
        kinds = ("QuantizeLinear",) if result in results else ()
        yield keep(node, kinds, "it must make an image of another type than its data")
        return
    if x not in dequantized or is_wide:
        inside, x = Value(), Value()
        operands = (node.inputs[1], _add_zero_point(g, node, dtype))
        yield node._replace(inputs=(node.inputs[0], *operands), outputs=(inside,))
        yield Node("DequantizeLinear", (inside, *operands), (x,), {})
    yield from reshape_twice(g, x, node, shape)


def _add_zero_point(g: Builder, node: Node, dtype: DType) -> Value:
    """Return the zero point of the same numbers in the type without a sign."""
    unsigned, middle = _UNSIGNED[dtype]
    zero = node.inputs[2] if node.inputs[2:] else None
    number = 0 if zero is None or zero.data is None else int(zero.data.reshape(-1)[0])
    return g.scalar(number + middle, unsigned)


_BEFORE: tuple[NodePass, ...] = (
    # The other passes expect real numbers between QuantizeLinear and DequantizeLinear.
    dequantize_moves,
    # The HTP refuses these nodes, or computes them wrongly, wherever they stand.
    _flatten_functions,
    _simplify_gathers,
    _multiply_sums,
    _limit_by_floats,
    _part_scales,
    # The passes of products count the nodes that read a value.
    drop_dead_nodes,
    # Weights are integers from here on.
    _store_constants,
    # The passes below find the scale of a product in the QuantizeLinear after it.
    _quantize_products,
    # Weights that int8 lacks become parts before the data of products become uint16.
    _divide_weights,
    # One scale for each constant, also for the parts.
    separate_constants,
)
_AFTER: tuple[NodePass, ...] = (
    # Slices and joins start and end in the middle of a block.
    _gather_rows,
    _gather_joined,
    # The scale between a Conv and an activation may be one of uint16 now.
    _part_nodes,
    # No pass below adds a QuantizeLinear of int16.
    _move_zero_points,
    # It reads the types of zero points, which the pass before it changes.
    _reshape_ends,
    *PLAIN_PASSES,
)
PASSES: tuple[NodePass, ...] = (*_BEFORE, _widen_rows, *_AFTER)
WIDE_PASSES: tuple[NodePass, ...] = (*_BEFORE, _widen_all, *_AFTER)  # for activations of uint16

"""Requantize a network to symmetric 8-bit integers: int8, with the zero point 0 throughout.

1. A tensor keeps its integers, as int8, where its zero point can move into biases
   (`move_zero_points`). Another tensor of 8 bits gets the scale largest magnitude / 127, with which
   -127 to 127 span the numbers of its integers. int8 with the zero point 0 is not changed.
   Constants are rounded anew.
2. Weights of a product with a zero point, or of uint8, get a scale for each channel: the scale in
   the file if the channel's integers fit, else a scale from the channel's largest magnitude.
3. A bias is an integer multiple of the scale of data times the scale of weights, so it is rounded
   anew. The scales of weights are made larger where the bias would not fit into 32 bits.
4. Integers whose range begins at 0 imply a RELU. The operator that computes the integers gets a
   RELU, unless it has an activation, because the new range begins at -127.
5. QUANTIZE of real numbers saturates where the file's range ends: RELU, MAXIMUM or MINIMUM before
   QUANTIZE replaces the saturation.
6. Custom operators read real numbers, by DEQUANTIZE.
7. The initial values of states are rounded anew, unless the states keep their integers.

Tensors of 16 bits stay int16, most of them with the zero point 0 of the file. Weights of fewer than
8 bits are not changed.
"""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from tflite2onnx.errors import OperatorError, as_unsupported, collect_errors
from tflite2onnx.graph import ABSENT, Graph, Op
from tflite2onnx.layout import make_identity
from tflite2onnx.op import find_operator
from tflite2onnx.op.base import Operator
from tflite2onnx.op.facts import Fact
from tflite2onnx.passes.rewriter import Rewriter, make_float_like
from tflite2onnx.passes.stored_numbers.move_zero_points import MovedZeroPoints, sum_weights
from tflite2onnx.quantization.declarations import Product, Real
from tflite2onnx.quantization.storage import (
    EIGHT_BITS,
    broadcast_parameters,
    decode_constant,
    encode_numbers,
    find_integer_range,
    is_quantized,
)
from tflite2onnx.tensor import Array, DType, Quantization, Tensor

_LARGEST, _MIDDLE = 127, 128
# Half of the range of int32, because sums of products are added to the bias.
_LARGEST_BIAS = 2.0**30


def make_symmetric(graph: Graph) -> Graph:
    """Return the graph in symmetric integers.

    Raises:
        UnsupportedOperators: an operator depends on the integers of the file.
    """
    asymmetric = (t for t in _list_tensors(graph) if _is_asymmetric(t) or _lacks_opposite(t))
    moved = MovedZeroPoints(graph)
    changed = {t: _requantize(t) for t in asymmetric} | moved.tensors
    rounded: dict[Op, list[Op]] = {}
    with collect_errors() as errors:
        for op in graph.walk_ops():
            with errors.at(op.place):
                rounded[op] = _requantize_operands(op, changed, moved)
    graph = graph.rewrite(lambda op: rounded.get(op, [op]))
    states = graph.inputs[len(graph.own_inputs) :]
    initial = [*graph.initial]
    for i, state in enumerate(states):
        if state in moved:
            initial[i] = moved.store_initial(initial[i], state)
        elif state in changed:
            new = changed[state]
            initial[i] = _round_anew(initial[i], state, _find_quantization(new), new.dtype)
    return replace(graph.replace_tensors(changed), initial=tuple(initial))


def _list_tensors(graph: Graph) -> set[Tensor]:
    """Return the tensors of a graph, without constant weights of products: see `_round_weights`."""
    tensors = {tensor for inner in graph.walk_graphs() for tensor in inner.inputs}
    for op in graph.walk_ops():
        with as_unsupported(op.place):  # no operator is verified yet
            declaration = find_operator(op).quantization
        weights = declaration.weights if isinstance(declaration, Product) else None
        tensors |= {*op.outputs}
        tensors |= {t for i, t in enumerate(op.inputs) if t and (i != weights or not t.has_data)}
    return tensors


def _is_asymmetric(tensor: Tensor) -> bool:
    """Return whether a tensor of 8 or 16 bits is uint8, or has a zero point."""
    if tensor.dtype not in (*EIGHT_BITS, DType.INT16) or not is_quantized(tensor):
        return False
    return tensor.dtype is DType.UINT8 or bool(_find_quantization(tensor).zero_point.any())


def _find_quantization(tensor: Tensor) -> Quantization:
    if not tensor.quantization:
        raise OperatorError(f"{tensor.name} must be quantized")
    return tensor.quantization


def _lacks_opposite(tensor: Tensor) -> bool:
    """Return whether a quantized int8 constant has -128, without which SUB can negate it."""
    lowest, _ = find_integer_range(DType.INT8)
    is_int8 = tensor.dtype is DType.INT8 and is_quantized(tensor)
    return is_int8 and tensor.has_data and bool((tensor.values == lowest).any())


def _requantize(tensor: Tensor) -> Tensor:
    """Return a tensor with the zero point 0, in a scale for the range of its integers.

    8 bits become int8: uint8 with the zero point 128 is int8 with the zero point 0.
    """
    scales = _find_quantization(tensor)
    if _is_symmetric_uint8(tensor):
        result = replace(scales, zero_point=np.zeros_like(scales.zero_point))
        return replace(tensor, dtype=DType.INT8, quantization=result)
    bounds = np.array(find_integer_range(tensor.dtype))
    largest = (
        np.abs(bounds[:, None] - scales.zero_point.reshape(-1)).max(0).reshape(scales.scale.shape)
    )
    dtype = DType.INT8 if tensor.dtype in EIGHT_BITS else tensor.dtype
    scale = (scales.scale * (largest / find_integer_range(dtype)[1])).astype(np.float32)
    new = scales.with_scale(scale, np.zeros_like(scales.zero_point))
    data = None if not tensor.has_data else _round_anew(tensor.values, tensor, new, dtype)
    return replace(tensor, dtype=dtype, quantization=new, data=data)


def _is_symmetric_uint8(tensor: Tensor) -> bool:
    """Return whether a computed tensor has the numbers of int8 with the zero point 0."""
    scales = tensor.quantization
    if not scales or tensor.has_data or tensor.dtype is not DType.UINT8:
        return False
    return bool((scales.zero_point == _MIDDLE).all())


def _round_anew(data: Array, tensor: Tensor, new: Quantization, dtype: DType) -> Array:
    return encode_numbers(decode_constant(data, _find_quantization(tensor)), new, dtype)


def _requantize_operands(
    op: Op, changed: Mapping[Tensor, Tensor], moved: MovedZeroPoints
) -> list[Op]:
    """Return the operators that replace an operator; tensors are replaced in the whole graph later.

    Raises:
        OperatorError: the operator depends on the integers of the file.
    """
    if not any(t in changed for t in op.tensors):
        return [op]
    operator, result = find_operator(op), op.outputs[0]
    _check_numbers(operator)
    if op.custom:
        rw = Rewriter(op)
        tensors = [t for t in dict.fromkeys(op.present) if t in changed]
        numbers = {t: moved.read_real(rw, t, is_shifted=False) for t in tensors}
        return [*rw.ops, op.with_inputs(numbers)]
    needs_relu = False
    if result in changed and result not in moved:
        if op.is_builtin("QUANTIZE") and op.inputs[0] not in moved:
            return _limit_input(op, result)
        needs_relu = _implies_relu(operator, result)
    if needs_relu and Fact.APPLIES_ACTIVATION not in operator.facts:
        op = op.with_activation("RELU")
    ops, declaration = moved.rewrite(op), operator.quantization
    if isinstance(declaration, Product):
        shifts = moved.find_shift(op.inputs[declaration.data]), moved.find_shift(result)
        ops = [*ops[:-1], _round_product(ops[-1], declaration, changed, shifts)]
    if isinstance(declaration, Real) and declaration.bias:
        ops = [*ops[:-1], _round_bias(ops[-1], *declaration.bias, changed)]
    if needs_relu and Fact.APPLIES_ACTIVATION in operator.facts:
        ops = [*ops[:-1], *_append_relu(ops[-1], changed[result])]
    return ops


def _limit_input(op: Op, result: Tensor) -> list[Op]:
    """Return QUANTIZE of real numbers that are limited to the range of the file's integers."""
    x, scales = op.operand(0), _find_quantization(result)
    if x.dtype is not DType.FLOAT32 or _is_symmetric_uint8(result):
        return [op]
    low, high = (
        float((i - scales.zero_point[0]) * scales.scale[0])
        for i in find_integer_range(result.dtype)
    )
    rw = Rewriter(op)
    if low == 0:
        limited = rw.op("RELU", x, output=make_float_like(x, "limited"))
    else:
        code, bound = ("MAXIMUM", low) if -low < high else ("MINIMUM", high)
        limited = rw.op(code, x, bound, output=make_float_like(x, "limited"))
    return [*rw.ops, op.with_inputs({x: limited})]


def _check_numbers(operator: Operator) -> None:
    declaration = operator.quantization
    if (
        Fact.READS_STORED in operator.facts
        or (isinstance(declaration, Real) and declaration.multiplies and not declaration.bias)
        or (isinstance(declaration, Product) and declaration.accumulates)
    ):
        raise OperatorError(
            "it depends on the integers of the file: cut the model before it (outputs), or convert"
            " without quantization symmetric"
        )


def _implies_relu(operator: Operator, result: Tensor) -> bool:
    """Return whether the range of an operator's integers begins at 0, which implies a RELU."""
    scales, op = result.quantization, operator.op
    fused = op.options.get("fused_activation_function", "")
    has_option = fused == "NONE" or (fused and Fact.APPLIES_ACTIVATION in operator.facts)
    computes = isinstance(operator.quantization, (Product, Real))
    lowest, _ = find_integer_range(result.dtype)
    return has_option and computes and bool(scales and scales.zero_point[0] == lowest)


def _append_relu(op: Op, result: Tensor) -> list[Op]:
    """Return an operator that applies no activation to integers, and RELU of its output."""
    linear = replace(result, name=f"{result.name}/linear")
    rw = Rewriter(op)
    rw.op("RELU", linear, output=op.outputs[0])
    return [replace(op, outputs=(linear, *op.outputs[1:])), *rw.ops]


def _round_product(
    op: Op, declaration: Product, changed: Mapping[Tensor, Tensor], shifts: tuple[float, float]
) -> Op:
    """Return a product with constant weights and bias rounded anew.

    `shifts` are the increases of the real numbers of the data and of the result.
    """
    x, w, bias = (op.operand(i) for i in declaration.operands)
    if not is_quantized(x) or not is_quantized(w):
        return op
    data, sums = changed.get(x, x), _dequantize_bias(x, w, bias)
    if bias is ABSENT and any(shifts):
        bias = Tensor(f"{op.outputs[0].name}/bias", op.outputs[0].shape[-1:], DType.INT32)
        sums = np.zeros(bias.shape)
        op = replace(op, inputs=(*op.inputs[: declaration.bias], bias))
    inputs = [*op.inputs]
    weights, axis = changed.get(w, w), _find_channels(op, w)
    if w.has_data:
        sums = sums + shifts[1]
        round_anew = _is_asymmetric(w) or _exceeds_scales(sums, _multiply_scales(data, w))
        weights = _round_weights(w, axis, data, sums) if round_anew else w
        inputs[declaration.weights] = weights
    if sums.size:
        if shifts[0]:
            sums = sums - shifts[0] * sum_weights(weights, axis or 0)
        scale = _multiply_scales(data, weights)
        integers = np.rint(sums / scale).astype(np.int32)
        scales = Quantization(scale.astype(np.float32), np.zeros(scale.size, np.int64))
        inputs[declaration.bias] = replace(
            bias, data=integers, dtype=DType.INT32, quantization=scales
        )
    return replace(op, inputs=tuple(inputs))


def _round_bias(op: Op, index: int, factor: int, changed: Mapping[Tensor, Tensor]) -> Op:
    """Return an operator whose bias has the scale that follows from another scale of an input."""
    bias, x = op.operand(index), op.operand(factor)
    if x not in changed or bias.dtype is not DType.INT32 or not bias.has_data:
        return op
    growth = _find_quantization(changed[x]).scale[0] / _find_quantization(x).scale[0]
    integers = np.rint(bias.values / growth.astype(np.float64)).astype(np.int32)
    return op.with_inputs({bias: replace(bias, data=integers, quantization=None)})


def _multiply_scales(x: Tensor, weights: Tensor) -> Array:
    """Return the scales of the sums of products, as float64."""
    a, b = _find_quantization(x), _find_quantization(weights)
    product: Array = a.scale[0].astype(np.float64) * b.scale.astype(np.float64)
    return product


def _exceeds_scales(sums: Array, scales: Array) -> bool:
    """Return whether the integers of a bias do not fit; `sums` is empty if there is no bias."""
    return bool(sums.size and (np.abs(sums) > scales * _LARGEST_BIAS).any())


def _dequantize_bias(x: Tensor, weights: Tensor, bias: Tensor) -> Array:
    """Return the real numbers of a bias, float64, empty if the bias has no integers."""
    if bias.dtype not in (DType.INT32, DType.INT64) or not bias.has_data:
        return np.empty(0)
    return bias.values.astype(np.float64) * _multiply_scales(x, weights)


def _find_channels(op: Op, weights: Tensor) -> int | None:
    """Return the axis of weights that has a scale for each channel, None for a single scale."""
    scales = _find_quantization(weights)
    if scales.per_axis:
        return scales.axis
    if op.is_builtin("DEPTHWISE_CONV_2D"):
        return weights.rank - 1
    return 0 if op.is_builtin("CONV_2D", "FULLY_CONNECTED", "TRANSPOSE_CONV") else None


def _round_weights(w: Tensor, axis: int | None, x: Tensor, sums: Array) -> Tensor:
    """Return weights as int8 with the zero point 0; `sums` is the bias in real numbers.

    A channel keeps its scale, and so its numbers, if its largest magnitude and its bias fit.
    """
    scales = _find_quantization(w)
    numbers = decode_constant(w.values, scales)
    others = tuple(i for i in range(w.rank) if i != axis)
    largest = np.abs(numbers).max(others, initial=0).reshape(-1).astype(np.float64)
    scale = np.maximum(largest / _LARGEST, scales.scale)
    if sums.size:
        minimum = np.abs(sums) / (_find_quantization(x).scale[0] * _LARGEST_BIAS)
        scale = np.maximum(scale, minimum if axis is not None else minimum.max(initial=0))
    new = Quantization(scale.astype(np.float32), np.zeros(scale.size, np.int64), axis or 0)
    integers = _keep_sums(encode_numbers(numbers, new, DType.INT8), numbers, new)
    return replace(w, dtype=DType.INT8, data=integers, quantization=new)


def _keep_sums(integers: Array, numbers: Array, scales: Quantization) -> Array:
    """Return integers, some of which are rounded to the other side to keep the sums of channels.

    Most data have one sign, so the error of a sum matters more than the errors of single weights.
    """
    scale, _ = broadcast_parameters(scales, make_identity(numbers.ndim))
    errors = numbers.astype(np.float64) / scale - integers
    axis, result = scales.axis, integers.copy()
    rows = zip(np.moveaxis(errors, axis, 0), np.moveaxis(result, axis, 0), strict=True)
    for error, row in rows if scales.per_axis else [(errors, result)]:
        count = round(float(error.sum()))
        sign = np.sign(count)
        nearest = np.argsort(-sign * error, axis=None, kind="stable")[: abs(count)]
        places = np.unravel_index(nearest, error.shape)
        row[places] = np.clip(row[places] + sign, -_LARGEST, _LARGEST)
    return result

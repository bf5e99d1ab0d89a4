"""Requantize a network to symmetric 8-bit integers: int8, with the zero point 0 throughout.

1. A tensor of 8 bits gets the scale with which -127 to 127 span the numbers that its integers stand
   for: the largest magnitude / 127. int8 with the zero point 0 stays. Constants are rounded anew.
2. Weights of a product with a zero point, or of uint8, get a scale for each channel, from the
   channel's own largest magnitude.
3. A bias is an integer multiple of the scale of data times that of weights, so it is rounded anew.
   The scales of weights are made larger where the bias would not fit into 32 bits.
4. Integers whose range begins at 0 imply a RELU. The operator that computes them gets one, unless
   it has an activation, because the new range begins at -127.
5. QUANTIZE of real numbers saturates where the file's range ends: RELU, MAXIMUM or MINIMUM before
   it does so now.
6. Custom operators read real numbers, by DEQUANTIZE.
7. The initial values of states are rounded anew.

Tensors of 16 bits have the zero point 0, and weights of fewer than 8 bits stay as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from tflite2onnx.errors import OperatorError, collect_errors
from tflite2onnx.graph import Graph, Op
from tflite2onnx.op import operator_for
from tflite2onnx.op.base import Operator
from tflite2onnx.passes.rewriter import Rewriter, new_tensor
from tflite2onnx.quantization.declarations import Product, Real
from tflite2onnx.quantization.storage import (
    decode_constant,
    encode_numbers,
    integer_range,
    is_quantized,
)
from tflite2onnx.tensor import Array, DType, Quantization, Tensor

_LARGEST = 127
_LARGEST_BIAS = 2.0**30  # half of what 32 bits hold: sums of products are added to it
_EIGHT_BITS = (DType.INT8, DType.UINT8)
# Operators whose results depend on the stored integers, not on the numbers that they stand for.
_EXPOSING = ("BITCAST", "CAST")


def make_symmetric(graph: Graph) -> Graph:
    """Return the graph in symmetric integers.

    Raises:
        UnsupportedOperators: an operator depends on the integers of the file.
    """
    asymmetric = (t for t in _list_tensors(graph) if _is_asymmetric(t) or _lacks_opposite(t))
    changed = {t: _requantize(t) for t in asymmetric}
    rounded: dict[Op, list[Op]] = {}
    with collect_errors() as errors:
        for op in graph.every_op():
            with errors.at(op.place):
                rounded[op] = _requantize_operands(op, changed)
    graph = graph.rewrite(lambda op: rounded.get(op, [op]))
    initial = tuple(
        _round_anew(data, tensor, _find_quantization(changed[tensor]))
        if tensor in changed
        else data
        for tensor, data in zip(graph.inputs[len(graph.own_inputs) :], graph.initial, strict=True)
    )
    return replace(graph.replace_tensors(changed), initial=initial)


def _list_tensors(graph: Graph) -> set[Tensor]:
    """Return the tensors of a graph, without constant weights of products: see `_round_weights`."""
    found = {tensor for each in graph.every_graph() for tensor in each.inputs}
    for op in graph.every_op():
        declared = operator_for(op).quantization
        weights = declared.weights if isinstance(declared, Product) else None
        found |= {*op.outputs}
        found |= {t for i, t in enumerate(op.inputs) if t and (i != weights or t.data is None)}
    return found


def _is_asymmetric(tensor: Tensor) -> bool:
    """Return whether a tensor of 8 bits is uint8, or has a zero point."""
    if tensor.dtype not in _EIGHT_BITS or not is_quantized(tensor):
        return False
    return tensor.dtype is DType.UINT8 or bool(_find_quantization(tensor).zero_point.any())


def _find_quantization(tensor: Tensor) -> Quantization:
    """Return the scales of a tensor; OperatorError if it has none."""
    if not tensor.quantization:
        raise OperatorError(f"{tensor.name} must be quantized")
    return tensor.quantization


def _lacks_opposite(tensor: Tensor) -> bool:
    """Return whether a quantized int8 constant has -128, without which SUB can negate it."""
    lowest, _ = integer_range(DType.INT8)
    is_int8 = tensor.dtype is DType.INT8 and is_quantized(tensor)
    return is_int8 and tensor.data is not None and bool((tensor.data == lowest).any())


def _requantize(tensor: Tensor) -> Tensor:
    """Return a tensor as int8 with the zero point 0, in a scale for the range of its integers."""
    own = _find_quantization(tensor)
    bounds = np.array(integer_range(tensor.dtype))
    most = np.abs(bounds[:, None] - own.zero_point.reshape(-1)).max(0).reshape(own.scale.shape)
    scale = (own.scale * (most / _LARGEST)).astype(np.float32)
    new = replace(own, scale=scale, zero_point=np.zeros_like(own.zero_point))
    data = None if tensor.data is None else _round_anew(tensor.data, tensor, new)
    return replace(tensor, dtype=DType.INT8, quantization=new, data=data)


def _round_anew(data: Array, tensor: Tensor, new: Quantization) -> Array:
    """Return integers of a tensor in another quantization, as int8."""
    return encode_numbers(decode_constant(data, _find_quantization(tensor)), new, DType.INT8)


def _requantize_operands(op: Op, changed: Mapping[Tensor, Tensor]) -> list[Op]:
    """Return the operators that replace an operator; tensors are replaced in the whole graph later.

    Raises:
        OperatorError: the operator depends on the integers of the file.
    """
    if not any(t in changed for t in (*op.present, *op.outputs)):
        return [op]
    operator, result = operator_for(op), op.outputs[0]
    _check_numbers(operator)
    if op.custom:
        return _dequantize_inputs(op, changed)
    if op.is_builtin("QUANTIZE") and result in changed:
        return _limit_input(op, result)
    if result in changed and _implies_relu(operator, result):
        op = op.with_activation("RELU")
    declared = operator.quantization
    return [_round_product(op, declared, changed) if isinstance(declared, Product) else op]


def _dequantize_inputs(op: Op, changed: Mapping[Tensor, Tensor]) -> list[Op]:
    """Return a custom operator that reads real numbers: kernels take uint8 or floats."""
    rw = Rewriter(op)
    real = {
        t: rw.op("DEQUANTIZE", t, output=_as_float(t, "real"))
        for t in dict.fromkeys(op.present)
        if t in changed
    }
    return [*rw.ops, op.with_inputs(real)]


def _limit_input(op: Op, result: Tensor) -> list[Op]:
    """Return QUANTIZE of real numbers that are limited to the range of the file's integers."""
    x, own = op.operand(0), _find_quantization(result)
    if x.dtype is not DType.FLOAT32:
        return [op]
    low, high = (float((i - own.zero_point[0]) * own.scale[0]) for i in integer_range(result.dtype))
    rw = Rewriter(op)
    if low == 0:
        limited = rw.op("RELU", x, output=_as_float(x, "limited"))
    else:
        code, bound = ("MAXIMUM", low) if -low < high else ("MINIMUM", high)
        limit = Tensor(f"{x.name}/limit", (), DType.FLOAT32, np.array(bound, np.float32))
        limited = rw.op(code, x, limit, output=_as_float(x, "limited"))
    return [*rw.ops, op.with_inputs({x: limited})]


def _as_float(tensor: Tensor, name: str) -> Tensor:
    """Return a tensor for real numbers in the shape of another."""
    new = new_tensor(tensor, name)
    return replace(new, dtype=DType.FLOAT32, quantization=None, is_variable=False)


def _check_numbers(operator: Operator) -> None:
    declared = operator.quantization
    if (
        operator.op.is_builtin(*_EXPOSING)
        or (isinstance(declared, Real) and declared.multiplies)
        or (isinstance(declared, Product) and declared.accumulates)
    ):
        raise OperatorError(
            "it depends on the integers of the file: quantization symmetric must not be used, or"
            " the model be cut before it (outputs)"
        )


def _implies_relu(operator: Operator, result: Tensor) -> bool:
    """Return whether the range of an operator's integers begins at 0 in place of an activation."""
    own, op = result.quantization, operator.op
    has_option = op.options.get("fused_activation_function") == "NONE"
    computes = isinstance(operator.quantization, (Product, Real))
    lowest, _ = integer_range(result.dtype)
    return has_option and computes and bool(own and own.zero_point[0] == lowest)


def _round_product(op: Op, declared: Product, changed: Mapping[Tensor, Tensor]) -> Op:
    """Return a product with constant weights and bias rounded anew."""
    x, w, bias = (op.operand(i) for i in declared.operands)
    if not is_quantized(x) or not is_quantized(w):
        return op
    data, sums = changed.get(x, x), _dequantize_bias(x, w, bias)
    weights = changed.get(w, w)
    if w.data is not None and _is_asymmetric(w):
        weights = _round_weights(w, _find_channels(op, declared, w), data, sums)
    inputs = [*op.inputs]
    inputs[declared.weights] = w if w.data is None else weights
    if sums.size:
        scale = _multiply_scales(data, weights)
        whole = np.rint(sums / scale).astype(np.int32)
        own = Quantization(scale.astype(np.float32), np.zeros(scale.size, np.int64))
        inputs[declared.bias] = replace(bias, data=whole, dtype=DType.INT32, quantization=own)
    return replace(op, inputs=tuple(inputs))


def _multiply_scales(x: Tensor, weights: Tensor) -> Array:
    """Return the scales of the sums of products, as float64."""
    a, b = _find_quantization(x), _find_quantization(weights)
    product: Array = a.scale[0].astype(np.float64) * b.scale.astype(np.float64)
    return product


def _dequantize_bias(x: Tensor, weights: Tensor, bias: Tensor) -> Array:
    """Return the real numbers of a bias, float64, none if it is not stored as integers."""
    if bias.dtype not in (DType.INT32, DType.INT64) or bias.data is None:
        return np.empty(0)
    return bias.data.astype(np.float64) * _multiply_scales(x, weights)


def _find_channels(op: Op, declared: Product, weights: Tensor) -> int | None:
    """Return the axis of weights that has a scale for each channel, None for a single scale."""
    own = _find_quantization(weights)
    if own.per_axis:
        return own.axis
    if declared.depthwise:
        return weights.rank - 1
    return 0 if op.is_builtin("CONV_2D", "FULLY_CONNECTED", "TRANSPOSE_CONV") else None


def _round_weights(w: Tensor, axis: int | None, x: Tensor, sums: Array) -> Tensor:
    """Return weights as int8 with the zero point 0; `sums` is the bias in real numbers."""
    own = _find_quantization(w)
    numbers = decode_constant(w.values, own)
    others = tuple(i for i in range(w.rank) if i != axis)
    most = np.abs(numbers).max(others, initial=0).reshape(-1).astype(np.float64)
    scale = most / _LARGEST
    if sums.size:
        least = np.abs(sums) / (_find_quantization(x).scale[0] * _LARGEST_BIAS)
        scale = np.maximum(scale, least if axis is not None else least.max(initial=0))
    scale = np.where(scale > 0, scale, own.scale.max()).astype(np.float32)
    new = Quantization(scale, np.zeros(scale.size, np.int64), axis or 0)
    return replace(
        w, dtype=DType.INT8, data=encode_numbers(numbers, new, DType.INT8), quantization=new
    )

"""Replace zero points of tensors by 0, and keep the integers of the file.

With 0 in place of the zero point z, the integers stand for real numbers that are z steps higher.
Biases compensate for the difference: the bias of the product that computes a tensor increases by z
steps, and the bias of a product that reads the tensor decreases by the sum of its weights times z
steps. So the integers keep their 8 bits; the scale largest magnitude / 127 would lose up to one
bit. A range that began at 0 now begins at -128 steps, where QuantizeLinear saturates, so no RELU is
needed.

1. CONV_2D, DEPTHWISE_CONV_2D and FULLY_CONNECTED with constant weights read and write such tensors.
   Their padding is not 0, so PADV2 pads before the convolution. TRANSPOSE_CONV only writes such
   tensors: its output elements depend on different numbers of weights, so no bias can compensate
   for the zero point of its input.
2. Operators that move, select or average elements in one scale read and write such tensors. PAD
   becomes PADV2. ARG_MAX and SHAPE do not depend on zero points.
3. ADD, SUB, QUANTIZE and DEQUANTIZE compute with real numbers, and a sum with a constant follows.
   Products, activations, and operators of 2 with several scales do so too, with a sum for each
   operand. The input of SOFTMAX needs no sum. Custom operators read real numbers.

The states of the network lose their zero points, too: no caller computes with them. A state and its
next value do so together, and the initial value keeps its integers.

A tensor that any other operator reads or writes keeps its zero point, and so do inputs and outputs
of the network: their readers expect the zero point of the file.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tflite2onnx.graph import ABSENT, Graph, Op
from tflite2onnx.made_options import QuantizeOptions, WindowOptions
from tflite2onnx.op import find_operator, is_valid
from tflite2onnx.op.facts import Fact
from tflite2onnx.op.vision.conv import Convolution
from tflite2onnx.passes.operands import LAYERS, has
from tflite2onnx.passes.rewriter import Rewriter, make_float_like, make_like
from tflite2onnx.quantization.declarations import Product, has_one_scale, list_operands
from tflite2onnx.quantization.rules import find_file_storage
from tflite2onnx.quantization.storage import (
    EIGHT_BITS,
    Storage,
    clamp,
    encode_constant,
    is_quantized,
    move_zero_point,
    same_scale,
)
from tflite2onnx.tensor import Array, DType, Quantization, Tensor
from tflite2onnx.utils.disjoint_sets import DisjointSets

# Operators each of whose results is an element of an input, or an average of elements; and those
# that take elements.
_SELECTING = (
    *("AVERAGE_POOL_2D", "CONCATENATION", "MAXIMUM", "MAX_POOL_2D", "MEAN", "MINIMUM", "PACK"),
    *("PAD", "RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR", "TILE"),
)
# The sign of each input in the sum that the operator computes.
_SUMS = {"ADD": (1, 1), "SUB": (1, -1), "QUANTIZE": (1,), "DEQUANTIZE": (1,)}
_PLAIN: Mapping[str, Any] = {"fused_activation_function": "NONE", "pot_scale_int16": True}


class MovedZeroPoints:
    """The tensors of a graph whose integers stay, without their zero point."""

    def __init__(self, graph: Graph) -> None:
        nested = (t for op in graph.walk_ops() for g in op.graphs for t in (*g.inputs, *g.outputs))
        self._ends = {*graph.own_inputs, *graph.own_outputs, *nested}
        self._is_dynamic = any(t.dynamic_axes - {0} for t in graph.inputs)
        self.tensors = {t: _drop_zero_point(t) for t in self._list_allowed_tensors(graph)}

    def __contains__(self, tensor: Tensor | None) -> bool:
        return tensor in self.tensors

    def find_shift(self, tensor: Tensor | None) -> float:
        """Return the increase of a tensor's real numbers, 0 if the zero point stays."""
        if not tensor or tensor not in self.tensors:
            return 0.0
        return _find_zero_point(tensor) * float(_store_as_int8(tensor).scale[0])

    @staticmethod
    def store_initial(data: Array, state: Tensor) -> Array:
        """Return the initial value of a state whose integers stay, as int8."""
        return encode_constant(data, state.dtype, _find_storage(state))

    def rewrite(self, op: Op) -> list[Op]:
        """Return the operators that replace an operator; a product is the last of them.

        The biases of products are left to the caller.
        """
        if not any(t in self.tensors for t in (*op.inputs, *op.outputs)):
            return [op]
        if op.outputs[0] in self.tensors and op.activation != "NONE":
            op = op.with_activation("NONE")  # the range of the integers implies the activation
        return self._compute_real(op) if _is_real(op) else self._pad(op)

    def _list_allowed_tensors(self, graph: Graph) -> list[Tensor]:
        """Return the tensors that all operators can read and write without their zero point.

        The operands of an operator that selects elements lose their zero points together.
        """
        tensors, refused, sets = dict[Tensor, None](), set[Tensor](), DisjointSets[Tensor]()
        for state in _list_states(graph):
            tensors |= dict.fromkeys(filter(_has_zero_point, state))
            sets.join(state)
            if not all(map(_has_zero_point, state)) or not same_scale(*state):
                refused |= {*state}
        for op in graph.walk_ops():
            operands = {i: t for i, t in list_operands(op).items() if _has_zero_point(t)}
            tensors |= dict.fromkeys(operands.values())
            is_known = bool(operands) and is_valid(find_operator(op))
            refused |= {
                tensor
                for operand, tensor in operands.items()
                if not is_known or tensor in self._ends or not self._allows(op, operand)
            }
            if operands and _selects(op) and not _is_real(op):
                sets.join(operands.values())
        refused = {sets.find(tensor) for tensor in refused}
        return [tensor for tensor in tensors if sets.find(tensor) not in refused]

    def _allows(self, op: Op, operand: int) -> bool:
        """Return whether an operator can read or write an operand without its zero point."""
        is_clamped = (
            operand < 0 and clamp(op.activation, find_file_storage(op.outputs[0])) is not None
        )
        if is_clamped:
            return False
        if op.custom or op.is_builtin("ARG_MAX", "ARG_MIN") or has(op, Fact.SHAPE_ONLY):
            return operand >= 0
        if op.code in (*LAYERS, "TRANSPOSE_CONV"):
            return self._allows_product(op, operand)
        if _selects(op):
            constants = [t for t in op.present if t.has_data]
            is_single = has_one_scale(op) or len(op.outputs) == 1
            return is_single and not any(map(is_quantized, constants))
        return _is_real(op)

    def _allows_product(self, op: Op, operand: int) -> bool:
        declaration = find_operator(op).quantization
        if not isinstance(declaration, Product):
            return False
        weights, bias = op.operand(declaration.weights), op.operand(declaration.bias)
        scales = None if not weights.has_data else weights.quantization
        if not scales or scales.block_size or (bias is not ABSENT and not bias.has_data):
            return False
        depends = self._is_dynamic and any(_list_pads(op))
        reads = operand == declaration.data and op.code != "TRANSPOSE_CONV"
        return operand < 0 or (reads and not depends)

    def _compute_real(self, op: Op) -> list[Op]:
        """Return an operator on real numbers, and the sums with constants before and after it."""
        result, rw = op.outputs[0], Rewriter(op)
        is_shifted = op.code in _SUMS or op.code == "SOFTMAX"
        reals = [x and self.read_real(rw, x, is_shifted=is_shifted) for x in op.inputs]
        shift = self.find_shift(result)
        for sign, x in zip(_SUMS.get(op.code, ()), op.inputs, strict=False):
            shift -= sign * self.find_shift(x)
        value = reals[0]
        if not op.is_builtin("QUANTIZE", "DEQUANTIZE"):
            whole = op.with_activation("NONE") if shift and op.activation != "NONE" else op
            output = make_float_like(result, "alone")
            value = rw.op(op.code, *reals, output=output, made=whole.made, **whole.options)
        if shift:
            output = make_float_like(result, "moved") if is_quantized(result) else result
            options = {**_PLAIN, "fused_activation_function": op.activation}
            value = rw.op("ADD", value, shift, output=output, **options)
        if value is not result:
            rw.op("QUANTIZE", value, output=result, made=QuantizeOptions(divides=True))
        return rw.ops

    def read_real(self, rw: Rewriter, x: Tensor, *, is_shifted: bool) -> Tensor:
        """Return the real numbers of an input; with `is_shifted` they may lack the shift."""
        if not is_quantized(x):
            return x
        result = rw.source.outputs[0]
        numbers = rw.op("DEQUANTIZE", x, output=make_float_like(x, f"real for {result.name}"))
        if is_shifted or x not in self.tensors:
            return numbers
        output = make_float_like(x, f"own for {result.name}")
        return rw.op("ADD", numbers, -self.find_shift(x), output=output, **_PLAIN)

    def _pad(self, op: Op) -> list[Op]:
        """Return PADV2 in place of PAD, or before a convolution that pads."""
        x = op.operand(0)
        if x not in self.tensors:
            return [op]
        new = replace(x, name=f"{op.outputs[0].name}/zero", shape=(), shape_signature=())
        zero = replace(
            _drop_zero_point(new), data=np.array(_find_zero_point(x), np.int8), symbols={}
        )
        if op.is_builtin("PAD"):
            return [replace(op, code="PADV2", inputs=(*op.inputs, zero))]
        pads = _list_pads(op)
        if not any(pads):
            return [op]
        rw = Rewriter(op)
        top, left, bottom, right = pads
        table = [(0, 0), (top, bottom), (left, right), (0, 0)]
        shape = tuple(size + sum(amounts) for size, amounts in zip(x.shape, table, strict=True))
        output = make_like(self.tensors[x], f"padded for {op.outputs[0].name}", shape)
        image = rw.op("PADV2", x, table, zero, output=output)
        made = op.made and op.read_made(WindowOptions).replace(pads=())
        padded = op.with_options(padding="VALID").with_inputs({x: image})
        return [*rw.ops, replace(padded, made=made)]


def _selects(op: Op) -> bool:
    return op.is_builtin(*_SELECTING) or has(op, Fact.TAKES)


def _is_real(op: Op) -> bool:
    """Return whether an operator computes with real numbers if its operands have zero points."""
    if _selects(op):
        return len(op.outputs) == 1 and not has_one_scale(op)
    return op.is_builtin(*_SUMS, "MUL", "SOFTMAX") or has(op, Fact.ACTIVATION)


def sum_weights(weights: Tensor, axis: int) -> Array:
    """Return the sums of the real weights along all axes but one, float64."""
    scales, data = weights.quantization, weights.data
    assert scales is not None  # noqa: S101 - weights of a product of integers
    assert data is not None  # noqa: S101 - constants
    others = tuple(i for i in range(data.ndim) if i != axis)
    sums: Array = data.sum(others, dtype=np.float64) * scales.scale.astype(np.float64)
    return sums


def _has_zero_point(tensor: Tensor) -> bool:
    """Return whether a computed tensor of 8 bits has a zero point as int8."""
    is_moved = not tensor.has_data and tensor.dtype in EIGHT_BITS and is_quantized(tensor)
    return is_moved and not tensor.is_variable and _find_zero_point(tensor) != 0


def _find_zero_point(tensor: Tensor) -> int:
    """Return the zero point of a tensor as int8."""
    return int(_store_as_int8(tensor).zero_point[0])


def _store_as_int8(tensor: Tensor) -> Quantization:
    """Return the scales and zero points of a tensor that is stored as int8."""
    storage = _find_storage(tensor)
    assert storage.quantization is not None  # noqa: S101 - quantized tensors only
    return storage.quantization


def _find_storage(tensor: Tensor) -> Storage:
    return move_zero_point(find_file_storage(tensor), DType.INT8)


def _list_states(graph: Graph) -> Iterable[tuple[Tensor, Tensor]]:
    """Return each state and its next value."""
    inputs, outputs = graph.inputs[len(graph.own_inputs) :], graph.outputs[len(graph.own_outputs) :]
    return zip(inputs, outputs, strict=True)


def _drop_zero_point(tensor: Tensor) -> Tensor:
    storage = _store_as_int8(tensor)
    result = replace(storage, zero_point=np.zeros_like(storage.zero_point))
    return replace(tensor, dtype=DType.INT8, quantization=result)


def _list_pads(op: Op) -> Sequence[int]:
    """Return the rows and columns that a convolution pads: top, left, bottom, right."""
    operator = find_operator(op)
    if not isinstance(operator, Convolution):
        return ()
    sizes = operator.sizes(0)
    pads: Sequence[int] = operator.read_window().make_attributes((sizes["H"], sizes["W"]))["pads"]
    return pads

"""moe: the experts of a language model that a router has chosen for each token."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tflite2onnx.op.base import Builder, OperatorError, Value, View
from tflite2onnx.op.common.checks import expect_input_count, expect_type
from tflite2onnx.op.traits import DynamicShape
from tflite2onnx.quantization.declarations import Integers
from tflite2onnx.tensor import Array, DType

# The types of weights by the option `weight_type`; an int4 tensor may be stored as pairs of int8.
_WEIGHTS = {"fp32": (DType.FLOAT32,), "int8": (DType.INT8,), "int4": (DType.INT4, DType.INT8)}
_APPROXIMATE = {"gelu": False, "gelu_tanh": True}
_ROUTING = 3  # inputs before the weights: data, shares and numbers of the experts
# A product with gathered weights reads, writes and reads them.
_COPIES = 3


class _Matrices(NamedTuple):
    """The matrices of all experts: [out, experts, in], or [experts, out, in] after `swap`.

    There is one scale for each group of numbers along the last axis, or none.
    """

    numbers: Array
    scales: Array | None

    def swap(self) -> _Matrices:
        """Return the same matrices with the first two axes in the other order."""
        scales = None if self.scales is None else self.scales.swapaxes(0, 1)
        return _Matrices(self.numbers.swapaxes(0, 1), scales)

    def emit(self, g: Builder, places: Value | None = None) -> Value:
        """Return the real numbers, or those of some indices of the first axis."""
        values = [g.constant(np.ascontiguousarray(a)) for a in self if a is not None]
        if places is not None:
            values = [g.Gather(value, places, axis=0) for value in values]
        if self.scales is None:
            return values[0]
        _, rows, columns = self.numbers.shape
        groups = self.scales.shape[-1]
        numbers, factors = g.cast(values[0], DType.FLOAT32), values[1]
        if groups == 1:
            return g.Mul(numbers, factors)
        numbers = g.reshape(numbers, (-1, rows, groups, columns // groups))
        product = g.Mul(numbers, g.Unsqueeze(factors, g.ints([3])))
        return g.reshape(product, (-1, rows, columns))


class Experts(DynamicShape):
    """moe: for each token the weighted sum of the outputs of some experts, gated dense layers.

    An expert computes down(gelu(gate(x)) * up(x)) times its scale. If few experts compute few
    tokens, their weights are gathered. Otherwise all experts compute all tokens, and the outputs of
    those that were not chosen are multiplied by 0: these are matrix products of many rows.
    """

    codes = ("moe",)
    operands = "float32 [...], float32, int32, ... -> float32 [...]"
    quantization = Integers(in_file_types=True)

    def supports_dynamic_axis(self, operand: int, axis: int) -> bool:
        tensors = {~0: self.output, 0: self.input(0), 1: self.input(1), 2: self.input(2)}
        return operand in tensors and axis < tensors[operand].rank - 1

    def check(self) -> None:
        experts, active, depth, hidden = self._sizes
        o, x = self.options, self.input(0)
        if o.weight_type not in _WEIGHTS or o.get("activation", "gelu") not in _APPROXIMATE:
            raise OperatorError(
                f"its weight_type must be one of {[*_WEIGHTS]}, and its activation one of"
                f" {[*_APPROXIMATE]}, got {o.weight_type} and {o.get('activation')}"
            )
        if not 0 < active <= experts or min(depth, hidden) < 1 or x.shape[-1:] != (depth,):
            raise OperatorError(
                f"experts, depths and the last axis of {list(x.shape)} must fit together, got"
                f" {active} of {experts} experts, model_dim {depth} and hidden_dim {hidden}"
            )
        for tensor in (self.input(1), self.input(2)):
            if tensor.shape[-1:] != (active,) or tensor.elements * depth != x.elements * active:
                raise OperatorError(
                    f"{tensor.name} must have {active} numbers for each token, got"
                    f" {list(tensor.shape)}"
                )
        expect_input_count(self, self._places[-1] + 1)
        for index, (rows, columns) in zip(self._places, self._shapes, strict=False):
            self._check_weights(index, rows * experts, columns)
        self._expect_constant(self._places[-1], (DType.FLOAT32,), experts)

    @property
    def _sizes(self) -> tuple[int, int, int, int]:
        """The numbers of experts and of experts for each token, and two depths."""
        o = self.options
        return int(o.num_experts), int(o.num_active_experts), int(o.model_dim), int(o.hidden_dim)

    @property
    def _shapes(self) -> Sequence[tuple[int, int]]:
        """The shapes of the matrices gate, up and down of an expert."""
        _, _, depth, hidden = self._sizes
        return (hidden, depth), (hidden, depth), (depth, hidden)

    @property
    def _places(self) -> Sequence[int]:
        """The inputs that are gate, up, down, and the scales of the experts."""
        step = 1 if self.options.weight_type == "fp32" else 2
        return [_ROUTING + step * i for i in range(4)]

    def _is_packed(self, index: int) -> bool:
        """Whether an input has two numbers of 4 bits in each element."""
        return self.options.weight_type == "int4" and self.input(index).dtype is DType.INT8

    def _check_weights(self, index: int, rows: int, columns: int) -> None:
        """Raise OperatorError unless an input, and its scales, have the elements of all experts."""
        kind, share = self.options.weight_type, 1 + self._is_packed(index)
        self._expect_constant(index, _WEIGHTS[kind], rows * columns // share)
        if kind == "fp32":
            return
        groups = max(self.input(index + 1).elements // rows, 1) if kind == "int4" else 1
        if columns % groups or columns % share:
            raise OperatorError(
                f"{columns} numbers of a row must be groups of one size, got {groups} groups"
            )
        self._expect_constant(index + 1, (DType.FLOAT32,), rows * groups)

    def _expect_constant(self, index: int, types: Sequence[DType], count: int) -> None:
        """Raise OperatorError unless an input is a constant with so many elements."""
        tensor = self.input(index)
        expect_type(tensor, types)
        if tensor.data is None or tensor.elements != count:
            raise OperatorError(f"{tensor.name} must be a constant of {count} elements")

    def emit(self, g: Builder, y: View, *inputs: View) -> Value:
        experts, active, depth, _ = self._sizes
        x, shares, places, *_, last = inputs
        gate, up, down = self._read_matrices(inputs)
        scales = g.constant(last.constant.reshape(experts))
        parts, chosen = g.reshape(shares, (-1, active)), g.reshape(places, (-1, active))
        if not x.tensor.symbols and _COPIES * places.tensor.elements <= experts:
            flat = g.reshape(places, (-1,))
            matrices = [each.swap().emit(g, flat) for each in (gate, up, down)]
            factors = g.Mul(parts, g.Gather(scales, chosen, axis=0))
            value = self._compute_chosen(g, g.reshape(x, (-1, 1, depth, 1)), factors, matrices)
        else:
            matrices = [gate.swap().emit(g), up.swap().emit(g), down.emit(g)]
            # The kernel counts negative numbers from the end.
            numbers = g.Mod(chosen, np.array(experts, np.int32))
            listed = np.arange(experts, dtype=np.int32)
            is_chosen = g.cast(g.Equal(g.Unsqueeze(numbers, g.ints([2])), listed), DType.FLOAT32)
            spread = g.Mul(is_chosen, g.Unsqueeze(parts, g.ints([2])))
            factors = g.Mul(g.reduce("ReduceSum", spread, [1], keepdims=False), scales)
            value = self._compute_all(g, g.reshape(x, (-1, depth)), factors, matrices)
        return g.reshape(value, y.sizes, like=x)

    def _read_matrices(self, inputs: Sequence[View]) -> list[_Matrices]:
        """Return gate, up and down."""
        experts, read = self._sizes[0], []
        for index, (rows, _) in zip(self._places, self._shapes, strict=False):
            numbers, scales = inputs[index].constant, None
            if self._is_packed(index):  # the lower bits are the element with the lower index
                numbers = np.stack([(numbers << 4) >> 4, numbers >> 4], axis=-1)
            if self.options.weight_type != "fp32":
                scales = inputs[index + 1].constant.reshape(rows, experts, -1)
            read.append(_Matrices(numbers.reshape(rows, experts, -1), scales))
        return read

    def _compute_chosen(
        self, g: Builder, x: Value, factors: Value, matrices: Sequence[Value]
    ) -> Value:
        """Return the sums for x, [tokens, 1, depth, 1], of matrices of the chosen experts."""
        gate, up, down = (
            g.reshape(value, (-1, self._sizes[1], *shape))
            for value, shape in zip(matrices, self._shapes, strict=True)
        )
        outputs = g.MatMul(down, self._activate(g, g.MatMul(gate, x), g.MatMul(up, x)))
        weighed = g.Mul(outputs, g.Unsqueeze(factors, g.ints([2, 3])))
        return g.reduce("ReduceSum", weighed, [1], keepdims=False)

    def _compute_all(
        self, g: Builder, x: Value, factors: Value, matrices: Sequence[Value]
    ) -> Value:
        """Return the sums for x, [tokens, depth], of all experts; factors of most are 0.

        Gemm by transposed weights does not become MatMulNBits, which rounds the data to 8 bits.
        """
        experts, _, depth, hidden = self._sizes
        gate, up, down = matrices
        first, second = (
            g.Gemm(x, g.reshape(each, (experts * hidden, depth)), transB=1) for each in (gate, up)
        )
        rows = g.reshape(self._activate(g, first, second), (-1, experts, hidden))
        weighed = g.Mul(rows, g.Unsqueeze(factors, g.ints([2])))
        flat = g.reshape(weighed, (-1, experts * hidden))
        return g.Gemm(flat, g.reshape(down, (depth, experts * hidden)), transB=1)

    def _activate(self, g: Builder, gate: Value, up: Value) -> Value:
        approximate = _APPROXIMATE[self.options.get("activation", "gelu")]
        return g.Mul(g.gelu(gate, DType.FLOAT32, approximate=approximate), up)

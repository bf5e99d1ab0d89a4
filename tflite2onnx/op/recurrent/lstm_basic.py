"""The kernel BASIC of LSTM: one matrix for all gates (lstm_cell.h).

Inputs are x [batch, features], the h before [batch, units], weights [4 * units, features + units],
a bias, and the c before; outputs are h, c, what the weights are multiplied by, and the sums that
go into the gates, in the sequence input, cell, forget, output. The states are outputs anyway, and
may be variables as well.

Integers: x and h are within -1 and 1 (uint8), sums have 12 bits behind the point (int16), and c
has 11. What is within -1 and 1 has 15.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tflite2onnx.builder.builder import Builder, Value, View
from tflite2onnx.op.base import Operator, OperatorError
from tflite2onnx.op.common.checks import expect, expect_type
from tflite2onnx.op.recurrent.base import (
    bias,
    expect_constant,
    round_to_storage,
    scale_of,
    stack_matrices,
    storage_of_scale,
)
from tflite2onnx.tensor import DType, Shape, Tensor

_INPUTS, _OUTPUTS = 5, 4
_SUMS = storage_of_scale(DType.INT16, 2.0**-12)
_CELL = storage_of_scale(DType.INT16, 2.0**-11)
_FUNCTIONS = storage_of_scale(DType.INT16, 2.0**-15)


def lstm_output_shapes(operator: Operator) -> Sequence[Shape]:
    """Return the shapes of all outputs."""
    (batch, features), units = operator.input(0).shape, operator.input(1).shape[-1]
    sizes = units, units, features + units, 4 * units, units, units
    return [(batch, size) for size in sizes][: len(operator.op.outputs)]


def check(operator: Operator) -> None:
    """Raise OperatorError for what the kernel does not take."""
    op = operator.op
    if len(op.inputs) != _INPUTS or len(op.outputs) < _OUTPUTS:
        raise OperatorError(f"{len(op.inputs)} inputs and {len(op.outputs)} outputs")
    if op.options.get("shared_state"):
        raise OperatorError(
            "two of its inputs are the same variable, which the kernel writes to twice"
        )
    x, h, w, b, c = (operator.input(i) for i in range(_INPUTS))
    expect_type(x, (DType.FLOAT32, DType.UINT8))
    if x.rank != 2 or h.rank != 2:  # batch and features
        raise OperatorError(f"{list(x.shape)} and {list(h.shape)} are no matrices")
    (batch, features), units = x.shape, h.shape[1]
    expect_constant(w, (4 * units, features + units))
    expect_constant(b, (4 * units,))
    expect(h, (batch, units), x.dtype)
    wide = x.dtype if x.dtype is DType.FLOAT32 else DType.INT16
    expect(c, (batch, units), wide)
    outputs = op.outputs[:_OUTPUTS]
    types = x.dtype, wide, x.dtype, wide
    for y, shape, dtype in zip(
        outputs, lstm_output_shapes(operator)[:_OUTPUTS], types, strict=True
    ):
        expect(y, shape, dtype)
    if x.dtype is DType.UINT8:
        _check_scales((x, h, outputs[0], outputs[2]), (c, outputs[1]), w, b)


def _check_scales(
    within_1: tuple[Tensor, ...], cells: tuple[Tensor, ...], w: Tensor, b: Tensor
) -> None:
    """Raise OperatorError unless scales are those that the kernel takes for granted."""
    for tensor in within_1:
        _expect_scale(tensor, 2.0**-7, 128)
    for tensor in cells:
        _expect_scale(tensor, 2.0**-11, 0)
    if w.quantization is None or not np.isclose(scale_of(b), scale_of(w) / 128):
        raise OperatorError(f"{b.name} has the scale {scale_of(b)}, not that of the products")


def _expect_scale(tensor: Tensor, scale: float, zero_point: int) -> None:
    found = tensor.quantization
    if found is None or (float(found.scale[0]), int(found.zero_point[0])) != (scale, zero_point):
        raise OperatorError(
            f"{tensor.name} has not the scale {scale} and the zero point {zero_point}"
        )


def emit(operator: Operator, g: Builder, *xs: View | None) -> tuple[Value, ...]:
    """Emit the four outputs, and the states that are variables."""
    x, h, _, _, c = (view for view in xs)
    data, w, b = (operator.input(i) for i in (0, 2, 3))
    sums, cell, functions = (
        grid if data.dtype is DType.UINT8 else None for grid in (_SUMS, _CELL, _FUNCTIONS)
    )
    both = g.Concat(x, h, axis=1)
    added = bias(b, scale_of(b))
    z = round_to_storage(g, g.Gemm(both, stack_matrices(g, data, [w], np.transpose), added), sums)
    sizes = g.ints([operator.input(1).shape[1]] * 4)
    new, candidate, forget, shown = (
        round_to_storage(g, g.Tanh(part) if place == 1 else g.Sigmoid(part), functions)
        for place, part in enumerate(g.node_outputs("Split", 4, z, sizes, axis=1))
    )
    add = round_to_storage(g, round_to_storage(g, g.Mul(new, candidate), functions), cell)
    after = round_to_storage(g, g.Add(add, round_to_storage(g, g.Mul(forget, c), cell)), cell)
    seen = round_to_storage(g, g.Tanh(round_to_storage(g, after, sums)), functions)
    made = round_to_storage(g, g.Mul(shown, seen), functions)
    return made, after, both, z, made, after

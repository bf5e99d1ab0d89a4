"""The kernel BASIC of LSTM: one matrix for all gates (lstm_cell.h).

Inputs are x [batch, features], the previous h [batch, units], weights [4 * units, features +
units], a bias, and the previous c. Outputs are h, c, the concatenation of x and h, and the inputs
of the gates, in the order input, cell, forget, output. The states are always outputs, and may be
variables as well.

Integers: x and h are within -1 and 1 (uint8). The inputs of the gates have 12 fractional bits, and
c has 11. The outputs of the functions are within -1 and 1, and have 15 fractional bits (int16).
"""

from collections.abc import Sequence

import numpy as np

from tflite2onnx.builder.builder import Builder, Value, View
from tflite2onnx.made_options import RecurrentOptions
from tflite2onnx.op.base import Operator, OperatorError, OutputShape
from tflite2onnx.op.common.checks import expect, expect_type
from tflite2onnx.op.recurrent.base import (
    SHARED_STATE,
    expect_bias,
    expect_constant,
    make_storage,
    read_bias,
    read_scale,
    round_to_storage,
    stack_matrices,
)
from tflite2onnx.quantization.declarations import Real
from tflite2onnx.quantization.storage import is_quantized
from tflite2onnx.tensor import DType, Tensor

QUANTIZATION = Real(multiplies=(2,))
_INPUTS, _OUTPUTS = 5, 4
_SUMS = make_storage(DType.INT16, 2.0**-12)
_CELL = make_storage(DType.INT16, 2.0**-11)
_FUNCTIONS = make_storage(DType.INT16, 2.0**-15)


def infer_lstm_outputs(operator: Operator) -> Sequence[OutputShape]:
    """Return the shapes of all outputs."""
    (batch, features), units = operator.input(0).shape, operator.input(1).shape[-1]
    sizes = units, units, features + units, 4 * units, units, units
    return [(batch, size) for size in sizes][: len(operator.op.outputs)]


def check(operator: Operator) -> None:
    """Raise OperatorError unless the kernel supports the operator."""
    op = operator.op
    if len(op.inputs) != _INPUTS or len(op.outputs) < _OUTPUTS:
        raise OperatorError(
            f"it must have {_INPUTS} inputs and {_OUTPUTS} or more outputs, got {len(op.inputs)} "
            f"and {len(op.outputs)}"
        )
    if op.read_made(RecurrentOptions).shared_state:
        raise OperatorError(SHARED_STATE)
    x, h, w, b, c = (operator.input(i) for i in range(_INPUTS))
    expect_type(x, (DType.FLOAT32, DType.UINT8))
    if x.rank != 2 or h.rank != 2:  # the axes are batch and features
        raise OperatorError(
            f"{x.name} and {h.name} must have 2 axes, got {list(x.shape)} and {list(h.shape)}"
        )
    (batch, features), units = x.shape, h.shape[1]
    expect_constant(w, (4 * units, features + units))
    expect_bias(x, b, 4 * units)
    expect(h, (batch, units), x.dtype)
    wide = x.dtype if x.dtype is DType.FLOAT32 else DType.INT16
    expect(c, (batch, units), wide)
    outputs, shapes = op.outputs[:_OUTPUTS], infer_lstm_outputs(operator)[:_OUTPUTS]
    for y, shape, dtype in zip(outputs, shapes, [x.dtype, wide] * 2, strict=True):
        expect(y, shape, dtype)
    if x.dtype is DType.UINT8:
        _check_scales((x, h, outputs[0], outputs[2]), (c, outputs[1]), outputs[3], w, b)


def _check_scales(
    within_1: tuple[Tensor, ...], cells: tuple[Tensor, ...], sums: Tensor, w: Tensor, b: Tensor
) -> None:
    """Raise OperatorError unless the scales are those that the kernel requires."""
    for tensor in within_1:
        _expect_scale(tensor, 2.0**-7, 128)
    for tensor in cells:
        _expect_scale(tensor, 2.0**-11, 0)
    if sums.quantization is not None:
        _expect_scale(sums, 2.0**-12, 0)
    if w.quantization is None or not np.isclose(read_scale(b), read_scale(w) / 128):
        raise OperatorError(
            f"the scale of {b.name} must be the product of the scales of x and weights, got "
            f"{read_scale(b)}"
        )


def _expect_scale(tensor: Tensor, scale: float, zero_point: int) -> None:
    scales = tensor.quantization
    if scales is None or (scales.scale[0], scales.zero_point[0]) != (scale, zero_point):
        requirement = f"the scale {scale} and the zero point {zero_point}"
        raise OperatorError(f"{tensor.name} must have {requirement}")


def emit(operator: Operator, g: Builder, *xs: View | None) -> tuple[Value, ...]:
    """Return the four outputs, and the states h and c."""
    x, h, _, _, c = (view for view in xs)
    data, w, b = (operator.input(i) for i in (0, 2, 3))
    sums, cell, functions = (
        storage if data.dtype is DType.UINT8 else None for storage in (_SUMS, _CELL, _FUNCTIONS)
    )
    x_and_h = g.Concat(x, h, axis=1)
    biases = read_bias(b, read_scale(b))
    if is_quantized(data):
        # By weights [k, n] runtimes multiply with a kernel that rounds the data again.
        z = g.Gemm(x_and_h, stack_matrices(g, data, [w], np.asarray), biases, transB=1)
    else:
        z = g.Gemm(x_and_h, stack_matrices(g, data, [w], np.transpose), biases)
    z = round_to_storage(g, z, sums)
    sizes = [operator.input(1).shape[1]] * 4
    input_gate, candidate, forget_gate, output_gate = (
        round_to_storage(g, g.Tanh(part) if place == 1 else g.Sigmoid(part), functions)
        for place, part in enumerate(g.node_outputs("Split", 4, z, sizes, axis=1))
    )
    update = round_to_storage(g, round_to_storage(g, g.Mul(input_gate, candidate), functions), cell)
    remembered = round_to_storage(g, g.Mul(forget_gate, c), cell)
    cell_state = round_to_storage(g, g.Add(update, remembered), cell)
    activated = round_to_storage(g, g.Tanh(round_to_storage(g, cell_state, sums)), functions)
    hidden = round_to_storage(g, g.Mul(output_gate, activated), functions)
    return hidden, cell_state, x_and_h, z, hidden, cell_state

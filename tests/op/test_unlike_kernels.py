"""Files that LiteRT's kernels read in another way than the tensors say are refused.

Each is a case of the conformance table with one change; the fuzzer has found them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.conformance.rows import ROWS
from tests.op.test_refused import (
    ChangeableModel,
    change_scale,
    change_shape,
    change_type,
    option,
    remove_scale,
)
from tests.support.facts import TENSOR_TYPES

Change = Callable[[ChangeableModel], None]


def change_zero_point(index: int) -> Change:
    """Return a change of the zero points of an input."""

    def change(model: ChangeableModel) -> None:
        quantization = model.input(index).quantization
        quantization.zeroPoint = np.full(len(quantization.scale), 3)

    return change


def add_scale(model: ChangeableModel) -> None:
    """Give the input a second scale."""
    quantization = model.input(0).quantization
    quantization.scale, quantization.zeroPoint = np.full(2, 0.5, np.float32), np.zeros(2, int)


def change_output(shape: tuple[int, ...] | None = None, dtype: str = "") -> Change:
    """Return a change of the shape or the type of the output."""

    def change(model: ChangeableModel) -> None:
        y = model.output(0)
        y.shape = y.shape if shape is None else [*shape]
        y.type = TENSOR_TYPES[dtype] if dtype else y.type

    return change


def change_every_type(old: str, new: str) -> Change:
    """Return a change of the type of all operands of a type."""

    def change(model: ChangeableModel) -> None:
        operands = [model.input(i) for i in range(len(model.op.inputs))]
        for tensor in (*operands, model.output(0)):
            tensor.type = TENSOR_TYPES[new] if tensor.type == TENSOR_TYPES[old] else tensor.type

    return change


def repeat_input(model: ChangeableModel) -> None:
    """Let the operator read its first input as the second input too."""
    model.op.inputs = [model.op.inputs[0]] * 2


def reduce_to_one(model: ChangeableModel) -> None:
    """Let the operator reduce one integer over computed axes; the elements stay integers."""
    repeat_input(model)
    for tensor in (model.input(0), model.output(0)):
        tensor.shape = []


def add_sum_scale(model: ChangeableModel) -> None:
    """Give the sums of gates a scale that the kernel does not write."""
    model.output(3).quantization.scale = [0.5]


ZERO_POINT = "must have the zero point 0"
CASES: list[tuple[str, str, dict[str, Any], Change, str]] = [
    ("DEPTHWISE_CONV_2D", "int8 by int8", {}, change_zero_point(1), ZERO_POINT),
    ("TRANSPOSE_CONV", "int16 by int8", {}, change_zero_point(1), ZERO_POINT),
    ("FULLY_CONNECTED", "int8 by int8", {"per_channel": True}, change_zero_point(1), ZERO_POINT),
    ("SVDF", "int8 by int8", {}, change_zero_point(1), ZERO_POINT),
    ("SVDF", "int8 by int8", {}, change_zero_point(4), ZERO_POINT),
    ("SVDF", "float32", {}, change_type(2, "uint4"), "must be weights or biases, got uint4"),
    ("RNN", "float32", {}, change_type(3, "int32"), "must be float32 or float16, got int32"),
    ("LSTM", "uint8 by uint8", {}, add_sum_scale, "must have the scale 0.000244140625"),
    ("aeq.hadamard_rotation", "float32", {}, change_output((2, 1, 255)), "must have 2 axes"),
    ("STABLEHLO_GATHER", "int8", {}, change_output((1,) * 6), "axes, got 6"),
    (
        "STABLEHLO_GATHER",
        "int8",
        {"case": "indices=[4, 0]", "constant": False},
        change_shape(1, 1 << 24, 0),
        "elements at most",
    ),
    ("ATAN2", "float32", {"rank": 1}, change_shape(0, 1), "must have one shape"),
    ("SOFTMAX", "quantized uint8", {}, change_type(0, "float32"), "must be float32 as its input"),
    ("BATCH_MATMUL", "int16 by int8", {}, change_output(dtype="int8"), "must be int16, got int8"),
    ("REDUCE_ANY", "bool", {}, change_every_type("bool", "int16"), "must be bool, got int16"),
    ("REDUCE_PROD", "quantized int8", {"axes": []}, reduce_to_one, "must be constant"),
    ("SHAPE", "int8", {}, change_output(dtype="int64"), "its option for the type"),
    ("QUANTIZE", "quantized int8 to quantized int8", {}, add_scale, "must have one scale"),
    ("CIRCULAR_BUFFER", "quantized int8", {}, repeat_input, "must have 1 input, got 2"),
    ("FlexMatrixDiagV3", "float16", {}, change_every_type("float16", "int4"), "8 bits or more"),
    (
        "FlexTensorScatterUpdate",
        "float64",
        {},
        change_every_type("float64", "uint4"),
        "8 bits or more",
    ),
    ("LSTM", "int8 by int8", {}, change_zero_point(2), ZERO_POINT),
    ("FULLY_CONNECTED", "uint8 by uint8", {}, change_type(0, "int16"), "int4 or int2, got uint8"),
    ("FULLY_CONNECTED", "int16 by int8", {}, change_type(1, "uint8"), "int4 or int2, got uint8"),
    ("FULLY_CONNECTED", "uint8 by uint8", {}, change_type(1, "int8"), "must be uint8, got int8"),
    ("FULLY_CONNECTED", "int16 by int8", {}, change_output(dtype="int8"), "must be int16"),
    ("CONV_2D", "int16 by int4", {}, change_type(1, "uint4"), "int4 or int2, got uint4"),
    ("TRANSPOSE_CONV", "int16 by int8", {}, change_type(1, "uint8"), "int4 or int2, got uint8"),
    ("RNN", "float32 by int8", {}, remove_scale(1), "must have a scale"),
    ("LSTM", "int8 by int8", {}, change_scale(19, 0.0007), "a power of two as its scale"),
    ("SOFTMAX", "quantized int16", {}, option("beta", -1.0), "must not be negative"),
    ("BUCKETIZE", "int32", {}, option("boundaries", [1.0, float("nan")]), "must be sorted"),
    ("STRIDED_SLICE", "int8", {"box": "offset"}, change_shape(0, 5, 7, 1), "if offset is set"),
    ("BITCAST", "int64", {"other": "uint16"}, change_type(0, "complex128"), "as many bits"),
]


def build_case(code: str, kind: str, choice: dict[str, Any]) -> ChangeableModel:
    """Return the first model of an operator, an element type, and choices or parts of choices."""
    cases = (
        case
        for case in ROWS[code].cases()
        if case.kind == kind
        and all(str(value) in str(case.choice[name]) for name, value in choice.items())
    )
    return ChangeableModel(next(cases).build().data)


@pytest.mark.parametrize(
    ("code", "kind", "choice", "change", "reason"), CASES, ids=[f"{c[0]} {c[-1]}" for c in CASES]
)
def test_refuses_operators_whose_bytes_kernels_misread(
    code: str, kind: str, choice: dict[str, Any], change: Change, reason: str
) -> None:
    model = build_case(code, kind, choice)
    change(model)
    assert reason in model.refusal()

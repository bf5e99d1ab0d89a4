"""op/operand_syntax.py: declared operands are verified, and give the shapes of outputs."""

from __future__ import annotations

import numpy as np
import pytest

from tflite2onnx.errors import OperatorError
from tflite2onnx.graph import Op
from tflite2onnx.op.operand_syntax import infer_declared_shapes, verify_operands
from tflite2onnx.tensor import DType, Tensor


def make_tensor(text: str) -> Tensor | None:
    """Return a tensor "float32 2 3"; a constant if "#" follows the type, None for "-"."""
    if text == "-":
        return None
    label, *sizes = text.split()
    shape, dtype = tuple(map(int, sizes)), DType[label.rstrip("#").upper()]
    return Tensor("t", shape, dtype, np.zeros(shape) if "#" in label else None)


def make_op(text: str) -> Op:
    """Return an operator with operands "float32 2 3, int32 -> float32 2 3"."""
    inputs, outputs = (
        [make_tensor(part.strip()) for part in side.split(",") if part.strip()]
        for side in text.split("->")
    )
    return Op("X", 0, tuple(inputs), tuple(t for t in outputs if t))


@pytest.mark.parametrize(
    ("declared", "operands"),
    [
        ("", "-, int4 2 -> string"),
        ("T:float32|int8, T -> T", "int8 2, int8 -> int8 3"),
        ("any [n 4], int32 [n], index [] -> T", "int8 3 4, int32 3, int64 -> bool"),
        ("T [... n n] -> T [...]", "int8 2 3 5 5 -> int8 2 3"),
        ("T [... n n] -> T [...]", "int8 5 5 -> int8"),
        ("float32 [n], float32? [n] -> float32", "float32 2 -> float32"),
        ("float32 [n], float32? [n], int32 -> float32", "float32 2, -, int32 -> float32"),
        ("int32# [2] -> any", "int32# 2 -> bool"),
        ("T [1*] -> T*", "int8 1 1 1 -> int8, int8 2, int8"),
        ("T [n] -> T*", "int8 1 ->"),
        ("T, ... -> T, ...", "int8, float32 -> int8, bool"),
    ],
)
def test_operands_as_declared_are_accepted(declared: str, operands: str) -> None:
    verify_operands(declared, make_op(operands))


@pytest.mark.parametrize(
    ("declared", "operands", "reason"),
    [
        ("T, T -> T", "int8, int8 2, bool -> int8", "it must have 2 inputs, got 3"),
        ("T, T? -> T", "-> int8", "it must have 1 to 2 inputs, got 0"),
        ("T -> T, T", "int8 -> int8", "it must have 2 outputs, got 1"),
        ("T, T -> T", "int8, - -> int8", "input 1 is missing"),
        ("T* -> T", "int8, - -> int8", "input 1 is missing"),
        ("T, bool, ... -> T", "int8, int8, int8 -> int8", "t must be bool, got int8"),
        ("float32|int8 -> any", "int4 -> bool", "t must be float32 or int8, got int4"),
        ("float32|quantized -> any", "int8 -> bool", "t must be float32 or quantized, got int8"),
        ("T -> T", "int8 -> bool", "t must be int8, got bool"),
        ("any [n 4] -> any", "int8 3 5 -> bool", "t must be int8[3, 4], got int8[3, 5]"),
        ("any [n 4] -> any", "int8 3 -> bool", "t must be int8[n, 4], got int8[3]"),
        ("float32 [] -> any", "int8 3 -> bool", "t must be float32[], got int8[3]"),
        ("T [n], T [n] -> any", "int8 3, int8 5 -> bool", "t must be int8[3], got int8[5]"),
        ("T [... n n] -> T", "int8 3 -> int8", "t must be int8[..., n, n], got int8[3]"),
        ("T [... n n] -> T", "int8 2 3 5 -> int8", "t must be int8[2, 3, 3], got int8[2, 3, 5]"),
        ("any [1*] -> any", "int8 1 2 -> bool", "t must be int8[1, 1], got int8[1, 2]"),
        ("int32# -> any", "int32 2 -> bool", "t must be constant"),
    ],
)
def test_refuses_operands_unlike_their_declaration(
    declared: str, operands: str, reason: str
) -> None:
    with pytest.raises(OperatorError) as error:
        verify_operands(declared, make_op(operands))
    assert error.value.reason == reason


@pytest.mark.parametrize(
    ("declared", "operands", "shapes"),
    [
        ("", "int8 2 -> int8 5", [(5,)]),
        ("T [n 4] -> T [4 n], T, T []", "int8 2 4 -> int8 1, int8 7, int8 3", [(4, 2), (7,), ()]),
        ("T [... n] -> T [...]", "int8 2 3 5 -> int8 9", [(2, 3)]),
        ("T -> T [m]", "int8 2 -> int8 5", [(5,)]),
        ("T [n 4] -> T [n]", "int8 2 -> int8 5", [(5,)]),
        ("T -> T, ...", "int8 2 -> int8 5, int8 6", [(5,), (6,)]),
    ],
)
def test_shapes_follow_from_inputs(
    declared: str, operands: str, shapes: list[tuple[int, ...]]
) -> None:
    assert infer_declared_shapes(declared, make_op(operands)) == shapes


def test_refuses_malformed_declarations() -> None:
    with pytest.raises(ValueError, match="an operand must be a type, marks and axes"):
        verify_operands("float32 (2)", make_op("float32 2 -> bool"))

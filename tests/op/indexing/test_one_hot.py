"""ONE_HOT, MATRIX_DIAG and MATRIX_SET_DIAG."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.op.ports import add_input, check_outputs, folds
from tests.support import Build, Tensor, check
from tflite2onnx.convert import convert
from tflite2onnx.errors import ConversionError

TYPES = ("float32", "bool", "int8", "int32", "int64", "uint8")
DIAGONALS = ("float32", "int8", "int16", "int32", "int64", "uint8")
SIZES = (2, 3, 5, 7)


def one_hot(m: Build, indices: Tensor, depth: int, values: list[Tensor], axis: int) -> Tensor:
    at = len(indices.shape) if axis == -1 else axis
    made = [*indices.shape[:at], depth, *indices.shape[at:]]
    return m.op("ONE_HOT", [indices, m.constant(depth), *values], [made], axis=axis)[0]


@pytest.mark.parametrize("index", ["int32", "int64"])
@pytest.mark.parametrize(("rank", "axis"), [(r, a) for r in range(4) for a in range(-1, r + 1)])
def test_one_hot_along_every_axis_equals_litert(rank: int, axis: int, index: str) -> None:
    m = Build()
    indices = m.input(SIZES[:rank], dtype=index, name="indices")
    y = one_hot(m, indices, 4, [m.constant(2.5), m.constant(-1.5)], axis)
    check_outputs(m, y, ranges={"indices": (-3, 6)})


@pytest.mark.parametrize("shape", [[], [1]])
@pytest.mark.parametrize("dtype", TYPES)
def test_one_hot_of_every_type_equals_litert(dtype: str, shape: list[int]) -> None:
    m = Build()
    indices = m.input([3, 5], dtype="int32", name="indices")
    values = [m.input(shape, dtype=dtype) for _ in range(2)]
    check_outputs(m, one_hot(m, indices, 4, values, 1), ranges={"indices": (-3, 6)})


def test_one_hot_of_stored_integers_equals_litert() -> None:
    m = Build()
    indices = m.input([3, 5], dtype="int32", name="indices")
    values = [m.input([], dtype="int8", scale=0.5, zero_point=3) for _ in range(2)]
    (y,) = m.op(
        "ONE_HOT",
        [indices, m.constant(4), *values],
        [[3, 5, 4]],
        axis=-1,
        scale=0.5,
        zero_point=3,
    )
    check_outputs(m, y, ranges={"indices": (-3, 6)})


def test_one_hot_of_constants_folds() -> None:
    m = Build()
    values = [m.constant(5), m.constant(-2)]
    indices = m.constant([[3, 0, -1], [9, 1, 2]])
    folds(m, *(one_hot(m, indices, 4, values, axis) for axis in (-1, 0, 1, 2)))


@pytest.mark.parametrize("dtype", DIAGONALS)
@pytest.mark.parametrize("shape", [(5,), (3, 5), (2, 3, 5)], ids=str)
def test_matrix_diag_equals_litert(shape: tuple[int, ...], dtype: str) -> None:
    m = Build()
    check_outputs(m, *m.op("MATRIX_DIAG", [add_input(m, shape, dtype)], [[*shape, shape[-1]]]))


@pytest.mark.parametrize("mode", [{}, {"activations": "uint8"}], ids=str)
def test_elements_off_the_diagonal_are_stored_0(mode: dict[str, Any]) -> None:
    """Elements off the diagonal are the stored integer 0, whatever the zero point is."""
    m = Build()
    x = add_input(m, [3, 5], "int8", scale=0.5, zero_point=3)
    check_outputs(m, *m.op("MATRIX_DIAG", [x], [[3, 5, 5]], scale=0.5, zero_point=3), **mode)


@pytest.mark.parametrize("dtype", DIAGONALS)
@pytest.mark.parametrize("shape", [(5, 5), (3, 5), (5, 3), (2, 3, 5), (2, 7, 5, 3)], ids=str)
def test_matrix_set_diag_equals_litert(shape: tuple[int, ...], dtype: str) -> None:
    m = Build()
    diagonal = add_input(m, [*shape[:-2], min(shape[-2:])], dtype)
    check_outputs(m, *m.op("MATRIX_SET_DIAG", [add_input(m, shape, dtype), diagonal], [shape]))


@pytest.mark.parametrize("shape", [(3, None), (None, 3)], ids=str)
def test_matrix_set_diag_of_dynamic_sides_equals_litert(shape: tuple[int | None, ...]) -> None:
    m = Build()
    m.output(*m.op("MATRIX_SET_DIAG", [m.input(shape), m.input([3])], [m.tensor(shape)]))
    for longer in (3, 5, 7):
        sides = [longer if side is None else side for side in shape]
        check(m.bytes(), inputs=[np.ones(sides, np.float32), np.arange(3, dtype=np.float32)])


def refusal(code: str, inputs: list[Any], made: list[int], **options: Any) -> str:
    m = Build()
    given = [m.input(each) if isinstance(each, tuple) else m.constant(each) for each in inputs]
    m.output(*m.op(code, given, [made], **options))
    with pytest.raises(ConversionError) as error:
        convert(m.bytes())
    return str(error.value)


def test_refuses_unsupported_axes_depths_and_types() -> None:
    indices = np.zeros((2, 3), np.int32)
    assert "between -1 and 2, got 3" in refusal("ONE_HOT", [indices, 4, 1, 0], [2, 3, 4], axis=3)
    assert "between -1 and 2, got -2" in refusal("ONE_HOT", [indices, 4, 1, 0], [2, 3, 4], axis=-2)
    assert "not be negative, got -1" in refusal("ONE_HOT", [indices, -1, 1, 0], [2, 3, 4], axis=-1)
    assert "int32 or int64, got float32" in refusal(
        "ONE_HOT", [(2, 3), 4, 1, 0], [2, 3, 4], axis=-1
    )
    wrong = refusal("ONE_HOT", [indices, 4, 1, 0.5], [2, 3, 4], axis=-1)
    assert "int32[], got float32[]" in wrong
    assert "at least 1 axes, got 0" in refusal("MATRIX_DIAG", [()], [1])
    assert "at least 2 axes, got 1" in refusal("MATRIX_SET_DIAG", [(3,), (3,)], [3])
    wrong = refusal("MATRIX_SET_DIAG", [(3, 5), (5,)], [3, 5])
    assert "float32[3], got float32[5]" in wrong

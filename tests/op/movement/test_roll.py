"""Roll: results equal a reference in numpy, because LiteRT's interpreter has no kernel."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tests.references import check_reference
from tests.support import Build, run_onnx
from tflite2onnx.convert import convert
from tflite2onnx.errors import ConversionError

if TYPE_CHECKING:
    from tests.support.runtimes import Array

TYPES = ("float32", "int8", "int16", "int32", "int64", "uint8", "bool")


SHIFTS: list[tuple[Any, Any]] = [
    (1, 0),
    (-3, 2),
    (0, 1),
    ([2, -1], [0, -1]),
    ([4, 5, 100], [1, 1, 3]),
    ([3, -3], [0, 0]),
]


def roll_reference(x: Array, shifts: Array, axes: Array) -> Array:
    """Return TensorFlow's Roll in numpy."""
    for shift, axis in zip(np.atleast_1d(shifts), np.atleast_1d(axes), strict=True):
        x = np.roll(x, shift, axis)
    return x


def build_roll(shape: list[int], shifts: Any, axes: Any, dtype: str = "float32") -> Build:
    m = Build()
    operands = [m.input(shape, dtype=dtype), m.constant(shifts), m.constant(axes)]
    m.output(*m.custom("Roll", operands, [shape]))
    return m


@pytest.mark.parametrize(("shifts", "axes"), SHIFTS)
@pytest.mark.parametrize("by", [np.int32, np.int64])
def test_roll_by_any_shifts_equals_numpy(shifts: Any, axes: Any, by: Any) -> None:
    x = np.arange(2 * 5 * 7 * 3, dtype=np.float32).reshape(2, 5, 7, 3)
    want = roll_reference(x, shifts, axes)
    check_reference(build_roll([2, 5, 7, 3], by(shifts), by(axes)), [x], [want], tolerance=0)


def test_roll_of_a_batch_of_vectors_equals_numpy() -> None:
    """The axes of the file, which has no batch axis, are one further."""
    result = convert(build_roll([6], np.int32(2), np.int32(0)).bytes(), batch=3)
    x = np.arange(18, dtype=np.float32).reshape(3, 6)
    (have,) = run_onnx(result.model, {result.inputs[0].name: x})
    np.testing.assert_array_equal(have, np.roll(x, 2, 1))


@pytest.mark.parametrize("dtype", TYPES)
def test_roll_of_every_type_equals_numpy(dtype: str) -> None:
    x = np.random.default_rng(0).integers(0, 2 if dtype == "bool" else 99, (5, 7)).astype(dtype)
    check_reference(
        build_roll([5, 7], np.int32(2), np.int32(1), dtype), [x], [np.roll(x, 2, 1)], tolerance=0
    )


def test_roll_of_a_constant_folds() -> None:
    m = Build()
    operands = [m.constant([1.0, 2.0, 3.0]), m.constant(np.int32(1)), m.constant(np.int32(0))]
    (c,) = m.custom("Roll", operands, [[3]])
    m.output(*m.op("ADD", [m.input([3]), c], [[3]]))
    assert convert(m.bytes()).nodes == 1


@pytest.mark.parametrize(
    ("shifts", "axes", "reason"),
    [(1, 4, "below 2, got 4"), ([1, 2], [0], "2 shifts and axes [0]")],
)
def test_roll_refuses_invalid_axes(shifts: Any, axes: Any, reason: str) -> None:
    with pytest.raises(ConversionError) as error:
        convert(build_roll([5, 7], np.int32(shifts), np.int32(axes)).bytes())
    assert reason in str(error.value)


@pytest.mark.parametrize("computed", [False, True])
@pytest.mark.parametrize("sizes", [[2, 5, 7, 3], [None, None, None, 3]], ids=str)
@pytest.mark.parametrize(("shifts", "axes"), [*SHIFTS, (9, 1), ([-8, 2], [2, 1])])
def test_roll_by_computed_shifts_of_dynamic_axes_equals_numpy(
    shifts: Any, axes: Any, sizes: list[int | None], *, computed: bool
) -> None:
    m = Build()
    by = np.array(shifts, np.int32)
    operands = [m.input(sizes), m.input(by.shape, dtype="int32") if computed else m.constant(by)]
    y = m.tensor(sizes)
    m.output(*m.custom("Roll", [*operands, m.constant(np.array(axes, np.int32))], [y]))
    for shape in [(2, 5, 7, 3), (1, 4, 9, 3)][: 1 + (None in sizes)]:
        x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
        inputs = [x, by] if computed else [x]
        check_reference(m, inputs, [roll_reference(x, shifts, axes)], tolerance=0)

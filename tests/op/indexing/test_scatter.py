"""SCATTER_ND and SPARSE_TO_DENSE."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.op.ports import check_outputs
from tests.support import Build, check
from tflite2onnx import ConversionError, convert, verify
from tflite2onnx.verification.results import Verdict

TYPES = ("float32", "uint8", "int8", "int32", "int64", "bool")
SPARSE = ("float32", "int32", "int64", "int8", "uint8")
SIZES = (2, 3, 5, 7)


@pytest.mark.parametrize("constant", [True, False])
@pytest.mark.parametrize(
    ("rank", "depth", "rest"),
    [(1, 1, (6,)), (2, 1, (4,)), (3, 2, (3, 2)), (4, 3, ()), (4, 4, (6,))],
)
def test_scatter_nd_adds_updates_of_equal_indices(
    rank: int, depth: int, rest: tuple[int, ...], *, constant: bool
) -> None:
    """Updates with equal indices are added."""
    m = Build()
    shape, places = SIZES[:rank], (*rest, depth)
    values = np.random.default_rng(0).integers(0, SIZES[:depth], places).astype(np.int32)
    indices = m.constant(values) if constant else m.input(places, dtype="int32")
    updates = np.linspace(-3, 4, int(np.prod([*rest, *shape[depth:]])), dtype=np.float32)
    updates = updates.reshape(*rest, *shape[depth:])
    x = m.input(updates.shape)
    (y,) = m.op("SCATTER_ND", [indices, x, m.constant(np.array(shape, np.int32))], [shape])
    check_outputs(m, y, inputs=[updates] if constant else [values, updates])


@pytest.mark.parametrize("dtype", TYPES)
def test_scatter_nd_of_every_type_equals_litert(dtype: str) -> None:
    m = Build()
    indices = m.constant([[2], [0], [2], [2]])
    x = m.input([4, 5], dtype=dtype)
    check_outputs(m, *m.op("SCATTER_ND", [indices, x, m.constant([3, 5])], [[3, 5]]))


@pytest.mark.parametrize(("dtype", "zero"), [("int8", -128), ("int8", 33), ("uint8", 128)])
def test_scatter_nd_adds_stored_integers(dtype: str, zero: int) -> None:
    """The sums start at the stored integer 0, and wrap around, between operators of numbers."""
    m = Build()
    numbers: dict[str, Any] = {"dtype": dtype, "scale": 0.02, "zero_point": zero}
    operands = [m.constant([[2], [0], [2]]), m.input([3, 4], **numbers), m.constant([4, 4])]
    (sums,) = m.op("SCATTER_ND", operands, [m.tensor([4, 4], **numbers)])
    (y,) = m.op("MUL", [sums, sums], [m.tensor([4, 4], **numbers | {"scale": 0.1})])
    m.output(y)
    check(m.bytes(), steps=1)
    assert verify(m.bytes(), convert(m.bytes(), quantization="float")).verdict is Verdict.RIGHT


@pytest.mark.parametrize("index", ["int32", "int64"])
@pytest.mark.parametrize("dtype", SPARSE)
@pytest.mark.parametrize("scalar", [True, False])
@pytest.mark.parametrize(
    ("shape", "indices"),
    [
        ((7,), [3, 0, 6]),
        ((7,), 3),
        ((7,), [[3], [5]]),
        ((3, 5), [[0, 1], [2, 4]]),
        ((2, 3, 5, 7), [[0, 1, 2, 3], [1, 2, 4, 6], [1, 2, 4, 5]]),
    ],
)
def test_sparse_to_dense_equals_litert(
    shape: tuple[int, ...], indices: Any, dtype: str, index: str, *, scalar: bool
) -> None:
    m = Build()
    count = len(indices) if isinstance(indices, list) else 1
    places, size = m.constant(np.array(indices, index)), m.constant(np.array(shape, index))
    values, default = m.input([] if scalar else [count], dtype=dtype), m.input([], dtype=dtype)
    (y,) = m.op("SPARSE_TO_DENSE", [places, size, values, default], [shape])
    check_outputs(m, y)


def test_sparse_to_dense_of_computed_indices_equals_litert() -> None:
    m = Build()
    places = m.input([2, 2], dtype="int32")
    inputs = [places, m.constant([3, 5]), m.constant([1.5, 2.5]), m.constant([0.5])]
    (y,) = m.op("SPARSE_TO_DENSE", inputs, [[3, 5]])
    check_outputs(m, y, inputs=[np.array([[0, 3], [2, 1]], np.int32)])


def test_updates_are_as_many_as_dynamic_indices() -> None:
    m = Build()
    inputs = [m.input([None, 1], dtype="int32"), m.input([None, 5]), m.constant([3, 5])]
    m.output(*m.op("SCATTER_ND", inputs, [[3, 5]]))
    symbols = [end.symbols for end in convert(m.bytes()).inputs]
    assert symbols == [{0: "batch"}] * 2


def refusal(code: str, inputs: list[Any], made: list[int]) -> str:
    m = Build()
    given = [m.input(each) if isinstance(each, tuple) else m.constant(each) for each in inputs]
    m.output(*m.op(code, given, [made]))
    with pytest.raises(ConversionError) as error:
        convert(m.bytes())
    return str(error.value)


def test_scatter_nd_refuses_unsupported_indices_and_updates() -> None:
    def scatter(indices: Any, updates: Any, shape: list[int]) -> str:
        return refusal("SCATTER_ND", [indices, updates, shape], shape)

    assert "at least 0 and below [3]" in scatter([[3]], (1, 5), [3, 5])
    assert "at least 0 and below [3]" in scatter([[-1]], (1, 5), [3, 5])
    assert "1 to 2 elements, got the shape [1, 3]" in scatter([[0, 0, 0]], (1,), [3, 5])
    assert "1 to 2 elements, got the shape []" in scatter(0, (1, 5), [3, 5])
    assert "float32[1, 5], got float32[2, 5]" in scatter([[0]], (2, 5), [3, 5])
    assert "int32, got float32" in scatter([[0.0]], (1, 5), [3, 5])


def test_sparse_to_dense_refuses_unsupported_indices_and_values() -> None:
    def dense(indices: Any, values: Any, default: Any, shape: list[int]) -> str:
        return refusal("SPARSE_TO_DENSE", [indices, shape, values, default], shape)

    assert "at least 0 and below [7]" in dense([7], (1,), 0.0, [7])
    assert "a row of 2 elements for each value, got the shape [2]" in dense(
        [1, 2], (2,), 0.0, [3, 5]
    )
    assert "for each value, got the shape [1, 1, 2]" in dense([[[1, 2]]], (1,), 0.0, [3, 5])
    assert "float32[2], got float32[3]" in dense([1, 2], (3,), 0.0, [7])
    assert "float32[], got int32[]" in dense([1, 2], (2,), 0, [7])

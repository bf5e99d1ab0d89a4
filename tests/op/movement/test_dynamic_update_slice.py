"""DYNAMIC_UPDATE_SLICE."""

from __future__ import annotations

import numpy as np
import pytest

from tests.op.ports import add_input, check_outputs, folds
from tests.support import Build, Tensor
from tests.support.tensor import NUMBER_TYPES
from tflite2onnx.convert import convert
from tflite2onnx.errors import ConversionError

# shape, shape of the update, starts
UPDATES: list[tuple[list[int], list[int], list[int]]] = [
    ([], [], []),
    ([11], [3], [5]),
    ([11], [3], [-2]),
    ([11], [3], [100]),
    ([11], [11], [4]),
    ([5, 7], [2, 7], [1, 0]),
    ([5, 7], [2, 3], [1, 4]),
    ([5, 7], [2, 3], [9, -9]),
    ([5, 7], [2, 3], [(1 << 31) - 1, -(1 << 31)]),
    ([3, 5, 7], [1, 1, 1], [2, 4, 0]),
    ([2, 3, 5, 7], [2, 1, 5, 7], [0, 2, 0, 0]),
    ([2, 3, 5, 7], [1, 3, 2, 4], [1, 1, 3, 2]),
    ([2, 3, 5, 7], [2, 3, 5, 7], [1, 1, 1, 1]),
    ([2, 3, 5, 7, 4], [1, 2, 3, 1, 4], [1, 0, 2, 6, 0]),
    ([3, 5], [0, 2], [1, 1]),
    # Few rows: ScatterND.
    ([100], [1], [100]),
    ([1, 80, 2, 3], [1, 2, 2, 3], [0, 77, 0, 0]),
    ([1, 2, 80, 3], [1, 2, 1, 3], [-1, 0, 79, 0]),
    ([1, 2, 3, 80], [1, 2, 3, 1], [0, 0, 0, -5]),
    ([4, 40, 50], [2, 3, 4], [1, 39, 44]),
]


def add_update(m: Build, x: Tensor, update: Tensor, starts: Tensor) -> Tensor:
    return m.op("DYNAMIC_UPDATE_SLICE", [x, update, starts], [x.shape])[0]


@pytest.mark.parametrize("index", ["int32", "int64"])
@pytest.mark.parametrize(("shape", "size", "starts"), UPDATES, ids=str)
def test_update_writes_the_slice_at_the_starts(
    shape: list[int], size: list[int], starts: list[int], index: str
) -> None:
    m, known = Build(), Build()
    generator = np.random.default_rng(0)
    arrays = [generator.standard_normal(s).astype(np.float32) for s in (shape, size)]
    where = np.array(starts, index)
    x, update = m.input(shape), m.input(size)
    check_outputs(
        m, add_update(m, x, update, m.input([len(shape)], dtype=index)), inputs=[*arrays, where]
    )
    x, update = known.input(shape), known.input(size)
    check_outputs(known, add_update(known, x, update, known.constant(where)), inputs=arrays)


def test_starts_beyond_32_bits_are_exact() -> None:
    """Starts beyond 32 bits are exact, although ONNX Runtime's Max and Min compare 32 bits."""
    m = Build()
    x, update, starts = m.input([5, 7]), m.input([2, 3]), m.input([2], dtype="int64")
    data = [np.arange(35, dtype=np.float32).reshape(5, 7), -np.ones((2, 3), np.float32)]
    check_outputs(
        m, add_update(m, x, update, starts), inputs=[*data, np.array([(1 << 32) - 1, -(1 << 32)])]
    )


@pytest.mark.parametrize("rows", [5, 300])  # Slice and Concat, ScatterND
@pytest.mark.parametrize("dtype", [*NUMBER_TYPES, "int4"])
def test_update_of_every_type_equals_litert(dtype: str, rows: int) -> None:
    m = Build()
    x, update = add_input(m, [3, rows, 7, 2], dtype), add_input(m, [2, 1, 7, 2], dtype)
    starts = m.input([4], dtype="int32", name="starts")
    check_outputs(
        m, add_update(m, x, update, starts), ranges={"starts": (-1, 4), "float32": (-8, 7)}
    )


@pytest.mark.parametrize(("rows", "nodes"), [(7, ["Concat", "Slice"]), (70, ["ScatterND"])])
def test_update_of_stored_integers_is_not_rescaled(rows: int, nodes: list[str]) -> None:
    m = Build()
    x, update = (add_input(m, [n, 5], "int8", scale=0.5, zero_point=3) for n in (rows, 2))
    result = check_outputs(m, add_update(m, x, update, m.constant([3, 0])))
    assert sorted({node.op_type for node in result.model.graph.node}) == nodes


def test_update_of_constants_folds() -> None:
    m = Build()
    x = m.constant(np.arange(15, dtype=np.int32).reshape(3, 5))
    folds(m, add_update(m, x, m.constant([[-1], [-2]]), m.constant([7, 3])))


@pytest.mark.parametrize(
    ("update", "starts", "dtype", "reason"),
    [
        ([4, 5], [2], "int32", r"fit into \[3, 5\], got the shape \[4, 5\]"),
        ([5], [2], "int32", r"fit into \[3, 5\], got the shape \[5\]"),
        ([2, 5], [3], "int32", r"int32\[2\], got int32\[3\]"),
        ([2, 5], [2], "int16", "int32 or int64, got int16"),
    ],
)
def test_update_refuses_invalid_shapes_and_starts(
    update: list[int], starts: list[int], dtype: str, reason: str
) -> None:
    m = Build()
    m.output(add_update(m, m.input([3, 5]), m.input(update), m.input(starts, dtype=dtype)))
    with pytest.raises(ConversionError, match=reason):
        convert(m.bytes())

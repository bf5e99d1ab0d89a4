"""GATHER and GATHER_ND."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tests.op.ports import add_input, check_outputs, folds
from tests.support import Build
from tflite2onnx.convert import convert
from tflite2onnx.errors import ConversionError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.support import Tensor

TYPES = (
    "float32",
    "float16",
    "bfloat16",
    "bool",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
)
INDEX_TYPES = ("int16", "int32", "int64")
SIZES = (2, 3, 5, 7, 4)
INDICES = [(), (6,), (2, 3), (2, 1, 3)]


def add_gather(m: Build, x: Tensor, indices: Tensor, axis: int) -> Tensor:
    shape = [*x.shape[:axis], *indices.shape, *x.shape[axis:][1:]]
    return m.op("GATHER", [x, indices], [shape], axis=axis)[0]


@pytest.mark.parametrize("indices", INDICES)
@pytest.mark.parametrize(("rank", "axis"), [(r, a) for r in range(1, 6) for a in range(-r, r)])
def test_gather_along_every_axis_equals_litert(
    rank: int, axis: int, indices: tuple[int, ...]
) -> None:
    m = Build()
    x = add_input(m, SIZES[:rank])
    index = m.input(indices, dtype="int32", name="index")
    ranges = {"index": (0, x.shape[axis] - 1)}
    check_outputs(m, add_gather(m, x, index, axis), ranges=ranges)


@pytest.mark.parametrize("by", INDEX_TYPES)
@pytest.mark.parametrize("constant", [True, False])
def test_gather_by_every_index_type_equals_litert(by: str, *, constant: bool) -> None:
    m = Build()
    x = add_input(m, [3, 5, 7])
    values = np.array([[4, 0, 0], [1, 3, 2]], by)
    index = m.constant(values) if constant else m.input([2, 3], dtype=by, name="index")
    check_outputs(m, add_gather(m, x, index, 1), ranges={"index": (0, 4)})


@pytest.mark.parametrize("dtype", [*TYPES, "int4"])
def test_gather_of_every_type_equals_litert(dtype: str) -> None:
    m = Build()
    x = add_input(m, [3, 5, 7, 2], dtype)  # for int4 the kernel moves whole bytes
    check_outputs(m, add_gather(m, x, m.constant([4, 0, 2]), 1))


# rank of the data, axis, batch axes, shape of the indices after the batch axes
BATCHES = [
    (2, 1, 1, ()),
    (2, 1, 1, (6,)),
    (3, 1, 1, (4, 2)),
    (3, 2, 1, ()),
    (3, 2, 1, (6,)),
    (3, 2, 2, (6,)),
    (4, 2, 1, (3, 2)),
    (4, 3, 2, (6,)),
    (5, 3, 1, (6,)),
    (5, 3, 2, (2, 3)),
    (5, 4, 4, ()),
]


@pytest.mark.parametrize("negative", [False, True])
@pytest.mark.parametrize(("rank", "axis", "batch", "rest"), BATCHES)
def test_gather_in_batches_equals_litert(
    rank: int, axis: int, batch: int, rest: tuple[int, ...], *, negative: bool
) -> None:
    m = Build()
    x = add_input(m, SIZES[:rank])
    index = m.input([*SIZES[:batch], *rest], dtype="int32", name="index")
    made = [*SIZES[:axis], *rest, *SIZES[axis + 1 : rank]]
    # Negative batch_dims counts from the end of the indices; 0 means no batch axes.
    number = -len(rest) if negative and rest else batch
    counted = axis - rank if negative else axis
    (y,) = m.op("GATHER", [x, index], [made], axis=counted, batch_dims=number)
    check_outputs(m, y, ranges={"index": (0, SIZES[axis] - 1)})


@pytest.mark.parametrize("by", INDEX_TYPES)
@pytest.mark.parametrize("dtype", TYPES)
def test_gather_in_batches_of_every_type_equals_litert(dtype: str, by: str) -> None:
    m = Build()
    x = add_input(m, [3, 5, 7], dtype)
    index = m.input([3, 2], dtype=by, name="index")
    (y,) = m.op("GATHER", [x, index], [[3, 5, 2]], axis=2, batch_dims=1)
    check_outputs(m, y, ranges={"index": (0, 6), "float32": (-8, 7)})


def test_gather_of_stored_integers_is_one_node() -> None:
    m = Build()
    x = add_input(m, [3, 5], "int8", scale=0.5, zero_point=3)
    result = check_outputs(m, add_gather(m, x, m.constant([4, 0, 2]), 1))
    assert [node.op_type for node in result.model.graph.node] == ["Gather"]


def test_gather_from_a_constant_table_is_one_node() -> None:
    """An embedding is one Gather of a constant table."""
    m = Build()
    table = m.constant(np.arange(33, dtype=np.float32).reshape(11, 3))
    index = m.input([2, 5], dtype="int32", name="index")
    result = check_outputs(m, add_gather(m, table, index, 0), ranges={"index": (0, 10)})
    assert [node.op_type for node in result.model.graph.node] == ["Gather"]


def test_gather_of_constants_folds() -> None:
    m = Build()
    x = m.constant(np.arange(15, dtype=np.int32).reshape(3, 5))
    shape = m.constant([2, 7, 5])
    folds(m, add_gather(m, x, m.constant([4, 0]), -1), add_gather(m, shape, m.constant(1), 0))


def test_gather_in_batches_of_constants_equals_litert() -> None:
    m = Build()
    x = m.constant(np.arange(15, dtype=np.int32).reshape(3, 5))
    (y,) = m.op("GATHER", [x, m.constant([4, 0, 2])], [[3]], axis=1, batch_dims=1)
    check_outputs(m, y, inputs=[])


def refusal(
    code: str, shape: Sequence[int], indices: Any, made: Sequence[int], **options: Any
) -> str:
    m = Build()
    index = indices if isinstance(indices, dict) else None
    given = m.input(**index) if index else m.constant(indices)
    m.output(*m.op(code, [add_input(m, shape), given], [made], **options))
    with pytest.raises(ConversionError) as error:
        convert(m.bytes())
    return str(error.value)


def test_gather_refuses_unsupported_axes_indices_and_batches() -> None:
    assert "below 2, got 2" in refusal("GATHER", [3, 5], [0], [3, 1], axis=2)
    assert "at least 0 and below [5]" in refusal("GATHER", [3, 5], [5], [3, 1], axis=1)
    assert "at least 0 and below [5]" in refusal("GATHER", [3, 5], [-1], [3, 1], axis=1)
    assert "must be integers, got float32" in refusal("GATHER", [3, 5], [0.0], [3, 1], axis=1)
    batch = {"axis": 1, "batch_dims": 2}
    assert "axis is 1 and the indices have 2 axes" in refusal(
        "GATHER", [3, 5], [[0]], [3, 1], **batch
    )
    batch = {"axis": 1, "batch_dims": 1}
    assert "the indices have 0 axes, got 1" in refusal("GATHER", [3, 5], 0, [3], **batch)
    wrong = refusal("GATHER", [3, 5], [[0]], [3, 1], **batch)
    assert "the shapes [3] and [1] must be equal" in wrong
    batch = {"axis": 1, "batch_dims": -2}
    assert "the indices have 1 axes, got -2" in refusal("GATHER", [3, 5], [0], [3, 1], **batch)


# rank of the data, depth of an index, shape of the indices before it
DEPTHS = [
    (1, 1, ()),
    (1, 1, (6,)),
    (2, 1, (3, 2)),
    (2, 2, ()),
    (3, 1, (4,)),
    (3, 2, (2, 3)),
    (4, 1, (6,)),
    (4, 2, ()),
    (4, 3, (2, 3)),
    (4, 4, (2, 3)),
    (5, 2, (3, 2, 4)),
]


@pytest.mark.parametrize("by", INDEX_TYPES)
@pytest.mark.parametrize(("rank", "depth", "rest"), DEPTHS)
def test_gather_nd_of_every_depth_equals_litert(
    rank: int, depth: int, rest: tuple[int, ...], by: str
) -> None:
    m = Build()
    x = add_input(m, SIZES[:rank])
    index = m.input([*rest, depth], dtype=by, name="index")
    (y,) = m.op("GATHER_ND", [x, index], [[*rest, *SIZES[depth:rank]]])
    check_outputs(m, y, ranges={"index": (0, min(SIZES[:depth]) - 1)})


@pytest.mark.parametrize("dtype", TYPES)
def test_gather_nd_of_every_type_equals_litert(dtype: str) -> None:
    m = Build()
    x = add_input(m, [3, 5, 7, 2], dtype)
    where = m.constant([[2, 4], [0, 1], [1, 3]])
    check_outputs(m, *m.op("GATHER_ND", [x, where], [[3, 7, 2]]))


@pytest.mark.parametrize(("index", "operator"), [([[2], [0]], "Gather"), ([[2, 1]], "GatherND")])
def test_gather_nd_of_stored_integers_is_one_node(index: list[list[int]], operator: str) -> None:
    m = Build()
    x = add_input(m, [3, 5, 4], "int8", scale=0.5, zero_point=3)
    rest = [5, 4][len(index[0]) - 1 :]
    result = check_outputs(m, *m.op("GATHER_ND", [x, m.constant(index)], [[len(index), *rest]]))
    assert [node.op_type for node in result.model.graph.node] == [operator]


def test_gather_nd_refuses_indices_out_of_range() -> None:
    assert "at least 0 and below [3]" in refusal("GATHER_ND", [3, 5], [[3]], [1, 5])
    assert "at least 0 and below [3, 5]" in refusal("GATHER_ND", [3, 5], [[0, -1]], [1])
    deep = {"shape": [1, 3], "dtype": "int32"}
    assert "1 to 2 elements, got the shape [1, 3]" in refusal("GATHER_ND", [3, 5], deep, [1])
    none = {"shape": [1, 0], "dtype": "int32"}
    assert "1 to 2 elements, got the shape [1, 0]" in refusal("GATHER_ND", [3, 5], none, [1, 3, 5])
    assert "1 to 2 elements, got the shape []" in refusal("GATHER_ND", [3, 5], 0, [1])

"""Flex operators on ragged and sparse tensors; the references are in numpy."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tests.references import check_reference
from tests.references.flex import build_flex, random_numbers
from tests.support import Build
from tests.support.flex import flex_options
from tflite2onnx.convert import convert
from tflite2onnx.errors import ConversionError

if TYPE_CHECKING:
    from tests.support.runtimes import Array

SPLITS = [0, 2, 2, 7, 8]
NUMBERS = [0, 0, 2, 2, 2, 2, 2, 3]
WAYS: dict[str, list[Any]] = {
    "ROW_SPLITS": [SPLITS],
    "FIRST_DIM_SIZE VALUE_ROWIDS": [4, NUMBERS],
}


def fill_rows(values: Array, default: Any, sizes: list[int], splits: list[int]) -> Array:
    """Return rows of values, filled or cut to the sizes; -1 is the size that holds all."""
    lengths = np.diff(splits)
    rows = len(lengths) if sizes[0] < 0 else sizes[0]
    width = int(lengths.max()) if sizes[1] < 0 else sizes[1]
    made = np.empty((rows, width, *values.shape[1:]), values.dtype)
    made[:] = default
    for row, (begin, end) in enumerate([*pairwise(splits)][:rows]):
        count = min(end - begin, width)
        made[row, :count] = values[begin : begin + count]
    return made


@pytest.mark.parametrize("ways", WAYS)
@pytest.mark.parametrize("dtype", ["float32", "int32", "int64"])
@pytest.mark.parametrize("sizes", [[-1, -1], [-1, 3], [6, 7], [2, -1]])
@pytest.mark.parametrize("constant", [True, False])
def test_ragged_rows_equal_reference(
    ways: str, dtype: str, sizes: list[int], *, constant: bool
) -> None:
    for further in ((), (3,)):
        values, default = random_numbers(dtype, 8, *further), np.array(-9, dtype)
        want = fill_rows(values, default, sizes, SPLITS)
        parts = [np.array(part, np.int64) for part in WAYS[ways]]
        m = Build()
        shape = np.array(sizes + [-1] * len(further), np.int64)
        if sizes == [-1, -1]:
            shape = np.array(-1, np.int32)
        operands = [m.constant(shape), m.input(values.shape, dtype=dtype), m.constant(default)]
        lists = [m.constant(p) if constant else m.input(p.shape, dtype="int64") for p in parts]
        options = flex_options("RaggedTensorToTensor", row_partition_types=ways.split())
        outputs = [m.tensor(want.shape, dtype=dtype)]
        m.output(*m.custom("FlexRaggedTensorToTensor", [*operands, *lists], outputs, options))
        check_reference(m, [values, *([] if constant else parts)], [want], tolerance=0)


LEVELS: dict[str, list[list[int]]] = {
    "ROW_SPLITS": [[0, 2, 2, 5], [0, 3, 3, 4, 8, 8], [0, 0, 1, 1, 4, 4, 4, 5, 8]],
    "VALUE_ROWIDS": [[0, 0, 2, 2, 2], [0, 0, 0, 2, 3, 3, 3, 3], [1, 3, 3, 3, 6, 7, 7, 7]],
}


def nest_rows(values: Array, default: Any, sizes: list[int], levels: list[list[int]]) -> Array:
    """Return the rows of several ragged axes, filled or cut to the sizes."""
    lengths = [max(b - a for a, b in pairwise(level)) for level in levels]
    found = [len(levels[0]) - 1, *lengths]
    shape = [n if size < 0 else size for n, size in zip(found, sizes, strict=True)]
    made = np.empty((*shape, *values.shape[1:]), values.dtype)
    made[:] = default
    for place in np.ndindex(*shape):
        row: int | None = place[0] if place[0] < found[0] else None
        for level, i in zip(levels, place[1:], strict=True):
            if row is not None:
                row = level[row] + i if level[row] + i < level[row + 1] else None
        if row is not None:
            made[place] = values[row]
    return made


@pytest.mark.parametrize("constant", [True, False])
@pytest.mark.parametrize("sizes", [[-1, -1, -1], [4, -1, 2], [2, 4, -1]])
@pytest.mark.parametrize("ways", ["SS", "FNN", "FNS", "SN", "SSS", "FNNN", "SNS"])
def test_several_ragged_axes_equal_reference(
    ways: str, sizes: list[int], *, constant: bool
) -> None:
    names = {"S": "ROW_SPLITS", "N": "VALUE_ROWIDS", "F": "FIRST_DIM_SIZE"}
    kinds = [names[way] for way in ways]
    levels = [LEVELS[kind][i] for i, kind in enumerate(k for k in kinds if k[0] != "F")]
    parts: list[Any] = [3, *levels] if ways[0] == "F" else levels
    whole = sizes + [-1] * (len(levels) - 2)
    values, default = random_numbers("float32", 8, 2), np.float32(-9)
    want = nest_rows(values, default, whole, LEVELS["ROW_SPLITS"][: len(levels)])
    m = Build()
    operands = [m.constant(np.array([*whole, -1])), m.input(values.shape), m.constant(default)]
    arrays = [np.array(part, np.int64) for part in parts]
    lists = [m.constant(p) if constant else m.input(p.shape, dtype="int64") for p in arrays]
    options = flex_options("RaggedTensorToTensor", row_partition_types=kinds)
    outputs = [m.tensor(want.shape)]
    m.output(*m.custom("FlexRaggedTensorToTensor", [*operands, *lists], outputs, options))
    check_reference(m, [values, *([] if constant else arrays)], [want], tolerance=0)


@pytest.mark.parametrize(
    ("shape", "ways", "parts", "reason"),
    [
        ([-1, -1], ["VALUE_ROWIDS"], [[0, 0, 0]], "types must be"),
        ([-1, -1], ["FIRST_DIM_SIZE"], [[1]], "types must be"),
        ([-1, -1], ["ROW_SPLITS", "ROW_SPLITS"], [[0, 1], [0, 3]], "with a size for each axis"),
        ([-1, -1, 2], ["ROW_SPLITS"], [[0, 3]], "with a size for each axis"),
        ([-1, -1], ["ROW_SPLITS"], [[[0, 3]]], "must be a list"),
        ([-1, -1], ["ROW_SPLITS"], [[0, 3], [0, 3]], "it must have 4 inputs"),
    ],
)
def test_refuses_other_ragged_tensors(shape: Any, ways: Any, parts: Any, reason: str) -> None:
    values = np.zeros(3, np.float32)
    m = Build()
    lists = [m.constant(np.array(part, np.int64)) for part in parts]
    first = m.constant(np.array(shape, np.int64)), m.input(values.shape), m.constant(np.float32(0))
    options = flex_options("RaggedTensorToTensor", row_partition_types=ways)
    m.output(*m.custom("FlexRaggedTensorToTensor", [*first, *lists], [m.tensor([1, 3])], options))
    with pytest.raises(ConversionError, match=reason):
        convert(m.bytes())


PLACES = np.array([[0, 1], [2, 0], [2, 1], [2, 1], [3, 4]], np.int64)


def multiply(
    places: Array, values: Array, shape: Array, b: Array, *, adjoint_a: bool, adjoint_b: bool
) -> Array:
    """Return the product of a sparse matrix, in which equal places are summed, and a matrix."""
    a = np.zeros(shape, values.dtype)
    np.add.at(a, tuple(places.T), values)
    return np.asarray((a.T if adjoint_a else a) @ (b.T if adjoint_b else b))


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32"])
@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("second", [True, False])
@pytest.mark.parametrize("constant", [True, False])
def test_sparse_products_equal_numpy(
    dtype: str, *, first: bool, second: bool, constant: bool
) -> None:
    values, shape = random_numbers(dtype, 5), np.array([4, 5], np.int64)
    b = random_numbers(dtype, *((3, 4) if first else (3, 5)), seed=1)
    b = b if second else b.T.copy()
    told = {"adjoint_a": first, "adjoint_b": second}
    want = multiply(PLACES, values, shape, b, **told)
    m = Build()
    inputs: list[Any] = [PLACES, values, shape, b]
    given = [i for i in range(4) if not (constant and i == 2)]
    operands = [
        m.input(x.shape, dtype=x.dtype.name) if i in given else m.constant(x)
        for i, x in enumerate(inputs)
    ]
    options = flex_options("SparseTensorDenseMatMul", **told)
    outputs = [m.tensor(want.shape, dtype=dtype)]
    m.output(*m.custom("FlexSparseTensorDenseMatMul", operands, outputs, options))
    check_reference(m, [inputs[i] for i in given], [want])


def test_refuses_sparse_products_with_an_image() -> None:
    inputs: list[Any] = [PLACES, np.zeros(5, np.float32), np.zeros((5, 3, 2), np.float32)]
    m = Build()
    places, values, b = (m.input(x.shape, dtype=x.dtype.name) for x in inputs)
    operands = [places, values, m.constant(np.array([4, 5], np.int64)), b]
    options = flex_options("SparseTensorDenseMatMul")
    m.output(*m.custom("FlexSparseTensorDenseMatMul", operands, [m.tensor([4, 3])], options))
    with pytest.raises(ConversionError, match="must be a matrix"):
        convert(m.bytes())


INDICES = np.array([3, 0, 1, 4, 4], np.int32)
SEGMENTS = np.array([0, 0, 2, 2, 2], np.int32)


def reduce_rows(x: Array, indices: Array, numbers: Array, count: Any, name: str) -> Array:
    """Return the sum, the mean, or the sum divided by the root of the number, of gathered rows."""
    made = np.zeros((int(count), *x.shape[1:]), x.dtype)
    for segment in range(int(count)):
        rows = x[indices[numbers == segment]]
        divisor = {"Sum": 1, "Mean": len(rows), "SqrtN": np.sqrt(len(rows))}[name]
        made[segment] = rows.sum(0) / divisor if len(rows) else 0
    return made


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", ["Sum", "Mean", "SqrtN"])
@pytest.mark.parametrize("shape", [(5,), (5, 3), (5, 3, 2)])
def test_sparse_segments_equal_numpy(name: str, dtype: str, shape: tuple[int, ...]) -> None:
    x = random_numbers(dtype, *shape)
    want = reduce_rows(x, INDICES, SEGMENTS, 3, name)
    for constants in ([INDICES, SEGMENTS], []):
        inputs = [x] if constants else [x, INDICES, SEGMENTS]
        model = build_flex(f"SparseSegment{name}", inputs, [want], constants)
        check_reference(model, inputs, [want], tolerance=1e-5 if dtype == "float32" else 1e-12)
    want = reduce_rows(x, INDICES, SEGMENTS, 4, name)
    further = [INDICES, SEGMENTS, np.array(4, np.int32)]
    model = build_flex(f"SparseSegment{name}WithNumSegments", [x], [want], further)
    check_reference(model, [x], [want])


def count_rows(start: Array, limit: Array, step: Array, dtype: str = "int64") -> list[Array]:
    """Return where rows of ranges begin and end, and their numbers."""
    given = np.broadcast_arrays(*map(np.atleast_1d, (start, limit, step)))
    rows = [np.arange(*each) for each in zip(*given, strict=True)]
    ends = np.cumsum([0, *map(len, rows)]).astype(dtype)
    return [ends, np.concatenate(rows).astype(np.asarray(start).dtype)]


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64"])
@pytest.mark.parametrize("splits", ["int32", "int64"])
@pytest.mark.parametrize("step", [2, [1, 2, -3, 4]])
@pytest.mark.parametrize("limit", [5, [3, 0, -7, 5]])
@pytest.mark.parametrize("start", [0, [0, 1, 2, 5]])
def test_ragged_ranges_equal_numpy(
    start: Any, limit: Any, step: Any, splits: str, dtype: str
) -> None:
    inputs = [np.array(each, dtype) for each in (start, limit, step)]
    want = count_rows(inputs[0], inputs[1], inputs[2], splits)
    check_reference(build_flex("RaggedRange", inputs, want), inputs, want)


def gather_rows(splits: Array, values: Array, indices: Array) -> list[Array]:
    rows = [values[splits[i] : splits[i + 1]] for i in indices]
    return [np.cumsum([0, *map(len, rows)], dtype=splits.dtype), np.concatenate(rows)]


@pytest.mark.parametrize("index", ["int32", "int64"])
@pytest.mark.parametrize("shape", [(8,), (8, 3)])
def test_gathered_ragged_rows_equal_numpy(shape: tuple[int, ...], index: str) -> None:
    inputs = [np.array(SPLITS), random_numbers("float32", *shape), np.array([3, 1, 2, 2, 0], index)]
    want = gather_rows(*inputs)
    model = build_flex("RaggedGather", inputs, want, PARAMS_RAGGED_RANK=1, OUTPUT_RAGGED_RANK=1)
    check_reference(model, inputs, want, tolerance=0)


def fill_empty_rows(places: Array, values: Array, shape: Array, default: Array) -> list[Array]:
    """Return the places and values in the order of rows, empty rows, and where values went."""
    empty = ~np.isin(np.arange(shape[0]), places[:, 0])
    rows = [(row, -1, [row, *[0] * (len(shape) - 1)], default) for row in np.flatnonzero(empty)]
    rows += [(place[0], i, [*place], values[i]) for i, place in enumerate(places)]
    rows = sorted(rows, key=lambda row: row[:2])
    order = [row[1] for row in rows]
    return [
        np.array([row[2] for row in rows], np.int64),
        np.array([row[3] for row in rows], values.dtype),
        empty,
        np.array([order.index(i) for i in range(len(values))], np.int64),
    ]


@pytest.mark.parametrize("dtype", ["float32", "int64"])
@pytest.mark.parametrize("order", [[0, 1, 2, 3], [2, 0, 3, 1], []])
@pytest.mark.parametrize("constant", [True, False])
def test_filled_rows_equal_numpy(order: list[int], dtype: str, *, constant: bool) -> None:
    """Rows 1 and 4 are empty; without values all rows are. Values may be in any order."""
    places = np.array([[0, 1], [2, 0], [2, 2], [3, 1]])[order].reshape(-1, 2)
    inputs = [places, random_numbers(dtype, 4)[order], np.array([5, 3]), np.array(-9, dtype)]
    want = fill_empty_rows(*inputs)
    check_with_shape("SparseFillEmptyRows", inputs, want, constant=constant)


def check_with_shape(
    name: str, inputs: list[Array], want: list[Array], *, constant: bool, **attributes: Any
) -> None:
    """Compare an operator on a sparse tensor, whose shape may be constant, with a reference."""
    given = [0, 1] if constant else [0, 1, 2]
    m = Build()
    operands = [
        m.input(x.shape, dtype=x.dtype.name) if i in given else m.constant(x)
        for i, x in enumerate(inputs)
    ]
    outputs = [m.tensor(x.shape, dtype=x.dtype.name) for x in want]
    m.output(*m.custom(f"Flex{name}", operands, outputs, flex_options(name, **attributes)))
    check_reference(m, [inputs[i] for i in given], want)


def add_rows(places: Array, values: Array, shape: Array, axes: Array) -> Array:
    """Return the sums of a sparse tensor over axes, all axes if there are none."""
    dense = np.zeros(shape, values.dtype)
    np.add.at(dense, tuple(places.T), values)
    return np.asarray(dense.sum(tuple(axes) or None, dtype=values.dtype))


@pytest.mark.parametrize("dtype", ["float32", "int32"])
@pytest.mark.parametrize("axes", [[0], [1], [-1], [0, 1], []])
@pytest.mark.parametrize("keeps", [True, False])
@pytest.mark.parametrize("constant", [True, False])
def test_sparse_sums_equal_numpy(
    axes: list[int], dtype: str, *, keeps: bool, constant: bool
) -> None:
    inputs = [PLACES, random_numbers(dtype, 5), np.array([4, 5]), np.array(axes, np.int32)]
    want = add_rows(*inputs)
    kept = tuple(axes) or (0, 1)
    want = np.expand_dims(want, kept) if keeps else want
    check_with_shape("SparseReduceSum", inputs, [want], constant=constant, keep_dims=keeps)


def test_refuses_ranges_of_matrices() -> None:
    inputs = [np.zeros((2, 2), np.int32)] * 3
    model = build_flex("RaggedRange", inputs, [np.zeros(3, np.int64), np.zeros(4, np.int32)])
    with pytest.raises(ConversionError, match="must be a list"):
        convert(model.bytes())

"""Flex operators on segments and indices. LiteRT has no kernels, so numpy is the reference."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tests.references import check_reference
from tests.references.flex import build_flex, random_numbers
from tests.support import Build, run_onnx
from tests.support.flex import flex_options
from tflite2onnx.convert import convert
from tflite2onnx.errors import ConversionError

if TYPE_CHECKING:
    from tests.support import Tensor
    from tests.support.runtimes import Array

WIDE = ["float32", "float64", "int32", "int64"]
NARROW = ["float16", "int8", "int16", "uint8", "uint16", "uint32"]
BOUNDS = {"float16": 2e-3, "float64": 1e-12}


@pytest.mark.parametrize("dtype", [*WIDE, *NARROW])
@pytest.mark.parametrize(
    ("name", "at"),
    [
        ("Update", None),
        ("Add", np.add),
        ("Sub", np.subtract),
        ("Max", np.maximum),
        ("Min", np.minimum),
    ],
)
@pytest.mark.parametrize("kind", ["int32", "int64"])
def test_scattered_updates_equal_numpy(name: str, at: Any, dtype: str, kind: str) -> None:
    x = random_numbers(dtype, 5, 7)
    for places in ([[2, 1], [1, 0], [3, 4]], [[2], [1], [2]] if at else [[2], [1], [0]]):
        indices = np.array(places, kind)
        updates = random_numbers(dtype, 3, *x.shape[indices.shape[1] :], seed=1)
        want, where = x.copy(), tuple(indices.T)
        if at is None:
            want[where] = updates
        else:
            at.at(want, where, updates)
        inputs = [x, indices, updates]
        model = build_flex(f"TensorScatter{name}", inputs, [want])
        check_reference(model, inputs, [want], tolerance=BOUNDS.get(dtype, 1e-5))


def segments(x: Array, ids: list[int], count: int, name: str, empty: Any) -> Array:
    """Return the reduction of the rows of each segment."""
    functions: dict[str, Any] = {
        "Sum": np.sum,
        "Prod": np.prod,
        "Max": np.max,
        "Min": np.min,
        "Mean": np.mean,
    }
    rows = [x[[i for i, each in enumerate(ids) if each == k]] for k in range(count)]
    made = [
        functions[name](r, axis=0) if len(r) else np.full(x.shape[1:], empty, x.dtype) for r in rows
    ]
    return np.stack(made).astype(x.dtype)


@pytest.mark.parametrize("dtype", WIDE + NARROW)
@pytest.mark.parametrize("name", ["Sum", "Prod", "Max", "Min", "Mean"])
@pytest.mark.parametrize("ids", [[0, 0, 1, 3, 3, 3], [1, 1, 1, 2, 5, 5]])
@pytest.mark.parametrize("constant", [True, False])
def test_sorted_segments_equal_numpy(
    name: str, dtype: str, ids: list[int], *, constant: bool
) -> None:
    if name == "Mean" and dtype[0] != "f":
        dtype = "float32"  # the rounding of integer means is not documented
    x, places = random_numbers(dtype, 6, 5, low=-2, high=3), np.array(ids, np.int32)
    want = segments(x, ids, ids[-1] + 1, name, int(name == "Prod"))
    model = build_flex(f"Segment{name}", [x], [want], [places])
    if constant:
        check_reference(model, [x], [want], tolerance=BOUNDS.get(dtype, 1e-5))
    else:
        model = build_flex(f"Segment{name}", [x, places], [want])
        check_reference(model, [x, places], [want], tolerance=BOUNDS.get(dtype, 1e-5))


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64", "uint8", "uint16"])
@pytest.mark.parametrize("name", ["Sum", "Prod", "Max", "Min"])
@pytest.mark.parametrize("kind", ["int32", "int64"])
def test_unsorted_segments_equal_numpy(name: str, dtype: str, kind: str) -> None:
    x, ids = random_numbers(dtype, 6, 5, low=-2, high=3), [0, 0, 1, 3, 1, -1]
    limits: Any = np.finfo(dtype) if dtype[0] == "f" else np.iinfo(dtype)
    empty = {"Sum": 0, "Prod": 1, "Max": limits.min, "Min": limits.max}[name]
    want = segments(x, ids, 4, name, empty)
    inputs = [x, np.array(ids, kind)]
    model = build_flex(f"UnsortedSegment{name}", inputs, [want], [np.array(4, np.int32)])
    check_reference(model, inputs, [want], tolerance=BOUNDS.get(dtype, 1e-5))


@pytest.mark.parametrize("dtype", WIDE)
@pytest.mark.parametrize("kind", ["int32", "int64"])
@pytest.mark.parametrize("weighted", [True, False])
def test_bincounts_equal_numpy(dtype: str, kind: str, *, weighted: bool) -> None:
    x = np.array([[0, 3, 1, 3], [1, 1, 9, 5]], kind)
    weights = random_numbers(dtype, 2, 4) if weighted else np.zeros(0, dtype)
    added = weights if weighted else np.ones((2, 4), dtype)
    rows = np.zeros((2, 6), dtype)
    for (i, _), number, weight in zip(np.ndindex(2, 4), x.flat, added.flat, strict=True):
        if number < 6:
            rows[i, number] += weight
    size = np.array(6, kind)
    model = build_flex("DenseBincount", [x], [rows], [size, weights])
    check_reference(model, [x], [rows])
    want = rows.sum(0, dtype=dtype)
    check_reference(
        build_flex("Bincount", [x], [want], [np.array(6, np.int32), weights]), [x], [want]
    )
    if not weighted:
        model = build_flex("DenseBincount", [x], [rows], [size, weights], binary_output=True)
        check_reference(model, [x], [np.minimum(rows, 1)])


@pytest.mark.parametrize("size", [0, 4, 9])
@pytest.mark.parametrize("name", ["DenseBincount", "Bincount"])
def test_bincounts_of_a_computed_size_equal_numpy(name: str, size: int) -> None:
    x = np.array([[0, 3, 1, 3], [1, 1, 7, 5]], np.int32)
    rows = np.stack([np.bincount(row, minlength=9)[:size] for row in x]).astype(np.float32)
    want = rows if name == "DenseBincount" else rows.sum(0)
    inputs = [x, np.array(size, np.int32)]
    check_reference(build_flex(name, inputs, [want], [np.zeros(0, np.float32)]), inputs, [want])


def build_category_encoding(low: int, high: int) -> Build:
    """Return CategoryEncoding of Keras 3: the size is the largest number + 1, within limits."""
    m = Build()
    x = m.input([1, 4], dtype="int32")
    scalar = partial(m.tensor, [], dtype="int32")
    axes, one, least, most = (m.constant(np.array(n, np.int32)) for n in ([0, 1], 1, low, high))
    (largest,) = m.op("REDUCE_MAX", [x, axes], [scalar()])
    (count,) = m.op("ADD", [largest, one], [scalar()])
    (count,) = m.op("MAXIMUM", [count, least], [scalar()])
    (count,) = m.op("MINIMUM", [count, most], [scalar()])
    options = flex_options("DenseBincount", binary_output=True)
    operands = [x, count, m.constant(np.zeros(0, np.float32))]
    m.output(*m.custom("FlexDenseBincount", operands, [m.tensor([1, 1])], options))
    return m


@pytest.mark.parametrize("batch", [None, 3, "N"])
def test_category_encoding_has_the_size_of_equal_limits(batch: int | str | None) -> None:
    result = convert(build_category_encoding(9, 9).bytes(), batch=batch)
    x = np.array([[1, 3, 3, 7], [8, 11, 0, 0], [2, 2, 2, 2]], np.int32)[: 3 if batch else 1]
    want = np.stack([np.bincount(row, minlength=12)[:9] > 0 for row in x]).astype(np.float32)
    np.testing.assert_array_equal(run_onnx(result.model, {result.inputs[0].name: x})[0], want)


def test_category_encoding_has_a_size_between_limits() -> None:
    model = build_category_encoding(3, 9)
    for x in ([[1, 3, 3, 6]], [[0, 0, 1, 0]], [[8, 1, 11, 2]]):
        given = np.array(x, np.int32)
        size = min(max(given.max() + 1, 3), 9)
        want = (np.bincount(given[0], minlength=12)[None, :size] > 0).astype(np.float32)
        check_reference(model, [given], [want])


@pytest.mark.parametrize("name", ["DynamicStitch", "ParallelDynamicStitch"])
def test_dynamic_stitch_equals_numpy(name: str) -> None:
    data = [
        random_numbers("float32", 2, 3),
        random_numbers("float32", 3, 3),
        random_numbers("float32", 3),
    ]
    indices = [np.array(each, np.int32) for each in ([0, 2], [1, 0, 3], 4)]
    m = Build()
    operands = [*map(m.constant, indices), *(m.input(x.shape) for x in data)]
    want = np.stack([data[1][1], data[1][0], data[0][1], data[1][2], data[2]])
    m.output(*m.custom(f"Flex{name}", operands, [m.tensor(want.shape)], flex_options(name)))
    check_reference(m, data, [want])


@pytest.mark.parametrize("count", [4, 7])
@pytest.mark.parametrize("kind", ["float32", "int32", "bool"])
def test_partitions_equal_numpy(kind: str, count: int) -> None:
    """Partitions of rows, and of elements by numbers of two axes, with any number of rows."""
    numbers = np.arange(count, dtype=np.int32) * 5 % 3
    x = random_numbers(kind, count, 2)
    for given in (numbers, np.stack([numbers, 2 - numbers], axis=1)):
        want = [x[given == i] for i in range(3)]
        m = Build()
        operands = [
            m.input([None, *array.shape[1:]], dtype=array.dtype.name) for array in (x, given)
        ]
        outputs = [m.tensor([None, *part.shape[1:]], dtype=kind) for part in want]
        options = flex_options("DynamicPartition", num_partitions=3)
        m.output(*m.custom("FlexDynamicPartition", operands, outputs, options))
        check_reference(m, [x, given], want, tolerance=0)


@pytest.mark.parametrize("count", [4, 7])
def test_stitch_of_partitions_is_the_input(count: int) -> None:
    """Computed indices: each row is put back in its place."""
    x = random_numbers("float32", count, 2)
    numbers = np.array([0, 2, 1, 2, 0, 0, 2], np.int32)[:count]
    m = Build()
    data, ids = m.input([None, 2]), m.input([None], dtype="int32")
    rows = m.input([None], dtype="int32")

    def partition(source: Tensor, row: list[int], dtype: str) -> list[Tensor]:
        parts = [m.tensor([None, *row], dtype=dtype) for _ in range(3)]
        options = flex_options("DynamicPartition", num_partitions=3)
        return m.custom("FlexDynamicPartition", [source, ids], parts, options)

    operands = [*partition(rows, [], "int32"), *partition(data, [2], "float32")]
    stitched = [m.tensor([None, 2])]
    m.output(*m.custom("FlexDynamicStitch", operands, stitched, flex_options("DynamicStitch")))
    check_reference(m, [x, numbers, np.arange(count, dtype=np.int32)], [x], tolerance=0)


def test_stitch_of_empty_rows_has_the_right_shape() -> None:
    """DynamicStitch of rows without elements has the right shape."""
    m = Build()
    operands = [m.constant(np.array([1, 0], np.int32)), m.input([2, 0])]
    options = flex_options("DynamicStitch")
    m.output(*m.custom("FlexDynamicStitch", operands, [m.tensor([2, 0])], options))
    check_reference(m, [np.zeros((2, 0), np.float32)], [np.zeros((2, 0), np.float32)])


def test_refuses_stitches_with_missing_rows() -> None:
    x = np.zeros((2, 3), np.float32)
    m = Build()
    operands = [m.constant(np.array([0, 2], np.int32)), m.input(x.shape)]
    outputs = [m.tensor([3, 3])]
    m.output(*m.custom("FlexDynamicStitch", operands, outputs, flex_options("DynamicStitch")))
    with pytest.raises(ConversionError, match="must be all numbers from 0"):
        convert(m.bytes())


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_inverse_permutation_equals_argsort(dtype: str) -> None:
    x = np.array([2, 4, 0, 1, 3], dtype)
    want = np.argsort(x).astype(dtype)
    check_reference(build_flex("InvertPermutation", [x], [want]), [x], [want])


@pytest.mark.parametrize(
    ("name", "shapes", "made", "constants", "reason"),
    [
        ("TensorScatterAdd", [(3, 5)], (3, 5), [[1, 1, 1], [1]], "must be from 1 to 2"),
        ("Bincount", [(3,)], (4,), [-4, []], "must be at least 0, got -4"),
        ("SegmentSum", [(3,)], (3,), [[0, 2, 1]], "must be sorted"),
        ("SegmentSum", [(3,)], (3,), [[-1, 0, 1]], "must be sorted and not negative"),
        ("DenseBincount", [(1, 2, 3)], (4,), [4, []], "must have 1 or 2 axes, got 3"),
        ("DynamicPartition", [(3,)], (3,), [1], "must have at least 1 axis, got 0"),
        ("DynamicPartition", [(3,)], (3,), [[0, 1]], r"must be [a-z]+[0-9]+\["),
        ("DynamicStitch", [(3,)], (3,), [], "one tensor of data for each"),
    ],
)
def test_scatters_refuse_invalid_shapes_and_sizes(
    name: str, shapes: Any, made: Any, constants: list[Any], reason: str
) -> None:
    inputs = [np.zeros(shape, np.int32) for shape in shapes]
    further = [np.array(each, np.int32) for each in constants]
    with pytest.raises(ConversionError, match=reason):
        convert(build_flex(name, inputs, [np.zeros(made, np.int32)], further).bytes())


def test_refuses_weights_of_binary_bincounts() -> None:
    further = [np.array(4, np.int32), np.ones(3, np.float32)]
    model = build_flex(
        "DenseBincount",
        [np.zeros(3, np.int32)],
        [np.zeros(4, np.float32)],
        further,
        binary_output=True,
    )
    with pytest.raises(ConversionError, match="must not have both"):
        convert(model.bytes())

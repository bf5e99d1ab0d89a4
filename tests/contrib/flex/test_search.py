"""Flex operators that compare elements; the references are in numpy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tests.references import check_reference
from tests.references.flex import build_flex, random_numbers
from tflite2onnx.convert import convert
from tflite2onnx.errors import ConversionError

if TYPE_CHECKING:
    from tests.support.runtimes import Array

TYPES = ("float32", "float64", "int32", "int64")


def count_unique(x: Array, dtype: str = "int32") -> list[Array]:
    """Return different elements by first occurrence, their indices, and their counts."""
    values, first, places, counts = np.unique(
        x, return_index=True, return_inverse=True, return_counts=True
    )
    order = np.argsort(first)
    return [
        values[order],
        np.argsort(order)[places].astype(dtype),
        counts[order].astype(dtype),
    ]


@pytest.mark.parametrize("dtype", ["float32", "int32", "int64", "int8"])
@pytest.mark.parametrize("index", ["int32", "int64"])
@pytest.mark.parametrize(
    ("name", "axis"), [("", None), ("V2", np.zeros(0, np.int64)), ("V2", np.array([0], np.int32))]
)
def test_counts_of_unique_elements_equal_numpy(
    name: str, axis: Array | None, index: str, dtype: str
) -> None:
    x = random_numbers(dtype, 23, low=0, high=5)
    x = x.round() if dtype == "float32" else x
    want = count_unique(x, index)
    constants = [] if axis is None else [axis]
    model = build_flex(f"UniqueWithCounts{name}", [x], want, constants)
    check_reference(model, [x], want, tolerance=0)
    if axis is not None:
        check_reference(build_flex("UniqueV2", [x], want[:2], constants), [x], want[:2])


def count_rows(x: Array, axis: Array, dtype: str = "int32") -> list[Array]:
    """Return different parts by first occurrence, their indices, and their counts."""
    place = int(axis[0])
    parts = [part.tobytes() for part in np.moveaxis(x, place, 0)]
    found = list(dict.fromkeys(parts))
    values = x.take([parts.index(part) for part in found], place)
    indices = np.array([found.index(part) for part in parts], dtype)
    return [values, indices, np.bincount(indices).astype(dtype)]


@pytest.mark.parametrize("dtype", ["float32", "int32", "int64", "int8", "uint8", "int16"])
@pytest.mark.parametrize("axis", [0, 1, 2, -1])
def test_unique_parts_equal_numpy(axis: int, dtype: str) -> None:
    x = random_numbers(dtype, 7, 5, 3, low=0, high=2).round()
    x = np.moveaxis(x, axis, 0).copy()
    x[[1, 2]] = x[[0, 0]]
    x, places = np.moveaxis(x, 0, axis).copy(), np.array([axis], np.int32)
    want = count_rows(x, places, "int64")
    for name in ("UniqueV2", "UniqueWithCountsV2"):
        made = want[: 3 if "Counts" in name else 2]
        check_reference(build_flex(name, [x], made, [places]), [x], made, tolerance=0)


def test_unique_elements_need_a_constant_axis_and_a_list() -> None:
    x, axis = np.zeros((3, 5), np.int32), np.array([0], np.int32)
    with pytest.raises(ConversionError, match="must be constant"):
        convert(build_flex("UniqueV2", [x, axis], [x, x[:, 0]]).bytes())
    with pytest.raises(ConversionError, match="must have 1 axes, got 2"):
        convert(build_flex("UniqueV2", [x], [x, x[:, 0]], [axis[:0]]).bytes())


def find_bounds(rows: Array, values: Array, side: Any) -> Array:
    found = [np.searchsorted(row, each, side) for row, each in zip(rows, values, strict=True)]
    return np.stack(found).astype(np.int32)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(("name", "side"), [("Lower", "left"), ("Upper", "right")])
@pytest.mark.parametrize("index", ["int32", "int64"])
def test_bounds_equal_numpy(name: str, side: str, dtype: str, index: str) -> None:
    rows, values = np.sort(random_numbers(dtype, 3, 11)), random_numbers(dtype, 3, 7, seed=1)
    values[:, :3] = rows[:, 4:7]
    want = find_bounds(rows, values, side).astype(index)
    model = build_flex(f"{name}Bound", [rows, values], [want])
    check_reference(model, [rows, values], [want])


def rank_targets(predictions: Array, targets: Array, k: Any) -> Array:
    made = []
    for row, target in zip(predictions, targets, strict=True):
        valid = 0 <= target < len(row) and np.isfinite(row).all()
        made.append(valid and (row > row[target]).sum() < k)
    return np.array(made)


@pytest.mark.parametrize("index", ["int32", "int64"])
def test_targets_in_top_k_equal_reference(index: str) -> None:
    x = random_numbers("float32", 7, 5)
    x[1, 2:4] = x[1, 0]  # equal predictions
    x[2, 3], x[3, 0] = np.inf, np.nan
    targets = np.array([3, 2, 1, 1, 5, -1, 4], index)
    for k in (0, 1, 2, 5):
        want, number = rank_targets(x, targets, k), np.array(k, index)
        check_reference(
            build_flex("InTopKV2", [x, targets], [want], [number]), [x, targets], [want]
        )
        check_reference(build_flex("InTopK", [x, targets], [want], k=k), [x, targets], [want])
        inputs = [x, targets, number]
        check_reference(build_flex("InTopKV2", inputs, [want]), inputs, [want])
    with pytest.raises(ConversionError, match="must have k either"):
        convert(build_flex("InTopK", [x, targets], [want]).bytes())


def decode(
    x: Array, lengths: Array, *, merge_repeated: bool = False, blank_index: int = -1
) -> list[Array]:
    """Return the indices, the values and the shape of the classes, and the sums of logits."""
    _, batch, classes = x.shape
    blank = blank_index % classes
    places, values, sums = [], [], np.zeros((batch, 1), x.dtype)
    for row in range(batch):
        before, count = -1, 0
        for t in range(lengths[row]):
            best = int(x[t, row].argmax())
            sums[row] -= x[t, row].max()
            if best != blank and not (merge_repeated and best == before):
                places.append([row, count])
                values.append(best)
                count += 1
            before = best
    longest = max((column + 1 for _, column in places), default=0)
    indices = np.array(places, np.int64).reshape(-1, 2)
    return [indices, np.array(values, np.int64), np.array([batch, longest], np.int64), sums]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("merge", [True, False])
@pytest.mark.parametrize("blank", [-1, 0, 2])
def test_greedy_decoder_equals_reference(dtype: str, blank: int, *, merge: bool) -> None:
    x = random_numbers(dtype, 13, 3, 4)
    x[3:6, 0] = x[3, 0]  # a class that repeats
    told: dict[str, Any] = {"merge_repeated": merge, "blank_index": blank}
    for lengths in ([13, 5, 9], [0, 0, 0]):
        inputs = [x, np.array(lengths, np.int32)]
        want = decode(*inputs, **told)
        check_reference(build_flex("CTCGreedyDecoder", inputs, want, **told), inputs, want)


def test_refuses_decoding_without_steps() -> None:
    inputs = [np.zeros((0, 3, 4), np.float32), np.zeros(3, np.int32)]
    with pytest.raises(ConversionError, match="its logits must have steps and classes"):
        convert(build_flex("CTCGreedyDecoder", inputs, decode(*inputs)).bytes())


def list_others(x: Array, y: Array, index: str = "int32") -> list[Array]:
    """Return the elements of x that y lacks, and their indices."""
    kept = ~np.isin(x, y)
    return [x[kept], np.flatnonzero(kept).astype(index)]


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("index", ["int32", "int64"])
@pytest.mark.parametrize("other", [[], [7], [1, 3, 3]])
def test_differences_of_lists_equal_numpy(other: list[int], index: str, dtype: str) -> None:
    x, y = np.array([3, 1, 2, 2, 4, 3], dtype), np.array(other, dtype)
    want = list_others(x, y, index)
    check_reference(build_flex("ListDiff", [x, y], want), [x, y], want, tolerance=0)

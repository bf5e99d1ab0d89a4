"""CONCATENATION, PACK, UNPACK, SPLIT, SPLIT_V and TILE."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tests.op.ports import FLOAT8, add_input, check_float8, check_outputs, folds
from tests.support import Build
from tflite2onnx.convert import convert
from tflite2onnx.errors import ConversionError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.support import Converted, Tensor

SPLIT_TYPES = ("float32", "int8", "int16", "int32", "int64", "uint8")
PACK_TYPES = (*SPLIT_TYPES, "uint32")
UNPACK_TYPES = ("float32", "float16", "bfloat16", "bool", "int8", "int16", "int32", "uint8")
CONCATENATION_TYPES = (*UNPACK_TYPES, "int64", "uint32", "int4")
TILE_TYPES = (*UNPACK_TYPES, "float64", "int64", "uint16", "uint32", "uint64")
SIZES = (2, 3, 5, 7, 4)
# Each axis of each rank, as a positive and as a negative number.
AXES = [(rank, axis) for rank in range(1, 6) for axis in range(-rank, rank)]


def node_types(result: Converted) -> list[str]:
    return [node.op_type for node in result.model.graph.node]


def resize_axis(shape: Sequence[int], axis: int, size: int) -> list[int]:
    made = list(shape)
    made[axis] = size
    return made


def drop_axis(shape: Sequence[int], axis: int) -> list[int]:
    axis %= len(shape)
    return [*shape[:axis], *shape[axis + 1 :]]


def add_concatenation(m: Build, axis: int, *xs: Tensor) -> Tensor:
    total = sum(x.shape[axis] for x in xs)
    return m.op("CONCATENATION", xs, [resize_axis(xs[0].shape, axis, total)], axis=axis)[0]


def add_pack(m: Build, axis: int, *xs: Tensor) -> Tensor:
    shape = list(xs[0].shape)
    shape.insert(axis if axis >= 0 else axis + len(shape) + 1, len(xs))
    return m.op("PACK", xs, [shape], axis=axis, values_count=len(xs))[0]


def add_unpack(m: Build, x: Tensor, axis: int) -> list[Tensor]:
    count = x.shape[axis]
    return m.op("UNPACK", [x], [drop_axis(x.shape, axis)] * count, axis=axis, num=count)


def split(m: Build, x: Tensor, axis: int, count: int) -> list[Tensor]:
    part = resize_axis(x.shape, axis, x.shape[axis] // count)
    return m.op("SPLIT", [m.constant(np.int32(axis)), x], [part] * count, num_splits=count)


def split_by(
    m: Build, x: Tensor, axis: int, sizes: Sequence[int], by: str = "int32"
) -> list[Tensor]:
    rest = x.shape[axis] - sum(size for size in sizes if size != -1)
    parts = [resize_axis(x.shape, axis, rest if size == -1 else size) for size in sizes]
    inputs = [x, m.constant(np.array(sizes, by)), m.constant(np.int32(axis))]
    return m.op("SPLIT_V", inputs, parts, num_splits=len(sizes))


def add_tile(m: Build, x: Tensor, multiples: Sequence[int], by: str = "int32") -> Tensor:
    shape = [size * times for size, times in zip(x.shape, multiples, strict=True)]
    return m.op("TILE", [x, m.constant(np.array(multiples, by))], [shape])[0]


@pytest.mark.parametrize(("rank", "axis"), AXES)
def test_concatenation_along_every_axis_equals_litert(rank: int, axis: int) -> None:
    m = Build()
    xs = [add_input(m, resize_axis(SIZES[:rank], axis, size)) for size in (3, 1, 4, 0)]
    c = m.constant(np.ones(resize_axis(SIZES[:rank], axis, 2), np.float32))
    check_outputs(m, add_concatenation(m, axis, *xs, c))


@pytest.mark.parametrize("dtype", CONCATENATION_TYPES)
def test_concatenation_of_every_type_equals_litert(dtype: str) -> None:
    m = Build()
    check_outputs(
        m, add_concatenation(m, -1, *(add_input(m, [2, 3, 5, size], dtype) for size in (7, 3)))
    )


def test_concatenation_of_one_tensor_equals_litert() -> None:
    m = Build()
    check_outputs(m, add_concatenation(m, 0, add_input(m, [3, 5])))


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16"])
def test_concatenation_of_stored_integers_is_one_node(dtype: str) -> None:
    m = Build()
    as_stored: dict[str, Any] = {"scale": 0.5, "zero_point": 0 if dtype == "int16" else 3}
    xs = [add_input(m, [2, 3, 5, size], dtype, **as_stored) for size in (7, 3)]
    assert node_types(check_outputs(m, add_concatenation(m, 3, *xs))) == ["Concat"]


def test_concatenation_of_two_scales_is_requantized() -> None:
    """uint8 operands with different scales are requantized, as in the kernel."""
    m = Build()
    x = add_input(m, [2, 7], "uint8", scale=0.5, zero_point=3)
    y = add_input(m, [2, 3], "uint8", scale=0.25, zero_point=100)
    result = check_outputs(m, add_concatenation(m, 1, x, y), steps=1)
    assert "QuantizeLinear" in node_types(result)


def test_concatenation_refuses_unsupported_axes_shapes_and_types() -> None:
    def refuse(shapes: Sequence[Sequence[int]], made: Sequence[int], axis: int) -> str:
        m = Build()
        return refusal(m, "CONCATENATION", [add_input(m, s) for s in shapes], [made], axis=axis)

    assert "below 2, got 2" in refuse([[3, 5], [3, 5]], [6, 5], 2)
    assert "below 2, got -3" in refuse([[3, 5], [3, 5]], [6, 5], -3)
    assert "float32[3, 5], got float32[3, 7]" in refuse([[3, 5], [3, 7]], [6, 5], 0)
    assert "float32[3, 5], got float32[3]" in refuse([[3, 5], [3]], [6, 5], 0)
    assert "float32[3], got float32[]" in refuse([[3], []], [3], 0)
    assert "an axis of tensor_0 must be" in refuse([[], []], [2], 0)
    m = Build()
    xs = [add_input(m, [3]), add_input(m, [3], "int32")]
    assert "float32[3], got int32[3]" in refusal(m, "CONCATENATION", xs, [[6]], axis=0)
    m = Build()
    assert "input 0 is missing" in refusal(m, "CONCATENATION", [], [m.tensor([6])])


@pytest.mark.parametrize(("rank", "axis"), [(0, 0), (0, -1), *AXES, (1, -2), (4, 4), (4, -5)])
def test_pack_along_every_axis_equals_litert(rank: int, axis: int) -> None:
    m = Build()
    xs = [add_input(m, SIZES[:rank]) for _ in range(2)]
    c = m.constant(np.ones(SIZES[:rank], np.float32))
    check_outputs(m, add_pack(m, axis, *xs, c))


@pytest.mark.parametrize("dtype", PACK_TYPES)
def test_pack_of_every_type_equals_litert(dtype: str) -> None:
    m = Build()
    check_outputs(m, add_pack(m, 1, *(add_input(m, [2, 3, 5], dtype) for _ in range(3))))


def test_pack_of_one_tensor_is_unsqueeze() -> None:
    m = Build()
    assert node_types(check_outputs(m, add_pack(m, 1, add_input(m, [3, 5])))) == ["Unsqueeze"]


def test_pack_of_stored_integers_is_not_rescaled() -> None:
    m = Build()
    xs = [add_input(m, [2, 3], "int8", scale=0.5, zero_point=3) for _ in range(2)]
    assert node_types(check_outputs(m, add_pack(m, 1, *xs))) == ["Concat", "Reshape"]


def test_pack_refuses_unsupported_shapes_and_axes() -> None:
    m = Build()
    xs = [add_input(m, [3, 5]), add_input(m, [3, 7])]
    assert "float32[3, 5], got float32[3, 7]" in refusal(m, "PACK", xs, [[2, 3, 5]])
    for axis, made in ((3, [2, 3, 5]), (-4, [2, 3, 5])):
        m = Build()
        reason = refusal(m, "PACK", [add_input(m, [3, 5])] * 2, [made], axis=axis)
        assert f"below 3, got {axis}" in reason


@pytest.mark.parametrize(("rank", "axis"), AXES)
def test_unpack_along_every_axis_equals_litert(rank: int, axis: int) -> None:
    m = Build()
    check_outputs(m, *add_unpack(m, add_input(m, SIZES[:rank]), axis))


@pytest.mark.parametrize("dtype", UNPACK_TYPES)
def test_unpack_of_every_type_equals_litert(dtype: str) -> None:
    m = Build()
    check_outputs(m, *add_unpack(m, add_input(m, [2, 3, 5], dtype), 1))


def test_unpack_of_one_slice_is_squeeze() -> None:
    m = Build()
    assert node_types(check_outputs(m, *add_unpack(m, add_input(m, [3, 1, 5]), 1))) == ["Squeeze"]


def test_unpack_of_stored_integers_is_not_rescaled() -> None:
    m = Build()
    x = add_input(m, [2, 3], "int8", scale=0.5, zero_point=3)
    assert node_types(check_outputs(m, *add_unpack(m, x, 0))) == ["Reshape", "Split"]


def test_unpack_refuses_wrong_numbers_of_outputs() -> None:
    m = Build()
    reason = refusal(m, "UNPACK", [add_input(m, [3, 5])], [[5], [5]], num=2)
    assert "an output for each of 3 slices, got 2" in reason
    m = Build()
    reason = refusal(m, "UNPACK", [add_input(m, [0, 5])], [])
    assert "an output for each of 0 slices, got 0" in reason
    m = Build()
    assert "below 0, got 0" in refusal(m, "UNPACK", [add_input(m, [])], [[]], num=1)


@pytest.mark.parametrize(("rank", "axis"), AXES)
def test_split_along_every_axis_equals_litert(rank: int, axis: int) -> None:
    m = Build()
    x = add_input(m, resize_axis(SIZES[:rank], axis, 6))
    check_outputs(m, *split(m, x, axis, 3))


@pytest.mark.parametrize("by", ["int32", "int64"])
@pytest.mark.parametrize(("rank", "axis"), AXES)
def test_split_by_sizes_equals_litert(rank: int, axis: int, by: str) -> None:
    m = Build()
    x = add_input(m, resize_axis(SIZES[:rank], axis, 11))
    check_outputs(m, *split_by(m, x, axis, [2, -1, 0, 5], by))


@pytest.mark.parametrize("dtype", SPLIT_TYPES)
def test_split_of_every_type_equals_litert(dtype: str) -> None:
    m = Build()
    x = add_input(m, [2, 6, 5], dtype)
    check_outputs(m, *split(m, x, 1, 2), *split_by(m, x, 1, [1, 5]), *split_by(m, x, 2, [-1, 3]))


def test_split_into_one_part_is_identity() -> None:
    m = Build()
    x = add_input(m, [2, 6])
    assert set(node_types(check_outputs(m, *split(m, x, 1, 1), *split_by(m, x, 0, [-1])))) == {
        "Identity"
    }


def test_split_of_stored_integers_is_one_node() -> None:
    m = Build()
    x = add_input(m, [2, 6], "int8", scale=0.5, zero_point=3)
    assert node_types(check_outputs(m, *split(m, x, 1, 2))) == ["Split"]


def test_split_refuses_unsupported_axes_and_sizes() -> None:
    def refuse(code: str, *given: Any, made: Sequence[Sequence[int]]) -> str:
        m = Build()
        x = add_input(m, [2, 6])
        parameters = [m.constant(each) for each in given]
        inputs = [*parameters, x] if code == "SPLIT" else [x, *parameters]
        made_of = [m.tensor(shape) for shape in made]
        return refusal(m, code, inputs, made_of, num_splits=len(made))

    halves = [[2, 3], [2, 3]]
    assert "below 2, got 2" in refuse("SPLIT", np.int32(2), made=halves)
    assert "must have one element, got 2" in refuse("SPLIT", [1, 1], made=halves)
    assert "add up to 6, got [1, 1, 1, 1]" in refuse("SPLIT", 1, made=halves * 2)
    assert "0 sizes must add up to 6, got []" in refuse("SPLIT", 1, made=[])
    assert "add up to 6, got [2, 3]" in refuse("SPLIT_V", [2, 3], 1, made=[[2, 2], [2, 3]])
    assert "add up to 6, got [-2, 8]" in refuse("SPLIT_V", [-2, 8], 1, made=[[2, 2], [2, 8]])
    assert "add up to 6, got [6, 6]" in refuse("SPLIT_V", [-1, -1], 1, made=[[2, 0], [2, 6]])
    assert "add up to 6, got [8, -2]" in refuse("SPLIT_V", [8, -1], 1, made=[[2, 8], [2, 0]])
    assert "add up to 6, got [6]" in refuse("SPLIT_V", [6], 1, made=halves)


@pytest.mark.parametrize("by", ["int32", "int64"])
@pytest.mark.parametrize(
    "multiples", [[3], [2, 3], [1, 1, 4], [2, 1, 3, 1], [1, 2, 1, 2, 3], [2, 0, 1], [1, 1, 1]]
)
def test_tile_by_all_multiples_equals_litert(multiples: list[int], by: str) -> None:
    m = Build()
    check_outputs(m, add_tile(m, add_input(m, SIZES[: len(multiples)]), multiples, by))


@pytest.mark.parametrize("dtype", TILE_TYPES)
def test_tile_of_every_type_equals_litert(dtype: str) -> None:
    m = Build()
    check_outputs(m, add_tile(m, add_input(m, [2, 3, 5], dtype), [2, 1, 3]))


@pytest.mark.parametrize("dtype", FLOAT8)
def test_tile_of_float8_equals_numpy(dtype: str) -> None:
    m = Build()
    m.output(add_tile(m, m.input([16, 16], dtype=dtype), [2, 3]))
    check_float8(m, lambda every: np.tile(every, [2, 3]))


def test_tile_of_stored_integers_is_one_node() -> None:
    m = Build()
    x = add_input(m, [2, 6], "int8", scale=0.5, zero_point=3)
    assert node_types(check_outputs(m, add_tile(m, x, [2, 3]))) == ["Tile"]


def test_tile_refuses_unsupported_multiples() -> None:
    for multiples, reason in (
        ([2], r"multiples must be 2 non-negative integers, got [2]"),
        ([2, -1], r"multiples must be 2 non-negative integers, got [2, -1]"),
    ):
        m = Build()
        inputs = [add_input(m, [3, 5]), m.constant(multiples)]
        assert reason in refusal(m, "TILE", inputs, [[6, 5]])


def test_all_operators_on_constants_fold() -> None:
    m = Build()
    x = m.constant(np.arange(12, dtype=np.int32).reshape(2, 6))
    one, two = m.constant(np.int32(1)), m.constant(np.int32(2))
    folds(
        m,
        add_concatenation(m, 1, x, x),
        *m.op("CONCATENATION", [one, two, one], [[3]], axis=0),
        add_pack(m, 1, x, x),
        add_pack(m, 0, one, two),
        *add_unpack(m, x, -1),
        *split(m, x, 1, 3),
        *split_by(m, x, 1, [1, -1, 3]),
        add_tile(m, x, [2, 3]),
    )


def refusal(
    m: Build, code: str, inputs: Sequence[Tensor], made: Sequence[Any], **options: Any
) -> str:
    m.output(m.input([1]), *m.op(code, inputs, made, **options))
    with pytest.raises(ConversionError) as error:
        convert(m.bytes())
    return str(error.value)

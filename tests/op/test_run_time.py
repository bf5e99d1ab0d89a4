"""Axes, sizes and bounds that are computed at run time; here they are inputs of the model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import ArrayLike

from tests.support import Build, Tensor, check
from tflite2onnx import ConversionError

DATA = np.random.default_rng(5).standard_normal((2, 5, 7, 3)).astype(np.float32)


def check_with_inputs(
    code: str, operands: list[ArrayLike], made: Sequence[int | None] | None, **options: Any
) -> None:
    """Compare an operator with LiteRT; all its operands are inputs.

    `made` is the declared shape of the output: `None` in it is a dynamic size, and `made=None` an
    unknown rank.
    """
    arrays = [
        np.asarray(each, None if isinstance(each, np.ndarray) else np.int32) for each in operands
    ]
    m = Build()
    inputs = [m.input(array.shape, dtype=array.dtype) for array in arrays]
    dtype = options.pop("dtype", "float32")
    outputs: list[Tensor] = [
        m.tensor(made, dtype=each) for each in ([dtype] if isinstance(dtype, str) else dtype)
    ]
    m.output(*m.op(code, inputs, outputs, **options))
    check(m.bytes(), inputs=arrays)


DYNAMIC = [None, None, None, None]
FLAT = DATA.reshape(2, 35, 3)


@pytest.mark.parametrize("shape", [[6, -1], [-1, 3, 5], [2, 35, 3], [210], [5, 1, 2, 1, 21]])
@pytest.mark.parametrize("known", [True, False])
def test_reshape_to_a_computed_shape_equals_litert(shape: list[int], *, known: bool) -> None:
    check_with_inputs("RESHAPE", [DATA, shape], len(shape) * [None] if known else None)


@pytest.mark.parametrize("size", [[1, 3, 4, 2], [-1, 2, -1, 3]])
def test_slice_of_computed_bounds_equals_litert(size: list[int]) -> None:
    check_with_inputs("SLICE", [DATA, [1, 2, 3, 0], size], DYNAMIC)


@pytest.mark.parametrize("value", [(), (np.float32(3),)])
def test_pad_by_computed_amounts_equals_litert(value: tuple[np.float32, ...]) -> None:
    paddings = [[0, 1], [2, 3], [0, 0], [5, 0]]
    check_with_inputs(
        "PADV2" if value else "PAD", [DATA, paddings, *map(np.asarray, value)], DYNAMIC
    )


def test_mirror_pad_by_computed_amounts_equals_litert() -> None:
    check_with_inputs(
        "MIRROR_PAD", [DATA, [[0, 1], [2, 3], [0, 0], [1, 0]]], DYNAMIC, mode="REFLECT"
    )


def test_tile_by_computed_multiples_equals_litert() -> None:
    check_with_inputs("TILE", [DATA, [2, 1, 3, 5]], DYNAMIC)


def test_broadcast_to_a_computed_shape_equals_litert() -> None:
    check_with_inputs("BROADCAST_TO", [DATA[:1, :, :1], [2, 5, 7, 3]], DYNAMIC)
    check_with_inputs("BROADCAST_TO", [DATA[0, 0], [5, 7, 3]], [None, None, None])


def test_fill_of_a_computed_shape_equals_litert() -> None:
    check_with_inputs("FILL", [[2, 3, 5], np.asarray(np.float32(7))], [None, None, None])


@pytest.mark.parametrize(
    ("begin", "end", "options", "rank"),
    [
        ([1, 1, 6, 0], [2, 4, 1, 3], {}, 4),
        ([1, 1, 6, 0], [0, -1, 0, 0], {"begin_mask": 1, "end_mask": 13}, 4),
        ([-1, 2, 6, -3], [0, 4, 2, -1], {"shrink_axis_mask": 1}, 3),
        ([0, 2, 6, 1], [0, 4, 2, 0], {"shrink_axis_mask": 9}, 2),
    ],
)
def test_strided_slice_of_computed_bounds_equals_litert(
    begin: list[int], end: list[int], options: dict[str, Any], rank: int
) -> None:
    m = Build()
    x, first, last = m.input(DATA.shape), m.input([4], dtype="int32"), m.input([4], dtype="int32")
    operands = [x, first, last, m.constant([1, 1, -2, 1])]
    m.output(*m.op("STRIDED_SLICE", operands, [m.tensor(rank * [None])], **options))
    bounds = [np.asarray(each, np.int32) for each in (begin, end)]
    check(m.bytes(), inputs=[DATA, *bounds])


def test_entries_of_ellipsis_and_new_axis_are_ignored() -> None:
    """The entries of an ellipsis and of a new axis are ignored."""
    m = Build()
    x, first, last = m.input(DATA.shape), m.input([3], dtype="int32"), m.input([3], dtype="int32")
    operands = [x, first, last, m.constant([1, 1, 1])]
    masks: dict[str, Any] = {"ellipsis_mask": 1, "new_axis_mask": 2}
    m.output(*m.op("STRIDED_SLICE", operands, [m.tensor(5 * [None])], **masks))
    bounds = [np.asarray(each, np.int32) for each in ([9, 9, 1], [9, 9, 3])]
    check(m.bytes(), inputs=[DATA, *bounds])


@pytest.mark.parametrize("dtype", [np.float32, np.int32, np.int64])
def test_range_of_computed_numbers_equals_litert(dtype: type[np.generic]) -> None:
    numbers = [np.asarray(number, dtype) for number in (11, 2, -3)]
    check_with_inputs("RANGE", list(numbers), [None], dtype=np.dtype(dtype).name)


@pytest.mark.parametrize("limit", [0.3, 0.7, 1, 1.05])
def test_range_sizes_are_computed_in_float32(limit: float) -> None:
    """The size of RANGE is computed in float32: from 0 to 0.3 by 0.1 there are 3 steps, not 4."""
    check_with_inputs(
        "RANGE", [np.asarray(n, np.float32) for n in (0, limit, 0.1)], [None], dtype="float32"
    )


def test_sums_over_computed_axes_keep_all_bits() -> None:
    x = np.array([[3, 2**62], [2**53 + 1, 2**62 - 1], [-(2**40), 7]], np.int64)
    check_with_inputs("SUM", [x, np.array([0], np.int32)], [2], dtype="int64", keep_dims=False)


def test_one_hot_of_a_computed_depth_equals_litert() -> None:
    values = [np.asarray(np.float32(number)) for number in (3, -1)]
    check_with_inputs(
        "ONE_HOT",
        [[[0, 4, 2], [-1, 3, 9]], np.asarray(5, np.int32), *values],
        [2, None, 3],
        axis=1,
        dtype="float32",
    )


def test_topk_of_a_computed_number_equals_litert() -> None:
    made = [2, 5, 7, None]
    check_with_inputs("TOPK_V2", [DATA, np.asarray(2, np.int32)], made, dtype=["float32", "int32"])


@pytest.mark.parametrize("code", ["RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR"])
@pytest.mark.parametrize("options", [{}, {"half_pixel_centers": True}, {"align_corners": True}])
def test_resize_to_a_computed_size_equals_litert(code: str, options: dict[str, bool]) -> None:
    check_with_inputs(code, [DATA, [10, 4]], [2, None, None, 3], **options)


@pytest.mark.parametrize("sizes", [[1, 4, 2], [1, -1, 2]])
def test_split_into_computed_sizes_equals_litert(sizes: list[int]) -> None:
    m = Build()
    x, given = m.input(DATA.shape), m.input([3], dtype="int32")
    outputs = [m.tensor([2, 5, None, 3]) for _ in sizes]
    m.output(*m.op("SPLIT_V", [x, given, m.constant(2)], outputs, num_splits=3))
    check(m.bytes(), inputs=[DATA, np.asarray(sizes, np.int32)])


@pytest.mark.parametrize("code", ["SUM", "MEAN", "REDUCE_MAX", "REDUCE_MIN", "REDUCE_PROD"])
@pytest.mark.parametrize("keep_dims", [True, False])
@pytest.mark.parametrize("axes", [[1, 3], [-1, 0], 2])
def test_reductions_over_computed_axes_equal_litert(
    code: str, axes: list[int] | int, *, keep_dims: bool
) -> None:
    rank = 4 if keep_dims else 4 - np.size(axes)
    check_with_inputs(code, [DATA, axes], rank * [None], keep_dims=keep_dims)


def test_integer_reductions_over_computed_axes_equal_litert() -> None:
    check_with_inputs("REDUCE_MAX", [np.int32(DATA * 9), [2]], [None, None, None], dtype="int32")
    check_with_inputs("SUM", [np.int32(DATA * 9), [1]], [None, None, None], dtype="int32")
    for axes in ([2], [0, -1]):
        made = (4 - len(axes)) * [None]
        check_with_inputs("MEAN", [np.int32(DATA * 9), axes], made, dtype="int32")
    with pytest.raises(ConversionError, match="must be constant for products of int32"):
        check_with_inputs(
            "REDUCE_PROD", [np.int32(DATA * 9), [2]], [None, None, None], dtype="int32"
        )


def test_rank_of_a_reduction_follows_from_one_axis() -> None:
    """One computed axis determines the rank; several computed axes may contain an axis twice."""
    check_with_inputs("SUM", [DATA, [2]], None, keep_dims=False)
    check_with_inputs("SUM", [DATA, [2, -2]], [None, None, None], keep_dims=False)
    with pytest.raises(ConversionError, match="must have 2 to 3 axes, got 4"):
        check_with_inputs("SUM", [DATA, [2, -2]], [None, None, None, None], keep_dims=False)


def test_cumsum_and_reverse_along_computed_axes_equal_litert() -> None:
    """A computed axis is supported if the output shape is declared."""
    check_with_inputs("CUMSUM", [DATA, np.asarray(2, np.int32)], [2, 5, 7, 3])
    check_with_inputs("REVERSE_V2", [DATA, [2, 1]], [2, 5, 7, 3])


def test_convolution_and_mean_of_dynamic_sizes_equal_litert() -> None:
    """Sizes derived from dynamic sizes are dynamic; a convolution computes its SAME padding."""
    m = Build()
    x, shape = m.input([210]), m.input([4], dtype="int32")
    (y,) = m.op("RESHAPE", [x, shape], [m.tensor([None, None, None, 3])])
    kernel = m.constant(np.ones((4, 3, 2, 3), np.float32))
    bias = m.constant(np.zeros(4, np.float32))
    (y,) = m.op(
        "CONV_2D",
        [y, kernel, bias],
        [m.tensor([None, None, None, 4])],
        stride_h=2,
        stride_w=1,
        padding="SAME",
    )
    m.output(*m.op("MEAN", [y, m.constant([1, 2])], [m.tensor([None, 4])]))
    for sizes in ([2, 5, 7, 3], [1, 14, 5, 3]):
        check(m.bytes(), inputs=[DATA.reshape(-1), np.asarray(sizes, np.int32)])


def test_completely_declared_shape_is_the_output_shape() -> None:
    """A completely declared shape is taken as the output shape."""
    m = Build()
    x, shape = m.input([210]), m.input([4], dtype="int32")
    (y,) = m.op("RESHAPE", [x, shape], [m.tensor([2, 5, 7, 3], shape_signature=[2, 5, 7, 3])])
    m.output(*m.op("SPLIT", [m.constant(1), y], [[2, 5, 7, 3]], num_splits=1))
    check(m.bytes(), inputs=[DATA.reshape(-1), np.asarray([2, 5, 7, 3], np.int32)])


def test_scatter_nd_to_a_computed_shape_equals_litert() -> None:
    updates = DATA[0, :, 0]
    check_with_inputs("SCATTER_ND", [[[4], [0], [2], [4], [9]], updates, [11, 3]], [None, None])


@pytest.mark.parametrize("permutation", [[0, 1, 2, 3], [3, 0, 2, 1], [1, 3, 0, 2], [-1, 2, 0, 1]])
def test_transpose_by_a_computed_permutation_equals_litert(permutation: list[int]) -> None:
    check_with_inputs("TRANSPOSE", [DATA, permutation], DYNAMIC)
    check_with_inputs("TRANSPOSE", [np.int8(DATA * 9), permutation], DYNAMIC, dtype="int8")


@pytest.mark.parametrize("code", ["ARG_MAX", "ARG_MIN"])
@pytest.mark.parametrize("axis", [0, 2, 3, -1, -3])
def test_arg_along_a_computed_axis_equals_litert(code: str, axis: int) -> None:
    made = [None, None, None]
    check_with_inputs(
        code, [DATA, np.asarray(axis, np.int32)], made, dtype="int32", output_type="int32"
    )
    check_with_inputs(code, [DATA, [axis]], made, dtype="int64", output_type="int64")


@pytest.mark.parametrize("axis", [0, 1, 4, -1, -4])
def test_expand_dims_along_a_computed_axis_equals_litert(axis: int) -> None:
    check_with_inputs("EXPAND_DIMS", [DATA, np.asarray(axis, np.int32)], 5 * [None])


@pytest.mark.parametrize(("axis", "count"), [(1, 5), (-2, 7), (0, 2), (3, 3)])
def test_split_along_a_computed_axis_equals_litert(axis: int, count: int) -> None:
    m = Build()
    number, x = m.input([], dtype="int32"), m.input(DATA.shape)
    made = [m.tensor(DYNAMIC) for _ in range(count)]
    parts = m.op("SPLIT", [number, x], made, num_splits=count)
    m.output(*m.op("ADD", [parts[0], parts[1]], [m.tensor(DYNAMIC)]))
    check(m.bytes(), inputs=[np.asarray(axis, np.int32), DATA])


@pytest.mark.parametrize(("axis", "sizes"), [(2, [3, -1]), (-3, [4, 1]), (3, [1, 2])])
def test_split_into_computed_sizes_along_a_computed_axis(axis: int, sizes: list[int]) -> None:
    operands: list[ArrayLike] = [DATA, sizes, np.asarray(axis, np.int32)]
    check_with_inputs("SPLIT_V", operands, DYNAMIC, dtype=["float32", "float32"], num_splits=2)


@pytest.mark.parametrize("value", [np.arange(1, 4, dtype=np.float32), np.asarray(np.float32(7))])
def test_sparse_to_dense_of_a_computed_shape_equals_litert(value: ArrayLike) -> None:
    default = np.asarray(np.float32(-1))
    check_with_inputs(
        "SPARSE_TO_DENSE", [[[0, 1], [3, 2], [4, 6]], [5, 7], value, default], [None, None]
    )
    check_with_inputs("SPARSE_TO_DENSE", [[0, 3, 5], [7], value, default], [None])


@pytest.mark.parametrize("code", ["SUM", "PROD", "MAX", "MIN"])
def test_computed_number_of_segments_equals_litert(code: str) -> None:
    numbers = [1, 0, 3, -1, 1]
    check_with_inputs(
        f"UNSORTED_SEGMENT_{code}",
        [DATA[0], numbers, np.asarray(5, np.int32)],
        [None, 7, 3],
    )


@pytest.mark.parametrize(
    "amounts", [[[2, 1], [5, 4], [0, 7], [1, 0]], [[0, 0], [1, 1], [0, 0], [3, 3]]]
)
def test_symmetric_pad_by_computed_amounts_equals_litert(amounts: list[list[int]]) -> None:
    check_with_inputs("MIRROR_PAD", [DATA, amounts], DYNAMIC, mode="SYMMETRIC")
    check_with_inputs(
        "MIRROR_PAD", [np.int32(DATA * 9), amounts], DYNAMIC, mode="SYMMETRIC", dtype="int32"
    )


@pytest.mark.parametrize(
    ("begin", "end", "strides", "options", "rank"),
    [
        ([0, 4, 6, 0], [2, 0, 1, 3], [1, -2, -3, 2], {}, 4),
        ([0, 4, 6, 0], [2, 0, 1, 3], [1, -2, -3, 2], {"begin_mask": 2, "end_mask": 14}, 4),
        ([0, -1, 6, -1], [2, 0, 1, 3], [1, 1, -3, 2], {"begin_mask": 1, "shrink_axis_mask": 10}, 2),
    ],
)
def test_strided_slice_of_computed_strides_equals_litert(
    begin: list[int], end: list[int], strides: list[int], options: dict[str, Any], rank: int
) -> None:
    check_with_inputs("STRIDED_SLICE", [DATA, begin, end, strides], rank * [None], **options)


@pytest.mark.parametrize(
    ("shape", "block", "edges"),
    [
        ([2, 5, 7, 3], [2, 3], [[1, 0], [0, 2]]),
        ([2, 5, 7, 3], [1, 7], [[0, 0], [0, 0]]),
        ([2, 5, 7], [3], [[0, 1]]),
    ],
)
def test_computed_blocks_and_edges_equal_litert(
    shape: list[int], block: list[int], edges: list[list[int]]
) -> None:
    x, made = DATA.reshape(-1)[: np.prod(shape)].reshape(shape), len(shape) * [None]
    check_with_inputs("SPACE_TO_BATCH_ND", [x, block, edges], made)
    batches = np.resize(x, (2 * int(np.prod(block)), *shape[1:]))
    check_with_inputs("BATCH_TO_SPACE_ND", [batches, block, edges], made)


def test_computed_blocks_of_quantized_images_equal_litert() -> None:
    m = Build()
    x = m.input(DATA.shape, dtype="int8", scale=0.5, zero_point=3)
    block, edges = m.input([2], dtype="int32"), m.input([2, 2], dtype="int32")
    made = m.tensor(DYNAMIC, dtype="int8", scale=0.5, zero_point=3)
    m.output(*m.op("SPACE_TO_BATCH_ND", [x, block, edges], [made]))
    numbers = [np.asarray(each, np.int32) for each in ([2, 3], [[1, 0], [0, 2]])]
    check(m.bytes(), inputs=[(DATA * 9).astype(np.int8), *numbers])


@pytest.mark.parametrize("lengths", [[8, 4], [1, 2], [2, 16]])
def test_transforms_of_computed_lengths_equal_litert(lengths: list[int]) -> None:
    made = [2, 5, None, None, 2]
    m = Build()
    x, given = m.input(DATA.shape), m.input([2], dtype="int32")
    (y,) = m.op("RFFT2D", [x, given], [m.tensor(made[:-1], dtype="complex64")])
    m.output(*m.op("REAL", [y], [m.tensor(made[:-1])]))
    check(m.bytes(), inputs=[DATA, np.asarray(lengths, np.int32)])

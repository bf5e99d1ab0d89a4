"""Reductions over all kinds of axes, in every type."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tests.op.ports import check_outputs, folds
from tests.support import Build, check
from tflite2onnx import verify
from tflite2onnx.convert import convert
from tflite2onnx.errors import ConversionError
from tflite2onnx.op.reduction.reduce import Reduction

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.support import Tensor

SHAPE = (2, 3, 5, 7)
LINES = [(code, dtype) for code, row in Reduction.rows.items() for dtype in row.types.split()]
# Axes as in files: none, negative, repeated, a scalar instead of a list, all.
AXES: list[Any] = [[], [1], [3], [1, 2], [-1, 0], [2, 2, -2], 1, [0, 1, 2, 3]]


def reduced_shape(shape: Sequence[int], axes: Any, *, keep_dims: bool) -> list[int]:
    """Return the shape of the output."""
    gone = {axis % len(shape) for axis in np.ravel(axes)} if shape else set()
    sizes = [1 if axis in gone else size for axis, size in enumerate(shape)]
    return sizes if keep_dims else [s for axis, s in enumerate(sizes) if axis not in gone]


def reduce(
    m: Build, code: str, x: Tensor, axes: Any, *, keep_dims: bool = False, **fields: Any
) -> Tensor:
    """Add a reduction; return its output."""
    numbers = m.constant(np.asarray(axes, np.int32))
    shape = reduced_shape(x.shape, axes, keep_dims=keep_dims)
    return m.op(code, [x, numbers], [shape], keep_dims=keep_dims, **fields)[0]


@pytest.mark.parametrize(("code", "dtype"), LINES)
def test_reductions_of_every_type_equal_litert(code: str, dtype: str) -> None:
    """Sums and products of integers wrap around; the random inputs are large enough."""
    limits = np.iinfo(dtype) if "int" in dtype else None
    ranges = {dtype: (limits.min, limits.max)} if limits and dtype != "int64" else {}
    for axes, keep_dims in (([1, 2], False), ([0, 3], True)):
        m = Build()
        check_outputs(
            m,
            reduce(m, code, m.input(SHAPE, dtype=dtype), axes, keep_dims=keep_dims),
            ranges=ranges,
        )


@pytest.mark.parametrize("keep_dims", [False, True])
@pytest.mark.parametrize("axes", AXES, ids=str)
@pytest.mark.parametrize(("code", "dtype"), [("MEAN", "float32"), ("SUM", "int32")])
def test_reductions_over_all_axes_equal_litert(
    code: str, dtype: str, axes: Any, *, keep_dims: bool
) -> None:
    m = Build()
    check_outputs(m, reduce(m, code, m.input(SHAPE, dtype=dtype), axes, keep_dims=keep_dims))


@pytest.mark.parametrize("opset", [13, 17, 18, 20])
def test_reductions_in_every_opset_equal_litert(opset: int) -> None:
    """Axes are an input from opset 18 on, and ReduceMax supports bool from opset 20 on."""
    m = Build()
    x, b = m.input(SHAPE), m.input(SHAPE, dtype="bool")
    outputs = [reduce(m, code, x, [1, 2]) for code in ("MEAN", "SUM", "REDUCE_MAX", "REDUCE_PROD")]
    check_outputs(m, *outputs, reduce(m, "REDUCE_ANY", b, [3]), opset=opset)


@pytest.mark.parametrize("code", Reduction.codes)
def test_empty_axes_give_the_neutral_element(code: str) -> None:
    """A reduction of an empty axis gives the neutral element; an empty output stays empty."""
    dtype = "bool" if code in ("REDUCE_ANY", "REDUCE_ALL") else "float32"
    m = Build()
    x = m.input([3, 0, 2], dtype=dtype)
    check_outputs(m, reduce(m, code, x, [1]), reduce(m, code, x, [0], keep_dims=True))


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_empty_integer_axes_equal_litert(dtype: str) -> None:
    m = Build()
    x = m.input([0, 3], dtype=dtype)
    codes = ("MEAN", "SUM", "REDUCE_MAX", "REDUCE_MIN", "REDUCE_PROD")
    check_outputs(m, *(reduce(m, code, x, [0]) for code in codes))


@pytest.mark.parametrize("code", ["MEAN", "SUM", "REDUCE_MAX"])
def test_reduction_of_a_scalar_gives_the_scalar(code: str) -> None:
    """A reduction of a scalar gives the scalar."""
    m = Build()
    check_outputs(m, reduce(m, code, m.input([]), [0]))


@pytest.mark.parametrize("code", ["MEAN", "SUM", "REDUCE_MAX"])
@pytest.mark.parametrize("dtype", ["int32", "float32"])
def test_computed_axes_of_a_scalar_are_ignored(code: str, dtype: str) -> None:
    """The kernel does not read the axes, nor the declared shape of the output."""
    m = Build()
    x, axes = m.input([], dtype=dtype), m.input([2], dtype="int32")
    m.output(*m.op(code, [x, axes], [[2, 3]], dtype=dtype))
    check(m.bytes(), inputs=[np.array(5, dtype), np.array([7, -9], np.int32)], declared=False)


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_integer_means_are_truncated(dtype: str) -> None:
    m = Build()
    m.output(reduce(m, "MEAN", m.input([4, 2], dtype=dtype), [1]))
    check(m.bytes(), inputs=[np.array([[1, 2], [-1, -2], [0, -1], [7, 7]], dtype)])


def test_integer_means_are_summed_in_64_bits() -> None:
    m = Build()
    m.output(reduce(m, "MEAN", m.input([3], dtype="int32"), [0]))
    check(m.bytes(), inputs=[np.full(3, 2**31 - 1, np.int32)])


@pytest.mark.parametrize("code", ["MEAN", "SUM", "REDUCE_PROD"])
def test_reductions_of_int64_keep_all_bits(code: str) -> None:
    """Reductions of int64 are exact beyond 2**53, and sums and products wrap around."""
    m = Build()
    m.output(reduce(m, code, m.input([3, 2], dtype="int64"), [0]))
    check(m.bytes(), inputs=[np.array([[3, 2**40], [3037000499, 2**40], [7, 2]], np.int64)])
    large = np.array([[-(2**63), 2**62 + 1], [-1, 2**62 + 1], [2**53 + 1, 2**62 + 1]], np.int64)
    check(m.bytes(), inputs=[large])


@pytest.mark.parametrize(
    ("code", "size", "channels", "fast"),
    [
        ("MEAN", 32, 16, True),
        ("SUM", 32, 16, True),
        ("MEAN", 31, 16, False),  # few pixels
        ("SUM", 32, 20, False),  # no whole blocks of channels
    ],
)
def test_large_images_are_reduced_by_global_average_pool(
    code: str, size: int, channels: int, *, fast: bool
) -> None:
    m = Build()
    filters = np.random.default_rng(0).standard_normal((channels, 1, 1, 16)).astype(np.float32)
    biases = m.constant(np.zeros(channels, np.float32))
    inputs = [m.input([1, size, size, 16]), m.constant(filters), biases]
    step: Any = {"stride_h": 1, "stride_w": 1, "padding": "SAME"}
    (x,) = m.op("CONV_2D", inputs, [[1, size, size, channels]], **step)
    m.output(reduce(m, code, x, [1, 2]))
    check(m.bytes())
    nodes = {node.op_type for node in convert(m.bytes()).model.graph.node}
    assert ("GlobalAveragePool" in nodes) == fast


def test_mean_of_a_convolved_image_needs_no_transpose() -> None:
    """A mean over height and width of a channels-first image needs no Transpose."""
    m = Build()
    x = m.input([2, 5, 7, 3])
    weights = m.constant(np.ones((11, 1, 1, 3), np.float32))
    (y,) = m.op(
        "CONV_2D",
        [x, weights, m.constant(np.zeros(11, np.float32))],
        [[2, 5, 7, 11]],
        padding="VALID",
        stride_h=1,
        stride_w=1,
    )
    result = check_outputs(m, reduce(m, "MEAN", y, [1, 2]))
    assert [node.op_type for node in result.model.graph.node] == ["Conv", "ReduceMean"]
    assert list(result.model.graph.node[1].attribute[0].ints) == [2, 3]


@pytest.mark.parametrize("keep_dims", [False, True])
@pytest.mark.parametrize(("code", "dtype"), LINES)
def test_a_reduction_of_single_elements_copies_them(
    code: str, dtype: str, *, keep_dims: bool
) -> None:
    m = Build()
    x = m.input([2, 1, 3, 1], dtype=dtype)
    result = check_outputs(m, reduce(m, code, x, [1, 3], keep_dims=keep_dims))
    nodes = {node.op_type for node in result.model.graph.node}
    assert nodes <= {"Identity", "Reshape"}


def test_a_reduction_of_single_elements_of_unknown_sizes_equals_litert() -> None:
    m = Build()
    x = m.input([None, None, 3, 1])
    for keep_dims in (False, True):
        m.output(reduce(m, "MEAN", x, [3], keep_dims=keep_dims))
    check(m.bytes())


def test_mean_of_large_numbers_that_cancel_may_differ_by_several_steps() -> None:
    """Runtimes round sums of float32 numbers; a fine scale of the output shows it."""
    m, shape = Build(), (8, 32)
    coarse: Any = {"dtype": "int16", "scale": 1e-4}
    x, zero = m.input(shape, **coarse), m.constant(np.zeros(shape, np.int16), scale=1e-4)
    (negative,) = m.op("SUB", [zero, x], [shape], **coarse)
    (both,) = m.op("CONCATENATION", [x, negative], [(8, 64)], **coarse, axis=1)
    m.output(reduce(m, "MEAN", both, [1], dtype="int16", scale=1e-9))
    mean = verify(m.bytes(), per_operator=True).operators[-1].difference
    assert 1 < mean.largest <= mean.allowed


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("axes", [[1, 2], [2, 3], [0], []], ids=str)
@pytest.mark.parametrize("code", ["MEAN", "SUM", "REDUCE_MAX", "REDUCE_MIN"])
def test_quantized_reductions_equal_litert(code: str, axes: Any, dtype: str) -> None:
    """Extremes equal LiteRT's; a mean may differ by one step."""
    extreme = code in ("REDUCE_MAX", "REDUCE_MIN")
    m = Build()
    x = m.input(SHAPE, dtype=dtype, scale=0.1, zero_point=3)
    fields: Any = {} if extreme else {"scale": 0.15, "zero_point": 7}
    check_outputs(m, reduce(m, code, x, axes, **fields), steps=0 if extreme else 1)


@pytest.mark.parametrize(("code", "dtype"), LINES)
@pytest.mark.parametrize(("axes", "keep_dims"), [([0], False), ([], True), ([-1, 0], True)])
def test_constants_fold_except_float_sums_and_products(
    code: str, dtype: str, axes: Any, *, keep_dims: bool
) -> None:
    """Reductions of constants are folded, except sums and products of floats."""
    generator = np.random.default_rng(0)
    low, high = {"bool": (0, 2), "uint8": (0, 256)}.get(dtype, (-50, 50))
    values = generator.integers(low, high, (5, 3)).astype(dtype)
    m = Build()
    y = reduce(m, code, m.constant(values), axes, keep_dims=keep_dims)
    if dtype == "float32" and code in ("MEAN", "SUM", "REDUCE_PROD"):
        check_outputs(m, y, inputs=[])
    else:
        folds(m, y)


@pytest.mark.parametrize(
    ("code", "fields", "axes", "shape", "reason"),
    [
        ("SUM", {}, [4], [3, 5], "below 2, got 4"),
        ("SUM", {}, [-3], [3, 5], "below 2, got -3"),
        ("SUM", {"dtype": "int8"}, [0], [5], "must be float32, int32 or int64, got int8"),
        ("REDUCE_ANY", {}, [0], [5], "must be bool, got float32"),
    ],
)
def test_refuses_unsupported_axes_and_types(
    code: str, fields: Any, axes: Any, shape: Any, reason: str
) -> None:
    m = Build()
    m.output(*m.op(code, [m.input([3, 5], **fields), m.constant(axes)], [shape]))
    with pytest.raises(ConversionError, match=reason):
        convert(m.bytes())

"""quantize.py and quantization: arithmetic on scales, zero points and stored integers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tflite2onnx.errors import OperatorError
from tflite2onnx.quantization.rules import find_bias_storage, find_weight_storage
from tflite2onnx.quantization.storage import (
    Storage,
    clamp,
    compute_real_bounds,
    decode_constant,
    encode_constant,
    find_integer_range,
    is_quantized,
    widen_subbyte,
)
from tflite2onnx.quantize import StoragePlan
from tflite2onnx.tensor import DType, Quantization, Tensor

if TYPE_CHECKING:
    from collections.abc import Sequence

Array = np.ndarray[Any, Any]


def make_quantization(
    scale: float | Sequence[float], zero: int | Sequence[int] = 0, axis: int = 0
) -> Quantization:
    scales = np.atleast_1d(np.asarray(scale, np.float32))
    return Quantization(scales, np.broadcast_to(np.asarray(zero, np.int64), scales.shape), axis)


def tensor(
    dtype: DType, quantization: Quantization | None = None, data: Array | None = None
) -> Tensor:
    shape = (2, 3) if data is None else data.shape
    return Tensor("t", shape, dtype, data, quantization)


def test_storage_without_scale_has_zero_point_0() -> None:
    """The zero point of a storage without a scale is 0."""
    assert Storage(DType.INT32).zero_point == 0
    assert Storage(DType.INT8, make_quantization(0.5, -7)).zero_point == -7


@pytest.mark.parametrize(
    ("dtype", "constant", "quantized"),
    [
        ("int8", False, True),
        ("uint8", False, True),
        ("int16", False, True),
        ("int4", True, True),
        ("int2", True, True),
        ("uint4", True, True),
        ("int32", True, False),
        ("int64", True, False),
        ("int32", False, False),
        ("int64", False, False),
        ("float32", False, False),
    ],
)
def test_wide_integers_are_not_quantized(dtype: str, *, constant: bool, quantized: bool) -> None:
    """int32 and wider types are not quantized, even with a scale."""
    kind = DType[dtype.upper()]
    data = np.zeros((2, 3), kind.numpy) if constant else None
    assert is_quantized(tensor(kind, make_quantization(0.5), data)) == quantized
    assert not is_quantized(tensor(kind, None, data))


def test_int8_is_stored_as_uint8_on_request_only() -> None:
    """int8 is stored as uint8 on request; other types are stored as they are."""
    as_filed, unsigned = StoragePlan(), StoragePlan(int8_as_uint8=True)
    kept = unsigned.find_storage(tensor(DType.INT8, make_quantization(0.5, -3))).storage
    assert (kept.dtype, kept.zero_point) == (DType.UINT8, 125)
    kept = as_filed.find_storage(tensor(DType.INT8, make_quantization(0.5, -3))).storage
    assert (kept.dtype, kept.zero_point) == (DType.INT8, -3)
    for dtype in (DType.UINT8, DType.INT16):
        assert unsigned.find_storage(tensor(dtype, make_quantization(0.5))).storage.dtype is dtype
    assert unsigned.find_storage(tensor(DType.INT8)).storage == Storage(DType.INT8, None)


@pytest.mark.parametrize(
    ("x", "weights", "choice", "stored_type", "zero_point"),
    [
        ("int8", "int8", "auto", "UINT8", 129),
        ("int8", "int8", "uint8", "UINT8", 129),
        ("int8", "int8", "int8", "INT8", 1),
        ("int8", "int8", "depthwise", "INT8", 1),
        ("uint8", "uint8", "auto", "UINT8", 1),
        ("uint8", "uint8", "int8", "INT8", -127),
        ("uint8", "uint8", "depthwise", "UINT8", 1),
        ("int8", "int4", "auto", "INT8", 1),
        ("int8", "int2", "uint8", "INT8", 1),
        ("int16", "int8", "auto", "INT8", 1),
        ("int16", "int16", "auto", "INT16", 1),
        ("int16", "int4", "auto", "INT8", 1),
        ("float32", "int8", "auto", "INT8", 0),
        ("float32", "uint8", "auto", "INT8", 0),
        ("float32", "int4", "auto", "INT4", 0),
        ("float32", "int2", "auto", "INT8", 0),
    ],
)
def test_weights_have_the_storage_of_the_option(
    x: str, weights: str, choice: str, stored_type: str, zero_point: int
) -> None:
    """The storage of weights for each type of data and weights, and for each option."""
    data = tensor(DType[x.upper()], None if x == "float32" else make_quantization(0.5, 1))
    depthwise = choice == "depthwise"
    kept, _ = find_weight_storage(
        data,
        tensor(DType[weights.upper()], make_quantization(0.25, 1)),
        "auto" if depthwise else choice,
        folds=True,
        depthwise=depthwise,
    )
    assert kept.dtype is DType[stored_type]
    assert (kept.zero_point, kept.folds) == (zero_point, x == "float32")


@pytest.mark.parametrize(
    ("dtype", "elements", "stored"),
    [
        ("int8", [[127, -127], [3, 4]], "INT8"),
        ("int8", [[127, -128], [-128, 5]], "INT8"),
        ("int8", [[-128, 127], [-128, 5]], "UINT8"),
        ("int8", [[], []], "INT8"),
        ("uint8", [[0, 255], [0, 3]], "UINT8"),
    ],
)
def test_depthwise_weights_depend_on_pairs_of_minus_128(
    dtype: str, elements: list[list[int]], stored: str
) -> None:
    """ARM64 adds two products of a filter in 16 bits, which overflows for two weights of -128."""
    weights = tensor(DType[dtype.upper()], make_quantization(0.5), np.array(elements, dtype))
    data = tensor(DType.INT8, make_quantization(0.5, 1))
    kept, _ = find_weight_storage(data, weights, folds=True, depthwise=True, units=-1)
    assert kept.dtype is DType[stored]


@pytest.mark.parametrize(("lowest", "stored"), [(0, "UINT8"), (1, "INT8")])
def test_uint8_weights_about_128_depend_on_pairs_of_0(lowest: int, stored: str) -> None:
    """uint8 weights of 0 are int8 weights of -128 if their zero point is 128."""
    elements = np.array([[0, 255], [lowest, 3]], np.uint8)
    weights = tensor(DType.UINT8, make_quantization(0.5, 128), elements)
    data = tensor(DType.INT8, make_quantization(0.5, 1))
    kept, _ = find_weight_storage(data, weights, "adaptive", folds=True, units=-1)
    assert kept.dtype is DType[stored]


def test_float_weights_stay_float32() -> None:
    data = tensor(DType.FLOAT32)
    assert find_weight_storage(data, data, folds=True)[0] == Storage(DType.FLOAT32, None)


def biases(*sums: int, dtype: type[Any] = np.int64) -> Tensor:
    kind = DType.INT64 if dtype is np.int64 else DType.INT32
    return tensor(kind, None, np.array(sums, dtype))


@pytest.mark.parametrize(
    ("sums", "dropped"),
    [
        ((0,), 0),
        ((), 0),
        ((2**31 - 1, -(2**31)), 0),
        ((2**31,), 1),
        ((-(2**31) - 1,), 1),
        ((2**40, 3), 10),
        ((2**63 - 1, -(2**63)), 32),
    ],
)
def test_wide_biases_drop_low_bits_and_scale_up(sums: tuple[int, ...], dropped: int) -> None:
    """The low bits of a wide bias are dropped, and its scale is increased accordingly."""
    x, w = (
        tensor(DType.INT16, make_quantization(0.5)),
        tensor(DType.INT8, make_quantization([0.25, 0.125])),
    )
    bias = biases(*sums)
    kept = find_bias_storage(x, w, bias)
    assert kept is not None
    assert kept.quantization is not None
    assert (kept.dtype, kept.dropped) == (DType.INT32, dropped)
    np.testing.assert_array_equal(kept.quantization.scale, [0.125 * 2**dropped, 2**dropped / 16])
    assert bias.data is not None
    integers = encode_constant(bias.data, bias.dtype, kept)
    assert integers.dtype == np.int32
    exact = bias.data.astype(object) - integers.astype(object) * 2**dropped
    assert all(0 <= rest < 2**dropped for rest in exact)


def test_float_and_computed_biases_have_no_storage() -> None:
    """Float, computed and unquantized biases have no storage."""
    x, w = tensor(DType.INT8, make_quantization(0.5)), tensor(DType.INT8, make_quantization(0.25))
    real, computed = tensor(DType.FLOAT32, None, np.ones(2, np.float32)), tensor(DType.INT32)
    for operands in ((x, w, real), (x, w, computed)):
        assert find_bias_storage(*operands) is None
    ones = biases(1, dtype=np.int32)
    assert find_bias_storage(tensor(DType.FLOAT32), w, ones) is None
    assert find_bias_storage(x, tensor(DType.FLOAT32), ones) is None


def test_wide_biases_of_int8_data_are_refused() -> None:
    x, w = tensor(DType.INT8, make_quantization(0.5)), tensor(DType.INT8, make_quantization(0.25))
    with pytest.raises(OperatorError, match="t must fit into 32 bits"):
        find_bias_storage(x, w, biases(2**31))


def test_elements_are_shifted_reinterpreted_or_kept() -> None:
    """Elements are shifted by 128, reinterpreted, or kept."""
    every = np.arange(-128, 128).astype(np.int8)
    unsigned = np.arange(256).astype(np.uint8)
    moved = encode_constant(every, DType.INT8, Storage(DType.UINT8, moved=True))
    np.testing.assert_array_equal(moved, unsigned, strict=True)
    moved = encode_constant(unsigned, DType.UINT8, Storage(DType.INT8, moved=True))
    np.testing.assert_array_equal(moved, every, strict=True)
    same = encode_constant(every.view(np.uint8), DType.UINT8, Storage(DType.INT8))
    np.testing.assert_array_equal(same, every)
    assert encode_constant(every, DType.INT4, Storage(DType.INT8)) is every


@pytest.mark.parametrize("axis", [0, 1])
def test_constants_are_dequantized_by_one_or_more_scales(axis: int) -> None:
    """A single scale, and scales along an axis."""
    data = np.arange(-3, 3, dtype=np.int8).reshape(2, 3)
    one = decode_constant(data, make_quantization(0.5, 1))
    np.testing.assert_array_equal(one, (data - 1) * np.float32(0.5))
    count = data.shape[axis]
    scales, zeros = [2.0**-i for i in range(count)], list(range(count))
    each = decode_constant(data, make_quantization(scales, zeros, axis))
    shape = (-1, 1) if axis == 0 else (1, -1)
    want = (data - np.reshape(zeros, shape)) * np.reshape(scales, shape)
    np.testing.assert_array_equal(each, want)
    assert one.dtype == each.dtype == np.float32


def test_blocks_are_dequantized_by_their_own_scales() -> None:
    """A scale for each block of two along the last axis."""
    data = np.arange(8, dtype=np.int8).reshape(2, 4)
    blocks = np.array([[1, 2], [4, 8]], np.float32)
    real = decode_constant(data, Quantization(blocks, np.ones((2, 2), np.int64), 1, 2))
    np.testing.assert_array_equal(real, [[-1, 0, 2, 4], [12, 16, 40, 48]])


def test_wide_integers_are_rounded_once() -> None:
    """An int32 times its scale is rounded once, as a product in float64."""
    data = np.array([2**31 - 1, 2**24 + 1], np.int32)
    scale = np.float32(0.1)
    want = (data.astype(np.float64) * np.float64(scale)).astype(np.float32)
    np.testing.assert_array_equal(decode_constant(data, make_quantization(0.1)), want)


def test_integer_types_have_ranges_and_wider_types() -> None:
    assert find_integer_range(DType.UINT8) == (0, 255)
    assert find_integer_range(DType.INT16) == (-32768, 32767)
    assert find_integer_range(DType.INT2) == (-2, 1)
    assert [widen_subbyte(d) for d in (DType.INT2, DType.INT4, DType.UINT4, DType.INT16)] == [
        DType.INT8,
        DType.INT8,
        DType.UINT8,
        DType.INT16,
    ]


@pytest.mark.parametrize(
    ("activation", "dtype", "scale", "zero", "bounds"),
    [
        ("NONE", "int8", 0.5, 3, None),
        ("TANH", "int8", 0.5, 3, None),
        ("RELU", "int8", 0.5, 3, (3, 127)),
        ("RELU", "int8", 0.5, -128, None),
        ("RELU", "uint8", 0.5, 0, None),
        ("RELU6", "uint8", 0.5, 0, (0, 12)),
        ("RELU6", "uint8", 6 / 255, 0, None),
        ("RELU6", "int8", 4.0, 0, (0, 2)),  # 6 / 4 is rounded away from zero
        ("RELU_N1_TO_1", "int8", 2.0, 0, (-1, 1)),  # and so is -1 / 2
        ("RELU_N1_TO_1", "int16", 0.001, 0, (-1000, 1000)),
        ("RELU_0_TO_1", "int8", 0.25, -8, (-8, -4)),
    ],
)
def test_clamp_bounds_are_those_of_the_activation(
    activation: str, dtype: str, scale: float, zero: int, bounds: tuple[int, int] | None
) -> None:
    assert (
        clamp(activation, Storage(DType[dtype.upper()], make_quantization(scale, zero))) == bounds
    )


def test_real_bounds_are_reduced_by_the_activation() -> None:
    """The bounds of the type, reduced by the activation."""
    kept = Storage(DType.INT8, make_quantization(0.5, -28))
    assert compute_real_bounds("NONE", kept, kept) == (-50, 77.5)
    assert compute_real_bounds("RELU6", kept, kept) == (0, 6)
    halves, quarters = (Storage(DType.UINT8, make_quantization(scale, 0)) for scale in (0.5, 0.25))
    assert compute_real_bounds("NONE", quarters, quarters) == (0, 63.75)
    assert compute_real_bounds("RELU6", halves, quarters) == (0, 3)


def test_storage_without_scale_has_no_clamp() -> None:
    assert clamp("RELU", Storage(DType.INT8)) is None

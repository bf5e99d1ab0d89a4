"""SOFTMAX, LOG_SOFTMAX and L2_NORMALIZATION along the last TFLite axis."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.op.ports import check_outputs
from tests.support import Build, check
from tflite2onnx.convert import convert
from tflite2onnx.errors import ConversionError

CODES = ("SOFTMAX", "LOG_SOFTMAX", "L2_NORMALIZATION")
SHAPES = [(7,), (3, 7), (2, 3, 7), (2, 5, 3, 7), (2, 3, 1, 5, 7)]


def options(code: str, beta: float = 1) -> dict[str, Any]:
    return {"beta": beta} if code == "SOFTMAX" else {}


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("code", CODES)
def test_normalizations_of_every_rank_equal_litert(code: str, shape: tuple[int, ...]) -> None:
    m = Build()
    check_outputs(m, *m.op(code, [m.input(shape)], [shape], **options(code)))


@pytest.mark.parametrize("opset", [13, 17, 18, 21])
@pytest.mark.parametrize("code", CODES)
def test_normalizations_in_every_opset_equal_litert(code: str, opset: int) -> None:
    m = Build()
    check_outputs(m, *m.op(code, [m.input([2, 3, 7])], [[2, 3, 7]], **options(code)), opset=opset)


@pytest.mark.parametrize("beta", [0.5, 3.0, -1.0, 0.0])
def test_beta_scales_the_input(beta: float) -> None:
    m = Build()
    check_outputs(m, *m.op("SOFTMAX", [m.input([2, 3, 7])], [[2, 3, 7]], beta=beta))


@pytest.mark.parametrize("beta", [1e25, 3e38])
@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_products_by_a_huge_beta_do_not_overflow(dtype: str, beta: float) -> None:
    m = Build()
    stored: dict[str, Any] = {} if dtype == "float32" else {"scale": 1 / 256, "zero_point": -128}
    given: dict[str, Any] = {"scale": 0.5, "zero_point": 3} if stored else {}
    x = m.input([3, 7], dtype=dtype, **given)
    check_outputs(m, *m.op("SOFTMAX", [x], [[3, 7]], beta=beta, **stored))


def test_float16_softmax_equals_litert_within_rounding() -> None:
    """The kernel rounds to float16 where ONNX Runtime computes in float32."""
    m = Build()
    y = m.op("SOFTMAX", [m.input([3, 7], dtype="float16")], [[3, 7]], beta=2.0)
    check_outputs(m, *y, tolerance=1e-3)


def test_softmax_of_large_numbers_equals_litert() -> None:
    m = Build()
    m.output(*m.op("SOFTMAX", [m.input([2, 3])], [[2, 3]], beta=1.0))
    check(m.bytes(), inputs=[np.array([[1e4, 1e4, 0], [-1e30, 1e30, 1]], np.float32)])


def test_norms_are_at_least_1e_minus_6() -> None:
    """The norm is at least 1e-6, as in the kernel; there is no epsilon added to the squares."""
    m = Build()
    m.output(*m.op("L2_NORMALIZATION", [m.input([4, 3])], [[4, 3]]))
    rows = np.array([[0, 0, 0], [1e-7, 0, 0], [3e-6, 4e-6, 0], [1e-4, 2e-4, 3e-4]], np.float32)
    for row in rows:  # one at a time, because the tolerance is relative to the range
        check(m.bytes(), inputs=[np.tile(row, (4, 1))])


@pytest.mark.parametrize("size", [1, 7])
def test_quantized_softmax_equals_litert_within_one_step(size: int) -> None:
    m = Build()
    x = m.input([5, size], dtype="int8", scale=0.1)
    y = m.op("SOFTMAX", [x], [[5, size]], beta=1.0, scale=1 / 256, zero_point=-128)
    check_outputs(m, *y, steps=1)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16"])
def test_quantized_softmax_of_any_length_equals_litert(dtype: str) -> None:
    """The length of attention may be 1, for which ONNX Runtime's fused Softmax overflows."""
    m = Build()
    x = m.input([None, None], dtype=dtype, scale=0.1 if dtype != "int16" else 0.001)
    scales = {"int8": (1 / 256, -128), "uint8": (1 / 256, 0), "int16": (1 / 32768, 0)}
    scale, zero_point = scales[dtype]
    y = m.tensor([None, None], dtype=dtype, scale=scale, zero_point=zero_point)
    m.output(*m.op("SOFTMAX", [x], [y], beta=1.0))
    for rows, length in ((5, 7), (3, 1), (1, 12)):
        drawn = np.random.default_rng(length).integers(0, 127, (rows, length)).astype(dtype)
        check(m.bytes(), inputs=[drawn], steps=30 if dtype == "int16" else 1)


@pytest.mark.parametrize("mode", ["qdq", "qdq-uniform"])
def test_softmax_of_one_class_is_a_constant(mode: str) -> None:
    """QLinearSoftmax before ONNX Runtime 1.32 makes 0 of it."""
    m = Build()
    x = m.input([5, 1], dtype="int8", scale=0.1)
    (y,) = m.op("SOFTMAX", [x], [[5, 1]], beta=1.0, scale=1 / 256, zero_point=-128)
    m.output(*m.op("ADD", [x, y], [m.tensor([5, 1], dtype="int8", scale=0.1)]))
    model = check(m.bytes(), steps=1, quantization=mode).model
    assert {"Softmax", "LogSoftmax"}.isdisjoint(node.op_type for node in model.graph.node)


def normalize_between_convolutions(code: str) -> Build:
    m = Build()
    x = m.input([2, 5, 7, 3])
    weights = m.constant(np.arange(9, dtype=np.float32).reshape(3, 1, 1, 3))
    bias = m.constant(np.zeros(3, np.float32))
    window: Any = {"padding": "VALID", "stride_h": 1, "stride_w": 1}
    (y,) = m.op("CONV_2D", [x, weights, bias], [[2, 5, 7, 3]], **window)
    (y,) = m.op(code, [y], [[2, 5, 7, 3]], **options(code))
    m.output(*m.op("CONV_2D", [y, weights, bias], [[2, 5, 7, 3]], **window))
    return m


@pytest.mark.parametrize("code", CODES)
def test_canonical_form_between_convolutions_needs_no_transpose(code: str) -> None:
    """On a channels-first image the normalization runs along axis 1, without Transposes."""
    result = check(normalize_between_convolutions(code).bytes(), forms="canonical")
    assert "Transpose" not in {node.op_type for node in result.model.graph.node}


@pytest.mark.parametrize("code", ["LOG_SOFTMAX", "SOFTMAX"])
def test_fastest_softmax_between_convolutions_is_of_a_matrix(code: str) -> None:
    """ONNX Runtime's kernel is slow along another axis, and moves Transposes through the node."""
    result = check(normalize_between_convolutions(code).bytes())
    codes = [node.op_type for node in result.model.graph.node]
    node = {"LOG_SOFTMAX": "LogSoftmax", "SOFTMAX": "Softmax"}[code]
    assert codes == ["Conv", "Transpose", "Reshape", node, "Reshape", "Transpose", "Conv"]


@pytest.mark.parametrize("forms", ["fastest", "canonical"])
def test_fastest_softmax_at_the_output_has_classes_last(forms: str) -> None:
    """The classes of a segmentation network come last, unless ONNX's plain form is wanted."""
    m = Build()
    weights = m.constant(np.arange(9, dtype=np.float32).reshape(3, 1, 1, 3))
    window: Any = {"padding": "VALID", "stride_h": 1, "stride_w": 1}
    operands = [m.input([2, 5, 7, 3]), weights, m.constant(np.zeros(3, np.float32))]
    (y,) = m.op("CONV_2D", operands, [[2, 5, 7, 3]], **window)
    m.output(*m.op("SOFTMAX", [y], [[2, 5, 7, 3]], beta=2.0))
    result = check(m.bytes(), forms=forms)
    (node,) = (node for node in result.model.graph.node if node.op_type == "Softmax")
    assert node.attribute[0].i == (3 if forms == "fastest" else 1)
    assert "Reshape" not in {node.op_type for node in result.model.graph.node}


@pytest.mark.parametrize(
    ("code", "dtype", "shape", "made", "reason"),
    [
        ("SOFTMAX", "float32", [], [], r"must be float32\[..., n\], got float32\[\]"),
        ("SOFTMAX", "int32", [3], [3], "float32, float16 or quantized, got int32"),
        ("LOG_SOFTMAX", "float16", [3], [3], "float32 or quantized, got float16"),
        ("L2_NORMALIZATION", "int8", [3], [3], "float32 or quantized, got int8"),
    ],
)
def test_refuses_unsupported_shapes_and_types(
    code: str, dtype: str, shape: Any, made: Any, reason: str
) -> None:
    m = Build()
    m.output(*m.op(code, [m.input(shape, dtype=dtype)], [made]))
    with pytest.raises(ConversionError, match=reason):
        convert(m.bytes())


@pytest.mark.parametrize("code", CODES)
def test_softmax_must_have_one_input(code: str) -> None:
    m = Build()
    m.output(*m.op(code, [m.input([3]), m.input([3])], [[3]]))
    with pytest.raises(ConversionError, match="it must have 1 input, got 2"):
        convert(m.bytes())


def test_refuses_input_and_output_of_two_types() -> None:
    """Input and output must have one float type."""
    m = Build()
    made = m.tensor([3, 5], dtype="float16")
    m.output(*m.op("SOFTMAX", [m.input([3, 5])], [made], beta=1.0))
    with pytest.raises(ConversionError, match="must be float32 as its input, got float16"):
        convert(m.bytes())


def test_refuses_beta_of_nan_for_integers() -> None:
    """The kernel makes a table of all its results."""
    m = Build()
    x, y = (m.tensor([1, 5], dtype="int8", scale=0.1) for _ in range(2))
    m.op("QUANTIZE", [m.input([1, 5])], [x])
    m.op("SOFTMAX", [x], [y], beta=float("nan"))
    m.output(y)
    with pytest.raises(ConversionError, match="beta must be finite for integers, got nan"):
        convert(m.bytes())

"""passes/patterns/fuse_bits.py: functions of the bits of floats."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.support import Build, Tensor, check, run_onnx
from tests.support.flex import flex_options
from tests.support.graph_text import assert_rewritten, check_unchanged, parse_graph
from tflite2onnx.convert import convert
from tflite2onnx.errors import ConversionError
from tflite2onnx.passes.patterns.fuse_bits import fuse_bits
from tflite2onnx.targets.checker import check_model
from tflite2onnx.targets.table import TARGETS, Target

INTEGERS = {"float16": "int16", "float32": "int32", "float64": "int64"}
SHAPE = (3, 4)
SIGN = -1 << 31


def make_values(dtype: str = "float32") -> np.ndarray[Any, Any]:
    """Return zeros of both signs, infinities, NaN, and the smallest numbers."""
    least = np.finfo(dtype).smallest_subnormal
    values = [0.0, -0.0, 1.5, -1.5, np.inf, -np.inf, np.nan, -2, least, -least, 3, 0]
    return np.array(values, dtype).reshape(SHAPE)


def take_bits(m: Build, dtype: str = "float32") -> Tensor:
    (bits,) = m.op("BITCAST", [m.input(SHAPE, dtype=dtype)], [SHAPE], dtype=INTEGERS[dtype])
    return bits


def apply(m: Build, code: str, x: Tensor, *numbers: int, dtype: str = "int32") -> Tensor:
    """Return an operator on a tensor and constants of its type and shape."""
    constants = [m.constant(np.full(SHAPE, n).astype(x.dtype)) for n in numbers]
    (y,) = m.op(code, [x, *constants], [SHAPE], dtype=dtype)
    return y


def check_bits(m: Build, y: Tensor, values: np.ndarray[Any, Any]) -> None:
    m.output(y)
    made: Any = check(m.bytes(), inputs=[values], tolerance=0)
    assert made.opset == 17


@pytest.mark.parametrize("dtype", INTEGERS)
def test_bits_below_0_equal_litert(dtype: str) -> None:
    m = Build()
    check_bits(m, apply(m, "LESS", take_bits(m, dtype), 0, dtype="bool"), make_values(dtype))


@pytest.mark.parametrize("code", ["NOT_EQUAL", "EQUAL", "CAST", "LESS"])
def test_masked_sign_equals_litert(code: str) -> None:
    m = Build()
    masked = apply(m, "STABLEHLO_AND", take_bits(m), SIGN)
    other = {"CAST": [], "EQUAL": [SIGN]}.get(code, [0])
    check_bits(m, apply(m, code, masked, *other, dtype="bool"), make_values())


@pytest.mark.parametrize("code", ["NOT_EQUAL", "CAST", "LESS"])
def test_shifted_sign_equals_litert(code: str) -> None:
    m = Build()
    shifted = apply(m, "RIGHT_SHIFT", take_bits(m), 31)
    other = [] if code == "CAST" else [0]
    check_bits(m, apply(m, code, shifted, *other, dtype="bool"), make_values())


@pytest.mark.parametrize(
    "tail",
    [
        "c: int32[4] = RIGHT_SHIFT(b, 30)\ny: bool[4] = NOT_EQUAL(c, 0)",
        "c: int32[4] = RIGHT_SHIFT(b, [31, 31, 31, 30])\ny: bool[4] = NOT_EQUAL(c, 0)",
        "c: int32[4] = STABLEHLO_AND(b, 3)\ny: bool[4] = NOT_EQUAL(c, 0)",
        "c: int32[4] = STABLEHLO_AND(b, 3)\ny: bool[4] = LESS(c, 0)",
        "c: int32[4] = BITWISE_XOR(b, -2147483648)\ny: float32[4] = BITCAST(c)",
        "c: int32[4] = STABLEHLO_AND(b, -2147483648)\ny: int64[4] = CAST(c)",
        "y: bool[2,4] = LESS(b, [[0, 0, 0, 0], [0, 0, 0, 0]])",
    ],
)
def test_other_bits_are_unchanged(tail: str) -> None:
    text = f"inputs x: float32[4]\nb: int32[4] = BITCAST(x)\n{tail}\nreturn y"
    check_unchanged(fuse_bits, parse_graph(text))


def test_unsigned_bits_are_not_below_0() -> None:
    text = "inputs x: float32[4]\nb: uint32[4] = BITCAST(x)\ny: bool[4] = LESS(b, 0)\nreturn y"
    check_unchanged(fuse_bits, parse_graph(text))


KERAS = """
    inputs x: float32[3,4]
    bits: int32[3,4] = BITCAST(x)
    masked: int32[3,4] = FlexBitwiseAnd(bits, -2147483648)
    sign: bool[3,4] = LESS(masked, 0)
    zero: bool[3,4] = EQUAL(x, 0.0)
    both: bool[3,4] = LOGICAL_AND(zero, sign)
    z: float32[3,4] = SELECT_V2(both, -1.1754943508222875e-38, x)
    y: int32[3] = ARG_MAX(z, -1, output_type=2)
    return y
"""


def test_negative_zeros_of_an_argmax_are_compared() -> None:
    after = """
        inputs x: float32[3,4]
        zero: bool[3,4] = EQUAL(x, 0.0)
        sign: bool[3,4] = IS_NEGATIVE(x, zeros_only=True)
        both: bool[3,4] = LOGICAL_AND(zero, sign)
        z: float32[3,4] = SELECT_V2(both, -1.1754943508222875e-38, x)
        y: int32[3] = ARG_MAX(z, -1, output_type=2)
        return y
    """
    assert_rewritten(fuse_bits, KERAS, after)


def make_keras(code: str, dtype: str = "float32") -> bytes:
    """Return `argmax`, `argmin` or `signbit` of Keras 3, as TensorFlow's converter writes it."""
    m = Build()
    x = m.input(SHAPE, dtype=dtype)
    wide = x if dtype == "float32" else m.op("CAST", [x], [SHAPE])[0]
    (bits,) = m.op("BITCAST", [wide], [SHAPE], dtype="int32")
    mask = m.constant(np.int32(SIGN))
    made, options = m.tensor(SHAPE, dtype="int32"), flex_options("BitwiseAnd")
    (masked,) = m.custom("FlexBitwiseAnd", [bits, mask], [made], options)
    (sign,) = m.op("LESS", [masked, m.constant(np.int32(0))], [SHAPE], dtype="bool")
    if code == "signbit":
        m.output(sign)
        return m.bytes()
    (zero,) = m.op("EQUAL", [x, m.constant(np.float32(0))], [SHAPE], dtype="bool")
    (both,) = m.op("LOGICAL_AND", [zero, sign], [SHAPE], dtype="bool")
    tiny = m.constant(-np.finfo(np.float32).tiny)
    (chosen,) = m.op("SELECT_V2", [both, tiny, x], [SHAPE])
    axis = m.constant(np.int32(1))
    m.output(*m.op(code, [chosen, axis], [SHAPE[:1]], dtype="int64", output_type=4))
    return m.bytes()


ROWS = np.array([[-0.0, 0, -1, -1], [0, -0.0, 1, 0], [0, 0, -0.0, 2]], np.float32)


@pytest.mark.parametrize("opset", [None, 26])
def test_positions_and_signs_of_keras_equal_numpy(opset: int | None) -> None:
    """LiteRT has no kernels for FlexBitwiseAnd here."""
    expected = {
        "signbit": (np.signbit(make_values()), make_values()),
        "ARG_MAX": ([1, 2, 3], ROWS),
        "ARG_MIN": ([2, 1, 2], ROWS),
    }
    for code, (y_of_numpy, x) in expected.items():
        made = convert(make_keras(code), opset=opset)
        (y,) = run_onnx(made.model, {made.inputs[0].name: x})
        np.testing.assert_array_equal(y, y_of_numpy)
        assert made.opset == (opset or 17)


def test_sign_of_nan_is_read_from_opset_26_on() -> None:
    x = make_values()
    x[0] = np.array([-1 << 22], np.int32).view(np.float32)
    for opset, sign in ((17, False), (26, True)):
        made = convert(make_keras("signbit"), opset=opset)
        (y,) = run_onnx(made.model, {made.inputs[0].name: x})
        assert (y[0] == sign).all()


@pytest.mark.parametrize("target", [name for name in TARGETS if name != "genai"])
@pytest.mark.parametrize("code", ["ARG_MAX", "ARG_MIN", "signbit"])
def test_keras_spellings_convert_for_all_targets(code: str, target: Target) -> None:
    made = convert(make_keras(code), target=target)
    assert made.opset < 26
    assert not [rule for rule in check_model(made.model, target) if rule.operator == "opset"]


@pytest.mark.parametrize("target", [name for name in TARGETS if name != "genai"])
def test_other_bits_are_refused_or_break_a_rule(target: Target) -> None:
    """BitCast needs opset 26, which only ONNX Runtime's CPU provider reads."""
    m = Build()
    m.output(take_bits(m))
    if target in ("onnxruntime", "web"):
        assert not check_model(convert(m.bytes(), target=target).model, target)
    elif target in ("coreml", "hailo"):
        (broken,) = check_model(convert(m.bytes(), target=target).model, target)
        assert broken.operator == "BitCast"
    else:
        with pytest.raises(ConversionError, match="needs opset 26"):
            convert(m.bytes(), target=target)


def test_bitcasts_of_samples_are_independent() -> None:
    m = Build()
    x = m.input([1, 4, 2], dtype="int16")
    (wide,) = m.op("BITCAST", [x], [[1, 4]], dtype="int32")
    (narrow,) = m.op("BITCAST", [wide], [[1, 4, 4]], dtype="int8")
    (same,) = m.op("BITCAST", [wide], [[1, 4]], dtype="uint32")
    m.output(wide, narrow, same)
    made = convert(m.bytes(), batch=3)
    whole = np.random.default_rng(0).integers(-99, 99, (3, 4, 2)).astype(np.int16)
    for y, z in zip(
        run_onnx(made.model, {made.inputs[0].name: whole}),
        (whole.view(np.int32)[..., 0], whole.reshape(3, 4, 2).view(np.int8).reshape(3, 4, 4)),
        strict=False,
    ):
        np.testing.assert_array_equal(y, z)

"""Operators with quantized tensors and with integers without a scale.

Operators that only move integers move them, as in LiteRT. Operators that compute are refused: the
kernels crash, or divide by a scale of 0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest

from tests.support import Build, check
from tests.support.flex import Type, flex_options
from tests.support.reading import int32
from tflite2onnx import convert
from tflite2onnx.errors import ConversionError, UnsupportedOperators

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.support import Tensor

SCALED: dict[str, Any] = {"dtype": "int8", "scale": 0.1, "zero_point": 3}
PLAIN: dict[str, Any] = {"dtype": "int8"}


def binary(code: str, shape: Sequence[int], *kinds: dict[str, Any], **options: Any) -> Build:
    """Return an operator with two inputs and an output of these kinds."""
    m = Build()
    x, y = (m.input([2, 3], **kind) for kind in kinds[:2])
    m.output(*m.op(code, [x, y], [m.tensor(shape, **kinds[2])], **options))
    return m


def unary(code: str, shape: Sequence[int], *parameters: Any, **options: Any) -> Build:
    """Return an operator whose input has a scale and whose output has none."""
    m = Build()
    x = m.input([1, 4, 6, 2], **SCALED)
    constants = [m.constant(each) for each in parameters]
    m.output(*m.op(code, [x, *constants], [m.tensor(shape, **PLAIN)], **options))
    return m


def build_convolution(code: str) -> Build:
    """Return a convolution whose output has no scale."""
    m = Build()
    x, w = m.input([1, 4, 4, 2], **SCALED), m.constant(np.ones((2, 1, 1, 2), np.int8), scale=0.5)
    sizes = [m.constant(int32([1, 4, 4, 2]))] if code == "TRANSPOSE_CONV" else []
    inputs = [*sizes, w, x] if sizes else [x, w, None]
    output = m.tensor([1, 4, 4, 2], **PLAIN)
    m.output(*m.op(code, inputs, [output], stride_h=1, stride_w=1))
    return m


def one_hot() -> Build:
    """Return ONE_HOT whose `on` has a scale and whose `off` has none."""
    m = Build()
    on, off = m.constant(np.int8(1), scale=0.1), m.constant(np.int8(0))
    inputs = [m.input([3], dtype="int32"), m.constant(int32(4)), on, off]
    m.output(*m.op("ONE_HOT", inputs, [m.tensor([3, 4], **PLAIN)], axis=-1))
    return m


def custom(name: str, made: str, *inputs: Callable[[Build], Tensor], **options: Any) -> Build:
    """Return a custom operator whose first input has a scale."""
    m = Build()
    operands = [each(m) for each in inputs]
    output = m.tensor([2, 3], dtype=made)
    words = flex_options(name[4:], **options) if name[:4] == "Flex" else options
    m.output(*m.custom(name, operands, [output], words))
    return m


INT16 = {"dtype": "int16", "scale": 0.1}
REFUSED: dict[str, Callable[[], Build]] = {
    "ADD": lambda: binary("ADD", [2, 3], INT16, {"dtype": "int16"}, INT16),
    "MUL": lambda: binary("MUL", [2, 3], {"dtype": "int16"}, INT16, INT16),
    "PACK": lambda: binary("PACK", [2, 2, 3], SCALED, PLAIN, SCALED, values_count=2),
    "uint8": lambda: binary(
        "CONCATENATION",
        [4, 3],
        {"dtype": "uint8"},
        {"dtype": "uint8", "scale": 0.5},
        {"dtype": "uint8", "scale": 0.5},
    ),
    "SUM": lambda: unary("SUM", [1, 4, 2], int32([2])),
    "MEAN": lambda: unary("MEAN", [1, 4, 2], int32([2])),
    "AVERAGE_POOL_2D": lambda: unary(
        "AVERAGE_POOL_2D",
        [1, 3, 5, 2],
        filter_height=2,
        filter_width=2,
        stride_h=1,
        stride_w=1,
        padding="VALID",
    ),
    "RESIZE_BILINEAR": lambda: unary("RESIZE_BILINEAR", [1, 8, 12, 2], int32([8, 12])),
    "CONV_2D": lambda: build_convolution("CONV_2D"),
    "TRANSPOSE_CONV": lambda: build_convolution("TRANSPOSE_CONV"),
    "FlexGreaterEqual": lambda: custom(
        "FlexGreaterEqual",
        "bool",
        lambda m: m.input([2, 3], **SCALED),
        lambda m: m.input([2, 3], **PLAIN),
        T=Type(6),
    ),
    "FlexMatrixBandPart": lambda: custom(
        "FlexMatrixBandPart",
        "int8",
        lambda m: m.input([2, 3], **SCALED),
        lambda m: m.constant(np.array(0)),
        lambda m: m.constant(np.array(1)),
        T=Type(6),
    ),
}
OPTIONS: tuple[dict[str, Any], ...] = ({}, {"activations": "uint8"}, {"quantization": "float"})


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("name", REFUSED)
def test_operators_that_compute_refuse_missing_scales(name: str, options: dict[str, Any]) -> None:
    with pytest.raises(UnsupportedOperators, match="must have a scale, because other operands"):
        convert(REFUSED[name]().bytes(), **options)


def largest() -> Build:
    """Return MAXIMUM of integers without a scale and of a constant with a scale."""
    m = Build()
    c = m.constant(np.array([-90, 3, 70], np.int8), scale=0.1)
    m.output(*m.op("MAXIMUM", [m.input([2, 3], **PLAIN), c], [m.tensor([2, 3], **PLAIN)]))
    return m


MOVED: dict[str, Callable[[], Build]] = {
    "MAXIMUM": largest,
    "MINIMUM": lambda: binary("MINIMUM", [2, 3], SCALED, PLAIN, PLAIN),
    "CONCATENATION": lambda: binary("CONCATENATION", [4, 3], INT16, {"dtype": "int16"}, INT16),
    "RESHAPE": lambda: unary("RESHAPE", [8, 6], int32([8, 6])),
    "TRANSPOSE": lambda: unary("TRANSPOSE", [2, 6, 4, 1], int32([3, 2, 1, 0])),
    "GATHER": lambda: unary("GATHER", [1, 2, 6, 2], int32([3, 1]), axis=1),
    "ONE_HOT": one_hot,
}


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("name", MOVED)
def test_operators_that_move_accept_missing_scales(name: str, options: dict[str, Any]) -> None:
    data = MOVED[name]().bytes()
    if options.get("quantization") != "float" or name == "MAXIMUM":
        check(data, **options)
    onnx.checker.check_model(convert(data, **options).model, full_check=True)


@pytest.mark.parametrize("dtype", ["int32", "int64"])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("code", ["ADD", "MAXIMUM", "CUMSUM"])
def test_wide_integers_ignore_their_scales(dtype: str, options: dict[str, Any], code: str) -> None:
    """Kernels ignore scales of int32 and int64, constant or not."""
    m = Build()
    fields: dict[str, Any] = {"dtype": dtype, "scale": 0.1}
    x = m.input([2, 3], **fields)
    c = m.constant(np.array([[1, 2, 3], [4, 5, 6]], dtype), scale=0.1)
    axis = m.constant(int32(1))
    inputs = [m.op("ADD", [x, c], [m.tensor([2, 3], **fields)])[0], axis]
    m.output(*m.op(code, inputs if code == "CUMSUM" else [x, c], [m.tensor([2, 3], **fields)]))
    check(m.bytes(), **options)


def test_scales_of_int64_constants_are_ignored() -> None:
    """Scales along an axis of an int64 constant are ignored, also if it is folded."""
    m = Build()
    c = m.constant(np.arange(6).reshape(2, 3), scale=[0.5, 0.25, 1.0], axis=1)
    (y,) = m.op("CUMSUM", [c, m.constant(int32(1))], [m.tensor([2, 3], dtype="int64")])
    m.output(*m.op("ADD", [y, m.input([2, 3], dtype="int64")], [m.tensor([2, 3], dtype="int64")]))
    check(m.bytes())


@pytest.mark.parametrize("options", [
    {}, {"quantization": "symmetric"}, {"weights": "uint8"}, {"opset": 13}, {"opset": 25},
], ids=str)  # fmt: skip
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("dtype", ["int8", "int16"])
def test_abs_takes_several_scales_if_input_and_output_have_the_same(
    dtype: str, axis: int, options: dict[str, Any]
) -> None:
    """The kernel reads the first scales alone, which are right if it does not rescale."""
    m = Build()
    scale = np.array([0.05, 0.1, 0.2], np.float32)
    fields: dict[str, Any] = {"dtype": dtype, "scale": scale, "axis": axis}
    x = m.input([3, 3], **fields)
    m.output(*m.op("ABS", [x], [m.tensor([3, 3], **fields)]))
    check(m.bytes(), **options)


@pytest.mark.parametrize(("scales", "zeros"), [
    ([0.1, 0.2, 0.4], [0, 0, 0]), ([0.05, 0.1, 0.3], [0, 0, 0]), ([0.05, 0.1, 0.2], [0, 1, 0]),
    ([0.05, 0.1, 0.2], [7, 7, 7]),
], ids=str)  # fmt: skip
def test_abs_of_other_several_scales_is_refused(scales: list[float], zeros: list[int]) -> None:
    m = Build()
    x = m.input([2, 3], dtype="int8", scale=[0.05, 0.1, 0.2], zero_point=zeros, axis=1)
    y = m.tensor([2, 3], dtype="int8", scale=scales, zero_point=zeros, axis=1)
    m.output(*m.op("ABS", [x], [y]))
    with pytest.raises(ConversionError, match="quantize it with one scale for the tensor"):
        convert(m.bytes())


@pytest.mark.parametrize("opset", [13, 17, 21, 25])
@pytest.mark.parametrize("place", ["input", "output", "both"])
@pytest.mark.parametrize("code", ["ADD", "MUL", "RELU", "LOGISTIC", "LEAKY_RELU", "TANH"])
@pytest.mark.parametrize("dtype", ["int8", "int16"])
def test_computed_tensors_with_several_scales_are_refused(
    dtype: str, code: str, place: str, opset: int
) -> None:
    """The kernels read one scale, which is 0: LiteRT returns other numbers, or ends."""
    m = Build()
    one: dict[str, Any] = {"dtype": dtype, "scale": 0.05}
    several: dict[str, Any] = {"dtype": dtype, "scale": [0.05, 0.1, 0.2], "axis": 1}
    x = m.input([2, 3], **(one if place == "output" else several))
    y = m.tensor([2, 3], **(one if place == "input" else several))
    m.output(*m.op(code, [x] * (2 if code in ("ADD", "MUL") else 1), [y]))
    choices: list[dict[str, Any]] = [{"quantization": "qdq"}, {"quantization": "float"}]
    for options in choices:
        with pytest.raises(ConversionError, match="must have one scale"):
            convert(m.bytes(), opset=opset, **options)


@pytest.mark.parametrize("opset", [13, 21])
@pytest.mark.parametrize("quantization", ["qdq", "float"])
def test_scales_of_an_axis_must_fit_the_computed_shape(quantization: Any, opset: int) -> None:
    """The file declares another shape than LiteRT computes."""
    m = Build()
    x, w = (m.input(s, dtype="int16", scale=0.1) for s in ([1, 3, 4], [2, 1, 3, 4]))
    y = m.tensor([1, 3, 4], dtype="int16", scale=[0.1] * 4, axis=2)
    m.output(*m.op("ADD", [x, w], [y]))
    with pytest.raises(ConversionError, match=r"must have 4 elements along axis 2"):
        convert(m.bytes(), opset=opset, quantization=quantization)

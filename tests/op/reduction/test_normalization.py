"""Normalizations of GPU delegates, compared with the formulas of the kernels in numpy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tests.references import check_reference, draw_numbers
from tests.support import Build
from tests.support.small import convolve
from tflite2onnx.convert import convert
from tflite2onnx.errors import ConversionError

if TYPE_CHECKING:
    from tests.support.runtimes import Array

Shape = tuple[int, ...]

GROUP, LAYER, RMS = (f"custom_call.{kind}Norm" for kind in ("Group", "Layer", "Rms"))
EPSILON = 1e-2
IMAGE = (2, 5, 3, 12)
SHAPES: list[Shape] = [(12,), (3, 12), (2, 7, 12), IMAGE]
GROUPS = [1, 3, 12]
# The number of inputs, which may be absent: x, the scale and the bias.
PARAMETERS = [(True, True), (True, False), (False, True), (False, False)]


def normalize(x: Array, scale: Array | None = None, bias: Array | None = None) -> Array:
    """Return x with the mean 0 and the variance 1 along the last axis."""
    mean, variance = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
    return _apply((x - mean) / np.sqrt(variance + EPSILON), scale, bias)


def normalize_groups(
    x: Array, scale: Array | None = None, bias: Array | None = None, *, groups: int
) -> Array:
    """Return an image of which each group of channels has the mean 0 and the variance 1."""
    parts = x.reshape(*x.shape[:3], groups, -1).swapaxes(1, 3)
    rows = normalize(parts.reshape(len(x), groups, -1)).reshape(parts.shape)
    return _apply(rows.swapaxes(1, 3).reshape(x.shape), scale, bias)


def normalize_squares(x: Array, scale: Array | None = None) -> Array:
    """Return x with the mean square 1 along the last axis."""
    return _apply(x / np.sqrt((x * x).mean(-1, keepdims=True) + EPSILON), scale, None)


def _apply(x: Array, scale: Array | None, bias: Array | None) -> Array:
    x = x if scale is None else x * scale
    return x if bias is None else x + bias


def build(
    code: str, shape: Shape, vectors: list[Array | None], options: dict[str, Any] | None
) -> Build:
    m = Build()
    operands = [None if each is None else m.constant(each) for each in vectors]
    m.output(*m.custom(code, [m.input(shape), *operands], [[]], options or b""))
    return m


def draw_vectors(present: tuple[bool, ...]) -> list[Array | None]:
    return [draw_numbers(12, seed=i + 1) if here else None for i, here in enumerate(present)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("present", PARAMETERS, ids=str)
@pytest.mark.parametrize("opset", [13, 17])
def test_layer_normalization_equals_formula(
    shape: Shape, present: tuple[bool, bool], opset: int
) -> None:
    x, vectors = draw_numbers(*shape), draw_vectors(present)
    m = build(LAYER, shape, vectors, {"epsilon": EPSILON})
    check_reference(m, [x], [normalize(x, *vectors)], opset=opset)


@pytest.mark.parametrize("groups", GROUPS)
@pytest.mark.parametrize("present", PARAMETERS, ids=str)
def test_group_normalization_equals_formula(groups: int, present: tuple[bool, bool]) -> None:
    x, vectors = draw_numbers(*IMAGE), draw_vectors(present)
    m = build(GROUP, IMAGE, vectors, {"epsilon": EPSILON, "num_groups": groups})
    check_reference(m, [x], [normalize_groups(x, *vectors, groups=groups)])


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("present", [(True,), (False,), ()], ids=str)
@pytest.mark.parametrize("opset", [13, 23])
def test_rms_normalization_equals_formula(
    shape: Shape, present: tuple[bool, ...], opset: int
) -> None:
    x, vectors = draw_numbers(*shape), draw_vectors(present)
    m = build(RMS, shape, vectors, {"epsilon": EPSILON})
    check_reference(m, [x], [normalize_squares(x, *vectors)], opset=opset)


def test_group_normalization_without_options_has_32_groups() -> None:
    x = 100 * draw_numbers(1, 3, 3, 64)  # an epsilon of 1e-6 and one of 1e-2 change nothing
    check_reference(build(GROUP, x.shape, [], None), [x], [normalize_groups(x, groups=32)])


def test_group_normalization_between_convolutions_needs_no_transpose() -> None:
    m = Build()
    x = convolve(m, m.input([1, 8, 8, 3]), 12, "first")
    (x,) = m.custom(GROUP, [x], [x.shape], {"num_groups": 3, "epsilon": EPSILON})
    m.output(convolve(m, x, 5, "second"))
    assert convert(m.bytes()).transposes == 0


@pytest.mark.parametrize(
    ("code", "shape", "options", "reason"),
    [
        (GROUP, IMAGE, {"num_groups": 5, "epsilon": 1e-6}, "must divide 12 channels, got 5"),
        (GROUP, IMAGE, {"num_groups": 0, "epsilon": 1e-6}, "must divide 12 channels, got 0"),
        (GROUP, IMAGE, {"num_groups": 3}, "epsilon"),
        (GROUP, (2, 5, 12), {"num_groups": 3, "epsilon": 1e-6}, "must have the axes NHWC"),
        (LAYER, IMAGE, {"epsilon": -1.0}, "epsilon must be at least 0, and finite, got -1"),
        (RMS, IMAGE, {"epsilon": float("nan")}, "epsilon must be at least 0, and finite, got nan"),
    ],
)
def test_normalizations_refuse_invalid_options(
    code: str, shape: Shape, options: dict[str, Any], reason: str
) -> None:
    with pytest.raises(ConversionError) as error:
        convert(build(code, shape, [draw_numbers(12)], options).bytes())
    assert reason in str(error.value)


def test_the_scale_has_one_number_for_each_channel() -> None:
    with pytest.raises(ConversionError, match=r"must be float32\[12\], got float32\[11\]"):
        convert(build(RMS, IMAGE, [draw_numbers(11)], {"epsilon": EPSILON}).bytes())

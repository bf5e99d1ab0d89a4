"""Rotations and sums by positions, compared with the formulas of the GPU kernels in numpy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tests.references import check_reference, draw_numbers
from tests.support import Build
from tflite2onnx.convert import convert
from tflite2onnx.errors import ConversionError

if TYPE_CHECKING:
    from tests.support.runtimes import Array

Shape = tuple[int, ...]

ROTATION, ENCODING = (f"custom_call.{kind}_positional_embedding" for kind in ("rotary", "absolute"))
SHAPES: list[Shape] = [(1, 3, 5, 16), (2, 1, 4, 8), (1, 2, 1, 24)]
OPTIONS: list[dict[str, float]] = [
    {},
    {"min_timescale": 2.0, "max_timescale": 500.0, "kernel_type": 0},
    {"proportion": 0.5, "base": 100.0, "theta": 7.0},
    {"max_timescale": 1.0},
]


def rotate(x: Array, positions: Array, *, options: dict[str, float]) -> Array:
    """Return the output of CreateSplitRoPEConcat in ML Drift's rope.cc."""
    first, second = np.split(x, 2, axis=-1)
    return np.concatenate(rotate_pairs(first, second, positions, options=options), axis=-1)


def rotate_pairs(
    first: Array, second: Array, positions: Array, *, options: dict[str, float]
) -> tuple[Array, Array]:
    """Return the outputs of CreateRoPE in ML Drift's rope.cc."""
    least = options.get("min_timescale", 1.0)
    largest = options.get("max_timescale", options.get("base", 1e4))
    count = first.shape[-1]
    outputs = np.copy(first), np.copy(second)
    for i in range(count):
        if (i // 4 * 4 + 3) / count >= options.get("proportion", 1.0):
            continue
        angles = positions[..., 0] / (least * (largest / least) ** (i / count))
        a, b = first[..., i], second[..., i]
        outputs[0][..., i] = a * np.cos(angles) - b * np.sin(angles)
        outputs[1][..., i] = b * np.cos(angles) + a * np.sin(angles)
    return outputs


def encode(x: Array, positions: Array) -> Array:
    """Return the output of ML Drift's positional_embedding.cc."""
    half = x.shape[-1] // 2
    angles = positions * np.exp(-np.arange(half) * np.log(10000) / max(half - 1, 1))
    sums: Array = x + np.concatenate([np.sin(angles), np.cos(angles)], axis=-1)
    return sums.astype(np.float32)


def draw_positions(batch: int, tokens: int, dtype: str) -> Array:
    numbers = np.random.default_rng(0).integers(0, 100, (batch, 1, tokens, 1))
    return numbers.astype(dtype)


def build(code: str, shapes: list[Shape], dtype: str, options: dict[str, Any]) -> Build:
    """Return a model of data and, last, positions."""
    m = Build()
    data = [m.input(shape) for shape in shapes[:-1]]
    operands = [*data, m.input(shapes[-1], dtype=dtype)]
    m.output(*m.custom(code, operands, [[]] * len(data), options))
    return m


@pytest.mark.parametrize("code", [ROTATION, "odml.rope"])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", ["float32", "int32"])
def test_rotation_equals_formula(
    code: str, options: dict[str, float], shape: Shape, dtype: str
) -> None:
    x, positions = draw_numbers(*shape), draw_positions(1, shape[2], dtype)
    m = build(code, [shape, positions.shape], dtype, options)
    check_reference(m, [x, positions], [rotate(x, positions, options=options)])


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_rotation_of_two_halves_equals_formula(options: dict[str, float]) -> None:
    """The kernel treats the last four pairs of a depth of 6 as not rotated: 7 / 6 exceeds 1."""
    shape = (2, 3, 5, 6)
    parts = draw_numbers(*shape), draw_numbers(*shape, seed=1)
    positions = draw_positions(2, 5, "float32")
    m = build(ROTATION, [shape, shape, positions.shape], "float32", options)
    want = rotate_pairs(*parts, positions, options=options)
    check_reference(m, [*parts, positions], want)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", ["float32", "int32"])
def test_encoding_equals_formula(shape: Shape, dtype: str) -> None:
    x, positions = draw_numbers(*shape), draw_positions(1, shape[2], dtype)
    m = build(ENCODING, [shape, positions.shape], dtype, {})
    check_reference(m, [x, positions], [encode(x, positions)])


_X, _PLACES = (1, 3, 5, 16), (1, 1, 5, 1)


@pytest.mark.parametrize(
    ("shapes", "options", "reason"),
    [
        ([_X, (1, 1, 4, 1)], {}, "positions must be [1, 1, 5, 1], got [1, 1, 4, 1]"),
        ([_X, (5,)], {}, "positions must be [1, 1, 5, 1], got [5]"),
        ([(1, 3, 5, 12), _PLACES], {}, "the depth must be a multiple of 8, got 12"),
        ([_X, _PLACES], {"kernel_type": 1}, "its kernel_type must be 0, got 1"),
        ([_X, _PLACES], {"theta": 0}, "must be positive and its proportion at least 0, got 1, 0"),
        ([_X, _PLACES], {"proportion": float("nan")}, "its proportion at least 0"),
        ([_X, (1, 3, 4, 16), _PLACES], {}, "must be float32[1, 3, 5, 16], got"),
    ],
)
def test_rotation_refuses_invalid_operands_and_options(
    shapes: list[Shape], options: dict[str, Any], reason: str
) -> None:
    with pytest.raises(ConversionError) as error:
        convert(build(ROTATION, shapes, "float32", options).bytes())
    assert reason in str(error.value)


def test_encoding_refuses_a_depth_without_whole_halves() -> None:
    with pytest.raises(ConversionError, match="the depth must be a multiple of 8, got 12"):
        convert(build(ENCODING, [(1, 3, 5, 12), _PLACES], "float32", {}).bytes())

"""Landmarks and their matrices. LiteRT's interpreter has no kernels: equal to tests.references."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.references import check_reference, draw_numbers, landmarks
from tests.support import Build
from tflite2onnx.convert import convert
from tflite2onnx.errors import ConversionError

FIRST: dict[str, Any] = {
    "input_hw": [192, 160],
    "output_hw": [32, 48],
    "dimensions": 3,
    "landmarks_range": 192,
    "bbox_size_multiplier": 1.5,
    "left_rotation_idx": 2,
    "right_rotation_idx": 7,
    "subset": [0, 3, 5, 9, 10],
}
SECOND: dict[str, Any] = {
    "subset_idxs": [0, 3, 5, 9, 10],
    "left_rotation_idx": 2,
    "right_rotation_idx": 7,
    "target_rotation_radians": 0.3,
    "output_height": 32,
    "output_width": 48,
    "scale_x": 1.5,
    "scale_y": 1.25,
}
MATRIX = np.array([0.8, -0.6, 5, 3, 0.6, 0.9, 7, -2, 0, 0, 1, 0, 0, 0, 0, 1], np.float32)


# Version 1: the shape of landmarks, and the number of coordinates of each landmark.
POINTS = [((1, 1, 1, 33), 3), ((1, 2, 3, 10), 2), ((1, 1, 1, 6), 2)]
# Version 2: the last axis has the coordinates.
SECOND_POINTS = [(1, 11, 3), (1, 7, 2)]
FIRSTS: list[dict[str, Any]] = [
    {},
    {"left_rotation_idx": 7, "right_rotation_idx": 2},
    {"subset": [1]},
]
SECONDS: list[dict[str, Any]] = [
    {},
    {"left_rotation_idx": 7, "right_rotation_idx": 2},
    {"target_rotation_radians": -2.0},
    {"target_rotation_radians": None},  # the default is 0
    {"right_rotation_idx": 2},
    {"subset_idxs": [4, 4]},
]


@pytest.mark.parametrize(("shape", "numbers"), POINTS)
@pytest.mark.parametrize("scale", [1.0, 192.0, -0.5])
def test_transformed_landmarks_equal_reference(
    shape: tuple[int, ...], numbers: int, scale: float
) -> None:
    x, matrix = draw_numbers(*shape), MATRIX.reshape(1, 4, 4)
    m = Build()
    options = {"dimensions": numbers, "scale": scale}
    operands = [m.input(shape), m.input(matrix.shape)]
    m.output(*m.custom("TransformLandmarks", operands, [[]], options))
    check_reference(m, [x, matrix], [landmarks.transform(x, matrix, numbers, scale)])


@pytest.mark.parametrize("shape", SECOND_POINTS)
def test_transformed_landmarks_of_version_2_equal_reference(shape: tuple[int, ...]) -> None:
    x, matrix = draw_numbers(*shape), MATRIX.reshape(1, 1, 4, 4)
    m = Build()
    operands = [m.input(shape), m.input(matrix.shape)]
    m.output(*m.custom("TransformLandmarks", operands, [[]], op_version=2))
    check_reference(m, [x, matrix], [landmarks.transform(x, matrix, shape[-1])])


@pytest.mark.parametrize("options", FIRSTS, ids=str)
def test_transform_matrix_equals_reference(options: dict[str, Any]) -> None:
    x = draw_numbers(1, 1, 1, 33, low=0, high=192)
    m = Build()
    words = {**FIRST, **options}
    m.output(*m.custom("Landmarks2TransformMatrix", [m.input(x.shape)], [[]], words))
    check_reference(m, [x], [landmarks.matrix_version_1(x, words)])


def test_matrix_of_vertical_points_equals_reference() -> None:
    """Points above each other, for which the tangent is infinite."""
    x = draw_numbers(1, 1, 1, 33, low=0, high=192)
    x[..., 7 * 3] = x[..., 2 * 3]
    m = Build()
    m.output(*m.custom("Landmarks2TransformMatrix", [m.input(x.shape)], [[]], FIRST))
    check_reference(m, [x], [landmarks.matrix_version_1(x, FIRST)])


@pytest.mark.parametrize("options", SECONDS, ids=str)
def test_transform_matrix_of_version_2_equals_reference(options: dict[str, Any]) -> None:
    x = draw_numbers(1, 11, 3, low=0, high=192)
    m = Build()
    words = {k: v for k, v in {**SECOND, **options}.items() if v is not None}
    code = "Landmarks2TransformMatrix"
    m.output(*m.custom(code, [m.input(x.shape)], [[]], words, op_version=2))
    check_reference(m, [x], [landmarks.matrix_version_2(x, words)])


def refusal(code: str, shape: list[int], options: dict[str, Any], version: int = 1) -> str:
    m = Build()
    operands = [m.input(shape)] + ([m.input([4, 4])] if code == "TransformLandmarks" else [])
    m.output(*m.custom(code, operands, [[]], options, op_version=version))
    with pytest.raises(ConversionError) as error:
        convert(m.bytes())
    return str(error.value)


@pytest.mark.parametrize(
    ("shape", "options", "version", "reason"),
    [
        ([1, 11, 3], {"dimensions": 3, "scale": 1.0}, 1, "[1, 11, 3] in version 1"),
        ([1, 1, 1, 33], {}, 3, "in version 3"),
        ([1, 1, 1, 33], {"dimensions": 4, "scale": 1.0}, 1, "with 4 coordinates"),
        ([1, 1, 1, 32], {"dimensions": 3, "scale": 1.0}, 1, "[1, 1, 1, 32] with 3 coordinates"),
        ([1, 1, 1, 33], {"dimensions": 3}, 1, "and 0.0"),
    ],
)
def test_transform_refuses_unsupported_shapes_and_versions(
    shape: list[int], options: dict[str, Any], version: int, reason: str
) -> None:
    assert reason in refusal("TransformLandmarks", shape, options, version)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"dimensions": 2}, "dimensions must be 3, got 2"),
        ({"subset": [11]}, "11 landmarks by their indices, got [2, 7, 11]"),
        ({"subset": []}, "by their indices, got [2, 7]"),
        ({"left_rotation_idx": -1}, "got [-1"),
        ({"input_hw": [0, 5]}, "the size of its input must be positive, got (0, 5)"),
        ({"output_hw": [1, 5]}, "2 columns, got [1.0, 5.0]"),
        ({"landmarks_range": 0}, "its landmarks_range must be positive, got 0.0"),
        ({"bbox_size_multiplier": 0.0}, "its bbox_size_multiplier must not be 0"),
    ],
)
def test_matrix_refuses_invalid_options(changes: dict[str, Any], reason: str) -> None:
    code = "Landmarks2TransformMatrix"
    assert reason in refusal(code, [1, 1, 1, 33], {**FIRST, **changes})


def test_matrix_of_version_2_refuses_sizes_of_0() -> None:
    code = "Landmarks2TransformMatrix"
    for name in ("scale_x", "output_width"):
        without = {k: v for k, v in SECOND.items() if k != name}
        for options in (without, {**SECOND, name: 0}):
            reason = refusal(code, [1, 11, 3], options, 2)
            assert f"its {name} must be positive, got 0.0" in reason
    assert "in version 2" in refusal(code, [1, 1, 1, 33], SECOND, 2)

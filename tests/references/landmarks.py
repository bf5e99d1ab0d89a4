"""MediaPipe's transform_landmarks.cc and landmarks_to_transform_matrix.cc, in double precision."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from tests.support.runtimes import Array


def transform(x: Array, matrix: Array, numbers: int, scale: float = 1) -> Array:
    """Return transformed landmarks; each landmark has `numbers` coordinates."""
    y = x.reshape(-1, numbers).astype(np.float64)
    rows = matrix.reshape(4, 4)[:2]
    y[:, :2] = y[:, :2] @ rows[:, :2].T + rows[:, 3] * scale
    made: Array = y.reshape(x.shape).astype(np.float32)
    return made


def _rotation(angle: float) -> Array:
    return np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])


def _box(points: Array, angle: float) -> tuple[Array, Array]:
    """Return the smallest and the largest coordinates after a rotation."""
    turned = points @ _rotation(angle).T
    return turned.min(0), turned.max(0)


def _square(matrix: Array) -> Array:
    """Return a [3, 3] matrix of the plane as a [4, 4] matrix of space."""
    made = np.zeros((1, 4, 4), np.float32)
    made[0, :2, :2], made[0, :2, 3] = matrix[:2, :2], matrix[:2, 2]
    made[0, 2, 2] = made[0, 3, 3] = 1
    return made


def _affine(turn: Array, shift: Any) -> Array:
    made = np.eye(3)
    made[:2, :2], made[:2, 2] = turn, shift
    return made


def matrix_version_1(x: Array, options: dict[str, Any]) -> Array:
    """Return the matrix of version 1."""
    points = x.reshape(-1, 3)[:, :2].astype(np.float64)
    left, right = (points[options[f"{side}_rotation_idx"]] for side in ("left", "right"))
    with np.errstate(divide="ignore"):
        angle = -np.arctan(np.divide(*(right - left)[::-1]))
    low, high = _box(points[options["subset"]], angle)
    span = options["landmarks_range"]
    size = (high - low) * options["bbox_size_multiplier"] / span
    middle = _rotation(-angle) @ ((high + low) / 2)
    made, image = (np.array(options[f"{end}_hw"][::-1]) - 1.0 for end in ("output", "input"))
    steps = (
        _affine(np.diag(image / 2), image / 2),
        _affine(_rotation(-angle), middle / span * 2 - 1),
        _affine(np.diag(size), 0),
        _affine(np.diag(2 / made), -1),
    )
    return _square(steps[0] @ steps[1] @ steps[2] @ steps[3])


def matrix_version_2(x: Array, options: dict[str, Any]) -> Array:
    """Return the matrix of version 2."""
    points = x.reshape(-1, 3)[:, :2].astype(np.float64)
    left, right = (points[options[f"{side}_rotation_idx"]] for side in ("left", "right"))
    across, down = right - left
    angle = options.get("target_rotation_radians", 0) - np.arctan2(down, across)
    low, high = _box(points[options["subset_idxs"]], angle)
    middle = _rotation(-angle) @ ((high + low) / 2)
    made = np.array([options["output_width"], options["output_height"]], np.float64)
    size = np.array([options["scale_x"], options["scale_y"]]) * (high - low) / made
    steps = _affine(np.eye(2), middle), _affine(_rotation(-angle) @ np.diag(size), 0)
    return _square(steps[0] @ steps[1] @ _affine(np.eye(2), -made / 2))

"""Forms of TensorFlow's operators on matrices and images; see `flex_forms`."""

from __future__ import annotations

import colorsys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from tests.conformance.bench import Array
from tests.conformance.rows.flex_forms import Fed, Form
from tests.contrib.flex import (
    test_combined_nms as suppression,
    test_diagonal as diagonal,
    test_image as image,
)
from tests.contrib.flex.test_translate import ints, scalar
from tests.contrib.linear_algebra import test_linalg as matrix
from tests.references.flex import random_numbers

_SCORES = np.random.default_rng(1).uniform(0, 1, (2, 23, 3)).astype(np.float32)
_DOUBLE = ("float32", "float64")
_REAL = ("float32", "float64", "float16")
_ALIGNED = [(*ends, diagonal.ALIGNED[(place + step) % 4])
            for place, ends in enumerate(diagonal.RANGES) for step in (0, 2)]  # fmt: skip
_MATRICES = random_numbers("float32", 2, 3, 5)
_SEVEN = np.array(7, np.float32)


def _about(low: int, high: int) -> Array:
    return ints(low, high) if low < high else scalar(low)


def _of_diagonals() -> dict[str, list[Form]]:
    """Return the forms of operators on the diagonals of 3 by 5 matrices."""
    types, main = tuple(diagonal.TYPES), (0, 0, "LEFT_LEFT")
    forms: dict[str, list[Form]] = {}
    for low, high, align in _ALIGNED:
        k, options = _about(low, high), {"align": align}
        part = partial(_diagonal_part, low=low, high=high, align=align)
        packed = part(_MATRICES, k, _SEVEN).shape
        put = partial(_set_diagonals, low=low, high=high, align=align)
        forms.setdefault("MatrixDiagPartV3", []).append(
            Form([(2, 3, 5), k, _SEVEN], part, options, types)
        )
        forms.setdefault("MatrixSetDiagV3", []).append(
            Form([(2, 3, 5), packed, k], put, options, types)
        )
        forms.setdefault("MatrixDiagV3", []).append(
            Form(
                [packed, k, scalar(3), scalar(5), _SEVEN],
                partial(_surround, put=put),
                options,
                types,
            )
        )
    low, high, align = -1, 1, "LEFT_LEFT"
    part = partial(_diagonal_part, low=low, high=high, align=align)
    put = partial(_set_diagonals, low=low, high=high, align=align)
    packed = part(_MATRICES, None, _SEVEN).shape
    return {
        **forms,
        "MatrixDiagPart": [Form([(2, 3, 5)], lambda x: diagonal.extract_diagonals(x, *main, 0),
                                kinds=types)],
        "MatrixDiagPartV2": [Form([(2, 3, 5), ints(low, high), _SEVEN], part, kinds=types)],
        "MatrixSetDiag": [Form([(2, 3, 5), (2, 3)], lambda x,
            y: diagonal.set_diagonals(x, y, *main),
                               kinds=types)],
        "MatrixSetDiagV2": [Form([(2, 3, 5), packed, ints(low, high)], put, kinds=types)],
        "MatrixDiag": [Form(
            [(2, 3)], lambda y: diagonal.set_diagonals(np.zeros((2, 3, 3), y.dtype), y, *main),
            kinds=types)],
        "MatrixDiagV2": [Form([packed, ints(low, high), scalar(3), scalar(5), _SEVEN],
                              partial(_surround, put=put), kinds=types)],
        "MatrixBandPart": [Form([(2, 3, 5), scalar(1), scalar(each)], _band, kinds=types)
                           for each in (2, 0, -1)],
        "Diag": [Form([(2, 3)], lambda x: np.diag(x.ravel()).reshape(2, 3, 2, 3), kinds=types)],
        "DiagPart": [Form([(2, 3, 2, 3)], lambda x: np.diag(x.reshape(6, 6)).reshape(2, 3),
                          kinds=types)],
    }  # fmt: skip


def _diagonal_part(x: Array, _: Any, padding: Array, *, low: int, high: int, align: str) -> Array:
    return diagonal.extract_diagonals(x, low, high, align, padding.item())


def _set_diagonals(
    x: Array, packed: Array, _: Any = None, *, low: int, high: int, align: str
) -> Array:
    return diagonal.set_diagonals(x, packed, low, high, align)


def _surround(packed: Array, *further: Array, put: Callable[..., Array]) -> Array:
    _, rows, columns, padding = further
    return put(np.full((2, int(rows), int(columns)), padding, packed.dtype), packed)


def _band(x: Array, lower: Array, upper: Array) -> Array:
    right = np.arange(x.shape[-1]) - np.arange(x.shape[-2])[:, None]
    kept = ((lower < 0) | (-right <= lower)) & ((upper < 0) | (right <= upper))
    return np.where(kept, x, np.zeros_like(x))


def _solve(x: Array, *right: Array, attributes: dict[str, Any]) -> Array:
    """Return the solution of linear equations in double precision."""
    turned = x.astype(np.float64)
    if "lower" in attributes:
        turned = np.tril(turned) if attributes["lower"] else np.triu(turned)
    turned = np.swapaxes(turned, -1, -2) if attributes["adjoint"] else turned
    solution = np.linalg.solve(turned, *right) if right else np.linalg.inv(turned)
    return solution.astype(x.dtype)


def _in_double(function: Callable[[Array], Any]) -> Callable[[Array], Any]:
    """Return a function that computes in double precision."""

    def compute(x: Array) -> Any:
        results = function(x.astype(np.float64))
        if isinstance(results, tuple):
            return [np.asarray(each).astype(x.dtype) for each in results]
        return np.asarray(results).astype(x.dtype)

    return compute


def _logarithm(x: Array) -> tuple[Array, Array]:
    sign, size = np.linalg.slogdet(x)
    return sign, size


def _of_matrices() -> dict[str, list[Form]]:
    """Return the forms of linear algebra; the matrices are well conditioned."""
    forms: dict[str, list[Form]] = {}

    def add(name: str, operands: Sequence[Any], made: Any, attributes: dict[str, Any]) -> None:
        forms.setdefault(name, []).append(Form(operands, made, attributes, _DOUBLE))

    for shape in matrix.SHAPES:
        x = Fed(matrix.well_conditioned_matrices("float32", *shape), typed=True)
        roots = Fed(matrix.positive("float32", *shape), typed=True)
        right = (*shape[:-1], 3)
        for turned in (False, True):
            told: dict[str, Any] = {"adjoint": turned}
            solved = partial(_solve, attributes=told)
            add("MatrixInverse", [x], solved, told)
            add("MatrixSolve", [x, right], solved, told)
            for lower in (False, True):
                more = {**told, "lower": lower}
                half = partial(_solve, attributes=more)
                # Triangular matrices whose diagonals are far from 0.
                add("MatrixTriangularSolve", [roots, right], half, more)
        add("MatrixDeterminant", [x], _in_double(np.linalg.det), {})
        add("LogMatrixDeterminant", [x], _in_double(_logarithm), {})
        add("Cholesky", [roots], _in_double(np.linalg.cholesky), {})
    return forms


def _combine(boxes: Array, scores: Array, *most: Array, pad: bool, clip: bool) -> list[Array]:
    of_each, of_all = int(most[0]), int(most[1])
    total = min(of_all, of_each * scores.shape[2]) if pad else of_all
    return suppression.combine_classes(boxes, scores, of_each, total, clip=clip)


def _of_images() -> dict[str, list[Form]]:
    """Return the forms of color conversion, cropping, cubic interpolation and patches."""
    colors, pixels = Fed(image.colors("float32"), typed=True), tuple(image.PIXELS)
    shape = (2, 5, 7, 3)
    return {
        "RGBToHSV": [Form([colors], partial(image.map_pixels, colorsys.rgb_to_hsv), kinds=_REAL)],
        "HSVToRGB": [Form([colors], partial(image.map_pixels, colorsys.hsv_to_rgb), kinds=_REAL)],
        "AdjustHue": [Form([colors, np.float32(by)], image.hue) for by in (0.3, -0.75)],
        "AdjustSaturation": [Form([colors, Fed(np.array(by, np.float32))], image.saturation)
                             for by in (0.3, 2.5)],
        "AdjustContrastv2": [Form([colors, Fed(np.array(by, np.float32))], image.contrast)
                             for by in (0.3, 2.5)],
        "CropAndResize": [
            Form([shape, Fed(image.BOXES), Fed(image.IMAGES), ints(*size)],
                 partial(image.crops, method=method),
                 {"method": method, "extrapolation_value": 3.5}, pixels)
            for method in image.METHODS for size in image.SIZES],
        "ResizeBicubic": [
            Form([shape, ints(*size)], partial(image.bicubic, corners=corners, half=half),
                 {"align_corners": corners, "half_pixel_centers": half}, pixels)
            for size in image.LARGER for corners, half in image.CORNERS],
        "CombinedNonMaxSuppression": [
            Form([Fed(suppression.boxes_of(2, 23, own)), Fed(_SCORES), scalar(of_each),
                  scalar(of_all), suppression.OVERLAP, suppression.LEAST],
                 partial(_combine, pad=pad, clip=clip),
                 {"pad_per_class": pad, "clip_boxes": clip})
            for own in (1, 3) for of_each, of_all, pad, clip in suppression.LIMITS],
        "ExtractImagePatches": [Form([shape], each.extract, each.attributes, pixels)
                                for each in image.PATCHES],
    }  # fmt: skip


FORMS: dict[str, list[Form]] = {**_of_diagonals(), **_of_matrices(), **_of_images()}

"""Linear algebra. LiteRT has no kernels for it, so numpy is the reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.references import check_reference
from tests.references.flex import build_flex, random_numbers
from tflite2onnx.convert import convert
from tflite2onnx.errors import ConversionError

SHAPES = [(1, 1), (3, 3), (2, 3, 5, 5), (2, 7, 7)]
BOUNDS = {"float32": 1e-5, "float64": 1e-12}


def well_conditioned_matrices(dtype: str, *shape: int) -> Any:
    """Return well conditioned matrices whose pivots are off the diagonal."""
    side = shape[-1]
    x = random_numbers(dtype, *shape) + np.eye(side, dtype=dtype) * np.asarray(12, dtype)
    return np.ascontiguousarray(x[..., np.random.default_rng(0).permutation(side), :])


def positive(dtype: str, *shape: int) -> Any:
    """Return positive definite matrices."""
    x = random_numbers(dtype, *shape)
    return (x @ np.swapaxes(x, -1, -2) + 3 * np.eye(shape[-1])).astype(dtype)


@pytest.mark.parametrize("dtype", BOUNDS)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("adjoint", [False, True])
def test_matrix_inverse_and_solve_equal_numpy(
    shape: tuple[int, ...], dtype: str, *, adjoint: bool
) -> None:
    x = well_conditioned_matrices(dtype, *shape)
    turned = np.swapaxes(x, -1, -2) if adjoint else x
    want = np.linalg.inv(turned.astype(np.float64)).astype(dtype)
    model = build_flex("MatrixInverse", [x], [want], adjoint=adjoint)
    check_reference(model, [x], [want], tolerance=BOUNDS[dtype])
    right = random_numbers(dtype, *shape[:-1], 3, seed=1)
    want = np.linalg.solve(turned.astype(np.float64), right).astype(dtype)
    model = build_flex("MatrixSolve", [x, right], [want], adjoint=adjoint)
    check_reference(model, [x, right], [want], tolerance=BOUNDS[dtype])


@pytest.mark.parametrize("dtype", BOUNDS)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("lower", [False, True])
@pytest.mark.parametrize("adjoint", [False, True])
def test_triangular_solve_equals_numpy(
    shape: tuple[int, ...], dtype: str, *, lower: bool, adjoint: bool
) -> None:
    x = random_numbers(dtype, *shape) + np.eye(shape[-1], dtype=dtype) * np.asarray(12, dtype)
    right = random_numbers(dtype, *shape[:-1], 3, seed=1)
    half = np.tril(x) if lower else np.triu(x)
    half = np.swapaxes(half, -1, -2) if adjoint else half
    want = np.linalg.solve(half.astype(np.float64), right).astype(dtype)
    model = build_flex("MatrixTriangularSolve", [x, right], [want], lower=lower, adjoint=adjoint)
    check_reference(model, [x, right], [want], tolerance=BOUNDS[dtype])


@pytest.mark.parametrize("dtype", BOUNDS)
@pytest.mark.parametrize("shape", SHAPES)
def test_determinants_and_their_logarithms_equal_numpy(shape: tuple[int, ...], dtype: str) -> None:
    x = well_conditioned_matrices(dtype, *shape)
    want = np.asarray(np.linalg.det(x.astype(np.float64))).astype(dtype)
    check_reference(
        build_flex("MatrixDeterminant", [x], [want]), [x], [want], tolerance=BOUNDS[dtype]
    )
    sign, size = (np.asarray(y, dtype) for y in np.linalg.slogdet(x.astype(np.float64)))
    model = build_flex("LogMatrixDeterminant", [x], [sign, size])
    check_reference(model, [x], [sign, size], tolerance=BOUNDS[dtype])


def test_determinants_of_singular_matrices_are_0() -> None:
    """The determinant is 0 for singular matrices, also if the elimination divides by 0."""
    matrices = [np.ones((3, 3)), np.zeros((3, 3)), np.diag([1, 2, 3]), np.diag([0, 2, 3])]
    x = np.array([*matrices, [[0, 0, 1], [0, 0, 2], [1, 2, 3]]], np.float32)
    want = np.array([0, 0, 6, 0, 0], np.float32)
    check_reference(build_flex("MatrixDeterminant", [x], [want]), [x], [want])
    sign, size = np.sign(want), np.where(want, np.log(6), -np.inf).astype(np.float32)
    check_reference(build_flex("LogMatrixDeterminant", [x], [sign, size]), [x], [sign, size])


@pytest.mark.parametrize("dtype", BOUNDS)
@pytest.mark.parametrize("shape", SHAPES)
def test_cholesky_factors_equal_numpy(shape: tuple[int, ...], dtype: str) -> None:
    x = positive(dtype, *shape)
    want = np.linalg.cholesky(x.astype(np.float64)).astype(dtype)
    check_reference(build_flex("Cholesky", [x], [want]), [x], [want], tolerance=BOUNDS[dtype])


@pytest.mark.parametrize(
    ("name", "shapes", "made", "reason"),
    [
        ("MatrixInverse", [(3, 5)], [(3, 5)], r"must be float32\[3, 3\], got"),
        ("MatrixInverse", [(3,)], [(3,)], r"must be float32\[..., n, n\], got"),
        ("MatrixInverse", [(65, 65)], [(65, 65)], "matrices must have 1 to 64 rows, got 65"),
        ("MatrixSolve", [(3, 3), (5, 2)], [(5, 2)], r"must be float32\["),
        ("MatrixTriangularSolve", [(3, 3), (5, 2)], [(5, 2)], r"must be float32\[3, 2\], got"),
        (
            "MatrixTriangularSolve",
            [(2, 3, 3), (5, 3, 2)],
            [(5, 3, 2)],
            r"must be float32\[2, 3, 2\], got",
        ),
        ("MatrixTriangularSolve", [(2, 3, 3), (3, 2)], [(2, 3, 2)], r"float32\[2, 3, 2\], got"),
        ("LogMatrixDeterminant", [(3, 3)], [()], "must have 2 outputs, got 1"),
        ("Cholesky", [(0, 0)], [(0, 0)], "matrices must have 1 to 64 rows, got 0"),
    ],
)
def test_linear_algebra_refuses_invalid_shapes(
    name: str, shapes: Any, made: Any, reason: str
) -> None:
    inputs, outputs = ([np.zeros(s, np.float32) for s in each] for each in (shapes, made))
    with pytest.raises(ConversionError, match=reason):
        convert(build_flex(name, inputs, outputs).bytes())

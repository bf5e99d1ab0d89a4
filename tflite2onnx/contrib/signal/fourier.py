"""The Fourier transform of real numbers as products with constant matrices.

ONNX's DFT is missing in many runtimes, and slow where it exists. Two products of small matrices
take a third of the time or less, and are more accurate: for a prime length of 1,021 the
error of DFT is 3e-4 of the range, and the error of a product is 3e-7. `python
scripts/benchmark_patterns.py Fourier` measures both.
"""

import math
from collections.abc import Sequence

import numpy as np

from tflite2onnx.operators import Array, Builder, DType, Value

_PAIR = 2
_MOST_ROWS = 128  # up to this length one matrix product takes as long as two, and has fewer nodes
_LEAST_FACTOR = 4  # with a smaller factor both matrices are nearly as large as a single matrix
_MOST_ELEMENTS = 1 << 21  # the largest number of elements of the matrices


def transform_real(
    g: Builder, x: Value, lead: Sequence[int | str], length: int, dtype: DType
) -> Value | None:
    """Return the frequencies up to half of the length of real numbers, as pairs.

    Args:
        g: the builder of nodes.
        x: the numbers, of any shape with the elements of [*lead, length].
        lead: the sizes of the axes before the rows, one or more.
        length: the numbers of a row.
        dtype: float32 or float64.

    Returns:
        [*lead, length // 2 + 1, 2], or None if DFT is better: for a length whose factors are a
        small and a large number, and for two dynamic sizes, because Reshape infers only one.
    """
    if sum(isinstance(size, str) for size in lead) > 1:
        return None
    half, few = length // 2 + 1, _find_factor(length)
    if length > _MOST_ROWS and few >= _LEAST_FACTOR:
        if length * _PAIR * few > _MOST_ELEMENTS:
            return None
        return _transform_in_two_steps(g, x, lead, (length // few, few), dtype)
    if length * half * _PAIR > _MOST_ELEMENTS:
        return None
    matrix = _join_parts(_compute_roots(length, length, half), -1).reshape(length, half * _PAIR)
    product = g.MatMul(g.reshape(x, (*lead, length)), matrix.astype(dtype.numpy))
    return g.reshape(product, (*lead, half, _PAIR))


def _transform_in_two_steps(
    g: Builder, x: Value, lead: Sequence[int | str], factors: tuple[int, int], dtype: DType
) -> Value:
    """Return the transform of a length that is the product of two factors, a and b.

    Number b * i + j of a row is element (i, j) of a matrix [a, b]. The transform of the columns has
    the elements (k, j), which are multiplied by exp(-2 pi i j k / (a * b)). Then the transform of
    the rows has frequency k + a * l as element (k, l). (Cooley and Tukey, "An Algorithm for the
    Machine Calculation of Complex Fourier Series", 1965.)
    """
    a, b = factors
    length, columns = a * b, b // 2 + 1
    *outer, rows = lead
    first = _join_parts(_compute_roots(a, a, a), 1).reshape(a * _PAIR, a)
    turned = _compute_roots(length, a, b)[:, :, None] * _compute_roots(b, b, columns)
    # (real, imaginary) @ ((re, im), (-im, re)) is the product of complex numbers.
    second = np.concatenate([_join_parts(turned, -1), _join_parts(1j * turned, -1)], axis=1)
    second = second.reshape(a, b * _PAIR, columns * _PAIR)
    matrix = g.constant(first.astype(dtype.numpy))
    value = g.MatMul(matrix, g.reshape(x, (*lead, a, b)))
    value = g.reshape(value, (*lead, a, b * _PAIR))
    axes = [*range(len(outer))]
    row, column, pair = (len(outer) + i for i in range(3))
    value = g.Transpose(value, perm=[*axes, column, row, pair])
    value = g.MatMul(value, second.astype(dtype.numpy))
    value = g.reshape(value, (*outer, a, rows, columns, _PAIR))
    value = g.Transpose(value, perm=[*axes, row + 1, row + 2, row, row + 3])
    value = g.reshape(value, (*lead, columns * a, _PAIR))
    return g.Slice(value, [0], [length // 2 + 1], [len(lead)])


def _find_factor(length: int) -> int:
    """Return the largest divisor that is at most the square root."""
    return next(a for a in range(math.isqrt(length), 0, -1) if length % a == 0)


def _compute_roots(length: int, rows: int, columns: int) -> Array:
    """Return exp(-2 pi i j k / length), complex128 [rows, columns]."""
    # The remainder is an exact integer, so the angle does not lose digits.
    turns = np.outer(np.arange(rows), np.arange(columns)) % length
    roots: Array = np.exp(-2j * np.pi / length * turns)
    return roots


def _join_parts(x: Array, axis: int) -> Array:
    """Return the real and the imaginary parts on a new axis."""
    return np.stack([x.real, x.imag], axis)

"""The fixed-point arithmetic of XNNPACK, as scales in which ONNX's kernels make the same integers.

XNNPACK, which computes in LiteRT by default, multiplies stored integers by quotients of two scales.
It rounds a quotient to some bits, and the result once, halves up. A product of few bits is either a
half or far from it, so that a slope is moved by a slack that affects halves alone. Of the sums of
two products those next to a half are counted, and scales looked for that round all of them right.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from tflite2onnx.quantize import integer_range, is_quantized
from tflite2onnx.tensor import Array, DType, Quantization, Tensor

NARROW = (DType.INT8, DType.UINT8)
_BITS = 8  # behind the point in the slopes of a function of one input
# Results of 8 bits are 2^-8 apart. The slack moves those below 2^8 by 2^-10 at most, and halves by
# 2^-19 or more, which is much more than float32 loses.
_SLACK = 2.0**-18
# What XNNPACK takes for a slope; else a built-in kernel runs, or another one of XNNPACK.
_LARGEST_SLOPE = 128
_TERM_BITS = 20  # behind the point in the larger slope of a sum, once it is between 1 and 2
_LEAST_TERM, _LARGEST_TERM = 2.0**-10, 2.0**8  # the slopes of sums that XNNPACK takes
# How near to a half, in steps, float32 may round a sum wrong: sums are below 2^10 or saturate.
_NEAR = 2.0**-10
# How far two scales are moved, in units in the last place; the shortest moves first.
_MOVES = sorted(product(range(-8, 9), repeat=2), key=lambda move: abs(move[0]) + abs(move[1]))


class Slopes(NamedTuple):
    """A function of an integer: times `scale` what is not negative, times `scale * alpha` what is.

    `scale` is in the place of the input's.
    """

    scale: Quantization
    alpha: float


def slopes(x: Tensor, y: Tensor, alpha: float = 1) -> Slopes | None:
    """Return how LEAKY_RELU's kernel computes, or that of QUANTIZE if `alpha` is 1.

    None where XNNPACK has no such kernel: of other types, and where a slope is too steep or too
    flat.
    """
    given, wanted = x.quantization, y.quantization
    if x.dtype is not y.dtype or not are_narrow(x, y) or given is None or wanted is None:
        return None
    steep = given.scale[0] / wanted.scale[0]
    flat = steep * np.float32(alpha)
    least = 2.0**-_BITS
    if not least <= steep <= _LARGEST_SLOPE or not least <= abs(flat) <= _LARGEST_SLOPE:
        return None
    above, below = (np.rint(slope * 2**_BITS) / 2**_BITS for slope in (float(steep), float(flat)))
    # Halves are rounded up: those above 0 away from it, those below 0 towards it.
    above *= 1 + _SLACK
    below *= 1 - _SLACK if below > 0 else 1 + _SLACK
    scale = np.array([above * wanted.scale[0]], np.float32)
    return Slopes(replace(given, scale=scale), below / above)


def reciprocal(y: Tensor) -> np.float32 | None:
    """Return what QUANTIZE's kernel multiplies real numbers by to have steps of an output.

    ONNX divides by the scale, which is the same for a power of two; then it is None, and for other
    types.
    """
    if not are_narrow(y) or y.quantization is None:
        return None
    scale = y.quantization.scale[0]
    return None if np.frexp(scale)[0] == 0.5 else np.float32(1) / scale


def are_narrow(*tensors: Tensor) -> bool:
    """Return whether tensors have 8 bits and one scale each."""
    return all(
        t.dtype in NARROW and is_quantized(t) and not (t.quantization and t.quantization.per_axis)
        for t in tensors
    )


# ADD and SUB

_TERM_BITS = 20  # the larger multiplier of a sum has one more
_LEAST_TERM, _MOST_TERM = 2.0**-10, 2.0**8  # quotients of scales that XNNPACK takes
# How near a half, in steps, float32 may go wrong: a term is 2^16 at most, and mostly below 2^9.
_NEAR = 2.0**-10
_ULPS = 4  # by which a scale is moved at most


def negate_constant(tensor: Tensor) -> Tensor:
    """Return a constant of 8 bits that stands for the negative numbers: each bit is the other."""
    if tensor.data is None or tensor.quantization is None:
        return tensor
    middle = sum(integer_range(tensor.dtype))  # -1 or 255
    quantization = tensor.quantization
    opposite = replace(quantization, zero_point=middle - quantization.zero_point)
    return replace(tensor, data=~tensor.data, quantization=opposite)


def sum_scales(a: Tensor, b: Tensor, y: Tensor, sign: int) -> tuple[Quantization, ...]:
    """Return the scales in which the inputs of ADD (`sign` 1) or SUB (-1) are read.

    They are the quotients as XNNPACK rounds them, times the scale of the output, moved by the
    fewest units in the last place with which float32 rounds all sums right, or most of them. There
    are none where XNNPACK has no such kernel: of other types, and of too large or small quotients.
    """
    if len({t.dtype for t in (a, b, y)}) > 1 or not are_narrow(a, b, y):
        return ()
    *given, made = (t.quantization for t in (a, b, y) if t.quantization)
    slopes = [each.scale[0] / made.scale[0] for each in given]
    if not all(_LEAST_TERM <= slope < _LARGEST_TERM for slope in slopes):
        return ()
    shift = _TERM_BITS + 1 - int(np.frexp(max(slopes))[1])
    terms = [int(np.rint(float(slope) * 2.0**shift)) for slope in slopes]
    sums = _near_halves((a, b, y), terms[0], sign * terms[1], shift)
    exact = [np.float32(term / 2.0**shift * float(made.scale[0])) for term in terms]
    found = _best(sums, exact[0], exact[1])
    return tuple(
        replace(each, scale=np.array([scale])) for each, scale in zip(given, found, strict=True)
    )


class _Sums(NamedTuple):
    """Pairs of integers whose sums are near halves, as float32, and what the kernel makes of them.

    `zeros` are the zero points of both and of the result, `scale` is that of the result.
    """

    a: Array
    b: Array
    made: Array
    zeros: tuple[np.float32, np.float32, np.float32]
    scale: np.float32
    dtype: DType
    sign: int

    def wrong(self, p: np.float32, q: np.float32) -> int:
        """Return how often ONNX Runtime's kernels make something else with these scales."""
        low, high = integer_range(self.dtype)
        made = (np.clip(sums, low, high) for sums in self._round_sums(p, q))
        return sum(int((sums != self.made).sum()) for sums in made)

    def _round_sums(self, p: np.float32, q: np.float32) -> Iterator[Array]:
        """Yield what kernels make: of real numbers, and of integers, which may be kept as uint8."""
        (a, b), zeros = (self.a, self.b), self.zeros
        real = (a - zeros[0]) * p + np.float32(self.sign) * ((b - zeros[1]) * q)
        yield np.rint(real / self.scale) + zeros[2]
        if self.sign > 0:  # ONNX Runtime has no integer kernel of Sub
            for shift in (np.float32(0), np.float32(128))[: 1 + (self.dtype is DType.INT8)]:
                moved = [zero + shift for zero in zeros]
                for sums in _sums(a + shift, b + shift, p / self.scale, q / self.scale, moved):
                    yield np.rint(sums) - shift


def _sums(
    a: Array, b: Array, p: np.float32, q: np.float32, zeros: Sequence[np.float32]
) -> Iterator[Array]:
    """Yield the sums of QLinearAdd: as SSE2 adds, and as AVX2 does, which rounds once.

    What all sums have in common is for the compiler to round once or twice (qladd_avx2.cpp).
    """
    offset = zeros[2] - (zeros[0] * p + zeros[1] * q)
    yield (offset + a * p) + b * q
    yield _fma(a, p, _fma(b, q, offset))
    yield _fma(a, p, _fma(b, q, zeros[2] - _fma(zeros[0], p, zeros[1] * q)))
    yield _fma(a, p, _fma(b, q, zeros[2] - _fma(zeros[1], q, zeros[0] * p)))


def _fma(x: Any, y: Any, z: Any) -> Any:  # noqa: ANN401 - float32 or an array of such
    """Return x * y + z rounded once, of integers x of 9 bits."""
    return (np.asarray(x, np.float64) * y + z).astype(np.float32)


def _near_halves(operands: tuple[Tensor, Tensor, Tensor], p: int, q: int, shift: int) -> _Sums:
    """Return the sums that float32 might round wrong, of all pairs that inputs can be."""
    a, b, y = operands
    zeros = [int(t.quantization.zero_point[0]) for t in operands if t.quantization]
    pair = _list_integers(a), _list_integers(b)
    sums = np.add.outer((pair[0] - zeros[0]) * p, (pair[1] - zeros[1]) * q) + (1 << shift - 1)
    near = int(_NEAR * 2.0**shift)
    places = np.nonzero(((sums + near) & ((1 << shift) - 1)) < 2 * near)
    made = np.clip((sums[places] >> shift) + zeros[2], *integer_range(y.dtype))
    scale = y.quantization.scale[0] if y.quantization else np.float32(1)
    x, z = (each[at].astype(np.float32) for each, at in zip(pair, places, strict=True))
    zero_points = np.float32(zeros[0]), np.float32(zeros[1]), np.float32(zeros[2])
    return _Sums(x, z, made, zero_points, scale, y.dtype, 1 if q > 0 else -1)


def _list_integers(tensor: Tensor) -> Array:
    """Return the integers that a tensor may have; their products with terms have 31 bits."""
    if tensor.data is not None:
        return np.unique(tensor.data).astype(np.int32)
    low, high = integer_range(tensor.dtype)
    return np.arange(low, high + 1, dtype=np.int32)


def _best(sums: _Sums, p: np.float32, q: np.float32) -> tuple[np.float32, np.float32]:
    """Return the scales next to these which go wrong least often."""
    found, least = (p, q), sums.wrong(p, q)
    for i, j in _MOVES:
        if not least:
            break
        moved = p + np.float32(i) * np.spacing(p), q + np.float32(j) * np.spacing(q)
        wrong = sums.wrong(*moved)
        if wrong < least:
            found, least = moved, wrong
    return found

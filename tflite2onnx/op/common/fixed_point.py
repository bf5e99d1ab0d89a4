"""Scales with which ONNX kernels compute the integers of XNNPACK's fixed-point arithmetic.

XNNPACK, LiteRT's default delegate, multiplies stored integers by quotients of two scales. It rounds
each quotient to a fixed number of bits, and rounds the result once, halves up. For a function of
one input, a product is either exactly a half or far from a half: the slope is changed by a slack
that affects only halves. For a sum of two products, this module counts the sums near a half, and
searches for scales that round all of these sums right.

LiteRT's own kernels round a product twice. For SQUARED_DIFFERENCE, which XNNPACK lacks, this module
searches for scales with which float32 gives the same integers.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from tflite2onnx.quantization.storage import find_integer_range, is_quantized
from tflite2onnx.tensor import Array, DType, Quantization, Tensor
from tflite2onnx.utils.mapped_files import read_elements

NARROW = (DType.INT8, DType.UINT8)
_BITS = 8  # Fraction bits in the slopes of a function of one input.
# Products are multiples of 2^-8. The slack adds at most 2^-10 to a product below 2^8, and at least
# 2^-19 to a half. float32 loses much less.
_SLACK = 2.0**-18
# The largest slope that XNNPACK accepts. Above it, LiteRT runs another kernel.
_LARGEST_SLOPE = 128
_TERM_BITS = 20  # fraction bits of the larger slope of a sum, which is scaled to 1 ... 2
_LEAST_TERM, _LARGEST_TERM = 2.0**-10, 2.0**8  # The slopes of sums that XNNPACK accepts.
# Sums this close to a half, in steps, may be rounded in the wrong direction in float32: sums are
# below 2^10, or saturate.
_NEAR = 2.0**-10
_LONGEST_MOVE = 24  # The largest change of a scale, in units in the last place.
# The numbers of changes that are tried in sequence: most sums need a small change.
_GROUPS = (1, 13, 265)
_MOST_SUMS = 1 << 11
_MOST_NUMBERS = 1 << 16  # elements of an array that stays in the cache of a processor


class Slopes(NamedTuple):
    """A function of an integer: x * scale if x is not negative, else x * scale * alpha.

    `scale` replaces the scale of the input.
    """

    scale: Quantization
    alpha: float


def compute_slopes(x: Tensor, y: Tensor, alpha: float = 1) -> Slopes | None:
    """Return the slopes of LEAKY_RELU's kernel, or of QUANTIZE's if `alpha` is 1.

    Returns None where XNNPACK has no kernel: for types other than 8 bits with one scale, and for
    slopes that are too large or too small.
    """
    source, target = x.quantization, y.quantization
    if x.dtype is not y.dtype or not are_narrow(x, y) or source is None or target is None:
        return None
    with np.errstate(all="ignore"):  # numpy would warn of a division by a scale of 0
        steep = source.scale[0] / target.scale[0]
        flat = steep * np.float32(alpha)
    minimum = 2.0**-_BITS
    if not minimum <= steep <= _LARGEST_SLOPE or not minimum <= abs(flat) <= _LARGEST_SLOPE:
        return None
    above, below = (np.rint(slope * 2**_BITS) / 2**_BITS for slope in (float(steep), float(flat)))
    # The kernel rounds halves up: positive halves away from 0, negative halves towards 0.
    above *= 1 + _SLACK
    below *= 1 - _SLACK if below > 0 else 1 + _SLACK
    scale = np.array([above * target.scale[0]], np.float32)
    return Slopes(replace(source, scale=scale), below / above)


def compute_reciprocal(y: Tensor) -> np.float32 | None:
    """Return the reciprocal of the output's scale, by which QUANTIZE's kernel multiplies.

    ONNX divides by the scale. Returns None if both give the same result, because the scale is a
    power of two, and for types other than 8 bits with one scale.
    """
    if not are_narrow(y) or y.quantization is None:
        return None
    scale = y.quantization.scale[0]
    with np.errstate(all="ignore"):  # numpy would warn of a division by a scale of 0
        return None if np.frexp(scale)[0] == 0.5 else np.float32(1) / scale


def are_narrow(*tensors: Tensor) -> bool:
    """Return whether tensors have 8 bits and one scale each."""
    return all(t.dtype in NARROW and is_quantized(t) and not t.per_axis for t in tensors)


# ADD and SUB


def negate_constant(tensor: Tensor) -> Tensor:
    """Return a constant of 8 bits with the negated real numbers.

    Integers with the zero point 0 are negated if each has an opposite; otherwise all bits are
    inverted.
    """
    if tensor.data is None or tensor.quantization is None:
        return tensor
    lowest, highest = find_integer_range(tensor.dtype)
    quantization = tensor.quantization
    if not quantization.zero_point.any() and tensor.data.min(initial=0) > lowest:
        return replace(tensor, data=np.asarray(-tensor.data))
    middle = lowest + highest  # -1 for int8, or 255 for uint8
    opposite = replace(quantization, zero_point=middle - quantization.zero_point)
    return replace(tensor, data=~tensor.data, quantization=opposite)


def sum_scales(a: Tensor, b: Tensor, y: Tensor, sign: int) -> tuple[Quantization, ...]:
    """Return the scales in which the inputs of ADD (`sign` 1) or SUB (-1) are read.

    Each scale is the quotient as XNNPACK rounds it, times the scale of the output. The scale is
    changed by the fewest units in the last place with which float32 rounds all sums right, or most
    sums. Returns () where XNNPACK has no kernel: for types other than 8 bits with one scale, and
    for quotients that are too large or too small.
    """
    if len({t.dtype for t in (a, b, y)}) > 1 or not are_narrow(a, b, y):
        return ()
    *inputs, output = (t.quantization for t in (a, b, y) if t.quantization)
    with np.errstate(all="ignore"):  # numpy would warn of a division by a scale of 0
        slopes = [tensor.scale[0] / output.scale[0] for tensor in inputs]
    if not all(_LEAST_TERM <= slope < _LARGEST_TERM for slope in slopes):
        return ()
    shift = _TERM_BITS + 1 - int(np.frexp(max(slopes))[1])
    terms = [int(np.rint(float(slope) * 2.0**shift)) for slope in slopes]
    sums = _find_near_halves((a, b, y), terms[0], sign * terms[1], shift)
    exact = [np.float32(term / 2.0**shift * float(output.scale[0])) for term in terms]
    scales = _find_best_scales(sums, exact[0], exact[1])
    pairs = zip(inputs, scales, strict=True)
    return tuple(replace(tensor, scale=np.array([scale])) for tensor, scale in pairs)


class _Sums(NamedTuple):
    """Pairs of integers whose sums are near halves, as float32, and XNNPACK's results for them.

    `zeros` are the zero points of both inputs and of the output, `scale` is the output's scale.
    """

    a: Array
    b: Array
    expected: Array
    zeros: tuple[np.float32, np.float32, np.float32]
    scale: np.float32
    dtype: DType
    sign: int

    def count_errors(self, p: Array, q: Array) -> Array:
        """Return how many results of runtimes' kernels differ: [n], for n scales of inputs."""
        low, high = find_integer_range(self.dtype)
        errors = np.zeros(len(p), np.int64)
        for sums in self._round_sums(p[:, None], q[:, None]):
            errors += (np.minimum(np.maximum(sums, low), high) != self.expected).sum(axis=1)
        return errors

    def _round_sums(self, p: Array, q: Array) -> Iterator[Array]:
        """Yield the results of the float kernel, and of integer kernels for int8 and uint8."""
        (a, b), zeros = (self.a, self.b), self.zeros
        numbers = (a - zeros[0]) * p + np.float32(self.sign) * ((b - zeros[1]) * q)
        yield np.rint(numbers / self.scale) + zeros[2]
        if self.sign > 0:  # runtimes have integer kernels for Add, but not for Sub
            for shift in (np.float32(0), np.float32(128))[: 1 + (self.dtype is DType.INT8)]:
                points, scales = [zero + shift for zero in zeros], (p / self.scale, q / self.scale)
                for sums in _add_as_qlinear(a + shift, b + shift, *scales, points):
                    yield np.rint(sums) - shift


def _add_as_qlinear(
    a: Array, b: Array, p: Array, q: Array, zeros: Sequence[np.float32]
) -> Iterator[Array]:
    """Yield the sums of QLinearAdd: with SSE2, and with AVX2, whose fused multiply-add rounds once.

    The compiler chooses whether the common offset is rounded once or twice (qladd_avx2.cpp).
    """
    first, second = zeros[0] * p, zeros[1] * q
    sums = first + second, _multiply_add(zeros[0], p, second), _multiply_add(zeros[1], q, first)
    yield (zeros[2] - sums[0] + a * p) + b * q
    for total in sums:
        yield _multiply_add(a, p, _multiply_add(b, q, zeros[2] - total))


def _multiply_add(x: Any, y: Any, z: Any) -> Any:  # noqa: ANN401 - float32 or an array
    """Return x * y + z rounded once to float32; x is an integer of 9 bits."""
    return (np.asarray(x, np.float64) * y + z).astype(np.float32)


def _find_near_halves(operands: tuple[Tensor, Tensor, Tensor], p: int, q: int, shift: int) -> _Sums:
    """Return the sums that float32 may round wrong, among all pairs of possible inputs."""
    a, b, y = operands
    zeros = [int(t.quantization.zero_point[0]) for t in operands if t.quantization]
    pair = _list_integers(a), _list_integers(b)
    terms = (pair[0] - zeros[0]) * p + (1 << shift - 1), (pair[1] - zeros[1]) * q
    places = find_near_multiples(*terms, shift, int(_NEAR * 2.0**shift))
    # Usually 1 of 512 sums is near a half. If the output's scale is twice the inputs', every other
    # sum is a half, and no scales are right: some are enough to choose. An odd step reads all rows.
    step = len(places[0]) // _MOST_SUMS | 1
    places = places[0][::step], places[1][::step]
    sums = terms[0][places[0]] + terms[1][places[1]]
    expected = np.clip((sums >> shift) + zeros[2], *find_integer_range(y.dtype))
    x, z = (operand[at].astype(np.float32) for operand, at in zip(pair, places, strict=True))
    scale = y.quantization.scale[0] if y.quantization else np.float32(1)
    zero_points = np.float32(zeros[0]), np.float32(zeros[1]), np.float32(zeros[2])
    return _Sums(x, z, expected, zero_points, scale, y.dtype, 1 if q > 0 else -1)


def find_near_multiples(a: Array, b: Array, shift: int, near: int) -> tuple[Array, Array]:
    """Return the indices i and j of all sums a[i] + b[j] from m - near to m + near - 1.

    m is any multiple of 2 ** shift. Both arrays are int32, and `shift` is at most 30.
    """
    # The sorted remainders of b, repeated once, so that the remainders that match a remainder of a
    # are neighbours even across the end.
    mask = (1 << shift) - 1
    order = np.argsort(b & mask)
    remainders = (b & mask)[order]
    circle = np.concatenate([remainders, remainders + (1 << shift)])
    remainder = (-a - near) & mask
    begin, end = (np.searchsorted(circle, remainder + distance) for distance in (0, 2 * near))
    counts = end - begin
    rows = np.repeat(np.arange(len(a)), counts)
    position = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
    return rows, order[(np.repeat(begin, counts) + position) % max(len(b), 1)]


def _list_integers(tensor: Tensor) -> Array:
    """Return all integers that a tensor may hold; their products with slopes have 31 bits."""
    if tensor.data is None:
        low, high = find_integer_range(tensor.dtype)
        return np.arange(low, high + 1, dtype=np.int32)
    # numpy.unique takes three times as long.
    kind = tensor.data.dtype
    unsigned = np.dtype(f"u{kind.itemsize}")
    counts = np.zeros(1 << 8 * kind.itemsize, np.int64)
    for piece in read_elements(tensor.data):
        counts += np.bincount(np.frombuffer(piece, unsigned), minlength=len(counts))
    return np.sort(np.flatnonzero(counts).astype(unsigned).view(kind).astype(np.int32))


def _find_best_scales(sums: _Sums, p: np.float32, q: np.float32) -> tuple[np.float32, np.float32]:
    """Return the scales near p and q with the fewest errors."""
    best, least = (p, q), np.iinfo(np.int64).max
    for moves in _list_moves():
        scales = [base + move * np.spacing(base) for base, move in zip((p, q), moves, strict=True)]
        errors = _count_errors(sums, scales[0], scales[1], least)
        index = int(np.argmin(errors))
        if errors[index] < least:
            best, least = (scales[0][index], scales[1][index]), errors[index]
        if not least:
            break
    return best


def _count_errors(sums: _Sums, p: Array, q: Array, enough: int) -> Array:
    """Return the errors of n scales of inputs: [n]; only the first `enough` errors are counted."""
    errors, left, begin = np.zeros(len(p), np.int64), np.arange(len(p)), 0
    while begin < len(sums.a) and len(left):
        part = slice(begin, begin + max(1, _MOST_NUMBERS // len(left)))
        some = sums._replace(a=sums.a[part], b=sums.b[part], expected=sums.expected[part])
        errors[left] += some.count_errors(p[left], q[left])
        left, begin = left[errors[left] < enough], part.stop
    return errors


@cache
def _list_moves() -> list[Array]:
    """Return the changes of two scales to try, in groups; the smallest changes come first.

    A group is [2, changes], in units in the last place.
    """
    distances = range(-_LONGEST_MOVE, _LONGEST_MOVE + 1)
    moves = sorted(product(distances, repeat=2), key=lambda move: abs(move[0]) + abs(move[1]))
    return np.split(np.array(moves, np.float32).T, _GROUPS, axis=1)


# SQUARED_DIFFERENCE

_UNIT_BITS = 7  # the kernel multiplies inputs by 2^7 and halves the larger scale


class Squares(NamedTuple):
    """Scales with which float32 computes the integers of a SQUARED_DIFFERENCE of int8.

    `reads` replace the scales of the inputs, so that one step of the larger scale is 64, and
    `writes` the scale of the output. `rounded` is the input with the smaller scale: it is rounded,
    multiplied by `factor`, and rounded again. It is None if the scales are equal.
    """

    reads: tuple[Quantization, ...]
    writes: Quantization
    rounded: int | None
    factor: float


def find_squares(a: Tensor, b: Tensor, y: Tensor) -> Squares | None:
    """Return the scales of a SQUARED_DIFFERENCE of int8, None if the kernel refuses the scales.

    The kernel rounds both inputs to 1/64 of a step of the larger scale, and the product of the
    squared difference with the scale, each time twice (`multiply_twice_rounded`).
    """
    inputs, output = [t.quantization for t in (a, b) if t.quantization], y.quantization
    if not are_narrow(a, b, y) or {a.dtype, b.dtype, y.dtype} != {DType.INT8} or not output:
        return None
    scales = [float(each.scale[0]) for each in inputs]
    unit, written = 2 * max(scales), float(output.scale[0])
    if min(*scales, written) <= 0 or unit**2 >= 4.0**_UNIT_BITS * written:
        return None
    terms, reads, factors = [], [], []
    for tensor, quantization in zip((a, b), inputs, strict=True):
        numbers = _list_integers(tensor) - int(quantization.zero_point[0])
        mantissa, exponent = np.frexp(float(quantization.scale[0]) / unit)
        read = _find_read_scale(numbers, float(mantissa))
        terms.append(multiply_twice_rounded(numbers << _UNIT_BITS, mantissa * 2.0**exponent))
        reads.append(replace(quantization, scale=np.array([read])))
        factors.append(2.0**exponent)
    raw = np.unique(np.abs(terms[0][:, None] - terms[1]))
    limit = find_integer_range(y.dtype)[1] - int(output.zero_point[0])
    scale = _find_write_scale(raw**2, unit**2 / (4.0**_UNIT_BITS * written), limit)
    rounded = factors.index(min(factors)) if min(factors) < 1 else None
    writes = replace(output, scale=np.array([scale]))
    return Squares(tuple(reads), writes, rounded, min(factors) * (1 + _SLACK))


def _find_read_scale(numbers: Array, mantissa: float) -> np.float32:
    """Return the scale that rounds integers times 128 and the mantissa of a scale as the kernel."""
    wanted = multiply_twice_rounded(numbers << _UNIT_BITS, mantissa)
    floats = numbers.astype(np.float32)
    start = np.float32(mantissa * 2**_UNIT_BITS)
    return _find_best_scale(start, lambda scale: (np.rint(floats * scale) != wanted).sum())


def _find_write_scale(squares: Array, factor: float, limit: int) -> np.float32:
    """Return the scale by which squares are divided so that they are rounded as by the kernel.

    Results of `limit` and more saturate.
    """
    wanted = np.minimum(multiply_twice_rounded(squares, factor), limit)
    # A square s of the result w is divided right if s / (w + 1/2) < scale < s / (w - 1/2).
    low = (squares / (wanted + 0.5))[wanted < limit].max(initial=0)
    high = (squares[wanted > 0] / (wanted[wanted > 0] - 0.5)).min(initial=np.inf)
    start = np.float32((low + high) / 2 if np.isfinite(high) else 1 / factor)
    floats = squares.astype(np.float32)

    return _find_best_scale(
        start, lambda scale: (np.minimum(np.rint(floats / scale), limit) != wanted).sum()
    )


def _find_best_scale(start: np.float32, count_errors: Callable[[np.float32], Any]) -> np.float32:
    """Return the scale near a scale that has the fewest errors."""
    moves = sorted(range(-_LONGEST_MOVE, _LONGEST_MOVE + 1), key=abs)
    return min((start + move * np.spacing(start) for move in moves), key=count_errors)


def multiply_twice_rounded(numbers: Array, factor: float) -> Array:
    """Return int32 numbers times a factor as LiteRT's plain kernels round the product.

    The factor becomes a mantissa of 31 bits and a power of 2 (QuantizeMultiplier). The product with
    the mantissa is rounded, and then its quotient by the power, half away from 0
    (MultiplyByQuantizedMultiplier).
    """
    mantissa, shift = np.frexp(np.float64(factor))
    whole = np.asarray(numbers, np.int64) * 2 ** max(int(shift), 0)
    product = whole * int(np.floor(mantissa * 2.0**31 + 0.5))
    high = np.sign(product) * ((np.abs(product) + (1 << 30)) >> 31)
    bits = max(-int(shift), 0)
    return np.asarray(np.sign(high) * ((np.abs(high) + ((1 << bits) >> 1)) >> bits))

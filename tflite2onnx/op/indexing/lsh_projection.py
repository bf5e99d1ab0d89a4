"""LSH_PROJECTION: a locality-sensitive hash, from hashes of the bytes of all items."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np

from tflite2onnx.op.base import Builder, Operator, OperatorError, OutputShape, Value, View
from tflite2onnx.op.common.unsigned import UnsignedInt
from tflite2onnx.op.movement.bitcast import split_words
from tflite2onnx.quantization.declarations import Integers
from tflite2onnx.tensor import DType

_SPARSE, _DENSE = 1, 2
_MOST_BITS = 31  # with 32 bits the kernel shifts a number by its width, which C does not define
_MOST_BYTES = 256  # the largest number of bytes of a key: 64 bytes take about 200 nodes
_BYTE, _SEED = 8, 4

# The constants of FarmHash.
_K0, _K1, _K2 = 0xC3A5C85C97CB3127, 0xB492B66FBE98F273, 0x9AE16A3B2F90404F


class LshProjection(Operator):
    """The signs of weighted sums of the hashes of all items, one for each seed.

    A hash is FarmHash's 64-bit fingerprint of the bytes of the seed and of the item. The number of
    bytes is constant, so the hash is arithmetic only. SPARSE combines the bits of each row of
    seeds into one number.
    """

    codes = ("LSH_PROJECTION",)
    operands = "float32# [seeds bits], bool|integers|float32 [items ...], float32? [items] -> int32"
    quantization = Integers(in_file_types=True)

    @cached_property
    def _item(self) -> int:
        """The number of bytes of an item."""
        items = self.input(1)
        if not items.elements:
            raise OperatorError(
                f"{items.name} must have at least one item, got the shape {list(items.shape)}"
            )
        size = items.elements // items.shape[0] * (items.dtype.bits // _BYTE)
        if size + _SEED > _MOST_BYTES:
            raise OperatorError(
                f"an item must have at most {_MOST_BYTES - _SEED} bytes, because its hash would "
                f"take thousands of nodes, got {size}"
            )
        return size

    def infer_outputs(self) -> Sequence[OutputShape]:
        seeds = self.input(0)
        return [(seeds.shape[0] if self.options.type == _SPARSE else seeds.elements,)]

    def check(self) -> None:
        seeds, _ = self.input(0), self._item  # the property raises OperatorError
        if not 0 < seeds.shape[1] <= _MOST_BITS:
            raise OperatorError(
                f"{seeds.name} must have 1 to {_MOST_BITS} columns, got {seeds.shape[1]}"
            )
        if self.options.type not in (_SPARSE, _DENSE):
            raise OperatorError(f"type must be 1 (SPARSE) or 2 (DENSE), got {self.options.type}")

    def emit(
        self, g: Builder, y: View, seeds: View, items: View, weights: View | None = None
    ) -> Value:
        hashes = g.cast(compute_fingerprint(self._make_key(g, seeds, items)).value, DType.INT64)
        hashes = g.cast(hashes, DType.FLOAT64)
        if weights is not None:
            hashes = g.Mul(hashes, g.cast(weights, DType.FLOAT64))
        score = g.reduce("ReduceSum", hashes, [1], keepdims=False)
        bits = g.cast(g.Greater(score, g.scalar(0, DType.FLOAT64)), DType.INT64)
        if self.options.type == _DENSE:
            return g.cast(bits, DType.INT32)
        count, size = seeds.shape
        powers = np.array([1 << place for place in reversed(range(size))], np.int64)
        parts = g.Mul(g.reshape(bits, [count, size]), powers)
        numbers = g.reduce("ReduceSum", parts, [1], keepdims=False)
        return g.cast(g.Add(numbers, np.arange(count, dtype=np.int64) << size), DType.INT32)

    def _make_key(self, g: Builder, seeds: View, items: View) -> HashKey:
        """Return the bytes to hash: a row for each seed and a column for each item."""
        unit = min(items.dtype.bits, 32)
        narrow = np.ascontiguousarray(seeds.constant.reshape(-1, 1)).view(f"<u{unit // _BYTE}")
        columns = [g.constant(word[:, None]) for word in narrow.T.astype(np.uint64)]
        split = split_words(g, items.value, items.dtype, unit)
        rows = g.reshape(split, [items.shape[0], self._item * _BYTE // unit])
        columns += [
            g.Transpose(g.Gather(rows, [i], axis=1), perm=[1, 0])
            for i in range(self._item * _BYTE // unit)
        ]
        return HashKey([UnsignedInt(g, column, DType.UINT64) for column in columns], unit // _BYTE)


class HashKey(NamedTuple):
    """Bytes to hash, as words of `unit` bytes each."""

    words: Sequence[UnsignedInt]
    unit: int

    def __len__(self) -> int:
        return len(self.words) * self.unit

    def fetch(self, start: int, count: int = 8) -> UnsignedInt:
        """Return `count` bytes from `start` on as a little-endian number."""
        first = start // self.unit
        parts = self.words[first : first + count // self.unit]
        number = parts[0]
        for place, part in enumerate(parts[1:], 1):
            number = number + (part << place * self.unit * _BYTE)
        return number


def compute_fingerprint(key: HashKey) -> UnsignedInt:
    """Return FarmHash's Fingerprint64 (farmhashna::Hash64) of five bytes or more."""
    size = len(key)
    return next(make for limit, make in _HASHES if size <= limit)(key, size)


def _mix_words(u: UnsignedInt, v: UnsignedInt, factor: UnsignedInt | int) -> UnsignedInt:
    a = (u ^ v) * factor
    b = (v ^ a ^ (a >> 47)) * factor
    return (b ^ (b >> 47)) * factor


def _hash_16_bytes(key: HashKey, size: int) -> UnsignedInt:
    factor = _K2 + size * 2
    if size >= 8:  # one word
        a, b = key.fetch(0) + _K2, key.fetch(size - 8)
        c = _rotate_right(b, 37) * factor + a
        d = (_rotate_right(a, 25) + b) * factor
        return _mix_words(c, d, factor)
    return _mix_words((key.fetch(0, 4) << 3) + size, key.fetch(size - 4, 4), factor)


def _mix_ends(key: HashKey, size: int, first: int) -> tuple[UnsignedInt, UnsignedInt, UnsignedInt]:
    """Return words of the first and the last 16 bytes, then the hash of these words."""
    factor = _K2 + size * 2
    a, b = key.fetch(0) * first, key.fetch(8)
    c, d = key.fetch(size - 8) * factor, key.fetch(size - 16) * _K2
    y = _rotate_right(a + b, 43) + _rotate_right(c, 30) + d
    return a, y, _mix_words(y, a + _rotate_right(b + _K2, 18) + c, factor)


def _hash_32_bytes(key: HashKey, size: int) -> UnsignedInt:
    return _mix_ends(key, size, _K1)[-1]


def _hash_64_bytes(key: HashKey, size: int) -> UnsignedInt:
    factor, (a, y, z) = _K2 + size * 2, _mix_ends(key, size, _K2)
    e, f = key.fetch(16) * factor, key.fetch(24)
    g, h = (y + key.fetch(size - 32)) * factor, (z + key.fetch(size - 24)) * factor
    return _mix_words(
        _rotate_right(e + f, 43) + _rotate_right(g, 30) + h,
        e + _rotate_right(f + a, 18) + g,
        factor,
    )


def _rotate_right(word: UnsignedInt, places: int) -> UnsignedInt:
    return word.rotate_left(word.dtype.bits - places)


class _HashState(NamedTuple):
    """The state of the hash of a long key after each 64 bytes."""

    x: UnsignedInt
    y: UnsignedInt
    z: UnsignedInt
    v: tuple[UnsignedInt, UnsignedInt]
    w: tuple[UnsignedInt, UnsignedInt]


def _hash_long(key: HashKey, size: int) -> UnsignedInt:
    seed, start = 81, key.fetch(0)
    zero = start ^ start
    y = (seed * _K1 + 113) % 2**64
    z = (y * _K2 + 113) % 2**64
    z = ((z ^ (z >> 47)) * _K2) % 2**64
    state = _HashState(start + seed * _K2 % 2**64, zero + y, zero + z, (zero, zero), (zero, zero))
    end = (size - 1) // 64 * 64
    for at in range(0, end, 64):
        state = _mix_block(state, key, at, _K1, 1)
    factor = ((state.z & 0xFF) << 1) + _K1
    w = state.w[0] + (size - 1) % 64
    v = state.v[0] + w
    state = state._replace(v=(v, state.v[1]), w=(w + v, state.w[1]))
    state = _mix_block(state, key, size - 64, factor, 9)
    first = _mix_words(state.v[0], state.w[0], factor) + (state.y ^ (state.y >> 47)) * _K0 + state.z
    second = _mix_words(state.v[1], state.w[1], factor) + state.x
    return _mix_words(first, second, factor)


def _mix_block(
    state: _HashState, key: HashKey, at: int, factor: UnsignedInt | int, times: int
) -> _HashState:
    """Return the state after 64 bytes; `times` is 9 for the last 64 bytes and 1 for others."""
    x, y, z, v, w = state
    x = _rotate_right(x + y + v[0] + key.fetch(at + 8), 37) * factor
    y = _rotate_right(y + v[1] + key.fetch(at + 48), 42) * factor
    x = x ^ (w[1] * times)
    y = y + v[0] * times + key.fetch(at + 40)
    z = _rotate_right(z + w[0], 33) * factor
    v = _hash_weakly(key, at, v[1] * factor, x + w[0])
    w = _hash_weakly(key, at + 32, z + w[1], y + key.fetch(at + 16))
    return _HashState(z, y, x, v, w)


def _hash_weakly(
    key: HashKey, at: int, a: UnsignedInt, b: UnsignedInt
) -> tuple[UnsignedInt, UnsignedInt]:
    first, two, three, four = (key.fetch(at + place) for place in (0, 8, 16, 24))
    a = a + first
    b = _rotate_right(b + a + four, 21)
    c = a
    a = a + two + three
    return a + four, b + _rotate_right(a, 44) + c


# The hash functions, and the largest number of bytes that each is used for.
_HASHES: Sequence[tuple[float, Callable[[HashKey, int], UnsignedInt]]] = (
    (16, _hash_16_bytes),
    (32, _hash_32_bytes),
    (64, _hash_64_bytes),
    (np.inf, _hash_long),
)

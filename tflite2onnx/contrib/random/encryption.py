"""Threefry and Philox: random words of 32 bits, each block of them an encrypted counter."""

from collections.abc import Sequence

from tflite2onnx.operators import Builder, DType, UnsignedInt

# Constants of Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3" (SC 2011).
_PARITY = 0x1BD11BDA
_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PHILOX_FACTORS = 0xD2511F53, 0xCD9E8D57
_PHILOX_STEPS = 0x9E3779B9, 0xBB67AE85


def stack_words(g: Builder, words: Sequence[UnsignedInt]) -> UnsignedInt:
    """Return vectors of integers as the columns of a matrix."""
    columns = [g.Unsqueeze(word.value, [1]) for word in words]
    return UnsignedInt(g, g.Concat(*columns, axis=1), words[0].dtype)


def split_halves(word: UnsignedInt) -> tuple[UnsignedInt, UnsignedInt]:
    """Return the low and the high 32 bits of uint64, each as uint32."""
    return word.as_type(DType.UINT32), (word >> 32).as_type(DType.UINT32)


def join_halves(low: UnsignedInt, high: UnsignedInt) -> UnsignedInt:
    """Return uint64 of their low and high 32 bits."""
    return low.as_type(DType.UINT64) + (high.as_type(DType.UINT64) << 32)


def encrypt_with_threefry(
    key: tuple[UnsignedInt, UnsignedInt], counter: tuple[UnsignedInt, UnsignedInt]
) -> tuple[UnsignedInt, UnsignedInt]:
    """Return counters encrypted by Threefry-2x32 with 20 rounds."""
    keys = (*key, key[0] ^ key[1] ^ _PARITY)
    x, y = counter[0] + keys[0], counter[1] + keys[1]
    for group in range(1, 6):
        for places in _ROTATIONS[(group - 1) % 2]:
            x = x + y
            y = y.rotate_left(places) ^ x
        x, y = x + keys[group % 3], y + keys[(group + 1) % 3] + group
    return x, y


def encrypt_with_philox(
    key: tuple[UnsignedInt, UnsignedInt], counter: Sequence[UnsignedInt]
) -> tuple[UnsignedInt, ...]:
    """Return counters encrypted by Philox-4x32 with 10 rounds."""
    a, b, c, d = counter
    for _ in range(10):
        low, high = split_halves(a.as_type(DType.UINT64) * _PHILOX_FACTORS[0])
        other_low, other_high = split_halves(c.as_type(DType.UINT64) * _PHILOX_FACTORS[1])
        a, b, c, d = other_high ^ b ^ key[0], other_low, high ^ d ^ key[1], low
        key = key[0] + _PHILOX_STEPS[0], key[1] + _PHILOX_STEPS[1]
    return a, b, c, d

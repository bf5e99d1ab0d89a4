"""STABLEHLO_RNG_BIT_GENERATOR: pseudorandom bits, a function of a state."""

from collections.abc import Sequence

from tflite2onnx.op.base import Builder, Operator, OperatorError, Value, View
from tflite2onnx.op.common.unsigned import UnsignedInt, split_words, stack_words
from tflite2onnx.op.movement.bitcast import join_words
from tflite2onnx.tensor import DType

_THREEFRY = 2  # each other value of the option is Philox
_WORD = 32

# Constants of Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3" (SC 2011).
_PARITY = 0x1BD11BDA
_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PHILOX_FACTORS = 0xD2511F53, 0xCD9E8D57
_PHILOX_STEPS = 0x9E3779B9, 0xBB67AE85


class RandomBits(Operator):
    """Bits of Threefry or Philox: each block of bits is an encrypted counter.

    The outputs are the new state, whose counter has advanced by the number of blocks, and the bits.

    The state, uint64, is a key and a counter. With Philox, a third element may be the high half of
    a counter of 128 bits; without it, the key is the high half.
    """

    codes = ("STABLEHLO_RNG_BIT_GENERATOR",)
    operands = "uint64 [state] -> uint64 [state], int32|int64|uint32|uint64"

    @property
    def _is_threefry(self) -> bool:
        return bool(self.options.algorithm == _THREEFRY)

    def check(self) -> None:
        number, sizes = self.input(0).elements, (2,) if self._is_threefry else (2, 3)
        if number not in sizes:
            raise OperatorError(
                f"its state must have {' or '.join(map(str, sizes))} elements, got {number}"
            )

    def emit(self, g: Builder, ys: tuple[View, View], state: View) -> tuple[Value, Value]:
        output = ys[1]
        per_element = output.dtype.bits // _WORD
        words = output.tensor.elements * per_element
        per_block = 2 if self._is_threefry else 4
        blocks = -(-words // per_block)

        def read_state_word(index: int) -> UnsignedInt:
            return UnsignedInt(g, g.Slice(state, [index], [index + 1], [0]), DType.UINT64)

        count = UnsignedInt(g, g.cast(g.Range(0, blocks, 1), DType.UINT64), DType.UINT64)
        key, counter = split_words(read_state_word(0)), split_words(read_state_word(1) + count)
        if self._is_threefry:
            results: Sequence[UnsignedInt] = encrypt_with_threefry(key, counter)
        else:
            rest = key if state.shape == (2,) else split_words(read_state_word(2))
            results = encrypt_with_philox(key, (*counter, *rest))
        flat = g.reshape(stack_words(g, results).value, [blocks * per_block])
        bits = g.Slice(flat, [0], [words], [0])
        if per_element > 1:
            pairs = g.reshape(bits, [output.tensor.elements, 2])
            bits = join_words(g, pairs, DType.UINT32, DType.UINT64)
        unsigned = DType.UINT32 if per_element == 1 else DType.UINT64
        parts = [read_state_word(index).value for index in range(2, state.shape[0])]
        after = g.Concat(
            read_state_word(0).value, (read_state_word(1) + blocks).value, *parts, axis=0
        )
        return after, g.reshape(g.recast(bits, unsigned, output.dtype), output.shape)


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
        low, high = split_words(a.as_type(DType.UINT64) * _PHILOX_FACTORS[0])
        other_low, other_high = split_words(c.as_type(DType.UINT64) * _PHILOX_FACTORS[1])
        a, b, c, d = other_high ^ b ^ key[0], other_low, high ^ d ^ key[1], low
        key = key[0] + _PHILOX_STEPS[0], key[1] + _PHILOX_STEPS[1]
    return a, b, c, d

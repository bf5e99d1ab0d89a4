"""STABLEHLO_RNG_BIT_GENERATOR: pseudorandom bits, a function of a state."""

from collections.abc import Sequence

from tflite2onnx.contrib.random.encryption import (
    encrypt_with_philox,
    encrypt_with_threefry,
    join_halves,
    split_halves,
    stack_words,
)
from tflite2onnx.operators import Builder, DType, Operator, OperatorError, UnsignedInt, Value, View

_THREEFRY = 2  # each other value of the option is Philox
_WORD = 32


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
        per_block = 2 if self._is_threefry else 4
        blocks = -(-output.tensor.elements * per_element // per_block)

        def read_state_word(index: int) -> UnsignedInt:
            return UnsignedInt(g, g.Slice(state, [index], [index + 1], [0]), DType.UINT64)

        count = UnsignedInt(g, g.cast(g.Range(0, blocks, 1), DType.UINT64), DType.UINT64)
        key, counter = split_halves(read_state_word(0)), split_halves(read_state_word(1) + count)
        if self._is_threefry:
            results: Sequence[UnsignedInt] = encrypt_with_threefry(key, counter)
        else:
            rest = key if state.shape == (2,) else split_halves(read_state_word(2))
            results = encrypt_with_philox(key, (*counter, *rest))
        if per_element > 1:
            results = [*map(join_halves, results[::2], results[1::2])]
        flat = g.reshape(stack_words(g, results).value, [-1])
        bits = g.Slice(flat, [0], [output.tensor.elements], [0])
        unsigned = DType.UINT32 if per_element == 1 else DType.UINT64
        parts = [read_state_word(index).value for index in range(2, state.shape[0])]
        after = g.Concat(
            read_state_word(0).value, (read_state_word(1) + blocks).value, *parts, axis=0
        )
        return after, g.reshape(g.recast(bits, unsigned, output.dtype), output.shape)

"""Custom operators of GPU delegates that rotate data by positions, or add positions to data."""

from collections.abc import Sequence
from math import inf

import numpy as np

from tflite2onnx.op.base import Builder, OperatorError, Value, View
from tflite2onnx.op.common.checks import check_element_count, expect
from tflite2onnx.op.traits import AnySizes
from tflite2onnx.tensor import Array, DType

_LANES = 4  # channels that the kernels compute at once
# The options of a rotation, by their names; the first name of a file counts.
_LEAST, _LARGEST = ("min_timescale",), ("max_timescale", "base", "rope_theta", "theta")
_PROPORTION = ("proportion", "partial_rotary_factor")


class _Positions(AnySizes):
    """Base class: data, [batch, heads, tokens, depth], and a position for each token."""

    matrix_axes = 1
    dynamic_axes = ""

    def check_halves(self, depth: int) -> None:
        """Raise OperatorError unless the depth is two halves of whole lanes."""
        if depth % (2 * _LANES) or not depth:
            raise OperatorError(f"the depth must be a multiple of {2 * _LANES}, got {depth}")
        check_element_count(depth)

    def emit_waves(self, g: Builder, positions: View, frequencies: Array) -> tuple[Value, Value]:
        """Return cosines and sines of positions, [batch, 1, tokens, 1], times frequencies."""
        places = g.recast(positions, positions.dtype, DType.FLOAT32)
        angles = g.Mul(places, frequencies.astype(np.float32))
        return g.Cos(angles), g.Sin(angles)


class PositionalRotation(_Positions):
    """custom_call.rotary_positional_embedding, odml.rope: rotate pairs of channels by positions.

    With two inputs, channel i and channel i + depth / 2 are a pair. With three inputs, the first
    two are the channels of the pairs. Pair i of n is rotated by the position times (1 / least) *
    (least / largest) ** (i / n). The last pairs stay as they are, if a `proportion` is given.
    """

    codes = ("custom_call.rotary_positional_embedding", "odml.rope")
    operands = (
        "float32 [batch heads tokens depth], float32|int32, float32|int32?"
        "-> float32 [batch heads tokens depth], float32? [batch heads tokens depth]"
    )

    def check(self) -> None:
        *parts, positions = self.op.present
        if len(self.op.outputs) != len(parts):
            raise OperatorError(
                f"it must have {len(parts)} outputs for {len(parts) + 1} inputs, got"
                f" {len(self.op.outputs)}"
            )
        for part in parts:
            expect(part, parts[0].shape, DType.FLOAT32)
        batch, _, tokens, depth = parts[0].shape
        if positions.shape not in ((1, 1, tokens, 1), (batch, 1, tokens, 1)):
            raise OperatorError(
                f"positions must be {[batch, 1, tokens, 1]}, got {list(positions.shape)}"
            )
        if len(parts) == 1:
            self.check_halves(depth)
        if self.options.get("kernel_type", 0) != 0:
            raise OperatorError(f"its kernel_type must be 0, got {self.options.kernel_type}")
        least, largest, proportion = self._read_options()
        if not 0 < least < inf or not 0 < largest < inf or not 0 <= proportion < inf:
            raise OperatorError(
                "its timescales must be positive and its proportion at least 0, got"
                f" {least:g}, {largest:g} and {proportion:g}"
            )

    def _read_options(self) -> tuple[float, float, float]:
        """Return the least and the largest timescale, and the proportion of pairs that turn."""
        read = []
        for names, usual in ((_LEAST, 1.0), (_LARGEST, 1e4), (_PROPORTION, 1.0)):
            name = next((name for name in names if name in self.options), "")
            read.append(float(self.options.get(name, usual)))
        return read[0], read[1], read[2]

    def emit(self, g: Builder, ys: Sequence[View], *xs: View) -> tuple[Value, ...]:
        *parts, positions = xs
        halves: Sequence[Value] = [part.value for part in parts]
        if len(parts) == 1:
            size = parts[0].shape[-1] // 2
            halves = g.node_outputs("Split", 2, parts[0], [size, size], axis=-1)
        depth = parts[0].shape[-1] * len(parts) // 2
        cosines, sines = self.emit_waves(g, positions, self._find_frequencies(depth))
        first, second = halves
        turned = (
            g.Sub(g.Mul(first, cosines), g.Mul(second, sines)),
            g.Add(g.Mul(second, cosines), g.Mul(first, sines)),
        )
        return turned if len(parts) > 1 else (g.Concat(*turned, axis=-1),)

    def _find_frequencies(self, pairs: int) -> Array:
        """Return the frequency of each pair; 0 for a pair that is not rotated."""
        least, largest, proportion = self._read_options()
        fractions = np.arange(pairs) / pairs
        # The kernel compares the last lane of each four pairs with the proportion.
        last = (np.arange(pairs) // _LANES * _LANES + _LANES - 1).astype(np.float32)
        turns = last * np.float32(1 / pairs) < np.float32(proportion)
        frequencies: Array = np.where(turns, (largest / least) ** -fractions / least, 0)
        return frequencies


class PositionalEncoding(_Positions):
    """custom_call.absolute_positional_embedding: add sines, then cosines, of the positions.

    The frequencies are the powers from 1 to 1 / 10,000, for each half of the channels.
    """

    codes = ("custom_call.absolute_positional_embedding",)
    operands = "float32 [batch heads tokens depth], float32|int32 [1 1 tokens 1] -> float32"
    keeps_shape = True

    def check(self) -> None:
        self.check_halves(self.input(0).shape[-1])

    def emit(self, g: Builder, y: View, x: View, positions: View) -> Value:
        half = x.shape[-1] // 2
        frequencies = 1e4 ** -(np.arange(half) / (half - 1))
        cosines, sines = self.emit_waves(g, positions, frequencies)
        return g.Add(x, g.Concat(sines, cosines, axis=-1))

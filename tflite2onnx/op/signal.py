"""The front end of microcontrollers: sound as features, in integers, like TFLite Micro's."""

from __future__ import annotations

import numpy as np

from tflite2onnx.op.base import Builder, OperatorError, Value, View
from tflite2onnx.op.parameters import expect, ints
from tflite2onnx.op.signal_parts import (
    WORD,
    Signal,
    bit_length,
    larger,
    powers,
    scalars,
    shifted,
    smaller,
)
from tflite2onnx.tensor import Array, DType

_COMPLEX = 2  # numbers
# Natural logarithms as log2(1 + x) - x in 128 steps, in units of 2 ** -16; of log.cc.
_SEGMENTS, _LOG_BITS, _LN2 = 128, 16, 45426
_HALF = 1 << (_LOG_BITS - 1)
# Fractional bits of PCAN's signal-to-noise ratio, and of its output.
_SNR_BITS, _OUTPUT_BITS = 12, 6


class SignalWindow(Signal):
    """SignalWindow: samples times the weights of a window, shifted to the right, saturated."""

    codes = ("SignalWindow",)

    def check(self) -> None:
        x, size = self.input(0), self.vector(1, DType.INT16)
        if x.shape[-1:] != (size,):
            message = f"a window of {size} for samples {list(x.shape)}"
            raise OperatorError(message)
        expect(x, x.shape, DType.INT16)
        expect(self.output, x.shape, DType.INT16)
        self.option("shift")

    def emit(self, g: Builder, y: View, x: View, window: View) -> Value:
        product = g.Mul(*(g.cast(v, DType.INT64) for v in (x, window)))
        made = shifted(g, product, self.option("shift"))
        least, most = (g.scalar(n, DType.INT64) for n in (-(1 << 15), (1 << 15) - 1))
        return g.cast(g.clamped(made, least, most), DType.INT16)


class SignalFftAutoScale(Signal):
    """SignalFftAutoScale: as many bits to the left as there is room for, and how many these are.

    (Of -32768 the kernel cannot take the absolute value; it leaves no room.)
    """

    codes = ("SignalFftAutoScale",)
    many_outputs = True

    def check(self) -> None:
        size = self.vector(0, DType.INT16)
        if len(self.op.outputs) != 2:
            message = f"{len(self.op.outputs)} outputs, not 2"
            raise OperatorError(message)
        scaled, bits = self.op.outputs
        expect(scaled, (size,), DType.INT16)
        expect(bits, (1,) * bits.rank, DType.INT32)

    def emit(self, g: Builder, ys: tuple[View, View], x: View) -> tuple[Value, Value]:
        wide = g.cast(x, DType.INT64)
        largest = g.reduce("ReduceMax", g.Abs(wide), [0], keepdims=True)
        room = g.Sub(g.scalar(15, DType.INT64), bit_length(g, largest, 16))
        silent = g.Equal(largest, g.scalar(0, DType.INT64))
        none = g.scalar(0, DType.INT64)
        bits = g.Where(silent, none, larger(g, room, none))
        scaled = g.Mul(wide, g.Gather(powers(16), bits))
        return g.cast(scaled, DType.INT16), g.reshape(g.cast(bits, DType.INT32), ys[1].shape)


class SignalEnergy(Signal):
    """SignalEnergy: the squares of complex numbers, within a range; 0 beyond."""

    codes = ("SignalEnergy",)

    def _range(self, size: int) -> tuple[int, int]:
        """Return the first complex number of the range, and the first behind it."""
        return self.option("start_index", 0, size), self.option("end_index", 0, size)

    def check(self) -> None:
        size, rest = divmod(self.vector(0, DType.INT16), _COMPLEX)
        start, end = self._range(size)
        if rest or start > end:
            message = f"complex numbers {start} to {end} of {size}"
            raise OperatorError(message)
        expect(self.output, (size,), DType.UINT32)

    def emit(self, g: Builder, y: View, x: View) -> Value:
        (size,) = y.shape
        pairs = g.cast(g.reshape(x, (size, _COMPLEX)), DType.INT64)
        energy = g.reduce("ReduceSum", g.Mul(pairs, pairs), [1], keepdims=False)
        start, end = self._range(size)
        if (start, end) != (0, size):
            within = (np.arange(size) >= start) & (np.arange(size) < end)
            energy = g.Mul(energy, within.astype(np.int64))
        return g.cast(energy, DType.UINT32)


class SignalFilterBank(Signal):
    """SignalFilterBank: energies added up in overlapping bands, by weights that are constant."""

    codes = ("SignalFilterBank",)

    def check(self) -> None:
        size = self.vector(0, DType.UINT32)
        for i in range(1, 6):
            self.vector(i, DType.INT16)
        expect(self.output, (self._matrix(size).shape[1],), DType.UINT64)

    def emit(self, g: Builder, y: View, x: View, *_: View) -> Value:
        matrix = self._matrix(x.shape[0])
        return g.cast(g.MatMul(g.cast(x, DType.INT64), matrix), DType.UINT64)

    def _matrix(self, size: int) -> Array:
        """Return the weight of each frequency in each band, int64 [size, bands].

        What a frequency does not give to one band it gives to the next. The first band there is
        serves for that alone.
        """
        weights, unweights, starts, places, widths = (ints(self, i) for i in range(1, 6))
        bands = self.option("num_channels", 1, size)
        if min(len(starts), len(places), len(widths)) <= bands:
            message = f"{bands} bands of {len(widths)}"
            raise OperatorError(message)
        matrix = np.zeros((size, bands + 2), np.int64)
        for band in range(bands + 1):
            width, start, place = widths[band], starts[band], places[band]
            parts = weights[place : place + width], unweights[place : place + width]
            if width < 0 or min(start, place) < 0 or start + width > size:
                message = f"a band of {width} frequencies from {start} of {size}"
                raise OperatorError(message)
            for offset, part in enumerate(parts):
                matrix[start : start + width, band + offset] += np.array(part, np.int64)
        if matrix.min() < 0 or int(matrix.sum(0).max()) >= 1 << (63 - WORD):
            message = "its weights are negative, or too large"
            raise OperatorError(message)
        return matrix[:, 1 : bands + 1]


class SignalFilterBankSquareRoot(Signal):
    """SignalFilterBankSquareRoot: roots, rounded, of which so many bits are dropped."""

    codes = ("SignalFilterBankSquareRoot",)

    def check(self) -> None:
        size = self.vector(0, DType.UINT64)
        bits = self.input(1)
        expect(bits, (1,) * bits.rank, DType.INT32)
        expect(self.output, (size,), DType.UINT32)

    def emit(self, g: Builder, y: View, x: View, bits: View) -> Value:
        one = g.scalar(1, DType.INT64)
        value = g.cast(x, DType.INT64)
        root = g.cast(g.Floor(g.Sqrt(g.cast(value, DType.FLOAT64))), DType.INT64)
        # A double has 53 bits, and so the root may be one off.
        root = g.Sub(root, g.cast(g.Greater(g.Mul(root, root), value), DType.INT64))
        above = g.Add(root, one)
        root = g.Add(root, g.cast(g.LessOrEqual(g.Mul(above, above), value), DType.INT64))
        # The kernel rounds up, but not beyond 16 bits.
        up = g.And(
            g.Greater(g.Sub(value, g.Mul(root, root)), root),
            g.Not(g.Equal(root, g.scalar(0xFFFF, DType.INT64))),
        )
        rounded = g.cast(g.Add(root, g.cast(up, DType.INT64)), DType.UINT32)
        drop = g.cast(g.reshape(bits, (1,)), DType.UINT32)
        return g.BitShift(rounded, drop, direction="RIGHT")


class SignalFilterBankLog(Signal):
    """SignalFilterBankLog: natural logarithms, by a table of 128 steps for each power of two."""

    codes = ("SignalFilterBankLog",)

    def check(self) -> None:
        size = self.vector(0, DType.UINT32)
        expect(self.output, (size,), DType.INT16)
        self.option("input_correction_bits")
        _ = self._scale  # checks it

    @property
    def _scale(self) -> int:
        return self.option("output_scale", 0, (1 << 31) - 1)

    def emit(self, g: Builder, y: View, x: View) -> Value:
        number = scalars(g)
        word = number(1 << WORD)
        scaled = g.Mul(g.cast(x, DType.INT64), number(1 << self.option("input_correction_bits")))
        scaled = g.Mod(scaled, word)
        whole = g.Sub(bit_length(g, larger(g, scaled, number(1)), WORD), number(1))
        power = g.Gather(powers(WORD), whole)
        part = g.Div(g.Mul(g.Sub(scaled, power), number(1 << _LOG_BITS)), power)
        part = larger(g, part, number(0))
        segment = g.Div(part, number((1 << _LOG_BITS) // _SEGMENTS))
        table = _log_table()
        here, there = (g.Gather(table[i : i + _SEGMENTS], segment) for i in (0, 1))
        within = g.Mod(part, number((1 << _LOG_BITS) // _SEGMENTS))
        between = shifted(g, g.Mul(g.Sub(there, here), within), _LOG_BITS)
        binary = g.Add(g.Mul(whole, number(1 << _LOG_BITS)), g.Add(g.Add(part, here), between))
        natural = shifted(g, g.Add(g.Mul(binary, number(_LN2)), number(_HALF)), _LOG_BITS)
        grown = g.Add(g.Mul(natural, number(self._scale)), number(_HALF))
        made = smaller(g, shifted(g, g.Mod(grown, word), _LOG_BITS), number((1 << 15) - 1))
        loud = g.Greater(scaled, number(1))
        return g.cast(g.Where(loud, made, number(0)), DType.INT16)


class SignalPcan(Signal):
    """SignalPCAN: gain control for each band, by a table over the noise in it."""

    codes = ("SignalPCAN",)

    def check(self) -> None:
        size = self.vector(0, DType.UINT32)
        expect(self.input(1), (size,), DType.UINT32)
        if self.vector(2, DType.INT16) < 4 * WORD - 3:
            message = f"a table of {self.input(2).elements} gains"
            raise OperatorError(message)
        expect(self.output, (size,), DType.UINT32)
        self.option("snr_shift")

    def emit(self, g: Builder, y: View, x: View, noise: View, gains: View) -> Value:
        number = scalars(g)
        gain = self._gain(g, g.cast(noise, DType.INT64), g.cast(gains, DType.INT64))
        product = g.Mul(g.cast(x, DType.INT64), gain)
        ratio = g.Mod(shifted(g, product, self.option("snr_shift")), number(1 << WORD))
        small = shifted(g, g.Mul(ratio, ratio), 2 + 2 * _SNR_BITS - _OUTPUT_BITS)
        large = g.Sub(
            shifted(g, ratio, _SNR_BITS - _OUTPUT_BITS), number(1 << _OUTPUT_BITS)
        )
        made = g.Where(g.Less(ratio, number(2 << _SNR_BITS)), small, large)
        return g.cast(made, DType.UINT32)

    @staticmethod
    def _gain(g: Builder, noise: Value, gains: Value) -> Value:
        """Return a parabola's value: the table has three numbers for each power of two."""
        number = scalars(g)
        interval = bit_length(g, noise, WORD)
        place = larger(g, g.Sub(g.Mul(interval, number(4)), number(6)), number(0))
        power = g.Gather(powers(WORD + 1), interval)
        within = g.Mod(g.Div(g.Mul(noise, number(1 << 11)), power), number(1 << 10))
        base, linear, square = (g.Gather(gains, g.Add(place, number(i))) for i in range(3))
        slope = g.Add(shifted(g, g.Mul(square, within), 5), g.Mul(linear, number(1 << 5)))
        rise = shifted(g, g.Add(g.Mul(slope, within), number(1 << 14)), 15)
        wide = g.cast(g.cast(g.Add(rise, base), DType.INT16), DType.INT64)
        few = g.Gather(gains, smaller(g, noise, number(2)))
        return g.Where(g.LessOrEqual(noise, number(2)), few, wide)


def _log_table() -> Array:
    """Return log2(1 + x) - x at x = i / 128, in units of 2 ** -16, as the kernel has them."""
    x = np.arange(_SEGMENTS + 1) / _SEGMENTS
    return np.rint((np.log2(1 + x) - x) * (1 << _LOG_BITS)).astype(np.int64)

"""The front end of microcontrollers: sound as features, in integers, like TFLite Micro's."""

from __future__ import annotations

import numpy as np

from tflite2onnx.op.base import Builder, OperatorError, Value, View
from tflite2onnx.op.common.checks import check_element_count, expect, ints
from tflite2onnx.op.signal.frontend_steps import apply_gain, logarithm, square_root
from tflite2onnx.op.signal.tflm_base import (
    WORD,
    Signal,
    bit_length,
    emit_maximum,
    emit_minimum,
    powers,
    shift_right,
)
from tflite2onnx.tensor import Array, DType

_COMPLEX = 2  # numbers


class SignalWindow(Signal):
    """SignalWindow: samples times the weights of a window, shifted to the right, saturated."""

    codes = ("SignalWindow",)

    def check(self) -> None:
        x, size = self.input(0), self.vector(1, DType.INT16)
        if x.shape[-1:] != (size,):
            raise OperatorError(f"a window of {size} for samples {list(x.shape)}")
        expect(x, x.shape, DType.INT16)
        expect(self.output, x.shape, DType.INT16)
        self.option("shift")

    def emit(self, g: Builder, y: View, x: View, window: View) -> Value:
        product = g.Mul(*(g.cast(v, DType.INT64) for v in (x, window)))
        made = shift_right(g, product, self.option("shift"))
        least, most = (g.scalar(n, DType.INT64) for n in (-(1 << 15), (1 << 15) - 1))
        return g.cast(g.clamp_int64(made, least, most), DType.INT16)


class SignalFftAutoScale(Signal):
    """SignalFftAutoScale: as many bits to the left as there is room for, and how many these are.

    (Of -32768 the kernel cannot take the absolute value; it leaves no room.)
    """

    codes = ("SignalFftAutoScale",)
    returns_tuple = True

    def check(self) -> None:
        size = self.vector(0, DType.INT16)
        if len(self.op.outputs) != 2:
            raise OperatorError(f"{len(self.op.outputs)} outputs, not 2")
        scaled, bits = self.op.outputs
        expect(scaled, (size,), DType.INT16)
        expect(bits, (1,) * bits.rank, DType.INT32)

    def emit(self, g: Builder, ys: tuple[View, View], x: View) -> tuple[Value, Value]:
        wide = g.cast(x, DType.INT64)
        largest = g.reduce("ReduceMax", g.Abs(wide), [0], keepdims=True)
        room = g.Sub(g.scalar(15, DType.INT64), bit_length(g, largest, 16))
        silent = g.Equal(largest, g.scalar(0, DType.INT64))
        none = g.scalar(0, DType.INT64)
        bits = g.Where(silent, none, emit_maximum(g, room, none))
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
            raise OperatorError(f"complex numbers {start} to {end} of {size}")
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
            raise OperatorError(f"{bands} bands of {len(widths)}")
        check_element_count(size * (bands + 2))
        matrix = np.zeros((size, bands + 2), np.int64)
        for band in range(bands + 1):
            width, start, place = widths[band], starts[band], places[band]
            parts = weights[place : place + width], unweights[place : place + width]
            if width < 0 or min(start, place) < 0 or start + width > size:
                raise OperatorError(f"a band of {width} frequencies from {start} of {size}")
            for offset, part in enumerate(parts):
                matrix[start : start + width, band + offset] += np.array(part, np.int64)
        if matrix.min() < 0 or int(matrix.sum(0).max()) >= 1 << (63 - WORD):
            raise OperatorError("its weights are negative, or too large")
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
        root = g.cast(square_root(g, g.cast(x, DType.INT64)), DType.UINT32)
        drop = g.cast(g.reshape(bits, (1,)), DType.UINT32)
        return g.BitShift(root, drop, direction="RIGHT")


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
        correction = g.scalar(1 << self.option("input_correction_bits"), DType.INT64)
        word = g.scalar(1 << WORD, DType.INT64)
        scaled = g.Mod(g.Mul(g.cast(x, DType.INT64), correction), word)
        made = logarithm(g, scaled, self._scale)
        return g.cast(emit_minimum(g, made, g.scalar((1 << 15) - 1, DType.INT64)), DType.INT16)


class SignalPcan(Signal):
    """SignalPCAN: gain control for each band, by a table over the noise in it."""

    codes = ("SignalPCAN",)

    def check(self) -> None:
        size = self.vector(0, DType.UINT32)
        expect(self.input(1), (size,), DType.UINT32)
        if self.vector(2, DType.INT16) < 4 * WORD - 3:
            raise OperatorError(f"a table of {self.input(2).elements} gains")
        expect(self.output, (size,), DType.UINT32)
        self.option("snr_shift")

    def emit(self, g: Builder, y: View, x: View, noise: View, gains: View) -> Value:
        numbers, estimate, table = (g.cast(v, DType.INT64) for v in (x, noise, gains))
        made = apply_gain(g, numbers, estimate, table, self.option("snr_shift"))
        return g.cast(made, DType.UINT32)

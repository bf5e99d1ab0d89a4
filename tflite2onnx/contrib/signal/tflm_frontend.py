"""The stateless operators of TFLite Micro's audio front end, in integers."""

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from tflite2onnx.contrib.signal.tflm_base import (
    SHIFT,
    WORD,
    Signal,
    apply_gain,
    count_bits,
    emit_logarithm,
    emit_square_root,
    list_powers,
    shift_right,
    wrap_to_word,
)
from tflite2onnx.operators import (
    Array,
    Builder,
    DType,
    OperatorError,
    OutputShape,
    Value,
    View,
    check_element_count,
    ints,
)

_COMPLEX = 2  # numbers


class SignalWindow(Signal):
    """SignalWindow: samples times the weights of a window, shifted right and saturated."""

    codes = ("SignalWindow",)
    operands = "int16 [... size], int16 [size] -> int16 [... size]"
    limits: ClassVar = {"shift": SHIFT}

    def emit(self, g: Builder, y: View, x: View, window: View) -> Value:
        product = g.Mul(*(g.cast(v, DType.INT64) for v in (x, window)))
        shifted = shift_right(g, product, self.read_option("shift"))
        return g.cast(g.clamp_int64(shifted, -(1 << 15), (1 << 15) - 1), DType.INT16)


class SignalFftAutoScale(Signal):
    """SignalFftAutoScale: samples shifted left without overflow, and the number of bits.

    (With -32768, whose absolute value overflows in the kernel, samples are not shifted.)
    """

    codes = ("SignalFftAutoScale",)
    operands = "int16 [size] -> int16 [size], int32 [1*]"

    def emit(self, g: Builder, ys: tuple[View, View], x: View) -> tuple[Value, Value]:
        samples = g.cast(x, DType.INT64)
        largest = g.reduce("ReduceMax", g.Abs(samples), [0], keepdims=True)
        free_bits = g.Sub(15, count_bits(g, largest, 16))
        bits = g.Where(g.Equal(largest, 0), 0, g.max_int64(free_bits, 0))
        scaled = g.Mul(samples, g.Gather(list_powers(16), bits))
        return g.cast(scaled, DType.INT16), g.reshape(g.cast(bits, DType.INT32), ys[1].shape)


class SignalEnergy(Signal):
    """SignalEnergy: the squared magnitudes of complex numbers; 0 outside of a range."""

    codes = ("SignalEnergy",)
    operands = "int16 [samples] -> uint32"

    def _find_range(self, size: int) -> tuple[int, int]:
        """Return the index of the first complex number in the range, and that after the last."""
        return self.read_option("start_index", 0, size), self.read_option("end_index", 0, size)

    def infer_outputs(self) -> Sequence[OutputShape]:
        return [(self.input(0).elements // _COMPLEX,)]

    def check(self) -> None:
        super().check()
        size, rest = divmod(self.input(0).elements, _COMPLEX)
        start, end = self._find_range(size)
        if rest or start > end:
            raise OperatorError(
                f"the input must be pairs of numbers, and start_index at most end_index, got "
                f"{self.input(0).elements} numbers, {start} and {end}"
            )

    def emit(self, g: Builder, y: View, x: View) -> Value:
        (size,) = y.shape
        pairs = g.cast(g.reshape(x, (size, _COMPLEX)), DType.INT64)
        energy = g.reduce("ReduceSum", g.Mul(pairs, pairs), [1], keepdims=False)
        start, end = self._find_range(size)
        if (start, end) != (0, size):
            in_range = (np.arange(size) >= start) & (np.arange(size) < end)
            energy = g.Mul(energy, in_range.astype(np.int64))
        return g.cast(energy, DType.UINT32)


class SignalFilterBank(Signal):
    """SignalFilterBank: sums of energies in overlapping bands, with constant weights."""

    codes = ("SignalFilterBank",)
    operands = (
        "uint32 [size], int16 [weights], int16 [unweights], int16 [starts], int16 [places],"
        "int16 [widths] -> uint64"
    )

    def infer_outputs(self) -> Sequence[OutputShape]:
        return [self._make_matrix().shape[1:]]

    def emit(self, g: Builder, y: View, x: View, *_: View) -> Value:
        return g.cast(g.MatMul(g.cast(x, DType.INT64), self._make_matrix()), DType.UINT64)

    def _make_matrix(self) -> Array:
        """Return the weight of each frequency in each band, int64 [size, bands].

        Each frequency contributes to a band and, with the complementary weight, to the next band.
        Only this second part of the first band of the file is used.
        """
        weights, unweights, starts, places, widths = (ints(self, i) for i in range(1, 6))
        size = self.input(0).elements
        bands = self.read_option("num_channels", 1, size)
        if min(len(starts), len(places), len(widths)) <= bands:
            raise OperatorError(
                f"its starts, places and widths must have {bands + 1} or more elements, got "
                f"{len(starts)}, {len(places)} and {len(widths)}"
            )
        check_element_count(size * (bands + 2))
        matrix = np.zeros((size, bands + 2), np.int64)
        for band in range(bands + 1):
            width, start, place = widths[band], starts[band], places[band]
            parts = weights[place : place + width], unweights[place : place + width]
            if width < 0 or min(start, place) < 0 or start + width > size:
                raise OperatorError(
                    f"band {band} must be within {size} frequencies, got {width} from {start}"
                )
            for offset, part in enumerate(parts):
                matrix[start : start + width, band + offset] += np.array(part, np.int64)
        if matrix.min() < 0 or int(matrix.sum(0).max()) >= 1 << (63 - WORD):
            raise OperatorError(
                f"the weights of a band must not be negative, and their sum must be less than "
                f"{1 << (63 - WORD)}"
            )
        return matrix[:, 1 : bands + 1]


class SignalFilterBankSquareRoot(Signal):
    """SignalFilterBankSquareRoot: rounded square roots, shifted right."""

    codes = ("SignalFilterBankSquareRoot",)
    operands = "uint64 [size], int32 [1*] -> uint32 [size]"

    def emit(self, g: Builder, y: View, x: View, bits: View) -> Value:
        root = g.cast(emit_square_root(g, g.cast(x, DType.INT64)), DType.UINT32)
        drop = g.cast(g.reshape(bits, (1,)), DType.UINT32)
        return g.BitShift(root, drop, direction="RIGHT")


class SignalFilterBankLog(Signal):
    """SignalFilterBankLog: natural logarithms by a table of 128 steps per power of two."""

    codes = ("SignalFilterBankLog",)
    operands = "uint32 [size] -> int16 [size]"
    limits: ClassVar = {"input_correction_bits": SHIFT, "output_scale": (0, (1 << 31) - 1)}

    def emit(self, g: Builder, y: View, x: View) -> Value:
        correction = 1 << self.read_option("input_correction_bits")
        scaled = wrap_to_word(g, g.Mul(g.cast(x, DType.INT64), correction))
        logarithms = emit_logarithm(g, scaled, self.read_option("output_scale"))
        return g.cast(g.min_int64(logarithms, (1 << 15) - 1), DType.INT16)


class SignalPcan(Signal):
    """SignalPCAN: gain control per band, by a table of gains over the noise."""

    codes = ("SignalPCAN",)
    operands = "uint32 [size], uint32 [size], int16 [gains] -> uint32 [size]"
    limits: ClassVar = {"snr_shift": SHIFT}

    def check(self) -> None:
        super().check()
        gains = self.input(2).elements
        if gains < 4 * WORD - 3:
            raise OperatorError(f"its table must have {4 * WORD - 3} or more gains, got {gains}")

    def emit(self, g: Builder, y: View, x: View, noise: View, gains: View) -> Value:
        numbers, estimate, table = (g.cast(v, DType.INT64) for v in (x, noise, gains))
        scaled = apply_gain(g, numbers, estimate, table, self.read_option("snr_shift"))
        return g.cast(scaled, DType.UINT32)

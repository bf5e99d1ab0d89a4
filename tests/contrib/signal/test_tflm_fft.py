"""Fourier transforms of TFLite Micro. LiteRT has no kernels for them: equal to tests.references."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tests.references import (
    check_reference,
    check_reference_runs,
    draw_numbers,
    signals,
    streams,
    transforms,
)
from tests.support import Build
from tflite2onnx.convert import convert
from tflite2onnx.errors import ConversionError

if TYPE_CHECKING:
    from tests.support.runtimes import Array
    from tflite2onnx import Result

TYPES = {"float32": 0, "int32": 2, "int16": 7}


def model(code: str, shape: tuple[int, ...], made: int, dtype: str, length: int) -> Build:
    m = Build()
    options = {"T": TYPES[dtype], "fft_length": length}
    outputs = [m.tensor([*shape[:-1], made], dtype=dtype)]
    m.output(*m.custom(code, [m.input(shape, dtype=dtype)], outputs, options))
    return m


def extreme_integers(dtype: str, *shape: int, seed: int = 0) -> Array:
    """Return random integers with both extremes along the last axis."""
    limits, generator = np.iinfo(dtype), np.random.default_rng(seed)
    made: Array = generator.integers(limits.min, limits.max, shape, dtype, endpoint=True)
    made[..., 1:3] = limits.min, limits.max
    return made


def check_transform(code: str, x: Array, want: Array, length: int, tolerance: float = 0) -> Result:
    m = model(code, x.shape, want.shape[-1], x.dtype.name, length)
    return check_reference(m, [x], [want.astype(x.dtype)], tolerance=tolerance)


@pytest.mark.parametrize(
    ("size", "length"), [(480, 512), (64, 64), (2, 7), (481, 482), (59, 60), (3, 4)]
)
@pytest.mark.parametrize("lead", [(), (3,)])
def test_transforms_of_floats_equal_numpy(lead: tuple[int, ...], size: int, length: int) -> None:
    x = draw_numbers(*lead, size)
    parts = np.fft.rfft(x, length)
    want = np.stack([parts.real, parts.imag], -1).reshape(*lead, -1)
    check_transform("SignalRfft", x, want, length, 1e-6)


@pytest.mark.parametrize("length", [512, 60, 62, 7, 2])
@pytest.mark.parametrize("lead", [(), (3,)])
def test_inverse_transforms_of_floats_equal_numpy(lead: tuple[int, ...], length: int) -> None:
    """The imaginary parts of the first and last frequencies are ignored."""
    x = draw_numbers(*lead, length // 2 + 1, 2)
    want = np.fft.irfft(x[..., 0] + 1j * x[..., 1], length)
    check_transform("SignalIrfft", x.reshape(*lead, -1), want, length, 1e-6)


# Their halves have the factors of every butterfly, once and repeated, first and last.
LENGTHS = (4, 6, 8, 10, 12, 16, 20, 30, 48, 54, 100, 120, 250, 480, 512)


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("dtype", ["int16", "int32"])
def test_transforms_of_integers_equal_reference(dtype: str, length: int) -> None:
    bits = np.iinfo(dtype).bits
    x = extreme_integers(dtype, 3, length)
    x[1] = np.iinfo(dtype).min
    x[2, length // 2 :] = 0
    want = [transforms.real_transform(row.tolist(), bits) for row in x]
    result = check_transform("SignalRfft", x, np.array(want), length)
    assert len(result.model.graph.node) <= 160


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("dtype", ["int16", "int32"])
def test_inverse_transforms_of_integers_equal_reference(dtype: str, length: int) -> None:
    bits = np.iinfo(dtype).bits
    x = extreme_integers(dtype, 3, length + 2)
    x[1] = np.iinfo(dtype).min
    x[2] = 0
    x[2, 4] = 1 << bits - 3
    want = [transforms.real_inverse(row.tolist(), bits) for row in x]
    check_transform("SignalIrfft", x, np.array(want), length)


def test_short_inputs_of_several_streams_are_padded_with_0() -> None:
    x = extreme_integers("int16", 2, 3, 29)
    padded = np.pad(x, [(0, 0), (0, 0), (0, 3)]).reshape(6, 32)
    want = np.array([transforms.real_transform(row.tolist(), 16) for row in padded])
    check_transform("SignalRfft", x, want.reshape(2, 3, 34), 32)


@pytest.mark.parametrize("bits", [16, 32])
def test_reference_is_the_scaled_fourier_transform(bits: int) -> None:
    """The reference is the Fourier transform divided by its length, up to some rounding steps."""
    dtype = f"int{bits}"
    x = extreme_integers(dtype, 240).astype(np.int64) // 2
    made = np.array(transforms.real_transform(x.tolist(), bits)).reshape(-1, 2)
    want = np.fft.rfft(x) / 240
    assert np.abs(made[:, 0] - want.real).max() < 8
    assert np.abs(made[:, 1] - want.imag).max() < 8


@pytest.mark.parametrize(
    ("code", "size", "made", "dtype", "length", "reason"),
    [
        ("SignalRfft", 8, 8, "float32", 4, "its fft_length must be at least .*got 4"),
        ("SignalRfft", 8, 10, "uint32", 8, "float32, int16 or int32.*, got uint32"),
        ("SignalRfft", 8, 8, "int16", 9, "its fft_length must be even, got 9"),
        ("SignalRfft", 8, 16, "int16", 14, "must have no prime factors but 2, 3 and 5"),
        ("SignalRfft", 2, 4, "int32", 2, "must have no prime factors but 2, 3 and 5"),
        ("SignalRfft", 8, 8, "float32", 1, "its fft_length must be from 2 to .*got 1"),
        ("SignalIrfft", 8, 8, "float32", 8, r"fft_length of 8, got \[8\]"),
        ("SignalIrfft", 0, 8, "int16", 8, r"must have elements, got \[0\]"),
    ],
)
def test_refuses_unsupported_lengths_sizes_and_types(
    code: str, size: int, made: int, dtype: str, length: int, reason: str
) -> None:
    m = model(code, (size,), made, dtype if dtype in TYPES else "int16", length)
    if dtype not in TYPES:
        m = Build()
        outputs = [m.tensor([made], dtype=dtype)]
        options = {"fft_length": length}
        m.output(*m.custom(code, [m.input([size], dtype=dtype)], outputs, options))
    with pytest.raises(ConversionError, match=reason):
        convert(m.bytes())


BANDS, SAMPLES, LENGTH = 11, 59, 64
SMOOTHING: Any = {
    "alternate_one_minus_smoothing": 13926,
    "alternate_smoothing": 2458,
    "clamping": 0,
    "min_signal_remaining": 819,
    "num_channels": BANDS,
    "one_minus_smoothing": 15974,
    "smoothing": 410,
    "smoothing_bits": 10,
    "spectral_subtraction_bits": 14,
}


def filters() -> list[Array]:
    """Return the tables of a filter bank whose bands are adjacent and have three frequencies."""
    generator = np.random.default_rng(1)
    weights = generator.integers(0, 4096, 3 * (BANDS + 1), np.int16)
    places = np.arange(0, 3 * (BANDS + 1), 3, dtype=np.int16)
    starts = np.minimum(places, LENGTH // 2 - 3).astype(np.int16)
    return [weights, (4096 - weights).astype(np.int16), starts, places, np.full_like(places, 3)]


class FrontEnd:
    """The feature generator of micro_speech, computed by the reference kernels."""

    def __init__(self, window: Array, tables: list[Array], gains: Array) -> None:
        self._window, self._tables, self._gains = window, tables, gains
        self._subtraction = streams.SpectralSubtraction(SMOOTHING)

    def __call__(self, x: Array) -> list[Array | None]:
        scaled, bits = signals.auto_scale(signals.window(x, self._window, 12))
        padded = [*scaled.tolist(), *([0] * (LENGTH - SAMPLES))]
        spectrum = np.array(transforms.real_transform(padded, 16), np.int16)
        energy = signals.energy(spectrum, 1, 31)
        bands = signals.filter_bank(energy, BANDS, self._tables)
        roots = np.array([signals.square_root(int(n)) >> bits for n in bands], np.uint32)
        clean, noise = self._subtraction(roots)
        assert clean is not None
        assert noise is not None
        levels = [
            signals.pcan(int(n), int(m), self._gains, 6) for n, m in zip(clean, noise, strict=True)
        ]
        return [np.array([signals.logarithm(n, 3, 1600) for n in levels], np.int16)]


def test_sequence_of_all_operators_equals_reference() -> None:
    """All operators of TFLite Micro's micro_speech in sequence, for 12 frames."""
    generator = np.random.default_rng(0)
    window = generator.integers(0, 4096, SAMPLES, np.int16)
    tables, gains = filters(), generator.integers(0, 2000, 125, np.int16)
    m = Build()

    def add_stage(
        code: str, operands: list[Any], made: tuple[tuple[list[int], str], ...], **options: Any
    ) -> Any:
        tensors = [m.tensor(shape, dtype=dtype) for shape, dtype in made]
        return m.custom(code, operands, tensors, options)

    x = m.input([SAMPLES], dtype="int16")
    samples, frequencies, bands = [SAMPLES], LENGTH // 2 + 1, [BANDS]
    (y,) = add_stage("SignalWindow", [x, m.constant(window)], ((samples, "int16"),), shift=12)
    y, bits = add_stage("SignalFftAutoScale", [y], ((samples, "int16"), ([], "int32")))
    (y,) = add_stage("SignalRfft", [y], (([2 * frequencies], "int16"),), T=7, fft_length=LENGTH)
    (y,) = add_stage("SignalEnergy", [y], (([frequencies], "uint32"),), start_index=1, end_index=31)
    operands = [y, *(m.constant(table) for table in tables)]
    (y,) = add_stage("SignalFilterBank", operands, ((bands, "uint64"),), num_channels=BANDS)
    (y,) = add_stage("SignalFilterBankSquareRoot", [y, bits], ((bands, "uint32"),))
    both = ((bands, "uint32"), (bands, "uint32"))
    y, noise = add_stage("SignalFilterBankSpectralSubtraction", [y], both, **SMOOTHING)
    operands = [y, noise, m.constant(gains)]
    (y,) = add_stage("SignalPCAN", operands, ((bands, "uint32"),), snr_shift=6)
    options = {"input_correction_bits": 3, "output_scale": 1600}
    m.output(*add_stage("SignalFilterBankLog", [y], ((bands, "int16"),), **options))
    kernel = FrontEnd(window, tables, gains)
    xs = [generator.integers(-(1 << 15) >> i, 1 << 15 - i, SAMPLES, np.int16) for i in range(1, 13)]
    result = check_reference_runs(m, [([each], kernel(each)) for each in xs], tolerance=0)
    assert len(result.states) == 1

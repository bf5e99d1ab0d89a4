"""AudioSpectrogram and Mfcc, compared with LiteRT's kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.support import Build, Tensor, check
from tflite2onnx.convert import convert
from tflite2onnx.errors import ConversionError

# Lengths of windows, and distances between windows.
WINDOWS = [(64, 17), (37, 11), (2, 1), (480, 160), (499, 500)]
COEFFICIENTS: list[dict[str, Any]] = [
    {},
    {"dct_coefficient_count": 40},
    {"filterbank_channel_count": 1, "dct_coefficient_count": 1},
    {"lower_frequency_limit": 300.7, "upper_frequency_limit": 7600.2},
    {"lower_frequency_limit": 0.0, "upper_frequency_limit": 8000.0},
    {"rate": 44100},
    {"filterbank_channel_count": 100},  # more bands than frequencies, so that some bands are empty
]


def spectrogram(m: Build, x: Tensor, window: int, step: int, *, squared: bool = True) -> Tensor:
    samples, channels = x.shape
    bins = 1 + (1 << (window - 1).bit_length()) // 2
    options = {"window_size": window, "stride": step, "magnitude_squared": squared}
    frames = 1 + (samples - window) // step
    return m.custom("AudioSpectrogram", [x], [[channels, frames, bins]], options)[0]


@pytest.mark.parametrize("squared", [True, False])
@pytest.mark.parametrize(("window", "step"), WINDOWS)
@pytest.mark.parametrize("channels", [1, 3])
def test_spectrograms_of_every_window_equal_litert(
    channels: int, window: int, step: int, *, squared: bool
) -> None:
    m = Build()
    m.output(spectrogram(m, m.input([499, channels]), window, step, squared=squared))
    check(m.bytes(), ranges={"float32": (-1, 1)})


def mfcc(m: Build, x: Tensor, rate: int | Tensor = 16000, **options: Any) -> Tensor:
    words = {
        "upper_frequency_limit": 4000.0,
        "lower_frequency_limit": 20.0,
        "filterbank_channel_count": 40,
        "dct_coefficient_count": 13,
        **options,
    }
    made = [*x.shape[:2], words["dct_coefficient_count"]]
    hertz = m.constant(np.array([rate], np.int32)) if isinstance(rate, int) else rate
    return m.custom("Mfcc", [x, hertz], [made], words)[0]


@pytest.mark.parametrize("options", COEFFICIENTS, ids=str)
def test_mfcc_of_all_options_equals_litert(options: dict[str, Any]) -> None:
    m = Build()
    m.output(mfcc(m, m.input([2, 5, 257]), **options))
    check(m.bytes(), ranges={"float32": (0, 100)})


@pytest.mark.parametrize("rate", [8001, 16000, 44100, 7999, 1])
def test_sample_rate_may_be_an_input(rate: int) -> None:
    """Some speech models have the samples and their rate as inputs, as a decoder returns them.

    The kernel gives zeros if 4000 Hz is out of the range, as it is for the last two rates.
    """
    m = Build()
    m.output(mfcc(m, m.input([2, 5, 257]), m.input([1], dtype="int32")))
    powers = np.random.default_rng(0).random((2, 5, 257), np.float32)
    check(m.bytes(), inputs=[powers, np.array([rate], np.int32)])


def test_mfcc_of_silence_equals_litert() -> None:
    """The logarithm of an energy of 0 is limited, as in the kernel."""
    m = Build()
    m.output(mfcc(m, m.input([1, 3, 257])))
    check(m.bytes(), inputs=[np.zeros((1, 3, 257), np.float32)])


def test_mfcc_of_the_spectrogram_of_a_tone_equals_litert() -> None:
    """The MFCCs of a pure tone, for which the logarithms of tiny energies must agree."""
    m = Build()
    m.output(mfcc(m, spectrogram(m, m.input([4000, 1]), 640, 320)))
    tone = np.sin(np.arange(4000) * 0.3)[:, None].astype(np.float32)
    check(m.bytes(), inputs=[tone])


def refusal(m: Build, y: Tensor) -> str:
    m.output(y)
    with pytest.raises(ConversionError) as error:
        convert(m.bytes())
    return str(error.value)


def test_spectrogram_refuses_unsupported_windows_and_shapes() -> None:
    m = Build()
    assert "window_size must be at least 2 and stride at least 1, got 1, 1" in refusal(
        m, spectrogram(m, m.input([99, 1]), 1, 1)
    )
    m = Build()
    words = {"window_size": 100, "stride": 1}
    (y,) = m.custom("AudioSpectrogram", [m.input([99, 1])], [[1, 0, 65]], words)
    assert "window of 100 samples, got [99, 1]" in refusal(m, y)
    m = Build()
    (y,) = m.custom("AudioSpectrogram", [m.input([99])], [[1, 0, 65]], words)
    assert "AudioSpectrogram (operator 0" in refusal(m, y)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"dct_coefficient_count": 41}, "filterbank_channel_count, got 41 and 40"),
        ({"dct_coefficient_count": 0}, "filterbank_channel_count, got 0 and 40"),
        ({"filterbank_channel_count": 1 << 30}, "a constant must have"),
        ({"upper_frequency_limit": 20.0}, "upper_frequency_limit, got 20 and 20 Hz"),
        ({"lower_frequency_limit": -1.0}, "got -1 and"),
        ({"upper_frequency_limit": 9000.0}, "frequencies, got 9000 Hz"),
        ({"rate": 0}, "positive, got 0 Hz"),
    ],
)
def test_mfcc_refuses_invalid_options(options: dict[str, Any], reason: str) -> None:
    m = Build()
    assert reason in refusal(m, mfcc(m, m.input([1, 3, 257]), **options))


def test_mfcc_refuses_two_sample_rates() -> None:
    m = Build()
    made = mfcc(m, m.input([1, 3, 129]), m.input([2], dtype="int32"))
    assert "must be int32[1], got int32[2]" in refusal(m, made)


def test_mfcc_refuses_inputs_with_more_axes() -> None:
    m = Build()
    made = mfcc(m, m.input([1, 3, 129, 1]))
    assert "[channels, times, frequencies], got float32[1, 3, 129, 1]" in refusal(m, made)

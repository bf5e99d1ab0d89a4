"""AudioMicrofrontend, which LiteRT's interpreter lacks: equal to tests.references."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tests.references import check_reference, microfrontend
from tests.references.microfrontend import DEFAULTS
from tests.support import Build
from tflite2onnx.convert import convert
from tflite2onnx.errors import ConversionError

if TYPE_CHECKING:
    from tests.support.runtimes import Array

# Frames of 25 samples, 10 apart; the transform has length 32.
SMALL: dict[str, Any] = {
    **DEFAULTS,
    "sample_rate": 1000,
    "num_channels": 3,
    "upper_band_limit": 450.0,
    "lower_band_limit": 8.0,
}


def make_sounds(count: int) -> dict[str, Array]:
    """Return quiet noise, loud noise, a fading tone, and silence before the smallest integer."""
    generator, time = np.random.default_rng(0), np.arange(count)
    tone = 30000 * np.sin(time * time * 1e-3) * np.exp(-time / count)
    made = {
        "low": generator.integers(-300, 300, count),
        "high": generator.integers(-(1 << 15), 1 << 15, count),
        "tone": tone,
        "step": np.where(time > count // 2, -(1 << 15), 0),
    }
    return {name: sound.astype(np.int16) for name, sound in made.items()}


def model(samples: int, shape: tuple[int, ...], dtype: str, options: dict[str, Any]) -> Build:
    m = Build()
    outputs = [m.tensor(shape, dtype=dtype)]
    m.output(*m.custom("AudioMicrofrontend", [m.input([samples], dtype="int16")], outputs, options))
    return m


def check_features(x: Array, options: dict[str, Any], dtype: str = "int32") -> None:
    want = microfrontend.features(x, {**options, "out_float": dtype == "float32"}).astype(dtype)
    check_reference(model(len(x), want.shape, dtype, options), [x], [want], tolerance=0)


SOUNDS = ["low", "high", "tone", "step"]
CHANGES: list[dict[str, Any]] = [
    {},
    {"enable_pcan": False, "num_channels": 2, "out_scale": 3},
    {"enable_log": False, "left_context": 2, "right_context": 1},
    {"zero_padding": True, "left_context": 1, "right_context": 3, "frame_stride": 4},
    {
        "smoothing_bits": 8,
        "even_smoothing": 0.1,
        "odd_smoothing": 0.2,
        "scale_shift": 4,
        "min_signal_remaining": 0.3,
        "gain_bits": 19,
        "pcan_strength": 0.7,
        "pcan_offset": 10.0,
    },
    {"window_size": 7, "window_step": 3, "num_channels": 1},
    {"window_size": 71, "window_step": 71, "left_context": 5},
]


@pytest.mark.parametrize("sound", SOUNDS)
@pytest.mark.parametrize("more", CHANGES)
def test_features_of_all_options_equal_reference(more: dict[str, Any], sound: str) -> None:
    check_features(make_sounds(149)[sound], {**SMALL, **more})


@pytest.mark.parametrize("dtype", ["float32", "uint16"])
def test_features_of_other_types_equal_reference(dtype: str) -> None:
    check_features(make_sounds(149)["high"], {**SMALL, "out_scale": 7, "left_context": 1}, dtype)


def test_features_of_default_options_equal_reference() -> None:
    """TensorFlow's default settings: frames of 400 samples at 16 kHz."""
    check_features(make_sounds(1201)["tone"], DEFAULTS)


def test_features_of_one_frame_equal_reference() -> None:
    check_features(make_sounds(25)["high"], SMALL)


@pytest.mark.parametrize(
    ("samples", "more", "reason"),
    [
        (24, {}, "the 25 samples of a frame, got 24"),
        (149, {"sample_rate": 0}, "its sample_rate must be from .*got 0"),
        (149, {"window_size": 2}, "window_size must be .*got 2 and"),
        (149, {"window_step": 26}, "window_size, got 25 and 26 samples"),
        (149, {"num_channels": 0}, "its num_channels must be from .*got 0"),
        (149, {"upper_band_limit": 520.0}, "its bands must end below frequency 17 .*got 17"),
        (149, {"upper_band_limit": 8.0}, "its upper_band_limit must be from .*got 8"),
        (149, {"lower_band_limit": float("nan")}, "its lower_band_limit must be from .*got nan"),
        (149, {"even_smoothing": 1.5}, "its even_smoothing must be from .*got 1.5"),
        (149, {"smoothing_bits": 32}, "its smoothing_bits must be from .*got 32"),
        (149, {"gain_bits": 3}, "its gain_bits must be from 11 to 31, got 3"),
        (149, {"pcan_strength": -1.0}, "its pcan_strength must be from .*got -1"),
        (149, {"out_scale": 0}, "its out_scale must be from .*got 0"),
        (149, {"frame_stride": 0}, "its frame_stride must be from .*got 0"),
        (149, {"left_context": 1 << 20}, "its left_context must be from .*got 1048576"),
        (149, {"right_context": -1}, "its right_context must be from .*got -1"),
        (149, {"scale_shift": 40}, "its scale_shift must be from .*got 40"),
        (1499, {"left_context": 65535, "right_context": 65535}, "at most, got 58,195,524"),
    ],
)
def test_refuses_short_inputs_and_invalid_options(
    samples: int, more: dict[str, Any], reason: str
) -> None:
    with pytest.raises(ConversionError, match=reason):
        convert(model(samples, (13, 3), "int32", {**SMALL, **more}).bytes())

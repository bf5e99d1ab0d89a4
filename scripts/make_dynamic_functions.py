"""Make the TFLite models of ``tests/dynamic_sizes/functions`` with TensorFlow.

A file is one function of ``FUNCTIONS``, whose sizes of ``None`` are dynamic. TensorFlow's converter
declares 1 for sizes that it does not know, also in inner tensors.

Usage: ``python scripts/make_dynamic_functions.py``, with TensorFlow (version 2.21 made the files).
"""

import usage  # noqa: F401 - packages may be missing

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import tensorflow as tf  # type: ignore[import-untyped]  # TensorFlow publishes no types

MODELS = Path(__file__).resolve().parent.parent / "tests" / "dynamic_sizes" / "functions"
Spec = tuple[Sequence[int | None], tf.DType]


def transform(x: tf.Tensor, **options: object) -> tf.Tensor:
    """Return the short-time Fourier transform of signals."""
    return tf.signal.stft(x, 40, 16, fft_length=64, **options)


def flatten_spectrum(x: tf.Tensor) -> tf.Tensor:
    """Return the magnitudes of all times and frequencies in a row for each signal."""
    return tf.abs(tf.reshape(transform(x), [tf.shape(x)[0], -1]))


FUNCTIONS: dict[str, tuple[Callable[..., Any], Sequence[Spec]]] = {
    "stft": (lambda x: tf.abs(transform(x)), [([None, None], tf.float32)]),
    "stft_of_one_signal": (lambda x: tf.abs(transform(x)), [([None], tf.float32)]),
    "padded_stft": (
        lambda x: tf.math.real(transform(x, pad_end=True)),
        [([1, None], tf.float32)],
    ),
    "flat_stft": (flatten_spectrum, [([None, None], tf.float32)]),
    "rfft": (lambda x: tf.math.imag(tf.signal.rfft(x, [64])), [([None, None], tf.float32)]),
    "reshape": (
        lambda x, shape: tf.nn.relu(tf.squeeze(tf.reshape(x, shape), [0])),
        [([2, 24], tf.float32), ([4], tf.int32)],
    ),
    "flatten": (
        lambda x: tf.matmul(tf.reshape(x, [-1, 12]), tf.ones([12, 5])),
        [([None] * 4, tf.float32)],
    ),
    "concat": (
        lambda x, n: tf.concat([x[:n], 2 * x[n:]], -4),
        [([2, 16, 10, 1], tf.float32), ([], tf.int32)],
    ),
    "maximum": (
        lambda x: tf.reduce_max(tf.abs(x[:, :-1]), [1, 2]),
        [([None, None, 3], tf.float32)],
    ),
    "mean": (lambda x: tf.reduce_mean(tf.abs(x[:, 2:]), 1), [([None, None], tf.float32)]),
    "batch_to_space": (
        lambda x: tf.batch_to_space(x, [2, 2], [[0, 0], [0, 0]]),
        [([None, None, None, 3], tf.float32)],
    ),
}


def convert(name: str) -> bytes:
    """Return the TFLite file of a function."""
    body, specs = FUNCTIONS[name]
    signature = [tf.TensorSpec(shape, dtype) for shape, dtype in specs]
    function = tf.function(body, input_signature=signature).get_concrete_function()
    return bytes(tf.lite.TFLiteConverter.from_concrete_functions([function]).convert())


def main() -> None:
    """Make all models."""
    for name in sys.argv[1:] or FUNCTIONS:
        path = MODELS / f"{name}.tflite"
        sys.stdout.write(f"{path}: {path.write_bytes(convert(name))} bytes\n")


if __name__ == "__main__":
    main()

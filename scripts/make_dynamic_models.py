"""Make the TFLite models of ``tests/dynamic_sizes/models`` with TensorFlow.

A file is one network of ``NETWORKS``. The weights are random but seeded. Sizes of ``None`` are
dynamic: the file has 1 for them, and SHAPE arithmetic for sizes that depend on them.

Usage: ``python scripts/make_dynamic_models.py``, with TensorFlow (version 2.21 made the files).
"""

import usage  # noqa: F401 - packages may be missing

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import tensorflow as tf  # type: ignore[import-untyped]  # TensorFlow publishes no types
from make_models import SEED, add_normalization, inverted_residual

layers = tf.keras.layers
Symbolic = tf.keras.KerasTensor

MODELS = Path(__file__).resolve().parent.parent / "tests" / "dynamic_sizes" / "models"
WORDS, LONGEST, WIDTH = 50, 24, 16


def mobilenet(x: Symbolic) -> Symbolic:
    """Image classifier: [N, H, W, 3] to the probabilities of 5 classes, [N, 5]."""
    x = layers.Conv2D(8, 3, 2, padding="same", use_bias=False)(x)
    x = add_normalization(x, "relu6")
    for expansion, channels, stride in ((1, 8, 1), (2, 12, 2), (2, 12, 1)):
        x = inverted_residual(x, expansion, channels, stride)
    x = layers.GlobalAveragePooling2D()(x)
    return layers.Dense(5, activation="softmax")(x)


def unet(x: Symbolic) -> Symbolic:
    """Segmentation: [N, H, W, 3] to a mask of the same size, for multiples of 4."""
    fine = layers.Conv2D(6, 3, padding="same", activation="relu")(x)
    middle = layers.Conv2D(8, 3, padding="same", activation="relu")(layers.MaxPooling2D()(fine))
    x = layers.Conv2D(10, 3, padding="same", activation="relu")(layers.MaxPooling2D()(middle))
    x = layers.Conv2DTranspose(8, 3, 2, padding="same")(x)
    x = layers.Conv2D(8, 3, padding="same", activation="relu")(layers.Concatenate()([middle, x]))
    x = layers.Conv2DTranspose(6, 2, 2, padding="valid")(x)
    return layers.Conv2D(1, 1, activation="sigmoid")(layers.Concatenate()([fine, x]))


def vocoder(x: Symbolic) -> Symbolic:
    """WaveNet-like vocoder: spectra, [N, T, 6], to a waveform of 4 samples each, [N, 4 T, 1]."""
    x = layers.Conv1DTranspose(8, 8, 4, padding="same")(x)
    skipped = []
    for dilation in (1, 2, 4):
        gate, value = (
            layers.Conv1D(8, 2, dilation_rate=dilation, padding="causal", activation=name)(x)
            for name in ("sigmoid", "tanh")
        )
        y = layers.Multiply()([gate, value])
        skipped.append(layers.Conv1D(8, 1)(y))
        x = layers.Add()([x, layers.Conv1D(8, 1)(y)])
    return layers.Conv1D(1, 1, activation="tanh")(layers.ReLU()(layers.Add()(skipped)))


def lstm(x: Symbolic) -> Symbolic:
    """Sequence model: [1, T, 5] to scores of each time; the converter needs a fixed batch."""
    x = layers.LSTM(7, return_sequences=True)(x)
    return layers.Dense(3)(x)


class Positions(layers.Layer):  # type: ignore[misc]  # TensorFlow publishes no types
    """Adds the first rows of a table, one for each token."""

    def build(self, shape: tuple[int, ...]) -> None:
        """Make the table."""
        self.table = self.add_weight(shape=(LONGEST, shape[-1]), name="table")

    def call(self, x: tf.Tensor) -> tf.Tensor:
        """Return the sum."""
        return x + self.table[: tf.shape(x)[1]]


def transformer(x: Symbolic) -> Symbolic:
    """One encoder block over tokens: int32 [N, T] to the probabilities of 4 classes, [N, 4]."""
    x = Positions()(layers.Embedding(WORDS, WIDTH)(x))
    y = layers.LayerNormalization()(x)
    x = layers.Add()([x, layers.MultiHeadAttention(2, WIDTH // 2)(y, y)])
    y = layers.Dense(2 * WIDTH, activation="gelu")(layers.LayerNormalization()(x))
    x = layers.Add()([x, layers.Dense(WIDTH)(y)])
    return layers.Dense(4, activation="softmax")(layers.GlobalAveragePooling1D()(x))


_POST_PROCESS = (
    'name: "TFLite_Detection_PostProcess"'
    ' attr { key: "max_detections" value { i: 6 } }'
    ' attr { key: "max_classes_per_detection" value { i: 1 } }'
    ' attr { key: "num_classes" value { i: 3 } }'
    ' attr { key: "use_regular_nms" value { b: false } }'
    ' attr { key: "nms_score_threshold" value { f: 0.3 } }'
    ' attr { key: "nms_iou_threshold" value { f: 0.5 } }'
    ' attr { key: "y_scale" value { f: 10.0 } } attr { key: "x_scale" value { f: 10.0 } }'
    ' attr { key: "h_scale" value { f: 5.0 } } attr { key: "w_scale" value { f: 5.0 } }'
)


@tf.function(experimental_implements=_POST_PROCESS)  # type: ignore[misc]
def _post_process(
    boxes: tf.Tensor,  # noqa: ARG001 - the operands of the custom operator
    scores: tf.Tensor,  # noqa: ARG001
    anchors: tf.Tensor,  # noqa: ARG001
) -> tuple[tf.Tensor, ...]:
    return (
        tf.constant(0.0, tf.float32, [1, 6, 4]),
        tf.constant(0.0, tf.float32, [1, 6]),
        tf.constant(0.0, tf.float32, [1, 6]),
        tf.constant(0.0, tf.float32, [1]),
    )


class Detections(layers.Layer):  # type: ignore[misc]
    """The detections of boxes and scores for each pixel of a feature map."""

    def call(self, boxes: tf.Tensor, scores: tf.Tensor) -> tuple[tf.Tensor, ...]:
        """Return the boxes, classes and scores of the detections, and their number."""
        rows, columns = tf.shape(boxes)[1], tf.shape(boxes)[2]
        y, x = (
            (tf.cast(tf.range(n), tf.float32) + 0.5) / tf.cast(n, tf.float32)
            for n in (rows, columns)
        )
        y, x = (tf.reshape(each, [-1]) for each in tf.meshgrid(y, x, indexing="ij"))
        anchors = tf.stack([y, x, tf.ones_like(y) * 0.3, tf.ones_like(y) * 0.4], 1)
        return _post_process(tf.reshape(boxes, [1, -1, 4]), tf.reshape(scores, [1, -1, 4]), anchors)


def ssd(x: Symbolic) -> tuple[Symbolic, ...]:
    """Detector: [1, H, W, 3] to at most 6 boxes of 3 classes."""
    x = layers.Conv2D(8, 3, 2, padding="same", use_bias=False)(x)
    x = add_normalization(x, "relu6")
    x = inverted_residual(x, 2, 12, 2)
    boxes = layers.Conv2D(4, 3, padding="same")(x)
    scores = layers.Conv2D(4, 3, padding="same", activation="sigmoid")(x)
    return Detections()(boxes, scores)


NETWORKS: dict[str, tuple[Callable[[Symbolic], Symbolic], list[int | None], tf.DType]] = {
    "mobilenet": (mobilenet, [None, None, None, 3], tf.float32),
    "unet": (unet, [None, None, None, 3], tf.float32),
    "vocoder": (vocoder, [None, None, 6], tf.float32),
    "lstm": (lstm, [1, None, 5], tf.float32),
    "transformer": (transformer, [None, None], tf.int32),
    "ssd": (ssd, [1, None, None, 3], tf.float32),
}


def convert(name: str) -> bytes:
    """Return the TFLite file of a network."""
    body, shape, dtype = NETWORKS[name]
    tf.keras.backend.clear_session()
    tf.keras.utils.set_random_seed(SEED)
    x = layers.Input(shape[1:], shape[0], name="input", dtype=dtype)
    model = tf.keras.Model(x, body(x), name=name)
    for variable in model.trainable_variables:
        if variable.name != "kernel":
            variable.assign_add(tf.random.normal(variable.shape, stddev=0.3))
    if dtype.is_floating:
        sizes = [2 if n is None and i == 0 else n or 16 for i, n in enumerate(shape)]
        model(np.random.default_rng(SEED).random(sizes, np.float32), training=True)
    spec = tf.TensorSpec(shape, dtype, name="input")
    with TemporaryDirectory() as saved:
        model.export(saved, verbose=False, input_signature=[spec])
        converter = tf.lite.TFLiteConverter.from_saved_model(saved)
        converter.allow_custom_ops = name == "ssd"
        return bytes(converter.convert())


def main() -> None:
    """Read the command line and make the models."""
    parser = argparse.ArgumentParser(description="Make models with dynamic sizes.")
    parser.add_argument("--output", type=Path, default=MODELS, help="directory to write into")
    parser.add_argument("names", nargs="*", default=[*NETWORKS], help="networks to make")
    arguments = parser.parse_args()
    tf.config.experimental.enable_op_determinism()
    arguments.output.mkdir(parents=True, exist_ok=True)
    for name in arguments.names:
        path = arguments.output / f"{name}.tflite"
        sys.stdout.write(f"{path}: {path.write_bytes(convert(name))} bytes\n")


if __name__ == "__main__":
    main()

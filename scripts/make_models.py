"""Make the small TFLite models of ``assets/models`` with TensorFlow.

A file is one network of ``NETWORKS`` under one scheme of ``SCHEMES``, and is named
``<network>_<scheme>.tflite``. The weights are random but seeded. The statistics of batch
normalizations come from the network's own samples, so that activations stay of the order of one and
every output depends on its input. The same machine and the same TensorFlow give the same bytes. The
converter refuses everything that builtin operators cannot express, so no file has a custom or a
TensorFlow operator.

Usage, where TensorFlow is installed (2.21 made the files): ``python scripts/make_models.py``.
"""

import usage  # noqa: F401 - packages may be missing

import argparse
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import numpy.typing as npt
import tensorflow as tf  # type: ignore[import-untyped]  # TensorFlow publishes no types

Array = npt.NDArray[np.float32]

layers = tf.keras.layers

SEED = 3
SAMPLES = 64
"""Inputs that set the batch normalizations, and that calibrate the quantized schemes."""

MODELS = Path(__file__).resolve().parent.parent / "assets" / "models"


def add_normalization(x: tf.keras.KerasTensor, activation: str = "linear") -> tf.keras.KerasTensor:
    """Add a batch normalization with the statistics of the last batch only, and an activation."""
    return layers.Activation(activation)(layers.BatchNormalization(momentum=0.0)(x))


def inverted_residual(
    x: tf.keras.KerasTensor, expansion: int, channels: int, stride: int
) -> tf.keras.KerasTensor:
    """Expand, filter depthwise, project: the block of MobileNetV2 (arXiv:1801.04381)."""
    y = layers.Conv2D(expansion * x.shape[-1], 1, use_bias=False)(x)
    y = add_normalization(y, "relu6")
    y = layers.DepthwiseConv2D(3, stride, padding="same", use_bias=False)(y)
    y = add_normalization(y, "relu6")
    y = add_normalization(layers.Conv2D(channels, 1, use_bias=False)(y))
    return layers.Add()([x, y]) if x.shape == y.shape else y


def mobilenet(x: tf.keras.KerasTensor) -> tf.keras.KerasTensor:
    """Image classifier: [N, 96, 96, 3] to the probabilities of 10 classes, [N, 10]."""
    x = layers.Conv2D(16, 3, 2, padding="same", use_bias=False)(x)
    x = add_normalization(x, "relu6")
    blocks = ((1, 8, 1), (4, 16, 2), (4, 16, 1), (4, 24, 2), (4, 24, 1), (4, 32, 2))
    for expansion, channels, stride in blocks:
        x = inverted_residual(x, expansion, channels, stride)
    x = add_normalization(layers.Conv2D(128, 1, use_bias=False)(x), "relu6")
    x = add_normalization(layers.GlobalAveragePooling2D()(x))
    # Small weights keep the probabilities away from 0 and 1, even for inputs outside the samples'
    # range.
    small = tf.keras.initializers.VarianceScaling(0.25)
    return layers.Dense(10, activation="softmax", kernel_initializer=small)(x)


def double_convolution(x: tf.keras.KerasTensor, channels: int) -> tf.keras.KerasTensor:
    """Two 3x3 convolutions: the block of a U-Net at each resolution."""
    for _ in range(2):
        x = layers.Conv2D(channels, 3, padding="same", use_bias=False)(x)
        x = add_normalization(x, "relu")
    return x


def unet(x: tf.keras.KerasTensor) -> tf.keras.KerasTensor:
    """Segmentation: [N, 48, 64, 3] to the mask [N, 48, 64, 1] (arXiv:1505.04597).

    One upsampling step is a transposed convolution, the other is a bilinear resize.
    """
    fine = double_convolution(x, 8)
    middle = double_convolution(layers.MaxPooling2D()(fine), 16)
    coarse = double_convolution(layers.MaxPooling2D()(middle), 32)
    x = layers.Conv2DTranspose(16, 3, 2, padding="same", activation="relu")(coarse)
    x = double_convolution(layers.Concatenate()([middle, x]), 16)
    x = layers.UpSampling2D(interpolation="bilinear")(x)
    x = double_convolution(layers.Concatenate()([fine, x]), 8)
    return layers.Conv2D(1, 1, activation="sigmoid")(x)


def keywords(x: tf.keras.KerasTensor) -> tf.keras.KerasTensor:
    """Keyword spotter: 49 frames of 10 features, [N, 49, 10], to 12 probabilities, [N, 12]."""
    for channels, width, stride in ((24, 5, 2), (32, 3, 1)):
        x = layers.Conv1D(channels, width, stride, padding="same", use_bias=False)(x)
        x = add_normalization(x, "relu")
    x = layers.Dense(16, activation="relu")(layers.Flatten()(x))
    return layers.Dense(12, activation="softmax")(x)


def transformer(x: tf.keras.KerasTensor) -> tf.keras.KerasTensor:
    """One encoder block, normalized first (arXiv:2002.04745): [N, 20, 48] to [N, 20, 48]."""
    width, heads = x.shape[-1], 4
    y = layers.LayerNormalization()(x)
    y = layers.MultiHeadAttention(heads, width // heads)(y, y)
    x = layers.Add()([x, y])
    y = layers.LayerNormalization()(x)
    y = layers.Dense(2 * width, activation="gelu")(y)
    x = layers.Add()([x, layers.Dense(width)(y)])
    return layers.LayerNormalization()(x)


class Remembered(tf.keras.layers.Layer):  # type: ignore[misc]  # TensorFlow publishes no types
    """Append a stream, [1, n, C], to the stored last steps before it."""

    def __init__(self, steps: int, name: str) -> None:
        super().__init__(name=name)
        self.steps = steps

    def build(self, shape: tuple[int, ...]) -> None:
        """Make the variable."""
        self.memory = self.add_weight(
            shape=(1, self.steps, shape[-1]), initializer="zeros", trainable=False, name="memory"
        )

    def call(self, x: tf.Tensor) -> tf.Tensor:
        """Return the stored steps followed by the new steps, and store the last steps."""
        x = tf.concat([self.memory, x], 1)
        self.memory.assign(x[:, -self.steps :])
        return x


def constant_initializer(values: npt.ArrayLike) -> Callable[..., tf.Tensor]:
    """Return an initializer that gives these values, reshaped to the requested shape."""
    return lambda shape, dtype=None: tf.cast(tf.reshape(np.asarray(values), shape), dtype)


def chime_detector(x: tf.keras.KerasTensor) -> tf.keras.KerasTensor:
    """Chime detector: 20 ms of sound at 16 kHz, [1, 320, 1], to the probability of a chime, [1, 1].

    A chime is 0.2 s of 660 Hz, then 0.2 s of 880 Hz. The network is not trained. It correlates the
    sound with waves of both pitches, 20 ms long and 10 ms apart, and correlates the loudness of
    both pitches over time with the loudness pattern of a chime.
    """
    time = 2 * np.pi * np.arange(320) / 16000
    waves = np.stack([wave(time * pitch) for pitch in (660, 880) for wave in (np.sin, np.cos)], -1)
    waves *= np.hanning(320)[:, np.newaxis] / 80
    pairs = np.repeat(np.eye(2), 2, axis=0)
    melody = np.repeat([[1, -1], [-1, 1]], 20, axis=0) / 40
    x = Remembered(160, "sound")(x)
    x = layers.Conv1D(4, 320, 160, kernel_initializer=constant_initializer(waves))(x)
    x = layers.Lambda(tf.square)(x)
    x = layers.Conv1D(2, 1, kernel_initializer=constant_initializer(pairs))(x)
    x = Remembered(39, "loudness")(layers.Lambda(tf.sqrt)(x))
    x = layers.Conv1D(1, 40, kernel_initializer=constant_initializer(melody))(x)
    x = layers.GlobalMaxPooling1D()(x)
    return layers.Dense(
        1,
        "sigmoid",
        kernel_initializer=constant_initializer(40),
        bias_initializer=constant_initializer(-6),
    )(x)


def draw_noise(generator: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Draw noise."""
    return generator.normal(0, 0.1, shape).astype(np.float32)


def pixels(generator: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Draw uniform values in [0, 1), like pixels of images."""
    return generator.random(shape, np.float32)


def features(generator: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Draw standard normal values, like normalized features."""
    return generator.standard_normal(shape, np.float32)


@dataclass(frozen=True)
class Scheme:
    """The storage of weights and the type of activations that the converter uses."""

    optimizations: tuple[tf.lite.Optimize, ...] = (tf.lite.Optimize.DEFAULT,)
    weights: tuple[tf.DType, ...] = ()
    """Types that weights may take; none leaves the choice to the converter."""
    operators: tf.lite.OpsSet = tf.lite.OpsSet.TFLITE_BUILTINS
    calibrated: bool = False
    interface: tf.DType = tf.float32
    """Type of the model's inputs and outputs."""


SCHEMES = {
    "float32": Scheme(optimizations=()),
    "float16": Scheme(weights=(tf.float16,)),
    "dynamic_range": Scheme(),
    "int8": Scheme(
        operators=tf.lite.OpsSet.TFLITE_BUILTINS_INT8, calibrated=True, interface=tf.int8
    ),
    "uint8": Scheme(
        operators=tf.lite.OpsSet.TFLITE_BUILTINS_INT8, calibrated=True, interface=tf.uint8
    ),
    "int16x8": Scheme(
        operators=tf.lite.OpsSet.EXPERIMENTAL_TFLITE_BUILTINS_ACTIVATIONS_INT16_WEIGHTS_INT8,
        calibrated=True,
        interface=tf.int16,
    ),
}

FLOAT = ("float32", "float16")
ALL = tuple(SCHEMES)


@dataclass(frozen=True)
class Network:
    """A function of symbolic tensors, and the shape and samples of its input."""

    body: Callable[[tf.keras.KerasTensor], tf.keras.KerasTensor]
    shape: tuple[int, ...]
    """Shape of one input, without the batch."""
    sample: Callable[[np.random.Generator, tuple[int, ...]], Array]
    schemes: tuple[str, ...]
    remembers: bool = False
    """Whether the network has state, and thus takes one input at a time; its weights are fixed."""


NETWORKS = {
    "mobilenet": Network(mobilenet, (96, 96, 3), pixels, ALL),
    "unet": Network(unet, (48, 64, 3), pixels, FLOAT),
    "keywords": Network(keywords, (49, 10), features, ALL),
    "transformer": Network(transformer, (20, 48), features, FLOAT),
    "chime": Network(chime_detector, (320, 1), draw_noise, ("float32",), remembers=True),
}


def build(name: str, network: Network, samples: Array) -> tf.keras.Model:
    """Return the Keras model, its batch normalizations set to the statistics of ``samples``."""
    # Keras numbers layers by session, and the file contains their names.
    tf.keras.backend.clear_session()
    tf.keras.utils.set_random_seed(SEED)
    x = layers.Input(network.shape, 1 if network.remembers else None, name="input")
    model = tf.keras.Model(x, network.body(x), name=name)
    if network.remembers:
        return model
    # Zero biases and unit scales would hide a converter that drops or permutes them.
    for variable in model.trainable_variables:
        if variable.name != "kernel":
            variable.assign_add(tf.random.normal(variable.shape, stddev=0.3))
    model(samples, training=True)
    return model


def convert(saved: Path, scheme: Scheme, samples: Array) -> bytes:
    """Return the TFLite file of the model saved in the directory ``saved``."""

    def representative_dataset() -> Iterator[list[Array]]:
        for sample in samples:
            yield [sample[np.newaxis]]

    converter = tf.lite.TFLiteConverter.from_saved_model(str(saved))
    converter.optimizations = list(scheme.optimizations)
    converter.target_spec.supported_types = list(scheme.weights)
    converter.target_spec.supported_ops = [scheme.operators]
    if scheme.calibrated:
        converter.representative_dataset = representative_dataset
    converter.inference_input_type = scheme.interface
    converter.inference_output_type = scheme.interface
    return bytes(converter.convert())


def make(output: Path) -> None:
    """Write every model into the directory ``output``."""
    tf.config.experimental.enable_op_determinism()
    output.mkdir(parents=True, exist_ok=True)
    for name, network in NETWORKS.items():
        samples = network.sample(np.random.default_rng(SEED), (SAMPLES, *network.shape))
        model = build(name, network, samples)
        one = tf.TensorSpec((1, *network.shape), tf.float32, name="input")
        with TemporaryDirectory() as saved:
            model.export(saved, verbose=False, input_signature=[one])
            for scheme in network.schemes:
                path = output / f"{name}_{scheme}.tflite"
                size = path.write_bytes(convert(Path(saved), SCHEMES[scheme], samples))
                sys.stdout.write(f"{path}: {size} bytes\n")


def main() -> None:
    """Read the command line and make the models."""
    parser = argparse.ArgumentParser(description="Make the TFLite models of assets/models.")
    parser.add_argument("--output", type=Path, default=MODELS, help="directory to write into")
    make(parser.parse_args().output)


if __name__ == "__main__":
    main()

"""Make networks of dynamic range with Keras, to measure and to compare with LiteRT.

    python scripts/make_dynamic_range.py FOLDER
    python scripts/latency.py FOLDER --runs 9 --least 0.3
    python scripts/parity.py FOLDER

Classifiers are Keras applications without their last softmax, the others are small networks as
people train them for detection, segmentation, images, speech and text. All weights are random,
also those of normalizations. `tf.lite.Optimize.DEFAULT` without data quantizes the weights.
TensorFlow 2.21 and Keras 3.15 made the networks of docs/performance.md.
"""

import usage  # noqa: F401 - packages may be missing

import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import tensorflow as tf  # type: ignore[import-untyped]  # TensorFlow publishes no types

layers, applications = tf.keras.layers, tf.keras.applications
Symbolic = tf.keras.KerasTensor

# The model in keras.applications, and the height and width of its images.
CLASSIFIERS = {
    "MobileNet": 224,
    "MobileNetV2": 224,
    "MobileNetV3Small": 224,
    "MobileNetV3Large": 224,
    "EfficientNetB0": 224,
    "EfficientNetV2B0": 192,
    "NASNetMobile": 224,
    "DenseNet121": 160,
    "ResNet50": 160,
    "ResNet50V2": 128,
    "InceptionV3": 192,
    "Xception": 160,
    "ConvNeXtTiny": 128,
}


def convolve(x: Symbolic, channels: int, window: int = 3, stride: int = 1) -> Symbolic:
    """Return a convolution, a normalization and SiLU, as YOLO has them."""
    x = layers.Conv2D(channels, window, stride, padding="same", use_bias=False)(x)
    return layers.Activation("silu")(layers.BatchNormalization()(x))


def cross_stage(x: Symbolic, channels: int, count: int = 1) -> Symbolic:
    """Return the block of YOLOv8 with two branches, one of them with `count` bottlenecks."""
    half = channels // 2
    parts = [convolve(x, half, 1), convolve(x, half, 1)]
    for _ in range(count):
        y = convolve(convolve(parts[-1], half), half)
        parts.append(layers.Add()([parts[-1], y]))
    return convolve(layers.Concatenate()(parts), channels, 1)


def yolo(width: int, x: Symbolic) -> list[Symbolic]:
    """Detector of three scales with `width` channels at first."""
    x = convolve(convolve(x, width, 3, 2), 2 * width, 3, 2)
    scales = []
    for factor in (2, 4, 8, 16):
        x = cross_stage(x, factor * width)
        scales.append(x)
        if factor < 16:
            x = convolve(x, 2 * factor * width, 3, 2)
    heads, above = [], scales[-1]
    for scale in (scales[-1], scales[-2], scales[-3]):
        if scale is not above:
            above = layers.Concatenate()([layers.UpSampling2D()(above), scale])
            above = cross_stage(above, scale.shape[-1])
        y = convolve(convolve(above, 4 * width), 4 * width)
        heads.append(layers.Reshape((-1, 85))(layers.Conv2D(85, 1)(y)))
    return [layers.Concatenate(axis=1)(heads)]


def unet(x: Symbolic) -> Symbolic:
    """Segmentation with transposed convolutions."""
    skipped = []
    for channels in (16, 32, 64, 128):
        for _ in range(2):
            x = layers.Conv2D(channels, 3, padding="same", activation="relu")(x)
        skipped.append(x)
        x = layers.MaxPooling2D()(x)
    for y in reversed(skipped):
        x = layers.Conv2DTranspose(y.shape[-1], 2, 2)(x)
        x = layers.Concatenate()([x, y])
        x = layers.Conv2D(y.shape[-1], 3, padding="same", activation="relu")(x)
    return layers.Conv2D(1, 1, activation="sigmoid")(x)


def style(x: Symbolic) -> Symbolic:
    """Image to image: residual blocks between strided and transposed convolutions."""
    for channels, stride in ((16, 1), (32, 2), (64, 2)):
        x = layers.Conv2D(channels, 3, stride, padding="same", activation="relu")(x)
    for _ in range(4):
        y = layers.Conv2D(64, 3, padding="same", activation="relu")(x)
        x = layers.Add()([x, layers.Conv2D(64, 3, padding="same")(y)])
    for channels in (32, 16):
        x = layers.Conv2DTranspose(channels, 3, 2, padding="same", activation="relu")(x)
    return layers.Conv2D(3, 9, padding="same", activation="tanh")(x)


def enlarge(x: Symbolic) -> Symbolic:
    """Super-resolution by depth to space."""
    x = layers.Conv2D(56, 5, padding="same", activation="relu")(x)
    for _ in range(4):
        x = layers.Conv2D(32, 3, padding="same", activation="relu")(x)
    x = layers.Conv2D(27, 3, padding="same")(x)
    return layers.Lambda(lambda y: tf.nn.depth_to_space(y, 3))(x)


def read_text_line(x: Symbolic) -> Symbolic:
    """Optical character recognition: convolutions, then a dense layer for each column."""
    for channels, pool in ((32, (2, 2)), (64, (2, 2)), (128, (2, 1)), (128, (2, 1))):
        x = layers.Conv2D(channels, 3, padding="same", activation="relu")(x)
        x = layers.MaxPooling2D(pool)(x)
    x = layers.Permute((2, 1, 3))(x)
    x = layers.Reshape((x.shape[1], -1))(x)
    x = layers.Dense(128, activation="relu")(x)
    return layers.Dense(96)(x)


def spot_keywords(x: Symbolic) -> Symbolic:
    """Keywords of speech by separable convolutions."""
    x = layers.Conv2D(172, (10, 4), (2, 1), padding="same", activation="relu")(x)
    for _ in range(4):
        x = layers.DepthwiseConv2D(3, padding="same", activation="relu")(x)
        x = layers.Conv2D(172, 1, activation="relu")(x)
    return layers.Dense(12)(layers.GlobalAveragePooling2D()(x))


def separate_sequence(x: Symbolic) -> Symbolic:
    """Speech by dilated convolutions of sequences, as in Conv-TasNet."""
    x = layers.Conv1D(128, 1)(x)
    for dilation in (1, 2, 4, 8, 1, 2, 4, 8):
        y = layers.Conv1D(256, 3, dilation_rate=dilation, padding="same", activation="relu")(x)
        x = layers.Add()([x, layers.Conv1D(128, 1)(y)])
    return layers.Conv1D(64, 1, activation="sigmoid")(x)


def recognise_speech(x: Symbolic) -> Symbolic:
    """Speech by strided convolutions and two LSTM layers."""
    x = layers.Conv1D(128, 5, 2, padding="same", activation="relu")(x)
    for _ in range(2):
        x = layers.LSTM(128, return_sequences=True, unroll=False)(x)
    return layers.Dense(40)(x)


def suppress_noise(x: Symbolic) -> Symbolic:
    """Noise suppression by GRU layers."""
    x = layers.Dense(128, activation="tanh")(x)
    for units in (96, 128):
        x = layers.GRU(units, return_sequences=True)(x)
    return layers.Dense(32, activation="sigmoid")(x)


def classify_motion(x: Symbolic) -> Symbolic:
    """Activities of people from accelerometers by one LSTM layer."""
    return layers.Dense(6)(layers.LSTM(64)(x))


def attend(x: Symbolic, heads: int, inner: int) -> Symbolic:
    """Return a block of a transformer."""
    width = x.shape[-1]
    y = layers.LayerNormalization()(x)
    x = layers.Add()([x, layers.MultiHeadAttention(heads, width // heads)(y, y)])
    y = layers.Dense(inner, activation="gelu")(layers.LayerNormalization()(x))
    return layers.Add()([x, layers.Dense(width)(y)])


def encode_text(x: Symbolic) -> Symbolic:
    """Embedded words to a vector by four blocks of a transformer."""
    for _ in range(4):
        x = attend(x, 4, 1024)
    return layers.Dense(256)(layers.GlobalAveragePooling1D()(x))


def see_patches(x: Symbolic) -> Symbolic:
    """Image classifier by patches and blocks of a transformer."""
    x = layers.Conv2D(192, 16, 16)(x)
    x = layers.Reshape((-1, 192))(x)
    for _ in range(4):
        x = attend(x, 3, 768)
    return layers.Dense(1000)(layers.GlobalAveragePooling1D()(x))


def reconstruct(x: Symbolic) -> Symbolic:
    """Autoencoder of dense layers."""
    for units in (512, 512, 32, 512, 512):
        x = layers.Dense(units, activation="relu")(x)
    return layers.Dense(640)(x)


NETWORKS: dict[str, tuple[tuple[int, ...], Callable[[Symbolic], object]]] = {
    "yolo_16": ((320, 320, 3), lambda x: yolo(16, x)),
    "yolo_8": ((224, 224, 3), lambda x: yolo(8, x)),
    "unet": ((128, 128, 3), unet),
    "style": ((160, 160, 3), style),
    "super_resolution": ((96, 96, 3), enlarge),
    "text_line": ((32, 160, 1), read_text_line),
    "keywords": ((49, 40, 1), spot_keywords),
    "sequence_separation": ((200, 64), separate_sequence),
    "speech_lstm": ((100, 80), recognise_speech),
    "noise_gru": ((50, 64), suppress_noise),
    "motion_lstm": ((128, 9), classify_motion),
    "text_transformer": ((64, 256), encode_text),
    "vision_transformer": ((224, 224, 3), see_patches),
    "autoencoder": ((640,), reconstruct),
}


def build(name: str) -> tf.keras.Model:
    """Return a network with random weights."""
    tf.keras.utils.set_random_seed(0)
    if name in CLASSIFIERS:
        size = CLASSIFIERS[name]
        shape = (size, size, 3)
        options = {"weights": None, "classifier_activation": None, "input_shape": shape}
        return getattr(applications, name)(**options)
    shape, function = NETWORKS[name]
    x = tf.keras.Input(shape)
    return tf.keras.Model(x, function(x))


def spread_normalizations(model: tf.keras.Model) -> None:
    """Give normalizations random averages and factors, as training does."""
    generator = np.random.default_rng(0)
    for layer in model.layers:
        if isinstance(layer, layers.BatchNormalization):
            for weight in layer.weights:
                low, high = (
                    (0.5, 1.5) if weight.name in ("gamma", "moving_variance") else (-0.3, 0.3)
                )
                weight.assign(generator.uniform(low, high, weight.shape))


def main() -> None:
    """Write the networks to a folder."""
    folder = Path(sys.argv[1])
    folder.mkdir(exist_ok=True)
    for name in sys.argv[2:] or [*CLASSIFIERS, *NETWORKS]:
        model = build(name)
        spread_normalizations(model)
        spec = tf.TensorSpec((1, *model.input.shape[1:]))
        with TemporaryDirectory() as saved:
            model.export(saved, verbose=False, input_signature=[spec])
            converter = tf.lite.TFLiteConverter.from_saved_model(saved)
            converter.optimizations = [tf.lite.Optimize.DEFAULT]
            (folder / f"{name}.tflite").write_bytes(converter.convert())
        sys.stdout.write(f"{name}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()

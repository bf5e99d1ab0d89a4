"""Pictures as inputs, resized and normalised by the model's metadata.

Pillow decodes the pictures; it is imported only if there is a picture.
"""

import os
from collections.abc import Sequence
from importlib import import_module
from typing import NamedTuple

import numpy as np

from tflite2onnx.errors import VerifyError
from tflite2onnx.quantization.storage import find_integer_range
from tflite2onnx.reader.metadata import read_model_metadata
from tflite2onnx.reader.model import read_model
from tflite2onnx.tensor import Array, DType
from tflite2onnx.verification.inputs import Detail, read_quantization
from tflite2onnx.verification.runtimes import ModelFile

# The endings of files that are pictures.
PICTURE_SUFFIXES = (".bmp", ".gif", ".jpeg", ".jpg", ".png", ".ppm", ".tif", ".tiff", ".webp")
_MODES = {1: "L", 3: "RGB", 4: "RGBA"}  # the modes of Pillow by number of channels
_IMAGE = 4  # Number of axes of a batch of pictures.
# The statistics of a model without metadata: real numbers from -1 to 1. Integers are pixels.
_MEAN = _STD = (127.5,)


class ImageInput(NamedTuple):
    """The image input of a model, [batch, height, width, channels].

    Pixels become (pixel - mean) / std. `mean` and `std` have one number, or one for each channel;
    they are () if unknown.
    """

    name: str
    detail: Detail
    mean: tuple[float, ...]
    std: tuple[float, ...]

    def read_array(self, path: str | os.PathLike[str]) -> Array:
        """Return a picture as an array for the input: resized, normalised, quantized if needed.

        Raises:
            VerifyError: the picture cannot be read.
        """
        batch, height, width, channels = map(int, self.detail["shape"])
        pixels = _decode_picture(path, _MODES[channels], (width, height))
        picture = pixels.reshape(height, width, channels)
        return np.repeat(self._normalize_pixels(picture)[np.newaxis], batch, axis=0)

    def _normalize_pixels(self, pixels: Array) -> Array:
        dtype = np.dtype(self.detail["dtype"])
        quantization = read_quantization(self.detail)
        if dtype.kind in "iu" and (quantization is None or not self.mean):
            lowest = -128 if dtype == np.int8 else 0
            return (pixels.astype(np.int16) + lowest).astype(dtype)
        mean = np.asarray(self.mean or _MEAN, np.float32)
        numbers: Array = (pixels - mean) / np.asarray(self.std or _STD, np.float32)
        if quantization is not None:
            numbers = np.rint(numbers / quantization.scale[0]) + quantization.zero_point[0]
            low, high = find_integer_range(DType[dtype.name.upper()])
            numbers = np.clip(numbers, low, high)
        return numbers.astype(dtype)


def find_image_input(model: ModelFile, details: Sequence[Detail]) -> ImageInput:
    """Return the image input of a model; `details` are LiteRT's descriptions of its inputs.

    A model that is cut has other inputs than the file; `model` is the whole model.

    Raises:
        VerifyError: the model has no image input or several, or its metadata are invalid.
    """
    source = read_model(model)
    metadata = read_model_metadata(source)
    names = [tensor.name for tensor in source.graphs[0].inputs]
    by_name = dict(zip(names, metadata.inputs if metadata else (), strict=False))
    shaped = [(detail, detail["shape"]) for detail in details]
    pictures = [d for d, shape in shaped if len(shape) == _IMAGE and int(shape[-1]) in _MODES]
    inputs = [(detail, by_name.get(detail["name"])) for detail in pictures]
    if len(inputs) != 1:
        raise VerifyError(
            "the model must have one input for pictures, [batch, height, width, channels] with 1, 3"
            f" or 4 channels, got {len(inputs)}; give arrays instead (--input NAME=FILE)"
        )
    ((detail, tensor),) = inputs
    mean, std = (tensor.mean, tensor.std) if tensor else ((), ())
    channels = int(detail["shape"][-1])
    if not {len(mean), len(std)} <= {0, 1, channels} or not np.all(np.asarray(std)):
        raise VerifyError(
            f"the metadata of {detail['name']} must have one mean and one nonzero std for all"
            f" channels or for each, got {list(mean)} and {list(std)}"
        )
    return ImageInput(detail["name"], detail, mean, std)


def _decode_picture(path: str | os.PathLike[str], mode: str, size: tuple[int, int]) -> Array:
    """Return the pixels of a picture as uint8, in a Pillow mode, resized to (width, height)."""
    try:
        pillow = import_module("PIL.Image")
    except ImportError as error:
        raise VerifyError(
            f"pictures need one more package: pip install tflite2onnx[images] ({error})"
        ) from error
    try:
        with pillow.open(path) as picture:
            pixels = picture.convert(mode).resize(size, pillow.Resampling.BILINEAR)
            return np.asarray(pixels, np.uint8)
    except (OSError, ValueError, pillow.DecompressionBombError) as error:
        reason = getattr(error, "strerror", None) or "it must be a picture, such as PNG or JPEG"
        raise VerifyError(f"cannot read {os.fspath(path)}: {reason}") from error

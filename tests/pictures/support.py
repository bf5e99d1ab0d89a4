"""References in numpy, and models for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime

from tests.support import Build
from tests.support.metadata import pack_metadata
from tflite2onnx import Result

Array = npt.NDArray[Any]


def draw_picture(height: int, width: int, seed: int = 0) -> Array:
    """Return a picture of random colours, uint8[height, width, 3]."""
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8)


def build_network(
    shape: Sequence[int] = (1, 6, 8, 3),
    notes: Mapping[str, Any] | None = None,
    **fields: Any,
) -> bytes:
    """Return a network that negates pictures; `notes` are the metadata of its input."""
    m = Build()
    x = m.input(shape, name="pixels", **fields)
    quantized = {key: fields[key] for key in ("scale", "zero_point") if key in fields}
    m.output(*m.op("RELU" if quantized else "NEG", [x], [shape], **quantized))
    if notes is not None:
        graph = {"input_tensor_metadata": [notes]}
        m.metadata("TFLITE_METADATA", pack_metadata({"subgraph_metadata": [graph]}))
    return m.bytes()


def normalization(mean: Sequence[float], std: Sequence[float]) -> dict[str, Any]:
    """Return the metadata of an input with a normalization."""
    return {"process_units": [{"options": ("NormalizationOptions", {"mean": mean, "std": std})}]}


def run(result: Result, feeds: Mapping[str, Array]) -> dict[str, Array]:
    """Return the outputs of a model by their names."""
    session = onnxruntime.InferenceSession(result.model.SerializeToString())
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, dict(feeds)), strict=True))


def prepare(result: Result, picture: Array) -> Array:
    """Return what the preprocessing of a model makes of a picture."""
    return run(result.parts["preprocessing"], {"image": picture})["pixels"]


def resize(picture: Array, height: int, width: int) -> Array:
    """Return a picture of another size, float64, interpolated between the centres of pixels."""
    for axis, size in enumerate((height, width)):
        old = picture.shape[axis]
        places = np.clip((np.arange(size) + 0.5) * old / size - 0.5, 0, old - 1)
        before = np.minimum(np.floor(places).astype(int), max(old - 2, 0))
        share = (places - before).reshape([-1 if i == axis else 1 for i in range(3)])
        after = np.minimum(before + 1, old - 1)
        picture = (1 - share) * picture.take(before, axis) + share * picture.take(after, axis)
    return picture


def add_margins(picture: Array, height: int, width: int, pad: int = 0) -> Array:
    """Return a picture in the middle of margins, in the ratio of a height and a width."""
    h, w, _ = picture.shape
    extent = max(h, -(-w * height // width)), max(w, -(-h * width // height))
    before = (extent[0] - h) // 2, (extent[1] - w) // 2
    result = np.full((*extent, 3), pad, picture.dtype)
    result[before[0] : before[0] + h, before[1] : before[1] + w] = picture
    return result

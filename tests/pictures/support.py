"""References in numpy, and models for them."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime

from tests.support import Build
from tests.support.metadata import pack_metadata
from tflite2onnx import Result
from tflite2onnx.pictures.mediapipe import Detector

Array = npt.NDArray[Any]

PICTURES = ((48, 64), (64, 33), (40, 40))


def draw_picture(height: int, width: int, seed: int = 0) -> Array:
    """Return a picture of random colours, uint8[height, width, 3]."""
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8)


def build_network(
    shape: Sequence[int | None] = (1, 6, 8, 3),
    notes: Mapping[str, Any] | None = None,
    code: str = "NEG",
    **fields: Any,
) -> bytes:
    """Return a network of one operator on pictures; `notes` are the metadata of its input."""
    m = Build()
    x = m.input(shape, name="pixels", **fields)
    quantized = {key: fields[key] for key in ("scale", "zero_point") if key in fields}
    m.output(*m.op("RELU" if quantized else code, [x], [shape], **quantized))
    if notes is not None:
        graph = {"input_tensor_metadata": [notes]}
        m.metadata("TFLITE_METADATA", pack_metadata({"subgraph_metadata": [graph]}))
    return m.bytes()


def normalization(mean: Sequence[float], std: Sequence[float]) -> dict[str, Any]:
    """Return the metadata of an input with a normalization."""
    return {"process_units": [{"options": ("NormalizationOptions", {"mean": mean, "std": std})}]}


def run_model(result: Result, feeds: Mapping[str, Array]) -> dict[str, Array]:
    """Return the outputs of a model by their names."""
    session = onnxruntime.InferenceSession(result.model.SerializeToString())
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, dict(feeds)), strict=True))


def prepare(result: Result, picture: Array) -> Array:
    """Return what the preprocessing of a model makes of a picture."""
    return run_model(result.parts["preprocessing"], {"image": picture})["pixels"]


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


def center(picture: Array, height: int, width: int) -> Array:
    """Return a picture in the middle of black, in the ratio of a height and a width, resized."""
    h, w, _ = picture.shape
    extent = max(h, -(-w * height // width)), max(w, -(-h * width // height))
    black = np.pad(picture.astype(float), ((1, 1), (1, 1), (0, 0)))
    for axis, (count, old, whole) in enumerate(zip((height, width), (h, w), extent, strict=True)):
        places = (np.arange(count) + 0.5) / count * whole - (whole - old) / 2 - 0.5
        places = np.clip(places + 1, 0, old + 1)
        before = np.minimum(np.floor(places).astype(int), old)
        share = (places - before).reshape([-1 if i == axis else 1 for i in range(3)])
        black = (1 - share) * black.take(before, axis) + share * black.take(before + 1, axis)
    return black


def build_outputs(
    size: tuple[int, int] | None,
    shapes: Sequence[Sequence[int]],
    files: Mapping[str, bytes] | None = None,
    last: str = "NEG",
    metadata: bytes = b"",
) -> bytes:
    """Return a network of a picture whose outputs are the operators `last` of its further inputs.

    `files` are packed with the model, and `metadata` are its TFLite metadata.
    """
    m = Build()
    if size is not None:
        m.input((1, *size, 3), name="pixels")
    for i, shape in enumerate(shapes):
        x = m.input(shape, name=f"raw_{i}")
        for code in last.split()[:-1]:
            (x,) = m.op(code, [x], [shape])
        options: dict[str, Any] = {"new_shape": [*shape]} if last.endswith("RESHAPE") else {}
        output = m.tensor(shape, name=f"output_{i}")
        m.output(*m.op(last.rsplit(maxsplit=1)[-1], [x], [output], **options))
    if metadata:
        m.metadata("TFLITE_METADATA", metadata)
    return m.bytes() + pack_files(files or {})


def pack_files(files: Mapping[str, bytes]) -> bytes:
    """Return an archive, which is appended to a model."""
    packed = io.BytesIO()
    if files:
        with zipfile.ZipFile(packed, "w") as archive:
            for name, data in files.items():
                archive.writestr(name, data)
    return packed.getvalue()


def run_outputs(
    result: Result, outputs: Sequence[Array], picture: Array | None = None
) -> dict[str, Array]:
    """Return what a model of `build_outputs` makes of the outputs of its network."""
    feeds = {f"raw_{i}": -output for i, output in enumerate(outputs)}
    return run_model(result, feeds if picture is None else {"image": picture, **feeds})


def overlap(box: Array, others: Array) -> Array:
    """Return the intersection over union of a box [4] and of others [n, 4]."""
    low, high = np.maximum(box[:2], others[:, :2]), np.minimum(box[2:], others[:, 2:])
    shared = np.clip(high - low, 0, None).prod(1)
    areas = [(each[..., 2:] - each[..., :2]).prod(-1) for each in (box, others)]
    return np.asarray(shared / (areas[0] + areas[1] - shared))


def suppress(
    boxes: Array, scores: Array, threshold: float, iou: float, most: int
) -> list[tuple[int, int]]:
    """Return (box, class) of the best boxes of scores [classes, n], one class for each box."""
    best = scores.max(0)
    kept: list[tuple[int, int]] = []
    for index in np.argsort(-best, kind="stable"):
        cls = int(scores[:, index].argmax())
        same = boxes[[i for i, c in kept if c == cls]].reshape(-1, 4)
        if best[index] > threshold and not (overlap(boxes[index], same) > iou).any():
            kept.append((int(index), cls))
    return kept[:most]


def average(
    boxes: Array, points: Array, scores: Array, threshold: float, iou: float
) -> tuple[Array, Array, Array]:
    """Return boxes, key points and scores after MediaPipe's weighted suppression."""
    left = [i for i in np.argsort(-scores, kind="stable") if scores[i] >= threshold]
    found = []
    while left:
        near = overlap(boxes[left[0]], boxes[left]) > iou
        same = [i for i, is_near in zip(left, near, strict=True) if is_near]
        weights = scores[same] / scores[same].sum()
        means = (np.tensordot(weights, each[same], 1) for each in (boxes, points))
        found.append((*means, scores[left[0]]))
        left = [i for i, is_near in zip(left, near, strict=True) if not is_near]
    columns = zip(*found, strict=True)
    made, keypoints, kept = (np.array(column) for column in columns)
    return made, keypoints, kept


def decode_yolo(output: Array, form: str) -> tuple[Array, Array]:
    """Return boxes [n, 4] and scores [classes, n], as Ultralytics documents them."""
    columns = output[0] if form == "yolov8" else output[0].T
    middle, half = columns[:2].T, columns[2:4].T / 2
    scores = columns[4:] if form == "yolov8" else columns[4] * columns[5:]
    return np.concatenate([middle - half, middle + half], 1), scores


def to_pixels(points: Array, picture: Array, *, centred: bool = True) -> Array:
    """Return points [..., 2], fractions of a square around a picture, in pixels."""
    height, width, _ = picture.shape
    side = max(height, width)
    margins = (np.array([side, side]) - [width, height]) / 2
    return np.asarray(points * side - (margins if centred else np.floor(margins)))


def draw_faces(detector: Detector) -> tuple[Array, Array]:
    """Return outputs of a detector with groups of boxes that overlap."""
    random = np.random.default_rng(detector.size)
    n = detector.boxes
    raw = random.normal(0, 3, (1, n, detector.numbers)).astype(np.float32)
    raw[..., 2:4] = random.uniform(20, 60, (1, n, 2))
    logits = random.normal(-12, 2, (1, n, 1)).astype(np.float32)
    for first in random.integers(0, n - 8, 5):
        logits[0, first : first + 8, 0] = random.uniform(-1, 4, 8)
    return raw, logits

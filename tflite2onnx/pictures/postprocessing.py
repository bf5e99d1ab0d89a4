"""From the outputs of a network to boxes, scores, classes, labels and key points."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tflite2onnx.builder.builder import Port
from tflite2onnx.builder.nodes import Nodes, Value
from tflite2onnx.errors import OptionError, PictureError
from tflite2onnx.layout import make_identity
from tflite2onnx.pictures import yolo
from tflite2onnx.pictures.families import Family, NetworkFacts
from tflite2onnx.pictures.framing import PictureFrame, to_picture
from tflite2onnx.tensor import DType, Tensor

_WORD = "detections"  # the name of the dynamic size of all outputs


class Postprocessing(NamedTuple):
    """How outputs are decoded: the family, the path of the labels ("" if none), units of boxes."""

    family: Family
    labels: tuple[str, ...]
    fractions: bool


def plan_postprocessing(
    family: Family | None, facts: NetworkFacts, settings: Mapping[str, Any], *, has_picture: bool
) -> Postprocessing:
    """Return how the outputs of a network are read.

    Raises:
        PictureError: the network is of no known family.
        OptionError: labels or units do not fit the network.
    """
    if family is None:
        raise PictureError(
            "postprocess",
            "no decoder is known for the outputs; docs/pictures.md lists all decoders",
        )
    if family.decoder in yolo.IOU:
        yolo.check_task(facts.ultralytics.get("task", ""))
    units = settings.get("units", "pixels" if has_picture else "fractions")
    if units == "pixels" and not has_picture:
        raise OptionError("`postprocess`: units=pixels must be given with `preprocess`")
    labels = _find_labels(family, facts, settings.get("labels"))
    return Postprocessing(family, labels, units == "fractions")


def _find_labels(family: Family, facts: NetworkFacts, setting: Any) -> tuple[str, ...]:  # noqa: ANN401 - a setting
    if setting == "none" or not family.classes:
        return ()
    if setting is None:
        labels = tuple(facts.ultralytics.get("names") or facts.labels)
        return labels if len(labels) >= family.classes else ()
    labels = tuple(_read_labels(setting) if isinstance(setting, str) else setting)
    if len(labels) < family.classes:
        raise OptionError(
            f"`postprocess`: labels must have one for each of {family.classes} classes, got"
            f" {len(labels)}"
        )
    return labels


def _read_labels(path: str | os.PathLike[str]) -> list[str]:
    try:
        return Path(path).read_text("utf-8", errors="replace").splitlines()
    except OSError as error:
        raise OptionError(f"`postprocess`: cannot read {path}: {error.strerror}") from error


def read_output(g: Nodes, port: Port) -> Value:
    """Return an output as float32 in TFLite's order."""
    x, quantization = port.value, port.tensor.quantization
    if port.dtype.is_integer and quantization is not None:
        scale = g.scalar(float(quantization.scale[0]), DType.FLOAT32)
        x = g.DequantizeLinear(x, scale, g.scalar(int(quantization.zero_point[0]), port.dtype))
    else:
        x = g.recast(x, port.dtype, DType.FLOAT32)
    if port.order == make_identity(len(port.order)):
        return x
    return g.Transpose(x, perm=[port.order.index(i) for i in range(len(port.order))])


def emit_postprocessing(g: Nodes, frame: PictureFrame | None, plan: Postprocessing) -> list[Port]:
    """Return the outputs of the model; without a frame boxes are fractions of the input."""
    family = plan.family
    found = family.decode(g, [read_output(g, port) for port in family.ports])
    points = found.keypoints
    boxes = g.Reshape(found.boxes, [-1, 2, 2]) if family.makes_boxes else found.boxes
    if frame is not None and family.makes_boxes:
        boxes = to_picture(g, boxes, frame, fractions=plan.fractions, clips=family.clips_boxes)
        points = points and to_picture(g, points, frame, fractions=plan.fractions)
    ports = []
    if family.makes_boxes:
        ports.append(_make_port(g, "boxes", g.Reshape(boxes, [-1, 4]), DType.FLOAT32, family, 4))
    ports.append(_make_port(g, "scores", found.scores, DType.FLOAT32, family))
    if found.classes is not None:
        ports.append(_make_port(g, "classes", found.classes, DType.INT64, family))
        ports += _list_labels(g, found.classes, plan)
    if points is not None:
        ports.append(_make_port(g, "keypoints", points, DType.FLOAT32, family, family.points, 2))
    return ports


def _list_labels(g: Nodes, classes: Value, plan: Postprocessing) -> Sequence[Port]:
    if not plan.labels:
        return ()
    table = np.array([label.encode() for label in plan.labels], object)
    labels = g.Gather(g.constant(table, DType.STRING), classes, axis=0)
    return [_make_port(g, "labels", labels, DType.STRING, plan.family)]


def _make_port(
    g: Nodes, name: str, value: Value, dtype: DType, family: Family, *sizes: int
) -> Port:
    """Return an output with one row for each detection."""
    tensor = Tensor(name, (family.most, *sizes), dtype, symbols={0: _WORD})
    value = g.annotate(g.identity(value, dtype), dtype, tensor.sizes)
    return Port(name, value, tensor, make_identity(tensor.rank), dtype)

"""Families of networks: the decoding of outputs, which shapes and metadata determine."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from tflite2onnx.builder.builder import Port
from tflite2onnx.builder.nodes import Nodes, Value
from tflite2onnx.errors import PictureError
from tflite2onnx.graph import Graph
from tflite2onnx.pictures import mediapipe, ssd, yolo
from tflite2onnx.pictures.boxes import BoxLimits, Detections, average_boxes, suppress
from tflite2onnx.pictures.preprocessing import find_image_axes
from tflite2onnx.tensor import Shape, Tensor

_MOST, _TOP = 100, 5
_MOVING = ("CONCATENATION", "DEQUANTIZE", "PACK", "QUANTIZE", "RESHAPE", "SQUEEZE", "TRANSPOSE")

# A function from the outputs, float32 in TFLite's order, to detections.
_Decoder = Callable[[Nodes, Sequence[Value]], Detections]


class NetworkFacts(NamedTuple):
    """Facts about a network from its graph and metadata.

    Attributes:
        graph: the graph in the file.
        size: the height and the width of its picture; None if it takes none. ultralytics: the data
            that Ultralytics packs with a model (`yolo.read_ultralytics`).
        face_detector: the options of MediaPipe's anchors in the metadata.
        labels, threshold: the labels and the least score in the metadata of its outputs.
        ends_in_scores: whether LOGISTIC or SOFTMAX make an output.
    """

    graph: Graph
    size: tuple[int, int] | None
    ultralytics: Mapping[str, Any]
    face_detector: Mapping[str, Any]
    labels: Sequence[str] = ()
    threshold: float | None = None
    ends_in_scores: bool = False


class Family(NamedTuple):
    """How the outputs of a network are read.

    Attributes:
        decoder: the name of the decoder in the user's settings.
        preprocessing: the preprocessing that the network requires, as settings.
        ports: the outputs that `decode` reads, in its sequence.
        classes: the number of classes; 0 if classes are not distinguished.
        decode: makes detections of the outputs.
        points: the number of key points of each detection.
        most: the largest number of detections.
        makes_boxes: whether detections have boxes, or are the best classes of the whole picture.
        clips_boxes: whether boxes end at the edges of the picture.
    """

    decoder: str
    preprocessing: Mapping[str, Any]
    ports: tuple[Port, ...]
    classes: int
    decode: _Decoder
    points: int = 0
    most: int = _MOST
    makes_boxes: bool = True
    clips_boxes: bool = False


def collect_facts(inputs: Sequence[Port], graph: Graph, notes: Mapping[str, Any]) -> NetworkFacts:
    """Return the facts about a network with these inputs; see `attach_pictures`."""
    pictures = [(port, axes) for port in inputs if (axes := find_image_axes(port))]
    size: tuple[int, int] | None = None
    if len(pictures) == 1:
        ((port, axes),) = pictures
        height, width = (port.tensor.shape[axes.index(letter)] for letter in "HW")
        size = height, width
    files = [*(f for o in notes.get("outputs", ()) for f in o.get("files", ()))]
    files += notes.get("files", ())
    labels = next((f["labels"] for f in files if len(f.get("labels", ())) > 1), ())
    thresholds = [o["threshold"] for o in notes.get("outputs", ()) if "threshold" in o]
    threshold = next(iter(thresholds), None)
    ends = any(_ends_in_scores(graph, tensor) for tensor in graph.outputs)
    packed, described = (notes.get(key, {}) for key in ("ultralytics", "face_detector"))
    return NetworkFacts(graph, size, packed, described, labels, threshold, ends)


def _ends_in_scores(graph: Graph, tensor: Tensor) -> bool:
    """Return whether LOGISTIC or SOFTMAX computes an output, before operators that only move it."""
    source = graph.producers.trace(tensor, *_MOVING)
    return graph.producers.find(source).is_builtin("LOGISTIC", "SOFTMAX")


def find_family(
    ports: Sequence[Port], facts: NetworkFacts, settings: Mapping[str, Any]
) -> Family | None:
    """Return the family of outputs, None if none fits; PictureError if `settings` do not fit."""
    name = settings.get("decoder")
    for decoder, find in _FINDERS.items():
        if name in (None, decoder) and (family := find(ports, facts, settings)) is not None:
            return family
    if name is not None:
        shapes = ", ".join(str([*port.tensor.sizes]) for port in ports)
        raise PictureError("postprocess", f"decoder={name} does not fit outputs of {shapes}")
    return None


def _choose_limits(
    settings: Mapping[str, Any], facts: NetworkFacts, threshold: float, iou: float
) -> BoxLimits:
    """Return the user's limits, else the metadata's limits, else the defaults of the family."""
    limit = threshold if facts.threshold is None else facts.threshold
    return BoxLimits(
        settings.get("threshold", limit), settings.get("iou", iou), settings.get("max", _MOST)
    )


def _include_threshold(limits: BoxLimits) -> BoxLimits:
    """Return limits that a score equal to the threshold passes."""
    below = np.nextafter(np.float32(limits.threshold), np.float32(-1))
    return limits._replace(threshold=float(below))


def _list_shapes(ports: Iterable[Port]) -> list[Shape]:
    return [port.tensor.shape for port in ports]


def _find_operator(
    ports: Sequence[Port], facts: NetworkFacts, settings: Mapping[str, Any]
) -> Family | None:
    """Return the family of TFLite_Detection_PostProcess, whose outputs may be in any sequence."""
    by_name = {port.tensor.name: port for port in ports}
    ops = [op for op in facts.graph.ops if op.code == ssd.OPERATOR]
    names = {tensor.name for op in ops for tensor in op.outputs}
    if len(ops) != 1 or names != by_name.keys():
        return None
    ports_in_order = tuple(by_name[tensor.name] for tensor in ops[0].outputs)
    threshold = _choose_limits(settings, facts, ssd.OPERATOR_THRESHOLD, ssd.IOU).threshold
    classes = int(ops[0].options.get("num_classes", 0))
    limit = ports_in_order[2].tensor.elements
    reader = partial(ssd.read_detections, threshold=threshold)
    return Family("detections", {}, ports_in_order, classes, reader, most=limit)


def _find_mediapipe(
    ports: Sequence[Port], facts: NetworkFacts, settings: Mapping[str, Any]
) -> Family | None:
    detector = mediapipe.find_detector(facts.size, _list_shapes(ports), facts.face_detector)
    if detector is None:
        return None
    ends = tuple(sorted(ports, key=lambda port: -port.tensor.shape[2]))
    limits = _include_threshold(_choose_limits(settings, facts, detector.threshold, mediapipe.IOU))

    def decode(g: Nodes, outputs: Sequence[Value]) -> Detections:
        numbers, logits = outputs
        candidates, points = mediapipe.decode_mediapipe(g, numbers, logits, detector)
        return average_boxes(g, candidates, points, detector.points, limits)

    return Family(
        *("mediapipe", detector.preprocessing, ends, 0, decode),
        points=detector.points,
        most=limits.most,
    )


def _find_ssd(
    ports: Sequence[Port], facts: NetworkFacts, settings: Mapping[str, Any]
) -> Family | None:
    anchors = ssd.find_ssd_anchors(facts.size, _list_shapes(ports))
    if anchors is None:
        return None
    ports_in_order = tuple(sorted(ports, key=lambda port: port.tensor.shape[2] != 4))
    limits = _choose_limits(settings, facts, ssd.THRESHOLD, ssd.IOU)
    how = settings.get("scores", "none" if facts.ends_in_scores else "sigmoid")

    def decode(g: Nodes, outputs: Sequence[Value]) -> Detections:
        encodings, scores = outputs
        return suppress(g, ssd.decode_ssd(g, encodings, activate(g, scores, how), anchors), limits)

    classes = ports_in_order[1].tensor.shape[2] - 1
    return Family("ssd", {}, ports_in_order, classes, decode, most=limits.most)


def _find_yolo(
    form: str, ports: Sequence[Port], facts: NetworkFacts, settings: Mapping[str, Any]
) -> Family | None:
    if len(ports) != 1 or yolo.find_yolo(facts.size, ports[0].tensor.shape) != form:
        return None
    shape = ports[0].tensor.shape
    limits = _choose_limits(settings, facts, yolo.THRESHOLD, yolo.IOU[form])

    pixels = facts.size if settings.get("coordinates") == "pixels" else None

    def decode(g: Nodes, outputs: Sequence[Value]) -> Detections:
        return suppress(g, yolo.decode_yolo(g, outputs[0], shape, form, pixels), limits)

    classes = yolo.count_classes(shape, form)
    return Family(
        form, yolo.PREPROCESSING, tuple(ports), classes, decode, most=limits.most, clips_boxes=True
    )


def _find_scores(
    ports: Sequence[Port], facts: NetworkFacts, settings: Mapping[str, Any]
) -> Family | None:
    """Return the family of a classifier, whose output is a list of scores.

    A network that takes no picture is a classifier only if the user says so.
    """
    if facts.size is None and "decoder" not in settings:
        return None
    if len(ports) != 1 or ports[0].tensor.elements != max(ports[0].tensor.shape, default=0):
        return None
    classes = ports[0].tensor.elements
    limit = min(settings.get("max", _TOP), classes)
    how, threshold = settings.get("scores", "none"), settings.get("threshold", facts.threshold)

    def decode(g: Nodes, outputs: Sequence[Value]) -> Detections:
        scores = activate(g, g.Reshape(outputs[0], [classes]), how)
        best, places = g.node_outputs("TopK", 2, scores, [limit], axis=0)
        if threshold is None:
            return Detections(best, best, places)
        is_above = g.Greater(best, g.constant(np.array(threshold, np.float32)))
        best, places = (g.Compress(x, is_above, axis=0) for x in (best, places))
        return Detections(best, best, places)

    return Family("scores", {}, tuple(ports), classes, decode, most=limit, makes_boxes=False)


def activate(g: Nodes, scores: Value, how: str) -> Value:
    """Return scores after the function `how` over their last axis."""
    if how == "softmax":
        return g.Softmax(scores, axis=-1)
    return g.Sigmoid(scores) if how == "sigmoid" else scores


_FINDERS: Mapping[
    str, Callable[[Sequence[Port], NetworkFacts, Mapping[str, Any]], Family | None]
] = {
    "detections": _find_operator,
    "mediapipe": _find_mediapipe,
    "ssd": _find_ssd,
    "yolov8": partial(_find_yolo, "yolov8"),
    "yolov5": partial(_find_yolo, "yolov5"),
    "scores": _find_scores,
}

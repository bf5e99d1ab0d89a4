"""pictures/mediapipe.py: the boxes and key points of MediaPipe's detectors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tests.pictures.support import (
    PICTURES,
    Array,
    average,
    build_outputs,
    draw_faces,
    draw_picture,
    run_model,
    run_outputs,
    to_pixels,
)
from tests.support.metadata import pack_metadata
from tflite2onnx import ConversionError, convert
from tflite2onnx.pictures.mediapipe import DETECTORS, Detector
from tflite2onnx.reader.metadata import describe_face_detector
from tflite2onnx.reader.model import read_model

if TYPE_CHECKING:
    pass


def centres(detector: Detector) -> Array:
    """Return the centres of the anchors, [n, 2], x first."""
    found = []
    for stride in dict.fromkeys(detector.strides):
        places = detector.size // stride
        each = detector.strides.count(stride) * (2 if detector.interpolated else 1)
        for y in range(places):
            for x in range(places):
                found += [((x + 0.5) / places, (y + 0.5) / places)] * each
    return np.array(found)


@pytest.mark.parametrize("detector", DETECTORS, ids=lambda each: f"{each.name}_{each.size}")
def test_boxes_and_key_points_equal_the_numpy_reference(detector: Detector) -> None:
    """Boxes and key points equal a reference in numpy, for pictures of all ratios."""
    raw, logits = draw_faces(detector)
    outputs, shapes = [logits, raw], [logits.shape, raw.shape]
    network = build_outputs((detector.size, detector.size), shapes)
    result = convert(network, preprocess=True, postprocess="threshold=0.4")
    numbers = raw[0].reshape(detector.boxes, -1, 2) / detector.size
    anchors = centres(detector)
    middle, half = numbers[:, 0] + anchors, numbers[:, 1] / 2
    boxes = np.concatenate([middle - half, middle + half], 1)
    points = numbers[:, 2:] + anchors[:, None]
    scores = 1 / (1 + np.exp(-logits.ravel().astype(float)))
    want = average(boxes, points, scores, 0.4, 0.3)
    assert 1 < len(want[2]) < 40
    for height, width in PICTURES:
        picture = draw_picture(height, width)
        got = run_outputs(result, outputs, picture)
        np.testing.assert_allclose(got["scores"], want[2], atol=1e-5)
        in_pixels = to_pixels(want[0].reshape(-1, 2, 2), picture).reshape(-1, 4)
        np.testing.assert_allclose(got["boxes"], in_pixels, atol=1e-3)
        np.testing.assert_allclose(got["keypoints"], to_pixels(want[1], picture), atol=1e-3)


ANCHORS: dict[str, Any] = {
    "num_layers": 2,
    "anchor_offset_x": 0.5,
    "anchor_offset_y": 0.5,
    "strides": [16, 32],
    "aspect_ratios": [1.0],
    "fixed_anchor_size": True,
    "interpolated_scale_aspect_ratio": 1.0,
}
BOXES: dict[str, Any] = {
    "num_classes": 1,
    "num_boxes": 40,
    "num_coords": 8,
    "keypoint_coord_offset": 4,
    "num_keypoints": 2,
    "num_values_per_keypoint": 2,
    **{f"{letter}_scale": 64.0 for letter in "xywh"},
    "reverse_output_order": True,
    "sigmoid_score": True,
}


def build_described_detector(anchors: dict[str, Any], boxes: dict[str, Any]) -> bytes:
    """Return a face detector of 64 pixels with its options in the metadata."""
    options = {"anchor_config": anchors, "tensors_decoding_config": boxes}
    data = [*pack_metadata(options, "FaceDetectorOptions")]
    custom = [{"name": "OTHER"}, {"name": "FACE_DETECTOR_METADATA", "data": data}]
    metadata = pack_metadata({"subgraph_metadata": [{"custom_metadata": custom}]})
    return build_outputs((64, 64), [(1, 40, 8), (1, 40, 1)], metadata=metadata)


def test_anchors_come_from_options_in_the_metadata() -> None:
    """The anchors follow from the options in the metadata."""
    result = convert(build_described_detector(ANCHORS, BOXES), preprocess=True, postprocess=True)
    raw, logits = np.zeros((1, 40, 8), np.float32), np.full((1, 40, 1), -9, np.float32)
    raw[0, :, 2:4] = 8
    logits[0, [3, 38]] = [[1], [2]]
    got = run_outputs(result, [raw, logits], draw_picture(64, 64))
    np.testing.assert_allclose(got["boxes"], [[44, 44, 52, 52], [20, 4, 28, 12]], atol=1e-4)


def test_strides_of_anchors_may_be_one() -> None:
    """A stride is at least 1, that is an anchor for each pixel."""
    model = read_model(build_described_detector({**ANCHORS, "strides": [1, 32]}, BOXES))
    assert describe_face_detector(model)["strides"] == [1, 32]


@pytest.mark.parametrize(
    ("anchors", "boxes"),
    [
        ({"strides": []}, {}),
        ({"strides": [0, 32]}, {}),
        ({"strides": [8, 32]}, {}),
        ({"fixed_anchor_size": False}, {}),
        ({}, {"x_scale": 32.0}),
        ({}, {"sigmoid_score": False}),
        ({}, {"keypoint_coord_offset": 6}),
    ],
)
def test_options_of_another_decoding_are_not_used(
    anchors: dict[str, Any], boxes: dict[str, Any]
) -> None:
    """Options that stand for another decoding are not used."""
    network = build_described_detector({**ANCHORS, **anchors}, {**BOXES, **boxes})
    with pytest.raises(ConversionError, match="no decoder is known"):
        convert(network, postprocess=True)


def test_damaged_options_are_reported_and_ignored(caplog: pytest.LogCaptureFixture) -> None:
    """Damaged options are reported, and the network is converted as without metadata."""
    custom = [{"name": "FACE_DETECTOR_METADATA", "data": [255] * 8}]
    metadata = pack_metadata({"subgraph_metadata": [{"custom_metadata": custom}]})
    network = build_outputs((64, 64), [(1, 40, 8)], metadata=metadata)
    assert convert(network, preprocess="std=1").inputs[0].name == "image"
    assert "the options of the face detector are truncated or damaged" in caplog.text


def test_boxes_may_be_fractions_pixels_or_empty() -> None:
    """Boxes may be fractions of the picture, or without a picture, of the network's input."""
    detector = DETECTORS[0]
    raw, logits = draw_faces(detector)
    network = build_outputs((128, 128), [raw.shape, logits.shape])
    picture = draw_picture(30, 40)
    pixels = convert(network, preprocess=True, postprocess=True)
    fractions = convert(network, preprocess=True, postprocess={"units": "fractions"})
    alone = convert(network, postprocess=True)
    want = run_outputs(pixels, [raw, logits], picture)
    got = run_outputs(fractions, [raw, logits], picture)
    size = np.array([40, 30, 40, 30])
    np.testing.assert_allclose(got["boxes"] * size, want["boxes"], rtol=1e-5, atol=1e-4)
    np.testing.assert_allclose(got["keypoints"] * size[:2], want["keypoints"], atol=1e-4)
    pixels_of_input = np.zeros((1, *alone.inputs[0].onnx_shape[1:]), np.float32)
    feeds = {"pixels": pixels_of_input, "raw_0": -raw, "raw_1": -logits}
    in_input = run_model(alone, feeds)["boxes"]
    in_pixels = to_pixels(in_input.reshape(-1, 2, 2), picture).reshape(-1, 4)
    np.testing.assert_allclose(in_pixels, want["boxes"], atol=1e-3)
    none = run_outputs(pixels, [raw, logits - 30], picture)
    assert [none[name].shape for name in ("boxes", "scores", "keypoints")] == [
        *((0, 4), (0,), (0, 6, 2))
    ]

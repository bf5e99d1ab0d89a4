"""The pipeline of the tutorial with MediaPipe's models from the folder TFLITE2ONNX_ZOO."""

from __future__ import annotations

import os
import zipfile
from typing import TYPE_CHECKING, Any

import numpy as np
import onnxruntime
import pytest

from tests.golden.records import ZOO, zoo
from tests.pictures.support import decode_yolo, run_model, suppress
from tests.support.documents import make_environment, run_document
from tests.support.faces import FACES, ROOT, detect_face
from tflite2onnx import convert, convert_bundle

if TYPE_CHECKING:
    from pathlib import Path

__test__ = ZOO in os.environ

NAMES = ("face_detection_short_range.tflite", "face_landmarks_detector.tflite")
FOUND = [[str(case.path) for case in zoo() if case.name.endswith(name)] for name in NAMES]

YOLO = [case.path for case in zoo() if "yolov8" in case.name.lower() and "obb" not in case.name]


@pytest.mark.parametrize("pipeline", list(zip(*FOUND, strict=False)))
def test_landmarks_equal_those_of_litert(pipeline: tuple[str, str], tmp_path: Path) -> None:
    """Landmarks equal LiteRT's to a tenth of a pixel, on a drawn face and on noise."""
    detector, mesh = pipeline
    picture = FACES.draw_face()
    noise = np.random.default_rng(0).normal(0, 6, picture.shape)
    session = FACES.open_detector(detector)
    for each in (picture, np.clip(picture + noise, 0, 255).astype(np.uint8)):
        _, points = FACES.detect(session, each)
        found: list[Any] = [
            FACES.landmarks(network(mesh), each, FACES.mesh_region(points))
            for network in (FACES.with_litert, FACES.with_onnx)
        ]
        np.testing.assert_allclose(found[1], found[0], rtol=0, atol=0.1)
    svg = tmp_path / "faces.svg"
    assert FACES.main([detector, mesh, "--svg", str(svg)]) == 0
    assert svg.read_text().startswith("<svg")


@pytest.mark.parametrize("pipeline", list(zip(*FOUND, strict=False)))
def test_first_sections_of_the_tutorial_run_as_written(
    pipeline: tuple[str, str], tmp_path: Path
) -> None:
    """The bundle has MediaPipe's names; the last section has a test that needs no bundle."""
    with zipfile.ZipFile(tmp_path / "face_landmarker.task", "w") as archive:
        for path, name in zip(pipeline, ("detector", "landmarks_detector"), strict=True):
            archive.write(path, f"face_{name}.tflite")
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    text = (ROOT / "docs" / "tutorial.md").read_text().partition("## 6.")[0]
    run_document(text, tmp_path, make_environment(tmp_path / "bin"))


@pytest.mark.parametrize("detector", FOUND[0])
def test_face_boxes_equal_those_of_mediapipe(detector: str, tmp_path: Path) -> None:
    """Boxes from a bundle equal MediaPipe's algorithm with LiteRT to a hundredth of a pixel."""
    bundle = tmp_path / "face.task"
    with zipfile.ZipFile(bundle, "w") as archive:
        archive.write(detector, "face_detector.tflite")
    convert_bundle(bundle, tmp_path / "out", preprocess=True, postprocess=True)
    session = onnxruntime.InferenceSession(tmp_path / "out" / "face_detector.onnx")
    face, network = FACES.draw_face(), FACES.with_litert(detector)
    names = ["scores", "boxes", "keypoints"]
    for width in (480, 411, 360, 301):
        picture = np.ascontiguousarray(face[:, :width])
        found: list[Any] = session.run(names, {"image": picture})
        for want, got in zip(detect_face(network, picture), found, strict=True):
            np.testing.assert_allclose(got[0], np.asarray(want), rtol=0, atol=0.01)
    with pytest.raises(ValueError, match="must show a face"):
        FACES.detect(session, np.zeros_like(face))


@pytest.mark.parametrize("path", YOLO)
def test_yolo_is_decoded_as_documented(path: Path) -> None:
    """The boxes equal a reference in numpy that decodes the outputs of the network."""
    result = convert(path, preprocess=True, postprocess="threshold=0.01")
    picture = FACES.draw_face()
    prepared = run_model(result.parts["preprocessing"], {"image": picture})
    side, top = 480, 60
    assert prepared.pop("image_size").tolist() == [360, 480]
    (output,) = run_model(result.parts["network"], prepared).values()
    boxes, scores = decode_yolo(output.astype(float), "yolov8")
    kept = suppress(boxes, scores, 0.01, 0.7, 100)
    got = run_model(result, {"image": picture})
    want = boxes[[index for index, _ in kept]] * side - [0, top, 0, top]
    np.testing.assert_allclose(got["boxes"], want, rtol=0, atol=0.5)
    np.testing.assert_array_equal(got["classes"], [number for _, number in kept])

"""The pipeline of the tutorial with MediaPipe's models from the folder TFLITE2ONNX_ZOO."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tests.golden.records import ZOO, zoo
from tests.integration.test_examples import FACES

if TYPE_CHECKING:
    from pathlib import Path

__test__ = ZOO in os.environ

NAMES = ("face_detection_short_range.tflite", "face_landmarks_detector.tflite")
FOUND = [[str(case.path) for case in zoo() if case.name.endswith(name)] for name in NAMES]


@pytest.mark.parametrize("pipeline", list(zip(*FOUND, strict=False)))
def test_landmarks_are_those_of_litert(pipeline: tuple[str, str], tmp_path: Path) -> None:
    """Landmarks equal LiteRT's to a tenth of a pixel, on a drawn face and on noise."""
    detector, mesh = pipeline
    picture = FACES.draw_face()
    noise = np.random.default_rng(0).normal(0, 6, picture.shape)
    for each in (picture, np.clip(picture + noise, 0, 255).astype(np.uint8)):
        found: list[Any] = []
        for network in (FACES.with_litert, FACES.with_onnx):
            score, points = FACES.detect(network(detector), each)
            assert score > 0.5
            found.append(FACES.landmarks(network(mesh), each, FACES.mesh_region(points)))
        np.testing.assert_allclose(found[1], found[0], rtol=0, atol=0.1)
    svg = tmp_path / "faces.svg"
    assert FACES.main([detector, mesh, "--svg", str(svg)]) == 0
    assert svg.read_text().startswith("<svg")

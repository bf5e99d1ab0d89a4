"""Published networks in half precision, from the folder TFLITE2ONNX_ZOO."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.golden.records import ZOO, zoo
from tflite2onnx import convert, verify

__test__ = ZOO in os.environ

# File names, and the largest allowed difference as a fraction of the range.
NETWORKS = {
    "face_detection_front.tflite": 1e-2,
    "face_detection_back.tflite": 1e-2,
    "face_detection_short_range.tflite": 1e-2,
    "face_landmarks_detector.tflite": 1e-2,
    # For this network float16 weights alone cause a difference of this size.
    "mobilenet_v1_0.25_224_1_default_1.tflite": 3e-2,
}
FOUND = [
    (case.path, limit)
    for name, limit in NETWORKS.items()
    for case in zoo() if case.name.endswith(name)
]  # fmt: skip


@pytest.mark.parametrize(("path", "limit"), FOUND, ids=[path.name for path, _ in FOUND])
def test_float16_networks_are_close_to_litert_at_half_size(path: Path, limit: float) -> None:
    """Outputs are close to LiteRT's, and the weights take half the space."""
    whole, half = convert(path), convert(path, float16=True)
    weights = [sum(data.nbytes for _, data in each.skeleton.weights) for each in (whole, half)]
    stored = {header.data_type for header, _ in half.skeleton.weights}
    assert stored == {10}  # float16
    assert weights[1] <= weights[0]
    report = verify(path, half)
    assert report.ok
    assert max(output.relative for output in report.outputs) < limit

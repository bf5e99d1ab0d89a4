"""The SVDF layers of a published keyword model in the folder TFLITE2ONNX_ZOO."""

from __future__ import annotations

import pytest

from tests.golden.records import zoo
from tests.quantized.test_filters import check_filter
from tests.references.filters import layers

FOUND = [case.path for case in zoo() if case.name.endswith("keyword_scrambled_8bit.tflite")]
LAYERS = [layer for path in FOUND for layer in layers(path.read_bytes())]

__test__ = bool(LAYERS)


@pytest.mark.parametrize("layer", LAYERS, ids=[f"layer {n}" for n in range(len(LAYERS))])
def test_each_svdf_layer_equals_litert(layer: bytes) -> None:
    """Each SVDF is tested without its bias, because the random biases saturate the outputs."""
    check_filter(layer)

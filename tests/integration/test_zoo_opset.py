"""Published networks without integer activations in opset 11, from the folder TFLITE2ONNX_ZOO."""

from __future__ import annotations

import os

import pytest

from tests.golden.records import ZOO, Case, zoo
from tflite2onnx import convert, verify
from tflite2onnx.reader.model import read_model
from tflite2onnx.tensor import DType

__test__ = ZOO in os.environ


def has_float_activations(case: Case) -> bool:
    """Return whether no computed tensor of a published network is an integer with a scale."""
    graph = read_model(case.path).graphs[0]
    computed = (t for op in graph.ops for t in op.outputs)
    quantized = any(t.dtype in (DType.INT8, DType.UINT8, DType.INT16) for t in computed)
    return "published" in case.path.parts and not quantized


FOUND = [case for case in zoo() if __test__ and has_float_activations(case)]


@pytest.mark.parametrize("case", FOUND, ids=lambda case: case.name)
def test_networks_without_integers_are_right_in_opset_11(case: Case) -> None:
    report = verify(case.path, convert(case.path, opset=11), tensors=False)
    assert report.ok

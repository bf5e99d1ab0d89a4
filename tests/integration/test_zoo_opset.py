"""Published networks without integer activations in opset 11, from the folder TFLITE2ONNX_ZOO."""

from __future__ import annotations

import os

import pytest

from tests.golden.records import ZOO, Case, zoo
from tflite2onnx import convert, verify
from tflite2onnx.errors import OptionError
from tflite2onnx.reader.model import read_model
from tflite2onnx.tensor import DType

__test__ = ZOO in os.environ

# File names of networks that need a newer opset, and the reason.
_ROWS = "QuantizeLinear with axis needs opset 13"  # a scale for each row or image
NEWER = {
    "lyra__model_coeffs__quantizer.tflite": "Max of int32 needs opset 12",
    "model_ToyCar_quant.tflite": _ROWS,
    "kws_ref_model_float32.tflite": _ROWS,
    "mobilenet_v2_035_96_embedder_with_metadata.tflite": _ROWS,
}


def find_reason(case: Case) -> str:
    return next((reason for name, reason in NEWER.items() if case.name.endswith(name)), "")


def has_float_activations(case: Case) -> bool:
    """Return whether no computed tensor of a published network is an integer with a scale."""
    graph = read_model(case.path).graphs[0]
    computed = (t for op in graph.ops for t in op.outputs)
    quantized = any(t.dtype in (DType.INT8, DType.UINT8, DType.INT16) for t in computed)
    return "published" in case.path.parts and not quantized


FOUND = [case for case in zoo() if __test__ and has_float_activations(case)]


@pytest.mark.parametrize("case", FOUND, ids=lambda case: case.name)
def test_opset_11(case: Case) -> None:
    reason = find_reason(case)
    if reason:
        with pytest.raises(OptionError, match=reason):
            convert(case.path, opset=11)
        return
    report = verify(case.path, convert(case.path, opset=11), tensors=False)
    assert report.ok

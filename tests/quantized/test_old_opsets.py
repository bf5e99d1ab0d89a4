"""int16 activations before opset 21, whose QuantizeLinear lacks int16."""

from __future__ import annotations

import numpy as np
import pytest

from tests.golden.closeness import ConvertedModel, compare_with_litert
from tests.golden.records import ASSETS
from tests.support import Build, check
from tflite2onnx import convert


@pytest.mark.parametrize("opset", [13, 17, 20])
@pytest.mark.parametrize("name", ["keywords", "mobilenet"])
def test_int16_networks_equal_litert_before_opset_21(name: str, opset: int) -> None:
    path = ASSETS / f"{name}_int16x8.tflite"
    result = convert(path, opset=opset)
    assert result.opset == opset
    assert {end.dtype for end in (*result.inputs, *result.outputs)} == {"int16"}
    compare_with_litert(path.read_bytes(), ConvertedModel.from_result(result))


@pytest.mark.parametrize("zero", [0, 7])
def test_int16_is_rounded_as_in_opset_21(zero: int) -> None:
    """Round, Clip and Cast give the same integers as QuantizeLinear."""
    m = Build()
    x = m.input([6])
    (y,) = m.op("QUANTIZE", [x], [[6]], dtype="int16", scale=0.5, zero_point=zero)
    m.output(y)
    values = np.array([0.2, 0.8, -0.2, -1.3, 1e6, -1e6], np.float32)
    for opset in (13, 21):
        model = check(m.bytes(), inputs=[values], opset=opset, steps=0).model
        assert model.opset_import[0].version == opset

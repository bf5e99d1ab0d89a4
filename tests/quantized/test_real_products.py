"""Integer weights in products of real numbers: weights "float", dynamic_range "float"."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnxruntime import GraphOptimizationLevel, InferenceSession, SessionOptions

from tests.support import Build
from tflite2onnx import ConversionError, convert
from tflite2onnx.result import Result
from tflite2onnx.verification import verify

KEYWORDS = Path(__file__).parents[2] / "assets" / "models" / "keywords_int8.tflite"


def read_producers(result: Result) -> dict[str, set[str]]:
    """Return the operators that make the weights of the products of a model."""
    nodes = result.model.graph.node
    made = {name: node.op_type for node in nodes for name in node.output}
    return {
        node.op_type: {made.get(node.input[1], "")}
        for node in nodes
        if node.op_type in ("Conv", "Gemm", "MatMul")
    }


@pytest.mark.parametrize("forms", ["fastest", "canonical"])
def test_weights_are_dequantized_at_load(forms: Any) -> None:
    """No DequantizeLinear of weights is left, the file has integers, and the results are equal.

    The models have some hundred bytes of scales for each product (`keep_float_weights`).
    """
    result = convert(KEYWORDS, weights="float", forms=forms)
    assert set().union(*read_producers(result).values()) == {"Clip"}
    kinds = [node.op_type for node in result.model.graph.node]
    assert kinds.count("QuantizeLinear") > 3
    plain = convert(KEYWORDS, weights="int8", forms=forms)
    assert len(result.model.SerializeToString()) < 1.2 * len(plain.model.SerializeToString())
    x = result.inputs[0]
    feeds = {x.name: np.random.default_rng(0).integers(-128, 128, x.onnx_shape, np.int8)}
    options = SessionOptions()
    options.graph_optimization_level = GraphOptimizationLevel.ORT_DISABLE_ALL
    outputs = [
        InferenceSession(each.model.SerializeToString(), options).run(None, feeds)[0]
        for each in (result, plain)
    ]
    np.testing.assert_array_equal(*outputs)
    assert verify(KEYWORDS, result, tensors=False).ok


def test_qoperator_quantization_refuses_float_weights() -> None:
    with pytest.raises(ConversionError, match="`weights` must be auto, int8 or uint8"):
        convert(KEYWORDS, quantization="qoperator", weights="float")


@pytest.mark.parametrize("code", ["FULLY_CONNECTED", "CONV_2D"])
def test_data_stay_floats_without_dynamic_quantization(code: str) -> None:
    """Without DynamicQuantizeLinear data are not rounded."""
    m = Build()
    generator = np.random.default_rng(0)
    shape = [64, 3, 3, 32] if code == "CONV_2D" else [512, 128]
    integers = generator.integers(-127, 128, shape).astype(np.int8)
    w = m.constant(integers, scale=0.01)
    if code == "CONV_2D":
        x, y = m.input([1, 8, 8, 32]), [1, 8, 8, 64]
        b = m.constant(np.zeros(64, np.float32))
        m.output(*m.op(code, [x, w, b], [y], padding="SAME", stride_h=1, stride_w=1))
    else:
        m.output(*m.op(code, [m.input([4, 128]), w], [[4, 512]]))
    rounded, real = (convert(m.bytes(), dynamic_range=c) for c in ("quantized", "float"))
    kinds = [{node.op_type for node in each.model.graph.node} for each in (rounded, real)]
    quantizes = {"DynamicQuantizeLinear", "QuantizeLinear"}
    assert [bool(quantizes & each) for each in kinds] == [True, False]
    assert verify(m.bytes(), real).ok


def test_opencv_gets_no_quantization_at_run_time() -> None:
    """OpenCV has no DynamicQuantizeLinear."""
    m = Build()
    w = m.constant(np.ones((512, 128), np.int8), scale=0.01)
    m.output(*m.op("FULLY_CONNECTED", [m.input([1, 128]), w], [[1, 512]]))
    kinds = {node.op_type for node in convert(m.bytes(), target="opencv").model.graph.node}
    assert not kinds & {"DynamicQuantizeLinear", "QuantizeLinear"}

"""--quantization qoperator: the products of ONNX's own domain, and what has none."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

from tests.golden.closeness import ConvertedModel, compare_with_litert
from tests.golden.records import ASSETS
from tests.quantized.layers import Layer
from tests.quantized.test_products import SCHEMES, SHAPES, check_exactly
from tests.support import Build, check
from tflite2onnx import convert, verify
from tflite2onnx.builder.builder import Builder
from tflite2onnx.builder.nodes import Node, Value
from tflite2onnx.builder.qoperators import make_qlinear_products
from tflite2onnx.cli import main
from tflite2onnx.errors import OptionError, UnsupportedOperators
from tflite2onnx.quantize import StoragePlan
from tflite2onnx.tensor import DType

NETWORKS = [f"{name}_{kind}" for name in ("keywords", "mobilenet") for kind in ("int8", "uint8")]
LAYERS = [shape for shape in SHAPES if shape != "TRANSPOSE_CONV"]


def count_nodes(result: Any) -> Counter[str]:
    return Counter(node.op_type for node in result.model.graph.node)


@pytest.mark.parametrize("name", NETWORKS)
def test_network_products_become_quantized_convolutions(name: str) -> None:
    """Every product is a QLinearConv; other operators are pairs, or are named."""
    path = ASSETS / f"{name}.tflite"
    result = convert(path, quantization="qoperator-mixed")
    nodes = count_nodes(result)
    assert nodes["QLinearConv"] > 3, nodes
    assert not {"Conv", "Gemm", "MatMul", "If"} & nodes.keys()
    compare_with_litert(path.read_bytes(), ConvertedModel.from_result(result))
    with pytest.raises(UnsupportedOperators, match=r"SOFTMAX .*ONNX has no QLinear operator"):
        convert(path, quantization="qoperator")


def test_verify_reads_quantized_convolutions_of_opset_10(tmp_path: Path) -> None:
    """Opset 10 has QLinearConv, also with a scale for each channel, and verify reads the file."""
    path, output = ASSETS / "keywords_uint8.tflite", tmp_path / "m.onnx"
    words = [str(path), str(output), "--quantization", "qoperator-mixed", "--opset", "10"]
    assert main(words) == 0
    model = onnx.load(output)
    assert model.opset_import[0].version == 10
    assert verify(path, model, samples=1).ok


@pytest.mark.parametrize("scheme", ["uint8", "int8", "int8 per channel", "no bias"])
@pytest.mark.parametrize("shape", LAYERS)
def test_layers_are_rounded_correctly_in_onnx_reference(shape: str, scheme: str) -> None:
    """onnx.reference gives correctly rounded outputs, also with the canonical forms."""
    layer = Layer(SHAPES[shape], SCHEMES[scheme])
    check_exactly(layer, quantization="qoperator", opset=13)
    result = convert(
        layer.model(),
        quantization="qoperator",
        io_layout="tflite",
        forms="canonical",
        opset=19,  # the first whose DequantizeLinear onnx.reference has
    )
    nodes = count_nodes(result)
    assert nodes["QLinearConv"] == 1, nodes
    # The ends are int8, and uint8 is inside.
    assert nodes["DequantizeLinear"] == nodes["QuantizeLinear"] <= 2, nodes
    x = layer.inputs[0]
    (y,) = ReferenceEvaluator(result.model).run(None, {result.model.graph.input[0].name: x})
    assert np.abs(np.asarray(y, int) - layer.real_output(x)).max() < 0.5 + 0.001


def build_product(*, constant: bool) -> Build:
    """Return a BATCH_MATMUL of int8."""
    m = Build()
    a = m.input([2, 3, 5], dtype="int8", scale=0.03, zero_point=3)
    data = np.random.default_rng(0).integers(-128, 128, (5, 7)).astype(np.int8)
    kind: dict[str, Any] = {"dtype": "int8", "scale": 0.011, "zero_point": -7}
    b = m.constant(data, **kind) if constant else m.input(data.shape, **kind)
    y = m.tensor([2, 3, 7], dtype="int8", scale=0.05, zero_point=5)
    m.output(*m.op("BATCH_MATMUL", [a, b], [y]))
    return m


@pytest.mark.parametrize("constant", [True, False])
def test_matrix_product_becomes_one_quantized_node(*, constant: bool) -> None:
    m = build_product(constant=constant)
    result = check(m.bytes(), steps=1, quantization="qoperator", random_layouts=())
    assert count_nodes(result)["QLinearMatMul"] == 1


def test_product_of_which_a_number_is_read_stays() -> None:
    """A product that a second node reads is computed once, with real numbers."""
    g = Builder(17, plan=StoragePlan(qoperator="qoperator"))
    scale, zero = Value(np.array(0.5, np.float32)), Value(np.array(3, np.int8), DType.INT8)
    a, b, y, stored, real = (Value() for _ in range(5))
    nodes = [
        *(Node("DequantizeLinear", (Value(), scale, zero), (x,), {}) for x in (a, b)),
        Node("MatMul", (a, b), (y,), {}),
        Node("QuantizeLinear", (y, scale, zero), (stored,), {}),
    ]
    assert [node.op_type for node in make_qlinear_products(g, nodes, [stored])] == ["QLinearMatMul"]
    assert make_qlinear_products(g, nodes, [stored, y]) == (*nodes,)
    read = [*nodes, Node("Abs", (y,), (real,), {})]
    assert make_qlinear_products(g, read, [stored, real]) == (*read,)


def test_computed_weights_become_one_quantized_convolution() -> None:
    """Data and weights in columns, both inputs, are turned and reshaped as integers."""
    m = Build()
    kind: dict[str, Any] = {"dtype": "uint8", "scale": 0.02, "zero_point": 100}
    columns = m.input([4, 3], **kind), m.input([4, 5], **kind)
    axes = m.constant(np.array([1, 0], np.int32))
    (x,) = m.op("TRANSPOSE", [columns[0], axes], [m.tensor([3, 4], **kind)])
    (w,) = m.op("TRANSPOSE", [columns[1], axes], [m.tensor([5, 4], **kind)])
    y = m.tensor([3, 5], dtype="uint8", scale=0.1, zero_point=77)
    m.output(*m.op("FULLY_CONNECTED", [x, w], [y]))
    result = check(m.bytes(), steps=1, quantization="qoperator", random_layouts=())
    assert count_nodes(result)["QLinearConv"] == 1


def test_operators_without_quantized_form_are_named() -> None:
    """16 bits and transposed convolutions have no QLinear operator; conversions need none."""
    for shape, scheme in (("CONV_2D", "int16"), ("TRANSPOSE_CONV", "uint8")):
        data = Layer(SHAPES[shape], SCHEMES[scheme]).model()
        with pytest.raises(UnsupportedOperators, match="ONNX has no QLinear operator for it"):
            convert(data, quantization="qoperator")
        assert not count_nodes(convert(data, quantization="qoperator-mixed"))["QLinearConv"]
    m = Build()
    (y,) = m.op("QUANTIZE", [m.input([6])], [[6]], dtype="int8", scale=0.5, zero_point=3)
    m.output(y)
    assert count_nodes(convert(m.bytes(), quantization="qoperator"))["QuantizeLinear"]


def test_activation_clamps_the_written_integers() -> None:
    """An activation clamps the integers that a QLinearConv has written."""
    layer = Layer(SHAPES["CONV_2D"], replace(SCHEMES["uint8"], y_scale=0.1), "RELU6")
    assert count_nodes(convert(layer.model(), quantization="qoperator"))["Clip"]
    check_exactly(layer, quantization="qoperator")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"float16": True}, "`quantization` qoperator must be given without `float16`"),
        ({"weights": "adaptive"}, "`weights` must be auto, int8 or uint8 with `quantization`"),
    ],
)
def test_refuses_contradictory_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        convert(ASSETS / "keywords_int8.tflite", quantization="qoperator", **options)

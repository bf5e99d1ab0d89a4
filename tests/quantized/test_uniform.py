"""`--quantization qdq-uniform`: one quantization for each tensor, and real numbers in operators."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, numpy_helper, shape_inference

from tests.golden.records import assets
from tests.support import Build, check, run_onnx, run_tflite
from tflite2onnx import convert
from tflite2onnx.verification import verify

PAIRS = ("QuantizeLinear", "DequantizeLinear")
INTEGERS = (TensorProto.INT8, TensorProto.UINT8)
QUANTIZED = [case for case in assets() if "int8" in case.name]


def assert_uniform(model: onnx.ModelProto) -> None:
    """Assert that only QDQ nodes read and write integers, each value in one scale."""
    graph = shape_inference.infer_shapes(model).graph
    known = {each.name: numpy_helper.to_array(each) for each in graph.initializer}
    kinds = {v.name: v.type.tensor_type.elem_type for v in (*graph.value_info, *graph.input)}
    scales: dict[str, Any] = {}
    for node in graph.node:
        if node.op_type not in PAIRS:
            integers = [v for v in (*node.input, *node.output) if kinds.get(v) in INTEGERS]
            assert not integers, f"{node.op_type} reads or writes {integers}"
            continue
        integer = node.output[0] if node.op_type == "QuantizeLinear" else node.input[0]
        numbers = [known[name].tolist() for name in node.input[1:]]
        assert scales.setdefault(integer, numbers) == numbers, integer


@pytest.mark.parametrize("case", QUANTIZED, ids=lambda case: case.name)
def test_networks_have_one_scale_for_each_tensor(case: Any) -> None:
    result = convert(
        case.path,
        quantization="qdq-uniform",
        activations="uint8",
        weights="uint8",
        forms="canonical",
    )
    assert_uniform(result.model)
    assert verify(case.path, result).ok


def build_layer(code: str, *, kind: str = "int8", rescales: bool = False) -> bytes:
    """Build a network of one operator on an image of 6x6 pixels; the output may have a scale."""
    m, zero = Build(), 3
    x = m.input([1, 6, 6, 4], dtype=kind, scale=0.05, zero_point=zero)
    scale = 0.06 if rescales else 0.05

    def result(*shape: int) -> Any:
        return m.tensor([*shape], dtype=kind, scale=scale, zero_point=zero)

    window: dict[str, Any] = {"filter_width": 2, "filter_height": 2, "stride_w": 2, "stride_h": 2}
    match code:
        case "RESHAPE":
            target = m.constant(np.array([1, 36, 4], np.int32))
            m.output(*m.op(code, [x, target], [result(1, 36, 4)]))
        case "TRANSPOSE":
            target = m.constant(np.array([0, 2, 3, 1], np.int32))
            m.output(*m.op(code, [x, target], [result(1, 6, 4, 6)]))
        case "PAD":
            target = m.constant(np.array([[0, 0], [1, 2], [0, 1], [0, 0]], np.int32))
            m.output(*m.op(code, [x, target], [result(1, 9, 7, 4)]))
        case "MAX_POOL_2D" | "AVERAGE_POOL_2D":
            m.output(*m.op(code, [x], [result(1, 3, 3, 4)], padding="VALID", **window))
        case _:
            m.output(*m.op(code, [x], [result(1, 6, 6, 4)]))
    return m.bytes()


@pytest.mark.parametrize("rescales", [False, True])
@pytest.mark.parametrize("code", ["RESHAPE", "TRANSPOSE", "PAD", "MAX_POOL_2D"])
def test_movements_move_real_numbers_exactly(code: str, *, rescales: bool) -> None:
    model = build_layer(code, rescales=rescales)
    result = check(model, quantization="qdq-uniform")
    assert_uniform(result.model)


@pytest.mark.parametrize("code", ["RELU", "RELU6", "HARD_SWISH"])
@pytest.mark.parametrize("kind", ["int8", "uint8"])
def test_functions_are_within_a_step(code: str, kind: str) -> None:
    model = build_layer(code, kind=kind, rescales=True)
    result = convert(model, quantization="qdq-uniform", io_layout="tflite")
    assert_uniform(result.model)
    low, high = np.iinfo(kind).min, np.iinfo(kind).max
    x = np.random.default_rng(0).integers(low, high, (1, 6, 6, 4), kind, endpoint=True)
    (want,) = run_tflite(model, [x])
    (have,) = run_onnx(result.model, {result.inputs[0].name: x})
    assert np.abs(want.astype(int) - have).max() <= 1


@pytest.mark.parametrize("activation", ["NONE", "RELU", "RELU6", "RELU_N1_TO_1"])
def test_activations_limit_the_stored_integers(activation: str) -> None:
    m = Build()
    kind: dict[str, Any] = {"dtype": "int8", "scale": 0.06, "zero_point": 3}
    a, b, y = (
        m.input([1, 6, 6, 4], **kind),
        m.input([1, 6, 6, 4], **kind),
        m.tensor([1, 6, 6, 4], **kind),
    )
    m.output(*m.op("ADD", [a, b], [y], fused_activation_function=activation))
    check(m.bytes(), quantization="qdq-uniform", steps=1)


def test_a_constant_is_subtracted_as_in_the_file() -> None:
    m = Build()
    kind: dict[str, Any] = {"dtype": "int8", "scale": 0.06, "zero_point": 3}
    x, y = m.input([1, 6, 6, 4], **kind), m.tensor([1, 6, 6, 4], **kind)
    one = m.constant(np.array([127], np.int8), scale=1 / 255, zero_point=-128)
    m.output(*m.op("SUB", [x, one], [y]))
    check(m.bytes(), quantization="qdq-uniform", steps=1)


@pytest.mark.parametrize("code", ["DYNAMIC_UPDATE_SLICE", "SELECT_V2"])
@pytest.mark.parametrize("scales", [(0.1, None), (None, 0.1)])
def test_integers_without_a_scale_stay_integers(
    code: str, scales: tuple[float | None, float | None]
) -> None:
    """LiteRT moves the integers, whatever their scales are: without one there is no real number."""
    m = Build()
    x = m.input([2, 3], dtype="int8", scale=scales[0])
    y = m.input([1, 3] if code[0] == "D" else [2, 3], dtype="int8", scale=scales[1])
    if code == "SELECT_V2":
        operands = [m.input([2, 3], dtype="bool"), x, y]
    else:
        operands = [x, y, m.input([2], dtype="int32")]
    m.output(*m.op(code, operands, [[2, 3]], dtype="int8", scale=0.1))
    check(m.bytes(), quantization="qdq-uniform")


def test_square_root_of_tanh_is_within_a_step() -> None:
    """The root of tanh(x) + 1 for all integers: no rounding makes the sum negative."""
    m, x = Build(), np.arange(-128, 128, dtype=np.int8).reshape(2, -1)
    given = m.input(x.shape, dtype="int8", scale=0.06)
    (y,) = m.op("TANH", [given], [m.tensor(x.shape, dtype="int8", scale=1 / 128)])
    one = m.constant(np.array([127], np.int8), scale=1 / 127)
    positive = m.tensor(x.shape, dtype="int8", scale=2 / 255, zero_point=-128)
    (y,) = m.op("ADD", [y, one], [positive], op_version=2)
    root = m.tensor(x.shape, dtype="int8", scale=1.5 / 255, zero_point=-128)
    m.output(*m.op("SQRT", [y], [root]))
    check(m.bytes(), inputs=[x], quantization="qdq-uniform", steps=1)

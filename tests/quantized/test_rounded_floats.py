"""`--quantization rounded`: floats that are the numbers of the quantized tensors, no integers."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

from tests.quantized.test_uniform import QUANTIZED, build_layer
from tests.support import Build, run_onnx, run_tflite
from tests.support.runtimes import session
from tests.support.streams import SHAPE, assign, handle, initialise, read_variable
from tflite2onnx import Stateful, convert
from tflite2onnx.verification import verify


@pytest.mark.parametrize("case", QUANTIZED, ids=lambda case: case.name)
def test_networks_compute_floats_only(case: Any) -> None:
    result = convert(case.path, quantization="rounded", io_type="float", forms="canonical")
    assert {node.op_type for node in result.model.graph.node}.isdisjoint(
        ("QuantizeLinear", "DequantizeLinear")
    )
    assert {each.dtype for each in (*result.inputs, *result.outputs)} == {"float32"}
    assert verify(case.path, result).ok


@pytest.mark.parametrize("rescales", [False, True])
@pytest.mark.parametrize(
    "code",
    ["RESHAPE", "TRANSPOSE", "PAD", "MAX_POOL_2D", "AVERAGE_POOL_2D", "RELU6", "HARD_SWISH"],
)
@pytest.mark.parametrize("kind", ["int8", "uint8"])
def test_layers_are_within_a_step(code: str, kind: str, *, rescales: bool) -> None:
    moves = code in ("RESHAPE", "TRANSPOSE", "PAD", "MAX_POOL_2D", "AVERAGE_POOL_2D")
    model = build_layer(code, kind=kind, rescales=rescales and not moves)
    result = convert(model, quantization="rounded", io_layout="tflite")
    low, high = np.iinfo(kind).min, np.iinfo(kind).max
    x = np.random.default_rng(0).integers(low, high, (1, 6, 6, 4), kind, endpoint=True)
    (want,) = run_tflite(model, [x])
    (have,) = run_onnx(result.model, {result.inputs[0].name: x})
    assert np.abs(want.astype(int) - have).max() <= (not moves or code == "AVERAGE_POOL_2D")


def test_joined_tensors_get_the_scale_of_the_result() -> None:
    """A constant step of the result, not the finer one of an operand, is what readers compare."""
    m = Build()
    x = m.input([1, 8], dtype="int8", scale=0.011, zero_point=5)
    y = m.input([1, 8], dtype="int8", scale=0.03, zero_point=-7)
    joined = m.tensor([1, 16], dtype="int8", scale=0.03, zero_point=-7)
    m.output(*m.op("CONCATENATION", [x, y], [joined], axis=1))
    result = convert(m.bytes(), quantization="rounded", io_type="float")
    numbers = np.arange(8, dtype=np.float32)[None] * np.float32(0.011)
    feeds = dict.fromkeys((end.name for end in result.inputs), numbers)
    (have,) = run_onnx(result.model, feeds)
    steps = have / np.float32(0.03)
    np.testing.assert_allclose(steps, np.round(steps), atol=1e-5)


def test_states_are_floats_of_the_integers() -> None:
    """A run passes them to the next one, whatever the types of inputs and outputs are."""
    m, rng = Build(), np.random.default_rng(0)
    kind: dict[str, Any] = {"dtype": "int8", "scale": 0.1, "zero_point": 3}
    x = m.input(SHAPE, name="x", **kind)
    initialise(m, memory=rng.integers(-99, 99, SHAPE, np.int8))
    memory = handle(m, "memory")
    (y,) = m.op("ADD", [read_variable(m, memory, **kind), x], [m.tensor(SHAPE, name="y", **kind)])
    assign(m, memory, y)
    m.output(y)
    result = convert(m.bytes(), quantization="rounded", io_layout="tflite", states="required")
    kinds = [end.type.tensor_type.elem_type for end in result.model.graph.input]
    assert kinds == [onnx.TensorProto.INT8, onnx.TensorProto.FLOAT]
    whole = convert(m.bytes(), io_layout="tflite")
    lives = [Stateful(session(each.model, optimize=True)) for each in (whole, result)]
    for _ in range(3):
        feed = {"x": rng.integers(-99, 99, SHAPE, np.int8)}
        want, have = (live.run(None, feed)[0].astype(int) for live in lives)
        assert want.any()
        assert np.abs(want - have).max() <= 1

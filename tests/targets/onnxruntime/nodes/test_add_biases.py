"""Products of integers add their biases."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest

from tests.support import Build, check
from tests.support.fusions import count_optimized_nodes
from tflite2onnx import convert

WIDTH = 288


def build(
    activation: str = "NONE", *, layers: int = 2, same: bool = False, dtype: str = "int8"
) -> bytes:
    """Return the model of dense layers of one row; with `same` they have the same weights."""
    m = Build()
    rng = np.random.default_rng(0)
    x = m.input([1, WIDTH])
    weights: list[Any] = []
    for _ in range(layers):
        signed = rng.integers(-127, 128, (WIDTH, WIDTH))
        fields: dict[str, Any] = {"scale": rng.uniform(0.005, 0.02, WIDTH).astype(np.float32)}
        fields["zero_point"] = np.zeros(WIDTH, np.int64)
        if not same or not weights:
            weights.append(m.constant(signed.astype(dtype), **fields))
        bias = m.constant(rng.normal(size=WIDTH).astype(np.float32))
        y = m.tensor([1, WIDTH])
        (x,) = m.op(
            "FULLY_CONNECTED", [x, weights[-1], bias], [y], fused_activation_function=activation
        )
    m.output(x)
    return m.bytes()


@pytest.mark.parametrize("activation", ["NONE", "RELU", "RELU6"])
def test_one_node_multiplies_and_adds(activation: str) -> None:
    result: Any = check(build(activation), seeds=range(3), default_kernels=True)
    counts = count_optimized_nodes(result.model)
    assert counts["DynamicQuantizeMatMul"] + counts["MatMulIntegerToFloat"] == 2
    assert counts["Add"] == counts["Reshape"] == 0


def test_sums_of_a_model_that_is_not_optimized_are_equal() -> None:
    model = convert(build()).model.SerializeToString()
    options = [onnxruntime.SessionOptions() for _ in range(2)]
    options[1].graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    x = np.random.default_rng(1).normal(size=(1, WIDTH)).astype(np.float32)
    runs = [onnxruntime.InferenceSession(model, each) for each in options]
    fused, plain = (np.asarray(run.run(None, {run.get_inputs()[0].name: x})[0]) for run in runs)
    np.testing.assert_allclose(fused, plain, rtol=0, atol=1e-5 * float(np.abs(plain).max()))


@pytest.mark.parametrize(
    ("model", "options"),
    [
        (build(same=True), {}),  # each product needs a copy of the weights
        (build(), {"forms": "canonical"}),
        (build(), {"weights": "uint8"}),
    ],
)
def test_other_sums_stay(model: bytes, options: dict[str, Any]) -> None:
    nodes = [node.op_type for node in convert(model, **options).model.graph.node]
    assert nodes.count("MatMul") == nodes.count("Add") == 2


def test_weights_become_uint8_at_load() -> None:
    """`session.x64quantprecision` rejects weights that two products read."""
    options = onnxruntime.SessionOptions()
    options.add_session_config_entry("session.x64quantprecision", "1")
    model = convert(build()).model.SerializeToString()
    assert onnxruntime.InferenceSession(model, options).get_outputs()

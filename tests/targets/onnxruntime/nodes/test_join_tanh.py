"""Tanh of 8 bits runs as one node of integers, with LiteRT's results."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support import Build, check
from tests.support.fusions import count_optimized_nodes
from tflite2onnx import convert

SHAPE = [1, 6, 50]


def build(dtype: str, scale: float, zero: int) -> bytes:
    """Return the model of a TANH between two operators that compute integers, too."""
    m = Build()
    unit: dict[str, Any] = {
        "dtype": dtype,
        "scale": 1 / 256,
        "zero_point": -128 if dtype == "int8" else 0,
    }
    (x,) = m.op("LOGISTIC", [m.input(SHAPE, dtype=dtype, scale=0.04, zero_point=3)],
                [m.tensor(SHAPE, **unit)])  # fmt: skip
    y = m.op("TANH", [x], [m.tensor(SHAPE, dtype=dtype, scale=scale, zero_point=zero)])
    m.output(*m.op("LOGISTIC", y, [m.tensor(SHAPE, **unit)]))
    return m.bytes()


@pytest.mark.parametrize("activations", ["auto", "int8"])
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_tanh_is_one_node(dtype: str, activations: Any) -> None:
    model = build(dtype, 1 / 128, 0 if dtype == "int8" else 128)
    result: Any = check(model, steps=1, activations=activations)
    assert "Tanh" not in {node.op_type for node in result.model.graph.node}
    if activations == "auto":  # ONNX Runtime stores some int8 as uint8, and joins no mixed types
        assert count_optimized_nodes(result.model)["QLinearSigmoid"] == 3


@pytest.mark.parametrize(("scale", "zero"), [(1 / 100, 0), (1 / 128, 3)])
def test_tanh_in_other_steps_stays(scale: float, zero: int) -> None:
    """The integers of the sigmoid would be others."""
    result: Any = check(build("int8", scale, zero), steps=1)
    assert "Tanh" in count_optimized_nodes(result.model)


@pytest.mark.parametrize("options", [{"forms": "canonical"}, {"quantization": "symmetric"}])
def test_other_files_keep_tanh(options: dict[str, Any]) -> None:
    model = convert(build("int8", 1 / 128, 0), **options).model
    assert "Tanh" in {node.op_type for node in model.graph.node}

"""passes/patterns/chain_products.py: sums of dense layers with one row become a chain of Gemm."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.passes.graph_text import check_pass, check_unchanged
from tests.support import Build, Tensor, check
from tflite2onnx.passes.patterns.chain_products import chain_products
from tflite2onnx.reader.model import read_model


def model(
    *biases: bool, rows: int = 1, activation: str = "NONE", twice: bool = False, more: bool = False
) -> bytes:
    """Return the sum of dense layers, each with or without a bias; `more` adds a constant."""
    m, layers = Build(), []
    for i, bias in enumerate(biases):
        weights = np.random.default_rng(i).standard_normal((5, 3 + i)).astype(np.float32)
        inputs: list[Tensor | None] = [m.input([rows, 3 + i]), m.constant(weights), None]
        inputs[2] = m.constant(np.arange(5, dtype=np.float32)) if bias else None
        layers += m.op("FULLY_CONNECTED", inputs, [[rows, 5]], fused_activation_function=activation)
    options: dict[str, Any] = {"fused_activation_function": "NONE" if more else "RELU"}
    (y,) = m.op("ADD", layers, [[rows, 5]], **options)
    if more:
        inputs = [y, m.constant(np.arange(5, dtype=np.float32))]
        (y,) = m.op("ADD", inputs, [[rows, 5]], fused_activation_function="RELU")
    m.output(y)
    if twice:
        m.output(layers[0])
    return m.bytes()


def test_before_and_after() -> None:
    before = """
        inputs %0: float32[1,3], %1: float32[1,4]
        %2: float32[1,5] = FULLY_CONNECTED(%0, constant[5,3], none)
        %3: float32[1,5] = FULLY_CONNECTED(%1, constant[5,4], [0.0, 1.0, 2.0, 3.0, 4.0])
        %4: float32[1,5] = ADD(%2, %3)
        return %4
    """
    after = """
        inputs %0: float32[1,3], %1: float32[1,4]
        %2: float32[1,5] = FULLY_CONNECTED(%0, constant[5,3], none)
        %3: float32[1,5] = FULLY_CONNECTED(%1, constant[5,4], [0.0, 1.0, 2.0, 3.0, 4.0])
        %4: float32[1,5] = FULLY_CONNECTED(%0, constant[5,3], %3)
        return %4
    """
    check_pass(chain_products, read_model(model(False, True)).graphs[0], before, after)


@pytest.mark.parametrize("biases", [(False, False), (False, True), (True, False)], ids=str)
def test_numbers(biases: tuple[bool, bool]) -> None:
    result = check(model(*biases))
    assert [node.op_type for node in result.model.graph.node] == ["Gemm", "Gemm", "Relu"]


def test_constant_behind_the_sum() -> None:
    result = check(model(False, False, more=True))
    assert [node.op_type for node in result.model.graph.node] == ["Gemm", "Gemm", "Relu"]
    kinds = [node.op_type for node in check(model(True, False, more=True)).model.graph.node]
    assert kinds == ["Gemm", "Gemm", "Add", "Relu"]


@pytest.mark.parametrize(
    "data",
    [
        model(True, True),
        model(False, False, rows=2),
        model(False, False, activation="RELU"),
        model(False, False, twice=True),
    ],
    ids=["two biases", "rows", "activation", "two readers"],
)
def test_other_sums(data: bytes) -> None:
    graph = read_model(data).graphs[0]
    check_unchanged(chain_products, graph)
    check(data, seeds=[0])

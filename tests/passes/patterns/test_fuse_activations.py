"""passes/patterns/fuse_activations.py: activation functions composed of several operators."""

from __future__ import annotations

from collections.abc import Callable
from math import pi, sqrt
from typing import Any

import numpy as np
import pytest

from tests.support import Build, Tensor, check
from tests.support.graph_text import (
    assert_rewritten,
    check_pass,
    check_unchanged,
    eliminate_dead_after,
    make_model,
)
from tflite2onnx.passes.patterns.fuse_activations import fuse_activations
from tflite2onnx.reader.model import read_model

fuse = eliminate_dead_after(fuse_activations)

SHAPE = [2, 3, 5]


class Spelled(Build):
    """A model of elementwise operators on tensors with one shape."""

    def apply(self, code: str, *inputs: Tensor | float, **options: Any) -> Tensor:
        """Add an operator; a number becomes a constant."""
        operands = [
            self.constant(np.float32(each)) if isinstance(each, (int, float)) else each
            for each in inputs
        ]
        (y,) = self.op(code, operands, [SHAPE], **options)
        return y


Spelling = Callable[[Spelled, Tensor], Tensor]


def spell(spelling: Spelling) -> bytes:
    m = Spelled()
    m.output(spelling(m, m.input(SHAPE)))
    return m.bytes()


def relu6(m: Spelled, x: Tensor) -> Tensor:
    return m.apply("MINIMUM", m.apply("MAXIMUM", x, 0.0), 6.0)


def gate(m: Spelled, x: Tensor) -> Tensor:
    return m.apply("RELU6", m.apply("ADD", x, 3.0))


def fused_gate(m: Spelled, x: Tensor) -> Tensor:
    return m.apply("ADD", x, 3.0, fused_activation_function="RELU6")


def hard_sigmoid(m: Spelled, x: Tensor) -> Tensor:
    return m.apply("MUL", fused_gate(m, x), 1 / 6)


def keras_hard_sigmoid(m: Spelled, x: Tensor) -> Tensor:
    line = m.apply("ADD", m.apply("MUL", x, 0.2), 0.5)
    return m.apply("MAXIMUM", m.apply("MINIMUM", line, 1.0), 0.0)


def clipped_line(m: Spelled, x: Tensor) -> Tensor:
    line = m.apply("ADD", m.apply("MUL", x, 0.2), 0.5)
    return m.apply("MINIMUM", m.apply("MAXIMUM", line, 0.0), 1.0)


def rectified_line(m: Spelled, x: Tensor) -> Tensor:
    line = m.apply("ADD", m.apply("MUL", x, 0.2), 0.5)
    return m.apply("MINIMUM", m.apply("RELU", line), 1.0)


def hard_swish(m: Spelled, x: Tensor) -> Tensor:
    return m.apply("MUL", m.apply("MUL", x, gate(m, x)), 1 / 6)


def hard_swish_of_sigmoid(m: Spelled, x: Tensor) -> Tensor:
    return m.apply("MUL", x, m.apply("MUL", 1 / 6, fused_gate(m, x)))


def divided_hard_swish(m: Spelled, x: Tensor) -> Tensor:
    return m.apply("DIV", m.apply("MUL", x, gate(m, x)), 6.0)


def gelu(m: Spelled, x: Tensor) -> Tensor:
    cube = m.apply("MUL", m.apply("MUL", x, x), x)
    inner = m.apply("ADD", x, m.apply("MUL", cube, 0.044715))
    squashed = m.apply("TANH", m.apply("MUL", inner, sqrt(2 / pi)))
    return m.apply("MUL", m.apply("MUL", 0.5, x), m.apply("ADD", squashed, 1.0))


def gelu_of_power(m: Spelled, x: Tensor) -> Tensor:
    inner = m.apply("ADD", m.apply("MUL", 0.044715, m.apply("POW", x, 3.0)), x)
    squashed = m.apply("TANH", m.apply("MUL", sqrt(2 / pi), inner))
    return m.apply("MUL", x, m.apply("MUL", 0.5, m.apply("ADD", 1.0, squashed)))


SPELLINGS = [
    (relu6, "RELU6", "Clip"),
    (hard_sigmoid, "HARD_SIGMOID", "HardSigmoid"),
    (keras_hard_sigmoid, "HARD_SIGMOID", "HardSigmoid"),
    (clipped_line, "HARD_SIGMOID", "HardSigmoid"),
    (rectified_line, "HARD_SIGMOID", "HardSigmoid"),
    (hard_swish, "HARD_SWISH", "HardSwish"),
    (hard_swish_of_sigmoid, "HARD_SWISH", "HardSwish"),
    (divided_hard_swish, "HARD_SWISH", "HardSwish"),
    (gelu, "GELU", "Gelu"),
    (gelu_of_power, "GELU", "Gelu"),
]


def test_every_spelling_becomes_one_activation() -> None:
    """All spellings are one case: the first level draws 8 cases of the next test."""
    for spelling, code, _ in SPELLINGS:
        graph = fuse(read_model(spell(spelling)).graphs[0])
        assert [op.code for op in graph.ops] == [code], spelling


@pytest.mark.parametrize(("spelling", "node"), [(each, node) for each, _, node in SPELLINGS])
def test_activations_equal_litert(spelling: Spelling, node: str) -> None:
    result = check(spell(spelling), opset=20)
    assert [each.op_type for each in result.model.graph.node] == [node]


def test_gelu_with_erf_is_exact_gelu() -> None:
    """GELU with TensorFlow's Erf, which LiteRT has no kernel for."""
    m = Spelled()
    x = m.input(SHAPE)
    (erf,) = m.custom("FlexErf", [m.apply("MUL", x, sqrt(0.5))], [SHAPE])
    m.output(m.apply("MUL", m.apply("MUL", 0.5, x), m.apply("ADD", erf, 1.0)))
    graph = fuse_activations(read_model(m.bytes()).graphs[0])
    assert graph.ops[-1].code == "GELU"
    assert not graph.ops[-1].options.approximate


def test_sum_and_product_become_hard_sigmoid() -> None:
    before = """
        inputs %0: float32[2,3,5]
        %1: float32[2,3,5] = ADD(%0, 3.0, fused_activation_function=RELU6)
        %2: float32[2,3,5] = MUL(%1, 0.1666666716337204, fused_activation_function=NONE)
        return %2
    """
    after = """
        inputs %0: float32[2,3,5]
        %1: float32[2,3,5] = HARD_SIGMOID(%0, alpha=0.16666666666666666, beta=0.5)
        return %1
    """

    graph = read_model(spell(hard_sigmoid)).graphs[0]
    check_pass(fuse, graph, before, after, "fused_activation_function", "alpha", "beta")


@pytest.mark.parametrize(("code", "number"), [("MUL", 0.1666666716337204), ("DIV", 6.0)])
def test_relu6_of_a_convolution_becomes_hard_sigmoid(code: str, number: float) -> None:
    words = "padding=SAME, stride_h=1, stride_w=1, fused_activation_function"
    filters = "float32[5,1,1,4], float32[5]"
    before = f"""
        inputs x: float32[1,2,3,4]
        a: float32[1,2,3,5] = CONV_2D(x, {filters}, {words}=RELU6)
        y: float32[1,2,3,5] = {code}(a, {number})
        return y
    """
    after = f"""
        inputs x: float32[1,2,3,4]
        a: float32[1,2,3,5] = CONV_2D(x, {filters}, {words}=NONE)
        y: float32[1,2,3,5] = HARD_SIGMOID(a, alpha=0.16666666666666666, beta=0.0)
        return y
    """
    assert_rewritten(fuse_activations, before, after)
    check(make_model(before), tolerance=1e-5)


def other_knee(m: Spelled, x: Tensor) -> Tensor:
    return m.apply("MUL", m.apply("RELU6", m.apply("ADD", x, 2.0)), 1 / 6)


def rounded_sixth(m: Spelled, x: Tensor) -> Tensor:
    return m.apply("MUL", gate(m, x), float(np.float16(1 / 6)))


def two_readers(m: Spelled, x: Tensor) -> Tensor:
    opened = gate(m, x)
    m.output(opened)
    return m.apply("MUL", opened, 1 / 6)


def two_parameters(m: Spelled, x: Tensor) -> Tensor:
    factors = m.constant(np.linspace(1, 2, 5, dtype=np.float32))
    line = m.apply("ADD", m.apply("MUL", x, factors), 0.5)
    return m.apply("MINIMUM", m.apply("MAXIMUM", line, 0.0), 1.0)


@pytest.mark.parametrize(
    "spelling",
    [
        other_knee,
        rounded_sixth,
        two_readers,
        two_parameters,
    ],
)
def test_operators_with_other_bounds_or_readers_stay(spelling: Spelling) -> None:
    graph = read_model(spell(spelling)).graphs[0]
    check_unchanged(fuse_activations, graph)
    check(spell(spelling), seeds=[0])


def test_quantized_operators_stay() -> None:
    """Patterns of quantized operators stay, because the kernels round each result."""
    m = Build()
    fields: dict[str, Any] = {"dtype": "int8", "scale": 0.1, "zero_point": 3}
    zero, six = (m.constant(np.array([each], np.int8), **fields) for each in (3, 63))
    (above,) = m.op("MAXIMUM", [m.input(SHAPE, **fields), zero], [m.tensor(SHAPE, **fields)])
    m.output(*m.op("MINIMUM", [above, six], [m.tensor(SHAPE, **fields)]))
    check_unchanged(fuse_activations, read_model(m.bytes()).graphs[0])


def test_gelu_before_opset_20_uses_tanh() -> None:
    """Before opset 20 GELU becomes the nodes that ONNX Runtime fuses to Gelu."""
    result = check(spell(gelu), seeds=[0])
    assert "Tanh" in {node.op_type for node in result.model.graph.node}

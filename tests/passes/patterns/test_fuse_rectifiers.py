"""passes/patterns/fuse_rectifiers.py: RELU, LEAKY_RELU, PRELU and ABS in many spellings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.support import Build, Tensor, check
from tests.support.graph_text import check_pass, check_unchanged, eliminate_dead_after
from tflite2onnx.passes.patterns.fuse_rectifiers import fuse_rectifiers
from tflite2onnx.reader.model import read_model

fuse = eliminate_dead_after(fuse_rectifiers)

SHAPE = [2, 3, 5]
SLOPES = np.linspace(-2, 2, 5, dtype=np.float32)


class Spelled(Build):
    """A model of elementwise operators on tensors with one shape."""

    def apply(self, code: str, *inputs: Tensor | np.ndarray | float, **options: Any) -> Tensor:
        """Add an operator; a number or an array becomes a constant."""
        operands = [
            each if isinstance(each, Tensor) else self.constant(np.asarray(each, np.float32))
            for each in inputs
        ]
        (y,) = self.op(code, operands, [SHAPE], **options)
        return y

    def compare(self, code: str, *inputs: Tensor | float) -> Tensor:
        """Add a comparison."""
        return self.apply(code, *inputs, dtype="bool")

    def cast(self, x: Tensor, dtype: str = "float32") -> Tensor:
        """Add CAST."""
        return self.apply("CAST", x, dtype=dtype)


Spelling = Callable[[Spelled, Tensor], Tensor]


def spell(spelling: Spelling) -> bytes:
    m = Spelled()
    m.output(spelling(m, m.input(SHAPE)))
    return m.bytes()


def mobile_facenet(m: Spelled, x: Tensor) -> Tensor:
    twice = m.apply("MUL", m.apply("SUB", x, m.apply("ABS", x)), SLOPES)
    return m.apply("ADD", m.apply("RELU", x), m.apply("MUL", twice, 0.5))


def divided_by_two(m: Spelled, x: Tensor) -> Tensor:
    twice = m.apply("MUL", m.apply("SUB", x, m.apply("ABS", x)), SLOPES)
    return m.apply("ADD", m.apply("DIV", twice, 2.0), m.apply("RELU", x))


def maximum_and_minimum(m: Spelled, x: Tensor) -> Tensor:
    above, below = m.apply("MAXIMUM", x, 0.0), m.apply("MINIMUM", 0.0, x)
    return m.apply("ADD", above, m.apply("MUL", below, SLOPES))


def clips(m: Spelled, x: Tensor) -> Tensor:
    above = m.apply("MAXIMUM", m.apply("MINIMUM", x, np.inf), 0.0)
    below = m.apply("MINIMUM", m.apply("MAXIMUM", x, -np.inf), 0.0)
    return m.apply("ADD", above, m.apply("MUL", below, SLOPES))


def zeros_like(m: Spelled, x: Tensor) -> Tensor:
    zeros = m.apply("ZEROS_LIKE", x)
    above, below = m.apply("MAXIMUM", x, zeros), m.apply("MINIMUM", x, zeros)
    return m.apply("ADD", above, m.apply("MUL", SLOPES, below))


def keras(m: Spelled, x: Tensor) -> Tensor:
    negative = m.apply("RELU", m.apply("NEG", x))
    return m.apply("ADD", m.apply("RELU", x), m.apply("MUL", SLOPES, negative))


def difference_of_relu(m: Spelled, x: Tensor) -> Tensor:
    negative = m.apply("RELU", m.apply("NEG", x))
    return m.apply("SUB", m.apply("RELU", x), m.apply("MUL", SLOPES, negative))


def fused_relu(m: Spelled, x: Tensor) -> Tensor:
    negative = m.apply("MUL", x, -(SLOPES**2) - 1, fused_activation_function="RELU")
    return m.apply("SUB", m.apply("RELU", x), negative)


def remainder(m: Spelled, x: Tensor) -> Tensor:
    above = m.apply("RELU", x)
    return m.apply("ADD", above, m.apply("MUL", m.apply("SUB", x, above), SLOPES))


def line_and_absolute(m: Spelled, x: Tensor) -> Tensor:
    line = m.apply("MUL", x, (1 + SLOPES) / 2)
    return m.apply("ADD", line, m.apply("MUL", m.apply("ABS", x), (1 - SLOPES) / 2))


def maximum_of_products(m: Spelled, x: Tensor) -> Tensor:
    return m.apply("MAXIMUM", m.apply("MUL", x, SLOPES / 2), x)


def where(m: Spelled, x: Tensor) -> Tensor:
    return m.apply("SELECT_V2", m.compare("GREATER", x, 0.0), x, m.apply("MUL", x, SLOPES))


def where_not(m: Spelled, x: Tensor) -> Tensor:
    negative = m.compare("LOGICAL_NOT", m.compare("GREATER_EQUAL", x, 0.0))
    return m.apply("SELECT", negative, m.apply("MUL", x, SLOPES), x)


def cast_comparisons(m: Spelled, x: Tensor) -> Tensor:
    above, below = m.compare("LESS", 0.0, x), m.compare("LESS_EQUAL", x, 0.0)
    below = m.apply("MUL", m.cast(below), SLOPES)
    return m.apply("MUL", m.apply("ADD", m.cast(above), below), x)


def signs(m: Spelled, x: Tensor) -> Tensor:
    step = m.apply("MUL", m.apply("ADD", m.apply("SIGN", x), 1.0), 0.5)
    rest = m.apply("MUL", m.apply("SUB", 1.0, step), SLOPES)
    return m.apply("MUL", x, m.apply("ADD", step, rest))


def prelu_of_leaky_relu(m: Spelled, x: Tensor) -> Tensor:
    return m.apply("PRELU", m.apply("LEAKY_RELU", x, alpha=0.5), SLOPES)


def leaky_relu(m: Spelled, x: Tensor) -> Tensor:
    return m.apply("MAXIMUM", x, m.apply("MUL", 0.25, x))


def steep_leaky_relu(m: Spelled, x: Tensor) -> Tensor:
    return m.apply("MINIMUM", m.apply("MUL", x, 1.5), x)


def leaky_relu_of_tensorflow_1(m: Spelled, x: Tensor) -> Tensor:
    return m.apply("ADD", m.apply("MUL", 0.6, x), m.apply("MUL", m.apply("ABS", x), 0.4))


def prelu_with_one_slope(m: Spelled, x: Tensor) -> Tensor:
    return m.apply("PRELU", x, np.full(5, 0.25))


def maximum(m: Spelled, x: Tensor) -> Tensor:
    return m.apply("MAXIMUM", 0.0, x)


def half_of_sum(m: Spelled, x: Tensor) -> Tensor:
    return m.apply("MUL", m.apply("ADD", m.apply("ABS", x), x), 0.5)


def absolute(m: Spelled, x: Tensor) -> Tensor:
    return m.apply("MAXIMUM", x, m.apply("NEG", x))


def relu_twice(m: Spelled, x: Tensor) -> Tensor:
    return m.apply("RELU", m.apply("RELU", x))


PRELU = [
    mobile_facenet,
    divided_by_two,
    maximum_and_minimum,
    clips,
    zeros_like,
    keras,
    difference_of_relu,
    fused_relu,
    remainder,
    line_and_absolute,
    maximum_of_products,
    where,
    where_not,
    cast_comparisons,
    signs,
    prelu_of_leaky_relu,
]
SPELLINGS = [
    *((each, "PRELU", "PRelu") for each in PRELU),
    (leaky_relu, "LEAKY_RELU", "LeakyRelu"),
    (steep_leaky_relu, "LEAKY_RELU", "LeakyRelu"),
    (leaky_relu_of_tensorflow_1, "LEAKY_RELU", "LeakyRelu"),
    (prelu_with_one_slope, "LEAKY_RELU", "LeakyRelu"),
    (maximum, "RELU", "Relu"),
    (half_of_sum, "RELU", "Relu"),
    (relu_twice, "RELU", "Relu"),
    (absolute, "ABS", "Abs"),
]


def test_every_spelling_becomes_one_rectifier() -> None:
    """All spellings are one case: the first level draws 8 cases of the next test."""
    for spelling, code, _ in SPELLINGS:
        graph = fuse(read_model(spell(spelling)).graphs[0])
        assert [op.code for op in graph.ops] == [code], spelling


@pytest.mark.parametrize(("spelling", "node"), [(each, node) for each, _, node in SPELLINGS])
def test_rectifiers_equal_litert(spelling: Spelling, node: str) -> None:
    result = check(spell(spelling))
    assert [each.op_type for each in result.model.graph.node] == [node]


def test_selected_product_becomes_prelu() -> None:
    before = """
        inputs %0: float32[2,3,5]
        %1: bool[2,3,5] = GREATER(%0, 0.0)
        %2: float32[2,3,5] = MUL(%0, [-2.0, -1.0, 0.0, 1.0, 2.0])
        %3: float32[2,3,5] = SELECT_V2(%1, %0, %2)
        return %3
    """
    after = """
        inputs %0: float32[2,3,5]
        %1: float32[2,3,5] = PRELU(%0, [-2.0, -1.0, 0.0, 1.0, 2.0])
        return %1
    """
    graph = read_model(spell(where)).graphs[0]
    check_pass(fuse, graph, before, after)
    (op,) = fuse(graph).ops
    slopes = op.inputs[1]
    assert slopes is not None
    np.testing.assert_array_equal(slopes.data, SLOPES)


def test_rectifier_of_an_inner_tensor_is_found() -> None:
    """The result is no rectifier of the first tensor, but of one that depends on it."""
    m = Spelled()
    scaled = m.apply("MUL", m.input(SHAPE), -SLOPES - 3)
    m.output(mobile_facenet(m, scaled))
    graph = fuse(read_model(m.bytes()).graphs[0])
    assert [op.code for op in graph.ops] == ["MUL", "PRELU"]
    check(m.bytes(), seeds=[0])


def test_long_chains_stay_unfused() -> None:
    """Tensors far before the result are no longer considered."""
    m = Spelled()
    x = y = m.input(SHAPE)
    for _ in range(10):
        y = m.apply("MUL", y, 0.5)
    m.output(m.apply("MAXIMUM", x, y))
    check_unchanged(fuse_rectifiers, read_model(m.bytes()).graphs[0])


def other_slope(m: Spelled, x: Tensor) -> Tensor:
    return m.apply("MAXIMUM", x, m.apply("MUL", x, 1.5))


def slopes_above_one(m: Spelled, x: Tensor) -> Tensor:
    return m.apply("MAXIMUM", x, m.apply("MUL", SLOPES, x))


def other_x(m: Spelled, x: Tensor) -> Tensor:
    return m.apply("MAXIMUM", x, m.apply("MUL", m.input(SHAPE), 0.25))


def other_limit(m: Spelled, x: Tensor) -> Tensor:
    return m.apply("MAXIMUM", x, 1.0)


def other_activation(m: Spelled, x: Tensor) -> Tensor:
    scaled = m.apply("MUL", x, 0.25, fused_activation_function="RELU6")
    return m.apply("MAXIMUM", x, scaled)


def product_of_two(m: Spelled, x: Tensor) -> Tensor:
    return m.apply("MUL", x, m.apply("ABS", x))


def divided_by_x(m: Spelled, x: Tensor) -> Tensor:
    return m.apply("DIV", m.apply("ABS", x), x)


def other_knee(m: Spelled, x: Tensor) -> Tensor:
    return m.apply("SELECT_V2", m.compare("GREATER", x, 1.0), x, m.apply("MUL", x, 0.5))


def chosen_by_input(m: Spelled, x: Tensor) -> Tensor:
    return m.apply("SELECT_V2", m.input(SHAPE, dtype="bool"), x, m.apply("MUL", x, 0.5))


def product_by_one(m: Spelled, x: Tensor) -> Tensor:
    return m.apply("MUL", x, 1.0)


def cast_to_bool(m: Spelled, x: Tensor) -> Tensor:
    return m.apply("MUL", x, m.cast(m.cast(x, "bool")))


def infinite_slope(m: Spelled, x: Tensor) -> Tensor:
    return m.apply("ADD", m.apply("RELU", x), m.apply("MUL", m.apply("MINIMUM", x, 0.0), np.inf))


def sign(m: Spelled, x: Tensor) -> Tensor:
    return m.apply("MUL", m.apply("SIGN", x), 2.0)


OTHERS = [
    other_slope,
    slopes_above_one,
    other_x,
    other_limit,
    other_activation,
    product_of_two,
    divided_by_x,
    other_knee,
    chosen_by_input,
    product_by_one,
    cast_to_bool,
    sign,
]


def test_operators_that_differ_from_rectifiers_stay() -> None:
    for spelling in OTHERS:
        check_unchanged(fuse_rectifiers, read_model(spell(spelling)).graphs[0])


@pytest.mark.parametrize("spelling", OTHERS)
def test_operators_that_stay_equal_litert(spelling: Spelling) -> None:
    check(spell(spelling), seeds=[0])


def test_quotients_by_zero_stay() -> None:
    def divide(m: Spelled, x: Tensor) -> Tensor:
        return m.apply("ADD", m.apply("RELU", x), m.apply("DIV", m.apply("ABS", x), 0.0))

    graph = fuse(read_model(spell(divide)).graphs[0])
    assert [op.code for op in graph.ops] == ["RELU", "ABS", "DIV", "ADD"]


@np.errstate(all="ignore")
def test_infinite_slopes_stay_products() -> None:
    graph = fuse(read_model(spell(infinite_slope)).graphs[0])
    assert [op.code for op in graph.ops] == ["RELU", "MINIMUM", "MUL", "ADD"]


def test_broadcast_results_stay_unfused() -> None:
    """The result must have the shape of x."""
    m = Build()
    x = m.input([1, 5])
    (scaled,) = m.op("MUL", [x, m.constant(np.full((3, 1), 0.5, np.float32))], [[3, 5]])
    m.output(*m.op("MAXIMUM", [x, scaled], [[3, 5]]))
    check_unchanged(fuse_rectifiers, read_model(m.bytes()).graphs[0])


def test_quantized_rectifiers_stay() -> None:
    """Rectifiers of quantized operators stay, because the kernels round each result."""
    m = Build()
    fields: dict[str, Any] = {"dtype": "int8", "scale": 0.1, "zero_point": 3}
    x = m.input(SHAPE, **fields)
    factor = m.constant(np.array([10], np.int8), scale=0.02)
    (scaled,) = m.op("MUL", [x, factor], [m.tensor(SHAPE, **fields)])
    m.output(*m.op("MAXIMUM", [x, scaled], [m.tensor(SHAPE, **fields)]))
    check_unchanged(fuse_rectifiers, read_model(m.bytes()).graphs[0])


def test_empty_slopes_stay_unchanged() -> None:
    m = Build()
    x = m.input([1, 0])
    m.output(*m.op("PRELU", [x, m.constant(np.zeros((1, 0), np.float32))], [[1, 0]]))
    check_unchanged(fuse_rectifiers, read_model(m.bytes()).graphs[0])

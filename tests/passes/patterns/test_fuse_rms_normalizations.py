"""normalizations/fuse_normalizations.py: normalizations by the root of the mean square."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.passes.patterns.test_fuse_normalizations import EPSILON, Spelled
from tests.support import Tensor, check
from tests.support.fusions import count_optimized_nodes
from tests.support.graph_text import check_pass, check_unchanged, eliminate_dead_after
from tflite2onnx import convert
from tflite2onnx.passes.patterns.fuse_normalizations import (
    fuse_rms_normalizations,
)
from tflite2onnx.reader.model import read_model

fuse = eliminate_dead_after(fuse_rms_normalizations)

Spelling = Callable[[Spelled, Tensor], Tensor]


def add_epsilon(m: Spelled, mean: Tensor) -> Tensor:
    return m.apply("ADD", mean, m.constant(EPSILON))


def scale_result(m: Spelled, x: Tensor) -> Tensor:
    factor = m.apply("RSQRT", add_epsilon(m, m.mean(m.apply("MUL", x, x))))
    return m.apply("MUL", m.apply("MUL", x, factor), m.vector(x.shape[-1], 0.5))


def scale_factor(m: Spelled, x: Tensor) -> Tensor:
    factor = m.apply("RSQRT", add_epsilon(m, m.mean(m.apply("SQUARE", x))))
    return m.apply("MUL", m.apply("MUL", m.vector(x.shape[-1], 0.5), factor), x)


def divide_by_root(m: Spelled, x: Tensor) -> Tensor:
    squares = m.apply("POW", x, m.constant(np.float32(2)))
    return m.apply("DIV", x, m.apply("SQRT", add_epsilon(m, m.mean(squares))))


def raise_mean(m: Spelled, x: Tensor) -> Tensor:
    """As Gemma 3n has it."""
    shifted = add_epsilon(m, m.mean(m.apply("MUL", x, x)))
    factor = m.apply("POW", shifted, m.constant(np.full((1, 1), -0.5, np.float32)))
    return m.apply("MUL", m.apply("MUL", x, factor), m.vector(x.shape[-1], 0.5))


def reshape_sum(m: Spelled, x: Tensor, code: str = "DIV") -> Tensor:
    """As ai-edge-torch writes it."""
    axes, shape = m.constant(np.array([len(x.shape) - 1], np.int32)), [*x.shape]
    (total,) = m.op("SUM", [m.apply("MUL", x, x), axes], [shape[:-1]])
    count = shape[-1] if code == "DIV" else 1 / shape[-1]
    shifted = add_epsilon(m, m.apply(code, total, m.constant(np.float32(count))))
    (kept,) = m.op("RESHAPE", [shifted], [[*shape[:-1], 1]], new_shape=[*shape[:-1], 1])
    product = m.apply("MUL", x, m.apply("RSQRT", kept))
    return m.apply("MUL", product, m.vector(shape[-1], 0.5))


def multiply_sum(m: Spelled, x: Tensor) -> Tensor:
    return reshape_sum(m, x, "MUL")


def with_activation(m: Spelled, x: Tensor) -> Tensor:
    factor = m.apply("RSQRT", add_epsilon(m, m.mean(m.apply("MUL", x, x))))
    return m.apply("MUL", x, factor, fused_activation_function="RELU")


SPELLINGS = [
    scale_result, scale_factor, divide_by_root, raise_mean, reshape_sum, multiply_sum,
    with_activation,
]  # fmt: skip


def spell(spelling: Spelling, shape: list[int], axis: int = -1) -> bytes:
    m = Spelled([axis])
    m.output(spelling(m, m.input(shape)))
    return m.bytes()


def test_operators_become_one_rms_normalization() -> None:
    before = """
        inputs %0: float32[2,3]
        %1: float32[2,3] = MUL(%0, %0)
        %2: float32[2] = SUM(%1, [1])
        %3: float32[2] = DIV(%2, 3.0)
        %4: float32[2] = ADD(%3, 0.0010000000474974513)
        %5: float32[2,1] = RESHAPE(%4)
        %6: float32[2,1] = RSQRT(%5)
        %7: float32[2,3] = MUL(%0, %6)
        %8: float32[2,3] = MUL(%7, [0.5, 1.25, 2.0])
        return %8
    """
    after = """
        inputs %0: float32[2,3]
        %1: float32[2,3] = RMS_NORMALIZATION(%0, [0.5, 1.25, 2.0])
        return %1
    """
    check_pass(fuse, read_model(spell(reshape_sum, [2, 3])).graphs[0], before, after)


@pytest.mark.parametrize("spelling", SPELLINGS)
@pytest.mark.parametrize("shape", [[1, 8], [2, 3, 8], [2, 5, 7, 3]], ids=str)
def test_rms_normalizations_equal_litert(spelling: Spelling, shape: list[int]) -> None:
    data = spell(spelling, shape)
    result = check(data, ranges={"tensor_0": (-2.0, 5.0)})
    assert "SimplifiedLayerNormalization" in count_optimized_nodes(result.model)
    newest = [node.op_type for node in check(data, opset=23).model.graph.node]
    assert newest == ["RMSNormalization"] + ["Relu"] * (spelling is with_activation)


def test_number_of_rows_may_be_dynamic() -> None:
    """The number of rows is open."""
    m = Spelled([-1])
    m.output(scale_result(m, m.input([1, 3, 8], shape_signature=[-1, 3, 8])))
    nodes = [node.op_type for node in convert(m.bytes()).model.graph.node]
    assert nodes == ["Pow", "ReduceMean", "Add", "Sqrt", "Div", "Mul"]


def other_count(m: Spelled, x: Tensor) -> Tensor:
    axes = m.constant(np.array([len(x.shape) - 1], np.int32))
    shape = [*x.shape[:-1], 1]
    (total,) = m.op("SUM", [m.apply("MUL", x, x), axes], [shape], keep_dims=True)
    mean = m.apply("MUL", total, m.constant(np.float32(0.5)))
    return m.apply("MUL", x, m.apply("RSQRT", add_epsilon(m, mean)))


def read_root(m: Spelled, x: Tensor) -> Tensor:
    root = m.apply("RSQRT", add_epsilon(m, m.mean(m.apply("MUL", x, x))))
    m.output(root)
    return m.apply("MUL", x, root)


def read_squares(m: Spelled, x: Tensor) -> Tensor:
    squares = m.apply("MUL", x, x)
    m.output(squares)
    return m.apply("MUL", x, m.apply("RSQRT", add_epsilon(m, m.mean(squares))))


def divide_root(m: Spelled, x: Tensor) -> Tensor:
    return m.apply("DIV", m.apply("SQRT", add_epsilon(m, m.mean(m.apply("SQUARE", x)))), x)


def several_epsilons(m: Spelled, x: Tensor) -> Tensor:
    epsilons = m.constant(np.full((3, 1), 0.1, np.float32))
    shifted = m.apply("ADD", m.mean(m.apply("SQUARE", x)), epsilons)
    return m.apply("MUL", x, m.apply("RSQRT", shifted))


def without_squares(m: Spelled, x: Tensor) -> Tensor:
    return m.apply("MUL", x, m.apply("RSQRT", add_epsilon(m, m.mean(m.apply("ABS", x)))))


def without_epsilon(m: Spelled, x: Tensor) -> Tensor:
    return m.apply("MUL", x, m.apply("RSQRT", m.mean(m.apply("MUL", x, x))))


def cubes(m: Spelled, x: Tensor) -> Tensor:
    powers = m.apply("POW", x, m.constant(np.float32(4)))
    return m.apply("MUL", x, m.apply("RSQRT", add_epsilon(m, m.mean(powers))))


def limit_squares(m: Spelled, x: Tensor) -> Tensor:
    squares = m.apply("MUL", x, x, fused_activation_function="RELU6")
    return m.apply("MUL", x, m.apply("RSQRT", add_epsilon(m, m.mean(squares))))


OTHERS = [
    other_count,
    read_root,
    read_squares,
    divide_root,
    several_epsilons,
    without_squares,
    without_epsilon,
    cubes,
    limit_squares,
]


@pytest.mark.parametrize("spelling", OTHERS)
def test_operators_that_differ_from_rms_normalization_stay(spelling: Spelling) -> None:
    graph = read_model(spell(spelling, [2, 3, 8])).graphs[0]
    check_unchanged(fuse_rms_normalizations, graph)
    check(spell(spelling, [2, 3, 8]), ranges={"tensor_0": (0.5, 2.0)})


def test_normalizations_along_other_axes_stay() -> None:
    graph = read_model(spell(scale_result, [2, 3, 8], 1)).graphs[0]
    check_unchanged(fuse_rms_normalizations, graph)

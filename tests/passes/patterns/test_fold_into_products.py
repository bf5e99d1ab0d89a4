"""passes/patterns/fold_into_products.py: constants after convolutions and dense layers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto

from tests.support import Build, Tensor, check
from tests.support.graph_text import (
    check_pass,
    check_unchanged,
    eliminate_dead_after,
    parse_graph,
)
from tflite2onnx.passes.patterns.fold_into_products import fold_into_products
from tflite2onnx.reader.model import read_model

fold = eliminate_dead_after(fold_into_products)

STEP: dict[str, Any] = {"stride_h": 1, "stride_w": 1, "padding": "SAME"}
FILTERS = {
    "CONV_2D": ([1, 4, 6, 3], [5, 3, 3, 3], STEP),
    "DEPTHWISE_CONV_2D": ([1, 4, 6, 5], [1, 3, 3, 5], {**STEP, "depth_multiplier": 1}),
    "FULLY_CONNECTED": ([2, 7], [5, 7], {}),
}


def model(
    code: str, *folded: tuple[str, Any], options: Any = None, bias: bool = True, two: bool = False
) -> bytes:
    """Return a product, and operators with a constant after it."""
    m = Build()
    shape, filters, fields = FILTERS[code]
    weights = np.random.default_rng(0).standard_normal(filters).astype(np.float32)
    inputs: list[Tensor | None] = [m.input(shape), m.constant(weights)]
    inputs.append(m.constant(np.arange(5, dtype=np.float32)) if bias else None)
    (y,) = m.op(code, inputs, [[*shape[:-1], 5]], **{**fields, **(options or {})})
    if two:
        m.output(y)
    for name, constant in folded:
        other = m.constant(np.asarray(constant, np.float32))
        (y,) = m.op(name, [y, other], [y.shape], fused_activation_function="RELU")
    m.output(y)
    return m.bytes()


def test_constant_sum_becomes_part_of_the_bias() -> None:
    before = """
        inputs %0: float32[2,7]
        %1: float32[2,5] = FULLY_CONNECTED(%0, float32[5,7], [0.0, 1.0, 2.0, 3.0, 4.0])
        %2: float32[2,5] = ADD(%1, [1.0, 1.0, 1.0, 1.0, 2.0])
        return %2
    """
    after = """
        inputs %0: float32[2,7]
        %1: float32[2,5] = FULLY_CONNECTED(%0, float32[5,7], [1.0, 2.0, 3.0, 4.0, 6.0])
        return %1
    """
    data = model("FULLY_CONNECTED", ("ADD", [1, 1, 1, 1, 2]))
    check_pass(fold, read_model(data).graphs[0], before, after)


@pytest.mark.parametrize("code", FILTERS)
@pytest.mark.parametrize("name", ["ADD", "SUB", "MUL", "DIV"])
@pytest.mark.parametrize("constant", [2.5, [[3, -1, 0.5, 1, 2]]], ids=["one", "each"])
def test_folded_products_equal_litert(code: str, name: str, constant: Any) -> None:
    data = model(code, (name, constant))
    assert [op.code for op in fold(read_model(data).graphs[0]).ops] == [code]
    check(data, seeds=[0])


def test_sums_add_a_bias_and_products_do_not() -> None:
    for name in ("ADD", "MUL"):
        data = model("FULLY_CONNECTED", (name, [1, 2, 3, 4, 5]), bias=False)
        (op,) = fold(read_model(data).graphs[0]).ops
        assert (op.inputs[2] is None) == (name == "MUL")
        check(data, seeds=[0])


def test_operator_after_an_activation_stays() -> None:
    """The second operator stays, because the first operator applies an activation."""
    data = model("CONV_2D", ("MUL", [1, 2, 3, 4, 5]), ("ADD", 1))
    assert [op.code for op in fold(read_model(data).graphs[0]).ops] == ["CONV_2D", "ADD"]
    check(data, seeds=[0])


@pytest.mark.parametrize(
    "data",
    [
        model("CONV_2D", ("MUL", 2), options={"fused_activation_function": "RELU"}),
        model("CONV_2D", ("MUL", 2), two=True),
        model("CONV_2D", ("DIV", [1, 2, 0, 3, 4])),
        model("CONV_2D", ("DIV", 1e-45)),
        model("CONV_2D", ("ADD", np.ones((4, 6, 5)))),
        model("CONV_2D", ("ADD", np.ones((6, 1)))),
    ],
    ids=["activation", "two readers", "zero", "tiny", "each pixel", "each column"],
)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # a conversion silences numpy
def test_operators_that_filters_cannot_absorb_stay(data: bytes) -> None:
    graph = read_model(data).graphs[0]
    check_unchanged(fold, graph)


def split_features(
    *folded: tuple[str, Any], shape: tuple[int, ...] = (1, 2, 2, 3), reads: int = 1
) -> bytes:
    """Return a dense layer whose features are split before operators with a constant."""
    m = Build()
    weights = np.random.default_rng(0).standard_normal((6, 7)).astype(np.float32)
    (x,) = m.op("FULLY_CONNECTED", [m.input([2, 7]), m.constant(weights), None], [[2, 6]])
    (y,) = m.op("RESHAPE", [x, m.constant(np.array(shape, np.int32))], [shape])
    m.output(*[x] * (reads - 1))
    for name, constant in folded:
        (y,) = m.op(name, [y, m.constant(np.asarray(constant, np.float32))], [shape])
    m.output(y)
    return m.bytes()


def test_constants_after_a_reshape_are_folded() -> None:
    """The bias of heads of attention, and the scale of the queries."""
    before = """
        inputs %0: float32[2,7]
        %1: float32[2,6] = FULLY_CONNECTED(%0, float32[6,7], none)
        %2: float32[1,2,2,3] = RESHAPE(%1, [1, 2, 2, 3])
        %3: float32[1,2,2,3] = ADD(%2, [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
        %4: float32[1,2,2,3] = MUL(%3, 0.5)
        return %4
    """
    after = """
        inputs %0: float32[2,7]
        %1: float32[2,6] = FULLY_CONNECTED(%0, float32[6,7], [0.5, 1.0, 1.5, 2.0, 2.5, 3.0])
        %2: float32[1,2,2,3] = RESHAPE(%1, [1, 2, 2, 3])
        return %2
    """
    data = split_features(("ADD", [[1, 2, 3], [4, 5, 6]]), ("MUL", 0.5))
    check_pass(fold, read_model(data).graphs[0], before, after)
    check(data, seeds=[0])


def test_a_bias_that_is_equal_for_all_heads_is_repeated() -> None:
    data = split_features(("ADD", [1, 2, 3]))
    (product, _) = fold(read_model(data).graphs[0]).ops
    assert product.operand(2).values.tolist() == [1, 2, 3, 1, 2, 3]
    check(data, seeds=[0])


@pytest.mark.parametrize(
    "data",
    [
        split_features(("ADD", [[[[1, 2, 3]]], [[[4, 5, 6]]]]), shape=(2, 1, 2, 3)),
        split_features(("ADD", np.ones((4, 1))), shape=(3, 4, 1)),
        split_features(("ADD", 1), reads=2),
    ],
    ids=["rows", "no features", "two readers"],
)
def test_reshapes_that_do_not_split_features_stay(data: bytes) -> None:
    graph = read_model(data).graphs[0]
    check_unchanged(fold, graph)
    check(data, seeds=[0])


def test_constants_that_add_rows_stay() -> None:
    text = """
        inputs a: float32[1,3]
        p: float32[1,5] = FULLY_CONNECTED(a, float32[5,3], none)
        y: float32[2,5] = ADD(p, float32[2,1])
        return y
    """
    check_unchanged(fold, parse_graph(text))


def test_constant_minus_product_stays() -> None:
    m = Build()
    weights = m.constant(np.ones((5, 7), np.float32))
    (y,) = m.op("FULLY_CONNECTED", [m.input([2, 7]), weights, None], [[2, 5]])
    m.output(*m.op("SUB", [m.constant(np.ones(5, np.float32)), y], [[2, 5]]))
    graph = read_model(m.bytes()).graphs[0]
    check_unchanged(fold, graph)


@pytest.mark.parametrize(("factor", "stays"), [(-1, False), (3, False), (1.1, True)])
@pytest.mark.parametrize("name", ["MUL", "ADD"])
def test_float16_filters_stay_float16_if_products_fit(
    name: str, factor: float, *, stays: bool
) -> None:
    """MUL stays if its product is no float16; ADD is folded into the small bias."""
    m = Build()
    half = m.constant(np.ones((5, 7), np.float16))
    (weights,) = m.op("DEQUANTIZE", [half], [m.tensor([5, 7], dtype="float32")])
    (y,) = m.op("FULLY_CONNECTED", [m.input([2, 7]), weights, None], [[2, 5]])
    m.output(*m.op(name, [y, m.constant(np.full(5, factor, np.float32))], [[2, 5]]))
    model = check(m.bytes(), seeds=[0]).model
    kinds = [node.op_type for node in model.graph.node]
    assert ("Mul" in kinds) == (name == "MUL" and stays)
    assert "Add" not in kinds
    assert any(each.data_type == TensorProto.FLOAT16 for each in model.graph.initializer)

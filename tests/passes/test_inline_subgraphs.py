"""passes/inline_subgraphs.py: calls are replaced by the operators of their sub-graph."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from flatbuffers import flexbuffers

from tests.op.ports import refusal_reason
from tests.support import Build, Subgraph, Tensor, check, run_onnx
from tests.support.small import chain
from tflite2onnx.convert import convert
from tflite2onnx.op import supported_operators
from tflite2onnx.passes.inline_subgraphs import inline_subgraphs
from tflite2onnx.reader.model import read_model

if TYPE_CHECKING:
    from collections.abc import Sequence

SHAPE = (2, 3, 5)
# LiteRT requires attributes, even empty ones.
COMPOSITE: dict[str, Any] = {
    "name": "some.thing",
    "composite_attributes": bytes(flexbuffers.Dumps({})),
}


def composite(
    m: Subgraph, index: int, inputs: Sequence[Tensor | None], *made: Sequence[int]
) -> list[Tensor]:
    """Return the outputs of a composite."""
    return m.op(
        "STABLEHLO_COMPOSITE", inputs, made, decomposition_subgraph_index=index, **COMPOSITE
    )


def call(m: Subgraph, callee: Subgraph, x: Tensor, *more: Tensor) -> Tensor:
    """Return the output of a composite; it has the shape of the first input."""
    return composite(m, callee.index, [x, *more], x.shape)[0]


def add_scaling_subgraph(m: Build) -> Subgraph:
    """Return a sub-graph (a, b) -> 2 * a - b."""
    inner = m.subgraph("scaled")
    a, b = inner.input(SHAPE, name="a"), inner.input(SHAPE, name="b")
    (twice,) = inner.op("MUL", [a, inner.constant(2.0)], [inner.tensor(SHAPE, name="twice")])
    inner.output(*inner.op("SUB", [twice, b], [inner.tensor(SHAPE, name="made")]))
    return inner


def test_composite_becomes_operators_of_its_sub_graph() -> None:
    m = Build()
    a, b = m.input(SHAPE), m.input(SHAPE)
    m.output(call(m, add_scaling_subgraph(m), a, b))
    result = check(m.bytes())
    assert [node.op_type for node in result.model.graph.node] == ["Mul", "Sub"]


def test_a_sub_graph_may_be_called_often() -> None:
    m = Build()
    inner = add_scaling_subgraph(m)
    a, b = m.input(SHAPE, name="twice"), m.input(SHAPE, name="made")
    c = call(m, inner, a, b)
    m.output(call(m, inner, c, a), c)
    data = m.bytes()
    check(data)
    graph = inline_subgraphs(read_model(data))
    names = [t.name for t in graph.tensors]
    assert len(names) == len(set(names))
    assert {t for op in graph.ops for t in op.outputs} <= set(graph.tensors)
    assert [op.outputs[0].name for op in graph.ops if op.code == "MUL"] == ["twice_1", "twice_2"]


def test_calls_may_be_nested() -> None:
    m = Build()
    inner, outer = add_scaling_subgraph(m), m.subgraph("outer")
    a, b = outer.input(SHAPE), outer.input(SHAPE)
    c = call(outer, inner, a, b)
    outer.output(call(outer, inner, c, c))
    x = m.input(SHAPE)
    m.output(call(m, outer, x, *m.op("ABS", [x], [SHAPE])))
    check(m.bytes())


def test_outputs_may_be_inputs_and_constants() -> None:
    m = Build()
    inner = m.subgraph("inner")
    x = inner.input(SHAPE)
    constant = inner.constant(np.arange(30, dtype=np.float32).reshape(SHAPE))
    inner.output(x, constant, *inner.op("NEG", [x], [SHAPE]))
    m.output(*composite(m, inner.index, [m.input(SHAPE)], *[SHAPE] * 3))
    check(m.bytes())


def test_an_output_may_be_there_twice() -> None:
    """A sub-graph may list an output twice, although LiteRT writes only one of the two."""
    m = Build()
    inner = m.subgraph("inner")
    inner.output(*2 * inner.op("NEG", [inner.input(SHAPE)], [SHAPE]))
    m.output(*composite(m, inner.index, [m.input(SHAPE, name="x")], SHAPE, SHAPE))
    x = np.arange(30, dtype=np.float32).reshape(SHAPE)
    for y in run_onnx(convert(m.bytes()).model, {"x": x}):
        assert np.array_equal(y, -x)


def test_model_without_calls_is_not_changed() -> None:
    model = read_model(chain("ABS"))
    assert inline_subgraphs(model) is model.graphs[0]


@pytest.mark.parametrize("scale", [0.5, 0.25])
def test_integers_are_passed_as_they_are_stored(scale: float) -> None:
    m = Build()
    inner = m.subgraph("inner")
    x = inner.input(SHAPE, dtype="int8", scale=scale, zero_point=3)
    inner.output(*inner.op("RELU", [x], [SHAPE]))
    outer = m.input(SHAPE, dtype="int8", scale=0.5, zero_point=3)
    m.output(call(m, inner, outer))
    check(m.bytes())


def test_call_is_converted_without_a_litert_kernel() -> None:
    """CALL is converted, although LiteRT has no kernel for it."""
    m = Build()
    inner = add_scaling_subgraph(m)
    a, b = m.input(SHAPE), m.input(SHAPE)
    (y,) = m.op("CALL", [a, b], [SHAPE], subgraph=inner.index)
    m.output(y)
    model = convert(m.bytes()).model
    assert [node.op_type for node in model.graph.node] == ["Mul", "Sub"]
    assert {"CALL", "STABLEHLO_COMPOSITE"} <= set(supported_operators())


def test_refuses_sub_graphs_that_call_themselves() -> None:
    m = Build()
    first, second = m.subgraph("first"), m.subgraph("second")
    for inner, other in ((first, second), (second, first)):
        inner.output(call(inner, other, inner.input(SHAPE)))
    m.output(call(m, first, m.input(SHAPE)))
    assert "sub-graph 1 must not call itself" in refusal_reason(m)
    m = Build()
    m.output(call(m, m, m.input(SHAPE)))
    assert (
        "STABLEHLO_COMPOSITE (operator 0, tensor_1): sub-graph 0 must not call itself"
        in refusal_reason(m)
    )


def test_refuses_a_sub_graph_that_is_not_there() -> None:
    m = Build()
    m.output(*composite(m, 7, [m.input(SHAPE)], SHAPE))
    assert "must be below 1, got 7" in refusal_reason(m)
    m = Build()
    m.output(*composite(m, -1, [m.input(SHAPE)], SHAPE))
    assert "some.thing must have a sub-graph that computes it, got none" in refusal_reason(m)


def test_refuses_calls_with_wrong_operands() -> None:
    m = Build()
    inner = add_scaling_subgraph(m)
    m.output(call(m, inner, m.input(SHAPE)))
    assert "it must have 2 inputs as its sub-graph, got 1" in refusal_reason(m)
    m = Build()
    inner = add_scaling_subgraph(m)
    m.output(call(m, inner, m.input(SHAPE), m.input(SHAPE, dtype="int32")))
    assert "b of its sub-graph must be int32 as tensor_1, got float32" in refusal_reason(m)


@pytest.mark.parametrize("shape", [[3, 5], [5], [], [2, 1, 1], [1, 1, 3, 5]], ids=str)
def test_a_sub_graph_has_the_shapes_of_the_operands(shape: list[int]) -> None:
    """The kernel resizes the inputs of the sub-graph, whatever the sub-graph declares."""
    m = Build()
    inner = add_scaling_subgraph(m)
    a, b = m.input(SHAPE), m.input(shape)
    m.output(composite(m, inner.index, [b, a], [1, *SHAPE] if len(shape) > 3 else SHAPE)[0])
    check(m.bytes())


def test_absent_input_of_a_call_is_an_error_of_its_reader() -> None:
    m = Build()
    inner = add_scaling_subgraph(m)
    m.output(*composite(m, inner.index, [m.input(SHAPE), None], SHAPE))
    assert "SUB (operator 1, tensor_1): b must be constant or computed" in refusal_reason(m)


@pytest.mark.parametrize("version", [1, 2])
def test_absent_inputs_and_several_outputs_are_passed_to_nested_composites(version: int) -> None:
    m = Build()
    inner, outer = m.subgraph("inner"), m.subgraph("outer")
    a, _, c = (inner.input(SHAPE) for _ in range(3))
    (total,) = inner.op("ADD", [a, c], [SHAPE])
    inner.output(total, *inner.op("SUB", [total, c], [SHAPE]))
    first, second, _ = (outer.input(SHAPE) for _ in range(3))
    outer.output(*composite(outer, inner.index, [first, None, second], SHAPE, SHAPE)[::-1])
    operands = [m.input(SHAPE), m.input(SHAPE), None]
    options = {**COMPOSITE, "decomposition_subgraph_index": outer.index, "version": version}
    m.output(*m.op("STABLEHLO_COMPOSITE", operands, [SHAPE] * 2, **options))
    check(m.bytes())


def test_a_small_file_does_not_become_a_huge_model() -> None:
    m = Build()
    graphs = [m, *(m.subgraph(f"level {i}") for i in range(30))]
    for graph, callee in pairwise(graphs):
        graph.output(call(graph, callee, call(graph, callee, graph.input(SHAPE))))
    last = graphs[-1]
    last.output(*last.op("ABS", [last.input(SHAPE)], [SHAPE]))
    assert "at most 65536 operators" in refusal_reason(m)


def test_a_deep_nest_is_refused() -> None:
    m = Build()
    graphs = [m, *(m.subgraph(f"level {i}") for i in range(70))]
    for graph, callee in pairwise(graphs):
        graph.output(call(graph, callee, graph.input(SHAPE)))
    last = graphs[-1]
    last.output(*last.op("ABS", [last.input(SHAPE)], [SHAPE]))
    assert "nested at most 64 deep" in refusal_reason(m)


def test_a_call_without_options_is_refused() -> None:
    m = Build()
    m.output(call(m, add_scaling_subgraph(m), m.input(SHAPE)))
    m.model().subgraphs[0].operators[0].builtinOptions2 = None
    m.model().subgraphs[0].operators[0].builtinOptions2Type = 0
    assert "sub-graph 0 must not call itself" in refusal_reason(m)

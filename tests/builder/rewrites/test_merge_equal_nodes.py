"""builder/rewrites.py: nodes that compute the same values become one node."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support import Build, check
from tflite2onnx.builder.builder import Body, Builder, Port, Value
from tflite2onnx.builder.nodes import Node
from tflite2onnx.builder.rewrites import merge_equal_nodes
from tflite2onnx.tensor import DType, Tensor


def merge(g: Builder, *outputs: Value) -> tuple[Node, ...]:
    """Return the nodes without repetitions."""
    return merge_equal_nodes(g, g.nodes, outputs).nodes


def test_equal_chains_become_one() -> None:
    """Two equal chains become one; the values of the other chain are replaced."""
    g, x = Builder(17), Value(dtype=DType.FLOAT32)
    a, b = (g.ReduceMax(g.Abs(x), axes=[1, 2], keepdims=0) for _ in range(2))
    y = g.Add(a, b)
    nodes, merged, *_ = merge_equal_nodes(g, g.nodes, [y])
    assert [node.op_type for node in nodes] == ["Abs", "ReduceMax", "Add"]
    assert nodes[-1].inputs == (a, a)
    assert merged[b] is a


def test_equal_nodes_of_several_outputs_become_one() -> None:
    g, x = Builder(17), Value(dtype=DType.FLOAT32)
    pairs = [g.node_outputs("Split", 2, x, axis=0) for _ in range(2)]
    nodes, merged, *_ = merge_equal_nodes(g, g.nodes, [])
    assert len(nodes) == 1
    assert [merged[value] for value in pairs[1]] == list(pairs[0])


def test_nodes_that_differ_are_not_merged() -> None:
    """Attributes, inputs, the number of outputs and constants of its own make a node another."""
    g, x = Builder(17), Value(dtype=DType.FLOAT32)
    g.ReduceMax(x, axes=[1])
    g.ReduceMax(x, axes=[2])
    g.ReduceMax(g.Abs(x), axes=[1])
    g.node_outputs("MaxPool", 1, x)
    g.node_outputs("MaxPool", 2, x)
    for _ in range(2):
        g.Add(x, g.make_separate_constant(np.ones(1, np.float32), DType.FLOAT32))
    assert merge(g) == tuple(g.nodes)


def test_random_and_custom_nodes_are_not_merged() -> None:
    """Random numbers and operators of the user are drawn or called each time; outputs stay."""
    g, x = Builder(17), Value(dtype=DType.FLOAT32)
    for _ in range(2):
        g.RandomUniform(shape=[2])
        g.node_outputs("MyOperator", 1, x, domain="example")
    a, b, c = g.Abs(x), g.Abs(x), g.Abs(x)
    nodes = merge(g, a, b)
    assert nodes == tuple(node for node in g.nodes if c not in node.outputs)


@pytest.mark.parametrize("other", ["Neg", "Abs", "RandomNormalLike"])
@pytest.mark.parametrize("same", [True, False])
def test_branches_of_one_condition_are_compared(other: str, *, same: bool) -> None:
    """If nodes become one if both of their graphs compute the same values."""
    g, x, condition = Builder(17), Value(dtype=DType.FLOAT32), Value(dtype=DType.BOOL)
    for op_type in (other, other if same else "Sign"):
        branches = {}
        for key, chosen in (("then_branch", "Abs"), ("else_branch", op_type)):
            inner = g.make_nested()
            y = inner.node(chosen, inner.Exp(x))
            branches[key] = Body(key, (), tuple(inner.nodes), (y,), ())
        g.node("If", condition, **branches)
    assert len(merge(g)) == (1 if same and other != "RandomNormalLike" else 2)


@pytest.mark.parametrize("value", [np.array([1, 2]), [1, 2], (1, 2), bytearray(b"ab"), "ab", 1.5])
def test_attributes_may_be_of_any_type(value: object) -> None:
    """Attributes may be of any type that ONNX takes."""
    g, x = Builder(17), Value(dtype=DType.FLOAT32)
    for _ in range(2):
        g.Transpose(x, perm=value)
    assert len(merge(g)) == 1


def test_nodes_with_incomparable_attributes_stay() -> None:
    class Opaque:
        __hash__ = None  # type: ignore[assignment]

    g, x = Builder(17), Value(dtype=DType.FLOAT32)
    g.Transpose(x, perm=Opaque())
    g.Transpose(x, perm=Opaque())
    assert len(merge(g)) == 2


def test_nodes_are_merged_only_within_one_graph() -> None:
    """A graph inside reads what stays around it; its own nodes are compared among themselves."""
    g, x = Builder(17), Value(dtype=DType.FLOAT32)
    a, b = g.Abs(x), g.Abs(x)
    inner = g.make_nested()
    c, d = inner.Abs(x), inner.Abs(x)
    y = inner.Add(inner.Add(c, d), b)
    port = Port("d", d, Tensor("d", (2,), DType.FLOAT32), (0,), DType.FLOAT32)
    body = Body("then", (), tuple(inner.nodes), (y, b), (port,))
    condition = Value(dtype=DType.BOOL)
    for _ in range(2):
        g.node_outputs("If", 2, condition, then_branch=body, else_branch=body)
    first, *ifs = merge(g, a)
    assert first.outputs == (a,)
    assert len(ifs) == 2
    merged = ifs[0].attributes["then_branch"]
    assert [node.inputs for node in merged.nodes] == [(x,), (c, c), (merged.nodes[1].outputs[0], a)]
    assert merged.outputs == (y, a)
    assert merged.tensors[0].value is c


def test_equal_operators_of_a_model_become_one() -> None:
    """Equal operators of a model become one node, also if their results are compared."""
    m = Build()
    x = m.input([2, 3])
    rows = m.constant(np.array([1], np.int32))
    sums = [m.op("SUM", [m.op("ABS", [x], [[2, 3]])[0], rows], [[2]])[0] for _ in range(2)]
    (product,) = m.op("MUL", sums, [[2]])
    m.output(product)
    result = check(m.bytes())
    assert [node.op_type for node in result.model.graph.node] == ["Abs", "ReduceSum", "Mul"]


def test_equal_outputs_of_a_model_keep_their_names() -> None:
    """Two outputs with equal elements keep their names."""
    m = Build()
    x = m.input([2, 3])
    for _ in range(2):
        m.output(*m.op("ABS", [x], [[2, 3]]))
    result = check(m.bytes())
    assert len({output.name for output in result.model.graph.output}) == 2

"""tflite2onnx/graph.py: producers and readers of tensors, and rewriting."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tflite2onnx.graph import ABSENT, NO_OP, Graph, Op
from tflite2onnx.tensor import DType, Tensor

X, Y, Z, INNER, BRANCH = (Tensor(name, (2,), DType.FLOAT32) for name in ("x", "y", "z", "i", "b"))
NEG = Op("NEG", 0, (X,), (Y,))
ABS = Op("ABS", 0, (Y,), (INNER,))
SQUARE = Op("SQUARE", 1, (INNER,), (BRANCH,))
NESTED = Graph("branch", (), (BRANCH,), (ABS, SQUARE))
IF = Op("IF", 1, (X,), (Z,), graphs=(NESTED,))


@pytest.fixture
def graph() -> Graph:
    """Return a graph with control flow, whose sub-graph reads a tensor of the graph around it."""
    return Graph("main", (X,), (Z,), (NEG, IF))


def test_producers_include_subgraphs_and_are_computed_once(graph: Graph) -> None:
    """Sub-graphs count; the mapping is computed once."""
    assert graph.producers == {Y: NEG, INNER: ABS, BRANCH: SQUARE, Z: IF}
    assert graph.producers is graph.producers


def test_readers_include_subgraphs_and_graph_outputs(graph: Graph) -> None:
    """Sub-graphs count; the output of a graph has another reader, which is no operator."""
    readers = graph.readers
    assert readers is graph.readers
    assert readers.find_only_reader(Y) is ABS
    assert readers.find_only_reader(INNER) is SQUARE
    assert [readers.find_only_reader(t) for t in (X, Z, BRANCH, ABSENT)] == [NO_OP] * 4
    assert readers.are_among((NEG, IF), X)
    assert not readers.are_among((NEG,), X)
    assert not readers.are_among((IF,), BRANCH)


def test_rewriting_nothing_returns_the_same_graph(graph: Graph) -> None:
    """The result is the graph itself, which keeps its producers."""
    assert graph.rewrite(lambda op: [op]) is graph


def test_rewriting_in_a_subgraph_replaces_outer_operators(graph: Graph) -> None:
    """Operators that run a changed sub-graph are replaced; other operators are unchanged."""
    made = graph.rewrite(lambda op: [replace(op, code="COS")] if op is ABS else [op])
    assert made.ops[0] is NEG
    assert [op.code for op in made.walk_ops()] == ["NEG", "IF", "COS", "SQUARE"]
    assert made.producers[INNER].code == "COS"
    assert graph.producers[INNER] is ABS


def test_rewriting_replaces_outputs_alone(graph: Graph) -> None:
    """Outputs are replaced, even if all operators stay."""
    assert graph.rewrite(lambda op: [op], {Z: Y}).outputs == (Y,)

"""builder/node_passes.py: passes over nodes apply in order, and log what they change."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest

from tflite2onnx.builder.builder import Builder, Value
from tflite2onnx.builder.node_passes import (
    NodePass,
    Rewritten,
    Yielded,
    apply_node_passes,
    drop_dead_nodes,
    keep,
    replace_nodes,
)
from tflite2onnx.builder.nodes import Node
from tflite2onnx.builder.rewrites import merge_equal_nodes
from tflite2onnx.options import ConversionOptions
from tflite2onnx.targets.driver import list_node_passes
from tflite2onnx.targets.table import TARGETS, Target
from tflite2onnx.tensor import DType


def replace_abs(g: Builder, nodes: Sequence[Node], _: Sequence[Value]) -> Rewritten:
    """Return nodes with Max of a number and its negative in place of Abs of float32."""

    def build(node: Node) -> Sequence[Node] | str:
        if node.op_type != "Abs":
            return ""
        (x,) = node.present
        if x.dtype is not DType.FLOAT32:
            return "no floats"
        negative = Value()
        made = Node("Neg", (x,), (negative,), {})
        return [made, Node("Max", (x, negative), node.outputs, {})]

    assert g.opset
    return replace_nodes(nodes, build)


def reverse_inputs(_: Builder, nodes: Sequence[Node], __: Sequence[Value]) -> Iterator[Node]:
    """Yield the nodes; those of two inputs read them in reverse."""
    for node in nodes:
        yield node._replace(inputs=node.inputs[::-1])


def apply(*passes: NodePass, caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return the kinds of nodes after passes, of |x| + |y| with an integer y and a dead node."""
    g, x, y = Builder(17), Value(dtype=DType.FLOAT32), Value(dtype=DType.INT32)
    result = g.Add(g.Abs(x), g.Abs(y))
    g.Neg(x)
    with caplog.at_level(logging.DEBUG, "tflite2onnx"):
        made = apply_node_passes(passes, g, g.nodes, [result])
    return [node.op_type for node in made.nodes]


def test_passes_log_what_became_and_why_nodes_stayed(caplog: pytest.LogCaptureFixture) -> None:
    kinds = apply(replace_abs, drop_dead_nodes, reverse_inputs, caplog=caplog)
    assert kinds == ["Neg", "Max", "Abs", "Add"]
    assert caplog.messages == [
        "replace_abs: +1 Neg, +1 Max, -1 Abs",
        "replace_abs: 1 node stayed: no floats",
        "drop_dead_nodes: -1 Neg",
        "reverse_inputs: 2 nodes changed",
    ]


def test_passes_that_yield_nodes_log_why_nodes_stayed(caplog: pytest.LogCaptureFixture) -> None:
    def yield_all(_: Builder, nodes: Sequence[Node], __: Sequence[Value]) -> Yielded:
        return (keep(node, ["Abs"], "it reads a number") for node in nodes)

    assert apply(yield_all, caplog=caplog) == ["Abs", "Abs", "Add", "Neg"]
    assert caplog.messages == ["yield_all: 2 nodes stayed: it reads a number"]


def test_passes_without_changes_log_nothing(caplog: pytest.LogCaptureFixture) -> None:
    apply(drop_dead_nodes, drop_dead_nodes, caplog=caplog)
    assert caplog.messages == ["drop_dead_nodes: -1 Neg"]


def test_merged_values_follow_later_passes() -> None:
    """A value that stands for another one may be replaced, too."""
    g, x = Builder(17), Value(dtype=DType.FLOAT32)
    first, second, named = g.Abs(x), g.Abs(x), Value()

    def rename(_: Builder, nodes: Sequence[Node], __: Sequence[Value]) -> Rewritten:
        return Rewritten(tuple(n._replace(outputs=(named,)) for n in nodes), {first: named})

    made = apply_node_passes([merge_equal_nodes, rename], g, g.nodes, [named])
    assert made.merged == {second: named, first: named}
    assert [node.outputs for node in made.nodes] == [(named,)]


@pytest.mark.parametrize("target", TARGETS)
def test_passes_of_targets_have_one_signature(target: Target) -> None:
    """Every pass of a target takes a graph without nodes."""
    for forms in ("fastest", "canonical"):
        passes = list_node_passes(replace(ConversionOptions(target=target), forms=forms))
        assert drop_dead_nodes in passes
        assert apply_node_passes(passes, Builder(17), [], [Value()]).nodes == ()

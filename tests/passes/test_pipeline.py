"""tflite2onnx/passes/__init__.py: which passes run, and when their modules are imported."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.support import Build
from tflite2onnx import passes
from tflite2onnx.graph import Graph
from tflite2onnx.passes import apply_if_present, apply_if_valid, find_pass
from tflite2onnx.reader.model import read_model


def list_paths() -> list[str]:
    """Return the paths of passes in the tuples."""
    tree = ast.parse(Path(str(passes.__file__)).read_text())
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    names = ("apply_if_present", "apply_if_valid")
    named = [c for c in calls if isinstance(c.func, ast.Name) and c.func.id in names]
    return [
        str(ast.literal_eval(call.args[1]))
        for call in named
        if len(call.args) > 1 and isinstance(call.args[1], ast.Constant)
    ]


@pytest.mark.parametrize("path", list_paths())
def test_every_path_leads_to_a_function(path: str) -> None:
    """A path is a string, so nothing else would notice a wrong name in a rarely used pass."""
    found = find_pass(path)
    assert found.__module__ == f"tflite2onnx.passes.{path.partition(':')[0]}"


def read_graph(activation: str) -> Graph:
    """Return a graph with one ADD that applies an activation."""
    m = Build()
    x = m.input([2, 3])
    m.output(*m.op("ADD", [x, x], [[2, 3]], fused_activation_function=activation))
    return read_model(m.bytes()).graphs[0]


@pytest.mark.parametrize("prefixes", ["SUB", "DD", "", "RELU6"])
def test_a_pass_without_its_operators_is_not_imported(prefixes: str) -> None:
    """The graph stays, although there is no such module."""
    graph = read_graph("RELU")
    assert apply_if_present(prefixes, "missing")(graph) is graph


@pytest.mark.parametrize("prefixes", ["ADD", "SUB AD", "RELU6"])
def test_a_pass_runs_for_operators_and_activations(prefixes: str) -> None:
    """A code that begins with one of the prefixes is enough, and so is an activation."""
    with pytest.raises(ModuleNotFoundError, match="missing"):
        apply_if_present(prefixes, "missing")(read_graph("RELU6"))


def test_contradictory_operands_stop_a_pattern() -> None:
    """PACK has no inputs: the pass leaves the graph to the operator's check."""
    m = Build()
    m.output(*m.op("PACK", [], [[2, 3]], axis=0, values_count=0))
    graph = read_model(m.bytes()).graphs[0]
    path = "patterns.join_parts"
    with pytest.raises(IndexError):
        apply_if_present("PACK", path)(graph)
    assert apply_if_valid("PACK", path)(graph) is graph

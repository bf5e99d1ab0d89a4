"""tflite2onnx/passes/__init__.py: which passes run, and when their modules are imported."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from types import ModuleType

import pytest

from tests.support import Build, check
from tflite2onnx import contrib, convert, passes
from tflite2onnx.cli import main
from tflite2onnx.errors import InternalError, InternalWarning, UnsupportedOperators
from tflite2onnx.extensions import OfferedPass
from tflite2onnx.graph import Graph, Op
from tflite2onnx.op import find_operator
from tflite2onnx.passes import apply_if_present, describe_bug, find_pass, verify_operators
from tflite2onnx.passes.patterns import join_parts
from tflite2onnx.passes.patterns.rules import Rules
from tflite2onnx.reader.model import read_model
from tflite2onnx.targets.onnxruntime import forms
from tflite2onnx.targets.onnxruntime.forms.movement import flatten_packs


def list_paths(module: ModuleType) -> list[str]:
    """Return the paths of passes in the tuples of a module."""
    tree = ast.parse(Path(str(module.__file__)).read_text())
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    names = ("apply_if_present", "apply_pattern", "_apply", "_apply_if_present")
    named = [c for c in calls if isinstance(c.func, ast.Name) and c.func.id in names]
    return [
        str(ast.literal_eval(call.args[1]))
        for call in named
        if len(call.args) > 1 and isinstance(call.args[1], ast.Constant)
    ]


@pytest.mark.parametrize("module", [passes, forms], ids=lambda module: module.__name__)
def test_every_path_leads_to_a_function(module: ModuleType) -> None:
    """Paths of passes are strings, so that only this test notices a wrong name in a rare pass."""
    for path in list_paths(module):
        found = find_pass(path, module.__name__)
        name = f"{module.__name__}.{path.partition(':')[0]}"
        assert isinstance(found, Rules) or found.__module__ == name


@pytest.mark.parametrize("offered", contrib.PASSES, ids=lambda offered: offered.path)
def test_every_offered_path_leads_to_a_function(offered: OfferedPass) -> None:
    package, _, path = offered.path.rpartition(".")
    assert find_pass(path, package).__module__ == offered.path.partition(":")[0]


def read_graph(activation: str) -> Graph:
    """Return a graph with one ADD that applies an activation."""
    m = Build()
    x = m.input([2, 3])
    m.output(*m.op("ADD", [x, x], [[2, 3]], fused_activation_function=activation))
    return read_model(m.bytes()).graphs[0]


@pytest.mark.parametrize("prefixes", ["SUB", "DD", "", "RELU6"])
def test_a_pass_without_its_operators_is_not_imported(prefixes: str) -> None:
    """The graph is returned unchanged, although the module of the pass does not exist."""
    graph = read_graph("RELU")
    assert apply_if_present(prefixes, "missing")(graph) is graph


@pytest.mark.parametrize("prefixes", ["ADD", "SUB AD", "RELU6"])
def test_a_pass_runs_for_operators_and_activations(prefixes: str) -> None:
    """A code that begins with one of the prefixes is enough, and so is an activation."""
    with pytest.raises(ModuleNotFoundError, match="missing"):
        apply_if_present(prefixes, "missing")(read_graph("RELU6"))


def test_contradictory_operands_are_refused_before_patterns() -> None:
    """PACK has no inputs, which `join_parts` reads."""
    m = Build()
    m.output(*m.op("PACK", [], [[2, 3]], axis=0, values_count=0))
    (graph,) = read_model(m.bytes()).graphs
    with pytest.raises(IndexError):
        find_pass("patterns.join_parts")(graph)
    with pytest.raises(UnsupportedOperators, match="1 operator cannot"):
        verify_operators(find_operator, graph)


def test_model_is_converted_without_a_pattern_that_has_a_bug(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(graph: Graph) -> Graph:
        raise IndexError(f"no such input in {len(graph.ops)} operators")

    monkeypatch.setattr(join_parts, "join_parts", fail)
    m = Build()
    parts = m.op("UNPACK", [m.input([2, 3])], [[3], [3]], axis=0, num=2)
    m.output(*m.op("PACK", parts, [[2, 3]], axis=0, values_count=2))
    with pytest.warns(InternalWarning, match="IndexError: no such input"):
        check(m.bytes())


class _Endless:
    def __repr__(self) -> str:
        pytest.fail("the repr of an object may be endless")


def test_bug_is_described_without_the_repr_of_objects() -> None:
    assert describe_bug(KeyError(_Endless())) == "KeyError: _Endless"
    assert describe_bug(KeyError("name")) == "KeyError: 'name'"


def test_error_of_an_operator_in_a_pattern_is_reported_by_emit() -> None:
    """A stride of 0 is found first by `split_slices`, and reported when the operator is emitted."""
    m = Build()
    x = m.input([2, 4])
    inputs = [x, *(m.constant(each) for each in ([0, 0], [2, 2], [1, 0]))]
    m.output(*m.op("STRIDED_SLICE", inputs, [[2, 2]]))
    m.output(*m.op("SLICE", [x, m.constant([0, 2]), m.constant([2, 2])], [[2, 2]]))
    with pytest.raises(UnsupportedOperators, match=r"the stride of axis . must not be 0"):
        convert(m.bytes())


def test_a_bug_of_a_pass_is_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message names the pass and the operator, and the command fails."""

    def fail(op: Op) -> object:
        return op.inputs[7]

    monkeypatch.setattr(flatten_packs, "find_axis", fail)
    m = Build()
    x = m.input([2, 3])
    m.output(*m.op("PACK", [x, x], [[2, 2, 3]], axis=0, values_count=2))
    model = tmp_path / "pack.tflite"
    model.write_bytes(m.bytes())
    bug = r"flatten_packs: PACK \(operator 0, tensor_1\): IndexError: tuple index out of range"
    with pytest.raises(InternalError, match=bug):
        convert(model)
    assert main([str(model), "-o", str(tmp_path / "pack.onnx")]) == 1
    assert re.search(f"this is a bug in tflite2onnx; .*{bug}", capsys.readouterr().err)
    assert [*tmp_path.iterdir()] == [model]

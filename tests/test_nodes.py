"""tflite2onnx/nodes.py, and what `emit` keeps of the nodes that operators add."""

from __future__ import annotations

import ast
from pathlib import Path

from onnx import defs

from tests.toolkit import Build
from tflite2onnx import convert, nodes

PACKAGE = Path(nodes.__file__).parent


def test_how_old_nodes_are() -> None:
    """The table says it of all nodes that are named anywhere in the package, as ONNX does."""
    first: dict[str, int] = {}
    for schema in defs.get_all_schemas_with_history():
        if schema.domain == "":
            first[schema.name] = min(schema.since_version, first.get(schema.name, 99))
    trees = [ast.parse(path.read_text()) for path in PACKAGE.rglob("*.py")]
    words = {
        word
        for tree in trees
        for node in ast.walk(tree)
        for word in (getattr(node, "attr", ""), getattr(node, "value", ""))
        if isinstance(word, str)
    }
    young = {w: first[w] for w in words & first.keys() if first[w] > nodes.MIN_OPSET}
    assert young == nodes._SINCE  # noqa: SLF001


def test_nodes_that_nothing_reads() -> None:
    """ONNX's Reshape has its shape from the file: what computes it for TFLite is left out."""
    m = Build()
    x, sizes = m.input([2, 3, 5], name="x"), m.input([2], dtype="int32", name="sizes")
    (positive,) = m.op("ABS", [sizes], [m.tensor([2], dtype="int32", name="positive")])
    (y,) = m.op("RESHAPE", [x, positive], [m.tensor([6, 5], name="y")])
    m.output(y)
    graph = convert(m.bytes()).model.graph
    assert [node.op_type for node in graph.node] == ["Reshape"]
    assert [i.name for i in graph.input] == ["x", "sizes"]
    assert len(graph.value_info) == 0

"""builder/nodes.py, and the elimination of nodes that no output needs."""

from __future__ import annotations

import ast
from pathlib import Path

import numpy as np
from onnx import defs

import tflite2onnx
from tests.support import Build
from tflite2onnx import convert
from tflite2onnx.builder.opsets import FIRST_OPSET, ORDINARY_OPSET

PACKAGE = Path(tflite2onnx.__file__).parent


def test_table_lists_each_node_newer_than_opset_13() -> None:
    """FIRST_OPSET lists each node type that the package makes and that is newer than opset 13.

    The rules of targets name nodes of other files.
    """
    first: dict[str, int] = {}
    for schema in defs.get_all_schemas_with_history():
        if schema.domain == "":
            first[schema.name] = min(schema.since_version, first.get(schema.name, 99))
    trees = [
        ast.parse(path.read_text()) for path in PACKAGE.rglob("*.py") if path.name != "rules.py"
    ]
    words = {
        word
        for tree in trees
        for node in ast.walk(tree)
        for word in (getattr(node, "attr", ""), getattr(node, "value", ""))
        if isinstance(word, str)
    }
    for name in ("LinearAttention", "RotaryEmbedding"):  # those of ONNX Runtime are made
        del first[name]
    young = {w: first[w] for w in words & first.keys() if first[w] > ORDINARY_OPSET}
    assert young == {node: first for node, first in FIRST_OPSET.items() if isinstance(node, str)}


def test_nodes_that_nothing_reads_are_eliminated() -> None:
    """ConvTranspose infers its output shape: the nodes that compute this shape are eliminated."""
    m = Build()
    x, sizes = m.input([1, 3, 5, 2], name="x"), m.input([4], dtype="int32", name="sizes")
    (positive,) = m.op("ABS", [sizes], [m.tensor([4], dtype="int32", name="positive")])
    weights = m.constant(np.ones((7, 1, 1, 2), np.float32))
    (y,) = m.op(
        "TRANSPOSE_CONV",
        [positive, weights, x],
        [m.tensor([1, 3, 5, 7], name="y")],
        stride_h=1,
        stride_w=1,
        padding="VALID",
    )
    m.output(y)
    graph = convert(m.bytes(), io_layout="onnx").model.graph
    assert [node.op_type for node in graph.node] == ["ConvTranspose"]

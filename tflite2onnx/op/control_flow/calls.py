"""Operators that stand for a sub-graph."""

from __future__ import annotations

from tflite2onnx.op.base import Category, Operator

# Which option has the index of the sub-graph.
CALLS = {"STABLEHLO_COMPOSITE": "decomposition_subgraph_index", "CALL": "subgraph"}


class Call(Operator):
    """STABLEHLO_COMPOSITE and CALL: gone before anything is planned (see `inline_subgraphs`)."""

    codes = tuple(CALLS)
    category = Category.TERMINATE

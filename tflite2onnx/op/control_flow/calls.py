"""Operators that call a sub-graph."""

from __future__ import annotations

from tflite2onnx.op.base import Operator

# The option with the index of the sub-graph.
CALLS = {"STABLEHLO_COMPOSITE": "decomposition_subgraph_index", "CALL": "subgraph"}


class Call(Operator):
    """STABLEHLO_COMPOSITE and CALL: calls, which `inline_subgraphs` replaces."""

    codes = tuple(CALLS)

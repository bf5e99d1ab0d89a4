"""Repair the sub-graph of an attention whose keys have one head.

litert-torch's exporters reshape such keys where they must be transposed: [1, tokens, 1, depth] to
[1, 1, depth, tokens]. The scores are then products with parts of several keys. LiteRT's default
delegate is not affected, because it runs the composite itself, and not its sub-graph; its numbers
are those of the PyTorch model.

1. A RESHAPE of the keys to [1, 1, depth, tokens], whose result is the second matrix of a
   BATCH_MATMUL, becomes a TRANSPOSE. Between them may be products with constants, BROADCAST_TO and
   RESHAPE.
2. Any other sub-graph is not changed.
"""

from __future__ import annotations

from dataclasses import replace

from tflite2onnx.graph import Graph, Model, Op
from tflite2onnx.passes.rewriter import Rewriter, make_int32
from tflite2onnx.tensor import Tensor

ATTENTION = "odml.scaled_dot_product_attention"
_KEYS = 1  # the index of the input
_TRANSPOSED = [0, 2, 3, 1]


def repair_attention(graph: Graph) -> Graph:
    """Return the sub-graph of an attention with keys that are transposed, not reshaped."""
    keys = graph.inputs[_KEYS] if len(graph.inputs) > _KEYS else None
    if keys is None or not _has_one_head(keys):
        return graph
    _, tokens, _, depth = keys.shape
    reshaped: Op | None = None
    values = {keys}
    for op in graph.ops:
        x = op.inputs[0] if op.inputs else None
        if op.is_builtin("BATCH_MATMUL") and op.inputs[1] in values:
            is_swapped = bool(op.options.get("adj_y", False))
            return graph if reshaped is None or is_swapped else _transpose(graph, reshaped)
        if x not in values:
            continue
        if op.is_builtin("RESHAPE") and reshaped is None:
            if op.outputs[0].shape != (1, 1, depth, tokens):
                return graph
            reshaped = op
        elif not op.is_builtin("RESHAPE", "BROADCAST_TO") and not _multiplies_by_constant(op):
            return graph
        values.add(op.outputs[0])
    return graph


def has_wrong_attention(model: Model) -> bool:
    """Return whether `repair_attention` changes the sub-graph of an operator of a model."""
    called = {
        int(op.options.decomposition_subgraph_index)
        for graph in model.graphs
        for op in graph.ops
        if op.options.get("name") == ATTENTION
    }
    graphs = (model.graphs[i] for i in called if i < len(model.graphs))
    return any(repair_attention(graph) is not graph for graph in graphs)


def _has_one_head(keys: Tensor) -> bool:
    return keys.rank == len(_TRANSPOSED) and keys.shape[0] == keys.shape[2] == 1


def _multiplies_by_constant(op: Op) -> bool:
    return op.is_builtin("MUL") and op.operand(1).is_constant


def _transpose(graph: Graph, reshape: Op) -> Graph:
    rw = Rewriter(reshape)
    order = make_int32(f"{reshape.outputs[0].name}/order", _TRANSPOSED)
    rw.op("TRANSPOSE", reshape.operand(0), order, output=reshape.outputs[0])
    ops = (each for op in graph.ops for each in (rw.ops if op is reshape else [op]))
    return replace(graph, ops=tuple(ops))

"""Repair the sub-graph of an attention whose keys have one head.

litert-torch's exporters reshape such keys where they must be transposed: [1, tokens, 1, depth] to
[1, 1, depth, tokens]. The scores are then products with parts of several keys. LiteRT's default
delegate is not affected, because it runs the composite itself, and not its sub-graph; its numbers
are those of the PyTorch model.

1. A RESHAPE of the keys to [1, 1, depth, tokens], whose result is the second matrix of a
   BATCH_MATMUL, becomes a TRANSPOSE. Between them may be products by a number, BROADCAST_TO and
   RESHAPE. A product by a number before the RESHAPE follows the TRANSPOSE.
2. Any other sub-graph is not changed.
"""

from dataclasses import replace

from tflite2onnx.graph import NO_OP, Graph, Model, Op
from tflite2onnx.passes.rewriter import Rewriter, make_int32, make_like
from tflite2onnx.tensor import Tensor

ATTENTION = "odml.scaled_dot_product_attention"
_KEYS = 1  # the index of the input
_TRANSPOSED = [0, 2, 3, 1]


def repair_attention(graph: Graph) -> Graph:
    """Return the sub-graph of an attention with keys that are transposed, not reshaped."""
    keys = graph.inputs[_KEYS] if len(graph.inputs) > _KEYS else None
    if keys is None or not (keys.rank == len(_TRANSPOSED) and keys.shape[0] == keys.shape[2] == 1):
        return graph
    scaled = next((op for op in graph.ops if keys in op.inputs and _scales(op)), NO_OP)
    sources = (keys, *scaled.outputs)
    _, tokens, _, depth = keys.shape
    for op in graph.ops:
        is_moved = op.is_builtin("RESHAPE") and op.outputs[0].shape == (1, 1, depth, tokens)
        if is_moved and op.inputs[0] in sources and _are_right_matrices(op.outputs[0], graph):
            return _transpose(graph, op, scaled if op.inputs[0] is not keys else NO_OP)
    return graph


def _are_right_matrices(tensor: Tensor, graph: Graph) -> bool:
    """Return whether a BATCH_MATMUL multiplies by the rows of a tensor, which may be repeated."""
    values = {tensor}
    for op in graph.ops:
        if op.is_builtin("BATCH_MATMUL") and op.inputs[1] in values:
            return not op.options.get("adj_y", False)
        if (op.is_builtin("RESHAPE", "BROADCAST_TO") or _scales(op)) and op.inputs[0] in values:
            values.add(op.outputs[0])
    return False


def has_wrong_attention(model: Model) -> bool:
    """Return whether `repair_attention` changes the sub-graph of an operator of a model."""
    called = {
        int(op.options.get("decomposition_subgraph_index", -1))
        for graph in model.graphs
        for op in graph.ops
        if op.options.get("name") == ATTENTION
    }
    graphs = (model.graphs[i] for i in called if 0 <= i < len(model.graphs))
    return any(repair_attention(graph) is not graph for graph in graphs)


def _scales(op: Op) -> bool:
    return op.is_builtin("MUL") and op.operand(1).is_constant and op.operand(1).elements == 1


def _transpose(graph: Graph, reshape: Op, scaled: Op) -> Graph:
    """Return the graph with a TRANSPOSE of the keys; the product by a number follows it."""
    rw, y = Rewriter(reshape), reshape.outputs[0]
    order = make_int32(f"{y.name}/order", _TRANSPOSED)
    keys = make_like(y, "keys") if scaled is not NO_OP else y
    rw.op("TRANSPOSE", graph.inputs[_KEYS], order, output=keys)
    if keys is not y:
        rw.op("MUL", keys, scaled.operand(1), output=y)
    ops = (each for op in graph.ops for each in (rw.ops if op is reshape else [op]))
    return replace(graph, ops=tuple(ops), tensors=(*graph.tensors, keys))

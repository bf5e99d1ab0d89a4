"""Products with keys and values that several heads share read them once.

Exporters repeat the keys and values of each head, [heads, rows, depth], before the products:

    repeated = BROADCAST_TO(keys)    [heads, 1, rows, depth] to [heads, shares, rows, depth]
    scores = BATCH_MATMUL(queries, RESHAPE(repeated))    [heads * shares, times, rows]

The queries that share a head become rows of one matrix, so that no key is copied or scaled:

    scores = RESHAPE(BATCH_MATMUL(RESHAPE(queries), keys))    [heads, shares * times, rows]

A BATCH_MATMUL is replaced if

1. its second operand is a BROADCAST_TO that repeats each matrix some times in succession. RESHAPE
   may join and split the axes before the matrices, TRANSPOSE may swap the last two axes, and MUL
   and DIV may scale by a number, also before the BROADCAST_TO;
2. both operands have as many matrices, and the first operand is not transposed;
3. all tensors are float32 and have fixed sizes.

A TRANSPOSE that moves the heads of the keys gets three axes: ONNX Runtime's MatMul reads what a
Transpose of three axes returns without a copy. So the RESHAPE before it keeps the last axis.
`fuse_attention` recognises other attention; a step of one token has no TRANSPOSE of the queries.
"""

from math import prod

from tflite2onnx.graph import Graph, Op
from tflite2onnx.passes.operands import are_fixed_floats, squeeze_order, squeeze_shape
from tflite2onnx.passes.patterns.matching import Match
from tflite2onnx.passes.patterns.rules import rule
from tflite2onnx.passes.rewriter import Rewriter
from tflite2onnx.targets.onnxruntime.forms.attention.fuse_attention import (
    Matrices,
    count_shares,
    scale_matrices,
    trace_matrices,
)
from tflite2onnx.targets.onnxruntime.operators.reshape import MovedOptions
from tflite2onnx.tensor import Tensor

_MATRIX = 2  # axes


@rule(
    "product with heads that are repeated",
    "BATCH_MATMUL, RESHAPE",
    ("BATCH_MATMUL", "x", "y"),
    needs=("BROADCAST_TO",),
)
def share_heads(found: Match) -> list[Op] | str:
    """Return what replaces the match, or why nothing does."""
    op, x, y, output = found.last, found.x, found.tensors["y"], found.output
    matrices = trace_matrices(Matrices(y, op.options.adj_y), found.graph)
    repeat = found.graph.producers.find(matrices.tensor)
    heads, _, factor = scale_matrices(Matrices(repeat.operand(0)), found.graph)
    factor *= matrices.factor
    if not repeat.is_builtin("BROADCAST_TO") or op.options.adj_x:
        return "the heads must be repeated by BROADCAST_TO"
    count = count_shares(heads.shape, matrices.tensor.shape)
    if not count or x.shape[:-_MATRIX] != y.shape[:-_MATRIX]:
        return "each head must be repeated in succession"
    if not are_fixed_floats(x, y, output, matrices.tensor, heads):
        return "all tensors must be float32, of known sizes"
    groups, (rows, depth) = prod(heads.shape[:-_MATRIX]), x.shape[-_MATRIX:]
    rw = Rewriter(op)
    if factor != 1:
        x = rw.op("MUL", x, factor, like=x, name="scaled")
    queries = rw.reshape(x, (groups, count * rows, depth), like=output, name="queries")
    joined, shape = _join_heads(rw, heads, found.graph), (groups, count * rows, output.shape[-1])
    turned = matrices.transposed
    product = rw.multiply(queries, joined, like=output, name="product", shape=shape, adj_y=turned)
    rw.reshape(product, output=output)
    return rw.ops


def _join_heads(rw: Rewriter, heads: Tensor, graph: Graph) -> Tensor:
    """Return matrices with one axis before them, by a TRANSPOSE of three axes if there is one."""
    shape = (prod(heads.shape[:-_MATRIX]), *heads.shape[-_MATRIX:])
    move = graph.producers.find(graph.producers.trace(heads, "RESHAPE"))
    x, order = move.operand(0), squeeze_order(move) or ()
    sizes = squeeze_shape(x.shape)
    if x.symbols or tuple(sizes[axis] for axis in order) != shape:
        return rw.reshape(heads, shape, like=heads, name="heads")
    made = MovedOptions(keeps_last=True)
    flat = rw.op("RESHAPE", x, like=x, name="heads", shape=sizes, made=made, new_shape=sizes)
    return rw.transpose(flat, order, like=heads, name="moved")

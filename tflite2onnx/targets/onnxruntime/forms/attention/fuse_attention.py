"""Recognise attention with several heads that a model spells out.

    y = TRANSPOSE(BATCH_MATMUL(SOFTMAX(scores + mask), TRANSPOSE(values)))
    scores = BATCH_MATMUL(TRANSPOSE(queries), TRANSPOSE(keys)) * scale    [batch, heads, rows, keys]

Keras, JAX and PyTorch exports of transformers split the last axis of queries, keys and values into
heads, and move the heads before the rows. ATTENTION, which no file contains, replaces them if

1. queries, keys and values are [batch, rows, heads, depth], of which a TRANSPOSE makes
   [batch, heads, rows, depth], and the last TRANSPOSE undoes this move for the result. Another
   TRANSPOSE may swap the last two axes. A RESHAPE may join the batch and the heads to one axis.
   BROADCAST_TO may repeat each head of the keys and of the values for several heads of the queries;
2. the scores, the queries or the keys are multiplied by or divided by single numbers, whose product
   is positive, or are not scaled;
3. what is added to the scores broadcasts to them, and SOFTMAX applies no factor;
4. all tensors are float32 and have fixed sizes, and no other operator reads the tensors between.

ONNX Runtime's MatMul reads operands whose first axis is the second in memory, so that it needs no
Transpose (`FusedMatMul` with `transBatchA`). It recognises a Transpose of three axes only, so the
operator leaves a batch of 1 out. From opset 23 on it is one node.
"""

from collections.abc import Sequence
from math import inf, prod
from typing import NamedTuple

from tflite2onnx.graph import Graph, Op
from tflite2onnx.passes.operands import (
    are_fixed_floats,
    find_order,
    find_producer,
    keeps_sequence,
)
from tflite2onnx.passes.patterns.matching import Match, Named, Pattern, Through, maybe
from tflite2onnx.passes.patterns.rules import rule
from tflite2onnx.passes.rewriter import as_builtin
from tflite2onnx.targets.onnxruntime.operators.attention import AttentionOptions
from tflite2onnx.tensor import Shape, Tensor

HEADS_FIRST, _TRANSPOSED = (0, 2, 1, 3), (0, 2, 3, 1)
_MATRIX = 2  # axes


class Matrices(NamedTuple):
    """A tensor of matrices that are multiplied by a factor; each may be transposed."""

    tensor: Tensor
    transposed: bool = False
    factor: float = 1.0


_WEIGHTS: Pattern = ("SOFTMAX", maybe("ADD", "scores", "mask"), {"beta": 1})
_WEIGHTED = Named("weighted", ("BATCH_MATMUL", Through(_WEIGHTS), "values"))


@rule("attention", "ATTENTION", ("TRANSPOSE", Through(_WEIGHTED), "order#"))
def fuse_attention(found: Match) -> Op | str:
    """Return what replaces the match, or why nothing does."""
    graph, tensors, y = found.graph, found.tensors, found.output
    weighting = graph.producers[tensors["weighted"]]
    reshapes = [op for op in found.ops if op.code == "RESHAPE"]
    if find_order(found.last) != HEADS_FIRST or not all(map(_keeps_matrices, reshapes)):
        return "the heads must be moved before the rows, by TRANSPOSE alone"
    scores = trace_matrices(Matrices(tensors["scores"]), graph)
    product = find_producer(scores.tensor, graph, "BATCH_MATMUL")
    # The product of keys and queries is a product of queries and keys that is transposed.
    queries = _find_rows(product.operand(0), graph, transposed=product.options.adj_x)
    keys = _find_rows(product.operand(1), graph, transposed=not product.options.adj_y)
    values = _find_rows(weighting.operand(1), graph, transposed=weighting.options.adj_y)
    if not queries or not keys or not values or values.factor != 1 or weighting.options.adj_x:
        return "queries, keys or values have no TRANSPOSE that moves the heads"
    if scores.transposed:
        queries, keys = keys, queries
    factor = scores.factor * queries.factor * keys.factor
    operands = queries.tensor, keys.tensor, values.tensor
    masks = [tensors["mask"]] if "mask" in tensors else []
    if factor <= 0 or not _fit_together(*operands, masks, y):
        return "the factor must be positive, and the shapes must be those of attention"
    made = AttentionOptions(scale=factor)
    return as_builtin(found.last, "ATTENTION", *operands, *masks, made=made)


def _fit_together(q: Tensor, k: Tensor, v: Tensor, masks: Sequence[Tensor], y: Tensor) -> bool:
    """Return whether the operands of attention have fixed shapes that fit together."""
    if not are_fixed_floats(q, k, v, *masks, y) or any(t.rank != y.rank for t in masks):
        return False
    (batch, times, heads, depth), (_, count, groups, inner) = q.shape, v.shape
    expected = [(batch, times, heads, inner), (batch, count, groups, depth)]
    if [y.shape, k.shape] != expected or v.shape[0] != batch:
        return False
    sizes = (batch, heads, times, count)
    fits = all(n in (1, size) for t in masks for n, size in zip(t.shape, sizes, strict=True))
    return fits and (groups == heads or (groups > 1 and heads % groups == 0))


def _find_rows(tensor: Tensor, graph: Graph, *, transposed: bool) -> Matrices | None:
    """Return the tensor [batch, rows, heads, depth] of which matrices [rows, depth] are made.

    Returns None if no TRANSPOSE moves the heads.
    """
    inner = trace_matrices(Matrices(tensor, transposed), graph)
    heads = find_producer(inner.tensor, graph, "BROADCAST_TO").operand(0)
    if count_shares(heads.shape, inner.tensor.shape):
        inner = trace_matrices(inner._replace(tensor=heads), graph)
    op = find_producer(inner.tensor, graph, "TRANSPOSE")
    order = _TRANSPOSED if inner.transposed else HEADS_FIRST
    if find_order(op) != order:
        return None
    return scale_matrices(inner._replace(tensor=op.operand(0), transposed=False), graph)


def count_shares(heads: Shape, repeated: Shape) -> int | None:
    """Return how often each matrix is repeated in succession, None for other repetitions."""
    if len(heads) != len(repeated) or heads[-_MATRIX:] != repeated[-_MATRIX:]:
        return None
    pairs = zip(heads[:-_MATRIX], repeated[:-_MATRIX], strict=True)
    changed = [axis for axis, (old, new) in enumerate(pairs) if old != new]
    if not changed or prod(heads[changed[0] : -_MATRIX]) != 1:
        return None
    return prod(repeated[changed[0] : -_MATRIX])


def trace_matrices(matrices: Matrices, graph: Graph) -> Matrices:
    """Return matrices before products by numbers, before swaps of their axes, and before RESHAPE.

    A RESHAPE joins and splits the axes before the matrices only.
    """
    while True:
        matrices = scale_matrices(matrices, graph)
        op = find_producer(matrices.tensor, graph, "RESHAPE", "TRANSPOSE")
        x, transposed = op.operand(0), matrices.transposed
        if find_order(op) == (*range(x.rank - _MATRIX), x.rank - 1, x.rank - 2):
            transposed = not transposed
        elif not _keeps_matrices(op):
            return matrices
        matrices = matrices._replace(tensor=x, transposed=transposed)


def _keeps_matrices(op: Op) -> bool:
    """Return whether a RESHAPE keeps the last two axes."""
    ends = [t.shape[-_MATRIX:] for t in (op.operand(0), *op.outputs)]
    return op.code == "RESHAPE" and len(ends[0]) == _MATRIX and ends[0] == ends[1]


def scale_matrices(matrices: Matrices, graph: Graph, *, one_token: bool = False) -> Matrices:
    """Return matrices before MUL and DIV by a single number.

    Those of `one_token` are those before operators that leave the elements in their sequence, too.
    """
    moves = ("RESHAPE", "TRANSPOSE") if one_token else ()
    tensor, transposed, factor = matrices
    while True:
        op = find_producer(tensor, graph, "DIV", "MUL", *moves)
        x, number = op.operand(0), op.operand(1)
        if keeps_sequence(op):
            tensor = x
            continue
        if op.code == "MUL" and x.values.size:
            x, number = number, x
        value = float(number.values.flat[0]) if number.values.size == 1 else 0.0
        if op.activation != "NONE" or x.shape != tensor.shape or not 0 < abs(value) < inf:
            return Matrices(tensor, transposed, factor)
        tensor, factor = x, factor * value if op.code == "MUL" else factor / value

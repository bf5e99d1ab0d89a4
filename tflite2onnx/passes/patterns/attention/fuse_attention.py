"""Recognise attention with several heads that a model spells out.

    y = softmax(scale * q k + mask) v, for each head

Transformers contain it. Keras, JAX and PyTorch exports split the last axis of queries, keys and
values into heads, and move the heads before the rows:

    scores = BATCH_MATMUL(TRANSPOSE(queries), TRANSPOSE(keys)) * scale    [batch, heads, rows, keys]
    y = TRANSPOSE(BATCH_MATMUL(SOFTMAX(scores + mask), TRANSPOSE(values)))

They are replaced by ATTENTION, which no file contains, if

1. queries, keys and values are [batch, rows, heads, depth], of which a TRANSPOSE makes
   [batch, heads, rows, depth], and the last TRANSPOSE undoes this move for the result. Another
   TRANSPOSE may swap the last two axes. A RESHAPE may join the batch and the heads to one axis.
   BROADCAST_TO may repeat each head of the keys and of the values for several heads of the queries;
2. the scores, the queries or the keys are multiplied by or divided by single numbers, whose product
   is positive, or are not scaled;
3. what is added to the scores broadcasts to them, and SOFTMAX applies no factor;
4. all tensors are float32 and have fixed sizes, and no other operator reads the tensors between.

ONNX Runtime's MatMul reads operands whose first axis is the second in memory, so that it needs no
Transpose (`FusedMatMul` with `transBatchA`). It recognises a Transpose of three axes only. The
operator leaves a batch of 1 out, and takes 0.75 to 1.0 of the time. From opset 23 on it is one
node, and takes 0.5 to 0.95 of the time.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import inf, prod
from typing import NamedTuple

from tflite2onnx.graph import NO_OP, Graph, Op
from tflite2onnx.passes.operands import find_order, find_producer, is_float
from tflite2onnx.passes.patterns.matching import Match
from tflite2onnx.passes.patterns.rules import Rule, Rules
from tflite2onnx.passes.rewriter import as_builtin
from tflite2onnx.tensor import Shape, Tensor

HEADS_FIRST, _TRANSPOSED = (0, 2, 1, 3), (0, 2, 3, 1)
_MATRIX = 2  # axes


class Matrices(NamedTuple):
    """A tensor of matrices that are multiplied by a factor; each may be transposed."""

    tensor: Tensor
    transposed: bool = False
    factor: float = 1.0


def _find_attention(found: Match) -> Op | None:
    last, graph = found.last, found.graph
    if find_order(last) != HEADS_FIRST:
        return None
    product = trace_matrices(Matrices(found.tensors["product"]), graph)
    weighting = find_producer(product.tensor, graph, "BATCH_MATMUL")
    if product != Matrices(product.tensor) or weighting.options.adj_x:
        return None
    values = _find_rows(Matrices(weighting.operand(1), weighting.options.adj_y), graph)
    softmax = trace_matrices(Matrices(weighting.operand(0)), graph)
    op = find_producer(softmax.tensor, graph, "SOFTMAX")
    if not values or softmax != Matrices(softmax.tensor) or values.factor != 1:
        return None
    if op.options.get("beta", 1) != 1:
        return None
    for summand, masks in _list_sums(op.operand(0), graph):
        if scores := _find_scores(summand, graph):
            *operands, factor = scores
            return _make_attention(last, (*operands, values.tensor, *masks), factor)
    return None


def _make_attention(last: Op, operands: tuple[Tensor, ...], factor: float) -> Op | None:
    """Return the operator if the shapes of its operands fit together, else None."""
    (queries, keys, values, *masks), y = operands, last.outputs[0]
    if any(t.symbols or not is_float(t) or t.rank != y.rank for t in (*operands, y)):
        return None
    (batch, times, heads, depth), count = queries.shape, keys.shape[1]
    inner, sizes, groups = values.shape[-1], (batch, heads, times, count), keys.shape[2]
    expected = [(batch, times, heads, inner), (batch, count, groups, depth)]
    if [y.shape, keys.shape, values.shape] != [*expected, (batch, count, groups, inner)]:
        return None
    if groups != heads and (groups in (0, 1) or heads % groups):
        return None
    pairs = [pair for mask in masks for pair in zip(mask.shape, sizes, strict=True)]
    if factor <= 0 or 0 in (*sizes, depth) or any(n not in (1, size) for n, size in pairs):
        return None
    return as_builtin(last, "ATTENTION", *operands, scale=factor)


def _find_scores(tensor: Tensor, graph: Graph) -> tuple[Tensor, Tensor, float] | None:
    """Return the queries and keys of scores, and a factor; None if the tensor has other elements.

    The product of keys and queries is a product of queries and keys that is transposed.
    """
    scores = trace_matrices(Matrices(tensor), graph)
    product = find_producer(scores.tensor, graph, "BATCH_MATMUL")
    left = _find_rows(Matrices(product.operand(0), product.options.adj_x), graph)
    right = _find_rows(Matrices(product.operand(1), not product.options.adj_y), graph)
    if not left or not right:
        return None
    queries, keys = (right, left) if scores.transposed else (left, right)
    return queries.tensor, keys.tensor, scores.factor * queries.factor * keys.factor


def _list_sums(tensor: Tensor, graph: Graph) -> Iterator[tuple[Tensor, tuple[Tensor, ...]]]:
    """Yield what may be the scores, and the mask that is added to them if there is one."""
    addition = find_producer(tensor, graph, "ADD")
    if addition is NO_OP:
        yield tensor, ()
    elif addition.activation == "NONE":
        a, b = addition.present
        yield from ((a, (b,)), (b, (a,)))


def _find_rows(matrices: Matrices, graph: Graph) -> Matrices | None:
    """Return the tensor [batch, rows, heads, depth] of which matrices [rows, depth] are made.

    Returns None if no TRANSPOSE moves the heads.
    """
    inner = trace_matrices(matrices, graph)
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
        tensor, transposed, _ = matrices
        op = find_producer(tensor, graph, "RESHAPE", "TRANSPOSE")
        x = op.operand(0)
        if x.rank < _MATRIX:
            return matrices
        if op.code == "RESHAPE":
            if x.shape[-_MATRIX:] != tensor.shape[-_MATRIX:] or x.elements != tensor.elements:
                return matrices
        elif find_order(op) == (*range(x.rank - _MATRIX), x.rank - 1, x.rank - 2):
            transposed = not transposed
        else:
            return matrices
        matrices = matrices._replace(tensor=x, transposed=transposed)


def scale_matrices(matrices: Matrices, graph: Graph) -> Matrices:
    """Return matrices before MUL and DIV by a single number."""
    tensor, transposed, factor = matrices
    while True:
        op = find_producer(tensor, graph, "DIV", "MUL")
        x, number = op.operand(0), op.operand(1)
        if op.code == "MUL" and x.values.size:
            x, number = number, x
        value = float(number.values.flat[0]) if number.values.size == 1 else 0.0
        if op.activation != "NONE" or x.shape != tensor.shape or not 0 < abs(value) < inf:
            return Matrices(tensor, transposed, factor)
        tensor, factor = x, factor * value if op.code == "MUL" else factor / value


def strip_reshapes(tensor: Tensor, graph: Graph) -> Tensor:
    """Return a tensor before RESHAPE, which nothing else reads."""
    while (op := find_producer(tensor, graph, "RESHAPE")) is not NO_OP:
        tensor = op.operand(0)
    return tensor


def scale_elements(tensor: Tensor, graph: Graph) -> Matrices:
    """Return a tensor before RESHAPE and products by numbers, of any axes."""
    matrices = Matrices(tensor)
    while True:
        before = strip_reshapes(matrices.tensor, graph)
        scaled = scale_matrices(matrices._replace(tensor=before), graph)
        if scaled.tensor is matrices.tensor:
            return scaled
        matrices = scaled


fuse_attention = Rules(
    Rule("attention", "ATTENTION", ("TRANSPOSE", "product", "order#"), _find_attention)
)

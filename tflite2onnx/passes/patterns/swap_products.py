"""A product of matrices of which the rows become the last axis is computed with swapped operands.

ONNX Runtime's Transpose is fast if the last axis stays the last, and if a single axis moves. All
other moves copy the elements one by one, 5 to 10 times slower. JAX writes an attention whose
queries share keys as

    x = BATCH_MATMUL(keys, RESHAPE(TRANSPOSE(queries)))    [batch, keys, queries * heads]
    y = TRANSPOSE(RESHAPE(x))                              [batch, queries, heads, keys]

where both TRANSPOSE move the last axis and another one. The product with swapped operands has the
keys last, and reads the features of the queries last. The planner then moves whole rows. A
BATCH_MATMUL becomes TRANSPOSE(BATCH_MATMUL(b, a)) if

1. its operands are float32, and the second is not constant: ONNX Runtime packs only the second;
2. each operand is constant, or comes from a TRANSPOSE, whose permutation the swap changes;
3. only a TRANSPOSE reads the product, possibly after a RESHAPE that splits its axes, and the last
   axis of its output is one of the rows;
4. no size is dynamic but the batch, the first axis of the product and of the output.
"""

from __future__ import annotations

from itertools import accumulate
from math import prod
from operator import mul

from tflite2onnx.graph import Graph, Op
from tflite2onnx.passes.operands import find_order, is_float
from tflite2onnx.passes.patterns.matching import Match, Named, OneOf, Shared, through
from tflite2onnx.passes.patterns.rules import Rule, Rules
from tflite2onnx.passes.rewriter import Rewriter, make_int32
from tflite2onnx.tensor import Tensor


def _swap_operands(found: Match) -> list[Op]:
    op, a, b, y = found.last, found.tensors["a"], found.tensors["b"], found.output
    if not (is_float(a) and is_float(b)) or not y.symbols.keys() <= {0}:
        return []
    if not _has_rows_last(y, found.graph):
        return []
    rewriter, (*batch, rows, columns) = Rewriter(op), y.shape
    swapped = rewriter.op(
        "BATCH_MATMUL",
        b,
        a,
        like=y,
        name="swapped",
        shape=(*batch, columns, rows),
        adj_x=not op.options.adj_y,
        adj_y=not op.options.adj_x,
        asymmetric_quantize_inputs=False,
    )
    order = make_int32(f"{y.name}/order", [*range(len(batch)), y.rank - 1, y.rank - 2])
    rewriter.op("TRANSPOSE", swapped, order, output=y)
    return rewriter.ops


def _has_rows_last(product: Tensor, graph: Graph) -> bool:
    """Return whether only a TRANSPOSE reads a product, and puts one of its rows' axes last."""
    tensor, reader = product, graph.readers.find_only_reader(product)
    if reader.is_builtin("RESHAPE"):
        tensor = reader.outputs[0]
        reader = graph.readers.find_only_reader(tensor)
    order = find_order(reader)
    if not order or len(order) != tensor.rank:
        return False
    if tensor.symbols != product.symbols or (tensor.symbols and order[0] != 0):
        return False
    moved = [axis for axis in order if tensor.shape[axis] > 1]
    before = [1, *accumulate(tensor.shape, mul)]  # the number of elements over the axes before
    *batch, rows, _ = product.shape
    start = prod(batch)
    return bool(moved) and start * rows in before and start <= before[moved[-1]] < start * rows


_MOVED = Shared(through(("TRANSPOSE", ...)))
swap_products = Rules(
    Rule(
        "product of matrices between two TRANSPOSE that move the last axis",
        "BATCH_MATMUL, TRANSPOSE",
        ("BATCH_MATMUL", Named("a", OneOf("constant#", _MOVED)), Named("b", _MOVED)),
        _swap_operands,
    ),
)

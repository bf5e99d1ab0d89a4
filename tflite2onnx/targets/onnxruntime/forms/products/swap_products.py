"""BATCH_MATMUL(a, b) becomes TRANSPOSE(BATCH_MATMUL(b, a)) if its rows become the last axis.

ONNX Runtime's Transpose is fast if the last axis stays the last, and if a single axis moves. All
other moves copy the elements one by one, 5 to 10 times slower. JAX writes an attention whose
queries share keys as

    x = BATCH_MATMUL(keys, RESHAPE(TRANSPOSE(queries)))    [batch, keys, queries * heads]
    y = TRANSPOSE(RESHAPE(x))                              [batch, queries, heads, keys]

where both TRANSPOSE move the last axis and another one. The product with swapped operands has the
keys last, and reads the features of the queries last, so that the planner moves whole rows, if

1. its operands are float32, and the second is not constant: ONNX Runtime packs only the second;
2. each operand is constant, or comes from a TRANSPOSE, whose permutation the swap changes;
3. only a TRANSPOSE reads the product, possibly after a RESHAPE that splits its axes, and the last
   axis of its output is one of the rows;
4. no size is dynamic but the batch, the first axis of the product and of the output.
"""

from math import prod

from tflite2onnx.graph import Graph, Op
from tflite2onnx.passes.operands import find_order, is_float
from tflite2onnx.passes.patterns.matching import Match, Named, OneOf, Shared, Through
from tflite2onnx.passes.patterns.rules import rule
from tflite2onnx.passes.rewriter import Rewriter
from tflite2onnx.tensor import Tensor

_MOVED = Shared(Through(("TRANSPOSE", ...)))


@rule(
    "product of matrices between two TRANSPOSE that move the last axis",
    "BATCH_MATMUL, TRANSPOSE",
    ("BATCH_MATMUL", Named("a", OneOf("constant#", _MOVED)), Named("b", _MOVED)),
)
def swap_products(found: Match) -> list[Op] | str:
    """Return what replaces the match, or why nothing does."""
    op, a, b, y = found.last, found.tensors["a"], found.tensors["b"], found.output
    if not is_float(a) or {*y.symbols} - {0} or not _has_rows_last(y, found.graph):
        return "the operands must be float32, and a TRANSPOSE must put the rows last"
    rw, last = Rewriter(op), y.rank - 1
    order = (*range(last - 1), last, last - 1)
    shape = tuple(y.shape[i] for i in order)
    turned = {"adj_x": not op.options.adj_y, "adj_y": not op.options.adj_x}
    swapped = rw.multiply(b, a, like=y, name="swapped", shape=shape, **turned)
    rw.transpose(swapped, order, output=y)
    return rw.ops


def _has_rows_last(product: Tensor, graph: Graph) -> bool:
    """Return whether only a TRANSPOSE reads a product, and puts one of its rows' axes last."""
    tensor, reader = product, graph.readers.find_only_reader(product)
    if reader.is_builtin("RESHAPE"):
        (tensor,) = reader.outputs
        reader = graph.readers.find_only_reader(tensor)
    order, (rows, columns) = find_order(reader), product.shape[-2:]
    moved = [axis for axis in order if tensor.shape[axis] > 1]
    if not moved or tensor.symbols != product.symbols or (tensor.symbols and order[0] != 0):
        return False
    # Elements along a column are as far from each other as there are columns.
    distance, end = (prod(tensor.shape[i:]) for i in (moved[-1] + 1, moved[-1]))
    return 0 < columns <= distance < end <= rows * columns and distance % columns == 0

"""Products of the parts of matrices become one BATCH_MATMUL.

TensorFlow Lite's converter (`unroll_batch_matmul`) writes a product of batches of matrices as

    PACK(FULLY_CONNECTED(a[i], TRANSPOSE(b[i])) for each i)

where a[i] and b[i] are parts of SPLIT; TRANSPOSE is a RESHAPE if a matrix has one column. The
attention of YOLO 11n has 200 such products for 320x320 pixels.

1. SPLIT is along the first axis, into matrices; no bias is added, and no activation is applied.
2. All operands are computed float32 of known sizes.
3. The matrices are multiplied in the sequence of a product of two batch axes, one of which an
   operand may lack.

2 to 16 such products take 0.52 to 0.80 of the time, 64 of 16x16 matrices 0.22, and YOLO 11n and
YOLOv10n as a whole 1.00: processor time of sessions with the form and without it in turns, on one
thread of an AMD EPYC (family 25, model 17, with AVX-512).
"""

from collections.abc import Sequence
from math import prod
from typing import NamedTuple

from tflite2onnx.graph import Graph, Op
from tflite2onnx.passes.operands import are_fixed_floats, find_data, find_order
from tflite2onnx.passes.patterns.join_parts import find_axis
from tflite2onnx.passes.patterns.matching import Match
from tflite2onnx.passes.patterns.rules import rule
from tflite2onnx.passes.rewriter import Rewriter
from tflite2onnx.tensor import Shape, Tensor

_MATRIX = 2  # axes


class _Parts(NamedTuple):
    """The matrices that products read: a tensor, which of its matrices, and whether transposed."""

    whole: Tensor
    places: list[int]
    transposed: bool

    def find_batch(self, rows: int, columns: int) -> Shape | None:
        """Return the two batch axes of the whole tensor, None if it is not read as such a batch."""
        numbers = range(rows * columns)
        batches = {
            (rows, columns): [*numbers],
            (rows, 1): [i // columns for i in numbers],
            (1, columns): [i % columns for i in numbers],
        }
        size = self.whole.shape[0]
        return next((b for b, n in batches.items() if n == self.places and prod(b) == size), None)


@rule(
    "products of the parts of matrices, packed",
    "BATCH_MATMUL between RESHAPE",
    ("PACK", ...),
    needs=("FULLY_CONNECTED",),
)
def join_products(found: Match) -> list[Op] | str:
    """Return what replaces the match, or why nothing does."""
    op, graph, y = found.last, found.graph, found.output
    products = [graph.producers.find(tensor) for tensor in op.present]
    if not all(map(_is_plain, products)):
        return "it must pack the results of FULLY_CONNECTED without bias and activation"
    if find_axis(op) != 0 or not all(graph.readers.are_among({op}, t) for t in op.present):
        return "the results must be packed along the first axis, and read once"
    a, b = (_find_parts(graph, [p.operand(i) for p in products]) for i in (0, 1))
    if not a or not b or a.transposed or {a.whole.rank, b.whole.rank} != {_MATRIX + 1}:
        return "the operands must be matrices, parts of SPLIT along the first axis"
    if not are_fixed_floats(y, a.whole, b.whole):
        return "the operands must be float32, of known sizes"
    count = len(products)
    for columns in (count, *(n for parts in (a, b) for n in parts.whole.shape[:1])):
        for size in ((count // columns, columns), (columns, count // columns)):
            batches = [batch for parts in (a, b) if (batch := parts.find_batch(*size))]
            if len(batches) == len((a, b)):
                return _multiply(op, a, b, batches)
    return "the matrices must be multiplied in the sequence of a batch"


def _is_plain(op: Op) -> bool:
    """Return whether a product of a matrix has no bias and no activation."""
    if not op.is_builtin("FULLY_CONNECTED") or len(op.present) != len(("data", "weights")):
        return False
    return op.activation == "NONE" and op.operand(1).rank == op.outputs[0].rank == _MATRIX


def _find_parts(graph: Graph, matrices: Sequence[Tensor]) -> _Parts | None:
    """Return the parts of SPLIT that are matrices, possibly after RESHAPE and TRANSPOSE."""
    traced = [_trace_part(graph, matrix) for matrix in matrices]
    (first, transposed), split = traced[0], graph.producers.find(traced[0][0])
    places = {part: place for place, part in enumerate(split.outputs)}
    if not split.is_builtin("SPLIT") or find_axis(split) != 0 or first.shape[:1] != (1,):
        return None
    if any(part not in places or turned != transposed for part, turned in traced):
        return None
    return _Parts(find_data(split), [places[part] for part, _ in traced], transposed)


def _trace_part(graph: Graph, matrix: Tensor) -> tuple[Tensor, bool]:
    """Return the tensor of which a tensor is the matrix, and whether it is transposed."""
    op, transposed = graph.producers.find(matrix), False
    while op.is_builtin("RESHAPE", "TRANSPOSE"):
        size, source = matrix.shape[-2:], op.operand(0)
        turns = find_order(op) == (1, 0) or (1 in size and source.shape[-2:] == size[::-1] != size)
        if not turns and (op.is_builtin("TRANSPOSE") or source.shape[-2:] != size):
            break
        matrix, transposed = source, transposed != turns
        op = graph.producers.find(matrix)
    return matrix, transposed


def _multiply(op: Op, a: _Parts, b: _Parts, batches: Sequence[Shape]) -> list[Op] | str:
    rw, y, sizes = Rewriter(op), op.outputs[0], [parts.whole.shape[1:] for parts in (a, b)]
    (rows, features), (first, last) = sizes[0], sizes[1] if b.transposed else sizes[1][::-1]
    if features != first or y.shape[1:] != (rows, last):
        return "the features must be one axis"
    operands = [
        rw.reshape(parts.whole, (*batch, *size), like=parts.whole, name="batch")
        for parts, batch, size in zip((a, b), batches, sizes, strict=True)
    ]
    shape, turned = (*map(max, *batches), *y.shape[1:]), not b.transposed
    product = rw.multiply(*operands, like=y, name="product", shape=shape, adj_y=turned)
    rw.reshape(product, output=y)
    return rw.ops

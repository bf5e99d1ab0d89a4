"""Products in which numbers are repeated, with MUL.

BATCH_MATMUL over a single number becomes MUL, which broadcasts. MatMul multiplies the matrices of a
batch one by one: 8,192 products of one number take 1.5 ms, and Mul takes 27 microseconds.
litert-torch writes `einsum` so. For larger matrices both take about the same time, but the axes of
MUL may be stored in any order, so that a TRANSPOSE of the product goes before its smaller operands.
The product is replaced if

1. it is float32 [..., rows, 1] by [..., 1, columns];
2. it has one row and one column, or a TRANSPOSE reads it, possibly after RESHAPE and EXP.

MUL(MUL(a, b), c) becomes MUL(MUL(a, c), b) if the product of a and c has so many elements less than
the product of a and b that a shorter time is expected (`costs.py`), and all are float32 of known
sizes. State space models (Mamba), which multiply states by BATCH_MATMUL too, multiply time steps
[rows], columns [columns] and data [rows]: 64 steps of 64 or 256 rows and 16 columns take 0.63 of
the time, products before EXP and TRANSPOSE 0.62 to 0.78 (AMD EPYC, family 25, model 17, with
AVX-512).
"""

from math import prod

import numpy as np

from tflite2onnx.graph import Graph, Op
from tflite2onnx.passes.operands import are_fixed_floats, is_float
from tflite2onnx.passes.patterns.matching import Match
from tflite2onnx.passes.patterns.rules import Rule, Rules
from tflite2onnx.passes.rewriter import Rewriter, as_builtin
from tflite2onnx.targets.onnxruntime.costs import GAIN, Terms, explain_nodes
from tflite2onnx.tensor import Tensor


def _is_moved(tensor: Tensor, graph: Graph) -> bool:
    """Return whether only a TRANSPOSE reads a tensor, possibly after RESHAPE and EXP."""
    reader = graph.readers.find_only_reader(tensor)
    while reader.is_builtin("EXP", "RESHAPE"):
        reader = graph.readers.find_only_reader(reader.outputs[0])
    return reader.is_builtin("TRANSPOSE")


def _broadcast(found: Match) -> Op | str:
    a, b, y = found.tensors["a"], found.tensors["b"], found.output
    rows, columns = y.sizes[-2:]
    if not is_float(b) or (a.sizes[-2:], b.sizes[-2:]) != ((rows, 1), (1, columns)):
        return "the operands must be float32, [..., rows, 1] and [..., 1, columns]"
    if (rows, columns) != (1, 1) and not _is_moved(y, found.graph):
        return "it must have one row and one column, or a TRANSPOSE must read it"
    return as_builtin(found.last, "MUL")


def _multiply_small(found: Match) -> list[Op] | str:
    y, a, b, c = found.output, *(found.tensors[name] for name in "abc")
    if not are_fixed_floats(y, a, b, c):
        return "all must be float32 of known sizes"
    small, large = (np.broadcast_shapes(a.shape, t.shape) for t in (c, b))
    made, replaced = ([("function", Terms(loads=prod(shape)))] for shape in (small, large))
    if loss := explain_nodes(made, replaced, GAIN):
        return loss
    rw = Rewriter(found.last)
    product = rw.op("MUL", a, c, like=y, shape=small)
    return [*rw.ops, as_builtin(found.last, "MUL", product, b, **found.last.options)]


broadcast_products = Rules(
    Rule("product of matrices over one number", "MUL", ("BATCH_MATMUL", "a", "b"), _broadcast),
    Rule(
        "product of three factors, two of them small",
        "MUL",
        ("MUL", ("MUL", "a", "b"), "c"),
        _multiply_small,
        needs=("BATCH_MATMUL",),
    ),
)

"""Products of rows and gathered matrices read the matrices in place.

    y[rows, 1, n] = BATCH_MATMUL(x[rows, 1, k], GATHER_ND(table[experts, k, n], numbers))

A mixture of experts of PyTorch (`batched_mm` of transformers) copies the matrices of the experts of
each token. EXPERT_PRODUCT, which no file contains, computes expert by expert, and copies none. It
also replaces BATCH_MATMUL(GATHER_ND(table[experts, n, k], numbers), x[rows, k, 1]), and GATHER
along the first axis.

On an AMD EPYC (family 25, model 17, one thread) 128 tokens of 2 experts of 4, with 128 x 512
numbers each, take 0.09 of the time, and one token takes 1.2; with 4 experts of 32, with 720 x 1,440
numbers each, 32 tokens take 0.24 and one token 0.55. The products are replaced if the steps of the
Scan are expected to take less time than the copies.
"""

from tflite2onnx.graph import Op
from tflite2onnx.op.common.checks import axis_of
from tflite2onnx.passes.patterns.matching import Match, Named, OneOf, Pattern
from tflite2onnx.passes.patterns.rules import rule
from tflite2onnx.passes.rewriter import Rewriter
from tflite2onnx.targets.onnxruntime.costs import GAIN, Terms, explain_nodes
from tflite2onnx.tensor import Tensor

_AXES = 3
_FLOAT = 4  # bytes
_DISPATCHES = 4  # rows of an expert in a prompt, whose number is not known

_GATHERED: Pattern = Named(
    "matrices", OneOf(("GATHER_ND", "table#", "numbers"), ("GATHER", "table#", "numbers"))
)


@rule(
    "product of rows and of the matrices of their experts",
    "EXPERT_PRODUCT",
    OneOf(("BATCH_MATMUL", "x", _GATHERED), ("BATCH_MATMUL", _GATHERED, "x")),
)
def share_experts(found: Match) -> list[Op] | str:
    """Return what replaces the match, or why nothing does."""
    op, y = found.last, found.output
    x, table, matrices, numbers = (found.tensors[n] for n in ("x", "table#", "matrices", "numbers"))
    is_second = op.operand(1) is matrices
    unit, turned = (1, op.options.adj_x) if is_second else (2, op.options.adj_y)
    if x.rank != _AXES or x.shape[unit] != 1 or turned or not _takes_matrices(found, table):
        return "each row must have a matrix of its own, from the first axis of a table"
    if x.shape[0] != numbers.elements or any({*t.symbols} - {0} for t in (x, y, numbers)):
        return "the first axis alone may be dynamic"
    if loss := _explain_loss(table, table.shape[0] * _DISPATCHES if x.symbols else x.shape[0]):
        return loss
    adjoint = op.options.adj_y if is_second else not op.options.adj_x
    rw, width = Rewriter(op), x.elements // max(x.shape[0], 1)
    rows = rw.reshape(x, (x.shape[0], width), like=x, name="rows")
    experts = rw.reshape(numbers, (numbers.elements,), like=numbers, name="experts")
    shape = (y.shape[0], y.elements // max(y.shape[0], 1))
    product = rw.op(
        "EXPERT_PRODUCT", rows, table, experts, like=y, name="product", shape=shape, adj_y=adjoint
    )
    rw.reshape(product, output=y)
    return rw.ops


def _takes_matrices(found: Match, table: Tensor) -> bool:
    """Return whether whole matrices are gathered, by one number each."""
    gather, numbers = found.graph.producers[found.tensors["matrices"]], found.tensors["numbers"]
    if table.rank != _AXES or gather.options.get("batch_dims"):
        return False
    if gather.code == "GATHER_ND":
        return numbers.shape[-1:] == (1,) and numbers.rank == _AXES - 1
    return numbers.rank == 1 and axis_of(gather.options.axis, _AXES) == 0


def _explain_loss(table: Tensor, rows: int) -> str:
    """Return why steps over the experts are not faster than copies, "" if they are."""
    experts, matrix = table.shape[0], _FLOAT * table.elements // max(table.shape[0], 1)
    steps = experts * [("step", Terms())] + min(rows, experts) * [("expert", Terms())]
    return explain_nodes(steps, [("matrices", Terms(size=rows * matrix))], GAIN)

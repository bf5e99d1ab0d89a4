"""Operators between dense layers compute matrices of rows, as the layers do.

A dense layer of [batch, rows, features] is a Gemm of matrices between two RESHAPE. An operator that
computes each element, or each row, for itself becomes

    RESHAPE(ADD(RESHAPE(x), RESHAPE(y)))    of matrices [batch * rows, features]

so that all RESHAPE between layers are dropped (`join_reshapes`). An operator is changed if

1. it computes each element or normalizes along the last axis; its operands have three axes, or are
   constants of one element, of the last axis or of all axes;
2. an operand is a result of a layer of floats or of an operator that is changed, or only layers and
   operators of these kinds read the result; if not both, other operands are results of RESHAPE;
3. all tensors are float32 and have fixed sizes.
"""

from dataclasses import replace

from tflite2onnx.graph import Graph, Op
from tflite2onnx.made_options import NormalizationOptions
from tflite2onnx.passes.operands import are_fixed_floats
from tflite2onnx.passes.rewriter import Rewriter, make_like
from tflite2onnx.tensor import Shape, Tensor

_KINDS = (
    *("ADD", "DIV", "GELU", "HARD_SWISH", "LOGISTIC", "MUL", "RELU", "RELU6", "SUB", "TANH"),
    *("NORMALIZATION", "RMS_NORMALIZATION"),
)
_AXES = 3


def flatten_rows(graph: Graph) -> Graph:
    """Return the graph with operators of matrices between dense layers; see above."""
    rows: set[Tensor] = set()  # the results of layers, and of operators that are changed
    reshaped: set[Tensor] = set()
    layers = {op for op in graph.walk_ops() if _is_layer(op)}
    following = layers | {op for op in graph.walk_ops() if op.is_builtin(*_KINDS)}

    def is_between(op: Op) -> bool:
        before = not rows.isdisjoint(op.present)
        after = graph.readers.are_among(following, op.outputs[0])
        given = all(t in rows or t in reshaped or t.is_constant for t in op.present)
        return (before and after) or ((before or after) and given)

    def change(op: Op) -> list[Op]:
        ops = _flatten(op) if op.is_builtin(*_KINDS) and is_between(op) else []
        if ops or op in layers:
            rows.update(op.outputs)
        if op.is_builtin("RESHAPE"):
            reshaped.update(op.outputs)
        return ops or [op]

    return graph.rewrite(change)


def _is_layer(op: Op) -> bool:
    """Return whether a dense layer is a Gemm between two RESHAPE."""
    if not op.is_builtin("FULLY_CONNECTED"):
        return False
    x, weights, y = op.operand(0), op.operand(1), op.outputs[0]
    return are_fixed_floats(x, weights, y) and weights.is_constant and y.rank == _AXES


def _flatten(op: Op) -> list[Op]:
    """Return the operators that replace an operator; none unless conditions 1 and 3 hold."""
    y, data = op.outputs[0], [t for t in op.present if not t.is_constant]
    if y.rank != _AXES or not are_fixed_floats(*op.present, y):
        return []
    if not data or any(t.shape != y.shape for t in data):
        return []
    if op.is_builtin("NORMALIZATION"):
        made = op.read_made(NormalizationOptions)
        if made.axes != (_AXES - 1,):
            return []
        op = replace(op, made=made.replace(axes=(1,)))
    matrix = (y.elements // y.shape[-1], y.shape[-1])
    shapes = [_find_flat_shape(t, y, matrix) for t in op.present]
    if not all(shapes):
        return []
    rw, result = Rewriter(op), make_like(y, "rows", matrix)
    flat = {t: _reshape(rw, t, shape) for t, shape in zip(op.present, shapes, strict=True)}
    rw.ops.append(replace(op.with_inputs(flat), outputs=(result,)))
    rw.reshape(result, output=y)
    return rw.ops


def _find_flat_shape(tensor: Tensor, y: Tensor, matrix: Shape) -> Shape:
    """Return the shape of an operand of matrices, () if there is none."""
    if tensor.shape == y.shape:
        return matrix
    if tensor.elements == 1:
        return (1,)
    return matrix[1:] if tensor.elements == tensor.shape[-1] == matrix[1] else ()


def _reshape(rw: Rewriter, tensor: Tensor, shape: Shape) -> Tensor:
    """Return a tensor in another shape; a constant stays one."""
    if tensor.shape == shape:
        return tensor
    if tensor.has_data:
        return replace(tensor.reshape_constant(shape), name=f"{tensor.name}/rows")
    return rw.reshape(tensor, shape, like=tensor, name="rows")

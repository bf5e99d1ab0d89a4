"""Operators between dense layers compute matrices of rows, as the layers do.

A dense layer of [batch, rows, features] is a Gemm of matrices between two RESHAPE. An operator that
computes each element, or each row, for itself becomes

    RESHAPE(ADD(RESHAPE(x), RESHAPE(y)))    of matrices [batch * rows, features]

so that all RESHAPE between layers are dropped (`join_reshapes`). Recurrent layers of integers that
PyTorch and Keras unroll have two RESHAPE in each step. An operator is changed if

1. it computes each element, normalizes along the last axis, or takes a range of samples or
   features; its operands have three axes, or are constants of one element, of the last axis or of
   all axes;
2. an operand is a result of a layer or of an operator that is changed, or only layers and
   operators of these kinds read the result; if not both, other operands are results of RESHAPE;
3. all tensors have fixed sizes, and are float32 or have one scale each.

4 and 16 steps of int8 take 0.89 to 0.95 of the time, pairs of float layers 0.85 to 0.89 for 20 rows
of 64 numbers and 0.99 for 200 of 128: processor time of sessions with the form and without it in
turns, on one thread of an AMD EPYC (family 25, model 17, with VNNI).
"""

from dataclasses import replace

from tflite2onnx.graph import Graph, Op
from tflite2onnx.made_options import NormalizationOptions
from tflite2onnx.passes.operands import are_fixed_floats, find_taken_ranges
from tflite2onnx.passes.patterns.join_parts import find_axis
from tflite2onnx.passes.patterns.rules import log_loss
from tflite2onnx.passes.rewriter import Rewriter, make_int32, make_like
from tflite2onnx.quantization.storage import is_quantized
from tflite2onnx.tensor import Shape, Tensor

_ELEMENTWISE = (
    *("ADD", "DIV", "GELU", "HARD_SWISH", "LOGISTIC", "MUL", "QUANTIZE", "RELU", "RELU6", "SUB"),
    "TANH",
)
_NORMALIZATIONS = ("NORMALIZATION", "RMS_NORMALIZATION")
_KINDS = (*_ELEMENTWISE, *_NORMALIZATIONS, "SLICE", "SPLIT")
_MATRIX, _AXES = 2, 3


def flatten_rows(graph: Graph) -> Graph:
    """Return the graph with operators of matrices between dense layers; see above."""
    rows: set[Tensor] = set()  # the results of layers, and of operators that are changed
    reshaped: set[Tensor] = set()
    layers = {op for op in graph.walk_ops() if _is_layer(op)}
    following = layers | {op for op in graph.walk_ops() if op.is_builtin(*_KINDS)}

    def is_between(op: Op) -> bool:
        before = not rows.isdisjoint(op.present)
        after = all(graph.readers.are_among(following, y) for y in op.outputs)
        given = all(t in rows or t in reshaped or t.is_constant for t in op.present)
        return (before and after) or ((before or after) and given)

    def change(op: Op) -> list[Op]:
        is_kind = op.is_builtin(*_KINDS)
        fits = is_kind and is_between(op)
        ops = _flatten(op) if fits else []
        if fits and not ops:
            reason = "data must have three axes of known sizes, in one scale; parts must keep rows"
            log_loss(op, "operator of matrices of rows", reason)
        is_matrix = is_kind and op.outputs[0].rank == _MATRIX
        is_reshape = op.is_builtin("RESHAPE")
        if ops or op in layers or ((is_matrix or is_reshape) and not rows.isdisjoint(op.present)):
            rows.update(op.outputs)
        if is_reshape:
            reshaped.update(op.outputs)
        return ops or [op]

    return graph.rewrite(change)


def _has_one_scale(*tensors: Tensor) -> bool:
    """Return whether tensors are float32, or integers of one scale each, of fixed sizes."""
    return all(
        are_fixed_floats(t)
        or (is_quantized(t) and not t.per_axis and not t.symbols and 0 not in t.shape)
        for t in tensors
    )


def _is_layer(op: Op) -> bool:
    """Return whether a dense layer is a Gemm between two RESHAPE, or a Gemm of integers."""
    if not op.is_builtin("FULLY_CONNECTED"):
        return False
    x, weights, y = op.operand(0), op.operand(1), op.outputs[0]
    if not weights.is_constant or not _has_one_scale(x, y):
        return False
    if is_quantized(x) and is_quantized(y):
        return is_quantized(weights)
    return are_fixed_floats(x, weights, y) and y.rank == _AXES


def _flatten(op: Op) -> list[Op]:
    """Return the operators that replace an operator; none unless conditions 1 and 3 hold."""
    y, data = op.outputs[0], [t for t in op.present if not t.is_constant]
    if y.rank != _AXES or not data or not _has_one_scale(*data, *op.outputs):
        return []
    if op.is_builtin("SLICE", "SPLIT"):
        return _flatten_parts(op, data[0])
    if op.is_builtin(*_NORMALIZATIONS) and not are_fixed_floats(*op.present, y):
        return []
    if op.is_builtin("NORMALIZATION"):
        made = op.read_made(NormalizationOptions)
        if made.axes != (_AXES - 1,):
            return []
        op = replace(op, made=made.replace(axes=(1,)))
    matrix = _find_matrix(y)
    shapes = [_find_flat_shape(t, y, matrix) for t in op.present]
    if not all(shapes) or not _has_one_scale(*op.present) or any(t.shape != y.shape for t in data):
        return []
    rw, result = Rewriter(op), make_like(y, "rows", matrix)
    flat = {t: _reshape(rw, t, shape) for t, shape in zip(op.present, shapes, strict=True)}
    rw.ops.append(replace(op.with_inputs(flat), outputs=(result,)))
    rw.reshape(result, output=y)
    return rw.ops


def _flatten_parts(op: Op, x: Tensor) -> list[Op]:
    """Return the operators that replace SLICE or SPLIT of samples or features, none for rows."""
    if x.rank != _AXES:
        return []
    rw, rows = Rewriter(op), tuple(make_like(y, "rows", _find_matrix(y)) for y in op.outputs)
    flat, axis = _reshape(rw, x, _find_matrix(x)), find_axis(op) if op.code == "SPLIT" else None
    if axis in (0, _AXES - 1):
        inputs: tuple[Tensor, ...] = make_int32("axis", min(axis, 1)), flat
    else:
        taken = {i: range(n) for i, n in enumerate(x.shape)} | find_taken_ranges(op)
        if op.code == "SPLIT" or tuple(map(len, taken.values())) != op.outputs[0].shape:
            return []
        begin = [taken[0].start * x.shape[1], taken[_AXES - 1].start]
        inputs = flat, make_int32("begin", begin), make_int32("size", rows[0].shape)
        if len(taken[1]) != x.shape[1]:
            return []
    rw.ops.append(replace(op, inputs=inputs, outputs=rows))
    for matrix, y in zip(rows, op.outputs, strict=True):
        rw.reshape(matrix, output=y)
    return rw.ops


def _find_matrix(tensor: Tensor) -> Shape:
    """Return the shape of the matrix of a tensor's rows."""
    return (tensor.elements // tensor.shape[-1], tensor.shape[-1])


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

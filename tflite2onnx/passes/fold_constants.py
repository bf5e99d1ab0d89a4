"""What depends on constants, or on shapes, alone: computed once, by the converter."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from tflite2onnx.errors import OperatorError, as_operator_error
from tflite2onnx.graph import Graph, Op
from tflite2onnx.op import rules_for
from tflite2onnx.op.base import Operator
from tflite2onnx.reader.sparsity import bytes_behind
from tflite2onnx.tensor import Array, DType, Tensor

# What constant sub-graphs may make in any case, and how often as much as all constants beyond
# that; what would make more out of little is left to the runtime.
_BYTES = 1 << 24
_TIMES = 4


def fold(graph: Graph) -> Graph:
    """Compute what depends on constants, or on shapes, alone.

    A variable of a loop is no constant, whatever its first value is.
    """
    folder = _Folder(constant_budget(graph))
    return graph.rewrite(folder.remaining_ops, folder.known)


def constant_budget(graph: Graph) -> int:
    """Return how many bytes of constants may be made of those of a graph."""
    constants = dict.fromkeys(t for op in graph.every_op() for t in op.inputs if t is not None)
    return _BYTES + _TIMES * bytes_behind([t.data for t in constants if t.data is not None])


def fold_operator(op: Op, operator: Operator | None, room: int) -> list[Tensor]:
    """Return the outputs of an operator as constants; none if they are not, or take more room."""
    return _fold_float16(op) or _evaluate_op(op, operator, room)


class _Folder:
    """Has the constants that are known so far, and how much room they may still take."""

    def __init__(self, room: int) -> None:
        self._room = room
        self.known: dict[Tensor, Tensor] = {}

    def remaining_ops(self, op: Op) -> Iterator[Op]:
        """Yield what is left of an operator: nothing, if its outputs are known."""
        op = op.with_inputs(self.known)
        operator = rules_for(op)
        decided = operator.fold_branch() if op.graphs and operator else None
        results = fold_operator(op, operator, self._room)
        if decided is not None:
            for each in decided:
                yield from self.remaining_ops(each)
        elif results:
            self.known |= dict(zip(op.outputs, results, strict=True))
            self._room -= sum(t.nbytes for t in results)
        else:
            yield op


def replaces(source: Tensor, outputs: Sequence[Tensor], dtype: DType) -> bool:
    """Return whether the elements of a constant are those of the only output of an operator."""
    if source.data is None or len(outputs) != 1:
        return False
    return outputs[0].shape == source.shape and outputs[0].dtype is dtype


def _fold_float16(op: Op) -> list[Tensor]:
    """Return what DEQUANTIZE makes of float16 constants: float32, stored as they are."""
    source = op.inputs[0] if op.is_builtin("DEQUANTIZE") and op.inputs else None
    if source is None or source.dtype is not DType.FLOAT16:
        return []
    if not replaces(source, op.outputs, DType.FLOAT32):
        return []
    return [replace(op.outputs[0], data=source.data, quantization=None)]


def _evaluate_op(op: Op, operator: Operator | None, room: int) -> list[Tensor]:
    """Return the outputs of an operator, none if they are not known or take too much room."""
    if operator is None or sum(t.nbytes for t in op.outputs) > room:
        return []
    try:
        with as_operator_error():
            arrays = [_constant_elements(t, moves=operator.moves_only) for t in op.inputs]
    except OperatorError:  # no elements, of sizes that NumPy takes for too large
        return []
    open_sizes = any(t is not None and t.symbols for t in (*op.inputs, *op.outputs))
    unknown = any(a is None for a in arrays) and not operator.shape_only
    if unknown or open_sizes or any(t.quantization for t in op.outputs):
        return []
    try:
        with as_operator_error():
            results = operator.evaluate(*(np.empty(0) if a is None else a for a in arrays))
    except OperatorError:  # said again, with the operator's name, when it is converted
        return []
    pairs = list(zip(op.outputs, results or (), strict=False))
    if len(pairs) != len(op.outputs) or not all(_fits(t, r, operator) for t, r in pairs):
        return []
    return [replace(t, data=np.asarray(r, order="C")) for t, r in pairs]


def _constant_elements(tensor: Tensor | None, *, moves: bool) -> Array | None:
    """Return a constant's elements as an operator computes with them, None if it cannot be told.

    Quantized integers and the bits of small floats are no numbers to compute with, but those
    that are only moved may stay as they are stored.
    """
    if tensor is None or tensor.dtype.numpy is None or tensor.quantization is not None:
        return None
    data = tensor.data
    if data is None and 0 in tensor.shape and not tensor.dynamic_axes:
        data = np.zeros(tensor.shape, tensor.dtype.numpy)  # the file holds no data of no elements
    if data is None or moves:
        return data
    if tensor.dtype.is_float and not issubclass(tensor.dtype.numpy, np.floating):
        return None
    return data.astype(tensor.dtype.numpy, copy=False)


def _fits(tensor: Tensor, data: Array, operator: Operator) -> bool:
    """Return whether elements are those of a tensor; float16 that is moved may stay narrow."""
    narrow = operator.moves_only and tensor.dtype is DType.FLOAT32 and data.dtype == np.float16
    return data.shape == tensor.shape and (narrow or data.dtype == tensor.dtype.numpy)

"""The values of variable tensors before the first run: 0, or constants that are computed once."""

from collections import Counter
from collections.abc import Collection
from dataclasses import replace

import numpy as np

from tflite2onnx.errors import OperatorError
from tflite2onnx.graph import Graph, Op
from tflite2onnx.passes.fold_constants import fold_operators
from tflite2onnx.quantization.storage import decode_constant
from tflite2onnx.tensor import Array, DType, Tensor

# Operators that LiteRT runs only once if all inputs are constant: DEQUANTIZE in the first run,
# GATHER and TILE when memory is allocated. RESHAPE, MUL, CONCATENATION and STRIDED_SLICE have such
# kernels too. By default LiteRT runs these four in XNNPACK, which computes them in each run.
_COMPUTED_ONCE = ("DEQUANTIZE", "GATHER", "TILE")


def clear_elements(tensor: Tensor, room: int) -> Array:
    """Return the elements of a cleared variable: 0, or the zero point for int8.

    ResetVariableTensor (tensor_utils.cc) uses the zero point for int8 alone; other integers are 0.

    Raises:
        OperatorError: `room` (bytes left for variables) is negative, or the dtype has no numbers.
    """
    if not tensor.dtype.numpy:
        raise OperatorError(
            f"variable {tensor.name} must hold numbers or bools, got {tensor.dtype.label}"
        )
    if room < 0:
        raise OperatorError(
            "the initial values of all variables must take at most 1 GiB, got more with"
            f" {tensor.name} ({tensor.nbytes:,} bytes)"
        )
    zero = tensor.quantization.zero_point[0] if tensor.quantization else 0
    element = np.array(zero if tensor.dtype is DType.INT8 else 0, tensor.dtype.numpy)
    # The array is a view of one element, because a file may declare any size.
    return np.broadcast_to(element, tensor.shape)


def unmark_computed_variables(graph: Graph, lasting: Collection[Tensor]) -> Graph:
    """Return the graph with variables of sub-graphs that hold no state as ordinary tensors.

    `lasting` are the tensors that keep their elements between two runs of the graph. Any other
    variable holds no state if an operator computes it before another operator reads it: its
    cleared elements are never read. Its shape is then the result of the operator, because the
    declared shape may be wrong.
    """
    computed = {}
    for inner in graph.walk_graphs():
        read = {*lasting, *inner.inputs}
        for op in inner.ops:
            read.update(op.present)
            variables = (t for t in op.outputs if t.is_variable and t not in read)
            computed.update({t: replace(t, is_variable=False) for t in variables})
    return graph.replace_tensors(computed) if computed else graph


def compute_once(graph: Graph) -> dict[Tensor, Array]:
    """Return the elements of variable tensors that LiteRT computes once from constants."""
    writers = Counter(t for op in graph.ops for t in op.outputs)
    ops = tuple(
        op
        for op in graph.ops
        if op.is_builtin(*_COMPUTED_ONCE)
        and all(t and t.has_data for t in op.inputs)
        and op.outputs
        and all(t.is_variable and writers[t] == 1 for t in op.outputs)
    )
    if not ops:
        return {}
    outputs = tuple(op.outputs[0] for op in ops)
    folded = fold_operators(replace(graph, ops=ops, outputs=outputs))
    results = (
        (variable, result.data if result.has_data else _decode_source(op))
        for op, variable, result in zip(ops, outputs, folded.outputs, strict=True)
    )
    return {variable: data for variable, data in results if data is not None}


def _decode_source(op: Op) -> Array | None:
    source, target = op.operand(0), op.outputs[0]
    if not source.has_data or not source.quantization:
        return None
    is_direct = op.is_builtin("DEQUANTIZE") and source.values.shape == target.shape
    return decode_constant(source.values, source.quantization) if is_direct else None

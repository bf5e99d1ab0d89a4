"""Values in a damaged file for which two correct runtimes may compute different results.

Overflow, infinities and NaN depend on the sequence of the arithmetic, and on the instructions that
a runtime chooses. A buffer that is longer than its tensor, or that belongs to an input or to the
output of an operator, is read by some kernels of LiteRT and not by others. C++ treats a bool byte
other than 0 and 1 sometimes as true and sometimes as false.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from tests.support.facts import TENSOR_TYPES, carrier
from tests.support.runtimes import Array
from tflite2onnx import ConversionError
from tflite2onnx.graph import Model, Op
from tflite2onnx.quantization.storage import QUANTIZED
from tflite2onnx.reader.model import read_model
from tflite2onnx.tensor import DType, Tensor

_LARGEST_FLOAT, _SMALLEST_FLOAT = 1e6, 1e-12
_LARGEST_INTEGER = 1 << 20  # the largest value of a bias or of an operand of arithmetic
# Shifts by more places than a type has are undefined in C++.
_UNDEFINED = {"STABLEHLO_SHIFT_LEFT"}
_WIDTHS = {
    code: np.dtype(carrier(name)).itemsize
    for name, code in TENSOR_TYPES.items()
    if name not in ("string", "resource", "variant", "int4", "int2", "uint4")
}
_SCALES = 1e-9, 1e4


def find_extremes(data: bytes) -> str:
    """Return the name of a tensor with extreme values, or ""."""
    try:
        model = read_model(data)
    except ConversionError:
        return ""
    names = chain(
        (op.code for graph in model.graphs for op in graph.ops if op.code in _UNDEFINED),
        (t.name or "a tensor" for t in _tensors(model) if _is_extreme(t)),
        (op.code for graph in model.graphs for op in graph.ops if _lacks_scale(op)),
    )
    return next(chain(names, _find_contradictions(schema.Model.GetRootAs(data))), "")


def _find_contradictions(model: schema.Model) -> Iterator[str]:
    """Yield the names of tensors whose buffers do not fit their declarations."""
    for graph in (model.Subgraphs(i) for i in range(model.SubgraphsLength())):
        operators = [graph.Operators(i) for i in range(graph.OperatorsLength())]
        computed = {*graph.InputsAsNumpy()} if graph.InputsLength() else set()
        for operator in operators:
            computed |= {*operator.OutputsAsNumpy()} if operator.OutputsLength() else set()
        for i, tensor in enumerate(map(graph.Tensors, range(graph.TensorsLength()))):
            size = model.Buffers(tensor.Buffer()).DataLength()
            shape = tensor.ShapeAsNumpy() if tensor.ShapeLength() else np.ones(1)
            wide = _WIDTHS.get(tensor.Type(), 0)
            if size and (i in computed or (wide and size > int(np.prod(shape)) * wide)):
                yield f"tensor {i}"
            if size and tensor.Type() == schema.TensorType.BOOL:
                data = model.Buffers(tensor.Buffer()).DataAsNumpy()
                yield from [f"tensor {i}"] * bool((data > 1).any())


def _tensors(model: Model) -> Iterator[Tensor]:
    for graph in model.graphs:
        yield from graph.tensors


def _is_extreme(tensor: Tensor) -> bool:
    scale = tensor.quantization
    if scale is not None:
        if not ((scale.scale >= _SCALES[0]) & (scale.scale <= _SCALES[1])).all():
            return True
        if tensor.dtype in QUANTIZED and not _holds(tensor.dtype, scale.zero_point):
            return True
    data = tensor.data
    if data is None or data.dtype == object:
        return False
    if data.dtype.kind in "iu":
        wide = data.dtype.itemsize > 2 and tensor.dtype is not DType.BFLOAT16
        return wide and bool((np.abs(data.astype(np.float64)) > _LARGEST_INTEGER).any())
    return data.dtype.kind in "fc" and not _is_moderate(data)


def _lacks_scale(op: Op) -> bool:
    """Return whether an operator mixes integers with a scale and integers without a scale."""
    operands = [t for t in (*op.inputs, *op.outputs) if t is not None and t.dtype in QUANTIZED]
    scales = [(t, t.quantization) for t in operands if t.quantization is not None]
    by_axis = any(scale.scale.size > 1 for t, scale in scales if t.data is None)
    return by_axis or 0 < len(scales) < len(operands)


def _holds(dtype: DType, zero_point: Array) -> bool:
    """Return whether a type can represent all zero points."""
    last = 1 << (dtype.bits - dtype.label.startswith("int"))
    first = -last if dtype.label.startswith("int") else 0
    return bool(((zero_point >= first) & (zero_point < last)).all())


def _is_moderate(data: Array) -> bool:
    sizes = np.abs(data)
    return bool((np.isfinite(sizes) & (sizes <= _LARGEST_FLOAT)).all())

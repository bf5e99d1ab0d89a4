"""Values in a damaged file for which two correct runtimes may compute different results.

Overflow, infinities and NaN depend on the sequence of the arithmetic, and on the instructions that
a runtime chooses; the reciprocal of a subnormal number overflows. A buffer that is longer than its
tensor, or that belongs to an input or to the output of an operator, is read by some kernels of
LiteRT and not by others. So is a sparse constant. C++ treats a bool byte other than 0 and 1
sometimes as true and sometimes as false.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from tests.fuzz.kernels import find_undefined_operators, operators_of
from tests.support.facts import TENSOR_TYPES, carrier
from tests.support.runtimes import Array
from tflite2onnx import ConversionError
from tflite2onnx.graph import Model
from tflite2onnx.quantization.storage import QUANTIZED
from tflite2onnx.reader.model import read_model
from tflite2onnx.tensor import DType, Tensor

_LARGEST_FLOAT, _SMALLEST_FLOAT = 1e6, float(np.finfo(np.float32).tiny)
_LARGEST_INTEGER = 1 << 20  # the largest value of a bias or of an operand of arithmetic
_PACKED = {"int4": 0.5, "uint4": 0.5, "int2": 0.25}
_WIDTHS = {  # in bytes
    code: _PACKED.get(name) or np.dtype(carrier(name)).itemsize
    for name, code in TENSOR_TYPES.items()
    if name not in ("string", "resource", "variant")
}
_SCALES = 1e-9, 1e4
_READ_SPARSE = {"DENSIFY", "FULLY_CONNECTED"}


def find_extremes(data: bytes, runs: Sequence[Sequence[Array]] = ()) -> str:
    """Return the name of a tensor or operator with extreme values, or "".

    `runs` are the inputs of all runs.
    """
    try:
        model = read_model(data)
    except ConversionError:
        return ""
    inputs = dict(zip(model.graphs[0].inputs, zip(*runs, strict=True), strict=False))
    names = chain(
        (t.name or "a tensor" for t in _tensors(model) if _is_extreme(t)),
        find_undefined_operators(model, inputs),
        _find_sparse_readers(model),
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
            most = np.ceil(np.prod(shape, dtype=float) * wide)
            if size and (i in computed or (wide and size > most)):
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


def _find_sparse_readers(model: Model) -> Iterator[str]:
    """Yield the names of sparse constants that are read as if they were not sparse."""
    ends = [*(t for graph in model.graphs for t in graph.outputs)]
    ends += [t for op in operators_of(model) if op.code not in _READ_SPARSE for t in op.inputs if t]
    yield from (t.name for t in ends if t.sparsity is not None)


def _holds(dtype: DType, zero_point: Array) -> bool:
    """Return whether a type can represent all zero points."""
    last = 1 << (dtype.bits - dtype.label.startswith("int"))
    first = -last if dtype.label.startswith("int") else 0
    return bool(((zero_point >= first) & (zero_point < last)).all())


def _is_moderate(data: Array) -> bool:
    sizes = np.abs(data)
    is_normal = (sizes == 0) | (sizes >= _SMALLEST_FLOAT) | (data.dtype != np.float32)
    return bool((np.isfinite(sizes) & (sizes <= _LARGEST_FLOAT) & is_normal).all())

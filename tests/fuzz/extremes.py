"""Numbers in a damaged file with which no two runtimes compute the same.

Overflow, infinities and NaN depend on the sequence of the arithmetic, and on the instructions that
a runtime chooses.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tests.support.runtimes import Array
from tflite2onnx import ConversionError
from tflite2onnx.graph import Model
from tflite2onnx.quantize import QUANTIZED
from tflite2onnx.reader.model import read_model
from tflite2onnx.tensor import DType, Tensor

_LARGEST_FLOAT, _SMALLEST_FLOAT = 1e6, 1e-12
_LARGEST_INTEGER = 1 << 20  # of a bias, or an operand of arithmetic
_SCALES = 1e-9, 1e4


def find_extremes(data: bytes) -> str:
    """Return the name of a tensor with extreme numbers, "" if there is none."""
    try:
        model = read_model(data)
    except ConversionError:
        return ""
    return next((t.name or "a tensor" for t in _tensors(model) if _is_extreme(t)), "")


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


def _holds(dtype: DType, zero_point: Array) -> bool:
    """Return whether a type has all zero points."""
    last = 1 << (dtype.bits - dtype.label.startswith("int"))
    first = -last if dtype.label.startswith("int") else 0
    return bool(((zero_point >= first) & (zero_point < last)).all())


def _is_moderate(data: Array) -> bool:
    sizes = np.abs(data)
    return bool((np.isfinite(sizes) & (sizes <= _LARGEST_FLOAT)).all())

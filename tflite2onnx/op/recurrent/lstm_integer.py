"""The scales of the intermediate values of the integer LSTM kernel (8 x 8 -> 16, lstm.cc).

The inputs of the gates have 16 bits, 12 of them fractional, or scales given by intermediate tensors
with layer normalization. Gates are within -1 and 1. o * tanh(c) is h, unless there is a projection:
then it is stored as an additional integer, with the negated zero point.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tflite2onnx.errors import OperatorError
from tflite2onnx.op.recurrent.base import storage_of_scale
from tflite2onnx.op.recurrent.lstm_cell import Grids
from tflite2onnx.quantization.storage import Storage, integer_range, is_quantized
from tflite2onnx.tensor import DType, Quantization, Tensor

# The inputs of four gates in TFLite's order, then the input of the projection.
_INTERMEDIATES = 5
_HIDDEN = 4
_EXPONENT_ERROR = 1e-3  # CheckedLog2 in kernel_util.cc


def grids(
    intermediates: Sequence[Tensor],
    gates: str,
    c: Tensor,
    h: Tensor,
    y: Tensor,
    *,
    normalized: bool,
    projected: bool,
) -> Grids:
    """Return the scales; `gates` are letters of "ifco", in the order of `Grids.sums`.

    Raises:
        OperatorError: the kernel does not support the tensors.
    """
    if len(intermediates) != _INTERMEDIATES:
        # 12 select another kernel (8 x 8 -> 8), which reads past the end of its tables.
        raise OperatorError(
            f"it must have {_INTERMEDIATES} intermediate tensors, got {len(intermediates)}"
        )
    for tensor in (c, h, y, intermediates[_HIDDEN]):
        _read_quantization(tensor)
    if c.dtype is not DType.INT16 or h.dtype is not DType.INT8 or y.dtype is not DType.INT8:
        raise OperatorError(
            f"h, c and output must be int8, int16 and int8, got {h.dtype.label}, {c.dtype.label} "
            f"and {y.dtype.label}"
        )
    _check_cell_scale(c)
    hidden = _read_quantization(intermediates[_HIDDEN])
    if not _read_quantization(h).same_as(y.quantization) or not (
        projected or hidden.same_as(y.quantization)
    ):
        raise OperatorError(
            f"{y.name}, {h.name} and, without a projection, {intermediates[_HIDDEN].name} must "
            f"have the same scale"
        )
    scales = [2.0**-12] * len(gates)
    if normalized:
        scales = [_read_quantization(intermediates["ifco".index(i)]).scale[0] for i in gates]
    step, zero = float(hidden.scale[0]), int(hidden.zero_point[0])
    low, high = integer_range(DType.INT8)
    opposite = -zero if projected else zero
    fits = opposite <= high  # 128 does not: then all numbers that int8 represents are negative
    return Grids(
        sums=tuple(storage_of_scale(DType.INT16, scale) for scale in scales),
        normalized=storage_of_scale(DType.INT16, 2.0**-12),
        functions=storage_of_scale(DType.INT16, 2.0**-15),
        cell=storage_of_scale(DType.INT16, _read_quantization(c).scale),
        hidden=storage_of_scale(DType.INT8, step, opposite)
        if fits
        else storage_of_scale(DType.INT16, step),
        hidden_limits=None if fits else ((low - opposite) * step, (high - opposite) * step),
        output=Storage(DType.INT8, _read_quantization(y)),
    )


def _check_cell_scale(c: Tensor) -> None:
    """Raise OperatorError unless the kernel, which shifts by the logarithm, reads the scale."""
    exponent = np.log2(_read_quantization(c).scale[0])
    if (
        _read_quantization(c).zero_point.any()
        or abs(exponent - np.rint(exponent)) > _EXPONENT_ERROR
    ):
        raise OperatorError(f"{c.name} must have a power of two as its scale, and the zero point 0")


def _read_quantization(tensor: Tensor) -> Quantization:
    if tensor.quantization is None or tensor.quantization.per_axis:
        raise OperatorError(f"{tensor.name} must have a single scale")
    return tensor.quantization


def clip_bounds(limit: float, tensor: Tensor) -> tuple[float, float] | None:
    """Return the bounds (low, high) of a clip in real numbers, or None if there is no clip.

    The kernel clips the stored integers at limit / scale, and ignores the zero point.
    """
    if limit <= 0:
        return None
    if not is_quantized(tensor):
        return -limit, limit
    scale = _read_quantization(tensor).scale[0]
    zero = int(_read_quantization(tensor).zero_point[0])
    most = int(min(np.float32(limit) / scale, integer_range(tensor.dtype)[1]))
    if most <= 0:
        return None
    return (-most - zero) * float(scale), (most - zero) * float(scale)

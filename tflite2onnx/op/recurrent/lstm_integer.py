"""The scales in which the integer LSTM kernel stores what it computes (8 x 8 -> 16, lstm.cc).

The sums that go into the gates are 16 bits with 12 behind the point, or have a scale of their own
if they are normalized; gates are within -1 and 1. What o * tanh(c) makes is h, unless there is a
projection: then it is stored once more, with a zero point of the opposite sign.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tflite2onnx.errors import OperatorError
from tflite2onnx.op.recurrent.base import storage_of_scale
from tflite2onnx.op.recurrent.lstm_cell import Grids
from tflite2onnx.quantize import Storage, integer_range, is_quantized
from tflite2onnx.tensor import DType, Quantization, Tensor

# Of the sums of four gates in TFLite's sequence, then of what is projected.
_INTERMEDIATES = 5
_HIDDEN = 4


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
    """Return the scales; `gates` are letters of "ifco", in the sequence that `sums` has.

    Raises:
        OperatorError: the kernel would not compute with these.
    """
    if len(intermediates) != _INTERMEDIATES:
        # With 12 it is another kernel, which reads past the end of its own tables.
        raise OperatorError(
            f"{len(intermediates)} intermediate tensors where {_INTERMEDIATES} are expected"
        )
    for tensor in (c, h, y, intermediates[_HIDDEN]):
        _quantization(tensor)
    if c.dtype is not DType.INT16 or h.dtype is not DType.INT8 or y.dtype is not DType.INT8:
        raise OperatorError("the states are not int8 and int16")
    hidden = _quantization(intermediates[_HIDDEN])
    if not _quantization(h).same_as(y.quantization) or not (
        projected or hidden.same_as(y.quantization)
    ):
        raise OperatorError(f"{y.name}, {h.name} and what is hidden have different scales")
    scales = [2.0**-12] * len(gates)
    if normalized:
        scales = [_quantization(intermediates["ifco".index(i)]).scale[0] for i in gates]
    step, zero = float(hidden.scale[0]), int(hidden.zero_point[0])
    low, high = integer_range(DType.INT8)
    opposite = -zero if projected else zero
    held = opposite <= high  # 128 is not: all that int8 stores with it is negative
    return Grids(
        sums=tuple(storage_of_scale(DType.INT16, scale) for scale in scales),
        normalized=storage_of_scale(DType.INT16, 2.0**-12),
        functions=storage_of_scale(DType.INT16, 2.0**-15),
        cell=storage_of_scale(DType.INT16, _quantization(c).scale),
        hidden=storage_of_scale(DType.INT8, step, opposite)
        if held
        else storage_of_scale(DType.INT16, step),
        hidden_limits=None if held else ((low - opposite) * step, (high - opposite) * step),
        output=Storage(DType.INT8, _quantization(y)),
    )


def _quantization(tensor: Tensor) -> Quantization:
    if tensor.quantization is None or tensor.quantization.per_axis:
        raise OperatorError(f"{tensor.name} has not one scale")
    return tensor.quantization


def clip_bounds(limit: float, tensor: Tensor) -> tuple[float, float] | None:
    """Return the real numbers to which a clip of quantized integers keeps them, None if it is 0.

    It is the integers that are clipped, at the quotient of limit and scale, whatever the zero
    point.
    """
    if limit <= 0:
        return None
    if not is_quantized(tensor):
        return -limit, limit
    scale = _quantization(tensor).scale[0]
    zero = int(_quantization(tensor).zero_point[0])
    most = int(min(np.float32(limit) / scale, integer_range(tensor.dtype)[1]))
    if most <= 0:
        return None
    return (-most - zero) * float(scale), (most - zero) * float(scale)

"""The float twin of a quantized model: the same network with float32 tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from tests.support import pack

_TYPES = {
    schema.TensorType.INT8: np.int8,
    schema.TensorType.UINT8: np.uint8,
    schema.TensorType.INT16: np.int16,
    schema.TensorType.INT32: np.int32,
}


def make_float_model(data: bytes) -> bytes:
    """Return a model with float32 tensors; constants are dequantized.

    Tensors that share a buffer must have the same real numbers.
    """
    model = schema.ModelT.InitFromPackedBuf(data)
    done = set()
    for tensor in (tensor for graph in model.subgraphs for tensor in graph.tensors):
        kept, stored = tensor.quantization, _TYPES.get(tensor.type)
        if kept is None or kept.scale is None or not len(kept.scale) or stored is None:
            continue
        buffer = model.buffers[tensor.buffer]
        if buffer.data is not None and len(buffer.data) and tensor.buffer not in done:
            integers = np.frombuffer(bytes(bytearray(buffer.data)), stored).reshape(tensor.shape)
            buffer.data = list(_dequantize(integers, kept).astype(np.float32).tobytes())
            done.add(tensor.buffer)
        tensor.type, tensor.quantization = schema.TensorType.FLOAT32, None
    return pack(model)


def _dequantize(integers: Any, kept: Any) -> Any:
    shape = [1] * integers.ndim
    if len(kept.scale) > 1:
        shape[kept.quantizedDimension] = -1
    scale, zero = (np.asarray(each).reshape(shape) for each in (kept.scale, kept.zeroPoint))
    return (integers.astype(np.float64) - zero) * scale

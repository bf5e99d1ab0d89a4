"""SVDF of integers, as LiteRT and TFLite Micro compute it.

Both use the same sums and roundings (reference/svdf.h in LiteRT, svdf_common.cc in tflite-micro).
LiteRT reads states and time weights as int16 with a zero point of 0, whatever the file declares.
TFLite Micro has a second kernel, for int8 with a zero point.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from tests.support import pack

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tflite2onnx.graph import Op
    from tflite2onnx.tensor import Tensor

Array = np.ndarray[Any, Any]

_TIMES, _BIAS, _STATE = 2, 3, 4  # the input indices of SVDF


def multiply_quantized(x: Array, factor: float) -> Array:
    """Return integers times a factor, rounded twice as gemmlowp rounds."""
    fraction, exponent = np.frexp(factor)
    product = (x << max(int(exponent), 0)) * round(float(fraction) * 2**31)
    product = product + np.where(product < 0, 1 - 2**30, 2**30)
    high: Array = np.sign(product) * (np.abs(product) >> 31)
    right = max(-int(exponent), 0)
    mask = (1 << right) - 1
    up: Array = (high & mask) > (mask >> 1) + (high < 0)
    made: Array = (high >> right) + (up if right else 0)
    return made


def filter_frames(op: Op, frames: Sequence[Array], bits: int) -> Iterator[Array]:
    """Yield the output of SVDF for each frame, starting from a state of 0.

    States are int8 with a zero point, or int16 without. They saturate.
    """
    (scale_x, zero_x), (scale_w, _), (scale_t, _), (scale_s, zero_s), (scale_y, zero_y) = (
        _scale(t) for t in (*op.inputs[:3], op.inputs[_STATE], op.outputs[0])
    )
    most, offset = (127, zero_s) if bits == 8 else (32767, 0)
    features, times = (np.asarray(t.data, np.int64) for t in op.inputs[1:3] if t)
    bias = op.inputs[_BIAS]
    memory = np.zeros((len(frames[0]), *times.shape), np.int64)
    for frame in frames:
        sums = (frame.astype(np.int64) - zero_x) @ features.T
        sums = multiply_quantized(sums, float(scale_x * scale_w / scale_s))
        now = np.clip(sums + offset, -most - 1, most) - offset
        memory = np.concatenate([memory[:, :, 1:], now[:, :, None]], 2)
        made = (memory * times).reshape(len(frame), op.outputs[0].shape[-1], -1).sum(2)
        if bias is not None and bias.data is not None:
            made = made + bias.data
        made = multiply_quantized(made, float(scale_s * scale_t / scale_y)) + zero_y
        yield np.clip(made, -128, 127).astype(np.int8)


def _scale(tensor: Tensor | None) -> tuple[np.float32, int]:
    assert tensor is not None
    assert tensor.quantization is not None
    return tensor.quantization.scale[0], int(tensor.quantization.zero_point[0])


def widen_states(data: bytes) -> bytes:
    """Return a model whose SVDFs have the same states and time weights as int16."""
    model = schema.ModelT.InitFromPackedBuf(data)
    for operator, tensors in _svdfs(model):
        for index in (_TIMES, _STATE):
            tensors[operator.inputs[index]].type = schema.TensorType.INT16
        state, times = (tensors[operator.inputs[i]] for i in (_STATE, _TIMES))
        state.quantization.zeroPoint = [0]
        buffer = model.buffers[times.buffer]
        buffer.data = list(np.asarray(buffer.data, np.uint8).view(np.int8).astype("<i2").tobytes())
    return pack(model)


def layers(data: bytes) -> list[bytes]:
    """Return a model of each SVDF alone, without its bias."""
    made = []
    for number in range(len(list(_svdfs(schema.ModelT.InitFromPackedBuf(data))))):
        model = schema.ModelT.InitFromPackedBuf(data)
        operator, _ = list(_svdfs(model))[number]
        (graph,) = model.subgraphs
        operator.inputs = [-1 if i == _BIAS else n for i, n in enumerate(operator.inputs)]
        graph.operators = [operator]
        graph.inputs, graph.outputs = operator.inputs[:1], operator.outputs
        made.append(pack(model))
    return made


def _svdfs(model: Any) -> Iterator[tuple[Any, Any]]:
    """Yield all SVDF operators with the tensors of their graph."""
    for graph in model.subgraphs:
        for operator in graph.operators:
            code = model.operatorCodes[operator.opcodeIndex]
            if schema.BuiltinOperator.SVDF in (code.builtinCode, code.deprecatedBuiltinCode):
                yield operator, graph.tensors


def largest_step(op: Op) -> int:
    """Return the output difference if each state is rounded to the neighbouring integer, plus one.

    The last step is the rounding of the output: LiteRT rounds it twice, ONNX Runtime once.
    """
    times = op.inputs[_TIMES]
    assert times is not None
    assert times.data is not None
    scale, by, to = (_scale(t)[0] for t in (op.inputs[_STATE], times, op.outputs[0]))
    return 1 + math.ceil(float(np.abs(times.data.astype(int)).max() * scale * by / to))

"""Averages that round halves as LiteRT, for compilers that know one scale of each tensor."""

from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np

from tflite2onnx.builder.builder import Builder, Operand, Value, View
from tflite2onnx.layout import make_identity
from tflite2onnx.op.vision.pool import AveragePool2D
from tflite2onnx.quantization.rules import Reading
from tflite2onnx.quantization.storage import AS_NUMBERS, Storage
from tflite2onnx.tensor import DType

_LONGEST_STRIDE = 3  # compilers refuse longer strides of a depthwise Conv
_WRONG_CHANNELS = range(2, 5)  # of a depthwise Conv, whose averages were up to 207 steps off
_SIZES = range(2, 17, 2)  # pixels of a window whose averages may be halves; few are of larger ones
_WEIGHT = 255  # the integer that all weights of an average are


class ConvolvedAverage(AveragePool2D):
    """AVERAGE_POOL_2D: a depthwise Conv, which moves halves away from the integer 0 of the file.

    A Conv would count the padding. The largest average moves by half of the distance of two
    averages, so that compilers of a few bits below a step see it, too. The bias is a whole number
    of its steps: a runtime that rounds it would move small averages back.
    """

    def _average(self, g: Builder, x: View, image: Operand, window: Mapping[str, Any]) -> Value:
        size = prod(window["kernel_shape"])
        is_refused = max(window["strides"]) > _LONGEST_STRIDE or any(window.get("pads", [1]))
        channels, stored = x.size("C"), x.tensor.quantization or AS_NUMBERS
        is_plain = x.plan.reading is not Reading.UNIFORM or size not in _SIZES or is_refused
        if is_plain or (isinstance(channels, int) and channels in _WRONG_CHANNELS):
            return super()._average(g, x, image, window)
        zero, whole = int(stored.zero_point[0]), size * _WEIGHT
        steps = zero if x.dtype is DType.INT8 else round(zero / 2)
        slack = steps / (zero * whole - steps) if steps else 1 / (2 * whole)
        factor = np.array([(1 + slack) / whole], np.float32)
        shape = (channels, 1, *window["kernel_shape"])
        integers = g.constant(np.full(shape, _WEIGHT, np.uint8), DType.UINT8)
        storage = Storage(DType.UINT8, AS_NUMBERS.with_scale(factor, AS_NUMBERS.zero_point))
        weights = g.dequantize(integers, storage, make_identity(len(shape)))
        bias = np.full(channels, x.plan.storage.scale[0] * zero * slack, np.float32)
        return g.Conv(image, weights, g.constant(bias), group=channels, **window)


PATHS = {"AVERAGE_POOL_2D": __name__}

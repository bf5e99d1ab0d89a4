"""SVDF: a dense layer over the last times, factorized into features and times."""

from collections.abc import Sequence

import numpy as np

from tflite2onnx.builder.builder import Builder, NeedsReshape, Value, View
from tflite2onnx.layout import make_identity
from tflite2onnx.op.base import OperatorError, OutputShape
from tflite2onnx.op.common.checks import expect, expect_symmetric, expect_type
from tflite2onnx.op.elementwise.activation import apply_activation
from tflite2onnx.op.facts import Fact
from tflite2onnx.op.recurrent.base import (
    add_direction_axis,
    expect_bias,
    expect_constant,
    read_bias,
    read_scale,
    stack_matrices,
)
from tflite2onnx.op.traits import DynamicShape
from tflite2onnx.quantization.declarations import Real
from tflite2onnx.quantization.storage import is_quantized
from tflite2onnx.tensor import DType
from tflite2onnx.utils.dimension import require_number

_BIAS, _STATE = 3, 4  # inputs


class Svdf(DynamicShape):
    """SVDF: a filter over features, then a weighted sum over the last times (svdf.h).

    Inputs are x [batch, features], weights [filters, features] and [filters, times], a bias
    [units], and the state [batch, filters * times]; outputs are [batch, units] and the next state.
    Each unit is the sum of `rank` adjacent filters.

    A step drops the oldest time of the state and appends a new time. Integer states are int16 in
    LiteRT; TensorFlow Lite for microcontrollers also supports int8 with a zero point. No integer
    kernel applies the activation function; the range of the output implies it.
    """

    codes = ("SVDF",)
    tflite = "NF, , , , NS -> NU, NS"
    dynamic_axes = "N"
    returns_tuple = True
    facts = (Fact.APPLIES_ACTIVATION, Fact.WRITES_INPUTS)
    quantization = Real(multiplies=(1, 2), bias=(_BIAS, _STATE), moves=(_STATE, ~1))

    def infer_outputs(self) -> Sequence[OutputShape]:
        x, weights = self.input(0), self.input(1)
        count = weights.shape[-1]
        require_number(x.shape[-1], count, f"{x.name} must have {count} features")
        batch = self.input(_STATE).shape[0]
        require_number(x.shape[0], batch, f"{x.name} must have the batch of the state, {batch}")
        units = weights.shape[0] // max(self.options.rank, 1)
        shapes = [(self.input(0).shape[0], units), self.input(_STATE).shape]
        return shapes[: len(self.op.outputs)]

    def check(self) -> None:
        x, features, times, state = (self.input(i) for i in (0, 1, 2, _STATE))
        expect_type(x, (DType.FLOAT32, DType.INT8))
        if {x.rank, features.rank, times.rank} != {2} or self.options.rank < 1:
            shapes = ", ".join(str(list(t.shape)) for t in (x, features, times))
            raise OperatorError(
                "input and weights must have 2 axes, and rank must be positive,"
                f" got {shapes} and {self.options.rank}"
            )
        for weights in (features, times):
            expect_constant(weights, weights.shape)
        filters = features.shape[0]
        units, rest = divmod(filters, self.options.rank)
        empty = not (features.elements and times.elements)
        if rest or empty or x.shape[1] != features.shape[1] or times.shape[0] != filters:
            raise OperatorError(
                f"weights must be [filters, features] and [filters, times], with a multiple of "
                f"{self.options.rank} filters, got {list(features.shape)} and {list(times.shape)} "
                f"for an input of {list(x.shape)}"
            )
        expect(state, (x.shape[0], filters * times.shape[1]), state.dtype)
        expect_type(self.output, (x.dtype,))
        expect_bias(x, self.op.inputs[_BIAS], units)
        if x.dtype is DType.FLOAT32:
            expect_type(state, (DType.FLOAT32,))
            return
        if not all(map(is_quantized, (x, features, times, state, self.output))):
            raise OperatorError("int8 input, weights, state and output must all be quantized")
        expect_type(state, (DType.INT8, DType.INT16))
        for tensor in (features, times, *([state] if state.dtype is DType.INT16 else ())):
            expect_symmetric(tensor)

    def emit(
        self,
        g: Builder,
        y: tuple[View, ...],
        x: View,
        features: View,
        times: View,
        _: View | None,
        state: View,
    ) -> tuple[Value | NeedsReshape, Value]:
        shape = x.sizes[0], *times.tensor.shape
        storage, last = state.storage, [2]
        now = g.MatMul(x, stack_matrices(g, x.tensor, [features.tensor], np.transpose))
        if storage.quantization is not None:
            now = g.quantize(now, storage, make_identity(2))
        recent = g.Slice(state.reshape(shape), [1], [*times.tensor.shape[1:]], last)
        memory = g.Concat(recent, g.Unsqueeze(now, last), axis=2)
        next_state = g.reshape(memory, state.sizes)
        if storage.quantization is not None:
            memory = g.dequantize(memory, storage, make_identity(3))
        output = self._sum_over_time(g, memory, shape[0])
        if x.tensor.dtype is DType.FLOAT32 and isinstance(output, Value):
            output = apply_activation(g, self.options.fused_activation_function, output)
        return output, next_state

    def _sum_over_time(self, g: Builder, memory: Value, batch: int | str) -> Value | NeedsReshape:
        """Return the output, [batch, units], of the memory, [batch, filters, times].

        For int8 this is a grouped convolution over all times, for which runtimes have an integer
        kernel. For other types a product and a sum are faster (docs/runtime-faults.md).
        """
        x, times, b, state = self.input(0), self.input(2), self.op.inputs[_BIAS], self.input(_STATE)
        rank, (filters, steps) = self.options.rank, times.shape
        units = filters // rank
        biases = None if b is None else read_bias(b, read_scale(state), read_scale(times))
        if state.dtype is DType.INT8:
            rows = stack_matrices(g, x, [times], lambda w: w.reshape(units, rank, steps))
            return NeedsReshape(g.Conv(memory, rows, biases, group=units))
        weighted = g.Mul(memory, stack_matrices(g, x, [times], add_direction_axis))
        parts = g.reshape(weighted, (batch, units, rank * steps))
        output = g.reduce("ReduceSum", parts, [2], keepdims=False)
        return output if biases is None else g.Add(output, biases)

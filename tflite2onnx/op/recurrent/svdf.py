"""SVDF: a dense layer over the last times, as products with features and then with times."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tflite2onnx.builder.builder import AlreadyStored, Builder, NeedsReshape, Value, View
from tflite2onnx.layout import identity
from tflite2onnx.op.base import Category, Operator, OperatorError
from tflite2onnx.op.common.checks import expect, expect_type
from tflite2onnx.op.elementwise.activation import apply_activation
from tflite2onnx.op.recurrent.base import (
    bias,
    constant_elements,
    on_axis_1,
    scale_of,
    stack_matrices,
)
from tflite2onnx.quantize import is_quantized
from tflite2onnx.tensor import DType, Shape

_BIAS, _STATE = 3, 4  # inputs


class Svdf(Operator):
    """SVDF (svdf.h): what filters make of the input now and at earlier times, weighted and added.

    Inputs are x [batch, features], weights [filters, features] and [filters, times], a bias
    [units], and the state [batch, filters * times]; outputs are [batch, units] and the next state.
    Each unit is the sum of `rank` filters that are next to each other.

    Integer states lose the oldest time and get a new one; LiteRT takes int16, the kernels of
    TensorFlow Lite for microcontrollers int8 with a zero point as well. No integer kernel applies
    the activation function: the range of the output does.
    """

    codes = ("SVDF",)
    category = Category.TERMINATE
    returns_tuple = True
    fuses_activation = False

    def infer_outputs(self) -> Sequence[Shape]:
        """Return the outputs' shapes: the kernels find them, and some files have none."""
        units = self.input(1).shape[0] // max(self.options.rank, 1)
        made = [(self.input(0).shape[0], units), self.input(_STATE).shape]
        return made[: len(self.op.outputs)]

    def check(self) -> None:
        """Raise OperatorError for what the kernels do not take."""
        x, features, times, state = (self.input(i) for i in (0, 1, 2, _STATE))
        expect_type(x, (DType.FLOAT32, DType.INT8))
        if {x.rank, features.rank, times.rank} != {2} or self.options.rank < 1:
            raise OperatorError(
                f"rank {self.options.rank}, {list(x.shape)} by {list(features.shape)}"
            )
        filters = features.shape[0]
        units, rest = divmod(filters, self.options.rank)
        if (
            rest
            or x.shape[1] != features.shape[1]
            or times.shape[0] != filters
            or (constant_elements(features).size * constant_elements(times).size == 0)
        ):
            raise OperatorError(
                f"{list(features.shape)} and {list(times.shape)} do not fit {list(x.shape)}"
            )
        expect(state, (x.shape[0], filters * times.shape[1]), state.dtype)
        expect(self.output, (x.shape[0], units), x.dtype)
        b = self.op.inputs[_BIAS]
        if b is not None and constant_elements(b).shape != (units,):
            raise OperatorError(f"{b.name} is {list(b.shape)} where {[units]} is expected")
        if x.dtype is DType.INT8 and not all(
            is_quantized(t) for t in (x, features, times, state, self.output)
        ):
            raise OperatorError("some of its integers have no scale")

    def emit(
        self,
        g: Builder,
        y: tuple[View, ...],
        x: View,
        features: View,
        times: View,
        _: View | None,
        state: View,
    ) -> tuple[Value | NeedsReshape, AlreadyStored]:
        """Emit the products, and move what is stored as it is."""
        shape = x.shape[0], *times.tensor.shape
        kept, last = g.storage(state.tensor), g.ints([2])
        now = g.MatMul(x, stack_matrices(g, x.tensor, [features.tensor], np.transpose))
        if kept.quantization is not None:
            state, now = g.view(state.tensor, state.order), g.quantize(now, kept, identity(2))
        older = g.Slice(state.reshape(shape), g.ints([1]), g.ints(shape[2:]), last)
        memory = g.Concat(older, g.Unsqueeze(now, last), axis=2)
        after = g.reshape(memory, state.shape)
        if kept.quantization is not None:
            memory = g.dequantize(memory, kept, identity(3))
        made = self._over_time(g, memory, shape)
        if x.tensor.dtype is DType.FLOAT32 and isinstance(made, Value):
            made = apply_activation(g, self.options.fused_activation_function, made)
        return made, AlreadyStored(after)

    def _over_time(self, g: Builder, memory: Value, shape: Shape) -> Value | NeedsReshape:
        """Return what units make of what is remembered, [batch, filters, times].

        Of 8 bits it is a convolution over all times, unit by unit, for which ONNX Runtime has an
        integer kernel; for all else that takes 1.5 to 20 times as long as a product and a sum.
        """
        x, times, b, state = self.input(0), self.input(2), self.op.inputs[_BIAS], self.input(_STATE)
        rank = self.options.rank
        units = shape[1] // rank
        added = None if b is None else bias(b, scale_of(state), scale_of(times))
        if state.dtype is DType.INT8:
            rows = stack_matrices(g, x, [times], lambda w: w.reshape(units, rank, shape[2]))
            return NeedsReshape(g.Conv(memory, rows, added, group=units))
        weighted = g.Mul(memory, stack_matrices(g, x, [times], on_axis_1))
        parts = g.reshape(weighted, (shape[0], units, rank * shape[2]))
        made = g.reduce("ReduceSum", parts, [2], keepdims=False)
        return made if added is None else g.Add(made, added)

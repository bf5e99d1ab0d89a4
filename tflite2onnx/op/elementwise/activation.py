"""Activation functions, as operators or fused into another operator."""

from collections.abc import Mapping
from functools import cached_property
from math import erf, pi, sqrt
from typing import ClassVar

import numpy as np

from tflite2onnx.builder.builder import Builder, Operand, Value, View
from tflite2onnx.made_options import HardSigmoidOptions
from tflite2onnx.op.base import OperatorError
from tflite2onnx.op.common.fixed_point import (
    Slopes,
    are_narrow,
    compute_slopes,
    multiply_twice_rounded,
)
from tflite2onnx.op.elementwise.arithmetic import Elementwise, Row, as_emit, emit_node
from tflite2onnx.op.facts import Fact
from tflite2onnx.op.indexing.integer_table import look_up
from tflite2onnx.op.traits import MadeOperator
from tflite2onnx.quantization.declarations import Integers, Real, expect_one_scale
from tflite2onnx.quantization.rules import Reading
from tflite2onnx.quantization.storage import (
    BOUNDS,
    encode_constant,
    find_integer_range,
    is_quantized,
)
from tflite2onnx.tensor import Array, DType


def apply_bounds(g: Builder, name: str, x: Operand, dtype: DType) -> Value:
    """Apply an activation that only clips to bounds (`quantize.BOUNDS`)."""
    # Bounds are converted to the element type as in C: -1 is the largest uint32.
    low, high = (
        None if bound is None else g.constant(np.asarray(bound).astype(dtype.numpy), dtype)
        for bound in BOUNDS[name]
    )
    if high is not None:
        return g.add_with_casts("Clip", dtype, x, low, high)
    return g.Relu(x) if dtype.is_float else g.add_with_casts("Max", dtype, x, low)


def apply_limits(g: Builder, x: Value, low: float | None, high: float | None) -> Value:
    """Return real numbers within limits; some compilers lose a Clip after a convolution."""
    raised = x if low is None else g.Max(x, g.scalar(low, DType.FLOAT32)) if low else g.Relu(x)
    return raised if high is None else g.Min(raised, g.scalar(high, DType.FLOAT32))


def apply_fused_activation(g: Builder, name: str, x: Value, dtype: DType) -> Value:
    """Apply a fused activation in the way of kernels without state.

    The kernels convert it to bounds (CalculateActivationRange in kernel_util.h). TANH and SIGN_BIT
    have no bounds, so these kernels ignore them: see `apply_unbounded_activation`.
    """
    if name not in BOUNDS:
        return x
    y = apply_bounds(g, name, x, dtype)
    return g.annotate(y, *g.types[x]) if x in g.types else y


UNBOUNDED = ("TANH", "SIGN_BIT")  # Activations that are not a clamp to bounds.


def apply_unbounded_activation(g: Builder, name: str, x: Value) -> Value:
    """Apply TANH or SIGN_BIT, in the way of hybrid kernels (ApplyActivationToVector)."""
    if name == "TANH":
        return g.Tanh(x)
    if name == "SIGN_BIT":
        return g.cast(g.Less(x, g.scalar(0, DType.FLOAT32)), DType.FLOAT32)
    return x


def apply_activation(g: Builder, name: str, x: Value) -> Value:
    """Apply an activation in the way of recurrent kernels."""
    return apply_fused_activation(g, name, apply_unbounded_activation(g, name, x), DType.FLOAT32)


def compute_gelu(x: Array, *, approximate: bool) -> Array:
    """Return x * P(X < x) of a normal distribution, or its approximation by tanh."""
    if approximate:
        return np.asarray(x * (1 + np.tanh(sqrt(2 / pi) * (x + 0.044715 * x**3))) / 2)
    return np.asarray(x * (1 + np.vectorize(erf, [float])(x / sqrt(2))) / 2)


class Activation(Elementwise):
    """An activation function that is not fused."""

    facts = (Fact.ACTIVATION,)
    rows: ClassVar[Mapping[str, Row]] = {
        "ELU": Row(emit_node("Elu"), "float32"),
        "GELU": Row(
            lambda g, dtype, options, x: g.gelu(x, dtype, approximate=bool(options.approximate)),
            "float32 float16",
            interpolated=lambda x, options: compute_gelu(x, approximate=bool(options.approximate)),
        ),
        "LOGISTIC": Row(emit_node("Sigmoid"), "float32 float16 bfloat16"),
        "TANH": Row(emit_node("Tanh"), "float32 float16 bfloat16"),
    }
    # The kernels interpolate between the entries of tables.
    steps: ClassVar[Mapping[str, int]] = {"LOGISTIC int16": 16, "TANH int16": 16}


class HardSigmoid(MadeOperator, Elementwise):
    """HARD_SIGMOID: alpha * x + beta, limited to 0 and 1."""

    rows: ClassVar[Mapping[str, Row]] = {"HARD_SIGMOID": Row(emit_node("HardSigmoid"), "float32")}

    def emit(self, g: Builder, y: View, *xs: View) -> Value:
        made = self.op.read_made(HardSigmoidOptions)
        return g.HardSigmoid(*xs, alpha=made.alpha, beta=made.beta)


class LeakyRelu(Elementwise):
    """LEAKY_RELU: x where it is not negative, else x * alpha."""

    facts = (Fact.ACTIVATION,)
    rows: ClassVar[Mapping[str, Row]] = {
        "LEAKY_RELU": Row(emit_node("LeakyRelu"), "float32", wide="float64")
    }

    def check(self) -> None:
        super().check()
        if is_quantized(self.output) and not np.isfinite(self.options.alpha):
            raise OperatorError(f"alpha must be finite for integers, got {self.options.alpha:g}")

    @property
    def slopes(self) -> Slopes | None:
        """The factors of the integer kernel, None if there are none."""
        return compute_slopes(self.input(0), self.output, self.options.alpha)

    @property
    def quantization(self) -> Real:
        return Real(reads=(self.slopes and self.slopes.scale,))

    def emit(self, g: Builder, y: View, *xs: View) -> Value:
        factors = self.slopes if xs[0].plan.reading is Reading.DEQUANTIZED else None
        alpha = factors.alpha if factors else float(self.options.alpha)
        return g.add_with_casts("LeakyRelu", xs[0].dtype, *xs, alpha=alpha)


class Bounded(Elementwise):
    """RELU and other bounds: activation functions that are not fused into another operator.

    `emit` adds no node. `activation` is the operator itself, so the driver applies the bounds like
    the bounds of a fused activation. If input and output have one scale, the driver clamps the
    stored integers.
    """

    rows: ClassVar[Mapping[str, Row]] = dict.fromkeys(
        BOUNDS, Row(as_emit(lambda _, x: x.value), "float32")
    )
    quantization = Integers(equal_scales=True)
    facts = (Fact.ACTIVATION,)

    @property
    def activation(self) -> str:
        return self.op.code

    def emit(self, g: Builder, y: View, *xs: View) -> Value:
        if y.plan.reading is Reading.UNIFORM:
            return apply_limits(g, xs[0].value, *BOUNDS[self.op.code])
        return super().emit(g, y, *xs)

    def check(self) -> None:
        super().check()
        expect_one_scale(self.op)


_MOST_SLOPES = 1024  # of a table, which has 256 bytes for each


class PRelu(Elementwise):
    """PRELU: x where it is not negative, else x * alpha; alpha broadcasts to x.

    LiteRT rounds 8-bit results twice. A table has the kernel's result for each slope and integer.
    It also takes less time than PRelu of real numbers (docs/runtime-faults.md).
    """

    rows: ClassVar[Mapping[str, Row]] = {"PRELU": Row(emit_node("PRelu"), "float32")}
    facts = (Fact.ACTIVATION,)
    arity = 2

    @cached_property
    def table(self) -> Array | None:
        """The kernel's results, a row for each slope; None if there is no table."""
        x, alpha, y = self.input(0), self.input(1), self.output
        if alpha.data is None or alpha.elements > _MOST_SLOPES or not are_narrow(x, alpha, y):
            return None
        source, slopes, target = (t.quantization for t in (x, alpha, y))
        if source is None or slopes is None or target is None or x.dtype is not y.dtype:
            return None
        low, high = find_integer_range(x.dtype)
        numbers = np.arange(low, high + 1) - source.zero_point[0]
        factors = alpha.data.reshape(-1, 1).astype(np.int64) - slopes.zero_point[0]
        scale = source.scale[0] / target.scale[0]
        below = multiply_twice_rounded(
            numbers * factors, source.scale[0] * slopes.scale[0] / target.scale[0]
        )
        results = np.where(numbers < 0, below, multiply_twice_rounded(numbers, scale))
        return np.asarray(np.clip(results + target.zero_point[0], low, high), y.dtype.numpy)

    @property
    def quantization(self) -> Real:
        return Real(tabulates=self.table is not None)

    def emit(self, g: Builder, y: View, *xs: View) -> Value:
        x, alpha = xs
        if self.table is None or x.storage.quantization is None:
            return super().emit(g, y, *xs)
        low, high = find_integer_range(x.dtype)
        rows = np.arange(alpha.tensor.elements).reshape(alpha.tensor.shape).transpose(alpha.order)
        starts = (rows * (high - low + 1) - low).astype(np.int32)
        index = g.Add(g.cast(x, DType.INT32), g.constant(starts, DType.INT32))
        elements = encode_constant(self.table.reshape(-1), y.tensor.dtype, y.storage)
        return look_up(g, g.constant(elements, y.dtype, "table"), x, index)

    def check(self) -> None:
        super().check()
        if self.input(0).sizes != self.output.sizes:
            raise OperatorError(
                f"alpha must broadcast to {list(self.input(0).shape)}, "
                f"got the shape {list(self.input(1).shape)}"
            )

    def find_types(self) -> list[DType]:
        x, alpha = self.input(0), self.input(1)
        if x.dtype is not DType.INT16:
            return super().find_types()
        if alpha.dtype is not DType.INT8:  # the kernel reads the bytes of any type as int8
            raise OperatorError(f"alpha must be int8, got {alpha.dtype.label}")
        return [x.dtype]

"""NORMALIZATION, RMS_NORMALIZATION and GROUP_NORMALIZATION, which passes make, and LRN.

GPU delegates run the first three as custom operators, which no kernel of a processor computes.
"""

from collections.abc import Collection, Sequence
from math import inf, prod

import numpy as np

from tflite2onnx.builder.builder import Builder, Value, View
from tflite2onnx.builder.opsets import find_first_opset
from tflite2onnx.graph import Op, Options
from tflite2onnx.layout import Axes, Frame, axis_names
from tflite2onnx.made_options import NormalizationOptions
from tflite2onnx.op.base import Operator, OperatorError
from tflite2onnx.op.common.checks import check_element_count
from tflite2onnx.op.common.windows import ImageOperator
from tflite2onnx.op.traits import AnySizes, DynamicShape, MadeOperator
from tflite2onnx.tensor import DType, Sizes

_MOST = 1 << 16  # the largest number of elements of a constant scale that the file does not contain
_USUAL = {"num_groups": 32, "epsilon": 1e-6}  # GroupNorm without options
_OUTER = 2  # leading axes over which every runtime's kernel repeats a normalization
_IMAGE = 2  # leading axes of InstanceNormalization: batch and channels


class LayerNorm(AnySizes):
    """custom_call.LayerNorm: (x - mean) / sqrt(variance + epsilon) * scale + bias.

    The mean and the variance are taken over the last axis. The scale and the bias, [C], belong to
    this axis; both may be missing.
    """

    codes = ("custom_call.LayerNorm",)
    operands = "float32 [... n], float32? [n], float32? [n] -> float32 [... n]"
    tflite = "... -> ..."
    writes_zeros = False  # whether a missing bias is a constant of zeros

    def check(self) -> None:
        x = self.input(0)
        if not self._axes or not set(self._axes) <= {*range(x.rank)}:
            raise OperatorError(f"axes must be from 0 to {x.rank - 1}, got {self._axes}")
        _check_epsilon(self)

    @property
    def _axes(self) -> Sequence[int]:
        return (self.input(0).rank - 1,)

    def frames(self) -> Sequence[Frame]:
        names = axis_names(self.input(0).rank)
        reduced, count = {names[axis] for axis in self._axes}, len(self._axes)

        def is_legal(label: Axes) -> bool:
            return label == names or {*label[-count:]} == reduced

        return [Frame({0: names, ~0: names}, names, legal=is_legal)]

    def find_mixed_axes(self, operand: int) -> Collection[int] | None:
        return None if operand else tuple(self._axes)

    def emit(
        self, g: Builder, y: View, x: View, scale: View | None = None, bias: View | None = None
    ) -> Value:
        reduced = sorted(x.axis(axis) for axis in self._axes)
        left = [x.order[i] for i in range(x.rank) if i not in reduced]
        if self._is_layer(g, x, reduced):
            return self._normalize_layer(g, x, reduced[0], scale, bias)
        is_fixed = x.rank - 1 not in x.tensor.symbols and x.tensor.shape[-1] <= _MOST
        if x.rank > _IMAGE and left == [0, x.rank - 1] and x.order[1] == left[1] and is_fixed:
            weights = [_make_vector(g, scale, x, 1), _make_vector(g, bias, x, 0)]
            return g.InstanceNormalization(x, *weights, epsilon=_read_epsilon(self))
        return self._spell_out(g, x, reduced, scale, bias)

    def _is_layer(self, g: Builder, x: View, reduced: list[int]) -> bool:
        """Return whether LayerNormalization computes it: the axes are the last in memory."""
        sizes = x.sizes[reduced[0] :]
        numbers = [size for size in sizes if isinstance(size, int)]
        is_last = reduced == [*range(x.rank - len(reduced), x.rank)]
        small = len(numbers) == len(sizes) and prod(numbers) <= _MOST
        has_opset = g.opset >= find_first_opset("LayerNormalization")
        return has_opset and is_last and small and self._normalizes_channels

    @property
    def _normalizes_channels(self) -> bool:
        """Whether scale and bias are missing, or vary along an axis that is normalized."""
        has_none = all(t is None for t in self.op.inputs[1:])
        return has_none or self.input(0).rank - 1 in self._axes

    def _normalize_layer(
        self, g: Builder, x: View, axis: int, scale: View | None, bias: View | None
    ) -> Value:
        # Some runtimes have a kernel that normalizes all axes but the first one or two, and run
        # several operators for any other normalization (docs/runtime-faults.md).
        while axis > _OUTER and x.sizes[axis - 1] == 1:
            axis -= 1
        shape = x.shape[axis:]
        along = [-1 if axis_in_order == x.rank - 1 else 1 for axis_in_order in x.order[axis:]]

        def spread(view: View | None, default: float) -> Value:
            if view is not None and view.tensor.elements == prod(shape):
                return view.reshape(shape)
            data = np.full(1, default, np.float32) if view is None else view.constant
            whole = data.astype(np.float32).reshape(along)
            return g.constant(np.ascontiguousarray(np.broadcast_to(whole, shape)))

        has_bias = bias is not None or self.writes_zeros
        weights = [spread(scale, 1)] + ([spread(bias, 0)] if has_bias else [])
        epsilon = _read_epsilon(self)
        return g.LayerNormalization(x, *weights, axis=axis - x.rank, epsilon=epsilon)

    def _spell_out(
        self, g: Builder, x: View, reduced: list[int], scale: View | None, bias: View | None
    ) -> Value:
        centred = g.Sub(x, g.reduce("ReduceMean", x, reduced, keepdims=True))
        squares = g.reduce("ReduceMean", g.Mul(centred, centred), reduced, keepdims=True)
        shifted = g.Add(squares, g.scalar(_read_epsilon(self), DType.FLOAT32))
        value = g.Div(centred, g.Sqrt(shifted))
        sizes = [x.tensor.shape[-1] if axis == x.rank - 1 else 1 for axis in x.order]
        return _scale_and_shift(g, value, scale, bias, sizes)


class Normalization(MadeOperator, LayerNorm):
    """NORMALIZATION: `LayerNorm` over several axes."""

    codes = ("NORMALIZATION",)

    @property
    def _axes(self) -> Sequence[int]:
        return self.op.read_made(NormalizationOptions).axes


def _read_epsilon(operator: Operator) -> float:
    if isinstance(operator, MadeOperator):
        return operator.op.read_made(NormalizationOptions).epsilon
    return float(operator.options.epsilon)


def _check_epsilon(operator: Operator) -> None:
    """Raise OperatorError if the epsilon of a file makes the divisor no number."""
    epsilon = _read_epsilon(operator)
    if operator.op.custom and not 0 <= epsilon < inf:
        raise OperatorError(f"epsilon must be at least 0, and finite, got {epsilon:g}")


def _scale_and_shift(
    g: Builder, x: Value, scale: View | None, bias: View | None, sizes: Sequence[int]
) -> Value:
    """Return x times a scale, plus a bias, both in a shape that broadcasts to x."""
    x = x if scale is None else g.Mul(x, scale.reshape(sizes))
    return x if bias is None else g.Add(x, bias.reshape(sizes))


def _make_vector(g: Builder, view: View | None, x: View, default: float) -> Value:
    """Return a scale or a bias, [C]; if it is missing, a constant."""
    if view is not None:
        return view.value
    return g.constant(np.full(x.tensor.shape[-1], default, np.float32))


class RmsNorm(DynamicShape):
    """custom_call.RmsNorm: divide x by sqrt(m + epsilon), and scale it.

    m is the mean of the squares along the last axis, whose size is fixed. The scale, [C], belongs
    to this axis; it may be missing.
    """

    codes = ("custom_call.RmsNorm",)
    matrix_axes = 1
    operands = "float32 [... n], float32? [n] -> float32 [... n]"
    tflite = "... -> ..."

    def check(self) -> None:
        _check_epsilon(self)
        check_element_count(self.input(0).shape[-1])

    def frames(self) -> Sequence[Frame]:
        names = axis_names(self.input(0).rank)
        return [Frame({0: names, ~0: names}, names, legal=lambda label: label[-1] == names[-1])]

    def find_mixed_axes(self, operand: int) -> Collection[int] | None:
        return None if operand else (-1,)

    def emit(self, g: Builder, y: View, x: View, given_scale: View | None = None) -> Value:
        epsilon, scale = _read_epsilon(self), _make_vector(g, given_scale, x, 1)
        if g.opset >= find_first_opset("RMSNormalization"):
            return g.RMSNormalization(x, scale, axis=-1, epsilon=epsilon)
        # Runtimes fuse these nodes into one.
        squares = g.Pow(x, g.scalar(2, DType.FLOAT32))
        mean = g.reduce("ReduceMean", squares, [x.rank - 1], keepdims=True)
        root = g.Sqrt(g.Add(mean, g.scalar(epsilon, DType.FLOAT32)))
        return g.Mul(g.Div(x, root), scale)


class RmsNormalization(MadeOperator, RmsNorm):
    """RMS_NORMALIZATION: `RmsNorm` that a pass finds."""

    codes = ("RMS_NORMALIZATION",)


class GroupNorm(ImageOperator):
    """custom_call.GroupNorm: NORMALIZATION of groups of an image's channels.

    The mean and the variance are taken over a group of channels and all pixels. The option
    `num_groups` is the number of groups. The scale and the bias, [C], may be missing. Without
    options there are 32 groups, and epsilon is 1e-6.
    """

    codes = ("custom_call.GroupNorm",)
    keeps_shape = True
    dynamic_axes = "NHW"
    operands = "float32 [... channels], float32? [channels], float32? [channels] -> float32"

    def __init__(self, op: Op) -> None:
        super().__init__(op)
        self.options = op.options or Options(_USUAL)

    def check(self) -> None:
        groups, channels = self._groups, self.sizes(0)["C"]
        if groups < 1 or channels % groups:
            raise OperatorError(f"num_groups must divide {channels} channels, got {groups}")
        _check_epsilon(self)

    @property
    def _groups(self) -> int:
        return int(self.options.num_groups)

    def emit(
        self, g: Builder, y: View, x: View, scale: View | None = None, bias: View | None = None
    ) -> Value:
        # Runtimes have no kernel for GroupNormalization: they run 29 nodes instead.
        groups = self._groups
        is_fixed = x.tensor.symbols.keys() <= {0}
        rows: Sizes = (x.sizes[0], groups, prod(x.shape[1:]) // groups if is_fixed else -1)
        one, zero = (g.constant(np.full(groups, n, np.float32)) for n in (1, 0))
        epsilon = _read_epsilon(self)
        instances = g.InstanceNormalization(g.reshape(x, rows), one, zero, epsilon=epsilon)
        value = g.reshape(instances, x.sizes, x)
        return _scale_and_shift(g, value, scale, bias, (x.size("C"), 1, 1))


class GroupNormalization(MadeOperator, GroupNorm):
    """GROUP_NORMALIZATION: `GroupNorm` that a pass finds."""

    codes = ("GROUP_NORMALIZATION",)

    @property
    def _groups(self) -> int:
        return self.op.read_made(NormalizationOptions).num_groups


class LocalResponseNormalization(ImageOperator):
    """x / (bias + alpha * s) ** beta; s sums the squares of channels up to `radius` away."""

    codes = ("LOCAL_RESPONSE_NORMALIZATION",)
    dynamic_axes = "NHWC"
    operands = "float32 [...] -> float32 [...]"

    def check(self) -> None:
        self.sizes(0)
        o = self.options
        if o.radius < 0:
            raise OperatorError(f"radius must not be negative, got {o.radius}")
        # Runtimes do not load an LRN node with a negative alpha or beta.
        if min(o.alpha, o.beta) < 0:
            raise OperatorError(
                f"alpha and beta must not be negative, got {o.alpha:g} and {o.beta:g}"
            )

    def emit(self, g: Builder, y: View, x: View) -> Value:
        o = self.options
        if min(o.alpha, o.beta) == 0:  # runtimes reject 0, too; the divisor is a constant
            factor = np.float32(o.bias) ** -np.float32(o.beta)
            return g.Mul(x, g.scalar(float(factor), DType.FLOAT32))
        # A larger radius has the same result: it reaches all channels.
        is_known = 3 not in x.tensor.symbols
        size = 2 * (min(int(o.radius), x.size("C")) if is_known else int(o.radius)) + 1
        # ONNX's LRN divides alpha by the size.
        return g.LRN(x, size=size, alpha=o.alpha * size, beta=float(o.beta), bias=float(o.bias))

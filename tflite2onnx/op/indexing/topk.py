"""TOPK_V2, ARG_MAX and ARG_MIN: the largest elements and their indices.

The first of equal elements is selected, in the kernels and in ONNX. If some elements are NaN, the
kernels and ONNX have different results.
"""

from collections.abc import Collection, Sequence
from functools import cached_property
from typing import ClassVar

from tflite2onnx.layout import Frame, axis_names
from tflite2onnx.op.base import Builder, OperatorError, OutputShape, Unknown, Value, View
from tflite2onnx.op.common.checks import axis_of, drop_axis, expect_type_option, integer
from tflite2onnx.op.common.leading_axis import prepend_axis
from tflite2onnx.op.common.runtime_shapes import emit_sizes, reshape_to, resolve_axis, split_shape
from tflite2onnx.op.traits import Movement
from tflite2onnx.tensor import DType
from tflite2onnx.utils.dimension import is_known


class TopK(Movement):
    """TOPK_V2: the k largest elements of the last axis in descending order, and their indices."""

    codes = ("TOPK_V2",)
    shape_inputs = (1,)
    operands = "T:float32|int8|int16|int32|int64|uint8+float64, int32~ [1*] -> T, int16|int32"
    tflite = "... -> ..."
    add_leading_axis = prepend_axis()

    @cached_property
    def _k(self) -> int:
        x, k = self.input(0), integer(self, 1)
        if not x.rank or (is_known(k) and is_known(x.shape[-1]) and k > x.shape[-1]):
            raise OperatorError(
                f"k must be at most the last size of {x.name}, {list(x.shape)}, got {k}"
            )
        return max(k, 0) if is_known(k) else k  # the kernel reads a negative k as 0

    def infer_outputs(self) -> Sequence[OutputShape]:
        size = Unknown() if self.has_data_dependent_shape else self._k
        return [(*self.input(0).shape[:-1], size)] * 2

    def find_mixed_axes(self, operand: int) -> Collection[int] | None:
        return None if operand else (-1,)

    def emit(self, g: Builder, ys: tuple[View, View], x: View, k: View) -> tuple[Value, Value]:
        dtype, computed = g.compute_type("TopK", x.dtype), self.has_data_dependent_shape
        source = g.recast(x, x.dtype, dtype)
        count = g.cast(k.reshape((1,)), DType.INT64) if computed else g.ints([self._k])
        values, indices = g.node_outputs("TopK", 2, source, count, axis=x.axis(-1))
        return g.recast(values, dtype, x.dtype), g.recast(indices, DType.INT64, ys[1].dtype)


class Arg(Movement):
    """ARG_MAX and ARG_MIN: the index of the largest or smallest element of an axis."""

    rows: ClassVar[dict[str, str]] = {"ARG_MAX": "ArgMax", "ARG_MIN": "ArgMin"}
    shape_inputs = (1,)
    operands = "float32|bool|int8|int32|uint8+float64|int64, index~ [1*] -> index"
    add_leading_axis = prepend_axis(axes=1)

    @cached_property
    def _axis(self) -> int:
        return axis_of(integer(self, 1), self.input(0).rank)

    def infer_outputs(self) -> Sequence[OutputShape]:
        shape = self.input(0).shape
        if self.has_data_dependent_shape:
            return [[Unknown() for _ in shape[1:]]]
        return [drop_axis(shape, self._axis)]

    def check(self) -> None:
        expect_type_option(self.output, self.options.get("output_type"))
        if not self.has_data_dependent_shape and not self.input(0).shape[self._axis]:
            raise OperatorError(f"axis {self._axis} of {self.input(0).name} must not be empty")

    def find_mixed_axes(self, operand: int) -> Collection[int] | None:
        return None if operand or self.has_data_dependent_shape else (self._axis,)

    def frames(self) -> Sequence[Frame]:
        if self.has_data_dependent_shape:
            return []
        names = axis_names(self.input(0).rank)
        return [Frame({0: names, ~0: drop_axis(names, self._axis)}, names)]

    def emit(self, g: Builder, y: View, x: View, axis: View) -> Value:
        node = self.row
        source = g.recast(x, x.dtype, g.compute_type(node, x.dtype))
        if self.has_data_dependent_shape:
            indices = self._find_along_dynamic_axis(g, x, source, axis)
        else:
            indices = g.node(node, source, axis=x.axis(self._axis), keepdims=0)
        return g.recast(indices, DType.INT64, y.dtype)

    def _find_along_dynamic_axis(self, g: Builder, x: View, source: Value, axis: View) -> Value:
        parts = split_shape(g, emit_sizes(g, x), resolve_axis(g, axis, x.rank))
        merged = reshape_to(g, source, parts.merge_sides(g))
        indices = g.node(self.row, merged, axis=1, keepdims=0)
        return reshape_to(g, indices, parts.before, parts.after)

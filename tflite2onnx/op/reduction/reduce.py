"""Reductions: sums, means, products, minima and maxima over some axes."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import prod
from typing import Any, ClassVar, NamedTuple

import numpy as np

from tflite2onnx.builder.builder import Builder, NeedsReshape, Value, View
from tflite2onnx.graph import Op
from tflite2onnx.layout import Frame, axis_names
from tflite2onnx.op.base import OperatorError, OutputShape, Unknown
from tflite2onnx.op.common.checks import axis_of, check_element_count, expect_type, ints, list_types
from tflite2onnx.op.common.leading_axis import prepend_axis
from tflite2onnx.op.facts import Fact
from tflite2onnx.op.traits import DynamicShape, Foldable, IndexesAxes
from tflite2onnx.quantization.declarations import Declaration, Integers, Real
from tflite2onnx.quantization.storage import is_quantized
from tflite2onnx.tensor import Array, DType, Shape
from tflite2onnx.utils.dimension import is_known
from tflite2onnx.utils.suggestions import join_alternatives


class ReductionRow(NamedTuple):
    """A reduction.

    Attributes:
        node: the ONNX node.
        types: the element types that LiteRT's kernel accepts without quantization.
        wide: the element types that only TensorFlow's kernel accepts.
        numpy: a function of (array, axis=, keepdims=) with the results of the kernel, up to the
            order of summation of floats.
    """

    node: str
    types: str
    numpy: Callable[..., Array]
    wide: str = "float64"


_ORDERED = "float32 int8 uint8 int16 int32 int64"
_LARGEST_QUOTIENT = 256  # of the scales of a mean that is pooled
_BLOCK = 16  # channels in the largest block of kernels
_MANY = 1 << 14  # elements of an image; a larger image saves more time than another node takes


def _compute_mean(x: Array, **axes: Any) -> Array:  # noqa: ANN401 - axis and keepdims, of numpy
    """Return means; means of integers are truncated. Means of no elements are 0 or NaN."""
    total = x.sum(dtype=np.float32 if x.dtype.kind == "f" else np.int64, **axes)
    count = x.size // max(total.size, 1)
    if x.dtype.kind == "f":
        with np.errstate(invalid="ignore"):
            return np.asarray(total / np.float32(count))
    rounded = total // max(count, 1)
    return np.asarray(rounded + ((rounded < 0) & (rounded * count != total)), x.dtype)


def _find_limits(x: Array) -> Any:  # noqa: ANN401 - numpy's finfo or iinfo
    return np.finfo(x.dtype) if x.dtype.kind == "f" else np.iinfo(x.dtype)


class Reduction(DynamicShape, Foldable, IndexesAxes):
    """A reduction over the axes that the second input lists; an empty list reduces nothing."""

    rows: ClassVar[Mapping[str, ReductionRow]] = {
        "MEAN": ReductionRow("ReduceMean", "float32 int32 int64", _compute_mean),
        "REDUCE_ALL": ReductionRow("ReduceMin", "bool", lambda x, **axes: x.all(**axes)),
        "REDUCE_ANY": ReductionRow("ReduceMax", "bool", lambda x, **axes: x.any(**axes)),
        "REDUCE_MAX": ReductionRow(
            "ReduceMax", _ORDERED, lambda x, **axes: x.max(initial=_find_limits(x).min, **axes)
        ),
        "REDUCE_MIN": ReductionRow(
            "ReduceMin", _ORDERED, lambda x, **axes: x.min(initial=_find_limits(x).max, **axes)
        ),
        "REDUCE_PROD": ReductionRow(
            "ReduceProd", _ORDERED, lambda x, **axes: x.prod(dtype=x.dtype, **axes)
        ),
        "SUM": ReductionRow(
            "ReduceSum", "float32 int32 int64", lambda x, **axes: x.sum(dtype=x.dtype, **axes)
        ),
    }
    evaluates_dimensions = True
    # The kernel rounds each product to the scale of the output.
    steps: ClassVar[Mapping[str, int]] = {"REDUCE_PROD int8": 10, "REDUCE_PROD int16": 10}
    shape_inputs = (1,)
    add_leading_axis = prepend_axis(axes=1)
    facts = (Fact.REDUCES,)

    def infer_outputs(self) -> Sequence[OutputShape]:
        x = self.input(0)
        if self.has_data_dependent_shape:
            rank = x.rank if self.options.keep_dims else self._infer_rank()
            return [[Unknown() for _ in range(rank)]]
        return [self._reduce_shape(x.shape)]

    def _infer_rank(self) -> int:
        """Return the rank of the output if axes are computed, and reduced axes are dropped.

        An axis may be listed twice. The file then declares the rank; if the file does not know it,
        each axis is taken to be listed once.
        """
        rank, count = self.input(0).rank, prod(self.input(1).shape)
        if not is_known(count):
            if not self.output.has_rank:
                raise OperatorError(f"the number of axes of {self.output.name} must be known")
            return self.output.rank
        low, high = rank - min(rank, count), rank - min(rank, count, 1)
        if not self.output.has_rank:
            return low
        if low < high and not low <= self.output.rank <= high:
            raise OperatorError(
                f"{self.output.name} must have {low} to {high} axes, got {self.output.rank}"
            )
        return high if low == high else self.output.rank

    def check(self) -> None:
        x = self.input(0)
        is_real = is_quantized(x) and self.row.types != "bool"
        types = list_types(self, self.row.types, self.row.wide)
        if not is_real and x.dtype.label not in types:
            raise OperatorError(f"{x.name} must be {join_alternatives(types)}, got {x.dtype.label}")
        expect_type(self.output, (x.dtype,))
        is_stored = not is_quantized(x) or isinstance(self.quantization, Integers)
        is_product = x.dtype.is_integer and is_stored and self.op.code == "REDUCE_PROD"
        if is_product and self.has_data_dependent_shape:
            raise OperatorError(
                f"{self.input(1).name}, the axes, must be constant for products of {x.dtype.label}"
            )

    def frames(self) -> Sequence[Frame]:
        if self.has_data_dependent_shape:
            return []
        names = axis_names(self.input(0).rank)
        reduced = names if self.options.keep_dims else self._drop_axes(names)
        return [Frame({0: names, ~0: reduced}, names)]

    def find_mixed_axes(self, operand: int) -> Collection[int] | None:
        if operand or self.has_data_dependent_shape:
            return None
        # An axis of size 1 is reduced beside others, as in a normalization of one sample: nothing
        # is added. A reduction over such axes alone is one over samples.
        longer = [axis for axis in self._axes if self.input(0).shape[axis] != 1]
        return longer or self._axes

    def keep_axis(self, axis: int) -> Op | None:
        if axis not in self._axes:
            return None
        axes, y = self.input(1), self.output
        others = [other for other in self._axes if other != axis]
        listed = replace(axes, shape=(len(others),), data=np.array(others, axes.dtype.numpy))
        if not self.options.keep_dims:
            place = axis - sum(other < axis for other in others)
            y = replace(y, shape=(*y.shape[:place], 1, *y.shape[place:]))
        return replace(self.op, inputs=(self.input(0), listed), outputs=(y,))

    def supports_dynamic_axis(self, operand: int, axis: int) -> bool:
        # The nodes of an integer mean or product depend on the number of reduced elements.
        x = self.input(0)
        if self.has_data_dependent_shape:
            return True
        uses_count = self.op.code == "REDUCE_PROD" or (
            self.op.code == "MEAN" and not is_quantized(x)
        )
        is_counted = x.dtype.is_integer and uses_count and operand >= 0 and axis in self._axes
        return 0 not in x.sizes and not is_counted

    @property
    def quantization(self) -> Declaration:
        if self.op.code == "REDUCE_PROD":  # the kernel copies the integers if it multiplies nothing
            copies = self.input(0).elements == self.output.elements
            return Integers() if copies else Real()
        selects = self.op.code in ("REDUCE_MAX", "REDUCE_MIN")
        return Integers(equal_scales=True) if selects else Real()

    @property
    def allowed_steps(self) -> int:
        """The number of steps by which a mean may differ from LiteRT's, which adds integers.

        Runtimes add float32 numbers. If large numbers are nearly 0 on average, the rounding errors
        of the addition, of 2^-23 of the largest number, are several steps of the output's scale.
        """
        x, y = (t.quantization for t in (self.input(0), self.output))
        if self.op.code != "MEAN" or x is None or y is None:
            return super().allowed_steps
        bits = np.iinfo(self.input(0).dtype.numpy).bits
        return 1 + int(x.scale.max() / y.scale.min() * 2.0 ** (bits - 24))

    def emit(self, g: Builder, y: View, x: View, axes_input: View) -> Value | NeedsReshape:
        if self.has_data_dependent_shape:
            return self._reduce_dynamic_axes(g, x, axes_input)
        axes, keepdims = [x.axis(axis) for axis in self._axes], bool(self.options.keep_dims)
        # Runtimes call a loop for each element of the result: of 16,384 single elements it takes 27
        # us more than a Reshape (AMD EPYC, family 25, model 17, one thread).
        if all(x.sizes[axis] == 1 for axis in axes) and (keepdims or len(x.tensor.symbols) < 2):
            return NeedsReshape(x.value) if axes and not keepdims else x.value
        if 0 in x.sizes:  # runtimes fail for a mean, minimum or maximum of no elements
            check_element_count(y.tensor.elements)
            return g.constant(self._reduce_empty(x).transpose(y.order), y.dtype)
        if x.dtype.is_integer and self.op.code in _INTEGERS:
            return _INTEGERS[self.op.code](self, g, y, x, axes)
        if self._is_pooling(x, sorted(axes)):
            pooled = g.GlobalAveragePool(x)
            if self.op.code == "SUM":
                pooled = g.Mul(pooled, g.scalar(prod(x.shape[axis] for axis in axes), x.dtype))
            return pooled if keepdims else NeedsReshape(pooled)
        reduce = partial(g.reduce, self.row.node, axes=axes, keepdims=keepdims)
        return g.with_compute_type(self.row.node, x.dtype, reduce, x)

    def _reduce_dynamic_axes(self, g: Builder, x: View, axes: View) -> Value:
        indices, node = g.reshape(g.as_int64_list(axes), [-1]), self.row.node
        keepdims, averages = bool(self.options.keep_dims), self.op.code == "MEAN"
        if x.dtype.is_integer and averages:
            node = "ReduceSum"
        reduce = partial(g.reduce, node, axes=indices, keepdims=keepdims)
        if node != "ReduceSum" or (x.dtype is not DType.INT64 and not averages):
            return g.with_compute_type(node, x.dtype, reduce, x)
        total = _sum_int64(g, g.recast(x, x.dtype, DType.INT64), reduce)
        if averages:
            total = g.Div(total, g.Div(g.Size(x), g.Size(total)))
        return g.recast(total, DType.INT64, x.dtype)

    def evaluate(self, *inputs: Array) -> Sequence[Array] | None:
        # The sum of floats depends on the sequence of the additions. A damaged file may have
        # complex numbers, which `check` refuses.
        kind = inputs[0].dtype.kind
        exact = kind not in "fc" or (kind == "f" and self.row.node in ("ReduceMax", "ReduceMin"))
        return [self._reduce_constant(inputs[0])] if exact else None

    @property
    def _axes(self) -> list[int]:
        rank = self.input(0).rank
        return sorted({axis_of(number, rank) for number in ints(self, 1)} if rank else ())

    def _drop_axes(self, items: Sequence[Any]) -> tuple[Any, ...]:
        return tuple(item for axis, item in enumerate(items) if axis not in self._axes)

    def _reduce_shape(self, shape: Shape) -> Shape:
        if not self.options.keep_dims:
            return self._drop_axes(shape)
        return tuple(1 if axis in self._axes else size for axis, size in enumerate(shape))

    def _reduce_constant(self, x: Array) -> Array:
        if not self._axes:
            return x
        axes = {"axis": tuple(self._axes), "keepdims": bool(self.options.keep_dims)}
        return np.asarray(self.row.numpy(x, **axes)).astype(x.dtype, copy=False)

    def _reduce_empty(self, x: View) -> Array:
        """Return the result for an input without elements."""
        result = self._reduce_constant(np.zeros(x.tensor.shape, x.dtype.numpy))
        target = self.output.quantization
        if self.op.code == "MEAN" and is_quantized(x.tensor) and target is not None:
            # The kernel leaves the stored integers of the output at 0.
            return np.full_like(result, -target.zero_point[0] * target.scale[0])
        return result

    def _is_pooling(self, x: View, axes: Sequence[int]) -> bool:
        """Return whether GlobalAveragePool is faster: it reduces all spatial axes.

        For floats, its kernels are faster than ReduceMean only in the blocked layout of
        convolutions, which requires a multiple of 16 channels: 7x7 pixels of 1,280 channels take 5
        us less, and 112x112 pixels of 64 channels 87 of 148, with the Reshape that drops the axes.
        """
        if self.op.code not in ("MEAN", "SUM") or x.rank < 3 or axes != list(range(2, x.rank)):
            return False
        if is_quantized(x.tensor):
            return self.op.code == "MEAN" and self._has_pooling_scale()
        in_blocks = x.rank == 4 and 3 not in x.tensor.symbols and x.tensor.shape[3] % _BLOCK == 0
        averages, is_large = self.op.code == "MEAN", x.tensor.elements >= _MANY
        if not averages and x.tensor.symbols:  # the sum is the mean times the number of pixels
            return False
        gains = is_large or (averages and bool(self.options.keep_dims))
        return gains and in_blocks and x.dtype is DType.FLOAT32

    def _has_pooling_scale(self) -> bool:
        """Return whether the quotient of the scales is one that an integer kernel takes.

        Runtimes refuse the quotient of the input's scale and the output's if it is 256 or more for
        each pixel: a mean of large numbers that are nearly 0 on average has such scales.
        """
        scales = [t.quantization for t in (self.input(0), self.output)]
        given, wanted = (1.0 if each is None else float(each.scale[0]) for each in scales)
        return given < _LARGEST_QUOTIENT * wanted

    def _sum_integers(self, g: Builder, x: View, axes: Sequence[int]) -> Value:
        add = partial(g.reduce, "ReduceSum", axes=axes, keepdims=bool(self.options.keep_dims))
        if x.dtype is DType.INT64:
            return _sum_int64(g, x, add)
        return add(g.cast(x, DType.INT64))

    def sum_integers(self, g: Builder, y: View, x: View, axes: Sequence[int]) -> Value:
        """Return the sum, which wraps around."""
        return g.recast(self._sum_integers(g, x, axes), DType.INT64, x.dtype)

    def average_integers(self, g: Builder, y: View, x: View, axes: Sequence[int]) -> Value:
        """Return the kernel's mean: a 64-bit sum, then a division that truncates."""
        count = prod(x.shape[axis] for axis in axes)
        return g.recast(g.Div(self._sum_integers(g, x, axes), count), DType.INT64, x.dtype)

    def multiply_integers(self, g: Builder, y: View, x: View, axes: Sequence[int]) -> Value:
        """Return the product: the halves of an axis are multiplied until one element is left.

        The product wraps around as in the kernel. ReduceProd multiplies in float64 in runtimes, so
        it neither wraps around nor keeps all bits of int64.
        """
        dtype = x.dtype if x.dtype is DType.INT64 else DType.INT32
        value = x.value if x.dtype is dtype else g.cast(x, dtype)
        for axis in axes:
            size = x.shape[axis]
            while size > 1:
                half, odd = divmod(size, 2)
                sizes = [half, half, 1][: 2 + odd]
                one, other, *rest = g.node_outputs("Split", 2 + odd, value, sizes, axis=axis)
                value = g.Mul(one, other)
                value = g.Concat(value, *rest, axis=axis) if rest else value
                size = half + odd
        value = value if self.options.keep_dims else g.reshape(value, y.sizes)
        return value if x.dtype is dtype else g.cast(value, x.dtype)


# Operators whose kernels for integers differ from their ONNX nodes.
_INTEGERS = {
    "MEAN": Reduction.average_integers,
    "REDUCE_PROD": Reduction.multiply_integers,
    "SUM": Reduction.sum_integers,
}


def _sum_int64(g: Builder, x: View | Value, add: Callable[[Value], Value]) -> Value:
    """Return sums of int64; the upper and the lower 32 bits are added separately.

    Runtimes add int64 in float64, which has 53 bits.
    """
    word = 1 << 32
    low = g.Mod(x, word)
    high = g.Div(g.Sub(x, low), word)
    return g.Add(g.Mul(add(high), word), add(low))

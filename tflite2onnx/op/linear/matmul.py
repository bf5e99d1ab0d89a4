"""Matrix products: FULLY_CONNECTED and BATCH_MATMUL."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import prod

import numpy as np

from tflite2onnx.builder.builder import Builder, NeedsReshape, Value, View
from tflite2onnx.layout import Axes, Frame, axis_names
from tflite2onnx.made_options import DenseOptions
from tflite2onnx.op.base import OperatorError, OutputShape
from tflite2onnx.op.common.checks import (
    expect_real,
    expect_symmetric,
    expect_type,
    expect_weights,
    find_features,
)
from tflite2onnx.op.common.hybrid import (
    is_hybrid,
    multiply_rows,
    quantize_asymmetric,
    quantize_symmetric,
)
from tflite2onnx.op.elementwise.activation import UNBOUNDED, apply_unbounded_activation
from tflite2onnx.op.traits import (
    AnySizes,
    Broadcasts,
    DynamicShape,
    FlattensRows,
    MisreadInputs,
    ReshapesInputs,
)
from tflite2onnx.quantization.declarations import Product, Real
from tflite2onnx.quantization.rules import Reading, find_bias_storage, quantizes_data
from tflite2onnx.quantization.storage import (
    AS_NUMBERS,
    BOUNDS,
    decode_constant,
    find_integer_range,
    is_quantized,
)
from tflite2onnx.tensor import DType, Quantization, Shape, Tensor, name_axis
from tflite2onnx.utils.dimension import (
    depends_on_inputs,
    describe_unequal,
    infer_product,
    is_known,
    require_equal,
    require_number,
)

_MATRIX = 2  # axes
_IMAGE = 4
_BIAS = 2  # The index of the bias among the inputs.
# The types of weights that XNNPACK multiplies by float data. The number of features must be a
# multiple of the number beside the type, so that each row fills whole bytes.
_MULTIPLES = {DType.INT8: 1, DType.INT4: 2, DType.INT2: 4}


class FullyConnected(DynamicShape, FlattensRows, ReshapesInputs):
    """FULLY_CONNECTED: x times the transpose of the weights, plus a bias.

    The weights are [out, features]. The features of x are its last axes: the fewest axes whose
    sizes multiply to `features`. If the features are several axes and the weights are constant,
    `make_canonical` has given the weights the same axes. The axes may then have any order, and the
    weights follow it.

    The output is [batch, out], or has the axes of x with the last axis replaced (`keep_num_dims`).

    There is one method for each ONNX form: Gemm for matrices and for quantized data; Conv, with a
    1x1 kernel, for images in channels-first order; MatMul for all other data. Hybrid weights are
    stored as [features, out]: runtimes multiply by stored integers if DequantizeLinear and MatMul
    read them. With Gemm they would dequantize the integers in each run. Data that LiteRT quantizes
    at run time are rows of a matrix.
    """

    codes = ("FULLY_CONNECTED",)
    quantization = Product(0, 1, 2, hybrid="rows")

    def infer_outputs(self) -> Sequence[OutputShape]:
        x, w = self.input(0), self.input(1)
        if self.options.keep_num_dims and w.rank == _MATRIX:
            require_number(x.shape[-1], w.shape[1], f"{x.name} must have {w.shape[1]} features")
        if self.options.keep_num_dims and w.rank == _MATRIX and x.shape[-1:] == w.shape[1:]:
            batch = x.shape[:-1]
        else:
            rest = x.elements % self._features
            if x.rank == _MATRIX:
                found = describe_unequal(x.shape, x.shape[1], self._features)
                reason = f"{x.name} must have {self._features} features, got {found}"
                require_number(x.shape[1], self._features, reason)
            found = describe_unequal(x.shape, rest, 0)
            if is_known(x.elements) or depends_on_inputs(x.elements):  # else the kernel compares
                message = f"{x.name} must be rows of {self._features} elements, got {found}"
                require_equal(rest, 0, message)
            batch = (x.elements // self._features,)
        return [(*batch, w.shape[0])]

    def check(self) -> None:
        if (kind := self.options.get("weights_format", "DEFAULT")) != "DEFAULT":
            raise OperatorError(f"weights must have the format DEFAULT, got {kind}")
        x, w = self.input(0), self.input(1)
        bias = self.op.inputs[_BIAS] if len(self.op.inputs) > _BIAS else None
        expect_real(x, w, self.output)
        expect_weights(x, w)
        if x.dtype is not DType.FLOAT32:
            expect_type(self.output, (x.dtype, DType.INT16))
        if w.quantization is not None and w.quantization.per_axis:
            expect_symmetric(w)
        if bias is not None and find_bias_storage(x, w, bias) is None:
            expect_real(bias)
        if (
            w.rank < _MATRIX
            or 0 in w.shape
            or x.elements % self._features
            or (w.rank > _MATRIX and x.shape[1 - w.rank :] != w.shape[1:])
        ):
            raise OperatorError(
                "x must be rows of as many features as the weights have,"
                f" got x {list(x.shape)} and weights {list(w.shape)}"
            )
        if bias is not None and bias.elements != w.shape[0]:
            raise OperatorError(
                f"the bias must have {w.shape[0]} elements, as many as the weights have rows,"
                f" got {bias.elements}"
            )

    def broadcast_shapes(self) -> Sequence[Shape | None]:
        bias = self.input(1).shape[:1]  # the file may declare another shape for the bias
        return [bias if i == _BIAS else None for i in range(len(self.op.inputs))]

    def frames(self) -> Sequence[Frame]:
        x, w, y = self.input(0), self.input(1), self.output
        inner = axis_names(w.rank - 1)
        if y.rank != _MATRIX:
            batch = tuple(f"N{i}" for i in range(y.rank - 1))
            slots = {0: (*batch, *inner), ~0: (*batch, "O")}
            last = (*inner, "O")
            if w.data is None:
                slots[1] = ("O", *inner)
            fits = partial(_is_product, last=last, places=self._find_places(y.rank))
            return [Frame(slots, (*batch, *last), legal=fits)]
        if w.rank == _MATRIX:
            inner *= x.rank - find_features(x.shape, self._features)
        batch = ("N",) * (x.rank - len(inner))
        slots = {0: (*batch, *inner), 1: ("O", *axis_names(w.rank - 1)), ~0: ("N", "O")}
        if self.is_hybrid:
            names = ("N", *axis_names(w.rank - 1), "O")
            return [Frame(slots, names, legal=_multiplies_rows_by_columns)]
        names = ("N", "O", *axis_names(w.rank - 1))
        is_plain = slots[0] == ("N", "0")
        return [Frame(slots, names, legal=_has_rows_first if is_plain else _has_rows_leading)]

    def _find_places(self, rank: int) -> Collection[int]:
        """Return the positions in an image's label that the features may have, besides the last."""
        if rank != _IMAGE or self.input(1).data is None or self.is_hybrid:
            return ()
        is_plain = not self.output.symbols and not is_quantized(self.input(0))
        return range(rank) if is_plain else (1,)

    def supports_dynamic_axis(self, operand: int, axis: int) -> bool:
        if self._multiplies_computed:
            return True
        batch = self.frames()[0].slots.get(operand, ())[axis : axis + 1]
        # Rows with symmetric quantization have constant zero points, so the number of rows must be
        # static.
        is_fixed = quantizes_data(self) and not self._has_zero_points
        return batch[:1] in {("N",), (f"N{axis}",)} and not is_fixed

    @property
    def _multiplies_computed(self) -> bool:
        """Whether both operands are computed matrices of floats, so that Gemm takes any sizes."""
        x, w = self.input(0), self.input(1)
        is_float = x.dtype is w.dtype is DType.FLOAT32
        return is_float and w.data is None and x.rank == w.rank == self.output.rank == _MATRIX

    def find_mixed_axes(self, operand: int) -> Collection[int] | None:
        return range(1 - self.input(1).rank, 0) if operand == 0 else None

    @property
    def row_size(self) -> int | None:
        x, w = self.input(0), self.input(1)
        is_plain = self.options.keep_num_dims and x.shape[-1:] == w.shape[1:]
        is_matrix = x.rank == _MATRIX or w.rank > _MATRIX
        return None if is_plain or is_matrix else self._features

    def emit(
        self, g: Builder, y: View, x: View, w: View, b: View | None = None
    ) -> Value | NeedsReshape:
        if y.rank == _IMAGE and y.order[-1] != y.rank - 1:
            return self.emit_conv(g, y, x, w, b)
        if x.plan.reading is Reading.DYNAMIC:
            return self._emit_rows(g, y, x, w, b)
        # Runtimes fuse a quantized product with a bias only as Gemm.
        if is_quantized(x.tensor) or (y.rank == _MATRIX and not self.is_hybrid):
            return self.emit_gemm(g, y, x, w, b)
        return self.multiply_floats(g, y, x, w, b)

    def multiply_floats(
        self, g: Builder, y: View, x: View, w: View, b: View | None
    ) -> Value | NeedsReshape:
        """Return the product of float x, which is no matrix, and weights."""
        return self._emit_matmul(g, y, x, w, b)

    def emit_conv(
        self, g: Builder, y: View, x: View, w: View, b: View | None
    ) -> Value | NeedsReshape:
        """Return an image whose channels are not last; axes before the channels are the batch."""
        channel = y.order.index(y.rank - 1)
        filters = w.reshape((*w.shape, 1, 1))
        if channel == 1:
            return g.Conv(x, filters, b)
        before, after = prod(x.shape[:channel]), x.shape[channel + 1 :]
        pixels = (prod(after), 1)
        product = g.Conv(x.reshape((before, x.shape[channel], *pixels)), filters, b)
        return NeedsReshape(g.annotate(product, y.dtype, (before, y.shape[channel], *pixels)))

    def emit_gemm(
        self, g: Builder, y: View, x: View, w: View, b: View | None
    ) -> Value | NeedsReshape:
        """Return the product of x and w as matrices, in the orders in which they are stored."""
        swapped = (1, 0)
        flat = (0, 1) if self._multiplies_computed else ()
        if x.tensor.dtype is DType.INT16 and w.tensor.data is not None and w.order == swapped:
            w = w.with_order((0, 1))  # `_multiply_16_bits` gives the reason
        rows, features, out = count_rows(y), self._features, w.tensor.shape[0]
        product = g.Gemm(
            x.value if x.order in (swapped, flat) else x.reshape((rows, features)),
            w.value if w.order in (swapped, flat) else w.reshape((out, features)),
            b,
            transA=1 if x.order == swapped else None,
            transB=None if w.order == swapped else 1,
        )
        if y.rank == _MATRIX:
            return product
        return NeedsReshape(g.annotate(product, y.dtype, (rows, out)), like=x)

    def _emit_matmul(self, g: Builder, y: View, x: View, w: View, b: View | None) -> Value:
        """Return the product of float x and weights in columns, [features, out]."""
        if y.rank == _MATRIX:
            features, out = self._features, w.tensor.shape[0]
            product = g.MatMul(x.reshape((count_rows(y), features)), w.reshape((features, out)))
        else:
            product = g.MatMul(x, w.with_order((1, 0)))
        return self.add_bias(g, product, b)

    def _emit_rows(
        self, g: Builder, y: View, x: View, w: View, b: View | None
    ) -> Value | NeedsReshape:
        """Return the product of rows that are quantized at run time."""
        features, out, count = self._features, w.tensor.shape[0], count_rows(y)
        has_bias = b is not None or self.activation in BOUNDS
        keeps = count == 1 and not has_bias and keeps_axes(x, y)
        matrix = x.shape if keeps else (count, features)
        rows = g.annotate(x.reshape(matrix), DType.FLOAT32, matrix)
        if self._has_zero_points:
            positive = self.op.read_made(DenseOptions).data_are_positive
            quantized = quantize_asymmetric(g, rows, _MATRIX, is_one=count == 1, positive=positive)
        else:
            quantized = quantize_symmetric(g, rows, (x.tensor.elements // features, features))
        # The planner chooses no order for the weights if the output keeps the axes of x.
        columns = w.with_order(w.order if w.order[-1] == 0 else (1, 0)).reshape((features, out))
        bias = None if b is None else b.value
        if bias is None and count == 1 and self.activation in BOUNDS:
            # Runtimes fuse no integer MatMul that is directly before Relu or Clip: an Add of zeros
            # separates them.
            bias = g.constant(np.zeros(out, np.float32))
        product = multiply_rows(g, quantized, w, columns, bias, is_matrix=y.rank == _MATRIX)
        product = apply_unbounded_activation(g, self.activation, product)
        return product if y.rank == _MATRIX or keeps else NeedsReshape(product, like=x)

    @property
    def _has_zero_points(self) -> bool:
        """Whether the kernel, XNNPACK's or LiteRT's, quantizes data with zero points."""
        return self.is_delegated or bool(self.options.asymmetric_quantize_inputs)

    @property
    def is_delegated(self) -> bool:
        """Whether XNNPACK computes the product.

        The conditions are taken from VisitFullyConnectedNode in LiteRT's xnnpack_delegate.cc.
        """
        bias = self.op.inputs[_BIAS] if len(self.op.inputs) > _BIAS else None
        features = _MULTIPLES.get(self.input(1).dtype, 0)
        return bool(
            features
            and self._features % features == 0
            and self.activation not in UNBOUNDED
            and (bias is None or bias.data is not None)
        )

    def add_bias(self, g: Builder, product: Value, b: View | None) -> Value:
        """Add the bias, and apply activations that only hybrid kernels apply."""
        product = product if b is None else g.Add(product, b)
        return (
            apply_unbounded_activation(g, self.activation, product) if self.is_hybrid else product
        )

    @property
    def is_hybrid(self) -> bool:
        """Whether the weights are integers and the data are floats."""
        return is_hybrid(self.input(0), self.input(1))

    @property
    def _features(self) -> int:
        w = self.input(1)
        return w.elements // w.shape[0]


def _is_product(label: Axes, last: Axes, places: Collection[int]) -> bool:
    """Return whether the features are directly before the output, last or at one of `places`."""
    first = label.index(last[0])
    return label[first : first + 2] == last and (first == len(label) - 2 or first in places)


def keeps_axes(x: View, y: View) -> bool:
    """Return whether a product by the last axis of x keeps the other axes in their order."""
    same_order = tuple(x.order) == tuple(y.order) == tuple(range(x.rank))
    return same_order and x.sizes == x.shape and x.shape[:-1] == y.sizes[:-1]


def count_rows(y: View) -> int | str:
    """Return the number of rows of an output as a matrix, a name if axes are dynamic."""
    *sizes, _ = y.sizes
    fixed = [size for size in sizes if isinstance(size, int)]
    if len(fixed) == len(sizes):
        return prod(fixed)
    return sizes[0] if len(sizes) == 1 else name_axis(y.tensor, "rows")


def _has_rows_first(label: Axes) -> bool:
    """Return whether the output is [N, O]: Gemm can transpose its operands but not its result."""
    return label.index("N") < label.index("O")


def _multiplies_rows_by_columns(label: Axes) -> bool:
    """Return whether flattening makes x [batch, features] and the weights [features, out]."""
    return (label[0], label[-1]) == ("N", "O")


def _has_rows_leading(label: Axes) -> bool:
    """Return whether both operands can be flattened after their first axis."""
    return label[:2] == ("N", "O")


class BatchMatMul(Broadcasts, AnySizes, MisreadInputs):
    """BATCH_MATMUL: [..., m, k] times [..., k, n]; `adj_x`, `adj_y` swap the last two axes.

    A swap becomes an axis order that the operand must have, so that the swap may cancel a
    TRANSPOSE.

    Quantizers quantize both inputs if both are constant, and a constant left input before floats.
    The product is the product of the real numbers, as in the network before it was quantized.
    LiteRT's kernel writes sums of the stored integers into a float output, most of which are NaN or
    almost 0, and refuses a constant before floats. It reads a constant left input with a scale for
    each index of an axis as 0.
    """

    codes = ("BATCH_MATMUL",)

    @property
    def quantization(self) -> Product | Real:
        if self._has_weights_alone:
            return Real(folds=True)
        return self._product

    @property
    def _has_weights_alone(self) -> bool:
        """Whether the left input is a quantized constant in a product of real numbers."""
        left, right, y = self.input(0), self.input(1), self.output
        is_constant = right.has_data and is_quantized(right)
        if not left.has_data or not is_quantized(left):
            return False
        if y.dtype is DType.FLOAT32:
            return is_constant or right.dtype is DType.FLOAT32
        return is_constant and (left.dtype, y.dtype) == (DType.INT8, DType.INT16)

    @property
    def readable_inputs(self) -> Mapping[int, Tensor]:
        left, right = self.input(0), self.input(1)
        if self._has_weights_alone and self.output.dtype is DType.FLOAT32:
            pairs = ((i, t, t.quantization) for i, t in enumerate((left, right)))
            return {i: _dequantize(t, scales) for i, t, scales in pairs if scales}
        if not left.has_data or not left.per_axis:
            return {}
        if self._has_weights_alone:  # the kernel for results of int16
            return {i: _requantize_by_tensor(t, DType.INT16) for i, t in enumerate((left, right))}
        return {0: _requantize_by_tensor(left, left.dtype)}

    @property
    def _product(self) -> Product:
        # The kernel multiplies the stored integers and ignores their zero points.
        accumulates = self.output.dtype is DType.INT32
        units = -2 if self.options.adj_y else -1
        hybrid = "rows" if self.input(1).dtype is DType.INT8 else ""
        return Product(0, 1, 2, hybrid=hybrid, units=units, accumulates=accumulates)

    def infer_outputs(self) -> Sequence[OutputShape]:
        a, b = self.input(0).shape, self.input(1).shape
        return [infer_product(a, b, (self.options.adj_x, self.options.adj_y))]

    def check(self) -> None:
        self.infer_outputs()  # raises OperatorError for wrong shapes
        a, b, y = self.input(0), self.input(1), self.output
        if self._has_weights_alone:
            return
        if not self._product.accumulates:
            expect_real(a, b, y)
            if is_quantized(a) and y.dtype is DType.FLOAT32:
                raise OperatorError(
                    f"{y.name} must be {a.dtype.label}, got float32: the kernel would write sums of"
                    f" integers as floats; insert DEQUANTIZE after {a.name}"
                )
            expect_type(y, (a.dtype,))
        elif {a.dtype, b.dtype} != {DType.INT8}:
            types = f"{a.dtype.label} and {b.dtype.label}"
            raise OperatorError(f"both inputs must be int8 if the output is int32, got {types}")

    def frames(self) -> Sequence[Frame]:
        batch = axis_names(self.output.rank - 2)
        a = ("K", "M") if self.options.adj_x else ("M", "K")
        b = ("N", "K") if self.options.adj_y else ("K", "N")
        slots = {0: (*batch, *a), 1: (*batch, *b), ~0: (*batch, "M", "N")}
        last = ("M", "K", "N")
        return [Frame(slots, (*batch, *last), legal=lambda label: label[-3:] == last)]

    def find_mixed_axes(self, operand: int) -> Collection[int] | None:
        swapped = self.options.adj_y if operand else not self.options.adj_x
        return (-1,) if swapped else (-2,)

    def emit(self, g: Builder, y: View, a: View, b: View) -> Value | NeedsReshape:
        if self._product.accumulates:
            return g.MatMulInteger(a, b, *(_find_uint8_offset(g, x) for x in (a, b)))
        is_single = b.tensor.data is not None and b.tensor.elements == prod(b.shape[-2:])
        if a.plan.reading is Reading.DYNAMIC:
            return self._multiply_rows(g, y, a, b, is_single=is_single)
        if is_single and a.tensor.dtype is DType.INT16:
            return self._multiply_16_bits(g, a, b)
        # Runtimes have integer kernels for b if it is one matrix for all batches.
        return g.MatMul(a, b.reshape(b.shape[-2:]) if is_single else b)

    def _multiply_rows(
        self, g: Builder, y: View, a: View, b: View, *, is_single: bool
    ) -> Value | NeedsReshape:
        """Return the product of rows that XNNPACK quantizes at run time, by one matrix or several.

        The delegate computes all products of float data and constant integers (VisitBatchMatMulNode
        in LiteRT's xnnpack_delegate.cc).
        """
        count = count_rows(a)
        rows = quantize_asymmetric(g, a.reshape((count, a.shape[-1])), _MATRIX, is_one=count == 1)
        if not is_single:
            return g.MatMul(g.reshape(rows.dequantize(g), a.sizes), b)
        columns = b.reshape(b.shape[-2:])
        is_matrix, units = y.rank == _MATRIX, self._product.units
        product = multiply_rows(g, rows, b, columns, is_matrix=is_matrix, units=units)
        return product if is_matrix else NeedsReshape(product)

    def _multiply_16_bits(self, g: Builder, a: View, b: View) -> Value:
        """Return the product of int16 data by one constant matrix.

        Runtimes fuse MatMul with a dequantized matrix [k, n] into a product that rounds the data to
        8 bits, also if the data was dequantized from 16 bits. They do not fuse Gemm with `transB`
        or a matrix with more than two axes.
        """
        if self.output.rank == _MATRIX:
            rows = (0, 1) if self.options.adj_y else (1, 0)
            return g.Gemm(a, b.with_order(rows), transB=1)
        return g.MatMul(a, b.reshape((*(1,) * (self.output.rank - 2), *b.shape[-2:])))


def _dequantize(constant: Tensor, scales: Quantization) -> Tensor:
    numbers = decode_constant(constant.values, scales)
    return replace(constant, data=numbers, dtype=DType.FLOAT32, quantization=None)


def _requantize_by_tensor(constant: Tensor, dtype: DType) -> Tensor:
    """Return a quantized constant with one scale, and about the same numbers."""
    numbers = decode_constant(constant.values, constant.quantization or AS_NUMBERS)
    largest = find_integer_range(dtype)[1]
    scale = np.array([np.abs(numbers).max() / largest or 1], np.float32)
    return replace(
        constant,
        data=np.rint(numbers / scale).astype(dtype.numpy),
        dtype=dtype,
        quantization=Quantization(scale, np.zeros(1, np.int64)),
    )


def _find_uint8_offset(g: Builder, x: View) -> Value | None:
    """Return the offset of int8 elements that are stored as uint8, None if they are int8."""
    return g.scalar(128, x.dtype) if x.dtype is DType.UINT8 else None

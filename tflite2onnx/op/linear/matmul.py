"""Products of matrices: FULLY_CONNECTED and BATCH_MATMUL."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from tflite2onnx.builder.builder import Builder, NeedsReshape, Value, View
from tflite2onnx.layout import Axes, Frame, axis_names
from tflite2onnx.op.base import Category, OperatorError
from tflite2onnx.op.common.checks import expect, expect_real, features_from
from tflite2onnx.op.common.hybrid import WORTHWHILE, asymmetric, is_hybrid, multiply, symmetric
from tflite2onnx.op.elementwise.activation import apply_unbounded_activation
from tflite2onnx.op.traits import DynamicShape
from tflite2onnx.quantize import (
    bias_storage,
    encode_constant,
    is_quantized,
    move_zero_point,
    weight_storage,
)
from tflite2onnx.tensor import DType, Shape

_MATRIX = 2  # axes
_IMAGE = 4
_BIAS = 2  # the input


class FullyConnected(DynamicShape):
    """FULLY_CONNECTED: x times the transpose of the weights, plus a bias.

    The weights are [out, features], and the features of x are its last axes, as many as that
    takes. Where they are more than one and the weights are constant, `normalise` has given the
    weights the same axes: then these may come in any order, which the weights follow.

    The output is [batch, out], or has the axes of x but the last (`keep_num_dims`). Of an image
    that is a convolution with a window of one place, which is what it becomes channels first.

    Integer weights of float data are stored as [features, out]: ONNX Runtime multiplies by them
    as they are if DequantizeLinear and MatMul read them, where with Gemm it makes them real in
    each run. Large products are of integers, as in LiteRT's kernels.
    """

    codes = ("FULLY_CONNECTED",)
    category = Category.ATTRIBUTE
    matmul_operands = (0, 1, 2)

    def check(self) -> None:
        if self.options.get("weights_format", "DEFAULT") != "DEFAULT":
            raise OperatorError(
                f"weights in the format {self.options.weights_format} are not supported"
            )
        x, w = self.input(0), self.input(1)
        bias = self.op.inputs[_BIAS] if len(self.op.inputs) > _BIAS else None
        expect_real(x, w, self.output)
        if bias is not None and bias_storage(x, w, bias) is None:
            expect_real(bias)
        if (
            w.rank < _MATRIX
            or 0 in w.shape
            or x.elements % self._features
            or (w.rank > _MATRIX and x.shape[1 - w.rank :] != w.shape[1:])
        ):
            raise OperatorError(f"{list(x.shape)} does not fit weights {list(w.shape)}")
        if bias is not None and bias.elements != w.shape[0]:
            raise OperatorError(f"{bias.elements} biases for {w.shape[0]} rows of weights")
        batch: Shape = (x.elements // self._features,)
        if self.options.keep_num_dims and w.rank == _MATRIX and x.shape[-1:] == w.shape[1:]:
            batch = x.shape[:-1]
        expect(self.output, (*batch, w.shape[0]), self.output.dtype)

    def broadcast_shapes(self) -> Sequence[Shape | None]:
        bias = self.input(1).shape[:1]  # its shape in the file may be another
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
            first = last if y.rank == _IMAGE and w.data is not None and not self._hybrid else None
            return [
                Frame(
                    slots,
                    (*batch, *last),
                    legal=lambda label: label[-2:] == last or label[1:3] == first,
                )
            ]
        if w.rank == _MATRIX:
            inner *= x.rank - features_from(x.shape, self._features)
        batch = ("N",) * (x.rank - len(inner))
        slots = {0: (*batch, *inner), 1: ("O", *axis_names(w.rank - 1)), ~0: ("N", "O")}
        if self._hybrid:
            names = ("N", *axis_names(w.rank - 1), "O")
            return [Frame(slots, names, legal=_rows_by_columns)]
        names = ("N", "O", *axis_names(w.rank - 1))
        plain = slots[0] == ("N", "0")
        return [Frame(slots, names, legal=_rows_first if plain else _rows_leading)]

    def supports_dynamic_axis(self, operand: int, axis: int) -> bool:
        batch = self.frames()[0].slots.get(operand, ())[axis : axis + 1]
        # The hybrid kernel's scales are those of one row, or of each.
        return batch[:1] in {("N",), (f"N{axis}",)} and not self.quantizes_dynamically

    def emit(
        self, g: Builder, y: View, x: View, w: View, b: View | None = None
    ) -> Value | NeedsReshape:
        if y.rank == _MATRIX and not self._hybrid:
            return self._gemm(g, y, x, w, b)
        if y.rank == _IMAGE and y.order[1] == y.rank - 1:
            return g.Conv(x, w.reshape((*w.shape, 1, 1)), b)
        if is_quantized(x.tensor):  # with a bias it fuses as Gemm only
            return NeedsReshape(self._gemm(g, y, x, w, b))
        if self.quantizes_dynamically and not g.float_only:
            made = self._multiply_hybrid(g, x, w)
            made = apply_unbounded_activation(
                g, self.activation, made if b is None else g.Add(made, b)
            )
            return made if y.rank == _MATRIX else NeedsReshape(made)
        columns = w.in_order((1, 0))
        made = g.MatMul(*(self._matrices(y, x, w) if y.rank == _MATRIX else (x, columns)))
        made = made if b is None else g.Add(made, b)
        return apply_unbounded_activation(g, self.activation, made) if self._hybrid else made

    @property
    def quantizes_dynamically(self) -> bool:
        """Whether the data of a hybrid product is quantized: where that is faster."""
        x, w = self.input(0), self.input(1)
        scales = w.quantization
        if not self._hybrid or scales is None or scales.block_size:
            return False
        if w.dtype not in (DType.INT8, DType.UINT8):
            return False
        of_rows = scales.axis == 0 or not scales.per_axis
        return of_rows and x.elements * w.shape[0] >= WORTHWHILE

    def _multiply_hybrid(self, g: Builder, x: View, w: View) -> Value:
        """Return [batch, out] as the hybrid kernel multiplies, the bias left out."""
        kept = weight_storage(x.tensor, w.tensor, None, folds=False)
        integers = encode_constant(w.constant, w.tensor.dtype, kept)
        read = kept if g.weights == "int8" else move_zero_point(kept, DType.UINT8)
        out, features = w.tensor.shape[0], self._features
        shape = (x.tensor.elements // features, features)
        quantize = asymmetric if self.options.asymmetric_quantize_inputs else symmetric
        columns = w.order if w.order[-1] == 0 else (1, 0)  # not planned where axes are kept
        return multiply(
            g,
            quantize(g, x.reshape(shape), shape),
            g.view(w.tensor, columns, storage=read).reshape((features, out)),
            read,
            integers.reshape(out, features).sum(1, dtype=np.int32),
        )

    @property
    def _hybrid(self) -> bool:
        return is_hybrid(self.input(0), self.input(1))

    @property
    def _features(self) -> int:
        w = self.input(1)
        return w.elements // w.shape[0]

    def _matrices(self, y: View, x: View, w: View) -> tuple[Value, Value]:
        """Return [batch, features] and [features, out]."""
        features, out = self._features, w.tensor.shape[0]
        return x.reshape((_rows(y), features)), w.reshape((features, out))

    def _gemm(self, g: Builder, y: View, x: View, w: View, b: View | None) -> Value:
        """Return a matrix; the operands become matrices, in the order in which they are stored."""
        swapped = (1, 0)
        rows, features, out = _rows(y), self._features, w.tensor.shape[0]
        return g.Gemm(
            x.value if x.order == swapped else x.reshape((rows, features)),
            w.value if w.order == swapped else w.reshape((out, features)),
            b,
            transA=1 if x.order == swapped else None,
            transB=None if w.order == swapped else 1,
        )


def _rows(y: View) -> int | str:
    """Return how many rows an output has as a matrix; a name if some of its sizes stay open."""
    _, *behind = y.sizes[::-1]
    fixed = [size for size in behind if isinstance(size, int)]
    if len(fixed) == len(behind):
        return prod(fixed)
    return behind[0] if len(behind) == 1 else f"{y.tensor.name}_rows"


def _rows_first(label: Axes) -> bool:
    """Return whether Gemm can make [N, O]: it transposes its operands, not its result."""
    return label.index("N") < label.index("O")


def _rows_by_columns(label: Axes) -> bool:
    """Return whether x becomes [batch, features] and the weights [features, out] by flattening."""
    return (label[0], label[-1]) == ("N", "O")


def _rows_leading(label: Axes) -> bool:
    """Return whether both operands can be flattened behind their first axis."""
    return label[:2] == ("N", "O")


def product_shape(a: Shape, b: Shape, turned: tuple[bool, bool]) -> Shape:
    """Return the shape of a product of matrices, [..., rows, columns], either of them transposed.

    Raises:
        OperatorError: there is no such product.
    """
    if min(len(a), len(b)) < _MATRIX:
        raise OperatorError(f"{list(a)} and {list(b)} are no matrices")
    (rows, inner), (same, columns) = (
        shape[:-3:-1] if turn else shape[-2:] for shape, turn in zip((a, b), turned, strict=True)
    )
    try:
        batch = np.broadcast_shapes(a[:-2], b[:-2])
    except ValueError:
        batch = None
    if inner != same or batch is None:
        raise OperatorError(f"{list(a)} cannot be multiplied by {list(b)}")
    return (*batch, rows, columns)


class BatchMatMul(DynamicShape):
    """BATCH_MATMUL: [..., m, k] times [..., k, n]; `adj_x`, `adj_y`: the last two are swapped.

    A swap is the order in which the operand is asked for: a TRANSPOSE before it may cancel it.
    """

    codes = ("BATCH_MATMUL",)
    dynamic_axes = "..."
    category = Category.ATTRIBUTE
    matmul_operands = (0, 1, 2)
    broadcasts = True

    def check(self) -> None:
        a, b, y = self.input(0), self.input(1), self.output
        made = product_shape(a.shape, b.shape, (self.options.adj_x, self.options.adj_y))
        if not self.reads_stored_integers():
            expect_real(a, b, y)
        elif {a.dtype, b.dtype} != {DType.INT8}:
            raise OperatorError(f"{a.dtype.label} by {b.dtype.label} makes no int32")
        expect(y, made, y.dtype)

    def frames(self) -> Sequence[Frame]:
        batch = axis_names(self.output.rank - 2)
        a = ("K", "M") if self.options.adj_x else ("M", "K")
        b = ("N", "K") if self.options.adj_y else ("K", "N")
        slots = {0: (*batch, *a), 1: (*batch, *b), ~0: (*batch, "M", "N")}
        last = ("M", "K", "N")
        return [Frame(slots, (*batch, *last), legal=lambda label: label[-3:] == last)]

    def reads_stored_integers(self) -> bool:
        return self.output.dtype is DType.INT32

    def emit(self, g: Builder, y: View, a: View, b: View) -> Value:
        if not self.reads_stored_integers():
            # Of one matrix for all batches ONNX Runtime has kernels that read its integers.
            one = b.tensor.data is not None and b.tensor.elements == prod(b.shape[-2:])
            return g.MatMul(a, b.reshape(b.shape[-2:]) if one else b)
        # The kernel multiplies the integers of the file, whatever they stand for.
        return g.MatMulInteger(a, b, *(_shift(g, x) for x in (a, b)))


def _shift(g: Builder, x: View) -> Value | None:
    """Return what was added to an int8 tensor to keep it as uint8."""
    return g.scalar(128, x.dtype) if x.dtype is DType.UINT8 else None

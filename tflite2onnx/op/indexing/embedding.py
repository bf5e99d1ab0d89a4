"""EMBEDDING_LOOKUP, EMBEDDING_LOOKUP_SPARSE and others: rows of a table, and sums of rows."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from math import prod

import numpy as np

from tflite2onnx.op.base import Builder, Category, Operator, OperatorError, Value, View
from tflite2onnx.op.common.checks import expect, expect_indices, expect_type, ints
from tflite2onnx.op.traits import DynamicShape, Foldable
from tflite2onnx.tensor import Array, DType, Quantization, Shape

_STORED = (DType.INT8, DType.UINT8, DType.INT4, DType.INT2)
_REAL = (DType.FLOAT32, DType.FLOAT16)
_SUM, _MEAN, _SQUARES = range(3)  # SQRTN divides by the root of the sum of the weights' squares


class EmbeddingLookup(DynamicShape, Foldable):
    """The rows of a table that the indices name; they come first, unlike those of GATHER.

    Rows of integers can become real numbers: each times the scale of all, of its row, or of its
    block within the row. Such integers have no zero point, and uint8 is read as if it were int8.
    """

    codes = ("EMBEDDING_LOOKUP",)
    category = Category.TERMINATE
    computes_on_stored_integers = True

    def check(self) -> None:
        ids, table, made = self.input(0), self.input(1), self.output
        expect(ids, (ids.elements,), DType.INT32)
        if table.rank < 2:  # rows
            raise OperatorError(f"{table.name} has {table.rank} axes and no rows")
        expect_indices(ids, table.shape[:1])
        expect(made, (ids.elements, *table.shape[1:]), made.dtype)
        if made.dtype is not table.dtype:
            expect_type(table, _STORED)
            expect_type(made, _REAL)
            _ = self._scales  # checks them

    @cached_property
    def _scales(self) -> Quantization:
        """The scales of a table of integers that become real numbers."""
        table, scales = self.input(1), self.input(1).quantization
        if scales is None or (scales.per_axis and scales.axis and not scales.block_size):
            message = f"{table.name} has no scale for each row"
        elif scales.zero_point.flat[0]:
            message = f"{table.name} has a zero point, which the kernel does not take"
        elif scales.block_size and table.rank > 2:  # as the kernel has it
            message = f"{table.name} has blocks of scales in {table.rank} axes"
        elif table.data is None and table.dtype.bits < 8:  # a byte
            message = f"{table.name} is not constant"
        else:
            return scales
        raise OperatorError(message)

    def supports_dynamic_axis(self, operand: int, axis: int) -> bool:
        scales = self.input(1).quantization
        return scales is None or not scales.block_size

    def emit(self, g: Builder, y: View, ids: View, table: View) -> Value:
        if y.dtype is table.dtype:
            return g.with_compute_type("Gather", y.dtype, lambda v: g.Gather(v, ids, axis=0), table)
        source = table.value
        if table.dtype.bits < 8:  # ONNX Runtime gathers whole bytes
            source = g.constant(table.constant, DType.INT8, table.tensor.name)
        rows = g.Gather(source, ids, axis=0)
        signed = g.cast(rows, DType.INT8) if table.dtype is DType.UINT8 else rows
        real = self._scale_rows(g, ids, g.cast(signed, DType.FLOAT32))
        return g.recast(real, DType.FLOAT32, y.dtype)

    def _scale_rows(self, g: Builder, ids: View, rows: Value) -> Value:
        """Return rows times their scales."""
        made, scales = self.output.shape, self._scales
        if not scales.per_axis:
            return g.Mul(rows, g.scalar(scales.scale.flat[0], DType.FLOAT32))
        if not scales.block_size:
            column = scales.scale.reshape(-1, *(len(made) - 1) * (1,))
            return g.Mul(rows, g.Gather(column, ids, axis=0))
        blocks = [made[0], made[1] // scales.block_size, scales.block_size]
        each = g.Gather(scales.scale[..., None], ids, axis=0)
        return g.reshape(g.Mul(g.reshape(rows, blocks), each), made)

    def evaluate(self, *inputs: Array) -> Sequence[Array] | None:
        return [inputs[1][inputs[0]]] if self.input(1).dtype is self.output.dtype else None


class EmbeddingLookupSparse(DynamicShape):
    """EMBEDDING_LOOKUP_SPARSE: weighted sums, or means, of the rows that belong together.

    A row of the indices says where an id belongs in a sparse tensor of a given shape, whose last
    axis the sum is taken over. The ids of one sum have to come one after another, as the kernel
    divides a sum as soon as the next one begins.
    """

    codes = ("EMBEDDING_LOOKUP_SPARSE",)
    category = Category.TERMINATE

    @cached_property
    def _sparse(self) -> list[int]:
        """The axes of the sparse tensor but for the last one."""
        sizes, indices = ints(self, 2), self.input(1)
        if not sizes or min(sizes) < 0 or prod(sizes) >= 1 << 31:
            raise OperatorError(f"a sparse tensor of the shape {sizes}")
        expect(indices, (self.input(0).elements, len(sizes)), DType.INT32)
        return sizes[:-1]

    def check(self) -> None:
        ids, weights, table = self.input(0), self.input(3), self.input(4)
        expect(ids, (ids.elements,), DType.INT32)
        expect(weights, ids.shape, DType.FLOAT32)
        if table.rank < 2:  # rows
            raise OperatorError(f"{table.name} has {table.rank} axes and no rows")
        if self.options.combiner not in (_SUM, _MEAN, _SQUARES):
            raise OperatorError(f"there is no combiner {self.options.combiner}")
        expect(table, table.shape, DType.FLOAT32)
        expect(self.output, (*self._sparse, *table.shape[1:]), DType.FLOAT32)

    def emit(
        self, g: Builder, y: View, ids: View, indices: View, _: View, weights: View, table: View
    ) -> Value:
        count, axes = prod(self._sparse), table.rank - 1
        where = self._buckets(g, indices)
        each = g.Unsqueeze(weights, g.ints(range(1, table.rank)))
        rows = g.Mul(g.Gather(table, ids, axis=0), each)
        total = self._add_rows(g, where, rows, (count, *table.shape[1:]))
        if self.options.combiner != _SUM:
            taken = g.Mul(weights, weights) if self.options.combiner == _SQUARES else weights
            by = self._add_rows(g, where, taken, (count,))
            by = g.Sqrt(by) if self.options.combiner == _SQUARES else by
            # What has no id at all is not divided: it stays 0.
            ones = g.Expand(g.scalar(1, DType.FLOAT32), g.Shape(ids))
            empty = g.Equal(self._add_rows(g, where, ones, (count,)), g.scalar(0, DType.FLOAT32))
            by = g.Where(empty, g.scalar(1, DType.FLOAT32), by)
            total = g.Div(total, g.Unsqueeze(by, g.ints(range(1, axes + 1))))
        return g.reshape(total, y.shape)

    def supports_dynamic_axis(self, operand: int, axis: int) -> bool:
        return operand in (0, 1, 3)  # how many ids there are

    def _buckets(self, g: Builder, indices: View) -> Value:
        """Return the number of the sum that each id belongs to, [n, 1]."""
        steps = [prod(self._sparse[axis + 1 :]) for axis in range(len(self._sparse))]
        factors = np.array([*steps, 0], np.int64)
        numbers = g.Mul(g.cast(indices, DType.INT64), factors)
        return g.reduce("ReduceSum", numbers, [1], keepdims=True)

    def _add_rows(self, g: Builder, where: Value, values: Value | View, shape: Shape) -> Value:
        zeros = g.Expand(g.scalar(0, DType.FLOAT32), g.ints(shape))
        return g.scatter_nd(zeros, where, values, "add")


class KmeansEmbeddingLookup(Operator):
    """KmeansEmbeddingLookup: the mean of the embeddings of all tokens before the first 0.

    An embedding is the blocks, one after another, that a row of codes, uint8 [tokens, blocks],
    names in a book of blocks, float32 [codes, size]. Tokens are int32 [1, count].
    """

    codes = ("KmeansEmbeddingLookup",)
    custom = True
    category = Category.TERMINATE
    computes_on_stored_integers = True

    def check(self) -> None:
        tokens, encoding, book = (self.input(i) for i in range(3))
        types = DType.INT32, DType.UINT8, DType.FLOAT32
        for tensor, dtype in zip((tokens, encoding, book), types, strict=True):
            if tensor.rank != 2 or not tensor.elements:  # all three are matrices
                raise OperatorError(f"{tensor.name} is {list(tensor.shape)}, no matrix")
            expect(tensor, tensor.shape, dtype)
        expect(tokens, (1, tokens.shape[1]), DType.INT32)
        expect(self.output, (1, encoding.shape[1] * book.shape[1]), DType.FLOAT32)

    def emit(self, g: Builder, y: View, tokens: View, encoding: View, book: View) -> Value:
        zero = g.scalar(0, DType.INT32)
        ended = g.cast(g.Equal(tokens, zero), DType.INT32)
        counted = g.Equal(g.CumSum(ended, g.scalar(1, DType.INT64)), zero)
        known = g.reshape(g.Where(counted, tokens, zero), [-1])
        codes = g.cast(g.Gather(encoding, known, axis=0), DType.INT32)
        rows = g.reshape(g.Gather(book, codes, axis=0), [-1, y.shape[1]])
        weights = g.cast(counted, DType.FLOAT32)
        number = g.reduce("ReduceSum", weights, [1], keepdims=True)
        return g.Div(g.MatMul(weights, rows), g.Max(number, g.scalar(1, DType.FLOAT32)))

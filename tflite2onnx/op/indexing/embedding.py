"""EMBEDDING_LOOKUP, EMBEDDING_LOOKUP_SPARSE, KmeansEmbeddingLookup: rows of a table, and sums."""

from collections.abc import Collection, Sequence
from functools import cached_property
from math import prod

import numpy as np

from tflite2onnx.op.base import Builder, Operator, OperatorError, OutputShape, Value, View
from tflite2onnx.op.common.checks import expect, expect_indices, expect_type, ints
from tflite2onnx.op.traits import DynamicShape, Foldable
from tflite2onnx.quantization.declarations import Integers
from tflite2onnx.reader.buffers import unpack_subbyte
from tflite2onnx.tensor import Array, DType, Quantization, Shape

_STORED = (DType.INT8, DType.UINT8, DType.INT4, DType.INT2)
_REAL = (DType.FLOAT32, DType.FLOAT16)
_BYTE = 8
# SQRTN (_SQUARES) divides by the root of the sum of squared weights.
_SUM, _MEAN, _SQUARES = range(3)


class EmbeddingLookup(DynamicShape, Foldable):
    """The rows of a table at some indices. The indices are the first input, unlike those of GATHER.

    A table of integers is dequantized if the output is real: the scale is per tensor, per row, or
    per block of a row. The zero point must be 0, and the kernel reads uint8 as if it were int8.
    """

    codes = ("EMBEDDING_LOOKUP",)
    operands = "int32 [ids], any [rows width ...] -> any [ids width ...]"
    quantization = Integers(in_file_types=True)

    def check(self) -> None:
        ids, table, output = self.input(0), self.input(1), self.output
        if table.shape[0] == 0 and ids.elements != 0:  # the kernel would not write its output
            raise OperatorError(f"{table.name} must have at least one row, got {list(table.shape)}")
        expect_indices(ids, table.shape[:1])
        if output.dtype is not table.dtype:
            expect_type(table, _STORED)
            expect_type(output, _REAL)
            _ = self._scales  # the property raises OperatorError

    @cached_property
    def _scales(self) -> Quantization:
        """The scales of a table of integers that is dequantized."""
        table, scales = self.input(1), self.input(1).quantization
        if scales is None or (scales.per_axis and scales.axis and not scales.block_size):
            message = f"{table.name} must have a scale per tensor, per row or per block of a row"
        elif scales.zero_point.flat[0]:
            message = f"{table.name} must have the zero point 0, got {scales.zero_point.flat[0]}"
        elif scales.block_size and table.rank > 2:  # the kernel supports two axes only
            message = (
                f"{table.name} must have two axes if it has a scale per block, got {table.rank}"
            )
        elif table.data is None and table.dtype.bits < 8:  # elements of less than a byte are packed
            message = f"{table.name} must be constant, because it is {table.dtype.label}"
        else:
            return scales
        raise OperatorError(message)

    def find_mixed_axes(self, operand: int) -> Collection[int] | None:
        return None if operand else ()

    def find_common_axis(self, operand: int, axis: int, other: int) -> int | None:
        return axis if {operand, other} == {0, ~0} and axis == 0 else None

    def supports_dynamic_axis(self, operand: int, axis: int) -> bool:
        scales = self.input(1).quantization
        return scales is None or not scales.block_size or (axis == 0 and operand != 1)

    @property
    def _shape(self) -> Sequence[int]:
        """The shape of the output, -1 for a dynamic number of rows."""
        return [-1 if 0 in self.output.symbols else self.output.shape[0], *self.output.shape[1:]]

    def emit(self, g: Builder, y: View, ids: View, table: View) -> Value:
        if y.dtype is table.dtype:
            return g.move("Gather", y.dtype, table, ids, axis=0)
        dequantized = self._scale_rows(g, ids, self._gather_numbers(g, ids, table))
        return g.recast(dequantized, DType.FLOAT32, y.dtype)

    def _gather_numbers(self, g: Builder, ids: View, table: View) -> Value:
        """Return the integers of rows as float32.

        Runtimes gather whole bytes. Elements of less than 8 bits are gathered as the bytes of
        the file, because a product may read the same bytes as elements. Each byte is an index of a
        table of the elements in a byte.
        """
        bits = table.dtype.bits
        if bits == _BYTE:
            rows = g.Gather(table, ids, axis=0)
            signed = g.cast(rows, DType.INT8) if table.dtype is DType.UINT8 else rows
            return g.cast(signed, DType.FLOAT32)
        data, name = table.constant, table.tensor.name
        if data.shape[-1] * bits % _BYTE:  # a row must begin at a byte
            return g.cast(g.Gather(g.constant(data, DType.INT8, name), ids, axis=0), DType.FLOAT32)
        packed_rows = g.Gather(g.pack_bytes(table), ids, axis=0)
        elements = unpack_subbyte(np.arange(256, dtype=np.uint8), table.dtype)
        numbers = elements.astype(np.float32).reshape(256, -1)
        return g.reshape(g.Gather(numbers, g.cast(packed_rows, DType.INT32), axis=0), self._shape)

    def _scale_rows(self, g: Builder, ids: View, rows: Value) -> Value:
        output, scales = self._shape, self._scales
        if not scales.per_axis:
            return g.Mul(rows, g.scalar(scales.scale.flat[0], DType.FLOAT32))
        if not scales.block_size:
            column = scales.scale.reshape(-1, *(len(output) - 1) * (1,))
            return g.Mul(rows, g.Gather(column, ids, axis=0))
        blocks = [output[0], output[1] // scales.block_size, scales.block_size]
        scale = g.Unsqueeze(g.Gather(scales.stored_scale, ids, axis=0), [2])
        scale = g.recast(scale, DType[scales.stored_scale.dtype.name.upper()], DType.FLOAT32)
        return g.reshape(g.Mul(g.reshape(rows, blocks), scale), output)

    def evaluate(self, *inputs: Array) -> Sequence[Array] | None:
        return [inputs[1][inputs[0]]] if self.input(1).dtype is self.output.dtype else None


class EmbeddingLookupSparse(DynamicShape):
    """EMBEDDING_LOOKUP_SPARSE: weighted sums, or means, of the rows of a table.

    The ids are the elements of a sparse tensor of a given shape: a row of the indices is the index
    of an id. The sum is over its last axis. The ids of one sum must be consecutive, because the
    kernel divides a sum as soon as the next sum begins.
    """

    codes = ("EMBEDDING_LOOKUP_SPARSE",)
    operands = "int32 [ids], any, any, float32 [ids], float32 [rows width ...] -> float32"

    @cached_property
    def _sparse(self) -> list[int]:
        """The sizes of the sparse tensor without the last axis."""
        sizes, indices = ints(self, 2), self.input(1)
        if not sizes or min(sizes) < 0 or prod(sizes) >= 1 << 31:
            raise OperatorError(
                f"the shape of the sparse tensor must be non-negative, "
                f"with less than 2^31 elements, got {sizes}"
            )
        expect(indices, (self.input(0).elements, len(sizes)), DType.INT32)
        return sizes[:-1]

    def infer_outputs(self) -> Sequence[OutputShape]:
        return [(*ints(self, 2)[:-1], *self.input(4).shape[1:])]

    def check(self) -> None:
        expect_indices(self.input(0), self.input(4).shape[:1])
        _ = self._sparse  # the property raises OperatorError
        if self.input(1).elements:
            expect_indices(self.input(1), ints(self, 2))
            self._check_sequence()
        if self.options.combiner not in (_SUM, _MEAN, _SQUARES):
            raise OperatorError(
                f"combiner must be 0 (SUM), 1 (MEAN) or 2 (SQRTN), got {self.options.combiner}"
            )

    def _check_sequence(self) -> None:
        """Raise OperatorError if the ids of a mean are known not to be consecutive."""
        indices, sizes = self.input(1).data, self._sparse
        if indices is None or not sizes or self.options.combiner == _SUM:
            return
        sums = np.ravel_multi_index(tuple(indices[:, :-1].T), sizes)
        if np.count_nonzero(np.diff(sums)) >= np.unique(sums).size:
            raise OperatorError(f"the indices {self.input(1).name} must be sorted")

    def emit(
        self, g: Builder, y: View, ids: View, indices: View, _: View, weights: View, table: View
    ) -> Value:
        count, axes = prod(self._sparse), table.rank - 1
        sums = self._sum_numbers(g, indices)
        weight_columns = g.Unsqueeze(weights, [*range(1, table.rank)])
        rows = g.Mul(g.Gather(table, ids, axis=0), weight_columns)
        total = self._add_rows(g, sums, rows, (count, *table.shape[1:]))
        if self.options.combiner != _SUM:
            squares = self.options.combiner == _SQUARES
            terms = g.Mul(weights, weights) if squares else weights
            divisor = self._add_rows(g, sums, terms, (count,))
            divisor = g.Sqrt(divisor) if squares else divisor
            # A sum of no rows is not divided by 0: it stays 0.
            ones = g.Expand(g.scalar(1, DType.FLOAT32), g.Shape(ids))
            empty = g.Equal(self._add_rows(g, sums, ones, (count,)), g.scalar(0, DType.FLOAT32))
            divisor = g.Where(empty, g.scalar(1, DType.FLOAT32), divisor)
            total = g.Div(total, g.Unsqueeze(divisor, [*range(1, axes + 1)]))
        return g.reshape(total, y.shape)

    def supports_dynamic_axis(self, operand: int, axis: int) -> bool:
        # Axes of the numbers of ids and rows.
        return operand in (0, 1, 3) or (operand == 4 and axis == 0)

    def _sum_numbers(self, g: Builder, indices: View) -> Value:
        """Return the number of the sum that each id belongs to, [n, 1]."""
        steps = [prod(self._sparse[axis + 1 :]) for axis in range(len(self._sparse))]
        factors = np.array([*steps, 0], np.int64)
        numbers = g.Mul(g.cast(indices, DType.INT64), factors)
        return g.reduce("ReduceSum", numbers, [1], keepdims=True)

    def _add_rows(self, g: Builder, sums: Value, values: Value | View, shape: Shape) -> Value:
        zeros = g.Expand(g.scalar(0, DType.FLOAT32), g.ints(shape))
        return g.scatter_nd(zeros, sums, values, "add")


class KmeansEmbeddingLookup(Operator):
    """KmeansEmbeddingLookup: the mean of the embeddings of all tokens before the first 0.

    The embedding of a token is a concatenation of blocks. A row of the encoding, uint8 [tokens,
    blocks], lists the rows of the codebook, float32 [codes, size], that are its blocks. Tokens are
    int32 [1, count].
    """

    codes = ("KmeansEmbeddingLookup",)
    operands = "int32 [1 tokens], uint8 [codes blocks], float32 [rows size] -> float32"
    quantization = Integers(in_file_types=True)

    def infer_outputs(self) -> Sequence[OutputShape]:
        return [(1, self.input(1).shape[1] * self.input(2).shape[1])]

    def check(self) -> None:
        for tensor in self.op.present:
            if not tensor.elements:
                raise OperatorError(f"{tensor.name} must have elements, got {list(tensor.shape)}")

    def emit(self, g: Builder, y: View, tokens: View, encoding: View, codebook: View) -> Value:
        zero = g.scalar(0, DType.INT32)
        is_end = g.cast(g.Equal(tokens, zero), DType.INT32)
        before_end = g.Equal(g.CumSum(is_end, 1), zero)
        counted_tokens = g.reshape(g.Where(before_end, tokens, zero), [-1])
        codes = g.cast(g.Gather(encoding, counted_tokens, axis=0), DType.INT32)
        rows = g.reshape(g.Gather(codebook, codes, axis=0), [-1, y.shape[1]])
        weights = g.cast(before_end, DType.FLOAT32)
        number = g.reduce("ReduceSum", weights, [1], keepdims=True)
        return g.Div(g.MatMul(weights, rows), g.Max(number, g.scalar(1, DType.FLOAT32)))

"""EMBEDDING_LOOKUP: rows of a table."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from tflite2onnx.op.base import Builder, Category, Operator, OperatorError, Value, View
from tflite2onnx.op.parameters import expect, expect_type
from tflite2onnx.tensor import Array, DType, Quantization

_STORED = (DType.INT8, DType.UINT8, DType.INT4, DType.INT2)
_REAL = (DType.FLOAT32, DType.FLOAT16)


class EmbeddingLookup(Operator):
    """The rows of a table that the indices name; they come first, unlike those of GATHER.

    Rows of integers can become real numbers: each times the scale of all, of its row, or of its
    block within the row. Such integers have no zero point, and uint8 is read as if it were int8.
    """

    codes = ("EMBEDDING_LOOKUP",)
    category = Category.TERMINATE
    as_filed = True

    def check(self) -> None:
        ids, table, made = self.input(0), self.input(1), self.output
        expect(ids, (ids.elements,), DType.INT32)
        if table.rank < 2:  # noqa: PLR2004 - rows
            message = f"{table.name} has {table.rank} axes and no rows"
            raise OperatorError(message)
        if ids.data is not None and ((ids.data < 0) | (ids.data >= table.shape[0])).any():
            message = f"{ids.name} has an index outside of {table.shape[0]} rows"
            raise OperatorError(message)
        expect(made, (ids.elements, *table.shape[1:]), made.dtype)
        if made.dtype is not table.dtype:
            expect_type(table, _STORED)
            expect_type(made, _REAL)
            self._scales  # noqa: B018 - checks them

    @cached_property
    def _scales(self) -> Quantization:
        """The scales of a table of integers that become real numbers."""
        table, scales = self.input(1), self.input(1).quantization
        if scales is None or (scales.per_axis and scales.axis and not scales.block_size):
            message = f"{table.name} has no scale for each row"
        elif scales.zero_point.flat[0]:
            message = f"{table.name} has a zero point, which the kernel does not take"
        elif scales.block_size and table.rank > 2:  # noqa: PLR2004 - as the kernel has it
            message = f"{table.name} has blocks of scales in {table.rank} axes"
        elif table.data is None and table.dtype.bits < 8:  # noqa: PLR2004 - a byte
            message = f"{table.name} is not constant"
        else:
            return scales
        raise OperatorError(message)

    def emit(self, g: Builder, y: View, ids: View, table: View) -> Value:
        if y.dtype is table.dtype:
            return g.within("Gather", y.dtype, lambda v: g.Gather(v, ids, axis=0), table)
        source = table.value
        if table.dtype.bits < 8:  # noqa: PLR2004 - ONNX Runtime gathers whole bytes
            source = g.constant(table.constant, DType.INT8, table.tensor.name)
        rows = g.Gather(source, ids, axis=0)
        signed = g.cast(rows, DType.INT8) if table.dtype is DType.UINT8 else rows
        real = self._scaled(g, ids, g.cast(signed, DType.FLOAT32))
        return g.recast(real, DType.FLOAT32, y.dtype)

    def _scaled(self, g: Builder, ids: View, rows: Value) -> Value:
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

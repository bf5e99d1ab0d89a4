"""WHERE and UNIQUE: how much they find is known when they have run."""

from __future__ import annotations

from collections.abc import Sequence

from tflite2onnx.op.base import Builder, Category, OperatorError, Value, View
from tflite2onnx.op.common.checks import expect, expect_type
from tflite2onnx.op.traits import DynamicShape
from tflite2onnx.tensor import DType, Shape

_WHERE_TYPES = (
    DType.BOOL,
    DType.FLOAT32,
    DType.INT8,
    DType.UINT8,
    DType.INT32,
    DType.UINT32,
    DType.INT64,
)
_UNIQUE_TYPES = (
    DType.FLOAT32,
    DType.INT8,
    DType.UINT8,
    DType.INT16,
    DType.INT32,
    DType.INT64,
)
_INDICES = (DType.INT32, DType.INT64)


class Where(DynamicShape):
    """WHERE: the places of all elements that are not 0, row by row."""

    codes = ("WHERE",)
    category = Category.TERMINATE
    computes_on_stored_integers = True
    dynamic_axes = "..."

    def infer_outputs(self) -> Sequence[Shape]:
        # Files may declare any number of places.
        return [(max(self.output.shape[:1], default=1) or 1, self.input(0).rank)]

    def data_dependent_dims(self) -> Sequence[Sequence[tuple[int, int]]]:
        return [[(0, 0)]]

    def check(self) -> None:
        x = self.input(0)
        expect_type(x, _WHERE_TYPES)
        if not x.rank:
            raise OperatorError(f"{x.name} has no axes")
        expect(self.output, self.infer_outputs()[0], DType.INT64)

    def emit(self, g: Builder, y: View, x: View) -> Value:
        # Stored integers count as they are, whatever stands for 0.
        return g.Transpose(g.NonZero(g.recast(x, x.dtype, DType.BOOL)), perm=[1, 0])


class Unique(DynamicShape):
    """UNIQUE: each element once, in the sequence of their first places, and which one is where."""

    codes = ("UNIQUE",)
    category = Category.TERMINATE
    returns_tuple = True
    moves_only = True
    dynamic_axes = "..."

    def data_dependent_dims(self) -> Sequence[Sequence[tuple[int, int]]]:
        return [[(0, 0)]]

    def infer_outputs(self) -> Sequence[Shape]:
        x, found = self.input(0), self.output
        return [(max(found.shape[:1], default=1) or 1,), x.shape]

    def check(self) -> None:
        x = self.input(0)
        expect_type(x, _UNIQUE_TYPES)
        if x.rank != 1 or len(self.op.outputs) != 2:
            raise OperatorError(
                f"{x.name} has {x.rank} axes, and there are {len(self.op.outputs)} outputs"
            )
        values, places = self.op.outputs
        expect(values, self.infer_outputs()[0], x.dtype)
        expect_type(places, _INDICES)
        expect(places, x.shape, places.dtype)

    def emit(self, g: Builder, ys: tuple[View, View], x: View) -> tuple[Value, Value]:
        kind = g.compute_type("Unique", x.dtype)
        values, _, places = g.node_outputs("Unique", 3, g.recast(x, x.dtype, kind), sorted=0)
        return (
            g.recast(values, kind, x.dtype),
            g.recast(places, DType.INT64, ys[1].dtype),
        )

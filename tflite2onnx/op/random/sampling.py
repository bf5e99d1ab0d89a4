"""RANDOM_UNIFORM, RANDOM_STANDARD_NORMAL and MULTINOMIAL: numbers drawn by chance.

They are of the same distribution in both worlds, and not the same numbers: LiteRT counts on with
Philox from one run to the next, and ONNX leaves the generator to the runtime.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from tflite2onnx.builder.builder import NeedsReshape
from tflite2onnx.builder.nodes import onnx_type
from tflite2onnx.op.base import Builder, Category, Operator, OperatorError, Value, View
from tflite2onnx.op.common.checks import count_listed_axes, expect, expect_type, integer, ints
from tflite2onnx.op.traits import DynamicShape
from tflite2onnx.tensor import DType, Shape

_SEEDS = 1 << 24  # float32, of which ONNX's attribute is, tells so many integers apart


class _Drawn(Operator):
    """What has two seeds. Without any the kernels take one from the system, the runtime its own."""

    category = Category.TERMINATE

    @property
    def _seed(self) -> float | None:
        seed, other = int(self.options.seed), int(self.options.seed2)
        return float((seed + other * 65537) % _SEEDS) if seed or other else None


class Random(_Drawn, DynamicShape):
    """RANDOM_UNIFORM and RANDOM_STANDARD_NORMAL: floats from 0 to 1, or around 0, in a shape."""

    nodes: ClassVar[dict[str, str]] = {
        "RANDOM_UNIFORM": "RandomUniform",
        "RANDOM_STANDARD_NORMAL": "RandomNormal",
    }
    codes = tuple(nodes)
    dynamic_axes = "..."

    def infer_outputs(self) -> Sequence[Shape] | None:
        rank, made = count_listed_axes(self, 0), self.output
        return None if made.rank == rank else [(1,) * rank]

    def data_dependent_dims(self) -> Sequence[Sequence[tuple[int, int]]]:
        known = self.input(0).data is not None
        return () if known else [[(0, axis)] for axis in range(count_listed_axes(self, 0))]

    def check(self) -> None:
        sizes = self.input(0)
        expect(sizes, (sizes.elements,), DType.INT32)
        shape = list(self.output.shape) if sizes.data is None else ints(self, 0)
        if min(shape, default=0) < 0 or len(shape) != sizes.elements:
            raise OperatorError(f"there is no shape {shape}")
        expect(self.output, shape, DType.FLOAT32)

    def emit(self, g: Builder, y: View, sizes: View) -> Value | NeedsReshape:
        node, options = self.nodes[self.op.code], {"dtype": onnx_type(y.dtype), "seed": self._seed}
        if sizes.tensor.data is None:
            zeros = g.ConstantOfShape(g.cast(sizes, DType.INT64))
            return g.node(f"{node}Like", zeros, **options)
        made = g.node(node, shape=y.shape or (1,), **options)
        return made if y.shape else NeedsReshape(made)


class Multinomial(_Drawn, DynamicShape):
    """Numbers of classes, by the logarithms of their odds; those that are not finite never win."""

    codes = ("MULTINOMIAL",)
    dynamic_axes = "..."

    def data_dependent_dims(self) -> Sequence[Sequence[tuple[int, int]]]:
        return () if self.input(1).data is not None else [[(0, 1)]]

    def check(self) -> None:
        logits, number, made = self.input(0), self.input(1), self.output
        expect_type(logits, (DType.FLOAT32,))
        expect(number, (), DType.INT32)
        known = number.data is not None or made.rank != 2  # a matrix
        count = integer(self, 1) if known else made.shape[1]
        if logits.rank != 2 or not logits.shape[1] or count < 0:
            raise OperatorError(
                f"{count} classes are drawn of odds of the shape {list(logits.shape)}"
            )
        wide = made.dtype is DType.INT64
        expect(made, (logits.shape[0], count), DType.INT64 if wide else DType.INT32)

    def emit(self, g: Builder, y: View, logits: View, number: View) -> Value:
        if number.tensor.data is None:
            return g.recast(self._draw_classes(g, logits, number), DType.INT64, y.dtype)
        if not y.tensor.elements:  # ONNX draws at least one
            return g.constant(np.empty(y.shape, y.dtype.numpy))
        return g.Multinomial(
            logits, sample_size=y.shape[1], dtype=onnx_type(y.dtype), seed=self._seed
        )

    def _draw_classes(self, g: Builder, logits: View, number: View) -> Value:
        """Return as many classes as only the run will know, which ONNX's own node cannot draw.

        It is the first class up to which the odds add up to more than a number drawn.
        """
        zero, last = g.scalar(0, DType.FLOAT32), g.ints([-1])
        # Not to be drawn is to have no odds: minus infinity is left out, as is any other.
        no = g.Or(g.IsNaN(logits), g.IsInf(logits))
        lowest = g.scalar(float(np.finfo(np.float32).min), DType.FLOAT32)
        highest = g.reduce("ReduceMax", g.Where(no, lowest, logits), [1], keepdims=True)
        odds = g.Where(no, zero, g.Exp(g.Sub(logits, highest)))
        sums = g.CumSum(odds, g.scalar(1, DType.INT64))
        total = g.Gather(sums, last, axis=1)
        rows = g.Slice(g.Shape(logits), g.ints([0]), g.ints([1]))
        shape = g.Concat(rows, g.reshape(g.cast(number, DType.INT64), [1]), axis=0)
        drawn = g.RandomUniformLike(
            g.ConstantOfShape(shape), dtype=onnx_type(DType.FLOAT32), seed=self._seed
        )
        passed = g.LessOrEqual(
            g.Unsqueeze(sums, g.ints([1])), g.Unsqueeze(g.Mul(drawn, total), g.ints([2]))
        )
        return g.reduce("ReduceSum", g.cast(passed, DType.INT64), [2], keepdims=False)

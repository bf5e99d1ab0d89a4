"""RANDOM_UNIFORM, RANDOM_STANDARD_NORMAL and MULTINOMIAL: numbers drawn by chance.

They are of the same distribution in both worlds, and not the same numbers: LiteRT counts on with
Philox from one run to the next, and ONNX leaves the generator to the runtime.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from tflite2onnx.builder import Unshaped
from tflite2onnx.nodes import onnx_type
from tflite2onnx.op.base import Builder, Category, Operator, OperatorError, Value, View
from tflite2onnx.op.parameters import expect, expect_type, integer, ints
from tflite2onnx.tensor import DType

_SEEDS = 1 << 24  # float32, of which ONNX's attribute is, tells so many integers apart


class _Drawn(Operator):
    """What has two seeds. Without any the kernels take one from the system, the runtime its own."""

    category = Category.TERMINATE

    @property
    def _seed(self) -> float | None:
        seed, other = int(self.options.seed), int(self.options.seed2)
        return float((seed + other * 65537) % _SEEDS) if seed or other else None


class Random(_Drawn):
    """Floats from 0 to 1, without 1, or around 0; the input is their shape."""

    nodes: ClassVar[dict[str, str]] = {
        "RANDOM_UNIFORM": "RandomUniform",
        "RANDOM_STANDARD_NORMAL": "RandomNormal",
    }
    codes = tuple(nodes)

    def check(self) -> None:
        shape = ints(self, 0)
        expect(self.input(0), (len(shape),), DType.INT32)
        if min(shape, default=0) < 0:
            message = f"there is no shape {shape}"
            raise OperatorError(message)
        expect(self.output, shape, DType.FLOAT32)

    def emit(self, g: Builder, y: View, _: View) -> Value | Unshaped:
        made = g.node(
            self.nodes[self.op.code], shape=y.shape or (1,), dtype=onnx_type(y.dtype),
            seed=self._seed,
        )  # fmt: skip
        return made if y.shape else Unshaped(made)


class Multinomial(_Drawn):
    """Numbers of classes, by the logarithms of their odds; those that are not finite never win."""

    codes = ("MULTINOMIAL",)

    def check(self) -> None:
        logits, count = self.input(0), integer(self, 1)
        expect_type(logits, (DType.FLOAT32,))
        if logits.rank != 2 or not logits.shape[1] or count < 0:  # noqa: PLR2004 - a matrix
            message = f"{count} classes are drawn of odds of the shape {list(logits.shape)}"
            raise OperatorError(message)
        wide = self.output.dtype is DType.INT64
        expect(self.output, (logits.shape[0], count), DType.INT64 if wide else DType.INT32)

    def emit(self, g: Builder, y: View, logits: View, _: View) -> Value:
        if not y.tensor.elements:  # ONNX draws at least one
            return g.constant(np.empty(y.shape, y.dtype.numpy))
        return g.Multinomial(
            logits, sample_size=y.shape[1], dtype=onnx_type(y.dtype), seed=self._seed
        )

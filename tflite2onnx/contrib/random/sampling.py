"""RANDOM_UNIFORM, RANDOM_STANDARD_NORMAL and MULTINOMIAL: random numbers.

LiteRT and ONNX draw from the same distribution, but not the same numbers: LiteRT advances a Philox
generator from run to run, and ONNX does not define the generator.
"""

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from tflite2onnx.operators import (
    AnySizes,
    Builder,
    DType,
    NeedsReshape,
    Operator,
    OperatorError,
    OutputShape,
    Unknown,
    Value,
    View,
    integer,
    ints,
    read_shape,
    require_onnx_type,
)

# The number of seeds: ONNX's attribute is float32, which represents integers below this number.
_SEEDS = 1 << 24


class _Drawn(Operator):
    """Base of operators with two seeds; if both are 0, kernels and runtimes choose a seed."""

    @property
    def _seed(self) -> float | None:
        seed, other = int(self.options.seed), int(self.options.seed2)
        return float((seed + other * 65537) % _SEEDS) if seed or other else None


class Random(_Drawn, AnySizes):
    """RANDOM_UNIFORM and RANDOM_STANDARD_NORMAL: random floats, uniform in [0, 1) or normal."""

    rows: ClassVar[dict[str, str]] = {
        "RANDOM_UNIFORM": "RandomUniform",
        "RANDOM_STANDARD_NORMAL": "RandomNormal",
    }
    shape_inputs = (0,)
    operands = "int32 [axes] -> float32"

    def infer_outputs(self) -> Sequence[OutputShape]:
        return [read_shape(self, 0)]

    def check(self) -> None:
        sizes = self.input(0)
        shape = [] if sizes.data is None else ints(self, 0)
        if min(shape, default=0) < 0:
            raise OperatorError(
                f"{sizes.name} must be {sizes.elements} non-negative sizes, got {shape}"
            )

    def emit(self, g: Builder, y: View, sizes: View) -> Value | NeedsReshape:
        node, options = self.row, {"dtype": require_onnx_type(y.dtype), "seed": self._seed}
        if sizes.tensor.data is None:
            zeros = g.ConstantOfShape(g.cast(sizes, DType.INT64))
            return g.node(f"{node}Like", zeros, **options)
        output = g.node(node, shape=y.shape or (1,), **options)
        return output if y.shape else NeedsReshape(output)


class Multinomial(_Drawn, AnySizes):
    """MULTINOMIAL: random classes by their logits; classes with non-finite logits are excluded."""

    codes = ("MULTINOMIAL",)
    operands = "float32 [rows columns], int32 [] -> index"

    def infer_outputs(self) -> Sequence[OutputShape]:
        count = Unknown() if self.input(1).data is None else integer(self, 1)
        return [(self.input(0).shape[0], count)]

    def check(self) -> None:
        logits, number = self.input(0), self.input(1)
        count = 0 if number.data is None else integer(self, 1)
        if not logits.shape[1] or count < 0:
            raise OperatorError(
                f"logits must be a matrix with at least one column, and the number of samples not "
                f"negative, got the shape {list(logits.shape)} and {count} samples"
            )

    def emit(self, g: Builder, y: View, logits: View, number: View) -> Value:
        if number.tensor.data is None:
            return g.recast(self._draw_classes(g, logits, number), DType.INT64, y.dtype)
        if not y.tensor.elements:  # ONNX draws at least one number
            return g.constant(np.empty(y.shape, y.dtype.numpy))
        options = {"dtype": require_onnx_type(y.dtype), "seed": self._seed}
        return g.Multinomial(logits, sample_size=y.shape[1], **options)

    def _draw_classes(self, g: Builder, logits: View, number: View) -> Value:
        """Return random classes; their number is known at run time only.

        ONNX's Multinomial has a constant number of samples. A sample is the first class whose
        cumulative odds exceed a uniform random number times the total.
        """
        # A class whose logit is not finite is never drawn.
        excluded = g.Or(g.IsNaN(logits), g.IsInf(logits))
        lowest = g.scalar(float(np.finfo(np.float32).min), DType.FLOAT32)
        highest = g.reduce("ReduceMax", g.Where(excluded, lowest, logits), [1], keepdims=True)
        odds = g.Where(excluded, g.scalar(0, DType.FLOAT32), g.Exp(g.Sub(logits, highest)))
        sums = g.CumSum(odds, 1)
        total = g.Gather(sums, [-1], axis=1)
        rows = g.Slice(g.Shape(logits), [0], [1])
        shape = g.Concat(rows, g.reshape(g.cast(number, DType.INT64), [1]), axis=0)
        options = {"dtype": require_onnx_type(DType.FLOAT32), "seed": self._seed}
        uniform = g.RandomUniformLike(g.ConstantOfShape(shape), **options)
        row, columns = g.Unsqueeze(sums, [1]), g.Mul(uniform, total)
        is_below = g.LessOrEqual(row, g.Unsqueeze(columns, [2]))
        return g.reduce("ReduceSum", g.cast(is_below, DType.INT64), [2], keepdims=False)

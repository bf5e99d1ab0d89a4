"""Recognise normalizations by the root of the mean square (RMS) that a model spells out.

    y = x / sqrt(mean(x * x) + epsilon) * scale

Language models contain them. They are replaced by RMS_NORMALIZATION, which no file contains, if

1. x * x is MUL, SQUARE or POW; its mean is MEAN, or SUM multiplied by or divided by the number of
   elements; the root is RSQRT, SQRT or POW. RESHAPE may stand between these operators;
2. the mean is that along the last axis, of fixed size, and has the shape of x but for a last size
   of 1, at the root at the latest;
3. all tensors are float32; epsilon is one number;
4. no other operator reads the tensors between the operators. A product by a constant along the last
   axis behind them, or of the inverse of the root, is the scale.

ONNX Runtime makes one node of the nodes that RMS_NORMALIZATION becomes, and takes 0.4 to 0.6 of the
time. From opset 23 on it is one node, as fast.
"""

from __future__ import annotations

import numpy as np

from tflite2onnx.graph import Op
from tflite2onnx.passes.operands import is_float
from tflite2onnx.passes.patterns.matching import (
    Activated,
    Match,
    Named,
    OneOf,
    Pattern,
    maybe,
    through,
)
from tflite2onnx.passes.patterns.normalizations.fuse_normalizations import spread_along_last_axis
from tflite2onnx.passes.patterns.rules import Rule, Rules
from tflite2onnx.passes.rewriter import as_builtin
from tflite2onnx.tensor import DType, Tensor

_CLOSE = 1e-6  # relative difference of numbers
_SQUARES = OneOf(("MUL", "x", "x"), ("SQUARE", "x"), ("POW", "x", 2))
_SUM = through(("SUM", _SQUARES, "axes#"))
_MEAN = through(
    OneOf(("MEAN", _SQUARES, "axes#"), ("MUL", _SUM, "share#"), ("DIV", _SUM, "count#"))
)
_SHIFTED = through(("ADD", _MEAN, "epsilon#"))
_INVERSE: Pattern = Named("root", OneOf(("RSQRT", _SHIFTED), ("POW", _SHIFTED, -0.5)))
_RATIO: Pattern = ("DIV", "x", Named("root", ("SQRT", _SHIFTED)))
_NORMALIZED = OneOf(
    maybe("MUL", OneOf(("MUL", "x", _INVERSE), _RATIO), "scale#"),
    ("MUL", "x", ("MUL", _INVERSE, "scale#")),
)


def _make_normalization(found: Match) -> Op | None:
    """Return RMS_NORMALIZATION, None unless the conditions 2 to 4 hold."""
    x, epsilon = found.tensors["x"], found.number("epsilon#")
    one = Tensor("one", (1,), DType.FLOAT32, np.ones(1, np.float32))
    scale = spread_along_last_axis(found.tensors.get("scale#", one), x)
    if not scale or epsilon is None or not (is_float(x) and x.elements):
        return None
    axes = found.tensors["axes#"].values
    last_axis = axes.size == 1 and found.find_axes("axes#", x.rank) == {x.rank - 1}
    kept = found.tensors["root"].sizes == (*x.sizes[:-1], 1)
    y = found.last.outputs[0]
    if not (last_axis and kept and y.sizes == x.sizes and _divides_by_size(found, x.shape[-1])):
        return None
    options = {"epsilon": epsilon, "fused_activation_function": found.last.activation}
    return as_builtin(found.last, "RMS_NORMALIZATION", x, scale, **options)


def _divides_by_size(found: Match, size: int) -> bool:
    """Return whether a sum is divided by the number of elements along the last axis."""
    share = 1 / size
    if "share#" in found.tensors:
        share = found.number("share#") or 0
    elif "count#" in found.tensors:
        share = 1 / (found.number("count#") or np.inf)
    return abs(share - 1 / size) <= _CLOSE / size


fuse_rms_normalizations = Rules(
    Rule("RMS normalization", "RMS_NORMALIZATION", Activated(_NORMALIZED), _make_normalization),
)

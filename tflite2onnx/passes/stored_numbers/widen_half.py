"""Products, sums and functions of float16: CAST, the operator in float32, and CAST.

LiteRT's default delegate, XNNPACK, runs those of `_CODES` in all lines but the last. On processors
without float16 arithmetic it computes them in float32 and rounds the results to float16. A built-in
kernel runs those in the last line, and rounds them, too. A runtime that has no kernel for the
latter in float16 may insert Casts and merge them with those beside them, so that nothing is
rounded. It keeps the Casts of the file (`InsertedPrecisionFreeCast` in
`insert_cast_transformer.cc`). Exporters write these operators for models of mixed precision.
"""

from dataclasses import replace
from typing import TypeGuard

from tflite2onnx.graph import Op
from tflite2onnx.passes.patterns.matching import Activated, Match, any_of
from tflite2onnx.passes.patterns.rules import rule
from tflite2onnx.passes.rewriter import Rewriter, make_float_like
from tflite2onnx.tensor import DType, Tensor

_CODES = (
    *("AVERAGE_POOL_2D", "BATCH_MATMUL", "CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED"),
    *("ABS", "CEIL", "ELU", "EXP", "HARD_SWISH", "LEAKY_RELU", "LOG", "PRELU", "REDUCE_MAX"),
    *("REDUCE_MIN", "RELU", "RELU6", "RELU_N1_TO_1", "RSQRT", "SQRT", "SQUARE"),
    *("SQUARED_DIFFERENCE", "SUM"),
    *("MEAN", "ADD", "DIV", "MUL", "SUB"),
)


@rule(
    "products, sums and functions of float16",
    "CAST, the same of float32, CAST",
    Activated(any_of(_CODES, "x", ...)),
    lambda found: all(map(_is_half, (found.x, *found.last.outputs))),
    "the data and the results must be float16",
    dtype=DType.FLOAT16,
)
def widen_half(found: Match) -> list[Op]:
    """Return operators on float32 in place of one on float16."""
    op, rw = found.last, Rewriter(found.last)
    inputs = [
        rw.op("CAST", t, output=make_float_like(t, "float32")) if _is_half(t) else t
        for t in op.inputs
    ]
    outputs = [make_float_like(t, "float32") if _is_half(t) else t for t in op.outputs]
    rw.ops.append(replace(op, inputs=tuple(inputs), outputs=tuple(outputs)))
    for wide, half in zip(outputs, op.outputs, strict=True):
        if wide is not half:
            rw.op("CAST", wide, output=half)
    return rw.ops


def _is_half(tensor: Tensor | None) -> TypeGuard[Tensor]:
    return tensor is not None and tensor.dtype is DType.FLOAT16

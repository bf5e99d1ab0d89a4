"""Replace StableHLO operators that LiteRT has no kernel for by operators of the same meaning.

The table has the operators that compute each element, and those that only move elements.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tflite2onnx.graph import Model, Op, Options
from tflite2onnx.passes.rewriter import Rewriter, as_builtin, make_int32

# Operators of the same operands; TensorFlow's operators (Flex) take more element types.
_SAME: Mapping[str, str] = {
    "ABS": "FlexAbs",
    "CONVERT": "CAST",
    "COSINE": "FlexCos",
    "DIVIDE": "FlexDiv",
    "EXPONENTIAL": "FlexExp",
    "FLOOR": "FlexFloor",
    "LOG": "FlexLog",
    "LOGISTIC": "FlexSigmoid",
    "NEGATE": "FlexNeg",
    "POWER": "FlexPow",
    "REMAINDER": "FlexTruncateMod",
    "RSQRT": "FlexRsqrt",
    "SELECT": "SELECT_V2",
    "SUBTRACT": "FlexSub",
    "TANH": "FlexTanh",
}
_PREFIX = "STABLEHLO_"


def lower_stablehlo(model: Model) -> Model:
    """Return the model with other operators in place of those of the table."""
    return model._replace(graphs=tuple(graph.rewrite(_lower_op) for graph in model.graphs))


def _lower_op(op: Op) -> Sequence[Op]:
    name = op.code.removeprefix(_PREFIX)
    if op.custom or name == op.code:
        return [op]
    if name in _SAME and len(op.outputs) == 1:
        code = _SAME[name]
        return [replace(op, code=code, custom=code.startswith("Flex"), options=Options())]
    if name == "CONCATENATE":
        return [
            as_builtin(
                op, "CONCATENATION", axis=op.options.dimension, fused_activation_function="NONE"
            )
        ]
    if name == "TRANSPOSE":
        order = make_int32(f"{op.outputs[0].name}/order", op.options.permutation)
        return [as_builtin(op, "TRANSPOSE", *op.inputs, order)]
    if name == "CLAMP" and (len(op.inputs), len(op.outputs)) == (3, 1):
        low, x, high = op.inputs
        rw, (y,) = Rewriter(op), op.outputs
        rw.op("FlexMaximum", rw.op("FlexMinimum", x, high, like=y), low, output=y)
        return rw.ops
    return [op]

"""Types without a kernel, carried through in types that have one and hold the same values.

What is listed was measured: ONNX Runtime 1.20 and 1.31 refuse these nodes for these types, at
every opset that can express them.
"""

from __future__ import annotations

from collections.abc import Callable

from tflite2onnx.builder import Builder, Value, onnx_type
from tflite2onnx.tensor import DType

# Types that most nodes lack: Cast takes them, and little else.
_SMALL = {
    DType.INT4: DType.INT8,
    DType.FLOAT8_E4M3FN: DType.FLOAT16,
    DType.FLOAT8_E5M2: DType.FLOAT16,
}
_LACKING = {
    "ArgMax": {DType.BOOL: DType.UINT8},
    "ArgMin": {DType.BOOL: DType.UINT8},
    "Expand": {DType.BFLOAT16: DType.FLOAT32},
    "Pad": {
        DType.BFLOAT16: DType.FLOAT32,
        DType.INT16: DType.INT32,
        DType.UINT16: DType.INT32,
    },
    "Tile": {DType.BFLOAT16: DType.FLOAT32},
    "TopK": {DType.INT8: DType.INT32, DType.INT16: DType.INT32, DType.UINT8: DType.INT32},
}
# The opset whose Cast knows a type.
_SINCE = {DType.INT4: 21, DType.FLOAT8_E4M3FN: 19, DType.FLOAT8_E5M2: 19}


def carrier(op_type: str, dtype: DType) -> DType:
    """Return the type in which a node can read these values: mostly their own."""
    return _SMALL.get(dtype) or _LACKING.get(op_type, {}).get(dtype, dtype)


def recast(g: Builder, x: Value, have: DType, want: DType) -> Value:
    """Return x, which has one type, in another; constant integers are converted at once."""
    if have is want:
        return x
    if x.data is not None and have.is_integer and want.is_integer:
        return g.constant(x.data.astype(want.numpy), want, x.name)
    for dtype in (have, want):
        g.require(_SINCE.get(dtype, 0), f"Cast of {dtype.label}")
    # Saturating, Cast would turn an infinity into the largest number of a type of eight bits.
    saturate = 0 if want.label.startswith("float8") else None
    return g.Cast(x, to=onnx_type(want), saturate=saturate)


def carried(
    g: Builder, op_type: str, node: Callable[..., Value], *xs: Value, dtype: DType
) -> Value:
    """Return node(*xs), whose operands and result have this type, in a type that the node has."""
    want = carrier(op_type, dtype)
    made = node(*(recast(g, x, dtype, want) for x in xs))
    return recast(g, made, want, dtype)

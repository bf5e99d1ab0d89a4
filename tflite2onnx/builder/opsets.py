"""Opsets: the first opset that has each operator, each form of an operator, and each element type.

ONNX's schemas contain the same facts, but reading them takes a tenth of the time of a conversion.
"""

from tflite2onnx.tensor import DType

MIN_OPSET = 9
# Operators emit the nodes of this opset. `older_opsets` replaces them by nodes of older opsets.
ORDINARY_OPSET = 13
NEGATIVE_AXES = 11  # the first opset in which all operators take negative axes
DEFAULT_OPSET = 17
# The version of each domain besides ONNX's own; a domain of the user has version 1.
DOMAINS = {"ai.onnx.ml": 3}

# Forms of operators
AXES_INPUT = "axes as an input"
BLOCKS = "a scale for each block"
LINEAR = "the mode linear, which older opsets call bilinear"
ZERO_SIZE = "a size of 0"

# An operator, an element type of any tensor, or an operator with one form or one element type.
Feature = str | DType | tuple[str, str | DType]

_QDQ = ("DequantizeLinear", "QuantizeLinear")
_REDUCTIONS = ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "SumSquare")
_NEVER = 1 << 16

# The first opset of features. A feature without an entry is as old as ORDINARY_OPSET, or is in
# ONNX's schemas, which `validity.check` reads.
FIRST_OPSET: dict[Feature, int] = {
    "Attention": 23,
    "Bernoulli": 15,
    "BitCast": 26,
    "BitwiseAnd": 18,
    "BitwiseNot": 18,
    "BitwiseOr": 18,
    "BitwiseXor": 18,
    "DFT": 17,
    "Gelu": 20,
    "GridSample": 16,
    "HardSwish": 14,
    "LayerNormalization": 17,
    "STFT": 17,
    "RMSNormalization": 23,
    "RegexFullMatch": 20,
    "StringConcat": 20,
    "StringSplit": 20,
    # Forms
    ("DFT", AXES_INPUT): 20,
    ("GridSample", LINEAR): 20,
    **{(f"Reduce{kind}", AXES_INPUT): 18 for kind in _REDUCTIONS},
    ("ReduceSum", AXES_INPUT): 13,
    ("Reshape", ZERO_SIZE): 14,
    **{("ScatterND", reduction): 16 for reduction in ("add", "mul")},
    **{("ScatterND", reduction): 18 for reduction in ("max", "min")},
    **{(node, BLOCKS): 21 for node in _QDQ},
    # Element types of tensors, which Cast and DequantizeLinear support
    **dict.fromkeys((DType.FLOAT8_E4M3FN, DType.FLOAT8_E5M2), 19),
    **dict.fromkeys((DType.INT4, DType.UINT4), 21),
    DType.INT2: 25,
    # Element types of single operators
    **{(node, dtype): 21 for node in _QDQ for dtype in (DType.INT16, DType.INT4, DType.UINT4)},
    **{(node, DType.INT2): 25 for node in _QDQ},
    ("Equal", DType.STRING): 19,
    ("LeakyRelu", DType.FLOAT64): 16,
    **{(node, DType.BFLOAT16): 16 for node in ("If", "Loop")},
    **{(node, DType.BFLOAT16): 13 for node in ("Concat", "Gather", "GatherND", "Slice", "Split")},
}

# The first opset for which runtimes have a kernel of an operator for a type, if older schemas have
# the type, too.
FIRST_KERNEL: dict[tuple[str, str], int] = {
    ("Reshape", dtype.label): 21 for dtype in (DType.FLOAT8_E4M3FN, DType.FLOAT8_E5M2)
}

# Element types that an operator lacks in ONNX or in runtimes before some opset, or in every opset.
# The values are the wider type in which the operator runs instead, and that opset. The wider type
# holds all elements, and its results wrap around to the same numbers.
COMPUTE_TYPES: dict[tuple[str, DType], tuple[DType, int]] = {
    **{
        (node, dtype): (DType.INT32, 14)
        for node in ("Add", "Sub", "Mul", "Div")
        for dtype in (DType.INT8, DType.UINT8, DType.INT16, DType.UINT16)
    },
    **{
        (node, dtype): (DType.INT32, _NEVER)
        for node in ("Max", "Min", "Clip", "Where")
        for dtype in (DType.INT16, DType.UINT16)
    },
    ("MaxPool", DType.INT16): (DType.FLOAT32, _NEVER),
    ("Where", DType.BOOL): (DType.UINT8, _NEVER),
    ("Where", DType.INT8): (DType.INT32, _NEVER),
    ("Where", DType.UINT32): (DType.INT64, _NEVER),
    ("Where", DType.UINT64): (DType.INT64, _NEVER),
    **{(f"Reduce{kind}", DType.INT16): (DType.INT32, _NEVER) for kind in ("Max", "Min")},
    **{(f"Reduce{kind}", DType.BOOL): (DType.UINT8, 20) for kind in ("Max", "Min")},
    ("ReduceSum", DType.INT32): (DType.INT64, _NEVER),
    **{(f"Arg{kind}", DType.BOOL): (DType.UINT8, _NEVER) for kind in ("Max", "Min")},
    **{("Pad", dtype): (DType.INT32, _NEVER) for dtype in (DType.INT16, DType.UINT16)},
    **{("TopK", dtype): (DType.INT32, _NEVER) for dtype in (DType.INT8, DType.UINT8, DType.INT16)},
    **{
        ("Unique", dtype): (DType.INT64, _NEVER)
        for dtype in (DType.INT16, DType.INT32, DType.UINT8)
    },
}
# Element types that few operators besides Cast support, and the type that holds their elements.
_RARE = {
    DType.BFLOAT16: DType.FLOAT32,
    DType.INT2: DType.INT8,
    DType.INT4: DType.INT8,
    DType.UINT4: DType.UINT8,
    DType.FLOAT8_E4M3FN: DType.FLOAT16,
    DType.FLOAT8_E5M2: DType.FLOAT16,
}


def find_first_opset(feature: Feature) -> int:
    """Return the first opset that has a feature."""
    return FIRST_OPSET.get(feature, MIN_OPSET)


def compute_type(op_type: str, dtype: DType, opset: int) -> DType:
    """Return the element type in which an operator computes elements of a type in an opset.

    For most types this is the type itself, also if no wider type holds the elements: the operator
    then needs a newer opset (`find_first_opset`).
    """
    if (op_type, dtype) in FIRST_OPSET:
        return dtype
    other, first = COMPUTE_TYPES.get((op_type, dtype), (_RARE.get(dtype, dtype), _NEVER))
    return other if opset < first else dtype

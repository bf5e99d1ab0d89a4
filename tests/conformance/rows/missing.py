"""The operators that have no row: no runtime has them, or they are proven elsewhere."""

from __future__ import annotations

# Of TFLite's schema, but of no runtime: LiteRT registers no kernel (`test_conformance` asks it).
NO_KERNEL = frozenset(
    {
        "CALL",
        "CONCAT_EMBEDDINGS",
        "CUSTOM",
        "DELEGATE",
        "PLACEHOLDER_FOR_GREATER_OP_CODES",
        *(
            f"STABLEHLO_{name}"
            for name in (
                "ABS",
                "BROADCAST_IN_DIM",
                "CBRT",
                "CLAMP",
                "COMPARE",
                "CONCATENATE",
                "CONVERT",
                "CONVOLUTION",
                "COSINE",
                "CUSTOM_CALL",
                "DIVIDE",
                "DOT_GENERAL",
                "DYNAMIC_SLICE",
                "DYNAMIC_UPDATE_SLICE",
                "EXPONENTIAL",
                "FLOOR",
                "IOTA",
                "LOG",
                "LOGISTIC",
                "NEGATE",
                "OR",
                "POWER",
                "REDUCE",
                "REMAINDER",
                "RESHAPE",
                "RSQRT",
                "SELECT",
                "SLICE",
                "SORT",
                "SUBTRACT",
                "TANH",
                "TRANSPOSE",
                "WHILE",
            )
        ),
    }
)

# Converted, but the numbers are random, and ONNX draws others.
ELSEWHERE = dict.fromkeys(
    (
        "MULTINOMIAL",
        "RANDOM_STANDARD_NORMAL",
        "RANDOM_UNIFORM",
        "FlexMultinomial",
        "FlexRandomStandardNormal",
        "FlexRandomUniform",
    ),
    "tests/op/random/test_sampling.py: the numbers are random, and ONNX draws others",
)

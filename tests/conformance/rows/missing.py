"""Operators without a row: no runtime has a kernel, or other tests cover them."""

from __future__ import annotations

# In TFLite's schema, but LiteRT registers no kernel (`test_conformance` checks this).
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

# Converted, but the outputs are random: LiteRT and ONNX Runtime draw different numbers.
ELSEWHERE = dict.fromkeys(
    (
        "MULTINOMIAL",
        "RANDOM_STANDARD_NORMAL",
        "RANDOM_UNIFORM",
        "FlexMultinomial",
        "FlexRandomStandardNormal",
        "FlexRandomUniform",
    ),
    "tests/contrib/random/test_sampling.py: the numbers are random, and ONNX draws others",
)

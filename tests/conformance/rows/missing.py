"""The operators that have no row: no runtime has them, or they are proven elsewhere."""

from __future__ import annotations

# Of TFLite's schema, but of no runtime: LiteRT registers no kernel (`test_conformance` asks it).
NO_KERNEL = frozenset({
    "CALL", "CONCAT_EMBEDDINGS", "CUSTOM", "DELEGATE", "PLACEHOLDER_FOR_GREATER_OP_CODES",
    *(f"STABLEHLO_{name}" for name in (
        "ABS", "BROADCAST_IN_DIM", "CBRT", "CLAMP", "COMPARE", "CONCATENATE", "CONVERT",
        "CONVOLUTION", "COSINE", "CUSTOM_CALL", "DIVIDE", "DOT_GENERAL", "DYNAMIC_SLICE",
        "DYNAMIC_UPDATE_SLICE", "EXPONENTIAL", "FLOOR", "IOTA", "LOG", "LOGISTIC", "NEGATE", "OR",
        "POWER", "REDUCE", "REMAINDER", "RESHAPE", "RSQRT", "SELECT", "SLICE", "SORT", "SUBTRACT",
        "TANH", "TRANSPOSE", "WHILE",
    )),
})  # fmt: skip

# Converted, but nothing that a model of one operator on random numbers could show.
ELSEWHERE = {
    "ASSIGN_VARIABLE": "tests/test_state.py",
    "CALL_ONCE": "tests/test_state.py",
    "DENSIFY": "tests/test_sparse.py",
    "MULTINOMIAL": "tests/op/test_sampling.py: the numbers are random, and ONNX draws others",
    "RANDOM_STANDARD_NORMAL":
        "tests/op/test_sampling.py: the numbers are random, and ONNX draws others",
    "RANDOM_UNIFORM": "tests/op/test_sampling.py: the numbers are random, and ONNX draws others",
    "READ_VARIABLE": "tests/test_state.py",
    "SKIP_GRAM": "tests/op/test_ngrams.py",
    "STABLEHLO_COMPOSITE": "tests/test_inline.py",
    "VAR_HANDLE": "tests/test_state.py",
}  # fmt: skip

"""builder/opsets.py: the first opset of each node type, and the types that nodes compute in."""

from __future__ import annotations

import pytest
from onnx import helper

from tflite2onnx.builder.opsets import (
    AXES_INPUT,
    DEFAULT_OPSET,
    DOMAINS,
    MIN_OPSET,
    compute_type,
    find_first_opset,
)
from tflite2onnx.tensor import DType


def test_features_not_in_table_are_in_every_opset() -> None:
    """Conv is in every opset; ReduceMax takes its axes as an input later than ReduceSum."""
    assert find_first_opset("Conv") == find_first_opset(("Conv", DType.FLOAT32)) == MIN_OPSET
    assert find_first_opset(("ReduceSum", AXES_INPUT)) < find_first_opset(("ReduceMax", AXES_INPUT))


def test_versions_of_domains_are_those_of_the_default_opset() -> None:
    """A model of the default opset has the domains' versions of the same release of ONNX."""
    (versions,) = {row[3] for row in helper.VERSION_TABLE if row[2] == DEFAULT_OPSET}
    assert {"ai.onnx.ml": versions} == DOMAINS


@pytest.mark.parametrize(
    ("op_type", "dtype", "opset", "expected"),
    [
        ("Add", DType.FLOAT32, 13, DType.FLOAT32),
        ("Add", DType.INT8, 13, DType.INT32),
        ("Add", DType.INT8, 14, DType.INT8),
        ("Where", DType.BOOL, 26, DType.UINT8),
        ("Add", DType.BFLOAT16, 26, DType.FLOAT32),
        ("Concat", DType.BFLOAT16, 13, DType.BFLOAT16),
        ("Equal", DType.STRING, 13, DType.STRING),
    ],
)
def test_operators_compute_in_wider_types_where_needed(
    op_type: str, dtype: DType, opset: int, expected: DType
) -> None:
    """An operator runs in a wider type in the opsets that lack the operator for its type."""
    assert compute_type(op_type, dtype, opset) is expected

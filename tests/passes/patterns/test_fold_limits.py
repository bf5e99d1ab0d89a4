"""passes/patterns/fold_limits.py: integers between equal limits are constant."""

from __future__ import annotations

import pytest

from tests.support.graph_text import check_unchanged, parse_graph
from tflite2onnx.passes.patterns.fold_limits import fold_limits

TEXT = """
    inputs x: {dtype}[]
    a: {dtype}[] = {inner}(x, {low})
    b: {dtype}[] = {outer}(a, {high})
    y: {dtype}[2] = PACK(b, x, axis=0, values_count=2)
    return y
"""


@pytest.mark.parametrize("inner", ["MAXIMUM", "MINIMUM"])
def test_equal_limits_are_the_result(inner: str) -> None:
    outer = "MINIMUM" if inner == "MAXIMUM" else "MAXIMUM"
    graph = parse_graph(TEXT.format(dtype="int32", inner=inner, outer=outer, low=9, high=9))
    (pack,) = fold_limits(graph).ops
    assert pack.operand(0).values.item() == 9


@pytest.mark.parametrize(("dtype", "low", "high"), [("int32", 3, 9), ("float32", 9.0, 9.0)])
def test_other_limits_stay(dtype: str, low: float, high: float) -> None:
    text = TEXT.format(dtype=dtype, inner="MAXIMUM", outer="MINIMUM", low=low, high=high)
    check_unchanged(fold_limits, parse_graph(text))


def test_operators_on_shapes_are_not_folded() -> None:
    """A computed size, which the file declares as 1, is any size."""
    graph = parse_graph("""
        inputs x: int32[], r: int32[2]
        a: int32[] = MAXIMUM(x, 9)
        b: int32[] = MINIMUM(a, 9)
        t: float32[4,1] = TILE(float32[4,1], r)
        s: int32[2] = SHAPE(t)
        y: int32[2] = PACK(b, x, axis=0, values_count=2)
        return y, s
    """)
    assert [op.code for op in fold_limits(graph).ops] == ["TILE", "SHAPE", "PACK"]

"""passes/operands.py: what passes ask of an operator and its operands."""

from __future__ import annotations

import pytest

from tests.support.graph_text import parse_graph
from tflite2onnx.passes.operands import joins_last_axis


@pytest.mark.parametrize(
    ("axis", "is_last"), [(-3, False), (-2, False), (-1, True), (0, False), (1, False), (2, True)]
)
def test_the_last_axis_is_counted_from_both_ends(axis: int, *, is_last: bool) -> None:
    made = [2, 2, 2]
    made[axis] += 2
    (op,) = parse_graph(
        f"""
        inputs x: float32[2,2,2]
        y: float32[{",".join(map(str, made))}] = CONCATENATION(x, x, axis={axis})
        return y
        """
    ).ops
    assert joins_last_axis(op) == is_last

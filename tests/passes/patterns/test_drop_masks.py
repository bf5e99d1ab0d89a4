"""drop_masks.py: masks that hide no token."""

from __future__ import annotations

import pytest

from tests.support import check
from tests.support.graph_text import assert_rewritten, check_unchanged, make_model, parse_graph
from tflite2onnx.passes.patterns.drop_masks import drop_masks

MASKED = """
    inputs x: float32[2,3,5]
    e: float32[2,3,5] = EXP(x)
    m: float32[1,2,3,5] = ADD(e, [[[[0.0]]]])
    y: float32[1,2,3,5] = SOFTMAX(m, beta=1.0)
    return y
"""


def test_mask_of_zeros_is_dropped() -> None:
    after = """
        inputs x: float32[2,3,5]
        e: float32[2,3,5] = EXP(x)
        r: float32[1,2,3,5] = RESHAPE(e)
        y: float32[1,2,3,5] = SOFTMAX(r, beta=1.0)
        return y
    """
    assert_rewritten(drop_masks, MASKED, after)
    check(make_model(MASKED))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("[[[[0.0]]]]", "[[[[0.0, -9.0, 0.0, 0.0, 0.0]]]]"),
        ("SOFTMAX(m, beta=1.0)", "RELU(m)"),
        ("return y", "return y, m"),
    ],
    ids=["mask", "no softmax", "another reader"],
)
def test_other_sums_stay(old: str, new: str) -> None:
    check_unchanged(drop_masks, parse_graph(MASKED.replace(old, new)))


def test_scores_that_zeros_repeat_stay() -> None:
    text = MASKED.replace("[[[[0.0]]]]", "[[[[0.0]]], [[[0.0]]]]").replace("[1,2,3,5]", "[2,2,3,5]")
    check_unchanged(drop_masks, parse_graph(text))
    check(make_model(text))

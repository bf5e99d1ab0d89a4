"""attention/repeat_masks.py: masks of queries that share a head."""

from __future__ import annotations

import pytest

from tests.support import check
from tests.support.graph_text import assert_rewritten, check_unchanged, make_model, parse_graph
from tflite2onnx.targets.onnxruntime.forms.attention.repeat_masks import repeat_masks

BEFORE = """
    inputs x: float32[1,2,6,5], seen: bool[1,1,3,5]
    numbers: float32[1,1,3,5] = CAST(seen)
    twice: float32[1,2,3,5] = CONCATENATION(numbers, numbers, axis=1)
    both: bool[1,2,3,5] = NOT_EQUAL(twice, 0.0)
    mask: bool[1,1,6,5] = RESHAPE(both, [1, 1, 6, 5])
    y: float32[1,2,6,5] = SELECT_V2(mask, x, -10000.0)
    return y
"""


def test_masks_are_repeated_last() -> None:
    after = """
    inputs x: float32[1,2,6,5], seen: bool[1,1,3,5]
    numbers: float32[1,1,3,5] = CAST(seen)
    once: float32[1,1,3,5] = RESHAPE(numbers)
    one: bool[1,1,3,5] = NOT_EQUAL(once, 0.0)
    mask: bool[1,1,6,5] = CONCATENATION(one, one, axis=2)
    y: float32[1,2,6,5] = SELECT_V2(mask, x, -10000.0)
    return y
    """
    assert_rewritten(repeat_masks, BEFORE, after)
    check(make_model(BEFORE))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("(numbers, numbers, axis=1)", f"(numbers, {[[[[0.0] * 5] * 3]]}, axis=1)"),
        ("twice, 0.0)", "twice, [[[[1.0, 0.0, 1.0, 0.0, 1.0]]]])"),
        ("RESHAPE(both, [1, 1, 6, 5])", "CAST(x)"),
    ],
)
def test_other_masks_stay(old: str, new: str) -> None:
    text = BEFORE.replace(old, new)
    assert text != BEFORE
    check_unchanged(repeat_masks, parse_graph(text))


def test_masks_that_are_repeated_along_columns_stay() -> None:
    text = """
    inputs x: float32[2,10], seen: bool[2,5]
    twice: bool[2,10] = CONCATENATION(seen, seen, axis=1)
    mask: bool[2,10] = LOGICAL_NOT(twice)
    y: float32[2,10] = SELECT_V2(mask, x, -10000.0)
    return y
    """
    check_unchanged(repeat_masks, parse_graph(text))

"""join_assigned.py: indices of a tensor that are assigned one after another."""

from __future__ import annotations

import pytest

from tests.support import check
from tests.support.graph_text import assert_rewritten, check_unchanged, make_model, parse_graph
from tflite2onnx.passes.patterns.join_assigned import join_assigned

ASSIGNED = """
    inputs x: float32[1,1,2], z: float32[1,2]
    a: float32[1,1,2] = TANH(x)
    b: float32[1,3,2] = BROADCAST_TO(a, [1, 3, 2])
    c: float32[1,2] = EXP(z)
    p: float32[1,3,2] = SELECT_V2([[[False], [True], [False]]], b, 0.0)
    q: float32[1,3,2] = SELECT_V2([[[True], [False], [False]]], c, p)
    r: float32[1,3,2] = SELECT_V2([[[False], [False], [True]]], x, q)
    y: float32[1,3,2] = SELECT_V2([[[True], [False], [False]]], a, r)
    return y
"""


def test_rows_are_joined_and_the_last_assignment_counts() -> None:
    after = """
        inputs x: float32[1,1,2], z: float32[1,2]
        a: float32[1,1,2] = TANH(x)
        y: float32[1,3,2] = CONCATENATION(a, a, x, axis=1)
        return y
    """
    assert_rewritten(join_assigned, ASSIGNED, after)
    check(make_model(ASSIGNED))


def test_row_of_fewer_axes_is_reshaped() -> None:
    text = ASSIGNED.replace("a, r)", "c, r)")
    after = """
        inputs x: float32[1,1,2], z: float32[1,2]
        a: float32[1,1,2] = TANH(x)
        c: float32[1,2] = EXP(z)
        d: float32[1,1,2] = RESHAPE(c)
        y: float32[1,3,2] = CONCATENATION(d, a, x, axis=1)
        return y
    """
    assert_rewritten(join_assigned, text, after)
    check(make_model(text))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("[[[False], [False], [True]]]", "[[[False], [True], [False]]]"),
        ("[[[False], [False], [True]]]", "[[[False, True], [False, False], [False, False]]]"),
        ("[[[False], [False], [True]]], x, q", "[[[False], [False], [True]]], p, q"),
    ],
    ids=["an index is not assigned", "one number", "many rows"],
)
def test_other_selections_stay(old: str, new: str) -> None:
    text = ASSIGNED.replace(old, new)
    check_unchanged(join_assigned, parse_graph(text))
    check(make_model(text))

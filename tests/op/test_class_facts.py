"""What classes of operators state about them for the passes."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.graph_text import parse_graph
from tflite2onnx.op import OPERATORS, commutes, find_convolved
from tflite2onnx.op.base import Operator


@pytest.mark.parametrize("code", [code for code in OPERATORS if commutes(code)])
def test_operators_that_commute_are_symmetric(code: str) -> None:
    function = OPERATORS[code].rows[code].numpy
    if function is not None:
        a, b = np.random.default_rng(0).integers(0, 9, (2, 20))
        assert np.array_equal(function(a, b), function(b, a))


def test_subtraction_and_division_do_not_commute() -> None:
    assert not any(map(commutes, ("SUB", "DIV", "POW", "FLOOR_MOD", "ONE_MINUS")))


@pytest.mark.parametrize(
    ("code", "name"),
    [
        ("CONV_2D", "x"),
        ("DEPTHWISE_CONV_2D", "x"),
        ("TRANSPOSE_CONV", "z"),
        ("ADD", ""),
        ("Own", ""),
    ],
)
def test_find_convolved_returns_the_image(code: str, name: str) -> None:
    inputs = "x: float32[2], y: float32[2], z: float32[2]"
    graph = parse_graph(f"inputs {inputs}\nresult: float32[2] = {code}(x, y, z)\nreturn result")
    assert find_convolved(graph.ops[0]).name == name


def test_operator_has_few_public_members() -> None:
    """What few operators need is a fact, a row of a table, or stands in a trait."""
    assert len([name for name in vars(Operator) if not name.startswith("_")]) <= 26

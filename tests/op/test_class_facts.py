"""What classes of operators state about them for the passes."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.graph_text import parse_graph
from tflite2onnx.op import OPERATORS, commutes, find_convolved_input
from tflite2onnx.op.elementwise.arithmetic import Elementwise


@pytest.mark.parametrize("code", [code for code in OPERATORS if OPERATORS[code].commutes])
def test_operators_that_commute_are_symmetric(code: str) -> None:
    cls = OPERATORS[code]
    assert set(cls.commutes) <= set(cls.codes)
    function = cls.rows[code].numpy if issubclass(cls, Elementwise) else None
    if commutes(code) and function is not None:
        a, b = np.random.default_rng(0).integers(0, 9, (2, 20))
        assert np.array_equal(function(a, b), function(b, a))


def test_operators_that_do_not_commute() -> None:
    assert not any(map(commutes, ("SUB", "DIV", "POW", "FLOOR_MOD", "ONE_MINUS")))


@pytest.mark.parametrize(
    ("code", "index"),
    [("CONV_2D", 0), ("DEPTHWISE_CONV_2D", 0), ("TRANSPOSE_CONV", 2), ("ADD", None), ("Own", None)],
)
def test_input_that_is_convolved(code: str, index: int | None) -> None:
    graph = parse_graph(f"inputs x: float32[2]\ny: float32[2] = {code}(x)\nreturn y")
    assert find_convolved_input(graph.ops[0]) == index

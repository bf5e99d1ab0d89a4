"""graph_text.py: graphs as text, and the parser of the tests."""

from __future__ import annotations

from dataclasses import replace
from textwrap import dedent

import numpy as np
import pytest

from tests.support.graph_text import assert_rewritten, make_model, parse_graph
from tflite2onnx.graph import Graph
from tflite2onnx.graph_text import write_graph
from tflite2onnx.reader.model import read_model
from tflite2onnx.tensor import Quantization

EVERYTHING = """
    inputs %0: float32[batch,3], %1: int8(0.5, 3)[2]
    %2: float32[batch,3] = FULLY_CONNECTED(%0, float32[3,3], none, padding=SAME, pads=(1,-2))
    %3: float32[] = SUM(%2, [-1], int64([[3], [5]]), 0.5, int8(0.5, 3)[2], keep_dims=True)
    %4: float32[] = IF(True, %3)
        inputs
        %5: float32[] = ABS(%3)
        return %5
        inputs
        %6: float32[] = FlexErf(inf)
        return 2.0
    WHILE(%4)
        inputs %7: int32[0]
        return %7
    return %4, %3
"""


def test_text_is_read_and_written_again() -> None:
    text = dedent(EVERYTHING).strip()
    assert write_graph(parse_graph(text)) == text


def test_options_are_written_by_name() -> None:
    graph = parse_graph("inputs x: int32[]\ny: int32[] = ABS(x, a=1, b=2)\nreturn y")
    text = "inputs %0: int32[]\n%1: int32[] = ABS(%0, b=2)\nreturn %1"
    assert write_graph(graph, ["b", "c"]) == text


def test_scales_of_an_axis_are_not_written() -> None:
    x = parse_graph("inputs x: int8(0.5, 3)[1,2]\nreturn x").inputs[0]
    scales = Quantization(np.ones(2, np.float32), np.zeros(2, np.int64), axis=1)
    graph = Graph("main", (replace(x, quantization=scales),), (), ())
    assert write_graph(graph) == "inputs %0: int8(axis 1)[1,2]\nreturn "


def test_model_has_the_operators_of_a_text() -> None:
    data = make_model(
        """
        inputs x: int8(0.5, 3)[1,2]
        y: int8(0.25, 0)[1,2] = MUL(x, int8(0.5, 1)[1,2],
          fused_activation_function=RELU)
        return y
        """
    )
    text = """
        inputs %0: int8(0.5, 3)[1,2]
        %1: int8(0.25, 0)[1,2] = MUL(%0, int8(0.5, 1)[1,2], fused_activation_function=RELU)
        return %1
    """
    assert write_graph(read_model(data).graphs[0]) == dedent(text).strip()


def test_file_has_dynamic_axes() -> None:
    text = "inputs x: float32[n,2]\ny: float32[n,2] = ABS(x)\nreturn y"
    (graph,) = read_model(make_model(text)).graphs
    assert [t.dynamic_axes for t in (*graph.inputs, *graph.outputs)] == [{0}, {0}]


def test_failing_comparison_shows_all_lines_that_differ() -> None:
    before, after = (
        "\n".join(
            [
                "inputs %0: float32[2]",
                *(f"%{i + 1}: float32[2] = {code}(%{i})" for i in range(20)),
                "return %20",
            ]
        )
        for code in ("ABS", "NEG")
    )
    with pytest.raises(AssertionError) as caught:
        assert_rewritten(lambda graph: graph, before, after)
    lines = str(caught.value).splitlines()
    assert {f"-{line}" for line in after.splitlines()[1:-1]} < {*lines}
    assert {f"+{line}" for line in before.splitlines()[1:-1]} < {*lines}

"""targets.onnxruntime.forms.average_zeros.py: averages of one row and rows of zeros."""

from __future__ import annotations

import pytest

from tests.support import check
from tests.support.graph_text import assert_rewritten, check_unchanged, make_model, parse_graph
from tflite2onnx.targets.onnxruntime.forms.functions.average_zeros import average_zeros

ZEROS = """
    inputs %0: float32[1,1,6,2]
    %1: float32[1,5,6,2] = PAD(%0, [[0, 0], [4, 0], [0, 0], [0, 0]])
    %2: float32[1,5,1,12] = RESHAPE(%1, [1, 5, 1, 12])
    %3: float32[1,1,1,12] = AVERAGE_POOL_2D(%2, WINDOW, padding=VALID, stride_w=1, stride_h=1)
    return %3
""".replace("WINDOW", "filter_width=1, filter_height=5")


def test_average_of_a_row_and_zeros_is_a_product() -> None:
    after = """
        inputs %0: float32[1,1,6,2]
        %1: float32[1,1,6,2] = MUL(%0, 0.2)
        %2: float32[1,1,1,12] = RESHAPE(%1)
        return %2
    """
    assert_rewritten(average_zeros, ZEROS, after)
    check(make_model(ZEROS))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("[4, 0], [0, 0], [0, 0]", "[3, 0], [0, 0], [0, 0]"),
        ("[4, 0], [0, 0], [0, 0]", "[3, 0], [1, 0], [0, 0]"),
        ("filter_height=5", "filter_height=4"),
        ("VALID", "SAME"),
    ],
)
def test_other_averages_are_unchanged(old: str, new: str) -> None:
    graph = parse_graph(ZEROS.replace(old, new))
    check_unchanged(average_zeros, graph)

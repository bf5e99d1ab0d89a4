"""gather_rows.py: slices, joins and transposes of rows as one GATHER."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support import check
from tests.support.graph_text import check_unchanged, make_model, parse_graph
from tflite2onnx import convert
from tflite2onnx.targets.onnxruntime.forms.movement.gather_rows import gather_rows

# An image is rolled by a row and a column, and cut into windows of 2x2, as by Swin.
WINDOWS = """
    inputs x: float32[1,16,8]
    e: float32[1,16,8] = EXP(x)
    i: float32[1,4,4,8] = RESHAPE(e, [1, 4, 4, 8])
    a: float32[1,3,4,8] = SLICE(i, [0, 1, 0, 0], [1, 3, 4, 8])
    b: float32[1,1,4,8] = SLICE(i, [0, 0, 0, 0], [1, 1, 4, 8])
    c: float32[1,4,4,8] = CONCATENATION(a, b, axis=1)
    d: float32[1,4,3,8] = SLICE(c, [0, 0, 1, 0], [1, 4, 3, 8])
    f: float32[1,4,1,8] = SLICE(c, [0, 0, 0, 0], [1, 4, 1, 8])
    g: float32[1,4,4,8] = CONCATENATION(d, f, axis=2)
    h: float32[1,2,2,2,2,8] = RESHAPE(g, [1, 2, 2, 2, 2, 8])
    t: float32[1,2,2,2,2,8] = TRANSPOSE(h, [0, 1, 3, 2, 4, 5])
    y: float32[4,4,8] = RESHAPE(t, [4, 4, 8])
    z: float32[4,4,8] = TANH(y)
    return z
"""

# Every second pixel of both axes, joined along the channels.
MERGED = """
    inputs x: float32[1,16,8]
    e: float32[1,16,8] = EXP(x)
    i: float32[1,4,4,8] = RESHAPE(e, [1, 4, 4, 8])
    a: float32[1,2,2,8] = STRIDED_SLICE(i, [0, 0, 0, 0], [1, 4, 4, 8], [1, 2, 2, 1])
    b: float32[1,2,2,8] = STRIDED_SLICE(i, [0, 1, 0, 0], [1, 4, 4, 8], [1, 2, 2, 1])
    c: float32[1,2,2,8] = STRIDED_SLICE(i, [0, 0, 1, 0], [1, 4, 4, 8], [1, 2, 2, 1])
    d: float32[1,2,2,8] = STRIDED_SLICE(i, [0, 1, 1, 0], [1, 4, 4, 8], [1, 2, 2, 1])
    m: float32[1,2,2,32] = CONCATENATION(a, b, c, d, axis=3)
    y: float32[1,4,32] = RESHAPE(m, [1, 4, 32])
    z: float32[1,4,32] = TANH(y)
    return z
"""


@pytest.mark.parametrize("text", [WINDOWS, MERGED], ids=["windows", "merged"])
def test_moved_rows_are_gathered(text: str) -> None:
    changed = gather_rows(parse_graph(text))
    assert [op.code for op in changed.ops] == ["EXP", "RESHAPE", "GATHER", "RESHAPE", "TANH"]
    check(make_model(text))
    nodes = [node.op_type for node in convert(make_model(text)).model.graph.node]
    assert nodes.count("Gather") == 1
    assert not {"Concat", "Slice", "Split", "Transpose"} & {*nodes}


def test_indices_are_those_of_rows() -> None:
    (gather,) = (op for op in gather_rows(parse_graph(MERGED)).ops if op.code == "GATHER")
    expected = [[0, 4, 1, 5], [2, 6, 3, 7], [8, 12, 9, 13], [10, 14, 11, 15]]
    np.testing.assert_array_equal(gather.operand(1).values.reshape(4, 4), expected)


@pytest.mark.parametrize(
    ("text", "old", "new"),
    [
        (WINDOWS, "return z", "return z, c"),
        (WINDOWS, "axis=1)", "axis=1, fused_activation_function=RELU)"),
        (WINDOWS, "CONCATENATION(a, b, axis=1)", "CONCATENATION(a, o, axis=1)"),
        (MERGED, "8]", "4]"),
    ],
    ids=["another reader", "activation", "two sources", "short rows"],
)
def test_other_moves_stay(text: str, old: str, new: str) -> None:
    changed = text.replace(old, new)
    if "(a, o," in changed:
        changed = changed.replace("x: float32[1,16,8]", "x: float32[1,16,8], o: float32[1,1,4,8]")
    if old == "8]":
        changed = changed.replace(",32]", ",16]").replace(" 32]", " 16]")
    check_unchanged(gather_rows, parse_graph(changed))


def test_moves_of_few_operators_stay() -> None:
    """Three operators copy the image once more than GATHER, but their copies are long."""
    start, end = WINDOWS.index("    d: "), WINDOWS.index("    h: ")
    text = (WINDOWS[:start] + WINDOWS[end:]).replace("RESHAPE(g,", "RESHAPE(c,")
    text = text.replace("TRANSPOSE(h, [0, 1, 3, 2, 4, 5])", "RESHAPE(h, [1, 2, 2, 2, 2, 8])")
    check_unchanged(gather_rows, parse_graph(text))
    check(make_model(text))


def test_images_of_convolutions_stay() -> None:
    """The rows of an image with channels first are its columns."""
    conv = "CONV_2D(e, float32[8,1,1,8], float32[8], padding=SAME, stride_h=1, stride_w=1)"
    text = MERGED.replace("[1,16,8]", "[1,4,4,8]").replace("RESHAPE(e, [1, 4, 4, 8])", conv)
    check_unchanged(gather_rows, parse_graph(text))
    check(make_model(text))

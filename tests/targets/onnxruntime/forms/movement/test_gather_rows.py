"""gather_rows.py: slices, joins and transposes of rows as one GATHER."""

from __future__ import annotations

import re

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
    ],
    ids=["another reader", "activation", "two sources"],
)
def test_other_moves_stay(text: str, old: str, new: str) -> None:
    changed = text.replace(old, new)
    if "(a, o," in changed:
        changed = changed.replace("x: float32[1,16,8]", "x: float32[1,16,8], o: float32[1,1,4,8]")
    check_unchanged(gather_rows, parse_graph(changed))


# An image is rolled by three pixels along one axis or both.
ROLLED = """
    inputs x: float32[1,N,N,C]
    e: float32[1,N,N,C] = EXP(x)
    a: float32[1,M,N,C] = SLICE(e, [0, 3, 0, 0], [1, M, N, C])
    b: float32[1,3,N,C] = SLICE(e, [0, 0, 0, 0], [1, 3, N, C])
    c: float32[1,N,N,C] = CONCATENATION(a, b, axis=1)
    d: float32[1,N,M,C] = SLICE(c, [0, 0, 3, 0], [1, N, M, C])
    f: float32[1,N,3,C] = SLICE(c, [0, 0, 0, 0], [1, N, 3, C])
    g: float32[1,N,N,C] = CONCATENATION(d, f, axis=2)
    z: float32[1,N,N,C] = TANH(g)
    return z
"""


def roll_image(pixels: int, channels: int) -> str:
    """Return the graph with these sizes."""
    text = re.sub(r"\bN\b", str(pixels), ROLLED)
    return re.sub(r"\bC\b", str(channels), re.sub(r"\bM\b", str(pixels - 3), text))


@pytest.mark.parametrize(("pixels", "channels"), [(56, 8), (56, 16), (112, 8), (112, 16)])
def test_short_rows_stay(pixels: int, channels: int) -> None:
    """Measured, Gather takes 1.76, 1.23, 2.00 and 1.22 of the time of six operators.

    The first three operators move rows of pixels, which a Gather copies in 0.83 to 0.90.
    """
    changed = gather_rows(parse_graph(roll_image(pixels, channels)))
    codes = ["EXP", "RESHAPE", "GATHER", "RESHAPE", "SLICE", "SLICE", "CONCATENATION", "TANH"]
    assert [op.code for op in changed.ops] == codes


@pytest.mark.parametrize(("pixels", "channels"), [(56, 64), (112, 32), (14, 96), (28, 192)])
def test_long_rows_are_gathered(pixels: int, channels: int) -> None:
    """Measured, Gather takes 0.67, 0.83, 0.68 and 0.59 of the time of six operators."""
    changed = gather_rows(parse_graph(roll_image(pixels, channels)))
    assert [op.code for op in changed.ops] == ["EXP", "RESHAPE", "GATHER", "RESHAPE", "TANH"]


def test_rows_are_as_long_as_the_elements_stay_together() -> None:
    """A roll by rows of pixels moves whole rows of pixels."""
    text = roll_image(56, 64)
    start, end = text.index("    d: "), text.index("    z: ")
    changed = gather_rows(parse_graph((text[:start] + text[end:]).replace("TANH(g)", "TANH(c)")))
    (gather,) = (op for op in changed.ops if op.code == "GATHER")
    assert gather.operand(0).shape == (56, 56 * 64)


def test_images_of_convolutions_stay() -> None:
    """The rows of an image with channels first are its columns."""
    conv = "CONV_2D(e, float32[8,1,1,8], float32[8], padding=SAME, stride_h=1, stride_w=1)"
    text = MERGED.replace("[1,16,8]", "[1,4,4,8]").replace("RESHAPE(e, [1, 4, 4, 8])", conv)
    check_unchanged(gather_rows, parse_graph(text))
    check(make_model(text))

"""attention/fuse_rotations.py: rotary embeddings of positions."""

from __future__ import annotations

import pytest

from tests.support import check
from tests.support.graph_text import assert_rewritten, check_unchanged, make_model, parse_graph
from tflite2onnx import convert
from tflite2onnx.targets.onnxruntime.forms.attention.fuse_rotations import fuse_rotations

INPUTS = "inputs x: float32[1,3,5,8], angle: float32[1,1,5,4]"
HALVES = f"""
    {INPUTS}
    c: float32[1,1,5,4] = COS(angle)
    s: float32[1,1,5,4] = SIN(angle)
    a: float32[1,3,5,4] = SLICE(x, [0, 0, 0, 0], [1, 3, 5, 4])
    b: float32[1,3,5,4] = SLICE(x, [0, 0, 0, 4], [1, 3, 5, 4])
    ac: float32[1,3,5,4] = MUL(a, c)
    bs: float32[1,3,5,4] = MUL(b, s)
    first: float32[1,3,5,4] = SUB(ac, bs)
    bc: float32[1,3,5,4] = MUL(b, c)
    sa: float32[1,3,5,4] = MUL(a, s)
    second: float32[1,3,5,4] = ADD(bc, sa)
    y: float32[1,3,5,8] = CONCATENATION(first, second, axis=3)
    return y
"""
WHOLE = f"""
    {INPUTS}
    twice: float32[1,1,5,8] = CONCATENATION(angle, angle, axis=3)
    c: float32[1,1,5,8] = COS(twice)
    s: float32[1,1,5,8] = SIN(twice)
    xc: float32[1,3,5,8] = MUL(x, c)
    a: float32[1,3,5,4] = SLICE(x, [0, 0, 0, 0], [1, 3, 5, 4])
    b: float32[1,3,5,4] = SLICE(x, [0, 0, 0, 4], [1, 3, 5, 4])
    minus: float32[1,3,5,4] = MUL(b, [-1.0])
    swapped: float32[1,3,5,8] = CONCATENATION(minus, a, axis=3)
    xs: float32[1,3,5,8] = MUL(swapped, s)
    y: float32[1,3,5,8] = ADD(xc, xs)
    return y
"""


@pytest.mark.parametrize("text", [HALVES, WHOLE])
def test_operators_become_one_rotary_embedding(text: str) -> None:
    after = f"""
    {INPUTS}
    c: float32[1,1,5,4] = COS(angle)
    s: float32[1,1,5,4] = SIN(angle)
    cosines: float32[5,4] = RESHAPE(c)
    sines: float32[5,4] = RESHAPE(s)
    y: float32[1,3,5,8] = ROTARY_EMBEDDING(x, cosines, sines, positions=2)
    return y
    """
    assert_rewritten(fuse_rotations, text, after)


@pytest.mark.parametrize("text", [HALVES, WHOLE])
def test_rotary_embedding_equals_litert(text: str) -> None:
    data = make_model(text)
    check(data)
    assert "RotaryEmbedding" in [node.op_type for node in convert(data).model.graph.node]


def test_positions_before_heads_equal_litert() -> None:
    moved = HALVES.replace("[1,3,5,", "[1,5,3,").replace("[1,1,5,4]", "[1,5,1,4]")
    check(make_model(moved.replace("[1, 3, 5, 4]", "[1, 5, 3, 4]")))


@pytest.mark.parametrize(
    ("text", "old", "new"),
    [
        (HALVES, "SLICE(x, [0, 0, 0, 0]", "SLICE(x, [0, 0, 0, 1]"),
        (HALVES, "SUB(ac, bs)", "SUB(bs, ac)"),
        (WHOLE, "SLICE(x, [0, 0, 0, 0]", "SLICE(x, [0, 0, 0, 1]"),
        (WHOLE, "CONCATENATION(minus, a", "CONCATENATION(a, minus"),
        (WHOLE, "CONCATENATION(angle, angle, axis=3)", "TILE(angle, [1, 1, 1, 2])"),
        (WHOLE, "(angle, angle, axis=3)", "(angle, angle, axis=3, fused_activation_function=RELU)"),
    ],
)
def test_rotations_with_other_halves_signs_or_angles_stay(text: str, old: str, new: str) -> None:
    """A rotation needs equal angles for both halves, which must follow from the graph.

    An activation of repeated angles would be lost.
    """
    changed = text.replace(old, new)
    assert changed != text
    check_unchanged(fuse_rotations, parse_graph(changed))


def test_angles_of_each_head_stay_unfused() -> None:
    """ONNX's operator has one angle for all heads of a position."""
    for text in (HALVES, WHOLE):
        changed = text.replace("float32[1,1,5,", "float32[1,3,5,")
        check_unchanged(fuse_rotations, parse_graph(changed))
        check(make_model(changed))


def test_halves_joined_along_another_axis_stay() -> None:
    text = HALVES.replace("y: float32[1,3,5,8]", "y: float32[1,6,5,4]")
    text = text.replace(
        "CONCATENATION(first, second, axis=3)", "CONCATENATION(first, second, axis=1)"
    )
    check_unchanged(fuse_rotations, parse_graph(text))
    check(make_model(text))


def test_cosines_that_are_inputs_stay_unfused() -> None:
    """If cosines are inputs, both halves may have different cosines."""
    text = WHOLE.replace(", angle: float32[1,1,5,4]", ", c: float32[1,1,5,8], s: float32[1,1,5,8]")
    lines = [line for line in text.splitlines() if "angle" not in line and "(twice)" not in line]
    check_unchanged(fuse_rotations, parse_graph("\n".join(lines)))

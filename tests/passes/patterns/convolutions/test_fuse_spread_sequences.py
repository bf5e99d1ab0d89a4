"""passes/patterns/convolutions/fuse_spread_sequences.py: dilated convolutions, spelled out."""

from __future__ import annotations

import pytest

from tests.support import check
from tests.support.graph_text import assert_rewritten, check_unchanged, make_model, parse_graph
from tflite2onnx.passes.patterns.convolutions.fuse_spread_sequences import fuse_spread_sequences

STEP = "padding=VALID, stride_w=1, stride_h=1, dilation_w_factor=1, dilation_h_factor=1"
FILTERS = f"float32[5,1,2,5], float32[5], {STEP}"
SPREAD = """
        inputs x: float32[1,21,5]
        p: float32[1,24,5] = PAD(x, [[0, 0], [3, 0], [0, 0]])
        r: float32[12,2,5] = RESHAPE(p, [12, 2, 5])
        t: float32[2,12,5] = TRANSPOSE(r, [1, 0, 2])
"""
BEFORE = f"""{SPREAD}
        i: float32[2,1,12,5] = RESHAPE(t, [2, 1, 12, 5])
        c: float32[2,1,11,5] = CONV_2D(i, {FILTERS})
        u: float32[11,2,5,1] = TRANSPOSE(c, [2, 0, 3, 1])
        s: float32[1,22,5] = RESHAPE(u, [1, 22, 5])
        y: float32[1,21,5] = SLICE(s, [0, 1, 0], [-1, -1, -1])
        return y
"""
AFTER = f"""
        inputs x: float32[1,21,5]
        t: float32[2,12,5] = SPACE_TO_BATCH_ND(x, [2], [[3, 0]])
        i: float32[2,1,12,5] = RESHAPE(t, [2, 1, 12, 5])
        c: float32[2,1,11,5] = CONV_2D(i, {FILTERS})
        r: float32[2,11,5] = RESHAPE(c)
        y: float32[1,21,5] = BATCH_TO_SPACE_ND(r, [2], [[1, 0]])
        return y
"""


def list_nodes(text: str) -> list[str]:
    return [node.op_type for node in check(make_model(text)).model.graph.node]


def test_operators_become_space_to_batch_and_back() -> None:
    assert_rewritten(fuse_spread_sequences, BEFORE, AFTER)


def test_result_is_one_dilated_convolution() -> None:
    """The padding of the one convolution is the padding of PAD less the crop of SLICE."""
    assert list_nodes(BEFORE).count("Conv") == 1
    assert not {"Transpose", "Slice", "Pad"} & {*list_nodes(BEFORE)}


def make_integers(padded: str = "(0.1, 3)") -> str:
    """Return operators of 8-bit integers; `padded` are the scale and zero point of the input."""
    text = BEFORE.replace(FILTERS, f"int8(0.02, 0)[5,1,2,5], int32(0.002, 0)[5], {STEP}")
    for names, fields in (("x", padded), ("prti", "(0.1, 3)"), ("cusy", "(0.3, -5)")):
        for name in names:
            text = text.replace(f"{name}: float32[", f"{name}: int8{fields}[")
    return text


def test_quantized_sequences_become_one_convolution() -> None:
    """Integers are moved like floats; LiteRT's built-in kernels round convolutions twice.

    The Transposes around RESHAPE cancel those of ONNX Runtime's quantized convolutions.
    """
    found = [node.op_type for node in check(make_model(make_integers()), steps=1).model.graph.node]
    assert found.count("Conv") == 1
    assert not {"Slice", "Pad"} & {*found}


def test_pad_that_changes_the_scale_stays() -> None:
    """A PAD that changes the scale stays."""
    after = fuse_spread_sequences(parse_graph(make_integers("(0.2, 3)")))
    assert [op.code for op in after.ops][:2] == ["PAD", "SPACE_TO_BATCH_ND"]


def test_samples_along_the_height_are_fused() -> None:
    """The samples may be the height of the images."""
    text = BEFORE.replace("[2,1,12,5]", "[2,12,1,5]").replace("[2,1,11,5]", "[2,11,1,5]")
    text = text.replace("[2, 1, 12, 5]", "[2, 12, 1, 5]").replace("[5,1,2,5]", "[5,2,1,5]")
    text = text.replace("[2, 0, 3, 1]", "[1, 0, 3, 2]")
    assert not {"Transpose", "Slice", "Pad"} & {*list_nodes(text)}


def test_sequences_without_slice_and_pad_are_fused() -> None:
    text = f"""
        inputs x: float32[1,24,5]
        r: float32[12,2,5] = RESHAPE(x, [12, 2, 5])
        t: float32[2,12,5] = TRANSPOSE(r, [1, 0, 2])
        i: float32[2,1,12,5] = RESHAPE(t, [2, 1, 12, 5])
        c: float32[2,1,11,5] = CONV_2D(i, {FILTERS})
        u: float32[11,2,5,1] = TRANSPOSE(c, [2, 0, 3, 1])
        y: float32[1,22,5] = RESHAPE(u, [1, 22, 5])
        return y
    """
    assert "Transpose" not in list_nodes(text)


def test_no_reshape_is_left_between_layers() -> None:
    """No RESHAPE is left between two layers."""
    second = BEFORE.partition("p:")[2]
    names = dict(zip("xprticusy", "ABCDEFGHI", strict=True))
    for old, new in names.items():
        second = second.replace(f"{old}:", f"{new}:").replace(f"({old},", f"({new},")
    second = second.replace("return y", "return I").replace("PAD(A,", "PAD(y,")
    text = f"{BEFORE.replace('return y', '')}        B:{second}"
    found = list_nodes(text)
    assert (found.count("Conv"), found.count("Reshape")) == (2, 2)


def test_pad_of_channels_stays() -> None:
    """The pads of channels stay PAD."""
    text = BEFORE.replace("[1,21,5]", "[1,24,4]", 1).replace("[3, 0], [0, 0]]", "[0, 0], [0, 1]]")
    after = fuse_spread_sequences(parse_graph(text))
    assert [op.code for op in after.ops][:2] == ["PAD", "SPACE_TO_BATCH_ND"]


def test_slice_of_channels_stays() -> None:
    """A SLICE of channels stays, and so do the operators before it."""
    text = BEFORE.replace("y: float32[1,21,5]", "y: float32[1,22,4]")
    text = text.replace("[0, 1, 0]", "[0, 0, 1]")
    after = fuse_spread_sequences(parse_graph(text))
    assert [op.code for op in after.ops][-2:] == ["BATCH_TO_SPACE_ND", "SLICE"]
    check(make_model(text), seeds=[0])


@pytest.mark.parametrize(
    ("old", "new", "kept"),
    [
        ("TRANSPOSE(c, [2, 0, 3, 1])", "TRANSPOSE(c, [2, 3, 0, 1])", "SLICE"),
        ("inputs x: float32[1,21,5]", "inputs x: float32[1,n,5]", "PAD"),
    ],
)
def test_sequences_of_other_orders_or_unknown_sizes_stay(old: str, new: str, kept: str) -> None:
    """The samples must be side by side, and their number must be known."""
    after = fuse_spread_sequences(parse_graph(BEFORE.replace(old, new)))
    assert kept in {op.code for op in after.ops}


@pytest.mark.parametrize(
    "rest",
    [
        "return t",
        "y: float32[2,12,5] = NEG(t)\n        return y",
        "y: float32[24,5] = RESHAPE(t, [24, 5])\n        return y",
    ],
)
def test_sequences_without_convolution_stay(rest: str) -> None:
    check_unchanged(fuse_spread_sequences, parse_graph(f"{SPREAD}        {rest}\n"))


def test_mixed_sequences_of_a_batch_stay() -> None:
    """Two sequences that are mixed are no sequence that is spread."""
    text = f"""
        inputs x: float32[2,12,5]
        r: float32[12,2,5] = RESHAPE(x, [12, 2, 5])
        t: float32[2,12,5] = TRANSPOSE(r, [1, 0, 2])
        i: float32[2,1,12,5] = RESHAPE(t, [2, 1, 12, 5])
        c: float32[2,1,11,5] = CONV_2D(i, {FILTERS})
        return c
    """
    check_unchanged(fuse_spread_sequences, parse_graph(text))

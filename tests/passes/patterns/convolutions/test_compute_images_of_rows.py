"""Rows of images that RESHAPE puts into the batch become images; see compute_images.py."""

from __future__ import annotations

import pytest

from tests.support import check
from tests.support.graph_text import assert_rewritten, check_unchanged, make_model, parse_graph
from tflite2onnx.passes.patterns.convolutions.compute_images import compute_images

STEP = "padding=VALID, stride_w=1, stride_h=1, dilation_w_factor=1, dilation_h_factor=1"
FILTERS = f"float32[5,1,3,4], float32[5], {STEP}"
NONE = "fused_activation_function=NONE"
SPREAD = """
        inputs x: float32[1,2,6,4]
        s: float32[2,2,5,4] = SPACE_TO_BATCH_ND(x, [1, 2], [[0, 0], [2, 2]])
        r: float32[4,1,5,4] = RESHAPE(s, [4, 1, 5, 4])
"""
BEFORE = f"""{SPREAD}
        c: float32[4,1,3,5] = CONV_2D(r, {FILTERS})
        b: float32[2,2,3,5] = RESHAPE(c, [2, 2, 3, 5])
        y: float32[1,2,6,5] = BATCH_TO_SPACE_ND(b, [1, 2], [[0, 0], [0, 0]])
        return y
"""
AFTER = f"""
        inputs x: float32[1,2,6,4]
        s: float32[2,2,5,4] = SPACE_TO_BATCH_ND(x, [1, 2], [[0, 0], [2, 2]])
        c: float32[2,2,3,5] = CONV_2D(s, {FILTERS})
        y: float32[1,2,6,5] = BATCH_TO_SPACE_ND(c, [1, 2], [[0, 0], [0, 0]])
        return y
"""
ROWS = "inputs x: float32[1,2,6,4]\n        r: float32[2,1,6,4] = RESHAPE(x, [2, 1, 6, 4])"


def list_nodes(text: str) -> list[str]:
    return [node.op_type for node in check(make_model(text)).model.graph.node]


def test_reshapes_around_a_convolution_are_dropped() -> None:
    assert_rewritten(compute_images, BEFORE, AFTER)


def test_operators_become_one_dilated_convolution() -> None:
    """The operators are one convolution with a dilation."""
    found = list_nodes(BEFORE)
    assert found.count("Conv") == 1
    assert not {"Pad", "Reshape"} & {*found}


@pytest.mark.parametrize("activation", ["NONE", "RELU"])
def test_elementwise_operators_run_on_images(activation: str) -> None:
    """Operators on rows become operators on images; an output keeps its name."""
    text = f"""
        {ROWS}
        c: float32[2,1,4,5] = CONV_2D(r, {FILTERS})
        d: float32[2,1,4,5] = CONV_2D(r, {FILTERS})
        a: float32[2,1,4,5] = ADD(c, d, fused_activation_function={activation})
        m: float32[2,1,4,5] = MUL(a, float32[5], {NONE})
        y: float32[1,2,4,5] = RESHAPE(m, [1, 2, 4, 5])
        return y
    """
    result = check(make_model(text))
    assert {"Conv", "Add", "Mul"} <= {node.op_type for node in result.model.graph.node}
    assert "Reshape" not in {node.op_type for node in result.model.graph.node}
    assert [output.name for output in result.model.graph.output] == ["y"]


def test_rows_become_images_before_a_sequence_does() -> None:
    text = f"""
        {ROWS}
        c: float32[2,1,4,5] = CONV_2D(r, {FILTERS})
        b: float32[1,2,4,5] = RESHAPE(c, [1, 2, 4, 5])
        s: float32[1,8,5] = RESHAPE(b, [1, 8, 5])
        p: float32[1,10,5] = PAD(s, [[0, 0], [2, 0], [0, 0]])
        i: float32[1,1,10,5] = RESHAPE(p, [1, 1, 10, 5])
        d: float32[1,1,8,5] = CONV_2D(i, float32[5,1,3,5], float32[5], {STEP})
        q: float32[1,8,5] = RESHAPE(d, [1, 8, 5])
        y: float32[1,8,5] = TANH(q)
        return y
    """
    codes = [op.code for op in compute_images(parse_graph(text)).ops]
    assert codes == ["CONV_2D", "RESHAPE", "RESHAPE", "PAD", "CONV_2D", "TANH", "RESHAPE"]
    assert "Pad" not in list_nodes(text)


def test_rows_with_other_readers_equal_litert() -> None:
    """If an operator reads the rows themselves, a RESHAPE makes the rows of the image."""
    text = f"""
        {ROWS}
        c: float32[2,1,4,5] = CONV_2D(r, {FILTERS})
        y: float32[1,2,4,5] = RESHAPE(c, [1, 2, 4, 5])
        z: float32[1,4,5] = REDUCE_MAX(c, [0], keep_dims=False)
        return y, z
    """
    check(make_model(text))


def test_quantized_operators_become_one_convolution() -> None:
    """Quantized convolutions; LiteRT's built-in kernels round them twice."""
    text = BEFORE.replace(
        "float32[5,1,3,4], float32[5]", "int8(0.02, 0)[5,1,3,4], int32(0.002, 0)[5]"
    )
    for name, fields in zip("xsrcby", ("(0.1, 3)",) * 3 + ("(0.3, -5)",) * 3, strict=True):
        text = text.replace(f"{name}: float32[", f"{name}: int8{fields}[")
    result = check(make_model(text), steps=1)
    found = [node.op_type for node in result.model.graph.node]
    assert found.count("Conv") == 1
    assert not {"Pad", "Reshape"} & {*found}


def test_convolution_with_padded_columns_reads_images() -> None:
    columns = STEP.replace("VALID", "VALID, pads=(0, 1, 0, 0)")
    text = f"""
        {ROWS}
        c: float32[2,1,5,5] = CONV_2D(r, float32[5,1,3,4], float32[5], {columns})
        y: float32[1,2,5,5] = RESHAPE(c, [1, 2, 5, 5])
        return y
    """
    assert [op.code for op in compute_images(parse_graph(text)).ops] == ["CONV_2D", "RESHAPE"]


@pytest.mark.parametrize(
    "operation",
    [
        f"CONV_2D(r, int8(0.5, 0)[5,1,3,4], float32[5], {STEP})",
        f"CONV_2D(r, {FILTERS})".replace("stride_h=1", "stride_h=2"),
        f"CONV_2D(r, {FILTERS})".replace("VALID", "VALID, pads=(1, 0, 0, 0)"),
        f"CONV_2D(r, {FILTERS})".replace("[5,1,3,4]", "[5,2,3,4]"),
        f"ADD(r, float32[2,1,4,5], {NONE})",
        "NEG(r)",
    ],
)
def test_operators_that_read_several_rows_or_round_by_row_stay(operation: str) -> None:
    """Operators that round by row or read other rows, and constants with rows, do not change."""
    text = f"""
        {ROWS}
        c: float32[2,1,4,5] = {operation}
        y: float32[1,2,4,5] = RESHAPE(c, [1, 2, 4, 5])
        return y
    """
    check_unchanged(compute_images, parse_graph(text))


@pytest.mark.parametrize(("old", "new"), [("1,2,6,4", "n,2,6,4"), ("2,1,6,4", "1,2,6,4")])
def test_reshapes_of_unknown_sizes_or_other_rows_stay(old: str, new: str) -> None:
    """The sizes must be known, and the rows must be the rows of one image."""
    text = f"""
        {ROWS.replace(old, new)}
        c: float32[2,1,4,5] = CONV_2D(r, {FILTERS})
        return c
    """
    check_unchanged(compute_images, parse_graph(text))

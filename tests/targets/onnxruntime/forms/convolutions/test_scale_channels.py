"""Products and sums with constants become depthwise convolutions; see scale_channels.py."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support import check, random_inputs
from tests.support.graph_text import assert_rewritten, check_unchanged, make_model, parse_graph
from tests.support.runtimes import run_onnx
from tflite2onnx import convert
from tflite2onnx.targets.onnxruntime.forms.convolutions.scale_channels import (
    repeat_constants,
    scale_channels,
)
from tflite2onnx.tensor import Shape

STEP = "padding=SAME, stride_h=1, stride_w=1"
NCHW = (0, 3, 1, 2)
ONES = "[1.0, 1.0, 1.0, 1.0]"
ZEROS = "[0.0, 0.0, 0.0, 0.0]"
NUMBERS = "[1.0, 2.0, 3.0, 4.0]"


def surround(calls: str, channels: int = 4) -> str:
    """Return operators on a sum of two images, x, with a result y, between convolutions."""
    image = f"float32[1,5,6,{channels}]"
    filters = f"float32[{channels},1,1,{channels}], float32[{channels}]"
    return f"""
        inputs i: {image}
        a: {image} = CONV_2D(i, {filters}, {STEP})
        x: {image} = ADD(a, a)
        {calls}
        z: {image} = CONV_2D(y, {filters}, {STEP})
        return z
    """


@pytest.mark.parametrize(
    ("calls", "filters", "biases"),
    [
        (f"y: T = MUL(x, {NUMBERS}, ACT)", NUMBERS, ZEROS),
        ("y: T = MUL(x, 2.0, ACT)", "[2.0, 2.0, 2.0, 2.0]", ZEROS),
        (f"y: T = ADD(x, {NUMBERS}, ACT)", ONES, NUMBERS),
        (f"y: T = SUB(x, {NUMBERS}, ACT)", ONES, "[-1.0, -2.0, -3.0, -4.0]"),
        (f"m: T = MUL(x, [[[{NUMBERS}]]]); y: T = ADD(m, {ONES}, ACT)", NUMBERS, ONES),
        (f"m: T = MUL({NUMBERS}, x); y: T = SUB(m, 1.0, ACT)", NUMBERS, "[-1.0, -1.0, -1.0, -1.0]"),
    ],
)
@pytest.mark.parametrize("activation", ["NONE", "RELU"])
def test_products_and_sums_become_a_depthwise_convolution(
    calls: str, filters: str, biases: str, activation: str
) -> None:
    act = f"fused_activation_function={activation}"
    image = "float32[1,5,6,4]"
    before = calls.replace(": T", f": {image}").replace("ACT", act).replace("; ", "\n        ")
    step = f"padding=VALID, stride_h=1, stride_w=1, {act}"
    after = f"y: {image} = DEPTHWISE_CONV_2D(x, [[[{filters}]]], {biases}, {step})"
    assert_rewritten(scale_channels, surround(before), surround(after))
    check(make_model(surround(before)), tolerance=1e-5)


@pytest.mark.parametrize(
    ("call", "channels"),
    [
        ("y: float32[1,5,6,6] = MUL(x, 2.0)", 6),
        ("y: float32[1,5,6,4] = MUL(x, float32[1,5,6,1])", 4),
        ("y: float32[1,5,6,4] = MUL(x, a)", 4),
        ("y: float32[1,5,6,4] = MUL(i, 2.0)", 4),
        ("y: float32[1,5,6,4] = SUB(2.0, x)", 4),
    ],
)
def test_products_of_pixels_or_computed_factors_stay(call: str, channels: int) -> None:
    check_unchanged(scale_channels, parse_graph(surround(call, channels)))


def test_products_that_are_outputs_of_the_graph_stay() -> None:
    text = surround("y: float32[1,5,6,4] = MUL(x, 2.0)").replace("return z", "return y")
    check_unchanged(scale_channels, parse_graph(text))


def normalize(call: str) -> str:
    """Return an operator on a convolution of 8 bits, x, with a result y."""
    image = "int8(0.1, 3)[1,5,40,2]"
    return f"""
        inputs i: {image}
        x: {image} = CONV_2D(i, int8(0.01, 0)[2,1,1,2], int32(0.001, 0)[2], {STEP})
        {call}
        return y
    """


@pytest.mark.parametrize(
    ("call", "shape"),
    [
        ("MUL(x, int8(0.1, 1)[1,1,1,2])", (1, 1, 40, 2)),
        ("ADD(int8(0.1, 1)[2], x)", (1, 1, 40, 2)),
        ("SUB(x, int8(0.1, 1)[1,5,1,2])", (1, 5, 40, 2)),
        ("MUL(x, int8(0.1, 1)[40,1])", (1, 1, 40, 2)),
    ],
)
def test_constants_of_few_elements_are_repeated_along_a_row(call: str, shape: Shape) -> None:
    call = f"y: int8(0.2, -5)[1,5,40,2] = {call}"
    graph = parse_graph(normalize(call))
    before, after = (g.ops[-1] for g in (graph, repeat_constants(graph)))
    (constant,), (repeated,) = ([t for t in op.present if t.has_data] for op in (before, after))
    assert repeated.shape == shape
    assert (repeated.values == constant.values).all()
    assert (after.outputs, after.options) == (before.outputs, before.options)
    data = make_model(normalize(call))
    models = (convert(data, forms=forms).model for forms in ("fastest", "canonical"))
    (x,) = random_inputs(data, 0)
    made, expected = (run_onnx(model, {"i": x.transpose(NCHW)})[0] for model in models)
    np.testing.assert_array_equal(made, expected)


@pytest.mark.parametrize(
    "call",
    [
        "y: int8(0.2, -5)[1,5,40,2] = MUL(x, int8(0.1, 1)[1])",
        "y: int8(0.2, -5)[1,5,40,2] = MUL(x, int8(0.1, 1)[1,1,40,2])",
        "y: int8(0.2, -5)[1,5,40,2] = MUL(x, int8(0.1, 1)[1,5,1,1])",
        "y: int8(0.2, -5)[1,5,40,2] = MUL(x, x)",
        # The image has few pixels.
        """r: int8(0.1, 3)[1,1,2,2] = SLICE(x, [0, 0, 0, 0], [1, 1, 2, 2])
        y: int8(0.2, -5)[1,1,2,2] = MUL(r, int8(0.1, 1)[2])""",
        """r: int8(0.1, 3)[1,1,1,2] = SLICE(x, [0, 0, 0, 0], [1, 1, 1, 2])
        y: int8(0.2, -5)[1,5,40,2] = MUL(r, int8(0.1, 1)[1,5,40,2])""",
        """r: int8(0.1, 3)[1,1,1,400] = RESHAPE(x, new_shape=[1, 1, 1, 400])
        y: int8(0.2, -5)[1,1,1,400] = MUL(r, int8(0.1, 1)[1,1,1,400])""",
        """f: float32[1,5,40,2] = DEQUANTIZE(x)
        y: float32[1,5,40,2] = MUL(f, [1.0, 2.0])""",
    ],
)
def test_constants_stay_if_no_row_repeats_them(call: str) -> None:
    check_unchanged(repeat_constants, parse_graph(normalize(call)))

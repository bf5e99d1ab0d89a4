"""convolve_before_resizes.py: 1x1 convolutions before resizes."""

from __future__ import annotations

import pytest

from tests.support import check
from tests.support.fusions import count_optimized_nodes
from tests.support.graph_text import assert_rewritten, check_unchanged, make_model, parse_graph
from tflite2onnx import convert
from tflite2onnx.targets.onnxruntime.forms.convolutions.convolve_before_resizes import (
    convolve_before_resizes,
)

STEP = "padding=SAME, stride_h=1, stride_w=1"
RELU = f"{STEP}, fused_activation_function=RELU"

PLAIN = (
    "dilation_h_factor=1, dilation_w_factor=1, fused_activation_function=NONE, "
    "padding=VALID, stride_h=1, stride_w=1"
)

# The head of a SegFormer: images of three sizes.
HEAD = f"""
    inputs a: float32[1,32,32,48], b: float32[1,16,16,32], c: float32[1,8,8,16]
    rb: float32[1,32,32,32] = RESIZE_BILINEAR(b, [32, 32], half_pixel_centers=True)
    rc: float32[1,32,32,16] = RESIZE_NEAREST_NEIGHBOR(c, [32, 32])
    x: float32[1,32,32,96] = CONCATENATION(rb, a, rc, axis=3)
    y: float32[1,32,32,16] = CONV_2D(x, float32[16,1,1,96], float32[16], {RELU})
    return y
"""


def test_resized_parts_are_convolved_before() -> None:
    after = f"""
        inputs a: float32[1,32,32,48], b: float32[1,16,16,32], c: float32[1,8,8,16]
        pb: float32[1,16,16,16] = CONV_2D(b, float32[16,1,1,32], {PLAIN})
        rb: float32[1,32,32,16] = RESIZE_BILINEAR(pb, [32, 32], half_pixel_centers=True)
        pc: float32[1,8,8,16] = CONV_2D(c, float32[16,1,1,16], {PLAIN})
        rc: float32[1,32,32,16] = RESIZE_NEAREST_NEIGHBOR(pc, [32, 32])
        s: float32[1,32,32,16] = ADD(rb, rc)
        pa: float32[1,32,32,16] = CONV_2D(a, float32[16,1,1,48], float32[16], {PLAIN})
        z: float32[1,32,32,16] = ADD(pa, s)
        y: float32[1,32,32,16] = RELU(z)
        return y
    """
    assert_rewritten(convolve_before_resizes, HEAD, after)


def test_head_equals_litert_and_is_fused() -> None:
    """ONNX Runtime adds the sum and applies the activation in the last convolution."""
    data = make_model(HEAD)
    check(data, tolerance=1e-5)
    counts = count_optimized_nodes(convert(data).model.SerializeToString())
    assert counts["Add"] == 1
    assert not counts["Relu"]


@pytest.mark.parametrize("resize", ["RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR"])
def test_one_image_that_is_doubled_equals_litert(resize: str) -> None:
    text = f"""
        inputs i: float32[1,16,16,32]
        b: float32[1,16,16,32] = CONV_2D(i, float32[32,3,3,32], float32[32], {STEP})
        r: float32[1,32,32,32] = {resize}(b, [32, 32])
        y: float32[1,32,32,32] = CONV_2D(r, float32[32,1,1,32], float32[32], {RELU})
        return y
    """
    changed = convolve_before_resizes(parse_graph(text))
    assert [op.code for op in changed.ops] == ["CONV_2D", "CONV_2D", resize, "RELU"]
    check(make_model(text), tolerance=1e-5)


# A dense layer of rows, the RESHAPE that PyTorch's exporter makes of it, and a resize.
DENSE = f"""
    inputs x: float32[1,64,24]
    d: float32[1,64,32] = FULLY_CONNECTED(x, float32[32,24], float32[32], keep_num_dims=True)
    t: float32[1,32,64] = TRANSPOSE(d, [0, 2, 1])
    p: float32[1,32,8,8] = RESHAPE(t, [1, 32, 8, 8])
    i: float32[1,8,8,32] = TRANSPOSE(p, [0, 2, 3, 1])
    r: float32[1,32,32,32] = RESIZE_BILINEAR(i, [32, 32], align_corners=True)
    y: float32[1,32,32,16] = CONV_2D(r, float32[16,1,1,32], float32[16], {STEP})
    return y
"""
MOVED = DENSE[DENSE.index("    t:") : DENSE.index("    r:")]
KEPT = "    i: float32[1,8,8,32] = RESHAPE(d, [1, 8, 8, 32])\n"


@pytest.mark.parametrize("text", [DENSE, DENSE.replace(MOVED, KEPT)], ids=["moved", "kept"])
def test_dense_layer_and_convolution_become_one(text: str) -> None:
    changed = convolve_before_resizes(parse_graph(text))
    assert [op.code for op in changed.ops] == ["RESHAPE", "CONV_2D", "RESIZE_BILINEAR"]
    check(make_model(text), tolerance=1e-5)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("keep_num_dims=True", "keep_num_dims=True, fused_activation_function=RELU"),
        ("[0, 2, 3, 1]", "[0, 3, 2, 1]"),
    ],
)
def test_other_dense_layers_stay(old: str, new: str) -> None:
    text = DENSE.replace(old, new)
    codes = [op.code for op in convolve_before_resizes(parse_graph(text)).ops]
    assert codes[0] == "FULLY_CONNECTED"
    check(make_model(text), tolerance=1e-5)


def test_dense_layer_of_many_features_stays() -> None:
    """One product of 96 features and 64 outputs would multiply more than 96 by 8 and 8 by 64."""
    text = DENSE.replace("64,24]", "64,96]").replace("[32,24]", "[8,96]").replace(",32]", ",8]")
    text = (
        text.replace("[1, 32, 8", "[1, 8, 8")
        .replace(",32,64]", ",8,64]")
        .replace("float32[1,32,8,8]", "float32[1,8,8,8]")
    )
    text = text.replace("], float32[16]", "], float32[64]").replace("[16,1,1", "[64,1,1")
    text = text.replace("32,32,16]", "32,32,64]").replace("float32[32]", "float32[8]")
    codes = [op.code for op in convolve_before_resizes(parse_graph(text)).ops]
    assert codes[0] == "FULLY_CONNECTED"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("[32,1,1,32]", "[32,3,3,32]"),
        ("[32,1,1,32]", "[32,1,1,16]"),
        ("stride_w=1", "stride_w=2"),
        ("1,32,32", "1,9,9"),
        (
            "float32[1,32,32,32] = CONV_2D(r, float32[32",
            "float32[1,32,32,256] = CONV_2D(r, float32[256",
        ),
        ("return y", "return y, r"),
    ],
    ids=["window", "groups", "stride", "fewer pixels", "more channels", "another reader"],
)
def test_other_convolutions_stay(old: str, new: str) -> None:
    text = f"""
        inputs b: float32[1,16,16,32]
        r: float32[1,32,32,32] = RESIZE_BILINEAR(b, [32, 32])
        y: float32[1,32,32,32] = CONV_2D(r, float32[32,1,1,32], none, {STEP})
        return y
    """
    check_unchanged(convolve_before_resizes, parse_graph(text.replace(old, new)))

"""Computed factors of channels are repeated for all pixels; see keep_blocks.py."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support import check
from tests.support.fusions import count_optimized_nodes
from tests.support.graph_text import assert_rewritten, check_unchanged, make_model, parse_graph
from tflite2onnx import convert
from tflite2onnx.targets.onnxruntime.forms.convolutions.keep_blocks import repeat_factors

STEP = "padding=SAME, stride_h=1, stride_w=1"


def excite(channels: int, call: str, *, size: str = "7,5") -> str:
    """Return squeeze and excitation, whose last product is `call`."""
    n, one = f"[1,{size},{channels}]", f"[1,1,1,{channels}]"
    filters = f"float32[{channels},1,1,{channels}], float32[{channels}]"
    return f"""
        inputs i: float32[1,{size},8]
        x: float32{n} = CONV_2D(i, float32[{channels},1,1,8], float32[{channels}], {STEP})
        m: float32{one} = MEAN(x, [1, 2], keep_dims=True)
        s: float32{one} = CONV_2D(m, {filters}, {STEP})
        {call}
        z: float32{n} = CONV_2D(y, {filters}, {STEP})
        return z
    """


@pytest.mark.parametrize("inputs", ["x, s", "s, x"])
@pytest.mark.parametrize("code", ["MUL", "ADD"])
def test_the_pixel_is_repeated(code: str, inputs: str) -> None:
    options = "fused_activation_function=RELU"
    repeated = f"""
        r: float32[1,7,5,16] = RESIZE_NEAREST_NEIGHBOR(s, [7, 5])
        y: float32[1,7,5,16] = {code}(x, r, {options})
    """
    before = excite(16, f"y: float32[1,7,5,16] = {code}({inputs}, {options})")
    assert_rewritten(repeat_factors, before, excite(16, repeated))
    check(make_model(before), tolerance=1e-5)


@pytest.mark.parametrize("channels", [16, 12, 6])
def test_repeated_factors_equal_litert(channels: int) -> None:
    call = f"y: float32[1,7,5,{channels}] = MUL(x, s)"
    check(make_model(excite(channels, call)), tolerance=1e-5)


@pytest.mark.parametrize(
    ("call", "size"),
    [
        ("y: float32[1,7,5,16] = MUL(x, float32[1,1,1,16])", "7,5"),
        ("y: float32[1,7,5,16] = MUL(x, x)", "7,5"),
        ("y: float32[1,1,1,16] = MUL(x, s)", "1,1"),
        ("y: float32[1,n,5,16] = MUL(x, s)", "n,5"),
    ],
)
def test_products_without_one_computed_pixel_stay(call: str, size: str) -> None:
    check_unchanged(repeat_factors, parse_graph(excite(16, call, size=size)))


def test_a_pixel_that_no_convolution_computes_stays() -> None:
    text = excite(16, "y: float32[1,7,5,16] = MUL(x, t)")
    text = text.replace(",8]\n", ",8], t: float32[1,1,1,16]\n", 1)
    check_unchanged(repeat_factors, parse_graph(text))


def test_factors_of_large_images_stay() -> None:
    """The repeated pixels would take more memory than the reorders take time."""
    text = excite(16, "y: float32[1,256,257,16] = MUL(x, s)", size="256,257")
    check_unchanged(repeat_factors, parse_graph(text))


def test_onnx_runtime_leaves_the_blocks_at_the_ends_only() -> None:
    model = make_model(excite(16, "y: float32[1,7,5,16] = MUL(x, s)"))
    counts = {}
    for forms in ("canonical", "fastest"):
        data: Any = convert(model, forms=forms)
        counts[forms] = count_optimized_nodes(data.skeleton.serialize())
    assert counts["fastest"]["ReorderOutput"] == 1
    assert counts["canonical"]["ReorderOutput"] == 3

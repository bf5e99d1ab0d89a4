"""keep_channels_last.py: RESHAPE of images of 8 bits."""

from __future__ import annotations

import pytest

from tests.support import check
from tests.support.graph_text import make_model, parse_graph
from tflite2onnx.targets.onnxruntime.forms.movement.keep_channels_last import keep_channels_last
from tflite2onnx.targets.onnxruntime.operators.reshape import MovedOptions

IMAGE = """
    inputs x: int8(0.02, 3)[1,2,6,8]
    c: int8(0.05, 1)[1,2,6,8] = CONV_2D(x, int8(0.01, 0)[8,1,1,8], int32(0.0002, 0)[8], STEPS)
    y: int8(0.05, 1)[SIZES] = RESHAPE(c, new_shape=[SIZES])
    return y
""".replace("STEPS", "padding=VALID, stride_w=1, stride_h=1")


@pytest.mark.parametrize(
    ("shape", "is_kept"), [("1,12,8", True), ("1,1,12,8", True), ("1,12,8,1", False)]
)
def test_reshape_to_an_image_of_one_channel_has_the_planned_order(
    shape: str, *, is_kept: bool
) -> None:
    """An image of one channel has the same sequence of elements in both orders."""
    text = IMAGE.replace("SIZES", shape)
    _, reshape = keep_channels_last(parse_graph(text)).ops
    assert reshape.read_made(MovedOptions).keeps_last is is_kept
    check(make_model(text))

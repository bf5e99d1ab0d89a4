"""Groups of few channels become groups of a block; see keep_blocks.py."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.support import Build, check
from tests.support.graph_text import check_pass, check_unchanged, read_graph
from tflite2onnx import convert
from tflite2onnx.targets.onnxruntime.forms.convolutions.keep_blocks import merge_groups


def model(channels: int, outputs: int, read: int, activation: str = "NONE", **words: Any) -> Build:
    m = Build()
    filters = np.random.default_rng(0).standard_normal((outputs, 3, 3, read)).astype(np.float32)
    bias = m.constant(np.arange(outputs, dtype=np.float32))
    inputs = [m.input([1, 6, 5, channels]), m.constant(filters, **words), bias]
    shape = [1, 6, 5, outputs]
    options: dict[str, Any] = {"stride_h": 1, "stride_w": 1, "padding": "SAME"}
    m.output(*m.op("CONV_2D", inputs, [shape], fused_activation_function=activation, **options))
    return m


@pytest.mark.parametrize(("channels", "outputs"), [(16, 16), (32, 64), (64, 64)])
@pytest.mark.parametrize("activation", ["NONE", "RELU6"])
def test_groups_of_4_channels_are_merged_to_16(
    channels: int, outputs: int, activation: str
) -> None:
    result: Any = check(model(channels, outputs, 4, activation).bytes(), tolerance=1e-5)
    (node,) = (node for node in result.model.graph.node if node.op_type == "Conv")
    (groups,) = (each.i for each in node.attribute if each.name == "group")
    assert groups == channels // 16


@pytest.mark.parametrize(
    ("channels", "outputs", "read"),
    [(16, 16, 8), (24, 24, 4), (32, 16, 4), (4, 16, 4), (48, 48, 12), (16, 32, 2)],
)
def test_groups_that_do_not_fill_a_block_stay(channels: int, outputs: int, read: int) -> None:
    check_unchanged(merge_groups, read_graph(model(channels, outputs, read).bytes()))


def test_groups_with_integer_filters_stay() -> None:
    m = Build()
    x = m.input([1, 3, 3, 16])
    filters = m.constant(np.ones((16, 1, 1, 4), np.int8), scale=0.1)
    m.output(*m.op("CONV_2D", [x, filters, None], [[1, 3, 3, 16]], padding="SAME"))
    check_unchanged(merge_groups, read_graph(m.bytes()))


def test_canonical_forms_keep_the_groups() -> None:
    result: Any = convert(model(32, 32, 4).bytes(), forms="canonical")
    shapes = [tuple(each.dims) for each in result.model.graph.initializer]
    assert (32, 4, 3, 3) in shapes


def test_filters_of_groups_grow_to_a_block() -> None:
    before = """
        inputs %0: float32[1,6,5,32]
        %1: float32[1,6,5,32] = CONV_2D(%0, float32[32,3,3,4], float32[32], padding=SAME)
        return %1
    """
    after = before.replace("float32[32,3,3,4]", "float32[32,3,3,16]")
    graph = read_graph(model(32, 32, 4).bytes())
    check_pass(merge_groups, graph, before, after, "padding")

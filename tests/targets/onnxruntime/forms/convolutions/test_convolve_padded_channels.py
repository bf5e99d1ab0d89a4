"""A PAD of channels becomes a convolution, or none; see keep_blocks.py and pad_channels.py."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.support import Build, Tensor, check
from tests.support.graph_text import check_pass, check_unchanged, read_graph
from tests.targets.onnxruntime.forms.convolutions.test_pad_channels import Network
from tflite2onnx import convert
from tflite2onnx.graph import Graph
from tflite2onnx.targets.onnxruntime import costs
from tflite2onnx.targets.onnxruntime.forms.convolutions.keep_blocks import convolve_padded_channels
from tflite2onnx.targets.onnxruntime.forms.convolutions.pad_channels import leave_out_copies

STEP: dict[str, Any] = {"stride_h": 1, "stride_w": 1, "padding": "SAME"}
BIAS = "[0.0, 0.0, 0.0, 0.0, 0.0]"
LAST = [[0, 0], [0, 0], [0, 0], [0, 2]]
BOTH = [[0, 0], [0, 0], [0, 0], [1, 1]]


def convolve_pads(graph: Graph) -> Graph:
    return leave_out_copies(convolve_padded_channels(graph))


def convolve(m: Build, x: Tensor, channels: int) -> Tensor:
    filters = np.random.default_rng(0).standard_normal((channels, 3, 3, x.shape[-1]))
    bias = m.constant(np.zeros(channels, np.float32))
    inputs = [x, m.constant(filters.astype(np.float32)), bias]
    (y,) = m.op("CONV_2D", inputs, [[*x.shape[:-1], channels]], **STEP)
    return y


def model(pads: Any, code: str = "PAD") -> bytes:
    """Return a residual block with padded channels in its shortcut."""
    m = Build()
    x = convolve(m, m.input([1, 5, 7, 3]), 3)
    shape = [n + sum(pair) for n, pair in zip(x.shape, pads, strict=True)]
    inputs = [x, m.constant(np.array(pads, np.int32))]
    inputs += [m.constant(np.array(1, np.float32))] if code == "PADV2" else []
    (y,) = m.op(code, inputs, [shape])
    (y,) = m.op("ADD", [y, convolve(m, y, shape[-1])], [shape])
    m.output(y)
    return m.bytes()


def test_pad_of_channels_becomes_a_convolution() -> None:
    before = f"""
        inputs %0: float32[1,5,7,3]
        %1: float32[1,5,7,3] = CONV_2D(%0, float32[3,3,3,3], [0.0, 0.0, 0.0], padding=SAME)
        %2: float32[1,5,7,5] = PAD(%1, [[0, 0], [0, 0], [0, 0], [1, 1]])
        %3: float32[1,5,7,5] = CONV_2D(%2, float32[5,3,3,5], {BIAS}, padding=SAME)
        %4: float32[1,5,7,5] = ADD(%2, %3)
        return %4
    """
    after = before.replace(
        "PAD(%1, [[0, 0], [0, 0], [0, 0], [1, 1]])",
        "CONV_2D(%1, float32[5,1,1,3], padding=VALID)",
    )
    check_pass(convolve_pads, read_graph(model(BOTH)), before, after, "padding")


@pytest.mark.parametrize("pair", [(0, 2), (3, 0), (1, 4)], ids=str)
def test_convolved_pads_equal_litert(pair: tuple[int, int]) -> None:
    result = check(model([[0, 0], [0, 0], [0, 0], pair]))
    graph = result.model.graph
    constants = {tensor.name for tensor in graph.initializer}
    padded = {node.input[0] for node in graph.node if node.op_type == "Pad"}
    assert padded <= constants  # filters, whose channels are padded to blocks


@pytest.mark.parametrize(
    ("pads", "code"),
    [
        ([[0, 0], [1, 1], [0, 0], [0, 2]], "PAD"),
        ([[0, 0], [0, 0], [0, 0], [0, 0]], "PAD"),
        (LAST, "PADV2"),
    ],
    ids=["pixels", "nothing", "ones"],
)
def test_pads_of_no_channels_or_of_pixels_stay(pads: Any, code: str) -> None:
    graph = read_graph(model(pads, code))
    check_unchanged(convolve_pads, graph)
    check(model(pads, code), seeds=[0])


def test_pads_at_ends_of_the_graph_stay() -> None:
    """A PAD of an input, and a PAD that is an output, stay."""
    m = Build()
    pads = m.constant(np.array(LAST, np.int32))
    (y,) = m.op("PAD", [m.input([1, 5, 7, 3]), pads], [[1, 5, 7, 5]])
    m.output(*m.op("PAD", [convolve(m, y, 5), pads], [[1, 5, 7, 7]]))
    graph = read_graph(m.bytes())
    check_unchanged(convolve_pads, graph)


def test_pads_of_many_channels_stay() -> None:
    """A PAD of many channels stays, because the filters would take too much memory."""
    m = Build()
    x = convolve(m, m.input([1, 1, 1, 3]), 3)
    pads = m.constant(np.array([[0, 0], [0, 0], [0, 0], [0, 1 << 20]], np.int32))
    (y,) = m.op("PAD", [x, pads], [[1, 1, 1, 3 + (1 << 20)]])
    m.output(*m.op("NEG", [y], [y.shape]))
    graph = read_graph(m.bytes())
    check_unchanged(convolve_pads, graph)


def residual(
    channels: int = 24,
    more: int = 4,
    *,
    before: int = 0,
    size: tuple[int, int] = (64, 64),
    summed: bool = False,
    activation: str = "",
) -> bytes:
    """Return a residual block that grows its channels, between two convolutions."""
    m = Network()
    x = m.convolve(m.input([1, *size, 3]), channels, 3, fused_activation_function="RELU")
    x = m.apply(activation, x) if activation else x
    y = m.convolve(m.convolve_depthwise(x), channels + more)
    pads = np.array([[0, 0], [0, 0], [0, 0], [before, more - before]], np.int32)
    (wide,) = m.op("PAD", [x, m.constant(pads)], [y.shape])
    m.output(m.convolve(m.apply("ADD", wide, y, fused_activation_function="RELU"), 9))
    if summed:
        m.output(m.op("SUM", [x, m.constant(np.array([1, 2], np.int32))], [[1, channels]])[0])
    return m.bytes()


def test_convolutions_compute_the_padded_channels() -> None:
    before = """
        inputs %0: float32[1,64,64,3]
        %1: float32[1,64,64,24] = CONV_2D(%0, float32[24,3,3,3], float32[24])
        %2: float32[1,64,64,24] = DEPTHWISE_CONV_2D(%1, float32[1,3,3,24], float32[24])
        %3: float32[1,64,64,28] = CONV_2D(%2, float32[28,1,1,24], float32[28])
        %4: float32[1,64,64,28] = PAD(%1, [[0, 0], [0, 0], [0, 0], [0, 4]])
        %5: float32[1,64,64,28] = ADD(%4, %3)
        %6: float32[1,64,64,9] = CONV_2D(%5, float32[9,1,1,28], float32[9])
        return %6
    """
    after = """
        inputs %0: float32[1,64,64,3]
        %1: float32[1,64,64,28] = CONV_2D(%0, float32[28,3,3,3], float32[28])
        %2: float32[1,64,64,28] = DEPTHWISE_CONV_2D(%1, float32[1,3,3,28], float32[28])
        %3: float32[1,64,64,28] = CONV_2D(%2, float32[28,1,1,28], float32[28])
        %4: float32[1,64,64,28] = ADD(%1, %3)
        %5: float32[1,64,64,9] = CONV_2D(%4, float32[9,1,1,28], float32[9])
        return %5
    """
    check_pass(convolve_pads, read_graph(residual()), before, after)


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"before": 2}, id="zeros before the channels"),
        pytest.param({"summed": True}, id="an operator that is not by channel reads the image"),
        pytest.param({"channels": 32, "more": 64}, id="more blocks"),
        pytest.param({"activation": "LOGISTIC"}, id="padded channels that are not zeros"),
    ],
)
def test_pads_that_filters_cannot_absorb_become_convolutions(options: dict[str, Any]) -> None:
    graph = read_graph(residual(**options))
    changed = convolve_pads(graph)
    assert [op.code.replace("PAD", "CONV_2D") for op in graph.ops] == [
        op.code for op in changed.ops
    ]
    check(residual(**options), seeds=[0])


def test_a_large_graph_is_estimated_a_few_times_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit is less than the number of operators: no copy of channels is left out."""
    monkeypatch.setattr(costs, "_MOST_ESTIMATED", 5)
    graph = read_graph(residual())
    codes = [op.code for op in convolve_pads(graph).ops]
    assert codes == [op.code.replace("PAD", "CONV_2D") for op in graph.ops]


def test_growing_networks_equal_litert_with_fewer_convolutions() -> None:
    """The results are equal, and a pool has whole blocks."""
    m = Network()
    x = m.convolve(m.input([1, 16, 16, 3]), 24, 3, fused_activation_function="RELU")
    for channels in (28, 32, 42):
        y = m.convolve(m.convolve_depthwise(x), channels)
        pads = np.array([[0, 0], [0, 0], [0, 0], [0, channels - x.shape[-1]]], np.int32)
        (wide,) = m.op("PAD", [x, m.constant(pads)], [y.shape])
        x = m.apply("ADD", wide, y, fused_activation_function="RELU")
    m.output(m.convolve(x, 6))
    model = m.bytes()
    check(model)
    nodes = convert(model).model.graph.node
    assert sum(node.op_type == "Conv" for node in nodes) < 8 + 3

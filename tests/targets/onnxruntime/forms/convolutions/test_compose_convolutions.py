"""compose_convolutions.py: one convolution in place of two."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.support import Build, Tensor, check
from tests.support.graph_text import (
    check_pass,
    check_unchanged,
    make_model,
    parse_graph,
    read_graph,
)
from tflite2onnx import convert
from tflite2onnx.targets.onnxruntime.forms.convolutions.compose_convolutions import (
    compose_convolutions,
)

STEP: dict[str, Any] = {"stride_h": 1, "stride_w": 1, "padding": "SAME"}
SIZE = (28, 28)


class Network(Build):
    """A model of convolutions."""

    def __init__(self) -> None:
        super().__init__()
        self.random = np.random.default_rng(0)

    def weights(self, *shape: int) -> Tensor:
        """Add a constant."""
        return self.constant(self.random.uniform(-0.3, 0.3, shape).astype(np.float32))

    def convolve(self, x: Tensor, channels: int, size: int = 1, **options: Any) -> Tensor:
        """Add CONV_2D."""
        inputs = [x, self.weights(channels, size, size, x.shape[-1]), self.weights(channels)]
        return self.op("CONV_2D", inputs, [[1, *SIZE, channels]], **{**STEP, **options})[0]

    def convolve_depthwise(self, x: Tensor) -> Tensor:
        """Add DEPTHWISE_CONV_2D."""
        channels = x.shape[-1]
        inputs = [x, self.weights(1, 3, 3, channels), self.weights(channels)]
        return self.op("DEPTHWISE_CONV_2D", inputs, [x.shape], depth_multiplier=1, **STEP)[0]


def build(m: Network, channels: tuple[int, int, int] = (16, 8, 48), **options: Any) -> bytes:
    """Return a model of a depthwise convolution between two others, and two at its end."""
    first, between, last = channels
    x = m.convolve_depthwise(m.convolve(m.input([1, *SIZE, 3]), first, 3))
    x = m.convolve(x, between, **options)
    m.output(m.convolve(x, last, fused_activation_function="RELU"))
    return m.bytes()


def test_two_convolutions_become_one() -> None:
    before = """
        inputs %0: float32[1,28,28,3]
        %1: float32[1,28,28,16] = CONV_2D(%0, float32[16,3,3,3], float32[16])
        %2: float32[1,28,28,16] = DEPTHWISE_CONV_2D(%1, float32[1,3,3,16], float32[16])
        %3: float32[1,28,28,12] = CONV_2D(%2, float32[12,1,1,16], float32[12])
        %4: float32[1,28,28,48] = CONV_2D(%3, float32[48,1,1,12], float32[48])
        return %4
    """
    after = """
        inputs %0: float32[1,28,28,3]
        %1: float32[1,28,28,16] = CONV_2D(%0, float32[16,3,3,3], float32[16])
        %2: float32[1,28,28,16] = DEPTHWISE_CONV_2D(%1, float32[1,3,3,16], float32[16])
        %3: float32[1,28,28,48] = CONV_2D(%2, float32[48,1,1,16], float32[48])
        return %3
    """
    graph = read_graph(build(Network(), (16, 12, 48)))
    check_pass(compose_convolutions, graph, before, after)


def test_composed_convolutions_equal_litert() -> None:
    result = check(build(Network()))
    assert [node.op_type for node in result.model.graph.node].count("Conv") == 3


@pytest.mark.parametrize("channels", [(96, 24, 144), (600, 8, 600)])
def test_slower_compositions_are_left_out(channels: tuple[int, int, int]) -> None:
    """Many channels on both sides would multiply more, or need large filters."""
    check_unchanged(compose_convolutions, read_graph(build(Network(), channels)))


@pytest.mark.parametrize(
    "options", [{"fused_activation_function": "RELU"}, {"size": 3}, {"stride_w": 2}]
)
def test_convolutions_with_activations_windows_or_strides_stay(options: dict[str, Any]) -> None:
    m = Network()
    x = m.convolve_depthwise(m.convolve(m.input([1, *SIZE, 3]), 16, 3))
    size = options.pop("size", 1)
    inputs = [x, m.weights(8, size, size, 16), m.weights(8)]
    width = SIZE[1] // options.get("stride_w", 1)
    (x,) = m.op("CONV_2D", inputs, [[1, SIZE[0], width, 8]], **{**STEP, **options})
    inputs = [x, m.weights(48, 1, 1, 8), m.weights(48)]
    m.output(*m.op("CONV_2D", inputs, [[1, SIZE[0], width, 48]], **STEP))
    check_unchanged(compose_convolutions, read_graph(m.bytes()))


def test_dense_layer_is_not_composed() -> None:
    """A FULLY_CONNECTED has three inputs, as a convolution, but is not composed."""
    m = Network()
    x = m.convolve(m.convolve(m.convolve(m.input([1, *SIZE, 3]), 16, 3), 8), 48)
    inputs = [x, m.weights(10, 48), m.weights(10)]
    m.output(*m.op("FULLY_CONNECTED", inputs, [[28 * 28, 10]]))
    graph = compose_convolutions(read_graph(m.bytes()))
    assert [op.code for op in graph.ops] == ["CONV_2D", "CONV_2D", "FULLY_CONNECTED"]


def test_convolution_with_two_readers_stays() -> None:
    m = Network()
    x = m.convolve(m.convolve(m.input([1, *SIZE, 3]), 16), 8)
    m.output(x)
    m.output(m.convolve(x, 48))
    graph = compose_convolutions(read_graph(m.bytes()))
    assert [op.code for op in graph.ops][-1] == "CONV_2D"
    check(m.bytes(), seeds=[0])


def test_convolution_whose_bias_is_an_input_stays() -> None:
    m = Network()
    x = m.convolve_depthwise(m.convolve(m.input([1, *SIZE, 3]), 16, 3))
    (x,) = m.op("CONV_2D", [x, m.weights(8, 1, 1, 16), m.input([8])], [[1, *SIZE, 8]], **STEP)
    m.output(m.convolve(x, 48))
    check_unchanged(compose_convolutions, read_graph(m.bytes()))


def test_convolutions_with_integer_filters_stay() -> None:
    """Convolutions that quantize their data stay."""
    m = Network()
    x = m.convolve_depthwise(m.convolve(m.input([1, *SIZE, 3]), 16, 3))
    for channels in (8, 48):
        w = m.constant(np.ones((channels, 1, 1, x.shape[-1]), np.int8), scale=0.01)
        (x,) = m.op("CONV_2D", [x, w, m.weights(channels)], [[1, *SIZE, channels]], **STEP)
    m.output(x)
    check_unchanged(compose_convolutions, read_graph(m.bytes()))


def test_quantized_convolutions_stay() -> None:
    m = Build()
    fields: dict[str, Any] = {"dtype": "int8", "scale": 0.1, "zero_point": 3}
    x = m.input([1, *SIZE, 16], **fields)
    for channels in (8, 48):
        w = m.constant(np.ones((channels, 1, 1, x.shape[-1]), np.int8), scale=0.01)
        y = m.tensor([1, *SIZE, channels], **fields)
        (x,) = m.op("CONV_2D", [x, w], [y], **STEP)
    m.output(x)
    check_unchanged(compose_convolutions, read_graph(m.bytes()))


def test_three_convolutions_become_one() -> None:
    """The second convolution is composed with the first; the third reads the result."""
    image, step = "float32[1,32,32,32]", "padding=SAME, stride_h=1, stride_w=1"
    text = f"""
        inputs x: {image}
        a: {image} = CONV_2D(x, float32[32,1,1,32], float32[32], {step})
        b: {image} = CONV_2D(a, float32[32,1,1,32], float32[32], {step})
        c: {image} = CONV_2D(b, float32[32,1,1,32], float32[32], {step})
        return c
    """
    (only,) = compose_convolutions(parse_graph(text)).ops
    assert only.is_builtin("CONV_2D")
    check(make_model(text), tolerance=1e-5)


@pytest.mark.filterwarnings("error")
def test_an_operator_without_outputs_is_no_end_of_a_match() -> None:
    m = Network()
    y = m.convolve(m.input([1, *SIZE, 8]), 16)
    m.custom("Sink", [y], [])
    m.output(y)
    assert "Conv" in {
        node.op_type for node in convert(m.bytes(), allow_custom=True).model.graph.node
    }

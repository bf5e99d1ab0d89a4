"""targets/onnxruntime/forms/convolutions/pad_channels.py: channel counts that are no blocks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.support import Build, Tensor, check
from tests.support.graph_text import check_pass, check_unchanged, parse_graph, read_graph
from tflite2onnx import convert
from tflite2onnx.graph import Graph
from tflite2onnx.targets.onnxruntime.forms.convolutions.pad_channels import Channels, pad_channels

STEP: dict[str, Any] = {"stride_h": 1, "stride_w": 1, "padding": "SAME"}
SIZE = (5, 7)


class Network(Build):
    """A model of operators on images."""

    def __init__(self) -> None:
        super().__init__()
        self.random = np.random.default_rng(0)

    def weights(self, *shape: int) -> Tensor:
        """Add a constant."""
        return self.constant(self.random.standard_normal(shape).astype(np.float32))

    def convolve(self, x: Tensor, channels: int, size: int = 1, **options: Any) -> Tensor:
        """Add CONV_2D."""
        inputs = [x, self.weights(channels, size, size, x.shape[-1]), self.weights(channels)]
        return self.op("CONV_2D", inputs, [[*x.shape[:-1], channels]], **STEP, **options)[0]

    def convolve_depthwise(self, x: Tensor) -> Tensor:
        """Add DEPTHWISE_CONV_2D."""
        channels = x.shape[-1]
        inputs = [x, self.weights(1, 3, 3, channels), self.weights(channels)]
        return self.op("DEPTHWISE_CONV_2D", inputs, [x.shape], depth_multiplier=1, **STEP)[0]

    def apply(self, code: str, *inputs: Tensor, **options: Any) -> Tensor:
        """Add an elementwise operator."""
        return self.op(code, list(inputs), [inputs[0].shape], **options)[0]


def bottleneck(
    between: Callable[[Network, Tensor], Tensor] = Network.convolve_depthwise, channels: int = 9
) -> bytes:
    """Return a model with operators between two convolutions; all have `channels` channels."""
    m = Network()
    x = m.convolve(m.input([1, *SIZE, 3]), channels, fused_activation_function="RELU")
    m.output(m.convolve(between(m, x), 10))
    return m.bytes()


def test_channels_are_padded_to_whole_blocks() -> None:
    before = """
        inputs %0: float32[1,5,7,3]
        %1: float32[1,5,7,9] = CONV_2D(%0, float32[9,1,1,3], float32[9])
        %2: float32[1,5,7,9] = DEPTHWISE_CONV_2D(%1, float32[1,3,3,9], float32[9])
        %3: float32[1,5,7,10] = CONV_2D(%2, float32[10,1,1,9], float32[10])
        return %3
    """
    after = """
        inputs %0: float32[1,5,7,3]
        %1: float32[1,5,7,16] = CONV_2D(%0, float32[16,1,1,3], float32[16])
        %2: float32[1,5,7,16] = DEPTHWISE_CONV_2D(%1, float32[1,3,3,16], float32[16])
        %3: float32[1,5,7,10] = CONV_2D(%2, float32[10,1,1,16], float32[10])
        return %3
    """
    check_pass(pad_channels, read_graph(bottleneck()), before, after)


def activate(m: Network, x: Tensor) -> Tensor:
    y = m.apply("HARD_SWISH", m.apply("PRELU", x, m.weights(9)))
    return m.apply("LOGISTIC", m.apply("ADD", x, m.apply("MUL", y, m.weights(1))))


def squeeze(m: Network, x: Tensor) -> Tensor:
    """Return x times a gate for each channel."""
    axes = m.constant(np.array([1, 2], np.int32))
    (mean,) = m.op("MEAN", [x, axes], [[1, 1, 1, 9]], keep_dims=True)
    inputs = [mean, m.weights(9, 1, 1, 9), m.weights(9)]
    (gate,) = m.op("CONV_2D", inputs, [[1, 1, 1, 9]], **STEP)
    return m.apply("MUL", m.convolve_depthwise(x), m.apply("LOGISTIC", gate))


def pool(m: Network, x: Tensor) -> Tensor:
    fields = {**STEP, "filter_height": 2, "filter_width": 2}
    y = m.apply("MAX_POOL_2D", m.convolve_depthwise(x), **fields)
    size = m.constant(np.array(SIZE, np.int32))
    return m.op("RESIZE_BILINEAR", [y, size], [y.shape], align_corners=False)[0]


@pytest.mark.parametrize("between", [Network.convolve_depthwise, activate, squeeze, pool])
def test_convolutions_with_padded_channels_equal_litert(
    between: Callable[[Network, Tensor], Tensor],
) -> None:
    result = check(bottleneck(between))
    shapes = [value.type.tensor_type.shape for value in result.model.graph.value_info]
    sizes = {size.dim_value for shape in shapes for size in shape.dim}
    assert 9 not in sizes
    assert 16 in sizes


def concatenate(m: Network, x: Tensor) -> Tensor:
    y = m.convolve_depthwise(x)
    return m.op("CONCATENATION", [x, y], [[1, *SIZE, 18]], axis=3)[0]


def pass_on(m: Network, x: Tensor) -> Tensor:
    y = m.convolve_depthwise(x)
    m.output(y)
    return y


def multiply(m: Network, x: Tensor) -> Tensor:
    """Return a depthwise convolution with several filters for each channel."""
    inputs = [m.convolve(x, 1), m.weights(1, 3, 3, 9), m.weights(9)]
    return m.op("DEPTHWISE_CONV_2D", inputs, [x.shape], depth_multiplier=9, **STEP)[0]


def read_slopes(m: Network, x: Tensor) -> Tensor:
    return m.apply("PRELU", m.convolve_depthwise(x), m.input([9]))


@pytest.mark.parametrize("between", [concatenate, pass_on, multiply, read_slopes])
def test_channels_with_other_readers_stay(
    between: Callable[[Network, Tensor], Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"{__name__}.SIZE", (56, 56))
    data = bottleneck(between)
    graph = read_graph(data)
    check_unchanged(pad_channels, graph)
    check(data, seeds=[0])


@pytest.mark.parametrize("channels", [4, 8, 16, 20])
def test_channels_that_need_no_padding_stay(channels: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """8 channels are a block with AVX2, 20 are two blocks with AVX-512."""
    monkeypatch.setattr(f"{__name__}.SIZE", (56, 56))
    graph = read_graph(bottleneck(channels=channels))
    check_unchanged(pad_channels, graph)


@pytest.mark.parametrize(("channels", "padded"), [(33, 33), (18, 18), (22, 24), (27, 32), (50, 56)])
def test_much_padding_needs_a_depthwise_convolution(
    channels: int, padded: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"{__name__}.SIZE", (28, 28))

    def convolve(m: Network, x: Tensor) -> Tensor:
        return m.convolve(m.convolve(x, channels, 3), channels, 3)

    plain, depthwise = bottleneck(convolve, channels), bottleneck(channels=channels)
    sizes = [
        pad_channels(read_graph(data)).ops[0].outputs[0].shape[-1] for data in (plain, depthwise)
    ]
    assert sizes == [padded, -(-channels // 8) * 8]


def test_twelve_channels_are_padded_to_sixteen() -> None:
    """12 channels are no block, with AVX-512 or AVX2."""
    result = check(bottleneck(channels=12))
    shapes = [value.type.tensor_type.shape for value in result.model.graph.value_info]
    assert {shape.dim[1].dim_value for shape in shapes} == {16}


def test_channels_of_one_small_reader_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    """Channels that are read by one small convolution are not padded: the cost exceeds the gain."""
    monkeypatch.setattr(f"{__name__}.SIZE", (56, 56))
    graph = read_graph(bottleneck(lambda _, x: x))
    check_unchanged(pad_channels, graph)


def test_tensor_with_a_given_layout_is_not_padded() -> None:
    """A tensor with a layout from the user is not padded."""
    data = bottleneck()
    name = read_graph(data).ops[0].outputs[0].name
    text = str(convert(data, layouts={name: ("NHWC", "NCHW")}).model)
    assert "dim_value: 16" not in text


RESIZED = """
    inputs x: float32[1,4,4,3]
    a: float32[1,4,4,2] = CONV_2D(x, float32[2,1,1,3], float32[2])
    b: float32[1,4,4,2] = RESIZE_BILINEAR(a, [4, 4])
    c: float32[1,4,4,9] = CONV_2D(b, float32[9,1,1,2], float32[9])
    return c
"""


def test_channels_that_are_padded_twice_have_one_padding_of_the_first_filters() -> None:
    graph: Graph = parse_graph(RESIZED)
    for size in (3, 6):
        channels = Channels(graph)
        graph = channels.pad({channels.find(graph.ops[0].outputs[0]): size}, graph)
    w = graph.ops[0].operand(1)
    assert w.name.count("/padded") == 1
    assert w.assembly is not None
    assert (w.shape, w.assembly.source.shape) == ((6, 1, 1, 3), (2, 1, 1, 3))
    np.testing.assert_array_equal(w.values[2:], np.zeros((4, 1, 1, 3)))


def test_name_of_a_constant_does_not_make_it_a_padded_one() -> None:
    graph: Graph = parse_graph(RESIZED)
    w = graph.ops[0].operand(1)
    graph = graph.replace_tensors({w: replace(w, name="w/padded")})
    channels = Channels(graph)
    graph = channels.pad({channels.find(graph.ops[0].outputs[0]): 4}, graph)
    assert graph.ops[0].operand(1).name == "w/padded/padded"


def test_sizes_of_an_image_of_two_channels_are_no_channels() -> None:
    graph = parse_graph(RESIZED)
    channels = Channels(graph)
    resize = channels.pad({channels.find(graph.ops[0].outputs[0]): 4}, graph).ops[1]
    assert resize.operand(0).shape == resize.outputs[0].shape == (1, 4, 4, 4)
    np.testing.assert_array_equal(resize.operand(1).values, [4, 4])

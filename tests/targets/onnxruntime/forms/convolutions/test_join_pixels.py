"""8-bit convolutions of few channels read pieces of several pixels; see join_pixels.py."""

from __future__ import annotations

from collections import Counter
from math import inf
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

from tests.golden.saturation import assume_exact_products, assume_saturation
from tests.quantized.layers import Layer, Shape
from tests.quantized.test_products import SCHEMES, check_layer, run_model
from tests.support import Build, check, run_onnx
from tests.support.fusions import count_optimized_nodes, optimize_model
from tests.support.runtimes import make_exact_options
from tflite2onnx import convert
from tflite2onnx.targets.onnxruntime.costs import FACTORS, Gain
from tflite2onnx.targets.onnxruntime.forms.convolutions import join_pixels


def layer(
    image: tuple[int, int],
    filters: tuple[int, int, int, int],
    out: tuple[int, int],
    *,
    stride: tuple[int, int] = (2, 2),
    batch: int = 1,
    **options: Any,
) -> Shape:
    steps = {"stride_h": stride[0], "stride_w": stride[1], "padding": "SAME", **options}
    x, y = [batch, *image, filters[3]], [batch, *out, filters[0]]
    return Shape("CONV_2D", x, filters, y, 0, steps)


@pytest.fixture(autouse=True)
def join_small_images(monkeypatch: pytest.MonkeyPatch) -> None:
    """Join pixels whatever it saves."""
    monkeypatch.setattr(join_pixels, "_GAIN", Gain(0, part=0.1, loss=inf))
    for factors in FACTORS.values():
        monkeypatch.setitem(factors, "copy", factors["copy"]._replace(node=0))


JOINED = [
    layer((9, 16), (16, 3, 3, 3), (5, 8)),
    layer((9, 16), (8, 3, 3, 1), (5, 8), batch=2),
    layer((8, 32), (16, 5, 5, 1), (4, 16)),
    layer((6, 16), (16, 3, 3, 3), (6, 16), stride=(1, 1)),
    layer((6, 17), (16, 3, 3, 3), (3, 9)),
    layer((9, 19), (16, 3, 3, 3), (4, 9), padding="VALID"),
    layer((9, 20), (16, 2, 4, 3), (8, 17), stride=(1, 1), padding="VALID"),
    layer((6, 16), (8, 1, 1, 16), (6, 16), stride=(1, 1)),
    layer((9, 16), (8, 3, 1, 8), (9, 16), stride=(1, 1), dilation_h_factor=2),
    layer((6, 21), (16, 1, 2, 3), (3, 7), stride=(2, 3)),
]


@pytest.mark.parametrize("scheme", ["uint8", "int8", "int8 per channel"])
@pytest.mark.parametrize("shape", JOINED, ids=lambda s: f"{s.x} {s.w} {s.y}")
def test_pieces_give_the_integers_of_single_pixels(shape: Shape, scheme: str) -> None:
    """Joined pixels give the integers of a convolution of single pixels, and LiteRT's."""
    checked = Layer(shape, SCHEMES[scheme])
    result: Any = check_layer(checked)
    assert count_optimized_nodes(result.model)["QLinearConv"] == 1
    for x in checked.inputs:
        single = run_model(checked.model(), x, forms="canonical")
        for made, expected in zip(run_model(checked.model(), x), single, strict=True):
            np.testing.assert_array_equal(made, expected)


@pytest.mark.parametrize("scheme", ["uint8", "int8"])
@pytest.mark.parametrize("shape", JOINED[:-1], ids=lambda s: f"{s.x} {s.w} {s.y}")
def test_filters_of_one_scale_are_read_in_pieces(shape: Shape, scheme: str) -> None:
    """The zero point of the uint8 filters is 120, for which there is no direct kernel."""
    model = optimize_model(convert(Layer(shape, SCHEMES[scheme]).model()).model)
    weights = [tuple(d.dims) for d in model.graph.initializer if len(d.dims) == len("OIHW")]
    assert weights
    assert all(outputs > shape.w[0] for outputs, *_ in weights)


@pytest.mark.parametrize("is_exact", [True, False])
@pytest.mark.parametrize("shape", JOINED, ids=lambda s: f"{s.x} {s.w} {s.y}")
def test_processors_choose_between_both_forms(
    shape: Shape, monkeypatch: pytest.MonkeyPatch, *, is_exact: bool
) -> None:
    """Pixels are joined where products of int8 are exact; one form is left, with equal integers."""
    monkeypatch.setattr(join_pixels, "_GAIN", Gain(inf))
    monkeypatch.setattr(join_pixels, "_CHOSEN_GAIN", Gain(0, loss=inf))
    checked = Layer(shape, SCHEMES["int8 per channel"])
    model = convert(checked.model(), io_layout="tflite").model
    chosen = (assume_exact_products if is_exact else assume_saturation)(model)
    onnx.checker.check_model(chosen, full_check=True)
    graph = optimize_model(chosen).graph
    nodes = Counter(node.op_type for node in graph.node)
    assert "If" not in nodes
    assert nodes["QLinearConv"] == 1
    # int8 data become uint8 and int8 again, and no weights are dequantized.
    assert nodes["DequantizeLinear"] == nodes["QuantizeLinear"]
    (filters,) = (d.dims[0] for d in graph.initializer if len(d.dims) == len("OIHW"))
    assert (filters > shape.w[0]) is is_exact
    for x in checked.inputs:
        single = run_model(checked.model(), x, forms="canonical")
        feeds = {model.graph.input[0].name: x}
        for optimize, expected in zip((True, False), single, strict=True):
            with monkeypatch.context() as patch:
                patch.setattr(onnxruntime, "SessionOptions", make_exact_options)
                made = run_onnx(chosen, feeds, optimize=optimize)[0]
            np.testing.assert_array_equal(made, expected)


@pytest.mark.parametrize(
    "options", [{"target": "web"}, {"weights": "uint8"}, {"quantization": "float"}]
)
def test_no_processor_is_tested_for_one_type_of_weights(
    options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(join_pixels, "_GAIN", Gain(inf))
    monkeypatch.setattr(join_pixels, "_CHOSEN_GAIN", Gain(0, loss=inf))
    model = convert(Layer(JOINED[0], SCHEMES["int8"]).model(), **options).model
    assert "Reshape" not in {node.op_type for node in model.graph.node}


@pytest.mark.parametrize("activation", ["RELU", "RELU6"])
def test_activation_and_zero_points_are_kept(activation: str) -> None:
    check_layer(Layer(JOINED[0], SCHEMES["int8"], activation))


def test_joined_pixels_have_a_dynamic_batch() -> None:
    m, generator = Build(), np.random.default_rng(0)
    x = m.input([1, 8, 16, 3], dtype="int8", scale=0.05, zero_point=3)
    w = m.constant(generator.integers(-127, 128, (16, 3, 3, 3)).astype(np.int8), scale=0.01)
    b = m.constant(np.arange(16, dtype=np.int32) * 50, scale=0.0005)
    y = m.op("CONV_2D", [x, w, b], [[1, 4, 8, 16]], dtype="int8", scale=0.2, stride_h=2, stride_w=2)
    m.output(*y)
    images = generator.integers(-128, 128, (3, 8, 16, 3)).astype(np.int8)
    shapes = {"tensor_0": ["batch", 8, 16, 3]}
    check(m.bytes(), inputs=[images], shapes=shapes, steps=1, random_layouts=())


def test_padding_of_an_operator_before_is_kept() -> None:
    m, generator = Build(), np.random.default_rng(0)
    x = m.input([1, 8, 15, 3], dtype="int8", scale=0.05, zero_point=3)
    pads = m.constant(np.array([[0, 0], [1, 2], [1, 0], [0, 0]], np.int32))
    padded = m.op("PAD", [x, pads], [[1, 11, 16, 3]], dtype="int8", scale=0.05, zero_point=3)
    w = m.constant(generator.integers(-127, 128, (16, 3, 3, 3)).astype(np.int8), scale=0.01)
    b = m.constant(np.arange(16, dtype=np.int32) * 50, scale=0.0005)
    words: dict[str, Any] = {"stride_h": 2, "stride_w": 2, "padding": "VALID"}
    m.output(*m.op("CONV_2D", [*padded, w, b], [[1, 5, 7, 16]], dtype="int8", scale=0.2, **words))
    result: Any = check(m.bytes(), steps=1)
    assert count_optimized_nodes(result.model)["QLinearConv"] == 1
    assert "Reshape" in {node.op_type for node in result.model.graph.node}


@pytest.mark.parametrize(
    "shape",
    [
        layer((9, 16), (64, 3, 3, 64), (5, 8)),
        layer((9, 16), (64, 3, 3, 32), (9, 16), stride=(1, 1)),
        layer((9, 16), (16, 3, 3, 3), (9, 16), stride=(1, 1), dilation_w_factor=2),
    ],
    ids=lambda s: f"{s.x} {s.w} {s.y}",
)
def test_convolutions_of_many_channels_or_dilations_stay(shape: Shape) -> None:
    nodes = convert(Layer(shape, SCHEMES["int8"]).model()).model.graph.node
    assert "Reshape" not in {node.op_type for node in nodes}

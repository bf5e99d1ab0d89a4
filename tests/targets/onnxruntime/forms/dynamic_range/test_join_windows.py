"""Convolutions of few filters, of float data by integers, make several pixels at once."""

from __future__ import annotations

from math import prod
from typing import Any

import pytest

import tflite2onnx
from tests.quantized.layers import Shape
from tests.quantized.test_hybrid import extremes, hybrid
from tests.quantized.test_rounded import types
from tests.support import check
from tests.support.costs import prefer_integers
from tests.support.fusions import count_optimized_nodes, optimize_model


@pytest.fixture(autouse=True)
def _multiply_integers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Multiply integers and join windows in small images too."""
    prefer_integers(monkeypatch, "sum")


def layer(
    image: tuple[int, int],
    window: tuple[int, int],
    out: tuple[int, int],
    filters: int = 3,
    *,
    channels: int = 64,
    batch: int = 1,
    **options: Any,
) -> Shape:
    plain = {"stride_h": 1, "stride_w": 1, "padding": "SAME", **options}
    x, y = [batch, *image, channels], [batch, *out, filters]
    return Shape("CONV_2D", x, [filters, *window, channels], y, 0, plain)


ROWS = [
    layer((5, 8), (3, 3), (5, 8)),
    layer((5, 12), (5, 3), (5, 12), filters=1),
    layer((6, 7), (3, 3), (6, 7)),
    layer((7, 11), (3, 4), (5, 8), padding="VALID"),
    layer((4, 16), (3, 3), (4, 8), stride_w=2),
    layer((5, 8), (3, 3), (5, 8), batch=2),
    layer((12, 8), (9, 9), (12, 8), fused_activation_function="RELU6"),
]
WHOLE = [
    layer((5, 8), (3, 5), (5, 8), filters=16),
    layer((10, 8), (3, 3), (5, 4), stride_h=2, stride_w=2),
    layer((5, 12), (1, 15), (5, 12)),
    layer((9, 9), (3, 3), (4, 4), stride_h=2, stride_w=2, padding="VALID"),
    layer((9, 8), (2, 5), (5, 8), stride_h=2, batch=2, fused_activation_function="RELU"),
]


@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("shape", [*ROWS, *WHOLE], ids=lambda s: f"{s.x} {s.w} {s.y}")
def test_several_pixels_are_one_product(shape: Shape, *, per_channel: bool) -> None:
    data = hybrid(shape, "int8", per_channel=per_channel)
    result = check(data, inputs=extremes(shape, asymmetric=True), default_kernels=True)
    left = count_optimized_nodes(result.model)
    assert left["MatMulIntegerToFloat"] + left["DynamicQuantizeMatMul"] == 1, left
    constants = optimize_model(result.model).graph.initializer
    widths = [i.dims[-1] for i in constants if len(i.dims) == 2]
    assert max(widths) > shape.y[-1]
    assert ("Slice" in types(result)) == (shape in ROWS)


@pytest.mark.parametrize(
    "shape",
    [
        layer((5, 8), (3, 3), (5, 8), filters=64),
        layer((9, 7), (9, 1), (9, 7)),
        layer((8, 8), (3, 3), (8, 8), dilation_w_factor=2),
        layer((8, 8), (1, 7), (8, 8), filters=16, channels=1024),
    ],
    ids=lambda s: f"{s.x} {s.w} {s.y}",
)
def test_convolutions_whose_windows_are_not_joined_equal_litert(shape: Shape) -> None:
    data = hybrid(shape, "int8", per_channel=True)
    result = check(data, inputs=extremes(shape, asymmetric=True), default_kernels=True)
    assert count_optimized_nodes(result.model)["MatMulIntegerToFloat"] == 1
    stored = {tuple(i.dims) for i in result.model.graph.initializer}
    assert (prod(shape.w[1:]), shape.w[0]) in stored


def test_real_data_are_not_joined() -> None:
    data = hybrid(layer((5, 8), (3, 3), (5, 8)), "int8", per_channel=True)
    result = tflite2onnx.convert(data, dynamic_range="float")
    assert "MatMul" not in types(result)


def test_windows_of_small_images_are_not_joined(monkeypatch: pytest.MonkeyPatch) -> None:
    """The nodes that it takes to join windows would take longer than the windows."""
    monkeypatch.undo()
    prefer_integers(monkeypatch)
    shape = layer((3, 4), (3, 3), (3, 4), filters=16)
    data = hybrid(shape, "int8", per_channel=True)
    result = check(data, inputs=extremes(shape, asymmetric=True), default_kernels=True)
    assert (9 * 64, 16) in {tuple(i.dims) for i in result.model.graph.initializer}


@pytest.mark.parametrize("filters", [3, 16])
def test_joined_windows_have_a_dynamic_batch(filters: int) -> None:
    shape = layer((5, 8), (3, 3), (5, 8), filters=filters, batch=3)
    data = hybrid(shape, "int8", per_channel=True)
    inputs, sizes = extremes(shape, asymmetric=True), {"tensor_2": ["batch", 5, 8, 64]}
    result = check(data, inputs=inputs, shapes=sizes, default_kernels=True, random_layouts=())
    assert ("Slice" in types(result)) == (filters == 3)

"""Convolutions for slices of channels; see split_convolutions.py."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from tests.support import Tensor, check
from tests.support.graph_text import (
    check_pass,
    check_unchanged,
    eliminate_dead_after,
    parse_graph,
    read_graph,
)
from tests.targets.onnxruntime.forms.convolutions.test_pad_channels import Network
from tflite2onnx.targets.onnxruntime.forms.convolutions.split_convolutions import split_convolutions

split = eliminate_dead_after(split_convolutions)
SIZE = (20, 20)


def take(m: Network, x: Tensor, first: int, count: int, *, rows: int = SIZE[0]) -> Tensor:
    """Add SLICE of some channels."""
    begin = m.constant(np.array([0, 0, 0, first], np.int32))
    size = m.constant(np.array([1, rows, SIZE[1], count], np.int32))
    return m.op("SLICE", [x, begin, size], [[1, rows, SIZE[1], count]])[0]


def network(
    cuts: tuple[int, ...] = (0, 32, 64),
    function: str = "SILU",
    *,
    whole: bool = False,
    rows: int = SIZE[0],
    channels: int = 64,
) -> bytes:
    """Return a block of YOLOv8: a convolution whose channels are taken apart."""
    m = Network()
    x = m.convolve(m.input([1, *SIZE, 3]), 64, 3)
    activation = function if function == "RELU" else "NONE"
    y = m.convolve(x, channels, fused_activation_function=activation)
    if function == "SILU":
        y = m.apply("MUL", y, m.apply("LOGISTIC", y))
    elif function == "HARD_SWISH":
        y = m.apply("HARD_SWISH", y)
    for first, last in pairwise(cuts):
        part = take(m, y, first, last - first, rows=rows)
        m.output(m.convolve(part, 16, 3))
    if whole:
        m.output(m.convolve(y, 16))
    return m.bytes()


def test_convolution_is_split_instead_of_its_result() -> None:
    before = """
        inputs %0: float32[1,20,20,3]
        %1: float32[1,20,20,64] = CONV_2D(%0, float32[64,3,3,3], float32[64])
        %2: float32[1,20,20,64] = CONV_2D(%1, float32[64,1,1,64], float32[64])
        %3: float32[1,20,20,64] = LOGISTIC(%2)
        %4: float32[1,20,20,64] = MUL(%2, %3)
        %5: float32[1,20,20,32] = SLICE(%4, [0, 0, 0, 0], [1, 20, 20, 32])
        %6: float32[1,20,20,16] = CONV_2D(%5, float32[16,3,3,32], float32[16])
        %7: float32[1,20,20,32] = SLICE(%4, [0, 0, 0, 32], [1, 20, 20, 32])
        %8: float32[1,20,20,16] = CONV_2D(%7, float32[16,3,3,32], float32[16])
        return %6, %8
    """
    after = """
        inputs %0: float32[1,20,20,3]
        %1: float32[1,20,20,64] = CONV_2D(%0, float32[64,3,3,3], float32[64])
        %2: float32[1,20,20,32] = CONV_2D(%1, float32[32,1,1,64], float32[32])
        %3: float32[1,20,20,32] = LOGISTIC(%2)
        %4: float32[1,20,20,32] = MUL(%2, %3)
        %5: float32[1,20,20,16] = CONV_2D(%4, float32[16,3,3,32], float32[16])
        %6: float32[1,20,20,32] = CONV_2D(%1, float32[32,1,1,64], float32[32])
        %7: float32[1,20,20,32] = LOGISTIC(%6)
        %8: float32[1,20,20,32] = MUL(%6, %7)
        %9: float32[1,20,20,16] = CONV_2D(%8, float32[16,3,3,32], float32[16])
        return %5, %9
    """
    check_pass(split, read_graph(network()), before, after)


@pytest.mark.parametrize("function", ["SILU", "HARD_SWISH", "RELU", "NONE"])
def test_split_convolutions_equal_litert(function: str) -> None:
    model = network((0, 16, 64), function)
    check(model)
    graph = read_graph(model)
    assert "SLICE" not in split(graph).codes


def test_grouped_convolutions_stay() -> None:
    """A part of the filters would read the channels of other groups."""
    graph = parse_graph(
        """
        inputs %0: float32[1,20,20,64]
        %1: float32[1,20,20,64] = CONV_2D(%0, float32[64,1,1,32], float32[64])
        %2: float32[1,20,20,32] = SLICE(%1, [0, 0, 0, 0], [1, 20, 20, 32])
        %3: float32[1,20,20,32] = SLICE(%1, [0, 0, 0, 32], [1, 20, 20, 32])
        %4: float32[1,20,20,16] = CONV_2D(%3, float32[16,3,3,32], float32[16])
        return %2, %4
        """
    )
    check_unchanged(split_convolutions, graph)


@pytest.mark.parametrize(
    "model",
    [
        pytest.param(network((0, 32)), id="not all channels"),
        pytest.param(network(whole=True), id="another operator reads the image"),
        pytest.param(network((0, 40, 64)), id="no whole blocks"),
        pytest.param(network(rows=8), id="some rows"),
        pytest.param(network((0, *range(16, 129, 16)), channels=128), id="many convolutions"),
    ],
)
def test_convolutions_whose_slices_gain_no_time_stay(model: bytes) -> None:
    check_unchanged(split_convolutions, read_graph(model))

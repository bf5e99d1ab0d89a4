"""A PAD of channels becomes a convolution; see convolve_padded_channels.py."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.support import Build, Tensor, check
from tests.support.graph_text import check_pass, check_unchanged
from tflite2onnx.passes.patterns.convolutions.convolve_padded_channels import (
    convolve_padded_channels,
)
from tflite2onnx.reader.model import read_model

STEP: dict[str, Any] = {"stride_h": 1, "stride_w": 1, "padding": "SAME"}
BIAS = "[0.0, 0.0, 0.0, 0.0, 0.0]"
LAST = [[0, 0], [0, 0], [0, 0], [0, 2]]


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


def test_before_and_after() -> None:
    before = f"""
        inputs %0: float32[1,5,7,3]
        %1: float32[1,5,7,3] = CONV_2D(%0, float32[3,3,3,3], [0.0, 0.0, 0.0], padding=SAME)
        %2: float32[1,5,7,5] = PAD(%1, [[0, 0], [0, 0], [0, 0], [0, 2]])
        %3: float32[1,5,7,5] = CONV_2D(%2, float32[5,3,3,5], {BIAS}, padding=SAME)
        %4: float32[1,5,7,5] = ADD(%2, %3)
        return %4
    """
    after = before.replace(
        "PAD(%1, [[0, 0], [0, 0], [0, 0], [0, 2]])",
        "CONV_2D(%1, float32[5,1,1,3], padding=VALID)",
    )
    check_pass(
        convolve_padded_channels, read_model(model(LAST)).graphs[0], before, after, "padding"
    )


@pytest.mark.parametrize("pair", [(0, 2), (3, 0), (1, 4)], ids=str)
def test_numbers(pair: tuple[int, int]) -> None:
    result = check(model([[0, 0], [0, 0], [0, 0], pair]))
    assert "Pad" not in {node.op_type for node in result.model.graph.node}


@pytest.mark.parametrize(
    ("pads", "code"),
    [
        ([[0, 0], [1, 1], [0, 0], [0, 2]], "PAD"),
        ([[0, 0], [0, 0], [0, 0], [0, 0]], "PAD"),
        (LAST, "PADV2"),
    ],
    ids=["pixels", "nothing", "ones"],
)
def test_other_pads(pads: Any, code: str) -> None:
    graph = read_model(model(pads, code)).graphs[0]
    check_unchanged(convolve_padded_channels, graph)
    check(model(pads, code), seeds=[0])


def test_ends_of_the_graph() -> None:
    """A PAD of an input, and a PAD that is an output, stay."""
    m = Build()
    pads = m.constant(np.array(LAST, np.int32))
    (y,) = m.op("PAD", [m.input([1, 5, 7, 3]), pads], [[1, 5, 7, 5]])
    m.output(*m.op("PAD", [convolve(m, y, 5), pads], [[1, 5, 7, 7]]))
    graph = read_model(m.bytes()).graphs[0]
    check_unchanged(convolve_padded_channels, graph)


def test_many_channels() -> None:
    """A PAD of many channels stays, because the filters would take too much memory."""
    m = Build()
    x = convolve(m, m.input([1, 1, 1, 3]), 3)
    pads = m.constant(np.array([[0, 0], [0, 0], [0, 0], [0, 1 << 20]], np.int32))
    (y,) = m.op("PAD", [x, pads], [[1, 1, 1, 3 + (1 << 20)]])
    m.output(*m.op("NEG", [y], [y.shape]))
    graph = read_model(m.bytes()).graphs[0]
    check_unchanged(convolve_padded_channels, graph)

"""targets/onnxruntime/forms/convolutions/keep_blocks.py: PRELU after convolutions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.support import Build, Tensor, check
from tests.support.graph_text import check_pass, check_unchanged, read_graph
from tflite2onnx.targets.onnxruntime.forms.convolutions.keep_blocks import split_prelu

NAME = "fused_activation_function"
PLAIN = f"{NAME}=NONE"
WEIGHTS = f"float32[4,3,3,4], [1.0, 1.0, 1.0, 1.0], {PLAIN}"
SHAPE = [2, 5, 7, 4]
STEP: dict[str, Any] = {"stride_h": 1, "stride_w": 1, "padding": "SAME"}


def convolve(m: Build, x: Tensor) -> Tensor:
    filters = np.random.default_rng(0).standard_normal((4, 3, 3, 4)).astype(np.float32)
    (y,) = m.op(
        "CONV_2D", [x, m.constant(filters), m.constant(np.ones(4, np.float32))], [x.shape], **STEP
    )
    return y


def model(slopes: Any) -> bytes:
    """Return PRELU between two convolutions; `slopes` are constants, or the shape of an input."""
    m = Build()
    x = convolve(m, m.input(SHAPE))
    given = isinstance(slopes, tuple)
    alpha = m.input(list(slopes)) if given else m.constant(np.asarray(slopes, np.float32))
    (y,) = m.op("PRELU", [x, alpha], [SHAPE])
    m.output(convolve(m, y))
    return m.bytes()


def test_prelu_becomes_depthwise_convolutions_and_a_sum() -> None:
    before = f"""
        inputs %0: float32[2,5,7,4]
        %1: float32[2,5,7,4] = CONV_2D(%0, {WEIGHTS})
        %2: float32[2,5,7,4] = PRELU(%1, [-2.0, 0.0, 1.0, 3.0])
        %3: float32[2,5,7,4] = CONV_2D(%2, {WEIGHTS})
        return %3
    """
    bend = f"DEPTHWISE_CONV_2D(%1, [[[[-3.0, -1.0, -0.0, -2.0]]]], {NAME}=RELU)"
    signed = f"DEPTHWISE_CONV_2D(%2, [[[[1.0, 1.0, 0.0, -1.0]]]], {PLAIN})"
    after = f"""
        inputs %0: float32[2,5,7,4]
        %1: float32[2,5,7,4] = CONV_2D(%0, {WEIGHTS})
        %2: float32[2,5,7,4] = {bend}
        %3: float32[2,5,7,4] = {signed}
        %4: float32[2,5,7,4] = ADD(%3, %1)
        %5: float32[2,5,7,4] = CONV_2D(%4, {WEIGHTS})
        return %5
    """
    graph = read_graph(model([-2, 0, 1, 3]))
    check_pass(split_prelu, graph, before, after, NAME)


@pytest.mark.parametrize(
    "slopes", [[0.1, 0.2, 0.3, 0.4], [-2, 0, 1, 3], [1e-9, 100, -100, 1]], ids=str
)
def test_numbers_equal_litert_for_any_slopes(slopes: list[float]) -> None:
    """Results are accurate for steep, flat and negative slopes."""
    result = check(model(slopes), tolerance=1e-6)
    assert "PRelu" not in {node.op_type for node in result.model.graph.node}


@pytest.mark.parametrize(
    "slopes", [(4,), np.ones((5, 7, 4)), [[[0.5]]]], ids=["given", "each", "one"]
)
def test_computed_equal_or_pixelwise_slopes_stay_prelu(slopes: Any) -> None:
    """Slopes that are computed, that differ between pixels, or that are all equal, stay PRelu."""
    graph = read_graph(model(slopes))
    check_unchanged(split_prelu, graph)
    check(model(slopes), seeds=[0])


def test_prelu_without_convolution_stays() -> None:
    """PRELU stays if its input comes from no convolution."""
    m = Build()
    alpha = m.constant(np.linspace(0, 1, 4, dtype=np.float32))
    m.output(*m.op("PRELU", [m.input(SHAPE), alpha], [SHAPE]))
    graph = read_graph(m.bytes())
    check_unchanged(split_prelu, graph)


def test_prelu_after_a_sum_is_split() -> None:
    """PRELU after a sum of convolutions is split."""
    m = Build()
    x = convolve(m, m.input(SHAPE))
    (x,) = m.op("ADD", [x, convolve(m, x)], [SHAPE])
    alpha = m.constant(np.linspace(0, 2, 4, dtype=np.float32))
    m.output(*m.op("PRELU", [x, alpha], [SHAPE]))
    result = check(m.bytes(), seeds=[0])
    assert "PRelu" not in {node.op_type for node in result.model.graph.node}

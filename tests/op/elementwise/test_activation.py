"""Activation functions that are operators; `test_arithmetic` tests the fused functions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnxruntime
import pytest

from tests.support import Build, check
from tflite2onnx.convert import convert
from tflite2onnx.errors import ConversionError
from tflite2onnx.op.elementwise.activation import Activation, LeakyRelu

if TYPE_CHECKING:
    from pathlib import Path

SHAPE = (2, 3, 5, 7)
OPTIONS: dict[str, list[dict[str, Any]]] = {
    "GELU": [{"approximate": False}, {"approximate": True}],
    "LEAKY_RELU": [{"alpha": alpha} for alpha in (0.2, 0.0, -0.5, 1.5)],
}
CASES = [
    (code, dtype, options)
    for code, row in {**Activation.rows, **LeakyRelu.rows}.items()
    for dtype in row.types.split()
    for options in OPTIONS.get(code, [{}])
]
# LiteRT rounds each step to the narrow type; ONNX Runtime computes in float32.
TOLERANCE = {"float32": 1e-5, "float16": 2e-3, "bfloat16": 1e-2}


def model(code: str, dtype: str, options: dict[str, Any]) -> bytes:
    """Return a model of one function; bfloat16 inputs and outputs are cast from and to float32."""
    m = Build()
    x = m.input(SHAPE, dtype="float32" if dtype == "bfloat16" else dtype)
    if dtype == "bfloat16":
        (x,) = m.op("CAST", [x], [SHAPE], dtype=dtype)
    (y,) = m.op(code, [x], [SHAPE], **options)
    if dtype == "bfloat16":
        (y,) = m.op("CAST", [y], [SHAPE], dtype="float32")
    m.output(y)
    return m.bytes()


@pytest.mark.parametrize(("code", "dtype", "options"), CASES)
@pytest.mark.parametrize("opset", [13, None, 22])
def test_activation_functions_equal_litert(
    code: str, dtype: str, options: dict[str, Any], opset: int | None
) -> None:
    check(model(code, dtype, options), tolerance=TOLERANCE[dtype], opset=opset)


@pytest.mark.parametrize(("code", "dtype", "options"), CASES)
@pytest.mark.parametrize("opset", [13, None, 22])
def test_unusual_floats_equal_litert(
    code: str, dtype: str, options: dict[str, Any], opset: int | None
) -> None:
    """NaN, infinities, zeros of both signs, and the ends of the pieces of each function."""
    values = np.zeros(SHAPE, np.float16 if dtype == "float16" else np.float32)
    edges = [-np.inf, np.inf, np.nan, -0.0, -1, 1, 6, -3, 3, 1e-4, -1e-4, 100, -100]
    values[0, 0].flat[: len(edges)] = edges
    data = model(code, dtype, options)
    check(data, inputs=[values], tolerance=TOLERANCE[dtype], opset=opset)


def test_small_inputs_equal_litert() -> None:
    """Small inputs have a test of their own, because the tolerance is relative to the range."""
    for code, dtype, options in CASES:
        # ONNX Runtime computes ELU as exp(x) - 1, which loses the digits of small x.
        if dtype == "float32" and code != "ELU":
            check(model(code, dtype, options), ranges={"float32": (-1e-3, 1e-3)}, seeds=[0])


@pytest.mark.parametrize("approximate", [False, True])
@pytest.mark.parametrize("opset", [17, 20])
def test_gelu_is_one_node(tmp_path: Path, opset: int, *, approximate: bool) -> None:
    """Before opset 20 GELU is several nodes, which ONNX Runtime fuses to one."""
    m = Build()
    (x,) = m.op("ABS", [m.input(SHAPE)], [SHAPE])
    (x,) = m.op("GELU", [x], [SHAPE], approximate=approximate)
    m.output(*m.op("ABS", [x], [SHAPE]))
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "optimized.onnx")
    options.log_severity_level = 3
    onnxruntime.InferenceSession(convert(m.bytes(), opset=opset).model.SerializeToString(), options)
    nodes = onnx.load(options.optimized_model_filepath).graph.node
    assert [node.op_type.removeprefix("Fast") for node in nodes] == ["Abs", "Gelu", "Abs"]


def test_hard_swish_is_one_node() -> None:
    nodes = convert(model("HARD_SWISH", "float32", {})).model.graph.node
    assert [node.op_type for node in nodes] == ["HardSwish"]


@pytest.mark.parametrize("alpha", [(), (7,), (1, 1, 7), (3, 5, 7), (1, 3, 1, 1), SHAPE], ids=str)
@pytest.mark.parametrize("constant", [False, True])
def test_prelu_with_any_slopes_equals_litert(alpha: tuple[int, ...], *, constant: bool) -> None:
    """PRELU with slopes for each channel, for each element or for all; constant or computed."""
    m = Build()
    x = m.input(SHAPE)
    slopes = np.random.default_rng(0).uniform(-2, 2, alpha).astype(np.float32)
    slope = m.constant(slopes) if constant else m.input(alpha)
    m.output(*m.op("PRELU", [x, slope], [SHAPE]))
    check(m.bytes())


def test_prelu_refuses_slopes_larger_than_the_input() -> None:
    """Slopes with a larger shape than the input are refused."""
    m = Build()
    m.output(*m.op("PRELU", [m.input([1, 7]), m.input([3, 7])], [[3, 7]]))
    with pytest.raises(
        ConversionError, match=r"alpha must broadcast to \[1, 7\], got the shape \[3, 7\]"
    ):
        convert(m.bytes())


def test_relu_refuses_integers_without_a_scale() -> None:
    """RELU of plain integers is refused: the kernel accepts them without writing the output."""
    m = Build()
    m.output(*m.op("RELU", [m.input([3], dtype="int8")], [[3]]))
    with pytest.raises(ConversionError, match="must all be float32, got int8"):
        convert(m.bytes())

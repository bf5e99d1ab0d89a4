"""Operators on stored integers make the very integers of LiteRT's default kernels, XNNPACK's.

All integers of a type are inputs, or all pairs of them, with scales that make many halves too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter

from tests.quantized.values import every, made, unary
from tests.toolkit import Build, check, difference, run_onnx
from tests.toolkit.fusions import fused_operators
from tflite2onnx.convert import convert

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onnx import ModelProto

    from tests.quantized.values import Scale

Array = np.ndarray[Any, Any]

# Quotients of the scales of input and output; several make halves, the last ones are the limits.
QUOTIENTS = (0.013, 0.25, 0.37, 0.5, 1.0, 1.5, 2.0, 3.7, 1 / 256, 128.0)
ZEROS = {"int8": [(-128, 127), (5, -7), (127, -128)], "uint8": [(0, 255), (128, 120), (200, 3)]}


def run_default(data: bytes, inputs: Sequence[Array]) -> list[Array]:
    """Return what LiteRT makes by default, once it is sure that this is XNNPACK's."""
    interpreter = Interpreter(model_content=data, num_threads=1)
    interpreter.allocate_tensors()
    operators = [each["op_name"] for each in interpreter._get_ops_details()]  # noqa: SLF001
    assert "DELEGATE" in operators
    for port, array in zip(interpreter.get_input_details(), inputs, strict=True):
        interpreter.set_tensor(port["index"], array)
    interpreter.invoke()
    ports = interpreter.get_output_details()
    return [np.asarray(interpreter.get_tensor(port["index"])) for port in ports]


def hold(data: bytes, inputs: Sequence[Array], **options: Any) -> ModelProto:
    """Hold a model to the integers of the default kernels, optimized or not."""
    model = convert(data, io_layout="tflite", **options).model
    feeds = {port.name: array for port, array in zip(model.graph.input, inputs, strict=True)}
    wanted = run_default(data, inputs)
    for optimize in (True, False):
        for want, have in zip(wanted, run_onnx(model, feeds, optimize=optimize), strict=True):
            assert difference(want, have) == ""
    return model


@pytest.mark.parametrize("activations", ["auto", "int8"])
@pytest.mark.parametrize("quotient", QUOTIENTS)
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_other_scales(dtype: str, quotient: float, activations: str) -> None:
    x = every(dtype).reshape(2, -1)
    for given, wanted in ZEROS[dtype]:
        data = unary("QUANTIZE", x, (0.05 * quotient, given), (0.05, wanted))
        left = fused_operators(hold(data, [x], activations=activations))
        assert left["QLinearLeakyRelu"] == 1


@pytest.mark.parametrize("scale", [(2 / 255, -1), (1 / 255, -128), (0.0371, 5), (0.25, 0)])
def test_real_numbers(scale: Scale) -> None:
    """The pixels of images, and numbers next to all halves: ONNX would divide them by the scale."""
    halves = np.arange(-300, 300, 0.5).astype(np.float32) * np.float32(scale[0])
    near = [halves, np.nextafter(halves, np.float32(-9)), np.nextafter(halves, np.float32(9))]
    pixels = np.arange(256) / np.array([[127.5], [255], [255]]) - [[1], [0], [0.5]]
    x = np.concatenate([*near, pixels.ravel()]).astype(np.float32)
    m = Build()
    y = made(m, x.shape, "int8", scale)
    m.output(*m.op("QUANTIZE", [m.input(x.shape)], [y]))
    nodes = [node.op_type for node in hold(m.bytes(), [x], activations="int8").graph.node]
    assert nodes == ["Mul"] * (scale[0] != 0.25) + ["QuantizeLinear"]


@pytest.mark.parametrize("alpha", [0.2, 1.5, -0.3, 0.5, -1.0])
@pytest.mark.parametrize("quotient", QUOTIENTS[:-2])
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_leaky_relu(dtype: str, quotient: float, alpha: float) -> None:
    x = every(dtype).reshape(2, -1)
    for given, wanted in ZEROS[dtype]:
        if abs(quotient * alpha) < 1 / 256:  # which XNNPACK leaves to the built-in kernel
            continue
        data = unary("LEAKY_RELU", x, (0.05 * quotient, given), (0.05, wanted), alpha=alpha)
        assert fused_operators(hold(data, [x]))["QLinearLeakyRelu"] == 1


@pytest.mark.parametrize("scale", [(0.05 / 300, 0), (0.05 * 200, 0)])
def test_other_quotients_are_the_built_in_kernels(scale: Scale) -> None:
    """They are a step apart at most: these kernels round halves away from zero."""
    x = every("int8").reshape(2, -1)
    check(unary("QUANTIZE", x, scale, (0.05, 3)), inputs=[x], steps=1)
    check(unary("LEAKY_RELU", x, scale, (0.05, 3), alpha=0.1), inputs=[x], steps=1)

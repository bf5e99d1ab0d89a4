"""Results that overflow become infinities, as in XNNPACK, which LiteRT runs by default.

LiteRT's built-in kernels bound results by the largest float (CalculateActivationRange in
kernel_util.h). docs/faq.md says why the ONNX models do not.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter

from tests.support import Build, Tensor, run_onnx, run_tflite
from tflite2onnx.convert import convert

Array = np.ndarray[Any, Any]

LARGEST = float(np.finfo(np.float32).max)
# Inputs: three times some of these numbers overflows float32.
VALUES = np.array([3e38, -3e38, 1, -1], np.float32)
WINDOW: dict[str, Any] = {"padding": "SAME", "stride_h": 1, "stride_w": 1}
ACTIVATIONS = ["NONE", "RELU", "RELU6", "RELU_N1_TO_1"]


def threes(m: Build, *shape: int) -> Tensor:
    return m.constant(np.full(shape, 3, np.float32))


def zeros(m: Build) -> Tensor:
    return m.constant(np.zeros(1, np.float32))


# Operators and the other operands with which they compute about three times their data.
OTHERS: dict[str, Callable[[Build, Tensor], list[Tensor]]] = {
    "ADD": lambda m, x: m.op("MUL", [x, m.constant(np.ones(1, np.float32))], [x.shape]),
    "SUB": lambda m, x: m.op("NEG", [x], [x.shape]),
    "MUL": lambda m, _: [threes(m, 1)],
    "DIV": lambda m, _: [m.constant(np.array([0.25], np.float32))],
    "CONV_2D": lambda m, _: [threes(m, 1, 1, 1, 1), zeros(m)],
    "DEPTHWISE_CONV_2D": lambda m, _: [threes(m, 1, 1, 1, 1), zeros(m)],
    "TRANSPOSE_CONV": lambda m, _: [threes(m, 1, 1, 1, 1), zeros(m)],
    "FULLY_CONNECTED": lambda m, _: [threes(m, 1, 1), zeros(m)],
    "CONV_3D": lambda m, _: [threes(m, 1, 1, 1, 1, 1), zeros(m)],
    "L2_POOL_2D": lambda *_: [],
}
OPTIONS: dict[str, dict[str, Any]] = {
    "CONV_2D": WINDOW,
    "DEPTHWISE_CONV_2D": {**WINDOW, "depth_multiplier": 1},
    "TRANSPOSE_CONV": WINDOW,
    "CONV_3D": {**WINDOW, "stride_d": 1},
    "L2_POOL_2D": {**WINDOW, "filter_height": 1, "filter_width": 1},
}
SHAPES = {"FULLY_CONNECTED": [4, 1], "CONV_3D": [1, 1, 4, 1, 1]}
BY_XNNPACK = [
    "ADD",
    "SUB",
    "MUL",
    "DIV",
    "CONV_2D",
    "DEPTHWISE_CONV_2D",
    "TRANSPOSE_CONV",
    "FULLY_CONNECTED",
]


def model(code: str, activation: str) -> tuple[bytes, Array]:
    """Return a model of one operator whose results overflow, and the input of the model."""
    m = Build()
    x = m.input(SHAPES.get(code, [1, 4, 1, 1]))
    operands = [x, *OTHERS[code](m, x)]
    if code == "TRANSPOSE_CONV":
        operands = [m.constant([*x.shape]), operands[1], x, operands[2]]
    options = {**OPTIONS.get(code, {}), "fused_activation_function": activation}
    m.output(*m.op(code, operands, [m.tensor(x.shape)], **options))
    return m.bytes(), VALUES.reshape(x.shape)


def run_litert_by_default(data: bytes, x: Array) -> Array:
    """Return the output of LiteRT with its default delegates."""
    interpreter = Interpreter(model_content=data, num_threads=1)
    interpreter.allocate_tensors()
    interpreter.set_tensor(interpreter.get_input_details()[0]["index"], x)
    interpreter.invoke()
    return np.asarray(interpreter.get_tensor(interpreter.get_output_details()[0]["index"]))


def run_onnx_runtime(data: bytes, x: Array) -> list[Array]:
    """Return the outputs of ONNX Runtime with all optimizations and with none."""
    result = convert(data, io_layout="tflite")
    feeds = {result.inputs[0].name: x}
    return [run_onnx(result.model, feeds, optimize=level)[0] for level in (True, False)]


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("code", BY_XNNPACK)
def test_overflow_gives_the_infinities_of_xnnpack(code: str, activation: str) -> None:
    data, x = model(code, activation)
    want = run_litert_by_default(data, x)
    for have in run_onnx_runtime(data, x):
        np.testing.assert_array_equal(have, want)
    assert np.isinf(want).any() == (activation in ("NONE", "RELU"))


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("code", [*BY_XNNPACK, "CONV_3D", "L2_POOL_2D"])
def test_built_in_kernels_limit_infinities(code: str, activation: str) -> None:
    data, x = model(code, activation)
    (want,) = run_tflite(data, [x])
    for have in run_onnx_runtime(data, x):
        np.testing.assert_array_equal(np.clip(have, -LARGEST, LARGEST), want)

"""The rules of RKNN: models of one operator, of which its simulator decides."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

from tests.runtimes.environments import RKNN
from tests.targets.one_operator import (
    f32,
    find_model,
    make_bare,
    make_model,
    make_quantized,
    measure_distance,
    node,
    read_twice,
)
from tflite2onnx.targets.checker import check_model

POOLED = (1, 4, 5, 5)


def make_product(zero: int, data: int = 3) -> onnx.ModelProto:
    """Return a quantized convolution with zero points of its uint8 weights and of its data."""
    nodes = [
        node("DequantizeLinear", ["x", "s", "z"], ["a"]),
        node("DequantizeLinear", ["k", "sk", "zk"], ["w"], axis=0),
        node("Conv", ["a", "w"], ["c"], "n"),
        node("QuantizeLinear", ["c", "s", "zy"], ["y"]),
    ]
    kernel = np.random.default_rng(0).integers(1, 254, (4, 4, 1, 1), np.uint8)
    scales = np.full(4, 0.02, np.float32)
    zeros: dict[str, Any] = {
        "z": np.int8(data),
        "zy": np.int8(-128),
        "zk": np.full(4, zero, np.uint8),
    }
    return make_model(nodes, "int8", k=kernel, s=f32(0.0235), sk=scales, **zeros)


KEPT = {
    "MaxPool": make_quantized("MaxPool", "int8", 3, shape=POOLED, kernel_shape=[2, 2]),
    "AveragePool": make_quantized("AveragePool", "int8", 3, shape=POOLED, kernel_shape=[2, 2]),
    "LeakyRelu": make_quantized("LeakyRelu", "int8", 3, alpha=0.1),
    "Neg": make_quantized("Neg", "int8", 3),
    "Sigmoid of int8": make_quantized("Sigmoid", "int8", -128, 1 / 256),
    "HardSwish of uint8": make_quantized("HardSwish", "uint8", 28, 0.04),
    "Softmax": make_quantized("Softmax", "int8", -100, 1 / 256, axis=3),
    "one scale": read_twice(0.05, "int8"),
    "weights around 127": make_product(127),
    "weights around 129": make_product(129),
}
BROKEN = {
    "MaxPool of integers": (make_bare("MaxPool", POOLED, "int8", kernel_shape=[2, 2]), "got int8"),
    "Transpose of integers": (
        make_bare("Transpose", (1, 6, 6, 4), "int8", perm=[0, 2, 3, 1]),
        "type must not be",
    ),
    "Concat of integers": (
        make_model([node("Concat", ["x", "x"], ["y"], axis=1)], "int8", (1, 8, 6, 6)),
        "type must not be",
    ),
    "HardSwish of int8": (make_quantized("HardSwish", "int8", -100, 0.04), "must be uint8, got"),
    "Sigmoid of uint8": (make_quantized("Sigmoid", "uint8", 0, 1 / 256), "must be int8, got"),
    "Tanh": (make_quantized("Tanh", "int8", 0, 1 / 128), "follow DequantizeLinear, Tanh"),
    "HardSigmoid": (
        make_quantized("HardSigmoid", "int8", -128, 1 / 256),
        "follow DequantizeLinear, HardSigmoid",
    ),
    "two scales": (read_twice(0.01, "int8"), "must have one scale and zero point, got several"),
    "weights around 128": (make_product(128), "must not be the middle of uint8, got 128"),
    "data around 0": (make_product(127, 0), "must not be the middle of int8, got 0"),
    "int16": (make_quantized("Relu", "int16", 3), "must be uint8 or int8, got int16"),
}


def make_readable(name: str) -> onnx.ModelProto:
    """Return the model of a name, of the highest opset that RKNN reads."""
    model = onnx.ModelProto()
    model.CopyFrom(find_model(name, KEPT, BROKEN))
    model.opset_import[0].version = 21 if "int16" in name else 19
    return model


@pytest.mark.parametrize("name", KEPT)
def test_models_that_keep_the_rules(name: str) -> None:
    assert not check_model(make_readable(name), "rknn")


@pytest.mark.parametrize("name", BROKEN)
def test_models_that_break_a_rule(name: str) -> None:
    model, message = BROKEN[name]
    assert any(message in str(rule) for rule in check_model(model, "rknn"))


@pytest.mark.nightly
@pytest.mark.skipif(not RKNN.is_made, reason="scripts/runtimes.py --make rknn")
@pytest.mark.parametrize("name", [*KEPT, *(f"{name}, broken" for name in BROKEN)])
def test_the_simulator_decides_as_the_rules(name: str) -> None:
    assert (measure_distance(make_readable(name), RKNN) > 1) == (name not in KEPT)

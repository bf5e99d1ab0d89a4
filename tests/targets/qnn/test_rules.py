"""The rules of QNN: models of one operator, of which the simulator of the HTP decides."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import NodeProto

from tests.runtimes.environments import QNN
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

STEPS = 2  # The HTP rounds some products down.


def make_convolution(*limits: NodeProto) -> onnx.ModelProto:
    """Return a quantized convolution of 4 channels, then nodes from "d" to "e"."""
    nodes = [
        node("DequantizeLinear", ["x", "s", "z"], ["a"]),
        node("DequantizeLinear", ["k", "sk"], ["w"]),
        node("Conv", ["a", "w"], ["c"]),
        node("QuantizeLinear", ["c", "s", "z"], ["q"]),
        node("DequantizeLinear", ["q", "s", "z"], ["d"]),
        *limits,
        node("QuantizeLinear", ["e", "t", "zy"], ["y"]),
    ]
    kernel = np.random.default_rng(0).integers(-127, 127, (4, 4, 1, 1), np.int8)
    scales: dict[str, Any] = {"s": f32(0.05), "sk": f32(0.01), "t": f32(0.02)}
    others: dict[str, Any] = {"z": np.uint8(128), "zy": np.uint8(0), "k": kernel}
    return make_model(nodes, "uint8", **others, **scales, low=f32(0), high=f32(3))


def limit_product(operator: str, zero: int, *limits: NodeProto) -> onnx.ModelProto:
    """Return a quantized product of float results with a bias, then nodes from "p" to "e"."""
    shape = (4, 4, 1, 1) if operator == "Conv" else (4, 144)
    nodes = [
        node("DequantizeLinear", ["x", "s", "z"], ["a"]),
        node("Reshape", ["a", "sizes"], ["rows"]),
        node("DequantizeLinear", ["k", "sk"], ["w"], axis=0),
        node("Conv", ["a", "w", "b"], ["p"], "n")
        if operator == "Conv"
        else node("Gemm", ["rows", "w", "b"], ["p"], "n", transB=1),
        *limits,
        node("QuantizeLinear", ["e", "t", "zy"], ["y"]),
    ]
    result = (1, 4, 6, 6) if operator == "Conv" else (1, 4)
    kernel = np.random.default_rng(0).integers(-127, 127, shape, np.int8)
    scales: dict[str, Any] = {"s": f32(0.05), "sk": np.full(4, 0.01, f32), "t": f32(0.03)}
    others: dict[str, Any] = {"z": np.uint8(120), "zy": np.uint8(zero), "k": kernel}
    others |= {"b": np.ones(4, f32), "low": f32(0), "high": f32(2)}
    others["sizes"] = np.array([1, 144])
    used = [n for n in nodes if n.op_type != "Reshape" or operator == "Gemm"]
    return make_model(used, "uint8", result, **others, **scales)


def weigh_data(low: int, zero: int, group: int, scale: float = 0.01) -> onnx.ModelProto:
    """Return a convolution of uint8 weights from `low` to 255."""
    nodes = [
        node("DequantizeLinear", ["x", "s", "z"], ["a"]),
        node("DequantizeLinear", ["k", "sk", "zk"], ["w"]),
        node("Conv", ["a", "w"], ["c"], "n", group=group),
        node("QuantizeLinear", ["c", "t", "z"], ["y"]),
    ]
    kernel = np.random.default_rng(0).integers(low, 256, (4, 4 // group, 3, 3), np.uint8)
    kernel.flat[:2] = low, 255
    others: dict[str, Any] = {"z": np.uint8(128), "zk": np.uint8(zero), "k": kernel}
    scales: dict[str, Any] = {"s": f32(0.05), "sk": f32(scale), "t": f32(0.02)}
    return make_model(nodes, "uint8", (1, 4, 4, 4), **others, **scales)


def transpose(group: int, outputs: int, *padding: int) -> onnx.ModelProto:
    """Return a transposed convolution of 4 channels that doubles an image, with output_padding."""
    nodes = [
        node("DequantizeLinear", ["x", "s", "z"], ["a"]),
        node("DequantizeLinear", ["k", "sk"], ["w"]),
        node(
            *("ConvTranspose", ["a", "w"], ["c"], "n"),
            group=group,
            strides=[2, 2],
            pads=[1] * 4,
            output_padding=padding,
        ),
        node("QuantizeLinear", ["c", "t", "z"], ["y"]),
    ]
    shape = (4, outputs // group, 3, 3)
    kernel = np.random.default_rng(0).integers(-127, 127, shape, np.int8)
    constants: dict[str, Any] = {"s": f32(0.05), "sk": f32(0.01), "t": f32(0.1), "k": kernel}
    sizes = (1, outputs, *(11 + each for each in padding))
    return make_model(nodes, "uint8", sizes, **constants, z=np.uint8(128))


def compute(
    operator: str, sizes: Sequence[int], result: Sequence[int], *operands: Any, zero: int = 3
) -> onnx.ModelProto:
    """Return an operator of real numbers and constants, between integers."""
    names = [f"k{i}" for i in range(len(operands))]
    nodes = [
        node("DequantizeLinear", ["x", "s", "z"], ["a"]),
        node(operator, ["a", *names], ["b"], "n"),
        node("QuantizeLinear", ["b", "t", "z"], ["y"]),
    ]
    constants: dict[str, Any] = dict(zip(names, operands, strict=True))
    constants |= {"s": f32(0.02), "t": f32(0.02), "z": np.uint8(zero)}
    return make_model(nodes, "uint8", result, given=("uint8", sizes), **constants)


RELU = (node("Relu", ["p"], ["e"]),)
CLIP = (node("Clip", ["p", "low", "high"], ["e"]),)
ROUNDED_RELU = (
    node("QuantizeLinear", ["p", "t", "zy"], ["q"]),
    node("DequantizeLinear", ["q", "t", "zy"], ["d"]),
    node("Relu", ["d"], ["e"]),
)


def pad_image(*nodes: NodeProto) -> onnx.ModelProto:
    """Return a MaxPool, a Pad of rows and columns, nodes from "d" to "e", and their mean."""
    before = [
        node("DequantizeLinear", ["x", "s", "z"], ["a"]),
        node("MaxPool", ["a"], ["b"], kernel_shape=[1, 1]),
        node("QuantizeLinear", ["b", "s", "z"], ["p"]),
        node("DequantizeLinear", ["p", "s", "z"], ["c"]),
        node("Pad", ["c", "pads"], ["f"]),
        node("QuantizeLinear", ["f", "s", "z"], ["q"]),
        node("DequantizeLinear", ["q", "s", "z"], ["d"]),
    ]
    mean = [
        node("ReduceMean", ["e" if nodes else "d", "axes"], ["m"], "n"),
        node("QuantizeLinear", ["m", "t", "z"], ["y"]),
    ]
    numbers: dict[str, Any] = {"s": f32(0.05), "t": f32(0.02), "z": np.uint8(131)}
    sides: dict[str, Any] = {"pads": np.array([0, 0, 1, 1, 0, 0, 1, 1]), "axes": np.array([2, 3])}
    every = [*before, *nodes, *mean]
    return make_model(every, "uint8", (1, 4, 1, 1), least=f32(-6.55), **numbers, **sides)


LIMITED = (
    node("Max", ["d", "least"], ["g"]),
    node("QuantizeLinear", ["g", "s", "z"], ["h"]),
    node("DequantizeLinear", ["h", "s", "z"], ["e"]),
)

KEPT = {
    "Pad, Max and mean": pad_image(*LIMITED),
    "Conv and Relu, 0": limit_product("Conv", 0, *RELU),
    "Conv, quantized, and Relu": limit_product("Conv", 100, *ROUNDED_RELU),
    "Gemm and Relu, 0": limit_product("Gemm", 0, *RELU),
    "Gemm, quantized, and Relu": limit_product("Gemm", 100, *ROUNDED_RELU),
    "Conv of weights around 128": weigh_data(0, 128, 1),
    "Conv of weights around 151": weigh_data(23, 151, 1),
    "depthwise Conv of equal weights": weigh_data(255, 0, 4, 1 / 2550),
    "depthwise ConvTranspose": transpose(4, 4, 0, 0),
    "ConvTranspose of one group": transpose(1, 4, 1, 0),
    "ConvTranspose of two groups": transpose(2, 4, 1, 1),
    "ConvTranspose of four groups of two channels": transpose(4, 8, 1, 1),
    "CumSum around 0": compute("CumSum", [4, 6], [4, 6], np.array(1), zero=0),
    "GatherND of two indices": compute(
        "GatherND", [9, 5, 4], [3, 4], np.array([[2, 1], [8, 0], [5, 4]])
    ),
    "Relu of five axes": compute("Relu", [1, 2, 3, 2, 4], [1, 2, 3, 2, 4]),
    "Relu of int8": make_quantized("Relu", "int8", 3),
    "Sigmoid of int8": make_quantized("Sigmoid", "int8", -128, 1 / 256),
    "Sigmoid of int16": make_quantized("Sigmoid", "int16", 0, 1 / 32768),
    "AveragePool of int8": make_quantized(
        "AveragePool", "int8", 3, shape=(1, 4, 5, 5), kernel_shape=[2, 2]
    ),
    "LeakyRelu of uint8": make_quantized("LeakyRelu", "uint8", 3, alpha=0.1),
    "Neg of uint8": make_quantized("Neg", "uint8", 3),
    "Softmax of int8": make_quantized("Softmax", "int8", -128, 1 / 256, axis=3),
    "Softmax of uint8": make_quantized("Softmax", "uint8", 0, 1 / 256, axis=3),
    "Softmax of int16": make_quantized("Softmax", "int16", 0, 1 / 32768, axis=3),
    "one scale": read_twice(0.05),
    "limits": make_convolution(node("Relu", ["d"], ["r"]), node("Min", ["r", "high"], ["e"])),
}
BROKEN = {
    "Pad and mean": (pad_image(), "it must not follow Pad, QuantizeLinear, DequantizeLinear"),
    "Conv and Relu": (limit_product("Conv", 100, *RELU), "zero point must be 0, got 100"),
    "Gemm and Relu": (limit_product("Gemm", 100, *RELU), "zero point must be 0, got 100"),
    "Conv and Clip": (
        limit_product("Conv", 100, *CLIP),
        "it must not follow Conv, ConvTranspose or Gemm, Clip",
    ),
    "Conv of weights to 182": (weigh_data(0, 73, 1), "their zero point, got -73 to 182"),
    "depthwise Conv of weights to 182": (weigh_data(0, 73, 4), "got -73 to 182"),
    "MaxPool of integers": (make_bare("MaxPool", (1, 4, 5, 5), kernel_shape=[2, 2]), "got uint8"),
    "Concat of integers": (
        make_model([node("Concat", ["x", "x"], ["y"], axis=1)], "uint8", (1, 8, 6, 6)),
        "got uint8",
    ),
    "Identity of integers": (make_bare("Identity"), "type must not be"),
    "LeakyRelu of int8": (make_quantized("LeakyRelu", "int8", 3, alpha=0.1), "got int8"),
    "Neg of int8": (make_quantized("Neg", "int8", 3), "uint8 or uint16, got int8"),
    "HardSigmoid of int8": (make_quantized("HardSigmoid", "int8", 3), "uint8 or uint16, got int8"),
    "LeakyRelu of int16": (make_quantized("LeakyRelu", "int16", 3, alpha=0.1), "got int16"),
    "AveragePool of int16": (
        make_quantized("AveragePool", "int16", 3, shape=(1, 4, 5, 5), kernel_shape=[2, 2]),
        "must be uint8, int8 or uint16, got int16",
    ),
    "Softmax of int8": (
        make_quantized("Softmax", "int8", -100, 1 / 256, axis=3),
        "must be -128, got",
    ),
    "Softmax of uint8": (
        make_quantized("Softmax", "uint8", 28, 1 / 256, axis=3),
        "must be 0, got 28",
    ),
    "two scales": (read_twice(0.01), "q must have one scale and zero point, got several"),
    "depthwise ConvTranspose with a last row": (
        transpose(4, 4, 1, 0),
        "output_padding of 4 groups of one channel must be 0, got 1",
    ),
    "CumSum around 100": (
        compute("CumSum", [4, 6], [4, 6], np.array(1), zero=100),
        "must be 0, got 100",
    ),
    "GatherND of one index": (
        compute("GatherND", [17, 1, 6], [21, 1, 6], 5 * np.arange(21).reshape(21, 1) % 17),
        "indices must address two axes or more",
    ),
    "GatherND by five axes": (
        compute(
            "GatherND",
            [6, 5],
            [1, 6, 2, 2],
            np.random.default_rng(0).integers(0, 5, (1, 6, 2, 2, 2)),
        ),
        "indices must have at most 4 axes, got 5",
    ),
    "MaxPool with dilations": (
        make_quantized(
            "MaxPool", "uint8", 3, shape=(1, 4, 4, 4), kernel_shape=[2, 2], dilations=[2, 2]
        ),
        "dilations must be 1, got 2",
    ),
    "AveragePool beyond the image": (
        make_quantized(
            *("AveragePool", "uint8", 3),
            shape=(1, 4, 2, 2),
            kernel_shape=[4, 4],
            strides=[4, 4],
            ceil_mode=1,
        ),
        "ceil_mode must not be 1",
    ),
    "ReduceProd": (compute("ReduceProd", [2, 4], [1, 4], np.array([0])), "got ReduceProd"),
    "Neg of five axes": (
        compute("Neg", [1, 2, 3, 2, 4], [1, 2, 3, 2, 4]),
        "number of axes must be 0, 1, 2, 3 or 4, got 5",
    ),
    "Relu of six axes": (
        compute("Relu", [1, 2, 3, 2, 2, 2], [1, 2, 3, 2, 2, 2]),
        "number of axes must be 0, 1, 2, 3, 4 or 5, got 6",
    ),
    "Clip of float64": (
        make_model(
            [
                node("DequantizeLinear", ["x", "s", "z"], ["a"]),
                node("Cast", ["a"], ["d"], to=onnx.TensorProto.DOUBLE),
                node("Clip", ["d", "low", "high"], ["m"]),
                node("Cast", ["m"], ["f"], to=onnx.TensorProto.FLOAT),
                node("QuantizeLinear", ["f", "s", "z"], ["y"]),
            ],
            "uint8",
            s=f32(0.05),
            z=np.uint8(3),
            low=np.array(-1.0),
            high=np.array(2.0),
        ),
        "type must not be float64",
    ),
    "Clip after Conv": (
        make_convolution(node("Clip", ["d", "low", "high"], ["e"])),
        "must not follow Conv, QuantizeLinear, DequantizeLinear",
    ),
}


@pytest.mark.parametrize("name", KEPT)
def test_models_that_keep_the_rules(name: str) -> None:
    assert not check_model(KEPT[name], "qnn")


@pytest.mark.parametrize("name", BROKEN)
def test_models_that_break_a_rule(name: str) -> None:
    model, message = BROKEN[name]
    assert any(message in str(rule) for rule in check_model(model, "qnn"))


@pytest.mark.nightly
@pytest.mark.skipif(not QNN.is_made, reason="scripts/runtimes.py --make qnn")
@pytest.mark.parametrize("name", [*KEPT, *(f"{name}, broken" for name in BROKEN)])
def test_the_simulator_decides_as_the_rules(name: str) -> None:
    model = find_model(name, KEPT, BROKEN)
    assert (measure_distance(model, QNN) > STEPS) == (name not in KEPT)

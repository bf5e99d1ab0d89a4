"""The rules of runtimes of floats: models of one operator, of which each runtime decides.

A convolution stands first, as in networks: pnnx learns from it which axis is the batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import NodeProto, TensorProto, helper, numpy_helper

from tests.runtimes.environments import RUNTIMES
from tests.targets.one_operator import SHAPE, f32, measure_distance, node
from tflite2onnx.targets.checker import check_model

NEAR = 1e-3
NUMBERS = np.random.default_rng(0)


def make_network(
    nodes: Sequence[NodeProto],
    shape: Sequence[int] = SHAPE,
    kind: int = TensorProto.FLOAT,
    opset: int = 19,
    **constants: Any,
) -> onnx.ModelProto:
    """Return a model of a convolution, then of nodes from "a" to "y" of the type `kind`."""
    channels = shape[1]
    kernel = np.eye(channels) + NUMBERS.uniform(0, 0.1, (channels, channels))
    weights = kernel.astype(np.float32).reshape(channels, channels, *[1] * (len(shape) - 2))
    arrays = {name: np.asarray(array) for name, array in constants.items()}
    graph = helper.make_graph(
        [node("Conv", ["x", "kernel"], ["a"], "first"), *nodes],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", kind, None)],
        [numpy_helper.from_array(a, name) for name, a in (arrays | {"kernel": weights}).items()],
    )
    opsets = [helper.make_opsetid("", opset)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=9)
    return onnx.shape_inference.infer_shapes(model, strict_mode=True)


def make_one(operator: str, opset: int = 19, **attributes: Any) -> onnx.ModelProto:
    """Return a network with one operator of one input."""
    return make_network([node(operator, ["a"], ["y"], **attributes)], opset=opset)


def compare(operator: str, *constants: float) -> onnx.ModelProto:
    """Return a network whose results are 0 and 1."""
    limits: dict[str, Any] = {f"c{i}": f32(each) for i, each in enumerate(constants)}
    nodes = [node(operator, ["a", *limits], ["b"]), node("Cast", ["b"], ["y"], to=1)]
    return make_network(nodes, **limits)


def pad(*pads: int, **attributes: Any) -> onnx.ModelProto:
    return make_network([node("Pad", ["a", "p"], ["y"], **attributes)], p=np.array(pads))


def resize(mode: str, places: str, **attributes: Any) -> onnx.ModelProto:
    words = {"mode": mode, "coordinate_transformation_mode": places, **attributes}
    nodes = [node("Resize", ["a", "", "s"], ["y"], **words)]
    return make_network(nodes, s=np.array([1, 1, 2, 2], np.float32))


def quantize(operator: str, first: str, last: str, **attributes: Any) -> onnx.ModelProto:
    """Return a network with an operator between integers of two types."""
    nodes = [
        node("QuantizeLinear", ["a", "s", "z"], ["q"]),
        node("DequantizeLinear", ["q", "s", "z"], ["d"]),
        node(operator, ["d"], ["f"], **attributes),
        node("QuantizeLinear", ["f", "t", "o"], ["r"]),
        node("DequantizeLinear", ["r", "t", "o"], ["y"]),
    ]
    zeros: dict[str, Any] = {"z": np.array(3, first), "o": np.array(5, last)}
    return make_network(nodes, s=f32(0.02), t=f32(0.01), **zeros)


def scale_computed() -> onnx.ModelProto:
    """Return a network whose scale is computed."""
    nodes = [
        node("ReduceMax", ["a"], ["m"], keepdims=0),
        node("Mul", ["m", "c"], ["s"]),
        node("QuantizeLinear", ["a", "s", "z"], ["q"]),
        node("DequantizeLinear", ["q", "s", "z"], ["y"]),
    ]
    return make_network(nodes, c=f32(0.01), z=np.int8(0))


def loop() -> onnx.ModelProto:
    """Return a network with a Loop of three rounds."""
    inner = [("i", TensorProto.INT64, ()), ("c", TensorProto.BOOL, ()), ("s", 1, SHAPE)]
    outer = [("d", TensorProto.BOOL, ()), ("o", 1, SHAPE)]
    inputs, outputs = (
        [helper.make_tensor_value_info(*each) for each in ends] for ends in (inner, outer)
    )
    inside = [node("Add", ["s", "a"], ["o"]), node("Identity", ["c"], ["d"])]
    body = helper.make_graph(inside, "body", inputs, outputs)
    nodes = [node("Loop", ["n", "t", "first"], ["y"], body=body)]
    return make_network(nodes, n=np.array(3), t=np.array(True), first=np.zeros(SHAPE, np.float32))


FILTERS = NUMBERS.uniform(-1, 1, (4, 5, 3, 3)).astype(np.float32)
POOL: dict[str, Any] = {"kernel_shape": [2, 2], "strides": [1, 1]}
DYNAMIC = [
    node("DynamicQuantizeLinear", ["a"], ["q", "s", "z"]),
    node("DequantizeLinear", ["q", "s", "z"], ["y"]),
]
MODELS = {
    "Relu": make_one("Relu"),
    "Softmax": make_one("Softmax", axis=1),
    "Round": make_one("Round"),
    "AveragePool": make_one("AveragePool", **POOL),
    "AveragePool, pads at one end": make_one(
        "AveragePool", kernel_shape=[3, 3], strides=[2, 2], pads=[0, 0, 1, 1]
    ),
    "MaxPool, dilations": make_one("MaxPool", dilations=[2, 2], **POOL),
    "ConvTranspose": make_network(
        [node("ConvTranspose", ["a", "w"], ["y"], strides=[2, 2])], w=FILTERS
    ),
    "ConvTranspose, pads at one end": make_network(
        [node("ConvTranspose", ["a", "w"], ["y"], strides=[2, 2], pads=[0, 0, 1, 1])], w=FILTERS
    ),
    "Conv of 3 axes of space": make_network([node("Relu", ["a"], ["y"])], (1, 4, 5, 6, 6)),
    "Pad": pad(0, 0, 1, 1, 0, 0, 1, 2),
    "Pad, reflect": pad(0, 0, 1, 1, 0, 0, 1, 2, mode="reflect"),
    "Pad, negative": pad(0, 0, -1, 0, 0, 0, 0, -1),
    "Resize, linear, half_pixel": resize("linear", "half_pixel"),
    "Resize, linear, asymmetric": resize("linear", "asymmetric"),
    "Resize, nearest, half_pixel": resize("nearest", "half_pixel", nearest_mode="floor"),
    "DepthToSpace": make_one("DepthToSpace", blocksize=2),
    "DepthToSpace, CRD": make_one("DepthToSpace", blocksize=2, mode="CRD"),
    "SpaceToDepth": make_one("SpaceToDepth", blocksize=2),
    "Greater": compare("Greater", 0.1),
    "IsNaN": compare("IsNaN"),
    "Mean": make_network([node("Mean", ["a", "c"], ["y"])], c=np.ones(SHAPE, np.float32)),
    "Softsign": make_one("Softsign"),
    "ReduceL2": make_network([node("ReduceL2", ["a", "n"], ["y"])], n=np.array([2, 3])),
    "ReduceMean": make_network([node("ReduceMean", ["a", "n"], ["y"])], n=np.array([2, 3])),
    "Tile": make_network([node("Tile", ["a", "n"], ["y"])], n=np.array([1, 2, 1, 3])),
    "Transpose": make_one("Transpose", perm=[0, 2, 3, 1]),
    "ScatterND": make_network(
        [node("ScatterND", ["a", "i", "u"], ["y"])],
        i=np.array([[0, 1]]),
        u=np.ones((1, 6, 6), np.float32),
    ),
    "ReverseSequence": make_network(
        [node("ReverseSequence", ["a", "n"], ["y"], batch_axis=0, time_axis=1)], n=np.array([3])
    ),
    "Loop": loop(),
    "output of int64": make_network([node("ArgMax", ["a"], ["y"], axis=1)], kind=TensorProto.INT64),
    "output of int16": make_network([node("Cast", ["a"], ["y"], to=5)], kind=TensorProto.INT16),
    "DynamicQuantizeLinear": make_network(DYNAMIC),
    "computed scale": scale_computed(),
    "Sigmoid of int8": quantize("Sigmoid", "int8", "int8"),
    "Sigmoid of int8 to uint8": quantize("Sigmoid", "int8", "uint8"),
    "Relu of int8 to uint8": quantize("Relu", "int8", "uint8"),
    "Softmax of int8": quantize("Softmax", "int8", "int8", axis=1),
}
INTEGERS = {name for name in MODELS if " of int8" in name or "cale" in name or "Quant" in name}
# The names of models that break a rule of a target.
BROKEN = {
    "iree": {
        *("ConvTranspose, pads at one end", "Softsign", "output of int16", "Loop"),
        *("Pad, negative", "DepthToSpace, CRD", "ReverseSequence"),
    },
    "mnn": {
        *INTEGERS,
        *("MaxPool, dilations", "Conv of 3 axes of space", "Pad, negative", "IsNaN", "Mean"),
        *("ReduceL2", "ScatterND", "output of int64", "output of int16"),
    },
    "ncnn": {
        *INTEGERS,
        *("AveragePool, pads at one end", "MaxPool, dilations", "ConvTranspose, pads at one end"),
        *("Pad", "Pad, negative", "Resize, linear, asymmetric", "Resize, nearest, half_pixel"),
        *("DepthToSpace", "SpaceToDepth", "Greater", "IsNaN", "Mean", "Softsign", "Tile"),
        *("ScatterND", "ReverseSequence", "Loop", "output of int64", "output of int16"),
    },
    "tract": {
        *("Pad, negative", "ReverseSequence", "Loop", "DynamicQuantizeLinear", "computed scale"),
        *("Sigmoid of int8 to uint8", "Softmax of int8"),
    },
}

# A model that breaks a rule, and is right: MNN has functions of integers, but moves some axes.
TOO_STRICT = ("mnn", "Sigmoid of int8")


@pytest.mark.parametrize("target", BROKEN)
def test_models_that_break_a_rule(target: str) -> None:
    found = {name for name, model in MODELS.items() if check_model(model, target)}
    assert found == BROKEN[target]


@pytest.mark.nightly
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("target", BROKEN)
def test_the_runtime_decides_as_the_rules(target: str, name: str) -> None:
    runtime = RUNTIMES[target]
    if not runtime.is_made:
        pytest.skip(f"scripts/runtimes.py --make {target}")
    is_broken = name in BROKEN[target] and (target, name) != TOO_STRICT
    assert (measure_distance(MODELS[name], runtime) > NEAR) == is_broken


def test_the_documents_of_sentis() -> None:
    kept = {"Relu", "Softmax", "Round", "AveragePool", "Pad", "Greater", "IsNaN", "Transpose"}
    for name in (*kept, "Loop", "MaxPool, dilations", "Softmax of int8"):
        model = onnx.ModelProto()
        model.CopyFrom(MODELS[name])
        assert "opset" in str(check_model(model, "sentis")[0])
        model.opset_import[0].version = 15
        assert bool(check_model(model, "sentis")) == (name not in kept)
    ceiling = make_one("AveragePool", opset=15, ceil_mode=1, **POOL)
    (broken,) = check_model(ceiling, "sentis")
    assert broken.rule == "ceil_mode must not be 1"

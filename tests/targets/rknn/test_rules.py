"""The rules of RKNN: models of one operator, of which its simulator decides."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from tests.runtimes.environments import RKNN
from tests.targets.one_operator import (
    SHAPE,
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
CHANNELS = (1, SHAPE[1], 1, 1)


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


def join_functions(first: str, second: str, *, apart: bool = False) -> onnx.ModelProto:
    """Return two functions; the first one saturates. `apart` is whether a Max parts them."""
    operands = {"Conv": ["a", "w"], "Add": ["a", "c"]}.get(first, ["a"])
    sizes: dict[str, Any] = {"kernel_shape": [1, 1]} if first == "AveragePool" else {}
    after: dict[str, Any] = {"alpha": 0.1} if second == "LeakyRelu" else {}
    nodes = [
        node("DequantizeLinear", ["x", "s", "z"], ["a"]),
        *[node("DequantizeLinear", ["k", "sk", "zk"], ["w"])] * (first == "Conv"),
        *[node("DequantizeLinear", ["d", "s", "z"], ["c"])] * (first == "Add"),
        node(first, operands, ["b"], **sizes),
        node("QuantizeLinear", ["b", "t", "zt"], ["q"]),
        node("DequantizeLinear", ["q", "t", "zt"], ["e"]),
        *[
            node("Max", ["e", "least"], ["f"]),
            node("QuantizeLinear", ["f", "t", "zt"], ["r"]),
            node("DequantizeLinear", ["r", "t", "zt"], ["g"]),
        ]
        * apart,
        node(second, ["g" if apart else "e", *["a"] * (second == "Add")], ["h"], "n", **after),
        node("QuantizeLinear", ["h", "u", "zy"], ["y"]),
    ]
    rng = np.random.default_rng(0)
    constants: dict[str, Any] = {
        "k": rng.integers(1, 254, (4, 4, 1, 1), np.uint8),
        "d": rng.integers(-127, 127, SHAPE, np.int8),
        "s": f32(0.05),
        "sk": f32(0.007),
        "t": f32(0.031),
        "u": f32(0.02),
        "z": np.int8(3),
        "zk": np.uint8(127),
        "zt": np.int8(-11),
        "zy": np.int8(-100),
        "least": f32(-117 * 0.031),
    }
    used = {name for each in nodes for name in each.input}
    return make_model(nodes, "int8", **{k: v for k, v in constants.items() if k in used})


def join_constants(
    first: str, second: str, *, shapes: Any = (CHANNELS, CHANNELS), apart: bool = False
) -> onnx.ModelProto:
    """Return two functions of constants of these shapes; Conv and AveragePool have none."""
    computes = first in ("AveragePool", "Conv")
    model = join_functions(first if computes else "Add", second, apart=apart)
    graph, rng = model.graph, np.random.default_rng(0)
    for each in graph.node:
        if each.output == ["b"] and not computes:
            each.op_type = first
        elif each.output == ["h"]:
            del each.input[1:]
            each.input.append("v")
    graph.node.insert(0, node("DequantizeLinear", ["o", "s", "z"], ["v"]))
    kept = [each for each in graph.initializer if each.name != "d"]
    del graph.initializer[:]
    graph.initializer.extend(kept)
    for name, shape in [*zip("do", shapes, strict=True)][computes:]:
        numbers = rng.integers(-127, 127, shape, np.int8)
        graph.initializer.append(onnx.numpy_helper.from_array(numbers, name))
    return model


def average(operator: str, rows: int, *, step: float = 0.006) -> onnx.ModelProto:
    """Return an average of images of some rows, whose results have finer steps."""
    nodes = [
        node("DequantizeLinear", ["x", "s", "z"], ["a"]),
        node("Reshape", ["a", "sizes"], ["r"]),
        node("QuantizeLinear", ["r", "s", "z"], ["q"]),
        node("DequantizeLinear", ["q", "s", "z"], ["b"]),
        node(operator, ["b", *["axes"] * (operator == "ReduceMean")], ["c"], "n"),
        node("QuantizeLinear", ["c", "t", "z"], ["y"]),
    ]
    constants: dict[str, Any] = {"s": f32(0.03), "t": f32(step), "z": np.int8(-1)}
    constants |= {"sizes": np.array([1, 4 * 36 // rows, rows, 1]), "axes": np.array([2, 3])}
    used = {name for each in nodes for name in each.input}
    kept = {name: array for name, array in constants.items() if name in used}
    return make_model(nodes, "int8", (1, 4 * 36 // rows, 1, 1), **kept)


def make_function(
    operator: str, kind: str, zero: int, step: float, result: int, *, scale: float = 0.05
) -> onnx.ModelProto:
    """Return a function of integers with a scale and zero point, and those of its results."""
    nodes = [
        node("DequantizeLinear", ["x", "s", "z"], ["a"]),
        node(operator, ["a"], ["b"], "n"),
        node("QuantizeLinear", ["b", "t", "zy"], ["y"]),
    ]
    zeros: dict[str, Any] = {"z": np.array(zero, kind), "zy": np.array(result, kind)}
    return make_model(nodes, kind, s=f32(scale), t=f32(step), **zeros)


def limit_input(
    operator: str, before: str = "", zero: int = 10, *, given: str = "int8", end: str = "Neg"
) -> onnx.ModelProto:
    """Return a Relu or Clip of an input, maybe after a node, whose result another node reads."""
    own: dict[str, Any] = {
        "MaxPool": {"kernel_shape": [1, 1]},
        "Transpose": {"perm": [0, 1, 3, 2]},
    }.get(before, {})
    nodes = [
        *[node("QuantizeLinear", ["x", "s", "z"], ["q"])] * (given == "float32"),
        node("DequantizeLinear", ["x" if given == "int8" else "q", "s", "z"], ["a"]),
        *[node("DequantizeLinear", ["lowest", "s", "z"], ["least"])] * (before == "Max"),
        *[
            node(before, ["a", *["least"] * (before == "Max")], ["m"], **own),
            node("QuantizeLinear", ["m", "s", "z"], ["moved"]),
            node("DequantizeLinear", ["moved", "s", "z"], ["b"]),
        ]
        * bool(before),
        node(operator, ["b" if before else "a", *["low"] * (operator == "Clip")], ["c"], "n"),
        node("QuantizeLinear", ["c", "s", "zr"], ["r" if end else "y"]),
        *[
            node("DequantizeLinear", ["r", "s", "zr"], ["d"]),
            node(end, ["d"], ["e"]),
            node("QuantizeLinear", ["e", "s", "z"], ["y"]),
        ]
        * bool(end),
    ]
    constants: dict[str, Any] = {"s": f32(0.05), "z": np.int8(10), "zr": np.int8(zero)}
    constants |= {"lowest": np.full((1, 1, 1, 1), -128, np.int8), "low": f32(0)}
    used = {name for each in nodes for name in each.input}
    kept = {name: array for name, array in constants.items() if name in used}
    return make_model(nodes, "int8", given=(given, SHAPE), **kept)


def convolve_rows(stride: int, *, window: int = 8, floats: bool = True) -> onnx.ModelProto:
    """Return a Conv of floats, or of integers, to integers, with a stride along rows."""
    width = 9 * stride + window
    own: dict[str, Any] = {"strides": [1, stride], "kernel_shape": [1, window]}
    nodes = [
        *[node("DequantizeLinear", ["x", "s", "z"], ["a"])] * (not floats),
        *[node("DequantizeLinear", ["k", "sk", "zk"], ["w"])] * (not floats),
        node("Conv", ["x" if floats else "a", "w"], ["b"], "n", **own),
        node("QuantizeLinear", ["b", "s", "z"], ["y"]),
    ]
    rng = np.random.default_rng(0)
    integers = rng.integers(1, 254, (8, 1, 1, window), np.uint8)
    constants: dict[str, Any] = {"s": f32(0.05), "z": np.int8(3)}
    if floats:
        constants["w"] = rng.normal(size=integers.shape).astype(f32)
    else:
        constants |= {"k": integers, "sk": f32(0.003), "zk": np.uint8(127)}
    given = ("float32" if floats else "int8", (1, 1, 1, width))
    return make_model(nodes, "int8", (1, 8, 1, 10), given=given, **constants)


def convolve_groups(groups: int, *, biased: bool = True, scales: int = 16) -> onnx.ModelProto:
    """Return a Conv of 16 channels, whose weights have larger and larger scales."""
    nodes = [
        node("DequantizeLinear", ["x", "s", "z"], ["a"]),
        node("DequantizeLinear", ["k", "sk", "zk"], ["w"], axis=0),
        node("Conv", ["a", "w", *["b"] * biased], ["c"], "n", group=groups),
        node("QuantizeLinear", ["c", "t", "z"], ["y"]),
    ]
    rng = np.random.default_rng(0)
    constants: dict[str, Any] = {"s": f32(0.138), "t": f32(0.214), "z": np.int8(-48)}
    constants["k"] = rng.integers(1, 254, (16, 16 // groups, 1, 1), np.uint8)
    constants["sk"] = np.geomspace(0.0008, 0.012, 16).astype(f32)
    constants["zk"] = np.full(16, 127, np.uint8)
    if scales == 1:
        constants |= {"sk": f32(0.01), "zk": np.uint8(127)}
    if biased:
        constants["b"] = rng.uniform(-8, 8, 16).astype(f32)
    sizes = (1, 16, 3, 3)
    return make_model(nodes, "int8", sizes, given=("int8", sizes), **constants)


def reshape_pixel(shape: Sequence[int], *, apart: bool = False) -> onnx.ModelProto:
    """Return a Conv of an image of one pixel, which is reshaped; a Max may part them."""
    stored = [
        node("QuantizeLinear", ["r", "s", "z"], ["q"]),
        node("DequantizeLinear", ["q", "s", "z"], ["b"]),
    ]
    nodes = [
        node("DequantizeLinear", ["x", "s", "z"], ["a"]),
        node("Reshape", ["a", "sizes"], ["r"]),
        *stored,
        *[
            node("Max", ["b", "least"], ["f"]),
            node("QuantizeLinear", ["f", "s", "z"], ["l"]),
            node("DequantizeLinear", ["l", "s", "z"], ["g"]),
        ]
        * apart,
        node("DequantizeLinear", ["k", "sk", "zk"], ["w"]),
        node("Conv", ["g" if apart else "b", "w"], ["c"], "n"),
        node("QuantizeLinear", ["c", "s", "z"], ["y"]),
    ]
    constants: dict[str, Any] = {"s": f32(0.05), "z": np.int8(3), "sk": f32(0.01)}
    constants |= {"zk": np.uint8(127), "sizes": np.array([1, 16, 1, 1])}
    constants |= {"least": f32(-131 * 0.05)} if apart else {}
    constants["k"] = np.random.default_rng(0).integers(1, 254, (8, 16, 1, 1), np.uint8)
    return make_model(nodes, "int8", (1, 8, 1, 1), given=("int8", shape), **constants)


def attend() -> onnx.ModelProto:
    """Return the attention of images to themselves."""
    nodes = [
        node("DequantizeLinear", ["x", "s", "z"], ["a"]),
        node("MatMul", ["a", "a"], ["b"]),
        node("QuantizeLinear", ["b", "s", "z"], ["q"]),
        node("DequantizeLinear", ["q", "s", "z"], ["c"]),
        node("Softmax", ["c"], ["d"], axis=3),
        node("QuantizeLinear", ["d", "t", "least"], ["p"]),
        node("DequantizeLinear", ["p", "t", "least"], ["e"]),
        node("MatMul", ["e", "a"], ["f"], "n"),
        node("QuantizeLinear", ["f", "s", "z"], ["y"]),
    ]
    return make_model(nodes, "int8", s=f32(0.05), z=np.int8(3), t=f32(1 / 256), least=np.int8(-128))


def multiply_rows() -> onnx.ModelProto:
    """Return the product of images with themselves, whose sums are far larger than its range."""
    nodes = [
        node("DequantizeLinear", ["x", "s", "z"], ["a"]),
        node("MatMul", ["a", "a"], ["b"], "n"),
        node("QuantizeLinear", ["b", "s", "z"], ["y"]),
    ]
    shape = (1, 4, 64, 64)
    return make_model(nodes, "int8", shape, given=("int8", shape), s=f32(0.05), z=np.int8(3))


def read_output() -> onnx.ModelProto:
    """Return a Relu, whose integers are an output and the input of Neg."""
    nodes = [
        node("DequantizeLinear", ["x", "s", "z"], ["a"]),
        node("Relu", ["a"], ["b"]),
        node("QuantizeLinear", ["b", "s", "z"], ["r"], "n"),
        node("DequantizeLinear", ["r", "s", "z"], ["c"]),
        node("Neg", ["c"], ["d"]),
        node("QuantizeLinear", ["d", "s", "z"], ["y"]),
    ]
    model = make_model(nodes, "int8", s=f32(0.05), z=np.int8(3))
    model.graph.output.append(helper.make_tensor_value_info("r", TensorProto.INT8, SHAPE))
    return model


def name_input(name: str) -> onnx.ModelProto:
    """Return a Neg, whose input has a name."""
    model = make_quantized("Neg", "int8", 3)
    model.graph.input[0].name = model.graph.node[0].input[0] = name
    return model


def add_input() -> onnx.ModelProto:
    """Return a Neg, and an input that no node reads."""
    model = make_quantized("Neg", "int8", 3)
    model.graph.input.insert(0, helper.make_tensor_value_info("unread", TensorProto.INT8, (1, 3)))
    return model


JOINED = [
    ("Conv", "LeakyRelu"),
    ("Conv", "Relu"),
    ("Conv", "Add"),
    ("Add", "Relu"),
    ("AveragePool", "Relu"),
    ("Neg", "Relu"),
    ("Neg", "Neg"),
]
SUMS = [("Mul", "Add"), ("Mul", "Mul"), ("Mul", "Sub"), ("Add", "Add"), ("Sub", "Add")]
SUMS += [("Add", "Sub"), ("Sub", "Sub"), ("Conv", "Mul"), ("AveragePool", "Mul")]
KEPT = {
    **{f"{a}, Max and {b}": join_functions(a, b, apart=True) for a, b in JOINED},
    **{f"{a}, Max and {b} of channels": join_constants(a, b, apart=True) for a, b in SUMS},
    "Mul and Add of images": join_constants("Mul", "Add", shapes=(SHAPE, SHAPE)),
    "Mul of channels, Add of an image": join_constants("Mul", "Add", shapes=(CHANNELS, SHAPE)),
    "Add and Mul of channels": join_constants("Add", "Mul"),
    "an average of 6 rows": average("ReduceMean", 6, step=0.03),
    "Add and LeakyRelu": join_functions("Add", "LeakyRelu"),
    "MaxPool": make_quantized("MaxPool", "int8", 3, shape=POOLED, kernel_shape=[2, 2]),
    "AveragePool": make_quantized("AveragePool", "int8", 3, shape=POOLED, kernel_shape=[2, 2]),
    "LeakyRelu": make_quantized("LeakyRelu", "int8", 3, alpha=0.1),
    "Neg": make_quantized("Neg", "int8", 3),
    "Sigmoid": make_function("Sigmoid", "int8", 3, 1 / 256, -128, scale=0.048),
    "Sigmoid of uint8": make_function("Sigmoid", "uint8", 127, 1 / 256, 0, scale=0.048),
    "Tanh": make_function("Tanh", "int8", 3, 1 / 128, 1, scale=0.02),
    "HardSwish": make_function("HardSwish", "int8", -70, 0.05, -120),
    "HardSwish of uint8": make_function("HardSwish", "uint8", 58, 0.05, 8),
    "HardSigmoid": make_function("HardSigmoid", "int8", 3, 1 / 256, -128, scale=0.019),
    "Softmax": make_quantized("Softmax", "int8", -100, 1 / 256, axis=3),
    "one scale": read_twice(0.05, "int8"),
    "a name of 126 letters": name_input("n" * 126),
    "weights around 127": make_product(127),
    "weights around 129": make_product(129),
    "a stride of 7": convolve_rows(7),
    "an odd stride of 9": convolve_rows(9),
    "a stride of 8, integers": convolve_rows(8, floats=False),
    "one group": convolve_groups(1),
    "two groups of one scale": convolve_groups(2, scales=1),
    "two groups without a bias": convolve_groups(2, biased=False),
    "groups of one channel": convolve_groups(16),
    "a pixel of [1, 16]": reshape_pixel([1, 16]),
    "a pixel of [1, 1, 16]": reshape_pixel([1, 1, 16]),
    "a pixel of [1, 2, 8, 1]": reshape_pixel([1, 2, 8, 1]),
    "Relu of an input": limit_input("Relu"),
    "Relu of an input, Max between": limit_input("Relu", "Max", -128),
    "Clip of an input, Max between": limit_input("Clip", "Max", -128),
    "Relu of a quantized input": limit_input("Relu", "", -128, given="float32"),
    "Relu of an input to an output": limit_input("Relu", "", -128, end=""),
    "LeakyRelu of an input": limit_input("LeakyRelu", "", -20),
    "a pixel of [1, 16, 1], and Max": reshape_pixel([1, 16, 1], apart=True),
}
BROKEN = {
    **{f"{a} and {b} of channels": (join_constants(a, b), f"must not follow {a}") for a, b in SUMS},
    "Mul of a number and Add of channels": (
        join_constants("Mul", "Add", shapes=((1, 1, 1, 1), CHANNELS)),
        "must not follow Mul",
    ),
    "Add of channels, Add of images": (
        join_constants("Add", "Add", shapes=(CHANNELS, SHAPE)),
        "must not follow Add",
    ),
    "two Mul of images": (
        join_constants("Mul", "Mul", shapes=(SHAPE, SHAPE)),
        "must not follow Mul",
    ),
    **{f"{a} and {b}": (join_functions(a, b), "it must not follow") for a, b in JOINED},
    **{
        f"{a} after {b or 'an input'}": (limit_input(a, b, -128), "zero point of the data")
        for a in ("Clip", "Relu")
        for b in ("", "MaxPool", "Transpose", "Abs", "Exp")
    },
    "attention": (attend(), "it must not follow MatMul"),
    "MatMul of two computed tensors": (multiply_rows(), "input 1 must be a constant"),
    "an average of 9 rows": (average("ReduceMean", 9), "must be at most 7, got 9"),
    "a pool of 9 rows": (average("GlobalAveragePool", 9), "must be at most 7, got 9"),
    "MaxPool of integers": (make_bare("MaxPool", POOLED, "int8", kernel_shape=[2, 2]), "got int8"),
    "Transpose of integers": (
        make_bare("Transpose", (1, 6, 6, 4), "int8", perm=[0, 2, 3, 1]),
        "type must not be",
    ),
    "Concat of integers": (
        make_model([node("Concat", ["x", "x"], ["y"], axis=1)], "int8", (1, 8, 6, 6)),
        "type must not be",
    ),
    "Sigmoid of large numbers": (
        make_function("Sigmoid", "int8", 3, 1 / 256, -128, scale=0.08),
        "must stand for -6.8 to 6.8, got -10.5 to 9.92",
    ),
    "Tanh of large numbers": (
        make_function("Tanh", "int8", 3, 1 / 128, 1),
        "must stand for -3.1 to 3.1, got",
    ),
    "HardSwish of large numbers": (
        make_function("HardSwish", "int8", -50, 0.05, -120),
        "must stand for -3 to inf, got",
    ),
    "HardSigmoid of large numbers": (
        make_function("HardSigmoid", "int8", 3, 1 / 256, -128),
        "must stand for -2.5 to 2.5, got",
    ),
    "a long name": (name_input("n" * 128), "name must have at most 126 letters, got 128"),
    "an output that is read": (read_output(), "no node must read the output r"),
    "an input that is not read": (add_input(), "a node must read the input, got none"),
    "two scales": (read_twice(0.01, "int8"), "must have one scale and zero point, got several"),
    "weights around 128": (make_product(128), "must not be the middle of uint8, got 128"),
    "data around 0": (make_product(127, 0), "must not be the middle of int8, got 0"),
    "a stride of 8": (convolve_rows(8), "even strides of floats must be at most 7, got 8"),
    "a stride of 12": (convolve_rows(12), "even strides of floats must be at most 7, got 12"),
    "a stride of 8, a window of 32": (
        convolve_rows(8, window=32, floats=False),
        "a window with an even stride over 7 must be at most 31, got 32",
    ),
    "two groups": (convolve_groups(2), "weights of 2 groups must have one scale, got 16"),
    "a pixel of [1, 16, 1]": (reshape_pixel([1, 16, 1]), "got one of [1, 16, 1]"),
    "a pixel of [1, 1, 16, 1]": (reshape_pixel([1, 1, 16, 1]), "got one of [1, 1, 16, 1]"),
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

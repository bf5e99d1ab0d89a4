"""Models of one operator on integers, and how far the results of a runtime are off."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import NodeProto, TensorProto, helper, numpy_helper

from tests.runtimes.environments import Runtime
from tests.runtimes.remote import Refused, RemoteSession

SHAPE = (1, 4, 6, 6)
KINDS = {
    "uint8": TensorProto.UINT8,
    "int8": TensorProto.INT8,
    "int16": TensorProto.INT16,
    "float32": TensorProto.FLOAT,
}
node = helper.make_node
f32 = np.float32


def make_model(
    nodes: Sequence[NodeProto],
    kind: str,
    shape: Sequence[int] = SHAPE,
    opset: int = 21,
    given: tuple[str, Sequence[int]] | None = None,
    **constants: Any,
) -> onnx.ModelProto:
    """Return a model from integers "x" to integers "y"; `given` is what "x" is in place of them."""
    read, sizes = given or (kind, SHAPE)
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", KINDS[read], sizes)],
        [helper.make_tensor_value_info("y", KINDS[kind], shape)],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
    return onnx.shape_inference.infer_shapes(model)


def make_bare(
    operator: str, shape: Sequence[int] = SHAPE, kind: str = "uint8", **attributes: Any
) -> onnx.ModelProto:
    """Return an operator on integers."""
    return make_model([node(operator, ["x"], ["y"], "n", **attributes)], kind, shape)


def make_quantized(
    operator: str,
    kind: str,
    zero: int,
    scale: float = 0.05,
    shape: Sequence[int] = SHAPE,
    **attributes: Any,
) -> onnx.ModelProto:
    """Return an operator between DequantizeLinear and QuantizeLinear with a zero point."""
    nodes = [
        node("DequantizeLinear", ["x", "s", "z"], ["a"]),
        node(operator, ["a"], ["b"], "n", **attributes),
        node("QuantizeLinear", ["b", "t", "zy"], ["y"]),
    ]
    zeros: dict[str, Any] = {"z": np.array(3, kind), "zy": np.array(zero, kind)}
    return make_model(nodes, kind, shape, s=f32(0.05), t=f32(scale), **zeros)


def read_twice(scale: float, kind: str = "uint8") -> onnx.ModelProto:
    """Return a Relu, whose result Sigmoid reads with a scale."""
    nodes = [
        node("DequantizeLinear", ["x", "s", "z"], ["a"]),
        node("Relu", ["a"], ["b"]),
        node("QuantizeLinear", ["b", "s", "z"], ["q"]),
        node("DequantizeLinear", ["q", "t", "z"], ["c"]),
        node("Sigmoid", ["c"], ["d"]),
        node("QuantizeLinear", ["d", "u", "zero"], ["y"]),
    ]
    low = np.iinfo(kind).min
    zeros: dict[str, Any] = {"z": np.array(low + 120, kind), "zero": np.array(low, kind)}
    return make_model(nodes, kind, s=f32(0.05), t=f32(scale), u=f32(1 / 256), **zeros)


def find_model(
    name: str,
    kept: Mapping[str, onnx.ModelProto],
    broken: Mapping[str, tuple[onnx.ModelProto, str]],
) -> onnx.ModelProto:
    """Return a model that keeps the rules, or one that breaks a rule: "NAME, broken"."""
    return kept[name] if name in kept else broken[name.removesuffix(", broken")][0]


def measure_distance(model: onnx.ModelProto, runtime: Runtime) -> float:
    """Return the largest difference of a runtime and ONNX Runtime, infinity if it is refused."""
    numbers, feeds = np.random.default_rng(1), {}
    for each in model.graph.input:
        kind = onnx.helper.tensor_dtype_to_np_dtype(each.type.tensor_type.elem_type)
        shape = [d.dim_value for d in each.type.tensor_type.shape.dim]
        if kind == np.float32:
            feeds[each.name] = numbers.uniform(-2, 2, shape).astype(kind)
        else:
            limits = np.iinfo(kind)
            feeds[each.name] = numbers.integers(limits.min, limits.max, shape, kind, endpoint=True)
    outputs = [each.name for each in model.graph.output]
    data, options = model.SerializeToString(), onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    cpu = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    (want, *_) = cpu.run(outputs, feeds)
    try:
        with closing(RemoteSession(runtime.command, data, 60)) as session:
            (have, *_) = session.run(outputs, feeds)
    except Refused:
        return np.inf
    if (want.shape, want.dtype) != (have.shape, have.dtype):
        return np.inf
    return float(np.abs(want.astype(float) - have).max())

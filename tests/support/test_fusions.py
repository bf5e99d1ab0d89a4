"""The count of the nodes that ONNX Runtime runs."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto, helper

from tests.support.fusions import count_optimized_nodes


def test_operator_between_quantization_nodes_is_fused() -> None:
    """Dequantized inputs, an operator and a quantized output are fused into one node."""
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "s", "z"], ["a"]),
        helper.make_node("Add", ["a", "a"], ["b"]),
        helper.make_node("QuantizeLinear", ["b", "s", "z"], ["y"]),
    ]
    ports = [helper.make_tensor_value_info(n, TensorProto.UINT8, [2, 3]) for n in ("x", "y")]
    constants = [
        helper.make_tensor("s", TensorProto.FLOAT, [], [0.5]),
        helper.make_tensor("z", TensorProto.UINT8, [], np.array([128], np.uint8)),
    ]
    graph = helper.make_graph(nodes, "g", ports[:1], ports[1:], constants)
    opset = [helper.make_opsetid("", 17)]
    model = helper.make_model(graph, opset_imports=opset, ir_version=8)
    assert count_optimized_nodes(model) == {"QLinearAdd": 1}

"""Missing features of older versions of ONNX Runtime."""

from __future__ import annotations

import onnx
import pytest
from onnx import TensorProto, helper

from tests.support import needs
from tests.support.needs import missing_feature, needs_onnxruntime


def model(node: onnx.NodeProto, dtype: int, opset: int = 17) -> onnx.ModelProto:
    """Return a model of a node with one input and one output of a type."""
    ports = [helper.make_tensor_value_info(name, dtype, [3]) for name in ("x", "y")]
    graph = helper.make_graph([node], "g", ports[:1], ports[1:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])


def maximum(dtype: int, opset: int = 17) -> onnx.ModelProto:
    return model(helper.make_node("Max", ["x", "x"], ["y"]), dtype, opset)


def test_model_needs_a_version_for_its_opset_or_kernels() -> None:
    """A model needs a version for its opset, or for a kernel of a type."""
    assert missing_feature(maximum(TensorProto.FLOAT), (1, 23)) == ""
    want = "needs ONNX Runtime 1.24: Max and Min of 8-bit integers"
    assert missing_feature(maximum(TensorProto.INT8), (1, 23)) == want
    assert missing_feature(maximum(TensorProto.INT8), (1, 24)) == ""
    for opset, version in ((24, "1.24"), (26, "1.25")):
        said = missing_feature(maximum(TensorProto.INT8, opset), (1, 23))
        assert said == f"needs ONNX Runtime {version}: opset {opset}"
    assert missing_feature(maximum(TensorProto.INT8, 26), (1, 31)) == ""


def test_nodes_in_branches_need_a_version_too() -> None:
    inner = maximum(TensorProto.INT8).graph
    del inner.input[:]
    branches = {"then_branch": inner, "else_branch": inner}
    graph = helper.make_graph(
        [helper.make_node("If", ["c"], ["z"], **branches)],
        "g",
        [helper.make_tensor_value_info("c", TensorProto.BOOL, []), *maximum(3).graph.input],
        [helper.make_tensor_value_info("z", TensorProto.INT8, [3])],
    )
    opset = [helper.make_opsetid("", 17)]
    assert "Max" in missing_feature(helper.make_model(graph, opset_imports=opset), (1, 23))


def test_test_is_skipped_on_older_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    """The test is skipped on older versions, with a reason."""
    monkeypatch.setattr(needs, "VERSION", (1, 23))
    needs_onnxruntime(1, 23, "nothing")
    with pytest.raises(pytest.skip.Exception, match=r"needs ONNX Runtime 1\.24: a kernel"):
        needs_onnxruntime(1, 24, "a kernel")

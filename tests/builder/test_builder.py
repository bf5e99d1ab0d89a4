"""tflite2onnx/builder/builder.py: what operators ask of a Builder, and what it refuses."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from tflite2onnx.builder import nodes
from tflite2onnx.builder.adaptive_weights import add_adaptive_weights
from tflite2onnx.builder.builder import Builder, Value, View
from tflite2onnx.builder.nodes import Node, find_onnx_type, require_onnx_type
from tflite2onnx.errors import FixedSizeError, OperatorError
from tflite2onnx.quantization.rules import Reading
from tflite2onnx.quantization.storage import REAL, Storage
from tflite2onnx.quantize import OperandStorage
from tflite2onnx.tensor import DType, Quantization, Tensor


def dynamic_value(g: Builder, *sizes: int | str) -> Value:
    """Return a value whose sizes are numbers or names of dynamic sizes."""
    return g.annotate(Value(), DType.FLOAT32, sizes)


def test_refuses_a_tensor_neither_known_nor_computed() -> None:
    tensor = Tensor("x", (2, 3), DType.FLOAT32)
    view = View(tensor, (0, 1), OperandStorage(REAL))
    with pytest.raises(OperatorError, match="x must be computed"):
        _ = view.value
    with pytest.raises(OperatorError, match="x must be constant"):
        _ = view.constant
    g = Builder(17)
    with pytest.raises(OperatorError, match="x must be constant or computed"):
        _ = g.view(tensor, (0, 1)).value
    g.define(tensor, Value(), (0, 1))
    with pytest.raises(OperatorError, match="x must be computed once"):
        g.define(tensor, Value(), (0, 1))


def test_refuses_a_size_to_infer_beside_a_size_of_0() -> None:
    g = Builder(17)
    x = dynamic_value(g, "n", 0)
    with pytest.raises(OperatorError, match="its operands must not be empty"):
        g.reshape(x, [-1, 0])
    assert g.reshape(x, [2, 0]) in {node.outputs[0] for node in g.nodes}


def test_whole_numbers_and_lists_are_constants_of_int64() -> None:
    """An int among the operands of a node is a scalar, and a list is a vector, also without items.

    They share the constants of `scalar` and `ints`.
    """
    g = Builder(18)
    g.Range(0, dynamic_value(g), 1)
    g.Slice(dynamic_value(g, "n"), [1], [3], [])
    first, _, step = g.nodes[0].inputs
    _, begin, end, axes = g.nodes[1].inputs
    assert (first, step) == (g.scalar(0, DType.INT64), g.scalar(1, DType.INT64))
    assert (begin, end, axes) == (g.ints([1]), g.ints([3]), g.ints([]))


def test_reduction_over_no_computed_axes_returns_its_input() -> None:
    g = Builder(18)
    g.reduce("ReduceMax", dynamic_value(g, "n", 3), Value(dtype=DType.INT64), keepdims=True)
    assert g.nodes[-1].attributes == {"keepdims": 1, "noop_with_empty_axes": 1}


def test_refuses_to_merge_the_axis_of_scales() -> None:
    """A RESHAPE that merges the axis of the scales is refused: DequantizeLinear needs this axis."""
    quantization = Quantization(np.ones(3, np.float32), np.zeros(3, np.int64), axis=1)
    tensor = Tensor("w", (2, 3), DType.INT8, np.zeros((2, 3), np.int8), quantization)
    planned = OperandStorage(Storage(DType.INT8, quantization), Reading.DEQUANTIZED)
    view = Builder(17).view(tensor, (0, 1), planned=planned)
    with pytest.raises(OperatorError, match=r"the scales of w must belong to one of the axes"):
        view.reshape((6,))


def test_weights_read_as_numbers_have_no_scale() -> None:
    """A product of integers reads weights without their scale, as int8 or uint8 chosen at load."""
    quantization = Quantization(np.array([2, 3], np.float32), np.zeros(2, np.int64), axis=0)
    tensor = Tensor("w", (2, 3), DType.INT8, np.ones((2, 3), np.int8), quantization)
    planned = OperandStorage(Storage(DType.INT8, quantization, adapts=True), Reading.NUMBERS)
    g = Builder(18)
    view = g.view(tensor, (1, 0), planned=planned)
    product = Node("MatMul", (Value(), view.value), (Value(),), {})
    assert view.storage.scale.tolist() == [2, 3]
    assert g.adaptive[view.value].storage.scale.tolist() == [1]
    emitted = add_adaptive_weights(g, [product], ())
    assert [n.op_type for n in emitted] == ["MatMulInteger", "Equal", "If", "MatMul"]


def test_a_node_is_called_as_in_onnx() -> None:
    with pytest.raises(AttributeError):
        _ = Builder(17).relu


def test_shape_of_one_dynamic_size_is_not_joined() -> None:
    g = Builder(17)
    x = dynamic_value(g, "batch", 3)
    assert g.runtime_shape(["batch"], x) is g.nodes[-1].outputs[0]
    assert [node.op_type for node in g.nodes] == ["Shape", "Gather"]


def test_refuses_sizes_that_do_not_follow() -> None:
    g = Builder(17)
    x = dynamic_value(g, "batch", 3)
    with pytest.raises(FixedSizeError, match="one dynamic size only, got rows, columns"):
        g.reshape(x, ("rows", "columns"))
    with pytest.raises(FixedSizeError, match="the dynamic size rows must be a size of the input"):
        g.runtime_shape(["rows", 3], x)
    with pytest.raises(FixedSizeError, match="one dynamic size only, got rows"):
        g.reshape(x, ("rows", -1))
    fixed = Value(dtype=DType.FLOAT32)
    g.annotate(fixed, DType.FLOAT32, (5,))
    with pytest.raises(OperatorError, match=r"a multiple of 40 elements, got 5"):
        g.reshape(fixed, ("rows", 5, 8))
    g.reshape(x, ("batch", -1, 1))  # the size that is known is read
    assert [node.op_type for node in g.nodes[-3:]] == ["Gather", "Concat", "Reshape"]
    g.reshape(x, ("rows", 1))  # the only size that is not known becomes -1
    assert g.nodes[-1].op_type == "Reshape"


def test_reduction_over_no_axis_is_an_identity() -> None:
    g = Builder(17)
    g.reduce("ReduceSum", dynamic_value(g, 3), [], keepdims=True)
    assert [node.op_type for node in g.nodes] == ["Identity"]


def test_refuses_types_that_onnx_does_not_have() -> None:
    without = [dtype for dtype in DType if dtype.label in {"resource", "variant"}]
    assert without
    for dtype in without:
        with pytest.raises(OperatorError, match=f"the type must be one of ONNX, got {dtype.label}"):
            require_onnx_type(dtype)


def test_refuses_types_that_an_older_onnx_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nodes, "TensorProto", SimpleNamespace(FLOAT=1))
    assert (find_onnx_type(DType.FLOAT32), find_onnx_type(DType.INT2)) == (1, None)
    with pytest.raises(OperatorError, match="got int2; a newer version of onnx may have it"):
        require_onnx_type(DType.INT2)

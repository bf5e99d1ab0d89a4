"""builder/store_once.py: the model makes copies of filters when it is loaded."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from tests.support import run_onnx
from tflite2onnx.builder.builder import Builder, Value
from tflite2onnx.builder.nodes import Node, require_onnx_type
from tflite2onnx.builder.store_once import assemble_constants, share_transposed
from tflite2onnx.passes.rewriter import assemble_constant, make_constant, shift_filters
from tflite2onnx.tensor import Array, DType, Shape, Tensor

GENERATOR = np.random.default_rng(0)
PLACES = [(0, 0), (1, 0), (0, 2), (1, 2)]
WINDOW = (4, 6)


def make_filters(dtype: DType, *, fill: int = 0, shape: Shape = (), axes: Shape = ()) -> Tensor:
    """Return filters of four places of a window, [32, 4, 6, 5] before axes are moved."""
    data = GENERATOR.integers(0, 100, (8, 3, 4, 5)).astype(dtype.numpy)
    assembly = shift_filters(make_constant("w", data, Tensor("", (), dtype)), PLACES, WINDOW, fill)
    assembly = replace(
        assembly, permutation=axes or assembly.permutation, shape=shape or assembly.shape
    )
    return assemble_constant("w/copies", assembly, Tensor("", (), dtype))


def read_constant(
    tensor: Tensor, order: Shape, shape: Shape = (), *, opset: int = 17
) -> tuple[list[Node], Value, Array]:
    """Return the nodes of a model that copies a constant, its output and the expected elements."""
    g = Builder(opset, opset_is_fixed=True)
    view = g.view(tensor, order)
    made, expected = Value(), tensor.values.transpose(order)
    value = view.reshape(shape) if shape else view.value
    nodes = assemble_constants(g, [Node("Identity", (value,), (made,), {})], [made])
    return [*nodes], made, expected.reshape(shape or expected.shape)


def run_nodes(nodes: list[Node], made: Value, dtype: DType, rank: int = 4) -> tuple[Array, int]:
    """Return the output of nodes, and the bytes of their constants."""
    values = dict.fromkeys(v for node in nodes for v in (*node.present, *node.outputs))
    names = {value: f"v{i}" for i, value in enumerate(values)}
    constants = [numpy_helper.from_array(v.data, n) for v, n in names.items() if v.data is not None]
    protos = [
        helper.make_node(
            n.op_type, [names[v] for v in n.present], [names[v] for v in n.outputs], **n.attributes
        )
        for n in nodes
    ]
    y = helper.make_tensor_value_info(names[made], require_onnx_type(dtype), [None] * rank)
    graph = helper.make_graph(protos, "g", [], [y], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)
    onnx.checker.check_model(model)
    return run_onnx(model, {})[0], sum(len(t.raw_data) for t in constants)


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (0, 3, 1, 2), (1, 2, 3, 0)], ids=str)
@pytest.mark.parametrize(
    ("axes", "shape"),
    [
        ((), ()),
        ((), (32, 4, 3, 10)),
        ((1, 0, 2, 3), (128, 1, 6, 5)),
        ((1, 0, 2, 3), ()),
    ],
    ids=str,
)
@pytest.mark.parametrize("dtype", [DType.INT8, DType.UINT8, DType.FLOAT32])
def test_copies_of_filters_are_made_at_load(
    dtype: DType, axes: Shape, shape: Shape, order: Shape
) -> None:
    tensor = make_filters(dtype, axes=axes, shape=shape or ((4, 32, 6, 5) if axes else ()))
    nodes, made, expected = read_constant(tensor, order)
    have, size = run_nodes(nodes, made, dtype)
    np.testing.assert_array_equal(have, expected)
    assert size < expected.nbytes / 2


def test_constant_is_made_in_another_shape() -> None:
    nodes, made, expected = read_constant(make_filters(DType.INT8), (1, 2, 3, 0), (120, 32))
    np.testing.assert_array_equal(run_nodes(nodes, made, DType.INT8, 2)[0], expected)
    assert "Transpose" not in {node.op_type for node in nodes}


def test_padding_has_the_number_of_the_zero_point() -> None:
    nodes, made, expected = read_constant(make_filters(DType.UINT8, fill=128), (0, 3, 1, 2))
    assert expected[0, 0, -1, -1] == 128
    np.testing.assert_array_equal(run_nodes(nodes, made, DType.UINT8)[0], expected)


def test_old_opsets_store_whole_constants() -> None:
    nodes, _, _ = read_constant(make_filters(DType.INT8), (0, 3, 1, 2), opset=11)
    assert [node.op_type for node in nodes] == ["Identity"]


def test_copies_with_changed_elements_are_stored_whole() -> None:
    """A pass that scales filters keeps the record of how they were made."""
    tensor = make_filters(DType.FLOAT32)
    scaled = replace(tensor, data=tensor.values * 2)
    nodes, _, _ = read_constant(scaled, (0, 3, 1, 2))
    assert [node.op_type for node in nodes] == ["Identity"]


def test_small_constants_are_stored_whole() -> None:
    w = make_constant("w", np.ones((2, 3, 4, 5), np.int8), Tensor("", (), DType.INT8))
    tensor = assemble_constant("w/copies", shift_filters(w, PLACES, WINDOW), w)
    nodes, _, _ = read_constant(tensor, (0, 3, 1, 2))
    assert [node.op_type for node in nodes] == ["Identity"]


@pytest.mark.parametrize(("dtype", "count"), [(DType.FLOAT32, 1), (DType.INT8, 2)])
def test_equal_views_of_floats_are_one_constant(dtype: DType, count: int) -> None:
    """Integers stay apart: a runtime may refuse two products of one constant."""
    data = np.ones((64, 64), dtype.numpy)
    nodes = [Node("Identity", (Value(data, dtype),), (Value(),), {}) for _ in range(2)]
    assert len({node.inputs[0] for node in share_transposed(Builder(17), nodes, ())}) == count


@pytest.mark.parametrize("filters", [(64, 3, 3, 8), (64, 1, 1, 32)])
def test_views_of_one_memory_are_stored_once(filters: Shape) -> None:
    """One processor reads filters of a convolution, another the columns of a product."""
    data = GENERATOR.integers(-127, 127, filters).astype(np.int8)
    views = [data.transpose(0, 3, 1, 2), data.reshape(filters[0], -1).T]
    made = [Value() for _ in views]
    nodes = [
        Node("Identity", (Value(view, DType.INT8),), (y,), {})
        for view, y in zip(views, made, strict=True)
    ]
    shared = [*share_transposed(Builder(17), nodes, ())]
    for view, y in zip(views, made, strict=True):
        result, size = run_nodes(shared, y, DType.INT8, view.ndim)
        np.testing.assert_array_equal(result, view)
        assert size < data.nbytes + 64  # and the shape of a Reshape

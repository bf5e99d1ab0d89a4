"""builder/rewrites.py: chains of reshapes become one node or none."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from tests.support import Build, check
from tflite2onnx.builder.builder import Builder, Value, eliminate_dead_nodes
from tflite2onnx.builder.nodes import Node
from tflite2onnx.builder.rewrites import join_reshapes
from tflite2onnx.tensor import DType, Sizes


def join(g: Builder, *outputs: Value) -> tuple[Node, ...]:
    """Return the joined nodes, without the nodes that the outputs do not need."""
    return eliminate_dead_nodes(join_reshapes(g, g.nodes, outputs), outputs)


def floats(g: Builder, shape: Sizes, dtype: DType = DType.FLOAT32) -> Value:
    """Return an input of the builder, by default of float32."""
    return g.annotate(Value(dtype=dtype), dtype, shape)


def test_chain_becomes_one_reshape() -> None:
    g = Builder(17)
    x = floats(g, (2, 1, 6))
    y = g.annotate(g.Unsqueeze(g.Squeeze(x, g.ints([1])), g.ints([0])), DType.FLOAT32, (1, 2, 6))
    (node,) = join(g, y)
    assert (node.op_type, node.inputs[0], node.outputs) == ("Reshape", x, (y,))
    assert node.inputs[1] is not None
    assert node.inputs[1].data is not None
    assert node.inputs[1].data.tolist() == [1, 2, 6]


def test_chain_that_restores_the_shape_has_no_node() -> None:
    """Inferred shapes of values without annotations show that the chain restores the shape."""
    g = Builder(17)
    h = g.LSTM(floats(g, (1, 1, 6)))
    squeezed = g.annotate(g.Squeeze(h, g.ints([-3])), DType.FLOAT32, (1, 6))
    y = g.Neg(g.Unsqueeze(squeezed, g.ints([0])))
    first, last = join(g, y)
    assert (first.op_type, last.op_type, last.inputs) == ("LSTM", "Neg", (h,))


@pytest.mark.parametrize(
    ("shape", "dtype"),
    [(("n", 1, "m"), DType.FLOAT32), ((0, 1), DType.FLOAT32), ((2, 1), DType.INT4)],
)
def test_chains_that_no_reshape_can_replace_stay(shape: Sequence[int | str], dtype: DType) -> None:
    """Chains stay if two sizes are dynamic, a size is 0, or Reshape lacks the element type."""
    g = Builder(21)
    x = floats(g, tuple(shape), dtype)
    y = g.annotate(g.Unsqueeze(g.Squeeze(x, g.ints([1])), g.ints([1])), dtype, tuple(shape))
    assert [node.op_type for node in join(g, g.Neg(y))] == ["Squeeze", "Unsqueeze", "Neg"]


def test_dynamic_size_follows_from_the_number_of_elements() -> None:
    """The only dynamic size of a chain follows from the number of elements."""
    g = Builder(17)
    x = floats(g, ("n", 6))
    wide = g.annotate(g.reshape(x, (-1, 1, 6)), DType.FLOAT32, ("n", 1, 6))
    flat = g.annotate(g.reshape(wide, (-1, 6)), DType.FLOAT32, ("rows", 6))
    y = g.annotate(g.reshape(flat, (1, -1, 6)), DType.FLOAT32, (1, "n", 6))
    (node,) = join(g, g.Neg(flat))
    assert node.inputs == (x,)
    (node,) = join(g, y)
    assert (node.op_type, node.inputs[0]) == ("Reshape", x)


def test_outputs_of_the_graph_keep_their_reshape() -> None:
    """A graph output in a chain keeps its node, and does not become the input of the chain."""
    g = Builder(17)
    x = floats(g, (2, 1))
    middle = g.annotate(g.Squeeze(x, g.ints([1])), DType.FLOAT32, (2,))
    y = g.annotate(g.Unsqueeze(middle, g.ints([1])), DType.FLOAT32, (2, 1))
    assert [node.op_type for node in join(g, y, middle)] == ["Squeeze", "Reshape"]


def test_chains_with_computed_axes_stay() -> None:
    g = Builder(17)
    x, axes = floats(g, (2, 1)), Value(dtype=DType.INT64)
    y = g.Unsqueeze(g.Squeeze(x, axes), axes)
    assert [node.op_type for node in join(g, y)] == ["Squeeze", "Unsqueeze"]


def test_squeezed_and_expanded_axes_leave_no_node() -> None:
    """SQUEEZE and then EXPAND_DIMS to the first shape leave no node in the converted model."""
    m = Build()
    x = m.input([2, 1, 6])
    (flat,) = m.op("SQUEEZE", [x], [[2, 6]], squeeze_dims=[1])
    (back,) = m.op("EXPAND_DIMS", [flat, m.constant(np.array(1, np.int32))], [[2, 1, 6]])
    (y,) = m.op("ABS", [back], [[2, 1, 6]])
    m.output(y)
    assert [node.op_type for node in check(m.bytes()).model.graph.node] == ["Abs"]

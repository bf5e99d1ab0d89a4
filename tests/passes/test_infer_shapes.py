"""passes/dynamic_shapes/infer_shapes.py: files declare 1 for sizes that are dynamic."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tests.support import Build, check, run_onnx, run_tflite
from tflite2onnx.convert import convert
from tflite2onnx.passes.dynamic_shapes import infer_shapes
from tflite2onnx.reader.model import read_model

if TYPE_CHECKING:
    from tests.support import Subgraph, Tensor


def dense(m: Build, x: Tensor) -> Tensor:
    """Return a dense layer on [batch, 5, 7] as Keras writes it; the file declares one row."""
    guess = m.tensor([1, 7], shape_signature=[-1, 7])
    (flat,) = m.op("RESHAPE", [x, m.constant([-1, 7])], [guess])
    weights = m.constant(np.random.default_rng(0).normal(size=(3, 7)).astype(np.float32))
    (rows,) = m.op("FULLY_CONNECTED", [flat, weights], [m.tensor([1, 3], shape_signature=[-1, 3])])
    (size,) = m.op("SHAPE", [x], [[3]], dtype="int32", out_type=2)
    parts = [m.constant([0]), m.constant([1]), m.constant([1])]
    (batch,) = m.op("STRIDED_SLICE", [size, *parts], [[]], dtype="int32", shrink_axis_mask=1)
    fives = m.constant(np.int32(5)), m.constant(np.int32(3))
    (shape,) = m.op("PACK", [batch, *fives], [[3]], dtype="int32", values_count=3)
    made = m.tensor([1, 5, 3], shape_signature=[-1, 5, 3])
    return m.op("RESHAPE", [rows, shape], [made])[0]


@pytest.mark.parametrize("static", [False, True])
def test_rows_that_the_file_omits_are_inferred(*, static: bool) -> None:
    m = Build()
    m.output(dense(m, m.input([1, 5, 7], shape_signature=[-1, 5, 7])))
    check(m.bytes(), static=static)
    graph = infer_shapes(read_model(m.bytes()).graphs[0])
    assert [op.outputs[0].shape for op in graph.ops if op.code == "FULLY_CONNECTED"] == [(5, 3)]


def test_constant_sizes_are_those_that_kernels_compute() -> None:
    """A size that must be constant is fixed to the value that the kernels compute."""
    m = Build()
    x = m.input([1, 6, 8, 3], shape_signature=[-1, 6, 8, 3])
    blocks, pads = m.constant([2, 2]), m.constant([[0, 0], [0, 0]])
    guess = m.tensor([1, 3, 4, 3], shape_signature=[-1, 3, 4, 3])
    (y,) = m.op("SPACE_TO_BATCH_ND", [x, blocks, pads], [guess])
    (y,) = m.op("ABS", [y], [m.tensor([1, 3, 4, 3], shape_signature=[-1, 3, 4, 3])])
    made = m.tensor([1, 6, 8, 3], shape_signature=[-1, 6, 8, 3])
    m.output(*m.op("BATCH_TO_SPACE_ND", [y, blocks, pads], [made]))
    check(m.bytes())


@pytest.mark.parametrize("signature", [[2, 3, 5], [2, -1, 5]])
def test_unknown_number_of_axes_is_inferred(signature: list[int]) -> None:
    """The rank is inferred if inner tensors declare the shape []."""
    m = Build()
    x = m.input([2, 3, 5], shape_signature=signature)
    (y,) = m.op("ADD", [x, m.constant(np.float32(0.5))], [[]])
    (y,) = m.op("TRANSPOSE", [y, m.constant([0, 2, 1])], [[]])
    (total,) = m.op("SUM", [y, m.constant([0, 1, 2])], [[]])
    m.output(*m.op("ABS", [y], [[]]), total)
    result = convert(m.bytes(), io_layout="tflite")
    assert [len(end.tflite_shape) for end in result.outputs] == [3, 0]
    given = np.random.default_rng(0).normal(size=(2, 3, 5)).astype(np.float32)
    want = run_tflite(m.bytes(), [given])
    for a, b in zip(want, run_onnx(result.model, {result.inputs[0].name: given}), strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-5)


def test_shapes_of_complete_files_are_not_changed() -> None:
    m = Build()
    m.output(*m.op("ABS", [m.input([2, 3])], [[2, 3]]))
    graph = read_model(m.bytes()).graphs[0]
    assert infer_shapes(graph) is graph


def test_error_names_the_wrong_operator() -> None:
    m = Build()
    x = m.input([1, 5], shape_signature=[-1, 5])
    guess = m.tensor([1, 7], shape_signature=[-1, 7])
    m.output(*m.op("RESHAPE", [x, m.constant([-1, 7])], [guess]))
    with pytest.raises(Exception, match="RESHAPE"):
        convert(m.bytes())


def guessed_tensor(m: Subgraph) -> Tensor:
    """Return a tensor with a dynamic number of rows, declared as 1."""
    return m.tensor([1, 3], shape_signature=[-1, 3])


def test_shapes_of_sub_graphs_follow_from_passed_values() -> None:
    """Shapes of inputs and outputs of loops and branches follow from the values passed to them."""
    m = Build()
    x, count = m.input([4, 3]), m.input([], dtype="int32", name="count")
    condition, body, then, other = (m.subgraph(name) for name in ("c", "b", "t", "e"))
    rounds, _ = condition.input([], dtype="int32"), condition.input([1, 3], shape_signature=[-1, 3])
    condition.output(
        *condition.op("LESS", [rounds, condition.constant(np.int32(5))], [[]], dtype="bool")
    )
    rounds, y = body.input([], dtype="int32"), body.input([1, 3], shape_signature=[-1, 3])
    one = body.constant(np.int32(1))
    body.output(*body.op("ADD", [rounds, one], [[]], dtype="int32"))
    body.output(*body.op("SIN", [y], [guessed_tensor(body)]))
    made = [m.tensor([], dtype="int32"), guessed_tensor(m)]
    looped = m.op("WHILE", [count, x], made, cond_subgraph_index=1, body_subgraph_index=2)
    for branch, code in ((then, "ABS"), (other, "NEG")):
        z = branch.input([1, 3], shape_signature=[-1, 3])
        branch.output(*branch.op(code, [z], [guessed_tensor(branch)]))
    (above,) = m.op("GREATER", [looped[0], m.constant(np.int32(6))], [[]], dtype="bool")
    options: Any = {"then_subgraph_index": 3, "else_subgraph_index": 4}
    m.output(*m.op("IF", [above, looped[1]], [guessed_tensor(m)], **options))
    for start in (0, 7):
        result = check(m.bytes(), ranges={"count": (start, start), "float32": (-2, 2)})
        assert result.outputs[0].onnx_shape == (4, 3)

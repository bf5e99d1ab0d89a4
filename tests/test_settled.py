"""Inner shapes that a file guesses: 1 for whatever depends on an open size."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from tests.toolkit import Build, check
from tflite2onnx.convert import convert
from tflite2onnx.op import operator_for
from tflite2onnx.reader import read
from tflite2onnx.sizes import settled

if TYPE_CHECKING:
    from tests.toolkit import Tensor


def dense(m: Build, x: Tensor) -> Tensor:
    """Return a dense layer over [batch, 5, 7], as Keras writes it: declared of one row."""
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
def test_rows_that_the_file_does_not_count(*, static: bool) -> None:
    m = Build()
    m.output(dense(m, m.input([1, 5, 7], shape_signature=[-1, 5, 7])))
    check(m.bytes(), static=static)
    graph = settled(read(m.bytes()).graphs[0], operator_for)
    assert [op.outputs[0].shape for op in graph.ops if op.code == "FULLY_CONNECTED"] == [(5, 3)]


def test_a_batch_of_blocks() -> None:
    """The size is needed, so that it is fixed: at what the kernels make of the inputs."""
    m = Build()
    x = m.input([1, 6, 8, 3], shape_signature=[-1, 6, 8, 3])
    blocks, pads = m.constant([2, 2]), m.constant([[0, 0], [0, 0]])
    guess = m.tensor([1, 3, 4, 3], shape_signature=[-1, 3, 4, 3])
    (y,) = m.op("SPACE_TO_BATCH_ND", [x, blocks, pads], [guess])
    (y,) = m.op("ABS", [y], [m.tensor([1, 3, 4, 3], shape_signature=[-1, 3, 4, 3])])
    made = m.tensor([1, 6, 8, 3], shape_signature=[-1, 6, 8, 3])
    m.output(*m.op("BATCH_TO_SPACE_ND", [y, blocks, pads], [made]))
    check(m.bytes())


def test_shapes_without_guesses_are_left_alone() -> None:
    m = Build()
    m.output(*m.op("ABS", [m.input([2, 3])], [[2, 3]]))
    graph = read(m.bytes()).graphs[0]
    assert settled(graph, operator_for) is graph


def test_what_is_wrong_is_said_of_the_operator() -> None:
    m = Build()
    x = m.input([1, 5], shape_signature=[-1, 5])
    guess = m.tensor([1, 7], shape_signature=[-1, 7])
    m.output(*m.op("RESHAPE", [x, m.constant([-1, 7])], [guess]))
    with pytest.raises(Exception, match="RESHAPE"):
        convert(m.bytes())

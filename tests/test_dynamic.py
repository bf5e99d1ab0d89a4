"""Sizes that the file does not fix."""

from __future__ import annotations

import pytest

from tests.toolkit import Build
from tflite2onnx.reader import read
from tflite2onnx.tensor import DType, Shape, Tensor


@pytest.mark.parametrize(
    ("signature", "axes"),
    [((), set()), ((1, 7), set()), ((-1, 7), {0}), ((-1, -1), {0, 1}), ((-1,), set())],
)
def test_axes_of_a_signature(signature: Shape, axes: set[int]) -> None:
    tensor = Tensor("x", (1, 7), DType.FLOAT32, shape_signature=signature)
    assert tensor.dynamic_axes == axes


def test_read_from_a_file() -> None:
    m = Build()
    x = m.input([None, 7])
    m.output(*m.op("RELU", [x], [[1, 7]]))
    graph = read(m.bytes()).graphs[0]
    assert graph.inputs[0].dynamic_axes == {0}
    assert graph.outputs[0].dynamic_axes == set()


def test_names_of_sizes() -> None:
    tensor = Tensor("x", (1, 1, 7), DType.FLOAT32, symbols={0: "batch"})
    assert tensor.sizes == ("batch", 1, 7)
    assert tensor.extents == (2, 1, 7)
    assert tensor.reshaped((7,)).sizes == (7,)

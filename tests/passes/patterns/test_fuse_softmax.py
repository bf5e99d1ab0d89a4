"""normalizations/fuse_normalizations.py: softmax that a model spells out."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.support import Build, Tensor, check
from tests.support.graph_text import check_pass, check_unchanged, eliminate_dead_after
from tflite2onnx.passes.patterns.fuse_normalizations import fuse_softmax
from tflite2onnx.reader.model import read_model

fuse = eliminate_dead_after(fuse_softmax)


class Rows(Build):
    """A model that reduces along an axis."""

    def __init__(self, axis: int = -1, *, keeps: bool = True) -> None:
        super().__init__()
        self.axis, self.keeps = axis, keeps

    def apply(self, code: str, *inputs: Tensor) -> Tensor:
        """Add an elementwise operator."""
        shape = np.broadcast_shapes(*(tuple(each.shape) for each in inputs))
        return self.op(code, list(inputs), [list(shape)])[0]

    def reduce(self, code: str, x: Tensor) -> Tensor:
        """Add a reduction."""
        axes = self.constant(np.array([self.axis], np.int32))
        shape = [*x.shape]
        shape[self.axis] = 1
        if not self.keeps:
            del shape[self.axis]
        return self.op(code, [x, axes], [shape], keep_dims=self.keeps)[0]


def softmax(m: Rows, x: Tensor) -> Tensor:
    powers = m.apply("EXP", m.apply("SUB", x, m.reduce("REDUCE_MAX", x)))
    return m.apply("DIV", powers, m.reduce("SUM", powers))


def log_softmax(m: Rows, x: Tensor) -> Tensor:
    shifted = m.apply("SUB", x, m.reduce("REDUCE_MAX", x))
    return m.apply("SUB", shifted, m.apply("LOG", m.reduce("SUM", m.apply("EXP", shifted))))


def subtract_logarithm(m: Rows, x: Tensor) -> Tensor:
    largest = m.reduce("REDUCE_MAX", x)
    total = m.reduce("SUM", m.apply("EXP", m.apply("SUB", x, largest)))
    return m.apply("SUB", x, m.apply("ADD", largest, m.apply("LOG", total)))


def without_maximum(m: Rows, x: Tensor) -> Tensor:
    powers = m.apply("EXP", x)
    return m.apply("DIV", powers, m.reduce("SUM", powers))


Spelling = Callable[[Rows, Tensor], Tensor]
SPELLINGS = {"Softmax": [softmax], "LogSoftmax": [log_softmax, subtract_logarithm]}


def spell(spelling: Spelling, shape: list[int], axis: int = -1, *, keeps: bool = True) -> bytes:
    m = Rows(axis, keeps=keeps)
    m.output(spelling(m, m.input(shape)))
    return m.bytes()


def test_operators_become_one_softmax() -> None:
    before = """
        inputs %0: float32[2,3]
        %1: float32[2,1] = REDUCE_MAX(%0, [-1])
        %2: float32[2,3] = SUB(%0, %1)
        %3: float32[2,3] = EXP(%2)
        %4: float32[2,1] = SUM(%3, [-1])
        %5: float32[2,3] = DIV(%3, %4)
        return %5
    """
    after = """
        inputs %0: float32[2,3]
        %1: float32[2,3] = SOFTMAX(%0)
        return %1
    """
    check_pass(fuse, read_model(spell(softmax, [2, 3])).graphs[0], before, after)


@pytest.mark.parametrize(
    ("node", "spelling"), [(node, s) for node, group in SPELLINGS.items() for s in group]
)
@pytest.mark.parametrize("shape", [[5], [2, 3], [2, 4, 3, 7]], ids=str)
def test_fused_softmax_equals_litert(node: str, spelling: Spelling, shape: list[int]) -> None:
    result = check(spell(spelling, shape), ranges={"tensor_0": (-90.0, 200.0)})
    assert [each.op_type for each in result.model.graph.node] == [node]


@pytest.mark.parametrize(
    "data",
    [
        spell(without_maximum, [2, 3]),
        spell(softmax, [2, 3], 0),
        spell(softmax, [1, 3], keeps=False),
    ],
    ids=["no maximum", "axis", "no kept axis"],
)
def test_softmax_without_maximum_or_of_another_axis_stays(data: bytes) -> None:
    graph = read_model(data).graphs[0]
    check_unchanged(fuse_softmax, graph)
    check(data)

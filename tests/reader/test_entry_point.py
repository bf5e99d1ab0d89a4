"""reader/model.py: the sub-graphs of one signature."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.support import Build, Subgraph, Tensor
from tests.support.control import graph
from tests.support.small import chain
from tests.support.streams import SHAPE, assign, handle, read_variable
from tflite2onnx.reader.model import list_entry_points, read_entry_point, read_model

if TYPE_CHECKING:
    from collections.abc import Sequence


def apply(m: Subgraph, code: str, x: Tensor) -> Tensor:
    return m.op(code, [x], [SHAPE])[0]


def build_calls() -> bytes:
    """Return a model of three sub-graphs: one calls the last, and all but it are signatures."""
    m = Build()
    x = m.input(SHAPE, name="x")
    ends: list[Tensor] = []

    def negate(g: Subgraph, xs: Sequence[Tensor]) -> Sequence[Tensor]:
        ends.extend([xs[0], apply(g, "NEG", xs[0])])
        return ends[1:]

    graph(m, "other", [x], negate)
    called = graph(m, "called", [x], lambda g, xs: [apply(g, "ABS", xs[0])])
    (y,) = m.op("CALL", [x], [SHAPE], subgraph=called.index)
    m.output(y)
    m.signature("main", {"x": x}, {"y": y})
    m.signature("other", {"x": ends[0]}, {"y": ends[1]})
    return m.bytes()


def test_entry_point_has_the_sub_graphs_that_it_runs() -> None:
    """The indices of sub-graphs stay; sub-graphs of other signatures are empty."""
    data = build_calls()
    assert list_entry_points(data) == {"main": 0, "other": 1}
    for key, operators in (("main", [1, 0, 1]), (None, [1, 0, 1]), ("other", [0, 1, 0])):
        part = read_entry_point(data, key)
        assert [len(each.ops) for each in part.graphs] == operators
        assert [each.key for each in part.signatures] == [key or "main"]


def test_models_without_the_signature_are_read_as_a_whole() -> None:
    """The caller reports a wrong name together with the right ones."""
    assert [s.key for s in read_entry_point(build_calls(), "more").signatures] == ["main", "other"]
    assert not read_entry_point(chain("ABS"), "more").signatures


def test_models_with_variables_are_read_as_a_whole() -> None:
    """A variable may be written in any sub-graph."""
    m = Build()
    x, state = m.input(SHAPE, name="x"), handle(m)
    assign(m, state, x)
    graph(m, "other", [x], lambda g, xs: [apply(g, "NEG", xs[0])])
    m.output(read_variable(m, state))
    data = m.bytes()
    assert len(read_entry_point(data, None).graphs[1].ops) == 1
    assert len(read_model(data).graphs[1].ops) == 1

"""passes/patterns/matching.py: what each part of the language of patterns matches."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.support.graph_text import parse_graph
from tflite2onnx.passes.patterns.matching import (
    Activated,
    GraphMatcher,
    Match,
    Named,
    OneOf,
    Pattern,
    Shared,
    Through,
    list_codes,
    list_ends,
    maybe,
)
from tflite2onnx.tensor import DType


def find_matches(pattern: Pattern, *lines: str, dtype: DType | None = DType.FLOAT32) -> list[Match]:
    """Return the matches with the last operator of a graph of the tensors a, b, c, ...."""
    names = "abcdefgh"
    body = [f"{name}: float32[2] = {line}" for name, line in zip(names[2:], lines, strict=False)]
    last = names[1 + len(lines)]
    text = ["inputs a: float32[2], b: float32[2]", *body, f"return {last}"]
    graph = parse_graph("\n".join(text))
    return list(GraphMatcher(graph, dtype=dtype).find_all(graph.ops[-1], pattern))


@pytest.mark.parametrize(
    ("pattern", "line"),
    [
        (("SUB", "x", "y"), "SUB(a, b)"),
        (("SUB", "x", "x"), "SUB(a, a)"),
        (("SUB", "x#", "x#"), "SUB([1.0, 2.0], [1.0, 2.0])"),
        (("SUB", "x", 0.5), "SUB(a, [0.5, 0.5])"),
        (("ADD", 0.5, "x"), "ADD(a, 0.5)"),
        (("GATHER", "x", 1), "GATHER(a, [1, 1])"),
        (("CONCATENATION", "x", ...), "CONCATENATION(a, b, a)"),
        (("CONCATENATION", ...), "CONCATENATION()"),
        (("SUM", "x", "y?"), "SUM(a)"),
        (("SUM", "x", "y#?"), "SUM(a, [1])"),
        (("SUM", "x", "y?"), "SUM(a, none)"),
        (("SUM", "x", None), "SUM(a, none)"),
        (("SUM", "x", None), "SUM(a)"),
        (("SOFTMAX", "x", {"beta": 1}), "SOFTMAX(a, beta=1)"),
        (OneOf(("SQUARE", "x"), ("MUL", "x", "x")), "MUL(a, a)"),
        (Activated(("ADD", "x", "y")), "ADD(a, b, fused_activation_function=RELU)"),
        (Activated(("ADD", "x", "y")), "ADD(a, b)"),
        (("RELU", ("ADD", "x", "y")), "ADD(a, b, fused_activation_function=RELU)"),
        (maybe("MUL", ("ABS", "x"), "y#"), "ABS(a)"),
    ],
)
def test_pattern_matches_the_operators_that_it_describes(pattern: Pattern, line: str) -> None:
    assert find_matches(pattern, line)


@pytest.mark.parametrize(
    ("pattern", "line"),
    [
        (("SUB", "x", "x"), "SUB(a, b)"),
        (("SUB", "x#", "y"), "SUB(a, b)"),
        (("SUB", "x#", "x#"), "SUB([1.0, 2.0], [1.0, 3.0])"),
        (("SUB", 0.5, "x"), "SUB(a, 0.5)"),
        (("SUB", "x", 0.5), "SUB(a, [0.5, 0.6])"),
        (("SUB", "x", 0.5), "SUB(a, True)"),
        (("SUB", "x", 0.5), "SUB(a, b)"),
        (("SUB", "x"), "SUB(a, b)"),
        (("SUM", "x", "y"), "SUM(a)"),
        (("SUM", "x", None), "SUM(a, [1])"),
        (("SUM", "x", "y#?"), "SUM(a, b)"),
        (("SOFTMAX", "x", {"beta": 1}), "SOFTMAX(a, beta=2)"),
        (OneOf(("SQUARE", "x"), ("MUL", "x", "x")), "MUL(a, b)"),
        (("ADD", "x", "y"), "ADD(a, b, fused_activation_function=RELU)"),
        (("RELU", "x"), "ADD(a, b, fused_activation_function=RELU)"),
        (("TANH", ("ADD", "x", "y")), "ADD(a, b, fused_activation_function=TANH)"),
    ],
)
def test_pattern_matches_no_operators_that_differ(pattern: Pattern, line: str) -> None:
    assert not find_matches(pattern, line)


def test_operands_of_one_name_are_one_tensor_or_equal_constants() -> None:
    pattern = ("ADD", ("MUL", "x", "k#"), "k#")
    assert find_matches(pattern, "MUL(a, 2.0)", "ADD(c, 2.0)")
    assert not find_matches(pattern, "MUL(a, 2.0)", "ADD(c, 2)")


def test_tensors_with_other_readers_match_only_shared_patterns() -> None:
    lines = ("ABS(a)", "NEG(c)", "ADD(c, d)")
    inner = Named("inner", ("ABS", "x"))
    assert not find_matches(
        ("ADD", "y", ("NEG", inner)), "ABS(a)", "SQRT(c)", "NEG(c)", "ADD(d, e)"
    )
    assert find_matches(("ADD", inner, ("NEG", inner)), *lines)
    found = find_matches(("ADD", "y", ("NEG", Shared(inner))), *lines)
    assert [op.code for op in found[0].ops] == ["ADD", "NEG"]
    assert found[0].tensors["inner"] is found[0].tensors["y"]


def test_steps_between_operators_are_optional() -> None:
    pattern = ("NEG", Through(("ABS", "x")))
    assert find_matches(pattern, "ABS(a)", "NEG(c)")
    assert find_matches(pattern, "ABS(a)", "RESHAPE(c, [2])", "RESHAPE(d, [2])", "NEG(e)")
    assert not find_matches(pattern, "ABS(a)", "SQRT(c)", "NEG(d)")
    assert (
        find_matches(("NEG", Through("x", "SQRT")), "SQRT(a)", "NEG(c)")[1].tensors["x"].name == "a"
    )


def test_only_operators_of_floats_match_unless_told() -> None:
    pattern = ("ABS", "x")
    graph = parse_graph("inputs a: int32[2]\nb: int32[2] = ABS(a)\nreturn b")
    assert not list(GraphMatcher(graph).find_all(graph.ops[0], pattern))
    assert list(GraphMatcher(graph, dtype=None).find_all(graph.ops[0], pattern))


def test_constant_of_several_elements_has_no_number() -> None:
    (found,) = find_matches(("SUB", "x", "k#"), "SUB(a, 0.5)")
    assert found.number("k#") == 0.5
    (found,) = find_matches(("SUB", "x", "k#"), "SUB(a, [0.5, 0.5])")
    assert found.number("k#") is None


def test_analysis_of_a_graph_runs_once() -> None:
    (found,) = find_matches(("ABS", "x"), "ABS(a)")
    calls: list[object] = []
    assert [found.analyze(calls.append) for _ in range(2)] == [None, None]
    assert calls == [found.graph]


def test_listed_codes_are_in_all_matches() -> None:
    pattern = OneOf(
        Named("y", ("ADD", ("ABS", "x"), 1)), ("ADD", Shared(("SUB", "x", {"a": 1})), ...)
    )
    assert list_codes(pattern) == {"ADD"}


def test_ends_include_fused_activations() -> None:
    assert list_ends(OneOf(("SUB", "x"), ("RELU", "x"))) == {("SUB", False), ("RELU", False)}
    assert list_ends(Named("y", Activated(OneOf(("ADD", "x"), "x")))) == {("ADD", True)}
    assert list_ends(Through(("SUB", "x"))) == {("SUB", False), ("RESHAPE", False)}
    assert list_ends("x") == set()


def test_a_custom_operator_with_the_name_of_a_builtin_one_does_not_match() -> None:
    graph = parse_graph("inputs a: float32[2]\nb: float32[2] = NEG(a)\nreturn b")
    custom = graph.rewrite(lambda op: [replace(op, custom=True)])
    for each, count in ((graph, 1), (custom, 0)):
        assert len(list(GraphMatcher(each).find_all(each.ops[-1], ("NEG", "x")))) == count

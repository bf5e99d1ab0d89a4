"""passes/patterns/rules.py: the driver of rules."""

from __future__ import annotations

import logging
from importlib import import_module
from pkgutil import walk_packages

import pytest

import tflite2onnx
from tests.support.graph_text import assert_rewritten, parse_graph
from tflite2onnx.graph import Graph, Op
from tflite2onnx.passes.patterns.matching import Match, OneOf, Pattern
from tflite2onnx.passes.patterns.rules import Rule, Rules
from tflite2onnx.passes.rewriter import Rewriter, as_builtin

NEGATIONS = """
    inputs x: float32[2]
    a: float32[2] = NEG(x)
    b: float32[2] = NEG(a)
    c: float32[2] = NEG(b)
    d: float32[2] = NEG(c)
    return d
"""


def make_absolute(found: Match) -> Op:
    return as_builtin(found.last, "ABS", found.tensors["x"])


DOUBLE = Rule("double negation", "ABS", ("NEG", ("NEG", "x")), make_absolute)
OF_ABSOLUTE = Rule("absolute", "ABS", ("NEG", ("ABS", "x")), make_absolute)


def test_each_match_of_a_round_is_one_of_the_graph_before() -> None:
    after = """
        inputs x: float32[2]
        b: float32[2] = ABS(x)
        d: float32[2] = ABS(b)
        return d
    """
    assert_rewritten(Rules(DOUBLE), NEGATIONS, after)


def test_rules_run_until_none_matches() -> None:
    before = NEGATIONS.replace("NEG(x)", "ABS(x)")
    after = """
        inputs x: float32[2]
        d: float32[2] = ABS(x)
        return d
    """
    assert_rewritten(Rules(OF_ABSOLUTE), before, after)


def test_rule_without_its_operators_or_condition_changes_nothing() -> None:
    graph = parse_graph(NEGATIONS)
    refused = Rule("refused", "ABS", ("NEG", "x"), make_absolute, lambda _: False, "x is free")
    for rule in (OF_ABSOLUTE, refused):
        assert Rules(rule)(graph) is graph


def test_rule_that_builds_nothing_must_say_why() -> None:
    empty = Rule("empty", "ABS", ("NEG", "x"), lambda _: [])
    with pytest.raises(ValueError, match="empty must build operators, or say why not"):
        Rules(empty)(parse_graph(NEGATIONS))


def test_rule_does_not_replace_what_rules_have_built() -> None:
    def negate_again(found: Match) -> list[Op]:
        rewriter = Rewriter(found.last)
        inner = rewriter.op("SQRT", found.tensors["x"], like=found.last.outputs[0])
        rewriter.op("NEG", inner, output=found.last.outputs[0])
        return rewriter.ops

    before = "inputs x: float32[2]\na: float32[2] = NEG(x)\nreturn a"
    after = "inputs x: float32[2]\nb: float32[2] = SQRT(x)\na: float32[2] = NEG(b)\nreturn a"
    rule = Rule("root", "NEG", ("NEG", "x"), negate_again)
    assert_rewritten(Rules(rule), before, after)


def test_operators_may_replace_several() -> None:
    def split(found: Match) -> Op:
        parts = tuple(op.outputs[0] for op in found.graph.ops)
        return Op("SPLIT", found.last.index, (None, found.tensors["x"]), parts)

    before = """
        inputs x: float32[2]
        a: float32[1] = SLICE(x, [0], [1])
        b: float32[1] = SLICE(x, [1], [1])
        return a, b
    """
    after = "inputs x: float32[2]\na: float32[1], b: float32[1] = SPLIT(none, x)\nreturn a, b"
    rule = Rule("slices", "SPLIT", ("SLICE", "x", ...), split)
    assert_rewritten(Rules(rule), before, after)


def test_rules_apply_in_sub_graphs() -> None:
    before = """
        inputs x: float32[2]
        y: float32[2] = IF(True, x)
            inputs
            a: float32[2] = NEG(x)
            b: float32[2] = NEG(a)
            return b
        return y
    """
    after = before.replace("            a: float32[2] = NEG(x)\n", "").replace("NEG(a)", "ABS(x)")
    assert_rewritten(Rules(DOUBLE), before, after)


def test_name_of_a_rule_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    graph: Graph = parse_graph(NEGATIONS)
    with caplog.at_level(logging.DEBUG, "tflite2onnx"):
        Rules(DOUBLE)(graph)
    assert [record.getMessage() for record in caplog.records] == [
        "NEG (operator 1, b): double negation",
        "NEG (operator 2, c): double negation",
        "NEG (operator 3, d): double negation",
    ]


def test_reason_why_a_rule_does_not_apply_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    graph = parse_graph(NEGATIONS)
    refused = Rule("double negation", "ABS", ("NEG", ("NEG", "x")), lambda _: "x may be negative")
    with caplog.at_level(logging.DEBUG, "tflite2onnx"):
        assert Rules(refused)(graph) is graph
    assert caplog.messages == [
        "NEG (operator 1, b) and 2 others: not replaced as double negation: x may be negative"
    ]


def test_rules_without_a_match_and_conditions_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    graph = parse_graph(NEGATIONS)
    triple = Rule("triple", "ABS", ("NEG", ("NEG", ("NEG", 2.0))), make_absolute)
    refused = Rule("refused", "ABS", ("NEG", "x"), make_absolute, lambda _: False, "x is free")
    with caplog.at_level(logging.DEBUG, "tflite2onnx"):
        assert Rules(triple, refused)(graph) is graph
    assert caplog.messages == [
        "no operators match: triple: NEG (operator 0, a) is no 2.0",
        "NEG (operator 0, a) and 3 others: not replaced as refused: x is free",
    ]


@pytest.mark.parametrize(
    ("pattern", "end"),
    [
        (("NEG", OneOf(("EXP", "x"), ("LOG", "x"))), "NEG (operator 2, c) is no EXP or LOG"),
        (("NEG", ("NEG", ("NEG", ("NEG", "w#")))), "x is no constant"),
        (("NEG", ("NEG", "x", "w#")), "NEG (operator 2, c) has other inputs or options"),
        (("ABS", "x"), ""),
    ],
)
def test_end_of_the_longest_match_is_logged(
    pattern: Pattern, end: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG, "tflite2onnx"):
        Rules(Rule("any", "ABS", pattern, make_absolute, needs=("NEG",)))(parse_graph(NEGATIONS))
    assert caplog.messages == ([f"no operators match: any: {end}"] if end else [])


def test_values_that_operators_outside_read_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    graph = parse_graph(NEGATIONS.replace("return d", "return d, a, b, c"))
    with caplog.at_level(logging.DEBUG, "tflite2onnx"):
        Rules(DOUBLE)(graph)
    end = "NEG (operator 1, b): operators outside read values between"
    assert caplog.messages == [f"no operators match: double negation: {end}"]


def test_each_condition_has_a_reason() -> None:
    """Rules of the package, in all its modules; `Built` demands a reason of what builds."""
    folders = tuple(f"tflite2onnx.{name}." for name in ("contrib", "passes", "targets"))
    names = [each.name for each in walk_packages(tflite2onnx.__path__, "tflite2onnx.")]
    modules = [import_module(name) for name in names if name.startswith(folders)]
    passes = [each for m in modules for each in vars(m).values() if isinstance(each, Rules)]
    always = Rule("", "", "x", make_absolute).condition
    rules = {rule.name: rule for each in passes for rule in each.rules}
    assert len(rules) > 60
    wrong = [n for n, rule in rules.items() if (rule.condition is always) == bool(rule.unless)]
    assert wrong == []

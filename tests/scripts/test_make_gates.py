"""scripts/make_gates.py: gates follow from patterns."""

from __future__ import annotations

from typing import Any

import pytest

from tflite2onnx.passes.patterns.matching import Activated, OneOf, Shared
from tflite2onnx.passes.patterns.rules import Rule


def test_gates_of_rules_follow_from_the_patterns(script: Any) -> None:
    """Repair: python scripts/make_gates.py."""
    gates = [pair for module in script.MODULES for pair in script.list_gates(module)]
    assert len(gates) > 20
    assert [old.value for old, _ in gates] == [gate for _, gate in gates]


@pytest.mark.parametrize(
    ("pattern", "needs", "gate"),
    [
        (("ADD", ("ELU", "x"), "y"), (), {"ELU"}),
        (Activated(OneOf(("MUL", "x", 2), Shared(("ADD", "x", "x")))), (), {"ADD", "MUL"}),
        (OneOf(("SQRT", ("ADD", "x", 1)), ("ADD", ("ELU", "x"), 1)), (), {"ELU", "SQRT"}),
        (("ADD", "x", "y"), ("COS",), {"COS"}),
    ],
)
def test_gate_has_a_rare_code_of_each_alternative(
    pattern: Any, needs: tuple[str, ...], gate: set[str], script: Any
) -> None:
    rule = Rule("name", "result", pattern, lambda _: "reason", needs=needs)
    assert script.find_gate(rule) == gate

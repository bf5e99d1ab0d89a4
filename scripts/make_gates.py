"""Write the gates of passes and forms that are rules: the codes without which no rule matches.

A gate says when the module of a pass is imported. It has the operators that a rule needs besides
its pattern, or a code of each alternative of the pattern, the rare ones if there are several::

    python scripts/make_gates.py && ruff format tflite2onnx
"""

from __future__ import annotations

import usage  # noqa: F401 - packages may be missing

import ast
from collections.abc import Iterable, Iterator
from itertools import combinations
from pathlib import Path
from types import ModuleType
from typing import Any

from tflite2onnx import passes
from tflite2onnx.passes.patterns.matching import Activated, Named, OneOf, Shared, Through
from tflite2onnx.passes.patterns.rules import Rule, Rules
from tflite2onnx.targets.onnxruntime import forms

MODULES = (passes, forms)
APPLY = ("apply_if_present", "apply_pattern", "_apply", "_apply_if_present")
# Codes that many networks have, the most frequent one first; others are rare.
FREQUENT = (
    *("RESHAPE", "FULLY_CONNECTED", "CONV_2D", "ADD", "DEPTHWISE_CONV_2D", "SOFTMAX", "LOGISTIC"),
    *("CONCATENATION", "STRIDED_SLICE", "MUL", "MAX_POOL_2D", "AVERAGE_POOL_2D", "PAD", "MEAN"),
    *("TANH", "SPLIT", "SUB", "GATHER", "CAST", "RELU", "SLICE", "DIV", "TRANSPOSE"),
)
Codes = frozenset[str]


def list_alternatives(pattern: Any) -> set[Codes]:  # noqa: ANN401 - options and ... are parts
    """Return the sets of codes of which a match has all of at least one, without supersets."""
    if isinstance(pattern, OneOf):
        return _drop_supersets(s for each in pattern.patterns for s in list_alternatives(each))
    if isinstance(pattern, (Activated, Named, Shared, Through)):
        return list_alternatives(pattern.pattern)
    found = {Codes({pattern[0]} if isinstance(pattern, tuple) else ())}
    for part in pattern[1:] if isinstance(pattern, tuple) else ():
        found = _drop_supersets(a | b for a in found for b in list_alternatives(part))
    return found


def _drop_supersets(sets: Iterable[Codes]) -> set[Codes]:
    listed = {*sets}
    return {each for each in listed if not any(other < each for other in listed)}


def find_gate(rule: Rule) -> Codes:
    """Return the codes of which each graph that a rule changes has one."""
    if rule.needs:
        return Codes(rule.needs)
    alternatives = list_alternatives(rule.pattern)
    # A code that is an alternative by itself is in each gate.
    single = Codes().union(*(each for each in alternatives if len(each) == 1))
    others = [each for each in alternatives if not each & single]
    codes = sorted(Codes().union(*others))
    gates = (
        single.union(gate)
        for count in range(len(others) + 1)
        for gate in combinations(codes, count)
        if all(each.intersection(gate) for each in others)
    )
    return min(gates, key=_weigh)


def _weigh(gate: Codes) -> tuple[int, int, list[str]]:
    """Return how often graphs have one of some codes: the most frequent code, then their number."""
    ranks = [len(FREQUENT) - FREQUENT.index(code) for code in gate if code in FREQUENT]
    return max(ranks, default=0), len(gate), sorted(gate)


def list_gates(module: ModuleType) -> Iterator[tuple[ast.Constant, str]]:
    """Yield the gates that stand in a module and belong to rules, each with the gate to be."""
    for node in ast.walk(ast.parse(Path(str(module.__file__)).read_text())):
        is_call = isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
        if is_call and node.func.id in APPLY and len(node.args) > 1:
            code = compile(ast.Expression(node.args[1]), "", "eval")
            path = eval(code, vars(module)) if not isinstance(node.args[1], ast.Name) else ""  # noqa: S307
            found = passes.find_pass(path, module.__name__) if path else None
            if isinstance(found, Rules):
                codes = " ".join(sorted(Codes().union(*map(find_gate, found.rules))))
                dtype, *others = {rule.dtype for rule in found.rules}
                prefix = f"{dtype.name.lower()}: " if dtype and not others else ""
                yield node.args[0], f"{prefix}{codes}"


def main() -> None:
    """Write the gates."""
    for module in MODULES:
        path = Path(str(module.__file__))
        lines = path.read_text().splitlines(keepends=True)
        for old, gate in list_gates(module):
            line = lines[old.lineno - 1]
            lines[old.lineno - 1] = line.replace(f'"{old.value}"', f'"{gate}"', 1)
        path.write_text("".join(lines))


if __name__ == "__main__":
    main()

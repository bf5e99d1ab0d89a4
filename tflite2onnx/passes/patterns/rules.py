"""Rules: a pattern, a condition, and what is built in place of the operators that match."""

import logging
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, NamedTuple

from tflite2onnx.graph import Graph, Op
from tflite2onnx.passes.patterns.matching import (
    GraphMatcher,
    Match,
    MissMatcher,
    Pattern,
    list_codes,
    list_ends,
)
from tflite2onnx.passes.rewriter import as_builtin
from tflite2onnx.passes.simplify import eliminate_dead_operators
from tflite2onnx.tensor import DType, Tensor
from tflite2onnx.utils.console import count

_logger = logging.getLogger(__name__)
_losses = _logger.getChild("losses")  # the report lists them apart

# What is built, or the reason why nothing is.
Built = Op | Sequence[Op] | str


def _holds(_: Match) -> bool:
    return True


class _Fields(NamedTuple):
    name: str
    result: str
    pattern: Pattern
    build: Callable[[Match], Built]
    condition: Callable[[Match], bool] = _holds
    unless: str = ""
    dtype: DType | None = DType.FLOAT32
    needs: tuple[str, ...] = ()


class Rule(_Fields):
    """Replaces the last operator of a match by one operator or several.

    `name` says what is recognised, and `result` what it becomes, for the documentation. If an
    operand does not fit, `build` returns the reason, for the log. Nothing is built either if a
    `condition` does not hold, of which `unless` is the reason. The operators may compute outputs of
    other operators too, which are removed then.

    All operators compute `dtype`, or any type if it is None. Graphs that change have one of the
    operators that the rule `needs`, which its pattern need not have; it computes this type, too.
    """

    @cached_property
    def codes(self) -> frozenset[str]:
        """The codes of the operators, or of the activations, that all matches have."""
        return frozenset(list_codes(self.pattern))

    def may_match(self, codes: frozenset[str]) -> bool:
        """Return whether a graph with these codes may have a match."""
        return codes.issuperset(self.codes) and not (self.needs and codes.isdisjoint(self.needs))

    @cached_property
    def ends(self) -> frozenset[tuple[str, bool]]:
        """The last operators of matches; see `list_ends`."""
        return frozenset(list_ends(self.pattern))


def replace_by(code: str, **options: Any) -> Callable[[Match], Op]:  # noqa: ANN401
    """Return a `build` that makes one operator of x."""
    return lambda found: as_builtin(found.last, code, found.x, **options)


class Rules:
    """A pass that applies rules, in rounds until none matches.

    In a round each match is one of the graph before the round. The first rule that matches an
    operator counts. No rule replaces an operator that a rule of the sequence has built, so that the
    rounds end.
    """

    def __init__(self, *rules: Rule) -> None:
        self.rules = rules

    def __call__(self, graph: Graph) -> Graph:
        built: dict[Op, str] = {}
        while True:
            # Most graphs have the operators of few patterns.
            present = [rule for rule in self.rules if rule.may_match(graph.codes)]
            changed = graph
            if present:
                a_round = _Round(present, graph, built)
                changed = graph.rewrite(a_round.change)
            if changed is graph:
                if present:
                    a_round.log_losses()
                return graph
            graph = eliminate_dead_operators(changed)


def rule(
    name: str,
    result: str,
    pattern: Pattern,
    condition: Callable[[Match], bool] = _holds,
    unless: str = "",
    *,
    dtype: DType | None = DType.FLOAT32,
    needs: tuple[str, ...] = (),
) -> Callable[[Callable[[Match], Built]], Rules]:
    """Return a decorator that makes the pass of one rule, from what builds its operators."""
    return lambda build: Rules(Rule(name, result, pattern, build, condition, unless, dtype, needs))


def log_loss(op: Op, name: str, reason: str, others: int = 0) -> None:
    """Log why an operator, and a number of others, stay as they are: no `name` replaces them."""
    more = f" and {count(others, 'other')}" if others else ""
    _losses.debug("%s%s: not replaced as %s: %s", op.short_place, more, name, reason)


class _Round:
    """Applies rules to the operators of a graph; `built` has the rules of operators made before."""

    def __init__(self, rules: Sequence[Rule], graph: Graph, built: dict[Op, str]) -> None:
        self._rules, self._built = rules, built
        self._matcher = {r.dtype: GraphMatcher(graph, dtype=r.dtype) for r in rules}
        self._ending: dict[tuple[str, str], list[Rule]] = {}
        self._computed: set[Tensor] = set()
        # The operators that stay, by rule and reason.
        self._losses: dict[str, dict[str, list[Op]]] = {rule.name: {} for rule in rules}

    def change(self, op: Op) -> Sequence[Op]:
        """Return the operators that replace an operator; none if another computes its outputs."""
        key = (op.code, op.activation)
        rules = self._ending[key] if key in self._ending else self._list_rules(*key)
        if not (rules or self._computed) or not op.outputs or op in self._built:
            return (op,)
        if self._computed.issuperset(op.outputs):
            return ()
        for rule in rules:
            for match in self._matcher[rule.dtype].find_all(op, rule.pattern):
                made = rule.build(match) if rule.condition(match) else rule.unless
                if isinstance(made, str):
                    self._losses[rule.name].setdefault(made, []).append(op)
                    continue
                _logger.debug("%s: %s", op.short_place, rule.name)
                ops = (made,) if isinstance(made, Op) else (*made,)
                if not ops:
                    raise ValueError(f"{rule.name} must build operators, or say why not")
                self._built.update(dict.fromkeys(ops, rule.name))
                self._computed.update(t for each in ops for t in each.outputs)
                return ops
        return (op,)

    def log_losses(self) -> None:
        """Log each reason once, with the first operator that stays for it."""
        if not _losses.isEnabledFor(logging.DEBUG):
            return
        for name, losses in self._losses.items():
            for reason, (op, *others) in losses.items():
                log_loss(op, name, reason, len(others))
            if not losses and name not in self._built.values():
                _losses.debug("no operators match: %s%s", name, self._explain_miss(name))

    def _explain_miss(self, name: str) -> str:
        """Return where the longest partial match of a rule ends, in words; "" if there is none."""
        rule = next(rule for rule in self._rules if rule.name == name)
        graph = self._matcher[rule.dtype].graph
        ending = {key for key, rules in self._ending.items() if rule in rules}
        ops = [op for op in graph.ops if (op.code, op.activation) in ending]
        unbuilt = [op for op in ops if op not in self._built]
        miss = MissMatcher(graph, dtype=rule.dtype).explain(unbuilt, rule.pattern)
        return f": {miss}" if miss else ""

    def _list_rules(self, code: str, activation: str) -> list[Rule]:
        """Return the rules whose pattern may end in an operator with an activation."""
        last = code if activation == "NONE" else activation
        ends = {(code, True), (last, False)}
        return self._ending.setdefault(
            (code, activation), [rule for rule in self._rules if ends & rule.ends]
        )

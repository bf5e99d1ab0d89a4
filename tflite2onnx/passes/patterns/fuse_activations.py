"""Recognise activation functions that a model spells out.

    LEAKY_RELU    max(x, a x) with a <= 1, min(x, a x) with a >= 1, and PRELU with one slope
    PRELU         max(x, a x) with several slopes, relu(x) - a relu(-x)
    RELU, RELU6   max(x, 0), min(max(x, 0), 6)
    HARD_SIGMOID  relu6(x + 3) / 6, and a x + b limited to 0 and 1
    HARD_SWISH    x relu6(x + 3) / 6
    GELU          0.5 x (1 + erf(x / sqrt 2)), 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))

They are replaced, in every sequence of the factors and terms, if

1. all tensors are float32, and the result has the shape of x;
2. no other operator reads the tensors between the operators;
3. the numbers are those of the function up to rounding to float32: a factor of 1/6 that was rounded
   to float16 stays.

ONNX Runtime fuses LeakyRelu, Relu, Clip and HardSigmoid with convolutions, and HardSwish and Gelu
keep the layout of its convolutions. In a network of three convolutions of 32 channels the
activations take, beside the convolutions, 0.4 of the time (LeakyRelu for Mul and Max), 0.3
(HardSigmoid, HardSwish for Add, Clip, Mul) and 0.3 (Gelu for nine nodes). Softplus and Mish stay
spelled out: ONNX Runtime's Softplus takes 4 times as long as Exp, Add and Log. Swish stays too,
because ONNX Runtime fuses Sigmoid and Mul itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import permutations
from math import pi, sqrt
from typing import NamedTuple

import numpy as np

from tflite2onnx.graph import Graph, Op
from tflite2onnx.passes.patterns.matching import (
    Match,
    Matcher,
    Pattern,
    group_by_last_code,
    is_float,
    list_codes,
)
from tflite2onnx.passes.rewriter import as_builtin
from tflite2onnx.tensor import Array, Tensor


class _Function(NamedTuple):
    """The options of an operator, and its inputs after x."""

    options: Mapping[str, object]
    constants: tuple[Tensor, ...] = ()


class _Rule(NamedTuple):
    """An operator, a function of the match, and the patterns that the operator replaces.

    The function returns None if the operator cannot have the constants of the match.
    """

    code: str
    function: Callable[[Match], _Function | None]
    patterns: tuple[Pattern, ...]


def _take_no_options(_: Match) -> _Function:
    return _Function({})


def _read_slopes(found: Match) -> Array:
    data = found.tensors["slope#"].data
    return np.zeros(0) if data is None else data


def _take_slope_up_to_one(found: Match) -> _Function | None:
    return _take_slope(found) if np.all(_read_slopes(found) <= 1) else None


def _take_slope_from_one(found: Match) -> _Function | None:
    return _take_slope(found) if np.all(_read_slopes(found) >= 1) else None


def _take_slope(found: Match) -> _Function | None:
    """Return LEAKY_RELU if all slopes are equal."""
    slopes = _read_slopes(found)
    same = slopes.size > 0 and np.all(slopes == slopes.flat[0])
    return _Function({"alpha": float(slopes.flat[0])}) if same else None


def _take_slopes_up_to_one(found: Match) -> _Function | None:
    slope = found.tensors["slope#"]
    return _Function({}, (slope,)) if np.all(_read_slopes(found) <= 1) else None


def _negate_slopes(found: Match) -> _Function:
    slope = found.tensors["slope#"]
    return _Function(
        {}, (replace(slope, name=f"{slope.name}/negative", data=-_read_slopes(found)),)
    )


def _take_line(found: Match) -> _Function | None:
    alpha, beta = found.number("alpha#"), found.number("beta#")
    return None if alpha is None or beta is None else _Function({"alpha": alpha, "beta": beta})


def _group_product(a: Pattern, b: Pattern, c: Pattern) -> tuple[Pattern, ...]:
    """Return the products of three factors, which are grouped in three ways."""
    return tuple(("MUL", ("MUL", *pair), rest) for *pair, rest in permutations((a, b, c)))


_GATE: Pattern = ("RELU6", ("ADD", "x", 3))
_LINE: Pattern = ("ADD", ("MUL", "x", "alpha#"), "beta#")
_CUBES: tuple[Pattern, ...] = (
    ("POW", "x", 3),
    ("MUL", ("MUL", "x", "x"), "x"),
    ("MUL", ("SQUARE", "x"), "x"),
)
_TANH: tuple[Pattern, ...] = tuple(
    ("TANH", ("MUL", ("ADD", "x", ("MUL", cube, 0.044715)), sqrt(2 / pi))) for cube in _CUBES
)
_ERF: tuple[Pattern, ...] = tuple(
    ("FlexErf", inner) for inner in (("MUL", "x", sqrt(0.5)), ("DIV", "x", sqrt(2)))
)


def _spell_gelu(squashed: tuple[Pattern, ...]) -> tuple[Pattern, ...]:
    return tuple(p for each in squashed for p in _group_product("x", 0.5, ("ADD", each, 1)))


# The first rule that matches counts.
_RULES = (
    _Rule("LEAKY_RELU", _take_slope_up_to_one, (("MAXIMUM", "x", ("MUL", "x", "slope#")),)),
    _Rule("LEAKY_RELU", _take_slope_from_one, (("MINIMUM", "x", ("MUL", "x", "slope#")),)),
    _Rule("LEAKY_RELU", _take_slope, (("PRELU", "x", "slope#"),)),
    _Rule("PRELU", _take_slopes_up_to_one, (("MAXIMUM", "x", ("MUL", "x", "slope#")),)),
    _Rule(
        "PRELU",
        _negate_slopes,
        (("ADD", ("RELU", "x"), ("MUL", ("RELU", ("NEG", "x")), "slope#")),),
    ),
    _Rule(
        "RELU6",
        _take_no_options,
        (
            ("MINIMUM", ("MAXIMUM", "x", 0), 6),
            ("MAXIMUM", ("MINIMUM", "x", 6), 0),
            ("MINIMUM", ("RELU", "x"), 6),
        ),
    ),
    _Rule(
        "HARD_SWISH",
        _take_no_options,
        (
            *_group_product("x", _GATE, 1 / 6),
            ("DIV", ("MUL", "x", _GATE), 6),
            ("MUL", "x", ("DIV", _GATE, 6)),
        ),
    ),
    _Rule(
        "HARD_SIGMOID",
        lambda _: _Function({"alpha": 1 / 6, "beta": 0.5}),
        (("MUL", _GATE, 1 / 6), ("DIV", _GATE, 6)),
    ),
    _Rule(
        "HARD_SIGMOID",
        _take_line,
        (
            ("MAXIMUM", ("MINIMUM", _LINE, 1), 0),
            ("MINIMUM", ("MAXIMUM", _LINE, 0), 1),
            ("MINIMUM", ("RELU", _LINE), 1),
            ("RELU_0_TO_1", _LINE),
        ),
    ),
    _Rule("GELU", lambda _: _Function({"approximate": True}), _spell_gelu(_TANH)),
    _Rule("GELU", lambda _: _Function({"approximate": False}), _spell_gelu(_ERF)),
    _Rule("RELU", _take_no_options, (("MAXIMUM", "x", 0),)),
)


_CASES = tuple((rule, pattern) for rule in _RULES for pattern in rule.patterns)


def fuse_activations(graph: Graph) -> Graph:
    """Return the graph with one operator in place of a function that is spelled out."""
    # Most graphs have the operators of few patterns.
    cases = [case for case in _CASES if graph.codes.issuperset(list_codes(case[1]))]
    if not cases:
        return graph
    groups, matcher = group_by_last_code(cases, lambda case: case[1]), Matcher(graph)

    def change(op: Op) -> list[Op]:
        last = op.code if op.activation == "NONE" else op.activation
        return [_fuse_activation(op, matcher, groups.get(last, ()))]

    return graph.rewrite(change)


def _fuse_activation(op: Op, matcher: Matcher, cases: Sequence[tuple[_Rule, Pattern]]) -> Op:
    for rule, pattern in cases:
        found = matcher.match(op, pattern)
        function = rule.function(found) if found is not None else None
        if found is None or function is None:
            continue
        x = found.tensors["x"]
        if is_float(x) and x.sizes == op.outputs[0].sizes:
            return as_builtin(op, rule.code, x, *function.constants, **function.options)
    return op

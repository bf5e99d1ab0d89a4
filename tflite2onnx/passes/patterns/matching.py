"""The language of patterns, and how a pattern is matched.

A pattern matches a value, which is a tensor of a graph, or a formula of a recurrent cell:

    "x"                     any value; the same name matches the same value, or equal constants
    "x#"                    a constant
    "x?", "x#?", None       an input that may be absent, a constant that may be, an absent input
    0.5                     a constant whose elements all are this number, up to rounding to float32
    ("MUL", "x", 0.5)       the result of an operator, by the patterns of its inputs. The inputs of
                            an operator that commutes match in both sequences; ... at the end stands
                            for any further inputs
    ("RELU", ("ADD", ...))  matches an operator that applies the activation to its result, too
    ("SOFTMAX", "x", {"beta": 1})     the operator has these options
    OneOf(p, q)             what one of several patterns matches; the first counts
    Named("mean", p)        what p matches, and the name of that value
    Shared(p)               p; operators outside of the match may read what its operators compute
    Activated(p)            p; its last operator may apply an activation
    Through(p, *codes)      p, or any number of operators of these codes that begin at p; RESHAPE if
                            there are no codes

and, composed of these, `any_of` and `maybe`. No operator outside a match reads the tensors between
its operators, unless they are `Shared`, so that the operators are dead once the last of them is
replaced.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, permutations
from typing import Any, ClassVar, Generic, NamedTuple, TypeAlias, TypeVar

import numpy as np

from tflite2onnx.graph import NO_OP, Graph, Op
from tflite2onnx.op import commutes
from tflite2onnx.passes.operands import is_float
from tflite2onnx.quantization.storage import BOUNDS, same_quantization
from tflite2onnx.tensor import DType, Tensor
from tflite2onnx.utils.console import shorten

T = TypeVar("T")
V = TypeVar("V")
Composite: TypeAlias = "OneOf | Named | Shared | Activated | Through"
Pattern: TypeAlias = "str | float | Composite | tuple[Any, ...]"
_CLOSE = 1e-6  # relative difference of numbers
_PAIR = 2  # inputs


class OneOf:
    """What one of several patterns matches."""

    def __init__(self, *patterns: Pattern) -> None:
        self.patterns = patterns


class _Part:
    """Base of composites of one pattern; dataclasses would take longer to make at each start."""

    __match_args__: ClassVar[tuple[str, ...]] = ("pattern",)

    def __init__(self, pattern: Pattern) -> None:
        self.pattern = pattern


class Shared(_Part):
    """What a pattern matches, also if operators outside of the match read it."""


class Activated(_Part):
    """What a pattern matches, also if its last operator applies an activation to its result."""


class Named(_Part):
    """What a pattern matches, with a name."""

    __match_args__ = ("name", "pattern")

    def __init__(self, name: str, pattern: Pattern) -> None:
        super().__init__(pattern)
        self.name = name


def any_of(codes: Iterable[str], *inputs: Any) -> OneOf:  # noqa: ANN401 - patterns, options, ...
    """Return the pattern of an operator that has one of several codes."""
    return OneOf(*((code, *inputs) for code in codes))


class Through(_Part):
    """What a pattern matches, also if RESHAPEs, or others of some codes, follow, any number."""

    __match_args__ = ("pattern", "codes")

    def __init__(self, pattern: Pattern, *codes: str) -> None:
        super().__init__(pattern)
        self.codes = codes or ("RESHAPE",)


def maybe(code: str, pattern: Pattern, other: Pattern) -> OneOf:
    """Return the pattern of a value that an operator may combine with another value."""
    return OneOf((code, pattern, other), pattern)


class Step(NamedTuple, Generic[V]):
    """An operator that computes a value, and its inputs."""

    inputs: Sequence[V | None]
    op: Op = NO_OP


class Found(NamedTuple, Generic[V]):
    """The values by their names, and the operators of a match in progress."""

    values: Mapping[str, V] = {}
    ops: tuple[Op, ...] = ()
    shared: bool = False


_NOTHING: Found[Any] = Found()


class PatternMatcher(ABC, Generic[V]):
    """Matches patterns with values of one kind."""

    @abstractmethod
    def find_step(self, value: V, code: str) -> Step[V] | None:
        """Return the operator of a code that computes a value."""

    def ignore_activation(self, value: V) -> V:
        """Return the value before an activation that the operator that computes it applies."""
        return value

    def find_matches(
        self, pattern: Pattern, value: V, found: Found[V] = _NOTHING
    ) -> Iterable[Found[V]]:
        """Return the matches of a pattern with a value, which extend a match."""
        if isinstance(pattern, str):
            return _bind_name(pattern.removesuffix("?"), value, found)
        if isinstance(pattern, tuple):
            return self._match_step(pattern, value, found)
        return self._match_composite(pattern, value, found)

    def _match_composite(
        self, pattern: float | Composite, value: V, found: Found[V]
    ) -> Iterator[Found[V]]:
        match pattern:
            case OneOf():
                for each in pattern.patterns:
                    yield from self.find_matches(each, value, found)
            case Named(name, inner):
                for match in self.find_matches(inner, value, found):
                    yield from _bind_name(name, value, match)
            case Shared(inner):
                for match in self.find_matches(inner, value, found._replace(shared=True)):
                    yield match._replace(shared=found.shared)
            case Activated(inner):
                yield from self.find_matches(inner, self.ignore_activation(value), found)
            case Through(inner, codes):
                yield from self.find_matches(inner, value, found)
                for code in codes:
                    yield from self._match_step((code, pattern, ...), value, found)
            case _:
                yield from [found] if _is_number(value, pattern) else []

    def _match_step(
        self, pattern: tuple[Any, ...], value: V, found: Found[V]
    ) -> Iterable[Found[V]]:
        code, *patterns = pattern
        step = self.find_step(value, code)
        if not step:
            return []
        inputs, op = step
        options = patterns.pop() if patterns and isinstance(patterns[-1], dict) else {}
        if options and any(op.options.get(k) != v for k, v in options.items()):
            return []
        values, ops, shared = found
        here = found if shared else Found(values, (*ops, op), shared)
        # Operators of a damaged file may have many inputs, whose permutations have no end.
        if len(inputs) != _PAIR or not commutes(code):
            return self._match_inputs(patterns, inputs, here)
        return chain.from_iterable(
            self._match_inputs(patterns, each, here) for each in permutations(inputs)
        )

    def _match_inputs(
        self, patterns: Sequence[Any], values: Sequence[V | None], found: Found[V]
    ) -> Iterator[Found[V]]:
        for index, first in enumerate(patterns):
            value = values[index] if index < len(values) else None
            if first is ...:
                break
            if value is not None and first is not None:
                for match in self.find_matches(first, value, found):
                    yield from self._match_inputs(patterns[index + 1 :], values[index + 1 :], match)
                return
            if value is not first and not (isinstance(first, str) and first.endswith("?")):
                return
        else:
            if len(values) > len(patterns):
                return
        yield found


def _bind_name(name: str, value: V, found: Found[V]) -> Sequence[Found[V]]:
    """Return the match with a name of a value, none if it is the name of another value."""
    values, ops, shared = found
    if isinstance(value, Op):
        return []
    if name in values:
        return [found] if are_equal(values[name], value) else []
    fits = not name.endswith("#") or (isinstance(value, Tensor) and value.has_data)
    return [Found({**values, name: value}, ops, shared)] if fits else []


def _is_number(value: object, number: float) -> bool:
    """Return whether all elements of a constant are a number, up to rounding to float32."""
    if not isinstance(value, Tensor) or not value.has_data or value.quantization:
        return False
    if not 0 < value.values.size <= value.elements or value.values.dtype.kind not in "fiu":
        return False
    error = np.abs(value.values.astype(np.float64) - number)
    return bool(np.all(error <= _CLOSE * abs(number)))


def are_equal(a: object, b: object) -> bool:
    """Return whether two values are the same, or constants with equal elements."""
    if a is b or not isinstance(a, Tensor) or not isinstance(b, Tensor):
        return a is b
    if not a.has_data or not b.has_data or a.dtype is not b.dtype:
        return False
    return same_quantization(a.quantization, b.quantization) and np.array_equal(a.values, b.values)


class Match(NamedTuple):
    """A match of a pattern: its last operator, tensors by their names, operators, and the graph."""

    last: Op
    tensors: Mapping[str, Tensor]
    ops: tuple[Op, ...]
    graph: Graph

    @property
    def x(self) -> Tensor:
        return self.tensors["x"]

    @property
    def output(self) -> Tensor:
        return self.last.outputs[0]

    def analyze(self, analysis: Callable[[Graph], T]) -> T:
        """Return what a function finds in the graph; see `Graph.analyze`."""
        return self.graph.analyze(analysis)

    def number(self, name: str, default: float | None = None) -> float | None:
        """Return the only element of a constant, None if there is another number of elements."""
        if name not in self.tensors:
            return default
        data = self.tensors[name].values
        return float(data.reshape(())) if data.size == 1 else None

    def list_integers(self, name: str) -> list[int]:
        """Return the elements of a constant, none if the match has no tensor of this name."""
        return [int(n) for n in self.tensors[name].values.flat] if name in self.tensors else []

    def keeps_shape(self) -> bool:
        """Return whether x is float32 and has the shape of the result."""
        return is_float(self.x) and self.x.sizes == self.output.sizes


class GraphMatcher(PatternMatcher["Tensor | Op"]):
    """Matches patterns with tensors; an operator is its output before the activation it applies.

    All operators of a match compute `dtype`, or any type if it is None.
    """

    def __init__(self, graph: Graph, *, dtype: DType | None = DType.FLOAT32) -> None:
        self.graph, self._dtype = graph, dtype

    def find_all(self, op: Op, pattern: Pattern) -> Iterator[Match]:
        """Yield the matches of a pattern with the operators that end in this operator."""
        for values, ops, _ in self.find_matches(pattern, op.outputs[0]) if op.outputs else ():
            made = [t for each in ops if each is not op for t in each.outputs]
            if not made or all(self.graph.readers.are_among({*ops, op}, t) for t in made):
                tensors = {k: v for k, v in values.items() if isinstance(v, Tensor)}
                yield Match(op, tensors, ops, self.graph)

    def find_step(self, value: Tensor | Op, code: str) -> Step[Tensor | Op] | None:
        """Return the operator of a code that computes a tensor, None if it runs sub-graphs."""
        op = value if isinstance(value, Op) else self.graph.producers.find(value)
        if op is NO_OP or op.graphs or self._dtype not in (None, op.outputs[0].dtype):
            return None
        if isinstance(value, Op) or (op.outputs[0] is value and op.activation == "NONE"):
            # A custom operator of a file may have the name of a builtin one, which is upper case.
            is_same = op.code == code and op.custom != code.isupper()
            return Step(op.inputs, op) if is_same else None
        applies = op.outputs[0] is value and op.activation == code and code in BOUNDS
        return Step([op]) if applies else None

    def ignore_activation(self, value: Tensor | Op) -> Tensor | Op:
        """Return the operator of whose outputs a tensor is the first."""
        op = value if isinstance(value, Op) else self.graph.producers.find(value)
        return op if value in op.outputs[:1] else value


class MissMatcher(GraphMatcher):
    """Remembers where the longest partial match ended. It takes longer, so it is for the log."""

    def explain(self, ops: Iterable[Op], pattern: Pattern) -> str:
        """Return where the longest match that ends in one of the operators ends, in words."""
        self._longest, self._miss = (0, 0), ""
        for op in ops:
            if op.outputs and self.find_matches(pattern, op.outputs[0]):
                return f"{op.short_place}: operators outside read values between"
        return self._miss

    def find_matches(
        self, pattern: Pattern, value: Tensor | Op, found: Found[Tensor | Op] = _NOTHING
    ) -> Iterable[Found[Tensor | Op]]:
        matches = [*super().find_matches(pattern, value, found)]
        length = len(found.ops), len(found.values)
        if not matches and any(length) and length >= self._longest:
            op = value if isinstance(value, Op) else self.graph.producers.find(value)
            name = "" if isinstance(value, Op) else shorten(value.name)
            place = name if op is NO_OP else op.short_place
            names = _name_patterns(pattern)
            is_of_code = op.code in names
            end = "has other inputs or options" if is_of_code else f"is no {' or '.join(names)}"
            self._longest, self._miss = length, f"{place} {end}"
        return matches


def _name_patterns(pattern: Pattern) -> list[str]:
    """Return words for what a pattern matches: codes, a number, a constant, or operands' names."""
    if isinstance(pattern, OneOf):
        return [*dict.fromkeys(chain.from_iterable(map(_name_patterns, pattern.patterns)))]
    if isinstance(pattern, _Part):
        return _name_patterns(pattern.pattern)
    name = str(pattern[0] if isinstance(pattern, tuple) else pattern).removesuffix("?")
    return ["constant" if name.endswith("#") else name]


def list_ends(pattern: Pattern, *, activated: bool = False) -> set[tuple[str, bool]]:
    """Return the last codes of matches, and whether an activation may follow each."""
    if isinstance(pattern, OneOf):
        return set().union(*(list_ends(each, activated=activated) for each in pattern.patterns))
    if isinstance(pattern, _Part):
        codes = pattern.codes if isinstance(pattern, Through) else ()
        ends = list_ends(pattern.pattern, activated=activated or isinstance(pattern, Activated))
        return ends.union((code, activated) for code in codes)
    return {(pattern[0], activated)} if isinstance(pattern, tuple) else set()


def list_codes(pattern: Any) -> set[str]:  # noqa: ANN401 - options and ... are parts of patterns
    """Return the codes of the operators, or of the activations, that all matches have."""
    if isinstance(pattern, OneOf):
        return set.intersection(*map(list_codes, pattern.patterns))
    if isinstance(pattern, _Part):
        return list_codes(pattern.pattern)
    if isinstance(pattern, tuple):
        return {pattern[0]}.union(*map(list_codes, pattern[1:]))
    return set()

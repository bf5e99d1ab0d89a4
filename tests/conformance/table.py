"""Rows of operators, and the cases that they generate."""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations, product
from typing import Any, NamedTuple

import numpy as np

from tests.conformance.bench import QUANTIZED, Array, Bench
from tests.support import random_inputs
from tests.support.facts import carrier
from tflite2onnx.op import OPERATORS

# All element types of files except handles; each operator is tried with each type.
PLAIN = (
    "float32",
    "float16",
    "bfloat16",
    "float64",
    "int8",
    "uint8",
    "int16",
    "uint16",
    "int32",
    "uint32",
    "int64",
    "uint64",
    "bool",
    "string",
    "complex64",
    "complex128",
    "int4",
    "int2",
    "uint4",
)
KINDS = (*PLAIN, *QUANTIZED)
# Element types of less than 8 bits.
PACKED = ("int4", "int2", "uint4", "quantized int4")


class Bound(NamedTuple):
    """The allowed difference of LiteRT and ONNX Runtime: of floats as a fraction, of integers."""

    part: float = 0.0
    steps: int = 0
    reason: str = ""


def coarse(code: str, kind: str, reason: str) -> Bound:
    """Return the bound of an operator's class for an integer kind, with its reason.

    `verify` allows the same number of steps.
    """
    return Bound(0, OPERATORS[code].steps[f"{code} {kind.rsplit(maxsplit=1)[-1]}"], reason)


_STEPS_OF_FLOATS = {
    "float16": Bound(2e-3, 0, "float16 has 11 bits, and the runtimes round at different places"),
    "bfloat16": Bound(1e-2, 0, "bfloat16 has 8 bits, and the runtimes round at different places"),
}


class Built(NamedTuple):
    """A model, the elements of its inputs in each run, and reference outputs if there are any.

    A reference output of None is not compared.
    """

    data: bytes
    runs: Sequence[Sequence[Array]]
    want: Sequence[Sequence[Array | None]] | None = None


@dataclass(frozen=True)
class Row:
    """An operator.

    Attributes:
        code: its name in TFLite.
        build: builds a model of the operator on a bench for one combination of choices; or
            returns a model, whose inputs are then random.
        kinds: the converted element types, in the notation of `Bench`.
        grid: the choices: options, ranks, shapes.
        values: the kinds of elements of the inputs, see `Bench`.
        exact: whether nothing is computed, so that no difference is allowed.
        bounds: by kind, bounds other than the default, with the reason.
        without: element types that LiteRT runs and the converter rejects, with the reason.
        limits: other cases that are not converted, or that differ.
        tried: further kinds to try; by default all element types.
        runs: the number of runs of a model, which may have state.
        types: the kinds in words, if there are many.
        reference: computes the outputs from all operands, if LiteRT has no kernel.
        stream: makes a reference with state, which is called once for each run.
        told: the choices passed to `reference` or `stream`, and "kind" if it needs the type.
    """

    code: str
    build: Callable[..., bytes | None]
    kinds: Sequence[str]
    grid: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    values: Sequence[str] = ("random", "edges")
    exact: bool = False
    bounds: Mapping[str, Bound] = field(default_factory=dict)
    without: Mapping[str, str] = field(default_factory=dict)
    limits: str = ""
    tried: Sequence[str] = KINDS
    runs: int = 1
    types: str = ""
    reference: Callable[..., Any] | None = None
    stream: Callable[..., Callable[..., Any]] | None = None
    told: Sequence[str] = ()

    @property
    def referred(self) -> bool:
        """Whether the operator is compared with a reference instead of LiteRT's kernel."""
        return bool(self.reference or self.stream)

    def reason(self, kind: str) -> str:
        """Return why a kind that LiteRT runs is not converted; empty if there is no reason."""
        if kind in self.without:
            return self.without[kind]
        if f"quantized {kind}" in self.kinds:
            return "the kernel reads a scale, which such a tensor has not"
        if kind.removeprefix("quantized ") in self.kinds:
            return "the kernel looks at no scale"
        if "complex" in kind:
            return "complex numbers are pairs of real ones here, which its nodes do not take"
        return ""

    def bound(self, kind: str) -> Bound:
        """Return the allowed difference of the runtimes for a kind."""
        if kind in self.bounds or self.exact:
            return self.bounds.get(kind, Bound())
        usual = Bound(1e-5, int("quantized" in kind or " by " in kind))
        return _STEPS_OF_FLOATS.get(kind, usual)

    def cases(self) -> Iterator[Case]:
        """Yield cases: every pair of choices for the first kind, every choice for other kinds."""
        for place, kind in enumerate(self.kinds):
            values = self.values if kind != "bool" else self.values[:1]
            if "float" not in kind and "complex" not in kind:
                values = [each for each in values if each != "not finite"]
            yield from self._covering_cases(
                kind, {**self.grid, "values": values}, 1 if place else 2
            )

    def trials(self) -> Iterator[Case]:
        """Yield a case of each kind not listed as converted, if LiteRT has a kernel."""
        for kind in self.tried:
            if kind not in self.kinds and not self.referred:
                yield next(self._covering_cases(kind, {**self.grid, "values": ["random"]}, 1))

    def _covering_cases(
        self, kind: str, grid: Mapping[str, Sequence[Any]], depth: int
    ) -> Iterator[Case]:
        """Yield cases until each combination of `depth` choices occurs, first choices first."""
        every = [
            Case(self, kind, dict(zip(grid, each, strict=True))) for each in product(*grid.values())
        ]
        random.Random(f"{self.code} {kind}").shuffle(every)
        every.sort(key=lambda case: case.is_default(grid), reverse=True)
        missing = {part for case in every for part in case.combinations(depth)}
        while missing:
            best = max(every, key=lambda case: len(missing & case.combinations(depth)))
            missing -= best.combinations(depth)
            yield best


@dataclass(frozen=True)
class Case:
    """A model of one operator."""

    row: Row
    kind: str
    choice: Mapping[str, Any]

    @property
    def name(self) -> str:
        """The unique name of the case, which is also its random seed."""
        words = (f"{key}={value}" for key, value in self.choice.items())
        return " ".join([self.row.code, self.kind.replace(" ", "_"), *words])

    def is_default(self, grid: Mapping[str, Sequence[Any]]) -> bool:
        """Return whether every choice is the first of its list."""
        return all(values[0] == self.choice[key] for key, values in grid.items())

    def combinations(self, depth: int) -> frozenset[tuple[tuple[str, str], ...]]:
        """Return the combinations of `depth` choices that the case contains."""
        named = [(key, repr(value)) for key, value in self.choice.items()]
        return frozenset(combinations(named, min(depth, len(named))))

    def bench(self) -> tuple[Bench, bytes | None]:
        """Return the model under construction, and the model if the row returns one."""
        choice = dict(self.choice)
        bench = Bench(self.name, self.kind, choice.pop("values"))
        return bench, self.row.build(bench, self.row.code, **choice)

    def build(self) -> Built:
        """Return the model, its inputs, and the outputs of a reference.

        Each run rotates the same elements, unless the bench defines the elements of each run.
        """
        bench, made = self.bench()
        arrays = bench.arrays
        if made is not None:
            arrays = random_inputs(made, zlib.crc32(self.name.encode()), float32=(-2, 2))
        runs = [
            [
                bench.over[i][run] if i in bench.over else np.roll(each, run)
                for i, each in enumerate(arrays)
            ]
            for run in range(self.row.runs)
        ]
        return Built(made or bench.bytes(), runs, self._reference_outputs(bench, runs))

    def _reference_outputs(
        self, bench: Bench, runs: Sequence[Sequence[Array]]
    ) -> list[list[Array | None]] | None:
        """Return the outputs of the reference in each run, in the types of the model's outputs."""
        known = {**self.choice, "kind": self.kind}
        told = {key: known[key] for key in self.row.told}
        if self.row.stream:
            kernel = self.row.stream(**told)
            return [_outputs(bench, kernel(*inputs)) for inputs in runs]
        if self.row.reference:
            return [_outputs(bench, self.row.reference(*bench.operands, **told))]
        return None


def _outputs(bench: Bench, made: Any) -> list[Array | None]:
    """Return the result of a reference, in the types of the model's outputs."""
    outputs = made if isinstance(made, (list, tuple)) else [made]
    return [
        None if array is None else np.asarray(array).astype(carrier(tensor.dtype))
        for array, tensor in zip(outputs, bench.given, strict=True)
    ]

"""One case: its conversion, and the difference of ONNX Runtime from LiteRT or a reference."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import onnx

from tests.conformance.table import Bound, Case
from tests.support.compare import distance, in_bytes, in_pairs, run_restored, span
from tests.support.layouts import random_planner
from tests.support.needs import missing_feature
from tests.support.runtimes import Array, reference, session
from tflite2onnx import ConversionError, Result, convert
from tflite2onnx.builder.opsets import MIN_OPSET
from tflite2onnx.options import ConversionOptions
from tflite2onnx.reader.model import read_model
from tflite2onnx.stages import convert_model
from tflite2onnx.stateful import Stateful

RUN, REFUSED, UNCONVERTED, FAULTY = "run", "refused", "unconverted", "faulty"
LACKING = "lacking"
NEWEST = 26
# Nodes that only change the storage of tensors.
_STORAGE = {"DequantizeLinear", "QuantizeLinear", "Transpose", "Identity", "Reshape"}


class Form(NamedTuple):
    """A way to convert and run a model."""

    options: Mapping[str, Any]
    layout: int | None
    optimize: bool

    def convert(self, data: bytes) -> Result:
        """Return the conversion with the planned layouts, or with random legal labels."""
        if self.layout is None:
            return convert(data, **self.options)
        return convert_model(
            read_model(data), ConversionOptions(**self.options), planner=random_planner(self.layout)
        )

    def __str__(self) -> str:
        words = [f"{key}={value}" for key, value in self.options.items()]
        layout = [] if self.layout is None else [f"random layout {self.layout}"]
        return ", ".join([*words, *layout, f"optimize={self.optimize}"])


WHOLE = (
    Form({}, None, True),
    Form({}, None, False),
    Form({}, 0, True),
    Form({}, 1, False),
)
SAMPLE = ((WHOLE[0], WHOLE[3]), (WHOLE[1], WHOLE[2]))
# The storage of int8 activations; "auto" has already chosen one of these.
_OF_BYTES = tuple(Form({"activations": kept}, None, True) for kept in ("int8", "uint8"))


@dataclass(frozen=True)
class Verdict:
    """The result of a case.

    `state` is RUN if all forms were run, REFUSED if LiteRT does not run the model, UNCONVERTED if
    the converter rejects it, LACKING if it needs a newer ONNX Runtime, FAULTY if a result is wrong.
    `text` is the reason.
    `part` and `steps` are the largest differences of floats and of integers, `nodes` the ONNX nodes
    of the operator, `opset` the smallest opset with which it was converted.
    """

    name: str
    state: str
    text: str = ""
    part: float = 0.0
    steps: float = 0.0
    nodes: Counter[str] = field(default_factory=Counter)
    opset: int = 0


def judge_case(case: Case, forms: Sequence[Form] = WHOLE, *, opset: bool = False) -> Verdict:
    """Run a case; with `opset` find the smallest opset as well."""
    try:
        data, runs, made = case.build()
        want, untrue = reference(data, runs) if made is None else (made, [])
    except Exception as error:  # noqa: BLE001 - any error means that the model does not run
        return Verdict(case.name, REFUSED, f"{type(error).__name__}: {error}")
    if untrue:
        return Verdict(case.name, FAULTY, "; ".join(untrue))
    try:
        return _judge_forms(case, _Given(data, runs, want), forms, opset=opset)
    except ConversionError as error:
        return Verdict(case.name, UNCONVERTED, str(error))
    except Exception as error:  # noqa: BLE001 - any error is a fault
        return Verdict(case.name, FAULTY, f"{type(error).__name__}: {error}")


class _Given(NamedTuple):
    data: bytes
    runs: Sequence[Sequence[Array]]
    want: Sequence[Sequence[Array | None]]


def _judge_forms(case: Case, given: _Given, forms: Sequence[Form], *, opset: bool) -> Verdict:
    verdict = Verdict(case.name, RUN)
    if case.kind == "quantized int8" and forms is WHOLE:
        forms = (*forms, *_OF_BYTES)
    if opset:
        least = _smallest_opset(given.data)
        verdict = replace(verdict, opset=least)
        forms = (*forms, Form({"opset": least}, None, True))
    models: dict[str, Result] = {}
    for form in forms:
        key = str(form.options) + str(form.layout)
        if key not in models:
            models[key] = form.convert(given.data)
            onnx.checker.check_model(models[key].model, full_check=True)
        why = missing_feature(models[key].model)
        if why:
            return replace(verdict, state=LACKING, text=why)
        faults, part, steps = _largest_differences(
            models[key], given, case.row.bound(case.kind), form
        )
        verdict = replace(verdict, part=max(verdict.part, part), steps=max(verdict.steps, steps))
        if faults:
            return replace(verdict, state=FAULTY, text=f"{form}: {faults}")
    planned = next(iter(models.values())).model.graph.node
    nodes = Counter(node.op_type for node in planned)
    return replace(verdict, nodes=nodes)


def _largest_differences(
    result: Result, given: _Given, bound: Bound, form: Form
) -> tuple[str, float, float]:
    """Return the error in words, and the largest differences of floats and of integers."""
    live = Stateful(session(result.model, optimize=form.optimize))
    part = steps = 0.0
    for inputs, wanted in zip(given.runs, given.want, strict=True):
        pairs = zip(wanted, run_restored(result, live, inputs), strict=True)
        for place, (want, have) in enumerate(pairs):
            if want is None:
                continue
            fault, largest = compare_output(want, have, bound)
            if want.dtype.kind in "iu":
                steps = max(steps, largest)
            else:
                part = max(part, largest)
            if fault:
                return f"output {place} {fault}", part, steps
    return "", part, steps


def compare_output(want: Array, have: Array, bound: Bound) -> tuple[str, float]:
    """Return the error of an output in words, and its largest difference."""
    want = in_bytes(in_pairs(want))
    if want.dtype != have.dtype or want.shape != have.shape:
        made = f"{have.dtype}{list(have.shape)}"
        return f"is {made}, not {want.dtype}{list(want.shape)}", 0
    apart = distance(want, have)
    largest = float(apart.max(initial=0))
    allowed = float(bound.steps)
    if want.dtype.kind not in "iu":
        largest, allowed = largest / (span(want) if want.dtype.kind == "f" else 1), bound.part
    if largest <= allowed:
        return "", largest
    at = np.unravel_index(np.argmax(apart), apart.shape)
    where = [int(i) for i in at]
    return f"is {largest:.3g} off at {where}: {have[at]!r}, not {want[at]!r}", largest


def _smallest_opset(data: bytes) -> int:
    """Return the smallest opset with which a model can be converted."""
    return next(version for version in _opsets() if _converts(data, version))


def _opsets() -> Iterator[int]:
    yield from range(MIN_OPSET, NEWEST + 1)


def _converts(data: bytes, opset: int) -> bool:
    try:
        convert(data, opset=opset)
    except ConversionError:
        return False
    return True


def main_nodes(nodes: Mapping[str, int]) -> list[str]:
    """Return the ONNX operators of an operator, the most frequent first, without storage nodes."""
    named = [name for name in nodes if name not in _STORAGE] or list(nodes)
    return sorted(named, key=lambda name: (-nodes[name], name))

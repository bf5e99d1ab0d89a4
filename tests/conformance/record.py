"""The results of the last run of the whole matrix: record.json, the source of docs/operators.md."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from tests.conformance.judge import FAULTY, REFUSED, RUN, UNCONVERTED, main_nodes
from tests.conformance.matrix import Outcome

FILE = Path(__file__).with_name("record.json")


class Measured(NamedTuple):
    """The results of one kind: number of cases, largest differences, smallest opset.

    `part` is the largest difference of floats as a fraction of the range, rounded up to one digit;
    `steps` is the largest difference of integers.
    """

    cases: int
    part: float
    steps: int
    opset: int


class Operator(NamedTuple):
    """The results of an operator: its kinds, and its ONNX operators."""

    kinds: Mapping[str, Measured]
    becomes: list[str]


def summarize(outcomes: Iterable[Outcome]) -> dict[str, Operator]:
    """Return the results of each operator."""
    kinds: dict[str, dict[str, Measured]] = {}
    nodes: dict[str, Counter[str]] = {}
    for outcome in outcomes:
        if outcome.tried:
            continue
        verdicts, code = outcome.verdicts, outcome.row.code
        kinds.setdefault(code, {})[outcome.kind] = Measured(
            len(verdicts),
            _round_up(max(v.part for v in verdicts)),
            int(max(v.steps for v in verdicts)),
            max(v.opset for v in verdicts),
        )
        for verdict in verdicts:
            nodes.setdefault(code, Counter()).update(set(verdict.nodes))
    return {code: Operator(kinds[code], main_nodes(nodes.get(code, {}))) for code in sorted(kinds)}


def faults(outcomes: Iterable[Outcome]) -> list[str]:
    """Return the results that differ from the table, in words."""
    said = []
    for outcome in outcomes:
        for verdict in outcome.verdicts:
            if outcome.tried:
                row, kind = outcome.row, outcome.kind
                # If numbers differ, the row itself must give the reason.
                known = row.without.get(kind) if verdict.state == FAULTY else row.reason(kind)
                fine = verdict.state == REFUSED or bool(known)
                advice = {RUN: "add it to its kinds", UNCONVERTED: "say why"}
                text = f"LiteRT runs it: {advice.get(verdict.state, verdict.text)}"
            else:
                fine, text = verdict.state == RUN, f"{verdict.state}: {verdict.text}"
            if not fine:
                said.append(f"{verdict.name}: {text}")
    return said


def read_record() -> dict[str, Operator]:
    """Return the record."""
    return {
        code: Operator(
            {kind: Measured(*numbers) for kind, numbers in entry["kinds"].items()}, entry["becomes"]
        )
        for code, entry in json.loads(FILE.read_text()).items()
    }


def write(record: Mapping[str, Operator]) -> None:
    """Replace the record, one line per operator."""
    lines = (f"{json.dumps(code)}: {json.dumps(entry._asdict())}" for code, entry in record.items())
    FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def _round_up(part: float) -> float:
    """Return a number rounded up to one digit, so that other machines find the same number."""
    if part in (0.0, math.inf):
        return part
    unit = 10.0 ** math.floor(math.log10(part))
    return float(f"{math.ceil(part / unit) * unit:.0e}")

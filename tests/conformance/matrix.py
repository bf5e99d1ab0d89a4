"""All cases; each kind of an operator runs in its own process, because LiteRT may crash."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from tests.conformance.judge import FAULTY, REFUSED, SAMPLE, Verdict, judge_case
from tests.conformance.rows import ROWS
from tests.conformance.table import Case, Row
from tests.golden.isolated import Crashed, run_isolated


class Outcome(NamedTuple):
    """The results of the cases of one kind, which the table lists as converted or as tried."""

    row: Row
    kind: str
    tried: bool
    verdicts: list[Verdict]


def run_all(rows: Iterable[Row], processes: int = 2) -> Iterator[Outcome]:
    """Run all cases of the rows, and try all other element types."""
    jobs = [job for row in rows for job in (*((row, kind) for kind in row.kinds), (row, ""))]
    with ThreadPoolExecutor(processes) as lanes:
        for outcomes in lanes.map(
            lambda job: _try_kinds(job[0]) if not job[1] else _run_kind(*job), jobs
        ):
            yield from outcomes


def _run_kind(row: Row, kind: str) -> list[Outcome]:
    return [Outcome(row, kind, False, _run_isolated(_judge_kind, row.code, kind))]


def _try_kinds(row: Row) -> list[Outcome]:
    """Try all kinds in one process; try each in its own process if that process crashes."""
    kinds = [case.kind for case in row.trials()]
    try:
        verdicts = run_isolated(_trials, row.code, kinds)
    except Crashed:
        # A kernel may corrupt memory for a type that it does not support: count it as refused.
        verdicts = [_run_isolated(_trials, row.code, [kind], crashed=REFUSED)[0] for kind in kinds]
    return [Outcome(row, kind, True, [v]) for kind, v in zip(kinds, verdicts, strict=True)]


def sample(row: Row, seed: str, count: int) -> list[Verdict]:
    """Run some cases of a row, each with the planned layout and with a random layout."""
    cases = list(row.cases())
    chosen = random.Random(f"{row.code} {seed}").sample(range(len(cases)), min(count, len(cases)))
    return _run_isolated(_judge_sample, row.code, chosen)


def _run_isolated(
    function: Callable[..., list[Verdict]], *args: object, crashed: str = FAULTY
) -> list[Verdict]:
    try:
        return run_isolated(function, *args)
    except Crashed as error:
        return [Verdict(" ".join(map(str, args)), crashed, f"the process died: {error}")]


def _judge_kind(code: str, kind: str) -> list[Verdict]:
    mine = [case for case in ROWS[code].cases() if case.kind == kind]
    return [judge_case(case, opset=not place) for place, case in enumerate(mine)]


def _trials(code: str, kinds: Sequence[str]) -> list[Verdict]:
    return [judge_case(case) for case in ROWS[code].trials() if case.kind in kinds]


def _judge_sample(code: str, chosen: Iterable[int]) -> list[Verdict]:
    cases: list[Case] = list(ROWS[code].cases())
    return [judge_case(cases[place], SAMPLE[place % len(SAMPLE)]) for place in chosen]

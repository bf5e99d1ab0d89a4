"""Convert damaged files, and compare the results with LiteRT.

    python -m tests.fuzz --minutes 10 --jobs 2             # look for faults
    python -m tests.fuzz --cases 5000 --seed ci            # the same cases every time
    python -m tests.fuzz --seed ci --case 17               # one of these cases
    python -m tests.fuzz --file damaged.tflite             # any file
    python -m tests.fuzz --file damaged.tflite --minimise  # make the file of a fault smaller
    python -m tests.fuzz --totals FOLDER...                # of campaigns that run or have run

The exit status is 1 if there are faults. Every fault, and the file of the first five of a class,
is in the folder that is printed.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.fuzz.campaign import FOLDER, Judge, Verdict, name_fault_class
from tests.fuzz.cases import FuzzCase, make_case
from tests.fuzz.minimise import minimise
from tests.fuzz.seeds import Seed

ROOT = Path(__file__).parents[2]
_ENDLESS = 1 << 40


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what the arguments say; return the exit status."""
    options = _parse(arguments)
    if options.totals:
        return print_totals(options.totals)
    if options.case is not None or options.file:
        return _judge_one(options)
    folder = options.folder or Path(tempfile.mkdtemp(prefix="fuzz-"))
    last = options.first + options.cases if options.cases else _ENDLESS
    seconds = 60 * options.minutes if options.minutes else _ENDLESS
    parts = []
    for lane in range(options.jobs):
        numbers = (options.first + lane, options.jobs, last)
        part = folder / f"part-{lane}-of-{options.jobs}"
        parts.append(_start_part(options.seed, numbers, seconds, part))
    sys.stdout.write(f"{folder}\n")
    statuses = [part.wait() for part in parts]
    return max(*statuses, print_totals([folder]))


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m tests.fuzz", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--minutes", type=float, help="how long to go on")
    parser.add_argument("--cases", type=int, help="the number of cases")
    parser.add_argument("--jobs", type=int, default=1, help="parallel processes")
    parser.add_argument("--seed", default="0", help="the name of the campaign (default: 0)")
    parser.add_argument("--first", type=int, default=0, help="the first case")
    parser.add_argument("--folder", type=Path, help="the folder for records and faults")
    parser.add_argument("--case", type=int, help="judge one case of the campaign")
    parser.add_argument("--file", type=Path, help="judge one file, or write the case to it")
    parser.add_argument("--minimise", action="store_true", help="overwrite FILE with less")
    parser.add_argument("--totals", nargs="+", type=Path, help="add up the records of folders")
    options = parser.parse_args(arguments)
    if not (options.minutes or options.cases or options.totals or options.file):
        options.minutes = 1
    return options


def _start_part(
    campaign: str, numbers: tuple[int, int, int], seconds: float, folder: Path
) -> subprocess.Popen[bytes]:
    words = [campaign, *map(str, numbers), str(seconds), str(folder)]
    # Each thread of BLAS would reserve memory.
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "tests.fuzz.campaign", *words]
    return subprocess.Popen(command, cwd=ROOT, env=environment)


def _judge_one(options: argparse.Namespace) -> int:
    """Judge a case or a file, and print the verdict."""
    if options.case is not None:
        case = make_case(options.seed, options.case)
        if options.file:
            options.file.write_bytes(case.data)
    else:
        data = options.file.read_bytes()
        case = FuzzCase(0, "file", Seed(str(options.file), data), data, {})
    with tempfile.TemporaryDirectory(dir=FOLDER) as place:
        judge = Judge(Path(place))
        verdict = judge.judge(case)
        if options.minimise:
            options.file.write_bytes(_minimise(judge, case, verdict))
        judge.close()
    sys.stdout.write(f"{case.seed.name} {dict(case.options)}\n{verdict.kind}\n{verdict.text}\n")
    return int(verdict.is_fault)


def _minimise(judge: Judge, case: FuzzCase, verdict: Verdict) -> bytes:
    """Return a smaller file with the same verdict."""
    wanted = name_fault_class(case, verdict)

    def is_same(data: bytes) -> bool:
        smaller = case._replace(data=data, seed=case.seed._replace(data=data))
        return name_fault_class(smaller, judge.judge(smaller)) == wanted

    return minimise(case.data, is_same)


def print_totals(folders: Iterable[Path]) -> int:
    """Print the sums of all records in the folders; return whether there are faults."""
    records = [json.loads(p.read_text()) for f in folders for p in sorted(f.rglob("record.json"))]
    cases = sum(record["cases"] for record in records)
    campaigns = ", ".join(sorted({record["campaign"] for record in records}))
    faults = _add_up(record["faults"] for record in records)
    lines = [f"{cases:,} cases of the campaigns {campaigns}"]
    for key in ("counts", "faults"):
        counts = _add_up(record[key] for record in records)
        lines += [f"{key}:", *(f"{count:10,} {name}" for name, count in counts.most_common())]
    for key, unit in (("most seconds", "s"), ("most bytes", "bytes")):
        value, number = max((record[key] for record in records), default=(0, 0))
        lines.append(f"{key}: {value:,} {unit} (case {number})")
    sys.stdout.write("\n".join([*lines, ""]))
    return int(bool(faults))


def _add_up(counts: Iterable[Mapping[str, Any]]) -> Counter[str]:
    total: Counter[str] = Counter()
    for each in counts:
        total.update(each)
    return total


if __name__ == "__main__":
    sys.exit(main())

"""A part of a campaign: it judges cases in turn, and records counts and faults.

    python -m tests.fuzz.campaign CAMPAIGN FIRST STEP LAST SECONDS FOLDER

runs the cases FIRST, FIRST + STEP and so on below LAST, for at most SECONDS. FOLDER receives a
record of all counts, which is written again every few seconds, and the file of each fault.
"""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
import time
from collections import Counter
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from tests.fuzz.bounds import bound_of_file
from tests.fuzz.cases import FuzzCase, make_case
from tests.fuzz.children import Child, DiedError, Limits
from tests.fuzz.comparison import Converted, Numbers, run_litert, run_onnxruntime
from tests.fuzz.conversion import Outcome, Request, clear_folder, convert_damaged
from tflite2onnx.options import ConversionOptions

# Files are in memory, because disks take longer than a conversion.
_SHARED_MEMORY = "/dev/shm"  # noqa: S108 - a new folder is created safely inside it
FOLDER = _SHARED_MEMORY if os.access(_SHARED_MEMORY, os.W_OK) else None
_RECORD_SECONDS = 10
_MOST_FILES = 5  # files that are kept for each class of faults
# Outcomes that are no faults. LiteRT may crash on damaged files.
SOUND = (
    "refused",
    "converted, LiteRT refuses",
    "converted, LiteRT crashes",
    "converted, no kernel in ONNX Runtime",
    "converted, same numbers",
    "converted, not compared",
    "converted, differs where not finite",
    "converted, differs, as LiteRT from itself",
    "converted, differs in extreme numbers",
    "converted, differs by amplified steps",
    "converted, differs, as the seed",
    "bundle converted",
)
_DIFFERENCES = (
    "differs",
    "differs in type",
    "differs in shape",
    "differs in outputs",
    "fails in ONNX Runtime",
)
# A model that LiteRT does not run is not compared.
_RUNTIME = Limits(memory=2 << 30, seconds=20)


class Verdict(NamedTuple):
    """The outcome of a case, with the processor time and the peak memory of the conversion."""

    kind: str
    text: str = ""
    seconds: float = 0.0
    peak: int = 0

    @property
    def is_fault(self) -> bool:
        """Whether the outcome is a fault."""
        return self.kind not in SOUND


class Judge:
    """The converter and both runtimes, each in a child process."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "work"
        self._folder.mkdir()
        self._converter = Child(convert_damaged, Limits(), folder / "converter")
        self._litert = Child(run_litert, _RUNTIME, folder / "litert")
        self._onnxruntime = Child(run_onnxruntime, _RUNTIME, folder / "onnxruntime")

    def judge(self, case: FuzzCase) -> Verdict:
        """Return the verdict on a case."""
        by_path = case.number % 4 == 0
        request = Request(case.data, case.options, self._folder, by_path, case.is_bundle)
        try:
            outcome: Outcome = self._converter.call(request)
        except DiedError as error:
            left = sorted(path.name for path in (self._folder / "out").glob("*"))
            clear_folder(self._folder)
            return Verdict("converter died", f"{error}\nleft: {left}", 10.0)
        kind, text = outcome.kind, outcome.text
        if kind == "output error" and case.is_bundle:
            kind = "refused"  # the system does not allow these file names
        if kind == "converted":
            kind, text = self._compare(case, outcome)
        return Verdict(kind, text, outcome.seconds, outcome.peak)

    def _compare(self, case: FuzzCase, outcome: Outcome) -> tuple[str, str]:
        if not outcome.model:
            return "bundle converted", ""
        # Other types than those of the file change the results, so they are not compared.
        options = ConversionOptions(**case.options).with_target()
        is_same = not options.float16 and options.quantization not in ("float", "symmetric")
        numbers, refusal = self._run_litert(case) if is_same else (None, "")
        kind, text = self._run_onnxruntime(case, outcome, numbers)
        if kind in _DIFFERENCES and numbers is not None:
            kind = self._explain(case, numbers) or kind
        if kind == "loaded":
            kind = refusal or "not compared"
        return f"converted, {kind}", text

    def _run_litert(self, case: FuzzCase, *, again: bool = False) -> tuple[Numbers | None, str]:
        """Return LiteRT's outputs, or None and the reason."""
        try:
            numbers = self._litert.call((case.data, case.seed.runs, again))
        except DiedError:
            return None, "LiteRT crashes"
        return (None, "LiteRT refuses") if isinstance(numbers, str) else (numbers, "")

    def _run_onnxruntime(
        self, case: FuzzCase, outcome: Outcome, numbers: Numbers | None
    ) -> tuple[str, str]:
        bound = bound_of_file(case.data, case.seed.bound)
        request = Converted(outcome.model, outcome.orders, numbers, bound)
        try:
            kind, text = self._onnxruntime.call(request)
        except DiedError as error:
            return "ONNX Runtime crashes", str(error)
        return kind, text

    def _explain(self, case: FuzzCase, numbers: Numbers) -> str:
        """Return the known reason of a difference, or ""."""
        again, _ = self._run_litert(case, again=True)
        if again is None or not _are_equal(numbers, again):
            return "differs, as LiteRT from itself"
        if again.extreme:
            return "differs in extreme numbers"
        if again.amplifier:
            return "differs by amplified steps"
        if case.data == case.seed.data:
            return "differs, as the seed"
        if case.seed.data[:2] == b"PK":
            return ""
        seed = case._replace(data=case.seed.data)
        kind = self.judge(seed).kind.removeprefix("converted, ")
        return "differs, as the seed" if kind.startswith(_DIFFERENCES) else ""

    def close(self) -> None:
        """End all children."""
        for child in (self._converter, self._litert, self._onnxruntime):
            child.close()


def _are_equal(one: Numbers, other: Numbers) -> bool:
    pairs = zip(chain(*one.want), chain(*other.want), strict=True)
    return all(a.tobytes() == b.tobytes() for a, b in pairs)


class Record:
    """The counts of a part of a campaign, and the faults, in a folder."""

    def __init__(self, folder: Path, fields: dict[str, Any]) -> None:
        self._folder, self._fields = folder, fields
        self.counts: Counter[str] = Counter()
        self._classes: Counter[str] = Counter()
        self._next_number = 0
        self._seconds, self._peak = (0.0, 0), (0, 0)

    def add(self, case: FuzzCase, verdict: Verdict) -> None:
        """Count a case; keep its file if it is a fault."""
        self._next_number = case.number + 1
        self.counts[f"{case.set_name}: {verdict.kind}"] += 1
        self._seconds = max(self._seconds, (round(verdict.seconds, 2), case.number))
        self._peak = max(self._peak, (verdict.peak, case.number))
        if not verdict.is_fault:
            return
        name = name_fault_class(case, verdict)
        self._classes[name] += 1
        if self._classes[name] > _MOST_FILES:
            return
        stem = f"{case.number}-{re.sub(r'[^A-Za-z0-9]+', '_', name)[:80]}"
        (self._folder / f"{stem}.tflite").write_bytes(case.data)
        entry = {
            "class": name,
            "number": case.number,
            "seed": case.seed.name,
            "options": dict(case.options),
            "text": verdict.text[:4000],
            "file": stem,
        }
        with (self._folder / "faults.jsonl").open("a") as file:
            file.write(json.dumps(entry) + "\n")

    def write(self) -> None:
        """Write all counts."""
        fields = {
            **self._fields,
            "cases": self.counts.total(),
            "next": self._next_number,
            "most seconds": self._seconds,
            "most bytes": self._peak,
            "counts": dict(self.counts.most_common()),
            "faults": dict(self._classes.most_common()),
        }
        temporary = self._folder / "record.new"
        temporary.write_text(json.dumps(fields, indent=1))
        temporary.replace(self._folder / "record.json")


def name_fault_class(case: FuzzCase, verdict: Verdict) -> str:
    """Return the class of a fault: its kind, and the operator of the seed or the message."""
    if "differs" in verdict.kind or "fails" in verdict.kind:
        return f"{verdict.kind}: {' '.join(case.seed.name.split()[:2])}"
    if verdict.kind.startswith(("uncaught", "memory", "leftover", "descriptor")):
        return verdict.kind
    words = re.sub(r"\d+|'[^']*'|\([^)]*\)|0x\w+", "#", verdict.text.strip())
    return f"{verdict.kind}: {words.splitlines()[-1][:80] if words else ''}"


def run_cases(campaign: str, numbers: range, seconds: float, folder: Path) -> Record:
    """Judge cases; return the record."""
    folder.mkdir(parents=True, exist_ok=True)
    record = Record(folder, {"campaign": campaign, "step": numbers.step})
    until, written = time.monotonic() + seconds, time.monotonic()
    with tempfile.TemporaryDirectory(dir=FOLDER) as place:
        judge = Judge(Path(place))
        for number in numbers:
            if time.monotonic() > until:
                break
            case = make_case(campaign, number)
            record.add(case, judge.judge(case))
            if time.monotonic() > written + _RECORD_SECONDS:
                record.write()
                written = time.monotonic()
        judge.close()
    record.write()
    return record


if __name__ == "__main__":
    first, step, last = map(int, sys.argv[2:5])
    run_cases(sys.argv[1], range(first, last, step), float(sys.argv[5]), Path(sys.argv[6]))

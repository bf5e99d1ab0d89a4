"""Bring budgets.json and the texts in data/ up to date: python -m tests.golden.

Budgets are lowered, never raised. To let a model cost more, delete its line first, so that the
change is visible in the commit. The models in the folder TFLITE2ONNX_ZOO are included.
"""

from __future__ import annotations

import sys
from dataclasses import replace

from tests.golden.closeness import ConvertedModel, compare_with_litert
from tests.golden.dump import dump
from tests.golden.isolated import Crashed, run_isolated
from tests.golden.records import (
    DIFFER,
    EQUAL,
    UNKNOWN,
    Case,
    Record,
    Records,
    assets,
    is_pictured,
    measure,
    zoo,
)
from tflite2onnx import Result


def main() -> int:
    """Update all files; return 1 if a model is worse than its record."""
    known = Records.load()
    kept: dict[Case, Record] = {}
    faults: list[str] = []
    for case in (*assets(), *zoo()):
        data = case.path.read_bytes()
        record, result = measure(data)
        if result is not None:
            record = replace(record, numbers=_judge_numbers(data, result))
            _write_text(case, result)
        old = known.record_of(case, record.sha256)
        worse = old.changes(record, fused=known.fused_here)[0] if old else []
        if (old is None or old.numbers == EQUAL) and record.numbers == DIFFER:
            worse.append("its numbers are not those of LiteRT")
        faults += [f"{case.name}: {change}" for change in worse]
        kept[case] = old if old and worse else record
    known.with_records(kept).write()
    sys.stdout.writelines(f"{fault}\n" for fault in faults)
    return bool(faults)


def _judge_numbers(data: bytes, result: Result) -> str:
    try:
        run_isolated(compare_with_litert, data, ConvertedModel.from_result(result))
    except AssertionError:
        return DIFFER
    except (RuntimeError, Crashed):
        return UNKNOWN
    return EQUAL


def _write_text(case: Case, result: Result) -> None:
    """Write the text of a model's graph, or remove a text that is no longer recorded."""
    if is_pictured(case, result):
        case.golden.parent.mkdir(parents=True, exist_ok=True)
        case.golden.write_text(dump(result.model))
    else:
        case.golden.unlink(missing_ok=True)


if __name__ == "__main__":
    sys.exit(main())

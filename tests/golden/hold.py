"""What is asked of a model's conversion, each as an assertion that says what to do."""

from __future__ import annotations

import difflib

from tests.golden.closeness import Converted, judge, load
from tests.golden.dump import dump
from tests.golden.isolated import isolated
from tests.golden.records import Case, Records, measured
from tflite2onnx import convert

UPDATE = "python -m tests.golden"


def hold_text(case: Case) -> None:
    """Compare the ONNX graph with the text that is kept of it."""
    text = dump(convert(case.path).model)
    kept = case.golden.read_text() if case.golden.exists() else ""
    lines = difflib.unified_diff(
        kept.splitlines(), text.splitlines(), "kept", "made", n=1, lineterm=""
    )
    difference = "\n".join(lines)
    if difference:
        message = f"the graph of {case.name} has changed; if for the better: {UPDATE}\n{difference}"
        raise AssertionError(message)


def hold_budget(case: Case, records: Records) -> None:
    """Let the model cost what its record says, and not less: a budget has to be lowered at once."""
    now, _ = measured(case.path.read_bytes())
    known = records.of(case, now.sha256)
    if known is None:
        message = f"nothing is known of {case.name} with these contents: {UPDATE}"
        raise AssertionError(message)
    worse, better = known.changes(now, fused=records.fused_here)
    if worse:
        message = f"{case.name} may not get worse: {'; '.join(worse)}"
        raise AssertionError(message)
    if better:
        message = f"{case.name} got better, so lower its budget ({UPDATE}): {'; '.join(better)}"
        raise AssertionError(message)


def hold_numbers(case: Case) -> None:
    """Compare what ONNX Runtime makes of random inputs with what LiteRT does."""
    isolated(judge, case.path.read_bytes(), Converted.of(convert(case.path)))


def hold_difference(case: Case) -> None:
    """Be sure that numbers which are known to differ from LiteRT's still do."""
    try:
        hold_numbers(case)
    except AssertionError:
        return
    message = f"{case.name} gives LiteRT's numbers now, so say so: {UPDATE}"
    raise AssertionError(message)


def hold_loaded(case: Case) -> None:
    """Have ONNX Runtime take a model that LiteRT cannot run."""
    isolated(load, Converted.of(convert(case.path)))

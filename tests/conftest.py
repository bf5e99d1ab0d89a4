"""Bugs are errors; the end of a test run lists the programs for which tests were skipped."""

from __future__ import annotations

import re
import warnings
from collections import Counter

import pytest

_MISSING = re.compile(r"[\w-]+ is not installed \(apt-get install [\w-]+\)")


@pytest.fixture(autouse=True)
def make_errors_of_bugs() -> None:
    """Make errors of warnings of bugs; pytest restores the filters of warnings after a test."""
    from tflite2onnx.errors import InternalWarning  # noqa: PLC0415 - after coverage has begun

    warnings.simplefilter("error", InternalWarning)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the number of tests that each missing program skipped."""
    skipped = terminalreporter.stats.get("skipped", [])
    reasons = Counter(found for each in skipped for found in _MISSING.findall(str(each.longrepr)))
    for reason, number in reasons.items():
        terminalreporter.write_line(f"{reason}: skipped tests: {number}")

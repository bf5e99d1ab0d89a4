"""The end of a test run lists the missing programs for which tests were skipped."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

_MISSING = re.compile(r"[\w-]+ is not installed \(apt-get install [\w-]+\)")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the number of tests that each missing program skipped."""
    skipped = terminalreporter.stats.get("skipped", [])
    reasons = Counter(found for each in skipped for found in _MISSING.findall(str(each.longrepr)))
    for reason, number in reasons.items():
        terminalreporter.write_line(f"{reason}: skipped tests: {number}")

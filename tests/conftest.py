"""Options of a test run: which level of the tests is run. Bugs are errors.

The end of a run says which sample of the tests was drawn, and for which programs tests were
skipped.
"""

from __future__ import annotations

import os
import re
import shlex
import warnings
from collections import Counter
from collections.abc import Generator

import pytest
from hypothesis import HealthCheck, settings

pytest.register_assert_rewrite("tests.support", "tests.conformance", "tests.golden", "tests.fuzz")

from tests.support.levels import CASES, SEED, draw, find_commit  # noqa: E402 - rewritten
from tests.support.shuffle import shuffle_groups  # noqa: E402 - rewritten

# A busy machine must not fail tests: they have no time limits.
settings.register_profile("tests", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("tests")
_LONGEST = 1800  # seconds that a test of the second level may take on a busy machine
_MISSING = re.compile(r"[\w-]+ is not installed \(apt-get install [\w-]+\)")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of the two levels."""
    group = parser.getgroup("levels")
    group.addoption("--all", action="store_true", help="run all tests and cases")
    text = "what draws the sample of the cases without --all; by default the hash of the commit"
    group.addoption("--draw", metavar="SEED", help=text)


def pytest_configure(config: pytest.Config) -> None:
    """Store the seed for this process and all processes that the tests start."""
    line = "nightly(cases=0): the first level draws this number of the function's cases"
    config.addinivalue_line("markers", line)
    if not hasattr(config, "workerinput"):  # workers inherit the environment
        os.environ[SEED] = "" if config.option.all else config.option.draw or find_commit()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None]:
    """Run a test with the passes and forms of each group in an order that the seed draws."""
    with pytest.MonkeyPatch.context() as patch:
        shuffle_groups(patch, f"{os.environ[SEED]} {item.nodeid}")
        return (yield)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the cases of this level."""
    functions: dict[str, list[pytest.Item]] = {}
    for item in items:
        functions.setdefault(item.nodeid.partition("[")[0], []).append(item)
        if item.get_closest_marker("nightly"):
            item.add_marker(pytest.mark.timeout(_LONGEST))
    chosen = {
        item
        for name, cases in functions.items()
        for item in draw(cases, _count(cases[0]), name, [*map(_list_values, cases)])
    }
    config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
    items[:] = [item for item in items if item in chosen]


def _list_values(item: pytest.Item) -> set[tuple[str, str]]:
    """Return the parameters of a case, each with its value."""
    parameters = item.callspec.params if hasattr(item, "callspec") else {}
    return {(name, repr(value)) for name, value in parameters.items()}


def _count(item: pytest.Item) -> int:
    """Return the number of cases that the first level draws."""
    marker = item.get_closest_marker("nightly")
    if marker is None:
        return CASES
    count: int = marker.kwargs.get("cases", 0)
    return count


@pytest.fixture(autouse=True)
def make_errors_of_bugs() -> None:
    """Make errors of warnings of bugs; pytest restores the filters of warnings after a test."""
    from tflite2onnx.errors import InternalWarning  # noqa: PLC0415 - after coverage has begun

    warnings.simplefilter("error", InternalWarning)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print what drew the sample, how to repeat failures, and what missing programs skipped."""
    if seed := os.environ[SEED]:
        terminalreporter.write_line(f"the sample of this commit: repeat it with --draw {seed}")
    level = f"--draw {seed}" if seed else "--all"
    for report in terminalreporter.stats.get("failed", [])[:20]:
        terminalreporter.write_line(f"repeat it: pytest {level} {shlex.quote(report.nodeid)}")
    skipped = terminalreporter.stats.get("skipped", [])
    reasons = Counter(found for each in skipped for found in _MISSING.findall(str(each.longrepr)))
    for reason, number in reasons.items():
        terminalreporter.write_line(f"{reason}: skipped tests: {number}")

"""Tests that need a missing program are skipped, and the end of the test run names the program."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.browser import evaluate_script

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("options", [[], ["-n", "2"]])
def test_missing_browser_skips_tests_and_is_named_at_the_end(
    tmp_path: Path, options: list[str]
) -> None:
    """The test that needs the browser is skipped, and the reason is printed at the end."""
    test = "tests/support/test_missing_programs.py"
    words = [sys.executable, "-m", "pytest", "--no-cov", "-p", "no:cacheprovider", *options]
    environment = {**os.environ, "PATH": str(tmp_path)}
    done = subprocess.run(
        [*words, test, "-k", "needs_a_browser or needs_nothing"],
        cwd=ROOT, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    last = "Chromium is not installed (apt-get install chromium): skipped tests: 1"
    assert last in done.stdout.splitlines()
    assert sorted(done.stdout.split()[done.stdout.split().index("[100%]") - 1]) == [".", "s"]


def test_title_of_a_page_needs_a_browser(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text("<!doctype html><title>A page</title>")
    assert evaluate_script(page, "return page.title", width=600) == "A page"


def test_folder_of_the_project_needs_nothing() -> None:
    assert ROOT.is_dir()

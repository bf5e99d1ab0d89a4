"""Fixtures of the tests of damaged files."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.fuzz.campaign import Judge


@pytest.fixture(scope="package")
def judge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Judge]:
    """Return a judge: the converter and both runtimes in child processes."""
    judge = Judge(tmp_path_factory.mktemp("judge"))
    yield judge
    judge.close()

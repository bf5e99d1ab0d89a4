"""Scripts as modules: they import each other from their own folder."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

SCRIPTS = Path(__file__).parents[2] / "scripts"


@pytest.fixture
def script(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return the script of a test module: `test_latency` tests scripts/latency.py."""
    monkeypatch.syspath_prepend(SCRIPTS)
    return import_module(request.module.__name__.rpartition(".test_")[2])

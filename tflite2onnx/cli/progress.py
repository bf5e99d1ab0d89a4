"""A progress bar on the terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

Progress = Callable[[int, int], None]  # is called with the number done, and the total


@contextmanager
def show_progress(unit: str, *, quiet: bool) -> Iterator[Progress | None]:
    """Yield an update function of a bar; None if quiet, not on a terminal, or without tqdm."""
    if quiet or not sys.stderr.isatty():
        yield None
        return
    try:
        tqdm: Any = import_module("tqdm").tqdm
    except ImportError:
        yield None
        return
    with tqdm(unit=f" {unit}", leave=False, file=sys.stderr) as bar:

        def progress(done: int, total: int) -> None:
            bar.total = total
            bar.update(done - bar.n)
            bar.refresh()

        yield progress


@contextmanager
def hide_progress() -> Iterator[None]:
    """Hide all progress bars while lines are printed."""
    tqdm: Any = getattr(sys.modules.get("tqdm"), "tqdm", None)
    if tqdm is None:
        yield
        return
    with tqdm.external_write_mode(file=sys.stderr):
        yield

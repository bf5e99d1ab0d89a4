"""Progress on the terminal: a bar of tqdm, or numbers if it is not installed."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from typing import Any

_ERASE = "\r\x1b[K"  # erases the line of a terminal
Progress = Callable[[int, int], None]  # called with the number of finished jobs, and of all jobs


@contextmanager
def show_progress(unit: str, *, quiet: bool) -> Iterator[Progress | None]:
    """Yield an update function; None if quiet, or not on a terminal."""
    if quiet or not sys.stderr.isatty():
        yield None
        return
    try:
        tqdm: Any = import_module("tqdm").tqdm
    except ImportError:
        yield partial(_print_numbers, unit)
        sys.stderr.write(_ERASE)
        return
    with tqdm(unit=f" {unit}", leave=False, file=sys.stderr) as bar:

        def print_progress(done: int, total: int) -> None:
            bar.total = total
            bar.update(done - bar.n)
            bar.refresh()

        yield print_progress


@contextmanager
def hide_progress() -> Iterator[None]:
    """Hide all progress bars while lines are printed."""
    tqdm: Any = getattr(sys.modules.get("tqdm"), "tqdm", None)
    if tqdm is None:
        sys.stderr.write(_ERASE if sys.stderr.isatty() else "")
        yield
        return
    with tqdm.external_write_mode(file=sys.stderr):
        yield


def _print_numbers(unit: str, done: int, total: int) -> None:
    sys.stderr.write(f"{_ERASE}{done:,} of {total:,} {unit}")
    sys.stderr.flush()

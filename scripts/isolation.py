"""Functions that run in processes of their own, because LiteRT may end the process.

Other scripts import this module.
"""

import multiprocessing
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import TypeVar

Result = TypeVar("Result")


def in_new_process(function: Callable[..., Result], *arguments: object) -> Result:
    """Return the result of a function in a process of its own."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(function, *arguments).result()


def print_table(
    columns: Sequence[str], describe: Callable[[Path], Sequence[str]], paths: Iterable[str]
) -> None:
    """Print a table in Markdown, with a row for each model: its name, and the cells of `describe`.

    `describe` returns fewer cells than there are columns if it cannot describe the model.
    """
    print(f"| {' | '.join(columns)} |\n{'| --- ' * len(columns)}|")
    for path in map(Path, paths):
        try:
            cells = [path.stem, *in_new_process(describe, path)]
        except BrokenProcessPool:
            cells = [path.stem, "LiteRT crashes"]
        cells += [""] * (len(columns) - len(cells))
        print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    print(__doc__)

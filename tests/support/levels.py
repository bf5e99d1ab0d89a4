"""Two levels of tests: the first draws a sample of the cases by a seed, the second runs all cases.

`tests/conftest.py` stores the seed in the environment, so that all processes of a run draw the same
cases. Outside of a test run all cases are run.
"""

from __future__ import annotations

import os
import random
import subprocess
from collections.abc import Sequence, Set as AbstractSet
from pathlib import Path
from typing import TypeVar

SEED = "TFLITE2ONNX_TEST_SEED"
# The part of the other forms of a case (layouts, sessions) that the first level runs.
OTHER_FORMS = 0.1
# The most cases of one test function that the first level runs.
CASES = 8

_T = TypeVar("_T")


def find_commit() -> str:
    """Return the hash of the checkout's commit; "0" outside of a repository."""
    command = ["git", "rev-parse", "--short=12", "HEAD"]
    try:
        done = subprocess.run(
            command, cwd=Path(__file__).parent, capture_output=True, text=True, check=False
        )
    except OSError:
        return "0"
    return done.stdout.strip() or "0"


def find_seed() -> str:
    """Return the seed of this run, which is the hash of the commit if it was not chosen."""
    return os.environ.get(SEED) or find_commit()


def runs_all() -> bool:
    """Return whether all cases are run."""
    return not os.environ.get(SEED)


def draw(
    cases: Sequence[_T], count: int, name: str, values: Sequence[AbstractSet[object]] = ()
) -> list[_T]:
    """Return the cases of this run in their order: all, or `count` drawn by the seed and `name`.

    `values` are those of each case's parameters. The next case is one of those with the most values
    that no case before has: a fault of one type, or of one operator, is missed less often.
    """
    if runs_all() or len(cases) <= count:
        return [*cases]
    numbers = random.Random(f"{name} {os.environ[SEED]}")
    left = numbers.sample(range(len(cases)), len(cases))
    chosen, seen = list[int](), set[object]()
    while len(chosen) < count:
        place = max(left, key=lambda place: len(values[place] - seen)) if values else left[0]
        left.remove(place)
        chosen.append(place)
        seen |= values[place] if values else set()
    return [cases[place] for place in sorted(chosen)]


def draw_forms(forms: Sequence[_T], name: str) -> list[_T]:
    """Return the first form of a case, and a part of its other forms; all if all cases are run."""
    numbers = random.Random(f"{name} {os.environ.get(SEED)}")
    return [
        form
        for place, form in enumerate(forms)
        if runs_all() or not place or numbers.random() < OTHER_FORMS
    ]

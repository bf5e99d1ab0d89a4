"""Tests of the models in the folder TFLITE2ONNX_ZOO; without the variable there are none.

A model with a record must keep to its record. Any other model must be converted, and must give
LiteRT's numbers.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import partial
from hashlib import sha256

import pytest

from tests.golden.hold import (
    check_budget,
    check_difference,
    check_integer_kernels,
    check_loaded,
    check_numbers,
    compare_text,
    hold_exactness,
)
from tests.golden.kernels import integer
from tests.golden.records import DIFFER, EQUAL, UNKNOWN, ZOO, Case, Records, zoo

__test__ = ZOO in os.environ

Check = Callable[[Case], None]

RECORDS = Records.load()
NUMBERS: dict[str, Check] = {EQUAL: check_numbers, DIFFER: check_difference, UNKNOWN: check_loaded}


def list_checks(case: Case) -> Iterator[tuple[str, Check]]:
    """Yield the checks of a model, by name."""
    record = RECORDS.record_of(case, sha256(case.path.read_bytes()).hexdigest())
    if record is None:
        yield "exactness", hold_exactness
        yield "numbers", check_numbers
        return
    yield "budget", partial(check_budget, records=RECORDS)
    if integer(record.kernels):
        yield "integers", partial(check_integer_kernels, records=RECORDS)
        yield "exactness", hold_exactness
    if not record.error:
        yield "numbers", NUMBERS[record.numbers]
        if case.golden.exists():
            yield "graph", compare_text


CASES = zoo() if __test__ else []


def test_folder_of_the_zoo_has_models() -> None:
    assert CASES, f"{ZOO} names {os.environ[ZOO]}, where there is no model"


@pytest.mark.parametrize(
    ("case", "check"),
    [
        pytest.param(case, check, id=f"{case.name}-{name}")
        for case in CASES
        for name, check in list_checks(case)
    ],
)
def test_model_equals_litert_as_closely_as_recorded(case: Case, check: Check) -> None:
    check(case)

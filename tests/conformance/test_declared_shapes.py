"""No declared shape of a computed tensor makes a conversion fail or its result wrong."""

from __future__ import annotations

import pytest

from tests.conformance.declared_shapes import (
    BELIEVED,
    READERS,
    judge_declared_shapes,
    list_readers,
)
from tests.conformance.rows import ROWS
from tests.golden.isolated import run_isolated
from tests.support.levels import draw

# LiteRT's kernel writes past the end of a buffer of the declared size.
UNSAFE = frozenset({"aeq.hadamard_rotation"})
CODES = [code for code, row in ROWS.items() if not row.referred and code not in UNSAFE]


@pytest.mark.parametrize("code", CODES)
def test_wrong_declared_shapes_change_no_result(code: str) -> None:
    faults: list[str] = run_isolated(judge_declared_shapes, code)
    assert not faults


def test_only_listed_operators_read_declared_shapes() -> None:
    """Shape inference reads no declared shape but those of the table."""
    drawn = draw([*ROWS], 40, "readers of declared shapes")
    found = {code: list_readers(code) - READERS.keys() for code in drawn}
    assert not {code: readers for code, readers in found.items() if readers}


def test_tables_have_only_known_operators() -> None:
    assert ROWS.keys() >= {*BELIEVED, *UNSAFE}

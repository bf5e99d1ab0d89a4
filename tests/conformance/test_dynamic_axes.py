"""Every axis of the inputs of every operator is dynamic, or has a reason in `rows.fixed`.

Operators that LiteRT has no kernel for are not here: nothing resizes them.
"""

from __future__ import annotations

import pytest

from tests.conformance.dynamic_axes import Finding, judge_dynamic_axes
from tests.conformance.rows import ROWS
from tests.conformance.rows.fixed import DECLARED, ENLARGED, FIXED, NO_SIZES, TOGETHER, UNSAFE
from tests.golden.isolated import run_isolated

CODES = [code for code, row in ROWS.items() if not row.referred]


@pytest.mark.parametrize("code", CODES)
def test_dynamic_axes_equal_litert_at_three_sizes(code: str) -> None:
    """Each axis is dynamic and agrees with LiteRT at three sizes, or a table says why not."""
    findings: list[Finding] = run_isolated(judge_dynamic_axes, code)
    fixed = {each.name: each.text for each in findings if each.text}
    assert fixed.keys() == FIXED.get(code, {}).keys(), fixed


def test_tables_have_only_known_operators() -> None:
    known = {*CODES}
    assert {*FIXED, *UNSAFE, *DECLARED, *TOGETHER, *ENLARGED, *NO_SIZES} <= known

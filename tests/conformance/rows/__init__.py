"""The table of all operators."""

from __future__ import annotations

from tests.conformance.rows import elementwise, indices, layers, moves, others, recurrent
from tests.conformance.table import Row

_MODULES = (elementwise, indices, layers, moves, others, recurrent)

ROWS: dict[str, Row] = {row.code: row for module in _MODULES for row in module.ROWS}

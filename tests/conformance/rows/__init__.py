"""The table of all operators."""

from __future__ import annotations

from tests.conformance.rows import (
    custom,
    elementwise,
    flex,
    images,
    indices,
    layers,
    moves,
    others,
    recurrent,
    signal,
    state,
)
from tests.conformance.table import Row

_MODULES = (
    custom, elementwise, flex, images, indices, layers, moves, others, recurrent, signal, state,
)  # fmt: skip

ROWS: dict[str, Row] = {row.code: row for module in _MODULES for row in module.ROWS}

"""The table of all operators, joined from the modules of this folder."""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

from tests.conformance.table import Row

_MODULES = [import_module(f"{__name__}.{each.name}") for each in iter_modules(__path__)]

ROWS: dict[str, Row] = {row.code: row for module in _MODULES for row in getattr(module, "ROWS", ())}

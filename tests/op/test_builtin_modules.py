"""The table of modules lists the codes of the classes in each module."""

from __future__ import annotations

from typing import Any

import pytest

from scripts.make_module_table import check_module_table
from tflite2onnx.errors import RegistrationError
from tflite2onnx.extensions import list_packages, list_paths
from tflite2onnx.op import OPERATORS
from tflite2onnx.op.builtin_modules import MODULE_OF
from tflite2onnx.op.registry import check_class

CONCAT = OPERATORS["CONCATENATION"].__module__.removeprefix("tflite2onnx.op.")


def test_every_operator_is_listed() -> None:
    check_module_table()
    for code, cls in OPERATORS.items():
        assert code in check_class(cls).codes


def test_no_operator_is_listed_twice() -> None:
    codes = [
        code
        for modules in list_packages().values()
        for each in modules.values()
        for code in each.split()
    ]
    assert len(codes) == len(set(codes)) == len(OPERATORS)


def test_operator_without_an_entry_in_the_table_is_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(MODULE_OF, CONCAT, MODULE_OF[CONCAT].replace("TILE ", ""))
    reason = f"TILE must be listed in .* for {CONCAT}, got no entry: run python scripts/"
    with pytest.raises(RegistrationError, match=reason):
        check_module_table()


def test_listed_operator_without_a_class_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(MODULE_OF, CONCAT, f"{MODULE_OF[CONCAT]} STAPLE")
    reason = rf"{CONCAT} must have a class with STAPLE in `codes`, as .* lists it there, got none"
    with pytest.raises(RegistrationError, match=reason):
        check_module_table()
    operators: Any = type(OPERATORS)
    with pytest.raises(RegistrationError, match=reason):
        operators(list_paths("tflite2onnx.op", MODULE_OF)).get("STAPLE")

"""tflite2onnx/extensions.py: operators and passes that packages offer."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from copy import copy
from types import ModuleType

import numpy as np
import pytest

from tests.references import check_reference
from tests.support import Build
from tflite2onnx import contrib, convert, extensions, supported_operators
from tflite2onnx.errors import InternalError, RegistrationError, UnsupportedOperators
from tflite2onnx.extensions import OfferedPass, offer_operators, offer_passes
from tflite2onnx.graph import Graph, Op
from tflite2onnx.op import OPERATORS
from tflite2onnx.operators import (
    Builder,
    Category,
    Operator,
    Value,
    View,
)
from tflite2onnx.passes import apply_offered


@pytest.fixture(autouse=True)
def _offers(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Forget the offers of a test."""
    monkeypatch.setattr(OPERATORS, "_classes", {})
    for name in ("_offered", "_passes"):
        monkeypatch.setattr(extensions, name, copy(vars(extensions)[name]))
    paths = {**extensions.MODULE_PATHS}
    yield
    extensions.MODULE_PATHS.clear()
    extensions.MODULE_PATHS.update(paths)


def build_model(code: str) -> Build:
    """Return a model with one custom operator."""
    m = Build()
    m.output(*m.custom(code, [m.input([2, 3])], [[2, 3]], {}))
    return m


def add_module(monkeypatch: pytest.MonkeyPatch, name: str, *, modules: dict[str, object]) -> None:
    """Make a module with these names importable; no package has a file of it."""
    module = ModuleType(name)
    vars(module).update(modules)
    monkeypatch.setitem(sys.modules, name, module)


def test_offered_operator_is_converted(monkeypatch: pytest.MonkeyPatch) -> None:
    class Halve(Operator):
        codes = ("Halve",)
        category = Category.TRANSPARENT
        tflite = "... -> ..."

        def emit(self, g: Builder, _y: View, x: View) -> Value:
            return g.Div(x, g.scalar(2.0, x.dtype))

    Halve.__module__ = "halves.operators"
    offer_operators("halves", {"operators": "Halve"})  # the module does not exist yet
    assert "Halve" in supported_operators()
    add_module(monkeypatch, "halves.operators", modules={"Halve": Halve})
    x = np.ones((2, 3), np.float32)
    check_reference(build_model("Halve"), [x], [x / 2], tolerance=0)


def test_one_package_offers_an_operator() -> None:
    with pytest.raises(RegistrationError, match=r"one package must offer ADD, got tflite2onnx\.op"):
        offer_operators("halves", {"operators": "ADD"})


@pytest.mark.parametrize("receives", ["models", "graphs"])
@pytest.mark.parametrize("when", [{"codes": "Dou"}, {"dtypes": "FLOAT32"}])
def test_offered_pass_receives_models_with_its_operators_or_types(
    monkeypatch: pytest.MonkeyPatch, receives: str, when: dict[str, str]
) -> None:
    def change(_value: object) -> object:
        raise ZeroDivisionError("seen")

    add_module(monkeypatch, "halves.change", modules={"change": change})
    offer_passes(OfferedPass("halves.change", receives, **when))
    with pytest.raises(InternalError, match="seen"):
        convert(build_model("Double").bytes())


@pytest.mark.parametrize("when", [{"codes": "Tri"}, {"dtypes": "INT8 INT16"}, {}])
def test_offered_pass_is_not_imported_for_other_models(when: dict[str, str]) -> None:
    offer_passes(OfferedPass("halves.missing", "graphs", **when))
    graph = Graph("", (), (), ())
    assert apply_offered("graphs", graph) is graph


def test_equal_offers_are_one() -> None:
    before = {*supported_operators()}, [*extensions.list_offered_passes("models")]
    contrib.offer()
    assert before == ({*supported_operators()}, [*extensions.list_offered_passes("models")])


def test_pass_receives_models_or_graphs() -> None:
    with pytest.raises(RegistrationError, match=r"must receive .models. or .graphs., got 'nodes'"):
        offer_passes(OfferedPass("halves.change", "nodes"))


def test_reason_of_an_offered_pass_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def explain(op: Op) -> str:
        return f"{op.code} must be halved twice" if op.code == "Halve" else ""

    add_module(
        monkeypatch, "halves.change", modules={"explain": explain, "change": lambda model: model}
    )
    offer_passes(
        OfferedPass("halves.change", "models", codes="Hal Dou", explain="halves.change:explain")
    )
    with pytest.raises(UnsupportedOperators, match="Halve must be halved twice"):
        convert(build_model("Halve").bytes())
    with pytest.raises(UnsupportedOperators, match="Double"):
        convert(build_model("Double").bytes())

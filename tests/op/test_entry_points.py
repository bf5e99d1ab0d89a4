"""Classes that installed packages offer as entry points, in this process."""

from __future__ import annotations

from importlib.metadata import EntryPoint, EntryPoints
from typing import TYPE_CHECKING

import pytest

from tflite2onnx.errors import OperatorError, RegistrationError
from tflite2onnx.op import registry, supported_operators
from tflite2onnx.op.registry import GROUP, OFFERS, Key, find_class, find_entry_points

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ABS = EntryPoint("Mystery", "tflite2onnx.op.elementwise.math:Unary", GROUP)
ABSENT = EntryPoint("Mystery", "tflite2onnx.op.no_module:Mystery", GROUP)
OTHER = EntryPoint("Mystery", "tflite2onnx.op.base:Operator", GROUP)
MYSTERY = Key("Mystery", custom=True)


@pytest.fixture
def offer(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Return a function that replaces the entry points of installed packages."""

    def replace_points(*points: EntryPoint) -> None:
        monkeypatch.setattr(registry, "entry_points", lambda: EntryPoints(points))
        find_entry_points.cache_clear()

    yield replace_points
    find_entry_points.cache_clear()


def test_a_point_that_is_found_twice_counts_once(offer: Callable[..., None]) -> None:
    offer(OTHER, OTHER)
    assert find_entry_points() == {MYSTERY: (OTHER,)}
    assert find_class(Key("Enigma", custom=True)) is None


def test_refuses_an_operator_that_several_packages_offer(offer: Callable[..., None]) -> None:
    offer(OTHER, ABSENT)
    with pytest.raises(
        OperatorError,
        match=r"one package must offer its class, got several: .*base:Ope",
    ):
        find_class(MYSTERY)


@pytest.mark.parametrize("point", [ABSENT, ABS, OTHER])
def test_a_class_that_cannot_be_loaded_is_named(
    offer: Callable[..., None], point: EntryPoint
) -> None:
    offer(point)
    with pytest.raises(OperatorError, match=f"its class {point.value} of a package cannot be load"):
        find_class(MYSTERY)


def test_functions_that_offer_are_called_once(offer: Callable[..., None]) -> None:
    point = EntryPoint("contrib", "tflite2onnx.contrib:offer", OFFERS)
    before = supported_operators()
    offer(point, point)
    assert supported_operators() == before
    assert find_entry_points() == {}


@pytest.mark.parametrize("value", ["tflite2onnx.no_module:offer", "tflite2onnx.contrib:PASSES"])
def test_a_function_that_cannot_offer_is_named(offer: Callable[..., None], value: str) -> None:
    offer(EntryPoint("mine", value, OFFERS))
    with pytest.raises(RegistrationError, match=f"{value} of a package, which offers operators"):
        supported_operators()

"""Operators of users: registered by a program, or offered by an installed package.

Registered classes come first, then the classes of packages, then the built-in classes. A package
offers its operators as entry points, because the command line imports no user's program. Entry
points are looked up once, when the first model is converted. A class is imported when a model
contains its operator. Functions that offer operators and passes (`extensions.py`) are called.
"""

from collections.abc import Callable
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import NamedTuple, TypeVar

from tflite2onnx.errors import OperatorError, RegistrationError
from tflite2onnx.op.base import Operator
from tflite2onnx.op.traits import TRAITS
from tflite2onnx.reader.schema import ENUMERATIONS

GROUP, OFFERS = "tflite2onnx.operators", "tflite2onnx.offers"

T = TypeVar("T", bound=type[Operator])


class Key(NamedTuple):
    """The name of an operator; a custom operator may have the name of a builtin operator."""

    code: str
    custom: bool


_registered: dict[Key, type[Operator]] = {}  # one table per process, as imports are


@cache
def list_builtin_codes() -> frozenset[str]:
    """Return the names of the operators of TFLite's schema."""
    return frozenset(ENUMERATIONS["BuiltinOperator"].split())


def _find_key(code: str, *, custom: bool | None) -> Key:
    """Return the key of a builtin operator of this name, else of a custom operator."""
    if not code or not isinstance(code, str):
        raise RegistrationError(f"the operator's name must be a non-empty string, got {code!r}")
    return Key(code, code not in list_builtin_codes() if custom is None else custom)


def register(*codes: str, custom: bool | None = None) -> Callable[[T], T]:
    """Register a class for TFLite operators; it replaces any other class for them.

        @register("MyOperator")
        class MyOperator(Operator): ...

    A name that TFLite's schema contains is a builtin operator, any other name is a custom operator;
    `custom` overrides this. Without names, the class converts the operators of its `codes` or its
    table, `rows`.

    Raises:
        RegistrationError: the class cannot be registered, or another class is registered for a
            name.
    """
    named = [_find_key(code, custom=custom) for code in codes]

    def register_class(cls: T) -> T:
        own = _check_foreign_class(cls).codes
        keys = named or [_find_key(code, custom=custom) for code in own]
        if not keys:
            raise RegistrationError(
                "register must have the names of the operators that the class converts, got none"
            )
        for key in keys:
            if key in _registered:
                raise RegistrationError(
                    f"{key.code} is registered already, for {_find_name(_registered[key])};"
                    f" call unregister({key.code!r}) before you register {_find_name(cls)}"
                )
        _registered.update(dict.fromkeys(keys, cls))
        return cls

    return register_class


def unregister(*codes: str, custom: bool | None = None) -> None:
    """Remove the classes that are registered for names; RegistrationError if a name has none."""
    keys = [_find_key(code, custom=custom) for code in codes]
    for key in keys:
        if key not in _registered:
            raise RegistrationError(f"{key.code} is not registered")
    for key in keys:
        _registered.pop(key, None)


def _check_foreign_class(cls: object) -> type[Operator]:
    """Return the class of a user; RegistrationError also if it has no `emit`."""
    checked = check_class(cls)
    if checked.emit is Operator.emit:
        raise RegistrationError(f"{_find_name(checked)} must have the method emit")
    return checked


def check_class(cls: object) -> type[Operator]:
    """Return the class if it can be registered.

    Raises:
        RegistrationError: it is not a subclass of Operator, or has a hook of a trait without the
        trait, so that no caller would find the hook.
    """
    if not (isinstance(cls, type) and issubclass(cls, Operator)):
        raise RegistrationError(f"{cls!r} must be a subclass of tflite2onnx.operators.Operator")
    for trait in TRAITS:
        hooks = [name for name in vars(trait) if hasattr(cls, name) and not hasattr(Operator, name)]
        if hooks and not issubclass(cls, trait):
            raise RegistrationError(
                f"{_find_name(cls)} must be a subclass of tflite2onnx.operators.{trait.__name__},"
                f" because it has {hooks[0]}"
            )
    return cls


def _find_name(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"


@cache
def find_entry_points() -> dict[Key, tuple[EntryPoint, ...]]:
    """Return the entry points of operators; none is imported. Call those that offer.

    Raises:
        RegistrationError: a function that offers cannot be imported or called.
    """
    found = entry_points()
    points: dict[Key, tuple[EntryPoint, ...]] = {}
    for point in found.select(group=GROUP):
        key = _find_key(point.name, custom=None)
        # Two entries of the import path can lead to the same package.
        if point not in points.get(key, ()):
            points[key] = (*points.get(key, ()), point)
    for point in dict.fromkeys(found.select(group=OFFERS)):
        try:
            point.load()()
        except Exception as error:  # a function of a user can raise any exception
            reason = str(error) or type(error).__name__
            message = f"{_describe_origin(point)}, which offers operators or passes, must run"
            raise RegistrationError(f"{message}, got {reason}") from error
    return points


def find_class(key: Key) -> type[Operator] | None:
    """Return the class of an operator that is registered or offered, else None.

    Raises:
        OperatorError: the class cannot be imported, or several packages offer one.
    """
    if key in _registered:
        return _registered[key]
    points = find_entry_points().get(key, ())
    if len(points) > 1:
        origins = ", ".join(map(_describe_origin, points))
        raise OperatorError(f"one package must offer its class, got several: {origins}")
    return _load_class(points[0]) if points else None


@cache
def _load_class(point: EntryPoint) -> type[Operator]:
    try:
        return _check_foreign_class(point.load())
    except Exception as error:  # an import can raise any exception
        reason = str(error) or type(error).__name__
        message = f"its class {_describe_origin(point)} cannot be loaded: {reason}"
        raise OperatorError(message) from error


def _describe_origin(point: EntryPoint) -> str:
    package = point.dist.name if point.dist else "a package"
    return f"{point.value} of {package}"


def list_known_keys() -> list[Key]:
    """Return the keys of all registered and offered classes."""
    return list(dict.fromkeys([*_registered, *find_entry_points()]))

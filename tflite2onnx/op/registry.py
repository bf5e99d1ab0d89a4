"""Operators that others add: registered by a program, or offered by an installed package.

What a program registers comes first, then what packages offer, then what is built in. A package
offers its operators as entry points, which are looked up once, when the first model is converted
(the command line has no other way to learn of them), and imported when a model has the operator.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import NamedTuple, TypeVar

from tflite2onnx.errors import OperatorError, RegistrationError
from tflite2onnx.graph import Op
from tflite2onnx.op.base import Operator
from tflite2onnx.op.traits import TRAITS
from tflite2onnx.reader.schema import ENUMERATIONS

GROUP = "tflite2onnx.operators"

T = TypeVar("T", bound=type[Operator])


class Key(NamedTuple):
    """What an operator goes by; a custom one may have the name of a builtin one."""

    code: str
    custom: bool


_registered: dict[Key, type[Operator]] = {}  # one table per process, as imports are


@cache
def _builtin() -> frozenset[str]:
    return frozenset(ENUMERATIONS["BuiltinOperator"].split())


def _key(code: str, *, custom: bool | None) -> Key:
    """Return the key of a name: the builtin operator if there is one of this name."""
    if not code or not isinstance(code, str):
        raise RegistrationError(f"{code!r} is no operator's name")
    return Key(code, code not in _builtin() if custom is None else custom)


def register(*codes: str, custom: bool | None = None) -> Callable[[T], T]:
    """Let a class convert the TFLite operators of these names, in place of who else would.

        @register("MyOperator")
        class MyOperator(Operator): ...

    A name that TFLite's schema has is that of the builtin operator, any other that of a custom
    one; `custom` says so where that is wrong.

    Raises:
        RegistrationError: the class is no operator, or another one is registered for a name.
    """
    if not codes:
        raise RegistrationError("register takes the names of the operators that the class converts")
    given = [_key(code, custom=custom) for code in codes]

    def register_class(cls: T) -> T:
        check_class(cls)
        for key in given:
            if key in _registered:
                raise RegistrationError(
                    f"{key.code} is registered already, for {_name(_registered[key])};"
                    f" unregister({key.code!r}) comes before {_name(cls)}"
                )
        _registered.update(dict.fromkeys(given, cls))
        return cls

    return register_class


def unregister(*codes: str, custom: bool | None = None) -> None:
    """Forget the classes that are registered for these names.

    Raises:
        RegistrationError: none is registered for one of them.
    """
    given = [_key(code, custom=custom) for code in codes]
    for key in given:
        if key not in _registered:
            raise RegistrationError(f"{key.code} is not registered")
    for key in given:
        _registered.pop(key, None)


def check_class(cls: object) -> type[Operator]:
    """Return the class if it can be registered; RegistrationError if it is no whole operator."""
    if not (isinstance(cls, type) and issubclass(cls, Operator)):
        raise RegistrationError(f"{cls!r} is no subclass of tflite2onnx.operators.Operator")
    if not hasattr(cls, "category"):
        raise RegistrationError(f"{_name(cls)} has no category")
    for trait in TRAITS:
        hooks = [name for name in vars(trait) if hasattr(cls, name) and not hasattr(Operator, name)]
        if hooks and not issubclass(cls, trait):
            raise RegistrationError(
                f"{_name(cls)} must be a subclass of tflite2onnx.operators.{trait.__name__},"
                f" because it has {hooks[0]}"
            )
    return cls


def _name(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"


@cache
def find_entry_points() -> dict[Key, tuple[EntryPoint, ...]]:
    """Return what installed packages offer; nothing of it is imported."""
    found: dict[Key, tuple[EntryPoint, ...]] = {}
    for point in entry_points(group=GROUP):
        key = _key(point.name, custom=None)
        # A package can be found twice, by two paths: it is the same one.
        if point not in found.get(key, ()):
            found[key] = (*found.get(key, ()), point)
    return found


def find_class(key: Key) -> type[Operator] | None:
    """Return the class that somebody has added for an operator, None if nobody has.

    Raises:
        OperatorError: what a package offers cannot be imported, or two packages offer it.
    """
    if key in _registered:
        return _registered[key]
    points = find_entry_points().get(key, ())
    if len(points) > 1:
        raise OperatorError(f"several packages convert it: {', '.join(map(_origin, points))}")
    return _load_class(points[0]) if points else None


@cache
def _load_class(point: EntryPoint) -> type[Operator]:
    try:
        return check_class(point.load())
    except Exception as error:  # anything may come of importing it
        reason = str(error) or type(error).__name__
        raise OperatorError(
            f"{_origin(point)} is said to convert it, but cannot be loaded: {reason}"
        ) from error


def _origin(point: EntryPoint) -> str:
    package = point.dist.name if point.dist else "a package"
    return f"{point.value} of {package}"


def known_keys() -> list[Key]:
    """Return all that is registered or offered."""
    return list(dict.fromkeys([*_registered, *find_entry_points()]))


def find_class_of(op: Op) -> type[Operator] | None:
    """Return the class that somebody has added for this operator; see `find_class`."""
    return find_class(Key(op.code, op.custom))

"""The operators, by TFLite's code: the built-in ones, and those that others have added."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from pkgutil import walk_packages
from types import ModuleType

from tflite2onnx.errors import OperatorError, RegistrationError, as_operator_error
from tflite2onnx.graph import Op
from tflite2onnx.op import registry, unsupported
from tflite2onnx.op.base import Operator
from tflite2onnx.op.builtin_modules import MODULE_OF
from tflite2onnx.op.registry import Key
from tflite2onnx.tensor import Shape


class _Operators(Mapping[str, type[Operator]]):
    """The classes of the built-in operators; a module is imported when one of its own is wanted."""

    def __init__(self, rooms: Mapping[str, str]) -> None:
        self._rooms = {code: room for room, codes in rooms.items() for code in codes.split()}
        self._classes: dict[str, type[Operator]] = {}

    def __getitem__(self, code: str) -> type[Operator]:
        if code not in self._classes:
            name = self._rooms[code]
            self._classes |= classes_by_code(import_module(f"{__name__}.{name}"))
            if code not in self._classes:
                raise RegistrationError(_without_class(code, name))
        return self._classes[code]

    def __iter__(self) -> Iterator[str]:
        return iter(self._rooms)

    def __len__(self) -> int:
        return len(self._rooms)


def classes_by_code(module: ModuleType) -> dict[str, type[Operator]]:
    """Return the classes that a module has, by the codes of their operators."""
    classes = [c for c in vars(module).values() if isinstance(c, type) and issubclass(c, Operator)]
    return {code: c for c in classes if c.__module__ == module.__name__ for code in c.codes}


def check_module_table() -> None:
    """Import all modules of operators, and compare their classes with the table of modules.

    Raises:
        RegistrationError: the table lacks the operator of a class, or lists an operator under a
            module that has no class for it. The message names all of them.
    """
    start = f"{__name__}."
    modules = [each.name.removeprefix(start) for each in walk_packages(__path__, start)]
    made = {
        (code, name) for name in modules for code in classes_by_code(import_module(start + name))
    }
    listed = {(code, name) for name, codes in MODULE_OF.items() for code in codes.split()}
    problems = [
        f'{code} must be listed in {_TABLE}, got no entry: add it to the line "{name}"'
        for code, name in sorted(made - listed)
    ]
    problems += [_without_class(code, name) for code, name in sorted(listed - made)]
    if problems:
        raise RegistrationError("\n".join(problems))


def _without_class(code: str, name: str) -> str:
    return (
        f"{__name__}.{name} must have a class with {code} in `codes`, as {_TABLE} lists it there,"
        " got none"
    )


OPERATORS: Mapping[str, type[Operator]] = _Operators(MODULE_OF)

_TABLE = "tflite2onnx/op/builtin_modules.py"

# What no file has: the passes put them there.
OURS = frozenset({"AS_PLANNED", "GRU"})


def operator_for(op: Op, *, keep: bool = False, why: str = "") -> Operator:
    """Return the converter of an operator.

    `keep` lets custom operators that nobody converts stay in the graph as they are. `why` is the
    reason for which nobody converts it, if the caller knows one.
    """
    own = OPERATORS.get(op.code)
    if own is not None and own.custom != op.custom:
        own = None
    try:
        known = registry.find_class_of(op) or own
    except OperatorError as error:  # said later, with all else that is wrong
        return unsupported.Unsupported(op, str(error))
    if known is not None:
        return known(op)
    return unsupported.Kept(op) if keep and op.custom else unsupported.Unsupported(op, why)


def has_converter(op: Op) -> bool:
    """Return whether somebody has added a class for this operator."""
    return Key(op.code, op.custom) in registry.known_keys()


def shapes_for(op: Op) -> Sequence[Shape] | None:
    """Return the shapes of the outputs if the operator knows them better than the file."""
    try:
        with as_operator_error():
            return operator_for(op).infer_outputs()
    except OperatorError:  # said later, with all else that is wrong
        return None


def rules_for(op: Op) -> Operator | None:
    """Return what `normalise` may ask, None of an operator that cannot be converted.

    Why it cannot is said later, of all such operators at once.
    """
    operator = operator_for(op)
    try:
        with as_operator_error():
            operator.check()
    except OperatorError:
        return None
    return operator


def operators() -> dict[str, type[Operator]]:
    """Return the classes of all operators by name, in alphabetical order.

    Raises:
        OperatorError: what a package offers cannot be imported.
    """
    own = {code: cls for code, cls in OPERATORS.items() if code not in OURS}
    more = {key.code: cls for key in registry.known_keys() if (cls := registry.find_class(key))}
    return dict(sorted((own | more).items()))


def supported_operators() -> list[str]:
    """Return the names of the TFLite operators that can be converted, in alphabetical order."""
    return sorted((OPERATORS.keys() - OURS) | {key.code for key in registry.known_keys()})

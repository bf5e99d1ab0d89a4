"""The operators by TFLite's code: built-in, registered, and offered by packages."""

from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from types import ModuleType
from typing import Any

from tflite2onnx.errors import OperatorError, RegistrationError, as_operator_error
from tflite2onnx.extensions import MODULE_PATHS, offer_operators
from tflite2onnx.graph import ABSENT, Op
from tflite2onnx.op import registry, unsupported
from tflite2onnx.op.base import Operator
from tflite2onnx.op.builtin_modules import MADE, MODULE_OF
from tflite2onnx.op.facts import Fact
from tflite2onnx.op.registry import Key
from tflite2onnx.tensor import Tensor


class OperatorTable(Mapping[str, type[Operator]]):
    """The classes of operators by code; a module is imported when a class of it is needed.

    `paths` has the path of the module of each code.
    """

    def __init__(self, paths: Mapping[str, str]) -> None:
        self._paths = paths
        self._classes: dict[str, type[Operator]] = {}

    def __getitem__(self, code: str) -> type[Operator]:
        if code not in self._classes:
            path = self._paths[code]
            self._classes |= list_classes(import_module(path))
            if code not in self._classes:
                raise RegistrationError(describe_missing_class(code, path))
        return self._classes[code]

    def get(self, code: str, default: Any = None) -> Any:  # noqa: ANN401 - as in Mapping
        """Return a class; the method of Mapping would catch a KeyError, which is slow."""
        return self[code] if code in self._paths else default

    def __iter__(self) -> Iterator[str]:
        return iter(self._paths)

    def __len__(self) -> int:
        return len(self._paths)


def list_classes(module: ModuleType) -> dict[str, type[Operator]]:
    """Return the classes that a module defines, by the codes of their operators."""
    classes = [c for c in vars(module).values() if isinstance(c, type) and issubclass(c, Operator)]
    return {code: c for c in classes if c.__module__ == module.__name__ for code in c.codes}


def describe_missing_class(code: str, path: str) -> str:
    """Return the message for a code that a table lists under a module without a class for it."""
    return (
        f"{path} must have a class with {code} in `codes`, as the table of its package lists it"
        " there, got none"
    )


offer_operators(__name__, MODULE_OF)
OPERATORS: Mapping[str, type[Operator]] = OperatorTable(MODULE_PATHS)


def find_convolved(op: Op) -> Tensor:
    """Return the input that a built-in convolution convolves, `ABSENT` for other operators."""
    if op.custom or Fact.CONVOLVES not in find_facts(op):
        return ABSENT
    operator = find_operator(op)
    images = (t for i, t in enumerate(op.inputs) if operator.read_letters(i).startswith("N"))
    return next(images) or ABSENT


def commutes(code: str) -> bool:
    """Return whether the inputs of a built-in operator may change places."""
    cls = OPERATORS.get(code)
    return code in getattr(cls, "commutes", ())


def _find_class(op: Op) -> type[Operator] | None:
    """Return the class of an operator; OperatorError if a package's class cannot be imported."""
    found = registry.find_class(Key(op.code, op.custom))
    if found is not None:
        return found
    is_custom = op.code not in registry.list_builtin_codes() and op.code not in MADE
    return OPERATORS.get(op.code) if op.custom is is_custom else None


def find_facts(op: Op) -> tuple[Fact, ...]:
    """Return what the class of an operator states of it, () if it has no class."""
    try:
        return getattr(_find_class(op), "facts", ())
    except OperatorError:  # the conversion reports the error later
        return ()


def find_operator(op: Op, explain: Callable[[Op], str] = lambda _: "") -> Operator:
    """Return the instance of an operator's class, or one whose check raises the reason.

    `explain` returns why an operator has no class, if the caller knows more than the general
    reason.
    """
    try:
        cls = _find_class(op)
    except OperatorError as error:  # the conversion reports the error later
        return unsupported.Unsupported(op, str(error))
    if cls is None:
        return unsupported.Unsupported(op, explain(op))
    if _reads_packed_elements(op) and cls is OPERATORS.get(op.code):
        why = "elements of a TensorFlow operator must have 8 bits or more"
        return unsupported.Unsupported(op, why)
    return cls(op)


def _reads_packed_elements(op: Op) -> bool:
    """Return whether a Flex operator has operands of less than 8 bits, which TensorFlow lacks."""
    flex = op.code.startswith("Flex")
    return flex and any(0 < t.dtype.bits < 8 for t in op.tensors)


def has_class(op: Op) -> bool:
    """Return whether a class is registered or offered for this operator."""
    return Key(op.code, op.custom) in registry.list_known_keys()


def is_valid(operator: Operator) -> bool:
    """Return whether an operator can be converted; the verification reports the reasons later."""
    try:
        with as_operator_error():
            operator.verify()
    except OperatorError:
        return False
    return True


def list_operators() -> dict[str, type[Operator]]:
    """Return all classes by name, sorted; OperatorError if a package's class cannot be imported."""
    added = {
        key.code: cls for key in registry.list_known_keys() if (cls := registry.find_class(key))
    }
    own = {code: cls for code, cls in OPERATORS.items() if code not in MADE}
    return dict(sorted((own | added).items()))


def supported_operators() -> list[str]:
    """Return the names of the TFLite operators that can be converted, in alphabetical order."""
    known = {key.code for key in registry.list_known_keys()}  # adds what packages offer
    return sorted((OPERATORS.keys() - MADE) | known)

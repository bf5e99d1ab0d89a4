"""The operators, by TFLite's code."""

from __future__ import annotations

from tflite2onnx.errors import OperatorError
from tflite2onnx.graph import Op
from tflite2onnx.op import activation, conv, elementwise, shape
from tflite2onnx.op.base import Operator

_MODULES = (activation, conv, elementwise, shape)

OPERATORS: dict[str, type[Operator]] = {
    code: cls
    for module in _MODULES
    for cls in vars(module).values()
    if isinstance(cls, type) and issubclass(cls, Operator) and cls.__module__ == module.__name__
    for code in cls.codes
}


class Unsupported(Operator):
    """An operator that no class converts; it says so when it is checked."""

    def check(self) -> None:
        """Raise OperatorError."""
        kind = "custom operator" if self.op.custom else "operator"
        message = f"this {kind} is not supported"
        raise OperatorError(message)


def operator_for(op: Op) -> Operator:
    """Return the converter of an operator."""
    known = not op.custom and op.code in OPERATORS
    return (OPERATORS[op.code] if known else Unsupported)(op)


rules_for = operator_for

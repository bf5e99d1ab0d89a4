"""Operators on variables."""

from __future__ import annotations

from tflite2onnx.op.base import Category, Operator, OperatorError

# Operators on resources only; the pass that turns variables into dataflow removes them.
RESOURCES = ("VAR_HANDLE", "READ_VARIABLE", "ASSIGN_VARIABLE", "CALL_ONCE")


class Variable(Operator):
    """VAR_HANDLE, READ_VARIABLE, ASSIGN_VARIABLE, CALL_ONCE: gone by now (see `lift_variables`)."""

    codes = RESOURCES
    category = Category.TERMINATE
    moves_only = True

    def check(self) -> None:
        raise OperatorError("its handle is used otherwise than to read or to assign a variable")

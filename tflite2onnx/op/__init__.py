"""The operators, by TFLite's code."""

from __future__ import annotations

from collections.abc import Sequence

from tflite2onnx.errors import OperatorError, guarded
from tflite2onnx.graph import Op
from tflite2onnx.op import (
    activation,
    batch,
    blocks,
    broadcast,
    bucketize,
    cast,
    comparison,
    composite,
    concat,
    conv,
    detection,
    dilate,
    elementwise,
    embedding,
    fourier,
    gather,
    local_response,
    matmul,
    normalization,
    one_hot,
    pad,
    pool,
    quantize,
    reduce,
    resize,
    reverse,
    sampling,
    scatter,
    select,
    sequence,
    shape,
    slice,  # noqa: A004 - the module, named after the operator
    stablehlo,
    topk,
    update,
    variable,
    volume,
    window,
)
from tflite2onnx.op.base import Operator
from tflite2onnx.tensor import Shape

_MODULES = (
    activation, batch, blocks, broadcast, bucketize, cast, comparison, composite, concat, conv,
    detection, dilate, elementwise, embedding, fourier, gather, local_response, matmul,
    normalization, one_hot, pad, pool, quantize, reduce, resize, reverse, sampling, scatter, select,
    sequence, shape, slice, stablehlo, topk, update, variable, volume, window,
)  # fmt: skip

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
    known = OPERATORS.get(op.code, Unsupported)
    return (known if known.custom == op.custom else Unsupported)(op)


def shapes_for(op: Op) -> Sequence[Shape] | None:
    """Return the shapes of the outputs if the operator knows them better than the file."""
    try:
        with guarded():
            return operator_for(op).shapes()
    except OperatorError:  # said later, with all else that is wrong
        return None


def rules_for(op: Op) -> Operator | None:
    """Return what `normalise` may ask, None of an operator that cannot be converted.

    Why it cannot is said later, of all such operators at once.
    """
    operator = operator_for(op)
    try:
        with guarded():
            operator.check()
    except OperatorError:
        return None
    return operator


def supported_operators() -> list[str]:
    """Return the names of the TFLite operators that can be converted, in alphabetical order."""
    return sorted(code for code, cls in OPERATORS.items() if cls is not shape.AsPlanned)

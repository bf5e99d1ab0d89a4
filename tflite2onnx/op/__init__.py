"""The operators, by TFLite's code: the built-in ones, and those that others have added."""

from __future__ import annotations

from collections.abc import Sequence

from tflite2onnx.errors import OperatorError, guarded
from tflite2onnx.graph import Op
from tflite2onnx.op import (
    activation,
    attention,
    batch,
    bits,
    blocks,
    broadcast,
    bucketize,
    cast,
    comparison,
    composite,
    concat,
    control,
    conv,
    detection,
    dilate,
    elementwise,
    embedding,
    fingerprint,
    flex,
    found,
    fourier,
    gather,
    gru,
    landmarks,
    local_response,
    lstm,
    matmul,
    ngrams,
    normalization,
    one_hot,
    opaque,
    pad,
    pool,
    quantize,
    random_bits,
    reduce,
    registry,
    resize,
    reverse,
    rnn,
    roll,
    rotation,
    sampling,
    scatter,
    select,
    sequence,
    shape,
    signal,
    slice,  # noqa: A004 - the module, named after the operator
    spectrum,
    stablehlo,
    stablehlo_index,
    suppression,
    svdf,
    table,
    topk,
    transpose_bias,
    unpool,
    update,
    variable,
    volume,
    volume_pool,
    warp,
    window,
)
from tflite2onnx.op.base import Operator
from tflite2onnx.op.registry import Key
from tflite2onnx.tensor import Shape

_MODULES = (
    activation, attention, batch, bits, blocks, broadcast, bucketize, cast, comparison,
    composite, concat, control, conv, detection, dilate, elementwise, embedding, fingerprint,
    flex, found, fourier, gather, gru, landmarks, local_response, lstm, matmul, ngrams,
    normalization, one_hot, opaque, pad, pool, quantize, random_bits, reduce, registry, resize,
    reverse, rnn, roll, rotation, sampling, scatter, select, sequence, shape, signal, slice,
    spectrum, stablehlo, stablehlo_index, suppression, svdf, table, topk, transpose_bias,
    unpool, update, variable, volume, volume_pool, warp, window,
)  # fmt: skip

OPERATORS: dict[str, type[Operator]] = {
    code: cls
    for module in _MODULES
    for cls in vars(module).values()
    if isinstance(cls, type) and issubclass(cls, Operator) and cls.__module__ == module.__name__
    for code in cls.codes
}


# What no file has: the passes put them there.
OURS = (shape.AsPlanned, gru.Gru)


def operator_for(op: Op, *, keep: bool = False) -> Operator:
    """Return the converter of an operator.

    `keep` lets custom operators that nobody converts stay in the graph as they are.
    """
    own = OPERATORS.get(op.code)
    if own is not None and own.custom != op.custom:
        own = None
    try:
        known = registry.of(op) or own
    except OperatorError as error:  # said later, with all else that is wrong
        return opaque.Unsupported(op, str(error))
    return (known or (opaque.Kept if keep and op.custom else opaque.Unsupported))(op)


def has_converter(op: Op) -> bool:
    """Return whether somebody has added a class for this operator."""
    return Key(op.code, op.custom) in registry.known()


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


def operators() -> dict[str, type[Operator]]:
    """Return the classes of all operators by name, in alphabetical order.

    Raises:
        OperatorError: what a package offers cannot be imported.
    """
    own = {code: cls for code, cls in OPERATORS.items() if cls not in OURS}
    more = {key.code: cls for key in registry.known() if (cls := registry.added(key))}
    return dict(sorted((own | more).items()))


def supported_operators() -> list[str]:
    """Return the names of the TFLite operators that can be converted, in alphabetical order."""
    own = {code for code, cls in OPERATORS.items() if cls not in OURS}
    return sorted(own | {key.code for key in registry.known()})

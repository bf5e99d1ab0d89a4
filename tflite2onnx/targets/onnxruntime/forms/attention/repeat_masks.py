"""Masks of queries that share a head are computed once, and then repeated.

    SELECT_V2(RESHAPE(NOT_EQUAL(CONCATENATION(CAST(seen), CAST(seen)), 0)), scores, -1e4)

Exporters for GPUs repeat the mask before they compute with it. CONCATENATION becomes the last
operator before SELECT_V2, so that `read_caches` finds the mask of a token in it, if

1. between the two are only RESHAPE, and functions of single elements that read further constants of
   one element;
2. the mask has fixed sizes, and is repeated along the axis before the last, the axis of the rows.
"""

from math import prod

from tflite2onnx.graph import NO_OP, Op
from tflite2onnx.passes.operands import find_producer
from tflite2onnx.passes.patterns.matching import Match
from tflite2onnx.passes.patterns.rules import rule
from tflite2onnx.passes.rewriter import Rewriter, as_builtin

_FUNCTIONS = ("CAST", "EQUAL", "LOGICAL_NOT", "NOT_EQUAL")


@rule(
    "mask that is repeated before it is computed",
    "CONCATENATION, SELECT_V2",
    ("SELECT_V2", "mask", "scores", "hidden#"),
)
def repeat_masks(found: Match) -> list[Op] | str:
    """Return the operators that compute a mask once, and select by it, or why not."""
    mask, graph = found.tensors["mask"], found.graph
    functions, tensor = [], mask
    while (op := find_producer(tensor, graph, "RESHAPE", *_FUNCTIONS)) is not NO_OP:
        functions += [op] if op.code != "RESHAPE" else []
        tensor = op.operand(0)
    repeat, numbers = graph.producers.find(tensor), (t for op in functions for t in op.present[1:])
    part, columns = repeat.operand(0), mask.shape[-1:]
    if not functions or not repeat.is_builtin("CONCATENATION") or {*repeat.inputs} != {part}:
        return "the mask must be a CONCATENATION of one part with itself"
    before = prod(part.shape[: repeat.options.axis % part.rank])
    if mask.symbols or part.shape[-1:] != columns or before * prod(mask.shape[:-2]) != 1:
        return "the part must be rows of the mask"
    if repeat.activation != "NONE" or any(t.elements != 1 for t in numbers):
        return "the functions of the mask must have numbers"
    rw = Rewriter(found.last)
    shape = (*mask.shape[:-2], part.elements // columns[0], *columns)
    value = rw.reshape(part, shape, like=part, name="once")
    for op in reversed(functions):
        like = op.outputs[0]
        inputs = value, *op.inputs[1:]
        value = rw.op(op.code, *inputs, like=like, shape=shape, made=op.made, **op.options)
    copies, axis = [value] * len(repeat.inputs), mask.rank - 2
    value = rw.op("CONCATENATION", *copies, like=mask, name="masks", axis=axis)
    _, *others = found.last.inputs
    return [*rw.ops, as_builtin(found.last, "SELECT_V2", value, *others, **found.last.options)]

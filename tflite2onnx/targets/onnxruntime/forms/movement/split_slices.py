"""Slices that take a tensor apart.

`split_slices`: slices of a small tensor become one TRANSPOSE and one SPLIT. Streaming models store
the states of their layers in one tensor, and take each state with a STRIDED_SLICE of its own, for
which ONNX needs a Slice and a Reshape. DTLN's first network takes 0.94 of the time with one
TRANSPOSE for its four states. The slices are replaced if

1. they take one index along the same axes, and all indices along the other axes;
2. one of these axes is the last one: Slice copies whole rows faster than Transpose moves them;
3. there are several slices, one for each index along these axes;
4. the tensor is computed and of fixed size, and all tensors have one scale;
5. a shorter time is expected (`costs.py`): four slices and more of up to some hundred numbers.

`slice_before_transpose`: items of a TRANSPOSE are taken before it, by RESHAPE(TRANSPOSE(RESHAPE(
SLICE(x)))). PyTorch's vision transformers compute queries, keys and values by one dense layer:

    x = RESHAPE(layer)                      [batch, rows, 3, heads, depth]
    queries, keys, values = TRANSPOSE(x)    [3, batch, heads, rows, depth]

Their attention is recognised (see `fuse_attention`) if each of the three has a TRANSPOSE of its
own. SLICE, STRIDED_SLICE and UNPACK are replaced if

1. all readers of the output of the TRANSPOSE take items: one index, or each, along one axis;
2. the TRANSPOSE moves the heads of each item before its rows;
3. the tensors are float32 and have fixed sizes.
"""

from math import prod

import numpy as np

from tflite2onnx.graph import Graph, Op
from tflite2onnx.op.movement.slice import SLICES
from tflite2onnx.passes.operands import find_order, find_taken_ranges
from tflite2onnx.passes.patterns.matching import Match, Named, Shared, any_of
from tflite2onnx.passes.patterns.rules import rule
from tflite2onnx.passes.rewriter import Rewriter, make_int32, make_like
from tflite2onnx.quantization.storage import same_quantization
from tflite2onnx.targets.onnxruntime.costs import Terms, explain_nodes
from tflite2onnx.targets.onnxruntime.forms.attention.fuse_attention import HEADS_FIRST
from tflite2onnx.tensor import Tensor

_RESHAPE = ("reshape", Terms())


def list_slices(graph: Graph) -> dict[Tensor, list[Op]]:
    """Return the operators that slice each tensor."""
    slices: dict[Tensor, list[Op]] = {}
    for op in graph.ops:
        if op.is_builtin(*SLICES):
            slices.setdefault(op.operand(0), []).append(op)
    return slices


@rule(
    "slices that take a tensor apart along the last axis and others",
    "TRANSPOSE, SPLIT",
    any_of(SLICES, "x", ...),
    dtype=None,
)
def split_slices(found: Match) -> list[Op] | str:
    """Return the operators that replace all slices of a tensor, at the first slice."""
    x = found.x
    ops = found.analyze(list_slices).get(x, [])
    if ops[:1] != [found.last] or x.has_data or x.symbols or x.per_axis or not x.elements:
        return "it must be the first slice of a computed tensor of known sizes"
    if loss := _explain_loss(x, len(ops)):
        return loss
    outputs, taken = [op.outputs[0] for op in ops], [*map(find_taken_ranges, ops)]
    same = all(same_quantization(x.quantization, y.quantization) for y in outputs)
    moved = (*taken[0],)
    if not same or x.rank - 1 not in moved:
        return "the tensor must be taken apart along its last axis, in one scale"
    if any((*each,) != moved or any(len(r) != 1 for r in each.values()) for each in taken):
        return "each slice must take one index along the same axes"
    sizes = tuple(x.shape[i] for i in moved)
    places = [[indices[0] for indices in each.values()] for each in taken]
    parts = {int(np.ravel_multi_index(p, sizes)): y for p, y in zip(places, outputs, strict=True)}
    if not len(parts) == len(ops) == prod(sizes):
        return "the slices must take each index once"
    rw, rest = Rewriter(ops[0]), [i for i in range(x.rank) if i not in moved]
    order = (*moved, *rest)
    flat = x if order == (*range(x.rank),) else rw.transpose(x, order, like=x)
    row = tuple(x.shape[i] for i in rest)
    flat = rw.reshape(flat, (len(ops), *row), like=x, name="items")
    rows = tuple(make_like(x, f"item{i}", (1, *row)) for i in range(len(ops)))
    rw.ops.append(Op("SPLIT", ops[0].index, (make_int32("axis", 0), flat), rows))
    for number, each in enumerate(rows):
        rw.reshape(each, output=parts[number])
    return rw.ops


def _explain_loss(x: Tensor, count: int) -> str:
    """Return why TRANSPOSE, RESHAPE and SPLIT are not faster than that many slices."""
    moves, reshapes = ("move", Terms(loads=x.elements, size=x.nbytes)), count * [_RESHAPE]
    split = [("move", Terms(size=x.nbytes)), *count * [("part", Terms())]]
    slices = [moves, *(count - 1) * [("move", Terms())]]
    return explain_nodes([moves, _RESHAPE, *split, *reshapes], [*slices, *reshapes])


def _find_all_items(graph: Graph) -> dict[Op, tuple[int, range]]:
    """Return the items that operators take of the output of TRANSPOSE, and their axis before it."""
    every = {}
    for op in graph.walk_ops():
        order, taken = find_order(graph.producers.find(op.operand(0))), dict[int, range]()
        if order and op.is_builtin("UNPACK"):
            taken = {op.options.get("axis", 0) % len(order): range(len(op.outputs))}
        elif order and op.is_builtin(*SLICES):
            taken = find_taken_ranges(op)
            taken = {} if any(len(r) * r.step != 1 for r in taken.values()) else taken
        if len(taken) == 1 and not any(t.symbols for t in (op.operand(0), *op.outputs)):
            ((axis, indices),) = taken.items()
            old = order[axis]
            if tuple(i - (i > old) for i in order if i != old) == HEADS_FIRST:
                every[op] = old, indices
    return every


@rule(
    "items of a TRANSPOSE, as vision transformers of PyTorch have them",
    "SLICE, RESHAPE, TRANSPOSE",
    any_of((*SLICES, "UNPACK"), Named("whole", Shared(("TRANSPOSE", "x", ...))), ...),
    lambda found: "SOFTMAX" in found.graph.codes,
    "the graph must have attention",
    needs=("BATCH_MATMUL",),
)
def slice_before_transpose(found: Match) -> list[Op] | str:
    """Return the operators that take the items before the TRANSPOSE, or why not."""
    every, op, x, rw = found.analyze(_find_all_items), found.last, found.x, Rewriter(found.last)
    if op not in every or not found.graph.readers.are_among(every, found.tensors["whole"]):
        return "all readers must take items of the TRANSPOSE"
    axis, indices = every[op]
    before, after = x.shape[:axis], x.shape[axis + 1 :]
    for y, index in zip(op.outputs, indices, strict=True):
        item = rw.slice(x, axis, index, 1, like=y, name="item")
        item = rw.reshape(item, before + after, like=y, name="flat")
        item = rw.transpose(item, HEADS_FIRST, like=y, name="moved")
        rw.reshape(item, output=y)
    return rw.ops

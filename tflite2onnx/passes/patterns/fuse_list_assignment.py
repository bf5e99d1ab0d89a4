"""Replace the assignment of a list item, `list[i] = item`, by DYNAMIC_UPDATE_SLICE.

TFLite's converter writes the assignment as CONCATENATION along the first axis of

- SLICE(list, [0, ...], [i, -1, ...]): the items before the item;
- the item;
- SLICE(list, [i + 1, 0, ...], [-1, ...]): the items after the item.

The slices have data-dependent shapes; in loops often even the size of the items is dynamic.
TensorFlow 2.2 computes [0, ...] and [-1, ...] of the RANK of the item. The assignment is replaced
if:

1. both slices read the same list, and the index of the second is the index of the first plus 1;
2. all tensors have the same dtype and scale, and there is no activation;
3. the item has one row, and as many axes as the list.

The result has the shape of the list, because the sizes of the slices add up to the size of the
list. The declared shape is ignored.

DYNAMIC_UPDATE_SLICE clamps out-of-range indices. The original SLICEs would fail, except for -1,
where the result would be longer.
"""

from collections.abc import Sequence
from dataclasses import replace

from tflite2onnx.graph import Graph, Op
from tflite2onnx.passes.dynamic_shapes import infer_dimensions
from tflite2onnx.passes.fold_constants import fold_small_values
from tflite2onnx.passes.operands import RESHAPES
from tflite2onnx.passes.patterns.matching import Match, Named, Pattern, Shared, Through
from tflite2onnx.passes.patterns.rules import Rule, Rules
from tflite2onnx.passes.rewriter import Rewriter, make_int32
from tflite2onnx.quantization.storage import same_scale
from tflite2onnx.tensor import DType, Tensor

_INDEX = Through("index", *RESHAPES)
_NEXT = Through(("ADD", _INDEX, 1), *RESHAPES)
_HEAD: Pattern = ("SLICE", "list", 0, ("CONCATENATION", Named("first", _INDEX), -1))
_TAIL: Pattern = ("SLICE", "list", ("CONCATENATION", Named("last", _NEXT), 0), -1)
_PARTS: Sequence[Pattern] = (Shared(_HEAD), "item", Shared(_TAIL))


def fuse_list_assignment(graph: Graph) -> Graph:
    """Return the graph with DYNAMIC_UPDATE_SLICE in place of assignments of list items."""
    if not any(_joins_rows(op) for op in graph.walk_ops()):
        return graph
    graph = _fix_known_rows(graph)
    return _assign_lists(fold_small_values(graph) if "RANK" in graph.codes else graph)


def _fix_known_rows(graph: Graph) -> Graph:
    """Return the graph with items of one row that the file declares as dynamic, but are not."""
    items = [op.operand(1) for op in graph.walk_ops() if _joins_rows(op)]
    single = [t for t in items if t.shape[:1] == (1,) and 0 in t.dynamic_axes]
    if not single:
        return graph
    known_shapes = infer_dimensions(graph)
    rows = [t for t in single if known_shapes.get(t, t).shape[:1] == (1,)]
    return graph.replace_tensors({t: replace(t, shape_signature=()) for t in rows})


def _joins_rows(op: Op) -> bool:
    """Return whether an operator joins three tensors along the first axis."""
    rank = op.outputs[0].rank if op.outputs else 0
    counts = op.is_builtin("CONCATENATION") and len(op.inputs) == len(_PARTS)
    return counts and op.options.get("axis", 0) in (0, -rank)


def _set_item(match: Match) -> list[Op] | str:
    """Return DYNAMIC_UPDATE_SLICE, or why the conditions do not hold."""
    op, items, item = match.last, match.tensors["list"], match.tensors["item"]
    first, last, result = match.tensors["first"], match.tensors["last"], op.outputs[0]
    parts = [*op.present, result]
    if not all(t.dtype is items.dtype and same_scale(t, items) for t in parts):
        return "all tensors must have one type and scale"
    one_row = item.rank == items.rank and item.shape[:1] == (1,) and 0 not in item.dynamic_axes
    if not one_row or op.options.get("axis", 0) not in (0, -items.rank):
        return "the item must be one row of the list"
    if any(t.shape != (1,) or t.dtype is not DType.INT32 for t in (first, last)):
        return "the index must be one int32"
    rw, zeros = Rewriter(op), make_int32("zeros", [0] * (items.rank - 1))
    starts = Tensor(f"{result.name}/starts", (items.rank,), first.dtype)
    rw.op("CONCATENATION", first, zeros, output=starts, axis=0)
    rw.op("DYNAMIC_UPDATE_SLICE", items, item, starts, output=result)
    return rw.ops


_ASSIGNMENT: Pattern = ("CONCATENATION", *_PARTS)
_NAME = "assignment of a list item"
_assign_lists = Rules(Rule(_NAME, "DYNAMIC_UPDATE_SLICE", _ASSIGNMENT, _set_item, dtype=None))

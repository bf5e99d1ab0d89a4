"""Replace the assignment of a list item, `list[i] = item`, by DYNAMIC_UPDATE_SLICE.

TFLite's converter writes the assignment as CONCATENATION along the first axis of

- SLICE(list, [0, ...], [i, -1, ...]): the items before the item;
- the item;
- SLICE(list, [i + 1, 0, ...], [-1, ...]): the items after the item.

The slices have data-dependent shapes; in loops often even the size of the items is dynamic. The
assignment is replaced if:

1. both slices read the same list, and the index of the second is the index of the first plus 1;
2. all tensors have the same dtype and scale, and there is no activation;
3. the item has one row, and the result can have the shape of the list.

DYNAMIC_UPDATE_SLICE clamps out-of-range indices. The original SLICEs would fail, except for -1,
where the result would be longer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tflite2onnx.errors import OperatorError, as_operator_error
from tflite2onnx.graph import Graph, Op
from tflite2onnx.passes.rewriter import Rewriter, int32_constant
from tflite2onnx.quantization.storage import same_scale
from tflite2onnx.tensor import Tensor

_PARTS = 3  # before the item, the item, after it


def fuse_list_assignment(graph: Graph) -> Graph:
    """Return the graph with DYNAMIC_UPDATE_SLICE in place of assignments of list items."""

    def change(op: Op) -> list[Op]:
        try:
            with as_operator_error():
                return _fuse_update(op, graph.producers) or [op]
        except OperatorError:  # the conversion of the operator raises it again
            return [op]

    return graph.rewrite(change)


def _fuse_update(op: Op, producers: Mapping[Tensor, Op]) -> list[Op]:
    """Return the operators that set an item; empty if `op` is not the end of an assignment."""
    parts = [t for t in op.inputs if t is not None]
    if not (op.is_builtin("CONCATENATION") and len(parts) == _PARTS and op.activation == "NONE"):
        return []
    before, item, after = parts
    head, tail = _read_slice(producers.get(before)), _read_slice(producers.get(after))
    (result,) = op.outputs
    if head is None or tail is None or head[0] is not tail[0] or not _is_along_first(op):
        return []
    items = head[0]
    if not all(t.dtype is items.dtype and same_scale(t, items) for t in (*parts, result)):
        return []
    sizes, one = _list_sizes(items), _list_sizes(item)
    if (
        one[:1] != (1,)
        or not _can_be_equal(one[1:], sizes[1:])
        or not _can_be_equal(_list_sizes(result), sizes)
    ):
        return []
    first, last = (
        _find_leading_number(head[2], producers, -1),
        _find_leading_number(tail[1], producers, 0),
    )
    whole = _is_filled_with(head[1], 0) and _is_filled_with(tail[2], -1)
    if first is None or last is None or not whole or not _is_successor(first, last, producers):
        return []
    rw, zeros = Rewriter(op), int32_constant("zeros", [0] * (items.rank - 1))
    starts = Tensor(f"{result.name}/starts", (items.rank,), first.dtype)
    rw.op("CONCATENATION", first, zeros, output=starts, axis=0)
    rw.op("DYNAMIC_UPDATE_SLICE", items, item, starts, output=result)
    return rw.ops


def _list_sizes(tensor: Tensor) -> tuple[int | None, ...]:
    """Return the shape, with None for dynamic axes."""
    dynamic = tensor.dynamic_axes
    return tuple(None if axis in dynamic else size for axis, size in enumerate(tensor.shape))


def _can_be_equal(some: Sequence[int | None], others: Sequence[int | None]) -> bool:
    """Return whether two shapes can be the same."""
    pairs = zip(some, others, strict=False)
    return len(some) == len(others) and all(a == b or None in (a, b) for a, b in pairs)


def _is_along_first(op: Op) -> bool:
    axis, rank = op.options.get("axis", 0), op.outputs[0].rank
    return bool(axis in (0, -rank))


def _read_slice(op: Op | None) -> Sequence[Tensor] | None:
    """Return the inputs of SLICE (data, begin, size); None for other operators."""
    inputs = [t for t in op.inputs if t is not None] if op and op.is_builtin("SLICE") else []
    return inputs if len(inputs) == _PARTS else None


def _is_filled_with(tensor: Tensor, number: int) -> bool:
    return tensor.data is not None and bool((tensor.data == number).all())


def _find_leading_number(
    tensor: Tensor, producers: Mapping[Tensor, Op], rest: int
) -> Tensor | None:
    """Return the first of several int32 numbers, if all others are the constant `rest`."""
    op = producers.get(tensor)
    if op is None or not op.is_builtin("CONCATENATION") or len(op.inputs) != 2:
        return None
    first, others = op.inputs
    if first is None or others is None or first.shape != (1,) or not _is_filled_with(others, rest):
        return None
    return first if first.dtype.label == "int32" and op.activation == "NONE" else None


def _is_successor(index: Tensor, following: Tensor, producers: Mapping[Tensor, Op]) -> bool:
    """Return whether `following` is `index` plus 1."""
    op = producers.get(_skip_reshapes(following, producers))
    if op is None or not op.is_builtin("ADD") or op.activation != "NONE":
        return False
    terms = [_skip_reshapes(t, producers) for t in op.inputs if t is not None]
    return any(
        a is _skip_reshapes(index, producers) and b.elements == 1 and _is_filled_with(b, 1)
        for a, b in (terms, terms[::-1])
    )


def _skip_reshapes(tensor: Tensor, producers: Mapping[Tensor, Op]) -> Tensor:
    """Return the tensor before any RESHAPEs of it."""
    op = producers.get(tensor)
    while op is not None and op.is_builtin("RESHAPE") and op.inputs[0] is not None:
        tensor = op.inputs[0]
        op = producers.get(tensor)
    return tensor

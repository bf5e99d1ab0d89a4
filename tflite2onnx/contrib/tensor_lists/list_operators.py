"""TensorFlow's operators on lists as TFLite operators on tensors (see `lower_tensor_lists`)."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from tflite2onnx.operators import DType, Op, OperatorError, Tensor
from tflite2onnx.rewriting import Rewriter, make_constant, make_int32, make_like

# The size of an axis of an item: a number, the size of an axis of a tensor that exists before the
# list, or None if the items that are set determine it.
Size: TypeAlias = "int | tuple[Tensor, int] | None"


def find_operand(op: Op, number: int) -> Tensor:
    """Return input i, or output ~i, which must be present."""
    operands, index = (op.inputs, number) if number >= 0 else (op.outputs, ~number)
    tensor = operands[index] if index < len(operands) else None
    if not tensor:
        raise OperatorError(f"{'input' if number >= 0 else 'output'} {index} is missing")
    return tensor


def grows(op: Op) -> bool:
    """Return whether an operator appends items up to its index (TensorArray with dynamic_size)."""
    return bool(op.options.get("resize_if_index_out_of_bounds"))


class ListRewriter(Rewriter):
    """Makes the operators that replace an operator on a list, after lists have become tensors.

    `sizes` are the sizes of an item. `single` is true if the list has one item at all times.
    """

    def __init__(self, source: Op, sizes: Sequence[Size], single: bool) -> None:  # noqa: FBT001
        super().__init__(source)
        self.sizes = sizes
        self.single = single

    def input(self, index: int) -> Tensor:
        return find_operand(self.source, index)

    def output(self, index: int = 0) -> Tensor:
        return find_operand(self.source, ~index)

    @property
    def number(self) -> Tensor:
        """An int32 number, from which computed tensors take their type."""
        return Tensor(self.output().name, (), DType.INT32)

    def slice_items(
        self, x: Tensor, begin: int, end: int | None, output: Tensor, *, one: bool = False
    ) -> Tensor:
        """Add a STRIDED_SLICE of items along the first axis.

        `end` is None for a slice up to the last item. Negative indices count from the end. `one`
        removes the axis, which must have one item.
        """
        return self.op(
            "STRIDED_SLICE",
            *(x, [begin], [end or 0], [1]),
            output=output,
            begin_mask=0,
            end_mask=int(end is None),
            ellipsis_mask=0,
            new_axis_mask=0,
            shrink_axis_mask=int(one),
            offset=False,
        )

    def find_size(self, x: Tensor, axis: int, output: Tensor | None = None) -> Tensor:
        """Add operators that compute the size of an axis, a scalar."""
        number = output or make_like(self.number, "size")
        shape = self.op("SHAPE", x, like=number, shape=(x.rank,), out_type=number.dtype)
        return self.slice_items(shape, axis, axis + 1, number, one=True)

    def fill(self, count: Tensor, output: Tensor, item_sizes: Sequence[Size]) -> Tensor:
        """Add operators that make a number of items of zeros; sizes that are not known are 0."""
        sizes = [
            self.find_size(*size) if isinstance(size, tuple) else make_int32("number", size or 0)
            for size in item_sizes
        ]
        parts = count, *sizes
        shape = self.op("PACK", *parts, like=self.number, name="dims", shape=(len(parts),), axis=0)
        zero = make_constant("zero", np.zeros((), output.dtype.numpy), output)
        return self.op("FILL", shape, zero, output=output)

    def grow(self, items: Tensor, index: Tensor) -> Tensor:
        """Add operators that append items of zeros if a list has no item at an index."""
        rest = items.shape_signature[1:] or items.shape[1:]
        longer = replace(items, shape=(1, *items.shape[1:]), shape_signature=(-1, *rest))
        one, zero = (make_int32("number", number) for number in (1, 0))
        end = self._add("ADD", self.drop_axes(index), one)
        missing = self._add("SUB", end, self.find_size(items, 0))
        count = self.op("MAXIMUM", missing, zero, like=end, name="count")
        sizes = [(items, axis) for axis in range(1, items.rank)]
        zeros = self.fill(
            count, make_like(longer, "zeros"), sizes if None in self.sizes else self.sizes
        )
        joined = make_like(longer, "grown")
        return self.op("CONCATENATION", items, zeros, output=joined, axis=0)

    def widen(self, items: Tensor, item: Tensor) -> Tensor:
        """Add operators that give a list the sizes of an item, if these are not known before."""
        if None not in self.sizes:
            return items
        rank, added = len(self.sizes), make_like(self.number, "added", (items.rank, 2))
        sizes = [
            self.op("SHAPE", x, like=self.number, shape=(x.rank,), out_type="INT32")
            for x in (self.add_row(item), items)
        ]
        missing = self.op("SUB", *sizes, like=sizes[0])
        mask = make_int32("mask", [0] + [1] * rank)  # the number of items is another
        missing = self.op("MUL", missing, mask, like=missing)
        none = make_int32("none", [0] * (rank + 1))
        self.op("PACK", none, missing, output=added, values_count=2, axis=1)
        return self.op("PAD", items, added, like=items, name="widened")

    def _add(self, code: str, a: Tensor, b: Tensor) -> Tensor:
        return self.op(code, a, b, like=self.number)

    def drop_axes(self, number: Tensor) -> Tensor:
        """Return a tensor of one element without its axes."""
        if number.rank == 0:
            return number
        return self.op("RESHAPE", number, like=self.number, name="number", new_shape=())

    def add_row(self, item: Tensor, output: Tensor | None = None) -> Tensor:
        """Add an operator that makes a list of one item."""
        signature = (1, *(item.shape_signature or item.shape))
        row = make_like(replace(item, name=self.output().name), "row", (1, *item.shape))
        row = output or replace(row, shape_signature=signature)
        return self.op("EXPAND_DIMS", item, [0], output=row)


def _make_list(rw: ListRewriter) -> None:
    """Reserve makes a list of zeros, and EmptyTensorList a list without items."""
    reserves, items = rw.source.code in COUNTED, rw.output()
    if not items.dtype.numpy:
        raise OperatorError(
            f"the items of a list must be numbers or bools, got {items.dtype.label}"
        )
    rw.fill(rw.drop_axes(rw.input(1)) if reserves else make_int32("number", 0), items, rw.sizes)


def _reuse_tensor(rw: ListRewriter) -> None:
    """FromTensor and Stack: the list is a tensor already, which a CAST copies."""
    rw.op("CAST", rw.input(0), output=rw.output())


def _set_item(rw: ListRewriter) -> None:
    items, index, item = (rw.input(i) for i in range(3))
    if grows(rw.source):
        items = rw.grow(items, index)
    if rw.single:
        rw.add_row(item, rw.output())
        return
    items = rw.widen(items, item)
    first = rw.op("RESHAPE", index, like=rw.number, name="index", shape=(1,), new_shape=(1,))
    starts = make_like(rw.number, "starts", (items.rank,))
    rw.op("CONCATENATION", first, [0] * len(rw.sizes), output=starts, axis=0)
    rw.op("DYNAMIC_UPDATE_SLICE", items, rw.add_row(item), starts, output=rw.output())


def _get_items(rw: ListRewriter) -> None:
    """GetItem and Gather: the item at an index, or the items at a list of indices."""
    several = rw.source.code == "FlexTensorListGather"
    index = rw.input(1) if several else rw.drop_axes(rw.input(1))
    rw.op("GATHER", rw.input(0), index, output=rw.output(), axis=0, batch_dims=0)


def _push_item(rw: ListRewriter) -> None:
    items = rw.widen(rw.input(0), rw.input(1))
    rw.op("CONCATENATION", items, rw.add_row(rw.input(1)), output=rw.output(), axis=0)


def _pop_item(rw: ListRewriter) -> None:
    rw.slice_items(rw.input(0), -1, None, rw.output(1), one=True)
    rw.slice_items(rw.input(0), 0, -1, rw.output())


def _concatenate_items(rw: ListRewriter) -> None:
    """ConcatV2: the items, joined along their first axis, and their sizes along this axis."""
    items, rows = rw.input(0), rw.output(1)
    if not rw.sizes or not all(isinstance(size, int) for size in rw.sizes[1:]):
        raise OperatorError("the items that it concatenates must have rows of one fixed shape")
    shape = [-1, *(size for size in rw.sizes[1:] if isinstance(size, int))]
    rw.op("RESHAPE", items, shape, output=rw.output(), new_shape=shape)
    number = rw.find_size(items, 0)
    count = rw.op("PACK", number, like=rw.number, name="count", shape=(1,), axis=0)
    size = Tensor(f"{rows.name}/size", (), rows.dtype)
    rw.op("FILL", count, rw.find_size(items, 1, size), output=rows)


def _count_items(rw: ListRewriter) -> None:
    rw.find_size(rw.input(0), 0, rw.output())


def _make_item_shape(rw: ListRewriter) -> None:
    items, y = rw.input(0), rw.output()
    shape = rw.op("SHAPE", items, like=y, name="list", shape=(items.rank,), out_type=y.dtype)
    rw.slice_items(shape, 1, None, y)


@dataclass(frozen=True)
class ListForm:
    """The role of each operand of a list operator: operands are inputs i, and outputs ~i.

    Attributes:
        rule: adds the operators that replace the operator.
        lists: the operands that are lists.
        item: the operand that is an item.
        stack: the operand whose first axis counts items.
        shape: the input with the shape of an item, -1 for unknown sizes.
        resizes: whether the operator changes the number of items.
    """

    rule: Callable[[ListRewriter], None]
    lists: tuple[int, ...]
    item: int | None = None
    stack: int | None = None
    shape: int | None = None
    resizes: bool = False


FORMS: Mapping[str, ListForm] = {
    "FlexTensorListReserve": ListForm(_make_list, (~0,), shape=0),
    "FlexEmptyTensorList": ListForm(_make_list, (~0,), shape=0, resizes=True),
    "FlexTensorListFromTensor": ListForm(_reuse_tensor, (~0,), stack=0, shape=1),
    "FlexTensorListSetItem": ListForm(_set_item, (0, ~0), item=2),
    "FlexTensorListGetItem": ListForm(_get_items, (0,), item=~0, shape=2),
    "FlexTensorListGather": ListForm(_get_items, (0,), stack=~0, shape=2),
    "FlexTensorListStack": ListForm(_reuse_tensor, (0,), stack=~0, shape=1),
    "FlexTensorListPushBack": ListForm(_push_item, (0, ~0), item=1, resizes=True),
    "FlexTensorListPopBack": ListForm(_pop_item, (0, ~0), item=~1, shape=1, resizes=True),
    "FlexTensorListConcatV2": ListForm(_concatenate_items, (0,)),
    "FlexTensorListLength": ListForm(_count_items, (0,)),
    "FlexTensorListElementShape": ListForm(_make_item_shape, (0,)),
}
COUNTED = ("FlexTensorListReserve",)  # operators that make a list of a given number of items
MAKERS = (*COUNTED, "FlexEmptyTensorList")  # operators that make a new list

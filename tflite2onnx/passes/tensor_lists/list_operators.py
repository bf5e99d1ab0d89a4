"""TensorFlow's operators on lists, as TFLite's operators on tensors (see `lower_tensor_lists`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import numpy as np

from tflite2onnx.errors import OperatorError
from tflite2onnx.graph import Op, Options
from tflite2onnx.tensor import DType, Shape, Tensor

# A size of an item: a number, or that of an axis of an input.
Size: TypeAlias = "int | tuple[Tensor, int]"


def operand(op: Op, number: int) -> Tensor:
    """Return input i, or output ~i, which has to be there."""
    operands, index = (op.inputs, number) if number >= 0 else (op.outputs, ~number)
    found = operands[index] if index < len(operands) else None
    if found is None:
        raise OperatorError(f"{'input' if number >= 0 else 'output'} {index} is missing")
    return found


@dataclass(frozen=True)
class ListOp:
    """An operator on a list, which is a tensor by now, and the operators that stand for it.

    `sizes` are those of an item, and `single` says that there is always one.
    """

    op: Op
    sizes: Sequence[Size]
    single: bool
    ops: list[Op] = field(default_factory=list)

    def input(self, index: int) -> Tensor:
        """Return an input, which has to be there."""
        return operand(self.op, index)

    def output(self, index: int = 0) -> Tensor:
        """Return an output."""
        return operand(self.op, ~index)

    def make(self, code: str, inputs: Sequence[Tensor], made: Tensor, **options: object) -> Tensor:
        """Add an operator, and return what it makes."""
        plain = {"fused_activation_function": "NONE", **options}
        self.ops.append(Op(code, self.op.index, tuple(inputs), (made,), Options(plain)))
        return made

    def make_int32(
        self, code: str, inputs: Sequence[Tensor], name: str, shape: Shape, **options: object
    ) -> Tensor:
        """Add an operator that makes int32 numbers."""
        made = Tensor(f"{self.output().name}/{name}", shape, DType.INT32)
        return self.make(code, inputs, made, **options)

    def slice_items(
        self, x: Tensor, begin: int, end: int | None, made: Tensor, *, one: bool = False
    ) -> Tensor:
        """Add what takes items along the first axis, or one of them; to the last if `end` is None.

        Places can be counted from behind.
        """
        ranges = [_ints([place]) for place in (begin, end or 0, 1)]
        return self.make(
            "STRIDED_SLICE",
            [x, *ranges],
            made,
            begin_mask=0,
            end_mask=int(end is None),
            ellipsis_mask=0,
            new_axis_mask=0,
            shrink_axis_mask=int(one),
            offset=False,
        )

    def size(self, x: Tensor, axis: int, made: Tensor | None = None) -> Tensor:
        """Add what tells the size of an axis, a number."""
        number = made or Tensor(f"{self.output().name}/size", (), DType.INT32)
        shape = replace(number, name=f"{number.name}/shape", shape=(x.rank,), shape_signature=())
        self.make("SHAPE", [x], shape, out_type=number.dtype)
        return self.slice_items(shape, axis, axis + 1, number, one=True)

    def scalar(self, number: Tensor) -> Tensor:
        """Return a number without axes."""
        if number.rank == 0:
            return number
        return self.make_int32("RESHAPE", [number], "number", (), new_shape=())

    def row(self, item: Tensor, made: Tensor | None = None) -> Tensor:
        """Add what makes a list of one item."""
        signature = (1, *(item.shape_signature or item.shape))
        row = replace(
            item,
            name=f"{self.output().name}/row",
            shape=(1, *item.shape),
            data=None,
            shape_signature=signature,
        )
        return self.make("EXPAND_DIMS", [item, _ints([0])], made or row)


def _ints(numbers: Sequence[int]) -> Tensor:
    return Tensor("numbers", (len(numbers),), DType.INT32, np.array(numbers, np.int32))


def _constant(number: int) -> Tensor:
    return Tensor("number", (), DType.INT32, np.array(number, np.int32))


def _fill_list(site: ListOp, count: Tensor) -> None:
    """Add a list of so many items, all 0."""
    made = site.output()
    if made.dtype.numpy is None:
        raise OperatorError(f"a list of {made.dtype.label} is not converted")
    sizes = [_constant(size) if isinstance(size, int) else site.size(*size) for size in site.sizes]
    dims = site.make_int32("PACK", [count, *sizes], "dims", (1 + len(sizes),), axis=0)
    zero = Tensor("zero", (), made.dtype, np.zeros((), made.dtype.numpy))
    site.make("FILL", [dims, zero], made)


def _reserve(site: ListOp) -> None:
    _fill_list(site, site.scalar(site.input(1)))


def _empty(site: ListOp) -> None:
    _fill_list(site, _constant(0))


def _reuse_tensor(site: ListOp) -> None:
    """FromTensor and Stack: the tensor is the list."""
    site.make("CAST", [site.input(0)], site.output())


def _set_item(site: ListOp) -> None:
    items, index, item = (site.input(i) for i in range(3))
    if site.op.options.get("resize_if_index_out_of_bounds"):
        raise OperatorError("it makes its list longer where there is no such item")
    if site.single:
        site.row(item, site.output())
        return
    zeros = _ints([0] * len(site.sizes))
    first = site.make_int32("RESHAPE", [index], "index", (1,), new_shape=(1,))
    starts = site.make_int32("CONCATENATION", [first, zeros], "starts", (items.rank,), axis=0)
    site.make("DYNAMIC_UPDATE_SLICE", [items, site.row(item), starts], site.output())


def _get_item(site: ListOp) -> None:
    index = site.scalar(site.input(1))
    site.make("GATHER", [site.input(0), index], site.output(), axis=0, batch_dims=0)


def _gather(site: ListOp) -> None:
    site.make("GATHER", [site.input(0), site.input(1)], site.output(), axis=0, batch_dims=0)


def _push_back(site: ListOp) -> None:
    site.make("CONCATENATION", [site.input(0), site.row(site.input(1))], site.output(), axis=0)


def _pop_back(site: ListOp) -> None:
    site.slice_items(site.input(0), -1, None, site.output(1), one=True)
    site.slice_items(site.input(0), 0, -1, site.output())


def _concatenate_items(site: ListOp) -> None:
    """ConcatV2: the items, one behind the other, and how many rows each is."""
    items, made, rows = site.input(0), site.output(), site.output(1)
    if not site.sizes or not all(isinstance(size, int) for size in site.sizes[1:]):
        raise OperatorError("the items that it joins have no rows, or rows of sizes that stay open")
    shape = [-1, *(size for size in site.sizes[1:] if isinstance(size, int))]
    site.make("RESHAPE", [items, _ints(shape)], made, new_shape=shape)
    count = site.make_int32("PACK", [site.size(items, 0)], "count", (1,), axis=0)
    size = Tensor(f"{rows.name}/size", (), rows.dtype)
    site.make("FILL", [count, site.size(items, 1, size)], rows)


def _length(site: ListOp) -> None:
    site.size(site.input(0), 0, site.output())


def _element_shape(site: ListOp) -> None:
    items, made = site.input(0), site.output()
    shape = replace(made, name=f"{made.name}/list", shape=(items.rank,), shape_signature=())
    site.make("SHAPE", [items], shape, out_type=made.dtype)
    site.slice_items(shape, 1, None, made)


@dataclass(frozen=True)
class Form:
    """What an operator has to do with lists: operands are inputs i, and outputs ~i.

    Attributes:
        rule: adds the operators that stand for it.
        lists: the operands that are lists.
        item: the operand that is an item.
        stack: the operand whose first axis counts items.
        shape: the input that says how large items are, -1 where it does not.
        resizes: whether it makes a list of another length.
    """

    rule: Callable[[ListOp], None]
    lists: tuple[int, ...]
    item: int | None = None
    stack: int | None = None
    shape: int | None = None
    resizes: bool = False


FORMS: Mapping[str, Form] = {
    "FlexTensorListReserve": Form(_reserve, (~0,), shape=0),
    "FlexEmptyTensorList": Form(_empty, (~0,), shape=0, resizes=True),
    "FlexTensorListFromTensor": Form(_reuse_tensor, (~0,), stack=0, shape=1),
    "FlexTensorListSetItem": Form(_set_item, (0, ~0), item=2),
    "FlexTensorListGetItem": Form(_get_item, (0,), item=~0, shape=2),
    "FlexTensorListGather": Form(_gather, (0,), stack=~0, shape=2),
    "FlexTensorListStack": Form(_reuse_tensor, (0,), stack=~0, shape=1),
    "FlexTensorListPushBack": Form(_push_back, (0, ~0), item=1, resizes=True),
    "FlexTensorListPopBack": Form(_pop_back, (0, ~0), item=~1, shape=1, resizes=True),
    "FlexTensorListConcatV2": Form(_concatenate_items, (0,)),
    "FlexTensorListLength": Form(_length, (0,)),
    "FlexTensorListElementShape": Form(_element_shape, (0,)),
}
COUNTED = ("FlexTensorListReserve",)  # what makes a list of a number of items
MAKERS = (*COUNTED, "FlexEmptyTensorList")  # what makes a list of nothing

"""Checks of operands and parameters: constants, axes in range, shapes that agree."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from math import prod
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from tflite2onnx.errors import OperatorError
from tflite2onnx.op.base import Operator, Unknown
from tflite2onnx.quantization.storage import is_quantized
from tflite2onnx.tensor import MOST_AXES, DType, Shape, Tensor
from tflite2onnx.utils.console import count
from tflite2onnx.utils.constant_budget import MOST_ELEMENTS
from tflite2onnx.utils.dimension import (
    Dim,
    UnequalError,
    depends_on_inputs,
    evaluate,
    find_only_solution,
    is_known,
    require_equal,
    require_number,
)
from tflite2onnx.utils.suggestions import join_alternatives

if TYPE_CHECKING:
    from tflite2onnx.op.traits import DynamicShape

T = TypeVar("T")
# The types of weights for integer data; weights of signed data are signed. The kernels
# (EvalQuantized in fully_connected.cc and conv.cc) read other types as one of these types.
_SIGNED = (DType.INT8, DType.INT4, DType.INT2)
_WEIGHTS = {DType.UINT8: (DType.UINT8,), DType.INT8: _SIGNED, DType.INT16: (DType.INT16, *_SIGNED)}
# TFLite's numbers of types in options.
_TYPE_NUMBERS: dict[object, DType] = {2: DType.INT32, 4: DType.INT64}


def ints(operator: Operator, index: int) -> list[Any]:
    """Return the elements of a constant integer input as a flat list; else raise OperatorError.

    In `Operator.infer_outputs` the elements may be dimensions.
    """
    tensor = operator.input(index)
    if not tensor.dtype.is_integer and tensor.dtype is not DType.BOOL:
        raise OperatorError(f"{tensor.name} must be integers, got {tensor.dtype.label}")
    if tensor.elements == 0:  # the file stores no elements of an empty tensor
        return []
    if tensor.data is None:
        raise OperatorError(f"{tensor.name} must be constant")
    elements = tensor.data.reshape(-1).tolist()
    return elements if tensor.dtype.is_integer else [int(i) for i in elements]


def expect_list(operator: Operator, index: int, count: int) -> None:
    """Raise OperatorError unless an input is a list, constant or not, of `count` int32 or int64.

    In `Operator.infer_outputs` the size of a list of unknown length becomes `count`.
    """
    expect_rows(operator, index, (count,))


def expect_rows(operator: Operator, index: int, shape: Shape) -> None:
    """Raise OperatorError unless an input is int32 or int64 of a shape; else as `expect_list`."""
    tensor = operator.input(index)
    expect_type(tensor, (DType.INT32, DType.INT64))
    if tensor.rank == len(shape):
        for size, number in zip(tensor.shape, shape, strict=True):
            require_number(size, number, f"{tensor.name} must have the shape {list(shape)}")
    expect(tensor, shape, tensor.dtype)


def count_listed_axes(operator: Operator, index: int) -> int:
    """Return the number of axes that an input lists; OperatorError if there are too many."""
    tensor = operator.input(index)
    if not is_known(tensor.elements):
        reason = (
            f"{tensor.name} has an element for each axis, so that its size must be known:"
            f" give --shape {tensor.name}=N if it is an input"
        )
        if depends_on_inputs(tensor.elements):
            raise UnequalError(tensor.elements, evaluate(tensor.elements), reason)
        raise OperatorError(reason)
    if (count := tensor.elements) > MOST_AXES:
        raise OperatorError(f"{tensor.name} must have an element for each axis, got {count}")
    return count


def count_listed_sizes(operator: Operator, index: int) -> int:
    """Return the rank of the output, whose sizes an input lists.

    If the file does not know the length of the list, but declares several axes of the output, the
    list has an element for each of them.
    """
    tensor, rank = operator.input(index), operator.output.rank
    is_open = tensor.dynamic_axes or tensor.symbols or not is_known(tensor.elements)
    if rank <= 1 or not is_open:
        return count_listed_axes(operator, index)
    if find_only_solution(tensor.elements, rank):
        reason = f"{tensor.name} must have {rank} elements, as {operator.output.name} has axes"
        require_number(tensor.elements, rank, reason)
    return rank


def read_shape(operator: DynamicShape, index: int) -> list[Dim | Unknown]:
    """Return the output's shape, which an input lists; sizes of a computed list are unknown."""
    if operator.has_data_dependent_shape:
        return [Unknown() for _ in range(count_listed_sizes(operator, index))]
    return [*ints(operator, index)]


def integer(operator: Operator, index: int) -> int:
    """Return the only element of a constant integer input; OperatorError as for `ints`."""
    numbers = ints(operator, index)
    if (count := len(numbers)) != 1:
        raise OperatorError(f"{operator.input(index).name} must have one element, got {count}")
    number: int = numbers[0]  # `Operator.infer_outputs` may pass a dimension
    return number


def read_count(operator: Operator, index: int, what: str, least: int = 0) -> int:
    """Return a constant number of elements that are computed; OperatorError if it is too small."""
    number = integer(operator, index)
    check_element_count(number)
    if number < least:
        raise OperatorError(f"{what} must be at least {least}, got {number}")
    return number


def read_pairs(operator: Operator, index: int, rows: int) -> list[tuple[Any, Any]]:
    """Return the rows of a constant [rows, 2] of paddings or crops, which are not negative."""
    table, flat = operator.input(index), ints(operator, index)
    # Numbers that are computed from dynamic sizes are remainders of divisions.
    if table.shape != (rows, 2) or any(is_known(n) and n < 0 for n in flat):
        raise OperatorError(
            f"{table.name} must be non-negative and have the shape {[rows, 2]}, got {flat} of the"
            f" shape {list(table.shape)}"
        )
    return list(zip(flat[::2], flat[1::2], strict=True))


def expect_indices(indices: Tensor, sizes: Sequence[int]) -> None:
    """Raise OperatorError unless a tensor holds integers, and constants are within these sizes.

    The kernels refuse negative indices, which ONNX would count from the end. Indices that are
    computed at run time are not checked.
    """
    subject, data = f"the indices {indices.name}", indices.data
    if not indices.dtype.is_integer:
        raise OperatorError(f"{subject} must be integers, got {indices.dtype.label}")
    if data is not None and ((data < 0) | (data >= np.asarray(sizes))).any():
        raise OperatorError(f"{subject} must be at least 0 and below {list(sizes)}")


def axis_of(number: int, rank: int) -> int:
    """Return an axis as 0 ... rank - 1; negative numbers count from the end, else OperatorError."""
    if not -rank <= number < rank:
        raise OperatorError(f"the axis must be at least {-rank} and below {rank}, got {number}")
    return number % rank


def expect(tensor: Tensor, shape: Sequence[int], dtype: DType) -> None:
    """Raise OperatorError unless the file declares this shape and type for a tensor.

    The planner reads the declared shapes, so wrong shapes are refused here.
    """
    if tensor.shape != tuple(shape) or tensor.dtype is not dtype:
        text = f"{tensor.dtype.label}{list(tensor.shape)}"
        raise OperatorError(f"{tensor.name} must be {dtype.label}{list(shape)}, got {text}")


def expect_rank(tensor: Tensor, rank: int) -> None:
    """Raise OperatorError unless the file declares this number of axes for a tensor."""
    if tensor.rank != rank:
        raise OperatorError(f"{tensor.name} must have {rank} axes, got {tensor.rank}")


def expect_symmetric(tensor: Tensor) -> None:
    """Raise OperatorError if a tensor has a zero point other than 0, which the kernel ignores."""
    if tensor.quantization is not None and tensor.quantization.zero_point.any():
        raise OperatorError(
            f"{tensor.name} must have the zero point 0, because the kernel ignores another"
        )


def list_types(operator: Operator, types: str, wide: str) -> list[str]:
    """Return the types of LiteRT's kernel, and for its operators of TensorFlow's, too."""
    made = operator.op.made
    listed = f"{types} {wide}" if (made and made.of_tensorflow) else types
    return list(dict.fromkeys(listed.split()))


def expect_type(tensor: Tensor, types: Collection[DType]) -> None:
    """Raise OperatorError unless a tensor's type is one of these."""
    if tensor.dtype not in types:
        listed = join_alternatives([dtype.label for dtype in types])
        raise OperatorError(f"{tensor.name} must be {listed}, got {tensor.dtype.label}")


def expect_input_count(operator: Operator, inputs: int) -> None:
    """Raise OperatorError unless the operator has this many inputs."""
    if (number := len(operator.op.inputs)) != inputs:
        raise OperatorError(f"it must have {count(inputs, 'input')}, got {number}")


def expect_output_count(operator: Operator, outputs: int) -> None:
    """Raise OperatorError unless the operator has this many outputs."""
    if (number := len(operator.op.outputs)) != outputs:
        raise OperatorError(f"it must have {count(outputs, 'output')}, got {number}")


def expect_weights(data: Tensor, weights: Tensor) -> None:
    """Raise OperatorError unless kernels multiply data of this type by weights of this type."""
    if data.dtype.is_integer:
        expect_type(data, _WEIGHTS.keys())
        expect_type(weights, _WEIGHTS[data.dtype])


def expect_type_option(tensor: Tensor, number: object) -> None:
    """Raise OperatorError if an option names int32 or int64, and a tensor has the other type."""
    if _TYPE_NUMBERS.get(number, dtype := tensor.dtype) is not dtype:
        raise OperatorError(f"its option for the type of {tensor.name} must be {dtype.label}")


def expect_real(*tensors: Tensor) -> None:
    """Raise OperatorError unless all tensors are float32 or quantized."""
    for tensor in tensors:
        if (dtype := tensor.dtype) is not DType.FLOAT32 and not is_quantized(tensor):
            raise OperatorError(f"{tensor.name} must be float32 or quantized, got {dtype.label}")


def require_equal_shapes(one: Sequence[Dim], other: Sequence[Dim]) -> tuple[Dim, ...]:
    """Return the shape that two shapes are; OperatorError if they are different."""
    message = f"the shapes {list(one)} and {list(other)} must be equal"
    if len(one) != len(other):
        raise OperatorError(message)
    return tuple(require_equal(a, b, message) for a, b in zip(one, other, strict=True))


# The largest number of elements of a computed tensor. The number of bytes of a larger tensor does
# not fit into 64 bits.
MOST_COMPUTED = 1 << 62


def check_element_count(count: float) -> None:
    """Raise OperatorError if a computed constant would have too many elements for the memory.

    A few bytes of a file can declare axes of any size.
    """
    if not count <= MOST_ELEMENTS:
        raise OperatorError(
            f"a constant must have {MOST_ELEMENTS:,} elements at most, got {count:,.0f}"
        )


def find_features(shape: Shape, features: int) -> int:
    """Return the last axis from which on the sizes multiply to `features`, else the rank."""
    axes = (i for i in reversed(range(len(shape))) if prod(shape[i:]) == features)
    return next(axes, len(shape))


def drop_axis(items: Sequence[T], axis: int) -> tuple[T, ...]:
    """Return the items of all axes but one."""
    return (*items[:axis], *items[axis + 1 :])

"""What operators ask of their parameters: constants, axes in range, shapes that agree."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from math import prod
from typing import TypeVar

import numpy as np

from tflite2onnx.errors import OperatorError
from tflite2onnx.op.base import DeclaredShapeError, Operator
from tflite2onnx.quantize import is_quantized
from tflite2onnx.tensor import MOST_AXES, DType, Shape, Tensor
from tflite2onnx.utils.constant_budget import MOST_ELEMENTS

T = TypeVar("T")


def ints(operator: Operator, index: int) -> list[int]:
    """Return the elements of a constant integer input as a flat list.

    Raises:
        OperatorError: the input is missing, not constant, or of another type.
    """
    tensor = operator.input(index)
    if not tensor.dtype.is_integer and tensor.dtype is not DType.BOOL:
        raise OperatorError(f"{tensor.name} is {tensor.dtype.label} where integers are expected")
    if tensor.elements == 0:  # then the file holds no data either
        return []
    if tensor.data is None:
        raise OperatorError(f"{tensor.name} is not constant")
    return [int(i) for i in tensor.data.reshape(-1)]


def expect_list(operator: Operator, index: int, count: int) -> None:
    """Raise OperatorError unless an input is a list of so many int32 or int64.

    Its elements may be computed.
    """
    tensor = operator.input(index)
    expect_type(tensor, (DType.INT32, DType.INT64))
    expect(tensor, (count,), tensor.dtype)


def count_listed_axes(operator: Operator, index: int) -> int:
    """Return for how many axes an input has an element, by the length that the file declares.

    Raises:
        OperatorError: they are more than a tensor can have.
    """
    tensor = operator.input(index)
    if tensor.elements > MOST_AXES:
        raise OperatorError(
            f"{tensor.name} must have an element for each axis, got {tensor.elements}"
        )
    return tensor.elements


def expect_rank(tensor: Tensor, rank: int, dtype: DType) -> None:
    """Raise OperatorError unless a tensor, whose sizes are known at run time, has so many axes."""
    expect(tensor, tensor.shape if tensor.rank == rank else (1,) * rank, dtype)


def integer(operator: Operator, index: int) -> int:
    """Return the only element of a constant integer input; OperatorError as `ints`."""
    numbers = ints(operator, index)
    if len(numbers) != 1:
        raise OperatorError(
            f"{operator.input(index).name} has {len(numbers)} elements instead of one"
        )
    return numbers[0]


def expect_indices(indices: Tensor, sizes: Sequence[int]) -> None:
    """Raise OperatorError for what is no index, or is outside of axes of these sizes.

    Computed ones are taken for right. The kernels refuse negative indices; ONNX would count them
    from the end.
    """
    if not indices.dtype.is_integer:
        raise OperatorError(f"{indices.name} is {indices.dtype.label} where indices are expected")
    data = indices.data
    if data is not None and ((data < 0) | (data >= np.asarray(sizes))).any():
        raise OperatorError(f"{indices.name} has an index outside of {list(sizes)} elements")


def axis_of(number: int, rank: int) -> int:
    """Return an axis that may be counted from the end; OperatorError if there is none such."""
    if not -rank <= number < rank:
        raise OperatorError(f"there is no axis {number} among {rank}")
    return number % rank


def expect(tensor: Tensor, shape: Sequence[int], dtype: DType) -> None:
    """Raise OperatorError unless the file declares a tensor as the operator makes or needs it.

    The declared shapes are what the plan is made of, so a wrong one must not get there.
    """
    if tensor.shape != tuple(shape) or tensor.dtype is not dtype:
        declared = f"{tensor.dtype.label}{list(tensor.shape)}"
        message = f"{tensor.name} is {declared} where {dtype.label}{list(shape)} is expected"
        if tensor.dtype is dtype:
            raise DeclaredShapeError(message, tensor, tuple(shape))
        raise OperatorError(message)


def expect_type(tensor: Tensor, types: Collection[DType]) -> None:
    """Raise OperatorError unless a tensor's elements are of one of these types."""
    if tensor.dtype not in types:
        listed = ", ".join(dtype.label for dtype in types)
        raise OperatorError(
            f"{tensor.name} is {tensor.dtype.label} where one of {listed} is expected"
        )


def expect_real(*tensors: Tensor) -> None:
    """Raise OperatorError unless all tensors are float32 or quantized."""
    for tensor in tensors:
        if tensor.dtype is not DType.FLOAT32 and not is_quantized(tensor):
            raise OperatorError(
                f"{tensor.name} is {tensor.dtype.label}, neither float32 nor quantized"
            )


def expect_same_shape(one: Tensor, other: Tensor) -> None:
    """Raise OperatorError unless the file declares the other tensor of the first one's shape."""
    if one.shape != other.shape:
        raise DeclaredShapeError(
            f"{list(one.shape)} cannot become {list(other.shape)}", other, one.shape
        )


def check_element_count(count: float) -> None:
    """Raise OperatorError if a constant that the file does not hold would fill the memory.

    A few bytes of a file can declare axes of any size.
    """
    if not count <= MOST_ELEMENTS:
        raise OperatorError(f"it would take a constant of {count:,.0f} elements")


def features_from(shape: Shape, features: int) -> int:
    """Return the first of the last axes that hold so many elements, the rank if there is none."""
    fitting = (i for i in reversed(range(len(shape))) if prod(shape[i:]) == features)
    return next(fitting, len(shape))


def drop_axis(items: Sequence[T], axis: int) -> tuple[T, ...]:
    """Return the items of all axes but one."""
    return (*items[:axis], *items[axis + 1 :])

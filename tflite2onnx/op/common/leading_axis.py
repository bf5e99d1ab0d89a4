"""The change of operators for one more axis in front of operands (`add_leading_axis`)."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from tflite2onnx.graph import Op, Options

# An operator for one more axis, and its data inputs.
Wider: TypeAlias = tuple[Op, Collection[int]]


def prepend_axis(
    entries: Mapping[int, ArrayLike] | None = None,
    *,
    axes: int | None = None,
    option: str = "",
    data: tuple[int, ...] = (0,),
) -> Callable[[Any], Wider | None]:
    """Return the method `add_leading_axis` of operators that have an entry for the new axis.

    Args:
        entries: the entry in each constant input that has an entry for every axis.
        axes: the constant input that lists axes.
        option: the option that is an axis.
        data: the inputs that get the axis; all inputs if there are none.
    """

    def add_leading_axis(operator: Any) -> Wider | None:  # noqa: ANN401 - an Operator
        result: Op | None = shift_axis_option(operator.op, option) if option else operator.op
        if result and axes is not None:
            result = shift_axes_input(result, axes)
        result = result and prepend_entries(result, entries or {})
        return None if result is None else (result, data or range(len(operator.op.inputs)))

    return add_leading_axis


def shift_axis_option(op: Op, name: str = "axis") -> Op:
    """Return an operator whose axis option is 1 higher; a negative axis stays."""
    axis = op.options[name]
    return replace(op, options=Options({**op.options, name: axis + (axis >= 0)}))


def shift_axes_input(op: Op, index: int) -> Op | None:
    """Return an operator whose input of axes is 1 higher, None if the input is not constant."""
    axes = op.inputs[index]
    if axes is None or axes.data is None:
        return None
    numbers = np.asarray(axes.data + (axes.data >= 0), axes.data.dtype)
    inputs = list(op.inputs)
    inputs[index] = replace(axes, data=numbers)
    return replace(op, inputs=tuple(inputs))


def prepend_entries(op: Op, entries: Mapping[int, ArrayLike]) -> Op | None:
    """Return an operator whose constant inputs have an entry for an axis in front of all others.

    `entries` has the new entry of each input. Returns None if an input is not constant.
    """
    inputs = list(op.inputs)
    for index, entry in entries.items():
        numbers = inputs[index]
        if numbers is None or numbers.data is None:
            return None
        first = np.asarray(entry, numbers.data.dtype)[None]
        data = np.concatenate([first, numbers.data.reshape(-1, *first.shape[1:])])
        inputs[index] = replace(numbers, data=data, shape=data.shape)
    return replace(op, inputs=tuple(inputs))

"""Operators for operands with one more axis in front: `Operator.add_leading_axis`."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from tflite2onnx.graph import Op, Options


def shift_axis_option(op: Op, name: str = "axis") -> Op:
    """Return an operator whose option counts one more axis; negative numbers stay."""
    axis = op.options[name]
    return replace(op, options=Options({**op.options, name: axis + (axis >= 0)}))


def shift_axes_input(op: Op, index: int) -> Op | None:
    """Return an operator whose constant input counts one more axis, None if it is not constant."""
    axes = op.inputs[index]
    if axes is None or axes.data is None:
        return None
    numbers = np.asarray(axes.data + (axes.data >= 0), axes.data.dtype)
    shifted = replace(axes, data=numbers)
    return replace(op, inputs=(*op.inputs[:index], shifted, *op.inputs[index + 1 :]))


def prepend_entries(op: Op, entries: dict[int, ArrayLike]) -> Op | None:
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

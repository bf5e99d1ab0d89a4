"""Nodes of small integer constants, which the builder computes in place of adding them.

Operators state once how sizes, places and indices are computed. What a run knows becomes nodes;
what the converter knows becomes constants.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial, reduce
from typing import Any

import numpy as np

from tflite2onnx.tensor import Array

_TYPES = {*map(np.dtype, ("int64", "int32", "bool"))}
_MOST = 1 << 16  # elements of an input
_FEW = 64  # elements, which take as many bytes as a few nodes


def fold_node(
    op_type: str, inputs: Sequence[Array | None], attributes: Mapping[str, Any]
) -> Array | None:
    """Return what a node computes from constant inputs, None if it must be a node.

    It must be one if its result is larger than its inputs, as a sum of rows and columns is: the
    file would become larger.
    """
    function = _FUNCTIONS.get(op_type) or _ELEMENTWISE.get(op_type)
    if function is None:
        return None
    arrays = [data for data in inputs if data is not None]
    if len(arrays) < len(inputs):  # the usual case
        return None
    if not all(data.dtype in _TYPES and data.size <= _MOST for data in arrays):
        return None
    if op_type in _ELEMENTWISE and not _is_smaller(np.broadcast(*arrays).size, *arrays):
        return None
    folded = function(*arrays, **attributes)
    return None if folded is None else np.asarray(folded)


def _is_smaller(size: int, *inputs: Array) -> bool:
    return size <= max(_FEW, sum(data.size for data in inputs))


def _divide(a: Array, b: Array) -> Array | None:
    """Return quotients that are rounded towards 0, as ONNX rounds them."""
    return np.sign(a) * np.sign(b) * (np.abs(a) // np.abs(b)) if b.all() else None


def _find_remainder(a: Array, b: Array, fmod: int = 0) -> Array | None:
    return np.mod(a, b) if b.all() and not fmod else None


def _gather(x: Array, indices: Array, axis: int = 0) -> Array | None:
    size = indices.size * x.size // max(x.shape[axis], 1)
    return x.take(indices, axis) if _is_smaller(size, x, indices) else None


def _pad(x: Array, pads: Array, fill: Array) -> Array | None:
    pairs = pads.reshape(2, -1).T
    is_small = _is_smaller((x.shape + pairs.sum(1)).prod(), x, pads)
    return np.pad(x, pairs, constant_values=fill) if is_small and (pads >= 0).all() else None


def _reduce(
    function: Callable[..., Any],
    x: Array,
    listed: Array | None = None,
    *,
    axes: Sequence[int] = (),
    keepdims: int,
    noop_with_empty_axes: int = 0,
) -> Array:
    over = tuple(axes) if listed is None else tuple(listed.tolist())
    if noop_with_empty_axes and not over:
        return x
    return np.asarray(function(x, axis=over or None, keepdims=bool(keepdims)), x.dtype)


def _reshape(x: Array, shape: Array, allowzero: int = 0) -> Array | None:
    # A size of 0 may stand for the size of the input.
    return x.reshape(shape.tolist()) if allowzero or shape.all() else None


def _slice(
    x: Array, first: Array, last: Array, axes: Array | None = None, steps: Array | None = None
) -> Array:
    places = range(x.ndim) if axes is None else axes.tolist()
    strides = np.ones(x.ndim, np.int64) if steps is None else steps
    parts = [slice(None)] * x.ndim
    for axis, *bounds in zip(places, first.tolist(), last.tolist(), strides, strict=False):
        parts[axis] = slice(*bounds)
    return x[tuple(parts)]


_ELEMENTWISE: Mapping[str, Callable[..., Array | None]] = {
    "Add": np.add,
    "And": np.logical_and,
    "Div": _divide,
    "Equal": np.equal,
    "Greater": np.greater,
    "GreaterOrEqual": np.greater_equal,
    "Less": np.less,
    "Max": lambda *xs: reduce(np.maximum, xs),
    "Min": lambda *xs: reduce(np.minimum, xs),
    "Mod": _find_remainder,
    "Mul": np.multiply,
    "Neg": np.negative,
    "Sub": np.subtract,
    "Where": np.where,
}
_FUNCTIONS: Mapping[str, Callable[..., Array | None]] = {
    "Concat": lambda *xs, axis: np.concatenate(xs, axis),
    "Gather": _gather,
    "Pad": _pad,
    "ReduceMin": partial(_reduce, np.min),
    "ReduceProd": partial(_reduce, np.prod),
    "ReduceSum": partial(_reduce, np.sum),
    "Reshape": _reshape,
    "Slice": _slice,
    "Squeeze": lambda x, axes: x.squeeze(tuple(axes.tolist())),
    "Transpose": lambda x, perm: x.transpose(perm),
    "Unsqueeze": lambda x, axes: np.expand_dims(x, tuple(axes.tolist())),
}

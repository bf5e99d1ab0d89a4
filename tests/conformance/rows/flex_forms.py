"""Forms of TensorFlow's operators: their operands, and their outputs in numpy."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from tests.conformance.bench import Array
from tests.contrib.flex import test_bitwise, test_wide_types
from tests.contrib.flex.test_translate import floats, ints, scalar
from tests.contrib.signal import test_inverse_rfft
from tests.op.movement import test_roll
from tests.op.vision import test_pool3d, test_unpool
from tests.references import images


class Fed(NamedTuple):
    """The elements of an input; with `typed` they get the type of the case."""

    array: Array
    typed: bool = False


class Form(NamedTuple):
    """An operator's operands and attributes, its outputs in numpy, and its types.

    An operand is the shape of an input, an input (`Fed`) or a constant. A float32 constant gets the
    type of the case.
    """

    operands: Sequence[Any]
    made: Callable[..., Any]
    attributes: Mapping[str, Any] = {}
    kinds: Sequence[str] = ("float32",)


def _one_hot(places: Array, depth: Array, on: Array, off: Array) -> Array:
    return np.where(np.array(range(int(depth)))[:, None] == places[:, None], on, off)


def _scatter(places: Array, updates: Array, shape: Array) -> Array:
    made = np.zeros(shape, updates.dtype)
    np.add.at(made, tuple(places.T), updates)
    return made


def _count_range(start: Array, limit: Array, step: Array) -> Array:
    return np.array(range(int(start), int(limit), int(step)), np.int32)


def _largest(x: Array, count: Array) -> list[Array]:
    order = np.argsort(-x, kind="stable")[:, :count]
    return [np.take_along_axis(x, order, -1), order.astype(np.int32)]


def _segments(combine: Any, start: float) -> Callable[..., Array]:
    """Return a function that combines the rows of each segment."""

    def reduce_segments(x: Array, numbers: Array, count: Array | None = None) -> Array:
        shape = int(numbers.max() + 1 if count is None else count), *x.shape[1:]
        result = np.full(shape, start, x.dtype)
        combine.at(result, numbers, x)
        return result

    return reduce_segments


def _dense(places: Array, shape: Array, values: Array, default: Array) -> Array:
    made = np.full(shape, default)
    made[tuple(places.T)] = values
    return made


def _unique(x: Array) -> list[Array]:
    values, first, places = np.unique(x, return_index=True, return_inverse=True)
    order = np.argsort(first)
    return [values[order], np.argsort(order)[places].astype(np.int32)]


def _from_blocks(x: Array, _: Array, crops: Array) -> Array:
    """Return images from blocks of 2 by 2 pixels."""
    batch, height, width, channels = x.shape
    blocks = x.reshape(2, 2, batch // 4, height, width, channels).transpose(2, 3, 0, 4, 1, 5)
    image = blocks.reshape(batch // 4, 2 * height, 2 * width, channels)
    (top, bottom), (left, right) = crops.tolist()
    return image[:, top : 2 * height - bottom, left : 2 * width - right]


def _transpose_conv(_: Array, filters: Array, x: Array) -> Array:
    """Return a transposed convolution with strides 2 and 1."""
    biases = np.zeros(filters.shape[2], np.float32)
    return images.transpose_conv(x, filters.transpose(2, 0, 1, 3), biases, (2, 1), same=True)


def _suppress(
    boxes: Array, scores: Array, most: Array, overlap: Array, least: Array
) -> list[Array]:
    """Return the boxes that overlap no box of a higher score by more than the threshold."""
    chosen: list[int] = []
    for i in np.argsort(-scores, kind="stable").tolist():
        if scores[i] > least and len(chosen) < most:
            shares = (_overlap(boxes[i], boxes[j]) for j in chosen)
            chosen += [i] if all(share <= overlap for share in shares) else []
    return [np.array(chosen + [0] * (int(most) - len(chosen)), np.int32), scalar(len(chosen))]


def _overlap(a: Array, b: Array) -> float:
    low, high = np.maximum(a[:2], b[:2]), np.minimum(a[2:], b[2:])
    both = float(np.prod(np.maximum(high - low, 0)))
    return both / (float(np.prod(a[2:] - a[:2]) + np.prod(b[2:] - b[:2])) - both)


def _suppress_with_scores(boxes: Array, scores: Array, *bounds: Array) -> list[Array]:
    chosen, count = _suppress(boxes, scores, *bounds[:3])
    best = np.where(np.arange(chosen.size) < count, scores[chosen], 0).astype(np.float32)
    return [chosen, best, count]


_WINDOW = ((3, 2, 1), (1, 2, 3))
_VOLUME = test_pool3d.options(*_WINDOW, "SAME")
_PADS = ints(1, 2, 0, 3).reshape(2, 2)
_ROWS = ints(0, 0, 1, 2, 2)
_MANY = ("float32", "int32")
_INDEXED = ("float32", "int32", "int64", "bool")
_LEARNED = [np.abs(floats(7)) + np.float32(i) for i in range(4)]
_CORNERS = np.random.default_rng(0).uniform(0, 1, (20, 2)).astype(np.float32)
_BOXES = np.concatenate([_CORNERS, _CORNERS + np.float32(0.4)], 1)
_SCORES = np.random.default_rng(1).permutation(20).astype(np.float32) / 20
_BOUNDS = [scalar(7), np.float32(0.3), np.float32(0.2)]

FORMS: dict[str, Sequence[Form]] = {
    "All": [Form([(3, 5), ints(1)], lambda x, axes: x.all(axes[0]), kinds=("bool",))],
    "Any": [Form([(3, 5), ints(0)], lambda x, axes: x.any(axes[0]), kinds=("bool",))],
    "AddN": [
        Form(
            [(3, 5)] * 3,
            lambda *xs: sum(xs),
            {"N": 3},
            ("float64", "float16", "int8", "int16", "int64", "uint8"),
        )
    ],
    "ArgMax": [Form([(3, 5), scalar(1)], lambda x, axis: x.argmax(axis))],
    "ArgMin": [Form([(3, 5), scalar(0)], lambda x, axis: x.argmin(axis))],
    "Atan2": [Form([(3, 5), (3, 5)], np.arctan2)],
    "AvgPool3D": [
        Form(
            [(2, 5, 7, 4, 3)],
            partial(test_pool3d.pool_reference, window=_WINDOW, padding="SAME", average=True),
            _VOLUME,
        )
    ],
    "BatchToSpaceND": [
        Form([(4, 2, 3, 5), ints(2, 2), ints(0, 1, 1, 0).reshape(2, 2)], _from_blocks)
    ],
    "Bitcast": [Form([(3, 5)], lambda x: x.view(np.int32))],
    "BroadcastArgs": [Form([Fed(ints(3, 1)), Fed(ints(2, 1, 5))], lambda *_: ints(2, 3, 5))],
    "Cast": [
        Form([(3, 5)], lambda x: x.astype(np.int32), {"Truncate": False}),
        Form(
            [(3, 5)],
            lambda x: x.astype(np.float32),
            {"Truncate": False},
            ("int8", "int32", "int64", "bool", "float64", "uint16"),
        ),
    ],
    "ClipByValue": [
        Form(
            [(3, 5), np.float32(1), np.float32(2)],
            np.clip,
            kinds=("float32", "float64", "int32", "uint16", "uint32"),
        )
    ],
    "ComplexAbs": [Form([(3, 5)], np.abs, kinds=("complex64",))],
    "ConjugateTranspose": [Form([(3, 5), ints(1, 0)], lambda x, _: x.T, kinds=_INDEXED)],
    "Conv2DBackpropInput": [
        Form(
            [ints(1, 5, 7, 5), floats(3, 2, 5, 4), (1, 3, 7, 4)],
            _transpose_conv,
            {"strides": [1, 2, 1, 1], "padding": "SAME", "data_format": "NHWC"},
        )
    ],
    "Fill": [Form([ints(2, 3), ()], np.full, kinds=_INDEXED)],
    **{
        name: [
            Form(
                [(2, 3, 5, 7), *_LEARNED],
                test_wide_types.normalize,
                {"is_training": False, "epsilon": 0.01},
            )
        ]
        for name in test_wide_types.NORMALIZATIONS
    },
    "IdentityN": [Form([(2, 3), (5,)], lambda *xs: list(xs), kinds=(*_INDEXED, "uint16"))],
    "Imag": [Form([(3, 5)], np.imag, kinds=("complex64",))],
    "Invert": [Form([(3, 5)], np.invert, kinds=test_bitwise.TYPES)],
    "IRFFT2D": [Form([(4, 5), ints(4, 8)], test_inverse_rfft.inverse, kinds=("complex64",))],
    "MaxPool3D": [
        Form(
            [(2, 5, 7, 4, 3)],
            partial(test_pool3d.pool_reference, window=_WINDOW, padding="SAME", average=False),
            _VOLUME,
        )
    ],
    "MaxPoolWithArgmax": [
        Form(
            [(2, 11, 7, 3)],
            lambda x: list(images.max_pool(x, (3, 2), (2, 3), same=True, within=False)),
            test_unpool.flex_options_of("SAME", (3, 2), (2, 3)),
        )
    ],
    "NonMaxSuppressionV4": [
        Form([Fed(_BOXES), Fed(_SCORES), *_BOUNDS], _suppress, {"pad_to_max_output_size": True})
    ],
    "NonMaxSuppressionV5": [
        Form(
            [Fed(_BOXES), Fed(_SCORES), *_BOUNDS, np.float32(0)],
            _suppress_with_scores,
            {"pad_to_max_output_size": True},
        )
    ],
    "OneHot": [
        Form(
            [np.array([[2, 0], [1, 7]]), scalar(4), (), ()],
            _one_hot,
            {"axis": 1},
            (*_INDEXED, "int16", "uint16", "float16"),
        )
    ],
    "PadV2": [
        Form(
            [(3, 5), _PADS, ()],
            lambda x, by, value: np.pad(x, by, constant_values=value),
            kinds=("float32", "int32", "int64"),
        )
    ],
    "PopulationCount": [Form([(3, 5)], test_bitwise.count_bits, kinds=test_bitwise.TYPES)],
    "Range": [Form([scalar(3), Fed(scalar(20)), scalar(4)], _count_range, kinds=("int32",))],
    "Rank": [Form([(3, 5)], lambda x: scalar(x.ndim), kinds=_INDEXED)],
    "Real": [Form([(3, 5)], np.real, kinds=("complex64",))],
    "Roll": [Form([(3, 5), ints(2, -1), ints(0, 1)], test_roll.roll_reference, kinds=_INDEXED)],
    "ScatterNd": [Form([ints(4, 1).reshape(2, 1), (2, 3), ints(5, 3)], _scatter, kinds=_MANY)],
    "SegmentSum": [Form([(5, 3), _ROWS], _segments(np.add, 0), kinds=_MANY)],
    **{
        f"UnsortedSegment{name}": [
            Form([(5, 3), _ROWS[::-1].copy(), scalar(3)], _segments(combine, start), kinds=_MANY)
        ]
        for name, combine, start in (
            ("Sum", np.add, 0),
            ("Prod", np.multiply, 1),
            ("Max", np.maximum, -999),
            ("Min", np.minimum, 999),
        )
    },
    "Select": [
        Form(
            [np.array([True, False, True]), (3, 5), (3, 5)],
            lambda which, a, b: np.where(which[:, None], a, b),
            kinds=_INDEXED,
        )
    ],
    "SelectV2": [
        Form([np.array([[True], [False], [True]]), (3, 5), (5,)], np.where, kinds=_INDEXED)
    ],
    "Shape": [Form([(3, 5)], lambda x: ints(*x.shape), kinds=_INDEXED)],
    "ShapeN": [Form([(3, 5), (7,)], lambda *xs: [ints(*x.shape) for x in xs], kinds=_INDEXED)],
    "SparseToDense": [
        Form([ints(0, 1, 2, 4).reshape(2, 2), ints(3, 5), (2,), ()], _dense, kinds=_MANY)
    ],
    "Split": [
        Form(
            [scalar(1), (3, 6)],
            lambda axis, x: np.split(x, 2, axis),
            {"num_split": 2},
            ("float32", "int32", "int64", "uint8"),
        )
    ],
    "SplitV": [
        Form(
            [(3, 5), ints(2, 3), scalar(1)],
            lambda x, sizes, axis: np.split(x, np.cumsum(sizes)[:-1], axis),
            {"num_split": 2},
            ("float32", "int32", "int64", "uint8"),
        )
    ],
    "TopKV2": [
        Form(
            [(3, 5), scalar(2)],
            _largest,
            {"sorted": each},
            ("float32", "float64", "float16", "int32", "int64"),
        )
        for each in (True, False)
    ],
    "Unique": [Form([Fed(ints(5, 3, 5, 0, 3))], _unique, {"out_idx": 3}, ("int32",))],
    "Where": [Form([Fed(np.array([[True, False], [False, True]]))], np.argwhere, kinds=("bool",))],
}

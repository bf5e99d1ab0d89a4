"""Forms of TensorFlow's operators on sequences, indices, signals and text; see `flex_forms`."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from tests.conformance.bench import Array
from tests.conformance.rows.flex_forms import Fed, Form
from tests.contrib.flex import test_scan as scan, test_scatter as scatter
from tests.contrib.flex.test_translate import floats, ints, scalar
from tests.support import Build, run_tflite

_DOUBLE = ("float32", "float64")
_ALL = (*scatter.WIDE, *scatter.NARROW)
_WAYS = [
    {"exclusive": exclusive, "reverse": reverse}
    for exclusive in (False, True)
    for reverse in (False, True)
]
_AT: dict[str, Any] = {
    "Update": None,
    "Add": np.add,
    "Sub": np.subtract,
    "Max": np.maximum,
    "Min": np.minimum,
}
_FUNCTIONS: dict[str, Any] = {
    "": np.fft.fftn,
    "I": np.fft.ifftn,
    "R": np.fft.rfftn,
    "IR": np.fft.irfftn,
}


def _update(x: Array, indices: Array, updates: Array, *, at: Any) -> Array:
    made, where = x.copy(), tuple(indices.T)
    if at is None:
        made[where] = updates
    else:
        at.at(made, where, updates)
    return made


def _segments(x: Array, ids: Array, *, name: str) -> Array:
    empty = int(name == "Prod")
    return scatter.segments(x, ids.tolist(), int(ids[-1]) + 1, name, empty)


def _rows(x: Array, size: Array, weights: Array) -> Array:
    made = np.zeros((len(x), int(size)), weights.dtype)
    for i, row in enumerate(x):
        for k, number in enumerate(row.tolist()):
            if number < size:
                made[i, number] += weights[i, k] if weights.size else 1
    return made


def _stitch(*operands: Array) -> Array:
    half = len(operands) // 2
    made: dict[int, Array] = {}
    for indices, data in zip(operands[:half], operands[half:], strict=True):
        rows = data.reshape(-1, data.shape[-1])
        made |= dict(zip(indices.ravel().tolist(), rows, strict=True))
    return np.stack([made[i] for i in sorted(made)])


def _wave(x: Array, *lengths: Array, prefix: str, axes: int) -> Array:
    size = [int(n) for n in lengths[0]] if lengths else None
    made = _FUNCTIONS[prefix](x, size, tuple(range(-axes, 0)))
    wide = x.dtype in (np.float64, np.complex128)
    return np.asarray(
        made, f"c{16 if wide else 8}" if np.iscomplexobj(made) else f"f{8 if wide else 4}"
    )


def _waves() -> dict[str, list[Form]]:
    forms: dict[str, list[Form]] = {}
    for prefix, axes, lengths in scan.TRANSFORMS:
        name = f"{prefix}FFT" + ("" if axes == 1 else f"{axes}D")
        constants = [ints(*lengths[-axes:])] if "R" in prefix else []
        kinds = _DOUBLE if prefix == "R" else ("complex64", "complex128")
        made = partial(_wave, prefix=prefix, axes=axes)
        forms.setdefault(name, []).append(Form([(2, 3, 5, 7), *constants], made, kinds=kinds))
    return forms


def _scan_with(function: Any, nothing: float, way: dict[str, bool]) -> Any:
    return lambda x, _: scan.scan(x, function, nothing, **way)


def _volume(sizes: Array, weights: Array, x: Array) -> Array:
    """Run the equivalent TFLite operator in LiteRT."""
    m = Build()
    operands = [m.constant(sizes), m.constant(weights), m.input(x.shape)]
    strides: dict[str, Any] = {"stride_d": 2, "stride_h": 1, "stride_w": 1}
    made = [m.tensor(sizes.tolist())]
    m.output(*m.op("CONV_3D_TRANSPOSE", operands, made, padding="SAME", **strides))
    return run_tflite(m.bytes(), [x])[0]


_STRINGS = ("string",)
_TEXT = Fed(scan.TEXT)
_COUNTED = Fed(np.array([[0, 3, 1, 3], [1, 1, 9, 5]], np.int32))
_PLACES = [ints(2, 1, 1, 0, 3, 4).reshape(3, 2), ints(2, 1, 0).reshape(3, 1)]

FORMS: dict[str, list[Form]] = {
    **_waves(),
    "Cumprod": [
        Form([(2, 7, 3), scalar(1)], _scan_with(np.multiply, 1, way), way, _ALL) for way in _WAYS
    ],
    "CumulativeLogsumexp": [
        Form([(2, 7, 3), scalar(1)], _scan_with(np.logaddexp, -np.inf, way), way, _DOUBLE)
        for way in _WAYS
    ],
    "LinSpace": [
        Form(
            [(), (), scalar(count)],
            lambda low, high, count: np.linspace(low, high, int(count), dtype=low.dtype),
            kinds=_DOUBLE,
        )
        for count in (1, 2, 7)
    ],
    **{
        f"TensorScatter{name}": [
            Form(
                [(5, 7), Fed(places), (3, *(5, 7)[places.shape[1] :])],
                partial(_update, at=at),
                kinds=_ALL,
            )
            for places in _PLACES
        ]
        for name, at in _AT.items()
    },
    **{
        f"Segment{name}": [
            Form([(6, 5), ints(*ids)], partial(_segments, name=name), kinds=_ALL)
            for ids in ([0, 0, 1, 3, 3, 3], [1, 1, 1, 2, 5, 5])
        ]
        for name in ("Prod", "Max", "Min")
    },
    "SegmentMean": [
        Form(
            [(6, 5), ints(0, 0, 1, 3, 3, 3)],
            partial(_segments, name="Mean"),
            kinds=("float32", "float64", "float16"),
        )
    ],
    "DenseBincount": [
        Form([_COUNTED, scalar(6), weights], _rows, kinds=scatter.WIDE)
        for weights in (floats(2, 4), np.zeros(0, np.float32))
    ],
    "Bincount": [
        Form(
            [_COUNTED, scalar(6), weights],
            lambda *xs: _rows(*xs).sum(0),
            kinds=("float32", "float64"),
        )
        for weights in (floats(2, 4), np.zeros(0, np.float32))
    ],
    **{
        name: [
            Form(
                [ints(0, 2), ints(1, 0, 3), scalar(4), (2, 3), (3, 3), (3,)],
                _stitch,
                kinds=scatter.WIDE,
            )
        ]
        for name in ("DynamicStitch", "ParallelDynamicStitch")
    },
    "DynamicPartition": [
        Form(
            [(5, 3), Fed(ints(0, 2, 1, 2, 0))],
            lambda x, numbers: [x[numbers == i] for i in range(4)],
            {"num_partitions": 4},
            scatter.WIDE,
        )
    ],
    "InvertPermutation": [
        Form(
            [Fed(ints(2, 4, 0, 1, 3), typed=True)],
            lambda x: np.argsort(x).astype(x.dtype),
            kinds=("int32", "int64"),
        )
    ],
    "Conv3DBackpropInputV2": [
        Form(
            [ints(1, 4, 5, 3, 2), floats(2, 3, 1, 2, 3), (1, 2, 5, 3, 3)],
            _volume,
            {"strides": [1, 2, 1, 1, 1], "padding": "SAME"},
        )
    ],
    "StringLower": [Form([_TEXT], lambda _: scan.LOWER, {"encoding": ""}, _STRINGS)],
    "StringUpper": [Form([_TEXT], lambda _: scan.UPPER, {"encoding": ""}, _STRINGS)],
    "StringJoin": [Form([_TEXT, _TEXT], lambda *_: scan.JOINED, {"separator": "-"}, _STRINGS)],
    "StaticRegexFullMatch": [Form([_TEXT], lambda _: scan.MATCHED, {"pattern": "a+b?"}, _STRINGS)],
    "RegexFullMatch": [
        Form([_TEXT, np.array(["a+b?"], np.object_)], lambda *_: scan.MATCHED, kinds=_STRINGS)
    ],
    "StringToNumber": [
        Form(
            [Fed(np.array(["1", "-2.5", "3e2"], np.object_))],
            lambda x: x.astype(np.float32),
            kinds=_STRINGS,
        )
    ],
    "AsString": [
        Form(
            [(3, 5)],
            lambda x: x.astype(str).astype(np.object_),
            kinds=("int8", "int16", "int32", "int64"),
        )
    ],
}

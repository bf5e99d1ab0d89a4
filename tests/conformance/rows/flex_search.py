"""Forms of TensorFlow's operators on sorted, ragged and sparse tensors; see `flex_forms`."""

from __future__ import annotations

from functools import partial

import numpy as np

from tests.conformance.bench import Array
from tests.conformance.rows.flex_forms import Fed, Form
from tests.contrib.flex import (
    test_image as image,
    test_projective as projective,
    test_search as search,
    test_sparse as sparse,
)
from tests.contrib.flex.test_translate import floats, ints, quantize, scalar

_SORTED = np.sort(np.random.default_rng(0).integers(-5, 6, (3, 11)))
_WANTED = np.random.default_rng(1).integers(-5, 6, (3, 7))
_LENGTHS = ints(13, 5, 9)
_TARGETS = ints(3, 0, 4, 5, -1)
_ROWS = np.array(sparse.SPLITS, np.int64)
_LEVELS = [np.array(level, np.int64) for level in sparse.LEVELS["ROW_SPLITS"][:2]]
_SHAPE = np.array([4, 5], np.int64)
_LOW, _HIGH = (np.array(each, np.float32) for each in ([-1, -0.3, 0], [2, 0.7, 3]))
_BIAS = np.array(3.5, np.float32)
_RAGGED = {"PARAMS_RAGGED_RANK": 1, "OUTPUT_RAGGED_RANK": 1}
_KINDS = ("float32", "int32", "int64")


def _transform(
    x: Array, transforms: Array, size: Array, fill: Array | int = 0, *, told: dict[str, str]
) -> Array:
    return projective.transform(x, transforms, [*size], fill, **told)


def _fill(shape: Array, values: Array, default: Array, splits: Array) -> Array:
    return sparse.fill_rows(values, default, shape.tolist(), splits.tolist())


def _nest(shape: Array, values: Array, default: Array, *levels: Array) -> Array:
    return sparse.nest_rows(values, default, shape.tolist()[:3], [each.tolist() for each in levels])


def _multiply(places: Array, values: Array, shape: Array, b: Array) -> Array:
    return sparse.multiply(places, values, shape, b, adjoint_a=False, adjoint_b=False)


_TRANSFORMED = [
    {"interpolation": how, "fill_mode": fill}
    for how in ("NEAREST", "BILINEAR")
    for fill in projective.FILLS
]

FORMS: dict[str, list[Form]] = {
    "ImageProjectiveTransformV2": [
        Form(
            [(3, 5, 7, 2), projective.TRANSFORMS, ints(6, 8)], partial(_transform, told=told), told
        )
        for told in _TRANSFORMED
    ],
    "ImageProjectiveTransformV3": [
        Form(
            [(3, 5, 7, 2), Fed(projective.TRANSFORMS), ints(6, 8), _BIAS],
            partial(_transform, told=told),
            told,
        )
        for told in _TRANSFORMED
    ],
    "Dilation2D": [
        Form([(2, 9, 7, 3), floats(3, 2, 3)], partial(image.dilate, **told), told)
        for told in image.DILATIONS
    ],
    "UniqueWithCounts": [
        Form([Fed(ints(5, 3, 5, 0, 3, 3))], search.count_unique, {"out_idx": 3}, ("int32",))
    ],
    **{
        f"{name}Bound": [
            Form(
                [Fed(_SORTED, typed=True), Fed(_WANTED, typed=True)],
                partial(search.find_bounds, side=side),
                kinds=search.TYPES,
            )
        ]
        for name, side in (("Lower", "left"), ("Upper", "right"))
    },
    "ListDiff": [
        Form(
            [Fed(ints(3, 1, 2, 2, 4, 3), typed=True), Fed(ints(1, 3, 3), typed=True)],
            search.list_others,
            {"out_idx": 3},
            kinds=search.TYPES,
        )
    ],
    "InTopK": [Form([(5, 5), Fed(_TARGETS)], partial(search.rank_targets, k=2), {"k": 2})],
    "InTopKV2": [Form([(5, 5), Fed(_TARGETS), scalar(2)], search.rank_targets)],
    "CTCGreedyDecoder": [
        Form(
            [(13, 3, 4), Fed(_LENGTHS)],
            partial(search.decode, merge_repeated=merge),
            {"merge_repeated": merge},
            ("float32", "float64"),
        )
        for merge in (True, False)
    ],
    "RaggedTensorToTensor": [
        Form(
            [np.array([-1, width, -1], np.int64), (8, 3), (), Fed(_ROWS)],
            _fill,
            {"row_partition_types": ["ROW_SPLITS"]},
            ("float32", "int32", "int64"),
        )
        for width in (-1, 3)
    ]
    + [
        Form(
            [np.array([-1, width, 2, -1], np.int64), (8, 3), (), *map(Fed, _LEVELS)],
            _nest,
            {"row_partition_types": ["ROW_SPLITS", "ROW_SPLITS"]},
            ("float32", "int32", "int64"),
        )
        for width in (-1, 3)
    ],
    "SparseTensorDenseMatMul": [
        Form([Fed(sparse.PLACES), (5,), _SHAPE, (5, 3)], _multiply, kinds=("float32", "int32"))
    ],
    "RaggedRange": [
        Form(
            [Fed(each, typed=True) for each in (ints(0, 1, 2, 5), ints(3, 0, -7, 5), scalar(-2))],
            sparse.count_rows,
            kinds=search.TYPES,
        )
    ],
    "RaggedGather": [
        Form([Fed(_ROWS), (8, 3), Fed(ints(3, 1, 2, 2, 0))], sparse.gather_rows, _RAGGED, _KINDS)
    ],
    "SparseFillEmptyRows": [
        Form([Fed(sparse.PLACES), (5,), _SHAPE, ()], sparse.fill_empty_rows, kinds=_KINDS)
    ],
    "SparseReduceSum": [
        Form(
            [Fed(sparse.PLACES), (5,), _SHAPE, ints(-1)],
            sparse.add_rows,
            kinds=("float32", "float64", "int32", "int64"),
        )
    ],
    **{
        f"Unique{name}V2": [
            Form(
                [Fed(ints(5, 3, 5, 0, 3, 3)), ints(0)],
                lambda x, _, most=most: search.count_unique(x)[:most],
                {"out_idx": 3},
                ("int32",),
            ),
            Form(
                [Fed(ints(5, 3, 0, 0, 5, 3).reshape(3, 2)), ints(0)],
                lambda x, axis, most=most: search.count_rows(x, axis)[:most],
                {"out_idx": 3},
                ("int32",),
            ),
        ]
        for name, most in (("", 2), ("WithCounts", 3))
    },
    **{
        f"SparseSegment{name}": [
            Form(
                [(5, 3), sparse.INDICES, sparse.SEGMENTS],
                partial(sparse.reduce_rows, count=3, name=name),
                kinds=("float32", "float64"),
            )
        ]
        for name in ("Sum", "Mean", "SqrtN")
    },
    **{
        f"SparseSegment{name}WithNumSegments": [
            Form(
                [(5, 3), sparse.INDICES, sparse.SEGMENTS, scalar(4)],
                partial(sparse.reduce_rows, name=name),
                kinds=("float32", "float64"),
            )
        ]
        for name in ("Sum", "Mean", "SqrtN")
    },
    "FakeQuantWithMinMaxVarsPerChannel": [
        Form(
            [(2, 5, 3), _LOW, _HIGH],
            partial(quantize, bits=8, first=int(narrow)),
            {"num_bits": 8, "narrow_range": narrow},
        )
        for narrow in (False, True)
    ],
}

"""Operators on indices, and reductions."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.conformance.bench import Bench
from tests.conformance.rows.elementwise import SIZES, kinds
from tests.conformance.rows.moves import INDEX
from tests.conformance.table import PACKED, Row, coarse

# Ranges of elements: products must not wrap around, sums must be exact in float64.
_FACTORS = {
    **dict.fromkeys(("float32", "int8", "uint8", "int16", "int32", "int64"), (-2, 2)),
    "quantized int8": (-40, 40),
    "quantized int16": (-8000, 8000),
}
_SUMMED = {"int64": (-(2**40), 2**40)}
_AXES: tuple[list[int], ...] = ([1, 2], [0], [-1], [0, 1, 2, 3], [])


def reduction(b: Bench, code: str, *, rank: int, axes: list[int], keep_dims: bool) -> None:
    """Build a reduction over axes, some of them negative."""
    shape = (3, 4, 5, 2)[:rank]
    over = {axis % rank for axis in axes if -rank <= axis < rank}
    made = [
        1 if axis in over else size
        for axis, size in enumerate(shape)
        if keep_dims or axis not in over
    ]
    fields = b.type()
    output = fields if code in ("REDUCE_MAX", "REDUCE_MIN") else b.type(step=4)
    within = _FACTORS.get(b.kind) if code == "REDUCE_PROD" else _SUMMED.get(b.kind)
    x = b.add_input(shape, fields, within=within)
    words = b.constant(np.array(sorted(over), np.int32))
    b.add_outputs(*b.op(code, [x, words], [b.output_tensor(made, output)], keep_dims=keep_dims))


_REDUCED = {"rank": (4, 1, 2, 3), "axes": _AXES, "keep_dims": (False, True)}


def arg(b: Bench, code: str, *, rank: int, axis: int, index: str, output: str) -> None:
    """Build the index of the first largest or smallest element along an axis."""
    at = max(-rank, min(axis, rank - 1))
    shape = list(SIZES[:rank])
    x = b.add_input(shape)
    del shape[at]
    words = b.constant(np.array(at, index))
    b.add_outputs(*b.op(code, [x, words], [b.output_tensor(shape, output)], output_type=output))


def topk(b: Bench, code: str, *, rank: int, k: int) -> None:
    """Build the largest elements of the last axis; some elements are equal."""
    shape, fields = (3, 2, 5, 7)[-rank:], b.type()
    made = (*shape[:-1], k)
    x = b.add_input(shape, fields)
    y = [b.output_tensor(made, fields), b.output_tensor(made, "int32")]
    b.add_outputs(*b.op(code, [x, b.constant(np.array(k, np.int32))], y))


def gather(
    b: Bench, code: str, *, rank: int, axis: int, shape: list[int], index: str, batch: bool
) -> None:
    """Build the gathering of slices along an axis, with or without a batch axis."""
    at, fields = max(-rank, min(axis, rank - 1)) % rank, b.type()
    sizes = SIZES[:rank]
    batches = int(batch and at > 0)
    places = [*sizes[:batches], *shape]
    made = [*sizes[:at], *shape, *sizes[at + 1 :]]
    x = b.add_input(sizes, fields)
    where = b.add_input(places, index, within=(0, sizes[at] - 1))
    b.add_outputs(
        *b.op(code, [x, where], [b.output_tensor(made, fields)], axis=at, batch_dims=batches)
    )


def gather_nd(b: Bench, code: str, *, rank: int, depth: int, shape: list[int], index: str) -> None:
    """Build the gathering of elements or slices; the last axis of the indices is a position."""
    deep, fields, sizes = min(depth, rank), b.type(), SIZES[:rank]
    x = b.add_input(sizes, fields)
    where = b.add_input((*shape, deep), index, within=(0, 1))
    b.add_outputs(*b.op(code, [x, where], [b.output_tensor((*shape, *sizes[deep:]), fields)]))


def embedding(b: Bench, code: str, *, shape: list[int], constant: bool) -> None:
    """Build the lookup of rows in a table."""
    fields = b.type()
    ids = b.add_input((6,), "int32", within=(0, 10))
    table = (b.add_constant if constant else b.add_input)((11, *shape), fields)
    b.add_outputs(*b.op(code, [ids, table], [b.output_tensor((6, *shape), fields)]))


def one_hot(b: Bench, code: str, *, rank: int, axis: int, index: str) -> None:
    """Build ONE_HOT along an axis; some indices are out of range."""
    at, fields, sizes = max(-1, min(axis, rank)), b.type(), SIZES[:rank]
    place = rank if at == -1 else at
    made = (*sizes[:place], 4, *sizes[place:])
    where = b.add_input(sizes, index, within=(-3, 6))
    values = [b.add_input((), fields) for _ in range(2)]
    words = b.constant(np.array(4, np.int32))
    b.add_outputs(*b.op(code, [where, words, *values], [b.output_tensor(made, fields)], axis=at))


def diagonal(b: Bench, code: str, *, shape: list[int]) -> None:
    """Build matrices with the vectors as diagonals; MATRIX_SET_DIAG keeps other elements."""
    fields = b.type()
    if code == "MATRIX_DIAG":
        made = [*shape[:-1], shape[-2] if len(shape) > 1 else shape[-1]]
        vector = b.add_input((*shape[:-2], made[-1]), fields)
        square = (*shape[:-2], made[-1], made[-1])
        b.add_outputs(*b.op(code, [vector], [b.output_tensor(square, fields)]))
        return
    vector = b.add_input((*shape[:-2], min(shape[-2:])), fields)
    b.add_outputs(
        *b.op(code, [b.add_input(shape, fields), vector], [b.output_tensor(shape, fields)])
    )


def scatter_nd(
    b: Bench, code: str, *, rank: int, depth: int, shape: list[int], constant: bool
) -> None:
    """Build SCATTER_ND; updates with equal indices are added."""
    deep, sizes, fields = min(depth, rank), SIZES[:rank], b.type()
    where = (b.add_constant if constant else b.add_input)((*shape, deep), "int32", within=(0, 1))
    small = (-3, 3) if "int" in b.kind and "quantized" not in b.kind else None
    x = b.add_input((*shape, *sizes[deep:]), fields, within=small)
    words = b.constant(np.array(sizes, np.int32))
    b.add_outputs(*b.op(code, [where, x, words], [b.output_tensor(sizes, fields)]))


def sparse_to_dense(b: Bench, code: str, *, rank: int, index: str, scalar: bool) -> None:
    """Build a tensor of a default value, except for the values at indices."""
    sizes, fields = SIZES[:rank], b.type()
    flat = np.sort(
        b.generator.choice(int(np.prod(sizes)), min(3, int(np.prod(sizes))), replace=False)
    )
    places = np.stack(np.unravel_index(flat, sizes), 1).astype(index)
    values = b.add_input(() if scalar else (len(flat),), fields)
    words = [b.constant(places), b.constant(np.array(sizes, index))]
    b.add_outputs(
        *b.op(code, [*words, values, b.add_input((), fields)], [b.output_tensor(sizes, fields)])
    )


def segment_sum(b: Bench, code: str, *, shape: list[int]) -> None:
    """Build sums of consecutive rows; segments are constant, as the output size depends on them."""
    ids = b.constant(np.array([0, 0, 1, 2, 2], np.int32))
    b.add_outputs(*b.op(code, [b.add_input((5, *shape)), ids], [b.output_tensor((3, *shape))]))


def segments(b: Bench, code: str, *, shape: list[int], constant: bool) -> None:
    """Build reductions of rows by segment number; rows with negative numbers are ignored."""
    within = (-2, 2) if code.endswith("PROD") else None
    x = b.add_input((7, *shape), within=within)
    ids = (b.add_constant if constant else b.add_input)((7,), "int32", within=(-1, 4))
    b.add_outputs(
        *b.op(code, [x, ids, b.constant(np.array(6, np.int32))], [b.output_tensor((6, *shape))])
    )


def cumsum(b: Bench, code: str, *, rank: int, axis: int, exclusive: bool, reverse: bool) -> None:
    """Build cumulative sums along an axis."""
    at, shape = max(-rank, min(axis, rank - 1)), SIZES[:rank]
    words: dict[str, Any] = {"exclusive": exclusive, "reverse": reverse}
    x = b.add_input(shape)
    b.add_outputs(
        *b.op(code, [x, b.constant(np.array(at, np.int32))], [b.output_tensor(shape)], **words)
    )


def number_range(b: Bench, code: str, *, limits: tuple[int, int, int]) -> None:
    """Build a range from start, limit and step."""
    words = [b.add_constant((), within=np.array(n)) for n in limits]
    b.add_outputs(*b.op(code, words, [b.output_tensor((len(range(*limits)),))]))


def broadcast_args(b: Bench, code: str, *, sizes: tuple[list[int], list[int]]) -> None:
    """Build the broadcast shape of two shapes."""
    one, other = (b.add_input((len(each),), within=np.array(each)) for each in sizes)
    made = (max(len(each) for each in sizes),)
    b.add_outputs(*b.op(code, [one, other], [b.output_tensor(made)]))


_NO_HALVES = "float32 int8 uint8 int16 int32 int64 q8 qu8 q16"
_GROWING = "the kernel rounds each product, and then the result to steps of the output"
_PRODUCTS = {
    kind: coarse("REDUCE_PROD", kind, _GROWING) for kind in ("quantized int8", "quantized int16")
}
_DOUBLE = "ONNX Runtime adds int64 as float64, which is exact below 2**53"

_BYTES = dict.fromkeys(PACKED, "the kernel moves whole bytes, which have several elements")
_FOR_INT32 = dict.fromkeys(
    ("bfloat16", "float16", "float64", "uint32", "uint64", "complex64", "complex128", *PACKED),
    "not converted: the kernel reads the elements as int32",
)

ROWS = (
    Row("SUM", reduction, kinds("float32 int32 int64 q8 qu8 q16"), _REDUCED, limits=_DOUBLE),
    Row("MEAN", reduction, kinds("float32 int32 int64 q8 qu8 q16"), _REDUCED, limits=_DOUBLE),
    Row(
        "REDUCE_PROD",
        reduction,
        kinds("float32 int8 uint8 int16 int32 int64 q8 q16"),
        {**_REDUCED, "axes": ([1], [0], [-1], [])},
        bounds=_PRODUCTS,
    ),
    *(
        Row(code, reduction, kinds(_NO_HALVES), _REDUCED, exact=True)
        for code in ("REDUCE_MAX", "REDUCE_MIN")
    ),
    *(
        Row(code, reduction, ("bool",), _REDUCED, exact=True)
        for code in ("REDUCE_ALL", "REDUCE_ANY")
    ),
    *(
        Row(
            code,
            arg,
            kinds("float32 int8 uint8 int32 bool q8 qu8"),
            {"rank": (4, 1, 2, 3), "axis": (-1, 0, 1), "index": INDEX, "output": INDEX},
            exact=True,
        )
        for code in ("ARG_MAX", "ARG_MIN")
    ),
    Row("TOPK_V2", topk, kinds(_NO_HALVES), {"rank": (2, 1, 3, 4), "k": (3, 1, 7)}, exact=True),
    Row(
        "GATHER",
        gather,
        kinds("float32 float16 bfloat16 int8 uint8 int16 int32 int64 bool q8 qu8 q16"),
        {
            "rank": (4, 1, 2, 3),
            "axis": (1, 0, -1),
            "shape": ([4], [], [2, 3]),
            "index": ("int32", "int64", "int16"),
            "batch": (False, True),
        },
        exact=True,
        without=_BYTES,
    ),
    Row(
        "GATHER_ND",
        gather_nd,
        kinds("float32 float16 bfloat16 int8 uint8 int16 int32 int64 bool string q8 qu8 q16"),
        {
            "rank": (4, 1, 2, 3),
            "depth": (2, 1, 4),
            "shape": ([4], [2, 3]),
            "index": ("int32", "int64", "int16"),
        },
        exact=True,
    ),
    Row(
        "EMBEDDING_LOOKUP",
        embedding,
        kinds(
            "float32 float16 float64 int8 uint8 int16 uint16 int32 uint32 int64 uint64 bool"
            " bfloat16"
        ),
        {"shape": ([3], [2, 5]), "constant": (True, False)},
        exact=True,
        without=_BYTES,
    ),
    Row(
        "ONE_HOT",
        one_hot,
        kinds("float32 int8 uint8 int32 int64 bool q8 qu8"),
        {"rank": (2, 0, 1, 3), "axis": (-1, 0, 1), "index": INDEX},
        exact=True,
    ),
    *(
        Row(
            code,
            diagonal,
            kinds("float32 int8 uint8 int16 int32 int64 q8 qu8 q16"),
            {"shape": ([3, 5, 4], [5, 5], [2, 3, 4, 7])},
            exact=True,
            without=_FOR_INT32,
        )
        for code in ("MATRIX_DIAG", "MATRIX_SET_DIAG")
    ),
    Row(
        "SCATTER_ND",
        scatter_nd,
        kinds("float32 int8 uint8 int32 int64 bool"),
        {
            "rank": (2, 1, 3, 4),
            "depth": (1, 2, 4),
            "shape": ([4], [2, 3]),
            "constant": (True, False),
        },
    ),
    Row(
        "SPARSE_TO_DENSE",
        sparse_to_dense,
        kinds("float32 int8 uint8 int32 int64 q8 qu8"),
        {"rank": (2, 1, 3, 4), "index": INDEX, "scalar": (False, True)},
        exact=True,
    ),
    Row("SEGMENT_SUM", segment_sum, kinds("float32 int32"), {"shape": ([3], [], [2, 3])}),
    *(
        Row(
            f"UNSORTED_SEGMENT_{name}",
            segments,
            kinds("float32 int32"),
            {"shape": ([3], [], [2, 3]), "constant": (True, False)},
        )
        for name in ("MAX", "MIN", "PROD", "SUM")
    ),
    Row(
        "CUMSUM",
        cumsum,
        kinds("float32 int32 int64"),
        {
            "rank": (4, 1, 2, 3),
            "axis": (-1, 0, 1),
            "exclusive": (False, True),
            "reverse": (False, True),
        },
    ),
    Row(
        "RANGE",
        number_range,
        kinds("float32 int32 int64"),
        {"limits": ((0, 7, 1), (3, 20, 4), (9, -3, -2), (7, 8, 2))},
        ("random",),
        exact=True,
    ),
    Row(
        "BROADCAST_ARGS",
        broadcast_args,
        ("int32", "int64"),
        {"sizes": (([2, 1, 7], [3, 1]), ([5], [5]), ([1], [2, 3]))},
        ("random",),
        exact=True,
    ),
)

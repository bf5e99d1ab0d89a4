"""Operators with few cases: bits, complex numbers, windows, StableHLO, sub-graphs, tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tests.conformance.bench import Bench
from tests.conformance.rows.elementwise import RANKS, SIZES, kinds
from tests.conformance.rows.moves import NO_STRINGS
from tests.conformance.table import PACKED, Row
from tests.contrib.hash_tables.test_hash_table import (
    KEYS,
    NUMBERS,
    WANTED,
    WORDS,
    add_filled_table,
    add_initialised_table,
)
from tests.contrib.stablehlo.test_gather_scatter import (
    GATHERINGS,
    SCATTERINGS,
    Gathering,
    Scattering,
)
from tests.contrib.stablehlo.test_reduce_window import FUNCTIONS, sizes
from tests.op.vision.test_non_max_suppression import boxes_of
from tests.support import Subgraph, Tensor
from tests.support.control import add_if, add_less, apply_operator, count_rounds, graph, like, loop

_WIDTHS = {"bool": 8, "bfloat16": 16}
_INTEGERS = "int8 int16 int32 int64 uint8 uint16 uint32 uint64"
_NUMBERS = f"float32 float16 float64 {_INTEGERS}"


def bitcast(b: Bench, code: str, *, rank: int, other: str) -> None:
    """Build BITCAST; a change of the width adds or removes the last axis."""
    shape, wide = list(SIZES[:rank]), _width(b.kind)
    narrow = _width(other)
    given = shape if wide >= narrow else [*shape, narrow // wide]
    made = [*shape, wide // narrow] if wide > narrow else shape
    b.add_outputs(*b.op(code, [b.add_input(given)], [b.output_tensor(made, other)]))


def _width(kind: str) -> int:
    return _WIDTHS.get(kind) or 8 * np.dtype(kind).itemsize


def build_complex_part(b: Bench, code: str, *, rank: int) -> None:
    """Build an operator that returns a real part of complex numbers."""
    real = "float64" if b.kind == "complex128" else "float32"
    b.add_outputs(*b.op(code, [b.add_input(SIZES[:rank])], [b.output_tensor(SIZES[:rank], real)]))


def fourier(b: Bench, code: str, *, shape: list[int], lengths: tuple[int, int]) -> None:
    """Build RFFT2D; the last two axes are cropped or padded to powers of two."""
    made = [*shape[:-2], lengths[0], lengths[1] // 2 + 1]
    words = b.constant(np.array(lengths, np.int32))
    b.add_outputs(*b.op(code, [b.add_input(shape), words], [b.output_tensor(made, "complex64")]))


_ONES = [1, 1, 1]
_WINDOWS: tuple[dict[str, list[int]], ...] = (
    {"window_dimensions": [1, 3, 2]},
    {"window_dimensions": [2, 1, 3], "window_strides": [1, 2, 2]},
    {"window_dimensions": [1, 2, 2], "window_dilations": [1, 2, 3]},
)


def window(b: Bench, code: str, *, columns: dict[str, list[int]], function: int) -> None:
    """Build a reduction of windows by one of the functions."""
    body, option, neutral = FUNCTIONS[function]
    if b.kind == "bool":
        body, option, neutral = FUNCTIONS[4 + function % 2]
    elif body in ("STABLEHLO_AND", "LOGICAL_OR"):
        body, option, neutral = FUNCTIONS[function % 4]
    x = b.add_input((3, 7, 9), within=(-2, 2))
    first = b.constant(np.array(neutral).astype(b.kind), dtype=b.kind)
    every = {
        name: columns.get(name, _ONES)
        for name in ("window_dimensions", "window_strides", "window_dilations")
    }
    y = b.output_tensor(sizes(x, every))
    if code == "REDUCE_WINDOW":
        lists = [b.constant(np.array(each, np.int64)) for each in every.values()]
        b.add_outputs(*b.op(code, [x, first, *lists], [y], reduce_function=option))
        return
    inner = _body(b, body)
    words: dict[str, Any] = {**every, "base_dilations": _ONES, "padding": [0] * 6}
    b.add_outputs(*b.op(code, [x, first], [y], **words, body_subgraph_index=inner.index))


def _body(b: Bench, code: str) -> Subgraph:
    """Return a sub-graph that applies a code to two scalars; by default it returns the second."""
    body = b.subgraph("body")
    xs = [body.input([], dtype=b.kind) for _ in range(2)]
    body.output(*(body.op(code, xs, [[]]) if code else xs[1:]))
    return body


def build_gather(b: Bench, code: str, *, case: Gathering, index: str, constant: bool) -> None:
    """Build a gather; indices may be out of range."""
    feed = b.add_constant if constant and np.prod(case.indices) else b.add_input
    x, where = b.add_input(case.shape), feed(case.indices, index, within=(-2, 7))
    b.add_outputs(*b.op(code, [x, where], [b.output_tensor(case.made)], **case.options))


def build_scatter(b: Bench, code: str, *, case: Scattering, body: str, constant: bool) -> None:
    """Build a scatter; indices may be out of range, and are unique if updates overwrite."""
    places = b.generator.integers(-2, 7, case.indices)
    if not body:
        places = (np.arange(places.size) * 3 % 7).reshape(places.shape)
    feed = b.add_constant if constant and places.size else b.add_input
    x, where = b.add_input(case.shape, within=(-3, 3)), feed(case.indices, "int32", within=places)
    updates = b.add_input(case.updates, within=(-3, 3))
    number = _body(b, body if b.kind != "bool" or not body else "LOGICAL_OR").index
    words: dict[str, Any] = {**case.options, "update_computation_subgraph_index": number}
    b.add_outputs(*b.op(code, [x, where, updates], [b.output_tensor(case.shape)], **words))


def build_pad(b: Bench, code: str, *, pads: list[tuple[int, int, int]], constant: bool) -> None:
    """Build padding before, after and between elements; negative padding crops."""
    shape, fields = (4, 5, 3, 2)[: len(pads)], b.type()
    low, high, between = zip(*pads, strict=True)
    made = [n + (n - 1) * p[2] + p[0] + p[1] for n, p in zip(shape, pads, strict=True)]
    x, value = b.add_input(shape, fields), (b.add_constant if constant else b.add_input)((), fields)
    words: dict[str, Any] = {
        "edge_padding_low": low,
        "edge_padding_high": high,
        "interior_padding": between,
    }
    b.add_outputs(*b.op(code, [x, value], [b.output_tensor(made, fields)], **words))


def random_bits(b: Bench, code: str, *, shape: list[int], algorithm: tuple[str, int]) -> None:
    """Build a random generator with its state as input and output."""
    name, size = algorithm
    state = b.add_input((size,), "uint64", within=(0, 2**63))
    outputs = [b.output_tensor((size,), "uint64"), b.output_tensor(shape)]
    b.add_outputs(*b.op(code, [state], outputs, algorithm=name))


def projection(b: Bench, code: str, *, shape: list[int], dense: bool, weighted: bool) -> None:
    """Build hashes of items, reduced to bits by their signs."""
    seeds = b.add_constant((5, 3), "float32")
    inputs = [seeds, b.add_input(shape), *([b.add_input(shape[:1], "float32")] if weighted else [])]
    y = b.output_tensor([15 if dense else 5], "int32")
    b.add_outputs(*b.op(code, inputs, [y], type=2 if dense else 1))


def build_where(b: Bench, code: str, *, rank: int) -> None:
    """Build the indices of all elements that are not 0."""
    x = b.add_input((7, 5, 3, 2)[:rank], within=(0, 1))
    b.arrays[-1] = np.round(b.arrays[-1]).astype(b.arrays[-1].dtype)
    b.add_outputs(*b.op(code, [x], [b.tensor([None, rank], dtype="int64")]))


def unique(b: Bench, code: str, *, index: str, count: int) -> None:
    """Build UNIQUE: the distinct elements in order of appearance, and the index of each element."""
    fields = b.type()
    x = b.add_input((count,), fields, within=(0, 5))
    if b.kind == "float32":
        b.arrays[-1] = np.floor(b.arrays[-1])
    made = [b.tensor([None], **fields), b.output_tensor((count,), index)]
    b.add_outputs(*b.op(code, [x], made, idx_out_type=index))


def suppression(
    b: Bench, code: str, *, most: int, overlap: float, least: float, sigma: float
) -> None:
    """Build non-maximum suppression."""
    boxes, scores = boxes_of(20, int(b.generator.integers(1000)))
    # Scores that decay must be positive: a factor below 1 would raise a negative score.
    inputs = [b.add_input((20, 4), within=boxes), b.add_input((20,), within=abs(scores) + 0.01)]
    inputs += [b.constant(np.int32(most)), b.constant(np.float32(overlap))]
    inputs.append(b.constant(np.float32(least)))
    made = [b.output_tensor((most,), "int32"), b.output_tensor((), "int32")]
    if code == "NON_MAX_SUPPRESSION_V5":
        inputs.append(b.constant(np.float32(sigma)))
        made.insert(1, b.output_tensor((most,)))
    b.add_outputs(*b.op(code, inputs, made))


def sums_of_rows(b: Bench, code: str, *, combiner: str, row: list[int]) -> None:
    """Build weighted sums of table rows."""
    places = np.array([[0, 0], [0, 1], [1, 0], [2, 3]], np.int32)
    ids = b.add_input((4,), "int32", within=(0, 6))
    inputs = [
        ids,
        b.constant(places),
        b.constant([3, 4]),
        b.add_input((4,), within=(0.5, 2)),
        b.add_input((7, *row)),
    ]
    b.add_outputs(*b.op(code, inputs, [b.output_tensor((3, *row))], combiner=combiner))


def lookup(b: Bench, code: str, *, row: list[int], constant: bool) -> None:
    """Build the lookup of rows by sorted keys; a missing key gives zeros."""
    shape = (5,) if b.kind == "string" else (5, *row)
    fields = b.type()
    rows = (b.add_constant if constant else b.add_input)(shape, fields)
    wanted = b.add_input((7,), "int32", within=WANTED)
    made = [b.output_tensor((7, *shape[1:]), fields), b.output_tensor((7,), "uint8")]
    b.add_outputs(*b.op(code, [wanted, b.constant(KEYS), rows], made))


def table(b: Bench, code: str, *, shape: list[int], within: bool) -> None:
    """Build a lookup in a hash table, which the main or another sub-graph fills."""
    words = b.kind == "string"
    pair: Sequence[Any] = (NUMBERS, WORDS) if words else (WORDS, NUMBERS)
    handle = (add_filled_table if within else add_initialised_table)(b, 7, *pair)
    if code == "HASHTABLE_SIZE":
        b.add_outputs(*b.op(code, [handle], [b.output_tensor((1,), "int64")]))
        return
    count = int(np.prod(shape))
    given = np.resize(np.array([5, 1, -3, 4] if words else ["five", "", "large", "x"]), count)
    wanted = b.add_input(shape, "int64" if words else "string", within=given.reshape(shape))
    default = b.constant(["?"]) if words else b.constant(np.array([-9]))
    b.add_outputs(*b.op("HASHTABLE_FIND", [handle, wanted, default], [b.output_tensor(shape)]))


def branches(b: Bench, code: str, *, rank: int, chosen: int, moves: bool) -> None:
    """Build IF or STABLEHLO_CASE with sub-graphs that compute or only move."""
    fields, shape = b.type(), SIZES[:rank]
    changes = [apply_operator("NEG"), apply_operator("ABS"), _first_of]
    if moves or b.kind not in _NEGATED:
        changes = [_first_of, lambda _, xs: [xs[1]], _first_of]
    by = ("bool", chosen == 0) if code == "IF" else ("int32", chosen)
    index = b.add_input((), by[0], within=np.array(by[1]))
    xs = [b.add_input(shape, fields), b.add_input(shape, fields)]
    if code == "IF":
        b.add_outputs(add_if(b, index, xs, changes[0], changes[1])[0])
        return
    numbers = [graph(b, f"branch {i}", xs, each).index for i, each in enumerate(changes)]
    b.add_outputs(*b.op(code, [index, *xs], [like(b, xs[0])], branch_subgraph_indices=numbers))


def _first_of(_: Subgraph, xs: Sequence[Tensor]) -> Sequence[Tensor]:
    return [xs[0]]


def build_loop(b: Bench, code: str, *, rank: int, start: int, moves: bool) -> None:
    """Build a WHILE with a counter; a high initial count gives no iterations."""
    del code
    count, fields = b.add_input((), "int32", within=np.array(start)), b.type()
    xs = [b.add_input(SIZES[:rank], fields), b.add_input(SIZES[:rank], fields)]
    if moves or b.kind not in _NEGATED:
        change = count_rounds(lambda _, xs: [xs[1], xs[1]])
    else:
        change = count_rounds(lambda m, xs: [_negate(m, xs[0]), xs[1]])
    b.add_outputs(*loop(b, [count, *xs], change, add_less))


def _negate(m: Subgraph, x: Tensor) -> Tensor:
    return m.op("NEG", [x], [like(m, x)])[0]


_NEGATED = ("float32", "int32")
_HANDED_ON = dict.fromkeys(PACKED, "not converted: ONNX Runtime's If does not support these types")
_TABLE = {"shape": ([6], [2, 3], [1]), "within": (False, True)}
_ONE = ("random",)
_BITS = dict.fromkeys(PACKED, "not converted: the kernel supports elements of whole bytes only")
_MOVED = dict.fromkeys(PACKED, "the kernel moves whole bytes, which have several elements")

ROWS = (
    Row(
        "BITCAST",
        bitcast,
        kinds(f"{_NUMBERS} bool"),
        {"rank": RANKS, "other": ("int8", "uint16", "int32", "uint64", "float32")},
        exact=True,
        without=_BITS | {"bfloat16": "converted only to 16-bit integers"},
    ),
    *(
        Row(
            code,
            build_complex_part,
            ("complex64", "complex128"),
            {"rank": RANKS},
            exact=code != "COMPLEX_ABS",
        )
        for code in ("REAL", "IMAG", "COMPLEX_ABS")
    ),
    Row(
        "RFFT2D",
        fourier,
        ("float32",),
        {"shape": ([4, 8], [3, 5, 7], [2, 3, 1, 16]), "lengths": ((4, 8), (8, 4), (1, 16))},
    ),
    *(
        Row(
            code,
            window,
            kinds("float32 float64 int8 int16 int32 int64 uint8 bool"),
            {"columns": _WINDOWS, "function": range(6)},
        )
        for code in ("REDUCE_WINDOW", "STABLEHLO_REDUCE_WINDOW")
    ),
    Row(
        "STABLEHLO_GATHER",
        build_gather,
        kinds(f"{_NUMBERS} bfloat16 bool"),
        {"case": GATHERINGS, "index": ("int32", "int64"), "constant": (True, False)},
        exact=True,
    ),
    Row(
        "STABLEHLO_SCATTER",
        build_scatter,
        kinds(_NUMBERS),
        {
            "case": SCATTERINGS,
            "body": ("STABLEHLO_ADD", "", "STABLEHLO_MAXIMUM", "STABLEHLO_MINIMUM"),
            "constant": (True, False),
        },
    ),
    Row(
        "STABLEHLO_PAD",
        build_pad,
        NO_STRINGS,
        {
            "pads": (
                [(2, 3, 0)],
                [(-1, -2, 0)],
                [(0, 0, 2), (0, 0, 1)],
                [(1, 0, 0), (3, 1, 4), (-1, -1, 2), (0, 2, 0)],
            ),
            "constant": (True, False),
        },
        exact=True,
        without=_MOVED,
    ),
    Row(
        "STABLEHLO_RNG_BIT_GENERATOR",
        random_bits,
        kinds("int32 int64 uint32 uint64"),
        {
            "shape": ([3, 5], [1], [2, 3, 4]),
            "algorithm": (("THREEFRY", 2), ("PHILOX", 2), ("PHILOX", 3), ("DEFAULT", 3)),
        },
        exact=True,
    ),
    Row(
        "LSH_PROJECTION",
        projection,
        kinds("float32 int8 uint8 int16 uint16 int32 uint32 int64 uint64 bool"),
        {"shape": ([7], [3, 5], [2, 3, 4]), "dense": (False, True), "weighted": (True, False)},
        _ONE,
        exact=True,
        without=dict.fromkeys(
            ("float16", "bfloat16", "float64", "string", *PACKED),
            "not converted: only integers, bool and float32 are hashed",
        ),
    ),
    Row(
        "WHERE",
        build_where,
        kinds("bool float32 int8 uint8 int32 uint32 int64 q8 qu8"),
        {"rank": (3, 1, 2, 4)},
        _ONE,
        exact=True,
    ),
    Row(
        "UNIQUE",
        unique,
        kinds("float32 int8 uint8 int16 int32 int64"),
        {"index": ("int32", "int64"), "count": (13, 1)},
        _ONE,
        exact=True,
    ),
    *(
        Row(
            code,
            suppression,
            ("float32",),
            {
                "most": (3, 20, 31),
                "overlap": (0.3, 0.7, 1.0),
                "least": (0.1, -1.0, 0.95),
                "sigma": sigmas,
            },
            _ONE,
            tried=(),
        )
        for code, sigmas in (
            ("NON_MAX_SUPPRESSION_V4", (0.0,)),
            ("NON_MAX_SUPPRESSION_V5", (0.0, 0.1, 0.5)),
        )
    ),
    Row(
        "EMBEDDING_LOOKUP_SPARSE",
        sums_of_rows,
        ("float32",),
        {"combiner": ("SUM", "MEAN", "SQRTN"), "row": ([5], [2, 3])},
    ),
    Row(
        "HASHTABLE_LOOKUP",
        lookup,
        kinds(f"{_NUMBERS} bfloat16 bool string q8 qu8"),
        {"row": ([3], [], [2, 3]), "constant": (True, False)},
        exact=True,
        without=_MOVED,
    ),
    *(
        Row(code, table, kinds(types), _TABLE, _ONE, exact=True, tried=())
        for code, types in (
            ("HASHTABLE", "string int64"),
            ("HASHTABLE_FIND", "string int64"),
            ("HASHTABLE_IMPORT", "string int64"),
            ("HASHTABLE_SIZE", "string"),
        )
    ),
    *(
        Row(
            code,
            branches,
            (*NO_STRINGS, "string"),
            {"rank": RANKS, "chosen": range(count), "moves": (False, True)},
            exact=True,
            without=_HANDED_ON,
        )
        for code, count in (("IF", 2), ("STABLEHLO_CASE", 4))
    ),
    Row(
        "WHILE",
        build_loop,
        NO_STRINGS,
        {"rank": RANKS, "start": (0, 1, 3, 5), "moves": (False, True)},
        exact=True,
        without=_HANDED_ON,
    ),
)

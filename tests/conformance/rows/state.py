"""Variables and calls: models of several operators and sub-graphs over several runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tests.conformance.bench import Array, Bench
from tests.conformance.rows.elementwise import RANKS, SIZES, kinds
from tests.conformance.rows.moves import NO_STRINGS
from tests.conformance.table import PACKED, Row
from tests.contrib.hash_tables.test_hash_table import NUMBERS, WORDS
from tests.op.indexing import test_skip_gram
from tests.passes.test_inline_subgraphs import COMPOSITE
from tests.reader.test_sparsity import MATRICES, mostly_zeros
from tests.support import Subgraph, Tensor, sparsify
from tests.support.control import graph, like, op
from tests.support.flex import flex_options
from tests.support.streams import assign, handle, initialise, read_variable

_ADDED = ("float32", "int16", "int32", "int64")


def variable(b: Bench, code: str, *, rank: int, form: str) -> None:
    """Build a model that returns an earlier input, or the sum of all inputs."""
    del code
    shape = SIZES[:rank]
    fields: Any = b.type()
    x = b.add_input(shape, fields, (-100, 100))
    names = ("first", "second")
    first = {name: {"values": b.draw(shape, fields["dtype"]), **fields} for name in names}
    initialise(b, **first)
    old, older = (read_variable(b, handle(b, name), shape, **fields) for name in names)
    assign(b, handle(b, "second"), old)
    new = op(b, "ADD", old, x) if form == "sum" and b.kind in _ADDED else x
    assign(b, handle(b, "first"), new)
    if form == "after":  # the assigned value is read in the same run
        older = read_variable(b, handle(b, "second"), shape, **fields)
    b.add_outputs(older)


def build_last(b: Bench, code: str, *, rank: int) -> None:
    """Build a model that returns the input of the previous run, with TensorFlow's operators."""
    del code
    shape = SIZES[:rank]

    def handle_of(m: Subgraph) -> Tensor:
        made, options = m.tensor([], dtype="resource"), flex_options("VarHandleOp", shared_name="v")
        return m.custom("FlexVarHandleOp", [], [made], options)[0]

    def assign(m: Subgraph, value: Tensor) -> None:
        options = flex_options("AssignVariableOp")
        m.custom("FlexAssignVariableOp", [handle_of(m), value], [], options)

    inner = b.subgraph("init")
    assign(inner, inner.constant(np.full(shape, 3).astype(b.kind)))
    b.op("CALL_ONCE", [], [], init_subgraph_index=inner.index)
    made, options = b.output_tensor(shape), flex_options("ReadVariableOp")
    b.add_outputs(*b.custom("FlexReadVariableOp", [handle_of(b)], [made], options))
    assign(b, b.add_input(shape))


def build_table_lookup(b: Bench, code: str, *, shape: tuple[int, ...]) -> None:
    """Build a lookup in a TensorFlow hash table, or its number of entries."""
    pair: tuple[Any, Any] = (NUMBERS, WORDS) if b.kind == "string" else (WORDS, NUMBERS)

    def handle_of(m: Subgraph) -> Tensor:
        made, options = m.tensor([], dtype="resource"), flex_options("HashTableV2", shared_name="t")
        return m.custom("FlexHashTableV2", [], [made], options)[0]

    inner = b.subgraph("init")
    given, options = [inner.constant(each) for each in pair], flex_options("LookupTableImportV2")
    inner.custom("FlexLookupTableImportV2", [handle_of(inner), *given], [], options)
    b.op("CALL_ONCE", [], [], init_subgraph_index=inner.index)
    if code == "FlexLookupTableSizeV2":
        made, options = b.output_tensor((), "int64"), flex_options("LookupTableSizeV2")
        b.add_outputs(*b.custom(code, [handle_of(b)], [made], options))
        return
    keys = np.resize(np.array([5, 1, -3] if b.kind == "string" else ["five", "", "large"]), shape)
    wanted = b.add_input(shape, "int64" if b.kind == "string" else "string", keys)
    default = b.constant(["?"] if b.kind == "string" else np.array([-9]))
    made, options = b.output_tensor(shape), flex_options("LookupTableFindV2")
    b.add_outputs(
        *b.custom("FlexLookupTableFindV2", [handle_of(b), wanted, default], [made], options)
    )


def look_up(*keys: Array, kind: str) -> Array:
    """Return the reference output: the first of equal keys counts."""
    pair: tuple[Any, Any] = (NUMBERS.tolist(), WORDS) if kind == "string" else (WORDS, NUMBERS)
    table = dict(reversed(list(zip(*pair, strict=True))))
    if not keys:
        return np.array(len(table))
    found = [table.get(key, "?" if kind == "string" else -9) for key in keys[0].ravel().tolist()]
    return np.array(found, np.object_ if kind == "string" else np.int64).reshape(keys[0].shape)


class Last:
    """A reference with state: the value of a variable before each run."""

    def __init__(self) -> None:
        self.value: Array = np.array(3)

    def __call__(self, x: Array) -> Array:
        """Return the last value, and store the new value."""
        before = np.broadcast_to(self.value, x.shape)
        self.value = x
        return before


def build_call(b: Bench, code: str, *, rank: int, form: str) -> None:
    """Build calls of a sub-graph that doubles: one call, or two nested calls."""
    x = b.add_input(SIZES[:rank], within=(-20, 20))
    inner = graph(b, "inner", [x], lambda m, xs: [op(m, "ADD", xs[0], xs[0]), xs[0]])

    def call(m: Subgraph, callee: Subgraph, t: Tensor, *made: Tensor) -> list[Tensor]:
        if code == "CALL":
            return m.op(code, [t], made, subgraph=callee.index)
        return m.op(code, [t], made, decomposition_subgraph_index=callee.index, **COMPOSITE)

    def twice(m: Subgraph, xs: Sequence[Tensor]) -> list[Tensor]:
        doubled, _ = call(m, inner, xs[0], like(m, x), like(m, x))
        return call(m, inner, doubled, like(m, x), like(m, x))

    if form == "once":
        b.add_outputs(*call(b, inner, x, like(b, x), like(b, x)))
    else:
        b.add_outputs(*call(b, graph(b, "outer", [x], twice), x, like(b, x), like(b, x)))


def double(x: Array, form: str) -> list[Array]:
    """Return the reference output in numpy, because LiteRT has no kernel of CALL."""
    return [x + x, x] if form == "once" else [4 * x, 2 * x]


def dense(b: Bench, code: str, *, form: tuple[list[str], dict[int, int]]) -> None:
    """Build the sum of an input and a sparse constant."""
    formats, blocks = form
    fields: Any = b.type()
    elements = mostly_zeros((6, 8), fields["dtype"], int(b.generator.integers(99)))
    values, sparsity = sparsify(elements, formats, blocks=blocks)
    constant = b.constant(values, shape=(6, 8), sparsity=sparsity, **fields)
    (y,) = b.op(code, [constant], [(6, 8)])
    if b.kind != "float32":
        (y,) = b.op("DEQUANTIZE", [y], [(6, 8)], dtype="float32")
    b.add_outputs(
        *b.op("ADD", [b.add_input((6, 8), "float32"), y], [b.output_tensor((6, 8), "float32")])
    )


def grams(b: Bench, code: str, *, sentence: int, sizes: tuple[int, int], every: bool) -> None:
    """Build the n-grams of a sentence."""
    x = b.add_input((1,), within=np.array([test_skip_gram.SENTENCES[sentence]], object))
    (size, skip), made = sizes, b.tensor([None], dtype="string")
    words: dict[str, Any] = {"ngram_size": size, "max_skip_size": skip}
    b.add_outputs(*b.op(code, [x], [made], include_all_ngrams=every, **words))


_ONE = ("random",)
_NO_ARRAYS = ("bfloat16", *PACKED)
_SUMMED = "float32 float16 int16 int32 int64"

ROWS = (
    *(
        Row(
            code,
            variable,
            tuple(kind for kind in NO_STRINGS if kind not in _NO_ARRAYS),
            {"rank": RANKS, "form": ("sum", "before", "after")},
            runs=5,
            exact=True,
            without=dict.fromkeys(
                _NO_ARRAYS,
                "not compared: ONNX Runtime's Python interface has no arrays of these types",
            ),
        )
        for code in ("ASSIGN_VARIABLE", "CALL_ONCE", "READ_VARIABLE", "VAR_HANDLE")
    ),
    *(
        Row(
            code,
            build_last,
            kinds("float32 int32 int64 bool"),
            {"rank": RANKS},
            exact=True,
            runs=5,
            stream=Last,
        )
        for code in ("FlexAssignVariableOp", "FlexReadVariableOp", "FlexVarHandleOp")
    ),
    *(
        Row(
            code,
            build_table_lookup,
            ("string", "int64"),
            {"shape": ((6,), (2, 3), (1,))},
            _ONE,
            exact=True,
            reference=look_up,
            told=("kind",),
        )
        for code in (
            "FlexHashTableV2",
            "FlexLookupTableFindV2",
            "FlexLookupTableImportV2",
            "FlexLookupTableSizeV2",
        )
    ),
    Row(
        "STABLEHLO_COMPOSITE",
        build_call,
        kinds(f"{_SUMMED} q8 qu8 q16"),
        {"rank": RANKS, "form": ("once", "twice")},
    ),
    Row(
        "CALL",
        build_call,
        kinds(_SUMMED),
        {"rank": RANKS, "form": ("once", "twice")},
        reference=double,
        told=("form",),
    ),
    Row("DENSIFY", dense, kinds("float32 float16 q8"), {"form": MATRICES}, _ONE),
    Row(
        "SKIP_GRAM",
        grams,
        ("string",),
        {
            "sentence": range(len(test_skip_gram.SENTENCES)),
            "sizes": test_skip_gram.SIZES,
            "every": (False, True),
        },
        _ONE,
        exact=True,
    ),
)

"""A tiny decoder in the form of litert-torch's exports: prefill and decode over shared caches.

    python -m tests.support.decoder tiny.litertlm

writes one with a tokenizer that knows the letters from a to l.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tests.support.build import Build
from tests.support.litertlm import Part, compress, message, model_part, pack_litertlm, varint

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tests.support.build import Subgraph
    from tests.support.tensor import Tensor

Array = np.ndarray[Any, np.dtype[Any]]
VOCABULARY, HEADS, LENGTH, DEPTH = 16, 2, 8, 4
PREFILL = 3
STATES = ("state", "recurrence", "formulas")
_EXTRAS = ("", "embeddings", "mixed", "product", "scaled", "shared", *STATES)
_LETTERS = {letter: 3 + i for i, letter in enumerate("abcdefghijkl")}
TOKENIZER = json.dumps(
    {
        "model": {"type": "BPE", "vocab": {"<pad>": 0, "</s>": 2, **_LETTERS}, "merges": []},
        "added_tokens": [{"id": 1, "content": "<s>", "special": True}],
    }
).encode()

METADATA = message(
    (1, message((2, "<s>"))),
    (2, message((1, message((1, varint(15)))))),
    (2, message((2, "</s>"))),
    (2, message((2, "unknown"))),
    (4, message((1, 2), (2, 5), (3, 0.5), (4, 0.75))),
    (5, 6),
    (7, "{{ messages }}"),
    (13, message((2, "<pad>"))),
)


def build_decoder(  # noqa: PLR0913 - options, all of them keywords
    *,
    mask: str = "float32",
    tokens_first: bool = False,
    extra: str = "",
    seed: int = 1,
    depth: int = DEPTH,
    normalized: bool = False,
    rotated: bool | str = False,
    cap: float = 0,
    half: bool = False,
    prefills: Sequence[int] = (PREFILL,),
) -> bytes:
    """Return a decoder of one layer.

    `mask` is the type of the mask, "" for none. With "replaced" it is bool and scores are replaced,
    and further parameters have the place in the caches. `tokens_first` chooses caches [batch,
    tokens, heads, depth]; otherwise keys are [batch, heads, tokens, depth], values [batch, heads,
    depth, tokens]. `extra` is the name of an input that onnxruntime-genai does not know; with
    "embeddings" the decoder reads the rows that `build_embedder` computes, and with "shared" a
    second layer reads the caches of the first layer; with "mixed" numbers of a token are multiplied
    by a matrix of the token; with "product" decode adds a product of two int8 constants to the
    logits; with "state" it convolves the rows of three tokens, and with "recurrence" linear
    attention follows, which is spelled out in "formulas"; with "scaled" the rows are multiplied by
    other weights in prefill than in decode. `depth` is that of a head. The rows
    before the last product may be `normalized`, and scores may have a cap. If they are `rotated`,
    queries and keys are rotated by their positions before heads and tokens change places, and the
    queries are scaled between; with "half" only the first half of the numbers of a head is rotated.
    With `half` caches, scores, their weights and the state are rounded to float16. `prefills` are
    numbers of tokens.
    """
    m = Build()
    table = _make_table(seed, depth)
    options = {
        "mask": mask, "tokens_first": tokens_first, "extra": extra, "normalized": normalized,
        "rotated": rotated, "cap": cap, "half": half,
    }  # fmt: skip
    graphs: list[tuple[Build | Subgraph, str, int]] = [(m, "decode", 1)]
    graphs += [(m.subgraph("prefill"), f"prefill_{count}", count) for count in prefills]
    for graph, key, count in graphs:
        made = _build_signature(graph, key, count, table, options)
        m.signature(key, made.inputs, made.outputs)
    return m.bytes()


def build_embedder(seed: int = 1) -> bytes:
    """Return the embedder of a decoder: it reads one token, and its names are its own."""
    m = Build()
    s, table = _Signature(m, "serving_default", 1), _make_table(seed, DEPTH)
    token = s.reshape(s.input("args_0", [1, 1], "int32"), [1])
    row = s.op("EMBEDDING_LOOKUP", [token, m.constant(table)], [1, table.shape[1]])
    s.outputs["output_0"] = s.reshape(row, [1, 1, table.shape[1]])
    m.output(*s.outputs.values())
    m.signature(s.key, s.inputs, s.outputs)
    return m.bytes()


def _make_table(seed: int, depth: int) -> Array:
    shape = (VOCABULARY, HEADS * depth)
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


class _Signature:
    """Builds one signature: its operators, and its inputs and outputs by name."""

    def __init__(self, g: Build | Subgraph, key: str, count: int, *, half: bool = False) -> None:
        self.g, self.key, self.count = g, key, count
        self.dtype = "float16" if half else "float32"
        self.inputs: dict[str, Tensor] = {}
        self.outputs: dict[str, Tensor] = {}

    def input(self, name: str, shape: list[int], dtype: str = "float32") -> Tensor:
        if name not in self.inputs:
            self.inputs[name] = self.g.input(shape, name=f"{self.key}_{name}", dtype=dtype)
        return self.inputs[name]

    def ints(self, *numbers: int) -> Tensor:
        return self.g.constant(np.array(numbers, np.int32))

    def op(self, code: str, inputs: list[Tensor], shape: list[int], **options: Any) -> Tensor:
        (made,) = self.g.op(code, inputs, [shape], **options)
        return made

    def store(self, x: Tensor) -> Tensor:
        """Return numbers as caches and states have them."""
        same = self.dtype == "float32"
        return x if same else self.op("CAST", [x], list(x.shape), dtype=self.dtype)

    def load(self, x: Tensor) -> Tensor:
        """Return numbers of caches and states in float32."""
        same = self.dtype == "float32"
        return x if same else self.op("CAST", [x], list(x.shape), dtype="float32")

    def reshape(self, x: Tensor, shape: list[int]) -> Tensor:
        return self.op("RESHAPE", [x, self.ints(*shape)], shape, new_shape=shape)

    def transpose(self, x: Tensor, order: tuple[int, ...], shape: list[int]) -> Tensor:
        return self.op("TRANSPOSE", [x, self.ints(*order)], shape)

    def hide(self, scores: Tensor, positions: Tensor, mask: str) -> Tensor:
        """Return the scores with the mask: of an input, or a causal one that is computed."""
        shape = [1, 1, self.count, LENGTH]
        if mask == "float32":
            return self.op("ADD", [scores, self.input("mask", shape)], [1, HEADS, *shape[2:]])
        if mask == "float16":
            added = self.op("CAST", [self.input("mask", shape, mask)], shape, dtype="float32")
            return self.op("ADD", [scores, added], [1, HEADS, *shape[2:]])
        if mask == "replaced":
            hidden = self.g.constant(np.array(-1e4, np.float32))
            seen = self.input("mask", shape, "bool")
            return self.op(
                "SELECT_V2", [seen, scores, hidden], [1, HEADS, *shape[2:]], dtype="float32"
            )
        if mask:
            seen = self.input("mask", shape, mask)
        else:
            places = self.ints(*range(LENGTH))
            column = self.reshape(positions, [self.count, 1])
            seen = self.op("LESS_EQUAL", [places, column], shape[2:], dtype="bool")
            seen = self.reshape(seen, shape)
        numbers = [self.g.constant(np.array(number, np.float32)) for number in (0, -1e9)]
        hidden = self.op("SELECT_V2", [seen, *numbers], shape, dtype="float32")
        return self.op("ADD", [scores, hidden], [1, HEADS, *shape[2:]])

    def attend(
        self, heads: Tensor, keys: Tensor, values: Tensor, positions: Tensor,
        options: Mapping[str, Any],
    ) -> Tensor:  # fmt: skip
        """Return what the queries of all heads read, [1, rows, heads, depth]."""
        count, depth = self.count, heads.shape[-1]
        scores = self.op("BATCH_MATMUL", [heads, keys], [1, HEADS, count, LENGTH], adj_y=True)
        scores = self.load(self.store(scores))
        if options["cap"]:
            scores = self.limit(scores, options["cap"])
        hidden = self.hide(scores, positions, options["mask"])
        shares = self.op("SOFTMAX", [hidden], [1, HEADS, count, LENGTH], beta=1.0)
        shares = self.load(self.store(shares))
        mixed = self.op("BATCH_MATMUL", [shares, values], [1, HEADS, count, depth], adj_y=True)
        return self.transpose(mixed, (0, 2, 1, 3), [1, count, HEADS, depth])

    def limit(self, scores: Tensor, cap: float) -> Tensor:
        """Return cap * tanh(scores / cap)."""
        shape, number = list(scores.shape), self.g.constant(np.array(cap, np.float32))
        bent = self.op("TANH", [self.op("DIV", [scores, number], shape)], shape)
        return self.op("MUL", [bent, number], shape)

    def normalize(self, rows: Tensor) -> Tensor:
        """Return rows divided by the root of the mean of their squares."""
        shape, column = list(rows.shape), [rows.shape[0], 1]
        squares = self.op("MUL", [rows, rows], shape)
        mean = self.op("MEAN", [squares, self.ints(1)], column, keep_dims=True)
        epsilon = self.g.constant(np.array(1e-6, np.float32))
        root = self.op("RSQRT", [self.op("ADD", [mean, epsilon], column)], column)
        scale = self.g.constant(np.ones(shape[1], np.float32))
        return self.op("MUL", [self.op("MUL", [rows, root], shape), scale], shape)

    def rotate_both(
        self, x: Tensor, positions: Tensor, options: Mapping[str, Any]
    ) -> tuple[Tensor, Tensor]:
        """Return queries, which are scaled if they are rotated, and keys."""
        if not options["rotated"]:
            return x, x
        rotate = self.rotate_half if options["rotated"] == "half" else self.rotate
        queries, keys = rotate(x, positions), rotate(x, positions)
        factor = self.g.constant(np.array(0.5, np.float32))
        return self.op("MUL", [queries, factor], list(x.shape)), keys

    def rotate_half(self, x: Tensor, positions: Tensor) -> Tensor:
        """Return rows, the first half of whose numbers is rotated."""
        (*axes, depth), half = x.shape, x.shape[-1] // 2
        part = [*axes, half]
        first, second = (
            self.op("SLICE", [x, self.ints(0, 0, 0, start), self.ints(*part)], part)
            for start in (0, half)
        )
        halves = [self.rotate(first, positions), second]
        return self.op("CONCATENATION", halves, [*axes, depth], axis=3)

    def rotate(self, x: Tensor, positions: Tensor) -> Tensor:
        """Return rows, [1, rows, heads, depth], rotated by the angles of their positions."""
        (*axes, depth), column, zeros = x.shape, [1, self.count, 1, 1], [0, 0, 0]
        half = depth // 2
        places = self.op("CAST", [self.reshape(positions, column)], column, dtype="float32")
        speeds = self.g.constant(np.geomspace(1, 0.01, half, dtype=np.float32))
        angles = self.op("MUL", [places, speeds], [*column[:3], half])
        part = [*axes, half]
        a, b = (
            self.op("SLICE", [x, self.ints(*zeros, start), self.ints(*part)], part)
            for start in (0, half)
        )
        cos, sin = (self.op(code, [angles], list(angles.shape)) for code in ("COS", "SIN"))
        pairs = [(a, cos), (b, sin), (b, cos), (a, sin)]
        ac, bs, bc, as_ = (self.op("MUL", [*pair], part) for pair in pairs)
        halves = [self.op("SUB", [ac, bs], part), self.op("ADD", [bc, as_], part)]
        return self.op("CONCATENATION", halves, [*axes, depth], axis=3)

    def look_up(self, tokens: Tensor, table: Tensor, extra: str) -> Tensor:
        """Return the rows of tokens; if they are "scaled", times weights that differ in prefill."""
        shape = [self.count, table.shape[1]]
        rows = self.op("EMBEDDING_LOOKUP", [tokens, table], shape)
        if extra != "scaled":
            return rows
        factor = np.eye(shape[1], dtype=np.float32) * (1 if self.count == 1 else 3)
        return self.op("FULLY_CONNECTED", [rows, self.g.constant(factor)], shape)

    def convolve(self, row: Tensor) -> Tensor:
        """Return the weighted sum of a row and the two rows before it, which are a state."""
        width = row.shape[1]
        state = self.input("kv_cache_c_1", [1, width, 2], self.dtype)
        operands = [state, self.store(self.reshape(row, [1, width, 1]))]
        window = self.op("CONCATENATION", operands, [1, width, 3], axis=2, dtype=self.dtype)
        bounds = [self.ints(0, 0, 1), self.ints(1, width, 2)]
        last = self.op("SLICE", [window, *bounds], [1, width, 2], dtype=self.dtype)
        self.outputs["kv_cache_c_1"] = last
        window = self.load(window)
        weights = np.linspace(-1, 1, 3 * width, dtype=np.float32).reshape(1, width, 3)
        products = self.op("MUL", [window, self.g.constant(weights)], [1, width, 3])
        return self.op("SUM", [products, self.ints(2)], [1, width])

    def recur(self, row: Tensor, extra: str) -> Tensor:
        """Return a row plus linear attention, whose state is a matrix of each head."""
        width = row.shape[1]
        depth, order, single = width // HEADS, (0, 2, 1, 3), [1, HEADS, 1, 1]
        vector, matrix = [1, HEADS, 1, depth], [1, HEADS, depth, depth]
        x = self.transpose(self.reshape(row, [1, 1, HEADS, depth]), order, vector)
        rate = self.op("LOGISTIC", [self.op("SUM", [x, self.ints(3)], single[:3])], single[:3])
        decay, state = self.op("NEG", [rate], single[:3]), self.input("kv_cache_r_1", matrix)
        if extra == "recurrence":
            operands = [x, x, x, rate, decay, state]
            y, after = self.g.custom("gated_delta_update", operands, [vector, matrix])
        else:
            factor = self.reshape(self.op("EXP", [decay], single[:3]), single)
            kept = self.op("MUL", [state, factor], matrix)
            missing = self.op("SUB", [x, self.op("BATCH_MATMUL", [x, kept], vector)], vector)
            change = self.op("MUL", [missing, self.reshape(rate, single)], vector)
            column = self.transpose(x, (0, 1, 3, 2), [1, HEADS, depth, 1])
            after = self.op("ADD", [kept, self.op("MUL", [column, change], matrix)], matrix)
            y = self.op("BATCH_MATMUL", [x, after], vector)
        self.outputs["kv_cache_r_1"] = after
        flat = self.reshape(self.transpose(y, order, [1, 1, HEADS, depth]), [1, width])
        return self.op("ADD", [row, flat], [1, width])

    def mix(self, x: Tensor, rows: Tensor) -> Tensor:
        """Return pairs of numbers multiplied by a matrix of the first numbers of another row."""
        shape, pairs = list(x.shape), [1, 1, x.shape[1] // 2, 2]
        first = self.op("SLICE", [rows, self.ints(0, 0), self.ints(1, 4)], [1, 4])
        operands = [self.reshape(x, pairs), self.reshape(first, [2, 2])]
        mixed = self.op("FULLY_CONNECTED", operands, pairs, keep_num_dims=True)
        return self.reshape(mixed, shape)

    def score(self, row: Tensor, weights: Tensor, extra: str) -> Tensor:
        """Return the logits; LiteRT takes two int8 constants of a product for real numbers."""
        logits = self.op("FULLY_CONNECTED", [row, weights], [1, VOCABULARY])
        if extra != "product":
            return logits
        integers = np.arange(-VOCABULARY, VOCABULARY, dtype=np.int8).reshape(VOCABULARY, 2)
        pair = [self.g.constant(each, scale=0.1) for each in (integers[:1], integers.T)]
        product = self.g.tensor([1, VOCABULARY])
        self.g.op("BATCH_MATMUL", pair, [product])
        return self.op("ADD", [logits, product], [1, VOCABULARY])

    def update(self, kind: str, new: Tensor, positions: Tensor, shape: list[int]) -> Tensor:
        """Return a cache with new rows from the first position on."""
        cache, zero = self.input(f"kv_cache_{kind}_0", shape, self.dtype), self.ints(0)
        axis = shape.index(LENGTH)
        start = self.op("SLICE", [positions, zero, self.ints(1)], [1])
        place = self.op("CONCATENATION", [*[zero] * axis, start, *[zero] * (3 - axis)], [4])
        updated = self.op(
            "DYNAMIC_UPDATE_SLICE", [cache, self.store(new), place], shape, dtype=self.dtype
        )
        self.outputs[f"kv_cache_{kind}_0"] = updated
        return self.load(updated)


def _build_signature(
    g: Build | Subgraph, key: str, count: int, table: Array, options: Mapping[str, Any]
) -> _Signature:
    s, width = _Signature(g, key, count, half=options["half"]), table.shape[1]
    depth = width // HEADS
    weights = g.constant(table)
    if options["extra"] == "embeddings":
        rows = s.reshape(s.input("embeddings", [1, count, width]), [count, width])
    else:
        tokens = s.reshape(s.input("tokens", [1, count], "int32"), [count])
        rows = s.look_up(tokens, weights, options["extra"])
    if options["extra"] in STATES and count == 1:
        rows = s.convolve(rows)
        rows = rows if options["extra"] == "state" else s.recur(rows, options["extra"])
    positions = start = s.input("input_pos", [count], "int32")
    if options["mask"] == "replaced":
        start = s.reshape(s.input("param_tensor", [1, 1, 1, 7], "int32"), [7])
    split = s.reshape(rows, [1, count, HEADS, depth])
    queries, new = s.rotate_both(split, positions, options)
    heads = s.transpose(queries, (0, 2, 1, 3), [1, HEADS, count, depth])
    if options["tokens_first"]:
        shape = [1, LENGTH, HEADS, depth]
        keys, values = s.update("k", new, start, shape), s.update("v", split, start, shape)
        keys = s.transpose(keys, (0, 2, 1, 3), [1, HEADS, LENGTH, depth])
        values = s.transpose(values, (0, 2, 3, 1), [1, HEADS, depth, LENGTH])
    else:
        turned = s.transpose(split, (0, 2, 3, 1), [1, HEADS, depth, count])
        shape = [1, HEADS, LENGTH, depth]
        moved = s.transpose(new, (0, 2, 1, 3), [1, HEADS, count, depth])
        keys = s.update("k", moved, start, shape)
        values = s.update("v", turned, start, [1, HEADS, depth, LENGTH])
    mixed = s.attend(heads, keys, values, positions, options)
    if options["extra"] == "shared":
        split = s.op("ADD", [mixed, split], [1, count, HEADS, depth])
        heads = s.transpose(split, (0, 2, 1, 3), [1, HEADS, count, depth])
        mixed = s.attend(heads, keys, values, positions, options)
    mixed = s.op("ADD", [s.reshape(mixed, [count, width]), rows], [count, width])
    if options["extra"] == "mixed" and count == 1:
        mixed = s.mix(mixed, rows)
    elif options["extra"] not in _EXTRAS:
        mixed = s.op("ADD", [mixed, s.input(options["extra"], [1])], [count, width])
    if options["normalized"]:
        mixed = s.normalize(mixed)
    if count == 1:
        logits = s.score(mixed, weights, options["extra"])
        s.outputs["logits"] = s.reshape(logits, [1, 1, VOCABULARY])
    g.output(*s.outputs.values())
    return s


def build_language_model(data: bytes, *others: Part) -> bytes:
    """Return a decoder with a tokenizer and metadata as a `.litertlm` file."""
    parts = [Part("LlmMetadataProto", METADATA), Part("HF_Tokenizer_Zlib", compress(TOKENIZER))]
    return pack_litertlm([*parts, *others, model_part(data)])


if __name__ == "__main__":
    Path(sys.argv[1]).write_bytes(build_language_model(build_decoder()))

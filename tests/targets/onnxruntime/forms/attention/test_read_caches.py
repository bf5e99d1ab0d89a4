"""attention/read_caches.py: attention of one token over caches of keys and values."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.support import check
from tests.support.decoder import build_decoder
from tests.support.fusions import count_optimized_nodes
from tests.support.graph_text import check_unchanged, make_model, parse_graph
from tflite2onnx import convert, verify
from tflite2onnx.graph_text import write_graph
from tflite2onnx.targets.onnxruntime.forms.attention import read_caches as module
from tflite2onnx.targets.onnxruntime.forms.attention.fuse_rotations import fuse_rotations
from tflite2onnx.targets.onnxruntime.forms.attention.read_caches import read_caches

if TYPE_CHECKING:
    from tflite2onnx.graph import Graph

STEP = """
    inputs q: float32[1,1,4,8], k: float32[1,1,2,8], v: float32[1,1,2,8], at: int32[1], \
keys: float32[1,6,2,8], values: float32[1,6,2,8]
    place: int32[4] = CONCATENATION([0], at, [0], [0], axis=0)
    ks: float32[1,6,2,8] = DYNAMIC_UPDATE_SLICE(keys, k, place)
    vs: float32[1,6,2,8] = DYNAMIC_UPDATE_SLICE(values, v, place)
    scaled: float32[1,1,4,8] = MUL(q, 0.5)
    queries: float32[2,2,8] = RESHAPE(scaled, [2, 2, 8])
    k3: float32[6,2,8] = RESHAPE(ks, [6, 2, 8])
    km: float32[2,6,8] = TRANSPOSE(k3, [1, 0, 2])
    product: float32[2,2,6] = BATCH_MATMUL(queries, km, adj_x=False, adj_y=True)
    scores: float32[1,4,1,6] = RESHAPE(product, [1, 4, 1, 6])
    seen: bool[6] = LESS_EQUAL([0, 1, 2, 3, 4, 5], at)
    mask: float32[6] = SELECT_V2(seen, [0.0], [-1e9])
    added: float32[1,4,1,6] = ADD(scores, mask)
    weights: float32[1,4,1,6] = SOFTMAX(added, beta=1.0)
    flat: float32[2,2,6] = RESHAPE(weights, [2, 2, 6])
    v3: float32[6,2,8] = RESHAPE(vs, [6, 2, 8])
    vm: float32[2,6,8] = TRANSPOSE(v3, [1, 0, 2])
    y: float32[2,2,8] = BATCH_MATMUL(flat, vm, adj_x=False, adj_y=False)
    return y, ks, vs
"""
WINDOW = STEP.replace(
    "    mask: float32[6] =",
    """    first: int32[1] = ADD(at, [-3])
    late: bool[6] = GREATER([0, 1, 2, 3, 4, 5], first)
    both: bool[6] = LOGICAL_AND(seen, late)
    mask: float32[6] =""",
).replace("SELECT_V2(seen", "SELECT_V2(both")
CAPPED = STEP.replace("ADD(scores", "ADD(capped").replace(
    "    added:",
    """    part: float32[1,4,1,6] = DIV(scores, 0.5)
    bent: float32[1,4,1,6] = TANH(part)
    capped: float32[1,4,1,6] = MUL(bent, 0.5)
    added:""",
)
# A second layer, whose mask is `other`, reads the caches of the first layer.
SHARED = STEP.replace(
    "    return y, ks, vs",
    """    scaled2: float32[1,1,4,8] = MUL(q, 0.25)
    queries2: float32[2,2,8] = RESHAPE(scaled2, [2, 2, 8])
    product2: float32[2,2,6] = BATCH_MATMUL(queries2, km, adj_x=False, adj_y=True)
    other: float32[6] = SELECT_V2(seen, [0.0], [-1e4])
    added2: float32[2,2,6] = ADD(product2, other)
    weights2: float32[2,2,6] = SOFTMAX(added2, beta=1.0)
    y2: float32[2,2,8] = BATCH_MATMUL(weights2, vm, adj_x=False, adj_y=False)
    return y, ks, vs, y2""",
)
# Exporters of attention with as many heads of keys as of queries multiply both by sqrt(scale).
SCALED = STEP.replace("RESHAPE(ks, ", "RESHAPE(kf, ").replace(
    "    k3:", "    kf: float32[1,6,2,8] = MUL(ks, 0.5)\n    k3:"
)
HEADS_FIRST = (0, 2, 1, 3)


def _rewrite(text: str, order: tuple[int, ...] = HEADS_FIRST) -> Graph:
    graph = parse_graph(text)
    ends = (*graph.inputs[4:], *graph.outputs[1:])
    return read_caches(graph, dict.fromkeys(ends, order))


def _writes_caches(graph: Graph) -> bool:
    return any(op.is_builtin("ATTENTION") and len(op.outputs) > 1 for op in graph.ops)


@pytest.mark.parametrize(
    ("text", "options"),
    [
        (STEP, "window=0, cap=0.0"),
        (WINDOW, "window=3, cap=0.0"),
        (CAPPED, "window=0, cap=0.5"),
        (STEP.replace("ADD(scores, mask)", "SELECT_V2(seen, scores, [-1e4])"), "window=0, cap=0.0"),
        (WINDOW.replace("[-1e9]", "[-1e4]"), "window=3, cap=0.0"),
    ],
)
def test_operators_become_cached_attention(text: str, options: str) -> None:
    text = write_graph(_rewrite(text), ["scale", "window", "cap"])
    assert text.count("DYNAMIC_UPDATE_SLICE") == text.count("BATCH_MATMUL") == 0
    assert f"ATTENTION(%6, %7, %8, none, %9, %4, %5, scale=0.5, {options})" in text


def test_products_of_caches_and_numbers_are_parts_of_the_scale() -> None:
    """A factor of the keys is one of the scores; the values of the cache must be as written."""
    text = write_graph(_rewrite(SCALED), ["scale"])
    assert "MUL" not in text
    assert "ATTENTION(%6, %7, %8, none, %9, %4, %5, scale=0.25)" in text
    values = STEP.replace("RESHAPE(vs, ", "RESHAPE(vf, ").replace(
        "    v3:", "    vf: float32[1,6,2,8] = MUL(vs, 0.5)\n    v3:"
    )
    assert values != STEP
    assert not _writes_caches(_rewrite(values))


def test_layers_that_share_caches_each_write_the_token() -> None:
    """The outputs of the first layer are those of the graph; nothing reads the other caches."""
    graph = _rewrite(SHARED)
    first, second = (op for op in graph.ops if op.is_builtin("ATTENTION"))
    assert first.inputs[5:7] == second.inputs[5:7] == graph.inputs[4:]
    assert first.outputs[1:] == graph.outputs[1:3]
    read = {tensor for op in graph.ops for tensor in op.inputs} | {*graph.outputs}
    assert read.isdisjoint(second.outputs[1:])
    assert "DYNAMIC_UPDATE_SLICE" not in write_graph(graph)


def test_layers_that_share_caches_are_replaced_together() -> None:
    """A layer that is not replaced would read numbers after the position."""
    text = SHARED.replace("[-1e4]", "[-1.0]")
    assert text != SHARED
    assert not _writes_caches(_rewrite(text))


@pytest.mark.parametrize("caches", ["separate", "shared"])
def test_shared_caches_equal_litert(caches: Any) -> None:
    data = build_decoder(mask="", tokens_first=True, depth=16, extra="shared")
    result = convert(data, signature="decode", caches=caches)
    nodes = [node.op_type for node in result.model.graph.node]
    assert nodes.count("GroupQueryAttention") == (2 if caches == "shared" else 0)
    assert verify(data, result).ok


def test_cap_of_scores_equals_litert() -> None:
    data = build_decoder(mask="", tokens_first=True, depth=16, cap=0.5)
    result = convert(data, signature="decode", caches="shared")
    assert "GroupQueryAttention" in {node.op_type for node in result.model.graph.node}
    assert verify(data, result).ok


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("LESS_EQUAL", "LESS"),  # the token does not see itself
        ("-1e9", "-1.0"),  # it sees those after it, if less
        ("[0.0]", "[1.0]"),
        ("CONCATENATION([0], at,", "CONCATENATION([0], [0],"),  # another place
        ("[0, 1, 2, 3, 4, 5], at)", "[0, 2, 1, 3, 4, 5], at)"),
        ("TRANSPOSE(k3, [1, 0, 2])", "RESHAPE(k3, [2, 6, 8])"),  # other rows of keys
        ("SOFTMAX(added, beta=1.0)", "SOFTMAX(added, beta=2.0)"),
        ("MUL(q, 0.5)", "MUL(q, -0.5)"),
        ("ADD(scores, mask)", "SELECT_V2(seen, scores, [-1e3])"),
        ("return y, ks, vs", "return y, ks"),
        ("SELECT_V2(seen, [0.0], [-1e9])", "CAST(at)"),
        ("LESS_EQUAL([0, 1, 2, 3, 4, 5], at)", "LESS_EQUAL([0, 1, 2, 3, 4, 5], [2])"),
        ("float32[6] = SELECT_V2(seen,", "float32[1,4,1,6] = SELECT_V2(seen,"),
        # Another operator reads the cache, or the keys between.
        (
            "    return y, ks, vs",
            "    more: float32[1,6,2,8] = ABS(ks)\n    return y, ks, vs, more",
        ),
        ("    return y, ks, vs", "    more: float32[6,2,8] = ABS(k3)\n    return y, ks, vs, more"),
    ],
)
def test_masks_that_are_not_causal_and_other_products_stay(old: str, new: str) -> None:
    """Another mask, another place of the update, or another product prevents a fusion."""
    text = STEP.replace(old, new)
    assert text != STEP
    assert not _writes_caches(_rewrite(text))


def test_cache_outputs_need_heads_first_too() -> None:
    graph = parse_graph(STEP)
    changed = read_caches(graph, dict.fromkeys(graph.inputs[4:], HEADS_FIRST))
    assert not _writes_caches(changed)


def test_caches_without_heads_first_stay() -> None:
    """A cache whose heads are not stored first would have to be transposed in each step."""
    assert not _writes_caches(_rewrite(STEP, (0, 1, 2, 3)))


@pytest.mark.parametrize("tokens_first", [False, True])
def test_signatures_store_caches_with_heads_first(*, tokens_first: bool) -> None:
    """All signatures store caches with heads first; a step updates them in place.

    In a runtime that does not share the memory of caches, rows after the position would be lost.
    """
    data = build_decoder(mask="", tokens_first=tokens_first, depth=16)
    keys = ("decode", "prefill_3")
    results = {key: convert(data, signature=key, caches="shared") for key in keys}
    orders = {
        tuple(end.order)
        for result in results.values()
        for end in result.inputs
        if "cache" in end.name
    }
    # Keys of the second form have the heads first in the file; its values have the tokens last.
    assert orders == ({HEADS_FIRST} if tokens_first else {(0, 1, 2, 3), (0, 1, 3, 2)})
    nodes = [node.op_type for node in results["decode"].model.graph.node]
    assert "GroupQueryAttention" in nodes
    assert verify(data, results["decode"]).ok
    others: tuple[dict[str, Any], ...] = ({"io_layout": "tflite", "caches": "shared"}, {})
    for options in others:
        kept = convert(data, signature="decode", **options)
        assert "GroupQueryAttention" not in [node.op_type for node in kept.model.graph.node]
        assert verify(data, kept).ok


def test_metadata_tell_which_caches_share_memory() -> None:
    """The metadata list the outputs that share the memory of an input."""
    data = build_decoder(mask="", tokens_first=True, depth=16)
    result = convert(data, signature="decode", caches="shared")
    found = {each.key: each.value for each in result.model.metadata_props}
    shared = json.loads(found["tflite2onnx.caches"])
    names = {end.name for end in result.inputs}
    assert len(shared) == 2
    assert set(shared.values()) <= names


DEPTH, TOKENS = 8, 6
# The sequence of heads, tokens and depth in a cache.
LAYOUTS = ("thd", "htd", "hdt")


def write_step(keys: str, values: str, heads: int, shares: int) -> str:
    """Return a step of one token with caches in these sequences; a mask of 6 numbers is added."""
    sizes = {"h": heads, "t": TOKENS, "d": DEPTH}
    queries = heads * shares
    lines = []
    for name, layout in (("k", keys), ("v", values)):
        shape = [sizes[letter] for letter in layout]
        row = [1 if letter == "t" else sizes[letter] for letter in layout]
        place = ", ".join(["[0]", *("at" if letter == "t" else "[0]" for letter in layout)])
        flat, moved = (",".join(map(str, s)) for s in (shape, (heads, TOKENS, DEPTH)))
        lines += [
            f"{name}0: float32[1,{','.join(map(str, row))}] = RESHAPE({name}, {[1, *row]})",
            f"{name}p: int32[4] = CONCATENATION({place}, axis=0)",
            f"{name}s: float32[1,{flat}] = DYNAMIC_UPDATE_SLICE({name}c, {name}0, {name}p)",
            f"{name}3: float32[{flat}] = RESHAPE({name}s, {shape})",
        ]
        if layout == "thd":
            lines.append(f"{name}m: float32[{moved}] = TRANSPOSE({name}3, [1, 0, 2])")
    caches = ", ".join(
        f"{name}c: float32[1,{','.join(str(sizes[letter]) for letter in layout)}]"
        for name, layout in (("k", keys), ("v", values))
    )
    kept = {"k": "km" if keys == "thd" else "k3", "v": "vm" if values == "thd" else "v3"}
    return f"""
    inputs q: float32[1,1,{queries},{DEPTH}], k: float32[1,{heads * DEPTH}], \
v: float32[1,{heads * DEPTH}], at: int32[1], mask: float32[1,1,1,{TOKENS}], {caches}
    {chr(10).join(f"    {line}" for line in lines).lstrip()}
    scaled: float32[1,1,{queries},{DEPTH}] = MUL(q, 0.5)
    rows: float32[{heads},{shares},{DEPTH}] = RESHAPE(scaled, [{heads}, {shares}, {DEPTH}])
    product: float32[{heads},{shares},{TOKENS}] = BATCH_MATMUL(rows, {kept["k"]}, adj_x=False, \
adj_y={keys != "hdt"})
    scores: float32[1,{queries},1,{TOKENS}] = RESHAPE(product, [1, {queries}, 1, {TOKENS}])
    added: float32[1,{queries},1,{TOKENS}] = ADD(scores, mask)
    weights: float32[1,{queries},1,{TOKENS}] = SOFTMAX(added, beta=1.0)
    flat: float32[{heads},{shares},{TOKENS}] = RESHAPE(weights, [{heads}, {shares}, {TOKENS}])
    y: float32[{heads},{shares},{DEPTH}] = BATCH_MATMUL(flat, {kept["v"]}, adj_x=False, \
adj_y={values == "hdt"})
    return y, ks, vs
"""


def table_lines(window: int) -> str:
    """Return lines for a mask that is a row of a table: the last tokens up to the position."""
    shown = [[i - window < j <= i for j in range(TOKENS)] for i in range(TOKENS)]
    table = [[0.0 if each else -1e9 for each in row] for row in shown]
    return f"""    row: int32[1,1] = RESHAPE(at, [1, 1])
    mask: float32[1,{TOKENS}] = GATHER_ND({table}, row)
"""


def add_cap(text: str, part: str) -> str:
    """Return a step whose scores have a cap of 0.75; `part` are the scores divided by it."""
    shape = f"float32[1,6,1,{TOKENS}]"
    capped = f"""    part: {shape} = {part}
    bent: {shape} = TANH(part)
    capped: {shape} = MUL(bent, 0.75)
    added:"""
    return text.replace("    added:", capped).replace("ADD(scores", "ADD(capped")


@pytest.mark.parametrize("keys", LAYOUTS)
@pytest.mark.parametrize("values", LAYOUTS)
@pytest.mark.parametrize("is_long", [False, True])
@pytest.mark.parametrize("window", [None, TOKENS, 2])
@pytest.mark.parametrize(("heads", "shares"), [(2, 3), (3, 1), (1, 4), (6, 3)])
def test_attention_of_one_token_equals_litert(
    keys: str, values: str, heads: int, shares: int, window: int | None, *, is_long: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Caches in memory and in the processor's caches are multiplied in other forms.

    Of a cache whose mask is known only the tokens that are seen are read.
    """
    if is_long:
        for size in ("CACHED", "NEAR", "_FAR"):
            monkeypatch.setattr(module, size, 0)
    text = write_step(keys, values, heads, shares)
    if window is not None:
        text = text.replace(f" mask: float32[1,1,1,{TOKENS}],", "")
        text = text.replace("    scaled:", f"{table_lines(window)}    scaled:", 1)
    graph = write_graph(read_caches(parse_graph(text)))
    assert " ATTENTION(" in graph
    assert "BATCH_MATMUL" not in graph
    assert "GATHER_ND" not in graph
    data = make_model(text)
    check(data, ranges={"at": (0, TOKENS - 1)})
    nodes = count_optimized_nodes(convert(data).model)
    assert nodes["FusedMatMul"] + nodes["MatMul"] == 2, nodes
    assert "FusedMatMul" in {node.op_type for node in convert(data).model.graph.node}
    # Scores, or the result, are transposed in place of a cache.
    assert nodes["Transpose"] <= 2 * is_long * (shares > 1), nodes


@pytest.mark.parametrize("part", ["DIV(scores, 0.75)", "MUL(scores, 1.3333334)", ""])
@pytest.mark.parametrize("replaced", [False, True])
def test_caps_and_masks_that_replace_scores_equal_litert(part: str, *, replaced: bool) -> None:
    text = write_step("htd", "hdt", 2, 3)
    if part:
        text = add_cap(text, part)
    if replaced:
        scores = "capped" if part else "scores"
        text = text.replace("mask: float32", "mask: bool")
        text = text.replace(f"ADD({scores}, mask)", f"SELECT_V2(mask, {scores}, -1e4)")
    assert " ATTENTION(" in write_graph(read_caches(parse_graph(text)))
    check(make_model(text))


def test_a_factor_that_is_no_inverse_of_the_cap_multiplies_the_scores() -> None:
    """Models of mixed precision round the inverse of the cap to float16."""
    text = add_cap(write_step("htd", "hdt", 2, 3), "MUL(scores, 1.5)")
    made = write_graph(read_caches(parse_graph(text)))
    assert "scale=0.5625" in made
    assert "cap=0.75" in made
    check(make_model(text))


@pytest.mark.parametrize(
    "part", ["MUL(scores, -1.5)", "DIV(scores, 0.5)", f"DIV(scores, {[[[0.75] * TOKENS]] * 6})"]
)
def test_factors_that_are_no_cap_stay(part: str) -> None:
    check_unchanged(read_caches, parse_graph(add_cap(write_step("htd", "hdt", 2, 3), part)))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("beta=1.0", "beta=2.0"),
        ("MUL(q, 0.5)", "MUL(q, -0.5)"),
        ("return y, ks, vs", "return y, ks"),
        # The update has several tokens.
        ("k: float32[1,1,2,8]", "k: float32[1,2,2,8]"),
    ],
)
def test_steps_of_several_tokens_or_without_returned_caches_stay(old: str, new: str) -> None:
    text = STEP.replace(old, new)
    assert text != STEP
    check_unchanged(read_caches, parse_graph(text))


def _rotate(name: str, x: str, heads: int) -> str:
    """Return lines that rotate the heads of a token by the angles of its position."""
    shape = f"[1,1,{heads},4]"
    return f"""
    {name}1: float32{shape} = SLICE({x}, [0, 0, 0, 0], [1, 1, {heads}, 4])
    {name}2: float32{shape} = SLICE({x}, [0, 0, 0, 4], [1, 1, {heads}, 4])
    {name}3: float32{shape} = MUL({name}1, cosines)
    {name}4: float32{shape} = MUL({name}2, sines)
    {name}5: float32{shape} = SUB({name}3, {name}4)
    {name}6: float32{shape} = MUL({name}2, cosines)
    {name}7: float32{shape} = MUL({name}1, sines)
    {name}8: float32{shape} = ADD({name}6, {name}7)
    {name}: float32[1,1,{heads},8] = CONCATENATION({name}5, {name}8, axis=3)"""


ANGLES = """
    real: float32[1] = CAST(at)
    real4: float32[1,1,1,1] = RESHAPE(real, [1, 1, 1, 1])
    angles: float32[1,1,1,4] = MUL(real4, [[[[1.0, 0.5, 0.1, 0.02]]]])
    cosines: float32[1,1,1,4] = COS(angles)
    sines: float32[1,1,1,4] = SIN(angles)"""


def rotate_step(text: str) -> str:
    """Return a step of `test_read_caches` that rotates queries and keys."""
    rotated = ANGLES + _rotate("qr", "q", 4) + _rotate("kr", "k", 2)
    head, rest = text.split("    place:", 1)
    rest = rest.replace("SLICE(keys, k,", "SLICE(keys, kr,").replace("MUL(q,", "MUL(qr,")
    return f"{head.rstrip()}{rotated}\n    place:{rest}"


def mask_rows(window: int) -> str:
    """Return a step of `test_read_caches` whose mask is a row of a table."""
    head, rest = STEP.split("    seen:", 1)
    return f"{head}{table_lines(window)}{rest[rest.index('    added:') :]}"


@pytest.mark.parametrize("window", [TOKENS, 3])
def test_masks_and_angles_are_read_by_position(window: int) -> None:
    """Masks, cosines and sines are found by the position."""
    rotated = rotate_step(mask_rows(window))
    graph = write_graph(read_caches(fuse_rotations(parse_graph(rotated))), ["positions"])
    assert " ATTENTION(" in graph
    assert graph.count("ROTARY_EMBEDDING") == 2
    assert "COS(" not in graph
    assert "GATHER_ND" not in graph
    check(make_model(rotated), ranges={"at": (0, TOKENS - 1)})
    nodes = count_optimized_nodes(convert(make_model(rotated)).model)
    assert not {"Cos", "Sin", "GatherND"} & nodes.keys()


@pytest.mark.parametrize("text", [STEP, WINDOW])
def test_masks_of_any_position_stay_computed(text: str) -> None:
    """A mask that is computed of any position is computed as in the file."""
    rotated = rotate_step(text)
    check(make_model(rotated), ranges={"at": (0, 2 * TOKENS)})
    nodes = count_optimized_nodes(convert(make_model(rotated)).model)
    assert {"Cos", "Sin", "RotaryEmbedding", "FusedMatMul"} <= nodes.keys()


def test_angles_of_another_input_stay_computed() -> None:
    """Angles that depend on another input are computed in each step."""
    text = rotate_step(mask_rows(TOKENS)).replace("CAST(at)", "CAST(other)")
    text = text.replace("at: int32[1],", "at: int32[1], other: int32[1],", 1)
    check(make_model(text), ranges={"at": (0, TOKENS - 1), "other": (0, 9)})
    nodes = count_optimized_nodes(convert(make_model(text)).model)
    assert {"Cos", "Sin", "RotaryEmbedding"} <= nodes.keys()

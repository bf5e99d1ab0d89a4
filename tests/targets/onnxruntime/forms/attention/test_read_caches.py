"""attention/read_caches.py: attention of one token over caches of keys and values."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.decoder import build_decoder
from tests.support.graph_text import parse_graph
from tflite2onnx import convert, verify
from tflite2onnx.graph_text import write_graph
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
    assert f"CACHED_ATTENTION(%6, %7, %8, %4, %5, %9, scale=0.5, {options})" in text


def test_products_of_caches_and_numbers_are_parts_of_the_scale() -> None:
    """A factor of the keys is one of the scores; the values of the cache must be as written."""
    text = write_graph(_rewrite(SCALED), ["scale"])
    assert "MUL" not in text
    assert "CACHED_ATTENTION(%6, %7, %8, %4, %5, %9, scale=0.25)" in text
    values = STEP.replace("RESHAPE(vs, ", "RESHAPE(vf, ").replace(
        "    v3:", "    vf: float32[1,6,2,8] = MUL(vs, 0.5)\n    v3:"
    )
    assert values != STEP
    assert "CACHED_ATTENTION" not in write_graph(_rewrite(values))


def test_layers_that_share_caches_each_write_the_token() -> None:
    """The outputs of the first layer are those of the graph; nothing reads the other caches."""
    graph = _rewrite(SHARED)
    first, second = (op for op in graph.ops if op.is_builtin("CACHED_ATTENTION"))
    assert first.inputs[3:5] == second.inputs[3:5] == graph.inputs[4:]
    assert first.outputs[1:] == graph.outputs[1:3]
    read = {tensor for op in graph.ops for tensor in op.inputs} | {*graph.outputs}
    assert read.isdisjoint(second.outputs[1:])
    assert "DYNAMIC_UPDATE_SLICE" not in write_graph(graph)


def test_layers_that_share_caches_are_replaced_together() -> None:
    """A layer that is not replaced would read numbers after the position."""
    text = SHARED.replace("[-1e4]", "[-1.0]")
    assert text != SHARED
    assert "CACHED_ATTENTION" not in write_graph(_rewrite(text))


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
    assert "CACHED_ATTENTION" not in write_graph(_rewrite(text))


def test_cache_outputs_need_heads_first_too() -> None:
    graph = parse_graph(STEP)
    changed = read_caches(graph, dict.fromkeys(graph.inputs[4:], HEADS_FIRST))
    assert "CACHED_ATTENTION" not in write_graph(changed)


def test_caches_without_heads_first_stay() -> None:
    """A cache whose heads are not stored first would have to be transposed in each step."""
    assert "CACHED_ATTENTION" not in write_graph(_rewrite(STEP, (0, 1, 2, 3)))


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
    if tokens_first:
        assert orders == {HEADS_FIRST}
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

"""attention/attend_tokens.py: attention of one token over caches that are copied by no product."""

from __future__ import annotations

import pytest

from tests.passes.patterns.attention.test_read_caches import STEP
from tests.support import check
from tests.support.fusions import count_optimized_nodes
from tests.support.graph_text import check_unchanged, make_model, parse_graph
from tflite2onnx import convert
from tflite2onnx.graph_text import write_graph
from tflite2onnx.passes.patterns.attention import attend_tokens as module
from tflite2onnx.passes.patterns.attention.attend_tokens import attend_tokens

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
    weights: float32[1,{queries},1,{TOKENS}] = SOFTMAX(added)
    flat: float32[{heads},{shares},{TOKENS}] = RESHAPE(weights, [{heads}, {shares}, {TOKENS}])
    y: float32[{heads},{shares},{DEPTH}] = BATCH_MATMUL(flat, {kept["v"]}, adj_x=False, \
adj_y={values == "hdt"})
    return y, ks, vs
"""


@pytest.mark.parametrize("keys", LAYOUTS)
@pytest.mark.parametrize("values", LAYOUTS)
@pytest.mark.parametrize("is_far", [False, True])
@pytest.mark.parametrize(("heads", "shares"), [(2, 3), (3, 1), (1, 4), (6, 3)])
def test_results(
    keys: str, values: str, heads: int, shares: int, *, is_far: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Caches in memory and in the processor's caches are multiplied in other forms."""
    if is_far:
        monkeypatch.setattr(module, "_FAR", 0)
        monkeypatch.setattr(module, "_LONG", 0)
    text = write_step(keys, values, heads, shares)
    graph = write_graph(attend_tokens(parse_graph(text)))
    assert "TOKEN_ATTENTION" in graph
    assert "BATCH_MATMUL" not in graph
    data = make_model(text)
    check(data)
    nodes = count_optimized_nodes(convert(data).model)
    assert nodes["FusedMatMul"] + nodes["MatMul"] == 2
    # Scores, or the result, are transposed in place of a cache.
    assert nodes["Transpose"] <= 2 * is_far * (shares > 1)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("SOFTMAX(added)", "SOFTMAX(added, beta=2.0)"),
        ("MUL(q, 0.5)", "MUL(q, -0.5)"),
        ("return y, ks, vs", "return y, ks"),
        # The update has several tokens.
        ("k: float32[1,1,2,8]", "k: float32[1,2,2,8]"),
    ],
)
def test_other_computations(old: str, new: str) -> None:
    text = STEP.replace(old, new)
    assert text != STEP
    check_unchanged(attend_tokens, parse_graph(text))

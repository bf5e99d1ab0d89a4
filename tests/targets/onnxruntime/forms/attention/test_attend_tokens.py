"""attention/attend_tokens.py: attention of one token over caches that are copied by no product."""

from __future__ import annotations

import pytest

from tests.support import check
from tests.support.fusions import count_optimized_nodes
from tests.support.graph_text import check_unchanged, make_model, parse_graph
from tests.targets.onnxruntime.forms.attention.test_read_caches import STEP, WINDOW
from tflite2onnx import convert
from tflite2onnx.graph_text import write_graph
from tflite2onnx.targets.onnxruntime.forms.attention import attend_tokens as module
from tflite2onnx.targets.onnxruntime.forms.attention.attend_tokens import attend_tokens
from tflite2onnx.targets.onnxruntime.forms.attention.fuse_rotations import fuse_rotations

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
        monkeypatch.setattr(module, "_LONG", 0)
        monkeypatch.setattr(module, "_LONGEST", (0, 0))
    text = write_step(keys, values, heads, shares)
    if window is not None:
        text = text.replace(f" mask: float32[1,1,1,{TOKENS}],", "")
        text = text.replace("    scaled:", f"{table_lines(window)}    scaled:", 1)
    graph = write_graph(attend_tokens(parse_graph(text)))
    assert "TOKEN_ATTENTION" in graph
    assert "BATCH_MATMUL" not in graph
    assert "GATHER_ND" not in graph
    data = make_model(text)
    check(data, ranges={"at": (0, TOKENS - 1)})
    nodes = count_optimized_nodes(convert(data).model)
    assert nodes["FusedMatMul"] + nodes["MatMul"] == 2
    assert "FusedMatMul" in {node.op_type for node in convert(data).model.graph.node}
    # Scores, or the result, are transposed in place of a cache.
    assert nodes["Transpose"] <= 2 * is_long * (shares > 1)


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
    assert "TOKEN_ATTENTION" in write_graph(attend_tokens(parse_graph(text)))
    check(make_model(text))


@pytest.mark.parametrize(
    "part", ["MUL(scores, 1.5)", "DIV(scores, 0.5)", f"DIV(scores, {[[[0.75] * TOKENS]] * 6})"]
)
def test_factors_that_are_no_cap_stay(part: str) -> None:
    check_unchanged(attend_tokens, parse_graph(add_cap(write_step("htd", "hdt", 2, 3), part)))


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
    check_unchanged(attend_tokens, parse_graph(text))


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
    graph = write_graph(attend_tokens(fuse_rotations(parse_graph(rotated))), ["positions"])
    assert "TOKEN_ATTENTION" in graph
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

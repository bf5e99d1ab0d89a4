"""attention/mark_updates.py: caches of float16 of which several tokens are written at once."""

from __future__ import annotations

import pytest

from tests.support.graph_text import check_unchanged, parse_graph
from tflite2onnx.graph_text import write_graph
from tflite2onnx.targets.onnxruntime.forms.attention.mark_updates import mark_updates

STEP = """
    inputs q: float32[2,2,8], k: float16[1,1,2,8], v: float16[1,1,2,8], at: int32[1], \
keys: float16[1,6,2,8], values: float16[1,6,2,8]
    place: int32[4] = CONCATENATION([0], at, [0], [0], axis=0)
    ks: float16[1,6,2,8] = DYNAMIC_UPDATE_SLICE(keys, k, place)
    vs: float16[1,6,2,8] = DYNAMIC_UPDATE_SLICE(values, v, place)
    k3: float16[6,2,8] = RESHAPE(ks, [6, 2, 8])
    kw: float32[6,2,8] = CAST(k3)
    km: float32[2,6,8] = TRANSPOSE(kw, [1, 0, 2])
    product: float32[2,2,6] = BATCH_MATMUL(q, km, adj_x=False, adj_y=True)
    rounded: float16[2,2,6] = CAST(product)
    scores: float32[2,2,6] = CAST(rounded)
    seen: bool[6] = LESS_EQUAL([0, 1, 2, 3, 4, 5], at)
    mask: float32[6] = SELECT_V2(seen, [0.0], [-1e9])
    row: float32[1,1,6] = RESHAPE(mask, [1, 1, 6])
    half: float16[1,1,6] = CAST(row)
    twice: float16[1,2,6] = CONCATENATION(half, half, axis=1)
    wide: float32[1,2,6] = CAST(twice)
    added: float32[2,2,6] = ADD(scores, wide)
    weights: float32[2,2,6] = SOFTMAX(added, beta=1.0)
    v3: float16[6,2,8] = RESHAPE(vs, [6, 2, 8])
    vw: float32[6,2,8] = CAST(v3)
    vm: float32[2,6,8] = TRANSPOSE(vw, [1, 0, 2])
    y: float32[2,2,8] = BATCH_MATMUL(weights, vm, adj_x=False, adj_y=False)
    return y, ks, vs
"""


def test_causal_updates_are_at_the_position() -> None:
    """The start indices are computed of the position; the operators of attention stay."""
    text = write_graph(mark_updates(parse_graph(STEP)))
    assert text.count("DYNAMIC_UPDATE_SLICE") == text.count("is_causal=True") == 2
    assert text.count("[0, 1, 0, 0]") == 2
    assert text.count("CAST(") == STEP.count("CAST(")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("LESS_EQUAL(", "GREATER_EQUAL("),
        ("[0, 1, 2, 3, 4, 5]", "[0, 1, 2, 3, 4, 4]"),
        ("[-1e9]", "[-1.0]"),
        ("CONCATENATION([0], at,", "CONCATENATION(at, [0],"),
        ("float16", "float32"),
        # The values are read by another operator, which adds those of later tokens.
        ("    return y, ks, vs", "    z: float16[6,2,8] = ADD(v3, v3)\n    return y, ks, vs, z"),
    ],
)
def test_other_updates_stay(old: str, new: str) -> None:
    text = STEP.replace(old, new)
    assert text != STEP
    if "z:" in new:
        marked = write_graph(mark_updates(parse_graph(text)))
        assert marked.count("is_causal=True") == 1
    else:
        check_unchanged(mark_updates, parse_graph(text))

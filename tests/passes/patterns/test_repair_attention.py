"""The sub-graph of an attention is repaired: keys of one head are transposed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from flatbuffers import flexbuffers

from tests.support import Build, run_onnx
from tests.support.graph_text import assert_rewritten, check_unchanged, parse_graph
from tflite2onnx import convert, verify
from tflite2onnx.passes.patterns.repair_attention import ATTENTION, repair_attention
from tflite2onnx.verification.runtimes import FASTEST_KERNELS, PLAIN_KERNELS

HEADS, TOKENS, DEPTH = 2, 5, 4
BEFORE = """
    inputs q: float32[1,1,2,4], k: float32[1,5,1,4]
    scaled: float32[1,5,1,4] = MUL(k, 0.5)
    turned: float32[1,1,4,5] = RESHAPE(scaled, [1, 1, 4, 5])
    repeated: float32[1,2,4,5] = BROADCAST_TO(turned, [1, 2, 4, 5])
    matrices: float32[2,4,5] = RESHAPE(repeated, [2, 4, 5])
    rows: float32[2,1,4] = RESHAPE(q, [2, 1, 4])
    y: float32[2,1,5] = BATCH_MATMUL(rows, matrices)
    return y
"""
AFTER = BEFORE.replace(
    """scaled: float32[1,5,1,4] = MUL(k, 0.5)
    turned: float32[1,1,4,5] = RESHAPE(scaled, [1, 1, 4, 5])""",
    """moved: float32[1,1,4,5] = TRANSPOSE(k, [0, 2, 3, 1])
    turned: float32[1,1,4,5] = MUL(moved, 0.5)""",
)


def test_keys_are_transposed() -> None:
    assert_rewritten(repair_attention, BEFORE, AFTER)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("RESHAPE(scaled, [1, 1, 4, 5])", "TRANSPOSE(scaled, [0, 2, 3, 1])"),
        ("MUL(k, 0.5)", "NEG(k)"),
        ("BATCH_MATMUL(rows, matrices)", "BATCH_MATMUL(rows, matrices, adj_y=True)"),
        ("BATCH_MATMUL(rows, matrices)", "FULLY_CONNECTED(rows, matrices)"),
    ],
)
def test_other_sub_graphs_are_not_changed(old: str, new: str) -> None:
    assert old in BEFORE
    check_unchanged(repair_attention, parse_graph(BEFORE.replace(old, new)))


def test_keys_of_several_heads_are_not_changed() -> None:
    check_unchanged(
        repair_attention,
        parse_graph(
            """
            inputs q: float32[1,2,4], k: float32[1,4,2,5]
            turned: float32[1,1,8,5] = RESHAPE(k, [1, 1, 8, 5])
            y: float32[1,1,2,5] = BATCH_MATMUL(q, turned)
            return y
            """
        ),
    )


def build_attention(*, transposed: bool) -> bytes:
    """Return a composite as litert-torch writes it, for one token."""
    m = Build()
    inner = m.subgraph("attention")
    shapes = {"q": (1, 1, HEADS, DEPTH), "k": (1, TOKENS, 1, DEPTH), "v": (1, TOKENS, 1, DEPTH)}
    shapes["mask"] = (1, 1, 1, TOKENS)
    q, k, v, mask = (inner.input(shape, name=name) for name, shape in shapes.items())

    def add(code: str, x: Any, shape: tuple[int, ...], numbers: Any = None) -> Any:
        numbers = np.array(shape if numbers is None else numbers, np.int32)
        return inner.op(code, [x, inner.constant(numbers)], [shape])[0]

    code, numbers = ("TRANSPOSE", [0, 2, 3, 1]) if transposed else ("RESHAPE", None)
    turned = add(code, k, (1, 1, DEPTH, TOKENS), numbers)
    keys = add("BROADCAST_TO", turned, (1, HEADS, DEPTH, TOKENS))
    keys = add("RESHAPE", keys, (HEADS, DEPTH, TOKENS))
    queries = add("RESHAPE", q, (HEADS, 1, DEPTH))
    (scores,) = inner.op("BATCH_MATMUL", [queries, keys], [(HEADS, 1, TOKENS)])
    (scores,) = inner.op("ADD", [scores, mask], [(1, HEADS, 1, TOKENS)])
    (shares,) = inner.op("SOFTMAX", [scores], [(1, HEADS, 1, TOKENS)], beta=1.0)
    shares = add("RESHAPE", shares, (HEADS, 1, TOKENS))
    (y,) = inner.op("BATCH_MATMUL", [shares, add("RESHAPE", v, (TOKENS, DEPTH))], [(2, 1, DEPTH)])
    inner.output(add("RESHAPE", y, shapes["q"]))
    m.output(
        *m.op(
            "STABLEHLO_COMPOSITE",
            [m.input(shape) for shape in shapes.values()],
            [shapes["q"]],
            decomposition_subgraph_index=inner.index,
            name=ATTENTION,
            composite_attributes=bytes(flexbuffers.Dumps({"scale": 1.0})),
        )
    )
    return m.bytes()


def test_composite_has_the_numbers_of_the_default_delegate() -> None:
    """Plain kernels run the sub-graph, and the default delegate the composite."""
    reshaped, transposed = (build_attention(transposed=choice) for choice in (False, True))
    rng = np.random.default_rng(0)
    right, repaired = convert(transposed), convert(reshaped)
    feeds = {end.name: rng.normal(size=end.tflite_shape).astype(np.float32) for end in right.inputs}
    (want,), (got,) = (run_onnx(result.model, feeds) for result in (right, repaired))
    assert np.abs(got - want).max() < 1e-6
    for data, kernels in ((reshaped, FASTEST_KERNELS), (transposed, PLAIN_KERNELS)):
        report = verify(data)
        assert report.ok
        assert report.kernels == kernels

"""Composites of litert-torch 0.10, whose sub-graphs are computed: LiteRT's numbers, and the nodes.

The converter reads the sub-graph, whatever the name is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from flatbuffers import flexbuffers

from tests.support import Build, check

if TYPE_CHECKING:
    from tests.support.build import Subgraph
    from tests.support.tensor import Tensor

ROWS, WIDTH, LENGTH = 3, 8, 6
Body = Callable[["Subgraph"], "tuple[list[Tensor], list[Tensor]]"]


def compute_softmax(g: Subgraph) -> tuple[list[Tensor], list[Tensor]]:
    x, axis = g.input([ROWS, WIDTH]), g.constant(np.array([1], np.int32))
    (peak,) = g.op("REDUCE_MAX", [x, axis], [[ROWS, 1]], keep_dims=True)
    (exponentials,) = g.op("EXP", g.op("SUB", [x, peak], [[ROWS, WIDTH]]), [[ROWS, WIDTH]])
    (total,) = g.op("SUM", [exponentials, axis], [[ROWS, 1]], keep_dims=True)
    return [x], g.op("DIV", [exponentials, total], [[ROWS, WIDTH]])


def compute_l2_norm(g: Subgraph) -> tuple[list[Tensor], list[Tensor]]:
    x, axis = g.input([ROWS, WIDTH]), g.constant(np.array([1], np.int32))
    squares = g.op("MUL", [x, x], [[ROWS, WIDTH]])
    (total,) = g.op("SUM", [*squares, axis], [[ROWS, 1]], keep_dims=True)
    (limited,) = g.op("MAXIMUM", [total, g.constant(np.array(1e-12, np.float32))], [[ROWS, 1]])
    return [x], g.op("MUL", [x, *g.op("RSQRT", [limited], [[ROWS, 1]])], [[ROWS, WIDTH]])


def upsample(g: Subgraph) -> tuple[list[Tensor], list[Tensor]]:
    image, order = g.input([1, 2, 3, 4]), g.constant(np.array([0, 2, 3, 1], np.int32))
    (last,) = g.op("TRANSPOSE", [image, order], [[1, 3, 4, 2]])
    size = g.constant(np.array([6, 8], np.int32))
    (larger,) = g.op("RESIZE_BILINEAR", [last, size], [[1, 6, 8, 2]], half_pixel_centers=True)
    back = g.constant(np.array([0, 3, 1, 2], np.int32))
    return [image], g.op("TRANSPOSE", [larger, back], [[1, 2, 6, 8]])


def look_up(g: Subgraph) -> tuple[list[Tensor], list[Tensor]]:
    tokens, table = g.input([ROWS], dtype="int32"), g.input([LENGTH, WIDTH])
    return [tokens, table], g.op(
        "GATHER", [table, tokens], [[ROWS, WIDTH]], dtype="float32", axis=0
    )


def attend_and_update(g: Subgraph) -> tuple[list[Tensor], list[Tensor]]:
    """Write a row of keys and of values to caches, and attend to all rows."""
    row, cache = [1, 1, 1, WIDTH], [1, 1, LENGTH, WIDTH]
    query, key, value = (g.input(row) for _ in range(3))
    keys, values = (g.input(cache) for _ in range(2))
    place = g.constant(np.array([0, 0, 2, 0], np.int32))
    updated = [
        g.op("DYNAMIC_UPDATE_SLICE", [old, new, place], [cache])[0]
        for old, new in ((keys, key), (values, value))
    ]
    (scores,) = g.op("BATCH_MATMUL", [query, updated[0]], [[1, 1, 1, LENGTH]], adj_y=True)
    shares = g.op("SOFTMAX", [scores], [[1, 1, 1, LENGTH]], beta=1.0)
    (mixed,) = g.op("BATCH_MATMUL", [*shares, updated[1]], [row])
    return [query, key, value, keys, values], [mixed, *updated]


@pytest.mark.parametrize(
    ("name", "body", "nodes"),
    [
        ("softmax", compute_softmax, {"Softmax"}),
        ("l2_norm", compute_l2_norm, set()),
        ("upsample_bilinear2d", upsample, {"Resize"}),
        ("embedding_lookup", look_up, {"Gather"}),
        ("fused_sdpa_cache_update", attend_and_update, {"Softmax"}),
    ],
)
def test_composites_are_computed_by_their_sub_graphs(
    name: str, body: Body, nodes: set[str]
) -> None:
    m = Build()
    inner = m.subgraph(name)
    given, made = body(inner)
    inner.output(*made)
    options: dict[str, Any] = {
        "name": f"odml.{name}",
        "composite_attributes": bytes(flexbuffers.Dumps({"scale": 3.0})),  # it has no effect
        "decomposition_subgraph_index": inner.index,
    }
    inputs = [m.input(list(t.shape), dtype=t.dtype) for t in given]
    m.output(
        *m.op(
            "STABLEHLO_COMPOSITE", inputs, [list(t.shape) for t in made], dtype="float32", **options
        )
    )
    generator = np.random.default_rng(0)
    arrays = [
        np.array([0, 5, 2], np.int32)
        if t.dtype == "int32"
        else generator.standard_normal(t.shape).astype(np.float32)
        for t in given
    ]
    # Random layouts would have orders of axes that ONNX Runtime's Resize does not take.
    result = check(m.bytes(), inputs=arrays, random_layouts=())
    assert nodes <= {node.op_type for node in result.model.graph.node}

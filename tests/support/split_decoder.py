"""A decoder for NPUs: embeddings, masks and updates of caches come from other models."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from flatbuffers import flexbuffers

from tests.support.build import Build
from tests.support.litertlm import Part, model_part

if TYPE_CHECKING:
    from tests.support.build import Subgraph
    from tests.support.tensor import Tensor

LENGTH, WIDTH, VOCABULARY = 8, 4, 4
TABLE = np.arange(VOCABULARY * WIDTH, dtype=np.float32).reshape(VOCABULARY, WIDTH) % 5 - 2
CACHE = [1, 1, LENGTH, WIDTH]
KINDS = ("k", "v")


def build_table(width: int = WIDTH) -> bytes:
    """Return an embedder with other names than decoders have."""
    m = Build()
    token = m.input([1, 1], dtype="int32")
    (rows,) = m.op("GATHER", [m.constant(TABLE[:, :width]), token], [[1, 1, width]], axis=0)
    m.output(rows)
    m.signature("serving_default", {"ids": token}, {"embedded": rows})
    return m.bytes()


def build_split_decoder() -> bytes:
    """Return a decoder that returns new rows of the caches, and reads a mask of numbers."""
    m = Build()
    rows, mask = m.input([1, 1, WIDTH]), m.input([1, 1, 1, LENGTH])
    caches = {kind: m.input(CACHE) for kind in KINDS}
    shape = [1, 1, 1, WIDTH]
    (row,) = m.op("RESHAPE", [rows, m.constant(shape)], [shape], new_shape=shape)
    (double,) = m.op("ADD", [row, row], [shape])
    (seen,) = m.op("BATCH_MATMUL", [mask, caches["k"]], [shape])
    (other,) = m.op("BATCH_MATMUL", [mask, caches["v"]], [shape])
    (sums,) = m.op("ADD", [m.op("MUL", [seen, other], [shape])[0], row], [shape])
    short = [1, 1, WIDTH]
    (logits,) = m.op("RESHAPE", [sums, m.constant(short)], [short], new_shape=short)
    slices = {"k": m.op("ABS", [row], [shape])[0], "v": double}
    m.output(logits, *slices.values())
    inputs = {"embeddings": rows, "mask_global": mask}
    inputs |= {f"kv_cache_{kind}_0": tensor for kind, tensor in caches.items()}
    outputs = {"logits": logits} | {f"kv_slice_{kind}_0": slices[kind] for kind in KINDS}
    for key in ("decode", "prefill"):
        m.signature(key, inputs, outputs)
    return m.bytes()


def build_auxiliary() -> bytes:
    """Return a model that computes masks, and updates caches by calls of a sub-graph."""
    m = Build()
    step, valid = m.input([], dtype="int32"), m.input([1, 1], dtype="bool")
    shape = [1, 1, 1, LENGTH]
    (seen,) = m.op("LESS_EQUAL", [m.constant([*range(LENGTH)]), step], [[LENGTH]], dtype="bool")
    (both,) = m.op("LOGICAL_AND", [seen, valid], [[1, LENGTH]], dtype="bool")
    (numbers,) = m.op("CAST", [both], [[1, LENGTH]], dtype="float32")
    (mask,) = m.op("RESHAPE", [numbers, m.constant(shape)], [shape], new_shape=shape)
    m.output(mask)
    m.signature("decode_mask", {"time_step": step, "valid_mask": valid}, {"mask_global": mask})
    updates = m.subgraph("updates")
    update = m.subgraph("update")
    _add_update(update)
    position = updates.input([1], dtype="int32")
    inputs: dict[str, Tensor] = {"input_pos": position}
    outputs = {}
    for kind in KINDS:
        cache, new = updates.input(CACHE), updates.input([1, 1, 1, WIDTH])
        inputs |= {f"kv_cache_{kind}_0": cache, f"kv_slice_{kind}_0": new}
        operands = [cache, new, position]
        (updated,) = updates.op(
            "STABLEHLO_COMPOSITE", operands, [CACHE], decomposition_subgraph_index=update.index,
            name="test.update", composite_attributes=bytes(flexbuffers.Dumps({})),
        )  # fmt: skip
        outputs[f"kv_cache_{kind}_0"] = updated
    updates.output(*outputs.values())
    m.signature("decode_cache_update", inputs, outputs)
    return m.bytes()


def _add_update(g: Subgraph) -> None:
    cache, new, position = g.input(CACHE), g.input([1, 1, 1, WIDTH]), g.input([1], dtype="int32")
    zero = g.constant([0])
    (place,) = g.op("CONCATENATION", [zero, zero, position, zero], [[4]], axis=0)
    g.output(*g.op("DYNAMIC_UPDATE_SLICE", [cache, new, place], [CACHE]))


def list_split_parts(table: bytes) -> list[Part]:
    """Return the sections of the decoder, of an embedder, and of the auxiliary model."""
    return [
        model_part(build_split_decoder()),
        model_part(table, "embedder"),
        model_part(build_auxiliary(), "aux"),
    ]

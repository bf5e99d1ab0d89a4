"""Sparse constants: the levels of a traversal, each dense or compressed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from ai_edge_litert import schema_py_generated as schema

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tests.support.facts import Table

_VECTORS = {
    "int32": (schema.SparseIndexVector.Int32Vector, schema.Int32VectorT),
    "uint16": (schema.SparseIndexVector.Uint16Vector, schema.Uint16VectorT),
    "uint8": (schema.SparseIndexVector.Uint8Vector, schema.Uint8VectorT),
}


def _split_blocks(dense: np.ndarray[Any, Any], blocks: Mapping[int, int]) -> np.ndarray[Any, Any]:
    """Divide each axis of `blocks` by its block size; append the axes within blocks at the end."""
    shape: list[int] = []
    outer, inner = [], []
    for axis, size in enumerate(dense.shape):
        outer.append(len(shape))
        if axis in blocks:
            inner.append(len(shape) + 1)
            shape += [size // blocks[axis], blocks[axis]]
        else:
            shape.append(size)
    expanded: np.ndarray[Any, Any] = dense.reshape(shape).transpose(outer + inner)
    return expanded


def _compressed_axis(segments: list[int], indices: list[int], index_type: str) -> Table:
    number, vector = _VECTORS[index_type]
    return schema.DimensionMetadataT(
        format=schema.DimensionType.SPARSE_CSR,
        arraySegmentsType=number,
        arraySegments=vector(np.array(segments, index_type)),
        arrayIndicesType=number,
        arrayIndices=vector(np.array(indices, index_type)),
    )


def sparsify(
    dense: np.ndarray[Any, Any],
    formats: Sequence[str],
    *,
    blocks: Mapping[int, int] | None = None,
    traversal: Sequence[int] | None = None,
    index_type: str = "int32",
) -> tuple[np.ndarray[Any, Any], Table]:
    """The stored values (1-D) and the SparsityParametersT of a dense array.

    `formats` is "dense" or "csr" for each level of the traversal. `traversal` is the order of the
    levels: the axes, then the axes within blocks (by default in their own order). `blocks` maps an
    axis to its block size; `index_type` is "int32", "uint16" or "uint8". Pass both results to
    `m.constant(values, shape=dense.shape, sparsity=sparsity)`.
    """
    blocks = blocks or {}
    expanded = _split_blocks(dense, blocks)
    order = list(range(expanded.ndim) if traversal is None else traversal)
    expanded = expanded.transpose(order)
    positions: list[tuple[int, ...]] = [()]
    levels = []
    for size, layout in zip(expanded.shape, formats, strict=True):
        children = [[(*place, step) for step in range(size)] for place in positions]
        if layout == "dense":
            levels.append(schema.DimensionMetadataT(denseSize=size))
        else:
            children = [[child for child in row if expanded[child].any()] for row in children]
            segments = np.cumsum([0, *map(len, children)]).tolist()
            indices = [child[-1] for row in children for child in row]
            levels.append(_compressed_axis(segments, indices, index_type))
        positions = [child for row in children for child in row]
    values = np.array([expanded[place] for place in positions], dense.dtype)
    block_map = np.array(sorted(blocks), np.int32)
    return values, schema.SparsityParametersT(np.array(order, np.int32), block_map, levels)

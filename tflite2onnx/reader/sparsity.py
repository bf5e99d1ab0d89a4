"""Convert sparse constants to dense arrays.

TFLite uses the format of TACO (Kjolstad et al., "The Tensor Algebra Compiler", 2017): the axes of a
tensor, and the axes inside blocks if an axis is divided into blocks, are the levels of a tree,
visited in `traversal_order`. A dense level has all coordinates below each parent. A compressed
level lists the coordinates with values: `segments` delimits the range of `indices` of each parent.
The values are the leaves, from left to right.
"""

from collections.abc import Sequence
from math import prod

import numpy as np

from tflite2onnx.errors import ModelFileError
from tflite2onnx.tensor import Array, SparseAxis, Sparsity, Tensor
from tflite2onnx.utils.constant_budget import SizeLimit
from tflite2onnx.utils.mapped_files import find_address

# Limits the bytes of all dense arrays. Sparse weights of real models have at most 99 % zeros.
_LIMIT = SizeLimit(times=256, more=1 << 24)


def densify_all(tensors: Sequence[Tensor]) -> list[Array]:
    """Return the elements of constants that have a `sparsity`, each shaped like its tensor.

    Raises:
        ModelFileError: a tensor is damaged, or the dense arrays would be far larger than the file.
    """
    values = [t.data for t in tensors if t.data is not None]
    if sum(t.nbytes for t in tensors) > _LIMIT.compute(count_distinct_bytes(values)):
        raise ModelFileError(
            f"the sparse tensors, such as {tensors[0].name}, are too large to be made dense"
        )
    return [_densify_tensor(t) for t in tensors]


def count_distinct_bytes(arrays: Sequence[Array]) -> int:
    """Return the number of bytes of memory of arrays; shared bytes count once."""
    total = end = 0
    for start, size in sorted((find_address(a), a.nbytes) for a in arrays):
        total += max(start + size - max(start, end), 0)
        end = max(end, start + size)
    return total


def _densify_tensor(tensor: Tensor) -> Array:
    data, sparsity = tensor.data, tensor.sparsity
    if data is None or sparsity is None:
        raise ModelFileError(f"tensor {tensor.name} must be sparse")
    try:
        positions = _compute_positions(tensor.shape, sparsity, data.size)
    except ValueError as error:
        raise ModelFileError(f"the sparse tensor {tensor.name} is damaged: {error}") from error
    dense = np.zeros(tensor.elements, data.dtype)
    dense[positions] = data
    return dense.reshape(tensor.shape)


def _compute_positions(shape: Sequence[int], sparsity: Sparsity, count: int) -> Array:
    """Return the index of each of `count` values in the flat dense array, as int64.

    The message of a ValueError names the damaged part.
    """
    rank, order, block_map = len(shape), sparsity.traversal_order, sparsity.block_map
    levels = dict(zip(order, sparsity.axes, strict=False))
    if 0 in shape:
        raise ValueError("it must not have values, because its shape has no elements")
    if not sorted(order) == list(range(rank + len(block_map))) == list(range(len(sparsity.axes))):
        raise ValueError("its traversal order must list each axis and each block once")
    # Coordinate rank + i is the coordinate inside a block, along axis block_map[i].
    blocks = {axis: levels[rank + i].size for i, axis in enumerate(block_map)}
    fitting = (0 <= a < rank and n > 0 and shape[a] % n == 0 for a, n in blocks.items())
    if len(blocks) != len(block_map) or not all(fitting):
        raise ValueError("its block sizes must divide its axes")
    inside = [prod(shape[axis + 1 :]) for axis in range(rank)]
    sizes = [*(shape[a] // blocks.get(a, 1) for a in range(rank)), *blocks.values()]
    steps = [*(inside[a] * blocks.get(a, 1) for a in range(rank)), *(inside[a] for a in blocks)]
    # The number of parents is limited: a level may have as many as it has segments, even if most
    # have no children.
    limit = max(count, *(len(a.segments) for a in sparsity.axes if a.segments is not None), 1)
    positions = np.zeros(1, np.int64)
    for axis in order:
        positions = _expand_level(positions, levels[axis], sizes[axis], steps[axis], limit)
    if len(positions) != count:
        raise ValueError(f"it must have {len(positions)} values, got {count}")
    return positions


def _expand_level(parents: Array, level: SparseAxis, size: int, step: int, limit: int) -> Array:
    """Return the positions one level deeper: coordinates below `size`, `step` elements apart."""
    if level.segments is None or level.indices is None:
        if level.size != size:
            raise ValueError(f"a dense level must have the size {size}, got {level.size}")
        if (count := max(len(parents), 1) * size) > limit:
            raise ValueError(f"a level must have at most {limit} positions, got {count}")
        return np.asarray(parents[:, None] + np.arange(size) * step).reshape(-1)
    ends, indices = level.segments.astype(np.int64), level.indices.astype(np.int64)
    counts = np.diff(ends)
    if len(counts) != len(parents) or ends[0] != 0 or counts.min(initial=0) < 0:
        raise ValueError(
            f"segments must be {len(parents) + 1} ascending numbers from 0, got {len(ends)} numbers"
        )
    if ends[-1] != len(indices) or indices.min(initial=0) < 0 or indices.max(initial=-1) >= size:
        raise ValueError(
            f"indices must be {ends[-1]} numbers from 0 to {size - 1}, got {len(indices)} numbers"
        )
    return np.repeat(parents, counts) + indices * step

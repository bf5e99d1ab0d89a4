"""TFLite to TFLite: the same model in fewer forms, before any layout is chosen.

The passes, in order; each takes a graph and returns one:

1. `densify`: sparse constants become dense ones, and DENSIFY goes.
2. `fold`: DEQUANTIZE of a constant goes (its elements stay as narrow as they are stored), and
   whatever else can be computed from constants alone is.
3. `align`: operands of lower rank get leading axes of size 1, so that axes correspond.
4. `absorb_flatten`: FULLY_CONNECTED reads what RESHAPE would have flattened; its weights are
   shaped like the input and can be permuted in its stead.
5. `drop_dead`: operators that nothing reads go.

What an operator does with its operands is asked of the operator (`Rules`), never known here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

import numpy as np

from tflite2onnx.errors import ModelFileError, OperatorError
from tflite2onnx.graph import Graph, Op, Options
from tflite2onnx.tensor import Array, DType, Shape, Sparsity, Tensor

# A constant sub-graph that makes more than this out of little is left to the runtime.
_MOST_FOLDED = 1 << 24
_MOST_DENSE = 1 << 31


class Rules(Protocol):
    """What the passes ask of an operator."""

    def aligned(self) -> Sequence[Shape | None]:
        """Return the shape that each input should be given, None for its own."""

    def evaluate(self, *inputs: Array) -> Sequence[Array] | None:
        """Return the outputs for constant inputs, None if that cannot be told."""


RulesOf = Callable[[Op], Rules | None]


def normalise(graph: Graph, rules_of: RulesOf) -> Graph:
    """Apply all passes."""
    graph = densify(graph)
    graph = fold(graph, rules_of)
    graph = align(graph, rules_of)
    return drop_dead(absorb_flatten(graph))


def densify(graph: Graph) -> Graph:
    """Replace sparse constants by dense ones."""
    dense = {
        t: replace(t, data=_dense(t, t.sparsity), sparsity=None)
        for t in graph.tensors
        if t.sparsity is not None and t.data is not None
    }
    ops = []
    for op in (_substitute(op, dense) for op in graph.ops):
        source = op.inputs[0] if op.code == "DENSIFY" and op.inputs else None
        if source is not None and source.data is not None:
            dense[op.outputs[0]] = replace(op.outputs[0], data=source.data)
        else:
            ops.append(op)
    return _rebuilt(graph, ops, dense)


def _dense(tensor: Tensor, sparsity: Sparsity) -> Array:
    """Return a sparse constant's elements in a dense array.

    The format is TACO's: axes are stored in `traversal_order`, each dense (all its coordinates)
    or as segments and indices (the coordinates that occur, per parent). With blocks, the last
    levels are the axes inside a block, and `block_map` says which axis each of them splits.
    """
    order, data = sparsity.traversal_order, tensor.data
    if data is None or len(order) != len(sparsity.axes) or sorted(order) != list(range(len(order))):
        message = f"tensor {tensor.name} is damaged: its sparse axes do not add up"
        raise ModelFileError(message)
    if tensor.elements > _MOST_DENSE:
        message = f"tensor {tensor.name} is sparse and too large to be made dense"
        raise ModelFileError(message)
    rank, blocks = tensor.rank, sparsity.block_map
    coordinates = np.zeros((1, 0), np.int64)
    for level in sparsity.axes:
        coordinates = _descend(coordinates, level.size, level.segments, level.indices, data.size)
    stored = np.empty_like(coordinates)
    stored[:, list(order)] = coordinates
    sizes = [level.size for level in sparsity.axes]
    index = stored[:, :rank].copy()
    for i, axis in enumerate(blocks):
        block = sizes[list(order).index(rank + i)]
        index[:, axis] = index[:, axis] * block + stored[:, rank + i]
    if len(index) != data.size or (index >= np.asarray(tensor.shape)).any() or (index < 0).any():
        message = f"tensor {tensor.name} is damaged: its sparse elements do not fit its shape"
        raise ModelFileError(message)
    dense = np.zeros(tensor.shape, data.dtype)
    dense[tuple(index.T)] = data
    return dense


def _descend(
    parents: Array, size: int, segments: Array | None, indices: Array | None, most: int
) -> Array:
    """Return the coordinates one level deeper; never more than there are elements."""
    if segments is None or indices is None:
        if size < 0 or len(parents) * size > max(most, 1):
            message = "a sparse tensor is damaged: its dense axes are larger than its data"
            raise ModelFileError(message)
        column = np.tile(np.arange(size), len(parents))
        return np.column_stack([np.repeat(parents, size, axis=0), column])
    ends = segments.astype(np.int64)
    counts = np.asarray(ends[1:] - ends[:-1])
    if len(counts) != len(parents) or (counts < 0).any() or counts.sum() != len(indices):
        message = "a sparse tensor is damaged: its segments do not match its indices"
        raise ModelFileError(message)
    return np.column_stack([np.repeat(parents, counts, axis=0), indices.astype(np.int64)])


def fold(graph: Graph, rules_of: RulesOf) -> Graph:
    """Compute what depends on constants alone."""
    known: dict[Tensor, Tensor] = {}
    ops = []
    for op in (_substitute(op, known) for op in graph.ops):
        results = _folded(op, rules_of)
        if results is None:
            ops.append(op)
        else:
            known |= dict(zip(op.outputs, results, strict=True))
    return _rebuilt(graph, ops, known)


def _folded(op: Op, rules_of: RulesOf) -> list[Tensor] | None:
    source = op.inputs[0] if op.inputs else None
    if op.code == "DEQUANTIZE" and source is not None and source.data is not None:
        return [_dequantized(op.outputs[0], source)] if _widens(source) else None
    if any(t is None or t.quantization for t in (*op.inputs, *op.outputs)):
        return None
    arrays = [np.empty(0) if t is None or t.data is None else t.data for t in op.inputs]
    constant = all(t is not None and t.data is not None for t in op.inputs)
    if sum(t.elements for t in op.outputs) > _MOST_FOLDED:
        return None
    rules = rules_of(op) if constant or op.code == "SHAPE" else None
    try:
        results = rules.evaluate(*arrays) if rules else None
    except OperatorError:  # said again, with the operator's name, when it is converted
        return None
    if results is None or not all(_fits(t, r) for t, r in zip(op.outputs, results, strict=True)):
        return None
    pairs = zip(op.outputs, results, strict=True)
    return [replace(t, data=np.ascontiguousarray(r)) for t, r in pairs]


def _widens(source: Tensor) -> bool:
    return source.dtype is DType.FLOAT16


def _dequantized(output: Tensor, source: Tensor) -> Tensor:
    return replace(output, data=source.data, quantization=None)


def _fits(tensor: Tensor, data: Array) -> bool:
    return data.shape == tensor.shape and data.dtype == tensor.dtype.numpy


def align(graph: Graph, rules_of: RulesOf) -> Graph:
    """Give operands of lower rank the axes of broadcasting: constants now, others by RESHAPE."""
    ops: list[Op] = []
    made: dict[tuple[Tensor, Shape], Tensor] = {}
    for op in graph.ops:
        rules = rules_of(op)
        shapes = rules.aligned() if rules else [None] * len(op.inputs)
        inputs = list(op.inputs)
        for i, (tensor, shape) in enumerate(zip(op.inputs, shapes, strict=True)):
            if tensor is None or shape is None or shape == tensor.shape:
                continue
            key = (tensor, shape)
            if key not in made:
                made[key] = _with_shape(tensor, shape)
                if tensor.data is None:
                    ops.append(_reshape(op, tensor, made[key]))
            inputs[i] = made[key]
        ops.append(replace(op, inputs=tuple(inputs)))
    return replace(graph, ops=tuple(ops))


def _with_shape(tensor: Tensor, shape: Shape) -> Tensor:
    name = f"{tensor.name}/{'x'.join(map(str, shape))}"
    return replace(tensor.reshaped(shape), name=name)


def _reshape(near: Op, source: Tensor, target: Tensor) -> Op:
    return Op("RESHAPE", near.index, (source,), (target,), Options({"new_shape": target.shape}))


def absorb_flatten(graph: Graph) -> Graph:
    """Let FULLY_CONNECTED read the input of the RESHAPE before it, if that only flattens."""
    flattened = {
        op.outputs[0]: op.inputs[0]
        for op in graph.ops
        if op.code == "RESHAPE" and op.inputs[0] is not None and _flattens(op)
    }
    return replace(graph, ops=tuple(_absorbed(op, flattened) for op in graph.ops))


def _flattens(op: Op) -> bool:
    source, target = op.inputs[0], op.outputs[0]
    return (
        source is not None
        and source.rank > 2  # noqa: PLR2004 - more than batch and features
        and target.rank == 2  # noqa: PLR2004
        and source.shape[0] == target.shape[0]
        and source.elements == target.elements
        and source.elements > 0
    )


def _absorbed(op: Op, flattened: Mapping[Tensor, Tensor | None]) -> Op:
    if op.code != "FULLY_CONNECTED" or len(op.inputs) < 2:  # noqa: PLR2004
        return op
    x, weights, *rest = op.inputs
    source = flattened.get(x) if x is not None else None
    if source is None or weights is None or weights.data is None or x is None:
        return op
    per_axis = weights.quantization is not None and weights.quantization.axis != 0
    if per_axis or weights.rank != 2 or weights.shape[1] != x.shape[1]:  # noqa: PLR2004
        return op
    shaped = weights.reshaped((weights.shape[0], *source.shape[1:]))
    return replace(op, inputs=(source, shaped, *rest))


def drop_dead(graph: Graph) -> Graph:
    """Drop operators whose outputs nothing reads."""
    alive: set[Tensor] = set(graph.outputs)
    kept = []
    for op in reversed(graph.ops):
        if not op.outputs or any(t in alive for t in op.outputs):
            kept.append(op)
            alive |= {t for t in op.inputs if t is not None}
    return replace(graph, ops=tuple(reversed(kept)))


def _substitute(op: Op, known: Mapping[Tensor, Tensor]) -> Op:
    if not any(t in known for t in op.inputs):
        return op
    return replace(op, inputs=tuple(t if t is None else known.get(t, t) for t in op.inputs))


def _rebuilt(graph: Graph, ops: Sequence[Op], known: Mapping[Tensor, Tensor]) -> Graph:
    outputs = tuple(known.get(t, t) for t in graph.outputs)
    return replace(graph, ops=tuple(ops), outputs=outputs)

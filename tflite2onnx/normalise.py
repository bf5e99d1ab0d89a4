"""TFLite to TFLite: the same model in fewer forms, before any layout is chosen.

The passes, in order; each takes a graph and returns one:

1. `densify`: sparse constants become dense ones, and DENSIFY goes.
2. `fold`: DEQUANTIZE of float16 constants goes (the elements stay as narrow as they are stored),
   and whatever else can be computed from constants or shapes alone is.
3. `align`: operands of lower rank get leading axes of size 1, so that axes correspond.
4. `keep_axes`: FULLY_CONNECTED of each place of an image keeps its axes, which RESHAPE would
   have given back to the result.
5. `absorb_flatten`: FULLY_CONNECTED reads what RESHAPE, or itself, would have flattened; its
   weights are shaped like the input and can be permuted in its stead.
6. `drop_dead`: operators that nothing reads go.

What an operator does with its operands is asked of the operator (`Rules`), never known here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Protocol

import numpy as np

from tflite2onnx.errors import OperatorError, UnsupportedOperators, guarded
from tflite2onnx.graph import Graph, Op, Options, copying
from tflite2onnx.sparse import bytes_behind, densify_all
from tflite2onnx.tensor import Array, DType, Shape, Tensor

# What constant sub-graphs may make in any case, and how often as much as all constants beyond
# that; what would make more out of little is left to the runtime.
_BYTES = 1 << 24
_TIMES = 4

_MATRIX = 2  # axes
_IMAGE = 4


class Rules(Protocol):
    """What the passes ask of an operator."""

    @property
    def moves(self) -> bool:
        """Whether it only moves elements, whatever they are."""

    @property
    def of_shapes(self) -> bool:
        """Whether its outputs follow from the shapes of its inputs."""

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
    return drop_dead(absorb_flatten(keep_axes(graph)))


def densify(graph: Graph) -> Graph:
    """Replace sparse constants by dense ones.

    Raises:
        ModelFileError: one is damaged, or they are too large for what is stored.
    """
    read = dict.fromkeys(t for op in graph.ops for t in op.inputs if t is not None)
    sparse = [t for t in read if t.sparsity is not None and t.data is not None]
    known = {
        t: replace(t, data=data, sparsity=None)
        for t, data in zip(sparse, densify_all(sparse), strict=True)
    }
    ops = []
    for op in graph.ops:
        source = _substitute(op, known).inputs[0] if _is(op, "DENSIFY") and op.inputs else None
        if source is not None and _replaces(source, op.outputs, source.dtype):
            known[op.outputs[0]] = replace(op.outputs[0], data=source.data)
        else:
            ops.append(op)
    return _rebuilt(graph, [_substitute(op, known) for op in ops], known)


def _is(op: Op, code: str) -> bool:
    return op.code == code and not op.custom


def _replaces(source: Tensor, outputs: Sequence[Tensor], dtype: DType) -> bool:
    """Return whether the elements of a constant are those of the only output of an operator."""
    if source.data is None or len(outputs) != 1:
        return False
    return outputs[0].shape == source.shape and outputs[0].dtype is dtype


def fold(graph: Graph, rules_of: RulesOf) -> Graph:
    """Compute what depends on constants, or on shapes, alone."""
    constants = dict.fromkeys(t for op in graph.ops for t in op.inputs if t is not None)
    room = _BYTES + _TIMES * bytes_behind([t.data for t in constants if t.data is not None])
    known: dict[Tensor, Tensor] = {}
    ops = []
    for op in (_substitute(op, known) for op in graph.ops):
        results = _widened(op) or _folded(op, rules_of, room)
        if results:
            known |= dict(zip(op.outputs, results, strict=True))
            room -= sum(t.nbytes for t in results)
        else:
            ops.append(op)
    return _rebuilt(graph, ops, known)


def _widened(op: Op) -> list[Tensor]:
    """Return what DEQUANTIZE makes of float16 constants: float32, stored as they are."""
    source = op.inputs[0] if _is(op, "DEQUANTIZE") and op.inputs else None
    if source is None or source.dtype is not DType.FLOAT16:
        return []
    if not _replaces(source, op.outputs, DType.FLOAT32):
        return []
    return [replace(op.outputs[0], data=source.data, quantization=None)]


def _folded(op: Op, rules_of: RulesOf, room: int) -> list[Tensor]:
    """Return the outputs of an operator, none if they are not known or take too much room."""
    rules = rules_of(op)
    if rules is None or sum(t.nbytes for t in op.outputs) > room:
        return []
    arrays = [_elements(t, moves=rules.moves) for t in op.inputs]
    unknown = any(a is None for a in arrays) and not rules.of_shapes
    if unknown or any(t.quantization for t in op.outputs):
        return []
    try:
        with guarded(), np.errstate(all="ignore"):
            results = rules.evaluate(*(np.empty(0) if a is None else a for a in arrays))
    except OperatorError:  # said again, with the operator's name, when it is converted
        return []
    pairs = list(zip(op.outputs, results or (), strict=False))
    if len(pairs) != len(op.outputs) or not all(_fits(t, r, rules) for t, r in pairs):
        return []
    return [replace(t, data=np.asarray(r, order="C")) for t, r in pairs]


def _elements(tensor: Tensor | None, *, moves: bool) -> Array | None:
    """Return a constant's elements as an operator computes with them, None if it cannot be told.

    Quantized integers and the bits of small floats are no numbers to compute with, but those
    that are only moved may stay as they are stored.
    """
    if tensor is None or tensor.dtype.numpy is None or tensor.quantization is not None:
        return None
    data = tensor.data
    if data is None and 0 in tensor.shape and not tensor.dynamic_axes:
        data = np.zeros(tensor.shape, tensor.dtype.numpy)  # the file holds no data of no elements
    if data is None or moves:
        return data
    if tensor.dtype.is_float and not issubclass(tensor.dtype.numpy, np.floating):
        return None
    return data.astype(tensor.dtype.numpy, copy=False)


def _fits(tensor: Tensor, data: Array, rules: Rules) -> bool:
    """Return whether elements are those of a tensor; float16 that is moved may stay narrow."""
    narrow = rules.moves and tensor.dtype is DType.FLOAT32 and data.dtype == np.float16
    return data.shape == tensor.shape and (narrow or data.dtype == tensor.dtype.numpy)


def align(graph: Graph, rules_of: RulesOf) -> Graph:
    """Give operands of lower rank the axes of broadcasting: constants now, others by RESHAPE."""
    ops: list[Op] = []
    made: dict[tuple[Tensor, Shape], Tensor] = {}
    for op in graph.ops:
        rules = rules_of(op)
        shapes = _aligned(op, rules)
        inputs = list(op.inputs)
        for i, (tensor, shape) in enumerate(zip(op.inputs, shapes, strict=True)):
            if tensor is None or shape is None or shape == tensor.shape:
                continue
            key = (tensor, shape)
            if key not in made:
                made[key] = _with_shape(tensor, shape)
                if tensor.data is None:
                    ops.append(copying(op, tensor, made[key]))
            inputs[i] = made[key]
        ops.append(replace(op, inputs=tuple(inputs)))
    return replace(graph, ops=tuple(ops))


def _aligned(op: Op, rules: Rules | None) -> Sequence[Shape | None]:
    try:
        with guarded():
            return rules.aligned() if rules else [None] * len(op.inputs)
    except OperatorError as error:
        raise UnsupportedOperators([error.at(op.place)]) from error


def _with_shape(tensor: Tensor, shape: Shape) -> Tensor:
    """Return a tensor with other leading axes; those that are counted from the end stay."""
    name = f"{tensor.name}/{'x'.join(map(str, shape))}"
    quantization = tensor.quantization
    if quantization is not None and quantization.per_axis:
        axis = quantization.axis + len(shape) - tensor.rank
        quantization = replace(quantization, axis=axis)
    return replace(tensor.reshaped(shape), name=name, quantization=quantization)


def keep_axes(graph: Graph) -> Graph:
    """Let FULLY_CONNECTED keep the axes of an image, as far as all its readers want them back.

    Keras flattens the places of an image before a dense layer, in whose result the kernel gives
    up the axes anyway, and reshapes it to an image. Flattened, no convolution reads or makes it
    but behind a Transpose.
    """
    made = {t: op.inputs[0] for op in graph.ops if _is(op, "RESHAPE") for t in op.outputs[:1]}
    readers: dict[Tensor | None, list[Op]] = {}
    for op in graph.ops:
        for tensor in dict.fromkeys(op.inputs):
            readers.setdefault(tensor, []).append(op)
    kept: dict[Op, Op] = {}
    for op in graph.ops:
        after = readers.get(op.outputs[0], []) if op.outputs else []
        if len(after) == 1 and op.outputs[0] not in graph.outputs:
            kept |= _kept(op, made, after[0])
    gone = {readers[op.outputs[0]][0] for op in kept}
    ops = [kept.get(op, op) for op in graph.ops if op not in gone]
    return replace(graph, ops=tuple(ops))


def _kept(op: Op, made: Mapping[Tensor, Tensor | None], after: Op) -> dict[Op, Op]:
    """Return the operator with the axes of an image, if the one after it restores them."""
    if not (_is(op, "FULLY_CONNECTED") and _is(after, "RESHAPE") and op.inputs[1:]):
        return {}
    x, weights, image = op.inputs[0], op.inputs[1], after.outputs[0]
    source = next((t for t in (x, x and made.get(x)) if t is not None and t.rank == _IMAGE), None)
    if x is None or weights is None or source is None or weights.rank != _MATRIX:
        return {}
    if image.shape != (*source.shape[:-1], weights.shape[0]) or not _same(source, x):
        return {}
    if source.shape[-1] != weights.shape[1] or not _same(op.outputs[0], image):
        return {}
    options = Options({**op.options, "keep_num_dims": True})
    inputs = (source, *op.inputs[1:])
    return {op: replace(op, inputs=inputs, outputs=(image,), options=options)}


def absorb_flatten(graph: Graph) -> Graph:
    """Let FULLY_CONNECTED read what is flattened before it, or by it, as it was."""
    reshapes = [op for op in graph.ops if _is(op, "RESHAPE") and op.inputs and op.outputs]
    pairs = [(op.inputs[0], op.outputs[0]) for op in reshapes]
    sources = {y: x for x, y in pairs if x is not None and _same(x, y)}
    made: dict[tuple[Tensor, Shape], Tensor] = {}
    ops = []
    for op in graph.ops:
        source, shape = _unflattened(op, sources)
        weights = op.inputs[1] if shape else None
        if source is not None and weights is not None:
            shaped = made.setdefault((weights, shape), weights.reshaped(shape))
            ops.append(replace(op, inputs=(source, shaped, *op.inputs[2:])))
        else:
            ops.append(op)
    return replace(graph, ops=tuple(ops))


def _same(a: Tensor, b: Tensor) -> bool:
    """Return whether two tensors hold the same numbers if they hold the same integers."""
    if a.quantization is None or b.quantization is None:
        return a.elements == b.elements and a.quantization is b.quantization
    return a.elements == b.elements and a.quantization.same_as(b.quantization)


def _unflattened(op: Op, sources: Mapping[Tensor, Tensor]) -> tuple[Tensor | None, Shape]:
    """Return the input of FULLY_CONNECTED with more than one axis of features.

    The weights should be shaped like these; () if the operator had better stay as it is.
    """
    x, weights = op.inputs[:2] if _is(op, "FULLY_CONNECTED") and op.inputs[1:] else (None, None)
    matrices = [t.rank == _MATRIX for t in (weights, *op.outputs) if t is not None]
    if x is None or weights is None or weights.data is None or not all(matrices):
        return None, ()
    source = sources.get(x, x)
    features = source.shape[features_from(source.shape, weights.shape[1]) :]
    along = weights.quantization
    fixed = along is not None and (along.block_size > 0 or (along.per_axis and along.axis != 0))
    if not 1 < len(features) < source.rank or fixed:
        return None, ()
    return source, (weights.shape[0], *features)


def features_from(shape: Shape, features: int) -> int:
    """Return the first of the last axes that hold so many elements, the rank if there is none."""
    fitting = (i for i in reversed(range(len(shape))) if prod(shape[i:]) == features)
    return next(fitting, len(shape))


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

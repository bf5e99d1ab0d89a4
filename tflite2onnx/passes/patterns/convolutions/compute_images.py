"""RESHAPE between sequences and images moves away from the convolution.

TFLite convolves a sequence [N, T, C] as an image [N, 1, T, C] or [N, T, 1, C]. Keras pads the
sequence before that, and spreads it over the batch if the convolution is dilated:

    PAD, SPACE_TO_BATCH_ND, RESHAPE, CONV_2D, RESHAPE, BATCH_TO_SPACE_ND, TANH, ...
    RESHAPE, PAD, SPACE_TO_BATCH_ND, CONV_2D, BATCH_TO_SPACE_ND, TANH, ..., RESHAPE

The second form, which this pass makes of the first one, becomes one convolution
(`fuse_convolutions`), and a RESHAPE cancels the RESHAPE of the next convolution. An operator moves

1. to the other side of a RESHAPE that only adds or removes an axis of size 1 of an image that a
   convolution reads or writes;
2. before a convolution: if only the convolution reads its output, perhaps through operators that
   move too;
3. behind a convolution: if all its operands are moved images of one shape, or constants of one axis
   at most;
4. if all sizes but the batch are fixed, and paddings, crops and blocks are constant;
5. BATCH_TO_SPACE_ND and SPACE_TO_BATCH_ND: if the convolution may be dilated. On images the two
   take more time than on sequences.

A WaveNet takes half the time in ONNX Runtime (docs/performance.md).

This is no rule (`rules.py`): an operator moves if all operators before it have moved.
"""

from __future__ import annotations

import numpy as np

from tflite2onnx.graph import Graph, Op
from tflite2onnx.passes.normalise import eliminate_dead_operators
from tflite2onnx.passes.operands import ELEMENTWISE, RESHAPES, find_producer
from tflite2onnx.passes.patterns.convolutions.fuse_convolutions import CONVOLUTIONS, may_be_dilated
from tflite2onnx.passes.rewriter import Rewriter, make_int32
from tflite2onnx.quantization.storage import same_scale
from tflite2onnx.tensor import Shape, Tensor

_SEQUENCE = 3  # axes
# The operators that this pass moves, with the number of their inputs.
_INPUTS = {"PAD": 2, "SPACE_TO_BATCH_ND": 3, "BATCH_TO_SPACE_ND": 3}


def reshape_sequences(graph: Graph) -> Graph:
    """Return the graph with RESHAPE before the padding and behind elementwise operators."""
    if graph.codes.isdisjoint(RESHAPES):
        return graph
    mover = _Mover(graph)
    changed = graph.rewrite(lambda op: mover.move(op) or (op,))
    # `fuse_convolutions` must not find the old readers of a convolution.
    return graph if changed is graph else eliminate_dead_operators(changed)


class _Mover:
    """Moves RESHAPE, in order of execution."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._outer = {*graph.ops}  # whose outputs sub-graphs read too, but not the reverse
        self._convolutions = {op for op in graph.walk_ops() if op.is_builtin(*CONVOLUTIONS)}
        self._dilatable = {op for op in self._convolutions if may_be_dilated(op)}
        self._images: dict[Tensor, tuple[Tensor, int]] = {}  # of sequences, with the added axis

    def move(self, op: Op) -> list[Op]:
        """Return the operators that replace an operator; [] if none moves."""
        if op.is_builtin(*RESHAPES):
            x, y = op.operand(0), op.outputs[0]
            if self._graph.producers.get(x) in self._convolutions:
                axis = _find_new_axis(y, x)
                self._images |= {} if axis is None else {y: (x, axis)}
            elif self._graph.readers.are_among(self._convolutions, y):
                return self._move_back(op, _find_new_axis(x, y))
        if op.is_builtin("BATCH_TO_SPACE_ND", *ELEMENTWISE):
            return self._move_ahead(op)
        return []

    def _move_back(self, op: Op, axis: int | None) -> list[Op]:
        """Return RESHAPE to an image, and then the operators that were before it."""
        x, before = op.operand(0), [op]
        while True:
            producer = find_producer(x, self._graph, *_INPUTS)
            if not _pads(producer) or self._find_image(x, axis):
                break
            spreads = producer.is_builtin("SPACE_TO_BATCH_ND")
            if spreads and not self._graph.readers.are_among(self._dilatable, op.outputs[0]):
                break
            before.append(producer)
            x = producer.operand(0)
        if axis is None or len(before) == 1:
            return []
        rewriter, known = Rewriter(op), self._find_image(x, axis)
        image = known or x
        if not known:
            image = rewriter.reshape(x, _insert_axis(x.shape, axis), like=x, name="image")
            if op in self._outer:
                self._images[x] = (image, axis)
        for each in before[:0:-1]:
            output = op.outputs[0] if each is before[1] else None
            image = _apply_to_image(rewriter, each, (image,), axis, output)
        return rewriter.ops

    def _find_image(self, sequence: Tensor, axis: int | None) -> Tensor | None:
        image, added = self._images.get(sequence, (None, None))
        return image if added == axis else None

    def _move_ahead(self, op: Op) -> list[Op]:
        """Return an operator on images, and RESHAPE of its output."""
        y = op.outputs[0]
        data = [t for t in op.present if not t.has_data]
        images = [self._images[t] for t in data if t in self._images]
        axes = {axis for _, axis in images}
        if len(images) < len(data) or len(axes) != 1 or y.rank != _SEQUENCE or not _is_fixed(y):
            return []
        if op.is_builtin("BATCH_TO_SPACE_ND"):
            fits = _pads(op) and self._graph.producers.get(images[0][0]) in self._dilatable
        else:
            constants = [t for t in op.present if t.has_data]
            fits = all(t.sizes == y.sizes for t in data) and all(t.rank <= 1 for t in constants)
        if not fits:
            return []
        (axis,) = axes
        rewriter = Rewriter(op)
        operands = tuple(self._images[t][0] if t in self._images else t for t in op.inputs if t)
        image = _apply_to_image(rewriter, op, operands, axis, None)
        rewriter.reshape(image, output=y)
        self._images[y] = (image, axis)
        return rewriter.ops


def _apply_to_image(
    rewriter: Rewriter, op: Op, inputs: tuple[Tensor, ...], axis: int, output: Tensor | None
) -> Tensor:
    """Add an operator on sequences as an operator on images; return its output."""
    y = op.outputs[0]
    if op.code in _INPUTS:
        first = 0 if op.code == "PAD" else 1  # the first axis that the constants describe
        parameters = [t.values for t in op.present[1:]]
        # Along the new axis a block is one element, and there is no padding.
        wide = [np.insert(each, axis - first, int(each.ndim == 1), 0) for each in parameters]
        names = (f"{y.name}/image/{i}" for i in range(len(wide)))
        inputs = (inputs[0], *map(make_int32, names, wide))
    shape = _insert_axis(y.shape, axis)
    return rewriter.op(
        op.code, *inputs, output=output, like=y, name="image", shape=shape, **op.options
    )


def _pads(op: Op) -> bool:
    """Return whether an operator pads or spreads sequences by constants: condition 4."""
    x = op.operand(0)
    if not op.is_builtin(*_INPUTS) or len(op.inputs) != _INPUTS[op.code]:
        return False
    tensors = (x, *op.outputs)
    if not all(t.rank == _SEQUENCE and _is_fixed(t) and t.dtype is x.dtype for t in tensors):
        return False
    if not same_scale(*tensors):
        return False
    return all(t.has_data for t in op.present[1:])


def _find_new_axis(sequence: Tensor, image: Tensor) -> int | None:
    """Return the axis of size 1 that only the image has, None if the shapes differ otherwise."""
    alike = sequence.dtype is image.dtype and same_scale(sequence, image)
    if sequence.rank != _SEQUENCE or not (_is_fixed(sequence) and alike):
        return None
    sizes = image.sizes
    ones = [i for i in (1, 2) if sizes[i : i + 1] == (1,)]
    return next((i for i in ones if (*sizes[:i], *sizes[i + 1 :]) == sequence.sizes), None)


def _is_fixed(tensor: Tensor) -> bool:
    return tensor.symbols.keys() <= {0}


def _insert_axis(shape: Shape, axis: int) -> Shape:
    return (*shape[:axis], 1, *shape[axis:])

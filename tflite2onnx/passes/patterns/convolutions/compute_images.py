"""Operators on sequences, and on rows in the batch, compute the images of convolutions instead.

TFLite convolves a sequence [N, T, C] as an image [N, 1, T, C] or [N, T, 1, C], and Keras the rows
of an image [N, H, W, C] as [N H, 1, W, C]. Keras pads sequences before that, and spreads them over
the batch if the convolution is dilated:

    PAD, SPACE_TO_BATCH_ND, RESHAPE, CONV_2D, RESHAPE, BATCH_TO_SPACE_ND, TANH, ...
    RESHAPE, PAD, SPACE_TO_BATCH_ND, CONV_2D, BATCH_TO_SPACE_ND, TANH, ..., RESHAPE

This pass makes the second form of the first one. `fuse_convolutions` then makes one convolution of
three operators, and the last RESHAPE cancels the first one of the next layer. A WaveNet and, with
rows, a network of licence plates take half the time.

1. An operator moves before a RESHAPE to sequences or rows if all its operands are these, of images
   of one shape, or constants of one axis at most. It is elementwise; or, of sequences,
   BATCH_TO_SPACE_ND after a convolution that may be dilated, because on images the operator takes
   more time; or, of rows, a convolution with windows and strides of height 1 that pads no rows and
   does not quantize float data, which it would do row by row.
2. PAD, and SPACE_TO_BATCH_ND if the convolution may be dilated, move after a RESHAPE to images
   that only convolutions read, if nothing else reads their output.
3. All sizes are fixed, but for the batch of sequences; paddings, crops and blocks are constant.

This is no rule (`rules.py`): an operator moves if all operators before it have moved.
"""

import numpy as np

from tflite2onnx.graph import Graph, Op, copy_op
from tflite2onnx.made_options import WindowOptions
from tflite2onnx.op.common.hybrid import is_hybrid
from tflite2onnx.op.facts import Fact
from tflite2onnx.passes.operands import CONVOLUTIONS, RESHAPES, find_producer, has
from tflite2onnx.passes.patterns.convolutions.fuse_convolutions import may_be_dilated
from tflite2onnx.passes.rewriter import Rewriter, make_int32
from tflite2onnx.passes.simplify import eliminate_dead_operators
from tflite2onnx.quantization.storage import same_scale
from tflite2onnx.tensor import Shape, Tensor


def compute_images(graph: Graph) -> Graph:
    """Return the graph with images in place of sequences and rows around convolutions."""
    if graph.codes.isdisjoint(RESHAPES):
        return graph
    mover = _Mover(graph)
    changed = graph.rewrite(mover.change, mover.known)
    # `fuse_convolutions` must not find the old readers of a convolution.
    return graph if changed is graph else eliminate_dead_operators(changed)


class _Mover:
    """Replaces operators, in order of execution; `known` are equal images by tensors."""

    def __init__(self, graph: Graph) -> None:
        self.known: dict[Tensor, Tensor] = {}
        self._graph = graph
        # Sub-graphs may read the outputs of these operators; the operators read no sub-graph.
        self._outer = {*graph.ops}
        self._outputs = {*graph.walk_outputs()}
        self._convolutions = {op for op in graph.walk_ops() if op.is_builtin(*CONVOLUTIONS)}
        self._dilatable = {op for op in self._convolutions if may_be_dilated(op)}
        self._images: dict[Tensor, Tensor] = {}  # of sequences and rows

    def change(self, op: Op) -> list[Op]:
        op = op.with_inputs(self.known)
        if not op.is_builtin(*RESHAPES):
            return self._compute_image(op)
        x, y = op.operand(0), op.outputs[0]
        if x.dtype is not y.dtype or not same_scale(x, y):
            return [op]
        if x in self._images and self._images[x].sizes == y.sizes:
            if y in self._outputs:
                return [copy_op(op, self._images[x], y)]
            self.known[y] = self._images[x]
            return []
        is_convolved = self._graph.producers.find(x) in self._convolutions
        if _has_rows(x, y) or (is_convolved and _find_new_axis(y, x)):
            self._images[y] = x
        if self._graph.readers.are_among(self._convolutions, y):
            return self._pad_image(op, _find_new_axis(x, y))
        return [op]

    def _compute_image(self, op: Op) -> list[Op]:
        """Return an operator on images, and RESHAPE of its output: case 1."""
        images = [self._images.get(t) for t in op.present if not t.has_data]
        shapes = {image.shape for image in images if image}
        if None in images or len(shapes) != 1:
            return [op]
        (old,) = shapes
        shape = self._find_shape(op, old)
        if not shape:
            return [op]
        rewriter, y = Rewriter(op), op.outputs[0]
        inputs = op.with_inputs(self._images).inputs
        if op.is_builtin("BATCH_TO_SPACE_ND"):
            inputs = (inputs[0], *_widen_constants(op, old.index(1, 1)))
        name = "rows" if y.rank == len(shape) else "image"
        image = rewriter.op(
            op.code, *inputs, like=y, name=name, shape=shape, made=op.made, **op.options
        )
        rewriter.reshape(image, output=y)
        self._images[y] = image
        return rewriter.ops

    def _find_shape(self, op: Op, image: Shape) -> Shape:
        """Return the shape of the output of an operator on images, () unless case 1 holds."""
        x, weights, y = op.operand(0), op.operand(1), op.outputs[0]
        if op.is_builtin("ADD", "MUL", "SUB") or has(op, Fact.ACTIVATION):
            alike = all(t.rank <= 1 if t.has_data else t.sizes == y.sizes for t in op.present)
            return image if alike else ()
        if op.is_builtin(*CONVOLUTIONS):
            top, _, bottom, _ = op.read_made(WindowOptions).pads or (0, 0, 0, 0)
            rows = (weights.shape[1], op.options.get("stride_h"), top, bottom) == (1, 1, 0, 0)
            alone = rows and weights.has_data and not is_hybrid(x, weights)
            return (*image[:2], *y.shape[2:]) if alone else ()
        if not op.is_builtin("BATCH_TO_SPACE_ND"):
            return ()
        dilatable = self._graph.producers.find(self._images[x]) in self._dilatable
        joins = dilatable and _moves_sequences(op)
        return _insert_axis(y.shape, image.index(1, 1)) if joins else ()

    def _pad_image(self, op: Op, axis: int) -> list[Op]:
        """Return RESHAPE to an image, and then the operators that were before it: case 2."""
        x, y, before = op.operand(0), op.outputs[0], list[Op]()
        while axis and not self._find_image(x, axis):
            producer = find_producer(x, self._graph, "PAD", "SPACE_TO_BATCH_ND")
            dilatable = self._graph.readers.are_among(self._dilatable, y)
            if not _moves_sequences(producer) or not (producer.code == "PAD" or dilatable):
                break
            before.append(producer)
            x = producer.operand(0)
        if not before:
            return [op]
        rewriter, image = Rewriter(op), self._find_image(x, axis)
        if not image:
            image = rewriter.reshape(x, _insert_axis(x.shape, axis), like=x, name="image")
            if op in self._outer:
                self._images[x] = image
        for each in reversed(before):
            made = each.outputs[0]
            image = rewriter.op(
                each.code,
                image,
                *_widen_constants(each, axis),
                output=y if each is before[0] else None,
                like=made,
                name="image",
                shape=_insert_axis(made.shape, axis),
                made=each.made,
                **each.options,
            )
        return rewriter.ops

    def _find_image(self, sequence: Tensor, axis: int) -> Tensor | None:
        image = self._images.get(sequence)
        return image if image and image.shape == _insert_axis(sequence.shape, axis) else None


def _widen_constants(op: Op, axis: int) -> list[Tensor]:
    """Return paddings, crops and blocks of sequences for images with an axis of size 1."""
    first = 0 if op.code == "PAD" else 1  # the first axis that the constants describe
    # Along the new axis a block is one element, and there is no padding.
    wide = (np.insert(t.values, axis - first, int(t.rank == 1), 0) for t in op.present[1:])
    return [make_int32(f"{op.outputs[0].name}/image/{i}", each) for i, each in enumerate(wide)]


def _moves_sequences(op: Op) -> bool:
    """Return whether an operator pads, spreads or joins sequences by constants: case 3."""
    tensors = (op.operand(0), *op.outputs)
    fixed = all(t.rank == 3 and _is_fixed(t) for t in tensors) and same_scale(*tensors)
    return fixed and all(t.has_data for t in op.present[1:])


def _find_new_axis(sequence: Tensor, image: Tensor) -> int:
    """Return the axis of size 1 that only the image has, 0 if the shapes differ otherwise."""
    sizes = image.sizes
    axis = sizes.index(1, 1) if 1 in sizes[1:3] else 0
    alike = (*sizes[:axis], *sizes[axis + 1 :]) == sequence.sizes
    return axis if alike and _is_fixed(sequence) else 0


def _has_rows(x: Tensor, y: Tensor) -> bool:
    """Return whether RESHAPE puts the rows of an image into the batch."""
    if x.rank != 4 or x.symbols or y.symbols:
        return False
    count, height, width, channels = x.shape
    return height > 1 and y.shape == (count * height, 1, width, channels)


def _is_fixed(tensor: Tensor) -> bool:
    return tensor.symbols.keys() <= {0}


def _insert_axis(shape: Shape, axis: int) -> Shape:
    return (*shape[:axis], 1, *shape[axis:])

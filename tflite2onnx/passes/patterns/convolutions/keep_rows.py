"""Rows of images stay rows where RESHAPE puts them into the batch.

Keras convolves each row of an image [N, H, W, C] as a sequence, in a batch of all rows, and spreads
the rows over the batch if the convolution is dilated:

    SPACE_TO_BATCH_ND, RESHAPE to [N H, 1, W, C], CONV_2D, RESHAPE to [N, H, W, C],
    BATCH_TO_SPACE_ND

A convolution whose windows have a height of 1 gives the same numbers on the image itself. With
channels first, each RESHAPE would need two Transposes. An operator computes images instead of rows
if

1. its operands are rows of images, of one shape, or constants of one axis at most;
2. it is elementwise, or a convolution with windows and strides of height 1 that pads no rows and
   does not quantize float data, which it would do row by row;
3. all sizes are fixed.

A RESHAPE that puts the rows back then is no operator, and three operators may become one dilated
convolution (`fuse_convolutions`). A network of licence plates, of 8-bit integers, has 1 Transpose
in place of 28, and takes half the time in ONNX Runtime.

This is no rule (`rules.py`): an operator changes if all operators before it have changed.
"""

from __future__ import annotations

from tflite2onnx.graph import Graph, Op, copy_op
from tflite2onnx.op.common.hybrid import is_hybrid
from tflite2onnx.passes.normalise import eliminate_dead_operators
from tflite2onnx.passes.operands import ELEMENTWISE, RESHAPES
from tflite2onnx.passes.patterns.convolutions.fuse_convolutions import CONVOLUTIONS
from tflite2onnx.passes.rewriter import Rewriter
from tflite2onnx.quantization.storage import same_scale
from tflite2onnx.tensor import Tensor

_IMAGE = 4  # axes


def keep_rows(graph: Graph) -> Graph:
    """Return the graph with images in place of rows in the batch."""
    keeper = _Keeper(graph)
    changed = graph.rewrite(keeper.change, keeper.known)
    # `fuse_convolutions` must not find the old readers of an image.
    return graph if changed is graph else eliminate_dead_operators(changed)


class _Keeper:
    """Replaces operators, in order of execution; `known` are equal images by tensors."""

    def __init__(self, graph: Graph) -> None:
        self.known: dict[Tensor, Tensor] = {}
        self._outputs = {*graph.walk_outputs()}
        self._images: dict[Tensor, Tensor] = {}  # of rows

    def change(self, op: Op) -> list[Op]:
        """Return the operators that replace an operator."""
        op = op.with_inputs(self.known)
        if op.is_builtin(*RESHAPES):
            return self._reshape(op)
        data = [t for t in op.present if not t.has_data]
        images = [self._images[t] for t in data if t in self._images]
        same = len({image.shape[:3] for image in images}) == 1
        if not same or len(images) < len(data) or not _keeps_rows(op):
            return [op]
        rw, y = Rewriter(op), op.outputs[0]
        inputs = op.with_inputs(self._images).inputs
        shape = (*images[0].shape[:2], *y.shape[2:])
        image = rw.op(op.code, *inputs, like=y, name="rows", shape=shape, **op.options)
        rw.reshape(image, output=y)
        self._images[y] = image
        return rw.ops

    def _reshape(self, op: Op) -> list[Op]:
        x, y = op.operand(0), op.outputs[0]
        if x in self._images and y.shape == self._images[x].shape and same_scale(x, y):
            if y in self._outputs:
                return [copy_op(op, self._images[x], y)]
            self.known[y] = self._images[x]
            return []
        if _puts_rows_into_batch(x, y):
            self._images[y] = x
        return [op]


def _puts_rows_into_batch(x: Tensor, y: Tensor) -> bool:
    if x.rank != _IMAGE or y.rank != _IMAGE or x.symbols or y.symbols or not same_scale(x, y):
        return False
    count, height, width, channels = x.shape
    return height > 1 and y.shape == (count * height, 1, width, channels)


def _keeps_rows(op: Op) -> bool:
    """Return whether an operator computes each row of an image by itself: condition 2."""
    y = op.outputs[0]
    if op.is_builtin(*ELEMENTWISE):
        return all(t.rank <= 1 if t.has_data else t.shape == y.shape for t in op.present)
    x, weights = op.operand(0), op.operand(1)
    if not op.is_builtin(*CONVOLUTIONS) or not weights.values.size or is_hybrid(x, weights):
        return False
    top, _, bottom, _ = op.options.get("pads", (0, 0, 0, 0))
    return bool(weights.shape[1] == op.options.get("stride_h") == 1 and top == bottom == 0)

"""Recognise images and sequences whose pixels or times are repeated.

Keras writes the upsampling of an image [N, H, W, C] to [N, 2 H, 2 W, C] as five operators:

    RESHAPE to [N, H, 1, W, C], TILE to [N, H, 2, W, C],
    RESHAPE to [N, 2 H, W, 1, C], TILE to [N, 2 H, W, 2, C], RESHAPE to [N, 2 H, 2 W, C]

They become RESIZE_NEAREST_NEIGHBOR. One repeated axis, as in a sequence [N, T, C], has three
operators. They are replaced if

1. TILE or BROADCAST_TO repeats one axis of size 1, and the RESHAPE behind it joins this axis to
   the axis before it, which is the height or the width of an image, or the time of a sequence;
2. a convolution reads the result, directly or through operators that keep images: Resize is fast
   with channels first, but slower than TILE if channels stay last, and heads of attention are
   repeated in the same way;
3. all sizes but the batch are fixed, and all tensors have the same scale;
4. the kernel of RESIZE_NEAREST_NEIGHBOR, which multiplies by a rounded quotient of the sizes, takes
   the same pixels.
"""

from __future__ import annotations

import numpy as np

from tflite2onnx.graph import ABSENT, NO_OP, Graph, Op
from tflite2onnx.op import find_convolved
from tflite2onnx.op.vision.resize import find_indices
from tflite2onnx.passes.operands import RESHAPES, find_producer
from tflite2onnx.passes.patterns.matching import Match, OneOf
from tflite2onnx.passes.patterns.rules import Rule, Rules
from tflite2onnx.passes.rewriter import Rewriter, make_int32, make_like
from tflite2onnx.quantization.storage import same_scale
from tflite2onnx.tensor import DType, Shape, Tensor

_TYPES = (DType.FLOAT32, DType.INT8, DType.UINT8)
_IMAGE, _SEQUENCE = 4, 3  # axes
# What networks have between the repeats and a convolution; others were not measured.
_KEEP_IMAGES = (
    *("ADD", "CONCATENATION", "EXPAND_DIMS", "LEAKY_RELU", "MIRROR_PAD", "MUL", "PAD", "RELU"),
    *("RELU6", "RESHAPE"),
)


def _find_convolved_tensors(graph: Graph) -> set[Tensor]:
    found: set[Tensor] = set()
    for op in reversed([*graph.walk_ops()]):
        data = find_convolved(op)
        if data is not ABSENT:
            found.add(data)
        elif op.is_builtin(*_KEEP_IMAGES) and not found.isdisjoint(op.outputs):
            found.update(op.present)
    return found


def _fuse_repeats(found: Match) -> list[Op]:
    op, y = found.last, found.last.outputs[0]
    if y.dtype not in _TYPES or y not in found.analyze(_find_convolved_tensors):
        return []
    x = _find_source(op, y.shape, found.graph)
    if x.dtype is not y.dtype or not same_scale(x, y):
        return []
    if x.sizes[0] != y.sizes[0] or not (x.symbols.keys() | y.symbols.keys()) <= {0}:
        return []
    rewriter = Rewriter(op)
    changed = {axis for axis in range(y.rank) if x.shape[axis] != y.shape[axis]}
    if not (changed and all(_takes_same_pixels(x.shape[i], y.shape[i]) for i in changed)):
        return []
    if y.rank == _IMAGE and changed <= {1, 2}:
        _resize(rewriter, x, y)
    elif y.rank == _SEQUENCE and changed == {1}:
        image, wide = ((n, t, 1, c) for n, t, c in (x.shape, y.shape))
        pixels = rewriter.reshape(x, image, like=x, name="image")
        resized = make_like(y, "resized", wide)
        _resize(rewriter, pixels, resized)
        rewriter.reshape(resized, output=y)
    return rewriter.ops


def _find_source(last: Op, shape: Shape, graph: Graph) -> Tensor:
    """Return the tensor that is repeated before a RESHAPE to a shape, along one axis or several.

    Returns `ABSENT` if none is.
    """
    tile = find_producer(last.operand(0), graph, "BROADCAST_TO", "TILE")
    first = find_producer(tile.operand(0), graph, *RESHAPES)
    if first is NO_OP or not last.is_builtin(*RESHAPES):
        return ABSENT
    before = _find_shape_before(first.outputs[0].shape, tile.outputs[0].shape, shape)
    x = first.operand(0)
    if not before:
        return ABSENT
    if x.shape != before:
        return _find_source(first, before, graph)
    source = _find_source(find_producer(x, graph, *RESHAPES), before, graph)
    return x if source is ABSENT else source


def _find_shape_before(narrow: Shape, wide: Shape, shape: Shape) -> Shape:
    """Return the shape before an axis is added and repeated; () unless condition 1 holds.

    `narrow` has the axis of size 1, in `wide` it is repeated, in `shape` it is joined.
    """
    axes = [i for i, n in enumerate(narrow) if len(narrow) == len(wide) and n != wide[i]]
    if len(axes) != 1 or axes[0] == 0 or narrow[axes[0]] != 1:
        return ()
    (axis,) = axes
    before, last = narrow[:axis] + narrow[axis + 1 :], axis - 1
    joined = (*before[:last], before[last] * wide[axis], *before[axis:])
    return before if joined == shape else ()


def _takes_same_pixels(size: int, new: int) -> bool:
    """Return whether the kernel takes the pixels that TILE repeats."""
    if not 0 < size < new:
        return False
    taken = find_indices(size, new, align=False, half=False)
    return np.array_equal(taken, np.arange(new) // (new // size))


def _resize(rewriter: Rewriter, x: Tensor, y: Tensor) -> None:
    """Add RESIZE_NEAREST_NEIGHBOR from an image to another."""
    size = make_int32(f"{y.name}/size", y.shape[1:3])
    code = "RESIZE_NEAREST_NEIGHBOR"
    rewriter.op(code, x, size, output=y, align_corners=False, half_pixel_centers=False)


fuse_repeats = Rules(
    Rule(
        "upsampling as Keras 3 has it, by TILE of rows and columns, between convolutions",
        "RESIZE_NEAREST_NEIGHBOR",
        OneOf(*((code, ...) for code in RESHAPES)),
        _fuse_repeats,
        floats=False,
    ),
)

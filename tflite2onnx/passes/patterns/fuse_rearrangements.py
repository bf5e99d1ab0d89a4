"""Recognise moves of an image's elements that a model spells out.

    GATHER                   channels in another sequence, as the channel shuffle of ShuffleNet
    DEPTH_TO_SPACE           channels become the pixels of blocks, as PyTorch's pixel_shuffle
    SPACE_TO_DEPTH           the pixels of blocks become channels
    RESIZE_NEAREST_NEIGHBOR  pixels, or times of a sequence, are repeated, as by Keras

The first three replace RESHAPE, TRANSPOSE, GATHER, SPLIT, ... with constant parameters, in any
number, if

1. the axes of the image are those of a convolution (`axis_letters`): its channels are probably
   stored first. Elsewhere two Transposes cost more;
2. they have a RESHAPE and a TRANSPOSE, and each element of the result is the element of the image
   that the replacement moves there: the places of all elements are compared;
3. all sizes are static, and the image has at most a million elements. Blocks are of float32. The
   batch may be dynamic, if it is the first axis of all tensors.

A shuffle as PyTorch models have it and DepthToSpace after a convolution take less time
(docs/performance.md). A shuffle as Keras models have it has fewer nodes. The last rearrangement
replaces TILE or BROADCAST_TO of axes of size 1 between RESHAPE, if

1. a convolution reads the result, directly or through operators that keep images: Resize is fast
   with channels first, but slower than TILE if channels stay last, and heads of attention are
   repeated in the same way. Nothing else reads the tensors between;
2. all sizes but the batch are fixed, and all tensors have the same scale;
3. the kernel of RESIZE_NEAREST_NEIGHBOR, which multiplies by a rounded quotient of the sizes, takes
   the same pixels.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from tflite2onnx.axis_letters import name_axes
from tflite2onnx.graph import ABSENT, Graph, Op, copy_op
from tflite2onnx.layout import Site
from tflite2onnx.made_options import BlockOptions
from tflite2onnx.op import find_convolved, find_operator, is_valid
from tflite2onnx.op.facts import Fact
from tflite2onnx.passes.operands import RESHAPES, find_data, find_producer, has, is_float
from tflite2onnx.passes.patterns.matching import Match, any_of
from tflite2onnx.passes.patterns.rules import Rule, Rules
from tflite2onnx.passes.recurrent.formulas import evaluate_op
from tflite2onnx.passes.rewriter import Rewriter, as_builtin, make_int32, make_like
from tflite2onnx.quantization.storage import same_scale
from tflite2onnx.tensor import Array, DType, Shape, Tensor

_SEQUENCE, _IMAGE = 3, 4  # axes
_MOST = 1 << 20  # elements of an image
_ENDS = ("RESHAPE", "TRANSPOSE")  # each of them is in every spelling
_BLOCKS = (
    ("DEPTH_TO_SPACE", None),
    ("DEPTH_TO_SPACE", BlockOptions(mode="CRD")),
    ("SPACE_TO_DEPTH", None),
)
_REPEATS = ("BROADCAST_TO", "TILE")
_NO_IMAGE = "an image must become an image by a known operator"
_NOT_REPEATED = "a convolution must read pixels that are repeated along height or width"
_TYPES = (DType.FLOAT32, DType.INT8, DType.UINT8)  # of tensors that are repeated
# What networks have between the repeats and a convolution; others were not measured.
_KEEP_IMAGES = (
    *("ADD", "CONCATENATION", "EXPAND_DIMS", "LEAKY_RELU", "MIRROR_PAD", "MUL", "PAD", "RELU"),
    *("RELU6", "RESHAPE"),
)


@dataclass
class _Budget:
    """How many elements' places may still be computed for a graph."""

    graph: Graph
    left: int = 1 << 23


def _move_elements(found: Match) -> Op | str:
    if found.output.rank != _IMAGE:
        return _NO_IMAGE
    x, moves = found.output, list[tuple[Op, Tensor]]()
    while has(op := found.graph.producers.find(x), Fact.TAKES):
        moves.append((op, x))
        x = find_data(op)
    # No size is dynamic but the batch, which is the first axis of all tensors.
    same_batch = all(t.symbols == x.symbols for op, _ in moves for t in op.outputs)
    if not {op.code for op, _ in moves}.issuperset(_ENDS) or {*x.symbols} - {0} or not same_batch:
        return "RESHAPE and TRANSPOSE must move elements, of known sizes but for the batch"
    if x.rank != _IMAGE or x not in found.analyze(_list_images):
        return _NO_IMAGE
    budget = found.analyze(_Budget)
    budget.left -= x.elements * len(moves)
    if not 0 < x.elements <= _MOST or budget.left < 0 or x.dtype is not found.output.dtype:
        return f"the image must have at most {_MOST} elements, of one type"
    places = _find_places(moves[::-1], x)
    if places is None or not places.size:
        return "the operands that say where elements move must be constant"
    every = _list_moves(found.last, x, places)
    return next((op for op in every if _moves_elements(op, x, places)), _NO_IMAGE)


def _list_images(graph: Graph) -> frozenset[Tensor]:
    """Return the tensors with the axes of images, NHWC, in a convolution or another operator."""
    ops = [op for op in graph.walk_ops() if not has(op, Fact.TAKES)]
    frames = ((op, find_operator(op).frames()) for op in ops)
    letters = name_axes([Site(op.plan_inputs, op.plan_outputs, (*f,)) for op, f in frames], {})
    return frozenset(tensor for tensor, text in letters.items() if text == "NHWC")


def _find_places(moves: Sequence[tuple[Op, Tensor]], x: Tensor) -> Array | None:
    """Return the place in x of each element of the last output, None if it is not known."""
    places, data = np.arange(x.elements).reshape(x.shape), x
    for op, output in moves:
        operator = find_operator(op)
        # The shape of RESHAPE may be computed, if the batch is dynamic.
        operands = [data] if Fact.KEEPS_SEQUENCE in operator.facts else op.present
        arrays = [places if t is data else t.values for t in operands]
        known = all(t is data or t.has_data for t in operands)
        results = evaluate_op(operator, arrays) if known else ()
        if not results:
            return None
        places, data = results[op.outputs.index(output)], output
    return places


def _list_moves(op: Op, x: Tensor, places: Array) -> Iterator[Op]:
    """Yield the operators that may move the elements of x to these places."""
    (_, height, _, channels), (y,) = x.shape, op.outputs
    yield copy_op(op, x, y)
    order = make_int32(f"{y.name}/channels", places[0, 0, 0] % channels)
    yield as_builtin(op, "GATHER", x, order, axis=_IMAGE - 1, batch_dims=0)
    size = max(y.shape[1] // height, height // y.shape[1])
    for code, made in _BLOCKS if is_float(x) else ():
        yield as_builtin(op, code, x, made=made, block_size=size)


def _moves_elements(op: Op, x: Tensor, places: Array) -> bool:
    moved = _find_places([(op, op.outputs[0])], x) if is_valid(find_operator(op)) else None
    return moved is not None and np.array_equal(moved, places)


def _repeat_pixels(found: Match) -> list[Op] | str:
    rw, y = Rewriter(found.last), found.output
    if y.rank not in (_SEQUENCE, _IMAGE) or y.dtype not in _TYPES or 0 in y.shape:
        return _NOT_REPEATED
    x = _find_repeated(found) if y in found.analyze(_find_convolved_tensors) else ABSENT
    if x.dtype is not y.dtype or not same_scale(x, y) or x.shape == y.shape:
        return _NOT_REPEATED
    if (x.sizes[0], x.shape[-1]) != (y.sizes[0], y.shape[-1]) or {*x.symbols, *y.symbols} - {0}:
        return "batch and channels must stay, and all sizes be known but for the batch"
    if not all(map(_takes_same_pixels, x.shape[1:-1], y.shape[1:-1])):
        return "RESIZE_NEAREST_NEIGHBOR must take the same pixels"
    pixels, resized = x, y
    if y.rank == _SEQUENCE:
        image, wide = ((n, t, 1, c) for n, t, c in (x.shape, y.shape))
        pixels = rw.reshape(x, image, like=x, name="image")
        resized = make_like(y, "resized", wide)
    size, code = make_int32(f"{resized.name}/size", resized.shape[1:3]), "RESIZE_NEAREST_NEIGHBOR"
    rw.op(code, pixels, size, output=resized, align_corners=False, half_pixel_centers=False)
    if y.rank == _SEQUENCE:
        rw.reshape(resized, output=y)
    return rw.ops


def _takes_same_pixels(size: int, new: int) -> bool:
    """Return whether the kernel takes the pixels that TILE repeats."""
    from tflite2onnx.op.vision.resize import find_indices  # noqa: PLC0415 - few models resize

    taken = find_indices(size, new, align=False, half=False)
    return np.array_equal(taken, np.arange(new) // (new // size))


def _find_convolved_tensors(graph: Graph) -> set[Tensor]:
    found: set[Tensor] = set()
    for op in reversed([*graph.walk_ops()]):
        data = find_convolved(op)
        if data is not ABSENT:
            found.add(data)
        elif op.is_builtin(*_KEEP_IMAGES) and not found.isdisjoint(op.outputs):
            found.update(op.present)
    return found


def _find_repeated(found: Match) -> Tensor:
    """Return the earliest tensor that the output repeats along some axes, `ABSENT` if none."""
    op, earliest, shape = found.last, ABSENT, found.output.shape
    while shape and op.is_builtin(*RESHAPES, *_REPEATS):
        x = op.operand(0)
        if op.is_builtin(*_REPEATS):
            shape = _undo_repeat(shape, x.shape, op.outputs[0].shape)
        if x.shape == shape:
            earliest = x
        op = find_producer(x, found.graph, *RESHAPES, *_REPEATS)
    return earliest


def _undo_repeat(shape: Shape, narrow: Shape, wide: Shape) -> Shape:
    """Return the shape before an axis of size 1 is repeated, () if it has no such axis.

    RESHAPE moves no element. So runs of the elements after the axis are repeated in the shape too.
    """
    axes = [i for i, n in enumerate(narrow) if len(narrow) == len(wide) and n != wide[i]]
    if len(axes) != 1 or narrow[axes[0]] != 1:
        return ()
    run, times = prod(wide[axes[0] + 1 :]), wide[axes[0]]
    for i, size in enumerate(shape):
        if prod(shape[i + 1 :]) == run and size % times == 0:
            return (*shape[:i], size // times, *shape[i + 1 :])
    return ()


fuse_rearrangements = Rules(
    Rule(
        "moves of an image's elements, as channel shuffles and pixel shuffles",
        "GATHER, DEPTH_TO_SPACE or SPACE_TO_DEPTH",
        any_of(_ENDS, ...),
        _move_elements,
        lambda found: found.graph.codes.issuperset(_ENDS),
        "RESHAPE and TRANSPOSE must both be in the graph",
        dtype=None,
        needs=("TRANSPOSE",),
    ),
    Rule(
        "upsampling as Keras 3 has it, by TILE of rows and columns, between convolutions",
        "RESIZE_NEAREST_NEIGHBOR",
        any_of(RESHAPES, ...),
        _repeat_pixels,
        dtype=None,
        needs=_REPEATS,
    ),
)

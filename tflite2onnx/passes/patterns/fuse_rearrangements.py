"""Recognise moves of an image's elements that a model spells out with RESHAPE and TRANSPOSE.

    GATHER          channels in another sequence, as the channel shuffle of ShuffleNet
    DEPTH_TO_SPACE  channels become the pixels of blocks, as PyTorch's pixel_shuffle
    SPACE_TO_DEPTH  the pixels of blocks become channels

The operators between the image and the result are RESHAPE, TRANSPOSE, GATHER, SPLIT, ... with
constant parameters, in any number. They are replaced if

1. the image depends on a convolution by operators that keep the order of the axes (`find_images`),
   so that it is stored with channels first. Elsewhere two Transposes cost more;
2. they have a RESHAPE and a TRANSPOSE, and each element of the result is the element of the image
   that the replacement moves there: the places of all elements are compared;
3. all sizes are static, and the image has at most a million elements. Blocks are of float32. The
   batch may be dynamic, if it is the first axis of all tensors.

In ONNX Runtime, a shuffle as PyTorch models have it takes, with the convolutions around it, 0.3 to
0.5 of the time, and DepthToSpace behind a convolution 0.4 to 0.5. A shuffle as Keras models have it
has fewer nodes.

This is no rule (`rules.py`): a chain has any operators, and the places of elements are compared.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from tflite2onnx.graph import Graph, Op, copy_op
from tflite2onnx.op import find_operator
from tflite2onnx.passes.operands import find_images, is_float
from tflite2onnx.passes.recurrent.formulas import evaluate_op
from tflite2onnx.passes.rewriter import as_builtin, make_int32
from tflite2onnx.tensor import Array, Tensor

_IMAGE = 4  # axes
_CHANNELS = 3  # the axis
_MOST = 1 << 20  # elements of an image
_BUDGET = 1 << 23  # elements whose places are computed
# Exporters spell moves of pixels with these; others that only move elements would take longer here.
_MOVES = (
    *("EXPAND_DIMS", "GATHER", "RESHAPE", "SLICE", "SPLIT", "SPLIT_V", "SQUEEZE"),
    *("STRIDED_SLICE", "TRANSPOSE", "UNPACK"),
)
_ENDS = ("RESHAPE", "TRANSPOSE")  # each of them is in every spelling


class _Blocks(NamedTuple):
    """An operator that moves blocks, as RESHAPE, TRANSPOSE and RESHAPE.

    `split` are the sizes of the first RESHAPE: of the image in which channels are the blocks (n, h,
    w), of the block (r), and of the other channels (c).
    """

    code: str
    mode: str
    split: str
    permutation: tuple[int, ...]


_BLOCKS = (
    _Blocks("DEPTH_TO_SPACE", "DCR", "nhwrrc", (0, 1, 3, 2, 4, 5)),
    _Blocks("DEPTH_TO_SPACE", "CRD", "nhwcrr", (0, 1, 4, 2, 5, 3)),
    _Blocks("SPACE_TO_DEPTH", "DCR", "nhrwrc", (0, 1, 3, 2, 4, 5)),
)


def fuse_rearrangements(graph: Graph) -> Graph:
    """Return the graph with one operator in place of several that move the elements of images."""
    if not graph.codes.issuperset(_ENDS) or graph.codes.isdisjoint(
        ("CONV_2D", "DEPTHWISE_CONV_2D")
    ):
        return graph
    mover = _Mover(graph)
    return graph.rewrite(lambda op: [mover.fuse_moves(op)])


class _Mover:
    """The operators that move the elements of images, and the places that they have computed.

    `budget` is the number of elements whose places may still be computed.
    """

    def __init__(self, graph: Graph) -> None:
        self._producers = graph.producers
        self._images = find_images(graph)
        self._budget = _BUDGET

    def fuse_moves(self, op: Op) -> Op:
        """Return one operator for an operator and those before it; the operator itself if none."""
        if not op.is_builtin(*_ENDS) or (y := op.outputs[0]).rank != _IMAGE or y in self._images:
            return op
        chain = list(self._walk_back(op))
        x = chain[-1].operand(_find_data_input(chain[-1]))
        codes = {each.code for each in chain}
        if x not in self._images or not codes.issuperset(_ENDS):
            return op
        # No size is dynamic but the batch, which is the first axis of all tensors.
        if {*x.symbols} - {0} or any(t.symbols != x.symbols for op in chain for t in op.outputs):
            return op
        self._budget -= x.elements * len(chain)
        if not 0 < x.elements <= _MOST or self._budget < 0 or x.dtype is not y.dtype:
            return op
        places = _find_places(chain, x, y)
        return op if places is None else _make_move(op, x, y, places) or op

    def _walk_back(self, op: Op) -> Iterator[Op]:
        """Yield an operator and the operators before it that move elements, the last one first."""
        yield op
        before = op
        while (tensor := before.operand(_find_data_input(before))) not in self._images:
            before = self._producers.find(tensor)
            if not before.is_builtin(*_MOVES):
                return
            yield before


def _find_data_input(op: Op) -> int:
    return 1 if op.code == "SPLIT" else 0


def _find_places(chain: Sequence[Op], x: Tensor, y: Tensor) -> Array | None:
    """Return the place in x of each element of y, None if it is not known."""
    places, tensor = np.arange(x.elements).reshape(x.shape), x
    for op, after in zip(reversed(chain), [*chain[-2::-1], None], strict=True):
        if op.is_builtin("RESHAPE") and op.outputs[0].elements == places.size:
            # Its shape may be computed, if the batch is dynamic.
            places, tensor = places.reshape(op.outputs[0].shape), op.outputs[0]
            continue
        arrays = [places if t is tensor else t.data for t in op.present]
        known = [array for array in arrays if array is not None]
        if len(known) < len(arrays):
            return None
        results = evaluate_op(find_operator(op), known)
        tensor = after.operand(_find_data_input(after)) if after else y
        if len(results) != len(op.outputs):
            return None
        places = results[op.outputs.index(tensor)]
    return places if places.shape == y.shape else None


def _make_move(op: Op, x: Tensor, y: Tensor, places: Array) -> Op | None:
    """Return the operator that moves the elements of x to y, None if there is none."""
    if x.shape[:_CHANNELS] == y.shape[:_CHANNELS]:
        pixels = places.reshape(-1, y.shape[_CHANNELS])
        steps = x.shape[_CHANNELS] * np.arange(len(pixels))[:, None]
        indices = pixels[0]
        if not np.array_equal(pixels, indices + steps) or indices.max() >= x.shape[_CHANNELS]:
            return None
        if np.array_equal(indices, np.arange(x.shape[_CHANNELS])):
            return copy_op(op, x, y)
        order = make_int32(f"{y.name}/channels", indices)
        return as_builtin(op, "GATHER", x, order, axis=_CHANNELS, batch_dims=0)
    found = (each for each in _BLOCKS if is_float(x) and _moves_blocks(each, x, places))
    blocks = next(found, None)
    if not blocks:
        return None
    return as_builtin(
        op, blocks.code, x, block_size=_compute_block_size(x, y.shape), mode=blocks.mode
    )


def _compute_block_size(x: Tensor, shape: Sequence[int]) -> int:
    """Return the height of the blocks of x that are pixels or channels of a shape."""
    return max(shape[1] // x.shape[1], x.shape[1] // shape[1], 1)


def _moves_blocks(blocks: _Blocks, x: Tensor, places: Array) -> bool:
    """Return whether the elements are at the places to which an operator moves them."""
    r, (n, h, w, c) = _compute_block_size(x, places.shape), x.shape
    if blocks.code == "DEPTH_TO_SPACE":
        c //= r * r
        expected = (n, h * r, w * r, c)
    else:
        h, w = h // r, w // r
        expected = (n, h, w, c * r * r)
    split = [{"n": n, "h": h, "w": w, "c": c, "r": r}[letter] for letter in blocks.split]
    if int(np.prod(split)) != x.elements or places.shape != expected:
        return False
    moved = np.arange(x.elements).reshape(split).transpose(blocks.permutation)
    return np.array_equal(moved.reshape(-1), places.reshape(-1))

"""Operators that only move elements: shapes, slices, parts, padding."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.conformance.bench import Bench
from tests.conformance.rows.elementwise import RANKS, SIZES, broadcast_shapes, kinds
from tests.conformance.table import PACKED, Row

# Real types that most of these kernels and ONNX Runtime support.
_REAL = "float32 float16 bfloat16 float64 int8 uint8 int16 uint16 int32 uint32 int64 uint64 bool"
_SCALED = "q8 qu8 q16"
_COMPLEX = "complex64 complex128"
_PACKED = "int4 int2 uint4"
EVERY = kinds(f"{_REAL} string {_SCALED}")
VIEWED = kinds(f"{_REAL} {_COMPLEX} string {_PACKED} {_SCALED} q4")
_BYTES = dict.fromkeys(PACKED, "the kernel moves whole bytes, which have several elements")
NO_STRINGS = kinds(f"{_REAL} {_SCALED}")
INDEX = ("int32", "int64")


def reshape(b: Bench, code: str, *, sizes: tuple[list[int], list[int]], option: bool) -> None:
    """Build RESHAPE; the shape is an option or an input."""
    (old, new), fields = sizes, b.type()
    x = b.add_input(old, fields)
    shape = [] if option else [b.constant(np.array(new, np.int32))]
    b.add_outputs(*b.op(code, [x, *shape], [b.output_tensor(new, fields)], new_shape=new))


def squeeze(b: Bench, code: str, *, dims: tuple[list[int], list[int], list[int]]) -> None:
    """Build SQUEEZE."""
    (old, axes, new), fields = dims, b.type()
    b.add_outputs(
        *b.op(code, [b.add_input(old, fields)], [b.output_tensor(new, fields)], squeeze_dims=axes)
    )


def expand_dims(b: Bench, code: str, *, rank: int, axis: int, index: str) -> None:
    """Build EXPAND_DIMS with a positive or negative axis."""
    at, fields = max(-rank - 1, min(axis, rank)), b.type()
    shape = list(SIZES[:rank])
    shape.insert(at if at >= 0 else at + rank + 1, 1)
    x = b.add_input(SIZES[:rank], fields)
    b.add_outputs(
        *b.op(code, [x, b.constant(np.array(at, index))], [b.output_tensor(shape, fields)])
    )


def transpose(b: Bench, code: str, *, permutation: list[int]) -> None:
    """Build TRANSPOSE."""
    shape, fields = SIZES[: len(permutation)], b.type()
    x = b.add_input(shape, fields)
    made = [shape[axis] for axis in permutation]
    b.add_outputs(
        *b.op(
            code, [x, b.constant(np.array(permutation, np.int32))], [b.output_tensor(made, fields)]
        )
    )


def slices(b: Bench, code: str, *, box: tuple[list[int], list[int], list[int]], index: str) -> None:
    """Build SLICE; a size of -1 extends to the end of the axis."""
    (begin, size, made), fields = box, b.type()
    x = b.add_input(SIZES[: len(begin)], fields)
    words = [b.constant(np.array(each, index)) for each in (begin, size)]
    b.add_outputs(*b.op(code, [x, *words], [b.output_tensor(made, fields)]))


def strided_slice(b: Bench, code: str, *, box: dict[str, Any]) -> None:
    """Build STRIDED_SLICE of a tensor [5, 7, 4], with strides and masks."""
    fields, words = b.type(), dict(box)
    limits = [b.constant(np.array(words.pop(key), np.int32)) for key in ("begin", "end", "step")]
    made = words.pop("made")
    b.add_outputs(
        *b.op(
            code,
            [b.add_input((5, 7, 4), fields), *limits],
            [b.output_tensor(made, fields)],
            **words,
        )
    )


_STRIDES: tuple[dict[str, Any], ...] = (
    {"begin": [1, 2, 0], "end": [4, 7, 4], "step": [1, 2, 1], "made": [3, 3, 4]},
    {"begin": [4, 6, 3], "end": [-6, 1, 0], "step": [-1, -2, -1], "made": [5, 3, 3]},
    {"begin": [0, 2, 1], "end": [0, 3, 3], "step": [1, 1, 1], "made": [5, 2], "begin_mask": 1,
     "end_mask": 1, "shrink_axis_mask": 2},
    {"begin": [-4, -5, -3], "end": [-1, 90, -1], "step": [2, 1, 1], "made": [2, 5, 2]},
    {"begin": [0, 0, 1], "end": [0, 0, 3], "step": [1, 1, 1], "made": [5, 7, 1, 2],
     "ellipsis_mask": 1, "new_axis_mask": 2},
    {"begin": [1, 0, 2], "end": [2, 7, 1], "step": [1, 1, 1], "made": [2, 7, 1], "offset": True},
)  # fmt: skip


def concatenation(b: Bench, code: str, *, rank: int, axis: int, count: int) -> None:
    """Build CONCATENATION of tensors with different sizes along the axis."""
    at, fields = max(-rank, min(axis, rank - 1)), b.type()
    sizes = [list(SIZES[:rank]) for _ in range(count)]
    for step, size in enumerate(sizes):
        size[at] += step
    made = list(SIZES[:rank])
    made[at] = sum(size[at] for size in sizes)
    xs = [b.add_input(size, fields) for size in sizes]
    b.add_outputs(*b.op(code, xs, [b.output_tensor(made, fields)], axis=at))


def pack(b: Bench, code: str, *, rank: int, axis: int, count: int) -> None:
    """Build PACK: tensors of one shape along a new axis."""
    at, fields = max(-rank - 1, min(axis, rank)), b.type()
    made = list(SIZES[:rank])
    made.insert(at if at >= 0 else at + rank + 1, count)
    xs = [b.add_input(SIZES[:rank], fields) for _ in range(count)]
    b.add_outputs(*b.op(code, xs, [b.output_tensor(made, fields)], axis=at, values_count=count))


def unpack(b: Bench, code: str, *, rank: int, axis: int) -> None:
    """Build UNPACK: the slices along an axis."""
    at, fields = max(-rank, min(axis, rank - 1)) % rank, b.type()
    shape = SIZES[:rank]
    made = [b.output_tensor((*shape[:at], *shape[at + 1 :]), fields) for _ in range(shape[at])]
    b.add_outputs(*b.op(code, [b.add_input(shape, fields)], made, axis=at, num=shape[at]))


def split(b: Bench, code: str, *, rank: int, axis: int, count: int) -> None:
    """Build SPLIT into equal parts."""
    at, fields = max(-rank, min(axis, rank - 1)), b.type()
    shape = list(SIZES[:rank])
    made = [b.output_tensor(shape, fields) for _ in range(count)]
    shape[at] *= count
    x = b.add_input(shape, fields)
    b.add_outputs(*b.op(code, [b.constant(np.array(at, np.int32)), x], made, num_splits=count))


def split_v(b: Bench, code: str, *, rank: int, axis: int, sizes: list[int], index: str) -> None:
    """Build SPLIT_V into parts of given sizes; -1 is the remaining size."""
    at, fields = max(-rank, min(axis, rank - 1)), b.type()
    shape, made = list(SIZES[:rank]), []
    for size in sizes:
        shape[at] = 4 if size == -1 else size
        made.append(b.output_tensor(shape, fields))
    shape[at] = sum(4 if size == -1 else size for size in sizes)
    words = [b.constant(np.array(sizes, index)), b.constant(np.array(at, np.int32))]
    b.add_outputs(*b.op(code, [b.add_input(shape, fields), *words], made, num_splits=len(sizes)))


def tile(b: Bench, code: str, *, times: list[int], index: str) -> None:
    """Build TILE, which repeats each axis."""
    shape, fields = SIZES[: len(times)], b.type()
    made = [size * n for size, n in zip(shape, times, strict=True)]
    words = b.constant(np.array(times, index))
    b.add_outputs(*b.op(code, [b.add_input(shape, fields), words], [b.output_tensor(made, fields)]))


def pad(b: Bench, code: str, *, pads: list[tuple[int, int]], index: str) -> None:
    """Build PAD or PADV2; PADV2 has the padding value as an input."""
    shape, fields = (4, 5, 7, 3)[: len(pads)], b.type()
    made = [size + before + after for size, (before, after) in zip(shape, pads, strict=True)]
    words = [b.constant(np.array(pads, index))]
    if code == "PADV2":
        words.append(b.add_input((), fields))
    b.add_outputs(
        *b.op(code, [b.add_input(shape, fields), *words], [b.output_tensor(made, fields)])
    )


def mirror_pad(b: Bench, code: str, *, pads: list[tuple[int, int]], mode: str) -> None:
    """Build MIRROR_PAD: REFLECT does not repeat the element at the edge, SYMMETRIC repeats it."""
    shape, fields = (4, 5, 7, 3)[: len(pads)], b.type()
    made = [size + before + after for size, (before, after) in zip(shape, pads, strict=True)]
    words = b.constant(np.array(pads, np.int32))
    b.add_outputs(
        *b.op(code, [b.add_input(shape, fields), words], [b.output_tensor(made, fields)], mode=mode)
    )


_PADS = (
    [(0, 0), (1, 2), (3, 0), (0, 1)], [(1, 2)], [(2, 0), (0, 3)], [(0, 0), (2, 1), (0, 0)],
)  # fmt: skip
_MIRRORS = ([(0, 0), (1, 2), (3, 0), (0, 1)], [(1, 2)], [(2, 0), (0, 3)])


def reverse(b: Bench, code: str, *, rank: int, axes: list[int]) -> None:
    """Build REVERSE_V2 along neighbouring axes."""
    fields, chosen = b.type(), [axis for axis in axes if axis < rank] or [0]
    words = b.constant(np.array(chosen, np.int32))
    x = b.add_input(SIZES[:rank], fields)
    b.add_outputs(*b.op(code, [x, words], [b.output_tensor(SIZES[:rank], fields)]))


def reverse_sequence(b: Bench, code: str, *, rank: int, axes: tuple[int, int], index: str) -> None:
    """Build REVERSE_SEQUENCE with a length for each batch."""
    (time, batch), fields, shape = axes, b.type(), (4, 5, 3, 7)[:rank]
    time, batch = time % rank, batch % rank
    lengths = b.generator.integers(0, shape[time], shape[batch], endpoint=True)
    words = b.constant(lengths.astype(index))
    y = b.output_tensor(shape, fields)
    b.add_outputs(
        *b.op(code, [b.add_input(shape, fields), words], [y], seq_dim=time, batch_dim=batch)
    )


def broadcast_to(b: Bench, code: str, *, old: list[int], new: list[int], index: str) -> None:
    """Build BROADCAST_TO, which repeats axes of size 1."""
    fields = b.type()
    words = b.constant(np.array(new, index))
    b.add_outputs(*b.op(code, [b.add_input(old, fields), words], [b.output_tensor(new, fields)]))


def fill(b: Bench, code: str, *, rank: int, index: str) -> None:
    """Build FILL: all elements have one value."""
    fields, shape = b.type(), SIZES[:rank]
    words = b.constant(np.array(shape, index))
    b.add_outputs(*b.op(code, [words, b.add_input((), fields)], [b.output_tensor(shape, fields)]))


def blocks(b: Bench, code: str, *, block: int, image: tuple[int, int], channels: int) -> None:
    """Build DEPTH_TO_SPACE or SPACE_TO_DEPTH."""
    (height, width), fields = image, b.type()
    small = (2, height, width, channels * block * block)
    large = (2, height * block, width * block, channels)
    old, new = (small, large) if code == "DEPTH_TO_SPACE" else (large, small)
    b.add_outputs(
        *b.op(code, [b.add_input(old, fields)], [b.output_tensor(new, fields)], block_size=block)
    )


def batches(b: Bench, code: str, *, block: list[int], edges: list[list[int]]) -> None:
    """Build SPACE_TO_BATCH_ND with padding or BATCH_TO_SPACE_ND with crops."""
    fields, edge = b.type(), edges[: len(block)]
    small = [3, 5][: len(block)]
    large = [n * size - sum(e) for n, size, e in zip(block, small, edge, strict=True)]
    many, one = (2 * int(np.prod(block)), *small, 7), (2, *large, 7)
    old, new = (one, many) if code == "SPACE_TO_BATCH_ND" else (many, one)
    words = [b.constant(np.array(each, np.int32)) for each in (block, edge)]
    b.add_outputs(*b.op(code, [b.add_input(old, fields), *words], [b.output_tensor(new, fields)]))


def dilate(b: Bench, code: str, *, steps: list[int], constant: bool) -> None:
    """Build DILATE, which inserts a value between the elements of each axis."""
    fields, shape = b.type(), SIZES[: len(steps)]
    made = [(size - 1) * step + 1 for size, step in zip(shape, steps, strict=True)]
    x, value = b.add_input(shape, fields), (b.add_constant if constant else b.add_input)((), fields)
    words = b.constant(np.array(steps, np.int32))
    b.add_outputs(*b.op(code, [x, words, value], [b.output_tensor(made, fields)]))


def update_slice(b: Bench, code: str, *, rank: int, index: str, constant: bool) -> None:
    """Build DYNAMIC_UPDATE_SLICE; starts may be out of range."""
    fields, shape = b.type(), SIZES[:rank]
    x, update = b.add_input(shape, fields), b.add_input([max(1, n - 1) for n in shape], fields)
    starts = (b.add_constant if constant else b.add_input)((rank,), index, within=(-2, 9))
    b.add_outputs(*b.op(code, [x, update, starts], [b.output_tensor(shape, fields)]))


def select(b: Bench, code: str, *, condition: str) -> None:
    """Build SELECT."""
    fields, shape = b.type(), (2, 3, 5, 7)
    where = {"same": shape, "first": (2,), "scalar": (), "row": (1, 3, 1, 7), "last": (7,)}
    c = b.add_input(where[condition], "bool")
    x, y = (b.add_input(shape, fields) for _ in range(2))
    b.add_outputs(*b.op(code, [c, x, y], [b.output_tensor(shape, fields)]))


def select_v2(b: Bench, code: str, *, pair: str, condition: str) -> None:
    """Build SELECT_V2, whose operands broadcast."""
    fields, (first, second, made) = b.type(), broadcast_shapes(pair)
    c = b.add_input(made if condition == "same" else (), "bool")
    x, y = b.add_input(first, fields), b.add_input(second, fields)
    b.add_outputs(*b.op(code, [c, x, y], [b.output_tensor(made, fields)]))


def shape_of(b: Bench, code: str, *, rank: int, out_type: str = "int32") -> None:
    """Build SHAPE or RANK."""
    made = [] if code == "RANK" else [rank]
    words: dict[str, Any] = {} if code == "RANK" else {"out_type": out_type}
    b.add_outputs(
        *b.op(code, [b.add_input(SIZES[:rank])], [b.output_tensor(made, out_type)], **words)
    )


_BOXES = (
    ([0, 1, 2, 0], [2, 2, -1, 7], [2, 2, 3, 7]), ([1], [1], [1]), ([1, 0], [-1, 2], [1, 2]),
    ([0, 1, 1], [1, 1, 3], [1, 1, 3]),
)  # fmt: skip
_AXES = (-1, 0, 1, 2)
_TRANSPOSED = ([0, 3, 1, 2], [0], [1, 0], [2, 0, 1], [3, 2, 1, 0], [4, 0, 2, 1, 3])

ROWS = (
    Row("RESHAPE", reshape, VIEWED, {
        "sizes": (([2, 3, 5, 7], [2, 105]), ([2, 15, 7], [2, 3, 5, 7]), ([1], []), ([], [1, 1]),
                  ([4, 9], [6, 6]), ([2, 3, 5, 7], [2, 3, 1, 5, 7])),
        "option": (False, True)}, exact=True),
    Row("SQUEEZE", squeeze, VIEWED, {
        "dims": (([2, 1, 5, 1], [1, 3], [2, 5]), ([1, 3], [0], [3]), ([2, 1, 1, 7], [], [2, 7]),
                 ([1, 1], [-1], [1]))}, exact=True),
    Row("EXPAND_DIMS", expand_dims, VIEWED,
        {"rank": (4, 0, 1, 2, 3), "axis": _AXES, "index": INDEX}, exact=True),
    Row("TRANSPOSE", transpose, (*NO_STRINGS, *kinds("complex64 int4 uint4 q4")),
        {"permutation": _TRANSPOSED}, exact=True),
    Row("SLICE", slices, (*EVERY, *kinds("complex64 int4 q4")),
        {"box": _BOXES, "index": INDEX}, exact=True),
    Row("STRIDED_SLICE", strided_slice, EVERY, {"box": _STRIDES}, exact=True,
        without={"complex64": "converted only if the output has the axes of the input"}),
    Row("CONCATENATION", concatenation,
        kinds("float32 float16 bfloat16 int8 uint8 int16 int32 uint32 int64 bool int4 q8 qu8"
              " q16 q4"),
        {"rank": (4, 1, 2, 3, 5), "axis": _AXES, "count": (2, 1, 3)}, exact=True),
    Row("PACK", pack, kinds("float32 int8 uint8 int16 int32 uint32 int64 q8 qu8 q16"),
        {"rank": (3, 0, 1, 2, 4), "axis": _AXES, "count": (2, 1, 3)}, exact=True),
    Row("UNPACK", unpack, kinds("float32 float16 bfloat16 int8 uint8 int16 int32 bool q8 qu8 q16"),
        {"rank": (4, 1, 2, 3, 5), "axis": _AXES}, exact=True),
    Row("SPLIT", split, kinds("float32 int8 uint8 int16 int32 int64 q8 qu8 q16"),
        {"rank": (4, 1, 2, 3, 5), "axis": _AXES, "count": (2, 1, 3)}, exact=True),
    Row("SPLIT_V", split_v, kinds("float32 int8 uint8 int16 int32 int64 q8 qu8 q16"),
        {"rank": (4, 1, 2, 3, 5), "axis": _AXES, "sizes": ([2, 3], [-1, 1], [1, 2, 4]),
         "index": INDEX}, exact=True),
    Row("TILE", tile, EVERY, {
        "times": ([1, 2, 1, 3], [2], [2, 3], [1, 1, 2]), "index": INDEX}, exact=True),
    *(Row(code, pad, kinds("float32 float16 bfloat16 int8 uint8 int16 int32 int64 bool q8 qu8 q16"),
          {"pads": _PADS, "index": ("int32", "int64")}, exact=True) for code in ("PAD", "PADV2")),
    Row("MIRROR_PAD", mirror_pad, kinds(f"{_REAL} {_SCALED}"),
        {"pads": _MIRRORS, "mode": ("REFLECT", "SYMMETRIC")}, exact=True),
    Row("REVERSE_V2", reverse,
        kinds("float32 float16 bfloat16 int8 uint8 int16 int32 int64 bool q8 qu8 q16"),
        {"rank": (4, 1, 2, 3), "axes": ([1], [0], [2, 1], [3])}, exact=True),
    Row("REVERSE_SEQUENCE", reverse_sequence, kinds("float32 uint8 int16 int32 int64 qu8 q16"),
        {"rank": (4, 2, 3), "axes": ((1, 0), (0, 1), (-1, 0), (0, -1)), "index": INDEX},
        exact=True),
    Row("BROADCAST_TO", broadcast_to, kinds(f"{_REAL} {_COMPLEX} {_SCALED}"),
        {"old": ([3, 1, 7], [1], [3, 5, 7], []), "new": ([2, 3, 5, 7], [4, 2, 3, 5, 7]),
         "index": INDEX}, exact=True, without=_BYTES),
    Row("FILL", fill, EVERY, {"rank": RANKS, "index": INDEX}, exact=True),
    *(Row(code, blocks, kinds("float32 int8 uint8 int32 int64 q8 qu8"),
          {"block": (2, 3, 1), "image": ((3, 5), (1, 2)), "channels": (3, 1)}, exact=True)
      for code in ("DEPTH_TO_SPACE", "SPACE_TO_DEPTH")),
    *(Row(code, batches, kinds(f"{_REAL} {_SCALED}"),
          {"block": ([2, 3], [2], [1, 2]), "edges": ([[0, 0], [0, 0]], [[1, 0], [1, 2]],
                                                     [[0, 2], [3, 0]])}, exact=True)
      for code in ("BATCH_TO_SPACE_ND", "SPACE_TO_BATCH_ND")),
    Row("DILATE", dilate, kinds(f"{_REAL} {_SCALED}"),
        {"steps": ([1, 2, 3, 1], [3], [1, 2], [2, 1, 3]), "constant": (True, False)}, exact=True),
    Row("DYNAMIC_UPDATE_SLICE", update_slice, kinds(f"{_REAL} int4 {_SCALED} q4"),
        {"rank": (4, 1, 2, 3), "index": INDEX, "constant": (False, True)}, exact=True),
    Row("SELECT", select, NO_STRINGS, {"condition": ("same", "first", "scalar")}, exact=True),
    Row("SELECT_V2", select_v2, (*NO_STRINGS, "complex64"),
        {"pair": ("same", "scalar", "channels", "row", "both"), "condition": ("same", "scalar")},
        exact=True),
    Row("SHAPE", shape_of, VIEWED,
        {"rank": (4, 1, 2, 3, 5), "out_type": INDEX}, exact=True),
    Row("RANK", shape_of, VIEWED, {"rank": RANKS},
        exact=True),
)  # fmt: skip

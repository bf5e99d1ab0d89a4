"""passes/patterns/fuse_rearrangements.py: moves of an image's elements that a model spells out."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from tests.support import Build, Tensor, check
from tests.support.control import count_rounds, loop, op
from tests.support.graph_text import check_pass, check_unchanged, eliminate_dead_after
from tflite2onnx.passes.patterns import fuse_rearrangements as module
from tflite2onnx.passes.patterns.fuse_rearrangements import fuse_rearrangements
from tflite2onnx.reader.model import read_model

fuse = eliminate_dead_after(fuse_rearrangements)

SIZE, CHANNELS = 4, 12

Spelling = Callable[[Build, Tensor], list[Tensor]]


def convolve(m: Build, x: Tensor, channels: int) -> Tensor:
    """Add a convolution with filters of one pixel."""
    filters = np.random.default_rng(0).standard_normal((channels, 1, 1, x.shape[-1]))
    inputs = [x, m.constant(filters.astype(np.float32)), m.constant(np.zeros(channels, np.float32))]
    shape = [*x.shape[:3], channels]
    return m.op("CONV_2D", inputs, [shape], stride_h=1, stride_w=1, padding="VALID")[0]


def reshape(m: Build, x: Tensor, *shape: int) -> Tensor:
    return m.op("RESHAPE", [x], [[*shape]], new_shape=[*shape])[0]


def transpose(m: Build, x: Tensor, *permutation: int) -> Tensor:
    shape = [x.shape[axis] for axis in permutation]
    inputs = [x, m.constant(np.array(permutation, np.int32))]
    return m.op("TRANSPOSE", inputs, [shape])[0]


def rearrange(m: Build, x: Tensor, shape: Sequence[int], axes: Sequence[int], *end: int) -> Tensor:
    return reshape(m, transpose(m, reshape(m, x, *shape), *axes), *end)


def shuffle(m: Build, x: Tensor) -> list[Tensor]:
    """As Keras models write it."""
    return [rearrange(m, x, (1, 4, 4, 3, 4), (0, 1, 2, 4, 3), 1, 4, 4, 12)]


def shuffle_and_split(m: Build, x: Tensor) -> list[Tensor]:
    """As onnx2tf writes PyTorch's ShuffleNet."""
    _, size, _, channels = x.shape
    half = channels // 2
    first = transpose(m, x, 0, 3, 1, 2)
    pairs = transpose(m, reshape(m, first, half, 2, size * size), 1, 0, 2)
    halves = reshape(m, pairs, 2, 1, half, size, size)
    shape = [1, half, size, size]
    parts = [
        m.op("GATHER", [halves, m.constant(np.array(i, np.int32))], [shape], axis=0)[0]
        for i in range(2)
    ]
    return [transpose(m, part, 0, 2, 3, 1) for part in parts]


def depth_to_space(m: Build, x: Tensor) -> list[Tensor]:
    return [rearrange(m, x, (1, 4, 4, 2, 2, 3), (0, 1, 3, 2, 4, 5), 1, 8, 8, 3)]


def pixel_shuffle(m: Build, x: Tensor) -> list[Tensor]:
    """As PyTorch, without the axis of the batch."""
    return [rearrange(m, x, (4, 4, 3, 2, 2), (0, 3, 1, 4, 2), 1, 8, 8, 3)]


def space_to_depth(m: Build, x: Tensor) -> list[Tensor]:
    return [rearrange(m, x, (1, 2, 2, 2, 2, 12), (0, 1, 3, 2, 4, 5), 1, 2, 2, 48)]


def turn_twice(m: Build, x: Tensor) -> list[Tensor]:
    """No element moves."""
    first = reshape(m, transpose(m, x, 0, 3, 1, 2), 1, 12, 16)
    return [transpose(m, reshape(m, first, 1, 12, 4, 4), 0, 2, 3, 1)]


def spell(spelling: Spelling, *, after: bool = True) -> bytes:
    m = Build()
    x = m.input([1, SIZE, SIZE, 5 if after else CHANNELS])
    x = convolve(m, x, CHANNELS) if after else x
    m.output(*(convolve(m, y, 5) for y in spelling(m, x)))
    return m.bytes()


def test_channel_shuffle_becomes_a_gather() -> None:
    m = Build()
    m.output(*shuffle(m, convolve(m, m.input([1, 4, 4, 5]), 12)))
    before = """
        inputs %0: float32[1,4,4,5]
        %1: float32[1,4,4,12] = CONV_2D(%0, float32[12,1,1,5], float32[12])
        %2: float32[1,4,4,3,4] = RESHAPE(%1)
        %3: float32[1,4,4,4,3] = TRANSPOSE(%2, [0, 1, 2, 4, 3])
        %4: float32[1,4,4,12] = RESHAPE(%3)
        return %4
    """
    after = """
        inputs %0: float32[1,4,4,5]
        %1: float32[1,4,4,12] = CONV_2D(%0, float32[12,1,1,5], float32[12])
        %2: float32[1,4,4,12] = GATHER(%1, int32[12], axis=3)
        return %2
    """
    check_pass(fuse, read_model(m.bytes()).graphs[0], before, after, "axis")


@pytest.mark.parametrize(
    ("spelling", "kinds"),
    [
        (shuffle, ["Conv", "Gather", "Conv"]),
        (shuffle_and_split, ["Conv", "Gather", "Conv", "Gather", "Conv"]),
        (depth_to_space, ["Conv", "DepthToSpace", "Conv"]),
        (pixel_shuffle, ["Conv", "DepthToSpace", "Conv"]),
        (space_to_depth, ["Conv", "SpaceToDepth", "Conv"]),
        (turn_twice, ["Conv", "Conv"]),
    ],
)
def test_fused_rearrangements_equal_litert(spelling: Spelling, kinds: list[str]) -> None:
    result = check(spell(spelling))
    found = [node.op_type for node in result.model.graph.node]
    assert sorted(kind for kind in found if kind != "Transpose") == sorted(kinds)


def test_images_beside_a_loop_are_found() -> None:
    """The axes of a loop's tensors are those of its sub-graphs' tensors."""
    m = Build()
    x = m.input([1, SIZE, SIZE, 5])
    rounds = m.input([], dtype="int32")
    change = count_rounds(lambda inner, xs: [op(inner, "NEG", xs[0])])
    moved = shuffle(m, convolve(m, x, CHANNELS))
    m.output(*loop(m, [rounds, *moved], change))
    result = check(m.bytes())
    assert "Gather" in [node.op_type for node in result.model.graph.node]


@pytest.mark.parametrize(
    ("split", "axes", "end", "moves"),
    [
        ((4, 4, 3, 4), (0, 1, 2, 4, 3), (4, 4, 12), "Gather"),
        ((4, 4, 2, 2, 3), (0, 1, 3, 2, 4, 5), (8, 8, 3), "DepthToSpace"),
    ],
)
def test_moves_within_a_dynamic_batch_are_fused(
    split: tuple[int, ...], axes: tuple[int, ...], end: tuple[int, ...], moves: str
) -> None:
    m = Build()
    x = convolve(m, m.input([1, 4, 4, 5], shape_signature=[-1, 4, 4, 5]), 12)
    (parts,) = m.op("RESHAPE", [x], [[1, *split]], new_shape=[-1, *split])
    moved = transpose(m, parts, *axes)
    m.output(*m.op("RESHAPE", [moved], [[1, *end]], new_shape=[-1, *end]))
    found = [node.op_type for node in check(m.bytes()).model.graph.node]
    assert moves in found
    assert "Reshape" not in found


def test_dynamic_batch_that_moves_stays_a_transpose() -> None:
    """Images become rows of one image."""
    m = Build()
    x = convolve(m, m.input([1, 4, 4, 5], shape_signature=[-1, 4, 4, 5]), 12)
    moved = transpose(m, x, 1, 0, 2, 3)
    m.output(*m.op("RESHAPE", [moved], [[1, 4, 4, 12]], new_shape=[1, -1, 4, 12]))
    found = [node.op_type for node in check(m.bytes()).model.graph.node]
    assert "Transpose" in found


def mix_rows(m: Build, x: Tensor) -> list[Tensor]:
    return [rearrange(m, x, (1, 2, 2, 4, 12), (0, 2, 1, 3, 4), 1, 4, 4, 12)]


def other_blocks(m: Build, x: Tensor) -> list[Tensor]:
    return [rearrange(m, x, (1, 4, 4, 2, 2, 3), (0, 3, 1, 2, 4, 5), 1, 8, 8, 3)]


def half_blocks(m: Build, x: Tensor) -> list[Tensor]:
    return [rearrange(m, x, (1, 4, 4, 2, 6), (0, 1, 3, 2, 4), 1, 8, 4, 6)]


@pytest.mark.parametrize("spelling", [mix_rows, other_blocks, half_blocks])
def test_moves_of_rows_and_of_other_blocks_stay(spelling: Spelling) -> None:
    graph = read_model(spell(spelling)).graphs[0]
    check_unchanged(fuse_rearrangements, graph)


def test_images_that_no_convolution_makes_stay() -> None:
    """An image that no convolution computes is stored with channels last."""
    graph = read_model(spell(shuffle, after=False)).graphs[0]
    check_unchanged(fuse_rearrangements, graph)


def test_channel_shuffles_of_large_images_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST", SIZE * SIZE * CHANNELS - 1)
    graph = read_model(spell(shuffle)).graphs[0]
    check_unchanged(fuse_rearrangements, graph)


def test_permutation_that_is_an_input_stays() -> None:
    m = Build()
    x = reshape(m, convolve(m, m.input([1, 4, 4, 5]), 12), 1, 4, 4, 3, 4)
    (turned,) = m.op("TRANSPOSE", [x, m.input([5], dtype="int32")], [[1, 4, 4, 4, 3]])
    m.output(reshape(m, turned, 1, 4, 4, 12))
    graph = read_model(m.bytes()).graphs[0]
    check_unchanged(fuse_rearrangements, graph)

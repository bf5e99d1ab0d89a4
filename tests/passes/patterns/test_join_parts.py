"""passes/patterns/join_parts.py: operators that undo each other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.support import Build, Tensor, check
from tests.support.graph_text import (
    assert_rewritten,
    check_pass,
    check_unchanged,
    eliminate_dead_after,
    make_model,
    parse_graph,
)
from tflite2onnx.passes.patterns.join_parts import drop_other_parts, join_parts
from tflite2onnx.reader.model import read_model

join = eliminate_dead_after(join_parts)


def unpack(m: Build, x: Tensor, axis: int = 1) -> list[Tensor]:
    shape = [*x.shape]
    count = shape.pop(axis)
    return m.op("UNPACK", [x], [shape] * count, axis=axis, num=count)


def pack(m: Build, parts: list[Tensor], axis: int = 1, **fields: Any) -> Tensor:
    shape = [*parts[0].shape]
    shape.insert(axis, len(parts))
    made = [m.tensor(shape, **fields)]
    return m.op("PACK", [*parts], made, axis=axis, values_count=len(parts))[0]


def split(m: Build, x: Tensor, sizes: list[int]) -> list[Tensor]:
    numbers = [m.constant(np.array(n, np.int32)) for n in (sizes, 1)]
    shapes = [[x.shape[0], size, *x.shape[2:]] for size in sizes]
    return m.op("SPLIT_V", [x, *numbers], shapes, num_splits=len(sizes))


def halve(m: Build, x: Tensor) -> list[Tensor]:
    shape = [x.shape[0], x.shape[1] // 2, *x.shape[2:]]
    return m.op("SPLIT", [m.constant(np.array(1, np.int32)), x], [shape] * 2, num_splits=2)


def concatenate(m: Build, parts: list[Tensor], axis: int = 1, **options: Any) -> Tensor:
    shape = [*parts[0].shape]
    shape[axis] = sum(part.shape[axis] for part in parts)
    return m.op("CONCATENATION", [*parts], [shape], axis=axis, **options)[0]


def finish(m: Build, *outputs: Tensor) -> bytes:
    m.output(*(m.op("NEG", [y], [[*y.shape]])[0] for y in outputs))
    return m.bytes()


def pack_unpacked(m: Build) -> bytes:
    return finish(m, pack(m, unpack(m, m.input([2, 3, 4]))))


def unpack_packed(m: Build) -> bytes:
    return finish(m, *unpack(m, pack(m, [m.input([2, 4]), m.input([2, 4])])))


def concatenate_split(m: Build) -> bytes:
    return finish(m, concatenate(m, split(m, m.input([2, 5]), [2, 3])))


def concatenate_halves(m: Build) -> bytes:
    return finish(m, concatenate(m, halve(m, m.input([2, 6])), -1))


def split_concatenated(m: Build) -> bytes:
    return finish(m, *split(m, concatenate(m, [m.input([2, 2]), m.input([2, 3])]), [2, 3]))


PAIRS = [pack_unpacked, unpack_packed, concatenate_split, concatenate_halves, split_concatenated]


def test_pack_of_unpacked_parts_becomes_a_reshape() -> None:
    before = """
        inputs %0: float32[2,3,4]
        %1: float32[2,4], %2: float32[2,4], %3: float32[2,4] = UNPACK(%0)
        %4: float32[2,3,4] = PACK(%1, %2, %3)
        %5: float32[2,3,4] = NEG(%4)
        return %5
    """
    after = """
        inputs %0: float32[2,3,4]
        %1: float32[2,3,4] = RESHAPE(%0)
        %2: float32[2,3,4] = NEG(%1)
        return %2
    """
    check_pass(join, read_model(pack_unpacked(Build())).graphs[0], before, after)


@pytest.mark.parametrize("pair", PAIRS)
def test_pairs_that_undo_each_other_vanish(pair: Any) -> None:
    result = check(pair(Build()))
    assert {node.op_type for node in result.model.graph.node} == {"Neg"}


def other_axis(m: Build) -> bytes:
    return finish(m, pack(m, unpack(m, m.input([2, 3, 4])), 0))


def other_sequence(m: Build) -> bytes:
    return finish(m, pack(m, unpack(m, m.input([2, 3, 4]))[::-1]))


def other_sizes(m: Build) -> bytes:
    return finish(m, *split(m, concatenate(m, [m.input([2, 2]), m.input([2, 3])]), [3, 2]))


def activation(m: Build) -> bytes:
    parts = split(m, m.input([2, 5]), [2, 3])
    return finish(m, concatenate(m, parts, fused_activation_function="RELU"))


def some_parts(m: Build) -> bytes:
    return finish(m, concatenate(m, split(m, m.input([2, 5]), [2, 3])[:1] * 2))


def other_parts(m: Build) -> bytes:
    return finish(m, concatenate(m, unpack(m, m.input([2, 3, 4]))))


def open_axis(m: Build) -> bytes:
    joined = concatenate(m, [m.input([2, 3]), m.input([2, 3])])
    axis = m.input([], dtype="int32")
    return finish(m, *m.op("SPLIT", [axis, joined], [[2, 3]] * 2, num_splits=2))


@pytest.mark.parametrize(
    "pair",
    [other_axis, other_sequence, other_sizes, activation, some_parts, other_parts, open_axis],
)
def test_pairs_that_do_not_undo_each_other_stay(pair: Any) -> None:
    graph = read_model(pair(Build())).graphs[0]
    check_unchanged(join_parts, graph)


@pytest.mark.parametrize("scale", [0.5, 0.25])
def test_parts_with_another_scale_stay(scale: float) -> None:
    """A part with another scale is requantized."""
    m = Build()
    x = m.input([2, 3, 4], dtype="int8", scale=0.5)
    parts = m.op(
        "UNPACK", [x], [m.tensor([2, 4], dtype="int8", scale=0.5) for _ in range(3)], axis=1, num=3
    )
    m.output(pack(m, parts, dtype="int8", scale=scale))
    graph = join(read_model(m.bytes()).graphs[0])
    assert [op.code for op in graph.ops] == (["RESHAPE"] if scale == 0.5 else ["UNPACK", "PACK"])


def test_only_the_part_that_a_slice_takes_is_computed() -> None:
    before = """
        inputs x: int8(0.5, 3)[1,1,4], z: int8(0.25, 3)[1,1,4]
        a: int8(0.3, 1)[1,1,4] = QUANTIZE(x)
        b: int8(0.3, 1)[1,1,4] = QUANTIZE(z)
        c: int8(0.3, 1)[2,1,4] = CONCATENATION(a, b, axis=0)
        d: int8(0.3, 1)[1,2,4] = RESHAPE(c, [1, 2, 4])
        y: int8(0.3, 1)[1,1,4] = SLICE(d, [0, 1, 0], [1, 1, 4])
        return y
    """
    after = """
        inputs x: int8(0.5, 3)[1,1,4], z: int8(0.25, 3)[1,1,4]
        b: int8(0.3, 1)[1,1,4] = QUANTIZE(z)
        y: int8(0.3, 1)[1,1,4] = RESHAPE(b)
        return y
    """
    assert_rewritten(drop_other_parts, before, after)
    check(make_model(before))


@pytest.mark.parametrize(
    "slice_",
    [
        "SLICE(c, [0, 0, 1], [2, 1, 2])",  # a part of each
        "SLICE(c, [0, 0, 0], [2, 1, 4])",  # all
        "STRIDED_SLICE(c, [1, 0, 0], [2, 1, 2], [1, 1, 1])",  # a part of one
    ],
)
def test_slice_of_other_elements_stays(slice_: str) -> None:
    shape = {"c, [0, 0, 1": "[2,1,2]", "c, [0, 0, 0": "[2,1,4]"}.get(slice_[6:17], "[1,1,2]")
    text = f"""
        inputs x: float32[1,1,4], z: float32[1,1,4]
        c: float32[2,1,4] = CONCATENATION(x, z, axis=0)
        y: float32{shape} = {slice_}
        return y
    """
    check_unchanged(drop_other_parts, parse_graph(text))


def test_slice_along_an_inner_axis_stays() -> None:
    """The elements of a part are not one after another."""
    text = """
        inputs x: float32[2,1,4], z: float32[2,1,4]
        c: float32[2,2,4] = CONCATENATION(x, z, axis=1)
        y: float32[2,1,4] = SLICE(c, [0, 1, 0], [2, 1, 4])
        return y
    """
    check_unchanged(drop_other_parts, parse_graph(text))

"""Repeated pixels and times become RESIZE_NEAREST_NEIGHBOR; see fuse_rearrangements.py."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.passes.patterns.one_type import OneType
from tests.support import Tensor, check
from tests.support.graph_text import check_pass, check_unchanged, eliminate_dead_after
from tflite2onnx.passes.patterns.fuse_rearrangements import fuse_rearrangements
from tflite2onnx.reader.model import read_model

HEIGHT, WIDTH, CHANNELS = 3, 5, 4


class Repeats(OneType):
    """Tensors that are repeated before a convolution."""

    def __init__(self, dtype: str = "float32", code: str = "TILE") -> None:
        super().__init__(dtype)
        self.code = code

    def image(self) -> Tensor:
        return self.input([2, HEIGHT, WIDTH, CHANNELS], **self.fields)

    def sequence(self) -> Tensor:
        return self.input([2, WIDTH, CHANNELS], **self.fields)

    def repeat(self, x: Tensor, axis: int, times: int) -> Tensor:
        """Repeat each element of an axis."""
        shape = [*x.shape]
        x = self.reshape(x, [*shape[: axis + 1], 1, *shape[axis + 1 :]])
        wide = [*shape[: axis + 1], times, *shape[axis + 1 :]]
        multiples = [times if i == axis + 1 else 1 for i in range(len(wide))]
        given = multiples if self.code == "TILE" else wide
        y = self.apply(self.code, [x, self.integers(given)], wide)
        return self.reshape(y, [*shape[:axis], shape[axis] * times, *shape[axis + 1 :]])

    def upsample(self, x: Tensor, rows: int, columns: int) -> Tensor:
        """Repeat rows and columns, as Keras does: one RESHAPE between both."""
        n, h, w, c = x.shape
        x = self.tile(self.reshape(x, [n, h, 1, w, c]), 2, rows)
        x = self.tile(self.reshape(x, [n, h * rows, w, 1, c]), 3, columns)
        return self.reshape(x, [n, h * rows, w * columns, c])

    def tile(self, x: Tensor, axis: int, times: int) -> Tensor:
        multiples = [times if i == axis else 1 for i in range(len(x.shape))]
        shape = [a * b for a, b in zip(x.shape, multiples, strict=True)]
        return self.apply("TILE", [x, self.integers(multiples)], shape)

    def convolve(self, x: Tensor) -> None:
        """Add a convolution, whose result is the output of the model."""
        shape = [*x.shape] if len(x.shape) == 4 else [x.shape[0], 1, *x.shape[1:]]
        x = x if len(x.shape) == 4 else self.reshape(x, shape)
        if self.fields["dtype"] == "float32":
            w = self.constant(np.ones((2, 1, 1, shape[-1]), np.float32))
            b = self.constant(np.zeros(2, np.float32))
        else:
            w = self.constant(np.full((2, 1, 1, shape[-1]), 60, np.int8), scale=0.02)
            b = self.constant(np.zeros(2, np.int32), scale=0.001)
        self.output(
            self.apply(
                "CONV_2D", [x, w, b], [*shape[:-1], 2], stride_h=1, stride_w=1, padding="VALID",
                dilation_h_factor=1, dilation_w_factor=1,
            )
        )  # fmt: skip


def list_nodes(data: bytes) -> set[str]:
    result = check(data, seeds=[0], steps=1)
    return {node.op_type for node in result.model.graph.node}


def test_repeated_rows_and_columns_become_one_resize() -> None:
    m = Repeats()
    m.convolve(m.upsample(m.image(), 2, 3))
    before = """
        inputs %0: float32[2,3,5,4]
        %1: float32[2,3,1,5,4] = RESHAPE(%0, [2, 3, 1, 5, 4])
        %2: float32[2,3,2,5,4] = TILE(%1, [1, 1, 2, 1, 1])
        %3: float32[2,6,5,1,4] = RESHAPE(%2, [2, 6, 5, 1, 4])
        %4: float32[2,6,5,3,4] = TILE(%3, [1, 1, 1, 3, 1])
        %5: float32[2,6,15,4] = RESHAPE(%4, [2, 6, 15, 4])
        %6: float32[2,6,15,2] = CONV_2D(%5, [[[[1.0, 1.0, 1.0, 1.0]]], [[[1.0, 1.0, 1.0, 1.0]]]], [0.0, 0.0])
        return %6
    """  # noqa: E501 - one operator is one line
    after = """
        inputs %0: float32[2,3,5,4]
        %1: float32[2,6,15,4] = RESIZE_NEAREST_NEIGHBOR(%0, [6, 15])
        %2: float32[2,6,15,2] = CONV_2D(%1, [[[[1.0, 1.0, 1.0, 1.0]]], [[[1.0, 1.0, 1.0, 1.0]]]], [0.0, 0.0])
        return %2
    """  # noqa: E501
    check_pass(
        eliminate_dead_after(fuse_rearrangements), read_model(m.bytes()).graphs[0], before, after
    )


@pytest.mark.parametrize("dtype", ["float32", "int8"])
@pytest.mark.parametrize("code", ["TILE", "BROADCAST_TO"])
@pytest.mark.parametrize("axis", [1, 2])
def test_repeats_along_one_axis_are_fused(axis: int, code: str, dtype: str) -> None:
    m = Repeats(dtype, code)
    m.convolve(m.repeat(m.image(), axis, 3))
    assert not {"Tile", "Expand"} & list_nodes(m.bytes())


@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_repeated_sequences_become_resize(dtype: str) -> None:
    m = Repeats(dtype)
    m.convolve(m.repeat(m.sequence(), 1, 2))
    found = list_nodes(m.bytes())
    assert ("Resize" if dtype == "float32" else "Concat") in found  # bytes are copied whole
    assert "Tile" not in found


def test_repeats_before_other_operators_are_fused() -> None:
    """The result is joined with another image before the convolution."""
    m = Repeats()
    x = m.upsample(m.image(), 2, 2)
    y = m.input([*x.shape])
    both = m.apply("CONCATENATION", [x, y], [*x.shape[:-1], 2 * CHANNELS], axis=3)
    m.convolve(m.apply("RELU", [both], [*both.shape]))
    assert "Tile" not in list_nodes(m.bytes())


def repeat_heads(m: Repeats) -> None:
    """No convolution reads the result: heads of attention are repeated too."""
    m.output(m.repeat(m.image(), 1, 2))


def repeat_channels(m: Repeats) -> None:
    """Channels are no pixels."""
    m.convolve(m.repeat(m.image(), 3, 2))


def repeat_image(m: Repeats) -> None:
    """The whole axis is repeated, not each element."""
    x = m.image()
    y = m.tile(m.reshape(x, [2, 1, HEIGHT, WIDTH, CHANNELS]), 1, 2)
    m.convolve(m.reshape(y, [2, 2 * HEIGHT, WIDTH, CHANNELS]))


def read_repeated(m: Repeats) -> None:
    """Another operator reads a tensor between the operators."""
    x = m.tile(m.reshape(m.image(), [2, HEIGHT, 1, WIDTH, CHANNELS]), 2, 2)
    m.output(x)
    m.convolve(m.reshape(x, [2, 2 * HEIGHT, WIDTH, CHANNELS]))


@pytest.mark.parametrize("build", [repeat_heads, repeat_channels, repeat_image, read_repeated])
def test_repeats_of_heads_channels_or_inputs_stay(build: Callable[[Repeats], None]) -> None:
    m = Repeats()
    build(m)
    check_unchanged(fuse_rearrangements, read_model(m.bytes()).graphs[0])
    check(m.bytes(), seeds=[0])


def test_large_repeats_equal_litert() -> None:
    """The kernel rounds 1 / 41 down, and would take pixel 0 for 1."""
    m = Repeats()
    m.convolve(m.repeat(m.image(), 1, 41))
    check(m.bytes(), seeds=[0])


@pytest.mark.parametrize("axis", [0, 1])
def test_batch_may_be_dynamic_but_height_may_not(axis: int) -> None:
    """The batch may be dynamic, and Resize then has scales; the height may not."""
    m = Repeats()
    shape = [2, HEIGHT, WIDTH, CHANNELS]
    signature = [-1 if i == axis else size for i, size in enumerate(shape)]
    x = m.input(shape, shape_signature=signature)
    (y,) = m.op("EXPAND_DIMS", [x, m.integers(2)], [[*shape[:2], 1, *shape[2:]]])
    y = m.tile(y, 2, 2)
    wide = [2, 2 * HEIGHT, WIDTH, CHANNELS]
    new_shape = [-1 if i == axis else size for i, size in enumerate(wide)]
    m.convolve(m.apply("RESHAPE", [y, m.integers(new_shape)], wide, new_shape=new_shape))
    assert ("Tile" in list_nodes(m.bytes())) == (axis == 1)
    assert "Shape" not in list_nodes(m.bytes())

"""RESHAPE moves away from convolutions of sequences; see compute_images.py."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from tests.passes.patterns.one_type import OneType
from tests.support import Tensor, check
from tests.support.graph_text import check_pass, check_unchanged
from tflite2onnx.passes.patterns.convolutions.compute_images import compute_images
from tflite2onnx.reader.model import read_model

ROW, COLUMN = 1, 2  # the axis of size 1 of an image
TIMES, CHANNELS, FILTERS = 12, 3, 4


class Sequences(OneType):
    """Convolutions of sequences [1, T, C] as images."""

    def __init__(self, axis: int, dtype: str = "float32") -> None:
        super().__init__(dtype)
        self.axis, self.random = axis, np.random.default_rng(0)  # equal filters would be merged

    def pad(self, x: Tensor, first: int, last: int) -> Tensor:
        shape = [1, x.shape[1] + first + last, x.shape[2]]
        return self.apply("PAD", [x, self.integers([[0, 0], [first, last], [0, 0]])], shape)

    def spread(self, x: Tensor, block: int) -> Tensor:
        edges = self.integers([[0, -x.shape[1] % block]])
        shape = [block, -(-x.shape[1] // block), x.shape[2]]
        return self.apply("SPACE_TO_BATCH_ND", [x, self.integers([block]), edges], shape)

    def join(self, x: Tensor, crop: int = 0) -> Tensor:
        shape = [1, x.shape[0] * x.shape[1] - crop, x.shape[2]]
        inputs = [x, self.integers([x.shape[0]]), self.integers([[0, crop]])]
        return self.apply("BATCH_TO_SPACE_ND", inputs, shape)

    def image(self, x: Tensor) -> Tensor:
        shape = [*x.shape[: self.axis], 1, *x.shape[self.axis :]]
        return self.reshape(x, shape)

    def sequence(self, x: Tensor) -> Tensor:
        shape = [size for i, size in enumerate(x.shape) if i != self.axis]
        return self.reshape(x, shape)

    def convolve(self, x: Tensor, length: int, filters: int = FILTERS) -> Tensor:
        window = [1, length] if self.axis == ROW else [length, 1]
        weights = self.random.standard_normal((filters, *window, x.shape[-1]))
        if self.fields["dtype"] == "float32":
            w = self.constant(weights.astype(np.float32))
            bias = self.constant(np.zeros(filters, np.float32))
        else:
            w = self.constant((weights * 40).clip(-127, 127).astype(np.int8), scale=0.02)
            bias = self.constant(np.arange(filters, dtype=np.int32), scale=0.001)
        sizes = [n - k + 1 for n, k in zip(x.shape[1:3], window, strict=True)]
        return self.apply(
            "CONV_2D", [x, w, bias], [x.shape[0], *sizes, filters], stride_h=1, stride_w=1,
            padding="VALID", dilation_h_factor=1, dilation_w_factor=1,
        )  # fmt: skip

    def gate(self, x: Tensor, block: int, filters: int) -> Tensor:
        """Return tanh(a) * sigmoid(b) of two dilated convolutions with biases: a WaveNet's gate."""
        parts = self.image(self.spread(self.pad(x, 2 * block, 0), block))
        crop = -(x.shape[1] + 2 * block) % block
        branches = []
        for code in ("TANH", "LOGISTIC"):
            y = self.join(self.sequence(self.convolve(parts, 3, filters)), crop)
            bias = self.constant(np.linspace(0, 1, filters, dtype=np.float32))
            y = self.apply("ADD", [y, bias], [*y.shape], fused_activation_function="NONE")
            branches.append(self.apply(code, [y], [*y.shape]))
        return self.apply("MUL", branches, [*y.shape], fused_activation_function="NONE")


def spell_layers(axis: int, times: int, channels: int, blocks: Sequence[int]) -> bytes:
    """Return layers of a WaveNet."""
    m = Sequences(axis)
    x = m.input([1, times, channels])
    for block in blocks:
        y = m.sequence(m.convolve(m.image(m.gate(x, block, channels)), 1, channels))
        x = m.apply("ADD", [x, y], [*x.shape], fused_activation_function="NONE")
    m.output(x)
    return m.bytes()


def list_nodes(data: bytes, **options: Any) -> list[str]:
    result = check(data, seeds=[0], **options)
    return [node.op_type for node in result.model.graph.node]


def test_reshapes_move_to_the_ends() -> None:
    m = Sequences(ROW)
    x = m.spread(m.pad(m.input([1, TIMES, CHANNELS]), 4, 0), 2)
    m.output(m.apply("TANH", [m.join(m.sequence(m.convolve(m.image(x), 3)))], [1, 12, FILTERS]))
    before = """
        inputs %0: float32[1,12,3]
        %1: float32[1,16,3] = PAD(%0, [[0, 0], [4, 0], [0, 0]])
        %2: float32[2,8,3] = SPACE_TO_BATCH_ND(%1, [2], [[0, 0]])
        %3: float32[2,1,8,3] = RESHAPE(%2, [2, 1, 8, 3])
        %4: float32[2,1,6,4] = CONV_2D(%3, float32[4,1,3,3], [0.0, 0.0, 0.0, 0.0])
        %5: float32[2,6,4] = RESHAPE(%4, [2, 6, 4])
        %6: float32[1,12,4] = BATCH_TO_SPACE_ND(%5, [2], [[0, 0]])
        %7: float32[1,12,4] = TANH(%6)
        return %7
    """
    after = """
        inputs %0: float32[1,12,3]
        %1: float32[1,1,12,3] = RESHAPE(%0)
        %2: float32[1,1,16,3] = PAD(%1, [[0, 0], [0, 0], [4, 0], [0, 0]])
        %3: float32[2,1,8,3] = SPACE_TO_BATCH_ND(%2, [1, 2], [[0, 0], [0, 0]])
        %4: float32[2,1,6,4] = CONV_2D(%3, float32[4,1,3,3], [0.0, 0.0, 0.0, 0.0])
        %5: float32[1,1,12,4] = BATCH_TO_SPACE_ND(%4, [1, 2], [[0, 0], [0, 0]])
        %6: float32[1,1,12,4] = TANH(%5)
        %7: float32[1,12,4] = RESHAPE(%6)
        return %7
    """
    check_pass(compute_images, read_model(m.bytes()).graphs[0], before, after)


@pytest.mark.parametrize("axis", [ROW, COLUMN])
@pytest.mark.parametrize("block", [2, 3, 5])
def test_layers_become_convolutions_and_elementwise_nodes(axis: int, block: int) -> None:
    """The nodes of a layer are convolutions, activations, a product and a sum."""
    found = list_nodes(spell_layers(axis, TIMES, CHANNELS, [block, 1]))
    assert sorted({*found} - {"Reshape"}) == ["Add", "Conv", "Mul", "Sigmoid", "Tanh"]
    assert (found.count("Conv"), found.count("Reshape")) == (6, 2)


@pytest.mark.parametrize("axis", [ROW, COLUMN])
@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_pad_becomes_padding_of_the_convolution(axis: int, dtype: str) -> None:
    """Causal padding becomes padding of the convolution, for floats and integers."""
    m = Sequences(axis, dtype)
    x = m.pad(m.input([1, TIMES, CHANNELS], **m.fields), 2, 1)
    m.output(m.sequence(m.convolve(m.image(x), 3)))
    assert "Pad" not in list_nodes(m.bytes(), steps=1)


def read_padded(m: Sequences) -> None:
    """Another operator reads the padded sequence."""
    x = m.pad(m.input([1, TIMES, CHANNELS]), 2, 0)
    m.output(x, m.sequence(m.convolve(m.image(x), 3)))


def read_image(m: Sequences) -> None:
    """Another operator reads the image."""
    x = m.image(m.pad(m.input([1, TIMES, CHANNELS]), 2, 0))
    m.output(x, m.convolve(x, 3))


def fold_times(m: Sequences) -> None:
    """RESHAPE does not only add an axis of size 1."""
    x, shape = m.pad(m.input([1, TIMES, CHANNELS]), 2, 2), [1, 4, 4, CHANNELS]
    m.output(m.convolve(m.reshape(x, shape), 1))


def read_sequences(m: Sequences) -> None:
    """One operand is no image, or a constant for each time."""
    y = m.sequence(m.convolve(m.image(m.input([1, TIMES, CHANNELS])), 1))
    m.output(m.apply("ADD", [y, m.input([1, TIMES, FILTERS])], [*y.shape]))
    each = m.constant(np.ones((TIMES, FILTERS), np.float32))
    m.output(m.apply("MUL", [y, each], [*y.shape]))


def quantize_data(m: Sequences) -> None:
    """The convolution quantizes float data by the image: it cannot be dilated."""
    x = m.image(m.spread(m.input([1, TIMES, CHANNELS]), 2))
    w = m.constant(np.ones((FILTERS, 1, 3, CHANNELS), np.int8), scale=[0.5] * FILTERS, axis=0)
    b = m.constant(np.zeros(FILTERS, np.float32))
    y = m.apply(
        "CONV_2D", [x, w, b], [2, 1, 4, FILTERS], stride_h=1, stride_w=1, padding="VALID",
        dilation_h_factor=1, dilation_w_factor=1,
    )  # fmt: skip
    m.output(m.join(m.sequence(y)))


def pad_by_input(m: Sequences) -> None:
    """The paddings are no constant."""
    x = m.input([1, TIMES, CHANNELS])
    y = m.apply("PAD", [x, m.input([3, 2], dtype="int32")], [1, TIMES, CHANNELS])
    m.output(m.convolve(m.image(y), 3))


@pytest.mark.parametrize(
    "build", [read_padded, read_image, fold_times, read_sequences, quantize_data, pad_by_input]
)
def test_reshapes_of_graphs_without_sequences_stay(build: Callable[[Sequences], None]) -> None:
    m = Sequences(ROW)
    build(m)
    check_unchanged(compute_images, read_model(m.bytes()).graphs[0])


def test_pad_of_a_dynamic_axis_stays() -> None:
    """The axis of times is dynamic: PAD stays."""
    m = Sequences(ROW)
    x = m.pad(m.input([1, TIMES, CHANNELS], shape_signature=[1, -1, CHANNELS]), 2, 0)
    (image,) = m.op("EXPAND_DIMS", [x, m.integers(1)], [[1, 1, TIMES + 2, CHANNELS]])
    m.output(m.convolve(image, 3))
    assert "Pad" in list_nodes(m.bytes())

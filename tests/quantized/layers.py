"""Layers with weights, in every quantization that a kernel supports.

The exact output is known: accumulators are integers, and the output is rounded once. LiteRT's own
kernels multiply by a fixed-point number, and round twice.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from tests.support import Build, run_tflite
from tests.support.facts import carrier

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tests.support import Tensor

Array = np.ndarray[Any, Any]

LIMITS = {
    "int2": (-2, 1),
    "int4": (-8, 7),
    "int8": (-128, 127),
    "uint8": (0, 255),
    "int16": (-32768, 32767),
}


BOUNDS: dict[str, tuple[float, float]] = {
    "NONE": (-np.inf, np.inf),
    "RELU": (0, np.inf),
    "RELU6": (0, 6),
    "RELU_N1_TO_1": (-1, 1),
}


@dataclass(frozen=True)
class Scheme:
    """The quantization of data, weights, biases and output.

    `zeros` are the zero points of data, weights and output. With `exact` the scales are powers of
    two and the weights are few, so that sums of products are exact in float32 and exact halves are
    frequent. `y_scale` is the output scale; by default the largest sums saturate.
    """

    x: str
    w: str
    y: str
    bias: str | None
    zeros: tuple[int, int, int] = (0, 0, 0)
    per_channel: bool = False
    exact: bool = False
    y_scale: float | None = None

    @property
    def narrow(self) -> tuple[int, int]:
        """The range of the weights: small if exact; without the least integer for int8."""
        low, high = LIMITS[self.w]
        if self.exact:
            return max(low, self.zeros[1] - 3), min(high, self.zeros[1] + 3)
        return (low + 1 if self.w == "int8" else low), high


@dataclass(frozen=True)
class Shape:
    """The operands of a layer; `channel` is the axis of the weights that has the scales."""

    code: str
    x: Sequence[int]
    w: Sequence[int]
    y: Sequence[int]
    channel: int = 0
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Layer:
    """One operator with constant weights and biases, and random inputs."""

    shape: Shape
    scheme: Scheme
    activation: str = "NONE"
    seed: int = 0
    given: tuple[int, ...] = ()  # biases, if they are not random

    @cached_property
    def weights(self) -> Array:
        """The stored integers of the weights."""
        low, high = self.scheme.narrow
        kind = carrier(self.scheme.w)
        return self._random(0).integers(low, high, self.shape.w, kind, endpoint=True)

    @cached_property
    def biases(self) -> Array | None:
        """The stored integers of the biases, about as large as the sums of products."""
        if self.scheme.bias is None:
            return None
        if self.given:
            return np.array(self.given, carrier(self.scheme.bias))
        size = int(np.abs(self._products(self.inputs[0])).max())
        low, high = -min(size, 2**31 - 1), min(size, 2**31 - 1)
        return self._random(1).integers(low, high, self.channels, carrier(self.scheme.bias))

    @property
    def channels(self) -> int:
        """The number of output channels."""
        return self.shape.w[self.shape.channel]

    @cached_property
    def inputs(self) -> list[Array]:
        """Random integers; the smallest everywhere; and the largest everywhere: these saturate."""
        low, high = LIMITS[self.scheme.x]
        kind = carrier(self.scheme.x)
        random = self._random(2).integers(low, high, self.shape.x, kind, endpoint=True)
        return [random, *(np.full(self.shape.x, extreme, kind) for extreme in (low, high))]

    @cached_property
    def scales(self) -> tuple[np.float32, Array, np.float32]:
        """The scales of data, weights and output."""
        generator = self._random(3)
        x = np.float32(generator.uniform(0.01, 0.1))
        size = self.channels if self.scheme.per_channel else 1
        w = generator.uniform(0.002, 0.02, size).astype(np.float32)
        low, high = LIMITS[self.scheme.y]
        sums = self.accumulators(self.inputs[0]).reshape(-1, self.channels)
        largest = np.abs(sums * w.astype(np.float64)).max() * np.float64(x)
        y = np.float32(self.scheme.y_scale or largest / (high - low))
        if self.scheme.exact:
            x, y = (np.float32(2.0 ** np.round(np.log2(scale))) for scale in (x, y))
            w = 2.0 ** np.round(np.log2(w))
        return x, w, y

    def accumulators(self, x: Array) -> Array:
        """Return the sums of products of integers, including the biases."""
        products = self._products(x)
        return products if self.biases is None else products + self.biases.astype(np.int64)

    def real_output(self, x: Array) -> Array:
        """Return the output in steps, clamped, before it is rounded."""
        low, high = LIMITS[self.scheme.y]
        steps: Array = np.clip(self._steps(x) + self.scheme.zeros[2], low, high)
        return steps

    def rounded_output(self, x: Array) -> Array:
        """Return the output rounded once, halves to even, and then shifted by the zero point."""
        low, high = LIMITS[self.scheme.y]
        steps: Array = np.clip(np.round(self._steps(x)) + self.scheme.zeros[2], low, high)
        return steps

    def _steps(self, x: Array) -> Array:
        scale_x, scale_w, scale_y = (np.float64(s) for s in self.scales)
        steps: Array = self.accumulators(x) * (scale_x * scale_w / scale_y)
        low, high = (_round_half_away(b / scale_y) for b in BOUNDS[self.activation])
        clamped: Array = np.clip(steps, low, high)
        return clamped

    def model(self) -> bytes:
        """Return the TFLite file."""
        m, (scale_x, scale_w, scale_y) = Build(), self.scales
        zero_x, zero_w, zero_y = self.scheme.zeros
        x = m.input(self.shape.x, dtype=self.scheme.x, scale=scale_x, zero_point=zero_x)
        w = m.constant(
            self.weights,
            dtype=self.scheme.w,
            scale=scale_w,
            zero_point=zero_w,
            axis=self.shape.channel,
        )
        b = None if self.biases is None else m.constant(self.biases, scale=scale_x * scale_w)
        y = m.tensor(self.shape.y, dtype=self.scheme.y, scale=scale_y, zero_point=zero_y)
        options = {"fused_activation_function": self.activation, **self.shape.options}
        if self.scheme.x == "int16" and self.scheme.bias == "int32":
            options["quantized_bias_type"] = "INT32"
        m.output(*m.op(self.shape.code, self._operands(m, x, w, b), [y], **options))
        return m.bytes()

    def _products(self, x: Array) -> Array:
        """Return exact sums of products, computed by LiteRT in float32 from bytes."""
        data = _parts(x.astype(np.int64) - self.scheme.zeros[0])
        weights = _parts(self.weights.astype(np.int64) - self.scheme.zeros[1])
        sums = np.zeros(self.shape.y, np.int64)
        for (counts, part), (times, w) in product(data, weights):
            sums += counts * times * self._exact(part, w)
        return sums

    def _exact(self, x: Array, weights: Array) -> Array:
        m = Build()
        zeros = m.constant(np.zeros(self.channels, np.float32))
        operands = self._operands(m, m.input(self.shape.x), m.constant(weights), zeros)
        m.output(*m.op(self.shape.code, operands, [self.shape.y], **self.shape.options))
        (sums,) = run_tflite(m.bytes(), [x])
        assert np.abs(sums).max() < 2**24
        return sums.astype(np.int64)

    def _operands(self, m: Build, x: Tensor, w: Tensor, b: Tensor | None) -> list[Tensor | None]:
        if self.shape.code != "TRANSPOSE_CONV":
            return [x, w, b]
        shape = m.constant(np.array(self.shape.y, np.int32))
        return [shape, w, x] if b is None else [shape, w, x, b]

    def _random(self, part: int) -> np.random.Generator:
        return np.random.default_rng([self.seed, part])


def _parts(integers: Array) -> list[tuple[int, Array]]:
    """Return the low and high bytes of integers with their factors; small integers in one part."""
    if np.abs(integers).max() < 2**9:
        return [(1, integers.astype(np.float32))]
    low, high = integers & 255, integers >> 8
    return [(1, low.astype(np.float32)), (256, high.astype(np.float32))]


def _round_half_away(number: float) -> float:
    """Round half away from zero, as the kernels round the bounds of activations."""
    return float(np.copysign(np.floor(np.abs(number) + 0.5), number))

"""PyTorch's recurrent layers in the form of litert-torch: unrolled, after a product of all items.

The whole sequence is multiplied by the weights first. Items are slices of this product, states have
an axis of size 1 more, and the first step begins at states of 0, whose products are folded.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tests.support import Build

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.support import Tensor
    from tflite2onnx.tensor import Array

TIMES, FEATURES, UNITS = 4, 5, 7
GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}


@dataclass(frozen=True)
class Torch:
    """The arguments of a layer. `changed` is a step whose recurrent weights differ, from 0 on."""

    kind: str
    batch: int | None = 1  # None: the file declares it dynamic, and its zeros are computed
    times: int = TIMES
    batch_first: bool = True
    bias: bool = True
    layers: int = 1
    directions: int = 1
    states: bool = False  # the first states are inputs
    returned: bool = False  # the last states are outputs
    function: str = "TANH"  # of an RNN
    # int8 or int4: dynamic range, with weights of their own in each step; dequantized: int8 weights
    # that one DEQUANTIZE reads, so that LiteRT multiplies floats; shifted: with zero points, too
    weights: str = "float32"
    changed: int = -1
    projected: int = 0  # the numbers of a state h of an LSTM, if it is projected

    def model(self) -> Build:
        """Return (sequence, states) -> (sequence, states)."""
        writer = _Writer(self)
        writer.write()
        return writer.m


class _Writer:
    def __init__(self, form: Torch) -> None:
        self.form, self.m = form, Build()
        self._generator = np.random.default_rng(0)
        self._count = GATES[form.kind] * UNITS
        self._dequantized: dict[bytes, Tensor] = {}

    def write(self) -> None:
        form, m = self.form, self.m
        batch, times = form.batch, form.times
        shape = [batch, times, FEATURES] if form.batch_first else [times, batch, FEATURES]
        x = m.input(shape, name="x")
        ends: list[Tensor] = []
        first = form.batch_first
        for _ in range(form.layers):
            features = x.shape[-1]
            if first and batch != 1:
                (x,) = m.op("TRANSPOSE", [x, m.constant([1, 0, 2])], [[times, batch, features]])
            made = [self._run_layer(x, backward=i > 0) for i in range(form.directions)]
            ends += [state for _, states in made for state in states]
            x = made[0][0]
            if len(made) > 1:
                joined = [times, batch, form.directions * UNITS]
                (x,) = m.op("CONCATENATION", [each for each, _ in made], [joined], axis=2)
            first = False
        if form.batch_first:
            turned = [batch, times, x.shape[-1]]
            (x,) = m.op("TRANSPOSE", [x, m.constant([1, 0, 2])], [turned])
        m.output(x, *(ends if form.returned else ()))

    def _run_layer(self, x: Tensor, *, backward: bool) -> tuple[Tensor, list[Tensor]]:
        """Return the states after each step of a direction, and the last states."""
        m, form, n = self.m, self.form, self._count
        w, r = (self._draw(n, k) for k in (x.shape[-1], form.projected or UNITS))
        p = self._draw(form.projected, UNITS)
        b, c = (self._draw(n) if form.bias else np.zeros(n, np.float32) for _ in range(2))
        whole = self._multiply(x, w, b, [*x.shape[:-1], n])
        batch, times = form.batch, form.times
        if x.shape[0] != times:
            sizes = m.constant([times, batch or -1, n])
            (whole,) = m.op("RESHAPE", [whole, sizes], [[times, batch, n]])
        if backward:
            (whole,) = m.op("REVERSE_V2", [whole, m.constant([0])], [[times, batch, n]])
        count = 2 if form.kind == "LSTM" else 1
        states = [m.input([1, batch, UNITS]) for _ in range(count if form.states else 0)]
        if batch is None and not states:
            states = [self._make_zeros(x)] * count
        every: list[Tensor] = []
        for time in range(times):
            begin, size = m.constant([time, 0, 0]), m.constant([1, batch or -1, n])
            (item,) = m.op("SLICE", [whole, begin, size], [[1, batch, n]])
            product: Tensor | Array = c
            if states:
                changed = -r if time == form.changed else r
                product = self._multiply(self._project(states[0], p), changed, c, [1, batch, n])
            states = getattr(self, f"_step_{form.kind.lower()}")(item, product, states)
            every.append(states[0])
        joined = every[::-1] if backward else every
        (y,) = m.op("CONCATENATION", joined, [[times, batch, UNITS]], axis=0)
        return self._project(y, p), states

    def _make_zeros(self, x: Tensor) -> Tensor:
        """Return the first states of a batch that the file declares dynamic; x is [time, batch]."""
        m = self.m
        (sizes,) = m.op("SHAPE", [x], [m.tensor([3], dtype="int32")], out_type="int32")
        bounds = [m.constant([i]) for i in (1, 2, 1)]
        (batch,) = m.op("STRIDED_SLICE", [sizes, *bounds], [[]], shrink_axis_mask=1)
        lengths = [m.constant(np.int32(1)), batch, m.constant(np.int32(UNITS))]
        (shape,) = m.op("PACK", lengths, [[3]], values_count=3)
        zero = m.constant(np.zeros((), np.float32))
        return m.op("BROADCAST_TO", [zero, shape], [[1, None, UNITS]])[0]

    def _project(self, h: Tensor, p: Array) -> Tensor:
        if not p.size:
            return h
        inputs, shape = [h, self.m.constant(p), None], [*h.shape[:-1], len(p)]
        return self.m.op("FULLY_CONNECTED", inputs, [shape], keep_num_dims=True)[0]

    def _draw(self, *shape: int) -> Array:
        return self._generator.uniform(-0.5, 0.5, shape).astype(np.float32)

    def _multiply(self, x: Tensor, w: Array, b: Array, shape: Sequence[int | None]) -> Tensor:
        m, bias = self.m, self.m.constant(b) if self.form.bias else None
        weights = m.constant(w)
        if self.form.weights != "float32":
            dtype = "int4" if self.form.weights == "int4" else "int8"
            zero = 7 if self.form.weights == "shifted" else 0
            scale = np.abs(w).max(axis=1) / (7 if dtype == "int4" else 127)
            integers = np.round(w / scale[:, None]).astype(np.int8)
            weights = m.constant(
                integers, dtype=dtype, scale=[*scale.tolist()], zero_point=[zero] * len(w)
            )
        if self.form.weights in ("dequantized", "shifted"):
            (made,) = m.op("DEQUANTIZE", [weights], [w.shape], dtype="float32")
            weights = self._dequantized.setdefault(w.tobytes(), made)
        return m.op("FULLY_CONNECTED", [x, weights, bias], [shape], keep_num_dims=True)[0]

    def _apply(self, code: str, *inputs: Tensor | Array) -> Tensor:
        operands = [self.m.constant(x) if isinstance(x, np.ndarray) else x for x in inputs]
        (y,) = self.m.op(code, operands, [[1, self.form.batch, UNITS]])
        return y

    def _split(self, x: Tensor | Array) -> list[Tensor | Array]:
        """Return the columns of the gates; those of a folded product are constants of all rows."""
        m, batch, gates = self.m, self.form.batch, GATES[self.form.kind]
        if isinstance(x, np.ndarray):
            return [np.tile(part, (1, batch or 1, 1)) for part in np.split(x, gates)]
        size = m.constant([1, batch or -1, UNITS])
        starts = [m.constant([0, 0, i * UNITS]) for i in range(gates)]
        return [m.op("SLICE", [x, start, size], [[1, batch, UNITS]])[0] for start in starts]

    def _step_rnn(self, x: Tensor, h: Tensor | Array, _: list[Tensor]) -> list[Tensor]:
        part = np.tile(h, (1, self.form.batch or 1, 1)) if isinstance(h, np.ndarray) else h
        return [self._apply(self.form.function, self._apply("ADD", x, part))]

    def _step_gru(self, x: Tensor, h: Tensor | Array, states: list[Tensor]) -> list[Tensor]:
        pairs = zip(self._split(x), self._split(h), strict=True)
        (xr, hr), (xz, hz), (xn, hn) = pairs
        r, z = (self._apply("LOGISTIC", self._apply("ADD", *pair)) for pair in ((hr, xr), (hz, xz)))
        folded = isinstance(hn, np.ndarray) and not hn.any()
        n = self._apply("TANH", self._apply("ADD", xn, hn if folded else self._apply("MUL", r, hn)))
        before = states[0] if states else np.zeros((), np.float32)
        scaled = self._apply("MUL", self._apply("SUB", before, n), z)
        return [self._apply("ADD", scaled, n)]

    def _step_lstm(self, x: Tensor, h: Tensor | Array, states: list[Tensor]) -> list[Tensor]:
        part = np.tile(h, (1, self.form.batch or 1, 1)) if isinstance(h, np.ndarray) else h
        operands = [
            self.m.constant(each) if isinstance(each, np.ndarray) else each for each in (x, part)
        ]
        (total,) = self.m.op("ADD", operands, [x.shape])
        i, f, g, o = self._split(total)
        i, f, o = (self._apply("LOGISTIC", each) for each in (i, f, o))
        c = self._apply("MUL", i, self._apply("TANH", g))
        if states:
            c = self._apply("ADD", self._apply("MUL", f, states[1]), c)
        return [self._apply("MUL", o, self._apply("TANH", c)), c]

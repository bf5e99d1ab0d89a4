"""The cell of an LSTM: its gates, and a step from one state to the next (lstm_eval.cc).

    i, f, o = sigmoid(x W + h R + c P + b), each with parameters of its own
    c' = clip(f * c + i * activation(x W + h R + b))
    h' = clip(projection(o * activation(c')))

where the peephole P of o looks at c'. Layer normalization comes before b is added. If input and
forget gate are coupled (CIFG) there are no parameters for i, which is 1 - f.

An integer kernel stores sums, gates and states as integers; `Grids` says in which scales.

The kernels write states in place. If h and c are one variable, the float kernel multiplies the
recurrent weights of o by c' in place of h (the hybrid kernel has quantized h before), and both
states are h' in the end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np

from tflite2onnx.builder.builder import Builder, Operand, Value
from tflite2onnx.op.common.hybrid import is_hybrid
from tflite2onnx.op.elementwise.activation import apply_activation
from tflite2onnx.op.recurrent.base import (
    bias,
    clip_to_limits,
    dequantize_weights,
    on_axis_1,
    over_time,
    round_to_storage,
    scale_of,
    stack_matrices,
    storage_of_scale,
)
from tflite2onnx.quantize import Storage, integer_range
from tflite2onnx.tensor import Array, DType, Sizes, Tensor

# ONNX's sequence of gates: input, output, forget, cell.
ORDER = "iofc"

# MeanStddevNormalization in portable_tensor_utils.cc.
_EPSILON = 1e-8
# The activations that ONNX's LSTM has as well.
_ACTIVATIONS = {"TANH": "Tanh", "RELU": "Relu"}


class Gate(NamedTuple):
    """The parameters of a gate: matrices [cells, features], and vectors with one for each cell.

    A recurrent matrix may be a vector, its diagonal.
    """

    weights: Tensor
    recurrent: Tensor
    bias: Tensor
    peephole: Tensor | None = None
    normalization: Tensor | None = None
    auxiliary: Tensor | None = None


class Grids(NamedTuple):
    """How an integer kernel stores what it computes; a float kernel stores real numbers (None).

    `sums` go into the gates, one storage for each; `functions` are what is within -1 and 1. What is
    hidden stays within limits, if these are not those of its storage.
    """

    sums: tuple[Storage, ...] = ()
    normalized: Storage | None = None
    functions: Storage | None = None
    cell: Storage | None = None
    hidden: Storage | None = None
    hidden_limits: tuple[float, float] | None = None
    output: Storage | None = None


class Weights(NamedTuple):
    """What steps multiply by: [units, gates * cells], and [cells, units] of a projection."""

    recurrent: Value
    projection: Value | None


@dataclass(frozen=True)
class Cell:
    """One direction of an LSTM; `gates` are in `ORDER`, without i if it is coupled to f."""

    x: Tensor
    h: Tensor
    gates: Mapping[str, Gate]
    projection: Tensor | None
    projection_bias: Tensor | None
    activation: str
    cell_limits: tuple[float, float] | None
    output_limits: tuple[float, float] | None
    grids: Grids
    shares_state: bool = False

    @property
    def cells(self) -> int:
        """How many elements the state c has for each element of a batch."""
        return self.gates["o"].weights.shape[0]

    @property
    def units(self) -> int:
        """How many elements the state h has for each element of a batch."""
        return self.gates["o"].recurrent.shape[-1]

    def is_onnx(self, c: Tensor, times: int | str) -> bool:
        """Return whether ONNX's LSTM does the same for so many steps from this state on."""
        if self.grids.cell or self.projection or self.gates["o"].normalization:
            return False
        if self.shares_state:
            return False
        return self.activation in _ACTIVATIONS and not self._can_clip(c, times)

    def _can_clip(self, c: Tensor, times: int | str) -> bool:
        """Return whether the cell may come to its limits: with tanh it grows by 1 in a step.

        No `clip` of ONNX's LSTM stands for them. It bounds the sums that go into all gates, where
        these bound f * c + i * g behind the gates: however tight the one is, f can be so near to 1
        that the other is reached. And a state that is fed can begin at its limits.
        """
        if self.cell_limits is None:
            return False
        if c.data is None or self.activation != "TANH" or isinstance(times, str):
            return True
        return float(np.abs(c.data).max(initial=0)) + times > self.cell_limits[1]

    def onnx(
        self, g: Builder, x: Operand, auxiliary: Operand, states: Sequence[Value], *, reverse: bool
    ) -> tuple[Value, ...]:
        """Return [times, 1, batch, cells], and the states in the end, all [1, batch, cells].

        1 - sigmoid(z) is sigmoid(-z): a coupled input gate has the opposites of the parameters of
        the forget gate.
        """
        signs = [1 if letter in self.gates else -1 for letter in ORDER]
        gates = [self.gates.get(letter, self.gates["f"]) for letter in ORDER]
        w = stack_matrices(g, self.x, [gate.weights for gate in gates], on_axis_1, signs)
        if auxiliary is not None:
            matrices = [gate.auxiliary for gate in gates if gate.auxiliary]
            w = g.Concat(w, stack_matrices(g, self.x, matrices, on_axis_1, signs), axis=2)
            x = g.Concat(x, auxiliary, axis=2)
        b = [s * self._bias(gate) for s, gate in zip(signs, gates, strict=True)]
        p = [
            s * dequantize_weights(self.x, gate.peephole)
            for s, gate in zip(signs, gates, strict=True)
            if gate.peephole
        ]
        name = _ACTIVATIONS[self.activation]
        return g.node_outputs(
            "LSTM",
            3,
            x,
            w,
            stack_matrices(g, self.h, [gate.recurrent for gate in gates], on_axis_1, signs),
            np.concatenate([*b, np.zeros(len(ORDER) * self.cells, np.float32)])[None],
            None,
            *states,
            np.concatenate(p)[None] if p else None,
            hidden_size=self.cells,
            direction="reverse" if reverse else None,
            activations=None if name == "Tanh" else ["Sigmoid", name, name],
        )

    def _bias(self, gate: Gate) -> Array:
        return bias(gate.bias, scale_of(self.x), scale_of(gate.weights))

    def run_steps(
        self,
        g: Builder,
        x: Operand,
        auxiliary: Operand,
        states: tuple[Value, ...],
        shape: Sizes,
        *,
        reverse: bool,
    ) -> tuple[Value, tuple[Value, ...]]:
        """Return what the steps make, [times, batch, units], and the states [batch, n] in the end.

        Without times x is [batch, features], and there is one step.
        """
        projection = None
        if self.projection:
            projection = stack_matrices(g, self.h, [self.projection], np.transpose)
        matrices = [gate.recurrent for gate in self.gates.values()]
        weights = Weights(stack_matrices(g, self.h, matrices, np.transpose), projection)
        step = partial(self._step, weights)
        sums = self._of_inputs(g, x, auxiliary, len(shape))
        if len(shape) == 2:  # batch and units
            states = step(g, sums, states)
            return states[0], states
        batch, n = shape[1], self.cells
        shapes = (*shape[:-1], n * len(self.gates)), (batch, self.units), (batch, n)
        return over_time(g, step, sums, states, shapes, reverse=reverse)

    def _of_inputs(self, g: Builder, x: Operand, auxiliary: Operand, rank: int) -> Value:
        """Return what x adds to the sums of all gates, side by side."""
        gates = list(self.gates.values())
        made = g.MatMul(
            x, stack_matrices(g, self.x, [gate.weights for gate in gates], np.transpose)
        )
        if auxiliary is not None:
            matrices = [gate.auxiliary for gate in gates if gate.auxiliary]
            made = g.Add(
                made, g.MatMul(auxiliary, stack_matrices(g, self.x, matrices, np.transpose))
            )
        if not gates[0].normalization:
            # Of a product of int8 and an Add ONNX Runtime (1.31) makes what it then refuses.
            add = g.Sum if self.grids.sums else g.Add
            made = add(made, np.concatenate([self._bias(gate) for gate in gates]))
        return round_to_storage(g, made, self._sums, rank)

    @property
    def _sums(self) -> Storage | None:
        """How the sums of all gates are stored, side by side."""
        grids = self.grids.sums
        if len({float(grid.scale[0]) for grid in grids}) < 2:  # no two differ
            return grids[0] if grids else None
        return storage_of_scale(
            DType.INT16, np.repeat([grid.scale[0] for grid in grids], self.cells)
        )

    def _step(
        self, weights: Weights, g: Builder, now: Value, states: tuple[Value, ...]
    ) -> tuple[Value, ...]:
        h, c = states
        each = self._sums_of_gates(weights, g, now, h)
        forget = self._gate(g, "f", each["f"], c)
        if "i" in self.gates:
            new = self._gate(g, "i", each["i"], c)
        else:
            one = 1 if g.float_only else self._unit_value
            new = g.Sub(g.scalar(one, DType.FLOAT32), forget)
        kept = round_to_storage(g, g.Mul(forget, c), self.grids.cell)
        added = g.Mul(new, self._gate(g, "c", each["c"], c))
        c = round_to_storage(g, g.Add(kept, added), self.grids.cell)
        c = clip_to_limits(g, c, self.cell_limits)
        if self.shares_state and not is_hybrid(self.x, self.gates["o"].recurrent):
            each = self._sums_of_gates(weights, g, now, c)
        shown = round_to_storage(g, apply_activation(g, self.activation, c), self.grids.functions)
        hidden = g.Mul(self._gate(g, "o", each["o"], c), shown)
        if not g.float_only:
            hidden = clip_to_limits(g, hidden, self.grids.hidden_limits)
        h = self._output(g, weights, round_to_storage(g, hidden, self.grids.hidden))
        return h, g.Identity(h) if self.shares_state else c

    def _sums_of_gates(
        self, weights: Weights, g: Builder, now: Value, h: Value
    ) -> dict[str, Value]:
        sums = round_to_storage(g, g.Gemm(h, weights.recurrent, now), self._sums)
        sizes = g.ints([self.cells] * len(self.gates))
        parts = g.node_outputs("Split", len(self.gates), sums, sizes, axis=1)
        return dict(zip(self.gates, parts, strict=True))

    def _gate(self, g: Builder, letter: str, z: Value, c: Value) -> Value:
        gate = self.gates[letter]
        if gate.peephole:
            place = list(self.gates).index(letter)
            grid = self.grids.sums[place] if self.grids.sums else None
            z = round_to_storage(
                g, g.Add(z, g.Mul(c, dequantize_weights(self.x, gate.peephole))), grid
            )
        if gate.normalization:
            factors = dequantize_weights(self.x, gate.normalization)
            b = bias(gate.bias, scale_of(gate.normalization), 2**-10)
            z = g.LayerNormalization(z, factors, b, axis=-1, epsilon=_EPSILON)
            z = round_to_storage(g, z, self.grids.normalized)
        z = apply_activation(g, self.activation, z) if letter == "c" else g.Sigmoid(z)
        return round_to_storage(g, z, self.grids.functions)

    @property
    def _unit_value(self) -> float:
        """1, or the largest of the numbers that functions are stored as."""
        grid = self.grids.functions
        return 1 if grid is None else integer_range(grid.dtype)[1] * float(grid.scale[0])

    def _output(self, g: Builder, weights: Weights, hidden: Value) -> Value:
        if self.projection is None:
            return hidden
        b = None
        if self.projection_bias:
            grid = self.grids.hidden
            scale = 1 if grid is None else float(grid.scale[0])
            b = bias(self.projection_bias, scale, scale_of(self.projection))
        made = g.Gemm(hidden, weights.projection, b)
        return clip_to_limits(g, round_to_storage(g, made, self.grids.output), self.output_limits)

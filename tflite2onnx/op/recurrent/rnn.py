"""RNN, UNIDIRECTIONAL_SEQUENCE_RNN, BIDIRECTIONAL_SEQUENCE_RNN: activation(x W + h R + b)."""

from collections.abc import Mapping, Sequence
from typing import ClassVar, NamedTuple

import numpy as np

from tflite2onnx.builder.builder import Builder, Value, View
from tflite2onnx.op.base import OperatorError
from tflite2onnx.op.common.checks import expect_type
from tflite2onnx.op.common.hybrid import is_hybrid
from tflite2onnx.op.elementwise.activation import apply_activation
from tflite2onnx.op.recurrent.activations import list_attributes
from tflite2onnx.op.recurrent.base import (
    Recurrent,
    add_direction_axis,
    expect_bias,
    expect_constant,
    read_bias,
    repeat_step,
    stack_matrices,
)
from tflite2onnx.tensor import DType

_ONNX = ("TANH", "RELU")  # TFLite's activations that ONNX's RNN supports
_SEQUENCE = 3  # axes


class RnnSlots(NamedTuple):
    """The indices of the inputs of one direction: weights, recurrent weights, bias and state."""

    weights: int
    auxiliary: int | None = None

    @property
    def state(self) -> int:
        """The index of the input h."""
        return self.weights + 3


class UnidirectionalRnn(Recurrent):
    """UNIDIRECTIONAL_SEQUENCE_RNN: a simple recurrent layer over a sequence."""

    codes = ("UNIDIRECTIONAL_SEQUENCE_RNN",)
    slots: ClassVar[tuple[RnnSlots, ...]] = (RnnSlots(1),)
    states: ClassVar[tuple[tuple[int, ...], ...]] = ((4,),)
    ranks: ClassVar[tuple[int, ...]] = (3,)

    def check(self) -> None:
        x, other = self.input(0), self.find_input(self.auxiliary)
        expect_type(x, (DType.FLOAT32,))
        self.expect_sequences(self.ranks)
        for slots, n in zip(self.slots, self.units, strict=True):
            expect_constant(self.input(slots.weights), (n, x.shape[-1]))
            expect_constant(self.input(slots.weights + 1), (n, n))
            expect_bias(x, self.input(slots.weights + 2), n)
            extra = self.find_input(slots.auxiliary)
            expect_constant(extra, (n, 0 if other is None else other.shape[-1]))
            self.expect_state(slots.state, n, x.dtype)
        if len({self.find_input(slots.auxiliary) is None for slots in self.slots}) > 1:
            raise OperatorError("auxiliary weights must be given for both directions, or for none")

    @property
    def units(self) -> list[int]:
        return [self.input(slots.weights).shape[0] for slots in self.slots]

    @property
    def adds_auxiliary(self) -> bool:
        return self.find_input(self.slots[0].auxiliary) is not None

    def run_direction(
        self, g: Builder, direction: int, x: View, auxiliary: View | None, states: Sequence[View]
    ) -> tuple[Value, tuple[Value, ...]]:
        slots = self.slots[direction]
        w, r, b = (self.input(slots.weights + i) for i in range(3))
        auxiliary_weights = [self.input(slots.auxiliary)] if auxiliary and slots.auxiliary else []
        data, units, reverse = x.tensor, w.shape[0], direction > 0
        shape = (*x.sizes[:-1], units)
        if x.rank == _SEQUENCE and self.activation_function in _ONNX:
            rows = [
                stack_matrices(g, data, [weights_of_gate], add_direction_axis)
                for weights_of_gate in (w, *auxiliary_weights)
            ]
            y, h = g.node_outputs(
                "RNN",
                2,
                g.Concat(x, auxiliary, axis=2) if auxiliary_weights else x,
                g.Concat(*rows, axis=2) if auxiliary_weights else rows[0],
                stack_matrices(g, data, [r], add_direction_axis),
                np.concatenate([read_bias(b), np.zeros(units, np.float32)])[None],
                None,
                states[0].reshape((1, self.batch, units)),
                hidden_size=units,
                direction="reverse" if reverse else None,
                **list_attributes(self.activations[-1:]),
            )
            return g.Squeeze(y, [1]), (g.Squeeze(h, [0]),)
        recurrent = stack_matrices(g, data, [r], np.transpose)

        def emit_step(g: Builder, now: Value, before: tuple[Value, ...]) -> tuple[Value, ...]:
            sums = g.Gemm(before[0], recurrent, now)
            return (apply_activation(g, self.activation_function, sums),)

        sums = g.Add(g.MatMul(x, stack_matrices(g, data, [w], np.transpose)), read_bias(b))
        if auxiliary and auxiliary_weights:
            matrix = stack_matrices(g, data, auxiliary_weights, np.transpose)
            sums = g.Add(sums, g.MatMul(auxiliary, matrix))
        before = (states[0].reshape((self.batch, units)),)
        if x.rank < _SEQUENCE:
            states_after = emit_step(g, sums, before)
            return states_after[0], states_after
        return repeat_step(g, emit_step, sums, before, (shape, shape[1:]), reverse=reverse)


class Rnn(UnidirectionalRnn):
    """RNN: one step of an RNN layer."""

    codes = ("RNN",)
    ranks = (2,)


class BidirectionalRnn(UnidirectionalRnn):
    """BIDIRECTIONAL_SEQUENCE_RNN: two RNN layers; the second runs backwards in time.

    Two faults of the kernel are not converted, because no model can rely on them. For time-major
    sequences with integer weights the kernel repeats the whole product for each time. In some cases
    the kernel assumes that an auxiliary sequence has as many features as the first sequence.
    """

    codes = ("BIDIRECTIONAL_SEQUENCE_RNN",)
    slots = (RnnSlots(1, 10), RnnSlots(5, 11))
    states = ((4,), (8,))
    auxiliary = 9

    def check(self) -> None:
        super().check()
        x, other, major = self.input(0), self.find_input(self.auxiliary), self.options.time_major
        hybrid = is_hybrid(x, self.input(self.slots[0].weights))
        if hybrid and major:
            reason = "time-major sequences must not have integer weights: LiteRT's result is wrong"
            raise OperatorError(reason)
        if other is not None and other.shape != x.shape and (hybrid or major):
            raise OperatorError(
                f"{other.name} must have the shape of {x.name}, as LiteRT assumes, got "
                f"{list(other.shape)} and {list(x.shape)}"
            )

    def select_sources(self, direction: int, views: Mapping[int, View]) -> tuple[View, View | None]:
        if self.adds_auxiliary or self.options.time_major:
            return super().select_sources(direction, views)
        return views[0], None  # in the batch-major form both directions read the first sequence

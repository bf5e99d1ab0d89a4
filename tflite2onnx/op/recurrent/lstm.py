"""LSTM, UNIDIRECTIONAL_SEQUENCE_LSTM and BIDIRECTIONAL_SEQUENCE_LSTM.

An operator that ONNX's LSTM can represent becomes an LSTM node. Any other operator becomes the
formulas of the kernels: ONNX's LSTM has no layer normalization, and its `clip` bounds the inputs of
the gates, while `cell_clip` bounds the cell. Files of Keras layers have a `cell_clip` of 10:
`clipped_lstm`. ONNX's LSTM has no projection P either. The gates of the next step read P h, and (P
h) R = h (R P): see `Cell.without_projection`.
"""

from collections.abc import Mapping, Sequence
from typing import ClassVar, NamedTuple

import numpy as np

from tflite2onnx.builder.builder import Builder, Value, View
from tflite2onnx.layout import Frame
from tflite2onnx.made_options import RecurrentOptions
from tflite2onnx.op.base import OperatorError, OutputShape
from tflite2onnx.op.common.checks import expect_symmetric, expect_type
from tflite2onnx.op.recurrent import lstm_basic
from tflite2onnx.op.recurrent.base import Recurrent, expect_bias, expect_constant, stack_matrices
from tflite2onnx.op.recurrent.clipped_lstm import run_clipped_lstm
from tflite2onnx.op.recurrent.lstm_cell import (
    ORDER,
    Cell,
    Gate,
    KernelStorage,
    clip_bounds,
    read_kernel_storage,
)
from tflite2onnx.quantization.declarations import Real
from tflite2onnx.quantization.storage import is_quantized
from tflite2onnx.tensor import DType

# TFLite's order of the gates, and the offset of each kind of inputs from the first weights.
_GATES = "ifco"
_RECURRENT, _PEEPHOLE, _BIAS, _PROJECTION = 4, 8, 11, 15
_PEEPHOLES = "ifo"
_SEQUENCE = 3  # axes
_BASIC = 1  # LSTMKernelType


class LstmSlots(NamedTuple):
    """The indices of the inputs of one direction: the first input of each group.

    A group has one input per gate; the states are h and c.
    """

    weights: int
    states: int
    normalization: int | None = None
    auxiliary: int | None = None


class UnidirectionalLstm(Recurrent):
    """UNIDIRECTIONAL_SEQUENCE_LSTM: long short-term memory over a sequence."""

    codes = ("UNIDIRECTIONAL_SEQUENCE_LSTM",)
    # The kernel looks up activations in tables, and rounds each gate.
    steps: ClassVar[Mapping[str, int]] = {"UNIDIRECTIONAL_SEQUENCE_LSTM int8": 3}
    slots: ClassVar[tuple[LstmSlots, ...]] = (LstmSlots(1, 18, normalization=20),)
    states: ClassVar[tuple[tuple[int, ...], ...]] = ((18, 19),)
    ranks: ClassVar[tuple[int, ...]] = (2, 3)

    def check(self) -> None:
        expect_type(self.input(0), (DType.FLOAT32, DType.INT8))
        cell, last = self.options.cell_clip, self.options.proj_clip
        if min(cell, last) < 0:
            clips = f"{cell:g} and {last:g}"
            raise OperatorError(f"cell_clip and proj_clip must not be negative, got {clips}")
        if self.activation_function == "NONE":
            # For NONE, ApplyActivationToVector leaves its output buffer unwritten: the buffer keeps
            # values of another gate.
            raise OperatorError(
                "it must have an activation function, got NONE: the kernel's result is undefined"
            )
        self.expect_sequences(self.ranks)
        for slots in self.slots:
            self._check_direction(slots)

    @property
    def quantization(self) -> Real:
        """The kernel copies the integers of the state h to the output, in whatever scale."""
        state = self.find_input(self.states[0][0])
        written = state.quantization if state and is_quantized(state) else None
        return super().quantization._replace(kernel_writes=written)

    @property
    def shares_state(self) -> bool:
        """Whether h and c are the same variable, as in a Keras layer with initial_state=[s, s]."""
        h, c = (self.input(i) for i in self.states[0])
        shared = self.op.read_made(RecurrentOptions).shared_state
        return shared and h is c and len(self.states) == 1

    @property
    def units(self) -> list[int]:
        last = _RECURRENT + _GATES.index("o")
        return [self.input(slots.weights + last).shape[-1] for slots in self.slots]

    def _check_direction(self, slots: LstmSlots) -> None:
        cell = self._make_cell(slots)
        x, other = self.input(0), self.find_input(self.auxiliary)
        n, h = cell.cells, cell.units
        if not n or not h:
            raise OperatorError(
                f"the numbers of cells and outputs must be positive, got {n} and {h}"
            )
        for gate in cell.gates.values():
            expect_constant(gate.weights, (n, x.shape[-1]))
            expect_constant(gate.recurrent, (n, h), (n,))
            if gate.recurrent.rank == 1:  # the diagonal of a diagonal matrix
                expect_type(gate.recurrent, (DType.FLOAT32,))
            expect_bias(x, gate.bias, n)
            for vector in (gate.peephole, gate.normalization):
                expect_constant(vector, (n,))
            expect_constant(gate.auxiliary, (n, other.shape[-1] if other else 0))
        if x.dtype is DType.INT8:
            every = [item for gate in cell.gates.values() for item in gate if item is not gate.bias]
            # Weights that the kernel multiplies by.
            for weights in filter(None, (cell.projection, *every)):
                expect_symmetric(weights)
        if len({gate.normalization is None for gate in cell.gates.values()}) > 1:
            raise OperatorError("all of its gates must have a layer normalization, or none")
        expect_constant(cell.projection, (h, n))
        expect_bias(x, cell.projection_bias, h)
        if cell.projection is None and n != h:
            raise OperatorError(
                f"without a projection the cells must be as many as the outputs, got {n} and {h}"
            )
        if cell.storage.cell and n != h and cell.gates["o"].peephole:
            # The kernel reads the length of peephole vectors as the length of the output.
            raise OperatorError("it must not have both peepholes and a projection if it is integer")
        self.expect_state(slots.states, h, x.dtype)
        self.expect_state(slots.states + 1, n, DType.INT16 if cell.storage.cell else x.dtype)

    def _make_cell(self, slots: LstmSlots) -> Cell:
        gates = {letter: self._read_gate(slots, letter) for letter in ORDER}
        present = {letter: gate for letter, gate in gates.items() if gate}
        projection = self.find_input(slots.weights + _PROJECTION)
        x, h, c = self.input(0), self.input(slots.states), self.input(slots.states + 1)
        activation, storage = self.activation_function, KernelStorage()
        if x.dtype is not DType.FLOAT32:
            activation, projected = "TANH", projection is not None
            storage = read_kernel_storage(
                self.op.intermediates, present, c, h, self.output, projected=projected
            )
        return Cell(
            x,
            h,
            present,
            projection,
            self.find_input(slots.weights + _PROJECTION + 1),
            activation,
            clip_bounds(self.options.cell_clip, c),
            clip_bounds(self.options.proj_clip, self.output, h),
            storage,
            self.shares_state,
            self.activations,
        )

    def _read_gate(self, slots: LstmSlots, letter: str) -> Gate | None:
        """Return the parameters of a gate; None for an input gate without parameters (CIFG)."""
        place = _GATES.index(letter)
        if letter == "i" and self.find_input(slots.weights) is None:
            return None
        peephole = slots.weights + _PEEPHOLE + _PEEPHOLES.find(letter)
        normalization, auxiliary = slots.normalization, slots.auxiliary
        return Gate(
            self.input(slots.weights + place),
            self.input(slots.weights + _RECURRENT + place),
            self.input(slots.weights + _BIAS + place),
            self.find_input(peephole) if letter in _PEEPHOLES else None,
            None if normalization is None else self.find_input(normalization + place),
            None if auxiliary is None else self.find_input(auxiliary + place),
        )

    def run_direction(
        self, g: Builder, direction: int, x: View, auxiliary: View | None, states: Sequence[View]
    ) -> tuple[Value, tuple[Value, ...]]:
        cell, reverse = self._make_cell(self.slots[direction]), direction > 0
        plain = cell.without_projection(states[0].tensor) if x.rank == _SEQUENCE else None
        if plain and cell.projection and not plain.can_clip(states[1].tensor, x.sizes[0]):
            before = (None, states[1].reshape((1, self.batch, cell.cells)))
            rows, last, c = plain.emit_layer(g, x, auxiliary, before, reverse=reverse)
            projection = stack_matrices(g, cell.h, [cell.projection], np.transpose)
            y, last = (
                g.MatMul(g.Squeeze(part, [axis]), projection)
                for part, axis in ((rows, 1), (last, 0))
            )
            return y, (last, g.Squeeze(c, [0]))
        h, n = (cell.units, cell.cells)
        batch, times = self.batch, x.sizes[0] if x.rank == _SEQUENCE else 1
        clips = cell.can_clip(states[1].tensor, times)
        if not cell.is_onnx or (clips and not (cell.clips_after_steps and times != 1)):
            first = states[0].reshape((batch, h)), states[1].reshape((batch, n))
            shape = (*x.sizes[:-1], h)
            return cell.run_steps(g, x, auxiliary, first, shape, reverse=reverse)
        sequence = x if x.rank == _SEQUENCE else x.reshape((1, *x.shape))
        initial = [state.reshape((1, batch, n)) for state in states]
        if clips:
            sizes = (times, batch, n)
            y, *after = run_clipped_lstm(cell, g, x, auxiliary, initial, sizes, reverse=reverse)
            return y, tuple(g.Squeeze(state, [0]) for state in after)
        y, *after = cell.emit_layer(g, sequence, auxiliary, initial, reverse=reverse)
        final = tuple(g.Squeeze(state, [0]) for state in after)
        return (g.Squeeze(y, [1]) if x.rank == _SEQUENCE else final[0]), final


class Lstm(UnidirectionalLstm):
    """LSTM: one step of an LSTM layer. The kernel BASIC has other operands, see `lstm_basic`."""

    codes = ("LSTM",)
    # The kernel BASIC for uint8 rounds the inputs of the gates to 12 fractional bits.
    steps: ClassVar[Mapping[str, int]] = {"LSTM int8": 3, "LSTM uint8": 64}
    ranks = (2,)

    @property
    def _is_basic(self) -> bool:
        return bool(self.options.kernel_type == _BASIC)

    @property
    def quantization(self) -> Real:
        return lstm_basic.QUANTIZATION if self._is_basic else super().quantization

    def check(self) -> None:
        if self._is_basic:
            lstm_basic.check(self)
        else:
            super().check()

    def infer_outputs(self) -> Sequence[OutputShape]:
        return lstm_basic.infer_lstm_outputs(self) if self._is_basic else super().infer_outputs()

    def frames(self) -> Sequence[Frame]:
        return []  # the operands of a single step have no time axis

    def emit(self, g: Builder, y: tuple[View, ...], *xs: View | None) -> tuple[Value, ...]:
        return lstm_basic.emit(self, g, *xs) if self._is_basic else super().emit(g, y, *xs)


class BidirectionalLstm(UnidirectionalLstm):
    """BIDIRECTIONAL_SEQUENCE_LSTM: two LSTM layers; the second runs backwards in time."""

    codes = ("BIDIRECTIONAL_SEQUENCE_LSTM",)
    slots = (LstmSlots(1, 35, auxiliary=40), LstmSlots(18, 37, auxiliary=44))
    states = ((35, 36), (37, 38))
    auxiliary = 39
    ranks = (3,)

    @property
    def adds_auxiliary(self) -> bool:
        return self.find_input(41) is not None

"""GRU, which `raise_recurrent_loops` makes of a Keras layer, and LiteRT's custom operator."""

import numpy as np

from tflite2onnx.builder.builder import Builder, Value, View
from tflite2onnx.made_options import RecurrentOptions
from tflite2onnx.op.base import Operator, OperatorError
from tflite2onnx.op.common.checks import expect
from tflite2onnx.op.recurrent.activations import list_attributes
from tflite2onnx.op.recurrent.base import add_direction_axis, expect_constant, stack_matrices
from tflite2onnx.op.traits import AnySizes, MadeOperator
from tflite2onnx.quantization.declarations import Real
from tflite2onnx.tensor import Array, DType

_GATES = 3
_BIAS = 1 + 2 * _GATES  # the index of the first bias among the inputs


class Gru(MadeOperator, AnySizes):
    """GRU: gated recurrent units; inputs are a sequence, W and R per gate, b and a state."""

    codes = ("GRU",)
    tflite = "TNF, , , , , , , , NU -> TNU, NU"
    operands = (
        "T [times batch inputs], any, any, any, any, any, any, T, T [batch units]"
        "-> any [times batch units], any [batch units]"
    )
    quantization = Real(multiplies=range(1, _BIAS))

    def check(self) -> None:
        x, b, h = self.input(0), self.input(_BIAS), self.input(_BIAS + 1)
        units = h.shape[-1]
        for i in range(1, _BIAS):
            expect_constant(self.input(i), (units, units if i > _GATES else x.shape[-1]))
        expect(b, (2 * _GATES * units,), x.dtype)

    def emit(
        self, g: Builder, y: tuple[View, ...], x: View, *parameters: View
    ) -> tuple[Value, ...]:
        made = self.op.read_made(RecurrentOptions)
        *matrices, b, h = parameters
        tensors = [matrix.tensor for matrix in matrices]
        halves = tensors[:_GATES], tensors[_GATES:]
        w, r = (stack_matrices(g, x.tensor, matrix, add_direction_axis) for matrix in halves)
        sequence, state = g.node_outputs(
            "GRU",
            2,
            x,
            w,
            r,
            b.reshape((1, *b.shape)),
            None,
            h.reshape((1, *h.sizes)),
            hidden_size=h.shape[-1],
            linear_before_reset=int(made.reset_after),
            **list_attributes(made.activations),
        )
        # The node's outputs have an axis for directions.
        return g.Squeeze(sequence, [1]), g.Squeeze(state, [0])


class UnidirectionalSequenceGru(Operator):
    """UNIDIRECTIONAL_SEQUENCE_GRU: gated recurrent units over a sequence [time, batch, features].

    The reset gate is applied before the recurrent matrix, as in ONNX by default. A weight matrix
    has the columns of the input, then the columns of the state. The gates are reset, then update;
    ONNX's order is update, then reset. In both the update gate is the share of the old state.
    """

    codes = ("UNIDIRECTIONAL_SEQUENCE_GRU",)
    operands = (
        "float32 [times batch inputs], float32 [batch units], float32#, float32#, float32#,"
        "float32# -> float32 [times batch units], float32 [batch units]"
    )

    def check(self) -> None:
        x, (_, units) = self.input(0), self.input(1).shape
        if 0 in x.shape:
            raise OperatorError(f"{x.name} must have elements, got {list(x.shape)}")
        for i, shape in enumerate(((2 * units, x.shape[2] + units), (2 * units,)), 2):
            expect(self.input(i), shape, DType.FLOAT32)
            expect(self.input(i + 2), (units, *shape[1:]), DType.FLOAT32)

    def emit(
        self,
        g: Builder,
        ys: tuple[View, View],
        x: View,
        state: View,
        gates: View,
        biases: View,
        candidate: View,
        bias: View,
    ) -> tuple[Value, Value]:
        units, inputs = state.shape[-1], x.shape[-1]
        weights = _update_first(gates.constant, candidate.constant)
        added_biases = np.concatenate(
            [_update_first(biases.constant, bias.constant), np.zeros(3 * units)]
        )
        parts = ((weights[:, :inputs], "weights"), (weights[:, inputs:], "recurrent"))
        w, r = (g.constant(part[None], name=f"{gates.tensor.name}/{name}") for part, name in parts)
        sequence, final = g.node_outputs(
            "GRU",
            2,
            x,
            w,
            r,
            added_biases[None].astype(np.float32),
            None,
            g.Unsqueeze(state, [0]),
            hidden_size=units,
        )
        return g.reshape(sequence, ys[0].shape), g.reshape(final, ys[1].shape)


def _update_first(gates: Array, candidate: Array) -> Array:
    """Return the parameters of update gate, reset gate and candidate, in ONNX's order."""
    reset, update = np.split(gates, 2)
    return np.concatenate([update, reset, candidate])

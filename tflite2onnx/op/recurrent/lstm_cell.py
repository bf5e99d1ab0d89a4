"""The cell of an LSTM: its gates, and a step from one state to the next (lstm_eval.cc).

    i, f, o = sigmoid(x W + h R + c P + b), with separate parameters for each gate
    c' = clip(f * c + i * activation(x W + h R + b))
    h' = clip(projection(o * activation(c')))

where the peephole P of o reads c'. Layer normalization is applied before b is added. If input and
forget gate are coupled (CIFG), i has no parameters and is 1 - f.

An integer kernel (8 x 8 -> 16, lstm.cc) stores sums, gates and states as integers; `KernelStorage`
contains their scales. The inputs of the gates have 16 bits, 12 of them fractional, or scales given
by intermediate tensors with layer normalization. Gates are within -1 and 1. The kernel rounds o *
tanh(c) to the scale of the fifth intermediate tensor, copies the integers to h, and copies h to the
output. So h and the output may read the integers with other scales and zero points. With a
projection, o * tanh(c) is stored as an additional integer, with the negated zero point, and the
projection is rounded to the scale of h.

The kernels write states in place. If h and c are one variable, the float kernel multiplies the
recurrent weights of o by c' in place of h (the hybrid kernel quantizes h before the write), and
both states are h' after the step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import inf
from typing import NamedTuple

import numpy as np

from tflite2onnx.builder.builder import Builder, Operand, Value
from tflite2onnx.errors import OperatorError
from tflite2onnx.made_options import GateActivation
from tflite2onnx.op.common.hybrid import is_hybrid
from tflite2onnx.op.elementwise.activation import apply_activation
from tflite2onnx.op.recurrent.activations import list_attributes
from tflite2onnx.op.recurrent.base import (
    add_direction_axis,
    clip_to_limits,
    dequantize_weights,
    make_storage,
    read_bias,
    read_constant,
    read_scale,
    repeat_step,
    round_to_storage,
    stack_matrices,
)
from tflite2onnx.quantization.storage import REAL, Storage, find_integer_range, is_quantized
from tflite2onnx.tensor import Array, DType, Quantization, Sizes, Tensor

ORDER = "iofc"  # ONNX's order of the gates: input, output, forget, cell.

_EPSILON = 1e-8  # The constant of MeanStddevNormalization in portable_tensor_utils.cc.
_ACTIVATIONS = ("TANH", "RELU")  # TFLite's activations that ONNX's LSTM supports.
# The number of intermediate tensors: the inputs of the gates in TFLite's order, then the input of
# the projection.
_INTERMEDIATES = 5
_HIDDEN = 4
_MATRIX = 2  # axes
# The number of multiplications that take as long as the nodes of a time step in Scan: 4 us in one
# thread of an AMD EPYC (family 26).
_STEP = 100_000
_SATURATED = 9.02  # tanh of larger numbers is 1 in float32
_EXPONENT_ERROR = 1e-3  # the tolerance of CheckedLog2 in kernel_util.cc


class Gate(NamedTuple):
    """The parameters of a gate: matrices [cells, features] and vectors [cells].

    A recurrent matrix may be given as the vector of its diagonal.
    """

    weights: Tensor
    recurrent: Tensor
    bias: Tensor
    peephole: Tensor | None = None
    normalization: Tensor | None = None
    auxiliary: Tensor | None = None


class KernelStorage(NamedTuple):
    """The storage of each intermediate value of an integer kernel; None for a float kernel.

    Attributes:
        sums: the inputs of the gates, one storage per gate.
        normalized: the inputs of the gates after layer normalization.
        functions: the outputs of sigmoid and tanh.
        cell: the state c.
        hidden: o * activation(c'), before a projection.
        hidden_limits: bounds of the hidden values, None if the storage has these bounds.
        state: the state h, and the result of a projection.
    """

    sums: tuple[Storage, ...] = ()
    normalized: Storage | None = None
    functions: Storage | None = None
    cell: Storage | None = None
    hidden: Storage | None = None
    hidden_limits: tuple[float, float] | None = None
    state: Storage | None = None


class Weights(NamedTuple):
    """The weights of a step: recurrent [units, gates * cells], and projection [cells, units]."""

    recurrent: Value
    projection: Value | None


class Parameters(NamedTuple):
    """The operands of ONNX's LSTM that are constant, with a leading axis of directions."""

    weights: Value
    recurrent: Value
    biases: Operand
    peepholes: Operand


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
    storage: KernelStorage
    shares_state: bool = False
    activations: Sequence[GateActivation] = ()

    @property
    def cells(self) -> int:
        """The size of the state c, per element of the batch."""
        return self.gates["o"].weights.shape[0]

    @property
    def units(self) -> int:
        """The size of the state h, per element of the batch."""
        return self.gates["o"].recurrent.shape[-1]

    @property
    def limit(self) -> float:
        """The bound of the cell, infinite if there is none."""
        return inf if self.cell_limits is None else self.cell_limits[1]

    @property
    def is_onnx(self) -> bool:
        """Whether ONNX's LSTM computes a step, except for the limits of the cell."""
        if self.storage.cell or self.projection or self.gates["o"].normalization:
            return False
        return self.activation in _ACTIVATIONS and not self.shares_state

    def without_projection(self, first: Tensor) -> Cell | None:
        """Return the cell whose states are the values before the projection P: h R becomes h (R P).

        Returns None if ONNX's LSTM cannot compute this cell, if the first state is not 0, or if the
        formulas are faster, because R P is much larger than R and P.
        """
        p = self.projection
        if p is None or self.projection_bias or self.output_limits or self.shares_state:
            return None
        matrices = {letter: gate.recurrent for letter, gate in self.gates.items()}
        used = (p, *matrices.values())
        floats = all(t.dtype is DType.FLOAT32 and t.rank == _MATRIX for t in used)
        zero = first.data is not None and not first.data.any()
        extra = len(ORDER) * self.cells**2 - (len(self.gates) + 1) * self.cells * self.units
        if not (floats and zero) or extra > _STEP:
            return None
        gates = {
            letter: gate._replace(recurrent=_multiply(gate.recurrent, p))
            for letter, gate in self.gates.items()
        }
        cell_before = replace(self, gates=gates, projection=None)
        return cell_before if cell_before.is_onnx else None

    @property
    def clips_after_steps(self) -> bool:
        """Whether the limits change only the next step, because tanh is 1 at the limits."""
        return self.activation == "TANH" and self.limit >= _SATURATED

    def can_clip(self, c: Tensor, times: int | str) -> bool:
        """Return whether the cell may reach its limits: with tanh c grows by at most 1 per step.

        ONNX's `clip` cannot replace the limits: it bounds the inputs of the gates. The limits bound
        the cell f * c + i * g. For any `clip` the cell can reach the limits, because f may be close
        to 1. A state that is a model input may also start at its limits.
        """
        if self.cell_limits is None:
            return False
        if c.data is None or self.activation != "TANH" or isinstance(times, str):
            return True
        return float(np.abs(c.data).max(initial=0)) + times > self.limit

    def emit_layer(
        self,
        g: Builder,
        x: Operand,
        auxiliary: Operand,
        states: Sequence[Value | None],
        *,
        reverse: bool,
    ) -> tuple[Value, ...]:
        """Return the sequence [times, 1, batch, cells], and the last states [1, batch, cells].

        1 - sigmoid(z) is sigmoid(-z), so a coupled input gate has the negated parameters of the
        forget gate.
        """
        x, parameters = self.stack_parameters(g, x, auxiliary)
        return self.run_onnx(g, x, states, parameters, reverse=reverse)

    def stack_parameters(
        self, g: Builder, x: Operand, auxiliary: Operand
    ) -> tuple[Operand, Parameters]:
        """Return the sequence that ONNX's LSTM reads, and its constant operands."""
        signs = [1 if letter in self.gates else -1 for letter in ORDER]
        gates = [self.gates.get(letter, self.gates["f"]) for letter in ORDER]
        w = stack_matrices(g, self.x, [gate.weights for gate in gates], add_direction_axis, signs)
        if auxiliary is not None:
            matrices = [gate.auxiliary for gate in gates if gate.auxiliary]
            w = g.Concat(w, stack_matrices(g, self.x, matrices, add_direction_axis, signs), axis=2)
            x = g.Concat(x, auxiliary, axis=2)
        b = [s * self._make_bias(gate) for s, gate in zip(signs, gates, strict=True)]
        p = [
            s * dequantize_weights(self.x, gate.peephole)
            for s, gate in zip(signs, gates, strict=True)
            if gate.peephole
        ]
        r = stack_matrices(g, self.h, [gate.recurrent for gate in gates], add_direction_axis, signs)
        biases = np.concatenate([*b, np.zeros(len(ORDER) * self.cells, np.float32)])[None]
        return x, Parameters(w, r, biases, np.concatenate(p)[None] if p else None)

    def run_onnx(
        self,
        g: Builder,
        x: Operand,
        states: Sequence[Value | None],
        parameters: Parameters,
        *,
        reverse: bool,
    ) -> tuple[Value, ...]:
        """Return the outputs of ONNX's LSTM; see `is_onnx`."""
        return g.node_outputs(
            "LSTM",
            3,
            x,
            *parameters[:-1],
            None,
            *states,
            parameters.peepholes,
            hidden_size=self.cells,
            direction="reverse" if reverse else None,
            **list_attributes(self.activations),
        )

    def _make_bias(self, gate: Gate) -> Array:
        return read_bias(gate.bias, read_scale(self.x), read_scale(gate.weights))

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
        """Return the sequence [times, batch, units], and the last states [batch, n].

        If x is [batch, features] there is one step, and the sequence is [batch, units].
        """
        projection = None
        if self.projection:
            projection = stack_matrices(g, self.h, [self.projection], np.transpose)
        matrices = [gate.recurrent for gate in self.gates.values()]
        weights = Weights(stack_matrices(g, self.h, matrices, np.transpose), projection)
        step = partial(self._emit_step, weights)
        sums = self._project_inputs(g, x, auxiliary, len(shape))
        if len(shape) == 2:  # the axes are batch and units
            states = step(g, sums, states)
            return states[0], states
        batch, n = shape[1], self.cells
        shapes = (*shape[:-1], n * len(self.gates)), (batch, self.units), (batch, n)
        return repeat_step(g, step, sums, states, shapes, reverse=reverse)

    def _project_inputs(self, g: Builder, x: Operand, auxiliary: Operand, rank: int) -> Value:
        """Return the contribution of x to the inputs of all gates, concatenated."""
        gates = list(self.gates.values())
        weights = [gate.weights for gate in gates]
        sums = g.MatMul(x, stack_matrices(g, self.x, weights, np.transpose))
        if auxiliary is not None:
            others = [gate.auxiliary for gate in gates if gate.auxiliary]
            matrix = stack_matrices(g, self.x, others, np.transpose)
            sums = g.Add(sums, g.MatMul(auxiliary, matrix))
        if not gates[0].normalization:
            # Runtimes fuse an int8 product and an Add into a node that some of them then reject.
            add = g.Sum if self.storage.sums else g.Add
            sums = add(sums, np.concatenate([self._make_bias(gate) for gate in gates]))
        return round_to_storage(g, sums, self._sums, rank)

    @property
    def _sums(self) -> Storage | None:
        """The storage of the inputs of all gates, concatenated."""
        sums = self.storage.sums
        scales = [float(each.scale[0]) for each in sums]
        if len({*scales}) < 2:
            return sums[0] if sums else None
        return make_storage(DType.INT16, np.repeat(scales, self.cells))

    def _emit_step(
        self, weights: Weights, g: Builder, now: Value, states: tuple[Value, ...]
    ) -> tuple[Value, ...]:
        h, c = states
        sums = self._sum_gates(weights, g, now, h)
        forget_gate = self._emit_gate(g, "f", sums["f"], c)
        if "i" in self.gates:
            input_gate = self._emit_gate(g, "i", sums["i"], c)
        else:
            input_gate = g.Sub(g.scalar(self._find_unit_value(g), DType.FLOAT32), forget_gate)
        remembered = round_to_storage(g, g.Mul(forget_gate, c), self.storage.cell)
        update = g.Mul(input_gate, self._emit_gate(g, "c", sums["c"], c))
        c = round_to_storage(g, g.Add(remembered, update), self.storage.cell)
        c = clip_to_limits(g, c, self.cell_limits)
        if self.shares_state and not is_hybrid(self.x, self.gates["o"].recurrent):
            sums = self._sum_gates(weights, g, now, c)
        activated = apply_activation(g, self.activation, c)
        activated = round_to_storage(g, activated, self.storage.functions)
        hidden = g.Mul(self._emit_gate(g, "o", sums["o"], c), activated)
        if self.storage.hidden and g.plan.find_inner_storage(self.storage.hidden).quantization:
            hidden = clip_to_limits(g, hidden, self.storage.hidden_limits)
        h = self._emit_output(g, weights, hidden)
        return h, g.Identity(h) if self.shares_state else c

    def _sum_gates(self, weights: Weights, g: Builder, now: Value, h: Value) -> dict[str, Value]:
        sums = round_to_storage(g, self._add_product(g, h, weights.recurrent, now), self._sums)
        count = len(self.gates)
        parts = g.node_outputs("Split", count, sums, [self.cells] * count, axis=1)
        return dict(zip(self.gates, parts, strict=True))

    def _add_product(self, g: Builder, x: Value, matrix: Operand, added: Operand) -> Value:
        """Return x times a matrix, and a sum.

        Runtimes join a Gemm of integers only with a bias and a result of integers; otherwise they
        dequantize the matrix in each run. A Scan reads the matrix that its graph has dequantized.
        """
        if self.storage.sums and added is not None and not g.is_nested:
            return g.Sum(g.MatMul(x, matrix), added)
        return g.Gemm(x, matrix, added)

    def _emit_gate(self, g: Builder, letter: str, z: Value, c: Value) -> Value:
        gate = self.gates[letter]
        if gate.peephole:
            place = list(self.gates).index(letter)
            storage = self.storage.sums[place] if self.storage.sums else None
            product = g.Mul(c, dequantize_weights(self.x, gate.peephole))
            z = round_to_storage(g, g.Add(z, product), storage)
        if gate.normalization:
            factors = dequantize_weights(self.x, gate.normalization)
            b = read_bias(gate.bias, read_scale(gate.normalization), 2**-10)
            z = g.LayerNormalization(z, factors, b, axis=-1, epsilon=_EPSILON)
            z = round_to_storage(g, z, self.storage.normalized)
        z = apply_activation(g, self.activation, z) if letter == "c" else g.Sigmoid(z)
        return round_to_storage(g, z, self.storage.functions)

    def _find_unit_value(self, g: Builder) -> float:
        """Return 1, or the largest number that the storage of the functions represents."""
        storage = g.plan.find_inner_storage(self.storage.functions or REAL)
        if not storage.quantization:
            return 1
        return find_integer_range(storage.dtype)[1] * float(storage.scale[0])

    def _emit_output(self, g: Builder, weights: Weights, hidden: Value) -> Value:
        if self.projection is None:
            return round_to_storage(g, hidden, self.storage.hidden, read=self.storage.state)
        hidden = round_to_storage(g, hidden, self.storage.hidden)
        b = None
        if self.projection_bias:
            storage = self.storage.hidden
            scale = 1 if storage is None else float(storage.scale[0])
            b = read_bias(self.projection_bias, scale, read_scale(self.projection))
        projected = self._add_product(g, hidden, weights.projection, b)
        rounded = round_to_storage(g, projected, self.storage.state)
        return clip_to_limits(g, rounded, self.output_limits)


def read_kernel_storage(
    intermediates: Sequence[Tensor],
    gates: Mapping[str, Gate],
    c: Tensor,
    h: Tensor,
    y: Tensor,
    *,
    projected: bool,
) -> KernelStorage:
    """Return the storage; OperatorError if the kernel does not support the tensors."""
    if len(intermediates) != _INTERMEDIATES:
        # With 12 tensors LiteRT runs another kernel (8 x 8 -> 8), which reads past the end of its
        # tables.
        raise OperatorError(
            f"it must have {_INTERMEDIATES} intermediate tensors, got {len(intermediates)}"
        )
    cell, state, hidden, _ = map(_read_quantization, (c, h, intermediates[_HIDDEN], y))
    if c is h:
        # Converters of 2020 wrote such files. LiteRT runs them, and reads c past the end of h.
        raise OperatorError(
            f"c must be a tensor of its own, of int16, got {c.name}, which is h too: "
            "quantize the model again with TensorFlow 2.4 or later"
        )
    if c.dtype is not DType.INT16 or h.dtype is not DType.INT8 or y.dtype is not DType.INT8:
        raise OperatorError(
            f"h, c and output must be int8, int16 and int8, got {h.dtype.label}, {c.dtype.label} "
            f"and {y.dtype.label}"
        )
    exponent = np.log2(cell.scale[0])  # the kernel shifts by this power of two
    if cell.zero_point.any() or abs(exponent - np.rint(exponent)) > _EXPONENT_ERROR:
        raise OperatorError(f"{c.name} must have a power of two as its scale, and the zero point 0")
    scales = [2.0**-12] * len(gates)
    if gates["o"].normalization:
        scales = [_read_quantization(intermediates["ifco".index(i)]).scale[0] for i in gates]
    step, zero = float(hidden.scale[0]), int(hidden.zero_point[0])
    low, high = find_integer_range(DType.INT8)
    opposite = -zero if projected else zero
    # Int8 has no zero point of 128, with which all numbers would be negative.
    fits = opposite <= high
    return KernelStorage(
        sums=tuple(make_storage(DType.INT16, scale) for scale in scales),
        normalized=make_storage(DType.INT16, 2.0**-12),
        functions=make_storage(DType.INT16, 2.0**-15),
        cell=make_storage(DType.INT16, cell.scale),
        hidden=make_storage(DType.INT8, step, opposite)
        if fits
        else make_storage(DType.INT16, step),
        hidden_limits=None if fits else ((low - opposite) * step, (high - opposite) * step),
        state=Storage(DType.INT8, state),
    )


def _read_quantization(tensor: Tensor) -> Quantization:
    if tensor.quantization is None or tensor.quantization.per_axis:
        raise OperatorError(f"{tensor.name} must have a single scale")
    return tensor.quantization


def clip_bounds(
    limit: float, tensor: Tensor, stored: Tensor | None = None
) -> tuple[float, float] | None:
    """Return the bounds (low, high) of a clip in real numbers, or None if there is no clip.

    The kernel clips the integers of `stored`, by default `tensor`, at limit / scale of `tensor`. It
    ignores the zero point.
    """
    if limit <= 0:
        return None
    if not is_quantized(tensor):
        return -limit, limit
    scale = _read_quantization(tensor).scale[0]
    bound = int(min(np.float32(limit) / scale, find_integer_range(tensor.dtype)[1]))
    if bound <= 0:
        return None
    quantization = _read_quantization(stored or tensor)
    scale, zero = quantization.scale[0], int(quantization.zero_point[0])
    return (-bound - zero) * float(scale), (bound - zero) * float(scale)


def _multiply(a: Tensor, b: Tensor) -> Tensor:
    """Return the product of two constant matrices, rounded once."""
    left_factor, other = (read_constant(matrix).astype(np.float64) for matrix in (a, b))
    data = (left_factor @ other).astype(np.float32)
    return replace(a, name=f"{a.name}/projected", shape=data.shape, data=data)

"""Base of the recurrent operators: packed weights, loops over time steps, rounding to integers.

A sequence is [time, batch, features] here; `time_major` is treated as a layout. Results that do not
depend on the state are computed for all times at once. All other results are computed in a step,
from the states before a time to the states after it.

An integer kernel stores every intermediate value as an integer with a scale. Here these values are
float32 numbers, and `round_to_storage` rounds them to the numbers that the integers represent.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import ClassVar, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from tflite2onnx.builder.adaptive_weights import add_adaptive_weights
from tflite2onnx.builder.builder import Body, Builder, Value, View
from tflite2onnx.layout import Frame, make_identity, pin_operand
from tflite2onnx.made_options import GateActivation, RecurrentOptions
from tflite2onnx.op.base import Category, OperatorError, OutputShape
from tflite2onnx.op.common.checks import expect, expect_type
from tflite2onnx.op.facts import Fact
from tflite2onnx.op.traits import DynamicShape
from tflite2onnx.quantization.declarations import Real
from tflite2onnx.quantization.rules import Reading, find_weight_storage
from tflite2onnx.quantization.storage import (
    QUANTIZED,
    REAL,
    Storage,
    decode_constant,
    encode_constant,
    is_quantized,
)
from tflite2onnx.tensor import Array, DType, Quantization, Shape, Sizes, Tensor
from tflite2onnx.utils.dimension import require_equal, require_number

# A function from the states before a time step to the states after it. State 0 is the output.
Step: TypeAlias = Callable[[Builder, Value, tuple[Value, ...]], tuple[Value, ...]]
Shaped: TypeAlias = tuple[Value, Sizes]

SHARED_STATE = "its states must be different variables: the kernel writes to one variable twice"
_SEQUENCE, _STATE = 3, 2  # axes
# The element types of weights and biases. LiteRT's recurrent kernels unpack no integers of 4 bits:
# these are weights of layers that a file has step by step.
_STORED = frozenset(
    {
        *(DType.FLOAT32, DType.FLOAT16),
        *(DType.INT4, DType.INT8, DType.UINT8, DType.INT16, DType.INT32),
    }
)


def round_to_storage(
    g: Builder, x: Value, storage: Storage | None, rank: int = 2, *, read: Storage | None = None
) -> Value:
    """Return numbers rounded to the numbers that a storage represents.

    With None, or if the quantization is float, numbers are not rounded. `read` is the storage in
    which the integers are read, if it is another one: it has one scale, as `storage` has.
    """
    inner = g.plan.find_inner_storage(storage or REAL)
    if inner.quantization is None:
        return x if storage is None or read is None else read_as(g, x, storage, read)
    order = make_identity(rank)
    storage = inner._replace(quantization=replace(inner.quantization, axis=rank - 1))
    return g.dequantize(g.quantize(x, storage, order), read or storage, order)


def read_as(g: Builder, x: Value, storage: Storage, read: Storage) -> Value:
    """Return the numbers for which the integers of a storage stand in another storage."""
    if storage.quantization and storage.quantization.same_as(read.quantization):
        return x
    scaled = g.Mul(x, g.scalar(read.scale[0] / storage.scale[0], DType.FLOAT32))
    offset = (storage.zero_point - read.zero_point) * float(read.scale[0])
    return g.Add(scaled, g.scalar(offset, DType.FLOAT32)) if offset else scaled


def make_storage(dtype: DType, scale: ArrayLike, zero_point: int = 0) -> Storage:
    """Return a storage of integers with one scale, or with one scale per index of the last axis."""
    scales = np.atleast_1d(np.asarray(scale, np.float32))
    return Storage(dtype, Quantization(scales, np.full(scales.shape, zero_point, np.int64)))


def read_constant(tensor: Tensor) -> Array:
    """Return the elements of constant weights; OperatorError if the tensor is not constant."""
    if tensor.data is None:
        raise OperatorError(f"{tensor.name} must be constant")
    return tensor.data


def expect_constant(tensor: Tensor | None, *shapes: Shape) -> None:
    """Raise OperatorError unless a tensor is None, or is constant and has one of these shapes."""
    if tensor is None:
        return
    name, shape = tensor.name, list(tensor.shape)
    if tensor.dtype not in _STORED:
        raise OperatorError(f"{name} must be weights or biases, got {tensor.dtype.label}")
    if tensor.dtype in QUANTIZED and not is_quantized(tensor):
        raise OperatorError(f"{name} must have a scale")
    if read_constant(tensor).shape not in shapes:
        raise OperatorError(f"the shape of {name} must be {list(shapes[0])}, got {shape}")


def expect_bias(x: Tensor, tensor: Tensor | None, units: int) -> None:
    """Raise OperatorError unless a tensor is None, or a bias [units] of an operator that reads x.

    The kernels choose the type of biases by the type of x.
    """
    expect_constant(tensor, (units,))
    if tensor is not None:
        is_float = x.dtype is DType.FLOAT32
        expect_type(tensor, (DType.FLOAT32, DType.FLOAT16) if is_float else (DType.INT32,))


def dequantize_weights(x: Tensor, weights: Tensor) -> Array:
    """Return the constant weights that multiply x, as float32 numbers."""
    storage = find_weight_storage(x, weights, folds=True)[0]
    data = encode_constant(read_constant(weights), weights.dtype, storage)
    if storage.quantization is None:
        return data.astype(np.float32, copy=False)
    return decode_constant(data, storage.quantization)


def stack_matrices(
    g: Builder,
    x: Tensor,
    matrices: Sequence[Tensor],
    arrange: Callable[[Array], Array],
    signs: Iterable[int] = (),
) -> Value:
    """Return the matrices that multiply x as one float32 matrix with the rows of all.

    Integer weights stay integers in the file, followed by a DequantizeLinear. A runtime folds it at
    load if x is a float tensor. If x is quantized, the DequantizeLinear is not folded, because
    runtimes would then quantize the weights again (docs/runtime-faults.md).

    Args:
        g: the builder.
        x: the tensor that is multiplied.
        matrices: constant [rows, columns] each; a vector is the diagonal of a matrix.
        arrange: reorders the axes of the result. If the rows may have different scales they must
            stay on axis 1.
        signs: a factor of 1 or -1 for each matrix.
    """
    factors = list(signs) or [1] * len(matrices)
    name = matrices[0].name
    planned = [g.plan.find_inner_weights(x, w) for w in matrices]
    storages = [p.storage for p in planned if p.reading is not Reading.FLOAT]
    scales = [
        k.quantization for k in storages if k.quantization and _has_scales_of_rows(k.quantization)
    ]
    if len(scales) < len(matrices) or len({k.dtype for k in storages}) > 1:
        is_half = all(read_constant(w).dtype == np.float16 for w in matrices)
        parts = [read_constant(w) if is_half else dequantize_weights(x, w) for w in matrices]
        data = np.concatenate(
            [f * (np.diag(p) if p.ndim == 1 else p) for f, p in zip(factors, parts, strict=True)]
        )
        value = g.constant(np.ascontiguousarray(arrange(data)), name=name)
        return g.cast(value, DType.FLOAT32) if is_half else value
    pairs = zip(matrices, storages, strict=True)
    rows = [encode_constant(read_constant(w), w.dtype, k) for w, k in pairs]
    data = np.ascontiguousarray(arrange(np.concatenate(rows)))
    sizes = [1] if len(matrices) == 1 and not scales[0].per_axis else [len(part) for part in rows]
    numbers = [(f * s.scale, s.zero_point) for f, s in zip(factors, scales, strict=True)]
    scale, zero = (
        np.concatenate([np.broadcast_to(part, n) for part, n in zip(column, sizes, strict=True)])
        for column in zip(*numbers, strict=True)
    )
    quantization = Quantization(scale.astype(np.float32), zero, 1)
    storage = g.widen_storage(storages[0]._replace(quantization=quantization))
    integers = g.annotate(g.constant(data, storage.dtype, name), storage.dtype, data.shape)
    return g.dequantize_weights(integers, storage, make_identity(data.ndim))


def _has_scales_of_rows(quantization: Quantization) -> bool:
    """Return whether a matrix has one scale, or one per row."""
    whole = not quantization.per_axis or quantization.axis == 0
    return whole and not quantization.block_size


def add_direction_axis(rows: Array) -> Array:
    """Return a matrix with the leading axis of directions of ONNX's recurrent nodes."""
    return rows[None]


def read_bias(tensor: Tensor, *scales: float) -> Array:
    """Return a bias as float32; the scale of an integer bias is the product of `scales`."""
    data = read_constant(tensor)
    return (data if data.dtype.kind == "f" else data * np.prod(scales)).astype(np.float32)


def read_scale(tensor: Tensor) -> float:
    """Return the scale of a tensor, or 1 if it is not quantized."""
    return 1.0 if tensor.quantization is None else float(tensor.quantization.scale[0])


def clip_to_limits(g: Builder, x: Value, limits: tuple[float, float] | None) -> Value:
    """Return x clipped to (low, high); None does not clip."""
    if limits is None:
        return x
    return g.Clip(x, *(g.scalar(limit, DType.FLOAT32) for limit in limits))


def repeat_step(
    g: Builder,
    step: Step,
    x: Value,
    states: Sequence[Value],
    shapes: Sequence[Sizes],
    *,
    reverse: bool = False,
) -> tuple[Value, tuple[Value, ...]]:
    """Return the first state at all times, and all states after the last time.

    x is [time, ...]; a step gets x at one time. `shapes` are the shapes of x and of the states.
    """
    (times, *step_shape), state_shapes = shapes[0], shapes[1:]
    if times == 1:
        after = step(g, g.reshape(x, step_shape), tuple(states))
        return g.reshape(after[0], (1, *state_shapes[0])), after

    def step_and_copy(
        inner: Builder, now: tuple[Value, ...], before: tuple[Value, ...]
    ) -> list[Shaped]:
        after = step(inner, now[0], before)
        rows = (*after, inner.Identity(after[0]))
        return list(zip(rows, (*state_shapes, state_shapes[0]), strict=True))

    named = list(zip(states, state_shapes, strict=True))
    rows = [(x, tuple(step_shape))]
    *final, sequence = scan(g, step_and_copy, rows, named, reverse=reverse)
    return sequence, tuple(final)


def scan(
    g: Builder,
    step: Callable[[Builder, tuple[Value, ...], tuple[Value, ...]], Sequence[Shaped]],
    xs: Sequence[Shaped],
    states: Sequence[Shaped],
    *,
    reverse: bool,
    types: Sequence[DType] = (),
) -> tuple[Value, ...]:
    """Return the states after the last rows of the sequences xs, then the other results.

    A step gets a row of each sequence and the states before the step. It returns the states after
    the step, then rows. Each value is a pair with its shape; the shape of a sequence is the shape
    of its rows. `types` are the types of the sequences. By default all values are float32.
    """
    inner = g.make_nested()
    names = [f"now_{i}" if i else "now" for i in range(len(xs))]
    floats = (DType.FLOAT32,) * (len(xs) + len(states))
    now, before = (
        tuple(
            inner.annotate(Value(dtype=dtype, name=name), dtype, shape)
            for name, (_, shape), dtype in zip(names, values, dtypes, strict=False)
        )
        for names, values, dtypes in ((names, xs, types or floats), (("h", "c"), states, floats))
    )
    outputs = tuple(
        inner.annotate(value, DType.FLOAT32, shape) for value, shape in step(inner, now, before)
    )
    directions = [1] if reverse else None
    nodes = add_adaptive_weights(inner, inner.nodes, outputs)
    return g.node_outputs(
        "Scan",
        len(outputs),
        *(value for value, _ in (*states, *xs)),
        body=Body("step", (*before, *now), nodes, outputs, ()),
        num_scan_inputs=len(xs),
        scan_input_directions=directions and directions * len(xs),
        scan_output_directions=directions and directions * (len(outputs) - len(states)),
    )


class Recurrent(DynamicShape):
    """Base class of the recurrent operators over sequences.

    Inputs are a sequence, optionally an auxiliary sequence, parameters, and states, for one or two
    directions. Outputs are one sequence per direction, concatenated if `merge_outputs`, and the
    last states in the order of the inputs. The second direction runs backwards in time.

    If the auxiliary sequence has parameters, both directions add it. Otherwise the second direction
    reads it in place of the first sequence.

    Attributes:
        auxiliary: the input that is the auxiliary sequence, if the operator can have one.
        states: the inputs that are states, per direction.
    """

    category = Category.IMPLICIT
    returns_tuple = True
    facts = (Fact.APPLIES_ACTIVATION, Fact.WRITES_INPUTS)
    auxiliary: ClassVar[int | None] = None
    states: ClassVar[tuple[tuple[int, ...], ...]] = ()

    def find_input(self, index: int | None) -> Tensor | None:
        """Return an optional input; None if the operator does not have it."""
        if index is None or index >= len(self.op.inputs):
            return None
        return self.op.inputs[index]

    @property
    def sequences(self) -> int:
        """The number of outputs that are sequences."""
        return 1 if self.options.get("merge_outputs") else len(self.states)

    @property
    def activation_function(self) -> str:
        """The activation function that the kernel applies within a step."""
        return self.options.get("fused_activation_function") or "NONE"

    @property
    def activations(self) -> Sequence[GateActivation]:
        """The activations in the order of the ONNX node's functions; see `activations.py`."""
        function = GateActivation(self.activation_function)
        default = GateActivation("LOGISTIC"), function, function
        return self.op.read_made(RecurrentOptions).activations or default

    def frames(self) -> Sequence[Frame]:
        """Return frames that read and write sequences as [time, batch, features]."""
        order = (0, 1, 2) if self.options.get("time_major") else (1, 0, 2)
        is_sequence = self.input(0).rank == _SEQUENCE
        return [pin_operand(operand, order) for operand in self._sequences] if is_sequence else []

    def find_mixed_axes(self, operand: int) -> Collection[int] | None:
        batch = self.find_common_axis(0, self._batch_axis, operand)
        if batch is None:
            return None
        return [axis for axis in range(self.input(operand).rank) if axis != batch]

    def find_common_axis(self, operand: int, axis: int, other: int) -> int | None:
        sequences = set(self._sequences)
        states = {i for indices in self.states for i in indices}
        batch = [self._batch_axis if i in sequences else 0 for i in (operand, other)]
        known = {operand, other} <= sequences | states
        return batch[1] if known and axis == batch[0] else None

    def supports_dynamic_axis(self, operand: int, axis: int) -> bool:
        """Return whether the axis is time, or the batch if all states have the same batch."""
        if self.input(0).rank != _SEQUENCE:
            return False
        time = 0 if self.options.get("time_major") else 1
        states = [self.input(i).sizes for indices in self.states for i in indices]
        same_batch = all(len(s) == _STATE and s[0] == self.batch for s in states)
        if operand in self._sequences:
            return axis == time or (axis == 1 - time and same_batch)
        return axis == 0 and same_batch

    @property
    def quantization(self) -> Real:
        """Constant integers among the parameters are weights; the states are real numbers."""
        states = {i for indices in self.states for i in indices}
        return Real(
            multiplies={
                i
                for i, t in enumerate(self.op.inputs)
                if i not in (0, self.auxiliary, *states) and t is not None and is_quantized(t)
            }
        )

    @property
    def _sequences(self) -> list[int]:
        """The operands that are sequences."""
        extra = [] if self.auxiliary is None else [self.auxiliary]
        inputs = [0, *(i for i in extra if self.find_input(i) is not None)]
        return [*inputs, *(~i for i in range(self.sequences))]

    @property
    def units(self) -> list[int]:
        """The number of output features of each direction."""
        raise NotImplementedError

    def infer_outputs(self) -> Sequence[OutputShape]:
        x, *lead = self.input(0), *self.input(0).shape[:-1]
        # The weights of the input gate are omitted if it is coupled to the forget gate.
        weights = self.find_input(1) or self.input(2)
        count = weights.shape[-1]
        require_number(x.shape[-1], count, f"{x.name} must have {count} features")
        units = [sum(self.units)] if self.sequences < len(self.units) else self.units
        states = [self.input(i).shape for indices in self.states for i in indices]
        batch = self.input(0).shape[self._batch_axis]
        for state in states:
            if len(state) == _STATE:
                reason = f"{x.name} must have the batch of its states, {state[0]}, got {[*x.shape]}"
                require_equal(state[0], batch, reason)
        return [*((*lead, n) for n in units), *states][: len(self.op.outputs)]

    def expect_sequences(self, ranks: Collection[int]) -> None:
        """Raise OperatorError unless sequences, states and outputs match each other."""
        x, other = self.input(0), self.find_input(self.auxiliary)
        if x.rank not in ranks or 0 in x.shape:
            raise OperatorError(
                f"{x.name} must be a sequence with {' or '.join(map(str, ranks))} non-empty axes, "
                f"got {list(x.shape)}"
            )
        if other is not None and (other.shape[:-1] != x.shape[:-1] or other.dtype is not x.dtype):
            raise OperatorError(
                f"{other.name} and {x.name} must have the same length, batch and type, got "
                f"{other.dtype.label}{list(other.shape)} and {x.dtype.label}{list(x.shape)}"
            )
        if self.op.read_made(RecurrentOptions).shared_state and not self.shares_state:
            raise OperatorError(SHARED_STATE)
        if (count := len(self.op.outputs)) < self.sequences:
            raise OperatorError(f"it must have {self.sequences} or more outputs, got {count}")
        for y, shape in zip(self.op.outputs[: self.sequences], self.infer_outputs(), strict=False):
            expect(y, shape, x.dtype)

    def expect_state(self, index: int, units: int, dtype: DType) -> None:
        """Raise OperatorError unless an input can be a state [batch, units] of this type."""
        state = self.input(index)
        batch = self.input(0).shape[self._batch_axis]
        is_turned = state.rank == _STATE and state.shape != (batch, units)
        if state.elements != batch * units or is_turned or state.dtype is not dtype:
            raise OperatorError(
                f"{state.name} must be a state {dtype.label}{[batch, units]}, got "
                f"{state.dtype.label}{list(state.shape)}"
            )

    @property
    def batch(self) -> int | str:
        """The batch size, or its symbol if the axis is dynamic."""
        return self.input(0).sizes[self._batch_axis]

    @property
    def _batch_axis(self) -> int:
        major = self.input(0).rank == _SEQUENCE and self.options.get("time_major")
        return 1 if major else 0

    def emit(self, g: Builder, y: tuple[View, ...], *xs: View | None) -> tuple[Value, ...]:
        sequences, final_states = [], []
        views = {i: view for i, view in enumerate(xs) if view is not None}
        for direction, indices in enumerate(self.states):
            x, other = self.select_sources(direction, views)
            states = [views[i] for i in indices]
            sequence, last_states = self.run_direction(g, direction, x, other, states)
            sequences.append(sequence)
            final_states += [
                g.reshape(state, view.tensor.shape) if view.rank != _STATE else state
                for state, view in zip(last_states, states, strict=True)
            ]
        if self.sequences < len(sequences):
            sequences = [g.Concat(*sequences, axis=y[0].rank - 1)]
        return (*sequences, *final_states)

    def select_sources(self, direction: int, views: Mapping[int, View]) -> tuple[View, View | None]:
        """Return the sequence that a direction reads, and the auxiliary sequence, if any."""
        other = None if self.auxiliary is None else views.get(self.auxiliary)
        if other is None or self.adds_auxiliary:
            return views[0], other
        return (other if direction else views[0]), None

    @property
    def adds_auxiliary(self) -> bool:
        """Whether the auxiliary sequence has parameters."""
        return False

    @property
    def shares_state(self) -> bool:
        """Whether all states are the same variable, which the class supports."""
        return False

    def run_direction(
        self, g: Builder, direction: int, x: View, auxiliary: View | None, states: Sequence[View]
    ) -> tuple[Value, tuple[Value, ...]]:
        """Return the sequence of one direction, and its last states [batch, units]."""
        raise NotImplementedError

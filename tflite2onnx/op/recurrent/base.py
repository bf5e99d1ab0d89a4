"""What recurrent operators share: packed weights, one step after the other, what is stored.

A sequence is [time, batch, features] here, whatever the file says: `time_major` is a layout. All
that does not depend on the state is computed for all times at once; what is left is a step from
the states before a time to those after it.

Between the steps of an integer kernel everything is an integer of some scale. Here these are real
numbers, and `round_to_storage` makes them what is left of them by such an integer.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import ClassVar, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from tflite2onnx.builder.builder import Body, Builder, Value, View
from tflite2onnx.layout import Frame, identity, pin_operand
from tflite2onnx.op.base import Category, OperatorError
from tflite2onnx.op.common.checks import expect
from tflite2onnx.op.traits import DynamicShape
from tflite2onnx.quantize import (
    Storage,
    decode_constant,
    encode_constant,
    is_quantized,
    weight_storage,
)
from tflite2onnx.tensor import Array, DType, Quantization, Shape, Sizes, Tensor

# From the states before a time to those after it; the first is what the operator makes.
Step: TypeAlias = Callable[[Builder, Value, tuple[Value, ...]], tuple[Value, ...]]

_SEQUENCE, _STATE = 3, 2  # axes


def round_to_storage(g: Builder, x: Value, kept: Storage | None, rank: int = 2) -> Value:
    """Return what is left of real numbers once they have been stored; None stores them as such.

    Where all is to be real nothing is stored otherwise.
    """
    if kept is None or kept.quantization is None or g.float_only:
        return x
    order = identity(rank)
    kept = kept._replace(quantization=replace(kept.quantization, axis=rank - 1))
    return g.dequantize(g.quantize(x, kept, order), kept, order)


def storage_of_scale(dtype: DType, scale: ArrayLike, zero_point: int = 0) -> Storage:
    """Return a storage of integers with one scale, or one for each index of the last axis."""
    scales = np.atleast_1d(np.asarray(scale, np.float32))
    return Storage(dtype, Quantization(scales, np.full(scales.shape, zero_point, np.int64)))


def constant_elements(tensor: Tensor) -> Array:
    """Return the elements of constant weights."""
    if tensor.data is None:
        raise OperatorError(f"{tensor.name} is not constant")
    return tensor.data


def expect_constant(tensor: Tensor | None, *shapes: Shape) -> None:
    """Raise OperatorError unless parameters, if there, are constant and of one of these shapes."""
    if tensor is not None and constant_elements(tensor).shape not in shapes:
        raise OperatorError(
            f"{tensor.name} is {list(tensor.shape)} where {list(shapes[0])} is expected"
        )


def dequantize_weights(x: Tensor, weights: Tensor) -> Array:
    """Return the real numbers that constant weights stand for, which x is multiplied by."""
    kept = weight_storage(x, weights, None, folds=True)
    data = encode_constant(constant_elements(weights), weights.dtype, kept)
    if kept.quantization is None:
        return data.astype(np.float32, copy=False)
    return decode_constant(data, kept.quantization)


def stack_matrices(
    g: Builder,
    x: Tensor,
    matrices: Sequence[Tensor],
    arrange: Callable[[Array], Array],
    signs: Iterable[int] = (),
) -> Value:
    """Return matrices one above the other as one, in real numbers; x is multiplied by them.

    `arrange` gives it its form, and leaves the rows on axis 1 if they may differ in scale.
    Integers stay what they are in the file: of those for float data a runtime makes real numbers
    when it loads the model. (Of others ONNX Runtime would then make integers again, by
    WeightBiasQuantization.) A vector is the diagonal of a matrix, and a sign of -1 stands for the
    opposite.
    """
    factors = list(signs) or [1] * len(matrices)
    name = matrices[0].name
    kept = [weight_storage(x, w, g.weights, folds=True) for w in matrices]
    scales = [k.quantization for k in kept if k.quantization and _of_rows(k.quantization)]
    if g.float_only or len(scales) < len(matrices) or len({k.dtype for k in kept}) > 1:
        half = all(constant_elements(w).dtype == np.float16 for w in matrices)
        parts = [constant_elements(w) if half else dequantize_weights(x, w) for w in matrices]
        data = np.concatenate([f * _square(p) for f, p in zip(factors, parts, strict=True)])
        value = g.constant(np.ascontiguousarray(arrange(data)), name=name)
        return g.cast(value, DType.FLOAT32) if half else value
    rows = [
        encode_constant(constant_elements(w), w.dtype, k)
        for w, k in zip(matrices, kept, strict=True)
    ]
    data = np.ascontiguousarray(arrange(np.concatenate(rows)))
    sizes = [1] if len(matrices) == 1 and not scales[0].per_axis else [len(each) for each in rows]
    numbers = [(f * s.scale, s.zero_point) for f, s in zip(factors, scales, strict=True)]
    scale, zero = (
        np.concatenate([np.broadcast_to(each, n) for each, n in zip(column, sizes, strict=True)])
        for column in zip(*numbers, strict=True)
    )
    quantization = Quantization(scale.astype(np.float32), zero, 1)
    storage = Storage(kept[0].dtype, quantization, folds=not is_quantized(x))
    return g.dequantize(g.constant(data, storage.dtype, name), storage, identity(data.ndim))


def _of_rows(quantization: Quantization) -> bool:
    """Return whether there is one scale, or one for each row of a matrix."""
    whole = not quantization.per_axis or quantization.axis == 0
    return whole and not quantization.block_size


def _square(data: Array) -> Array:
    return np.diag(data) if data.ndim == 1 else data


def on_axis_1(rows: Array) -> Array:
    """Return a matrix as ONNX's recurrent nodes take it, which have an axis for directions."""
    return rows[None]


def bias(tensor: Tensor, *scales: float) -> Array:
    """Return a bias in real numbers; integers have the product of these scales."""
    data = constant_elements(tensor)
    return (data if data.dtype.kind == "f" else data * np.prod(scales)).astype(np.float32)


def scale_of(tensor: Tensor) -> float:
    """Return a tensor's scale, 1 if it has none."""
    return 1.0 if tensor.quantization is None else float(tensor.quantization.scale[0])


def clip_to_limits(g: Builder, x: Value, limits: tuple[float, float] | None) -> Value:
    """Return x within limits, if there are any."""
    if limits is None:
        return x
    return g.Clip(x, *(g.scalar(limit, DType.FLOAT32) for limit in limits))


def over_time(
    g: Builder,
    step: Step,
    x: Value,
    states: Sequence[Value],
    shapes: Sequence[Sizes],
    *,
    reverse: bool = False,
) -> tuple[Value, tuple[Value, ...]]:
    """Return the first state at all times, and all states in the end.

    x is [time, ...], of which a step is given one time; `shapes` are those of x and the states.
    """
    (times, *each), of_states = shapes[0], shapes[1:]
    if times == 1:
        after = step(g, g.reshape(x, each), tuple(states))
        return g.reshape(after[0], (1, *of_states[0])), after
    inner = g.make_nested()
    now, *before = (
        inner.annotate(Value(dtype=DType.FLOAT32, name=name), DType.FLOAT32, tuple(shape))
        for name, shape in zip(("now", "h", "c"), (each, *of_states), strict=False)
    )
    after = step(inner, now, tuple(before))
    seen = inner.Identity(after[0])
    outputs = tuple(
        inner.annotate(value, DType.FLOAT32, shape)
        for value, shape in zip((*after, seen), (*of_states, of_states[0]), strict=True)
    )
    back = [1] if reverse else None
    *last, made = g.node_outputs(
        "Scan",
        len(outputs),
        *states,
        x,
        body=Body("step", (*before, now), tuple(inner.nodes), outputs, ()),
        num_scan_inputs=1,
        scan_input_directions=back,
        scan_output_directions=back,
    )
    return made, tuple(last)


class Recurrent(DynamicShape):
    """What recurrent operators over sequences have in common.

    Inputs are a sequence, perhaps another (`auxiliary`), parameters, and states, for one or two
    directions; outputs the sequences that they make, side by side if `merge_outputs`, and the
    states in the end in the sequence of the inputs. The second direction runs back in time.

    Where there are parameters for it the auxiliary sequence adds to both directions, else it is
    what the second one reads in place of the first sequence.
    """

    category = Category.IMPLICIT
    returns_tuple = True
    fuses_activation = False
    auxiliary: ClassVar[int | None] = None
    states: ClassVar[tuple[tuple[int, ...], ...]] = ()

    def optional(self, index: int | None) -> Tensor | None:
        """Return an input that need not be there."""
        if index is None or index >= len(self.op.inputs):
            return None
        return self.op.inputs[index]

    @property
    def sequences(self) -> int:
        """How many outputs are sequences."""
        return 1 if self.options.get("merge_outputs") else len(self.states)

    @property
    def activation_function(self) -> str:
        """The activation function that the kernel applies within a step."""
        return self.options.get("fused_activation_function") or "NONE"

    def frames(self) -> Sequence[Frame]:
        """Return sequences in the order [time, batch, features], whatever the file has."""
        order = (0, 1, 2) if self.options.get("time_major") else (1, 0, 2)
        there = self.input(0).rank == _SEQUENCE
        return [pin_operand(operand, order) for operand in self._sequences] if there else []

    def supports_dynamic_axis(self, operand: int, axis: int) -> bool:
        """Return whether it is the axis of times, or of batches if states have the same."""
        if self.input(0).rank != _SEQUENCE:
            return False
        time = 0 if self.options.get("time_major") else 1
        states = [self.input(i).sizes for indices in self.states for i in indices]
        alike = all(len(s) == _STATE and s[0] == self.batch for s in states)
        if operand in self._sequences:
            return axis == time or (axis == 1 - time and alike)
        return axis == 0 and alike

    @property
    def _sequences(self) -> list[int]:
        """The operands that are sequences."""
        extra = [] if self.auxiliary is None else [self.auxiliary]
        reads = [0, *(i for i in extra if self.optional(i) is not None)]
        return [*reads, *(~i for i in range(self.sequences))]

    @property
    def units(self) -> list[int]:
        """How many features each direction makes."""
        raise NotImplementedError

    def infer_outputs(self) -> Sequence[Shape]:
        """Return the outputs' shapes: the kernels find them, and some files have none."""
        lead = self.input(0).shape[:-1]
        units = [sum(self.units)] if self.sequences < len(self.units) else self.units
        states = [self.input(i).shape for indices in self.states for i in indices]
        return [*((*lead, n) for n in units), *states][: len(self.op.outputs)]

    def resolve_output_shapes(self) -> tuple[Shape, ...]:
        """Return the outputs' shapes; states that are computed have the batch of the sequence."""
        batch = self.input(0).shape[self._batch_axis]
        for state in (self.input(i) for indices in self.states for i in indices):
            if state.rank == _STATE and state.shape[0] != batch:
                raise OperatorError(f"{state.name} is {list(state.shape)} for a batch of {batch}")
        return super().resolve_output_shapes()

    def expect_sequences(self, ranks: Container[int]) -> None:
        """Raise OperatorError unless sequences, states and outputs fit each other."""
        x, other = self.input(0), self.optional(self.auxiliary)
        if x.rank not in ranks or 0 in x.shape:
            raise OperatorError(f"{x.name} is {list(x.shape)}, which is no sequence")
        if other is not None and (other.shape[:-1] != x.shape[:-1] or other.dtype is not x.dtype):
            raise OperatorError(f"{other.name} and {x.name} are not as long, or of different types")
        if self.options.get("shared_state") and not self.shares_state:
            raise OperatorError(
                "two of its inputs are the same variable, which the kernel writes to twice"
            )
        if len(self.op.outputs) < self.sequences:
            raise OperatorError(f"it has {len(self.op.outputs)} outputs")
        for y, shape in zip(self.op.outputs[: self.sequences], self.infer_outputs(), strict=False):
            expect(y, shape, x.dtype)

    def expect_state(self, index: int, units: int, dtype: DType) -> None:
        """Raise OperatorError unless an input can be a state of so many elements in a batch."""
        state = self.input(index)
        batch = self.input(0).shape[self._batch_axis]
        if state.elements != batch * units or state.dtype is not dtype:
            declared = f"{state.dtype.label}{list(state.shape)}"
            raise OperatorError(f"{state.name} is {declared}, no state of {batch} by {units}")

    @property
    def batch(self) -> int | str:
        """How many sequences there are, the name of that if it stays open."""
        return self.input(0).sizes[self._batch_axis]

    @property
    def _batch_axis(self) -> int:
        major = self.input(0).rank == _SEQUENCE and self.options.get("time_major")
        return 1 if major else 0

    def emit(self, g: Builder, y: tuple[View, ...], *xs: View | None) -> tuple[Value, ...]:
        """Emit each direction."""
        made, after = [], []
        views = {i: view for i, view in enumerate(xs) if view is not None}
        for direction, indices in enumerate(self.states):
            x, other = self.sources(direction, views)
            states = [views[i] for i in indices]
            value, states_after = self.run_direction(g, direction, x, other, states)
            made.append(value)
            after += [
                g.reshape(state, view.tensor.shape) if view.rank != _STATE else state
                for state, view in zip(states_after, states, strict=True)
            ]
        if self.sequences < len(made):
            made = [g.Concat(*made, axis=y[0].rank - 1)]
        return (*made, *after)

    def sources(self, direction: int, views: Mapping[int, View]) -> tuple[View, View | None]:
        """Return the sequence that a direction reads, and the one that adds to it."""
        other = None if self.auxiliary is None else views.get(self.auxiliary)
        if other is None or self.adds_auxiliary:
            return views[0], other
        return (other if direction else views[0]), None

    @property
    def adds_auxiliary(self) -> bool:
        """Whether there are parameters for the auxiliary sequence."""
        return False

    @property
    def shares_state(self) -> bool:
        """Whether all states are the same variable, and the class can do with that."""
        return False

    def run_direction(
        self, g: Builder, direction: int, x: View, auxiliary: View | None, states: Sequence[View]
    ) -> tuple[Value, tuple[Value, ...]]:
        """Emit one direction: return its sequence, and its states [batch, units] in the end."""
        raise NotImplementedError

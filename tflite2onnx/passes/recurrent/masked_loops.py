"""Loops that leave out masked items of a sequence, as Keras writes layers that read a mask.

Where the mask is unset, each state keeps its value, and the output is 0 or the one before. So the
states depend on the unmasked items alone. A layer without a mask that reads these items first, in
their order, has the same states: its output number n is the state after n unmasked items.

    order    the unmasked times, then the others
    counts   the number of unmasked items up to each time

The items after the unmasked ones are computed, and nothing reads their outputs.
"""

from collections.abc import Collection
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from tflite2onnx.graph import Graph, Op, Producers
from tflite2onnx.passes.rewriter import Rewriter, make_from_axes, make_int32
from tflite2onnx.tensor import DType, Tensor

_TIMES_FIRST = (1, 0, 2)  # the permutation of [batch, time, numbers], and the one back


class MaskedChoice(NamedTuple):
    """The operator that gives a variable its next value, if the mask is set, or another value."""

    op: Op
    item: Tensor  # of the mask
    new: Tensor
    old: Tensor

    @property
    def is_zero(self) -> bool:
        """Whether the other value is 0."""
        return self.old.has_data and not self.old.values.any()


def find_choice(producers: Producers, tensor: Tensor) -> MaskedChoice | None:
    """Return the choice that computes a value, or the item that a value stores; None if none does.

    The item of the mask is [batch, 1].
    """
    op = producers.find(tensor)
    while op.is_builtin("RESHAPE", "EXPAND_DIMS", "DYNAMIC_UPDATE_SLICE"):
        op = producers.find(op.operand(op.code == "DYNAMIC_UPDATE_SLICE"))
    if not op.is_builtin("SELECT", "SELECT_V2"):
        return None
    item, new, old = op.present
    repeat = producers.find(item)
    if repeat.is_builtin("TILE", "BROADCAST_TO"):
        item = repeat.operand(0)
    return MaskedChoice(op, item, new, old)


def remove_choices(body: Graph, choices: Collection[MaskedChoice]) -> Graph:
    """Return the body of a loop in which all items are unmasked."""
    new = {choice.op.outputs[0]: choice.new for choice in choices}
    removed = {choice.op for choice in choices}
    ops = [op.with_inputs(new) for op in body.ops if op not in removed]
    return replace(body, ops=tuple(ops), outputs=tuple(new.get(t, t) for t in body.outputs))


class MaskedSequence:
    """Adds the operators around a layer; `mask` is [time, batch, 1], the number of times known."""

    def __init__(self, rw: Rewriter, mask: Tensor, name: str) -> None:
        self.rw, self._mask, self._name = rw, mask, name
        times = make_int32("times", mask.shape[0])
        places = make_int32("places", np.arange(mask.shape[0])[None])
        flags = self._make_matrix("mask", DType.BOOL)
        rw.op("SQUEEZE", self._swap(mask), output=flags, squeeze_dims=(2,))
        numbers = rw.op("CAST", flags, output=self._make_matrix("numbers"))
        self._counts, unmasked, key, ranked, self._order = map(
            self._make_matrix, ("counts", "unmasked", "key", "sorted", "order")
        )
        rw.op("CUMSUM", numbers, [1], output=self._counts)
        # Descending: first the unmasked times.
        rw.op("MUL", numbers, times, output=unmasked)
        rw.op("SUB", unmasked, places, output=key)
        rw.ops.append(Op("TOPK_V2", rw.source.index, (key, times), (ranked, self._order)))

    def _make_matrix(self, name: str, dtype: DType = DType.INT32) -> Tensor:
        return make_from_axes(f"{self._name}/{name}", [self._mask] * 2, (1, 0), dtype)

    def _swap(self, x: Tensor) -> Tensor:
        """Return a sequence with its first two axes swapped."""
        y = make_from_axes(f"{x.name}/swapped", [x] * 3, _TIMES_FIRST, x.dtype)
        return self.rw.transpose(x, _TIMES_FIRST, output=y)

    def _gather(self, x: Tensor, times: Tensor, name: str) -> Tensor:
        like = (self._mask, self._mask, x)
        y = make_from_axes(f"{self._name}/{name}", like, (1, 0, 2), x.dtype)
        return self._swap(self.rw.op("GATHER", x, times, output=y, axis=1, batch_dims=1))

    def put_unmasked_first(self, sequence: Tensor) -> Tensor:
        return self._gather(self._swap(sequence), self._order, "unmasked first")

    def find_states(self, first: Tensor, every: Tensor) -> Tensor:
        """Return the state after each time; `every` are the outputs of the layer."""
        outputs = self._swap(every)
        shape = (first.shape[0], 1, first.shape[1])
        start = Tensor(f"{self._name}/first", shape, first.dtype, symbols=first.symbols)
        self.rw.op("EXPAND_DIMS", first, [1], output=start)
        rows = outputs.shape[1] + 1
        whole = replace(
            outputs, name=f"{self._name}/states", shape=(outputs.shape[0], rows, outputs.shape[2])
        )
        self.rw.op("CONCATENATION", start, outputs, output=whole, axis=1)
        return self._gather(whole, self._counts, "every")

    def clear_masked(self, sequence: Tensor) -> Tensor:
        """Return a sequence with 0 in place of the masked items."""
        zero = Tensor("zero", (), sequence.dtype, np.zeros((), np.float32))
        y = replace(sequence, name=f"{self._name}/cleared")
        return self.rw.op("SELECT_V2", self._mask, sequence, zero, output=y)

    def take_last(self, sequence: Tensor) -> Tensor:
        y = make_from_axes(f"{sequence.name}/last", [sequence] * 2, (1, 2), sequence.dtype)
        last = make_int32("last", sequence.shape[0] - 1)
        return self.rw.op("GATHER", sequence, last, output=y, axis=0, batch_dims=0)

"""The keys and values that a language model keeps, in tensors of its own or in the operator."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tflite2onnx.op.base import Builder, Category, Operator, OperatorError, Value, View
from tflite2onnx.op.common.checks import check_element_count, expect
from tflite2onnx.op.traits import HasInternalState
from tflite2onnx.tensor import DType, Shape, Tensor

_AXES = 4
_DEFAULT_TIMES = 2048


class ExternalCache(Operator):
    """odml.update_external_kv_cache: keys and values, with new rows of both at some positions.

    All are float32 [1, time, heads, depth] but the positions, int32, one for each new row. They
    never fall: where they do, the new rows have come to an end, and the rest is padding. Of two
    rows at one position the later one stays, which ScatterND would not promise.
    """

    codes = ("odml.update_external_kv_cache",)
    custom = True
    category = Category.TERMINATE
    returns_tuple = True

    def check(self) -> None:
        keys, values, positions, *new = (self.input(i) for i in range(5))
        if keys.rank != _AXES or new[0].rank != _AXES or keys.shape[0] != 1:
            shapes = f"{list(keys.shape)} and {list(new[0].shape)}"
            raise OperatorError(f"{shapes} are not [1, time, heads, depth]")
        check_element_count(keys.shape[1])
        if len(self.op.outputs) != 2:  # keys and values
            raise OperatorError(f"{len(self.op.outputs)} outputs; keys and values are expected")
        for cache in (keys, values, *self.op.outputs):
            expect(cache, keys.shape, DType.FLOAT32)
        for rows in new:
            expect(rows, (1, new[0].shape[1], *keys.shape[2:]), DType.FLOAT32)
        expect(positions, (new[0].shape[1],), DType.INT32)

    def emit(
        self,
        g: Builder,
        ys: tuple[View, ...],
        keys: View,
        values: View,
        positions: View,
        *new: View,
    ) -> tuple[Value, ...]:
        matches = self._match_rows(g, positions, keys.shape[1])
        if positions.shape == (1,):  # a token at a time
            rows = [view.value for view in new]
            hit = matches
        else:
            ranks = g.cast(matches, DType.INT32)
            last = g.ArgMax(ranks, axis=1, keepdims=0, select_last_index=1)
            rows = [g.Gather(view, last, axis=1) for view in new]
            hit = g.cast(g.reduce("ReduceMax", ranks, [1], keepdims=True), DType.BOOL)
        hit = g.Unsqueeze(hit, g.ints([2]))
        return tuple(g.Where(hit, a, b) for a, b in zip(rows, (keys, values), strict=True))

    def _match_rows(self, g: Builder, positions: View, times: int) -> Value:
        """Return which new row has its place in which row of the caches, bool [times, rows]."""
        zero = g.ints([0])
        before = g.Concat(g.cast(zero, DType.INT32), g.Slice(positions, zero, g.ints([-1])), axis=0)
        falls = g.cast(g.Less(positions, before), DType.INT32)
        padding = g.cast(g.CumSum(falls, g.scalar(0, DType.INT64)), DType.BOOL)
        places = np.arange(times, dtype=np.int32)[:, None]
        return g.And(g.Equal(positions, places), g.Not(padding))


class InternalCache(HasInternalState):
    """odml.update_kv_cache: all keys and values so far, with new rows at some position.

    All are float32 [1, time, heads, depth]; the first of the positions, int64, counts, one for
    each new row. Where that is behind the last row, as many rows as it takes go at the front. (A
    position before those that are left is an error in LiteRT; here its rows are left out.)
    """

    codes = ("odml.update_kv_cache",)
    custom = True
    category = Category.TERMINATE
    returns_tuple = True

    @property
    def _shape(self) -> Shape:
        """The shape of all rows, as many as the kernel has room for."""
        new = self.input(1)
        if new.rank != _AXES or new.shape[0] != 1:
            raise OperatorError(f"{list(new.shape)} is not [1, time, heads, depth]")
        times = int(self.options.get("kv_cache_max", 0))
        return (1, times if times > 0 else _DEFAULT_TIMES, *new.shape[2:])

    @property
    def _layer(self) -> int:
        return max(int(self.options.get("layer_index", 0)), 0)

    def infer_outputs(self) -> Sequence[Shape]:
        return [self._shape] * 2

    def check(self) -> None:
        positions, keys, values = (self.input(i) for i in range(3))
        if not 0 < keys.shape[1] <= self._shape[1]:
            raise OperatorError(f"{keys.shape[1]} new rows of {self._shape[1]}")
        check_element_count(self._shape[1])
        _ = self._layer  # checks that it is a number
        expect(positions, keys.shape[1:2], DType.INT64)
        for new in (keys, values):
            expect(new, keys.shape, DType.FLOAT32)
        caches = self.op.outputs[:2]
        if len(caches) != 2:  # keys and values
            raise OperatorError(f"{len(caches)} outputs; keys and values are expected")
        for cache in caches:
            expect(cache, self._shape, DType.FLOAT32)

    def internal_state(self) -> Sequence[Tensor]:
        """Return both caches, which signatures share by their layer, and their first position."""
        name = f"kv_cache/{self._layer}"
        caches = [
            Tensor(f"{name}/{part}", self._shape, DType.FLOAT32) for part in ("keys", "values")
        ]
        return [*caches, Tensor(f"{name}/first", (1,), DType.INT64)]

    def emit(
        self,
        g: Builder,
        ys: tuple[View, ...],
        positions: View,
        keys: View,
        values: View,
        *memory: View,
    ) -> tuple[Value, ...]:
        *caches, first = memory
        count, times = keys.shape[1], self._shape[1]
        none, room, rows = g.ints([0]), g.ints([times]), np.arange(times)
        at = g.Sub(g.Slice(positions, none, g.ints([1])), first)
        gone = g.clamp_int64(g.Add(at, g.ints([count - times])), none, room)
        stays = g.Less(rows, g.Sub(room, gone))
        before = g.Where(stays, g.Add(rows, gone), rows)
        place = g.Sub(rows, g.Sub(at, gone))
        known = g.clamp_int64(place, none, g.ints([count - 1]))
        hit = g.Unsqueeze(g.Equal(place, known), g.ints([1, 2]))
        made = [
            g.Where(hit, g.Gather(new, known, axis=1), g.Gather(cache, before, axis=1))
            for new, cache in zip((keys, values), caches, strict=True)
        ]
        return *made, *made, g.Add(first, gone)

"""odml.update_external_kv_cache: the keys and values that a language model keeps."""

from __future__ import annotations

import numpy as np

from tflite2onnx.op.base import Builder, Category, Operator, OperatorError, Value, View
from tflite2onnx.op.parameters import expect
from tflite2onnx.tensor import DType

_AXES = 4


class ExternalCache(Operator):
    """odml.update_external_kv_cache: keys and values, with new rows of both at some positions.

    All are float32 [1, time, heads, depth] but the positions, int32, one for each new row. They
    never fall: where they do, the new rows have come to an end, and the rest is padding. Of two
    rows at one position the later one stays, which ScatterND would not promise.
    """

    codes = ("odml.update_external_kv_cache",)
    custom = True
    category = Category.TERMINATE
    many_outputs = True

    def check(self) -> None:
        keys, values, positions, *new = (self.input(i) for i in range(5))
        if keys.rank != _AXES or new[0].rank != _AXES or keys.shape[0] != 1:
            shapes = f"{list(keys.shape)} and {list(new[0].shape)}"
            message = f"{shapes} are not [1, time, heads, depth]"
            raise OperatorError(message)
        if len(self.op.outputs) != 2:  # keys and values
            message = f"{len(self.op.outputs)} outputs; keys and values are expected"
            raise OperatorError(message)
        for cache in (keys, values, *self.op.outputs):
            expect(cache, keys.shape, DType.FLOAT32)
        for rows in new:
            expect(rows, (1, new[0].shape[1], *keys.shape[2:]), DType.FLOAT32)
        expect(positions, (new[0].shape[1],), DType.INT32)

    def emit(
        self, g: Builder, ys: tuple[View, ...], keys: View, values: View, positions: View,
        *new: View,
    ) -> tuple[Value, ...]:  # fmt: skip
        matches = self._matches(g, positions, keys.shape[1])
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

    def _matches(self, g: Builder, positions: View, times: int) -> Value:
        """Return which new row has its place in which row of the caches, bool [times, rows]."""
        zero = g.ints([0])
        before = g.Concat(g.cast(zero, DType.INT32), g.Slice(positions, zero, g.ints([-1])), axis=0)
        falls = g.cast(g.Less(positions, before), DType.INT32)
        padding = g.cast(g.CumSum(falls, g.scalar(0, DType.INT64)), DType.BOOL)
        places = np.arange(times, dtype=np.int32)[:, None]
        return g.And(g.Equal(positions, places), g.Not(padding))

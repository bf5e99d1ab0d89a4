"""Key-value caches of language models, in tensors of the model or inside the operator."""

from collections.abc import Sequence

import numpy as np

from tflite2onnx.op.base import Builder, Operator, OperatorError, OutputShape, Value, View
from tflite2onnx.op.common.checks import check_element_count, expect_input_count
from tflite2onnx.op.traits import HasInternalState
from tflite2onnx.tensor import DType, Shape, Tensor

_NEW_ROWS = "float32 [1 new heads depth]"
_CACHE = "float32 [1 time heads depth]"
_DEFAULT_TIMES = 2048


class ExternalCache(Operator):
    """odml.update_external_kv_cache: keys and values, with new rows of both at some positions.

    Caches and new rows are float32 [1, time, heads, depth]. Positions are int32, one for each new
    row, in ascending order. A position that is smaller than the position before ends the rows: this
    row and all later rows are padding. Of two rows at one position the later row is kept. ScatterND
    does not guarantee this.
    """

    codes = ("odml.update_external_kv_cache",)
    operands = f"{_CACHE}, {_CACHE}, int32 [new], {_NEW_ROWS}, {_NEW_ROWS} -> {_CACHE}, {_CACHE}"

    def check(self) -> None:
        check_element_count(self.input(0).shape[1])

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
        if positions.shape == (1,):  # one token is written
            rows = [view.value for view in new]
            hit = matches
        else:
            counts = g.cast(matches, DType.INT32)
            last = g.ArgMax(counts, axis=1, keepdims=0, select_last_index=1)
            rows = [g.Gather(view, last, axis=1) for view in new]
            hit = g.cast(g.reduce("ReduceMax", counts, [1], keepdims=True), DType.BOOL)
        hit = g.Unsqueeze(hit, [2])
        return tuple(g.Where(hit, a, b) for a, b in zip(rows, (keys, values), strict=True))

    def _match_rows(self, g: Builder, positions: View, times: int) -> Value:
        """Return which new row belongs into which row of the caches: bool [times, rows]."""
        before = g.Concat(g.cast([0], DType.INT32), g.Slice(positions, [0], [-1]), axis=0)
        falls = g.cast(g.Less(positions, before), DType.INT32)
        padding = g.cast(g.CumSum(falls, 0), DType.BOOL)
        places = np.arange(times, dtype=np.int32)[:, None]
        return g.And(g.Equal(positions, places), g.Not(padding))


class InternalCache(HasInternalState):
    """odml.update_kv_cache: all keys and values so far, with new rows at some position.

    Caches and new rows are float32 [1, time, heads, depth]. Positions are int64, one for each new
    row; only the first is used. If the new rows do not fit, the oldest rows are dropped. (LiteRT
    fails for a position before the oldest row; here the rows at such positions are ignored.)
    """

    codes = ("odml.update_kv_cache",)
    operands = f"int64 [new], {_NEW_ROWS}, {_NEW_ROWS}, ... -> float32, float32, ..."

    @property
    def _shape(self) -> Shape:
        """The shape of a cache, with as many rows as the kernel allocates."""
        times = int(self.options.get("kv_cache_max", 0))
        return (1, times if times > 0 else _DEFAULT_TIMES, *self.input(1).shape[2:])

    @property
    def _layer(self) -> int:
        return max(int(self.options.get("layer_index", 0)), 0)

    def infer_outputs(self) -> Sequence[OutputShape]:
        return [self._shape] * 2

    def check(self) -> None:
        new, (_, times, *_) = self.input(1).shape[1], self._shape
        if not 0 < new <= times:
            raise OperatorError(f"the number of new rows must be 1 to {times}, got {new}")
        check_element_count(times)
        _ = self._layer  # raises an error if the layer is not a number

    def internal_state(self) -> Sequence[Tensor]:
        """Return both caches, which signatures share by layer, and the position of their row 0."""
        expect_input_count(self, 3)
        name = f"kv_cache/{self._layer}"
        names = f"{name}/keys", f"{name}/values"
        caches = [Tensor(cache, self._shape, DType.FLOAT32) for cache in names]
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
        rows = np.arange(times)
        start = g.Sub(g.Slice(positions, [0], [1]), first)
        dropped = g.clamp_int64(g.Add(start, [count - times]), [0], [times])
        stays = g.Less(rows, g.Sub([times], dropped))
        old_row = g.Where(stays, g.Add(rows, dropped), rows)
        offset = g.Sub(rows, g.Sub(start, dropped))
        new_row = g.clamp_int64(offset, [0], [count - 1])
        hit = g.Unsqueeze(g.Equal(offset, new_row), [1, 2])
        updated = [
            g.Where(hit, g.Gather(new, new_row, axis=1), g.Gather(cache, old_row, axis=1))
            for new, cache in zip((keys, values), caches, strict=True)
        ]
        return *updated, *updated, g.Add(first, dropped)

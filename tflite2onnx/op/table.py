"""HASHTABLE_LOOKUP: rows of a table, by keys."""

from __future__ import annotations

import numpy as np

from tflite2onnx.op.base import Builder, Category, Operator, OperatorError, Value, View
from tflite2onnx.op.parameters import expect
from tflite2onnx.tensor import DType


class HashtableLookup(Operator):
    """The rows whose keys are looked for, 0 or empty where there is none, and whether there is.

    The kernel searches as one searches in a dictionary, and so finds what it should if the keys
    rise.
    """

    codes = ("HASHTABLE_LOOKUP",)
    category = Category.TERMINATE
    many_outputs = True
    moves = True

    def check(self) -> None:
        wanted, keys, rows = (self.input(i) for i in range(3))
        expect(wanted, (wanted.elements,), DType.INT32)
        expect(keys, rows.shape[:1], DType.INT32)
        if keys.data is not None and (np.diff(keys.data.astype(np.int64)) <= 0).any():
            message = f"the keys {keys.name} do not rise, so that some are not found"
            raise OperatorError(message)
        if not keys.elements or len(self.op.outputs) != 2:  # noqa: PLR2004
            message = f"{keys.elements} keys, and {len(self.op.outputs)} outputs"
            raise OperatorError(message)
        expect(self.op.outputs[0], (wanted.elements, *rows.shape[1:]), rows.dtype)
        expect(self.op.outputs[1], wanted.shape, DType.UINT8)

    def emit(
        self, g: Builder, ys: tuple[View, View], wanted: View, keys: View, rows: View
    ) -> tuple[Value, Value]:
        same = g.cast(g.Equal(g.Unsqueeze(wanted, g.ints([1])), keys), DType.INT32)
        place = g.ArgMax(same, axis=1, keepdims=0)
        hits = g.reduce("ReduceMax", same, [1], keepdims=False)
        y = ys[0]
        found = g.within("Gather", y.dtype, lambda v: g.Gather(v, place, axis=0), rows)
        known = g.Unsqueeze(g.cast(hits, DType.BOOL), g.ints(range(1, rows.rank)))
        if y.dtype is DType.STRING:
            nothing = g.constant(np.array(b"", np.object_), DType.STRING)
        else:
            # All bytes of a missing row are 0, whatever 0 stands for.
            nothing = g.scalar(0, y.dtype)
        made = g.within("Where", y.dtype, lambda a, b: g.Where(known, a, b), found, nothing)
        return made, g.cast(hits, DType.UINT8)

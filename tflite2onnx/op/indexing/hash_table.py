"""Operators on tables: HASHTABLE_LOOKUP, HASHTABLE_FIND and their kin, and Table."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tflite2onnx.op.base import Builder, Category, Operator, OperatorError, Value, View
from tflite2onnx.op.common.checks import expect, expect_type
from tflite2onnx.op.traits import DynamicShape, Foldable
from tflite2onnx.tensor import Array, DType, Tensor

# Operators that fill a table; the pass that makes tables constant removes them.
FILLING = ("HASHTABLE", "HASHTABLE_IMPORT")


class HashtableLookup(DynamicShape):
    """The rows whose keys are looked for, 0 or empty where there is none, and whether there is.

    The kernel searches as one searches in a dictionary, and so finds what it should if the keys
    rise.
    """

    codes = ("HASHTABLE_LOOKUP",)
    category = Category.TERMINATE
    dynamic_axes = "..."
    returns_tuple = True
    computes_on_stored_integers = True

    def check(self) -> None:
        wanted, keys, rows = (self.input(i) for i in range(3))
        expect(wanted, (wanted.elements,), DType.INT32)
        expect(keys, rows.shape[:1], DType.INT32)
        if keys.data is not None and (np.diff(keys.data.astype(np.int64)) <= 0).any():
            raise OperatorError(f"the keys {keys.name} do not rise, so that some are not found")
        if not keys.elements or len(self.op.outputs) != 2:
            raise OperatorError(f"{keys.elements} keys, and {len(self.op.outputs)} outputs")
        expect(self.op.outputs[0], (wanted.elements, *rows.shape[1:]), rows.dtype)
        expect(self.op.outputs[1], wanted.shape, DType.UINT8)

    def emit(
        self, g: Builder, ys: tuple[View, View], wanted: View, keys: View, rows: View
    ) -> tuple[Value, Value]:
        same = g.cast(g.Equal(g.Unsqueeze(wanted, g.ints([1])), keys), DType.INT32)
        place = g.ArgMax(same, axis=1, keepdims=0)
        hits = g.reduce("ReduceMax", same, [1], keepdims=False)
        y = ys[0]
        found = g.with_compute_type("Gather", y.dtype, lambda v: g.Gather(v, place, axis=0), rows)
        known = g.Unsqueeze(g.cast(hits, DType.BOOL), g.ints(range(1, rows.rank)))
        if y.dtype is DType.STRING:
            nothing = g.constant(np.array(b"", np.object_), DType.STRING)
        else:
            # All bytes of a missing row are 0, whatever 0 stands for.
            nothing = g.scalar(0, y.dtype)
        made = g.with_compute_type(
            "Where", y.dtype, lambda a, b: g.Where(known, a, b), found, nothing
        )
        return made, g.cast(hits, DType.UINT8)


class Filling(Operator):
    """HASHTABLE and HASHTABLE_IMPORT: a table with constant contents (see `fold_hash_tables`)."""

    codes = FILLING
    category = Category.TERMINATE

    def check(self) -> None:
        raise OperatorError("its table is not only read")


class _Reader(DynamicShape):
    """What reads a table: keys and values are its first inputs by now."""

    category = Category.TERMINATE
    dynamic_axes = "..."

    def _keys(self, more: int) -> Tensor:
        """Return the keys of a table; so many inputs are to follow its values."""
        if len(self.op.inputs) != 2 + more:
            raise OperatorError("what its table is filled with is not constant")
        return self.input(0)


class HashtableSize(_Reader, Foldable):
    """HASHTABLE_SIZE: the number of keys."""

    codes = ("HASHTABLE_SIZE",)

    def check(self) -> None:
        self._keys(0)
        expect(self.output, (1,), DType.INT64)

    def emit(self, g: Builder, y: View, keys: View, _: View) -> Value:
        return g.ints([keys.tensor.elements])

    def evaluate(self, *inputs: Array) -> Sequence[Array] | None:
        return [np.array([self.input(0).elements], np.int64)]


# What ONNX calls lists of elements, and one of them, in the attributes of a LabelEncoder.
_LISTS = {DType.INT64: ("int64s", "int64"), DType.STRING: ("strings", "string")}


class HashtableFind(_Reader):
    """HASHTABLE_FIND: the values of keys, or the first element of a default where there is none."""

    codes = ("HASHTABLE_FIND",)

    def check(self) -> None:
        keys = self._keys(2)
        values, wanted, default = (self.input(i) for i in (1, 2, 3))
        if {keys.dtype, values.dtype} != {DType.INT64, DType.STRING}:
            raise OperatorError(
                f"its table has keys of {keys.dtype.label}, values of {values.dtype.label}"
            )
        expect(wanted, wanted.shape, keys.dtype)
        expect(default, default.shape, values.dtype)
        if not default.elements:
            raise OperatorError(f"{default.name} is empty")
        expect(self.output, wanted.shape, values.dtype)

    def emit(
        self, g: Builder, y: View, keys: View, values: View, wanted: View, default: View
    ) -> Value:
        other = g.Gather(default.reshape((default.tensor.elements,)), g.scalar(0, DType.INT64))
        if not keys.tensor.elements:
            return g.Expand(other, g.Shape(wanted))
        if default.tensor.data is not None:
            first = default.constant.reshape(-1)[0]
            return self._encode_labels(g, wanted, keys, values.constant, first, y.dtype)
        places = np.arange(keys.tensor.elements)
        place = self._encode_labels(g, wanted, keys, places, -1, DType.INT64)
        zero = g.scalar(0, DType.INT64)
        found = g.Gather(values, g.Max(place, zero))
        return g.Where(g.Less(place, zero), other, found)

    def _encode_labels(
        self, g: Builder, wanted: View, keys: View, values: Array, default: object, dtype: DType
    ) -> Value:
        (key_list, _), (value_list, one) = _LISTS[keys.dtype], _LISTS[dtype]
        attributes = {
            f"keys_{key_list}": keys.constant.tolist(),
            f"values_{value_list}": values.tolist(),
            f"default_{one}": default.item() if isinstance(default, np.generic) else default,
        }
        return g.node("LabelEncoder", wanted, domain="ai.onnx.ml", **attributes)


def look_up(g: Builder, table: Value | View, x: View) -> Value:
    """Return the elements of a table [n] at integers of 8 bits, which may count from its end.

    By GatherElements: Gather copies each element as a block, which takes ONNX Runtime 3 times as
    long.
    """
    index = g.reshape(g.cast(x, DType.INT32), [-1])
    found = g.GatherElements(table, index, axis=0)
    if any(isinstance(size, str) for size in x.sizes):
        return g.reshape_to_sizes(found, g.Shape(x))
    return g.reshape(found, x.sizes)


_OF_INTEGERS = {DType.INT8: 256, DType.INT16: 513}  # elements of a table


class Table(Operator):
    """Table: a function of stored integers, as a table of all its values.

    That of 16 bits has every 128th; those between are interpolated, and rounded half up.
    """

    codes = ("Table",)
    custom = True
    category = Category.TRANSPARENT
    computes_on_stored_integers = True

    def check(self) -> None:
        x, table = self.input(0), self.input(1)
        expect_type(x, tuple(_OF_INTEGERS))
        expect(table, (_OF_INTEGERS[x.dtype],), x.dtype)
        expect(self.output, x.shape, x.dtype)

    def emit(self, g: Builder, y: View, x: View, table: View) -> Value:
        if x.dtype is DType.INT8:  # negative indices count from the end, as in the kernel
            return look_up(g, table, x)
        index = g.cast(x, DType.INT32)
        wide = g.cast(table, DType.INT32)
        step = g.scalar(128, DType.INT32)
        # Mod rounds to minus infinity, and what is left divides without a rest.
        offset = g.Mod(index, step)
        place = g.Add(g.Div(g.Sub(index, offset), step), g.scalar(256, DType.INT32))
        base = g.Gather(wide, place)
        following = g.Gather(wide, g.Add(place, g.scalar(1, DType.INT32)))
        # A slope that does not fit into 16 bits wraps around.
        slope = g.cast(g.cast(g.Sub(following, base), DType.INT16), DType.INT32)
        grown = g.Add(g.Mul(slope, offset), g.scalar(64, DType.INT32))
        delta = g.Div(g.Sub(grown, g.Mod(grown, step)), step)
        return g.cast(g.Add(base, delta), DType.INT16)

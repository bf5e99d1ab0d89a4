"""Operators on tables: HASHTABLE_LOOKUP, HASHTABLE_FIND, HASHTABLE_SIZE, and Table."""

from collections.abc import Collection, Sequence

import numpy as np

from tflite2onnx.operators import (
    AnySizes,
    Array,
    Builder,
    DType,
    Foldable,
    Integers,
    Operator,
    OperatorError,
    OutputShape,
    Tensor,
    Value,
    View,
    expect_type,
)

# Operators that fill a table. `fold_hash_tables` removes them.
FILLING = ("HASHTABLE", "HASHTABLE_IMPORT")


class HashtableLookup(AnySizes):
    """The rows of the searched keys, 0 or empty for missing keys, and whether each key exists.

    The kernel does a binary search, which finds all keys only if they are in ascending order.
    """

    codes = ("HASHTABLE_LOOKUP",)
    operands = "int32 [wanted], int32 [keys], T [keys ...] -> T [wanted ...], uint8 [wanted]"
    quantization = Integers(in_file_types=True)

    def check(self) -> None:
        keys = self.input(1)
        if keys.data is not None and (np.diff(keys.data.astype(np.int64)) <= 0).any():
            raise OperatorError(f"the keys {keys.name} must be in strictly ascending order")
        if not keys.elements:
            raise OperatorError(f"{keys.name} must have at least one key, got none")

    def emit(
        self, g: Builder, ys: tuple[View, View], wanted: View, keys: View, rows: View
    ) -> tuple[Value, Value]:
        matches = g.cast(g.Equal(g.Unsqueeze(wanted, [1]), keys), DType.INT32)
        index = g.ArgMax(matches, axis=1, keepdims=0)
        hits = g.reduce("ReduceMax", matches, [1], keepdims=False)
        dtype = ys[0].dtype
        gathered = g.move("Gather", dtype, rows, index, axis=0)
        exists = g.Unsqueeze(g.cast(hits, DType.BOOL), [*range(1, rows.rank)])
        # All bytes of the row of a missing key are 0, whatever the zero point is.
        default = g.text("") if dtype is DType.STRING else g.scalar(0, dtype)
        return g.where(exists, gathered, default, dtype), g.cast(hits, DType.UINT8)


class Filling(Operator):
    """HASHTABLE and HASHTABLE_IMPORT: a table with constant contents (see `fold_hash_tables`)."""

    codes = FILLING

    def check(self) -> None:
        raise OperatorError(
            "its table must be filled once, with constants, and otherwise only be read"
        )


class _HashReader(AnySizes):
    """Base of operators that read a table; `fold_hash_tables` made keys and values their inputs."""

    def _find_keys(self, more: int) -> Tensor:
        """Return the keys of a table; `more` inputs must follow keys and values."""
        if len(self.op.inputs) != 2 + more:
            raise OperatorError("its table must be filled with constants")
        return self.input(0)


class HashtableSize(_HashReader, Foldable):
    """HASHTABLE_SIZE: the number of keys."""

    codes = ("HASHTABLE_SIZE",)
    operands = "any, ... -> int64 [1]"

    def check(self) -> None:
        self._find_keys(0)

    def emit(self, g: Builder, y: View, keys: View, _: View) -> Value:
        return g.ints([keys.tensor.elements])

    def evaluate(self, *inputs: Array) -> Sequence[Array] | None:
        return [np.array([self.input(0).elements], np.int64)]


# The type in the names of LabelEncoder's attributes: of a list, and of one element.
_LISTS = {DType.INT64: ("int64s", "int64"), DType.STRING: ("strings", "string")}


class HashtableFind(_HashReader):
    """HASHTABLE_FIND: the value of each key; the default value for a key that is missing."""

    codes = ("HASHTABLE_FIND",)

    def find_mixed_axes(self, operand: int) -> Collection[int] | None:
        return () if operand == 2 else None

    def find_common_axis(self, operand: int, axis: int, other: int) -> int | None:
        return axis if (operand, other) in ((2, 2), (2, ~0)) else None

    def infer_outputs(self) -> Sequence[OutputShape]:
        return [self.input(2).shape]

    def check(self) -> None:
        keys = self._find_keys(2)
        values, sought, default = (self.input(i) for i in (1, 2, 3))
        types, made = {keys.dtype, values.dtype}, self.op.made
        # TensorFlow has more tables than LiteRT.
        is_wide = made and made.of_tensorflow and keys.dtype in _LISTS
        if not is_wide and types != {*_LISTS}:
            raise OperatorError(
                f"its table must map int64 to string or string to int64, "
                f"got keys of {keys.dtype.label} and values of {values.dtype.label}"
            )
        expect_type(sought, (keys.dtype,))
        expect_type(default, (values.dtype,))
        if not default.elements:
            raise OperatorError(f"{default.name} must have at least one element, got none")
        expect_type(self.output, (values.dtype,))

    def emit(
        self, g: Builder, y: View, keys: View, values: View, wanted: View, default: View
    ) -> Value:
        other = g.Gather(default.reshape((default.tensor.elements,)), 0)
        if not keys.tensor.elements:
            return g.Expand(other, g.Shape(wanted))
        if default.tensor.data is not None and {keys.dtype, y.dtype} <= {*_LISTS}:
            first = default.constant.reshape(-1)[0]
            return self._encode_labels(g, wanted, keys, values.constant, first, y.dtype)
        indices = np.arange(keys.tensor.elements)
        index = self._encode_labels(g, wanted, keys, indices, -1, DType.INT64)
        gathered = g.Gather(values, g.Max(index, 0))
        return g.where(g.Less(index, 0), other, gathered, y.dtype)

    def _encode_labels(
        self, g: Builder, sought: View, keys: View, values: Array, default: object, dtype: DType
    ) -> Value:
        (key_list, _), (value_list, one) = _LISTS[keys.dtype], _LISTS[dtype]
        attributes = {
            f"keys_{key_list}": keys.constant.tolist(),
            f"values_{value_list}": values.tolist(),
            f"default_{one}": default.item() if isinstance(default, np.generic) else default,
        }
        return g.node("LabelEncoder", sought, domain="ai.onnx.ml", **attributes)

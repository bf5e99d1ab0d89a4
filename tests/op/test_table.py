"""HASHTABLE_LOOKUP."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.op.ports import feed, prove
from tests.toolkit import Build, Tensor
from tflite2onnx.convert import convert
from tflite2onnx.errors import ConversionError

TYPES = (
    "float32", "float16", "float64", "bool", "int8", "int16", "int32", "int64", "uint8", "uint16",
    "uint32", "uint64", "string",
)  # fmt: skip
WANTED = np.array([3, -7, 0, 11, 4, 3, 12], np.int32)
KEYS = np.array([-7, 0, 3, 11, 12], np.int32)


def looked_up(m: Build, rows: Tensor, keys: Any = KEYS, **fields: Any) -> list[Tensor]:
    wanted = m.input([7], dtype="int32")
    made = m.tensor([7, *rows.shape[1:]], dtype=rows.dtype, **fields)
    table = keys if isinstance(keys, Tensor) else m.constant(keys)
    inputs = [wanted, table, rows]
    return m.op("HASHTABLE_LOOKUP", inputs, [made, m.tensor([7], dtype="uint8")])


@pytest.mark.parametrize("shape", [[5], [5, 3], [5, 2, 3]], ids=str)
@pytest.mark.parametrize("dtype", TYPES)
def test_rows(dtype: str, shape: list[int]) -> None:
    if dtype == "string" and len(shape) > 1:  # the kernel takes but a list
        shape = [5]
    m = Build()
    values = np.arange(int(np.prod(shape))).reshape(shape) + 1
    rows = m.constant(values.astype(str).tolist() if dtype == "string" else values.astype(dtype))
    prove(m, *looked_up(m, rows), inputs=[WANTED])


def test_computed_tables() -> None:
    m = Build()
    rows, keys = m.input([5, 3]), m.input([5], dtype="int32")
    values = np.arange(15, dtype=np.float32).reshape(5, 3)
    prove(m, *looked_up(m, rows, keys), inputs=[values, KEYS, WANTED])


def test_missing_rows_of_stored_integers() -> None:
    """They are 0 as stored."""
    m, scale = Build(), {"scale": 0.5, "zero_point": 3}
    rows = feed(m, [5, 3], "int8", **scale)
    table = np.arange(15, dtype=np.int8).reshape(5, 3)
    prove(m, *looked_up(m, rows, **scale), inputs=[table, WANTED])


def test_refuses() -> None:
    for keys, shape, reason in (
        (np.array([0, 3, 3, 4, 5], np.int32), [5], "do not rise"),
        (np.array([0, 3, 2, 4, 5], np.int32), [5], "do not rise"),
        (np.array([0, 3], np.int32), [5], r"int32\[2\] where int32\[5\]"),
        (np.array([0, 3], np.int64), [2], r"int64\[2\] where int32\[2\]"),
    ):
        m = Build()
        m.output(*looked_up(m, m.input(shape), keys))
        with pytest.raises(ConversionError, match=reason):
            convert(m.bytes())

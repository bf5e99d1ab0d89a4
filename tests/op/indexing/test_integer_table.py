"""Table: results equal a reference in numpy, because LiteRT's interpreter has no kernel."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.references import check_reference
from tests.support import Build
from tflite2onnx.convert import convert
from tflite2onnx.errors import ConversionError


def look_up(x: np.ndarray[Any, Any], table: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return the lookup as LUTLookup in LiteRT's kernels/internal/common.h computes it."""
    if x.dtype == np.int8:
        found: np.ndarray[Any, Any] = table[x.view(np.uint8)]
        return found
    wide = x.astype(np.int32)
    base, offset = table[256 + (wide >> 7)], wide & 127
    with np.errstate(over="ignore"):
        slope = table[257 + (wide >> 7)] - base
    delta = (slope.astype(np.int32) * offset + 64) >> 7
    made: np.ndarray[Any, Any] = (base + delta).astype(np.int16)
    return made


def values(dtype: str, *, smooth: bool) -> np.ndarray[Any, Any]:
    """Return a table of sine values, or of random values."""
    size, kind = (256 if dtype == "int8" else 513), np.dtype(dtype)
    limits = np.iinfo(kind)
    if smooth:
        sine: np.ndarray[Any, Any] = (np.sin(np.arange(size) / 99) * limits.max).astype(kind)
        return sine
    return np.random.default_rng(0).integers(limits.min, limits.max, size, kind, endpoint=True)


@pytest.mark.parametrize("dtype", ["int8", "int16"])
@pytest.mark.parametrize("smooth", [True, False])
def test_table_lookup_equals_reference(dtype: str, *, smooth: bool) -> None:
    table, limits, kind = values(dtype, smooth=smooth), np.iinfo(dtype), np.dtype(dtype)
    every = np.arange(limits.min, limits.max + 1).astype(kind).reshape(2, -1)
    m = Build()
    scales: dict[str, Any] = {"scale": 0.5, "zero_point": 0}
    x = m.input(every.shape, dtype=dtype, **scales)
    outputs = [m.tensor(every.shape, dtype=dtype, **scales)]
    m.output(*m.custom("Table", [x, m.constant(table)], outputs))
    for activations in ("int8", "uint8"):
        want = [look_up(every, table)]
        check_reference(m, [every], want, tolerance=0, activations=activations)


def test_refuses_unsupported_types_and_table_sizes() -> None:
    m = Build()
    m.output(*m.custom("Table", [m.input([3]), m.constant(np.zeros(256, np.int8))], [[3]]))
    with pytest.raises(ConversionError, match="int8 or int16, got float32"):
        convert(m.bytes())
    m = Build()
    x, table = m.input([3], dtype="int16"), m.constant(np.zeros(256, np.int16))
    m.output(*m.custom("Table", [x, table], [m.tensor([3], dtype="int16")]))
    with pytest.raises(ConversionError, match=r"int16\[513\], got"):
        convert(m.bytes())

"""LSH_PROJECTION: locality-sensitive hashes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.op.ports import check_outputs
from tests.support import Build
from tflite2onnx.convert import convert
from tflite2onnx.errors import ConversionError

SEEDS = np.random.default_rng(0).standard_normal((5, 3)).astype(np.float32)
SPARSE, DENSE = 1, 2


def build_projection(
    shape: list[int], dtype: str, kind: int, seeds: Any = SEEDS, *, weighted: bool = True
) -> tuple[Build, Any]:
    m = Build()
    inputs = [m.constant(seeds), m.input(shape, dtype=dtype)]
    inputs += [m.input(shape[:1])] if weighted else []
    made = [len(seeds) if kind == SPARSE else seeds.size]
    return m, m.op("LSH_PROJECTION", inputs, [m.tensor(made, dtype="int32")], type=kind)[0]


@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("kind", [SPARSE, DENSE])
@pytest.mark.parametrize(
    "dtype", ["int8", "uint8", "bool", "int16", "int32", "int64", "uint64", "float32"]
)
def test_hashes_of_every_type_equal_litert(dtype: str, kind: int, *, weighted: bool) -> None:
    m, y = build_projection([7], dtype, kind, weighted=weighted)
    check_outputs(m, y, ranges={"int32": (-(2**31), 2**31 - 1), "int64": (-(2**63), 2**63 - 1)})


@pytest.mark.parametrize(
    "size", [1, 3, 4, 5, 11, 12, 13, 28, 29, 59, 60, 61, 100, 124, 125, 187, 188, 252]
)
def test_hashes_of_every_length_equal_litert(size: int) -> None:
    """Keys of every kind of length are hashed right; a key is 4 bytes longer than its item."""
    m, y = build_projection([3, size], "uint8", DENSE)
    check_outputs(m, y, random_layouts=[])


def test_items_may_have_several_axes() -> None:
    m, y = build_projection([3, 2, 5], "int32", SPARSE)
    check_outputs(m, y)


def test_refuses_unsupported_projections_and_long_items() -> None:
    for shape, dtype, kind, seeds, reason in (
        ([3], "int32", 0, SEEDS, "type must be 1 .*, got 0"),
        ([3, 253], "int8", DENSE, SEEDS, "at most 252 bytes, .* got 253"),
        ([], "int8", DENSE, SEEDS, r"must be int8\[items, ...\], got int8\[\]"),
        ([3], "string", DENSE, SEEDS, ", got string"),
        ([3], "int8", DENSE, np.zeros((2, 32), np.float32), "must have 1 to 31 columns"),
    ):
        m, y = build_projection(shape, dtype, kind, seeds, weighted=False)
        m.output(y)
        with pytest.raises(ConversionError, match=reason):
            convert(m.bytes())
    m = Build()
    (y,) = m.op("LSH_PROJECTION", [m.input([2, 3]), m.input([5])], [[6]], type=DENSE)
    m.output(y)
    with pytest.raises(ConversionError, match="must be constant"):
        convert(m.bytes())

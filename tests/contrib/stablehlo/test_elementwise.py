"""Elementwise StableHLO operators, and operators on bits."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from tests.op.ports import add_input, check_outputs, folds
from tests.support import Build
from tflite2onnx.contrib.stablehlo.elementwise import Bits
from tflite2onnx.convert import convert
from tflite2onnx.errors import ConversionError

CASES = [(code, dtype) for code, row in Bits.rows.items() for dtype in row.types.split()]
SHAPE = [2, 3, 5, 7]


@pytest.mark.parametrize(("code", "dtype"), CASES)
def test_operators_of_every_type_equal_litert(code: str, dtype: str) -> None:
    m = Build()
    a, b = add_input(m, SHAPE, dtype, name="a"), add_input(m, SHAPE, dtype, name="b")
    ranges: dict[str, tuple[float, float]] = {"b": (0, 7)} if "SHIFT" in code else {}
    tolerance = {"float16": 1e-3, "bfloat16": 1e-2}.get(dtype, 1e-5)
    check_outputs(m, *m.op(code, [a, b], [SHAPE]), ranges=ranges, tolerance=tolerance)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16", "int32", "uint32"])
def test_right_shifts_by_too_many_places_are_limited(dtype: str) -> None:
    """Negative shifts are shifts by 0, and large shifts are limited to the width minus 1."""
    limits = np.iinfo(dtype)
    numbers = [limits.min, limits.min // 3, 0, 1, limits.max // 3, limits.max]
    places = [max(limits.min, -5), 0, limits.bits - 1, limits.bits, limits.max]
    pairs = np.array(list(itertools.product(numbers, places)), dtype)
    m = Build()
    inputs = [m.input([len(pairs)], dtype=dtype) for _ in range(2)]
    (y,) = m.op("RIGHT_SHIFT", inputs, [[len(pairs)]])
    check_outputs(m, y, inputs=list(pairs.T.copy()))


def test_atan2_of_every_quadrant_and_border_equals_litert() -> None:
    numbers = [0.0, -0.0, 1.0, -1.0, 2.5, -3.5, np.inf, -np.inf, np.nan, 1e-30, -1e30]
    pairs = np.array(list(itertools.product(numbers, numbers)), np.float32)
    m = Build()
    inputs = [m.input([len(pairs)]) for _ in range(2)]
    (y,) = m.op("ATAN2", inputs, [[len(pairs)]])
    check_outputs(m, y, inputs=list(pairs.T.copy()))


def test_operators_on_bits_of_constants_are_folded() -> None:
    m = Build()
    a, b = m.constant([3, -5, 7]), m.constant([2, 6, -4])
    codes = [code for code, row in Bits.rows.items() if row.numpy]
    folds(m, *(m.op(code, [a, b], [[3]])[0] for code in codes))


def test_refuses_quantized_operands() -> None:
    m = Build()
    inputs = [m.input([3], dtype="int8", scale=0.5) for _ in range(2)]
    m.output(*m.op("STABLEHLO_MAXIMUM", inputs, [[3]]))
    with pytest.raises(ConversionError, match="must not be quantized"):
        convert(m.bytes())

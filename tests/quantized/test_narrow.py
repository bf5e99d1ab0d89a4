"""Computed tensors of 4 and of 2 bits, for which ONNX Runtime has hardly any kernel.

LiteRT has no kernels for these operators and types: only damaged files have them. What is not
refused must be a file that ONNX Runtime loads.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.support import Build
from tests.support.runtimes import session
from tflite2onnx import ConversionError, convert

TYPES = ("int4", "uint4", "int2")
SCALE: dict[str, Any] = {"scale": 0.25, "zero_point": 0}


def expect_loads(m: Build) -> None:
    """Load a model in ONNX Runtime, with its optimizations and without."""
    model = convert(m.bytes()).model
    for optimize in (True, False):
        session(model, optimize=optimize)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("code", ["LOGISTIC", "SQUARE", "LEAKY_RELU", "QUANTIZE"])
def test_models_that_compute_narrow_tensors_load(dtype: str, code: str) -> None:
    """ONNX Runtime must not fuse the operator into an integer kernel, which it does not have."""
    m = Build()
    m.output(*m.op(code, [m.input([2, 3], dtype=dtype, **SCALE)], [[2, 3]]))
    expect_loads(m)


@pytest.mark.parametrize("dtype", TYPES)
def test_models_that_move_narrow_tensors_load(dtype: str) -> None:
    """ONNX Runtime loads models of 4 and 2 bits that add and remove axes of size 1."""
    m = Build()
    x = m.input([3], dtype=dtype, **SCALE)
    (row,) = m.op("PACK", [x], [[1, 3]], values_count=1, axis=0)
    (same,) = m.op("UNPACK", [row], [[3]], num=1, axis=0)
    bounds = [m.constant(np.array(each, np.int32)) for each in ([0, 0], [1, 2], [1, 1])]
    (part,) = m.op("STRIDED_SLICE", [row, *bounds], [[2]], shrink_axis_mask=1)
    m.output(row, same, part, x, m.constant([1, 0, 1], dtype=dtype, **SCALE))
    expect_loads(m)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("code", ["CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED"])
def test_products_of_data_of_4_and_2_bits_are_refused(code: str, dtype: str) -> None:
    """LiteRT and ONNX Runtime have no kernel for products of data of 4 and 2 bits."""
    m = Build()
    dense = code == "FULLY_CONNECTED"
    x = m.input([1, 4] if dense else [1, 4, 4, 1], dtype=dtype, **SCALE)
    w = m.constant(np.ones([1, 4] if dense else [1, 3, 3, 1]), dtype="int8", **SCALE)
    options: dict[str, Any] = {} if dense else {"padding": "SAME", "stride_h": 1, "stride_w": 1}
    if code == "DEPTHWISE_CONV_2D":
        options["depth_multiplier"] = 1
    m.output(*m.op(code, [x, w], [[1, 1] if dense else [1, 4, 4, 1]], **options))
    with pytest.raises(ConversionError, match=f"tensor_0 must be .*int16, got {dtype}"):
        convert(m.bytes())

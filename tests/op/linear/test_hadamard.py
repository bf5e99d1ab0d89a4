"""aeq.hadamard_rotation and NumericVerify, compared with LiteRT's kernels."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support import Build, check
from tflite2onnx.convert import convert
from tflite2onnx.errors import ConversionError

# Shapes and block sizes.
BLOCKS = [
    ([3, 8], 8),
    ([3, 24], 8),
    ([2, 3, 64], 64),
    ([5, 1], 1),
    ([2, 384], 128),
    ([2, 256], 256),
    ([1, 3, 1024], 512),
]


@pytest.mark.parametrize(("shape", "size"), BLOCKS, ids=str)
def test_hadamard_rotation_equals_litert(shape: list[int], size: int) -> None:
    m = Build()
    options = {"hadamard_size": size, "random_binary_vector": [1, -1]}
    m.output(*m.custom("aeq.hadamard_rotation", [m.input(shape)], [shape], options))
    check(m.bytes())


@pytest.mark.parametrize("shape", [[3, 2, 32], [24, 8]])
def test_hadamard_rotation_ignores_the_declared_shape(shape: list[int]) -> None:
    m = Build()
    options = {"hadamard_size": 64, "random_binary_vector": [1, -1]}
    made = m.custom("aeq.hadamard_rotation", [m.input([3, 64])], [shape], options)
    m.output(*m.op("NEG", made, [shape]))
    check(m.bytes())


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16"])
@pytest.mark.parametrize("shape", [[2, 5, 7, 3], [11]])
def test_numeric_verify_equals_litert(shape: list[int], dtype: str) -> None:
    m = Build()
    zero = 0 if dtype == "int16" else 3
    x, real = m.input(shape, dtype=dtype, scale=0.1, zero_point=zero), m.input(shape)
    options: dict[str, Any] = {"tolerance": 5.0, "log_if_failed": False}
    m.output(*m.custom("NumericVerify", [x, real], [m.tensor(shape)], options))
    check(m.bytes())


def test_numeric_verify_of_float16_equals_litert() -> None:
    m = Build()
    x, real = m.input([3, 5], dtype="float16"), m.input([3, 5])
    m.output(*m.custom("NumericVerify", [x, real], [m.tensor([3, 5])], {"tolerance": 5.0}))
    check(m.bytes())


def refusal(code: str, shapes: list[list[int]], dtype: str = "float32", **options: Any) -> str:
    m = Build()
    first, *rest = shapes
    operands = [m.input(first, dtype=dtype), *(m.input(shape) for shape in rest)]
    m.output(*m.custom(code, operands, [m.tensor(first)], options))
    with pytest.raises(ConversionError) as error:
        convert(m.bytes())
    return str(error.value)


def test_refuses_unsupported_blocks_and_types() -> None:
    code = "aeq.hadamard_rotation"
    for shape, size in (([3, 6], 6), ([3, 6], 4), ([3, 6], 0), ([8], 8), ([1, 1, 1, 8], 8)):
        assert f"got {list(shape)} and blocks of" in refusal(code, [shape], hadamard_size=size)
    assert "must be float32, got int32" in refusal(code, [[3, 8]], "int32", hadamard_size=8)
    assert "must be quantized or float16, got int8" in refusal("NumericVerify", [[3], [3]], "int8")
    assert "quantized or float16, got float32" in refusal("NumericVerify", [[3], [3]])
    assert "float32[3], got" in refusal("NumericVerify", [[3], [1]], "float16")

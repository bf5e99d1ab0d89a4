"""STABLEHLO_RNG_BIT_GENERATOR."""

from __future__ import annotations

import numpy as np
import pytest

from tests.op.ports import check_outputs
from tests.support import Build, Tensor
from tflite2onnx.convert import convert
from tflite2onnx.errors import ConversionError

ALGORITHMS = [("THREEFRY", 2), ("PHILOX", 2), ("PHILOX", 3), ("DEFAULT", 3)]
END = 2**64 - 1


def add_generator(
    m: Build, shape: list[int], dtype: str, size: int, algorithm: str
) -> list[Tensor]:
    state = m.input([size], dtype="uint64", name="state")
    outputs = [m.tensor([size], dtype="uint64"), m.tensor(shape, dtype=dtype)]
    return m.op("STABLEHLO_RNG_BIT_GENERATOR", [state], outputs, algorithm=algorithm)


@pytest.mark.parametrize("dtype", ["int32", "int64", "uint32", "uint64"])
@pytest.mark.parametrize(("algorithm", "size"), ALGORITHMS)
@pytest.mark.parametrize("shape", [[3, 5], [1], [2, 3, 4]], ids=str)
@pytest.mark.parametrize(
    "state", [[1, 2, 3], [0, 0, 0], [END, END, END], [END - 5, 2**32 - 2, 1 << 63]], ids=str
)
def test_bits_of_every_algorithm_equal_litert(
    shape: list[int], state: list[int], algorithm: str, size: int, dtype: str
) -> None:
    """The 64-bit counters carry between their halves, and wrap around."""
    m = Build()
    outputs = add_generator(m, shape, dtype, size, algorithm)
    check_outputs(m, *outputs, inputs=[np.array(state[:size], np.uint64)], random_layouts=[0])


def test_bit_generator_refuses_invalid_states_and_types() -> None:
    for shape, dtype, size, algorithm in (
        ([3], "int32", 3, "THREEFRY"),
        ([3], "int32", 4, "PHILOX"),
        ([3], "int16", 2, "PHILOX"),
    ):
        m = Build()
        m.output(*add_generator(m, shape, dtype, size, algorithm))
        with pytest.raises(ConversionError, match=r"its state must have|, got int16"):
            convert(m.bytes())

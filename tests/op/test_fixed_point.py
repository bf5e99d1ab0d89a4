"""tflite2onnx/op/common/fixed_point.py: sums that float32 may round wrong."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st

from tflite2onnx.op.common.fixed_point import _Sums, find_near_multiples, sum_scales
from tflite2onnx.tensor import Array, DType, Quantization, Tensor

_TERMS = st.lists(st.integers(-(2**29), 2**29), max_size=20)


@given(_TERMS, _TERMS, st.integers(4, 30), st.data())
def test_all_sums_near_multiples_are_found_once(
    a: list[int], b: list[int], shift: int, data: st.DataObject
) -> None:
    """All pairs are found whose sum is near a multiple of a power of 2, and each pair once."""
    near = data.draw(st.integers(1, 1 << (shift - 2)))
    found = find_near_multiples(np.array(a, np.int32), np.array(b, np.int32), shift, near)
    pairs = [(i, j) for i, x in enumerate(a) for j, y in enumerate(b)]
    wanted = [(i, j) for i, j in pairs if (a[i] + b[j] + near) % (1 << shift) < 2 * near]
    assert sorted(zip(*(each.tolist() for each in found), strict=True)) == wanted


@pytest.mark.parametrize("sign", [1, -1])
def test_float32_rounds_all_sums_as_the_kernel(sign: int) -> None:
    """With the changed scales, float32 has the kernel's sum of each pair of two int8 inputs."""
    generator = np.random.default_rng(0)
    integers = np.arange(-128, 128)
    for _ in range(60):
        scale = generator.uniform(0.01, 0.1, 3).astype(np.float32)
        zeros = generator.integers(-128, 128, 3)
        parameters = [
            Quantization(s, z) for s, z in zip(scale[:, None], zeros[:, None], strict=True)
        ]
        a, b, y = (Tensor("", (1,), DType.INT8, quantization=each) for each in parameters)
        first, second = (each.scale for each in sum_scales(a, b, y, sign))
        numbers = ((integers - zeros[0]) * first)[:, None] + sign * ((integers - zeros[1]) * second)
        found = np.rint(numbers / scale[2]) + zeros[2]
        # XNNPACK adds products with quotients of scales that have 20 bits after the point.
        slopes = scale[:2] / scale[2]
        shift = 21 - int(np.frexp(slopes.max())[1])
        p, q = np.rint(slopes * 2.0**shift).astype(int)
        sums = (integers[:, None] - zeros[0]) * p + sign * (integers - zeros[1]) * q
        wanted = (sums + (1 << shift - 1) >> shift) + zeros[2]
        found, wanted = (np.clip(each, -128, 127) for each in (found, wanted))
        assert not np.argwhere(found != wanted).tolist()


def test_sums_of_which_half_are_halves_choose_the_scales_by_a_part(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An output with twice the scale of its inputs: 1 of 17 sums chooses the scales."""
    numbers = [0.06601698, 0.06601698, 0.13203396]
    parameters = [Quantization(np.array([s], np.float32), np.array([-9])) for s in numbers]
    tensors = [Tensor("", (1,), DType.INT8, quantization=each) for each in parameters]
    counted: list[int] = []

    def count_sums(self: _Sums, p: Array, q: Array) -> Array:
        counted.append(len(self.a))
        return count_errors(self, p, q)

    count_errors = _Sums.count_errors
    monkeypatch.setattr(_Sums, "count_errors", count_sums)
    found = sum_scales(tensors[0], tensors[1], tensors[2], 1)
    assert max(counted) < 4096
    steps = [
        (each.scale - old.scale) / np.spacing(old.scale)
        for each, old in zip(found, parameters, strict=False)
    ]
    assert np.abs(steps).max() <= 24

"""tflite2onnx/op/common/fixed_point.py: the search for sums that float32 may round wrong."""

from __future__ import annotations

import numpy as np
from hypothesis import given, strategies as st

from tflite2onnx.op.common.fixed_point import find_near_multiples

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

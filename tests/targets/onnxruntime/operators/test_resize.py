"""targets/onnxruntime/operators/resize.py: integers that are resized to a multiple are copies."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support import Build, check
from tests.support.fusions import count_optimized_nodes


@pytest.mark.parametrize(("size", "new", "copies"), [(4, 64, 2), (1, 33, 2), (2, 600, 0)])
def test_pixels_of_integers_are_copied(size: int, new: int, copies: int) -> None:
    m = Build()
    x = m.input([1, size, size, 5], dtype="int8", scale=0.1, zero_point=3)
    y = m.tensor([1, new, new, 5], dtype="int8", scale=0.1, zero_point=3)
    sizes = m.constant(np.array([new, new], np.int32))
    m.output(*m.op("RESIZE_NEAREST_NEIGHBOR", [x, sizes], [y]))
    nodes = count_optimized_nodes(check(m.bytes()).model)
    assert (nodes["Concat"], nodes["Resize"]) == (copies, int(not copies))

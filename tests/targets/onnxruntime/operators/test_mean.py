"""MEAN of rows of floats is a product of matrices, which ONNX Runtime computes faster."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support import Build, check
from tests.support.fusions import count_optimized_nodes


@pytest.mark.parametrize("keep", [True, False])
@pytest.mark.parametrize(
    ("shape", "axes", "products"),
    [
        ((1, 49, 128), [1], 1),
        ((2, 7, 7, 128), [1, 2], 1),
        ((3, 7, 7, 128), [-2, 1], 1),
        ((64, 128), [0], 1),
        ((8, 16, 64), [0], 1),
        ((2, 32, 8, 16), [1], 1),
        ((2, 8, 7, 128), [0, 2], 0),
        ((1, 400, 8), [1], 1),
        ((1, 400, 2), [1], 0),
        ((1, 8, 64), [1], 0),
        ((1, 8, 640), [2], 0),
    ],
    ids=str,
)
def test_mean_of_rows_is_a_product(
    shape: tuple[int, ...], axes: list[int], products: int, *, keep: bool
) -> None:
    m, reduced = Build(), {axis % len(shape) for axis in axes}
    x = m.input(list(shape))
    y = [1 if i in reduced else size for i, size in enumerate(shape) if keep or i not in reduced]
    m.output(*m.op("MEAN", [x, m.constant(np.array(axes, np.int32))], [y], keep_dims=keep))
    left = count_optimized_nodes(check(m.bytes()).model)
    assert (left["MatMul"], left["ReduceMean"]) == (products, 1 - products)


def test_mean_of_a_dynamic_batch_is_a_product() -> None:
    m = Build()
    x = m.input([1, 7, 7, 128], shape_signature=[-1, 7, 7, 128])
    m.output(*m.op("MEAN", [x, m.constant(np.array([1, 2], np.int32))], [[1, 128]]))
    assert count_optimized_nodes(check(m.bytes()).model)["MatMul"] == 1

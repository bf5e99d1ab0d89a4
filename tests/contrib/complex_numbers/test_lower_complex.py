"""contrib/complex_numbers/lower_complex.py: lists of complex tensors, and their declared shapes."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support import Build, run_onnx
from tflite2onnx import convert


@pytest.mark.parametrize("order", [(1, 0), (0, 1)])
def test_computed_order_moves_pairs_as_wholes(order: tuple[int, int]) -> None:
    """LiteRT's TRANSPOSE has no complex numbers: numpy has the result."""
    m = Build()
    x, axes = m.input([3, 5], dtype="complex64", name="x"), m.input([2], dtype="int32", name="axes")
    m.output(*m.op("TRANSPOSE", [x, axes], [[5, 3]], dtype="complex64"))
    pairs = np.random.default_rng(0).standard_normal((3, 5, 2)).astype(np.float32)
    result = convert(m.bytes(), io_layout="tflite")
    (found,) = run_onnx(result.model, {"x": pairs, "axes": np.array(order, np.int32)})
    np.testing.assert_array_equal(found, pairs.transpose(*order, 2))


@pytest.mark.parametrize("declared", [[3, 0], [1], []])
def test_declared_shape_of_a_product_is_not_read(declared: list[int]) -> None:
    m = Build()
    x, y = (m.input([3], dtype="complex64") for _ in "xy")
    m.output(*m.op("MUL", [x, y], [declared], dtype="complex64"))
    (product,) = convert(m.bytes(), io_layout="tflite").outputs
    assert product.onnx_shape == (3, 2)

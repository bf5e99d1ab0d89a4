"""Weights that a DEQUANTIZE makes floats: the data of their products are not rounded."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support import Build, check
from tests.support.fusions import count_optimized_nodes

RANDOM = np.random.default_rng(3)
ROWS, FEATURES, OUT = 2, 64, 48


@pytest.mark.parametrize("dtype", ["int8", "int4"])
def test_data_are_not_rounded(dtype: str) -> None:
    """The weights stay integers in the file; ONNX Runtime dequantizes them when it loads it."""
    most = 7 if dtype == "int4" else 127
    m = Build()
    x = m.input([1, ROWS, FEATURES])
    stored = RANDOM.integers(-most, most + 1, (OUT, FEATURES)).astype(np.int8)
    scale = RANDOM.uniform(0.01, 0.02, OUT).astype(np.float32)
    weights = m.constant(stored, dtype=dtype, scale=scale, axis=0)
    (real,) = m.op("DEQUANTIZE", [weights], [m.tensor([OUT, FEATURES])])
    (y,) = m.op("FULLY_CONNECTED", [x, real, None], [[1, ROWS, OUT]], keep_num_dims=True)
    m.output(y)
    done = check(m.bytes())
    nodes = count_optimized_nodes(done.model)
    assert not nodes.keys() & {"MatMulNBits", "DequantizeLinear", "Cast"}
    types = {t.data_type for t in done.model.graph.initializer if t.dims[:1] in ([OUT], [FEATURES])}
    assert types >= {3 if dtype == "int8" else 22}

"""Tables of integers that a model reads as rows and as the weights of a product: stored once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import onnxruntime as ort
import pytest
from ai_edge_litert import schema_py_generated as schema

from tests.op.ports import check_outputs
from tests.support import Build
from tests.support.fusions import count_optimized_nodes
from tflite2onnx.cli import main
from tflite2onnx.convert import convert

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support import Tensor
    from tests.support.build import Subgraph

Array = np.ndarray[Any, Any]
ROWS, FEATURES, BLOCK = 96, 64, 32
RANDOM = np.random.default_rng(3)
WIDE = RANDOM.integers(-127, 128, (ROWS, FEATURES)).astype(np.int8)
NARROW = RANDOM.choice([-7, 0, 7], (ROWS, FEATURES)).astype(np.int8)
BLOCKS = RANDOM.uniform(0.1, 0.7, (ROWS, FEATURES // BLOCK))
TOKEN = np.array([5], np.int32)


def add_blocks(m: Subgraph, values: Array, scales: Array) -> Tensor:
    """Add a table of int4 with a scale for each block of a row."""
    details = schema.BlockwiseQuantizationT(m.constant(scales).index, -1, BLOCK)
    quantization = schema.QuantizationParametersT(
        detailsType=schema.QuantizationDetails.BlockwiseQuantization, details=details
    )
    return m.constant(values, dtype="int4", quantization=quantization)


def read_twice(m: Subgraph, token: Tensor, table: Tensor) -> Tensor:
    """Add the product of the row of a token by the table."""
    (row,) = m.op("EMBEDDING_LOOKUP", [token, table], [[1, FEATURES]], dtype="float32")
    shape = [1, table.shape[0]]
    return m.op("FULLY_CONNECTED", [row, table], [shape], dtype="float32")[0]


def count_stored_bytes(model: Any) -> int:
    """Return the bytes of all constants of a model."""
    return sum(len(each.raw_data) for each in model.graph.initializer)


@pytest.mark.parametrize("weights", ["auto", "int8", "uint8"])
def test_table_of_int8_is_stored_once(weights: str) -> None:
    m = Build()
    scale = np.linspace(0.01, 0.02, ROWS, dtype=np.float32)
    token = m.input([1], dtype="int32")
    y = read_twice(m, token, m.constant(WIDE, dtype="int8", scale=scale, zero_point=0))
    result = check_outputs(m, y, inputs=[TOKEN], weights=weights, default_kernels=True)
    assert result.transposes == 0, "constants are transposed at load"
    if weights != "uint8":  # other integers than those of the rows
        assert WIDE.nbytes < count_stored_bytes(result.model) < 1.6 * WIDE.nbytes
    assert "Transpose" not in count_optimized_nodes(result.model)


def test_table_of_int2_is_stored_once() -> None:
    """ONNX Runtime cannot keep a transposed constant of int2: the product reads int8."""
    m, table = Build(), RANDOM.choice([-1, 0, 1], (ROWS, FEATURES)).astype(np.int8)
    scale = np.linspace(0.01, 0.02, ROWS, dtype=np.float32)
    token = m.input([1], dtype="int32")
    y = read_twice(m, token, m.constant(table, dtype="int2", scale=scale, zero_point=0))
    result = check_outputs(m, y, inputs=[TOKEN], tolerance=0.01)
    stored = sorted(tuple(each.dims) for each in result.model.graph.initializer if each.dims)
    # The scales, the table as bytes of four elements, and as elements.
    assert [s[1] for s in stored if s[0] == ROWS] == [1, FEATURES // 4, FEATURES]


@pytest.mark.parametrize("width", [FEATURES, FEATURES - 10])
@pytest.mark.parametrize("half", [False, True])
def test_rows_of_int4_are_one_node(width: int, *, half: bool) -> None:
    """A block of GatherBlockQuantized may be larger than a row, whose scale it has."""
    m, table = Build(), NARROW[:, :width].copy()
    scale = np.linspace(0.01, 0.02, ROWS, dtype=np.float32)
    rows = m.constant(table, dtype="int4", scale=scale, zero_point=0)
    dtype = "float16" if half else "float32"
    (y,) = m.op("EMBEDDING_LOOKUP", [m.input([3], dtype="int32"), rows], [[3, width]], dtype=dtype)
    m.output(y)
    model = convert(m.bytes()).model
    assert sum(node.op_type.startswith("Gather") for node in model.graph.node) == 1
    token = np.array([5, 1, 95], np.int32)
    session = ort.InferenceSession(model.SerializeToString())
    (got,) = session.run(None, {session.get_inputs()[0].name: token})
    np.testing.assert_array_equal(got, (table * scale[:, None])[token].astype(dtype))


def test_table_of_int4_with_a_scale_for_each_row_is_stored_once() -> None:
    m, table = Build(), np.tile(NARROW, (32, 1))
    scale = np.linspace(0.01, 0.02, len(table), dtype=np.float32)
    token = m.input([1], dtype="int32")
    y = read_twice(m, token, m.constant(table, dtype="int4", scale=scale, zero_point=0))
    result = check_outputs(m, y, inputs=[TOKEN], tolerance=0.01)
    sizes = [len(each.raw_data) for each in result.model.graph.initializer]
    assert sizes.count(max(sizes)) == 1


@pytest.mark.parametrize("times", [1, 32])  # small constants of equal bytes are shared anyway
@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_blocks_of_int4_are_stored_once(dtype: Any, times: int) -> None:
    m = Build()
    elements, scales = np.tile(NARROW, (times, 1)), np.tile(BLOCKS.astype(dtype), (times, 1))
    m.output(read_twice(m, m.input([1], dtype="int32"), add_blocks(m, elements, scales)))
    model = convert(m.bytes()).model
    kinds = [node.op_type for node in model.graph.node]
    assert "Transpose" not in kinds
    stored = [each.raw_data for each in model.graph.initializer if each.dims[:1] == [times * ROWS]]
    assert stored.count(max(stored, key=len)) == 1
    session = ort.InferenceSession(model.SerializeToString())
    (given,) = session.get_inputs()
    (y,) = session.run(None, {given.name: TOKEN})
    real = elements * np.repeat(scales.astype(np.float32), BLOCK, axis=1)
    wanted = real[TOKEN] @ real.T
    np.testing.assert_allclose(y, wanted, rtol=0, atol=0.01 * np.ptp(wanted))
    assert "MatMulNBits" in count_optimized_nodes(model)


def test_signatures_share_bytes_of_int4(tmp_path: Path) -> None:
    """A file of weights has the bytes of a table once, whichever type reads them."""
    m = Build()
    graphs = (m, "decode"), (m.subgraph("prefill"), "prefill")
    for graph, key in graphs:
        token = graph.input([1], dtype="int32")
        y = read_twice(graph, token, add_blocks(graph, NARROW, BLOCKS.astype(np.float16)))
        graph.output(y)
        m.signature(key, {"token": token}, {"logits": y})
    path, folder = tmp_path / "model.tflite", tmp_path / "models"
    path.write_bytes(m.bytes())
    assert main([str(path), "--signature", "all", "-o", str(folder)]) == 0
    size = (folder / "weights.data").stat().st_size
    assert NARROW.size // 2 < size < NARROW.size // 2 + 4096


def test_tables_of_equal_size_and_other_bytes_are_not_shared() -> None:
    """Two tables of one size stay two constants."""
    m = Build()
    token, x = m.input([1], dtype="int32"), m.input([1, FEATURES])
    scales = BLOCKS.astype(np.float16)
    rows = add_blocks(m, NARROW, scales)
    weights = add_blocks(m, NARROW[::-1].copy(), scales)
    (row,) = m.op("EMBEDDING_LOOKUP", [token, rows], [[1, FEATURES]], dtype="float32")
    m.output(row, *m.op("FULLY_CONNECTED", [x, weights], [[1, ROWS]], dtype="float32"))
    kinds = [node.op_type for node in convert(m.bytes()).model.graph.node]
    assert "Transpose" not in kinds

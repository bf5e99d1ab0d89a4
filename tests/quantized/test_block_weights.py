"""4-bit weights with a scale for each block of a row: the products are LiteRT's."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import onnxruntime as ort
import pytest
from ai_edge_litert import schema_py_generated as schema

from tests.support import Build, check, run_onnx
from tests.support.fusions import count_optimized_nodes
from tests.support.tensor import Tensor
from tflite2onnx.cli import main
from tflite2onnx.convert import convert
from tflite2onnx.reader.model import read_model
from tflite2onnx.targets.onnxruntime.operators import block_products

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.build import Subgraph


def add_weights(m: Build, shape: tuple[int, int], size: int, scale: Any = np.float16) -> Tensor:
    """Return int4 weights with a scale for each block."""
    generator = np.random.default_rng(0)
    scales = generator.uniform(0.01, 0.1, (shape[0], shape[1] // size)).astype(scale)
    details = schema.BlockwiseQuantizationT(m.constant(scales).index, -1, size)
    quantization = schema.QuantizationParametersT(
        detailsType=schema.QuantizationDetails.BlockwiseQuantization, details=details
    )
    elements = generator.integers(-7, 8, shape).astype(np.int8)
    return m.constant(elements, dtype="int4", quantization=quantization)


def build(
    rows: int, shape: tuple[int, int], size: int, *, bias: bool = False, scale: Any = np.float16
) -> bytes:
    """Return a product of rows, by default with scales that LiteRT rounds."""
    m, generator = Build(), np.random.default_rng(1)
    w = add_weights(m, shape, size, scale)
    b = m.constant(generator.standard_normal(shape[0]).astype(np.float32)) if bias else None
    operands = [m.input([rows, shape[1]]), w, b]
    m.output(*m.op("FULLY_CONNECTED", operands, [[rows, shape[0]]], dtype="float32"))
    return m.bytes()


# The first product has few weights, the second becomes two rows of integers.
SHAPES = [(11, 256), (300, 512)]
CHANNELS = (512, 1024)  # the fewest features and weights that become blocks


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("size", [32, 64, 128, 256])
@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("bias", [True, False])
def test_blocks_of_weights_give_the_numbers_of_litert(
    shape: tuple[int, int], size: int, rows: int, *, bias: bool
) -> None:
    """Rows are rounded as XNNPACK rounds them, and the scales are rounded to bfloat16."""
    x = np.random.default_rng(size).standard_normal((rows, shape[1])).astype(np.float32)
    x[:, ::7] = x.max()  # several numbers have the largest integer of their blocks
    data = build(rows, shape, size, bias=bias)
    for given in (x, -np.abs(x)):
        result = check(data, inputs=[given], default_kernels=True)
    # One more product finds out what the kernel of this processor rounds.
    probes = shape == SHAPES[1] and rows == 1
    assert count_optimized_nodes(result.model)["MatMulNBits"] == 1 + probes


@pytest.mark.parametrize("size", [32, 256])
@pytest.mark.parametrize("sign", [1, -1])
def test_rows_of_small_numbers_are_not_differences_of_large_products(size: int, sign: int) -> None:
    """Most integers are near the zero point, and the error is that of float32, not 20 times it."""
    x = np.random.default_rng(0).normal(0, 0.03, (1, 2048)).astype(np.float32)
    x[0, :2] = sign, -sign / 2
    data = build(1, (300, 2048), size)
    (w,) = (t for t in read_model(data).graphs[0].ops[0].present if t.has_data)
    assert w.quantization is not None
    scales = w.quantization.scale.astype(ml_dtypes.bfloat16).reshape(300, -1, 1)
    step = (x.max() - x.min()) / np.float32(255)
    zero = np.rint(-x.min() / step)
    integers = np.clip(np.rint(x / step) + zero, 0, 255) - zero
    weights = (w.values.reshape(300, -1, size) * scales.astype(np.float64)).reshape(300, -1)
    exact = integers.astype(np.float64) @ weights.T * float(step)
    model = convert(data).model
    (y,) = run_onnx(model, {model.graph.input[0].name: x})
    assert np.abs(y - exact).max() <= 3e-6 * np.ptp(exact)


@pytest.mark.parametrize("rounds_rows", [True, False])
@pytest.mark.parametrize("size", [32, 256])
def test_pairs_of_rows_have_the_product_of_the_row(
    size: int, monkeypatch: pytest.MonkeyPatch, *, rounds_rows: bool
) -> None:
    """The pairs for kernels that quantize rows, and blocks, are multiplied as floats here."""
    monkeypatch.setattr(block_products, "_INTEGERS", 1)
    probe = np.full((), rounds_rows)
    monkeypatch.setattr(block_products, "_rounds_rows", lambda g: g.constant(probe))
    x = np.random.default_rng(size).standard_normal((1, 512)).astype(np.float32)
    x[:, ::7] = x.max()  # several numbers have the largest integer of their blocks
    check(build(1, SHAPES[1], size), inputs=[x], default_kernels=True)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("rows", [1, 3])
def test_zeros_give_zeros(shape: tuple[int, int], rows: int) -> None:
    """LiteRT's kernel leaves a rounding error, because its zero point is not 0."""
    model = convert(build(rows, shape, 32)).model
    zeros = np.zeros((rows, shape[1]), np.float32)
    session = ort.InferenceSession(model.SerializeToString())
    (y,) = session.run(None, {model.graph.input[0].name: zeros})
    assert not y.any()


@pytest.mark.parametrize("shape", SHAPES)
def test_any_number_of_rows_multiplies_blocks(shape: tuple[int, int]) -> None:
    """A dynamic number of rows has a product for one row, and one for several rows."""
    dynamic = convert(build(1, shape, 32), batch="rows").model
    for rows in (1, 2, 5):
        x = np.random.default_rng(rows).standard_normal((rows, shape[1])).astype(np.float32)
        fixed = check(build(rows, shape, 32), inputs=[x], default_kernels=True).model
        y, wanted = (
            ort.InferenceSession(model.SerializeToString()).run(
                None, {model.graph.input[0].name: x}
            )[0]
            for model in (dynamic, fixed)
        )
        np.testing.assert_allclose(y, wanted, rtol=0, atol=1e-6 * np.ptp(wanted))


def add_channels(
    m: Subgraph, rows: int, weights: Tensor | None = None, *, bias: bool = False
) -> tuple[Tensor, Tensor, Tensor]:
    """Add a product by weights with a scale for each output, and return them and the product."""
    generator = np.random.default_rng(0)
    outputs, features = CHANNELS
    if weights is None:
        elements = generator.integers(-7, 8, CHANNELS).astype(np.int8)
        scale = generator.uniform(0.01, 0.1, outputs).astype(np.float32)
        weights = m.constant(elements, dtype="int4", scale=scale, zero_point=0)
    b = m.constant(generator.standard_normal(outputs).astype(np.float32)) if bias else None
    x = m.input([rows, features])
    (y,) = m.op("FULLY_CONNECTED", [x, weights, b], [[rows, outputs]], dtype="float32")
    m.output(y)
    return weights, x, y


@pytest.fixture
def _is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """The weights of a small model count as more than a cache has."""
    monkeypatch.setattr(block_products, "CACHED", CHANNELS[0] * CHANNELS[1])


def test_channels_of_a_small_model_stay_integers() -> None:
    m = Build()
    add_channels(m, 1)
    assert "MatMulNBits" not in {node.op_type for node in convert(m.bytes()).model.graph.node}


@pytest.mark.usefixtures("_is_large")
@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("bias", [True, False])
def test_one_row_multiplies_channels_in_blocks(rows: int, *, bias: bool) -> None:
    m = Build()
    add_channels(m, rows, bias=bias)
    x = np.random.default_rng(rows).standard_normal((rows, CHANNELS[1])).astype(np.float32)
    x[:, ::7] = x.max()
    for given in (x, -np.abs(x)):
        result = check(m.bytes(), inputs=[given], default_kernels=True)
    # The second product finds out what the kernel of this processor rounds.
    assert count_optimized_nodes(result.model)["MatMulNBits"] == (2 if rows == 1 else 0)


@pytest.mark.usefixtures("_is_large")
def test_signatures_of_one_and_several_rows_share_weights(tmp_path: Path) -> None:
    """Both models store the bytes in the order of the file."""
    m = Build()
    weights = None
    for graph, key, rows in ((m, "decode", 1), (m.subgraph("prefill"), "prefill", 3)):
        weights, x, y = add_channels(graph, rows, weights if graph is m else None)
        m.signature(key, {"x": x}, {"y": y})
    path, folder = tmp_path / "model.tflite", tmp_path / "models"
    path.write_bytes(m.bytes())
    assert main([str(path), "--signature", "all", "-o", str(folder)]) == 0
    size, half = (folder / "weights.data").stat().st_size, CHANNELS[0] * CHANNELS[1] // 2
    assert half < size < 1.1 * half


def test_one_row_may_have_more_axes() -> None:
    m, (outputs, features) = Build(), SHAPES[1]
    operands = [m.input([1, 1, features]), add_weights(m, SHAPES[1], 32)]
    m.output(*m.op("FULLY_CONNECTED", operands, [[1, 1, outputs]], keep_num_dims=True))
    check(m.bytes(), default_kernels=True)


def test_products_of_the_same_rows_prepare_them_once() -> None:
    """Rows of a dynamic number are rounded in one If, whose results both products read."""
    m, shape = Build(), (256, 512)
    x = m.input([1, shape[1]])
    for _ in range(2):
        m.output(*m.op("FULLY_CONNECTED", [x, add_weights(m, shape, 32)], [[1, shape[0]]]))
    nodes = Counter(n.op_type for n in convert(m.bytes(), batch="rows").model.graph.node)
    assert nodes["If"] == 3, nodes


@pytest.mark.parametrize(
    "options", [{"forms": "canonical"}, {"dynamic_range": "float"}, {"opset": 17}]
)
def test_other_forms_dequantize_blocks(options: dict[str, Any]) -> None:
    result = check(build(3, (11, 128), 32), tolerance=0.01, **options)
    assert [n.op_type for n in result.model.graph.node][-1] == "MatMul"

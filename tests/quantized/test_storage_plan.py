"""quantization: the storage rules, the planned records, and their presentation."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from tests.op.recurrent import cells
from tests.support import Build, check
from tflite2onnx import convert
from tflite2onnx.cli import main
from tflite2onnx.inspection import inspect
from tflite2onnx.quantization.rules import BIAS, ENDPOINT, INNER, READINGS, STATE, TENSORS, WEIGHTS
from tflite2onnx.quantization.storage import Storage
from tflite2onnx.storage_table import describe_operator, describe_storage
from tflite2onnx.tensor import DType, Quantization
from tflite2onnx.verification import verify

ROOT = Path(__file__).parents[2]
KEYWORDS = ROOT / "assets" / "models" / "keywords_int8.tflite"


def test_documentation_has_the_tables() -> None:
    """Each rule is a row of docs/quantization.md, in the same order."""
    lines = (ROOT / "docs" / "quantization.md").read_text().splitlines()
    for rules in ([*TENSORS, ENDPOINT, STATE, INNER], WEIGHTS, [BIAS], READINGS):
        rows = [f"| {rule.when} | {rule.then} | {rule.why} |" for rule in rules]
        start = lines.index(rows[0])
        assert lines[start : start + len(rows)] == rows


def test_int8_network_is_planned_as_uint8() -> None:
    """int8 tensors are stored as uint8; inputs and outputs have the file's type."""
    rows = inspect(KEYWORDS).storage
    first, last = rows[0], rows[-1]
    assert (first.tflite, first.onnx) == (
        "int8, 0.032337 * (stored + 2)",
        "uint8, 0.032337 * (stored - 126)",
    )
    assert (first.operator, first.read) == ("RESHAPE (0)", "as stored")
    assert (last.onnx, last.read) == ("int8, 0.00390625 * (stored + 128)", "input or output")
    assert last.why == ENDPOINT.why
    (weights,) = [row for row in rows if row.tensor == "keywords_1/dense_1/MatMul"]
    assert weights.onnx == "uint8, 16 scales on axis 0, zero point 128"
    assert "saturate" in weights.why
    biases = [row for row in rows if row.onnx.startswith("int32")]
    assert {BIAS.why in row.why for row in biases} == {True}


def test_float_quantization_is_planned_as_float32() -> None:
    """With float quantization each tensor is float32."""
    storage = convert(KEYWORDS, quantization="float").skeleton.storage
    assert {row.onnx for row in storage} == {"float32"}
    assert {row.read for row in storage if "(" in row.operator} == {"real numbers in the file"}


def test_large_products_are_planned_as_integers() -> None:
    """Large products read integers, small products weights that are dequantized at load."""
    reads = []
    for rows in (2, 64):
        m = Build()
        x = m.input([rows, 128])
        w = m.constant(np.ones((512, 128), np.int8), scale=0.01, name="w")
        m.output(*m.op("FULLY_CONNECTED", [x, w], [[rows, 512]]))
        found = {row.tensor: row for row in convert(m.bytes()).skeleton.storage}
        assert found["w"].onnx == "int8, 0.01 * (stored - 0)"
        reads.append({row.read for row in found.values()})
    folded = "real numbers, dequantized at load"
    assert reads == [{"quantized at run time", folded}, {"quantized at run time", "real numbers"}]


def read_records(data: bytes, **options: Any) -> dict[str, set[str]]:
    """Return how each operator reads its operands, by the types in both files."""
    found: dict[str, set[str]] = {}
    for row in convert(data, **options).skeleton.storage:
        types = f"{row.tflite.partition(',')[0]} as {row.onnx.partition(',')[0]}"
        found.setdefault(f"{row.operator.partition(' ')[0]} {types}".strip(), set()).add(row.read)
    return found


def test_hard_swish_is_planned_to_read_stored_integers() -> None:
    """HARD_SWISH looks stored integers up, unless real numbers are asked for."""
    fields: dict[str, Any] = {"dtype": "int8", "scale": 0.1, "zero_point": 3}
    m = Build()
    m.output(*m.op("HARD_SWISH", [m.input([2], **fields)], [m.tensor([2], **fields)]))
    data = m.bytes()
    assert read_records(data)["HARD_SWISH int8 as uint8"] == {"as stored"}
    floats = read_records(data, quantization="float")
    assert floats == {"HARD_SWISH int8 as float32": {"real numbers in the file"}}


def test_tensors_of_recurrent_layers_have_planned_readings() -> None:
    """Weights of float data are folded, vectors real; SVDF moves its state, the LSTM rounds it."""
    form = cells.Form(weights="int8", peephole=True)
    code = "UNIDIRECTIONAL_SEQUENCE_LSTM"
    assert read_records(cells.lstm(form)) == {
        f"{code} int8 as int8": {"real numbers, dequantized at load"},
        f"{code} int8 as float32": {"real numbers in the file"},
    }
    integers = read_records(cells.integer_lstm(cells.Form(peephole=True)))
    assert integers[f"{code} int8 as uint8"] >= {"real numbers"}
    assert integers[f"{code} int16 as float32"] == {"real numbers in the file"}
    svdf = read_records(cells.integer_svdf(cells.Form(), dtype="int8"))
    assert svdf["SVDF int8 as uint8"] == {"real numbers", "as stored"}


def test_only_the_plan_reads_options() -> None:
    """Operators, the driver and the builder read records; the tables read the options."""
    package = ROOT / "tflite2onnx"
    folders = ("builder", "op", "contrib", "targets/onnxruntime/operators")
    sources = [package / "emit.py", *(p for f in folders for p in (package / f).rglob("*.py"))]
    names = ("float_only", "int8_as_uint8", "plan.weights", "AlreadyStored")
    texts = {source: source.read_text() for source in sources}
    assert len(texts) > 100
    assert not [(s, name) for s, text in texts.items() for name in names if name in text]


def test_description_counts_the_scales_of_blocks() -> None:
    """The record gives the number of block scales."""
    scales = Quantization(np.ones((32, 2), np.float32), np.zeros((32, 2), np.int64), 1, 32)
    words = describe_storage(Storage(DType.INT4, scales))
    assert words == "int4, 64 scales on axis 1 in blocks of 32"
    points = np.arange(4).reshape(2, 2)
    words = describe_storage(Storage(DType.INT4, replace(scales, zero_point=points)))
    assert words.endswith(", zero points 0 to 3")


def test_inspect_lists_the_storage(capsys: pytest.CaptureFixture[str]) -> None:
    """The text has a line for each tensor, and then the numbered reasons."""
    assert main(["inspect", "--storage", str(KEYWORDS)]) == 0
    shown = capsys.readouterr().out
    assert "FULLY_CONNECTED (4)  int8, 16 scales on axis 0" in shown
    assert f"\n1  {TENSORS[2].why}\n" in shown
    assert main(["inspect", "--json", str(KEYWORDS)]) == 0
    rows = json.loads(capsys.readouterr().out)["storage"]
    assert {row["operator"] for row in rows} >= {"RESHAPE (0)", "SOFTMAX (6)"}


def test_inspect_says_that_no_tensor_is_quantized(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    m = Build()
    m.output(*m.op("ABS", [m.input([3])], [[3]]))
    path = tmp_path / "floats.tflite"
    path.write_bytes(m.bytes())
    assert main(["inspect", "--storage", str(path)]) == 0
    assert capsys.readouterr().out.endswith("\nno tensor is quantized\n")


def test_verify_prints_the_plan_of_the_first_wrong_operator(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The storage of the first wrong operator is printed; an unknown tensor has none."""
    result = convert(KEYWORDS)
    model = onnx.ModelProto()
    model.CopyFrom(result.model)
    for weight in model.graph.initializer:
        if weight.name == "keywords_1/dense_1/MatMul":
            weight.raw_data = bytes(255 - byte for byte in weight.raw_data)
    onnx.save(model, tmp_path / "damaged.onnx")
    report = verify(KEYWORDS, tmp_path / "damaged.onnx")
    assert report.diverging is not None
    words = report.storage[report.diverging.name]
    assert "keywords_1/dense_1/MatMul is uint8, 16 scales on axis 0, zero point 128" in words
    assert report.to_dict()["storage"] == report.storage
    assert main(["verify", "-q", str(KEYWORDS), str(tmp_path / "damaged.onnx")]) == 2
    assert f"storage of its operands: {words}" in capsys.readouterr().err
    assert describe_operator(result.skeleton.plan, "no such tensor") == ""


def node_inputs(graph: onnx.GraphProto) -> tuple[dict[str, onnx.NodeProto], dict[str, Any]]:
    """Return the nodes by the names of their outputs, and the constants by name."""
    producers = {name: node for node in graph.node for name in node.output}
    return producers, {tensor.name: tensor for tensor in graph.initializer}


def fuses_to_matmul_nbits(graph: onnx.GraphProto, node: onnx.NodeProto) -> bool:
    """Return whether ONNX Runtime 1.32 fuses a product with a constant matrix to MatMulNBits.

    DQMatMulNodeGroupSelector in qdq_selectors.cc requires: the second operand is DequantizeLinear
    of a constant matrix [k, n] with a scalar scale or a scale for each column, and a Gemm does not
    transpose it. (ONNX Runtime also requires that a Gemm does not transpose the data; this function
    does not.)
    """
    producers, constants = node_inputs(graph)
    flags = {a.name: a.i for a in node.attribute}
    if node.op_type not in ("MatMul", "Gemm") or flags.get("transB"):
        return False
    source = producers.get(node.input[1])
    if source is None or source.op_type != "DequantizeLinear" or source.input[0] not in constants:
        return False
    axis = {a.name: a.i for a in source.attribute}.get("axis", 1)
    scale = constants[source.input[1]]
    return len(constants[source.input[0]].dims) == 2 and (not scale.dims or axis == 1)


@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("scales", [0.01, [0.01, 0.02, 0.03, 0.04, 0.05]])
@pytest.mark.parametrize("rank", [2, 3, 4])
@pytest.mark.parametrize("io_layout", ["tflite", "onnx"])
def test_16_bit_products_are_not_rounded(
    rank: int, scales: Any, io_layout: Any, *, keep: bool
) -> None:
    """No product of int16 data has the form that ONNX Runtime 1.32 computes with 8-bit data."""
    m = Build()
    shape = [2, 3, 4, 7][-rank:]
    rows = shape[:-1] if keep else [int(np.prod(shape[:-1]))]
    x = m.input(shape, dtype="int16", scale=0.01)
    w = m.constant(np.ones((5, 7), np.int8), scale=scales)
    y = m.op("FULLY_CONNECTED", [x, w], [[*rows, 5]], dtype="int16", scale=0.01, keep_num_dims=keep)
    m.output(*y)
    graph = convert(m.bytes(), io_layout=io_layout, forms="canonical").model.graph
    products = [node for node in graph.node if node.op_type in ("MatMul", "Gemm", "Conv")]
    assert products
    assert not any(fuses_to_matmul_nbits(graph, node) for node in products)


@pytest.mark.parametrize("scales", [0.01, [0.01, 0.02, 0.03, 0.04, 0.05]])
def test_16_bit_products_of_transposed_data_are_not_rounded(scales: Any) -> None:
    """The planner may merge a TRANSPOSE into a product of int16 data."""
    m = Build()
    x = m.input([7, 3], dtype="int16", scale=0.01)
    axes = m.constant(np.array([1, 0], np.int32))
    (turned,) = m.op("TRANSPOSE", [x, axes], [[3, 7]], dtype="int16", scale=0.01)
    w = m.constant(np.ones((5, 7), np.int8), scale=scales)
    m.output(*m.op("FULLY_CONNECTED", [turned, w], [[3, 5]], dtype="int16", scale=0.01))
    graph = convert(m.bytes(), forms="canonical").model.graph
    (product,) = [node for node in graph.node if node.op_type == "Gemm"]
    assert {a.name: a.i for a in product.attribute} == {"transA": 1, "transB": 1}
    assert not fuses_to_matmul_nbits(graph, product)


@pytest.mark.parametrize("adjoint", [False, True])
@pytest.mark.parametrize("rank", [2, 3])
def test_16_bit_batch_products_are_not_rounded(rank: int, *, adjoint: bool) -> None:
    m = Build()
    x = m.input([2, 3, 7][-rank:], dtype="int16", scale=0.01)
    w = m.constant(np.ones((5, 7) if adjoint else (7, 5), np.int8), scale=0.01)
    y = m.op("BATCH_MATMUL", [x, w], [[2, 3, 5][-rank:]], dtype="int16", scale=0.01, adj_y=adjoint)
    m.output(*y)
    graph = convert(m.bytes(), forms="canonical").model.graph
    assert not any(fuses_to_matmul_nbits(graph, node) for node in graph.node)


def test_16_bit_products_share_weights_that_are_dequantized_at_load() -> None:
    """The steps of an unrolled recurrent layer have equal weights, and scales of their own."""
    m = Build()
    generator = np.random.default_rng(0)
    x = m.input([1, 40], dtype="int16", scale=0.001)
    w = m.constant(generator.integers(-127, 128, (40, 40)).astype(np.int8), scale=0.01)
    for scale in (0.002, 0.003, 0.004):
        bias = m.constant(generator.integers(-999, 999, 40).astype(np.int64))
        (x,) = m.op("FULLY_CONNECTED", [x, w, bias], [[1, 40]], dtype="int16", scale=scale)
    m.output(x)
    graph = check(m.bytes(), steps=2).model.graph
    stored = [tensor for tensor in graph.initializer if tensor.dims == [40, 40]]
    assert [tensor.data_type for tensor in stored] == [onnx.TensorProto.INT8]
    types = Counter(node.op_type for node in graph.node)
    assert (types["Gemm"], types["Cast"], types["Mul"]) == (3, 1, 1)


def test_16_bit_cells_are_not_rounded() -> None:
    """The data of a basic LSTM come from Concat, so that no integer kernel is used."""
    graph = convert(cells.integer_basic_lstm()).model.graph
    (product,) = [node for node in graph.node if node.op_type == "Gemm"]
    assert not fuses_to_matmul_nbits(graph, product)

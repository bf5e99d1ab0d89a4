"""Weights that are read as int8 or uint8, as the processor needs it: `--weights adaptive`."""

from __future__ import annotations

from collections import Counter
from math import inf
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto

from tests.golden.records import ASSETS
from tests.golden.saturation import (
    assume_exact_products,
    assume_saturation,
    find_saturating,
)
from tests.op.recurrent import cells
from tests.support import Build, Subgraph, Tensor, check, run_onnx
from tests.support.control import count_rounds, counter, loop
from tests.support.fusions import count_optimized_nodes, optimize_model
from tflite2onnx import convert
from tflite2onnx.targets.onnxruntime.costs import Gain
from tflite2onnx.targets.onnxruntime.forms.convolutions import join_pixels

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from tests.support.runtimes import Array

MODEL = ASSETS / "mobilenet_int8.tflite"
GENERATOR = np.random.default_rng(0)
WEIGHTS = GENERATOR.integers(-127, 127, (64, 64), np.int8, endpoint=True)
ROWS: dict[str, Any] = {"dtype": "int8", "scale": 0.05, "zero_point": 3}


@pytest.fixture(autouse=True)
def choose_weights_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out choices between forms, which `test_join_pixels.py` is about."""
    monkeypatch.setattr(join_pixels, "_CHOSEN_GAIN", Gain(inf))


def dense(m: Subgraph, x: Tensor, weights: Array = WEIGHTS, name: str = "w") -> Tensor:
    """Return x, rows of 64 elements, times int8 weights."""
    w = m.constant(weights, scale=0.01, name=name)
    (y,) = m.op("FULLY_CONNECTED", [x, w], [m.tensor(x.shape, **{**ROWS, "scale": 0.2})])
    return y


def layer(weights: Array = WEIGHTS, rows: int = 8) -> bytes:
    """Return a dense layer."""
    m = Build()
    m.output(dense(m, m.input([rows, 64], **ROWS), weights))
    return m.bytes()


def list_graphs(graph: onnx.GraphProto) -> list[onnx.GraphProto]:
    """Return a graph and the graphs inside."""
    inner = [a.g for n in graph.node for a in n.attribute if a.HasField("g")]
    return [graph, *(each for g in inner for each in list_graphs(g))]


def count_choices(model: onnx.ModelProto) -> list[int]:
    """Return how many If each graph of a model has, of those with one."""
    counts = [sum(n.op_type == "If" for n in g.node) for g in list_graphs(model.graph)]
    return [count for count in counts if count]


def weight_types(model: onnx.ModelProto) -> set[int]:
    """Return the types of large constants."""
    return {t.data_type for t in model.graph.initializer if np.prod(t.dims) >= 2048}


def test_a_network_has_one_if_and_stores_weights_once() -> None:
    model, fixed = (convert(MODEL, weights=w).model for w in ("adaptive", "uint8"))
    onnx.checker.check_model(model, full_check=True)
    assert count_choices(model) == [1]
    assert weight_types(model) == {TensorProto.INT8}
    sizes = [len(each.SerializeToString()) for each in (model, fixed)]
    products = sum(n.op_type in ("Conv", "Gemm") for n in model.graph.node)
    assert sizes[0] - sizes[1] < 300 * products


@pytest.mark.parametrize(
    ("opset", "intermediate"), [(None, TensorProto.UINT8), (17, TensorProto.FLOAT)]
)
def test_weights_become_uint8_without_floats(opset: int | None, intermediate: int) -> None:
    """ONNX Runtime would have the floats of all weights in memory at once."""
    model = convert(MODEL, opset=opset).model
    inner = [n for g in list_graphs(model.graph)[1:] for n in g.node]
    types = {a.i for n in inner if n.op_type == "Cast" for a in n.attribute if a.name == "to"}
    assert types == {intermediate}


def shared_dense(rows: int = 8) -> bytes:
    """Return three dense layers with the same weights, two of which read the same data."""
    m = Build()
    x = m.input([rows, 64], **ROWS)
    w = m.constant(WEIGHTS, scale=0.01, name="w")
    scales = {**ROWS, "scale": 0.2}
    a, b = (m.op("FULLY_CONNECTED", [x, w], [m.tensor(x.shape, **scales)])[0] for _ in "ab")
    m.output(a)
    m.output(*m.op("FULLY_CONNECTED", [b, w], [m.tensor(x.shape, **{**ROWS, "scale": 1.0})]))
    return m.bytes()


def shared_filters() -> bytes:
    """Return two convolutions with the same few filters, which compute several pixels at once."""
    m = Build()
    w = m.constant(GENERATOR.integers(-127, 128, (4, 3, 3, 3), np.int8), scale=0.01, name="w")
    bias = m.constant(np.arange(4, dtype=np.int32))
    for _ in range(2):
        x = m.input([1, 32, 32, 3], **ROWS)
        y = m.tensor([1, 32, 32, 4], **{**ROWS, "scale": 0.2})
        m.output(*m.op("CONV_2D", [x, w, bias], [y], padding="SAME", stride_w=1, stride_h=1))
    return m.bytes()


@pytest.mark.parametrize("opset", [None, 13])
@pytest.mark.parametrize("make", [shared_dense, shared_filters])
def test_shared_weights_load_with_precise_products(
    make: Callable[[], bytes], opset: int | None
) -> None:
    """ONNX Runtime rejects two products that read one int8 constant; they are stored once."""
    check(make(), steps=1)
    model = convert(make(), opset=opset).model
    stored = [t for t in model.graph.initializer if t.data_type == TensorProto.INT8]
    assert len([t for t in stored if np.prod(t.dims) > 32]) == 1
    options = onnxruntime.SessionOptions()
    options.add_session_config_entry("session.x64quantprecision", "1")
    for each in (assume_saturation(model), assume_exact_products(model)):
        onnx.checker.check_model(each, full_check=True)
        session = onnxruntime.InferenceSession(each.SerializeToString(), options)
        feeds = {
            i.name: GENERATOR.integers(-128, 128, i.shape, np.int8) for i in session.get_inputs()
        }
        precise, plain = session.run(None, feeds), run_onnx(assume_saturation(model), feeds)
        for one, other in zip(precise, plain, strict=True):
            np.testing.assert_array_equal(one, other)


def test_kernels_are_those_of_a_fixed_type() -> None:
    """ONNX Runtime replaces the If by one branch, and fuses what is left as usual."""
    adaptive, int8, uint8 = (
        convert(MODEL, weights=weights).model for weights in ("adaptive", "int8", "uint8")
    )
    assert count_optimized_nodes(assume_saturation(adaptive)) == count_optimized_nodes(uint8)
    assert count_optimized_nodes(adaptive) == count_optimized_nodes(int8)
    saturating = optimize_model(assume_saturation(adaptive))
    assert not find_saturating(saturating)
    assert find_saturating(optimize_model(int8))


def test_the_product_finds_out_whether_int8_saturates() -> None:
    """The model chooses int8 exactly where a product of extremes by int8 weights is exact."""
    m = Build()
    x = m.input([8, 64], dtype="int8", scale=1.0, zero_point=-128)
    w = m.constant(np.full((64, 64), 127, np.int8), scale=1.0)
    m.output(
        *m.op("FULLY_CONNECTED", [x, w], [m.tensor([8, 64], dtype="int8", scale=2e4, zero_point=0)])
    )
    int8, adaptive = (convert(m.bytes(), weights=w).model for w in ("int8", "adaptive"))
    (chosen,) = weight_types(optimize_model(adaptive))
    (exact,), (have,) = (
        run_onnx(each, {"tensor_0": np.full((8, 64), 127, np.int8)}) for each in (adaptive, int8)
    )
    assert np.all(exact == round(255 * 127 * 64 / 2e4))
    assert (chosen == TensorProto.INT8) == np.array_equal(exact, have)


@pytest.mark.parametrize("options", [
    {}, {"forms": "canonical", "weights": "adaptive"}, {"float16": True}, {"opset": 13},
    {"activations": "int8"}
], ids=str)  # fmt: skip
def test_adaptive_weights_equal_litert_with_all_options(options: dict[str, Any]) -> None:
    """Both branches give LiteRT's numbers, with optimizations and without."""
    result = check(layer(), steps=1, **options)
    assert count_choices(result.model) == [1]

    class Saturating:
        model = assume_saturation(result.model)
        inputs, outputs = result.inputs, result.outputs

    check(layer(), steps=1, convert=lambda *_, **__: Saturating)


@pytest.mark.parametrize(
    ("weights", "rows", "stored"),
    [
        (WEIGHTS // 2, 8, TensorProto.INT8),  # -64 to 63 never saturates
        (WEIGHTS, 1, TensorProto.UINT8),  # few multiplications
        # Two products of one unit wrap on ARM64.
        (np.where(np.arange(64 * 64).reshape(64, 64) < 2, -128, WEIGHTS), 8, TensorProto.UINT8),
    ],
)
def test_weights_have_no_if_without_need(weights: Array, rows: int, stored: int) -> None:
    model = convert(layer(weights.astype(np.int8), rows)).model
    assert not count_choices(model)
    assert weight_types(model) == {stored}


@pytest.mark.parametrize("channels", [2, 64])
def test_a_filter_of_each_channel_needs_no_if(channels: int) -> None:
    """CONV_2D with one channel for each group is depthwise: its products never saturate."""
    m = Build()
    x = m.input([1, 40, 40, channels], **ROWS)
    numbers = np.resize(WEIGHTS, (channels, 8, 8, 1))
    shape = [1, 33, 33, channels]
    (y,) = m.op(
        "CONV_2D",
        [x, m.constant(numbers, scale=0.01)],
        [m.tensor(shape, **{**ROWS, "scale": 0.2})],
        padding="VALID",
        stride_h=1,
        stride_w=1,
    )
    m.output(y)
    model = convert(m.bytes()).model
    assert not count_choices(model)
    filters = {i.data_type for i in model.graph.initializer if len(i.dims) == 4}
    assert filters == {TensorProto.INT8}


def test_one_weight_of_each_unit_may_be_the_lowest() -> None:
    """Two products of different units are in different sums, which PyTorch's converters rely on."""
    weights = np.where(np.eye(64, dtype=bool), np.int8(-128), WEIGHTS)
    assert count_choices(convert(layer(weights)).model) == [1]


@pytest.mark.parametrize("adj_y", [False, True])
def test_units_of_a_batch_product_are_columns_or_rows(*, adj_y: bool) -> None:
    """Two weights of the lowest number are in one row."""
    weights = np.where(np.arange(64 * 64).reshape(64, 64) < 2, np.int8(-128), WEIGHTS)
    m = Build()
    operands = m.input([8, 64], **ROWS), m.constant(weights, scale=0.01)
    y = m.tensor([8, 64], **{**ROWS, "scale": 0.2})
    m.output(*m.op("BATCH_MATMUL", operands, [y], adj_x=False, adj_y=adj_y))
    assert count_choices(check(m.bytes(), steps=1).model) == ([] if adj_y else [1])


@pytest.mark.parametrize(
    "options", [{"weights": "int8"}, {"weights": "uint8"}, {"target": "portable"}], ids=str
)
def test_fixed_types_of_weights_have_no_if(options: dict[str, Any]) -> None:
    assert not count_choices(convert(layer(), **options).model)


def test_both_branches_read_weights_from_a_second_file(tmp_path: Path) -> None:
    """ONNX Runtime reads the weights of both branches from the second file."""
    data, path = layer(), tmp_path / "model.onnx"
    convert(data, path, external_data=16)
    assert (tmp_path / "model.onnx.data").stat().st_size >= WEIGHTS.size
    x = GENERATOR.integers(-128, 127, (8, 64), np.int8, endpoint=True)
    (want,) = run_onnx(convert(data).model, {"tensor_0": x})
    (have,) = onnxruntime.InferenceSession(path).run(None, {"tensor_0": x})
    assert np.array_equal(want, have)


def test_readers_of_the_same_weights_store_them_once() -> None:
    m = Build()
    w = m.constant(WEIGHTS, scale=0.01)
    for name in "ab":
        x, y = m.input([8, 64], name=name, **ROWS), m.tensor([8, 64], **{**ROWS, "scale": 0.2})
        m.output(*m.op("FULLY_CONNECTED", [x, w], [y]))
    model = check(m.bytes(), steps=1).model
    (choice,) = [n for n in model.graph.node if n.op_type == "If"]
    assert len(choice.output) == 2
    assert sum(np.prod(t.dims) == WEIGHTS.size for t in model.graph.initializer) == 1
    for each in (model, assume_saturation(model)):
        assert count_optimized_nodes(each)["QGemm"] == 2


def test_int8_weights_of_gemm_alone_have_a_zero_point() -> None:
    """ONNX Runtime fuses Gemm only with zero points, and MatMul and Conv without them."""
    m = Build()
    rows, image = m.input([8, 64], **ROWS), m.input([1, 16, 16, 64], **ROWS)
    filters = m.constant(WEIGHTS.reshape(64, 1, 1, 64), scale=0.01)
    bias = m.constant(np.zeros(64, np.int32), scale=0.0005)
    made = m.tensor(image.shape, **{**ROWS, "scale": 0.2})
    m.output(
        dense(m, rows), *m.op("CONV_2D", [image, filters, bias], [made], stride_h=1, stride_w=1)
    )
    x = m.input([1, 512])
    w = m.constant(np.tile(WEIGHTS, (8, 8)), scale=0.01)
    m.output(*m.op("FULLY_CONNECTED", [x, w], [[1, 512]]))
    model = check(m.bytes(), steps=1, default_kernels=True).model
    (choice,) = [n for n in model.graph.node if n.op_type == "If"]
    int8 = next(a.g for a in choice.attribute if a.name == "then_branch")
    readers = {i: n.op_type for n in model.graph.node for i in n.input}
    pairs = zip(int8.node, choice.output, strict=True)
    assert {readers[real]: len(node.input) for node, real in pairs} == {
        "Conv": 2,
        "Gemm": 3,
        "MatMul": 2,
    }


def test_large_weights_have_an_if_for_each_megabyte() -> None:
    """ONNX Runtime holds the weights of one If several times while it loads the model."""
    m = Build()
    x = m.input([2, 64], **ROWS)
    for name, count in (("a", 9000), ("b", 9000), ("c", 3000), ("d", 3000)):
        weights = GENERATOR.integers(-127, 127, (count, 64), np.int8, endpoint=True)
        y = m.tensor([2, count], **{**ROWS, "scale": 0.2})
        m.output(*m.op("FULLY_CONNECTED", [x, m.constant(weights, scale=0.01, name=name)], [y]))
    model = check(m.bytes(), steps=1).model
    outputs = [len(n.output) for n in model.graph.node if n.op_type == "If"]
    assert sorted(outputs) == [1, 3]
    for each in (model, assume_saturation(model)):
        assert count_optimized_nodes(each)["QGemm"] == 4


def test_a_loop_has_its_own_if() -> None:
    """ONNX Runtime fuses only nodes of one graph, so that the body of a loop has its own If."""
    m = Build()
    m.output(dense(m, m.input([8, 64], **ROWS), WEIGHTS[::-1], "outside"))

    def change(inner: Subgraph, xs: Sequence[Tensor]) -> list[Tensor]:
        x = inner.op("QUANTIZE", [xs[0]], [inner.tensor([8, 64], **{**ROWS, "scale": 0.04})])
        return inner.op("QUANTIZE", [dense(inner, x[0])], [inner.tensor([8, 64], **ROWS)])

    m.output(*loop(m, [counter(m), m.input([8, 64], **ROWS)], count_rounds(change)))
    model = check(m.bytes(), ranges={"count": (4, 4)}, steps=5).model
    assert count_choices(model) == [1, 1]
    graphs = list_graphs(model.graph)
    assert sum(n.op_type == "MatMulInteger" for g in graphs for n in g.node) == 1
    for each in (model, assume_saturation(model)):
        optimized = list_graphs(optimize_model(each).graph)
        kernels = Counter(n.op_type for g in optimized for n in g.node)
        assert (kernels["QGemm"], kernels["If"]) == (2, 0)


def test_recurrent_layers_have_their_own_if() -> None:
    """An LSTM of integers computes several steps in a Scan, whose body has its own If."""
    model = convert(cells.integer_lstm(cells.Form())).model
    assert count_choices(model) == [1]

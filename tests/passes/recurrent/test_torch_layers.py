"""Recurrent layers of PyTorch, which litert-torch unrolls."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto

from tests.dynamic_sizes.test_networks import compare_sizes
from tests.support import check
from tests.support.graph_text import check_pass
from tests.support.torch_layers import GATES, UNITS, Torch
from tflite2onnx import convert, verify
from tflite2onnx.passes.recurrent import cells
from tflite2onnx.passes.recurrent.raise_recurrent_steps import raise_recurrent_steps
from tflite2onnx.reader.model import read_model

MOVES = {"Reshape", "Squeeze", "Unsqueeze", "Identity", "Transpose", "Concat", "Slice", "Gather"}
FORMS: list[dict[str, Any]] = [
    {},
    {"batch_first": False},
    *({"batch": 3, "batch_first": first} for first in (False, True)),
    {"bias": False},
    {"states": True, "returned": True},
    {"batch": 2, "returned": True},
    {"layers": 2, "batch": 2},
    {"directions": 2, "batch": 2},
    {"directions": 2, "layers": 2, "states": True, "returned": True},
]


def count_nodes(form: Torch, **options: Any) -> Counter[str]:
    """Return the numbers of nodes that compute, once the numbers are proved."""
    result: Any = check(form.model().bytes(), random_layouts=[0], **options)
    types = Counter(node.op_type for node in result.model.graph.node)
    return Counter({key: n for key, n in types.items() if key not in MOVES})


@pytest.mark.parametrize("form", FORMS, ids=str)
@pytest.mark.parametrize("kind", GATES)
def test_layers_become_one_node_for_each_direction(kind: str, form: dict[str, Any]) -> None:
    torch = Torch(kind, **form)
    assert count_nodes(torch) == {kind: torch.layers * torch.directions}


def test_function_of_an_rnn_may_be_relu() -> None:
    assert count_nodes(Torch("RNN", function="RELU")) == {"RNN": 1}


@pytest.mark.parametrize("batch", [1, 3])
def test_projected_layer_is_a_node_and_a_product_of_all_states(batch: int) -> None:
    assert count_nodes(Torch("LSTM", batch, projected=3)) == {"LSTM": 1, "Gemm": 1}


@pytest.mark.parametrize("weights", ["int8", "int4", "dequantized"])
def test_projected_layer_of_integer_weights_is_a_node(
    weights: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The product of the projection and the recurrent weights is float32, if it is small."""
    form = Torch("LSTM", projected=3, weights=weights)
    tolerance = 1e-5 if weights == "dequantized" else 0.02
    assert count_nodes(form, tolerance=tolerance)["LSTM"] == 1
    monkeypatch.setattr(cells, "_MOST_JOINED", 1)
    assert count_nodes(form, tolerance=tolerance)["LSTM"] == 0


@pytest.mark.parametrize("kind", GATES)
def test_steps_with_other_weights_stay(kind: str) -> None:
    """The step before is a layer of its own with the first step, or stays as it is."""
    assert count_nodes(Torch(kind, changed=2)) != {kind: 1}


@pytest.mark.parametrize("batch", [1, 2, None])
@pytest.mark.parametrize("weights", ["int8", "int4", "dequantized"])
@pytest.mark.parametrize("kind", GATES)
def test_weights_of_all_steps_are_stored_once(kind: str, weights: str, batch: int | None) -> None:
    """LiteRT quantizes the states to 8 bits in each step; the node computes with real states."""
    form = Torch(kind, batch=batch, weights=weights)
    tolerance = 1e-5 if weights == "dequantized" else 0.02
    assert count_nodes(form, tolerance=tolerance)[kind] == 1
    model = convert(form.model().bytes()).model
    dtype = TensorProto.INT4 if weights == "int4" else TensorProto.INT8
    stored = [i for i in model.graph.initializer if len(i.dims) == 3 and i.data_type == dtype]
    assert len(stored) == 2


@pytest.mark.parametrize("kind", GATES)
def test_weights_of_4_bits_have_8_where_the_opset_lacks_4(kind: str) -> None:
    assert count_nodes(Torch(kind, weights="int4"), tolerance=0.02, opset=17)[kind] == 1


@pytest.mark.parametrize("kind", GATES)
def test_dequantized_weights_with_zero_points_become_floats(kind: str) -> None:
    """Those of weight-only quantization; hybrid kernels, and so recurrent nodes, ignore them."""
    assert count_nodes(Torch(kind, weights="shifted")) == {kind: 1}


@pytest.mark.parametrize("size", [3, "n"])
@pytest.mark.parametrize("form", [form for form in FORMS if "batch" not in form], ids=str)
@pytest.mark.parametrize("kind", GATES)
def test_batches_are_one_node_for_each_direction(
    kind: str, form: dict[str, Any], size: int | str
) -> None:
    torch = Torch(kind, **form)
    assert count_nodes_of_batch(torch, size)[kind] == torch.layers * torch.directions


@pytest.mark.parametrize("size", [3, "n"])
@pytest.mark.parametrize("first", [False, True])
def test_batches_of_a_projected_layer_are_a_node_and_a_product(
    size: int | str, *, first: bool
) -> None:
    count = count_nodes_of_batch(Torch("LSTM", projected=3, batch_first=first), size)
    assert count["LSTM"] == 1, count
    assert count["Gemm"] + count["MatMul"] == 1, count


@pytest.mark.parametrize("form", [form for form in FORMS if "batch" not in form], ids=str)
@pytest.mark.parametrize("kind", GATES)
def test_layers_of_a_batch_that_the_file_declares_dynamic_become_one_node_each(
    kind: str, form: dict[str, Any]
) -> None:
    torch = Torch(kind, None, **form)
    data = torch.model().bytes()
    result = convert(data)
    nodes = Counter(node.op_type for node in result.model.graph.node)
    assert nodes[kind] == torch.layers * torch.directions, nodes
    # Only the second direction reads the items in another order.
    assert bool(nodes["Gather"]) == (torch.directions > 1)
    generator = np.random.default_rng(1)
    shapes = [each.tflite_sizes for each in result.inputs]
    cases = [
        [
            generator.random([n if isinstance(n, int) else batch for n in shape], np.float32)
            for shape in shapes
        ]
        for batch in (1, 2, 5)
    ]
    compare_sizes(data, result, cases)


def count_nodes_of_batch(form: Torch, size: int | str) -> Counter[str]:
    """Return the numbers of nodes, once a batch is proved to equal single runs."""
    data = form.model().bytes()
    result = convert(data, batch=size)
    assert verify(data, result, samples=2).ok
    return Counter(node.op_type for node in result.model.graph.node)


def test_steps_become_one_operator_over_the_sequence() -> None:
    """The second direction reads the items, and joins the states, from last to first."""
    before = """
        inputs %0: float32[3,2,5]
        %1: float32[3,2,7] = FULLY_CONNECTED(%0, float32[7,5], none)
        %2: float32[1,2,7] = SLICE(%1, [0, 0, 0], [1, 2, 7])
        %3: float32[1,2,7] = ADD(%2, float32[1,2,7])
        %4: float32[1,2,7] = TANH(%3)
        %5: float32[1,2,7] = SLICE(%1, [1, 0, 0], [1, 2, 7])
        %6: float32[1,2,7] = FULLY_CONNECTED(%4, float32[7,7], none)
        %7: float32[1,2,7] = ADD(%5, %6)
        %8: float32[1,2,7] = TANH(%7)
        %9: float32[1,2,7] = SLICE(%1, [2, 0, 0], [1, 2, 7])
        %10: float32[1,2,7] = FULLY_CONNECTED(%8, float32[7,7], none)
        %11: float32[1,2,7] = ADD(%9, %10)
        %12: float32[1,2,7] = TANH(%11)
        %13: float32[3,2,7] = CONCATENATION(%4, %8, %12, axis=0)
        %14: float32[3,2,7] = FULLY_CONNECTED(%0, float32[7,5], none)
        %15: float32[3,2,7] = REVERSE_V2(%14, [0])
        %16: float32[1,2,7] = SLICE(%15, [0, 0, 0], [1, 2, 7])
        %17: float32[1,2,7] = ADD(%16, float32[1,2,7])
        %18: float32[1,2,7] = TANH(%17)
        %19: float32[1,2,7] = SLICE(%15, [1, 0, 0], [1, 2, 7])
        %20: float32[1,2,7] = FULLY_CONNECTED(%18, float32[7,7], none)
        %21: float32[1,2,7] = ADD(%19, %20)
        %22: float32[1,2,7] = TANH(%21)
        %23: float32[1,2,7] = SLICE(%15, [2, 0, 0], [1, 2, 7])
        %24: float32[1,2,7] = FULLY_CONNECTED(%22, float32[7,7], none)
        %25: float32[1,2,7] = ADD(%23, %24)
        %26: float32[1,2,7] = TANH(%25)
        %27: float32[3,2,7] = CONCATENATION(%26, %22, %18, axis=0)
        %28: float32[3,2,14] = CONCATENATION(%13, %27, axis=2)
        return %28
    """
    parameters = f"float32[7,5], float32[7,7], {[0.0] * UNITS}"
    code = "UNIDIRECTIONAL_SEQUENCE_RNN"
    after = f"""
        inputs %0: float32[3,2,5]
        %1: float32[3,2,7], %2: float32[2,7] = {code}(%0, {parameters}, float32[2,7])
        %3: float32[3,2,7] = RESHAPE(%1)
        %4: float32[6,5] = RESHAPE(%0)
        %5: float32[3,2,5] = GATHER(%4, [[4, 5], [2, 3], [0, 1]], axis=0)
        %6: float32[3,2,7], %7: float32[2,7] = {code}(%5, {parameters}, float32[2,7])
        %8: float32[3,2,7] = REVERSE_V2(%6, [0])
        %9: float32[3,2,7] = RESHAPE(%8)
        %10: float32[3,2,14] = CONCATENATION(%3, %9, axis=2)
        return %10
    """
    form = Torch("RNN", 2, times=3, batch_first=False, bias=False, directions=2)
    graph = read_model(form.model().bytes()).graphs[0]
    check_pass(raise_recurrent_steps, graph, before, after, "axis")

"""chain_products.py: sums of dense layers with one row as a chain of Gemm."""

from __future__ import annotations

import pytest

from tests.support import check
from tests.support.graph_text import assert_rewritten, check_unchanged, make_model, parse_graph
from tflite2onnx.targets.onnxruntime.forms.products.chain_products import chain_products

SUM = """
    inputs a: float32[1,3], b: float32[1,4]
    p: float32[1,5] = FULLY_CONNECTED(a, float32[5,3], none)
    q: float32[1,5] = FULLY_CONNECTED(b, float32[5,4], none)
    y: float32[1,5] = ADD(p, q, fused_activation_function=RELU)
    return y
"""
BIAS = "[0.0, 1.0, 2.0, 3.0, 4.0]"
FIRST_BIAS = SUM.replace("float32[5,3], none", f"float32[5,3], {BIAS}")
SECOND_BIAS = SUM.replace("float32[5,4], none", f"float32[5,4], {BIAS}")
LATER_BIAS = """
    inputs a: float32[1,3], b: float32[1,4]
    p: float32[1,5] = FULLY_CONNECTED(a, float32[5,3], none)
    q: float32[1,5] = FULLY_CONNECTED(b, float32[5,4], none)
    s: float32[1,5] = ADD(p, q)
    y: float32[1,5] = ADD(s, [0.0, 1.0, 2.0, 3.0, 4.0], fused_activation_function=RELU)
    return y
"""


def test_second_dense_layer_adds_the_result_of_the_first() -> None:
    after = """
        inputs a: float32[1,3], b: float32[1,4]
        q: float32[1,5] = FULLY_CONNECTED(b, float32[5,4], [0.0, 1.0, 2.0, 3.0, 4.0])
        y: float32[1,5] = FULLY_CONNECTED(a, float32[5,3], q, fused_activation_function=RELU)
        return y
    """
    assert_rewritten(chain_products, SECOND_BIAS, after)


def test_constant_after_the_sum_is_the_first_bias() -> None:
    after = """
        inputs a: float32[1,3], b: float32[1,4]
        p: float32[1,5] = FULLY_CONNECTED(a, float32[5,3], [0.0, 1.0, 2.0, 3.0, 4.0])
        y: float32[1,5] = FULLY_CONNECTED(b, float32[5,4], p, fused_activation_function=RELU)
        return y
    """
    assert_rewritten(chain_products, LATER_BIAS, after)


@pytest.mark.parametrize(
    ("text", "nodes"),
    [
        (SUM, "Gemm Gemm Relu"),
        (FIRST_BIAS, "Gemm Gemm Relu"),
        (SECOND_BIAS, "Gemm Gemm Relu"),
        (LATER_BIAS, "Gemm Gemm Relu"),
        (LATER_BIAS.replace("float32[5,3], none", f"float32[5,3], {BIAS}"), "Gemm Gemm Add Relu"),
        (LATER_BIAS.replace(f"ADD(s, {BIAS}", "ADD(s, 7.0"), "Gemm Gemm Add Relu"),
    ],
    ids=["none", "first", "second", "later", "first and later", "a single number"],
)
def test_sums_of_layers_become_two_gemm(text: str, nodes: str) -> None:
    result = check(make_model(text))
    assert " ".join(node.op_type for node in result.model.graph.node) == nodes


@pytest.mark.parametrize(
    "text",
    [
        SECOND_BIAS.replace("float32[5,3], none", f"float32[5,3], {BIAS}"),
        SUM.replace("[1,", "[2,"),
        SUM.replace("none)", "none, fused_activation_function=RELU)"),
        SUM.replace("return y", "return y, p"),
        SUM.replace("q: float32[1,5]", "q: float32[1,1]").replace("float32[5,4]", "float32[1,4]"),
    ],
    ids=["two biases", "two rows", "an activation", "two readers", "one number"],
)
def test_sums_with_two_biases_rows_or_readers_stay(text: str) -> None:
    check_unchanged(chain_products, parse_graph(text))
    check(make_model(text), seeds=[0])

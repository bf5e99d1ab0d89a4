"""targets/onnxruntime/forms/products/broadcast_products.py: products that repeat numbers."""

from __future__ import annotations

import pytest

from tests.support import check
from tests.support.graph_text import assert_rewritten, check_unchanged, make_model, read_graph
from tflite2onnx.targets.onnxruntime.forms.products.broadcast_products import broadcast_products

NUMBERS = """
    inputs %0: float32[3,5,1,1], %1: float32[3,5,1,1]
    %2: float32[3,5,1,1] = BATCH_MATMUL(%0, %1)
    return %2
"""
MOVED = """
    inputs %0: float32[3,4,1], %1: float32[3,1,5]
    %2: float32[3,4,5] = BATCH_MATMUL(%0, %1)
    %3: float32[3,4,5] = EXP(%2)
    %4: float32[5,3,4] = TRANSPOSE(%3, [2, 0, 1])
    return %4
"""
FACTORS = """
    inputs %0: float32[1,64,8,1], %1: float32[1,1,8,16], %2: float32[1,64,8,1], %3: float32[16,2]
    %4: float32[1,64,8,16] = MUL(%0, %1)
    %5: float32[1,64,8,16] = MUL(%4, %2)
    %6: float32[1,64,8,2] = BATCH_MATMUL(%5, %3)
    return %6
"""


@pytest.mark.parametrize("text", [NUMBERS, MOVED])
def test_products_over_one_number_are_multiplied(text: str) -> None:
    assert_rewritten(broadcast_products, text, text.replace("BATCH_MATMUL", "MUL"))
    check(make_model(text))


def test_small_factors_are_multiplied_first() -> None:
    after = FACTORS.replace("[1,64,8,16] = MUL(%0, %1)", "[1,64,8,1] = MUL(%0, %2)")
    after = after.replace("MUL(%4, %2)", "MUL(%4, %1)")
    assert_rewritten(broadcast_products, FACTORS, after)
    check(make_model(FACTORS))


@pytest.mark.parametrize(
    "text",
    [
        MOVED.replace("TRANSPOSE(%3, [2, 0, 1])", "RESHAPE(%3, [5, 3, 4])"),
        NUMBERS.replace("1,1]", "2,2]"),
        FACTORS.replace("64", "2"),
        FACTORS.replace("%2: float32[1,64,8,1]", "%2: float32[1,64,8,16]"),
    ],
    ids=["not moved", "matrices", "small", "large factors"],
)
def test_other_products_are_unchanged(text: str) -> None:
    check_unchanged(broadcast_products, read_graph(make_model(text)))

"""share_experts.py: rows times the matrices of their experts, which are not copied."""

from __future__ import annotations

import pytest

from tests.support import check
from tests.support.graph_text import assert_rewritten, check_unchanged, make_model, parse_graph
from tflite2onnx import convert
from tflite2onnx.targets.onnxruntime.forms.products.share_experts import share_experts

BEFORE = """
    inputs x: float32[7,1,160], scores: float32[7,3]
    best: int32[7] = ARG_MAX(scores, 1, output_type=INT32)
    numbers: int32[7,1] = RESHAPE(best, [7, 1], new_shape=[7, 1])
    matrices: float32[7,160,192] = GATHER_ND(float32[3,160,192], numbers)
    y: float32[7,1,192] = BATCH_MATMUL(x, matrices, adj_x=False, adj_y=False)
    return y
"""
GATHER = ("GATHER_ND(float32[3,160,192], numbers)", "GATHER(float32[3,160,192], best, axis=0)")
TRANSPOSED = (
    ("matrices: float32[7,160,192]", "matrices: float32[7,192,160]"),
    ("float32[3,160,192]", "float32[3,192,160]"),
    ("adj_y=False", "adj_y=True"),
)
COLUMNS = (
    ("x: float32[7,1,160]", "x: float32[7,160,1]"),
    ("float32[7,1,192] = BATCH_MATMUL(x, matrices", "float32[7,192,1] = BATCH_MATMUL(matrices, x"),
)
SWAPPED = (*COLUMNS, ("adj_x=False", "adj_x=True"))
SPELLINGS = [(), (GATHER,), TRANSPOSED, SWAPPED, (*COLUMNS, *TRANSPOSED[:2])]


def spell(*changes: tuple[str, str]) -> str:
    text = BEFORE
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return text


def test_matrices_are_read_in_place() -> None:
    after = """
        inputs x: float32[7,1,160], scores: float32[7,3]
        best: int32[7] = ARG_MAX(scores, 1, output_type=INT32)
        numbers: int32[7,1] = RESHAPE(best, [7, 1], new_shape=[7, 1])
        rows: float32[7,160] = RESHAPE(x, new_shape=(7, 160))
        experts: int32[7] = RESHAPE(numbers, new_shape=(7,))
        product: float32[7,192] = EXPERT_PRODUCT(rows, float32[3,160,192], experts, adj_y=False)
        y: float32[7,1,192] = RESHAPE(product, new_shape=(7, 1, 192))
        return y
    """
    assert_rewritten(share_experts, BEFORE, after)


@pytest.mark.parametrize("changes", SPELLINGS, ids=range(len(SPELLINGS)))
def test_results_equal_litert(changes: tuple[tuple[str, str], ...]) -> None:
    model = make_model(spell(*changes))
    check(model)
    kinds = {node.op_type for node in convert(model).model.graph.node}
    assert "Scan" in kinds
    assert not kinds & {"Gather", "GatherND", "MatMul"}


@pytest.mark.parametrize(
    "changes",
    [
        (("192", "8"),),  # a Scan would take longer
        (("7,160,192", "1,160,192"), ("[7,1]", "[1,1]"), ("7", "1")),  # one row
        (*COLUMNS[:1], ("adj_x=False", "adj_x=True")),  # the row is transposed
        (("int32[7] =", "int32[1,7] ="), GATHER, ("float32[7,160", "float32[1,7,160")),
    ],
    ids=["small", "one row", "transposed", "more axes"],
)
def test_other_products_are_unchanged(changes: tuple[tuple[str, str], ...]) -> None:
    check_unchanged(share_experts, parse_graph(spell(*changes)))

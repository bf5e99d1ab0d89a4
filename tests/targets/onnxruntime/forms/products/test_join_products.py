"""join_products.py and merge_columns.py: products of the matrices of a batch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.support import Build, Tensor, check
from tests.support.graph_text import (
    check_pass,
    check_unchanged,
    make_model,
    parse_graph,
    read_graph,
)
from tflite2onnx import convert
from tflite2onnx.targets.onnxruntime.forms.products.join_products import join_products
from tflite2onnx.targets.onnxruntime.forms.products.merge_columns import merge_columns


def split(m: Build, x: Tensor) -> list[Tensor]:
    count, *shape = x.shape
    axis = m.constant(np.array(0, np.int32))
    return m.op("SPLIT", [axis, x], [[1, *shape]] * count, num_splits=count)


def unroll_products(
    a: list[int], b: list[int], places: list[tuple[int, int]], *, columns: int, bias: bool = False
) -> bytes:
    """Return the products of these matrices of a [., 3, 4] and of b [., 4, columns], packed."""
    m = Build()
    left = split(m, m.input([*a, 3, 4]))
    right = []
    for part in split(m, m.input([*b, 4, columns])):
        if columns == 1:
            right += m.op("RESHAPE", [part], [[1, 4]], new_shape=[1, 4])
            continue
        (matrix,) = m.op("RESHAPE", [part], [[4, columns]], new_shape=[4, columns])
        order = m.constant(np.array([1, 0], np.int32))
        right += m.op("TRANSPOSE", [matrix, order], [[columns, 4]])
    biases = [m.constant(np.ones(columns, np.float32))] if bias else [None]
    parts = [
        m.op("FULLY_CONNECTED", [left[i], right[j], *biases], [[3, columns]])[0] for i, j in places
    ]
    shape = [len(parts), 3, columns]
    m.output(*m.op("PACK", [*parts], [shape], axis=0, values_count=len(parts)))
    return m.bytes()


BATCHES = {
    "each": ([2], [2], [(0, 0), (1, 1)]),
    "all twice": ([2], [4], [(0, 0), (1, 1), (0, 2), (1, 3)]),
    "each twice": ([4], [2], [(0, 0), (1, 0), (2, 1), (3, 1)]),
    "one": ([1], [3], [(0, 0), (0, 1), (0, 2)]),
    "outer": ([2], [3], [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)]),
}


@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("columns", [1, 4, 5])
def test_one_product_equals_litert(batch: str, columns: int) -> None:
    data = unroll_products(*BATCHES[batch], columns=columns)
    check(data)
    kinds = [node.op_type for node in convert(data).model.graph.node]
    assert {*kinds} <= {"MatMul", "Reshape", "Transpose", "Unsqueeze", "Squeeze", "Gemm"}
    assert kinds.count("MatMul") + kinds.count("Gemm") == 1


@pytest.mark.parametrize(
    "data",
    [
        unroll_products([2], [2], [(0, 1), (1, 0)], columns=5),
        unroll_products([2], [2], [(0, 0), (1, 1)], columns=5, bias=True),
        unroll_products([3], [3], [(0, 0), (1, 1)], columns=5),
    ],
    ids=["order", "bias", "unread part"],
)
def test_other_products_stay(data: bytes) -> None:
    check_unchanged(join_products, read_graph(data))
    check(data)


TWO = """
    inputs a: float32[2,3,4], b: float32[2,4,5], c: float32[2,4,5]
    a0: float32[1,3,4], a1: float32[1,3,4] = SPLIT(0, a, num_splits=2)
    b0: float32[1,4,5], b1: float32[1,4,5] = SPLIT(0, b, num_splits=2)
    c0: float32[1,4,5], c1: float32[1,4,5] = SPLIT(0, c, num_splits=2)
    m0: float32[4,5] = RESHAPE(b0, [4, 5])
    m1: float32[4,5] = RESHAPE(b1, [4, 5])
    t0: float32[5,4] = TRANSPOSE(m0, [1, 0])
    t1: float32[5,4] = TRANSPOSE(m1, [1, 0])
    y0: float32[3,5] = FULLY_CONNECTED(a0, t0)
    y1: float32[3,5] = FULLY_CONNECTED(a1, t1)
    y: float32[2,3,5] = PACK(y0, y1, axis=0, values_count=2)
    return y
"""


@pytest.mark.parametrize(
    "edits",
    [
        [("return y", "return y, y0")],
        [("axis=0", "axis=1"), ("y: float32[2,3", "y: float32[3,2")],
        [("FULLY_CONNECTED(a1, t1)", "FULLY_CONNECTED(a1, t1, fused_activation_function=RELU)")],
        [("SPLIT(0, a,", "SPLIT(1, a,"), ("a: float32[2,3,4]", "a: float32[1,6,4]")],
        [("RESHAPE(b1", "RESHAPE(c1")],
        [("RESHAPE(b1", "EXP(m0"), ("(m0, [4, 5])", "(m0)")],
        [
            ("a: float32[2,3,4]", "a: float32[2,6,2]"),
            *((f"a{i}: float32[1,3,4]", f"a{i}: float32[1,6,2]") for i in range(2)),
        ],
        [
            ("b: float32[2,4,5]", "b: float32[2,2,10]"),
            *((f"b{i}: float32[1,4,5]", f"b{i}: float32[1,2,10]") for i in range(2)),
        ],
    ],
    ids=[
        "read twice",
        "axis",
        "activation",
        "rows",
        "other split",
        "computed",
        "features",
        "reshaped",
    ],
)
def test_other_parts_stay(edits: list[tuple[str, str]]) -> None:
    """One product replaces both, but no longer after any of these edits."""
    text = TWO
    assert join_products(graph := parse_graph(text)) is not graph
    for old, new in edits:
        assert old in text
        text = text.replace(old, new)
    check_unchanged(join_products, parse_graph(text))
    check(make_model(text))


def multiply_columns(a: list[int], b: list[int], y: list[int], **words: Any) -> bytes:
    m = Build()
    options = {name: words.pop(name, False) for name in ("adj_x", "adj_y")}
    inputs = [m.input(a, **words), m.input(b, **words)]
    fields = {**words, "scale": 0.5} if words else {}
    m.output(*m.op("BATCH_MATMUL", inputs, [m.tensor(y, **fields)], **options))
    return m.bytes()


def test_columns_become_a_matrix() -> None:
    before = """
        inputs %0: float32[1,2,4,3], %1: float32[5,2,4,1]
        %2: float32[5,2,3,1] = BATCH_MATMUL(%0, %1, adj_x=True, adj_y=False)
        return %2
    """
    after = """
        inputs %0: float32[1,2,4,3], %1: float32[5,2,4,1]
        %2: float32[1,2,4,5] = TRANSPOSE(%1, [3, 1, 2, 0])
        %3: float32[1,2,3,5] = BATCH_MATMUL(%0, %2, adj_x=True, adj_y=False)
        %4: float32[5,2,3,1] = TRANSPOSE(%3, [3, 1, 2, 0])
        return %4
    """
    data = multiply_columns([1, 2, 4, 3], [5, 2, 4, 1], [5, 2, 3, 1], adj_x=True)
    check_pass(merge_columns, read_graph(data), before, after, "adj_x", "adj_y")


@pytest.mark.parametrize("words", [{}, {"dtype": "int8", "scale": 0.02}], ids=["float32", "int8"])
@pytest.mark.parametrize("adjoint", [False, True])
def test_products_of_columns_equal_litert(words: dict[str, Any], *, adjoint: bool) -> None:
    b = [5, 2, 1, 4] if adjoint else [5, 2, 4, 1]
    data = multiply_columns([1, 2, 3, 4], b, [5, 2, 3, 1], adj_y=adjoint, **words)
    check(data)
    assert "TRANSPOSE" in {op.code for op in merge_columns(read_graph(data)).ops}


@pytest.mark.parametrize(
    ("a", "b", "y"),
    [
        ([1, 2, 3, 4], [5, 2, 4, 2], [5, 2, 3, 2]),
        ([5, 2, 3, 4], [5, 2, 4, 1], [5, 2, 3, 1]),
        ([3, 4], [5, 4, 1], [5, 3, 1]),
    ],
    ids=["two columns", "batch of both", "fewer axes"],
)
def test_other_batches_stay(a: list[int], b: list[int], y: list[int]) -> None:
    check_unchanged(merge_columns, read_graph(multiply_columns(a, b, y)))

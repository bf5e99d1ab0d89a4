"""swap_products.py: products of matrices of which the rows become the last axis."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tests.support import Build, check
from tests.support.graph_text import check_pass, check_unchanged, read_graph
from tflite2onnx import convert
from tflite2onnx.graph_text import write_graph
from tflite2onnx.targets.onnxruntime.forms.products.swap_products import swap_products

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.support import Tensor

NAMES = ("adj_x", "adj_y")


def transpose(m: Build, x: Tensor, order: Sequence[int]) -> Tensor:
    shape = [x.shape[i] for i in order]
    return m.op("TRANSPOSE", [x, m.constant(np.array(order, np.int32))], [shape])[0]


def reshape(m: Build, x: Tensor, shape: Sequence[int], first: int | None = None) -> Tensor:
    """Add RESHAPE; `first` is the first size in the file, -1 if it is dynamic."""
    sizes = shape if first is None else (first, *shape[1:])
    return m.op("RESHAPE", [x, m.constant(np.array(sizes, np.int32))], [shape])[0]


def multiply(m: Build, a: Tensor, b: Tensor, shape: Sequence[int], *adjoint: bool) -> Tensor:
    x, y = adjoint or (False, False)
    return m.op("BATCH_MATMUL", [a, b], [shape], adj_x=x, adj_y=y)[0]


def attention(
    *, order: Sequence[int] = (0, 3, 1, 4, 2), read_twice: bool = False, batch: int = 1
) -> bytes:
    """Return the scores of 7 queries and 5 keys, with 3 groups of 2 heads, of JAX's dot_general.

    A `batch` of -1 is dynamic.
    """
    m = Build()
    queries, keys = (
        m.input((1, *sizes), name=name, shape_signature=(batch, *sizes))
        for name, sizes in (("queries", (7, 3, 2, 4)), ("keys", (5, 3, 4)))
    )
    right = reshape(m, transpose(m, queries, (0, 2, 4, 1, 3)), (1, 3, 4, 14), batch)
    scores = multiply(m, transpose(m, keys, (0, 2, 1, 3)), right, (1, 3, 5, 14))
    m.output(transpose(m, reshape(m, scores, (1, 3, 5, 7, 2), batch), order))
    if read_twice:
        m.output(*m.op("ABS", [scores], [scores.shape]))
    return m.bytes()


def test_operands_of_the_product_are_swapped() -> None:
    before = """
        inputs %0: float32[1,7,3,2,4], %1: float32[1,5,3,4]
        %2: float32[1,3,4,7,2] = TRANSPOSE(%0, [0, 2, 4, 1, 3])
        %3: float32[1,3,4,14] = RESHAPE(%2, [1, 3, 4, 14])
        %4: float32[1,3,5,4] = TRANSPOSE(%1, [0, 2, 1, 3])
        %5: float32[1,3,5,14] = BATCH_MATMUL(%4, %3, adj_x=False, adj_y=False)
        %6: float32[1,3,5,7,2] = RESHAPE(%5, [1, 3, 5, 7, 2])
        %7: float32[1,7,3,2,5] = TRANSPOSE(%6, [0, 3, 1, 4, 2])
        return %7
    """
    after = """
        inputs %0: float32[1,7,3,2,4], %1: float32[1,5,3,4]
        %2: float32[1,3,4,7,2] = TRANSPOSE(%0, [0, 2, 4, 1, 3])
        %3: float32[1,3,4,14] = RESHAPE(%2, [1, 3, 4, 14])
        %4: float32[1,3,5,4] = TRANSPOSE(%1, [0, 2, 1, 3])
        %5: float32[1,3,14,5] = BATCH_MATMUL(%3, %4, adj_x=True, adj_y=True)
        %6: float32[1,3,5,14] = TRANSPOSE(%5, [0, 1, 3, 2])
        %7: float32[1,3,5,7,2] = RESHAPE(%6, [1, 3, 5, 7, 2])
        %8: float32[1,7,3,2,5] = TRANSPOSE(%7, [0, 3, 1, 4, 2])
        return %8
    """
    check_pass(swap_products, read_graph(attention()), before, after, *NAMES)


@pytest.mark.parametrize("batch", [1, -1])
def test_results_equal_litert_with_cheaper_moves(batch: int) -> None:
    """The results equal LiteRT's; each Transpose keeps the last axis, or moves one axis."""
    data = attention(batch=batch)
    check(data)
    orders = {
        forms: [
            list(node.attribute[0].ints)
            for node in convert(data, forms=forms).model.graph.node
            if node.op_type == "Transpose"
        ]
        for forms in ("canonical", "fastest")
    }
    assert [0, 3, 1, 4, 2] in orders["canonical"]
    assert sorted(orders["fastest"]) == [[0, 2, 1, 3, 4], [0, 2, 1, 3, 4], [0, 2, 3, 1]]


@pytest.mark.parametrize("adjoint", [(False, False), (True, False), (False, True), (True, True)])
def test_swapped_adjoint_operands_need_no_transpose(adjoint: tuple[bool, bool]) -> None:
    """A TRANSPOSE may read the product directly; a constant needs no Transpose."""
    m = Build()
    shape = (4, 5) if adjoint[0] else (5, 4)
    a = m.constant(np.random.default_rng(0).random(shape, np.float32))
    b = transpose(m, m.input((1, 6, 4), name="x"), (1, 0, 2) if adjoint[1] else (0, 2, 1))
    b = reshape(m, b, (6, 4) if adjoint[1] else (4, 6))
    m.output(transpose(m, multiply(m, a, b, (5, 6), *adjoint), (1, 0)))
    text = write_graph(swap_products(read_graph(m.bytes())), NAMES)
    assert "float32[6,5] = BATCH_MATMUL(" in text
    check(m.bytes())
    assert convert(m.bytes()).transposes == 0


@pytest.mark.parametrize(
    "data",
    [
        attention(order=(0, 3, 1, 2, 4)),  # the columns stay last
        attention(read_twice=True),
    ],
    ids=["columns last", "read twice"],
)
def test_products_with_other_readers_stay(data: bytes) -> None:
    graph = read_graph(data)
    check_unchanged(swap_products, graph)


def test_products_whose_batch_becomes_the_last_axis_stay() -> None:
    """A swapped product would save no Transpose, because the batch moves, too."""
    data = attention(batch=-1, order=(1, 2, 3, 4, 0))
    assert convert(data).transposes == convert(data, forms="canonical").transposes
    check(data)


@pytest.mark.parametrize("kind", ["input", "constant", "graph output", "symbols"])
def test_products_of_other_operands_stay(kind: str) -> None:
    """An input would need a Transpose; constants stay second; dynamic sizes cannot be split."""
    m = Build()
    signature: Any = {"shape_signature": (-1, 4)} if kind == "symbols" else {}
    a = transpose(m, m.input((4, 5), name="a"), (1, 0))
    b = {
        "input": lambda: m.input((4, 6), name="b"),
        "constant": lambda: m.constant(np.ones((4, 6), np.float32)),
        "graph output": lambda: transpose(m, m.input((6, 4), name="b"), (1, 0)),
        "symbols": lambda: transpose(m, m.input((6, 4), name="b", **signature), (1, 0)),
    }[kind]()
    y = multiply(m, a, b, (5, 6))
    m.output(*([y] if kind == "graph output" else [transpose(m, y, (1, 0))]))
    graph = read_graph(m.bytes())
    if kind != "symbols":
        check_unchanged(swap_products, graph)
    check(m.bytes())

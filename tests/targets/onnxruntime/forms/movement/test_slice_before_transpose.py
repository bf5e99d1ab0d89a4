"""targets/onnxruntime/forms/movement/split_slices.py: items of a TRANSPOSE."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.support import Tensor, check
from tests.support.fusions import count_optimized_nodes
from tests.support.graph_text import check_pass, check_unchanged, eliminate_dead_after, read_graph
from tests.targets.onnxruntime.forms.attention.test_fuse_attention import SWAPPED, Spelled
from tflite2onnx import convert
from tflite2onnx.graph_text import write_graph
from tflite2onnx.targets.onnxruntime.forms.movement.split_slices import slice_before_transpose

ITEMS_FIRST = (2, 0, 3, 1, 4)


def take(m: Spelled, x: Tensor, code: str) -> list[Tensor]:
    """Return the items along the first axis."""
    shape = [*x.shape[1:]]
    if code == "UNPACK":
        return m.op(code, [x], [shape] * x.shape[0], axis=0, num=x.shape[0])
    items = []
    for i in range(x.shape[0]):
        if code == "SLICE":
            begin, size = [i, 0, 0, 0, 0], [1, *shape]
            bounds = [m.constant(np.array(each, np.int32)) for each in (begin, size)]
            items.append(m.reshape(m.op(code, [x, *bounds], [size])[0], *shape))
        else:
            bounds = [m.constant(np.array([each], np.int32)) for each in (i, i + 1, 1)]
            items += m.op(code, [x, *bounds], [shape], shrink_axis_mask=1)
    return items


def spell(code: str, *sizes: int) -> Spelled:
    """Return the attention of PyTorch's vision transformers."""
    m = Spelled(*sizes)
    x = m.input([m.batch, m.rows, 3, m.heads, m.depth])
    q, k, v = take(m, m.transpose(x, ITEMS_FIRST), code)
    scores = m.multiply(m.apply("MUL", q, m.depth**-0.5), m.transpose(k, SWAPPED))
    m.return_joined(m.multiply(m.softmax(scores), v))
    return m


move = eliminate_dead_after(slice_before_transpose)


def test_items_are_sliced_before_the_transpose() -> None:
    m = Spelled()
    (first, _) = take(m, m.transpose(m.input([1, 5, 2, 3, 4]), ITEMS_FIRST), "UNPACK")
    m.output(m.softmax(m.multiply(first, first, adj_y=True)))
    before = """
        inputs %0: float32[1,5,2,3,4]
        %1: float32[2,1,3,5,4] = TRANSPOSE(%0, [2, 0, 3, 1, 4])
        %2: float32[1,3,5,4], %3: float32[1,3,5,4] = UNPACK(%1)
        %4: float32[1,3,5,5] = BATCH_MATMUL(%2, %2)
        %5: float32[1,3,5,5] = SOFTMAX(%4)
        return %5
    """
    after = """
        inputs %0: float32[1,5,2,3,4]
        %1: float32[1,5,1,3,4] = SLICE(%0, [0, 0, 0, 0, 0], [-1, -1, 1, -1, -1])
        %2: float32[1,5,3,4] = RESHAPE(%1)
        %3: float32[1,3,5,4] = TRANSPOSE(%2, [0, 2, 1, 3])
        %4: float32[1,3,5,4] = RESHAPE(%3)
        %5: float32[1,3,5,5] = BATCH_MATMUL(%4, %4)
        %6: float32[1,3,5,5] = SOFTMAX(%5)
        return %6
    """
    check_pass(move, read_graph(m.bytes()), before, after)


@pytest.mark.parametrize("code", ["SLICE", "STRIDED_SLICE", "UNPACK"])
@pytest.mark.parametrize("batch", [1, 2])
def test_attention_of_items_is_recognised(code: str, batch: int) -> None:
    """The attention is recognised; with a batch of 1 nothing but its result is moved."""
    data = spell(code, batch).bytes()
    check(data)
    nodes = count_optimized_nodes(convert(data).model)
    assert nodes["Transpose"] == (1 if batch == 1 else 4), nodes
    assert "Attention" in count_optimized_nodes(convert(data, opset=23).model)


@pytest.mark.parametrize("masks", [{}, {"begin_mask": 1}, {"end_mask": 1}])
def test_slices_with_masks_equal_litert(masks: dict[str, Any]) -> None:
    """If a mask is set, the kernel does not read the bound in the list."""
    m = Spelled()
    y = m.transpose(m.input([1, 5, 2, 3, 4]), ITEMS_FIRST)
    bounds = [m.constant(np.array([each], np.int32)) for each in (1, 2, 1)]
    (item,) = m.op("STRIDED_SLICE", [y, *bounds], [y.shape[1:]], shrink_axis_mask=1, **masks)
    m.output(m.softmax(m.multiply(item, item, adj_y=True)))
    graph = read_graph(m.bytes())
    assert write_graph(slice_before_transpose(graph)) != write_graph(graph)
    check(m.bytes())


def refuse(m: Spelled, kind: str) -> None:
    """Take something similar to items."""
    x = m.input([1, 5, 2, 3, 4])
    order = (2, 0, 1, 3, 4) if kind == "other order" else ITEMS_FIRST
    y = x if kind == "no move" else m.transpose(x, order)
    if kind == "range":
        bounds = [m.constant(np.array(each, np.int32)) for each in ([0] * 5, [1, 1, 2, 5, 4])]
        (item,) = m.op("SLICE", [y, *bounds], [[1, 1, 2, 5, 4]])
    elif kind == "steps":
        bounds = [m.constant(np.array([each], np.int32)) for each in (0, 2, 2)]
        (item,) = m.op("STRIDED_SLICE", [y, *bounds], [[1, *y.shape[1:]]])
    else:
        item = take(m, y, "UNPACK")[0]
    m.output(m.softmax(m.multiply(item, item, adj_y=True)))
    if kind == "read by another":
        m.output(m.apply("MUL", y, 2))


@pytest.mark.parametrize("kind", ["no move", "other order", "range", "read by another", "steps"])
def test_items_of_other_transposes_stay(kind: str) -> None:
    m = Spelled()
    refuse(m, kind)
    graph = read_graph(m.bytes())
    check_unchanged(slice_before_transpose, graph)
    check(m.bytes())


def test_items_that_no_attention_reads_stay() -> None:
    m = Spelled()
    m.output(*take(m, m.transpose(m.input([1, 5, 2, 3, 4]), ITEMS_FIRST), "UNPACK"))
    graph = read_graph(m.bytes())
    assert slice_before_transpose(graph) is graph

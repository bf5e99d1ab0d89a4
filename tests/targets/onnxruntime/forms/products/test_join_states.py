"""targets/onnxruntime/forms/products/join_states.py: states of linear recurrences."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest

from tests.support import Build, Tensor, check
from tests.support.fusions import count_optimized_nodes
from tests.support.graph_text import check_unchanged, read_graph
from tflite2onnx import convert
from tflite2onnx.targets.onnxruntime.forms.products.join_states import join_states

ROWS, COLUMNS = 24, 8


class Spelling(NamedTuple):
    """How a recurrence is written: the axis of its steps, that of its results, and faults."""

    axis: int = 2
    joined: int = 2
    steps: int = 5
    fault: str = ""


def spell(spelling: Spelling) -> bytes:
    axis, joined, steps, fault = spelling
    m, shape = Build(), [1, ROWS, COLUMNS]
    shape.insert(axis, steps)
    data, columns = m.input(shape), m.input([1, steps, COLUMNS])
    factors, terms = (m.op(code, [data], [shape])[0] for code in ("LOGISTIC", "TANH"))

    def op(code: str, inputs: list[Tensor], shape: list[int], **options: Any) -> Tensor:
        return m.op(code, inputs, [shape], **options)[0]

    def take(x: Tensor, axis: int, index: int, shape: list[int]) -> Tensor:
        begin, size = [0] * len(x.shape), list(x.shape)
        begin[axis], size[axis] = index, 1
        limits = (m.constant(np.array(each, np.int32)) for each in (begin, size))
        return reshape(op("SLICE", [x, *limits], size), shape)

    def reshape(x: Tensor, shape: list[int]) -> Tensor:
        new = m.constant(np.array(shape, np.int32))
        return op("RESHAPE", [x, new], shape, new_shape=shape)

    matrix = [1, ROWS, COLUMNS]
    state, results = take(terms, axis, 0, matrix), []
    for index in range(steps):
        if index:
            factor = take(factors, axis, index - (fault == "another factor"), matrix)
            kept = op("MUL", [factor, state], matrix)
            if fault == "function":
                kept = op("TANH", [kept], matrix)
            state = op("ADD", [kept, take(terms, axis, index, matrix)], matrix)
        column = take(columns, 1, index, [COLUMNS, 1])
        product = op("BATCH_MATMUL", [state, column], [1, ROWS, 1])
        results.append(product if joined else reshape(product, [1, ROWS]))
    whole = {2: [1, ROWS, steps], 1: [1, ROWS * steps, 1], 0: [steps, ROWS]}[joined]
    m.output(op("CONCATENATION", results, whole, axis=joined))
    if fault == "output":
        m.output(state)
    return m.bytes()


@pytest.mark.parametrize(
    "spelling",
    [*(Spelling(a, j) for a in (1, 2, 3) for j in (0, 1, 2)), Spelling(steps=2)],
    ids=str,
)
def test_results_equal_litert_in_few_nodes(spelling: Spelling) -> None:
    data = spell(spelling)
    check(data)
    nodes = count_optimized_nodes(convert(data).model)
    assert nodes["MatMul"] + nodes["FusedMatMul"] == 1, nodes
    assert nodes["Mul"] == nodes["Add"] == spelling.steps - 1, nodes
    assert nodes["Slice"] == 0, nodes


@pytest.mark.parametrize("fault", ["another factor", "function", "output"])
def test_other_recurrences_are_unchanged(fault: str) -> None:
    data = spell(Spelling(fault=fault))
    check_unchanged(join_states, read_graph(data))
    check(data)


def test_single_step_is_unchanged() -> None:
    check_unchanged(join_states, read_graph(spell(Spelling(steps=1))))

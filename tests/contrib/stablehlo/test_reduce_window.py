"""STABLEHLO_REDUCE_WINDOW and REDUCE_WINDOW."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.op.ports import add_input, check_outputs
from tests.passes.batch.test_add_batch import check_batch
from tests.support import Build, Tensor
from tflite2onnx.convert import convert
from tflite2onnx.errors import ConversionError

TYPES = ("float32", "float64", "int8", "int16", "int32", "int64", "uint8", "bool")
# The operator in the body, the option of REDUCE_WINDOW, and the neutral element.
FUNCTIONS = [
    ("STABLEHLO_ADD", "ADD", 0),
    ("STABLEHLO_MULTIPLY", "MUL", 1),
    ("STABLEHLO_MINIMUM", "MINIMUM", 100),
    ("STABLEHLO_MAXIMUM", "MAXIMUM", -100),
    ("STABLEHLO_AND", "ALL", 1),
    ("LOGICAL_OR", "ANY", 0),
]


def sizes(x: Tensor, columns: dict[str, list[int]]) -> list[int]:
    made = []
    for axis, size in enumerate(x.shape):
        window, stride, dilation, base = (
            columns.get(name, [1] * len(x.shape))[axis]
            for name in (
                "window_dimensions",
                "window_strides",
                "window_dilations",
                "base_dilations",
            )
        )
        pads = columns.get("padding", [0] * (2 * len(x.shape)))[2 * axis : 2 * axis + 2]
        padded = (size - 1) * base + 1 + sum(pads)
        made.append(max((padded - (window - 1) * dilation - 1) // max(stride, 1) + 1, 0))
    return made


def stablehlo(m: Build, code: str, x: Tensor, first: Tensor, **columns: list[int]) -> Tensor:
    body = m.subgraph("body")
    a, b = (body.input([], dtype=x.dtype) for _ in range(2))
    body.output(*body.op(code, [a, b], [[]]))
    ones = [1] * len(x.shape)
    every: dict[str, Any] = {
        "window_dimensions": ones,
        "window_strides": ones,
        "window_dilations": ones,
        "base_dilations": ones,
        "padding": [0, 0] * len(x.shape),
        **columns,
    }
    made = sizes(x, columns)
    return m.op(
        "STABLEHLO_REDUCE_WINDOW", [x, first], [made], **every, body_subgraph_index=body.index
    )[0]


def add_window(m: Build, function: str, x: Tensor, first: Tensor, *columns: list[int]) -> Tensor:
    names = ("window_dimensions", "window_strides", "window_dilations")
    made = sizes(x, dict(zip(names, columns, strict=True)))
    numbers = [m.constant(np.array(column, np.int64)) for column in columns]
    return m.op("REDUCE_WINDOW", [x, first, *numbers], [made], reduce_function=function)[0]


WINDOWS: list[tuple[list[int], dict[str, list[int]]]] = [
    ([7], {"window_dimensions": [3]}),
    ([29], {"window_dimensions": [13], "window_dilations": [2]}),
    ([29], {"window_dimensions": [29], "padding": [28, 0]}),
    ([5, 7], {"window_dimensions": [2, 3], "window_strides": [2, 1], "padding": [1, 0, -1, 2]}),
    ([3, 5], {"base_dilations": [2, 3], "window_dimensions": [2, 7], "window_dilations": [2, 1]}),
    (
        [2, 7, 5, 3],
        {
            "window_dimensions": [1, 3, 2, 1],
            "window_strides": [1, 2, 2, 1],
            "padding": [0, 0, 1, 1, 0, 1, 0, 0],
        },
    ),
    ([2, 3, 2, 5, 3], {"window_dimensions": [2, 1, 2, 5, 2]}),
    ([3, 5], {}),
]


@pytest.mark.parametrize("code", ["STABLEHLO_ADD", "MAXIMUM"])
@pytest.mark.parametrize("start", [None, 0.0, -1.5])
@pytest.mark.parametrize(("shape", "columns"), WINDOWS, ids=str)
def test_all_windows_and_initial_values_equal_litert(
    shape: list[int], columns: dict[str, list[int]], start: float | None, code: str
) -> None:
    m = Build()
    x = m.input(shape)
    first = m.input([]) if start is None else m.constant(start)
    check_outputs(m, stablehlo(m, code, x, first, **columns))


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(("code", "option", "neutral"), FUNCTIONS)
def test_all_functions_in_every_type_equal_litert(
    code: str, option: str, neutral: int, dtype: str
) -> None:
    """All functions in all types; sums and products of integers wrap around."""
    m = Build()
    columns = {"window_dimensions": [3, 2], "padding": [1, 0, 0, 2]}
    tensors = []
    for start in (neutral, 0, 1):
        first = m.constant(np.array(start % 256 if dtype == "uint8" else start).astype(dtype))
        x = add_input(m, [5, 7], dtype)
        if "LOGICAL" not in code or dtype == "bool":
            tensors.append(stablehlo(m, code, x, first, **columns))
        tensors.append(add_window(m, option, x, first, [3, 2], [2, 1], [1, 3]))
    check_outputs(m, *tensors)


@pytest.mark.parametrize("code", ["MAXIMUM", "MINIMUM"])
def test_extremes_of_int64_are_exact(code: str) -> None:
    """Extremes of int64 are exact, although ONNX Runtime's Max and Min compare 32 bits."""
    m = Build()
    x, first = m.input([7], dtype="int64"), m.constant(np.array(1 << 34))
    y = stablehlo(m, code, x, first, window_dimensions=[3], padding=[1, 0])
    data = np.array([1 << 35, (1 << 32) - 8, -(1 << 40), 1 << 31, 5, -3, 1 << 33])
    check_outputs(m, y, inputs=[data])


@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_initial_value_below_all_elements_is_omitted(dtype: str) -> None:
    """An initial value below all elements is omitted from a maximum."""
    m = Build()
    low = -np.inf if dtype == "float32" else -128
    x, first = m.input([5, 7], dtype=dtype), m.constant(np.array(low, dtype))
    y = stablehlo(m, "STABLEHLO_MAXIMUM", x, first, window_dimensions=[2, 1])
    result = check_outputs(m, y)
    assert [node.op_type for node in result.model.graph.node].count("Max") == 1


def test_batch_of_windows_equals_single_runs() -> None:
    """The windows of an image leave its first axis alone, as PyTorch's avg_pool2d writes them."""
    m, columns = Build(), {"window_dimensions": [1, 1, 3, 3], "window_strides": [1, 1, 2, 2]}
    m.output(stablehlo(m, "ADD", m.input([1, 3, 9, 7], name="x"), m.constant(0.0), **columns))
    check_batch(m.bytes(), 3)


def test_large_windows_take_few_nodes() -> None:
    m = Build()
    y = stablehlo(
        m, "ADD", m.input([1021]), m.constant(0.0), window_dimensions=[1021], padding=[1020, 0]
    )
    assert len(check_outputs(m, y).model.graph.node) < 60


def test_refuses_unsupported_functions_and_windows() -> None:
    m = Build()
    x, first = m.input([5, 7]), m.input([])
    m.output(stablehlo(m, "SUB", x, first))
    m.output(stablehlo(m, "ADD", x, first, window_dimensions=[2, 0]))
    m.output(stablehlo(m, "ADD", x, first, window_strides=[2, 1, 1]))
    m.output(stablehlo(m, "ADD", x, first, window_dimensions=[6, 1]))
    m.output(stablehlo(m, "ADD", x, m.input([], dtype="int32")))
    m.output(add_window(m, "UNSUPPORTED", x, first, [1, 1], [1, 1], [1, 1]))
    m.output(add_window(m, "ADD", x, first, [1, 1], [1, 1], [1, -1]))
    m.output(*m.op("STABLEHLO_REDUCE_WINDOW", [x, first], [[5, 7]], body_subgraph_index=99))
    with pytest.raises(ConversionError) as error:
        convert(m.bytes())
    reasons = str(error.value)
    assert "got SUB" in reasons
    assert reasons.count("or, got none") == 2
    assert reasons.count("must be 2 positive integers") == 3
    assert "and [0, 7] windows" in reasons
    assert "float32[], got int32[]" in reasons

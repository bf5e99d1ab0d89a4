"""DILATE and STABLEHLO_PAD."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.op.ports import add_input, check_outputs
from tests.support import Build, Tensor
from tests.support.tensor import NUMBER_TYPES
from tflite2onnx.convert import convert
from tflite2onnx.errors import ConversionError


def add_dilate(m: Build, x: Tensor, value: Tensor, steps: list[int]) -> Tensor:
    made = [(size - 1) * step + 1 for size, step in zip(x.shape, steps, strict=True)]
    return m.op("DILATE", [x, m.constant(np.array(steps, np.int32)), value], [made])[0]


@pytest.mark.parametrize(
    ("shape", "steps"),
    [
        ([5], [3]),
        ([3, 5], [1, 2]),
        ([3, 5], [1, 1]),
        ([2, 3, 5], [4, 1, 2]),
        ([2, 3, 5, 7], [1, 2, 3, 1]),
        ([2, 3, 1, 5, 2], [2, 1, 3, 2, 1]),
    ],
    ids=str,
)
@pytest.mark.parametrize("computed", [True, False])
def test_dilate_of_every_shape_equals_litert(
    shape: list[int], steps: list[int], *, computed: bool
) -> None:
    m = Build()
    value = m.input([]) if computed else m.constant(-1.5)
    check_outputs(m, add_dilate(m, add_input(m, shape), value, steps))


@pytest.mark.parametrize("dtype", NUMBER_TYPES)
def test_dilate_of_every_type_equals_litert(dtype: str) -> None:
    m = Build()
    check_outputs(
        m, add_dilate(m, add_input(m, [3, 5, 2], dtype), add_input(m, [], dtype), [2, 1, 3])
    )


def test_dilate_of_stored_integers_is_not_rescaled() -> None:
    m = Build()
    x, value = (add_input(m, shape, "int8", scale=0.5, zero_point=3) for shape in ([3, 5], []))
    result = check_outputs(m, add_dilate(m, x, value, [2, 3]))
    assert "DequantizeLinear" not in {node.op_type for node in result.model.graph.node}


@pytest.mark.parametrize(
    ("steps", "value", "made", "reason"),
    [
        ([2], 0.0, [3, 5], r"must be 2 positive integers, got \[2\]"),
        ([2, 0], 0.0, [5, 5], r"must be 2 positive integers, got \[2, 0\]"),
        ([2, 1], 0, [5, 5], r"float32\[\], got int32\[\]"),
        ([2.0, 1.0], 0.0, [5, 5], "int32, got float32"),
    ],
)
def test_dilate_refuses_unsupported_steps_and_values(
    steps: list[float], value: float, made: list[int], reason: str
) -> None:
    m = Build()
    m.output(*m.op("DILATE", [m.input([3, 5]), m.constant(steps), m.constant(value)], [made]))
    with pytest.raises(ConversionError, match=reason):
        convert(m.bytes())


def add_pad(m: Build, x: Tensor, value: Tensor, *pads: tuple[int, int, int]) -> Tensor:
    """Return x with padding before, after and between the elements of each axis."""
    low, high, between = zip(*pads, strict=True)
    sizes = zip(x.shape, pads, strict=True)
    made = [size + max(size - 1, 0) * p[2] + p[0] + p[1] for size, p in sizes]
    return m.op(
        "STABLEHLO_PAD",
        [x, value],
        [made],
        edge_padding_low=low,
        edge_padding_high=high,
        interior_padding=between,
    )[0]


PADS = [
    ([5], [(2, 3, 0)]),
    ([5], [(-1, -2, 0)]),
    ([5], [(-3, 1, 3)]),
    ([5], [(2, -5, 1)]),
    ([3, 5], [(0, 0, 0), (0, 0, 0)]),
    ([3, 5], [(0, 0, 2), (0, 0, 1)]),
    ([2, 1, 5, 3], [(1, 0, 0), (3, 1, 4), (-1, -1, 2), (0, 2, 0)]),
    ([2, 3, 1, 5, 2], [(1, 0, 0), (0, 1, 1), (0, 0, 0), (-2, 0, 0), (0, 0, 1)]),
]


@pytest.mark.parametrize("computed", [True, False])
@pytest.mark.parametrize(("shape", "pads"), PADS, ids=str)
def test_pad_before_after_and_between_equals_litert(
    shape: list[int], pads: list[tuple[int, int, int]], *, computed: bool
) -> None:
    m = Build()
    value = m.input([]) if computed else m.constant(-1.5)
    check_outputs(m, add_pad(m, add_input(m, shape), value, *pads))


@pytest.mark.parametrize("dtype", NUMBER_TYPES)
def test_pad_of_every_type_equals_litert(dtype: str) -> None:
    m = Build()
    x, value = add_input(m, [3, 5], dtype), add_input(m, [], dtype)
    check_outputs(m, add_pad(m, x, value, (1, -2, 1), (0, 2, 0)))


def test_pad_of_stored_integers_is_not_rescaled() -> None:
    m = Build()
    x, value = (add_input(m, shape, "int8", scale=0.5, zero_point=3) for shape in ([3, 5], []))
    result = check_outputs(m, add_pad(m, x, value, (1, -2, 1), (0, 2, 0)))
    assert "DequantizeLinear" not in {node.op_type for node in result.model.graph.node}


def test_pad_refuses_wrong_numbers_of_axes() -> None:
    m = Build()
    x, value = m.input([3]), m.input([])
    m.output(add_pad(m, x, value, (0, 0, 0), *[]))
    options: dict[str, Any] = {
        "edge_padding_low": [1],
        "edge_padding_high": [0],
        "interior_padding": [0],
    }
    m.output(*m.op("STABLEHLO_PAD", [x, value], [[4]], **{**options, "interior_padding": [-1]}))
    m.output(*m.op("STABLEHLO_PAD", [x, value], [[4]], **{**options, "edge_padding_low": [1, 2]}))
    m.output(*m.op("STABLEHLO_PAD", [x, value], [[0]], **{**options, "edge_padding_low": [-3]}))
    with pytest.raises(ConversionError) as error:
        convert(m.bytes())
    reasons = str(error.value)
    assert reasons.count("must each be 1 integers") == 2
    assert "must be positive, got [0]" in reasons

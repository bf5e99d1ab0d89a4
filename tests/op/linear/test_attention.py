"""odml.scaled_dot_product_attention, compared with LiteRT's default delegate, XNNPACK.

The built-in kernel is no reference: it passes a transposed matrix to a product that reads the
matrix as not transposed. Its results are wrong for several key heads and more than one query.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tests.references import check_reference, draw_numbers
from tests.references.genai import run_litert
from tests.support import Build
from tflite2onnx.convert import convert
from tflite2onnx.errors import ConversionError

if TYPE_CHECKING:
    from tests.support.runtimes import Array

CODE = "odml.scaled_dot_product_attention"


def attention(shapes: list[tuple[int, ...]], options: dict[str, Any] | None = None) -> Build:
    m = Build()
    q, _, v, _ = shapes
    m.output(*m.custom(CODE, [m.input(s) for s in shapes], [[*q[:3], v[3]]], options or {}))
    return m


Heads = tuple[int, int, int, int, int]
# batch, heads of queries, heads of keys, queries, keys
HEADS: list[Heads] = [
    (1, 4, 4, 5, 7),
    (2, 3, 3, 5, 5),
    (1, 4, 1, 5, 7),
    (1, 6, 2, 3, 11),
    (2, 6, 3, 1, 4),
]


# The delegate ignores a scale that is an integer.
OPTIONS: list[dict[str, float]] = [
    {},
    {"scale": 0.25},
    {"scale": 2},
    {"scale": 2.0, "logit_cap": 0.5},
]


def operands(heads: Heads) -> list[Array]:
    """Return random queries, keys, values and a mask."""
    batch, queried, keyed, times, keys = heads
    shapes = [(batch, times, queried, 8), *[(batch, keys, keyed, 8)] * 2, (1, 1, times, keys)]
    arrays = [draw_numbers(*shape, seed=i, low=-2, high=2) for i, shape in enumerate(shapes)]
    arrays[3] = np.where(arrays[3] > 1, np.float32(-1e9), np.float32(0))
    return arrays


def run_attention(*arrays: Array, options: dict[str, Any]) -> Array:
    """Return the output of LiteRT's delegate."""
    data = attention([x.shape for x in arrays], options).bytes()
    return run_litert(data, [x.copy() for x in arrays])[0][0]


@pytest.mark.parametrize("heads", HEADS, ids=str)
@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("opset", [17, 23])
def test_attention_equals_litert_delegate(
    heads: Heads, options: dict[str, Any], opset: int
) -> None:
    """Query heads may share key heads, also as Attention of opset 23."""
    inputs = operands(heads)
    m = attention([x.shape for x in inputs], options)
    result = check_reference(m, inputs, [run_attention(*inputs, options=options)], opset=opset)
    nodes = {node.op_type for node in result.model.graph.node}
    assert ("Attention" in nodes) == (opset == 23 and "logit_cap" not in options)


@pytest.mark.parametrize("cap", [0, 1, -1.0, float("inf")])
def test_attention_refuses_a_cap_that_is_not_positive(cap: float) -> None:
    m = attention([x.shape for x in operands(HEADS[0])], {"logit_cap": cap})
    with pytest.raises(ConversionError, match="its logit_cap must be a positive float, got"):
        convert(m.bytes())


@pytest.mark.parametrize(
    ("shapes", "reason"),
    [
        ([(1, 5, 4, 8), (1, 7, 3, 8), (1, 7, 3, 8), (1, 1, 5, 7)], "got 4 and 3 heads"),
        ([(2, 5, 4, 8), (2, 7, 1, 8), (2, 7, 1, 8), (1, 1, 5, 7)], "batch 2"),
        ([(1, 5, 4, 8), (1, 7, 4, 9), (1, 7, 4, 8), (1, 1, 5, 7)], "[1, 7, 4, 8], got"),
        (
            [(1, 5, 4, 8), (1, 7, 4, 8), (1, 7, 4, 8), (2, 1, 5, 7)],
            "the mask must broadcast to [1, 4, 5, 7], got [2, 1, 5, 7]",
        ),
        (
            [(1, 5, 4, 8), (1, 7, 4, 8), (1, 7, 4, 8), (1, 5, 7)],
            "must be float32[masks, rows, columns, shares], got float32[1, 5, 7]",
        ),
    ],
)
def test_attention_refuses_invalid_heads_and_shapes(
    shapes: list[tuple[int, ...]], reason: str
) -> None:
    with pytest.raises(ConversionError) as error:
        convert(attention(shapes).bytes())
    assert reason in str(error.value)

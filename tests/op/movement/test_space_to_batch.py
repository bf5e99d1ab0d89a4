"""SPACE_TO_BATCH_ND and BATCH_TO_SPACE_ND."""

from __future__ import annotations

import numpy as np
import pytest

from tests.op.ports import add_input, check_outputs
from tests.support import Build, Tensor
from tests.support.tensor import NUMBER_TYPES
from tflite2onnx.convert import convert
from tflite2onnx.errors import ConversionError

# shape, block, paddings, shape of the output
SPACES: list[tuple[list[int], list[int], list[list[int]], list[int]]] = [
    ([2, 4, 6, 5], [2, 3], [[0, 0], [0, 0]], [12, 2, 2, 5]),
    ([2, 5, 7, 3], [2, 3], [[1, 0], [0, 2]], [12, 3, 3, 3]),
    ([1, 7, 5, 2], [1, 1], [[0, 0], [0, 0]], [1, 7, 5, 2]),
    ([3, 7, 5, 2], [4, 2], [[0, 1], [2, 1]], [24, 2, 4, 2]),
    ([2, 5, 7], [3], [[1, 0]], [6, 2, 7]),
    ([2, 6, 7], [2], [[0, 0]], [4, 3, 7]),
    ([1, 0, 3], [2], [[4, 4]], [2, 4, 3]),
]


def parameters(m: Build, block: list[int], edges: list[list[int]]) -> list[Tensor]:
    return [m.constant(np.array(block, np.int32)), m.constant(np.array(edges, np.int32))]


def add_space_to_batch(
    m: Build, x: Tensor, block: list[int], edges: list[list[int]], made: list[int]
) -> Tensor:
    return m.op("SPACE_TO_BATCH_ND", [x, *parameters(m, block, edges)], [made])[0]


def to_space(
    m: Build, x: Tensor, block: list[int], edges: list[list[int]], made: list[int]
) -> Tensor:
    return m.op("BATCH_TO_SPACE_ND", [x, *parameters(m, block, edges)], [made])[0]


@pytest.mark.parametrize(("shape", "block", "edges", "made"), SPACES, ids=str)
def test_space_to_batch_and_batch_to_space_equal_litert(
    shape: list[int], block: list[int], edges: list[list[int]], made: list[int]
) -> None:
    m = Build()
    check_outputs(m, add_space_to_batch(m, add_input(m, shape), block, edges, made))
    m = Build()
    check_outputs(m, to_space(m, add_input(m, made), block, edges, shape))


@pytest.mark.parametrize("dtype", NUMBER_TYPES)
def test_blocks_of_every_type_equal_litert(dtype: str) -> None:
    m = Build()
    x = add_input(m, [2, 5, 7, 3], dtype)
    y = add_space_to_batch(m, x, [2, 3], [[1, 0], [0, 2]], [12, 3, 3, 3])
    check_outputs(m, y, to_space(m, y, [3, 2], [[0, 2], [1, 0]], [2, 7, 5, 3]))


def test_stored_integers_are_padded_without_rescaling() -> None:
    """Stored integers are padded by the zero point, without rescaling."""
    m = Build()
    x = add_input(m, [2, 5, 7, 3], "int8", scale=0.5, zero_point=3)
    result = check_outputs(m, add_space_to_batch(m, x, [2, 3], [[1, 0], [0, 2]], [12, 3, 3, 3]))
    assert "QuantizeLinear" not in {node.op_type for node in result.model.graph.node}


@pytest.mark.parametrize(
    ("code", "shape", "block", "edges", "made", "reason"),
    [
        ("SPACE_TO_BATCH_ND", [2, 5, 7, 3], [2, 3], [[0, 0], [0, 2]], [12, 3, 3, 3], "divisible"),
        ("SPACE_TO_BATCH_ND", [2, 4], [2], [[0, 0]], [4, 2], "got \\[2\\] for 2 axes"),
        ("SPACE_TO_BATCH_ND", [2, 4, 6, 3], [2], [[0, 0]], [4, 2, 6, 3], "got \\[2\\] for 4"),
        ("SPACE_TO_BATCH_ND", [2, 4, 3], [0], [[0, 0]], [2, 4, 3], "got \\[0\\] for 3 axes"),
        ("SPACE_TO_BATCH_ND", [2, 4, 3], [2], [[0, -2]], [4, 1, 3], "got \\[0, -2\\]"),
        ("SPACE_TO_BATCH_ND", [2, 4, 3], [2], [[0], [0]], [4, 2, 3], "got \\[0, 0\\]"),
        ("BATCH_TO_SPACE_ND", [3, 4, 3], [2], [[0, 0]], [1, 8, 3], "divisible"),
        ("BATCH_TO_SPACE_ND", [2, 4, 3], [2], [[5, 4]], [1, 0, 3], "must not exceed"),
    ],
)
def test_space_to_batch_refuses_invalid_blocks_and_edges(
    code: str,
    shape: list[int],
    block: list[int],
    edges: list[list[int]],
    made: list[int],
    reason: str,
) -> None:
    m = Build()
    m.output(*m.op(code, [m.input(shape), *parameters(m, block, edges)], [made]))
    with pytest.raises(ConversionError, match=reason):
        convert(m.bytes())

"""BROADCAST_TO, BROADCAST_ARGS and FILL."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.op.ports import add_input, check_outputs, folds
from tests.support import Build, Tensor
from tests.support.tensor import NUMBER_TYPES
from tflite2onnx.convert import convert
from tflite2onnx.errors import ConversionError

SHAPES: list[tuple[tuple[int, ...], tuple[int, ...]]] = [
    ((), ()),
    ((), (5,)),
    ((), (2, 3, 5, 7)),
    ((1,), (5,)),
    ((5,), (5,)),
    ((7,), (2, 3, 7)),
    ((3, 1), (3, 5)),
    ((1, 5), (3, 5)),
    ((3, 5), (2, 7, 3, 5)),
    ((1, 3, 1), (2, 3, 5)),
    ((2, 1, 5, 1), (2, 3, 5, 7)),
    ((1, 3, 1, 7), (2, 3, 5, 7)),
    ((2, 3, 5, 7), (2, 3, 5, 7)),
    ((5, 1, 1), (2, 3, 5, 7, 4)),
    ((1, 3), (0, 3)),
]


def broadcast(m: Build, x: Tensor, shape: tuple[int, ...], index: str = "int32") -> Tensor:
    return m.op("BROADCAST_TO", [x, m.constant(np.array(shape, index))], [shape])[0]


@pytest.mark.parametrize("index", ["int32", "int64"])
@pytest.mark.parametrize(("old", "new"), SHAPES, ids=str)
def test_broadcast_to_every_shape_equals_litert(
    old: tuple[int, ...], new: tuple[int, ...], index: str
) -> None:
    m = Build()
    check_outputs(m, broadcast(m, add_input(m, old), new, index))


@pytest.mark.parametrize("dtype", NUMBER_TYPES)
def test_broadcast_to_of_every_type_equals_litert(dtype: str) -> None:
    m = Build()
    check_outputs(m, broadcast(m, add_input(m, [3, 1, 5], dtype), (2, 3, 7, 5)))


def test_broadcast_to_of_stored_integers_is_expand() -> None:
    m = Build()
    x = add_input(m, [3, 1], "int8", scale=0.5, zero_point=3)
    result = check_outputs(m, broadcast(m, x, (3, 5)))
    assert [node.op_type for node in result.model.graph.node] == ["Expand"]


def test_broadcasts_of_constants_fold() -> None:
    m = Build()
    x = m.constant(np.arange(3, dtype=np.int32).reshape(3, 1))
    (args,) = m.op("BROADCAST_ARGS", [m.constant([3, 1]), m.constant([2, 1, 5])], [[3]])
    (filled,) = m.op("FILL", [m.constant([2, 3]), m.constant(7)], [[2, 3]])
    folds(m, broadcast(m, x, (2, 3, 5)), args, filled)


@pytest.mark.parametrize("dtype", ["int32", "int64"])
@pytest.mark.parametrize(
    ("a", "b"),
    [
        ([2, 3], [2, 3]),
        ([1, 3], [2, 1]),
        ([5, 1, 3], [2, 1]),
        ([3], [2, 5, 1]),
        ([1, 0], [1, 1]),
        ([], [2, 3]),
        ([], []),
    ],
    ids=str,
)
def test_broadcast_args_equals_litert(a: list[int], b: list[int], dtype: str) -> None:
    m = Build()
    x, y = (m.input([len(each)], dtype=dtype) for each in (a, b))
    (made,) = m.op("BROADCAST_ARGS", [x, y], [[max(len(a), len(b))]])
    check_outputs(m, made, inputs=[np.array(a, dtype), np.array(b, dtype)])


@pytest.mark.parametrize("index", ["int32", "int64"])
@pytest.mark.parametrize("shape", [(), (5,), (2, 3), (2, 3, 5, 7), (2, 0)], ids=str)
def test_fill_of_every_shape_equals_litert(shape: tuple[int, ...], index: str) -> None:
    m = Build()
    check_outputs(m, *m.op("FILL", [m.constant(np.array(shape, index)), add_input(m, [])], [shape]))


@pytest.mark.parametrize("dtype", NUMBER_TYPES)
def test_fill_of_every_type_equals_litert(dtype: str) -> None:
    m = Build()
    value = add_input(m, [], dtype)
    check_outputs(m, *m.op("FILL", [m.constant([3, 5]), value], [[3, 5]]))


def test_fill_of_strings_equals_litert() -> None:
    m = Build()
    value = m.constant(np.array(b"word", object))
    check_outputs(m, *m.op("FILL", [m.constant([3, 5]), value], [[3, 5]]), inputs=[])


def test_fill_of_a_stored_integer_equals_litert() -> None:
    m = Build()
    value = add_input(m, [], "int8", scale=0.5, zero_point=3)
    check_outputs(m, *m.op("FILL", [m.constant([3, 5]), value], [[3, 5]]))


def test_filled_tensors_may_have_any_layout() -> None:
    m = Build()
    (filled,) = m.op("FILL", [m.constant([2, 3, 5]), add_input(m, [])], [[2, 3, 5]])
    check_outputs(m, *m.op("ADD", [filled, add_input(m, [2, 3, 5])], [[2, 3, 5]]))


@pytest.mark.parametrize(
    ("code", "inputs", "made", "reason"),
    [
        ("BROADCAST_TO", [[3, 5], [2, 5]], [2, 5], r"must broadcast to \[2, 5\], got \[3, 5\]"),
        ("BROADCAST_TO", [[3, 5], [5]], [5], r"must broadcast to \[5\], got \[3, 5\]"),
        ("BROADCAST_TO", [[1, 5], [3.0, 5.0]], [3, 5], "int32 or int64, got float32"),
        ("BROADCAST_TO", [[1, 5], [[3, 5]]], [3, 5], r"must be int32\[sizes\], got int32\[1, 2\]"),
        ("BROADCAST_TO", [[1, 3, 5], None], [3, 5], "must have 3 elements or more, got 2"),
        ("FILL", [[2], None], [3, 5], "int32 or int64, got float32"),
    ],
)
def test_broadcast_refuses_incompatible_shapes(
    code: str, inputs: list[Any], made: list[int], reason: str
) -> None:
    m = Build()
    shape = m.input([2], dtype="int32") if inputs[1] is None else m.constant(inputs[1])
    m.output(*m.op(code, [m.input(inputs[0]), shape], [made]))
    with pytest.raises(ConversionError, match=reason):
        convert(m.bytes())


def test_broadcast_args_of_incompatible_constants_is_not_folded() -> None:
    """The model fails in its first run, as in LiteRT."""
    m = Build()
    lists = [m.constant(np.array(sizes, np.int32)) for sizes in ([1, 32], [1, 1, 2, 16])]
    (sizes,) = m.op("BROADCAST_ARGS", lists, [[4]], dtype="int32")
    m.output(sizes)
    assert convert(m.bytes()).nodes

"""TOPK_V2, ARG_MAX and ARG_MIN."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tests.op.ports import add_input, check_outputs
from tests.support import Build
from tflite2onnx.convert import convert
from tflite2onnx.errors import ConversionError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.support import Tensor

SIZES = (2, 3, 5, 7, 4)
TOPK_TYPES = ("float32", "int8", "int16", "int32", "int64", "uint8")
ARG_TYPES = ("float32", "bool", "int8", "int32", "uint8")
AXES = [(rank, axis) for rank in range(1, 6) for axis in range(-rank, rank)]


def largest(
    m: Build, x: Tensor, k: Tensor, count: int, by: str = "int32", **fields: Any
) -> list[Tensor]:
    shape = [*x.shape[:-1], count]
    outputs = [m.tensor(shape, dtype=x.dtype, **fields), m.tensor(shape, dtype=by)]
    return m.op("TOPK_V2", [x, k], outputs)


def add_arg(
    m: Build, code: str, x: Tensor, axis: Tensor | int, number: int, made: str = "int32"
) -> Tensor:
    number %= len(x.shape)
    shape = [*x.shape[:number], *x.shape[number + 1 :]]
    given = m.constant(np.int32(axis)) if isinstance(axis, int) else axis
    return m.op(code, [x, given], [shape], dtype=made, output_type=made)[0]


@pytest.mark.parametrize("rank", [1, 2, 3, 4, 5])
def test_topk_of_every_rank_equals_litert(rank: int) -> None:
    m = Build()
    x = add_input(m, SIZES[:rank])
    for k in range(1, SIZES[rank - 1] + 1):
        m.output(*largest(m, x, m.constant(k), k))
    check_outputs(m)


@pytest.mark.parametrize("by", ["int16", "int32"])
@pytest.mark.parametrize("k_by", ["int16", "int32"])
@pytest.mark.parametrize("dtype", TOPK_TYPES)
def test_topk_of_every_type_equals_litert(dtype: str, k_by: str, by: str) -> None:
    m = Build()
    k = m.constant(np.array([3], k_by))
    check_outputs(m, *largest(m, add_input(m, [2, 3, 11], dtype), k, 3, by))


@pytest.mark.parametrize("k", [1, 2, 7, 50, 199, 200])
@pytest.mark.parametrize("dtype", ["float32", "int32", "uint8"])
def test_topk_sorts_equal_elements_by_index(dtype: str, k: int) -> None:
    """Equal elements are sorted by index."""
    m = Build()
    ranges = {dtype: (0, 3)} if dtype != "float32" else None
    x = add_input(m, [5, 200], dtype)
    outputs = largest(m, x, m.constant(k), k)
    if ranges is None:
        values = np.random.default_rng(0).integers(0, 3, (5, 200)).astype(np.float32)
        check_outputs(m, *outputs, inputs=[values])
    else:
        check_outputs(m, *outputs, ranges=ranges)


@pytest.mark.parametrize("k", [0, -2])
def test_topk_of_no_elements_is_empty(k: int) -> None:
    m = Build()
    check_outputs(m, *largest(m, add_input(m, [3, 5]), m.constant(k), 0))


def test_topk_of_stored_integers_is_not_rescaled() -> None:
    m = Build()
    scale: dict[str, Any] = {"scale": 0.5, "zero_point": 3}
    x = add_input(m, [3, 5], "int8", **scale)
    result = check_outputs(m, *largest(m, x, m.constant(2), 2, **scale))
    assert not any(node.op_type.endswith("Linear") for node in result.model.graph.node)


@pytest.mark.parametrize("code", ["ARG_MAX", "ARG_MIN"])
@pytest.mark.parametrize(("rank", "axis"), AXES)
def test_arg_along_every_axis_equals_litert(rank: int, axis: int, code: str) -> None:
    m = Build()
    check_outputs(m, add_arg(m, code, add_input(m, SIZES[:rank]), axis, axis))


@pytest.mark.parametrize("code", ["ARG_MAX", "ARG_MIN"])
@pytest.mark.parametrize("made", ["int32", "int64"])
@pytest.mark.parametrize("by", ["int32", "int64"])
@pytest.mark.parametrize("dtype", ARG_TYPES)
def test_arg_of_every_type_equals_litert(dtype: str, by: str, made: str, code: str) -> None:
    m = Build()
    axis = m.constant(np.array([1], by))
    check_outputs(m, add_arg(m, code, add_input(m, [2, 3, 5], dtype), axis, 1, made))


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("dtype", ["bool", "int8", "uint8", "int32"])
@pytest.mark.parametrize("code", ["ARG_MAX", "ARG_MIN"])
def test_arg_returns_the_first_of_equal_elements(code: str, dtype: str, axis: int) -> None:
    """If elements are equal, the index of the first element is returned."""
    m = Build()
    x = add_input(m, [61, 67], dtype)
    check_outputs(m, add_arg(m, code, x, axis, axis), ranges={dtype: (0, 3)})


def test_arg_of_stored_integers_is_not_rescaled() -> None:
    m = Build()
    x = add_input(m, [3, 5], "int8", scale=0.5, zero_point=3)
    result = check_outputs(m, add_arg(m, "ARG_MAX", x, 1, 1))
    assert [node.op_type for node in result.model.graph.node] == ["ArgMax", "Cast"]


def refusal(code: str, inputs: Sequence[Any], made: Sequence[Any], dtype: str = "float32") -> str:
    m = Build()
    shape, *parameters = inputs
    given = [m.input(shape, dtype=dtype), *(m.constant(each) for each in parameters)]
    m.output(*m.op(code, given, [m.tensor(shape, dtype=by) for shape, by in made]))
    with pytest.raises(ConversionError) as error:
        convert(m.bytes())
    return str(error.value)


def test_topk_refuses_unsupported_numbers_and_types() -> None:
    made = [([3, 2], "float32"), ([3, 2], "int32")]
    assert "k must be at most the last size of tensor_0, [3, 5], got 6" in refusal(
        "TOPK_V2", [[3, 5], 6], made
    )
    assert "[], got 2" in refusal("TOPK_V2", [[], 2], made)
    assert "must have one element, got 2" in refusal("TOPK_V2", [[3, 5], [1, 2]], made)
    assert "must have 2 outputs, got 1" in refusal("TOPK_V2", [[3, 5], 2], made[:1])
    assert "got bool" in refusal("TOPK_V2", [[3, 5], 2], made, "bool")
    made[1] = ([3, 2], "int64")
    assert "int16 or int32, got int64" in refusal("TOPK_V2", [[3, 5], 2], made)


def test_arg_refuses_unsupported_axes_and_types() -> None:
    made = [([3], "int32")]
    assert "below 2, got 2" in refusal("ARG_MAX", [[3, 5], 2], made)
    assert "below 0, got 0" in refusal("ARG_MIN", [[], 0], made)
    assert "must have one element, got 2" in refusal("ARG_MAX", [[3, 5], [0, 1]], made)
    assert "axis 1 of tensor_0 must not be empty" in refusal("ARG_MAX", [[3, 0], 1], made)
    assert "float32, bool, int8, int32 or uint8, got int64" in refusal(
        "ARG_MAX", [[3, 5], 1], made, "int64"
    )
    assert "int32 or int64, got float32" in refusal("ARG_MAX", [[3, 5], 1], [([3], "float32")])

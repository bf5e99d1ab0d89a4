"""PAD, PADV2 and MIRROR_PAD."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tests.op.ports import FLOAT8, add_input, check_float8, check_outputs, folds
from tests.support import Build
from tflite2onnx.convert import convert
from tflite2onnx.errors import ConversionError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.support import Tensor

TYPES = (
    "float32",
    "float16",
    "bfloat16",
    "bool",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
)
MIRRORED_TYPES = (*TYPES, "float64", "uint16", "uint32", "uint64")
Pads = list[list[int]]

PADS: list[tuple[list[int], Pads]] = [
    ([5], [[2, 3]]),
    ([3, 5], [[0, 1], [4, 0]]),
    ([3, 5, 7], [[1, 0], [0, 0], [2, 3]]),
    ([2, 3, 5, 7], [[0, 0], [1, 2], [3, 1], [0, 0]]),
    ([2, 3, 5, 7], [[1, 0], [0, 2], [0, 0], [2, 1]]),
    ([2, 3, 5, 7, 4], [[0, 1], [1, 0], [2, 2], [0, 0], [3, 1]]),
    ([2, 0, 3], [[1, 0], [0, 2], [0, 1]]),
]
MIRRORED: list[tuple[list[int], Pads]] = [
    ([5], [[2, 3]]),
    ([5], [[4, 4]]),
    ([3, 5], [[0, 1], [2, 0]]),
    ([3, 5], [[1, 1], [0, 1]]),
    ([3, 5, 7], [[1, 0], [0, 0], [2, 3]]),
    ([2, 3, 5, 7], [[0, 0], [1, 2], [3, 1], [0, 0]]),
    ([2, 3, 5, 7, 4], [[0, 1], [1, 0], [2, 2], [0, 0], [3, 1]]),
]


def add_pad(
    m: Build, code: str, x: Tensor, pads: Pads, *value: Tensor, by: str = "int32", **options: Any
) -> Tensor:
    shape = [size + sum(pair) for size, pair in zip(x.shape, pads, strict=True)]
    return m.op(code, [x, m.constant(np.array(pads, by)), *value], [shape], **options)[0]


@pytest.mark.parametrize("by", ["int8", "int16", "int32", "int64"])
@pytest.mark.parametrize(("shape", "pads"), PADS)
def test_pad_of_every_shape_equals_litert(shape: list[int], pads: Pads, by: str) -> None:
    m = Build()
    check_outputs(m, add_pad(m, "PAD", add_input(m, shape), pads, by=by))


@pytest.mark.parametrize("dtype", TYPES)
def test_pad_of_every_type_equals_litert(dtype: str) -> None:
    m = Build()
    pads = [[1, 0], [0, 2], [3, 1], [0, 0]]
    check_outputs(m, add_pad(m, "PAD", add_input(m, [2, 3, 5, 7], dtype), pads))


@pytest.mark.parametrize("shape", [[], [1]])
@pytest.mark.parametrize("dtype", TYPES)
def test_pad_with_a_computed_value_equals_litert(dtype: str, shape: list[int]) -> None:
    m = Build()
    x, value = add_input(m, [2, 3, 5, 7], dtype), add_input(m, shape, dtype)
    check_outputs(m, add_pad(m, "PADV2", x, [[1, 0], [0, 2], [3, 1], [0, 0]], value))


@pytest.mark.parametrize("dtype", ["float32", "int16", "int32", "bool"])
def test_pad_with_a_constant_value_equals_litert(dtype: str) -> None:
    m = Build()
    value = m.constant(np.array(1, dtype))
    check_outputs(m, add_pad(m, "PADV2", add_input(m, [3, 5], dtype), [[1, 0], [0, 2]], value))


def test_pad_by_0_elements_is_identity() -> None:
    m = Build()
    x, pads = add_input(m, [3, 5]), [[0, 0], [0, 0]]
    padded_with_7 = add_pad(m, "PADV2", x, pads, m.constant(np.float32(7)))
    result = check_outputs(m, padded_with_7, add_pad(m, "MIRROR_PAD", x, pads, mode="REFLECT"))
    assert {node.op_type for node in result.model.graph.node} == {"Identity"}


def test_pad_of_a_scalar_is_identity() -> None:
    """PAD of a scalar is Identity; LiteRT cannot run it, because [] may be an unknown shape."""
    m = Build()
    m.output(*m.op("PAD", [add_input(m, []), m.constant(np.zeros((0, 2), np.int32))], [[]]))
    nodes = convert(m.bytes()).model.graph.node
    assert [node.op_type for node in nodes] == ["Identity"]


@pytest.mark.parametrize("code", ["PAD", "PADV2"])
@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16"])
def test_pad_of_stored_integers_is_not_rescaled(code: str, dtype: str) -> None:
    """Stored integers are padded without rescaling: by the zero point, or by a given value."""
    m = Build()
    as_stored: dict[str, Any] = {"scale": 0.5, "zero_point": 0 if dtype == "int16" else 3}
    x = add_input(m, [3, 5, 7], dtype, **as_stored)
    value = [m.constant(np.array(5, dtype), **as_stored)] if code == "PADV2" else []
    result = check_outputs(m, add_pad(m, code, x, [[1, 0], [0, 2], [0, 0]], *value))
    assert not any(node.op_type.endswith("Linear") for node in result.model.graph.node)


@pytest.mark.parametrize("by", ["int32", "int64"])
@pytest.mark.parametrize("mode", ["REFLECT", "SYMMETRIC"])
@pytest.mark.parametrize(("shape", "pads"), MIRRORED)
def test_mirror_pad_in_every_mode_equals_litert(
    shape: list[int], pads: Pads, mode: str, by: str
) -> None:
    m = Build()
    if mode == "SYMMETRIC" and shape == [5]:
        pads = [[5, 5]]
    check_outputs(m, add_pad(m, "MIRROR_PAD", add_input(m, shape), pads, mode=mode, by=by))


@pytest.mark.parametrize("pads", [[[1, 1], [0, 1], [0, 0]], [[0, 0], [2, 3], [0, 1]]])
@pytest.mark.parametrize("mode", ["REFLECT", "SYMMETRIC"])
@pytest.mark.parametrize("dtype", MIRRORED_TYPES)
def test_mirror_pad_of_every_type_equals_litert(dtype: str, mode: str, pads: Pads) -> None:
    m = Build()
    check_outputs(m, add_pad(m, "MIRROR_PAD", add_input(m, [3, 5, 7], dtype), pads, mode=mode))


@pytest.mark.parametrize("dtype", FLOAT8)
def test_mirror_pad_of_float8_equals_numpy(dtype: str) -> None:
    m = Build()
    x = m.input([16, 16], dtype=dtype)
    y = add_pad(m, "MIRROR_PAD", x, [[2, 3], [0, 0]], mode="REFLECT")
    m.output(add_pad(m, "MIRROR_PAD", y, [[0, 0], [2, 3]], mode="SYMMETRIC"))

    def mirror(every: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        return np.pad(np.pad(every, [[2, 3], [0, 0]], "reflect"), [[0, 0], [2, 3]], "symmetric")

    check_float8(m, mirror)


@pytest.mark.parametrize("mode", ["REFLECT", "SYMMETRIC"])
def test_mirror_pad_of_stored_integers_is_not_rescaled(mode: str) -> None:
    m = Build()
    x = add_input(m, [3, 5, 7], "int8", scale=0.5, zero_point=3)
    result = check_outputs(m, add_pad(m, "MIRROR_PAD", x, [[1, 0], [2, 3], [0, 0]], mode=mode))
    assert not any(node.op_type.endswith("Linear") for node in result.model.graph.node)


def test_pads_of_constants_fold() -> None:
    m = Build()
    x = m.constant(np.arange(15, dtype=np.int32).reshape(3, 5))
    pads = [[1, 2], [0, 3]]
    folds(
        m,
        add_pad(m, "PAD", x, pads),
        add_pad(m, "PADV2", x, pads, m.constant(np.int32(7))),
        add_pad(m, "PADV2", x, pads, m.constant([7])),
        add_pad(m, "MIRROR_PAD", x, pads, mode="REFLECT"),
        add_pad(m, "MIRROR_PAD", x, pads, mode="SYMMETRIC"),
    )


def refusal_reason(code: str, pads: Any, shape: Sequence[int], *value: Any, **options: Any) -> str:
    m = Build()
    inputs = [add_input(m, [3, 5]), m.constant(pads), *(m.constant(each) for each in value)]
    m.output(*m.op(code, inputs, [shape], **options))
    with pytest.raises(ConversionError) as error:
        convert(m.bytes())
    return str(error.value)


def test_pads_refuse_strings() -> None:
    m = Build()
    x = m.input([3], dtype="string")
    m.output(add_pad(m, "PAD", x, [[1, 2]]))
    with pytest.raises(ConversionError, match=r"tensor_0 must be float32, .*, got string"):
        convert(m.bytes())


def test_pads_refuse_invalid_amounts_and_values() -> None:
    three = [[0, 0]] * 3
    assert "shape [2, 2], got [0, 0, 0, 0, 0, 0] of the shape [3, 2]" in refusal_reason(
        "PAD", three, [3, 5]
    )
    assert "got [0, 0, 0, 0] of the shape [4]" in refusal_reason("PAD", [0, 0, 0, 0], [3, 5])
    assert "got [0, -1, 0, 0]" in refusal_reason("PAD", [[0, -1], [0, 0]], [2, 5])
    pads = [[0, 1], [0, 0]]
    assert "float32[], got int32[]" in refusal_reason("PADV2", pads, [4, 5], np.int32(1))
    assert "float32[1], got float32[2]" in refusal_reason("PADV2", pads, [4, 5], [1.0, 2.0])
    reflect, symmetric = {"mode": "REFLECT"}, {"mode": "SYMMETRIC"}
    pads = [[3, 0], [0, 0]]
    assert "at most 2 along an axis of 3 elements, got 3" in refusal_reason(
        "MIRROR_PAD", pads, [6, 5], **reflect
    )
    pads = [[4, 0], [0, 0]]
    assert "at most 3 along an axis of 3 elements, got 4" in refusal_reason(
        "MIRROR_PAD", pads, [7, 5], **symmetric
    )
    assert "must be REFLECT or SYMMETRIC, got 7" in refusal_reason(
        "MIRROR_PAD", [[0, 0], [0, 0]], [3, 5], mode=7
    )

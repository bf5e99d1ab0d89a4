"""TensorFlow's matrix products and Einsum. LiteRT has no kernels, so numpy is the reference."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tests.references import check_reference
from tests.references.flex import build_flex, random_numbers
from tests.support import Build
from tests.support.flex import flex_options
from tflite2onnx.convert import convert
from tflite2onnx.errors import ConversionError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.support.runtimes import Array


TYPES = ["float64", "float16", "int16", "int32", "int64"]
PRODUCTS: list[tuple[str, dict[str, Any], list[tuple[int, ...]]]] = [
    ("MatMul", {"transpose_a": True, "transpose_b": False}, [(5, 3), (5, 7)]),
    ("MatMul", {"transpose_b": True}, [(3, 5), (7, 5)]),
    ("BatchMatMul", {"adj_y": True}, [(2, 3, 5), (2, 7, 5)]),
    ("BatchMatMulV2", {"adj_x": True}, [(2, 1, 5, 3), (3, 5, 7)]),
    ("BatchMatMulV3", {}, [(3, 5), (5, 7)]),
]
SUMS: list[tuple[str, list[tuple[int, ...]]]] = [
    ("abc,cd->abd", [(2, 3, 5), (5, 7)]),
    ("bhqd,bhkd->bhqk", [(2, 3, 5, 7), (2, 3, 11, 7)]),
    ("ab->ba", [(3, 5)]),
    ("ab->", [(3, 5)]),
    ("a,b->ab", [(3,), (5,)]),
    ("aab->b", [(3, 3, 5)]),
    ("...ab,...cb->...ac", [(2, 3, 5), (2, 7, 5)]),
    ("...i->i...", [(2, 3, 5)]),
]


def multiply(a: Array, b: Array, turns: Mapping[str, Any]) -> Array:
    """Return a matrix product; attributes transpose its matrices."""
    one, other = (
        np.swapaxes(x, -1, -2) if any(turns.get(key) for key in keys) else x
        for x, keys in ((a, ("transpose_a", "adj_x")), (b, ("transpose_b", "adj_y")))
    )
    return np.asarray(np.matmul(one, other))


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(("name", "turns", "shapes"), PRODUCTS)
def test_matrix_products_equal_numpy(
    name: str, turns: dict[str, Any], shapes: list[tuple[int, ...]], dtype: str
) -> None:
    a, b = (random_numbers(dtype, *shape, seed=i) for i, shape in enumerate(shapes))
    want = multiply(a, b, turns)
    bound = {"float16": 2e-3, "float64": 1e-12}.get(dtype, 1e-5)
    check_reference(build_flex(name, [a, b], [want], **turns), [a, b], [want], tolerance=bound)


@pytest.mark.parametrize(
    ("shapes", "made", "reason"),
    [
        ([(3, 5), (3, 5)], (3, 5), "must have matching inner and batch sizes"),
        ([(2, 3, 5), (3, 5, 7)], (2, 3, 7), "must have matching inner and batch sizes"),
        ([(5,), (5, 7)], (7,), "must have 2 axes or more"),
    ],
)
def test_products_refuse_matrices_of_wrong_shapes(
    shapes: list[tuple[int, ...]], made: tuple[int, ...], reason: str
) -> None:
    inputs = [random_numbers("float64", *shape) for shape in shapes]
    with pytest.raises(ConversionError, match=reason):
        convert(build_flex("BatchMatMulV2", inputs, [np.zeros(made)]).bytes())


@pytest.mark.parametrize(("equation", "shapes"), SUMS)
def test_einsum_equals_numpy(equation: str, shapes: list[tuple[int, ...]]) -> None:
    inputs = [random_numbers("float32", *shape, seed=i) for i, shape in enumerate(shapes)]
    want = np.asarray(np.einsum(equation, *inputs))
    m = Build()
    operands = [m.input(shape) for shape in shapes]
    options = flex_options("Einsum", equation=equation)
    m.output(*m.custom("FlexEinsum", operands, [want.shape], options))
    check_reference(m, inputs, [want])


@pytest.mark.parametrize(
    ("equation", "reason"),
    [
        ("..a->a", "its equation must have one term per input"),
        ("ab,bc", "its equation must have one term per input"),
        ("", "its equation must have one term per input"),
        ("ab,bc->ac", "its equation must have one term per input"),
        ("aa->a", "axis a must have one size, got 3 and 5"),
        ("abc->a", "its equation must have one term per input"),
        ("ab->aba", "must not repeat a letter"),
        ("ab->c", "contradict"),
    ],
)
def test_einsum_refuses_unsupported_equations(equation: str, reason: str) -> None:
    m = Build()
    options = flex_options("Einsum", equation=equation)
    m.output(*m.custom("FlexEinsum", [m.input([3, 5])], [[3]], options))
    with pytest.raises(ConversionError, match=reason):
        convert(m.bytes())


def test_einsum_refuses_inputs_of_two_types() -> None:
    m = Build()
    x, y = m.input([3]), m.input([3], dtype="int64")
    m.output(*m.custom("FlexEinsum", [x, y], [[]], flex_options("Einsum", equation="a,a->")))
    with pytest.raises(ConversionError, match="must be float32, got int64"):
        convert(m.bytes())


@pytest.mark.parametrize("shape", [(2, 3, 5), (7,), ()])
def test_l2_loss_equals_numpy(shape: tuple[int, ...]) -> None:
    x = random_numbers("float32", *shape)
    want = np.asarray(np.square(x).sum() / 2, np.float32)
    check_reference(build_flex("L2Loss", [x], [want]), [x], [want])

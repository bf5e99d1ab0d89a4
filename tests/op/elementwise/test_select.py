"""SELECT and SELECT_V2."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tests.support import Build, check
from tests.support.facts import carrier
from tflite2onnx.convert import convert
from tflite2onnx.errors import ConversionError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.support import Tensor

SHAPE = (2, 3, 5, 7)
TYPES = [
    *("bool", "bfloat16", "float16", "float32", "float64"),
    *("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"),
]


def add_input(m: Build, shape: Sequence[int], dtype: str) -> Tensor:
    """Return an input; bfloat16, which NumPy lacks, is cast from float32."""
    if dtype != "bfloat16":
        return m.input(shape, dtype=dtype)
    return m.op("CAST", [m.input(shape)], [shape], dtype=dtype)[0]


def selection(
    code: str, shapes: Sequence[Sequence[int]], made: Sequence[int], dtype: str = "float32"
) -> bytes:
    """Return a model of SELECT or SELECT_V2 whose operands are inputs."""
    m = Build()
    condition = m.input(shapes[0], dtype="bool")
    (y,) = m.op(code, [condition, *(add_input(m, shape, dtype) for shape in shapes[1:])], [made])
    if dtype == "bfloat16":
        (y,) = m.op("CAST", [y], [made], dtype="float32")
    m.output(y)
    return m.bytes()


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("code", ["SELECT", "SELECT_V2"])
@pytest.mark.parametrize("opset", [13, None])
def test_select_of_every_type_equals_litert(code: str, dtype: str, opset: int | None) -> None:
    check(selection(code, [SHAPE] * 3, SHAPE, dtype), opset=opset, tolerance=0)


@pytest.mark.parametrize("condition", [(), (2,), SHAPE], ids=str)
@pytest.mark.parametrize("dtype", ["float32", "int16"])
def test_condition_of_rank_1_selects_rows(condition: tuple[int, ...], dtype: str) -> None:
    """A condition of rank 1 selects rows along the first axis."""
    check(selection("SELECT", [condition, SHAPE, SHAPE], SHAPE, dtype))


@pytest.mark.parametrize("size", [2, 7])
def test_condition_of_rank_1_belongs_to_the_first_axis(size: int) -> None:
    """A condition of rank 1 belongs to the first axis, even if the last axis has the same size."""
    check(selection("SELECT", [(size,), (size, size), (size, size)], (size, size)))


@pytest.mark.parametrize(
    "shapes",
    [
        ((), SHAPE, SHAPE),
        ((7,), SHAPE, ()),
        (SHAPE, (7,), (5, 1)),
        ((2, 1, 5, 1), (3, 1, 7), (1,)),
        ((3, 1, 1), (5, 7), (2, 1, 1, 1)),
    ],
    ids=str,
)
@pytest.mark.parametrize("dtype", ["float32", "bool"])
def test_select_v2_broadcasts(shapes: Sequence[Sequence[int]], dtype: str) -> None:
    check(selection("SELECT_V2", shapes, SHAPE, dtype))


@pytest.mark.parametrize("code", ["SELECT", "SELECT_V2"])
@pytest.mark.parametrize("made", [(), (1,), (1, 1)], ids=str)
@pytest.mark.parametrize(
    "shapes", [((), (1,), ()), ((1,), (), ()), ((1, 1), (1, 1), (1, 1))], ids=str
)
def test_operands_with_one_element_may_have_any_ranks(
    code: str, made: tuple[int, ...], shapes: Sequence[Sequence[int]]
) -> None:
    """Operands with one element may have any ranks; the output has its declared rank."""
    check(selection(code, shapes, made))


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16"])
@pytest.mark.parametrize("constant", [False, True])
def test_stored_integers_are_copied(dtype: str, *, constant: bool) -> None:
    """Stored integers are copied."""
    m = Build()
    kind: dict[str, Any] = {"dtype": dtype, "scale": 0.5, "zero_point": 0}
    known = np.random.default_rng(0).integers(0, 100, SHAPE).astype(dtype)
    x = m.constant(known, **kind) if constant else m.input(SHAPE, **kind)
    inputs = [m.input(SHAPE, dtype="bool"), x, m.input(SHAPE, **kind)]
    m.output(*m.op("SELECT_V2", inputs, [m.tensor(SHAPE, **kind)]))
    nodes = check(m.bytes()).model.graph.node
    assert {node.op_type for node in nodes} <= {"Where", "Cast"}


@pytest.mark.parametrize("dtype", [t for t in TYPES if t != "bfloat16"])
@pytest.mark.parametrize("code", ["SELECT", "SELECT_V2"])
def test_selection_between_constants_folds(code: str, dtype: str) -> None:
    """A selection between constants is folded."""
    m = Build()
    x = np.arange(6).reshape(2, 3).astype(carrier(dtype))
    y = x[::-1]
    condition = m.constant(np.array([True, False] if code == "SELECT" else [True, False, True]))
    m.output(*m.op(code, [condition, m.constant(x), m.constant(y)], [[2, 3]]))
    m.output(m.input([3]))
    nodes = check(m.bytes(), random_layouts=()).model.graph.node
    assert {node.op_type for node in nodes} == {"Identity"}


def test_refuses_unsupported_types_and_shapes_with_reasons() -> None:
    """Each refused type or shape has its message."""
    m = Build()
    c, x, y = m.input([3], dtype="bool"), m.input([2, 3]), m.input([2, 3], dtype="int32")
    tall = m.input([3, 2])

    def refusal_reason(code: str, *inputs: Tensor) -> str:
        m.output(*m.op(code, inputs, [[2, 3]]))
        with pytest.raises(ConversionError) as caught:
            convert(m.bytes())
        return str(caught.value)

    assert "tensor_2 must be float32, got int32" in refusal_reason("SELECT", c, x, y)
    assert "tensor_1 must be bool, got float32" in refusal_reason("SELECT_V2", x, x, x)
    assert "must broadcast to each other, got [3, 1] and [2, 3] and [2, 3]" in refusal_reason(
        "SELECT", c, x, x
    )
    assert "must broadcast to each other, got [3] and [2, 3] and [3, 2]" in refusal_reason(
        "SELECT_V2", c, x, tall
    )
    assert "it must have 3 inputs, got 2" in refusal_reason("SELECT", c, x)


def test_scale_may_be_missing_from_an_operand() -> None:
    """The kernel copies the stored integers, whether they have a scale or not."""
    m = Build()
    x = m.input([3], dtype="int8", scale=0.5, zero_point=0)
    inputs = [m.input([3], dtype="bool"), x, m.input([3], dtype="int8")]
    m.output(*m.op("SELECT", inputs, [m.tensor([3], dtype="int8", scale=0.5)]))
    check(m.bytes(), activations="uint8", steps=0)

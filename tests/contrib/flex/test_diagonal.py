"""Flex operators on diagonals. LiteRT has no kernels for them, so numpy is the reference.

The references visit the elements one by one, as in TensorFlow's documentation of
MatrixDiagPartV3 and related operators.
"""

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
    from tests.support.runtimes import Array

ALIGNED = ["LEFT_LEFT", "LEFT_RIGHT", "RIGHT_LEFT", "RIGHT_RIGHT"]
TYPES = [
    "float32",
    "float64",
    "float16",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "bool",
]


def extract_diagonals(x: Array, low: int, high: int, align: str, padding: float) -> Array:
    """Return the diagonals [..., high - low + 1, longest], the highest diagonal first."""
    rows, columns = x.shape[-2:]
    longest = min(rows + min(high, 0), columns - max(low, 0))
    made = np.full((*x.shape[:-2], high - low + 1, longest), padding, x.dtype)
    upper, lower = align.split("_")
    for k in range(low, high + 1):
        each = np.diagonal(x, k, -2, -1)
        length = each.shape[-1]
        behind = (upper if k >= 0 else lower) == "RIGHT"
        first = longest - length if behind else 0
        made[..., high - k, first : first + length] = each
    return made[..., 0, :] if low == high else made


def set_diagonals(x: Array, packed: Array, low: int, high: int, align: str) -> Array:
    """Return matrices with replaced diagonals."""
    made = x.copy()
    numbered = np.arange(x.shape[-2] * x.shape[-1]).reshape(x.shape[-2:])
    where = extract_diagonals(numbered, low, high, align, -1)
    for index in zip(*np.nonzero(where >= 0), strict=True):
        row, column = divmod(int(where[index]), x.shape[-1])
        made[..., row, column] = packed[(..., *index)]
    return made


RANGES = [(0, 0), (1, 1), (-2, -2), (-1, 1), (-2, 0), (0, 2)]


@pytest.mark.parametrize("shape", [(2, 5, 5), (5, 3), (2, 3, 7)])
@pytest.mark.parametrize(("low", "high"), RANGES)
@pytest.mark.parametrize("align", ALIGNED)
def test_diagonals_of_every_alignment_equal_numpy(
    shape: tuple[int, ...], low: int, high: int, align: str
) -> None:
    x = random_numbers("float32", *shape)
    k = np.array([low, high] if low < high else low, np.int32)
    want = extract_diagonals(x, low, high, align, 7)
    padding = np.array(7, np.float32)
    check_reference(
        build_flex("MatrixDiagPartV3", [x], [want], [k, padding], align=align), [x], [want]
    )
    packed = random_numbers("float32", *want.shape, seed=1)
    made = set_diagonals(x, packed, low, high, align)
    model = build_flex("MatrixSetDiagV3", [x, packed], [made], [k], align=align)
    check_reference(model, [x, packed], [made])
    made = set_diagonals(np.full_like(x, 7), packed, low, high, align)
    sides = [np.array(side, np.int32) for side in shape[-2:]]
    model = build_flex("MatrixDiagV3", [packed], [made], [k, *sides, padding], align=align)
    check_reference(model, [packed], [made])


@pytest.mark.parametrize("dtype", TYPES)
def test_diagonal_operators_of_every_type_equal_numpy(dtype: str) -> None:
    x, packed = random_numbers(dtype, 2, 3, 5), random_numbers(dtype, 2, 3, seed=1)
    want = extract_diagonals(x, 0, 0, "LEFT_LEFT", 0)
    check_reference(build_flex("MatrixDiagPart", [x], [want]), [x], [want])
    k, padding = np.array([-1, 1], np.int32), np.array(1, dtype)
    want = extract_diagonals(x, -1, 1, "LEFT_LEFT", 1)
    check_reference(build_flex("MatrixDiagPartV2", [x], [want], [k, padding]), [x], [want])
    want = set_diagonals(x, packed, 0, 0, "LEFT_LEFT")
    check_reference(build_flex("MatrixSetDiag", [x, packed], [want]), [x, packed], [want])
    want = set_diagonals(np.zeros((2, 3, 3), dtype), packed, 0, 0, "LEFT_LEFT")
    check_reference(build_flex("MatrixDiag", [packed], [want]), [packed], [want])
    want = np.where(np.tri(3, 5, 1, np.bool_) & ~np.tri(3, 5, -2, np.bool_), x, np.zeros_like(x))
    band = [np.array(1, np.int64)] * 2
    check_reference(build_flex("MatrixBandPart", [x], [want], band), [x], [want])
    want = np.diag(packed.reshape(-1)).reshape(2, 3, 2, 3)
    check_reference(build_flex("Diag", [packed], [want]), [packed], [want])
    check_reference(build_flex("DiagPart", [want], [packed]), [want], [packed])


@pytest.mark.parametrize(
    ("k", "sides", "made"),
    [
        ((0, 0), (-1, -1), (3, 3)),
        ((2, 2), (-1, -1), (5, 5)),
        ((-1, -1), (4, -1), (4, 3)),
        ((1, 1), (-1, 4), (3, 4)),
        ((-1, -1), (-1, 5), (4, 5)),
    ],
)
def test_missing_sides_follow_from_the_diagonals(
    k: Any, sides: tuple[int, int], made: tuple[int, int]
) -> None:
    x = random_numbers("int32", 2, 3)
    low, high = k
    want = set_diagonals(np.zeros((2, *made), np.int32), x, low, high, "RIGHT_LEFT")
    further = [np.array(each, np.int32) for each in (k[0], *sides, 0)]
    check_reference(build_flex("MatrixDiagV2", [x], [want], further), [x], [want])


@pytest.mark.parametrize("lower", [-1, 0, 1])
@pytest.mark.parametrize("upper", [-1, 0, 2])
def test_matrix_bands_equal_numpy(lower: int, upper: int) -> None:
    x = random_numbers("float32", 3, 5)
    right = np.arange(5) - np.arange(3)[:, None]
    kept = ((lower < 0) | (-right <= lower)) & ((upper < 0) | (right <= upper))
    band = [np.array(each, np.int32) for each in (lower, upper)]
    want = np.where(kept, x, np.float32(0))
    check_reference(build_flex("MatrixBandPart", [x], [want], band), [x], [want])


@pytest.mark.parametrize("name", ["MatrixDiagPart", "MatrixBandPart"])
def test_number_of_matrices_is_dynamic_if_their_sides_are_fixed(name: str) -> None:
    m = Build()
    bounds = [m.constant(np.int64(n)) for n in (0, -1)] if name == "MatrixBandPart" else []
    x = m.input([None, None, 4], name="x")
    m.output(*m.custom(f"Flex{name}", [x, *bounds], [m.tensor(None)], flex_options(name)))
    assert convert(m.bytes()).inputs[0].tflite_sizes == ("batch", 1, 4)


@pytest.mark.parametrize(
    ("name", "shapes", "made", "constants", "reason"),
    [
        (
            "MatrixDiagPart",
            [(5,)],
            (5,),
            [],
            r"must be int32\[..., rows, columns\], got int32\[5\]",
        ),
        ("MatrixDiagPartV2", [(3, 5)], (3,), [[5], [0]], "k must be"),
        ("MatrixDiagPartV2", [(3, 5)], (3,), [[1, 0], [0]], "k must be"),
        ("MatrixDiagPartV2", [(3, 5)], (3,), [[0, 1, 2], [0]], "k must be"),
        ("MatrixDiagV2", [(5,)], (2, 5), [[0], [2], [5], [0]], r"must be [a-z]+[0-9]+\["),
        ("MatrixDiagV2", [()], (5, 5), [[0], [2], [5], [0]], "axes, got 0"),
        ("MatrixSetDiag", [(3, 5), (5,)], (3, 5), [], r"must be [a-z]+[0-9]+\["),
        ("MatrixBandPart", [(3, 5)], (3, 5), [[1, 2], [0]], r"must be int32\[1\], got int32\[2\]"),
        ("MatrixDiag", [(2, 3)], (2, 3, 3), [0], "it must have 1 input, got 2"),
        ("MatrixDiagV3", [(2, 3)], (2, 3, 3), [0, 3, 3], "it must have 5 inputs, got 4"),
        ("Diag", [()], (), [], "at least 1 axis, got 0"),
        ("DiagPart", [(3, 5)], (3,), [], r"must be [a-z]+[0-9]+\["),
    ],
)
def test_diagonals_refuse_invalid_shapes_and_ranges(
    name: str, shapes: list[Any], made: Any, constants: list[Any], reason: str
) -> None:
    further = [np.array(each, np.int32) for each in constants]
    inputs = [np.zeros(shape, np.int32) for shape in shapes]
    with pytest.raises(ConversionError, match=reason):
        convert(build_flex(name, inputs, [np.zeros(made, np.int32)], further).bytes())

"""BITCAST."""

from __future__ import annotations

import numpy as np
import pytest

from tests.op.ports import add_input, check_outputs, folds
from tests.support import Build
from tflite2onnx.convert import convert
from tflite2onnx.errors import ConversionError

INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
FLOATS = ("float16", "float32", "float64")
RANGES = {name: (np.iinfo(name).min, np.iinfo(name).max) for name in INTEGERS}


def shape_of(shape: list[int], have: str, want: str) -> tuple[list[int], list[int]]:
    """Return the shapes of an input and an output with the same bytes."""
    wide, narrow = np.dtype(have).itemsize, np.dtype(want).itemsize
    if wide >= narrow:
        return shape, shape + ([wide // narrow] if wide > narrow else [])
    return [*shape, narrow // wide], shape


@pytest.mark.parametrize("shape", [[], [3, 5]], ids=str)
@pytest.mark.parametrize("want", INTEGERS)
@pytest.mark.parametrize("have", INTEGERS)
def test_bitcasts_between_integers_need_no_new_opset(
    have: str, want: str, shape: list[int]
) -> None:
    """BITCAST between integers needs only nodes of the default opset."""
    given, made = shape_of(shape, have, want)
    m = Build()
    (y,) = m.op("BITCAST", [add_input(m, given, have)], [made], dtype=want)
    assert check_outputs(m, y, ranges=RANGES).opset == 17


@pytest.mark.parametrize("real", FLOATS)
@pytest.mark.parametrize("other", [*FLOATS, "int8", "uint16", "int32", "uint64"])
@pytest.mark.parametrize("back", [False, True])
def test_bitcasts_of_floats_equal_litert(real: str, other: str, *, back: bool) -> None:
    have, want = (other, real) if back else (real, other)
    given, made = shape_of([3, 5], have, want)
    m = Build()
    (y,) = m.op("BITCAST", [add_input(m, given, have)], [made], dtype=want)
    check_outputs(m, y, ranges=RANGES, tolerance=0)


def test_bitcast_of_bfloat16_equals_litert() -> None:
    m = Build()
    check_outputs(m, *m.op("BITCAST", [add_input(m, [3, 5], "bfloat16")], [[3, 5]], dtype="int16"))


def test_bitcast_of_bool_equals_litert() -> None:
    m = Build()
    x = add_input(m, [3, 5], "bool")
    check_outputs(
        m, *(m.op("BITCAST", [x], [[3, 5]], dtype=dtype)[0] for dtype in ("int8", "uint8"))
    )


def test_bitcast_of_stored_integers_equals_litert() -> None:
    m = Build()
    x = m.input([3, 5], dtype="int8", scale=0.5, zero_point=3)
    (y,) = m.op("BITCAST", [x], [m.tensor([3, 5], dtype="uint8", scale=0.25, zero_point=9)])
    check_outputs(m, y)


def test_complex_numbers_are_their_parts() -> None:
    m = Build()
    (x,) = m.op("BITCAST", [m.input([3, 5, 2])], [[3, 5]], dtype="complex64")
    (y,) = m.op("COMPLEX_ABS", [x], [[3, 5]], dtype="float32")
    check_outputs(m, y)


def test_bitcast_of_constants_is_folded() -> None:
    m = Build()
    values = np.random.default_rng(0).integers(0, 256, (3, 4)).astype(np.uint8)
    x, made = m.constant(values), []
    for dtype in ("int8", "int32", "float32"):
        shape = [3, 4] if dtype == "int8" else [3]
        made += m.op("BITCAST", [x], [shape], dtype=dtype)
    made += m.op("BITCAST", [m.constant(np.array([1.5, -2], np.float32))], [[2, 2]], dtype="int16")
    folds(m, *made)


def test_bitcast_refuses_int4_and_wrong_shapes() -> None:
    for have, want, given, made in (
        ("int8", "int4", [3], [3]),
        ("int8", "int32", [3], []),
        ("int8", "int32", [], []),
    ):
        m = Build()
        m.output(*m.op("BITCAST", [m.input(given, dtype=have)], [made], dtype=want))
        with pytest.raises(
            ConversionError, match=r"float64, got int4|the last axis|must be [a-z]+[0-9]+\["
        ):
            convert(m.bytes())

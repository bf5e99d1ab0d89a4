"""Cumulative operators, Fourier transforms and text, with numpy as the reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.references import check_reference
from tests.references.flex import build_flex, random_numbers
from tests.support import Build, run_onnx
from tests.support.flex import flex_options
from tflite2onnx.convert import convert
from tflite2onnx.errors import ConversionError

BOUNDS = {"float16": 3e-3, "float64": 1e-12}
AXIS = np.array(1, np.int32)


def scan(x: Any, function: Any, nothing: float, *, exclusive: bool, reverse: bool) -> Any:
    """Return a cumulative operator, computed one element after another."""
    x = np.flip(x, 1) if reverse else x
    made, so_far = [], np.full_like(x[:, 0], nothing)
    for i in range(x.shape[1]):
        after = function(so_far, x[:, i])
        made.append(so_far if exclusive else after)
        so_far = after
    want = np.stack(made, 1)
    return np.ascontiguousarray(np.flip(want, 1) if reverse else want)


@pytest.mark.parametrize(
    "dtype",
    ["float32", "float64", "float16", "int8", "int16", "int32", "int64", "uint8", "uint32"],
)
@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize("reverse", [False, True])
def test_cumulative_products_equal_numpy(dtype: str, *, exclusive: bool, reverse: bool) -> None:
    x = random_numbers(dtype, 2, 7, 3, low=-3, high=4)
    how = {"exclusive": exclusive, "reverse": reverse}
    want = scan(x, np.multiply, 1, **how)
    model = build_flex("Cumprod", [x], [want], [AXIS], **how)
    check_reference(model, [x], [want], tolerance=BOUNDS.get(dtype, 1e-5))


@pytest.mark.parametrize("reverse", [False, True])
def test_products_are_exact_although_others_overflow(*, reverse: bool) -> None:
    """Results are exact even if products of other elements overflow float32."""
    rows = [[0, 1e30, 1e30, 1e20, 7], [1e30, 1e-30, 1e-30, 1e30, 5], [1e-30, 1e30, 1e30, 1e-20, 1]]
    x = np.array(rows, np.float32)
    x = np.ascontiguousarray(np.flip(x, 1)) if reverse else x
    want = scan(x, np.multiply, 1, exclusive=False, reverse=reverse)
    model = build_flex("Cumprod", [x], [want], [AXIS], exclusive=False, reverse=reverse)
    made = convert(model.bytes())
    (y,) = run_onnx(made.model, {made.inputs[0].name: x})
    np.testing.assert_allclose(y, want, 1e-6)


@pytest.mark.parametrize("name", ["Cumprod", "CumulativeLogsumexp"])
@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize("reverse", [False, True])
def test_scans_of_a_dynamic_axis_equal_numpy(name: str, *, exclusive: bool, reverse: bool) -> None:
    m, how = Build(), {"exclusive": exclusive, "reverse": reverse}
    options = flex_options(name, **how)
    x, y = m.input([None, None, 3], name="x"), m.tensor([None, None, 3])
    m.output(*m.custom(f"Flex{name}", [x, m.constant(AXIS)], [y], options))
    model = convert(m.bytes()).model
    function, nothing = (np.multiply, 1) if name == "Cumprod" else (np.logaddexp, -np.inf)
    for times in (1, 2, 7, 8, 33):
        given = random_numbers("float32", 2, times, 3)
        want = scan(given, function, nothing, **how)
        np.testing.assert_allclose(run_onnx(model, {"x": given})[0], want, 1e-5, 1e-5)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize("reverse", [False, True])
def test_cumulative_sums_of_exponentials_equal_numpy(
    dtype: str, *, exclusive: bool, reverse: bool
) -> None:
    x = random_numbers(dtype, 2, 7, 3, low=-100, high=100)
    x[0, 0] = x[0, 1] = -np.inf
    how = {"exclusive": exclusive, "reverse": reverse}
    want = scan(x, np.logaddexp, -np.inf, **how)
    model = build_flex("CumulativeLogsumexp", [x], [want], [AXIS], **how)
    check_reference(model, [x], [want], tolerance=BOUNDS.get(dtype, 1e-5))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("count", [1, 2, 7])
def test_lin_space_equals_numpy(dtype: str, count: int) -> None:
    low, high = -1.5, 2.25
    bounds = [np.array(each, dtype) for each in (low, high)]
    want = np.linspace(low, high, count).astype(dtype)
    model = build_flex("LinSpace", bounds, [want], [np.array(count, np.int32)])
    check_reference(model, bounds, [want], tolerance=BOUNDS.get(dtype, 1e-5))


def pairs(x: Any) -> Any:
    """Return complex numbers as pairs of real numbers on a new last axis."""
    return np.stack([x.real, x.imag], -1)


TRANSFORMS = [
    (prefix, axes, lengths)
    for prefix in ("", "I", "R", "IR")
    for axes in (1, 2, 3)
    for lengths in ([(5, 7, 9), (8, 6, 4)] if "R" in prefix else [(3, 5, 7)])
]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("prefix", "axes", "lengths"), TRANSFORMS)
@pytest.mark.parametrize("lead", [(2,), ()])
def test_fourier_transforms_equal_numpy(
    prefix: str, axes: int, lengths: tuple[int, ...], dtype: str, lead: tuple[int, ...]
) -> None:
    name, over = f"{prefix}FFT" + ("" if axes == 1 else f"{axes}D"), tuple(range(-axes, 0))
    shape = (*lead, *(3, 5, 7)[-axes:])
    x = random_numbers(dtype, *shape)
    if prefix != "R":
        x = x + 1j * random_numbers(dtype, *shape, seed=1)
    lengths = lengths[-axes:]
    functions: dict[str, Any] = {
        "": np.fft.fftn,
        "I": np.fft.ifftn,
        "R": np.fft.rfftn,
        "IR": np.fft.irfftn,
    }
    want = functions[prefix](x, lengths if "R" in prefix else None, over)
    kind = "complex64" if dtype == "float32" else "complex128"
    x, want = (each.astype(kind if np.iscomplexobj(each) else dtype) for each in (x, want))
    constants = [np.array(lengths, np.int32)] if "R" in prefix else []
    model = build_flex(name, [x], [want], constants)
    made = convert(model.bytes())
    (y,) = run_onnx(made.model, {made.inputs[0].name: pairs(x) if np.iscomplexobj(x) else x})
    want = pairs(want) if np.iscomplexobj(want) else want
    bound = 1e-5 if dtype == "float32" else 1e-12
    np.testing.assert_allclose(y, want, rtol=0, atol=bound * np.abs(want).max())


@pytest.mark.parametrize("name", ["AddV2", "Sub", "Mul", "Conj", "Complex", "Angle"])
def test_operators_on_complex_numbers_equal_numpy(name: str) -> None:
    a, b = random_numbers("float32", 2, 3), random_numbers("float32", 2, 3, seed=1)
    c = (a + 1j * b).astype(np.complex64)
    inputs: list[Any]
    inputs, want = {
        "AddV2": ([c, c[0]], c + c[0]),
        "Sub": ([c, c[0]], c - c[0]),
        "Mul": ([c, c], c * c),
        "Conj": ([c], c.conj()),
        "Complex": ([a, b], c),
        "Angle": ([c], np.angle(c)),
    }[name]
    made = convert(build_flex(name, inputs, [want]).bytes())
    feeds = {
        end.name: pairs(x) if np.iscomplexobj(x) else x
        for end, x in zip(made.inputs, inputs, strict=True)
    }
    (y,) = run_onnx(made.model, feeds)
    np.testing.assert_allclose(y, pairs(want) if np.iscomplexobj(want) else want, rtol=1e-5)


TEXT = np.array(["aab", "B", "", "x Y"], np.object_).reshape(2, 2)
JOINED = np.array(["aab-aab", "B-B", "-", "x Y-x Y"], np.object_).reshape(2, 2)
LOWER, UPPER = (
    np.array([getattr(each, case)() for each in TEXT.flat], np.object_).reshape(2, 2)
    for case in ("lower", "upper")
)
MATCHED = np.array([[True, False], [False, False]])


@pytest.mark.parametrize(
    ("name", "inputs", "want", "attributes"),
    [
        ("StringLower", [TEXT], LOWER, {"encoding": ""}),
        ("StringUpper", [TEXT], UPPER, {"encoding": ""}),
        ("StringJoin", [TEXT, TEXT], JOINED, {"separator": "-"}),
        ("StaticRegexFullMatch", [TEXT], MATCHED, {"pattern": "a+b?"}),
        (
            "StringToNumber",
            [np.array(["1", "-2.5", "3e2"], np.object_)],
            np.array([1, -2.5, 300], np.float32),
            {},
        ),
        ("AsString", [np.array([1, -25], np.int16)], np.array(["1", "-25"], np.object_), {}),
        ("Identity", [TEXT], TEXT, {}),
        ("Equal", [TEXT, LOWER], TEXT == LOWER, {}),
    ],
)
def test_text_operators_equal_expected_strings(
    name: str, inputs: list[Any], want: Any, attributes: dict[str, Any]
) -> None:
    made = convert(build_flex(name, inputs, [want], **attributes).bytes())
    feeds = {end.name: x for end, x in zip(made.inputs, inputs, strict=True)}
    (y,) = run_onnx(made.model, feeds)
    assert np.array_equal(y, want)


def test_constant_pattern_matches_whole_strings() -> None:
    m = Build()
    operands = [m.input(TEXT.shape, dtype="string"), m.constant(np.array([b"a+b?"], np.object_))]
    outputs = [m.tensor(TEXT.shape, dtype="bool")]
    options = flex_options("RegexFullMatch")
    m.output(*m.custom("FlexRegexFullMatch", operands, outputs, options))
    made = convert(m.bytes())
    (y,) = run_onnx(made.model, {made.inputs[0].name: TEXT})
    assert np.array_equal(y, MATCHED)


@pytest.mark.parametrize(
    ("name", "inputs", "made", "constants", "attributes", "reason"),
    [
        ("StringLower", [TEXT], TEXT, [], {"encoding": "utf-8"}, "its encoding must be empty"),
        ("StringJoin", [TEXT, TEXT[0]], TEXT, [], {}, "must have the same shape"),
        (
            "StringJoin",
            [TEXT, TEXT],
            TEXT,
            [],
            {"separator": b"\xff"},
            r"its separator must be UTF-8 text, got b'",
        ),
        (
            "StaticRegexFullMatch",
            [TEXT],
            MATCHED,
            [],
            {"pattern": b"\xff"},
            r"its pattern must be UTF-8 text, got b'",
        ),
        (
            "AsString",
            [np.zeros(2, np.int32)],
            TEXT[0],
            [],
            {"width": 3},
            "its width must not be positive",
        ),
        (
            "LinSpace",
            [np.float32(0), np.float32(1)],
            np.zeros(0, np.float32),
            [0],
            {},
            "must be at least 1, got 0",
        ),
        (
            "FFT2D",
            [np.zeros(3, np.complex64)],
            np.zeros(3, np.complex64),
            [],
            {},
            "must have 2 or more axes and pairs",
        ),
        (
            "RFFT",
            [np.zeros(4, np.float32)],
            np.zeros(3, np.complex64),
            [[0]],
            {},
            "its lengths must be",
        ),
        ("RegexFullMatch", [TEXT, TEXT[0, :1]], MATCHED, [], {}, "must be a constant string"),
    ],
)
def test_scans_and_transforms_refuse_invalid_shapes_and_options(
    name: str, inputs: Any, made: Any, constants: Any, attributes: Any, reason: str
) -> None:
    further = [np.array(each, np.int32) for each in constants]
    inputs = [np.asarray(each) for each in inputs]
    with pytest.raises(ConversionError, match=reason):
        convert(build_flex(name, inputs, [made], further, **attributes).bytes())


def test_batch_and_frames_of_transforms_stay_dynamic() -> None:
    """Batch and frames of a transform may be dynamic."""
    m = Build()
    x = m.input([1, 1, 9], shape_signature=[-1, -1, 9])
    made = [m.tensor([1, 1, 5], dtype="complex64", shape_signature=[-1, -1, 5])]
    operands = [x, m.constant(np.array([8], np.int32))]
    m.output(*m.custom("FlexRFFT", operands, made, flex_options("RFFT")))
    result = convert(m.bytes())
    given = random_numbers("float32", 2, 3, 9)
    (y,) = run_onnx(result.model, {result.inputs[0].name: given})
    np.testing.assert_allclose(y, pairs(np.fft.rfft(given, 8)), atol=1e-4)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    ("length", "node"),
    [(7, "MatMul"), (250, "MatMul"), (1021, "MatMul"), (1511, "DFT"), (1 << 15, "DFT")],
)
def test_length_decides_between_products_and_dft(length: int, node: str, dtype: str) -> None:
    """Two products for two factors, one product for a prime, DFT where matrices would be large.

    ONNX Runtime's DFT is inaccurate for a prime length.
    """
    m, half = Build(), length // 2 + 1
    x = m.input([2, length], dtype=dtype, shape_signature=[-1, length])
    kind = {"float32": "complex64", "float64": "complex128"}[dtype]
    made = [m.tensor([2, half], dtype=kind, shape_signature=[-1, half])]
    operands = [x, m.constant(np.array([length], np.int32))]
    m.output(*m.custom("FlexRFFT", operands, made, flex_options("RFFT")))
    result = convert(m.bytes())
    given = random_numbers(dtype, 3, length)
    (y,) = run_onnx(result.model, {result.inputs[0].name: given})
    want = pairs(np.fft.rfft(given.astype(np.float64)))
    tolerance = 1e-3 if length == 1511 else 1e-6 if dtype == "float32" else 1e-13
    np.testing.assert_allclose(y, want, rtol=0, atol=tolerance * np.abs(want).max())
    assert node in {each.op_type for each in result.model.graph.node}

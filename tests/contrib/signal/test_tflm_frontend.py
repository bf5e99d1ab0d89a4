"""The front end of TFLite Micro. LiteRT has no kernels for it: equal to tests.references."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tests.references import check_reference, signals
from tests.support import Build
from tflite2onnx.convert import convert
from tflite2onnx.errors import ConversionError

if TYPE_CHECKING:
    from tests.support.runtimes import Array

I16 = np.iinfo(np.int16)


def samples(*shape: int, low: int = I16.min, high: int = I16.max) -> Array:
    return np.random.default_rng(0).integers(low, high, shape, np.int16, endpoint=True)


def energies(size: int) -> Array:
    """Return 32-bit integers of every bit length, with the extremes."""
    generator = np.random.default_rng(0)
    made: Array = generator.integers(0, 1 << 32, size, np.uint64)
    made >>= (np.arange(size) % 33).astype(np.uint64)
    made[:6] = 0, 1, 2, 3, (1 << 32) - 1, 1 << 31
    return np.asarray(made, np.uint32)


def tables() -> list[Array]:
    """Return the tables of a filter bank; some of its bands are empty."""
    widths = np.array([4, 7, 0, 33, 11, 20], np.int16)
    starts = np.array([3, 7, 14, 14, 47, 58], np.int16)
    places = np.array([0, 4, 12, 12, 48, 60], np.int16)
    weights = [samples(80, low=0, high=4096), samples(80, low=0, high=4096)]
    return [*weights, starts, places, widths]


def squares() -> Array:
    """Return 64-bit integers, with squares and their neighbours."""
    generator = np.random.default_rng(0)
    x = generator.integers(0, 1 << 60, 400, np.uint64) >> np.uint64(np.arange(400) % 60)
    roots = generator.integers(0, 1 << 30, 60, np.uint64)
    edges = np.array([0, 1, 2, 3, 4, 6, 7, (1 << 32) - 1, 1 << 32, 65535 * 65536], np.uint64)
    return np.concatenate([x, edges, roots**2, roots**2 - 1, roots * (roots + 1), roots**2 + roots])


def check_operator(
    code: str, operands: list[Any], want: list[Array], options: dict[str, Any]
) -> None:
    """Compare an operator on inputs (arrays) and constants (tuples) with expected outputs."""
    m = Build()
    inputs = [x for x in operands if not isinstance(x, tuple)]
    tensors = [
        m.constant(x[0]) if isinstance(x, tuple) else m.input(x.shape, dtype=x.dtype.name)
        for x in operands
    ]
    outputs = [m.tensor(each.shape, dtype=each.dtype.name) for each in want]
    m.output(*m.custom(code, tensors, outputs, options))
    check_reference(m, inputs, want, tolerance=0)


@pytest.mark.parametrize("shift", [0, 1, 12, 15, 31])
@pytest.mark.parametrize("shape", [(480,), (3, 7)])
def test_window_equals_reference_for_every_shift(shape: tuple[int, ...], shift: int) -> None:
    x, weights = samples(*shape), samples(shape[-1], low=0)
    want = [signals.window(x, weights, shift)]
    check_operator("SignalWindow", [x, (weights,)], want, {"shift": shift})


@pytest.mark.parametrize("largest", [0, 1, 2, 255, 256, 16383, 16384, 32767])
@pytest.mark.parametrize("sign", [1, -1])
def test_auto_scale_equals_reference_at_powers_of_2(sign: int, largest: int) -> None:
    x = samples(37, low=-largest, high=largest)
    x[5] = sign * largest
    scaled, bits = signals.auto_scale(x)
    check_operator("SignalFftAutoScale", [x], [scaled, np.array([bits], np.int32)], {})
    check_operator("SignalFftAutoScale", [x], [scaled, np.array(bits, np.int32)], {})


@pytest.mark.parametrize(("start", "end"), [(0, 257), (4, 129), (7, 7)])
def test_energy_of_every_range_equals_reference(start: int, end: int) -> None:
    x = samples(514)
    want = [signals.energy(x, start, end)]
    check_operator("SignalEnergy", [x], want, {"start_index": start, "end_index": end})


def test_filter_bank_with_empty_bands_equals_reference() -> None:
    x, bands = energies(257), 5
    want = [signals.filter_bank(x, bands, tables())]
    check_operator(
        "SignalFilterBank", [x, *((t,) for t in tables())], want, {"num_channels": bands}
    )


@pytest.mark.parametrize("bits", [0, 1, 7, 31])
def test_square_roots_of_64_bits_equal_reference(bits: int) -> None:
    x = squares()
    want = np.array([signals.square_root(int(n)) >> bits for n in x], np.uint32)
    operands = [x, np.array(bits, np.int32)]
    check_operator("SignalFilterBankSquareRoot", operands, [want], {})


@pytest.mark.parametrize(("correction", "scale"), [(3, 1600), (0, 65536), (31, 1), (5, 1 << 20)])
def test_logarithms_of_every_bit_length_equal_reference(correction: int, scale: int) -> None:
    x = energies(500)
    want = np.array([signals.logarithm(int(n), correction, scale) for n in x], np.int16)
    options = {"input_correction_bits": correction, "output_scale": scale}
    check_operator("SignalFilterBankLog", [x], [want], options)


@pytest.mark.parametrize("shift", [0, 6, 20])
def test_pcan_of_every_shift_equals_reference(shift: int) -> None:
    x, noise = energies(500), energies(500)[::-1].copy()
    table = samples(125, low=0, high=2000)
    want = [signals.pcan(int(n), int(m), table, shift) for n, m in zip(x, noise, strict=True)]
    made = np.array(want, np.uint32)
    check_operator("SignalPCAN", [x, noise, (table,)], [made], {"snr_shift": shift})


def refusal(
    code: str,
    operands: list[tuple[list[int], str]],
    made: str,
    options: dict[str, Any],
    size: int = 8,
) -> str:
    m = Build()
    tensors = [m.input(shape, dtype=dtype) for shape, dtype in operands]
    m.output(*m.custom(code, tensors, [m.tensor([size], dtype=made)], options))
    with pytest.raises(ConversionError) as error:
        convert(m.bytes())
    return str(error.value)


def test_refuses_unsupported_shapes_shifts_and_ranges() -> None:
    x, wide = ([8], "int16"), ([8], "uint32")
    assert "its shift must be from 0 to 31, got 32" in refusal(
        "SignalWindow", [x, x], "int16", {"shift": 32}
    )
    assert "must be int16[8], got int16[7]" in refusal(
        "SignalWindow", [x, ([7], "int16")], "int16", {}
    )
    assert "it must have 2 outputs, got 1" in refusal("SignalFftAutoScale", [x], "int16", {})
    assert "must have elements, got [0]" in refusal(
        "SignalEnergy", [([0], "int16")], "uint32", {}, 0
    )
    assert "8 numbers, 3 and 2" in refusal(
        "SignalEnergy", [x], "uint32", {"start_index": 3, "end_index": 2}
    )
    assert "must be constant" in refusal(
        "SignalFilterBank", [wide, *[x] * 5], "uint64", {"num_channels": 2}
    )
    assert "or more gains, got 8" in refusal("SignalPCAN", [wide, wide, x], "uint32", {})
    options = {"input_correction_bits": -1}
    assert "input_correction_bits must be from 0 to 31, got -1" in refusal(
        "SignalFilterBankLog", [wide], "int16", options
    )


@pytest.mark.parametrize(
    ("widths", "weights", "channels", "reason"),
    [
        ([4, 5], 1, 1, "within 8 frequencies, got 5 from 4"),
        ([4, -1], 1, 1, "got -1 from"),
        ([4, 4], -1, 1, "must not be negative"),
        ([4, 4], 1, 2, "3 or more elements, got 2"),
        ([4, 4], 1, 0, "its num_channels must be from 1 to 8, got 0"),
    ],
)
def test_filter_bank_refuses_invalid_tables(
    widths: list[int], weights: int, channels: int, reason: str
) -> None:
    m = Build()
    tables = [[weights] * 9, [weights] * 9, [0, 4], [0, 4], widths]
    given = (m.constant(np.array(table, np.int16)) for table in tables)
    operands = [m.input([8], dtype="uint32"), *given]
    outputs = [m.tensor([1], dtype="uint64")]
    m.output(*m.custom("SignalFilterBank", operands, outputs, {"num_channels": channels}))
    with pytest.raises(ConversionError, match=reason):
        convert(m.bytes())

"""IRFFT2D. LiteRT's interpreter has no kernel for it, so numpy is the reference."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from tests.references import check_reference, draw_numbers
from tests.support import Build
from tests.support.flex import flex_options
from tflite2onnx.convert import convert
from tflite2onnx.errors import ConversionError

if TYPE_CHECKING:
    from tests.support.runtimes import Array


Pair = tuple[int, int]
# Leading axes, the size of the image, and the lengths to which its spectrum is cropped.
SIZES: list[tuple[tuple[int, ...], Pair, Pair]] = [
    ((), (4, 8), (4, 8)),
    ((3,), (8, 4), (8, 4)),
    ((2, 3), (2, 2), (2, 2)),
    ((), (1, 1), (1, 1)),
    ((2,), (16, 8), (8, 4)),
]


def inverse(spectrum: Array, lengths: Array) -> Array:
    """Return the output as in LiteRT's kernels/irfft2d.cc; a cropped spectrum need not be valid."""
    kept = spectrum[..., : lengths[0], : lengths[1] // 2 + 1]
    made: Array = np.fft.irfft(np.fft.ifft(kept, axis=-2), lengths[1]).astype(np.float32)
    return made


@pytest.mark.parametrize("code", ["IRFFT2D", "Irfft2d", "FlexIRFFT2D"])
@pytest.mark.parametrize(("lead", "size", "lengths"), SIZES)
def test_inverse_transform_equals_numpy(
    lead: tuple[int, ...], size: Pair, lengths: Pair, code: str
) -> None:
    spectrum = np.fft.rfft2(draw_numbers(*lead, *size)).astype(np.complex64)
    want = inverse(spectrum, np.array(lengths))
    if size == lengths:
        np.testing.assert_allclose(want, np.fft.irfft2(spectrum, lengths), atol=1e-6)
    m = Build()
    operands = [m.input(spectrum.shape, dtype="complex64"), m.constant(np.array(lengths, np.int32))]
    outputs = [m.tensor([*lead, *lengths])]
    options = flex_options("IRFFT2D") if code.startswith("Flex") else b""
    m.output(*m.custom(code, operands, outputs, options))
    pairs = np.stack([spectrum.real, spectrum.imag], -1)
    check_reference(m, [pairs], [want])


def test_inverse_transform_restores_the_padded_input() -> None:
    """IRFFT2D inverts RFFT2D, which pads with 0."""
    m = Build()
    lengths = m.constant(np.array([8, 16], np.int32))
    (spectrum,) = m.op("RFFT2D", [m.input([5, 11]), lengths], [m.tensor([8, 9], dtype="complex64")])
    m.output(*m.custom("IRFFT2D", [spectrum, lengths], [m.tensor([8, 16])]))
    x = draw_numbers(5, 11)
    check_reference(m, [x], [np.pad(x, [(0, 3), (0, 5)])])


def test_refuses_lengths_other_than_powers_of_2() -> None:
    m = Build()
    x, lengths = m.input([4, 3], dtype="complex64"), m.constant(np.array([4, 6], np.int32))
    m.output(*m.custom("IRFFT2D", [x, lengths], [m.tensor([4, 6])]))
    with pytest.raises(ConversionError, match="must be two powers of 2"):
        convert(m.bytes())

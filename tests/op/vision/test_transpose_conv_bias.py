"""Convolution2DTransposeBias. LiteRT's interpreter has no kernel: equal to tests.references."""

from __future__ import annotations

import struct

import pytest

from tests.references import check_reference, draw_numbers, images
from tests.support import Build
from tflite2onnx.convert import convert
from tflite2onnx.errors import ConversionError

Pair = tuple[int, int]
PADDINGS = {"SAME": 1, "VALID": 2}
# kernel, strides
WINDOWS: list[tuple[Pair, Pair]] = [
    ((2, 2), (2, 2)),
    ((3, 3), (2, 2)),
    ((4, 3), (2, 3)),
    ((3, 2), (1, 1)),
    ((1, 2), (3, 2)),
]
IMAGES: list[Pair] = [(5, 7), (6, 4), (1, 1)]


def options(padding: int, strides: Pair) -> bytes:
    """Return a TfLiteTransposeConvParams as bytes."""
    return struct.pack("<3i", padding, strides[1], strides[0])


@pytest.mark.parametrize("padding", PADDINGS)
@pytest.mark.parametrize(("kernel", "strides"), WINDOWS)
@pytest.mark.parametrize("image", IMAGES)
def test_all_sizes_and_windows_equal_reference(
    image: Pair, kernel: Pair, strides: Pair, padding: str
) -> None:
    x, w, b = (
        draw_numbers(2, *image, 3),
        draw_numbers(5, *kernel, 3, seed=1),
        draw_numbers(5, seed=2),
    )
    want = images.transpose_conv(x, w, b, strides, same=padding == "SAME")
    m = Build()
    operands = [m.input(x.shape), m.constant(w), m.constant(b)]
    given = options(PADDINGS[padding], strides)
    m.output(*m.custom("Convolution2DTransposeBias", operands, [[]], given))
    check_reference(m, [x], [want])


def refusal(given: bytes, *, channels: int = 3, biases: int = 5) -> str:
    m = Build()
    operands = [m.input([1, 5, 7, 3]), m.constant(draw_numbers(5, 2, 2, channels))]
    operands.append(m.constant(draw_numbers(biases)))
    m.output(*m.custom("Convolution2DTransposeBias", operands, [[]], given))
    with pytest.raises(ConversionError) as error:
        convert(m.bytes())
    return str(error.value)


def test_refuses_invalid_options_and_shapes() -> None:
    assert "got [1, 0] and" in refusal(options(1, (1, 0)))
    assert "and UNKNOWN" in refusal(options(0, (1, 1)))
    assert "padding must be below 3, got 9" in refusal(options(9, (1, 1)))
    assert "bytes or more, got 0" in refusal(b"")
    assert "the 3 channels of its input" in refusal(options(1, (1, 1)), channels=1)
    assert "4 biases for 5 filters" in refusal(options(1, (1, 1)), biases=4)

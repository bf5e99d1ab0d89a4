"""AvgPool3D and MaxPool3D. LiteRT's interpreter has no kernels, so numpy is the reference."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tests.references import check_reference, check_reference_runs, draw_numbers
from tests.support import Build
from tflite2onnx.convert import convert
from tflite2onnx.errors import ConversionError

if TYPE_CHECKING:
    from tests.support.runtimes import Array

Shape = tuple[int, ...]
WINDOWS: list[tuple[Shape, Shape]] = [
    ((2, 2, 2), (2, 2, 2)),
    ((3, 2, 1), (1, 2, 3)),
    ((1, 1, 1), (2, 1, 1)),
    ((2, 3, 4), (1, 1, 1)),
]


def options(kernel: Shape, strides: Shape, padding: str, data_format: str = "NDHWC") -> Any:
    return {
        "ksize": [1, *kernel, 1],
        "strides": [1, *strides, 1],
        "padding": padding,
        "data_format": data_format,
    }


def counts(volume: Shape, window: tuple[Shape, Shape], padding: str) -> list[int]:
    """Return the number of windows along each axis of a volume."""
    return [
        -(-n // stride) if padding == "SAME" else (n - k) // stride + 1
        for n, k, stride in zip(volume, *window, strict=True)
    ]


def pool_reference(x: Array, window: tuple[Shape, Shape], padding: str, *, average: bool) -> Array:
    """Return the output as LiteRT's kernels/pooling3d.cc; halves are rounded away from 0."""
    kernel, strides = window
    volume = x.shape[1:4]
    size = counts(volume, window, padding)
    before = [
        max((count - 1) * stride + k - n, 0) // 2
        for count, n, k, stride in zip(size, volume, kernel, strides, strict=True)
    ]
    y = np.zeros((x.shape[0], *size, x.shape[4]))
    for place in np.ndindex(*size):
        spans = [
            slice(max(i * s - b, 0), i * s - b + k)
            for i, s, b, k in zip(place, strides, before, kernel, strict=True)
        ]
        part = x[:, spans[0], spans[1], spans[2]].astype(np.float64)
        y[:, place[0], place[1], place[2]] = (
            part.mean((1, 2, 3)) if average else part.max((1, 2, 3))
        )
    near = y if x.dtype.kind == "f" else np.sign(y) * np.floor(np.abs(y) + 0.5)
    made: Array = near.astype(x.dtype)
    return made


@pytest.mark.parametrize("code", ["AvgPool3D", "MaxPool3D"])
@pytest.mark.parametrize("padding", ["SAME", "VALID"])
@pytest.mark.parametrize(("kernel", "strides"), WINDOWS)
@pytest.mark.parametrize("dtype", ["float32", "int8", "int16"])
def test_pooling_of_all_windows_equals_numpy(
    dtype: str, kernel: Shape, strides: Shape, padding: str, code: str
) -> None:
    shape, average = (2, 5, 7, 4, 3), code == "AvgPool3D"
    generator = np.random.default_rng(0)
    x: Array = generator.integers(-90, 90, shape).astype(dtype)
    want = pool_reference(x, (kernel, strides), padding, average=average)
    m = Build()
    scale: dict[str, Any] = {} if dtype == "float32" else {"scale": 0.5, "zero_point": 0}
    outputs = [m.tensor(want.shape, dtype=dtype, **scale)]
    operands = [m.input(shape, dtype=dtype, **scale)]
    m.output(*m.custom(code, operands, outputs, options(kernel, strides, padding)))
    check_reference(m, [x], [want])


def refusal(words: Any, dtype: str = "float32", shape: tuple[int, ...] = (1, 4, 4, 4, 2)) -> str:
    m = Build()
    scale: dict[str, Any] = {} if dtype == "float32" else {"scale": 0.5}
    m.output(*m.custom("MaxPool3D", [m.input(shape, dtype=dtype, **scale)], [[]], words))
    with pytest.raises(ConversionError) as error:
        convert(m.bytes())
    return str(error.value)


def test_refuses_unsupported_formats_types_and_windows() -> None:
    two, good = (2, 2, 2), options((2, 2, 2), (2, 2, 2), "SAME")
    assert "NCDHW" in refusal(options(two, two, "SAME", "NCDHW"))
    assert "must not be uint8" in refusal(good, "uint8")
    assert "SAME or VALID, got OTHER" in refusal(options(two, two, "OTHER"))
    assert "strides (0, 2, 2)" in refusal(options(two, (0, 2, 2), "SAME"))
    assert "got (1, 2, 2, 1)" in refusal(options((2, 2), two, "SAME"))
    assert "axes NDHWC" in refusal(good, shape=(4, 4, 4, 2))


@pytest.mark.parametrize("code", ["AvgPool3D", "MaxPool3D"])
@pytest.mark.parametrize("padding", ["SAME", "VALID"])
@pytest.mark.parametrize(("kernel", "strides"), WINDOWS)
def test_volumes_of_any_size_equal_reference(
    code: str, padding: str, kernel: Shape, strides: Shape
) -> None:
    """The file declares 1 for the sizes."""
    m, window = Build(), (kernel, strides)
    x, made = m.input([None] * 4 + [3]), m.tensor([None] * 4 + [3])
    m.output(*m.custom(code, [x], [made], options(kernel, strides, padding)))
    volumes = [draw_numbers(*sizes, 3) for sizes in ((1, 5, 4, 6), (2, 7, 3, 5))]
    average = code == "AvgPool3D"
    runs = [([v], [pool_reference(v, window, padding, average=average)]) for v in volumes]
    result = check_reference_runs(m, runs)
    assert sorted(result.inputs[0].symbols) == [0, 1, 2, 3]

"""Sampling of images at computed places. LiteRT's interpreter has no kernels: tests.references."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tests.references import check_reference, draw_numbers, images
from tests.support import Build, run_onnx
from tests.support.small import convolve
from tflite2onnx.convert import convert
from tflite2onnx.errors import ConversionError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.support import Tensor
    from tests.support.runtimes import Array

SIZES = [(2, 11, 7, 3), (1, 2, 2, 1), (1, 3, 13, 5)]
THIN = [(1, 1, 5, 2), (1, 5, 1, 2), (2, 1, 1, 3)]


@pytest.mark.parametrize("shape", [*SIZES, *THIN])
@pytest.mark.parametrize("size", [None, (4, 9)])
def test_resampler_equals_reference_beyond_borders(
    shape: tuple[int, ...], size: tuple[int, int] | None
) -> None:
    """Places inside, outside, and within a pixel of the border, where the image fades to 0."""
    x, places = (
        draw_numbers(*shape),
        draw_numbers(
            shape[0], *(size or shape[1:3]), 2, seed=1, low=-1.5, high=max(shape[1:3]) + 0.5
        ),
    )
    places.reshape(-1)[::5] = np.round(places.reshape(-1)[::5])
    m = Build()
    m.output(*m.custom("Resampler", [m.input(shape), m.input(places.shape)], [[]]))
    check_reference(m, [x, places], [images.resampler(x, places)])


@pytest.mark.parametrize("shape", SIZES)
def test_dense_image_warp_equals_reference(shape: tuple[int, ...]) -> None:
    x, flow = draw_numbers(*shape), draw_numbers(*shape[:3], 2, seed=1, low=-5, high=5)
    flow.reshape(-1)[::5] = np.round(flow.reshape(-1)[::5])
    m = Build()
    m.output(*m.custom("DenseImageWarp", [m.input(shape), m.input(flow.shape)], [[]]))
    check_reference(m, [x, flow], [images.dense_image_warp(x, flow)])


MATRICES: dict[str, list[float]] = {
    "identity": [1, 0, 0, 0, 0, 1, 0, 0],
    "turned": [0.8, -0.6, 0, 3, 0.6, 0.8, 0, -2],
    "larger": [0.37, 0, 0, 0.25, 0, 0.41, 0, 0.5],
    "beyond": [1, 0, 0, 100, 0, 1, 0, 100],
    "depth is not looked at": [1, 0, 9, 0.5, 0, 1, 9, 0.5],
}


def add_transformation(
    m: Build, code: str, operands: Sequence[Tensor], size: tuple[int, int], version: int
) -> list[Tensor]:
    """Add a transformation, whose options depend on the version; return its output."""
    options: dict[str, Any] = {"mode": "bilinear", "output_size": list(size)}
    if version > 1:
        options = dict(zip(("output_height", "output_width"), size, strict=True))
    made = [1, *size, operands[0].shape[3]]
    return m.custom(code, operands, [made], options, op_version=version)


def matrix_of(name: str) -> Array:
    return np.array([*MATRICES[name], 0, 0, 1, 0, 0, 0, 0, 1], np.float32).reshape(1, 4, 4)


@pytest.mark.parametrize("name", MATRICES)
@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("size", [(5, 9), (12, 8)])
def test_transform_tensor_equals_reference(size: tuple[int, int], version: int, name: str) -> None:
    code = "TransformTensor" if version == 1 else "TransformTensorBilinear"
    x, matrix = draw_numbers(1, 11, 7, 3), matrix_of(name)
    m = Build()
    operands = [m.input(x.shape), m.input(matrix.shape)]
    m.output(*add_transformation(m, code, operands, size, version))
    check_reference(m, [x, matrix], [images.transform_tensor(x, matrix, size, version=version)])


def test_transformation_between_convolutions_needs_no_transpose() -> None:
    m = Build()
    x = convolve(m, m.input([1, 8, 6, 3]), 4, "first")
    (x,) = m.custom("TransformTensorBilinear", [x, m.input([4, 4])], [[1, 5, 7, 4]], op_version=2)
    m.output(convolve(m, x, 3, "second"))
    assert convert(m.bytes()).transposes == 0


def refusal(code: str, shapes: list[list[int]], made: list[int], **options: Any) -> str:
    m = Build()
    m.output(*m.custom(code, [m.input(shape) for shape in shapes], [made], options))
    with pytest.raises(ConversionError) as error:
        convert(m.bytes())
    return str(error.value)


def test_refuses_unsupported_shapes_and_modes() -> None:
    image, matrix = [1, 5, 7, 3], [4, 4]
    assert "[1, 5, 7, 2], got" in refusal("Resampler", [image, [1, 5, 7, 3]], image)
    assert "[1, 5, 7, 2], got" in refusal("Resampler", [image, [2, 5, 7, 2]], image)
    assert "rows, columns, channels], got" in refusal("Resampler", [[5, 7, 3], [5, 7, 2]], image)
    thin = [1, 1, 7, 3]
    assert "2 columns, got (1, 7)" in refusal("DenseImageWarp", [thin, [1, 1, 7, 2]], thin)
    words = "16 elements, got [2, 5, 7, 3], [1, 5, 7, 3] and [4, 4]"
    assert words in refusal("TransformTensor", [[2, 5, 7, 3], matrix], image)
    assert "[3, 3]" in refusal("TransformTensor", [image, [3, 3]], image)
    assert "its mode must be bilinear" in refusal(
        "TransformTensor", [image, matrix], image, mode="nearest"
    )


@pytest.mark.parametrize("opset", [19, 20, 26])
def test_mode_of_grid_sample_depends_on_the_opset(opset: int) -> None:
    """GridSample's mode "bilinear" is called "linear" from opset 20 on."""
    m = Build()
    m.output(*m.custom("DenseImageWarp", [m.input((1, 3, 4, 2)), m.input((1, 3, 4, 2))], [[]]))
    model = convert(m.bytes(), opset=opset, io_layout="onnx").model
    (node,) = [node for node in model.graph.node if node.op_type == "GridSample"]
    (mode,) = [a.s for a in node.attribute if a.name == "mode"]
    assert mode == (b"bilinear" if opset < 20 else b"linear")
    shapes = ((1, 2, 3, 4), (1, 3, 4, 2))
    feeds = zip((each.name for each in model.graph.input), shapes, strict=True)
    run_onnx(model, {name: np.zeros(shape, np.float32) for name, shape in feeds})

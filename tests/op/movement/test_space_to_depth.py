"""DEPTH_TO_SPACE and SPACE_TO_DEPTH."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tests.support import Build, check, run_onnx
from tflite2onnx.convert import convert
from tflite2onnx.errors import ConversionError

if TYPE_CHECKING:
    from collections.abc import Sequence

TYPES = ("float32", "int32", "uint8", "int64", "int8")


def blocks(code: str, image: Sequence[int], made: Sequence[int], size: int, **fields: Any) -> bytes:
    m = Build()
    m.output(*m.op(code, [m.input(image, **fields)], [made], block_size=size))
    return m.bytes()


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_blocks_of_every_size_and_type_equal_litert(size: int, dtype: str) -> None:
    """SPACE_TO_DEPTH and DEPTH_TO_SPACE for every type, also with blocks of one pixel."""
    pixels, channels = [2, 3 * size, 7 * size, 5], [2, 3, 7, 5 * size * size]
    check(blocks("DEPTH_TO_SPACE", channels, pixels, size, dtype=dtype))
    check(blocks("SPACE_TO_DEPTH", pixels, channels, size, dtype=dtype))


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("code", ["DEPTH_TO_SPACE", "SPACE_TO_DEPTH"])
def test_blocks_of_images_of_any_size_equal_litert(code: str, size: int, dtype: str) -> None:
    """The image of a super-resolution network has the height and width of a run."""
    deeper = code == "SPACE_TO_DEPTH"
    step, depth = (size, 5) if deeper else (1, 5 * size * size)
    made = 5 * size * size if deeper else 5
    for fixed in (None, 4):  # the width
        m = Build()
        x = m.input([None, None, fixed and fixed * step, depth], dtype=dtype)
        y = m.tensor([None, None, fixed and fixed * step * size // step**2, made], dtype=dtype)
        m.output(*m.op(code, [x], [y], block_size=size))
        for batch, height, width in ((1, 3, 4), (2, 5, fixed or 2)):
            shape = batch, height * step, width * step, depth
            image = np.random.default_rng(0).integers(0, 99, shape)
            check(m.bytes(), inputs=[image.astype(dtype)])


@pytest.mark.parametrize(("channels", "forms"), [(6, "fastest"), (8, "canonical"), (8, "fastest")])
def test_depth_to_space_of_many_channels_moves_pixel_rows(channels: int, forms: str) -> None:
    """Rows of pixels move with the channels last if there are many."""
    shapes = [2, 3, 7, 9 * channels], [2, 9, 21, channels]
    result: Any = check(blocks("DEPTH_TO_SPACE", *shapes, 3), forms=forms)
    nodes = {node.op_type for node in result.model.graph.node}
    assert ("DepthToSpace" in nodes) == (channels < 8 or forms == "canonical")


@pytest.mark.parametrize("opset", [13, 18, 22])
def test_every_opset_equals_litert(opset: int) -> None:
    for dtype in ("float32", "int32"):
        check(blocks("DEPTH_TO_SPACE", [2, 3, 5, 8], [2, 6, 10, 2], 2, dtype=dtype), opset=opset)
        check(blocks("SPACE_TO_DEPTH", [2, 6, 10, 2], [2, 3, 5, 8], 2, dtype=dtype), opset=opset)


@pytest.mark.parametrize("code", ["DEPTH_TO_SPACE", "SPACE_TO_DEPTH"])
def test_blocks_of_constants_need_no_node(code: str) -> None:
    shapes = [2, 3, 7, 20], [2, 6, 14, 5]
    image, made = shapes if code == "DEPTH_TO_SPACE" else shapes[::-1]
    m = Build()
    constant = m.constant(np.arange(840, dtype=np.float32).reshape(image))
    (moved,) = m.op(code, [constant], [made], block_size=2)
    m.output(*m.op("ADD", [m.input(made), moved], [made]))
    assert [node.op_type for node in check(m.bytes()).model.graph.node] == ["Add"]


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("code", ["DEPTH_TO_SPACE", "SPACE_TO_DEPTH"])
def test_blocks_of_stored_integers_equal_litert(code: str, dtype: str) -> None:
    """Stored integers are moved without rescaling."""
    shapes = [2, 3, 7, 20], [2, 6, 14, 5]
    image, made = shapes if code == "DEPTH_TO_SPACE" else shapes[::-1]
    check(blocks(code, image, made, 2, dtype=dtype, scale=0.5, zero_point=3))


@pytest.mark.parametrize("code", ["DEPTH_TO_SPACE", "SPACE_TO_DEPTH"])
def test_other_runtimes_transpose_blocks_of_integers(code: str) -> None:
    shapes = [2, 3, 7, 20], [2, 6, 14, 5]
    image, made = shapes if code == "DEPTH_TO_SPACE" else shapes[::-1]
    check(blocks(code, image, made, 2, dtype="int32"), target="tensorrt")


@pytest.mark.parametrize("code", ["DEPTH_TO_SPACE", "SPACE_TO_DEPTH"])
@pytest.mark.parametrize("dtype", ["int4", "uint4"])
def test_blocks_of_four_bits_move_as_bytes(dtype: str, code: str) -> None:
    """ONNX's Gather takes no 4-bit integers, and LiteRT has no kernel that could be compared."""
    shapes = [2, 3, 7, 20], [2, 6, 14, 5]
    image, made = shapes if code == "DEPTH_TO_SPACE" else shapes[::-1]
    results = []
    numbers = np.random.default_rng(0).integers(0, 8, image).astype(np.float32)
    for inner in (dtype, "int32"):
        m = Build()
        (x,) = m.op("CAST", [m.input(image)], [m.tensor(image, dtype=inner)])
        (y,) = m.op(code, [x], [m.tensor(made, dtype=inner)], block_size=2)
        m.output(*m.op("CAST", [y], [m.tensor(made, dtype="float32")]))
        model = convert(m.bytes(), io_layout="tflite").model
        results.append(run_onnx(model, {model.graph.input[0].name: numbers})[0])
    four, wide = results
    assert np.array_equal(four, wide)


@pytest.mark.parametrize(
    ("code", "image", "made", "size", "message"),
    [
        ("DEPTH_TO_SPACE", [2, 3, 7, 4], [2, 3, 7, 4], 0, "at least 1, got 0"),
        ("SPACE_TO_DEPTH", [2, 3, 7, 4], [2, 3, 7, 4], -2, "at least 1, got -2"),
        ("DEPTH_TO_SPACE", [2, 3, 7, 5], [2, 6, 14, 1], 2, "a multiple of 4, got 5"),
        ("SPACE_TO_DEPTH", [2, 3, 6, 5], [2, 1, 3, 20], 2, "multiples of 2, got 3 and 6"),
        ("SPACE_TO_DEPTH", [2, 6, 3, 5], [2, 3, 1, 20], 2, "multiples of 2, got 6 and 3"),
        ("DEPTH_TO_SPACE", [3, 7, 4], [6, 14, 1], 2, r"axes NHWC, none empty, got \[3, 7, 4\]"),
        ("SPACE_TO_DEPTH", [2, 0, 4, 3], [2, 0, 2, 12], 2, "axes NHWC"),
    ],
)
def test_space_to_depth_refuses_invalid_blocks_and_shapes(
    code: str, image: Sequence[int], made: Sequence[int], size: int, message: str
) -> None:
    with pytest.raises(ConversionError, match=f"{code} .*: .*{message}"):
        convert(blocks(code, image, made, size))

"""Resizing between all kinds of sizes, in every mode; nearest neighbours are exact."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tests.support import Build, check
from tflite2onnx.convert import convert
from tflite2onnx.errors import ConversionError
from tflite2onnx.op import find_operator
from tflite2onnx.reader.model import read_model

if TYPE_CHECKING:
    from collections.abc import Sequence

BILINEAR, NEAREST = "RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR"
PLAIN: dict[str, Any] = {}
ALIGNED, CENTERED = {"align_corners": True}, {"half_pixel_centers": True}
MODES = [PLAIN, ALIGNED, CENTERED, ALIGNED | CENTERED]
TYPES = ("float32", "float16", "int32", "uint8", "bool", "int16", "int8", "uint32", "uint16")


def build_resize(
    code: str, size: Sequence[int], made: Sequence[int], options: dict[str, Any], **fields: Any
) -> bytes:
    """Return a model that resizes images of a size, (height, width), to another."""
    m, channels = Build(), fields.pop("channels", 3)
    x = m.input([2, *size, channels], **fields)
    wanted = m.constant(np.array(made, np.int32))
    m.output(*m.op(code, [x, wanted], [[2, *made, channels]], **options))
    return m.bytes()


def random_sizes(seed: int, most: int, count: int) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    generator = np.random.default_rng(seed)
    pairs = generator.integers(1, most, (count, 2, 2), endpoint=True)
    return [(tuple(size), tuple(made)) for size, made in pairs.tolist()]


@pytest.mark.parametrize("options", MODES[:3])
def test_bilinear_to_random_sizes_equals_litert(options: dict[str, Any]) -> None:
    """Images become larger, smaller, or larger along one axis and smaller along the other."""
    for size, made in random_sizes(0, 40, 80):
        check(build_resize(BILINEAR, size, made, options), seeds=[0], random_layouts=[0])


@pytest.mark.parametrize("options", MODES[:3])
def test_bilinear_of_many_channels_stores_channels_last(options: dict[str, Any]) -> None:
    """The channels are stored last; a multiple has a kernel in the blocks of convolutions."""
    for size, made in [*random_sizes(1, 20, 20), ((5, 7), (10, 21)), ((4, 7), (8, 21))]:
        channels = 8 + size[0] % 2
        data = build_resize(BILINEAR, size, made, options, channels=channels)
        multiple = made[0] % size[0] == 0 == made[1] % size[1] and channels % 4 == 0
        for forms in ("fastest", "canonical"):
            result: Any = check(data, seeds=[0], random_layouts=[0], forms=forms)
            nodes = [node.op_type for node in result.model.graph.node]
            moved = 0 if multiple or forms == "canonical" else 2
            assert (nodes.count("Resize"), nodes.count("Reshape")) == (1, moved)


@pytest.mark.parametrize("options", MODES[:3])
@pytest.mark.parametrize("made", [(1, 1), (1, 7), (5, 1), (5, 7), (10, 14), (15, 21), (2, 3)])
def test_bilinear_to_special_sizes_equals_litert(
    made: tuple[int, int], options: dict[str, Any]
) -> None:
    """Images have a single pixel, keep their size, or grow to an integer multiple."""
    check(build_resize(BILINEAR, (5, 7), made, options))
    check(build_resize(BILINEAR, made, (5, 7), options))


@pytest.mark.parametrize("code", [BILINEAR, NEAREST])
@pytest.mark.parametrize("options", MODES[:3])
@pytest.mark.parametrize(
    ("size", "made", "is_exact"),
    [
        ((5, 7), (10, 14), True),
        ((1, 7), (5, 14), True),
        ((5, 7), (2, 7), False),
        ((5, 7), (7, 9), False),
    ],
)
def test_scales_of_a_dynamic_batch_are_constant_if_exact(
    size: tuple[int, int],
    made: tuple[int, int],
    options: dict[str, Any],
    code: str,
    *,
    is_exact: bool,
) -> None:
    """Scales are constant if they are exact; other sizes are computed from the batch."""
    for channels in (3, 1):
        fields: dict[str, Any] = {"channels": channels, "shape_signature": [-1, *size, channels]}
        data = build_resize(code, size, made, options, **fields)
        found = {node.op_type for node in check(data).model.graph.node}
        assert ("Shape" in found) == ("Resize" in found and not is_exact)


@pytest.mark.parametrize("options", MODES)
def test_nearest_to_random_sizes_is_exact(options: dict[str, Any]) -> None:
    """The selected pixels are exact, for similar sizes and for very different sizes."""
    for size, made in (*random_sizes(1, 40, 80), *random_sizes(2, 300, 20)):
        data = build_resize(NEAREST, size, made, options)
        check(data, seeds=[0], random_layouts=[0], tolerance=0, optimize=[True])


@pytest.mark.parametrize("options", MODES)
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_nearest_of_bytes_is_exact(dtype: str, options: dict[str, Any]) -> None:
    """The kernel of bytes selects other elements in large images: its scale is rounded up."""
    for size, made in (
        *random_sizes(1, 40, 10),
        *random_sizes(200, 400, 10),
        ((15, 6), (577, 467)),
    ):
        data = build_resize(NEAREST, size, made, options, dtype=dtype)
        check(data, seeds=[0], random_layouts=[], tolerance=0, optimize=[True])


@pytest.mark.parametrize("options", MODES)
@pytest.mark.parametrize("factor", [2, 3, 4])
def test_nearest_of_bytes_to_multiples_is_exact(factor: int, options: dict[str, Any]) -> None:
    """With align_corners pixels are not repeated equally often."""
    data = build_resize(NEAREST, (5, 7), (5 * factor, 7 * factor), options, dtype="uint8")
    check(data, random_layouts=[], tolerance=0)


@pytest.mark.parametrize("options", MODES)
@pytest.mark.parametrize("made", range(1, 25))
def test_nearest_of_every_small_size_is_exact(made: int, options: dict[str, Any]) -> None:
    """All small sizes, which have the most positions halfway between two pixels."""
    for size in range(1, 25):
        data = build_resize(NEAREST, (1, size), (1, made), options)
        check(data, seeds=[0], random_layouts=[], tolerance=0, optimize=[False])


@pytest.mark.parametrize("options", MODES)
@pytest.mark.parametrize("dtype", TYPES)
def test_nearest_of_every_type_is_exact(dtype: str, options: dict[str, Any]) -> None:
    """All types; some sizes need Gather, and an axis of equal sizes needs no node."""
    for size, made in [((5, 7), (11, 3)), ((14, 5), (1, 5))]:
        check(build_resize(NEAREST, size, made, options, dtype=dtype), tolerance=0)


@pytest.mark.parametrize("opset", [13, 18, 22])
@pytest.mark.parametrize("options", MODES[:3])
def test_resizing_in_every_opset_equals_litert(opset: int, options: dict[str, Any]) -> None:
    for code in (BILINEAR, NEAREST):
        check(build_resize(code, (5, 7), (11, 3), options), opset=opset)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16"])
def test_nearest_copies_stored_integers(dtype: str) -> None:
    """Stored integers are copied without rescaling."""
    quantized = {"dtype": dtype, "scale": 0.5, "zero_point": 0 if dtype == "int16" else 3}
    check(build_resize(NEAREST, (5, 7), (11, 3), CENTERED, **quantized))


def nodes(size: Sequence[int], made: Sequence[int], options: dict[str, Any]) -> list[str]:
    model = convert(build_resize(NEAREST, size, made, options)).model
    return [node.op_type for node in model.graph.node if node.op_type != "Transpose"]


@pytest.mark.parametrize(
    ("size", "made", "options", "expected"),
    [
        # Doubling and halving are exact in float32.
        *(((5, 7), (10, 14), options, ["Resize"]) for options in MODES[:3]),
        *(((10, 14), (5, 7), options, ["Resize"]) for options in MODES[:3]),
        ((13, 13), (26, 26), PLAIN, ["Resize"]),
        # The position 6.5 is slightly less in float32.
        ((14, 5), (1, 5), CENTERED, ["Gather"]),
        # ONNX Runtime rounds 4 * (20 / 6) wrongly: its issue 28291.
        ((20, 20), (6, 6), CENTERED, ["Gather", "Gather"]),
        # ONNX has no mode for the combination.
        ((5, 7), (10, 14), ALIGNED | CENTERED, ["Gather", "Gather"]),
    ],
)
def test_simplest_exact_node_is_chosen(
    size: Sequence[int], made: Sequence[int], options: dict[str, Any], expected: list[str]
) -> None:
    assert nodes(size, made, options) == expected


@pytest.mark.parametrize("options", [PLAIN, CENTERED])
@pytest.mark.parametrize("made", [(10, 14), (15, 7)])
def test_nearest_to_a_multiple_is_asymmetric(
    made: tuple[int, int], options: dict[str, Any]
) -> None:
    """ONNX Runtime is fast in the mode "asymmetric", which selects the same pixels."""
    model = check(build_resize(NEAREST, (5, 7), made, options), tolerance=0).model
    (node,) = (node for node in model.graph.node if node.op_type == "Resize")
    modes = {a.name: a.s.decode() for a in node.attribute}
    assert modes["coordinate_transformation_mode"] == "asymmetric"


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("forms", ["fastest", "canonical"])
def test_channels_of_bytes_become_separate_images(forms: str, dtype: str) -> None:
    """ONNX Runtime cannot move its Transposes through a Reshape to the slow side of Resize.

    The new sizes are no multiples, of which the pixels are copied (`test_channels_last`).
    """
    data = build_resize(NEAREST, (5, 7), (10, 13), CENTERED, dtype=dtype, scale=0.5, zero_point=3)
    nodes = [node.op_type for node in check(data, forms=forms).model.graph.node]
    assert nodes.count("Reshape") == (2 if forms == "fastest" else 0)


def build_any_resize(code: str, **bad: Any) -> bytes:
    """Return resizing with any shapes, types and options, valid or not."""
    m = Build()
    x = m.input(bad.pop("x", [2, 5, 7, 3]), dtype=bad.pop("dtype", "float32"))
    size = bad.pop("size", [11, 3])
    wanted = m.input([2], dtype="int32") if size is None else m.constant(np.array(size))
    m.output(*m.op(code, [x, wanted], [bad.pop("y", [2, 11, 3, 3])], **bad))
    return m.bytes()


@pytest.mark.parametrize("code", [BILINEAR, NEAREST])
@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"size": [11]}, r"got \[11\] for an image"),
        ({"size": [11, 3, 3]}, r"got \[11, 3, 3\] for an image"),
        ({"size": [0, 3]}, r"got \[0, 3\] for an image"),
        ({"size": [11, -3]}, r"got \[11, -3\] for an image"),
        ({"size": [1 << 24, 3], "y": [2, 1 << 24, 3, 3]}, r"got \[16777216, 3\]"),
        ({"size": [1.0, 3.0]}, "integers, got float64"),
        ({"x": [5, 7, 3]}, "axes NHWC"),
        ({"x": [2, 5, 0, 3]}, "axes NHWC"),
    ],
)
def test_refuses_invalid_sizes_and_shapes(code: str, bad: dict[str, Any], message: str) -> None:
    with pytest.raises(ConversionError, match=f"{code} .*: .*{message}"):
        convert(build_any_resize(code, **bad))


def test_bilinear_refuses_plain_integers_and_two_modes() -> None:
    """Integers without a scale are not interpolated; two modes exclude each other."""
    with pytest.raises(ConversionError, match="must be float32 or quantized, got int32"):
        convert(build_any_resize(BILINEAR, dtype="int32"))
    with pytest.raises(ConversionError, match="must not both be set"):
        convert(build_any_resize(BILINEAR, **ALIGNED, **CENTERED))


@pytest.mark.parametrize(("made", "steps"), [(512, 1), (500, 72)])
def test_rounded_distances_of_int8_allow_more_steps(made: int, steps: int) -> None:
    """The kernel of int8 multiplies a distance, in 1 / 1024, by the index of an element."""
    data = build_resize(BILINEAR, (256, 256), (made, made), PLAIN, dtype="int8", scale=1.0)
    (op,) = read_model(data).graphs[0].ops
    assert find_operator(op).allowed_steps == steps

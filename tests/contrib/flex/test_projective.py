"""FlexImageProjectiveTransform: the reference follows TensorFlow's documented arithmetic."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tests.references import check_reference
from tests.references.flex import build_flex, random_numbers
from tflite2onnx.convert import convert
from tflite2onnx.errors import ConversionError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.support.runtimes import Array

F = np.float32
# A rotation with a shift, a zoom that leaves the image on all sides, a projection with a pole.
TRANSFORMS = np.array(
    [
        [0.8, -0.6, 2.25, 0.6, 0.8, -1.5, 0, 0],
        [3.1, 0.2, -9.3, -0.1, 2.7, -7.6, 0, 0],
        [1, 0.1, -0.5, 0.2, 1, 0.25, -0.25, 0],
    ],
    F,
)
FILLS = ("CONSTANT", "NEAREST", "REFLECT", "WRAP")
SIZES = [(5, 7, 6, 8), (1, 7, 3, 4), (5, 1, 4, 3)]


def move_into_image(place: np.float32, size: int, fill: str) -> np.float32:
    """Return the position in an image that is continued beyond its border."""
    if fill == "CONSTANT":  # one row of pixels around the image is reached
        return F(np.clip(place, -1, size))
    if size > 1 and fill == "REFLECT" and place < 0:
        place = F(2 * size * int(-place / F(2 * size)) + place)
        place = F(place + 2 * size) if place < -size else F(-place - 1)
    elif size > 1 and fill == "REFLECT" and place > size - 1:
        place = F(place - 2 * size * int(place / F(2 * size)))
        place = F(2 * size - place - 1) if place >= size else place
    elif size > 1 and fill == "WRAP" and place < 0:
        place = F(place + size * (int(-place / F(size - 1)) + 1))
    elif size > 1 and fill == "WRAP" and place > size - 1:
        place = F(place - size * int(place / F(size - 1)))
    return F(np.clip(place, 0, size - 1))


def transform(
    x: Array, transforms: Array, size: Any, value: Any = 0, *, interpolation: str, fill_mode: str
) -> Array:
    """Return images at the projected positions of the pixels."""
    _, height, width, _ = x.shape
    made = np.empty((len(x), *size, x.shape[3]), x.dtype)
    around = [(0, 0), (2, 2), (2, 2), (0, 0)]
    mode = {"constant_values": value} if fill_mode == "CONSTANT" else {"mode": "edge"}
    surrounded: Array = np.pad(x, around, **mode)
    for n, i, j in product(*map(range, made.shape[:3])):
        t = transforms[n % len(transforms)]
        made[n, i, j] = value
        divisor = F(F(t[6] * F(j)) + F(t[7] * F(i))) + F(1)
        if divisor == 0:
            continue
        column, row = (
            F(F(F(t[k] * F(j)) + F(t[k + 1] * F(i))) + t[k + 2]) / divisor for k in (0, 3)
        )
        column = move_into_image(column, width, fill_mode)
        row = move_into_image(row, height, fill_mode)
        if interpolation == "NEAREST":
            nearest = (int(np.copysign(np.floor(abs(v) + F(0.5)), v)) + 2 for v in (row, column))
            made[n, i, j] = surrounded[(n, *nearest)]
            continue
        (top, left), (down, across) = map(int, np.floor((row, column))), (row % 1, column % 1)
        weights = np.outer([1 - down, down], [1 - across, across])
        pixels = surrounded[n, top + 2 : top + 4, left + 2 : left + 4].astype(F)
        made[n, i, j] = (pixels * weights[..., None]).sum((0, 1)).astype(x.dtype)
    return made


@pytest.mark.parametrize("fill_mode", FILLS)
@pytest.mark.parametrize("interpolation", ["NEAREST", "BILINEAR"])
@pytest.mark.parametrize("sizes", SIZES)
def test_transforms_equal_reference(
    sizes: tuple[int, ...], interpolation: str, fill_mode: str
) -> None:
    height, width, *size = sizes
    x = random_numbers("float32", 3, height, width, 2)
    told = {"interpolation": interpolation, "fill_mode": fill_mode}
    for transforms in (TRANSFORMS, TRANSFORMS[:1]):
        want = transform(x, transforms, size, F(3.5), **told)
        model = build_flex(
            "ImageProjectiveTransformV3",
            [x, transforms],
            [want],
            [np.array(size, np.int32), np.array(3.5, F)],
            dtype=1,
            **told,
        )
        check_reference(model, [x, transforms], [want])


@pytest.mark.parametrize(
    ("interpolation", "shift", "want"),
    [
        ("NEAREST", -1.6, [100, 100, 1, 2]),
        ("NEAREST", -0.5, [100, 2, 3, 4]),
        ("NEAREST", 0.6, [2, 3, 4, 100]),
        ("BILINEAR", -1.4, [100, 40.6, 1.6, 2.6]),
        ("BILINEAR", -0.6, [60.4, 1.4, 2.4, 3.4]),
        ("BILINEAR", 0.4, [1.4, 2.4, 3.4, 42.4]),
    ],
)
def test_border_is_interpolated_with_the_fill_value(
    interpolation: str, shift: float, want: Sequence[float]
) -> None:
    """Numbers of TensorFlow 2.21."""
    x = np.arange(1, 13, dtype=F).reshape(1, 3, 4, 1)
    transforms = np.array([[1, 0, shift, 0, 1, 0, 0, 0]], F)
    made = np.array(want, F).reshape(1, 1, 4, 1)
    further = [transforms, np.array([1, 4], np.int32), np.array(100, F)]
    told = {"interpolation": interpolation, "fill_mode": "CONSTANT"}
    model = build_flex("ImageProjectiveTransformV3", [x], [made], further, **told)
    check_reference(model, [x], [made])


@pytest.mark.parametrize("dtype", ["uint8", "int32", "int64", "float16", "float64"])
def test_second_version_fills_with_zeros(dtype: str) -> None:
    """Nearest pixels are exact in every type; ImageProjectiveTransformV2 has no fill value."""
    x, size = random_numbers(dtype, 3, 5, 7, 2), [6, 8]
    told = {"interpolation": "NEAREST", "fill_mode": "CONSTANT"}
    want = transform(x, TRANSFORMS, size, **told)
    further = [TRANSFORMS, np.array(size, np.int32)]
    model = build_flex("ImageProjectiveTransformV2", [x], [want], further, **told)
    check_reference(model, [x], [want], tolerance=0)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"interpolation": "CUBIC"}, "must be BILINEAR or NEAREST"),
        ({"fill_mode": "MIRROR"}, "its fill_mode one of CONSTANT"),
        ({"transforms": TRANSFORMS[:2]}, r"its transforms must be \[1 or 3, 8\], got \[2, 8\]"),
        ({"size": [0, 3]}, "a positive height and width"),
    ],
)
def test_refuses_other_options(change: dict[str, Any], reason: str) -> None:
    told = {"interpolation": "NEAREST", "fill_mode": "WRAP", **change}
    transforms, size = told.pop("transforms", TRANSFORMS), told.pop("size", [4, 4])
    x, further = np.zeros((3, 5, 7, 2), F), [transforms, np.array(size, np.int32)]
    model = build_flex("ImageProjectiveTransformV2", [x], [x], further, **told)
    with pytest.raises(ConversionError, match=reason):
        convert(model.bytes())

"""Resampling and color conversion. LiteRT has no kernels for them, so numpy is the reference.

The references follow TensorFlow's documentation pixel by pixel. Where the documentation is silent
they follow the kernels: a table of 1024 steps for cubic weights, and halves rounded up.
"""

from __future__ import annotations

import colorsys
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pytest

from tests.references import check_reference
from tests.references.flex import build_flex, random_numbers
from tests.support import Build, run_onnx
from tests.support.flex import flex_options
from tflite2onnx.convert import convert
from tflite2onnx.errors import ConversionError

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.runtimes import Array

PIXELS = ["float32", "float64", "float16", "int8", "int16", "int32", "int64", "uint8", "uint16"]


def map_pixels(turn: Callable[..., Any], x: Array) -> Array:
    """Return an image with a function of three colors applied to each pixel."""
    flat = [turn(*(float(c) for c in pixel)) for pixel in x.reshape(-1, 3)]
    return np.array(flat, x.dtype).reshape(x.shape)


def colors(dtype: str) -> Array:
    x = np.random.default_rng(0).uniform(0, 1, (2, 5, 7, 3)).astype(dtype)
    x[0, 0], x[0, 1], x[0, 2, :, 1] = 0, 0.5, x[0, 2, :, 0]
    return x


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
@pytest.mark.parametrize("name", ["RGBToHSV", "HSVToRGB"])
def test_color_conversions_equal_colorsys(name: str, dtype: str) -> None:
    x = colors(dtype)
    want = map_pixels(colorsys.rgb_to_hsv if name == "RGBToHSV" else colorsys.hsv_to_rgb, x)
    check_reference(
        build_flex(name, [x], [want]), [x], [want], tolerance=3e-3 if dtype == "float16" else 1e-5
    )


Color = tuple[float, float, float]


def hue(x: Array, by: Array) -> Array:
    def turn_hue(*rgb: float) -> Color:
        angle, saturation, value = colorsys.rgb_to_hsv(*rgb)
        return colorsys.hsv_to_rgb((angle + float(by)) % 1, saturation, value)

    return map_pixels(turn_hue, x)


def saturation(x: Array, by: Array) -> Array:
    def saturate(*rgb: float) -> Color:
        angle, color, value = colorsys.rgb_to_hsv(*rgb)
        return colorsys.hsv_to_rgb(angle, min(color * float(by), 1), value)

    return map_pixels(saturate, x)


def contrast(x: Array, by: Array) -> Array:
    mean = x.mean((1, 2), keepdims=True)
    return np.asarray((x - mean) * by + mean)


@pytest.mark.parametrize("by", [0.3, -0.75])
def test_adjust_hue_equals_reference(by: float) -> None:
    x = colors("float32")
    want = hue(x, np.array(by, np.float32))
    check_reference(build_flex("AdjustHue", [x], [want], [np.array(by, np.float32)]), [x], [want])


@pytest.mark.parametrize("by", [0.3, 2.5])
def test_saturation_and_contrast_equal_reference(by: float) -> None:
    x, factor = colors("float32"), np.array(by, np.float32)
    want = saturation(x, factor)
    check_reference(build_flex("AdjustSaturation", [x, factor], [want]), [x, factor], [want])
    want = contrast(x, factor)
    check_reference(build_flex("AdjustContrastv2", [x, factor], [want]), [x, factor], [want])


def crop(x: Array, box: Array, size: tuple[int, int], method: str, outside: float) -> Array:
    """Return one box of one image, resized."""
    made = np.full((*size, x.shape[2]), outside, np.float32)
    for i, j in product(*map(range, size)):
        place = [
            low * (n - 1) + k * (high - low) * (n - 1) / (count - 1)
            if count > 1
            else (low + high) / 2 * (n - 1)
            for low, high, n, k, count in zip(box[:2], box[2:], x.shape, (i, j), size, strict=False)
        ]
        if any(p < 0 or p > n - 1 for p, n in zip(place, x.shape, strict=False)):
            continue
        if method == "nearest":
            row, column = (int(p + 0.5) for p in place)
            made[i, j] = x[row, column]
            continue
        (top, left), (y, z) = (int(p) for p in place), (p % 1 for p in place)
        rows = [top, min(top + 1, x.shape[0] - 1)]
        columns = [left, min(left + 1, x.shape[1] - 1)]
        made[i, j] = sum(
            x[row, column] * a * b
            for row, a in zip(rows, (1 - y, y), strict=True)
            for column, b in zip(columns, (1 - z, z), strict=True)
        )
    return made


BOXES = np.array(
    [[0, 0, 1, 1], [1, 1, 0, 0], [0.1, 0.2, 0.75, 0.6], [-0.3, 0.2, 0.9, 1.4]], np.float32
)
IMAGES = np.array([0, 1, 1, 0], np.int32)
METHODS = ["bilinear", "nearest"]
SIZES = [(3, 2), (1, 1), (7, 11)]


def crops(x: Array, boxes: Array, images: Array, size: Any, method: str) -> Array:
    """Return all boxes, resized; pixels outside the images are 3.5."""
    made = [
        crop(x[i].astype(np.float64), box, tuple(size), method, 3.5)
        for i, box in zip(images, boxes.astype(np.float64), strict=True)
    ]
    return np.stack(made).astype(np.float32)


@pytest.mark.parametrize("dtype", PIXELS)
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("size", SIZES)
def test_crop_and_resize_equals_reference(dtype: str, method: str, size: tuple[int, int]) -> None:
    x, boxes, images = random_numbers(dtype, 2, 5, 7, 3, low=-100, high=100), BOXES, IMAGES
    want = crops(x, boxes, images, size, method)
    model = build_flex(
        "CropAndResize",
        [x, boxes, images],
        [want],
        [np.array(size, np.int32)],
        method=method,
        extrapolation_value=3.5,
    )
    check_reference(model, [x, boxes, images], [want])


def cubic(x: float, steep: float) -> float:
    x = abs(x)
    if x <= 1:
        return ((steep + 2) * x - (steep + 3)) * x * x + 1
    return steep * (((x - 5) * x + 8) * x - 4) if x < 2 else 0


def resize_cubic(x: Array, axis: int, count: int, *, corners: bool, half: bool) -> Array:
    """Return an array resized along one axis by cubic interpolation."""
    size, made = x.shape[axis], []
    scale = (size - 1) / (count - 1) if corners and count > 1 else size / count
    for i in range(count):
        place = np.float32((i + 0.5) * scale - 0.5 if half else i * scale)
        first = int(np.floor(place))
        offset = round(float(place - first) * 1024) / 1024
        steps = [k for k in range(-1, 3) if not half or 0 <= first + k < size]
        weights = [cubic(offset - k, -0.5 if half else -0.75) for k in steps]
        pixels = [np.take(x, min(max(first + k, 0), size - 1), axis) for k in steps]
        total = sum(weights) if half else 1
        made.append(sum(p * w / total for p, w in zip(pixels, weights, strict=True)))
    return np.stack(made, axis)


LARGER = [(10, 21), (3, 4), (1, 1), (13, 7)]
CORNERS = [(False, False), (True, False), (False, True)]


def bicubic(x: Array, size: Any, *, corners: bool, half: bool) -> Array:
    """Return images resized along height and width by cubic interpolation."""
    made = x.astype(np.float64)
    for axis, count in zip((1, 2), size, strict=True):
        made = resize_cubic(made, axis, int(count), corners=corners, half=half)
    return made.astype(np.float32)


@pytest.mark.parametrize("dtype", PIXELS)
@pytest.mark.parametrize("size", LARGER)
@pytest.mark.parametrize(("corners", "half"), CORNERS)
def test_bicubic_resizing_equals_reference(
    dtype: str, size: tuple[int, int], *, corners: bool, half: bool
) -> None:
    x = random_numbers(dtype, 2, 5, 7, 3, low=-100, high=100)
    want = bicubic(x, size, corners=corners, half=half)
    model = build_flex(
        "ResizeBicubic",
        [x],
        [want],
        [np.array(size, np.int32)],
        align_corners=corners,
        half_pixel_centers=half,
    )
    check_reference(model, [x], [want])


@pytest.mark.parametrize("source", ["input", "image", "constant"])
@pytest.mark.parametrize(("corners", "half"), CORNERS)
def test_bicubic_resizing_to_sizes_of_the_run_equals_reference(
    source: str, *, corners: bool, half: bool
) -> None:
    """The size is an input, twice the size of the image (as by tf.image.resize), or fixed."""
    m = Build()
    x = m.input([1, None, None, 3])
    made: list[int | None] = [1, None, None, 3]
    if source == "input":
        size = m.input([2], dtype="int32")
    elif source == "image":
        (sizes,) = m.op("SHAPE", [x], [[4]], dtype="int32", out_type="int32")
        bounds = [m.constant([n]) for n in (1, 3, 1)]
        (image,) = m.op("STRIDED_SLICE", [sizes, *bounds], [[2]], dtype="int32")
        (size,) = m.op("MUL", [image, m.constant([2, 2])], [[2]], dtype="int32")
    else:
        size, made = m.constant([4, 9]), [1, 4, 9, 3]
    options = flex_options("ResizeBicubic", align_corners=corners, half_pixel_centers=half)
    m.output(*m.custom("FlexResizeBicubic", [x, size], [m.tensor(made)], options))
    result = convert(m.bytes(), io_layout="tflite")
    for old, new in (((5, 7), (8, 3)), ((1, 4), (1, 1)), ((3, 2), (3, 9))):
        data = random_numbers("float32", 1, *old, 3, low=-100, high=100)
        count = {"input": new, "image": (2 * old[0], 2 * old[1])}.get(source, (4, 9))
        given = [data, np.array(count, np.int32)][: len(result.inputs)]
        feeds = {end.name: value for end, value in zip(result.inputs, given, strict=True)}
        want = bicubic(data, count, corners=corners, half=half)
        np.testing.assert_allclose(run_onnx(result.model, feeds)[0], want, rtol=0, atol=1e-3)


class Patches(NamedTuple):
    """Patches of images of 5 by 7 pixels: their options, padding and number along each axis."""

    kernel: tuple[int, int]
    strides: tuple[int, int]
    rates: tuple[int, int]
    padding: str
    before: tuple[int, int]
    steps: tuple[int, int]

    def extract(self, x: Array) -> Array:
        """Return the pixels of each window."""
        (top, left), (down, right), (y, z) = self.before, self.strides, self.rates
        padded = np.pad(x, [(0, 0), (top, 9), (left, 9), (0, 0)])
        windows = [
            padded[:, i * down + a * y, j * right + b * z]
            for i, j in product(*map(range, self.steps))
            for a, b in product(*map(range, self.kernel))
        ]
        return np.stack(windows, 1).reshape(len(x), *self.steps, -1)

    @property
    def attributes(self) -> dict[str, Any]:
        lists = {"ksizes": self.kernel, "strides": self.strides, "rates": self.rates}
        return {"padding": self.padding} | {key: [1, *each, 1] for key, each in lists.items()}


PATCHES = [
    Patches((3, 3), (2, 2), (1, 1), "VALID", (0, 0), (2, 3)),
    Patches((3, 3), (2, 2), (1, 1), "SAME", (1, 1), (3, 4)),
    Patches((2, 3), (1, 2), (2, 1), "SAME", (1, 1), (5, 4)),
    Patches((2, 3), (1, 2), (2, 1), "VALID", (0, 0), (3, 3)),
    Patches((1, 1), (3, 3), (1, 1), "SAME", (0, 0), (2, 3)),
]


@pytest.mark.parametrize("dtype", PIXELS)
@pytest.mark.parametrize("patches", PATCHES)
def test_image_patches_equal_numpy(dtype: str, patches: Patches) -> None:
    x = random_numbers(dtype, 2, 5, 7, 3)
    want = patches.extract(x)
    model = build_flex("ExtractImagePatches", [x], [want], **patches.attributes)
    check_reference(model, [x], [want])


WINDOW = {"ksizes": [1, 3, 3, 1], "strides": [1] * 4, "rates": [1] * 4, "padding": "VALID"}


@pytest.mark.parametrize(
    ("name", "shapes", "made", "constants", "attributes", "reason"),
    [
        ("RGBToHSV", [(5, 4)], (5, 4), [], {}, r"must be float32\[5, 3\], got"),
        (
            "AdjustContrastv2",
            [(5, 3), ()],
            (5, 3),
            [],
            {},
            r"height, width, channels\], got",
        ),
        ("ResizeBicubic", [(5, 7, 3)], (1, 2, 3, 3), [[2, 3]], {}, "must be non-empty images"),
        (
            "ResizeBicubic",
            [(1, 5, 7, 3)],
            (1, 2, 3, 3),
            [[2, 0]],
            {},
            "must be a positive height and width",
        ),
        (
            "ExtractImagePatches",
            [(1, 2, 7, 3)],
            (1, 0, 5, 27),
            [],
            WINDOW,
            "must fit into the image",
        ),
        (
            "ExtractImagePatches",
            [(1, 5, 7, 3)],
            (1, 3, 5, 27),
            [],
            {**WINDOW, "padding": "X"},
            "got .* and X",
        ),
        (
            "ExtractImagePatches",
            [(1, 5, 7, 3)],
            (1, 3, 5, 27),
            [],
            {**WINDOW, "rates": [1, 0, 1, 1]},
            "its window, strides and rates must be",
        ),
        (
            "ExtractImagePatches",
            [(1, 5, 7, 3)],
            (1, 3, 5, 27),
            [],
            {},
            "its window, strides and rates must be",
        ),
    ],
)
def test_image_operators_refuse_invalid_shapes_and_options(
    name: str, shapes: Any, made: Any, constants: Any, attributes: Any, reason: str
) -> None:
    inputs = [np.zeros(shape, np.float32) for shape in shapes]
    further = [np.array(each, np.int32) for each in constants]
    model = build_flex(name, inputs, [np.zeros(made, np.float32)], further, **attributes)
    with pytest.raises(ConversionError, match=reason):
        convert(model.bytes())


@pytest.mark.parametrize("name", ["AdjustContrastv2", "AdjustHue", "AdjustSaturation"])
def test_refuses_a_factor_of_another_type(name: str) -> None:
    inputs = [np.zeros((5, 7, 3), np.float32), np.array(2, np.int32)]
    with pytest.raises(ConversionError, match=r"float32\[\], got int32\[\]"):
        convert(build_flex(name, inputs, inputs[:1]).bytes())


def test_crop_and_resize_refuses_unsupported_methods() -> None:
    inputs = [np.zeros((1, 5, 7, 3), np.float32), np.zeros((2, 4), np.float32)]
    further = [np.zeros(2, np.int32), np.array([2, 3], np.int32)]
    made = [np.zeros((2, 2, 3, 3), np.float32)]
    with pytest.raises(ConversionError, match="its method must be bilinear or nearest, got 'area'"):
        convert(build_flex("CropAndResize", inputs, made, further, method="area").bytes())


def dilate(x: Array, filters: Array, *, strides: Any, rates: Any, padding: str) -> Array:
    """Return the largest sum of a pixel and its number in the filter, of pixels in the image."""
    counts, firsts = [], []
    for size, kernel, stride, rate in zip(
        x.shape[1:3], filters.shape, strides[1:3], rates[1:3], strict=False
    ):
        reach = (kernel - 1) * rate + 1
        count = -(-size // stride) if padding == "SAME" else (size - reach) // stride + 1
        gap = max((count - 1) * stride + reach - size, 0) if padding == "SAME" else 0
        counts.append(count)
        firsts.append(gap // 2)
    made = np.full((len(x), *counts, x.shape[3]), -np.inf, x.dtype)
    for i, j, k, m in product(*map(range, (*counts, *filters.shape[:2]))):
        row = i * strides[1] - firsts[0] + k * rates[1]
        column = j * strides[2] - firsts[1] + m * rates[2]
        if 0 <= row < x.shape[1] and 0 <= column < x.shape[2]:
            made[:, i, j] = np.maximum(made[:, i, j], x[:, row, column] + filters[k, m])
    return made


DILATIONS: list[dict[str, Any]] = [
    {"strides": [1, *strides, 1], "rates": [1, *rates, 1], "padding": padding}
    for strides, rates in (((1, 1), (1, 1)), ((2, 3), (1, 1)), ((1, 2), (2, 1)))
    for padding in ("SAME", "VALID")
]


@pytest.mark.parametrize("told", DILATIONS, ids=str)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_dilations_equal_reference(told: dict[str, Any], dtype: str) -> None:
    x, filters = random_numbers(dtype, 2, 9, 7, 3), random_numbers(dtype, 3, 2, 3, seed=1)
    want = dilate(x, filters, **told)
    check_reference(build_flex("Dilation2D", [x], [want], [filters], **told), [x], [want])
    inputs = [x, filters]
    check_reference(build_flex("Dilation2D", inputs, [want], **told), inputs, [want])

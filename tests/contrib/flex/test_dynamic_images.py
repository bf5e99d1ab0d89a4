"""TensorFlow's operators that slide over images, or sample them, of heights and widths of the run.

The files declare 1 for the sizes, and one conversion serves all sizes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from tests.contrib.flex.test_image import crops, dilate
from tests.contrib.flex.test_projective import FILLS, TRANSFORMS, transform
from tests.references import check_reference_runs, draw_numbers
from tests.references.images import max_pool
from tests.support import Build
from tests.support.flex import flex_options
from tests.support.runtimes import Array

SIZES = ((1, 9, 7), (2, 5, 11), (3, 6, 6))
SQUARE, WIDE = [1, 2, 2, 1], [1, 2, 3, 1]


def check_sizes(
    name: str,
    made: Sequence[tuple[int, str]],
    constants: Sequence[Array],
    compute: Callable[[Array], Sequence[Array]],
    caplog: pytest.LogCaptureFixture,
    sizes: Sequence[tuple[int, int, int]] = SIZES,
    **attributes: Any,
) -> None:
    """Compare a model of one operator with a reference; `made` has channels and types."""
    m = Build()
    x = m.input([None, None, None, 3])
    outputs = [m.tensor([None] * 3 + [channels], dtype=dtype) for channels, dtype in made]
    operands = [x, *map(m.constant, constants)]
    m.output(*m.custom(f"Flex{name}", operands, outputs, flex_options(name, **attributes)))
    images = [draw_numbers(*size, 3, seed=size[1]) for size in sizes]
    with caplog.at_level(logging.WARNING):
        check_reference_runs(m, [([each], compute(each)) for each in images])
    assert not caplog.records  # no axis is fixed


@pytest.mark.parametrize("padding", ["SAME", "VALID"])
def test_dilations(padding: str, caplog: pytest.LogCaptureFixture) -> None:
    filters = draw_numbers(3, 2, 3)
    told: dict[str, Any] = {"strides": WIDE, "rates": [1, 2, 1, 1], "padding": padding}
    check_sizes(
        "Dilation2D", [(3, "float32")], [filters], lambda x: [dilate(x, filters, **told)], caplog,
        **told,
    )  # fmt: skip


def cut_patches(x: Array, *, same: bool) -> Array:
    """Return the pixels of windows of 2 x 3 with strides of 2 x 2 as channels."""
    if same:
        counts = [-(-size // 2) for size in x.shape[1:3]]
        gaps = [
            max((count - 1) * 2 + kernel - size, 0)
            for count, kernel, size in zip(counts, (2, 3), x.shape[1:3], strict=True)
        ]
        x = np.pad(x, [(0, 0), *((gap // 2, gap - gap // 2) for gap in gaps), (0, 0)])
    windows = np.lib.stride_tricks.sliding_window_view(x, (2, 3), (1, 2))[:, ::2, ::2]
    return windows.transpose(0, 1, 2, 4, 5, 3).reshape(*windows.shape[:3], -1)


@pytest.mark.parametrize("padding", ["SAME", "VALID"])
def test_patches(padding: str, caplog: pytest.LogCaptureFixture) -> None:
    told: dict[str, Any] = {"ksizes": WIDE, "strides": SQUARE, "rates": [1] * 4, "padding": padding}
    check_sizes(
        "ExtractImagePatches", [(18, "float32")], [],
        lambda x: [cut_patches(x, same=padding == "SAME")], caplog, **told,
    )  # fmt: skip


@pytest.mark.parametrize("padding", ["SAME", "VALID"])
@pytest.mark.parametrize("window", [(SQUARE, SQUARE), (WIDE, SQUARE), (SQUARE, WIDE)])
@pytest.mark.parametrize("counts_images", [False, True])
def test_indices_of_maxima(
    window: tuple[list[int], list[int]],
    padding: str,
    *,
    counts_images: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The last columns of an image may be in no window: indices count them."""
    kernel, strides = window
    told: dict[str, Any] = {
        "ksize": kernel, "strides": strides, "padding": padding,
        "include_batch_in_index": counts_images,
    }  # fmt: skip

    def compute(x: Array) -> Sequence[Array]:
        sizes = (kernel[1], kernel[2]), (strides[1], strides[2])
        values, indices = max_pool(x, *sizes, same=padding == "SAME", within=False)
        first = np.arange(len(x)).reshape(-1, 1, 1, 1) * x[0].size if counts_images else 0
        return values, (indices + first).astype(np.int32)

    made = [(3, "float32"), (3, "int32")]
    check_sizes("MaxPoolWithArgmax", made, [], compute, caplog, **told)


@pytest.mark.parametrize("method", ["bilinear", "nearest"])
def test_crops(method: str, caplog: pytest.LogCaptureFixture) -> None:
    boxes = np.array([[0, 0.1, 0.71, 1.2], [0.83, 0.91, 0.17, 0.13]], np.float32)
    images, size = np.zeros(2, np.int32), np.array([4, 5], np.int32)
    check_sizes(
        "CropAndResize", [(3, "float32")], [boxes, images, size],
        lambda x: [crops(x, boxes, images, (4, 5), method)], caplog,
        method=method, extrapolation_value=3.5,
    )  # fmt: skip


@pytest.mark.parametrize("fill_mode", FILLS)
@pytest.mark.parametrize("interpolation", ["NEAREST", "BILINEAR"])
def test_transforms(interpolation: str, fill_mode: str, caplog: pytest.LogCaptureFixture) -> None:
    told: dict[str, Any] = {"interpolation": interpolation, "fill_mode": fill_mode}
    size, value = np.array([6, 8], np.int32), np.array(3.5, np.float32)
    check_sizes(
        "ImageProjectiveTransformV3", [(3, "float32")], [TRANSFORMS[:1], size, value],
        lambda x: [transform(x, TRANSFORMS[:1], size, value, **told)], caplog,
        [(1, 5, 7), (2, 1, 4), (1, 6, 1)], **told,
    )  # fmt: skip


@pytest.mark.parametrize("fill_mode", FILLS)
def test_transforms_to_a_size_of_the_run(fill_mode: str) -> None:
    told: dict[str, Any] = {"interpolation": "BILINEAR", "fill_mode": fill_mode}
    m = Build()
    x, size = m.input([1, 5, 7, 3]), m.input([2], dtype="int32")
    operands = [x, m.constant(TRANSFORMS[:1]), size, m.constant(np.array(3.5, np.float32))]
    options = flex_options("ImageProjectiveTransformV3", **told)
    made = m.tensor([1, None, None, 3])
    m.output(*m.custom("FlexImageProjectiveTransformV3", operands, [made], options))
    image = draw_numbers(1, 5, 7, 3)
    runs = [np.array(numbers, np.int32) for numbers in ((6, 8), (1, 3), (5, 1))]
    check_reference_runs(
        m, [([image, n], [transform(image, TRANSFORMS[:1], n, 3.5, **told)]) for n in runs]
    )

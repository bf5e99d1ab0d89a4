"""Pooling with indices, and unpooling. LiteRT has no kernels: equal to tests.references.

Elements are only moved, so results are equal to the last bit.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pytest

from tests.references import check_reference, draw_numbers, images
from tests.references.flex import build_flex
from tests.support import Build
from tests.support.small import convolve
from tflite2onnx.convert import convert
from tflite2onnx.errors import ConversionError

if TYPE_CHECKING:
    from tests.support.runtimes import Array

Pair = tuple[int, int]
PADDINGS = {"SAME": 1, "VALID": 2}
# kernel, strides
WINDOWS: list[tuple[Pair, Pair]] = [
    ((2, 2), (2, 2)),
    ((3, 2), (2, 3)),
    ((2, 3), (1, 1)),
    ((1, 1), (1, 2)),
    ((4, 5), (3, 2)),
]


def raw(padding: str, kernel: Pair, strides: Pair, activation: int = 0) -> bytes:
    """Return a TfLitePoolParams as bytes."""
    fields = PADDINGS[padding], strides[1], strides[0], kernel[1], kernel[0], activation
    return struct.pack("<10i", *fields, 0, 0, 0, 0)


def flex_options_of(padding: str, kernel: Pair, strides: Pair) -> dict[str, Any]:
    return {
        "ksize": [1, *kernel, 1],
        "strides": [1, *strides, 1],
        "padding": padding,
        "include_batch_in_index": False,
    }


def image(*shape: int) -> Array:
    """Return an image with many equal elements."""
    return np.random.default_rng(0).integers(-5, 5, shape).astype(np.float32)


@pytest.mark.parametrize("padding", PADDINGS)
@pytest.mark.parametrize(("kernel", "strides"), WINDOWS)
def test_max_pooling_with_argmax_2d_equals_reference(
    kernel: Pair, strides: Pair, padding: str
) -> None:
    x = image(2, 11, 7, 3)
    same = padding == "SAME"
    want = images.max_pool(x, kernel, strides, same=same, within=True)
    m = Build()
    options = raw(padding, kernel, strides)
    outputs = [m.tensor(want[0].shape), m.tensor(want[1].shape)]
    m.output(*m.custom("MaxPoolingWithArgmax2D", [m.input(x.shape)], outputs, options))
    check_reference(m, [x], want, tolerance=0)


@pytest.mark.parametrize("padding", PADDINGS)
@pytest.mark.parametrize(("kernel", "strides"), WINDOWS)
def test_max_pool_with_argmax_equals_reference(kernel: Pair, strides: Pair, padding: str) -> None:
    x = image(2, 11, 7, 3)
    same = padding == "SAME"
    want = images.max_pool(x, kernel, strides, same=same, within=False)
    m = Build()
    options = flex_options_of(padding, kernel, strides)
    outputs = [m.tensor([]), m.tensor([], dtype="int32")]
    m.output(*m.custom("MaxPoolWithArgmax", [m.input(x.shape)], outputs, options))
    check_reference(m, [x], want, tolerance=0)


@pytest.mark.parametrize(("number", "low", "high"), [(1, 0, 9), (2, -1, 1), (3, 0, 6)])
def test_activations_apply_to_maxima_not_to_indices(number: int, low: float, high: float) -> None:
    """Activations apply to the maxima, not to the indices."""
    x = image(1, 6, 4, 3) * 2
    values, places = images.max_pool(x, (2, 2), (2, 2), same=False, within=True)
    m = Build()
    options = raw("VALID", (2, 2), (2, 2), number)
    outputs = [m.tensor(values.shape), m.tensor(values.shape)]
    m.output(*m.custom("MaxPoolingWithArgmax2D", [m.input(x.shape)], outputs, options))
    check_reference(m, [x], [values.clip(low, high), places], tolerance=0)


class Unpooling(NamedTuple):
    """The options of unpooling; `image` is the output size if indices refer to the image."""

    kernel: Pair
    strides: Pair
    image: Pair | None = None
    padding: str = "SAME"

    def random_places(self, generator: np.random.Generator) -> Array:
        """Return random indices."""
        shape = (2, 5, 3, 7)
        if self.image:
            return generator.integers(0, self.image[0] * self.image[1] * 7, shape, np.int32)
        # With a stride longer than the window, some indices would lie outside the image.
        gaps = self.strides[0] > self.kernel[0]
        most, shape = (1, (2, 2, 3, 7)) if gaps else (self.kernel[0] * self.kernel[1], shape)
        return np.asarray(generator.integers(0, most, shape) + np.float32(0.1), np.float32)

    def reference(self, x: Array, places: Array) -> Array:
        """Return the output of the reference kernel."""
        if self.image:
            return images.unpool(x, places, self.image)
        return images.unpool_within(x, places, self.kernel, self.strides)

    def options(self) -> bytes:
        return raw(self.padding, self.kernel, self.strides)


UNPOOLINGS = (
    Unpooling((2, 2), (2, 2)),
    Unpooling((2, 3), (2, 3)),
    Unpooling((3, 2), (2, 2)),
    Unpooling((2, 2), (3, 2)),
    Unpooling((3, 2), (2, 3), (10, 9)),
    Unpooling((3, 2), (2, 3), (11, 8), "VALID"),
)


@pytest.mark.parametrize("case", UNPOOLINGS, ids=str)
def test_unpooling_of_all_options_equals_reference(case: Unpooling) -> None:
    places = case.random_places(np.random.default_rng(1))
    x = draw_numbers(*places.shape)
    m = Build()
    operands = [m.input(x.shape), m.input(places.shape, dtype=places.dtype.name)]
    m.output(*m.custom("MaxUnpooling2D", operands, [[]], case.options()))
    check_reference(m, [x, places], [case.reference(x, places)], tolerance=0)


def test_pooling_and_unpooling_need_no_transpose() -> None:
    """Pooling and unpooling as in MediaPipe's segmentation networks need no Transposes."""
    m = Build()
    x = convolve(m, m.input([1, 8, 6, 3]), 4, "first")
    options, small = raw("SAME", (2, 2), (2, 2)), [1, 4, 3, 4]
    values, places = m.custom("MaxPoolingWithArgmax2D", [x], [small, small], options)
    (y,) = m.custom("MaxUnpooling2D", [values, places], [x.shape], options)
    m.output(convolve(m, y, 3, "second"))
    assert convert(m.bytes()).transposes == 0


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_indices_may_count_all_images(dtype: str) -> None:
    """TensorFlow's include_batch_in_index, which LiteRT's kernel refuses."""
    x = image(3, 11, 7, 2)
    values, indices = images.max_pool(x, (3, 2), (2, 3), same=True, within=False)
    indices = (indices + np.arange(3).reshape(-1, 1, 1, 1) * 11 * 7 * 2).astype(dtype)
    told = {**flex_options_of("SAME", (3, 2), (2, 3)), "include_batch_in_index": True}
    model = build_flex("MaxPoolWithArgmax", [x], [values, indices], **told)
    check_reference(model, [x], [values, indices])


def test_indices_may_count_all_images_of_a_dynamic_height() -> None:
    x = image(3, 11, 7, 2)
    values, indices = images.max_pool(x, (2, 2), (2, 2), same=True, within=False)
    indices = (indices + np.arange(3).reshape(-1, 1, 1, 1) * 11 * 7 * 2).astype(np.int32)
    told = {**flex_options_of("SAME", (2, 2), (2, 2)), "include_batch_in_index": True}
    m = Build()
    outputs = [m.tensor([]), m.tensor([], dtype="int32")]
    m.output(*m.custom("MaxPoolWithArgmax", [m.input([3, None, 7, 2])], outputs, told))
    check_reference(m, [x], [values, indices])


def refusal(code: str, options: Any, *, dtype: str = "float32", made: Any = "float32") -> str:
    m = Build()
    outputs = [m.tensor([]), m.tensor([], dtype=made)]
    m.output(*m.custom(code, [m.input([1, 6, 4, 3], dtype=dtype)], outputs, options))
    with pytest.raises(ConversionError) as error:
        convert(m.bytes())
    return str(error.value)


def test_refuses_unsupported_types_windows_and_options() -> None:
    pool, within = "MaxPoolWithArgmax", "MaxPoolingWithArgmax2D"
    good = flex_options_of("SAME", (2, 2), (2, 2))
    assert "must be int32, got float32" in refusal(pool, good)
    assert "must be float32, got int8" in refusal(pool, good, dtype="int8")
    assert "got (2, 2)" in refusal(pool, {**good, "ksize": [2, 2]}, made="int32")
    assert "got (1, 2, 2, 3)" in refusal(pool, {**good, "ksize": [1, 2, 2, 3]}, made="int32")
    assert "with strides (0, 2)" in refusal(
        pool, flex_options_of("SAME", (2, 2), (0, 2)), made="int32"
    )
    assert "SAME or VALID, got OTHER" in refusal(pool, {**good, "padding": "OTHER"}, made="int32")
    assert "bytes or more, got 3" in refusal(within, b"123")
    assert "padding must be below 3, got 7" in refusal(within, struct.pack("<6i", 7, 2, 2, 2, 2, 0))
    odd = struct.pack("<6i", 1, 2, 2, 2, 2, 9)
    assert "activation function must be below 5, got 9" in refusal(within, odd)

"""TensorFlow's operators that resample images: crops, cubic interpolation, patches."""

from collections.abc import Sequence
from functools import reduce
from typing import NamedTuple

import numpy as np

from tflite2onnx.operators import (
    AnySizes,
    Array,
    Builder,
    DType,
    DynamicShape,
    Operator,
    OperatorError,
    OutputShape,
    Shape,
    Unknown,
    Value,
    View,
    check_element_count,
    ints,
)
from tflite2onnx.sizes import Dim, count_up, emit_size, emit_sizes, is_known, take_entries

_IMAGE = 4  # axes
PIXELS = "float32|float16|float64|int8|int16|int32|int64|uint8|uint16"
_F32 = DType.FLOAT32


def read_image_shape(operator: Operator) -> Shape:
    """Return the shape of the first input; OperatorError unless it is images with pixels."""
    x = operator.input(0)
    if x.rank != _IMAGE or 0 in x.shape[1:]:
        raise OperatorError(
            f"{x.name} must be non-empty images [batch, height, width, channels], got "
            f"{list(x.shape)}"
        )
    return x.shape


def to_real(g: Builder, length: Value, *, times: int = 1, plus: int = 0) -> Value:
    """Return a multiple of a length, int64 without axes, plus a number, as float32."""
    number = length if times == 1 else g.Mul(length, times)
    number = g.Add(number, plus) if plus else number
    return g.cast(number, _F32) if number.data is None else g.scalar(number.data.item(), _F32)


def find_lengths(g: Builder, x: View) -> tuple[Value, Value]:
    """Return the height and the width of images, channels last, int64 without axes."""
    height, width = (emit_size(g, x, axis) for axis in (1, 2))
    return height, width


def read_two_sizes(operator: Operator, index: int) -> Shape:
    """Return a positive height and width, which an input lists."""
    sizes = ints(operator, index)
    if len(sizes) != 2 or any(is_known(size) and size < 1 for size in sizes):
        raise OperatorError(f"its size must be a positive height and width, got {sizes}")
    return tuple(sizes)


class FlexCropAndResize(DynamicShape):
    """FlexCropAndResize: crop boxes of images, and resize them to one size.

    Boxes are (y1, x1, y2, x2), where 0 and 1 are the centers of the first and the last pixel.
    Positions outside of the image get the extrapolation value.
    """

    codes = ("FlexCropAndResize",)
    tflite = "IHWC, KB, K -> KRSC"
    dynamic_axes = "IHWK"
    operands = f"{PIXELS}, float32 [boxes 4], int32 [boxes], any -> float32"

    def infer_outputs(self) -> Sequence[OutputShape]:
        return [(self.input(1).shape[0], *read_two_sizes(self, 3), self.input(0).shape[3])]

    def check(self) -> None:
        read_image_shape(self)  # raises OperatorError unless the input is images
        if self.options.get("method", "bilinear") not in ("bilinear", "nearest"):
            raise OperatorError(
                f"its method must be bilinear or nearest, got {self.options.method!r}"
            )
        check_element_count(sum(read_two_sizes(self, 3)))

    def emit(self, g: Builder, y: View, x: View, boxes: View, images: View, _: View) -> Value:
        corners = g.node_outputs("Split", 4, boxes, [1] * 4, axis=1)
        height, width = find_lengths(g, x)
        rows = _sample_positions(g, corners[0], corners[2], height, y.shape[1])
        columns = _sample_positions(g, corners[1], corners[3], width, y.shape[2])
        pixels = g.reshape(x, (-1, x.shape[3]))
        image = g.Mul(g.cast(images, DType.INT64), height)
        image = g.Unsqueeze(image, [1])

        def gather_pixel(row: Value, column: Value) -> Value:
            first = g.Unsqueeze(g.Mul(g.Add(image, row), width), [2])
            index = g.Add(first, g.Unsqueeze(column, [1]))
            return g.recast(g.Gather(pixels, index, axis=0), x.dtype, _F32)

        if self.options.get("method", "bilinear") == "nearest":
            row, column = take_nearest(g, rows, height), take_nearest(g, columns, width)
            resized = gather_pixel(row, column)
        else:
            top, bottom, down = find_neighbours(g, rows, height)
            left, right, across = find_neighbours(g, columns, width)
            down, across = g.Unsqueeze(down, [2, 3]), g.Unsqueeze(across, [1, 3])
            upper = interpolate(g, gather_pixel(top, left), gather_pixel(top, right), across)
            lower = interpolate(g, gather_pixel(bottom, left), gather_pixel(bottom, right), across)
            resized = interpolate(g, upper, lower, down)
        inside = g.And(
            g.Unsqueeze(is_in_image(g, rows, height), [2, 3]),
            g.Unsqueeze(is_in_image(g, columns, width), [1, 3]),
        )
        outside = g.scalar(self.options.get("extrapolation_value", 0.0), _F32)
        return g.Where(inside, resized, outside)


def _sample_positions(g: Builder, first: Value, last: Value, size: Value, count: int) -> Value:
    """Return the positions of the rows or columns of crops, in pixels, [boxes, count]."""
    pixels = to_real(g, size, plus=-1)
    if count == 1:
        return g.Mul(g.Mul(g.Add(first, last), g.scalar(0.5, _F32)), pixels)
    step = g.Div(g.Mul(g.Sub(last, first), pixels), g.scalar(count - 1, _F32))
    return g.Add(g.Mul(first, pixels), g.Mul(step, np.arange(count, dtype=np.float32)))


def is_in_image(g: Builder, places: Value, size: Value, border: int = 0) -> Value:
    """Return whether positions are between the first and the last pixel of an axis.

    `border` is the number of pixels by which they may be outside.
    """
    low, high = g.scalar(-border, _F32), to_real(g, size, plus=border - 1)
    return g.And(g.GreaterOrEqual(places, low), g.LessOrEqual(places, high))


def clip_places(g: Builder, places: Value, size: Value, border: int = 0) -> Value:
    """Return positions that are clipped to the image, or to `border` pixels around it."""
    low, high = g.scalar(-border, _F32), to_real(g, size, plus=border - 1)
    return g.Clip(places, low, high)


def clip_to_image(g: Builder, places: Value, size: Value) -> Value:
    """Return integral positions as int64 indices, clipped to the image."""
    return g.cast(clip_places(g, places, size), DType.INT64)


def take_nearest(g: Builder, places: Value, size: Value) -> Value:
    """Return the nearest pixels, of equally near pixels the later one, as int64 indices."""
    return clip_to_image(g, g.Floor(g.Add(places, g.scalar(0.5, _F32))), size)


def find_neighbours(g: Builder, places: Value, size: Value) -> tuple[Value, Value, Value]:
    """Return the pixels before and after each position, and its distance from the pixel before."""
    before = g.Floor(places)
    return (
        clip_to_image(g, before, size),
        clip_to_image(g, g.Ceil(places), size),
        g.Sub(places, before),
    )


def interpolate(g: Builder, a: Value, b: Value, part: Value) -> Value:
    """Return the value between a and b at a part of the distance."""
    return g.Add(a, g.Mul(g.Sub(b, a), part))


class FlexResizeBicubic(AnySizes):
    """FlexResizeBicubic: cubic interpolation, by matrix products along both axes.

    Sizes of the image and of the result may be known at run time only.
    """

    codes = ("FlexResizeBicubic",)
    operands = f"{PIXELS}, int32 [2] -> float32"
    tflite = "NHWC -> NHWC"
    shape_inputs = (1,)

    def infer_outputs(self) -> Sequence[OutputShape]:
        x = self.input(0).shape
        if self.has_data_dependent_shape:
            return [(x[0], Unknown(), Unknown(), x[3])]
        return [(x[0], *read_two_sizes(self, 1), x[3])]

    def check(self) -> None:
        x = read_image_shape(self)
        known = [axis for axis in (1, 2) if self._is_known(axis)]
        check_element_count(sum(x[axis] * self.output.shape[axis] for axis in known))

    def _is_known(self, axis: int) -> bool:
        symbols = {*self.input(0).symbols, *self.output.symbols}
        return not self.has_data_dependent_shape and axis not in symbols

    def emit(self, g: Builder, y: View, x: View, size: View) -> Value:
        rows, columns = (self._make_weights(g, y, x, size, axis) for axis in (1, 2))
        # The first product is [columns, width] by [batch, height, width, channels]; the rows follow
        # in the same way.
        image = g.recast(x, x.dtype, _F32)
        across = g.Transpose(g.MatMul(columns, image), perm=[0, 2, 1, 3])
        return g.Transpose(g.MatMul(rows, across), perm=[0, 2, 1, 3])

    def _make_weights(self, g: Builder, y: View, x: View, size: View, axis: int) -> Value:
        """Return the weight of each pixel of x in each pixel of y along an axis."""
        corners, half = (bool(self.options.get(n)) for n in ("align_corners", "half_pixel_centers"))
        if self._is_known(axis):
            weights = _make_weights(x.shape[axis], y.shape[axis], corners=corners, half=half)
            return g.constant(weights)
        old = take_entries(g, emit_sizes(g, x), [axis])
        new = take_entries(g, g.as_int64_list(size), [axis - 1])
        return _compute_weights(g, old, new, corners=corners, half=half)


_STEPS = 1 << 10  # entries in the weight table of TensorFlow's kernel


def _make_weights(size: int, count: int, *, corners: bool, half: bool) -> Array:
    """Return the weight of each input pixel in each output pixel, float32 [count, size].

    With half-pixel centers this is Keys' cubic (a = -0.5), normalized over the weights within the
    image. Otherwise it is a steeper cubic (a = -0.75), and edge pixels extend the image.
    """
    cut = int(corners and count > 1)
    scale = np.float32(size - cut) / np.float32(count - cut)
    position = np.arange(count, dtype=np.float32)
    position = (position + np.float32(0.5)) * scale - np.float32(0.5) if half else position * scale
    first = np.floor(position)
    offset = np.rint((position - first) * np.float32(_STEPS)) / _STEPS
    coefficient = -0.5 if half else -0.75
    weights = np.zeros((count, size))
    for i in range(-1, 3):
        weight = _evaluate_cubic(np.abs(offset - i), coefficient)
        pixel = first.astype(np.int64) + i
        within = (pixel >= 0) & (pixel < size) if half else np.ones(count, np.bool_)
        places = np.arange(count), np.clip(pixel, 0, size - 1)
        np.add.at(weights, places, np.where(within, weight, 0))
    return np.asarray(weights / weights.sum(1, keepdims=True) if half else weights, np.float32)


def _evaluate_cubic(x: Array, steep: float) -> Array:
    """Return the convolution kernel of cubic interpolation at distances up to 2."""
    return np.where(x <= 1, *(np.polyval(part, x) for part in _list_cubics(steep)))


def _list_cubics(steep: float) -> tuple[Sequence[float], Sequence[float]]:
    """Return the coefficients of the kernel at distances up to 1, and from 1 to 2."""
    return (steep + 2, -steep - 3, 0, 1), (steep, -5 * steep, 8 * steep, -4 * steep)


def _compute_weights(g: Builder, size: Value, count: Value, *, corners: bool, half: bool) -> Value:
    """Return the numbers of `_make_weights` for sizes that are known at run time only."""

    def make_real(number: float) -> Value:
        return g.scalar(number, _F32)

    last, sides = g.Sub(size, [1]), [size, count]
    if corners:  # a single output pixel is the first one
        is_long = g.Greater(count, 1)
        sides = [g.Where(is_long, g.Sub(side, 1), side) for side in sides]
    scale = g.Div(*(g.cast(side, _F32) for side in sides))
    position = g.cast(g.Range(0, g.reshape(count, []), 1), _F32)
    if half:
        position = g.Sub(g.Mul(g.Add(position, make_real(0.5)), scale), make_real(0.5))
    else:
        position = g.Mul(position, scale)
    first = g.Floor(position)
    offset = g.Div(g.Round(g.Mul(g.Sub(position, first), make_real(_STEPS))), make_real(_STEPS))
    start = g.Unsqueeze(g.cast(first, DType.INT64), [1])
    pixels = g.Range(0, g.reshape(size, []), 1)
    near, far = _list_cubics(-0.5 if half else -0.75)
    terms = []
    for i, cubic in zip(range(-1, 3), (far, near, near, far), strict=True):
        distance = g.Abs(g.Sub(offset, make_real(i)))
        weight = make_real(cubic[0])
        for coefficient in cubic[1:]:
            weight = g.Add(g.Mul(weight, distance), make_real(coefficient))
        pixel = g.Add(start, i)
        if not half:
            pixel = g.clamp_int64(pixel, 0, last)
        terms.append(g.Where(g.Equal(pixel, pixels), g.Unsqueeze(weight, [1]), make_real(0)))
    weights = reduce(g.Add, terms)
    return g.Div(weights, g.reduce("ReduceSum", weights, [1], keepdims=True)) if half else weights


class _Track(NamedTuple):
    """The windows along an axis."""

    kernel: int
    stride: int
    rate: int
    same: bool

    @property
    def reach(self) -> int:
        """The distance from the first to the last pixel of a window, plus 1."""
        return (self.kernel - 1) * self.rate + 1

    def count_windows(self, size: Dim) -> Dim:
        count = -(-(size if self.same else size - self.reach + 1) // self.stride)
        return max(count, 0) if is_known(count) else count

    def list_places(self, g: Builder, size: Value) -> tuple[Value, Value, Value]:
        """Return the pixels of each window, [windows, kernel], and the padding at both ends."""
        rest = self.stride - 1 if self.same else self.stride - self.reach
        count = g.Div(g.Add(size, [rest]), [self.stride])
        starts = g.Mul(g.Unsqueeze(count_up(g, count), [1]), [self.stride])
        places = g.Add(starts, g.constant(np.arange(self.kernel).reshape(1, -1) * self.rate))
        if not self.same:
            return places, g.ints([0]), g.ints([0])
        last = g.Mul(g.Sub(count, [1]), [self.stride])
        gap = g.max_int64(g.Sub(g.Add(last, [self.reach]), size), [0])
        before = g.Div(gap, [2])
        return places, before, g.Sub(gap, before)


class _SlidingWindow(DynamicShape):
    """Base class of operators that gather the pixels of windows."""

    tflite = "NHWC -> NHWC"
    dynamic_axes = "NHW"

    def read_size(self) -> Sequence[int]:
        """Return the size of the window, [1, rows, columns, 1]."""
        raise NotImplementedError

    @property
    def windows(self) -> tuple[_Track, _Track]:
        """The windows along the rows and the columns."""
        options = (self.options.get(name, []) for name in ("strides", "rates"))
        lists = [list(values) for values in (self.read_size(), *options)]
        padding = self.options.get("padding")
        if any(
            len(values) != _IMAGE or min(values) < 1 or values[0] * values[3] != 1
            for values in lists
        ) or padding not in ("SAME", "VALID"):
            raise OperatorError(
                f"its window, strides and rates must be [1, rows, columns, 1] and padding SAME or "
                f"VALID, got {lists} and {padding}"
            )
        size, strides, rates = lists
        rows, columns = (
            _Track(size[axis], strides[axis], rates[axis], padding == "SAME") for axis in (1, 2)
        )
        return rows, columns

    def count_windows(self) -> tuple[Dim, Dim]:
        """Return the numbers of windows along the rows and the columns."""
        rows, columns = self.windows
        _, height, width, _ = read_image_shape(self)
        return rows.count_windows(height), columns.count_windows(width)

    def check(self) -> None:
        counts = self.count_windows()
        check_element_count(
            sum(n * track.kernel for n, track in zip(counts, self.windows, strict=True))
        )
        if 0 in counts:
            image = list(self.input(0).shape)
            raise OperatorError(f"its windows must fit into the image, got {image}")

    def gather_windows(self, g: Builder, x: View, fill: float) -> Value:
        """Return [batch, rows, rows of the window, columns, columns of the window, channels]."""
        sizes, zero = emit_sizes(g, x), g.ints([0])
        (rows, top, bottom), (columns, left, right) = (
            track.list_places(g, take_entries(g, sizes, [axis]))
            for axis, track in enumerate(self.windows, 1)
        )
        pads, value = g.Concat(zero, top, left, zero, zero, bottom, right, zero, axis=0), x.value
        if pads.data is None or pads.data.any():
            value = g.pad(x.dtype, x, pads, g.scalar(fill, x.dtype))
        return g.Gather(g.Gather(value, rows, axis=1), columns, axis=3)


class FlexExtractImagePatches(_SlidingWindow):
    """FlexExtractImagePatches: the pixels of each window, row by row, as channels."""

    codes = ("FlexExtractImagePatches",)
    operands = "T -> T"

    def read_size(self) -> Sequence[int]:
        return [*self.options.get("ksizes", [])]

    def infer_outputs(self) -> Sequence[OutputShape]:
        x, (rows, columns) = self.input(0).shape, self.windows
        return [(x[0], *self.count_windows(), rows.kernel * columns.kernel * x[3])]

    def emit(self, g: Builder, y: View, x: View) -> Value:
        patches = self.gather_windows(g, x, 0)
        patches = g.Transpose(patches, perm=[0, 1, 3, 2, 4, 5])
        if not {1, 2} & y.tensor.symbols.keys():
            return g.reshape(patches, y.sizes)
        return g.Reshape(patches, [0, 0, 0, y.shape[3]])


class FlexDilation2D(_SlidingWindow):
    """FlexDilation2D: the largest sum of a pixel of a window and its number in the filter."""

    codes = ("FlexDilation2D",)
    tflite = "NHWC, ABC -> NHWC"
    operands = "T:float32|float64 [n height width c], T [rows columns c] -> T"

    def read_size(self) -> Sequence[int]:
        rows, columns, _ = self.input(1).shape
        return [1, rows, columns, 1]

    def infer_outputs(self) -> Sequence[OutputShape]:
        x = self.input(0).shape
        return [(x[0], *self.count_windows(), x[3])]

    def emit(self, g: Builder, y: View, x: View, filters: View) -> Value:
        # Pixels beyond the image are less than any sum.
        windows = self.gather_windows(g, x, -np.inf)
        sums = g.Add(windows, g.Unsqueeze(filters, [1]))
        return g.reduce("ReduceMax", sums, [2, 4], keepdims=False)

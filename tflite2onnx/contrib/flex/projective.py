"""TensorFlow's projective transform of images, which random rotations and zooms of Keras use."""

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from math import prod

import numpy as np

from tflite2onnx.contrib.flex.image import (
    PIXELS,
    clip_places,
    clip_to_image,
    find_lengths,
    interpolate,
    is_in_image,
    read_image_shape,
    read_two_sizes,
    to_real,
)
from tflite2onnx.operators import (
    Builder,
    DType,
    DynamicShape,
    Operand,
    OperatorError,
    OutputShape,
    Shape,
    Unknown,
    Value,
    View,
    check_element_count,
)
from tflite2onnx.sizes import count_up, multiply_sizes, require_equal, take_entries

_F32 = DType.FLOAT32
_NUMBERS = 8  # of a transform


def _reflect(g: Builder, place: Value, size: Value) -> Value:
    """Return positions in an image that is mirrored at its borders: dcba|abcd|dcba."""
    length, period, one = to_real(g, size), to_real(g, size, times=2), g.scalar(1, _F32)
    distance = g.Abs(place)
    rest = g.Sub(distance, g.Mul(g.Floor(g.Div(distance, period)), period))
    turned = g.Sub(period, rest)
    right = g.Where(g.Less(rest, length), rest, g.Sub(turned, one))
    left = g.Where(g.Greater(rest, length), turned, g.Sub(rest, one))
    return clip_places(g, g.Where(g.Less(place, g.scalar(0, _F32)), left, right), size)


def _wrap(g: Builder, place: Value, size: Value) -> Value:
    """Return positions in an image that is repeated: abcd|abcd|abcd.

    The kernel counts repetitions by the distance between the first and the last pixel.
    """
    zero, length, last = g.scalar(0, _F32), to_real(g, size), to_real(g, size, plus=-1)
    # All positions are clipped to the pixel of an image of one pixel.
    distance = g.max_int64(size, 2)
    count = g.Floor(g.Div(g.Abs(place), to_real(g, distance, plus=-1)))
    left = g.Add(place, g.Mul(g.Add(count, g.scalar(1, _F32)), length))
    right = g.Where(g.Greater(place, last), g.Sub(place, g.Mul(count, length)), place)
    return clip_places(g, g.Where(g.Less(place, zero), left, right), size)


_FILLS: Mapping[str, Callable[[Builder, Value, Value], Value]] = {
    "CONSTANT": partial(clip_places, border=1),  # the border has the fill value
    "NEAREST": clip_places,
    "REFLECT": _reflect,
    "WRAP": _wrap,
}


def _round_place(g: Builder, place: Value) -> Value:
    """Return the nearest whole positions, of equally near positions the one farther from 0."""
    whole = g.Floor(g.Add(g.Abs(place), g.scalar(0.5, _F32)))
    return g.Mul(g.Sign(place), whole)


class FlexImageProjectiveTransform(DynamicShape):
    """FlexImageProjectiveTransformV2 and V3: sample images at projected positions of the pixels.

    A transform (a0, a1, a2, b0, b1, b2, c0, c1) maps the output pixel (x, y) to the position
    (a0 x + a1 y + a2, b0 x + b1 y + b2) / (c0 x + c1 y + 1) of the input. With the fill mode
    CONSTANT the pixels around the image have the fill value, also where they are interpolated.
    """

    codes = ("FlexImageProjectiveTransformV2", "FlexImageProjectiveTransformV3")
    operands = f"T:{PIXELS}, float32, int32 [2], float32? [1*] -> T"
    tflite = "NHWC, NT -> NHWC"
    dynamic_axes = "NHW"
    shape_inputs = (2,)

    @cached_property
    def _fill_mode(self) -> str:
        return str(self.options.get("fill_mode", "CONSTANT"))

    @cached_property
    def _sizes(self) -> Shape:
        return read_two_sizes(self, 2)

    def infer_outputs(self) -> Sequence[OutputShape]:
        x, transforms = self.input(0).shape, self.input(1).shape
        if transforms[:1] != (1,):
            require_equal(x[0], transforms[0])
        if self.has_data_dependent_shape:
            return [(x[0], Unknown(), Unknown(), x[3])]
        return [(x[0], *self._sizes, x[3])]

    def check(self) -> None:
        x, transforms = read_image_shape(self), self.input(1).shape
        if len(transforms) != 2 or transforms[0] not in (1, x[0]) or transforms[1] != _NUMBERS:
            raise OperatorError(
                f"its transforms must be [1 or {x[0]}, {_NUMBERS}], got {list(transforms)}"
            )
        interpolation = self.options.get("interpolation")
        if interpolation not in ("BILINEAR", "NEAREST") or self._fill_mode not in _FILLS:
            raise OperatorError(
                f"its interpolation must be BILINEAR or NEAREST, and its fill_mode one of "
                f"{', '.join(_FILLS)}, got {interpolation} and {self._fill_mode}"
            )
        if not self._has_computed_places:
            check_element_count(self._sizes[0] * self._sizes[1])

    @property
    def _has_computed_places(self) -> bool:
        """Whether the height or the width of the output is known at run time only."""
        return self.has_data_dependent_shape or bool({1, 2} & self.output.symbols.keys())

    def emit(
        self, g: Builder, y: View, x: View, transforms: View, size: View, *fill: View
    ) -> Value:
        (height, width), channels = find_lengths(g, x), x.shape[3]
        zero = g.scalar(0, _F32)
        outside = g.recast(fill[0].reshape(()) if fill else zero, _F32, y.dtype)
        batch, sizes = x.sizes[0], g.as_int64_list(size)
        grid = self._list_pixels(g, sizes)
        positions, inside = self._emit_positions(g, transforms, grid, (height, width))
        is_fixed = not {1, 2} & x.tensor.symbols.keys()
        pixels = g.reshape(x, (batch, prod(x.shape[1:3]) if is_fixed else -1, channels))
        number = g.runtime_shape([batch], x)
        expanded = g.Concat(number, multiply_sizes(g, sizes), [1], axis=0)

        def gather_pixels(row: Value, column: Value, dtype: DType = _F32) -> Value:
            first = g.Mul(clip_to_image(g, row, height), width)
            index = g.Add(first, clip_to_image(g, column, width))
            index = g.Expand(g.Unsqueeze(index, [2]), expanded)
            found = g.recast(g.GatherND(pixels, index, batch_dims=1), x.dtype, dtype)
            if self._fill_mode != "CONSTANT":
                return found
            is_pixel = g.And(is_in_image(g, row, height), is_in_image(g, column, width))
            other = g.recast(outside, y.dtype, dtype)
            return g.where(g.Unsqueeze(is_pixel, [2]), found, other, dtype)

        if self.options.interpolation == "NEAREST":
            row, column = (_round_place(g, place) for place in positions)
            sampled = gather_pixels(row, column, y.dtype)
        else:
            top, left = (g.Floor(place) for place in positions)
            bottom, right = (g.Add(place, g.scalar(1, _F32)) for place in (top, left))
            part_down, part_across = (
                g.Unsqueeze(g.Sub(place, first), [2])
                for place, first in zip(positions, (top, left), strict=True)
            )
            upper, lower = (
                interpolate(g, gather_pixels(row, left), gather_pixels(row, right), part_across)
                for row in (top, bottom)
            )
            sampled = g.recast(interpolate(g, upper, lower, part_down), _F32, y.dtype)
        result = g.where(g.Unsqueeze(inside, [2]), sampled, outside, y.dtype)
        if self._has_computed_places:
            return g.Reshape(result, g.Concat(number, sizes, [channels], axis=0))
        return g.reshape(result, (batch, *self._sizes, channels))

    def _list_pixels(self, g: Builder, sizes: Value) -> tuple[Operand, Operand]:
        """Return the row and the column of each pixel of the output, [1, pixels], float32."""
        if not self._has_computed_places:
            rows, columns = np.indices(self._sizes).reshape(2, 1, -1).astype(np.float32)
            return rows, columns
        width = take_entries(g, sizes, [1])
        pixels = g.Unsqueeze(count_up(g, multiply_sizes(g, sizes)), [0])
        return g.cast(g.Div(pixels, width), _F32), g.cast(g.Mod(pixels, width), _F32)

    def _emit_positions(
        self,
        g: Builder,
        transforms: View,
        grid: tuple[Operand, Operand],
        image: tuple[Value, Value],
    ) -> tuple[tuple[Value, Value], Value]:
        """Return rows and columns in the image, and where they are finite; else they are 0."""
        numbers = g.node_outputs("Split", _NUMBERS, transforms, [1] * _NUMBERS, axis=1)
        (rows, columns), zero, one = grid, g.scalar(0, _F32), g.scalar(1, _F32)

        def combine(a: Value, b: Value, c: Value) -> Value:
            return g.Add(g.Add(g.Mul(a, columns), g.Mul(b, rows)), c)

        divisor = combine(numbers[6], numbers[7], one)
        infinite = g.Equal(divisor, zero)
        divisor = g.Where(infinite, one, divisor)
        move, border = _FILLS[self._fill_mode], int(self._fill_mode == "CONSTANT")
        height, width = image
        down = move(g, g.Div(combine(*numbers[3:6]), divisor), height)
        across = move(g, g.Div(combine(*numbers[:3]), divisor), width)
        inside = g.And(is_in_image(g, across, width, border), is_in_image(g, down, height, border))
        inside = g.And(inside, g.Not(infinite))
        return (g.Where(inside, down, zero), g.Where(inside, across, zero)), inside

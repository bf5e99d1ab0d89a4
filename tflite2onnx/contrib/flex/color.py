"""TensorFlow's operators on the colors of images, whose last axis is (red, green, blue)."""

from collections.abc import Collection

from tflite2onnx.operators import AnySizes, Builder, DType, Value, View, prepend_axis

_COLORS = 3


class _Pixels(AnySizes):
    """Base of operators that compute each pixel of their first input on its own."""

    add_leading_axis = prepend_axis()

    def find_mixed_axes(self, operand: int) -> Collection[int] | None:
        return None if operand else (-1,)


class FlexColors(_Pixels):
    """FlexRGBToHSV and FlexHSVToRGB: conversion to hue, saturation and value, and back."""

    codes = ("FlexHSVToRGB", "FlexRGBToHSV")
    operands = "T:float32|float64|float16 [... 3] -> T [... 3]"

    def emit(self, g: Builder, y: View, x: View) -> Value:
        convert = _to_colors if self.op.code == "FlexHSVToRGB" else _to_hues
        return g.Concat(*convert(g, x.dtype, *_split_channels(g, x)), axis=-1)


class FlexAdjustColors(_Pixels):
    """FlexAdjustHue and FlexAdjustSaturation: rotate hues, or multiply saturations."""

    codes = ("FlexAdjustHue", "FlexAdjustSaturation")
    operands = "T:float32|float64|float16 [... 3], float32 [] -> T [... 3]"

    def emit(self, g: Builder, y: View, x: View, amount: View) -> Value:
        dtype, number = x.dtype, g.recast(amount, amount.dtype, x.dtype)
        hue, saturation, value = _to_hues(g, dtype, *_split_channels(g, x))
        if self.op.code == "FlexAdjustHue":
            rotated = g.Add(hue, number)
            hue = g.Sub(rotated, g.Floor(rotated))
        else:
            saturation = _clip_to_unit(g, dtype, g.Mul(saturation, number))
        return g.Concat(*_to_colors(g, dtype, hue, saturation, value), axis=-1)


class FlexAdjustContrast(AnySizes):
    """FlexAdjustContrastv2: multiply the difference of each pixel from the mean of its image."""

    codes = ("FlexAdjustContrastv2",)
    operands = "T:float32|float64|float16 [... height width channels], float32 [] -> T"
    keeps_shape = True
    add_leading_axis = prepend_axis()

    def find_mixed_axes(self, operand: int) -> Collection[int] | None:
        return None if operand else (-3, -2)

    def emit(self, g: Builder, y: View, x: View, factor: View) -> Value:
        mean = g.reduce("ReduceMean", x, [x.rank - 3, x.rank - 2], keepdims=True)
        number = g.recast(factor, factor.dtype, x.dtype)
        return g.Add(g.Mul(g.Sub(x, mean), number), mean)


def _split_channels(g: Builder, x: View) -> tuple[Value, ...]:
    return g.node_outputs("Split", _COLORS, x, [1] * _COLORS, axis=-1)


def _clip_to_unit(g: Builder, dtype: DType, x: Value) -> Value:
    return g.Clip(x, g.scalar(0, dtype), g.scalar(1, dtype))


def _to_hues(
    g: Builder, dtype: DType, red: Value, green: Value, blue: Value
) -> tuple[Value, Value, Value]:
    """Return hue, saturation and value, from 0 to 1; hue and saturation of grays are 0."""
    zero, one, six = (g.scalar(number, dtype) for number in (0, 1, 6))
    value = g.Max(red, green, blue)
    span = g.Sub(value, g.Min(red, green, blue))
    colored, dark = g.Greater(span, zero), g.Not(g.Greater(value, zero))
    saturation = g.Where(dark, zero, g.Div(span, g.Where(dark, one, value)))
    steps = g.Mul(g.Where(colored, span, one), six)

    def find_sixth(a: Value, b: Value, first: int) -> Value:
        return g.Add(g.Div(g.Sub(a, b), steps), g.scalar(first / 6, dtype))

    hue = g.Where(g.Equal(green, value), find_sixth(blue, red, 2), find_sixth(red, green, 4))
    hue = g.Where(g.Equal(red, value), find_sixth(green, blue, 0), hue)
    hue = g.Where(g.Less(hue, zero), g.Add(hue, one), hue)
    return g.Where(colored, hue, zero), saturation, value


def _to_colors(
    g: Builder, dtype: DType, hue: Value, saturation: Value, value: Value
) -> tuple[Value, ...]:
    """Return red, green and blue; each depends on its hue's distance."""
    one, two = g.scalar(1, dtype), g.scalar(2, dtype)
    sixths, pale = g.Mul(hue, g.scalar(6, dtype)), g.Sub(one, saturation)

    def find_distance(center: int) -> Value:
        return g.Abs(g.Sub(sixths, g.scalar(center, dtype)))

    parts = g.Sub(find_distance(3), one), g.Sub(two, find_distance(2)), g.Sub(two, find_distance(4))
    return tuple(
        g.Mul(g.Add(pale, g.Mul(saturation, _clip_to_unit(g, dtype, part))), value)
        for part in parts
    )

"""Convolutions that multiply integers: float data, quantized at run time, by 8-bit weights.

ONNX has no convolution of integers with float sums: windows are copied into the rows of a matrix.
"""

from collections.abc import Sequence
from functools import cached_property
from math import gcd

import numpy as np

from tflite2onnx.builder.builder import Builder, Value, View
from tflite2onnx.layout import Frame, make_channels_first
from tflite2onnx.made_options import WindowOptions
from tflite2onnx.op.common.hybrid import (
    QuantizedRows,
    multiply_integers,
    negate_column_sums,
    scale_offsets,
)
from tflite2onnx.op.common.windows import Window
from tflite2onnx.op.traits import MadeOperator
from tflite2onnx.op.vision.conv import Conv2D
from tflite2onnx.quantization.declarations import Product
from tflite2onnx.quantization.storage import BOUNDS
from tflite2onnx.targets.onnxruntime.operators.reshape import FIRST, LAST, is_image
from tflite2onnx.tensor import Array, DType, Shape


class CopiedWindow(Window):
    """A window whose elements are copied into a row of a matrix, from images with channels last."""

    __slots__ = ()

    def pad(self, g: Builder, data: Value, image: Shape, filler: Value) -> Value:
        """Return images of this height and width, channels last, with the padding around them.

        `gather` needs rows of certain widths, so there may be further columns at the end.
        """
        top, left, bottom, right = self.make_attributes(image)["pads"]
        right += self._count_spare_columns(image[1] + left + right)
        pads = g.ints([0, top, left, 0, 0, bottom, right, 0])
        return g.Pad(data, pads, filler) if top + left + bottom + right else data

    def pad_size(self, image: Shape) -> Shape:
        """Return the height and the width of the images that `pad` returns."""
        top, left, bottom, right = self.make_attributes(image)["pads"]
        width = image[1] + left + right
        return (image[0] + top + bottom, width + self._count_spare_columns(width))

    def count_joined_pixels(self, width: int) -> int:
        """Return how many pixels of a padded row windows read and skip together."""
        joined = gcd(self.kernel[1], self.strides[1], width)
        return joined if self.dilations[1] == 1 else 1

    def gather(self, g: Builder, data: Value, image: Shape, steps: Shape) -> Value:
        """Return the elements of each window of padded images in place of their channels.

        `image` are the height, the width and the channels of `data`, channels last. The elements of
        a window are in this order, too. `steps` are the numbers of windows in a column and in a
        row.

        Gather copies one piece of memory for each index, so pieces should be large. Each piece is a
        row of a window: each row of the image is repeated, once for each column of a window, and
        the width of the row moves the next copy by one pixel to the left. So every row of a window
        is a whole piece in one of the copies. With dilations, another Gather first joins the pixels
        of a row of a window. If windows move by whole pieces of several pixels, these pieces are
        copied without repetition.
        """
        joined = self.count_joined_pixels(image[1])
        if joined > 1:
            image = (image[0], image[1] // joined, image[2] * joined)
            kernel, strides = ((pair[0], pair[1] // joined) for pair in (self.kernel, self.strides))
            pieces = self._replace(kernel=kernel, strides=strides)
            return pieces.gather(g, g.reshape(data, (-1, *image)), image, steps)
        (height, width), pixels = self.kernel, data
        rows, columns = (self._list_places(axis, steps[axis]) for axis in (0, 1))
        if height == 1:
            pixels = _gather_places(g, data, rows[:, 0], axis=1, size=image[0])
        if self._repeats_rows:
            pixels, row_size = g.Concat(*[data] * width, axis=2), image[1]
            copy, piece = columns[:, 0] % width, columns[:, 0] // width
            column = piece + copy * ((row_size + 1) // width)
        else:
            pixels = _gather_places(g, pixels, columns if width > 1 else columns[:, 0], 2, image[1])
            row_size, column = steps[1], np.arange(steps[1], dtype=np.int32)
        if height > 1:
            image_rows = g.reshape(pixels, (-1, image[0] * row_size, width * image[2]))
            first = g.constant(rows[:, None] * row_size)
            # The index is a constant, so the Add is folded.
            pixels = g.Gather(image_rows, g.Add(first, g.constant(column[:, None])), axis=1)
        if self.kernel == (1, 1):
            return pixels
        return g.reshape(pixels, (-1, *steps, height * width * image[2]))

    @property
    def _repeats_rows(self) -> bool:
        return min(self.kernel) > 1 == self.dilations[1]

    def _count_spare_columns(self, width: int) -> int:
        """Return the number of columns that `gather` adds to rows in order to repeat the rows.

        A copy begins one pixel before the end of a piece.
        """
        joined = self.count_joined_pixels(width)
        pieces = self.kernel[1] // joined
        return joined * (-(width // joined + 1) % pieces) if self._repeats_rows else 0

    def _list_places(self, axis: int, steps: int) -> Array:
        """Return the rows or columns that each window reads, int32 [steps, kernel]."""
        inner = np.arange(self.kernel[axis]) * self.dilations[axis]
        places: Array = np.arange(steps)[:, None] * self.strides[axis] + inner
        return places.astype(np.int32)


def _gather_places(g: Builder, data: Value, places: Array, axis: int, size: int) -> Value:
    """Return the rows or columns at these indices of an axis of this size."""
    if np.array_equal(places, np.arange(size)):
        return data
    return g.Gather(data, g.constant(places), axis=axis)


class AnyOrderOptions(WindowOptions):
    """With `any_order`, the data have channels first or last, in the order that others need."""

    codes = ("CONV_2D",)
    any_order: bool = False


class Convolution2D(Conv2D):
    """CONV_2D."""

    codes = ("CONV_2D",)

    def frames(self) -> Sequence[Frame]:
        frames = super().frames()
        if not self._takes_any_order:
            return frames
        data = Frame({0: LAST}, LAST, None, is_image, semantic=True, meaning=FIRST)
        return [*(frame for frame in frames if 0 not in frame.slots), data]

    def emit(self, g: Builder, y: View, x: View, w: View, b: View | None = None) -> Value:
        if self._takes_any_order:
            x = x.with_order(make_channels_first(x.rank))
        return super().emit(g, y, x, w, b)

    @property
    def _takes_any_order(self) -> bool:
        """Whether the data are transposed here. Those to round are, as integers (`round_data`)."""
        return self.op.read_made(AnyOrderOptions).any_order and not self._quantized


class IntegerConvolution(MadeOperator, Conv2D):
    """INTEGER_CONV_2D: CONV_2D of images whose integers are multiplied, with channels last."""

    codes = ("INTEGER_CONV_2D",)
    turns_columns = False

    def read_window(self) -> CopiedWindow:
        return CopiedWindow(*super().read_window())

    def supports_dynamic_axis(self, operand: int, axis: int) -> bool:
        # Images with symmetric quantization have constant zero points.
        return self.read_letters(operand)[axis] == "N" and self.has_zero_points

    def frames(self) -> Sequence[Frame]:
        names = tuple(self.read_letters(0))
        return [Frame({operand: names}, names, names) for operand in (0, ~0)]

    @cached_property
    def quantization(self) -> Product:
        return super().quantization._replace(hybrid="integers", folds=False)

    def emit(self, g: Builder, y: View, x: View, w: View, b: View | None = None) -> Value:
        window, image, outputs = self.read_window(), (x.size("H"), x.size("W")), w.tensor.shape[0]
        size = (*window.pad_size(image), x.size("C"))
        if x.sizes[0] == 1 or self.op.read_made(WindowOptions).data_are_positive:
            rows = self.quantize_images(g, x, x.value)
            zero = rows.zero_point or g.scalar(0, DType.UINT8)
            framed = window.pad(g, rows.integers, image, zero)
        else:  # Each image has its own zero point, so the pads are real zeros.
            filled = window.pad(g, x.value, image, g.scalar(0, DType.FLOAT32))
            rows = self.quantize_images(
                g, x, g.annotate(filled, DType.FLOAT32, (x.sizes[0], *size))
            )
            framed = rows.integers
        windows = window.gather(g, framed, size, y.tensor.shape[1:3])
        columns = w.with_order((1, 2, 3, 0)).reshape((w.tensor.elements // outputs, outputs))
        images = rows._replace(integers=windows)
        is_zero = b is None or (b.tensor.has_data and not b.tensor.values.any())
        bias = None if b is None or is_zero else b.value
        if is_zero and rows.is_one and self.activation in BOUNDS:
            # ONNX Runtime fuses no integer MatMul that is directly before Relu or Clip, and would
            # dequantize the weights in each run: an Add of zeros separates them.
            bias = g.constant(np.zeros(outputs, np.float32))
        return _multiply_images(g, images, w, columns, bias, y.tensor.shape[2])


def _multiply_images(
    g: Builder, x: QuantizedRows, weights: View, columns: Value, bias: Value | None, width: int
) -> Value:
    """Return images, channels last, times weights [outputs, ...], plus a bias [outputs].

    Each image is a row of x: all pixels of an image have one scale. `columns` are the real numbers
    of the weights, [channels, outputs]. The product is of integers. Its bias has more than one
    axis, because runtimes make Gemm of MatMul and a bias of one axis.

    The bias is expanded to the `width` of the images: each step of a kernel's loop then adds one
    row in place of one pixel, which is faster (docs/quantization.md).
    """
    shape, line = (1, 1, 1, -1), g.ints([1, 1, width, 1])
    if x.is_one:
        product = g.MatMul(x.dequantize(g), columns)
    else:
        scale = g.Unsqueeze(x.scale, [1, 2, 3])
        product = g.Mul(multiply_integers(g, x, columns), scale)
        if x.offsets is not None:
            sums = g.constant(negate_column_sums(weights, 0))
            bias = g.Gemm(scale_offsets(g, x), sums, bias, transA=1)
            shape = (-1, 1, 1, weights.tensor.shape[0])
    return product if bias is None else g.Add(product, g.Expand(g.reshape(bias, shape), line))

"""Max pooling with indices, and its inverse: MediaPipe's and LiteRT's perception operators.

MediaPipe's indices are positions in the window, as float32 plus 0.1, so that they can be rounded
down. The indices of LiteRT's operators are positions in the whole image, channels last. Of equal
elements the first is the maximum, in the kernels and in ONNX.
"""

import math
from collections.abc import Collection, Sequence

import numpy as np

from tflite2onnx.builder.builder import Operand
from tflite2onnx.layout import Frame
from tflite2onnx.op.base import Builder, OutputShape, Value, View
from tflite2onnx.op.common.checks import check_element_count, expect_type
from tflite2onnx.op.common.runtime_shapes import multiply_sizes, take_entries
from tflite2onnx.op.common.windows import (
    ImageOperator,
    Window,
    build_window,
    find_activation,
    find_padding,
    read_image,
    read_int32_fields,
    read_window_lists,
)
from tflite2onnx.op.vision.pool import Pool
from tflite2onnx.tensor import Array, DType, Shape

_IMAGE = 4  # axes


class _MaxPool(Pool):
    """Base class of the pooling operators: outputs are the maxima and their indices."""

    operands = "float32 -> float32, any"
    tflite = "NHWC -> NHWC, NHWC"
    onnx = "NCHW -> NCHW, NCHW"
    returns_tuple = True
    dynamic_axes = "N"
    index_type = DType.INT32

    def infer_outputs(self) -> Sequence[OutputShape]:
        return [*super().infer_outputs()] * 2

    def check(self) -> None:
        expect_type(self.op.outputs[1], (self.index_type,))

    def pool_with_indices(self, g: Builder, x: View) -> tuple[Value, Value]:
        """Return the maxima, and their indices in the image, int64: row * width + column."""
        image, window = self.read_window().place(g, x, x)
        values, indices = g.add("MaxPool", 2, [image], {k: v for k, v in window.items() if v})
        indices = g.Mod(indices, self._count_pixels(g, x, image))
        if image is x:
            return values, indices
        # Without the last columns, which no window reads, the rows of the image are shorter.
        whole, part = (take_entries(g, g.Shape(v), [x.axis(2)]) for v in (x, image))
        rows, columns = g.Div(indices, part), g.Mod(indices, part)
        return values, g.Add(g.Mul(rows, whole), columns)

    @staticmethod
    def _count_pixels(g: Builder, x: View, image: Operand, channels: int = 1) -> Value:
        """Return the number of elements of an image, height * width * channels."""
        if not {1, 2} & x.tensor.symbols.keys():
            return g.scalar(math.prod(read_image(x)) * channels, DType.INT64)
        pixels = multiply_sizes(g, take_entries(g, g.Shape(image), [x.axis(1), x.axis(2)]))
        return pixels if channels == 1 else g.Mul(pixels, [channels])


class MaxPoolWithArgmax(_MaxPool):
    """MaxPoolWithArgmax: maxima, and their indices in the image, channels last.

    TensorFlow's `include_batch_in_index`, which LiteRT's kernel refuses, counts all images.
    """

    codes = ("MaxPoolWithArgmax",)
    dynamic_axes = "NHW"

    def read_window(self) -> Window:
        return read_window_lists(self.options, _IMAGE)

    def check(self) -> None:
        check_element_count(self.sizes(0)["C"])
        super().check()

    def find_mixed_axes(self, operand: int) -> Collection[int] | None:
        return range(4) if self._counts_images else super().find_mixed_axes(operand)

    @property
    def _counts_images(self) -> bool:
        return bool(self.options.get("include_batch_in_index", False))

    def emit(self, g: Builder, ys: tuple[View, View], x: View) -> tuple[Value, Value]:
        values, indices = self.pool_with_indices(g, x)
        channels = x.size("C")
        offsets = np.arange(channels).reshape(1, channels, 1, 1)
        indices = g.Add(g.Mul(indices, channels), offsets)
        if self._counts_images:
            size = self._count_pixels(g, x, x, channels)
            images = g.Mul(g.Range(0, g.Gather(g.Shape(x), 0), 1), size)
            indices = g.Add(indices, g.Unsqueeze(images, [1, 2, 3]))
        return values, g.cast(indices, DType.INT32)


class MaxPoolingWithArgmax2D(_MaxPool):
    """MaxPoolingWithArgmax2D: maxima, and their indices in the windows."""

    codes = ("MaxPoolingWithArgmax2D",)
    index_type = DType.FLOAT32

    def read_window(self) -> Window:
        return _read_window(self)[0]

    @property
    def activation(self) -> str:
        return find_activation(read_int32_fields(self, 6)[5])

    def emit(self, g: Builder, ys: tuple[View, View], x: View) -> tuple[Value, Value]:
        values, indices = self.pool_with_indices(g, x)
        rows, columns = _find_origins(self.read_window(), read_image(x), read_image(ys[0]))
        width = x.size("W")
        row, column = g.Sub(g.Div(indices, width), rows), g.Sub(g.Mod(indices, width), columns)
        index = g.cast(g.Add(g.Mul(row, self.read_window().kernel[1]), column), DType.FLOAT32)
        return values, g.Add(index, g.scalar(0.1, DType.FLOAT32))


class MaxUnpooling2D(ImageOperator):
    """MaxUnpooling2D: write elements to the positions of the maxima; all other elements are 0.

    Two operators share the name. MediaPipe's operator takes indices in the windows, as float32.
    LiteRT's operator, LiteRtMaxUnpooling2D in later files, takes indices in its output, as int32.
    If two elements have the same index, the last element in TFLite's order is written.
    """

    codes = ("MaxUnpooling2D", "LiteRtMaxUnpooling2D")
    tflite = "NHWC, NHWC -> NHWC"
    onnx = "NCHW, NCHW -> NCHW"
    operands = "float32 [...], any [...] -> float32"

    @property
    def _in_windows(self) -> bool:
        return self.input(1).dtype is DType.FLOAT32

    def infer_outputs(self) -> Sequence[OutputShape]:
        (window, is_same), x = _read_window(self), self.sizes(0)
        axes = list(zip((x["H"], x["W"]), window.kernel, window.strides, strict=True))
        if self._in_windows:
            image = tuple(n * kernel for n, kernel, _ in axes)
        elif is_same:
            image = tuple(n * stride for n, _, stride in axes)
        else:
            image = tuple((n - 1) * stride + kernel for n, kernel, stride in axes)
        return [(x["N"], *image, x["C"])]

    def check(self) -> None:
        expect_type(self.input(1), (DType.FLOAT32 if self._in_windows else DType.INT32,))

    def frames(self) -> Sequence[Frame]:
        return super().frames() if self._in_windows else []

    def emit(self, g: Builder, y: View, x: View, indices: View) -> Value:
        if self._in_windows:
            positions, lead = self._find_in_image(g, y, indices), x.shape[:2]
        else:
            positions, lead = g.cast(indices, DType.INT64), x.shape[:1]
        rows = (*lead, -1)
        flat_shape = [*lead, int(np.prod(y.shape[len(lead) :]))]
        zeros = g.Expand(g.scalar(0, DType.FLOAT32), flat_shape)
        values, positions = (g.reshape(v, rows) for v in (x, positions))
        return g.reshape(g.ScatterElements(zeros, positions, values, axis=len(lead)), y.shape)

    def _find_in_image(self, g: Builder, y: View, indices: View) -> Value:
        """Return indices in windows as indices in the image: row * width + column."""
        window, _ = _read_window(self)
        rows, columns = _find_origins(window, read_image(y), read_image(indices))
        width, index = window.kernel[1], g.cast(indices, DType.INT64)
        row, column = g.Add(g.Div(index, width), rows), g.Add(g.Mod(index, width), columns)
        return g.Add(g.Mul(row, y.size("W")), column)


def _read_window(operator: ImageOperator) -> tuple[Window, bool]:
    """Return the window of a TfLitePoolParams, and whether its padding is SAME."""
    padding, stride_w, stride_h, width, height = read_int32_fields(operator, 5)
    window = build_window((height, width), (stride_h, stride_w), (1, 1), find_padding(padding))
    return window, window.same


def _find_origins(window: Window, image: Shape, pooled: Shape) -> tuple[Array, Array]:
    """Return the first row and column of each window, in shapes that broadcast with NCHW.

    The formula is taken from ComputePadding in LiteRT's kernels/padding.h.
    """
    check_element_count(sum(pooled))
    origins = []
    axes = zip(image, pooled, window.kernel, window.strides, strict=True)
    for size, count, kernel, stride in axes:
        before = max((count - 1) * stride + kernel - size, 0) // 2
        origins.append(np.arange(count) * stride - before)
    rows, columns = origins
    return rows.reshape(1, 1, -1, 1), columns.reshape(1, 1, 1, -1)

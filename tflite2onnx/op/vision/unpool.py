"""Pooling that says where its maxima were, and its reverse: MediaPipe's and LiteRT's perception.

The two count places in different ways: MediaPipe within the window, as float32 with 0.1 on top
(so that it can be rounded down), perception within the whole image, channels last. Of equal
elements the first is the maximum, in the kernels and in ONNX.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from tflite2onnx.layout import Frame
from tflite2onnx.op.base import Builder, OperatorError, Value, View
from tflite2onnx.op.common.c_struct_options import activation_of, padding_of, read_int32_fields
from tflite2onnx.op.common.checks import check_element_count, expect
from tflite2onnx.op.common.windows import (
    ImageOperator,
    Window,
    build_window,
    image_of,
    window_from_lists,
)
from tflite2onnx.tensor import Array, DType, Shape

_IMAGE = 4  # axes


class _MaxPool(ImageOperator):
    """What both ways of pooling have in common: values, and where they were."""

    custom = True
    tflite = "NHWC -> NHWC, NHWC"
    onnx = "NCHW -> NCHW, NCHW"
    returns_tuple = True
    places = DType.INT32

    @cached_property
    def _window(self) -> Window:
        raise NotImplementedError

    def infer_outputs(self) -> Sequence[Shape]:
        x = self.sizes(0)
        made = (x["N"], *self._window.steps((x["H"], x["W"])), x["C"])
        return [made, made]

    def check(self) -> None:
        values, places = self.op.outputs
        expect(self.input(0), self.input(0).shape, DType.FLOAT32)
        expect(values, self.infer_outputs()[0], DType.FLOAT32)
        expect(places, self.infer_outputs()[1], self.places)

    def pool_with_indices(self, g: Builder, x: View) -> tuple[Value, Value]:
        """Return the maxima, and their places in the image as rows * width + column."""
        height, width = image_of(x)
        window = self._window.attributes((height, width))
        values, places = g.add("MaxPool", 2, [x], {k: v for k, v in window.items() if v})
        return values, g.Mod(places, g.scalar(height * width, DType.INT64))


class MaxPoolWithArgmax(_MaxPool):
    """MaxPoolWithArgmax: maxima, and their places in the image with all its channels."""

    codes = ("MaxPoolWithArgmax",)

    @cached_property
    def _window(self) -> Window:
        return window_from_lists(self.options, _IMAGE)

    def check(self) -> None:
        if self.options.get("include_batch_in_index", False):
            raise OperatorError(
                "places that count the images of a batch are not supported, by LiteRT either"
            )
        check_element_count(self.sizes(0)["C"])
        super().check()

    def emit(self, g: Builder, ys: tuple[View, View], x: View) -> tuple[Value, Value]:
        values, places = self.pool_with_indices(g, x)
        channels = x.size("C")
        each = np.arange(channels).reshape(1, channels, 1, 1)
        places = g.Add(g.Mul(places, g.scalar(channels, DType.INT64)), each)
        return values, g.cast(places, DType.INT32)


class MaxPoolingWithArgmax2D(_MaxPool):
    """MaxPoolingWithArgmax2D: maxima, and their places in the windows."""

    codes = ("MaxPoolingWithArgmax2D",)
    places = DType.FLOAT32

    @cached_property
    def _window(self) -> Window:
        return _read_window(self)[0]

    @property
    def activation(self) -> str:
        return activation_of(read_int32_fields(self, 6)[5])

    def emit(self, g: Builder, ys: tuple[View, View], x: View) -> tuple[Value, Value]:
        values, places = self.pool_with_indices(g, x)
        rows, columns = _origins(self._window, image_of(x), image_of(ys[0]))
        width = g.scalar(x.size("W"), DType.INT64)
        within = g.scalar(self._window.kernel[1], DType.INT64)
        y, x_ = g.Sub(g.Div(places, width), rows), g.Sub(g.Mod(places, width), columns)
        index = g.cast(g.Add(g.Mul(y, within), x_), DType.FLOAT32)
        return values, g.Add(index, g.scalar(0.1, DType.FLOAT32))


class MaxUnpooling2D(ImageOperator):
    """MaxUnpooling2D: puts elements back where they were the maxima; all else is 0.

    Two operators share the name. That of MediaPipe is given places in windows, as float32; that
    of perception, LiteRtMaxUnpooling2D in later files, places in the image it makes, as int32.
    Where two elements meet the last one stays, in TFLite's order.
    """

    codes = ("MaxUnpooling2D", "LiteRtMaxUnpooling2D")
    custom = True
    tflite = "NHWC, NHWC -> NHWC"
    onnx = "NCHW, NCHW -> NCHW"

    @property
    def _in_windows(self) -> bool:
        return self.input(1).dtype is DType.FLOAT32

    def infer_outputs(self) -> Sequence[Shape]:
        (window, same), x = _read_window(self), self.sizes(0)
        pairs = list(zip((x["H"], x["W"]), window.kernel, window.strides, strict=True))
        if self._in_windows:
            image = tuple(n * kernel for n, kernel, _ in pairs)
        elif same:
            image = tuple(n * stride for n, _, stride in pairs)
        else:
            image = tuple((n - 1) * stride + kernel for n, kernel, stride in pairs)
        return [(x["N"], *image, x["C"])]

    def check(self) -> None:
        x, places = self.input(0), self.input(1)
        expect(x, x.shape, DType.FLOAT32)
        expect(places, x.shape, DType.FLOAT32 if self._in_windows else DType.INT32)
        expect(self.output, self.infer_outputs()[0], DType.FLOAT32)

    def frames(self) -> Sequence[Frame]:
        return super().frames() if self._in_windows else []

    def emit(self, g: Builder, y: View, x: View, places: View) -> Value:
        if self._in_windows:
            where, lead = self._in_image(g, y, places), x.shape[:2]
        else:
            where, lead = g.cast(places, DType.INT64), x.shape[:1]
        flat = (*lead, -1)
        room = (*lead, int(np.prod(y.shape[len(lead) :])))
        empty = g.Expand(g.scalar(0, DType.FLOAT32), g.ints(room))
        values, where = (g.reshape(v, flat) for v in (x, where))
        return g.reshape(g.ScatterElements(empty, where, values, axis=len(lead)), y.shape)

    def _in_image(self, g: Builder, y: View, places: View) -> Value:
        """Return places in windows as places in the image: rows * width + column."""
        window, _ = _read_window(self)
        rows, columns = _origins(window, image_of(y), image_of(places))
        width = g.scalar(window.kernel[1], DType.INT64)
        index = g.cast(places, DType.INT64)
        row, column = g.Add(g.Div(index, width), rows), g.Add(g.Mod(index, width), columns)
        return g.Add(g.Mul(row, g.scalar(y.size("W"), DType.INT64)), column)


def _read_window(operator: ImageOperator) -> tuple[Window, bool]:
    """Return the window of a TfLitePoolParams, and whether its padding is SAME."""
    padding, stride_w, stride_h, width, height = read_int32_fields(operator, 5)
    window = build_window((height, width), (stride_h, stride_w), (1, 1), padding_of(padding))
    return window, window.same


def _origins(window: Window, image: Shape, places: Shape) -> tuple[Array, Array]:
    """Return the rows and the columns at which the windows begin, shaped to be added to NCHW.

    The formula is ComputePadding's, of LiteRT's kernels/padding.h.
    """
    check_element_count(sum(places))
    begins = []
    for size, count, kernel, stride in zip(
        image, places, window.kernel, window.strides, strict=True
    ):
        before = max((count - 1) * stride + kernel - size, 0) // 2
        begins.append(np.arange(count) * stride - before)
    rows, columns = begins
    return rows.reshape(1, 1, -1, 1), columns.reshape(1, 1, 1, -1)

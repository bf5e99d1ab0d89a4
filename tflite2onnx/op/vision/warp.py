"""Images sampled at places that are computed: MediaPipe's, and LiteRT's perception operators."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tflite2onnx.op.base import Builder, OperatorError, Value, View
from tflite2onnx.op.common.checks import check_element_count, expect
from tflite2onnx.op.common.windows import ImageOperator, image_of
from tflite2onnx.tensor import Array, DType, Shape

_XY = 2
_MATRIX = 16  # elements


class _Warp(ImageOperator):
    """What all have in common: an image, and float32 throughout; the places keep their order."""

    custom = True
    tflite = "NHWC -> NHWC"
    onnx = "NCHW -> NCHW"

    def check(self) -> None:
        for tensor in (self.input(0), self.input(1), self.output):
            expect(tensor, tensor.shape, DType.FLOAT32)
        self.sizes(0)


class Resampler(_Warp):
    """Resampler: the image at (x, y) of each pixel; outside of it all is 0."""

    codes = ("Resampler",)

    def infer_outputs(self) -> Sequence[Shape]:
        return [self.input(0).shape]

    def check(self) -> None:
        super().check()
        expect(self.input(1), (*self.input(0).shape[:3], _XY), DType.FLOAT32)
        expect(self.output, self.input(0).shape, DType.FLOAT32)

    def emit(self, g: Builder, y: View, x: View, places: View) -> Value:
        return _sample_pixels(g, x, places.value, padding="zeros")


class DenseImageWarp(_Warp):
    """DenseImageWarp: each pixel is taken from where a (y, x) flow points back to, or the border.

    An image of one row or column has no two to weigh; the kernel refuses it.
    """

    codes = ("DenseImageWarp",)

    def infer_outputs(self) -> Sequence[Shape]:
        return [self.input(0).shape]

    def check(self) -> None:
        super().check()
        x = self.sizes(0)
        if min(x["H"], x["W"]) < 2:
            raise OperatorError(f"an image of {x['H'], x['W']} is too small")
        check_element_count(x["H"] * x["W"] * _XY)
        expect(self.input(1), (*self.input(0).shape[:3], _XY), DType.FLOAT32)
        expect(self.output, self.input(0).shape, DType.FLOAT32)

    def emit(self, g: Builder, y: View, x: View, flow: View) -> Value:
        height, width = image_of(x)
        own = np.stack(np.meshgrid(np.arange(height), np.arange(width), indexing="ij"), -1)
        places = g.Sub(own[None].astype(np.float32), flow)
        swapped = g.Gather(places, g.ints([1, 0]), axis=3)
        return _sample_pixels(g, x, swapped, padding="border")


class TransformTensor(_Warp):
    """TransformTensor, TransformTensorBilinear: an image in the coordinates of a matrix.

    Pixel (x, y) is taken from the first two rows of the matrix times (x, y, 0, 1); it is 0 if
    that is beyond the centres of the pixels at the border. In version 2 pixels are counted by
    their centres, half a pixel from the corner.
    """

    codes = ("TransformTensor", "TransformTensorBilinear")

    def check(self) -> None:
        super().check()
        x, y = self.sizes(0), self.sizes(~0)
        if x["N"] != 1 or y["N"] != 1 or x["C"] != y["C"] or self.input(1).elements != _MATRIX:
            tensors = (self.input(0), self.input(1), self.output)
            raise OperatorError(
                "image, matrix and output are {}, {}, {}".format(*(list(t.shape) for t in tensors))
            )
        if self.options.get("mode", "bilinear") != "bilinear":
            raise OperatorError(f"its mode is {self.options.mode}, not bilinear")
        check_element_count(y["H"] + y["W"])

    def emit(self, g: Builder, y: View, x: View, matrix: View) -> Value:
        rows = g.node_outputs("Split", 4, g.reshape(matrix, [4, 4]), g.ints([1, 1, 1, 1]), axis=0)
        height, width = image_of(y)
        across = np.arange(width, dtype=np.float32).reshape(1, width)
        down = np.arange(height, dtype=np.float32).reshape(height, 1)
        xs, ys = (self._transform_coordinate(g, row, across, down) for row in rows[:2])
        last = [size - 1 for size in image_of(x)[::-1]]
        within = [
            inside
            for place, most in zip((xs, ys), last, strict=True)
            for inside in (
                g.GreaterOrEqual(place, g.scalar(0, DType.FLOAT32)),
                g.LessOrEqual(place, g.scalar(most, DType.FLOAT32)),
            )
        ]
        taken = g.And(g.And(within[0], within[1]), g.And(within[2], within[3]))
        places = g.Concat(*(g.Unsqueeze(v, g.ints([0, 3])) for v in (xs, ys)), axis=3)
        sampled = _sample_pixels(g, x, places, padding="border")
        return g.Where(taken, sampled, g.scalar(0, DType.FLOAT32))

    def _transform_coordinate(self, g: Builder, row: Value, across: Array, down: Array) -> Value:
        """Return one coordinate of all pixels, [height, width]."""
        by_x, by_y, _, shift = g.node_outputs("Split", 4, row, g.ints([1, 1, 1, 1]), axis=1)
        if self.op.version > 1:
            half = g.scalar(0.5, DType.FLOAT32)
            shift = g.Add(shift, g.Sub(g.Add(g.Mul(by_x, half), g.Mul(by_y, half)), half))
        return g.Add(g.Add(g.Mul(by_x, across), g.Mul(by_y, down)), shift)


def _sample_pixels(g: Builder, image: View, places: Value, *, padding: str) -> Value:
    """Return an image, NCHW, at places, [N, height, width, (x, y)], counted in pixels.

    ONNX counts from -1 to 1, from the outer border of the first pixel to that of the last: that
    way it makes sense of an image of one pixel, too.
    """
    height, width = image_of(image)
    sizes = np.array([width, height], np.float32)
    # (2 p + 1) / size - 1
    scaled = g.Add(g.Mul(places, 2 / sizes), 1 / sizes - 1)
    return g.GridSample(image, scaled, align_corners=0, mode="bilinear", padding_mode=padding)

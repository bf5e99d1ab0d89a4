"""Sampling of images at computed positions: MediaPipe's and LiteRT's perception operators."""

import numpy as np

from tflite2onnx.op.base import Builder, OperatorError, Value, View
from tflite2onnx.op.common.checks import check_element_count
from tflite2onnx.op.common.windows import ImageOperator, read_image
from tflite2onnx.tensor import Array, DType

_XY = 2
_MATRIX = 16  # elements


class _Warp(ImageOperator):
    """Base class: an image and positions, all float32; the positions keep TFLite's order."""

    tflite = "NHWC -> NHWC"
    onnx = "NCHW -> NCHW"

    def check(self) -> None:
        self.sizes(0)


class Resampler(_Warp):
    """Resampler: sample the image at the (x, y) of each pixel; 0 outside of the image.

    The output of GPU delegates has as many pixels as there are positions. MediaPipe's kernel needs
    a position for each pixel of the image.
    """

    codes = ("Resampler",)
    operands = (
        "float32 [batch rows columns channels], float32 [batch height width 2]"
        "-> float32 [batch height width channels]"
    )

    def emit(self, g: Builder, y: View, x: View, positions: View) -> Value:
        return _sample_pixels(g, x, positions.value, padding="zeros")


class DenseImageWarp(_Warp):
    """DenseImageWarp: sample the image at each pixel minus its (y, x) flow, or at the border.

    The kernel rejects an image of one row or column, because it interpolates between two rows and
    two columns.
    """

    codes = ("DenseImageWarp",)
    keeps_shape = True
    operands = "float32 [batch rows columns channels], float32 [batch rows columns 2] -> float32"

    def check(self) -> None:
        x = self.sizes(0)
        if min(image := (x["H"], x["W"])) < 2:
            raise OperatorError(f"its image must have at least 2 rows and 2 columns, got {image}")
        check_element_count(x["H"] * x["W"] * _XY)

    def emit(self, g: Builder, y: View, x: View, flow: View) -> Value:
        height, width = read_image(x)
        grid = np.stack(np.meshgrid(np.arange(height), np.arange(width), indexing="ij"), -1)
        positions = g.Sub(grid[None].astype(np.float32), flow)
        swapped = g.Gather(positions, [1, 0], axis=3)
        return _sample_pixels(g, x, swapped, padding="border")


class TransformTensor(_Warp):
    """TransformTensor and TransformTensorBilinear: sample an image at positions given by a matrix.

    Output pixel (x, y) is the image at the first two rows of the matrix times (x, y, 0, 1), or 0 if
    that position is beyond the centres of the border pixels. In version 2 the coordinates of a
    pixel are the coordinates of its centre, half a pixel from its corner.
    """

    codes = ("TransformTensor", "TransformTensorBilinear")
    operands = "float32, float32 -> float32"

    def check(self) -> None:
        super().check()
        x, y = self.sizes(0), self.sizes(~0)
        if x["N"] != 1 or y["N"] != 1 or x["C"] != y["C"] or self.input(1).elements != _MATRIX:
            shapes = [list(t.shape) for t in (self.input(0), self.input(1), self.output)]
            raise OperatorError(
                f"image and output must have a batch of 1 and the same channels, and the matrix 16 "
                f"elements, got {shapes[0]}, {shapes[2]} and {shapes[1]}"
            )
        if self.options.get("mode", "bilinear") != "bilinear":
            raise OperatorError(f"its mode must be bilinear, got {self.options.mode}")
        check_element_count(y["H"] + y["W"])

    def emit(self, g: Builder, y: View, x: View, matrix: View) -> Value:
        rows = g.node_outputs("Split", 4, g.reshape(matrix, [4, 4]), [1, 1, 1, 1], axis=0)
        height, width = read_image(y)
        across = np.arange(width, dtype=np.float32).reshape(1, width)
        down = np.arange(height, dtype=np.float32).reshape(height, 1)
        xs, ys = (self._transform_coordinate(g, row, across, down) for row in rows[:2])
        last = [size - 1 for size in read_image(x)[::-1]]
        bounds: list[Value] = []
        for coordinate, limit in zip((xs, ys), last, strict=True):
            bounds.append(g.GreaterOrEqual(coordinate, g.scalar(0, DType.FLOAT32)))
            bounds.append(g.LessOrEqual(coordinate, g.scalar(limit, DType.FLOAT32)))
        is_inside = g.And(g.And(bounds[0], bounds[1]), g.And(bounds[2], bounds[3]))
        positions = g.Concat(*(g.Unsqueeze(v, [0, 3]) for v in (xs, ys)), axis=3)
        sampled = _sample_pixels(g, x, positions, padding="border")
        return g.Where(is_inside, sampled, g.scalar(0, DType.FLOAT32))

    def _transform_coordinate(self, g: Builder, row: Value, across: Array, down: Array) -> Value:
        """Return one coordinate of the position of each pixel, float32 [height, width]."""
        by_x, by_y, _, shift = g.node_outputs("Split", 4, row, [1, 1, 1, 1], axis=1)
        if self.op.version > 1:
            half = g.scalar(0.5, DType.FLOAT32)
            shift = g.Add(shift, g.Sub(g.Add(g.Mul(by_x, half), g.Mul(by_y, half)), half))
        return g.Add(g.Add(g.Mul(by_x, across), g.Mul(by_y, down)), shift)


def _sample_pixels(g: Builder, image: View, positions: Value, *, padding: str) -> Value:
    """Return an image, NCHW, sampled at positions, [N, height, width, (x, y)], in pixels.

    GridSample's coordinates are -1 at the outer border of the first pixel and 1 at the outer
    border of the last (align_corners=0), which also works for an image of one pixel.
    """
    height, width = read_image(image)
    sizes = np.array([width, height], np.float32)
    # (2 p + 1) / size - 1
    scaled = g.Add(g.Mul(positions, 2 / sizes), 1 / sizes - 1)
    return g.sample_grid(image, scaled, padding=padding)

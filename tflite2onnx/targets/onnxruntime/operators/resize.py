"""Resizing of images with channels last, and of integers as images of one channel."""

from collections.abc import Sequence
from operator import mul

from tflite2onnx.builder.builder import Builder, Value, View
from tflite2onnx.layout import make_identity
from tflite2onnx.op.vision import resize
from tflite2onnx.tensor import DType

_WIDE, _BLOCK = 8, 4  # channels
# Copies of a pixel are inputs of a node, and bytes of the file. They are always faster than Resize:
# 8 of 8x8 pixels of 16 channels take 6 us in place of 54, and 32 take 12 in place of 984 (AMD EPYC,
# family 25, model 17).
_MOST_COPIES = 1 << 8


class ChannelsLastBilinear(resize.ResizeBilinear):
    """RESIZE_BILINEAR of float32 images with channels last, where that is faster."""

    def interpolate(self, g: Builder, y: View, x: View, size: View) -> Value:
        return (
            self._resize_rows(g, y, x)
            if self._suits_rows(y, x)
            else super().interpolate(g, y, x, size)
        )

    def _suits_rows(self, y: View, x: View) -> bool:
        """Return whether the kernel for channels last is faster.

        The kernel reads and writes all channels of a pixel at once. Convolutions around a Resize
        take about as long to make and read channels last as channels first. ONNX Runtime resizes to
        a multiple in the blocks of convolutions, if the number of channels is a multiple of 4.
        """
        if self.input(0).dtype is not DType.FLOAT32 or x.tensor.symbols or y.tensor.symbols:
            return False
        multiple = all(new % old == 0 for old, new in zip(x.shape[2:], y.shape[2:], strict=True))
        channels = x.shape[1]
        return channels >= _WIDE and not (multiple and channels % _BLOCK == 0)

    def _resize_rows(self, g: Builder, y: View, x: View) -> Value:
        """Return a Resize of [N, H, W, C].

        ONNX Runtime moves Transposes through Resize. A Reshape to the same shape prevents this.
        """
        shapes = [g.ints([n, h, w, c]) for n, c, h, w in (x.shape, y.shape)]
        (rows,) = g.node_outputs("Reshape", 1, g.Transpose(x, perm=[0, 2, 3, 1]), shapes[0])
        resized = g.Resize(
            rows, None, None, shapes[1], mode="linear", coordinate_transformation_mode=self.mode
        )
        (resized,) = g.node_outputs("Reshape", 1, resized, shapes[1])
        return g.Transpose(resized, perm=[0, 3, 1, 2])


class ChannelsLastNearest(resize.ResizeNearest):
    """RESIZE_NEAREST_NEIGHBOR: 8-bit integers with channels last, or as an image for each channel.

    ONNX Runtime stores the channels of quantized networks last, and moves its Transposes through a
    Resize of [N, C, H, W], which then takes 30 times as long. Resizing to a multiple joins copies
    of pixels and of rows, whose Transposes cancel those of the convolutions around it. Otherwise
    the channels become the batch of the Resize, and a Reshape stops the Transposes.
    """

    def emit_nearest(self, g: Builder, y: View, x: View, size: View, mode: str) -> Value:
        if x.dtype not in resize.BYTES or x.tensor.symbols or y.tensor.symbols:
            return super().emit_nearest(g, y, x, size, mode)
        n, c, *image = x.shape
        factors = [new // old for new, old in zip(y.shape[2:], image, strict=True)]
        is_multiple = y.shape == (n, c, *map(mul, image, factors))
        # With align_corners 3 pixels become the 9 pixels 1 1 2 2 2 2 3 3 3.
        if is_multiple and mode == "asymmetric" and max(factors) <= _MOST_COPIES:
            return _repeat_pixels(g, y, x, factors)
        shape, attributes = g.ints([n * c, 1, *y.shape[2:]]), resize.list_nearest_attributes(mode)
        resized = g.Resize(x.reshape((n * c, 1, *image)), None, None, shape, **attributes)
        return g.reshape(resized, y.sizes)


def _repeat_pixels(g: Builder, y: View, x: View, factors: Sequence[int]) -> Value:
    """Return an image whose pixels are repeated down and to the right, [N, C, H, W]."""
    n, h, w, c = x.tensor.shape
    down, right = factors
    rows = g.reshape(x.with_order(make_identity(4)).value, [n * h * w, c])
    rows = g.Concat(*right * [rows], axis=1)
    rows = g.reshape(rows, [n * h, right * w * c])
    rows = g.reshape(g.Concat(*down * [rows], axis=1), y.tensor.shape)
    return g.Transpose(g.annotate(rows, x.dtype, y.tensor.shape), perm=[0, 3, 1, 2])

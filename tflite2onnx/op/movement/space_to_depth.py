"""SPACE_TO_DEPTH and DEPTH_TO_SPACE: blocks of pixels become channels, and back."""

from __future__ import annotations

from collections.abc import Sequence

from tflite2onnx.builder.builder import Builder, Value, View
from tflite2onnx.layout import Frame, identity
from tflite2onnx.op.base import OperatorError, OutputShape
from tflite2onnx.op.common.checks import expect_type
from tflite2onnx.op.common.windows import ImageOperator
from tflite2onnx.quantization.declarations import Moves
from tflite2onnx.tensor import DType

_WIDE = 8  # channels


class Blocks(ImageOperator):
    """Base of both directions.

    The channels of one pixel of a block are consecutive, ONNX's mode DCR. ONNX Runtime implements
    the nodes for few types besides float32, and with channels first. For other types, and with
    channels last, the axes are split, transposed and merged with the channels last, where whole
    rows of pixels move: 6 axes of NCHW take ten times as long, and ONNX Runtime stores the channels
    of quantized networks last. DEPTH_TO_SPACE of float32 has this form, too, if it makes 8 channels
    or more: 64 to 16 channels between two convolutions take 0.57 of the time, 16 to 4 channels
    0.87, 12 to 3 channels 1.05 (AMD EPYC, family 26).
    """

    quantization = Moves()

    def supports_dynamic_axis(self, operand: int, axis: int) -> bool:
        # Where axes are split, Reshape can infer one size: that of the batch.
        return self.input(0).dtype is DType.FLOAT32 or super().supports_dynamic_axis(operand, axis)

    def _swap_rows(self, g: Builder, y: View, x: View, split: Sequence[int]) -> Value:
        """Return the pixels [rows, a, b, c] as [rows, b, a, c]; `split` is (a, b, c)."""
        last = identity(x.rank)
        pixels = x if x.order == last else g.Transpose(x, perm=[0, 2, 3, 1])
        rows = g.Transpose(g.reshape(pixels, [-1, *split]), perm=[0, 2, 1, 3])
        made = g.reshape(rows, y.in_order(last).sizes)
        return made if y.order == last else g.Transpose(made, perm=[0, 3, 1, 2])

    def block(self) -> int:
        """Return the height and width of a block, in pixels."""
        size = int(self.options.block_size)
        if size < 1:
            raise OperatorError(f"block_size must be at least 1, got {size}")
        return size


class DepthToSpace(Blocks):
    """DEPTH_TO_SPACE: channels become the pixels of blocks.

    Passes set the option `mode` to ONNX's other sequence of channels, of float32 elements, and the
    option `channels_last` behind an operator that computes images with channels last.
    """

    codes = ("DEPTH_TO_SPACE",)

    def frames(self) -> Sequence[Frame]:
        if not self.options.get("channels_last"):
            return super().frames()
        names = tuple(self.axis_letters(0))
        return [Frame({0: names, ~0: names}, names, names)]

    def infer_outputs(self) -> Sequence[OutputShape]:
        x, size = self.sizes(0), self.block()
        return [(x["N"], x["H"] * size, x["W"] * size, x["C"] // (size * size))]

    def check(self) -> None:
        x, size = self.sizes(0), self.block()
        if x["C"] % (size * size):
            raise OperatorError(f"channels must be a multiple of {size * size}, got {x['C']}")
        expect_type(self.output, (self.input(0).dtype,))

    def emit(self, g: Builder, y: View, x: View) -> Value:
        size = self.block()
        mode = self.options.get("mode", "DCR")
        static = all(isinstance(each, int) for each in y.sizes)
        is_wide = static and y.size("C") >= _WIDE and mode == "DCR" and not g.canonical
        moves_rows = is_wide or self.options.get("channels_last")
        if x.dtype is DType.FLOAT32 and not moves_rows:
            return g.DepthToSpace(x, blocksize=size, mode=mode)
        return self._swap_rows(g, y, x, (x.size("W"), size, size * y.size("C")))


class SpaceToDepth(Blocks):
    """SPACE_TO_DEPTH: the pixels of blocks become channels."""

    codes = ("SPACE_TO_DEPTH",)

    def infer_outputs(self) -> Sequence[OutputShape]:
        x, size = self.sizes(0), self.block()
        return [(x["N"], x["H"] // size, x["W"] // size, x["C"] * size * size)]

    def check(self) -> None:
        x, size = self.sizes(0), self.block()
        if x["H"] % size or x["W"] % size:
            raise OperatorError(
                f"height and width must be multiples of {size}, got {x['H']} and {x['W']}"
            )
        expect_type(self.output, (self.input(0).dtype,))

    def emit(self, g: Builder, y: View, x: View) -> Value:
        size = self.block()
        if x.dtype is DType.FLOAT32:
            return g.SpaceToDepth(x, blocksize=size)
        return self._swap_rows(g, y, x, (size, y.size("W"), size * x.size("C")))

"""SPACE_TO_DEPTH and DEPTH_TO_SPACE by Gather.

ONNX Runtime implements DepthToSpace and SpaceToDepth for few types besides float32, and with
channels first. It stores the channels of quantized networks last. With channels last, Gather moves
pieces of rows: Transpose of 4 axes takes twice as long, and of 6 axes of NCHW ten times as long.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

import numpy as np

from tflite2onnx.builder.builder import Builder, Value, View
from tflite2onnx.layout import Frame
from tflite2onnx.made_options import BlockOptions
from tflite2onnx.op.common.checks import check_element_count
from tflite2onnx.op.elementwise.arithmetic import Binary, Row
from tflite2onnx.op.movement import space_to_batch

# DEPTH_TO_SPACE of float32 uses Gather, too, if its output has this many channels: 64 to 16
# channels between two convolutions take 0.57 of the time, 16 to 4 channels 0.87, 12 to 3 channels
# 1.05 (with Transpose, AMD EPYC, family 26).
_WIDE = 8


class _LastChannels(space_to_batch.Blocks):
    """Base of the classes below."""

    def swap_axes(self, g: Builder, pixels: View | Value, split: Sequence[int]) -> Value:
        a, b, size = split
        check_element_count(a * b)
        places = np.arange(a * b, dtype=np.int32).reshape(a, b).T
        return g.Gather(g.reshape(pixels, [-1, a * b, size]), g.constant(places), axis=1)


class LastChannelsOptions(BlockOptions):
    """With `channels_last`, images keep their channels last, as products of integers do."""

    codes = ("DEPTH_TO_SPACE", "MUL")
    channels_last: bool = False


LAST = LastChannelsOptions(channels_last=True)


class Mul(Binary):
    """MUL, which may scale the channels of an image that has them last."""

    rows: ClassVar[Mapping[str, Row]] = {"MUL": Binary.rows["MUL"]}

    def frames(self) -> Sequence[Frame]:
        frames = super().frames()
        if not self.op.read_made(LastChannelsOptions).channels_last:
            return frames
        return [replace(frame, label=frame.names) for frame in frames]


class GatheredDepthToSpace(_LastChannels, space_to_batch.DepthToSpace):
    """DEPTH_TO_SPACE, which may follow an operator that keeps the channels last."""

    def frames(self) -> Sequence[Frame]:
        if not self.op.read_made(LastChannelsOptions).channels_last:
            return super().frames()
        names = tuple(self.read_letters(0))
        return [Frame({0: names, ~0: names}, names, names)]

    def emit(self, g: Builder, y: View, x: View) -> Value:
        static = all(isinstance(length, int) for length in y.sizes)
        made = self.op.read_made(LastChannelsOptions)
        is_wide = static and y.size("C") >= _WIDE and made.mode == "DCR"
        if is_wide or made.channels_last:
            return self.move_rows(g, y, x)
        return super().emit(g, y, x)


class GatheredSpaceToDepth(_LastChannels, space_to_batch.SpaceToDepth):
    """SPACE_TO_DEPTH."""

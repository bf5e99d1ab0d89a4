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
from tflite2onnx.targets.onnxruntime.costs import Terms, explain_nodes
from tflite2onnx.tensor import Tensor

_FLOAT = 4  # bytes


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
        made = self.op.read_made(LastChannelsOptions)
        if made.channels_last or (made.mode == "DCR" and _is_faster(y.tensor)):
            return self.move_rows(g, y, x)
        return super().emit(g, y, x)


def _is_faster(image: Tensor) -> bool:
    """Return whether Gather moves the channels of an image faster than DepthToSpace.

    64 to 16 channels between two convolutions take 0.57 of the time with Gather, 12 to 3 channels
    1.05 (with Transpose, AMD EPYC, family 26). The nodes alone take about as long: 4x4 pixels of 12
    to 3 channels take 1.11, 8x8 pixels of 24 to 6 channels 0.94 (AMD EPYC, family 25, model 17).
    """
    size = _FLOAT * image.elements
    rows = Terms(loads=image.elements / max(image.shape[-1], 1), size=size)
    gather, depth_to_space = ("rows", Terms()), ("pixels", Terms())
    return not image.symbols and not explain_nodes(
        [("rows", rows), depth_to_space], [("pixels", Terms(size=2 * size)), gather]
    )


class GatheredSpaceToDepth(_LastChannels, space_to_batch.SpaceToDepth):
    """SPACE_TO_DEPTH."""

"""RESHAPE and TRANSPOSE of images and of matrices, between convolutions and products."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from tflite2onnx.builder.builder import Builder, Value, View
from tflite2onnx.layout import Axes, Frame, make_channels_first, make_identity
from tflite2onnx.made_options import ReshapeOptions
from tflite2onnx.op.movement import reshape_transpose

LAST, FIRST = ("N", "H", "W", "C"), ("N", "C", "H", "W")


def is_image(label: Axes) -> bool:
    """Return whether images have channels last or first."""
    return label in (LAST, FIRST)


class MovedOptions(ReshapeOptions):
    """The options of RESHAPE and TRANSPOSE in forms.

    Attributes:
        joins_columns: columns of an image become channels, or channels columns. The data have
            channels first or last, in the order of the operator that makes them. The output has
            channels first, the order of convolutions.
        keeps_last: the last axis of the input stays last.
    """

    codes = ("RESHAPE", "TRANSPOSE")
    joins_columns: bool = False
    keeps_last: bool = False


class MovedReshape(reshape_transpose.Reshape):
    """RESHAPE."""

    codes = ("RESHAPE",)

    def frames(self) -> Sequence[Frame]:
        made = self.op.read_made(MovedOptions)
        if made.joins_columns:
            return [
                Frame({0: LAST}, LAST, None, is_image, semantic=True, meaning=FIRST),
                Frame({~0: LAST}, LAST, FIRST, semantic=True),
            ]
        return _keep_last(super().frames()) if made.keeps_last else super().frames()

    def emit(self, g: Builder, y: View, x: View, *rest: View) -> Value:
        made = self.op.read_made(MovedOptions)
        if made.keeps_last and _is_pixel(x):
            # Channels of one pixel do not move, but this Transpose cancels that of a convolution.
            pixel = g.Transpose(x.with_order(make_channels_first(x.rank)), perm=[0, 2, 3, 1])
            return g.reshape(g.annotate(pixel, x.dtype, x.tensor.sizes), y.sizes)
        if not made.joins_columns:
            return super().emit(g, y, x, *rest)
        # Runtimes remove the Transposes around Reshape.
        image = x.value if x.order == make_identity(x.rank) else g.Transpose(x, perm=[0, 2, 3, 1])
        g.annotate(image, x.dtype, x.tensor.sizes)
        image = g.annotate(g.reshape(image, y.tensor.sizes), x.dtype, y.tensor.sizes)
        return g.Transpose(image, perm=[0, 3, 1, 2])


def _is_pixel(x: View) -> bool:
    """Return whether an image has one pixel of several channels."""
    shape = x.tensor.shape
    is_static = x.tensor.symbols.keys() <= {0}
    return x.rank == len(LAST) and shape[1:3] == (1, 1) and shape[3] > 1 and is_static


class MovedTranspose(reshape_transpose.Transpose):
    """TRANSPOSE."""

    def frames(self) -> Sequence[Frame]:
        frames = super().frames()
        return _keep_last(frames) if self.op.read_made(MovedOptions).keeps_last else frames


def _keep_last(frames: Sequence[Frame]) -> list[Frame]:
    def is_legal(names: Axes, label: Axes) -> bool:
        return label[-1] == names[-1]

    return [replace(frame, legal=partial(is_legal, frame.names)) for frame in frames]

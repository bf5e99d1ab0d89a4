"""RESHAPE of images and of matrices, between forms of convolutions and of products."""

from collections.abc import Sequence
from dataclasses import replace

from tflite2onnx.builder.builder import Builder, Value, View
from tflite2onnx.layout import Axes, Frame, make_identity
from tflite2onnx.made_options import ReshapeOptions
from tflite2onnx.op.movement import reshape_transpose

_IMAGE, _CHANNELS_FIRST = ("N", "H", "W", "C"), ("N", "C", "H", "W")


def _is_image(label: Axes) -> bool:
    """Return whether images have channels last or first."""
    return label in (_IMAGE, _CHANNELS_FIRST)


class MovedOptions(ReshapeOptions):
    """The options of RESHAPE in forms.

    Attributes:
        joins_columns: columns of an image become channels, or channels columns. The data have
            channels first or last, in the order of the operator that makes them. The output has
            channels first, the order of convolutions.
        keeps_last: the last axis stays last.
    """

    joins_columns: bool = False
    keeps_last: bool = False


class Reshape(reshape_transpose.Reshape):
    """RESHAPE."""

    codes = ("RESHAPE",)

    def frames(self) -> Sequence[Frame]:
        made = self.op.read_made(MovedOptions)
        if made.joins_columns:
            return [
                Frame({0: _IMAGE}, _IMAGE, None, _is_image, semantic=True, meaning=_CHANNELS_FIRST),
                Frame({~0: _IMAGE}, _IMAGE, _CHANNELS_FIRST, semantic=True),
            ]
        (frame,) = super().frames()

        def is_legal(label: Axes) -> bool:
            return not made.keeps_last or label[-1] == frame.names[-1]

        return [replace(frame, legal=is_legal)]

    def emit(self, g: Builder, y: View, x: View, *rest: View) -> Value:
        if not self.op.read_made(MovedOptions).joins_columns:
            return super().emit(g, y, x, *rest)
        # Runtimes remove the Transposes around Reshape.
        image = x.value if x.order == make_identity(x.rank) else g.Transpose(x, perm=[0, 2, 3, 1])
        g.annotate(image, x.dtype, x.tensor.sizes)
        image = g.annotate(g.reshape(image, y.tensor.sizes), x.dtype, y.tensor.sizes)
        return g.Transpose(image, perm=[0, 3, 1, 2])

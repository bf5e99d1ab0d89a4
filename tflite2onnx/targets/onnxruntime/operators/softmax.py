"""SOFTMAX and LOG_SOFTMAX with the axis last in ONNX, too.

ONNX's nodes take any axis, but ONNX Runtime's kernels transpose any other axis to the last and
back (softmax.cc, qlinear_softmax.cc), element by element: 21 classes of 256x256 pixels, with the
channels first, take 31 ms in place of 1.3 (Intel family 6 model 167, one thread). A Transpose that
the planner places, if it cannot avoid it, takes less.
"""

from collections.abc import Sequence

from tflite2onnx.layout import Axes, Frame, axis_names
from tflite2onnx.op.reduction import softmax

_FEWEST = 3  # axes; a matrix is stored as in TFLite


class _OverLastAxis(softmax.Exponential):
    """Base of the classes below."""

    def frames(self) -> Sequence[Frame]:
        x = self.input(0)
        if x.rank < _FEWEST:
            return super().frames()
        names = axis_names(x.rank)
        large = {names[i] for i in range(x.rank) if i in x.symbols or x.shape[i] != 1}

        def is_last(label: Axes) -> bool:
            return large.isdisjoint(label[label.index(names[-1]) + 1 :])

        return [Frame({0: names, ~0: names}, names, legal=is_last)]


class SoftmaxOverLastAxis(_OverLastAxis, softmax.Softmax):
    """SOFTMAX."""


class LogSoftmaxOverLastAxis(_OverLastAxis, softmax.LogSoftmax):
    """LOG_SOFTMAX."""

"""SOFTMAX and LOG_SOFTMAX with the axis last in ONNX, too.

ONNX's nodes take any axis, but ONNX Runtime's kernels transpose any other axis to the last and
back (softmax.cc, qlinear_softmax.cc), element by element: 21 classes of 256x256 pixels, with the
channels first, take 31 ms in place of 1.3 (Intel family 6 model 167, one thread). A Transpose that
the planner places, if it cannot avoid it, takes less.
"""

from collections.abc import Sequence
from math import log

from tflite2onnx.builder.builder import Builder, Value, View
from tflite2onnx.layout import Axes, Frame, axis_names
from tflite2onnx.op.reduction import softmax
from tflite2onnx.tensor import DType

_FEWEST = 3  # axes; a matrix is stored as in TFLite
_SHORT = 16  # elements of a row
_LEAST, _INTEGERS, _WRAPPING = log(2 / 32768), (1 << 16) - 1, 10


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
    """SOFTMAX.

    The int16 kernel's exponentials are in a table of 1 / 32768, whose first entry is 2
    (`SoftmaxInt16` in softmax.h). All scores that are lower than the largest by 9.7 or more have
    it: 511 hidden tokens weigh 3 % together. The nodes limit the scores, because the result of a
    row of 17 or more may otherwise differ by more than the 30 steps by which the table is off.
    """

    def limit_scores(self, g: Builder, x: Value | View, axis: int) -> Value | View:
        source, beta = self.input(0), self.options.beta
        if source.dtype is not DType.INT16 or source.quantization is None:
            return x
        step = float(source.quantization.scale[0]) * beta
        is_short = source.shape[-1] <= _SHORT and source.rank - 1 not in source.symbols
        # Differences of larger steps wrap around in the kernel.
        if is_short or not -_LEAST / _INTEGERS < step < _WRAPPING:
            return x
        largest = g.reduce("ReduceMax", x, [axis], keepdims=True)
        return g.Max(g.Sub(x, largest), g.scalar(_LEAST, DType.FLOAT32))


class LogSoftmaxOverLastAxis(_OverLastAxis, softmax.LogSoftmax):
    """LOG_SOFTMAX."""

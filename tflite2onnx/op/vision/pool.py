"""Pooling. Padded elements are excluded from the maximum and from the average."""

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, ClassVar

from tflite2onnx.builder.builder import Builder, Operand, Value, View
from tflite2onnx.op.base import OperatorError, OutputShape
from tflite2onnx.op.common.windows import ImageOperator, Window, make_window, read_window_lists
from tflite2onnx.quantization.declarations import Declaration, Integers, Moves, declare_averages
from tflite2onnx.quantization.storage import compute_half_away_scale
from tflite2onnx.tensor import DType, Quantization, Shape


class Pool(ImageOperator):
    """Base class of the pooling operators."""

    operands = "T:float32|quantized -> T"
    dynamic_axes = "NHWC"
    turns_columns = True

    def read_window(self) -> Window:
        """Return the window, whose size is given by options."""
        return make_window(self.op, self.options.filter_height, self.options.filter_width)

    def find_least_sizes(self) -> Mapping[int, int]:
        """Return the sizes of the window, for axes of which runtimes round a negative quotient up.

        They make one row of an image of fewer rows than the window; LiteRT makes none.
        """
        window = self.read_window()
        pairs = enumerate(zip(window.kernel, window.strides, strict=True), 1)
        return {} if window.same else {axis: size for axis, (size, n) in pairs if n > 1 < size}

    def infer_outputs(self) -> Sequence[OutputShape]:
        x = self.sizes(0)
        return [(x["N"], *self.read_window().count_steps(self.find_image_sizes(0)), x["C"])]


def _find_average_quantization(dtype: DType, kernel: Shape) -> Quantization:
    """Return the quantization of averages over a window, which makes halves round away from zero.

    Averages of n bytes are multiples of 1 / n. The scale increases the largest average by a quarter
    of 1 / n. A smaller increase is lost: QLinearAveragePool adds the zero point before it rounds,
    and above 128 (the zero point of int8 stored as uint8) float32 numbers are 2^-16 apart. If n is
    128 or more, the increase is too large for an average of 0.5, and for larger n also of 1.5:
    these averages are wrong by one step.
    """
    largest = 128 if dtype is DType.INT8 else 256
    return compute_half_away_scale(1 / (4 * largest * prod(kernel)))


class AveragePool2D(Pool):
    """AVERAGE_POOL_2D: the mean of each window.

    No runtime has a kernel for int16, so nodes round the integers.
    """

    codes = ("AVERAGE_POOL_2D",)
    steps: ClassVar[Mapping[str, int]] = {"AVERAGE_POOL_2D int16": 1, "AvgPool3D int16": 1}

    @property
    def quantization(self) -> Declaration:
        x = self.input(0)
        if x.dtype is DType.INT16:
            return Integers(kernel_writes=x.quantization)
        return declare_averages(x, _find_average_quantization(x.dtype, self.read_window().kernel))

    def emit(self, g: Builder, y: View, x: View) -> Value:
        return self._average(g, x, *self.read_window().place(g, x, x))

    def _average(self, g: Builder, x: View, image: Operand, window: Mapping[str, Any]) -> Value:
        """Return the averages of an image; averages of int16 are rounded half away from zero."""
        if x.dtype is not DType.INT16:
            return g.AveragePool(image, **window)
        mean = g.AveragePool(g.cast(image, DType.FLOAT32), **window)
        half = g.scalar(0.5, DType.FLOAT32)
        rounded = g.Mul(g.Sign(mean), g.Floor(g.Add(g.Abs(mean), half)))
        return g.cast(rounded, DType.INT16)


class MaxPool2D(Pool):
    """MAX_POOL_2D: the maximum of each window."""

    codes = ("MAX_POOL_2D",)
    quantization = Moves()

    def emit(self, g: Builder, y: View, x: View) -> Value:
        image, window = self.read_window().place(g, x, x)
        return g.add_with_casts("MaxPool", x.dtype, image, **window)


class L2Pool2D(Pool):
    """L2_POOL_2D: the root of the mean square of each window.

    ONNX's LpPool has a sum in place of the mean.
    """

    codes = ("L2_POOL_2D",)

    def emit(self, g: Builder, y: View, x: View) -> Value:
        squares, window = self.read_window().place(g, x, g.Mul(x, x))
        return g.Sqrt(g.AveragePool(squares, **window))


class _VolumePool(Pool):
    """Base class of the 3-D pooling operators, which are custom operators."""

    tflite = "NDHWC -> NDHWC"
    onnx = "NCDHW -> NCDHW"
    dynamic_axes = "NDHWC"
    turns_columns = False

    def read_window(self) -> Window:
        return read_window_lists(self.options, len("NDHWC"))

    def check(self) -> None:
        x = self.input(0)
        if self.options.get("data_format", "NDHWC") != "NDHWC" or x.dtype is DType.UINT8:
            raise OperatorError(
                f"its data_format must be NDHWC and its input must not be uint8, got "
                f"{self.options.get('data_format')} and {x.dtype.label}"
            )


class AvgPool3D(_VolumePool, AveragePool2D):
    """AvgPool3D: AVERAGE_POOL_2D with a depth axis."""

    codes = ("AvgPool3D",)


class MaxPool3D(_VolumePool, MaxPool2D):
    """MaxPool3D: MAX_POOL_2D with a depth axis."""

    codes = ("MaxPool3D",)

"""Convolutions of images, and of volumes: images with a depth axis."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import ClassVar

import numpy as np

from tflite2onnx.builder.builder import Builder, Value, View
from tflite2onnx.layout import Axes, Frame, make_channels_first, make_identity
from tflite2onnx.made_options import MadeOptions, WindowOptions
from tflite2onnx.op.base import OperatorError, OutputShape, Unknown
from tflite2onnx.op.common.checks import (
    expect,
    expect_real,
    expect_symmetric,
    expect_type,
    expect_weights,
    ints,
)
from tflite2onnx.op.common.hybrid import (
    QuantizedRows,
    is_hybrid,
    quantize_asymmetric,
    quantize_symmetric,
)
from tflite2onnx.op.common.runtime_shapes import AXIS_END
from tflite2onnx.op.common.windows import (
    ImageOperator,
    Window,
    find_padding,
    make_window,
    read_int32_fields,
)
from tflite2onnx.op.facts import Fact
from tflite2onnx.op.traits import MisreadInputs, ReshapesInputs
from tflite2onnx.quantization.declarations import Product
from tflite2onnx.quantization.rules import find_bias_storage
from tflite2onnx.tensor import DType, Quantization, Shape, Tensor
from tflite2onnx.utils.dimension import (
    depends_on_inputs,
    has_dimensions,
    is_known,
    require_equal,
    require_number,
)
from tflite2onnx.utils.suggestions import join_alternatives

_BIAS = 2  # The index of the bias among the inputs of CONV_2D.


class Convolution(ImageOperator, ReshapesInputs):
    """Base class of the convolutions; the biases are optional.

    Keras 3 gives transposed convolutions biases of the shape [1, 1, 1, O]. Kernels count elements;
    only that of DEPTHWISE_CONV_2D requires one axis.

    Attributes:
        weights_of_int16: the types of weights that the kernel for int16 data reads as they are. It
            reads others as int8 (EvalQuantizedPerChannel16x8): converters that quantize a network
            make int16 weights of a filter that is computed.
    """

    product: ClassVar[Product] = Product(0, 1, 2, folds=True)
    weights_of_int16: ClassVar[Sequence[DType]] = (DType.INT8,)
    facts = (Fact.CONVOLVES,)

    @cached_property
    def quantization(self) -> Product:
        return self.product._replace(
            hybrid=self._quantized, units=self.read_letters(self.product.weights).index("O")
        )

    @property
    def _quantized(self) -> str:
        """How the operator rounds its data at run time: "images" or ""."""
        return "images" if self.op.read_made(WindowOptions).rounds_data else ""

    def frames(self) -> Sequence[Frame]:
        """Return frames; data to quantize may have any order: they are transposed as integers."""
        frames, data = super().frames(), self.product.data
        if not self._quantized:
            return frames
        names = tuple(self.read_letters(data))
        others = [frame for frame in frames if data not in frame.slots]
        return [*others, Frame({data: names}, names, legal=_is_image)]

    def broadcast_shapes(self) -> Sequence[Shape | None]:
        _, weights, bias = self.product.operands
        filters = (self.sizes(weights)["O"],)
        return [filters if i == bias else None for i in range(len(self.op.inputs))]

    def read_window(self) -> Window:
        """Return the window, which has the size of a filter."""
        return make_window(self.op, *self.find_image_sizes(1))

    def infer_outputs(self) -> Sequence[OutputShape]:
        batch = self.sizes(0)["N"]
        self.require_channels()
        return [
            (batch, *self.read_window().count_steps(self.find_image_sizes(0)), self.sizes(1)["O"])
        ]

    def check(self) -> None:
        self.check_operands()
        expect_type(self.output, (self.input(self.product.data).dtype,))

    @property
    def is_hybrid(self) -> bool:
        """Whether LiteRT's kernel quantizes the float data, and multiplies integers."""
        data, weights, _ = self.product.operands
        scales = self.input(weights).quantization
        has_scales = scales is not None and not scales.block_size
        return has_scales and is_hybrid(self.input(data), self.input(weights))

    @property
    def has_zero_points(self) -> bool:
        """Whether the kernel quantizes images with zero points."""
        return True

    def round_data(self, g: Builder, x: View) -> Value | View:
        """Return images, NCHW, rounded to the real numbers that the kernel multiplies."""
        if self._quantized != "images":
            return x
        rows = self.quantize_images(g, x, x.value)
        first = make_channels_first(x.rank)
        permutation = tuple(x.order.index(axis) for axis in first)
        if permutation != make_identity(x.rank):
            # If a Transpose is after DequantizeLinear, runtimes insert another QDQ pair.
            turned = g.Transpose(rows.integers, perm=permutation)
            sizes = tuple(x.sizes[i] for i in permutation)
            rows = rows._replace(integers=g.annotate(turned, DType.UINT8, sizes))
        return rows.dequantize(g)

    def quantize_images(self, g: Builder, x: View, value: Value) -> QuantizedRows:
        """Return the value with the images of x, quantized as the kernel does."""
        if self.has_zero_points:
            positive = self.op.read_made(WindowOptions).data_are_positive
            return quantize_asymmetric(g, value, x.rank, is_one=x.sizes[0] == 1, positive=positive)
        return quantize_symmetric(g, value, x.shape)

    def require_channels(self) -> None:
        """Require that an input of unknown channels has as many channels as the filters."""
        data, channels = self.product.data, self.count_channels()
        require_number(self.sizes(data)["C"], channels, f"its input must have {channels} channels")

    def count_channels(self) -> int:
        """Return how many channels an input has whose channels the file does not state."""
        return self.sizes(self.product.weights)["I"]

    def check_operands(self) -> None:
        """Raise OperatorError if types, channels or biases do not match."""
        data, weights, bias = self.product.operands
        x, w = self.sizes(data), self.sizes(weights)
        groups, rest = divmod(x["C"], w["I"])
        if rest or w["O"] % groups:
            raise OperatorError(
                f"the {x['C']} channels of its input must be a multiple of the {w['I']} channels "
                f"of a filter, and the {w['O']} filters a multiple of the groups"
            )
        expect_real(self.input(data), self.input(weights))
        expect_weights(self.input(data), self.input(weights))
        self._expect_weights_of_int16(self.input(data), self.input(weights))
        if self.input(data).dtype in (DType.INT8, DType.INT16):
            expect_symmetric(self.input(weights))
        if bias < len(self.op.inputs) and self.op.inputs[bias] is not None:
            if self.input(bias).elements != w["O"]:
                raise OperatorError(
                    f"it must have as many biases as filters, got {self.input(bias).elements} "
                    f"biases for {w['O']} filters"
                )
            if find_bias_storage(self.input(data), self.input(weights), self.input(bias)) is None:
                expect_real(self.input(bias))

    def _expect_weights_of_int16(self, data: Tensor, weights: Tensor) -> None:
        """Raise OperatorError if the kernel for int16 data reads the weights as another type."""
        if data.dtype is DType.INT16 and weights.dtype not in self.weights_of_int16:
            listed = join_alternatives([dtype.label for dtype in self.weights_of_int16])
            raise OperatorError(
                f"{weights.name} must be {listed} beside int16 data, got {weights.dtype.label}, "
                "which LiteRT's kernel reads as int8; quantize the model without this operator"
            )


def _is_image(label: Axes) -> bool:
    """Return whether the label has the images first, so that each can have its own scale."""
    return label[0] == "N"


class Conv2D(Convolution):
    """CONV_2D: a 2-D convolution, whose number of groups follows from the channels."""

    codes = ("CONV_2D",)
    turns_columns = True
    weights_of_int16: ClassVar[Sequence[DType]] = (DType.INT8, DType.INT4)
    tflite = "NHWC, OHWI, O -> NHWC"
    onnx = "NCHW, OIHW, O -> NCHW"

    def emit(self, g: Builder, y: View, x: View, w: View, b: View | None = None) -> Value:
        groups = x.size("C") // w.size("I")
        view = x.with_order(make_channels_first(x.rank)) if self._quantized else x
        image, window = self.read_window().place(g, view, self.round_data(g, x))
        return g.Conv(image, w, b, group=groups, **window)

    def supports_dynamic_axis(self, operand: int, axis: int) -> bool:
        letter = self.read_letters(operand)[axis]
        # Images with symmetric quantization have constant zero points, so the number of images must
        # be static.
        is_fixed = self._quantized and not self.has_zero_points
        return letter in "HW" or (letter == "N" and not is_fixed)

    @cached_property
    def quantization(self) -> Product:
        channels, filters = self.sizes(0)["C"], self.sizes(1)
        depthwise = channels > 1 == filters["I"] and channels == filters["O"]
        return super().quantization._replace(depthwise=depthwise)

    @property
    def _is_delegated(self) -> bool:
        """Whether XNNPACK computes float data and integer weights (VisitConv2DNode)."""
        bias = self.op.inputs[_BIAS] if len(self.op.inputs) > _BIAS else None
        constant = bias is not None and bias.data is not None
        return (
            constant and self.op.code != "DEPTHWISE_CONV_2D" and self.input(1).dtype is DType.INT8
        )

    @property
    def quantizes_pixels(self) -> bool:
        """Whether each of several pixels has a scale, because XNNPACK computes a matrix product.

        See xnn_define_convolution_2d in XNNPACK's convolution-2d.c.
        """
        filters, x = self.sizes(1), self.sizes(0)
        window = (filters["H"], filters["W"], self.options.stride_h, self.options.stride_w)
        is_matrix = set(window) == {1} and x["C"] == filters["I"]
        is_padded = any(self.op.read_made(WindowOptions).pads)
        return self._is_delegated and is_matrix and not is_padded

    @property
    def has_zero_points(self) -> bool:
        """Whether the kernel quantizes images with zero points.

        XNNPACK's kernel quantizes with zero points. LiteRT's own does for weights with a scale for
        each channel (is_hybrid_per_channel in conv.cc).
        """
        scales = self.input(1).quantization
        return self._is_delegated or scales is None or len(set(scales.scale)) > 1


class DepthwiseConv2D(Conv2D, MisreadInputs):
    """DEPTHWISE_CONV_2D: a 2-D convolution with one group for each channel.

    Filter c * multiplier + m reads channel c, as in ONNX. The multiplier is computed from the
    shapes, because the option depth_multiplier is wrong in old files.

    The kernels for float data read a scale for each integer filter, also if there is one scale:
    they read the memory after it.
    """

    codes = ("DEPTHWISE_CONV_2D",)
    weights_of_int16 = (DType.INT8,)
    tflite = "NHWC, IHWO, O -> NHWC"

    @property
    def readable_inputs(self) -> Mapping[int, Tensor]:
        w, filters = self.input(1), self.sizes(1)["O"]
        scales = w.quantization
        if self.input(0).dtype is not DType.FLOAT32 or not scales or scales.scale.size == filters:
            return {}
        scale, zero = (np.repeat(each, filters) for each in (scales.scale, scales.zero_point))
        return {1: replace(w, quantization=Quantization(scale, zero, w.rank - 1))}

    def count_channels(self) -> int:
        filters, multiplier = self.sizes(1)["O"], self.options.get("depth_multiplier", 1)
        fits = multiplier > 0 and filters % multiplier == 0
        return filters // multiplier if fits else filters

    def check(self) -> None:
        if (first := self.sizes(1)["I"]) != 1:
            raise OperatorError(f"the first axis of its weights must be 1, got {first}")
        super().check()


class TransposedConvolution(Convolution):
    """Base class of transposed convolutions: transposes of a convolution from output to input.

    A convolution maps several sizes to the same size, so the output shape is an input of the
    operator. This input determines the padding, or the number of last rows and columns that no
    window reaches (ONNX's `output_padding`).
    """

    dynamic_axes = "NDHW"
    shape_inputs = (0,)
    product = Product(2, 1, 3, folds=True)

    def infer_outputs(self) -> Sequence[OutputShape]:
        self.require_channels()
        batch, *image, _ = self.input(2).shape
        channels = self.sizes(1)["O"]
        if not self.has_data_dependent_shape:
            sizes = ints(self, 0)
            # A list that is computed from an image may still have the batch before `--batch`.
            if not has_dimensions(sizes) and not is_known(batch) and not depends_on_inputs(batch):
                require_number(batch, sizes[0], f"its input must have the batch {sizes[0]}")
            if not has_dimensions(sizes) and is_known(batch):
                require_equal(sizes[0], batch, f"its batch must be {batch}, got {sizes[0]}")
            if has_dimensions(image) and not has_dimensions(sizes):
                for size, number in zip(
                    image, self.read_window().count_steps(sizes[1:-1]), strict=True
                ):
                    require_number(size, number, f"its output {sizes} needs {number} positions")
            return [(batch, *sizes[1:-1], sizes[-1])]
        if self._fits_declared_shape:
            return [(batch, *self.output.shape[1:-1], channels)]
        return [(batch, *(Unknown() for _ in image), channels)]

    @property
    def _fits_declared_shape(self) -> bool:
        """Whether a window that moves over the declared output gives the input's size.

        If so, a computed output shape is assumed to equal the declared shape: few other shapes fit
        the input.
        """
        y, image = self.output, self.input(2).shape[1:-1]
        is_fixed = y.rank == len(image) + 2 and not y.dynamic_axes and not has_dimensions(image)
        try:
            return is_fixed and self.read_window().count_steps(y.shape[1:-1]) == tuple(image)
        except OperatorError:  # The window does not fit into the image.
            return False

    def check(self) -> None:
        super().check()
        x, w, y = self.sizes(2), self.sizes(1), self.sizes(~0)
        expect(self.input(0), (self.output.rank,), DType.INT32)
        if (x["C"], y["C"]) != (w["I"], w["O"]):
            raise OperatorError(
                f"its input must have the {w['I']} channels of its filters and its output"
                f" {w['O']} channels, got {x['C']} and {y['C']}"
            )
        image, old = self.output.shape[1:-1], self.input(2).shape[1:-1]
        if not self.output.symbols.keys() - {0} and self.read_window().count_steps(image) != old:
            raise OperatorError(
                f"the window must move over an output of {image} in {old} steps, one for each "
                f"pixel of its input; check the output shape, the strides and the padding"
            )

    def compute_dimension_options(self) -> MadeOptions | None:
        image, old = (tensor.shape[1:-1] for tensor in (self.output, self.input(2)))
        if len(image) != len(old):
            return None
        pairs = zip(self.read_window().compute_full_size(old), image, strict=True)
        excess = tuple(full - size for full, size in pairs)
        known = all(map(is_known, excess))
        return self.op.read_made(WindowOptions).replace(excess=excess) if known else None

    def emit(
        self, g: Builder, y: View, shape: View, w: View, x: View, b: View | None = None
    ) -> Value:
        window, image = self.read_window(), tuple(y.shape[2:])
        excess = self.op.read_made(WindowOptions).excess
        if not y.tensor.symbols.keys() - {0}:
            whole = window.compute_full_size(x.tensor.shape[1:-1])
            excess = tuple(full - n for full, n in zip(whole, image, strict=True))
        if excess is None:
            return self._crop_to_shape(g, shape, x, w, b)
        cropping = window.list_cropping_attributes(excess)
        rest = [max(-n, 0) for n in excess]
        return g.ConvTranspose(self.round_data(g, x), w, b, output_padding=rest, **cropping)

    def _crop_to_shape(self, g: Builder, shape: View, x: View, w: View, b: View | None) -> Value:
        """Return the output where its padding is known at run time only.

        Rows that no window reaches have the value of the bias.
        """
        count = x.rank - 2
        uncropped = self.read_window().list_cropping_attributes([0] * count)
        whole = g.ConvTranspose(self.round_data(g, x), w, None, **uncropped)
        size = g.Slice(g.as_int64_list(shape), [1], [-1])
        excess = g.Sub(g.Slice(g.Shape(whole), [2], [AXIS_END]), size)
        pads = g.Max(g.Neg(excess), 0)
        image = g.Pad(whole, g.Concat([0] * (x.rank + 2), pads, axis=0))
        first = g.Div(g.Max(excess, 0), 2)
        cropped = g.Slice(image, first, g.Add(first, size), [*range(2, x.rank)])
        return cropped if b is None else g.Add(cropped, b.reshape((b.shape[0], *[1] * count)))


class TransposeConv(TransposedConvolution):
    """TRANSPOSE_CONV: the transpose of the convolution that maps its output to its input."""

    codes = ("TRANSPOSE_CONV",)
    sizes_input = 0
    tflite = ", OHWI, NHWC, O -> NHWC"
    onnx = ", IOHW, NCHW, O -> NCHW"


class VolumeConvolution(Convolution):
    """Base class of the 3-D convolutions, which have one group and float32 tensors only."""

    def check_operands(self) -> None:
        data, weights, _ = self.product.operands
        for tensor in (self.input(data), self.input(weights)):
            expect_type(tensor, (DType.FLOAT32,))
        super().check_operands()
        channels, filters = self.sizes(data)["C"], self.sizes(weights)
        if channels != filters["I"]:
            raise OperatorError(
                f"its input must have the {filters['I']} channels of its filters, got {channels}"
            )


class Conv3D(VolumeConvolution):
    """CONV_3D: a 3-D convolution."""

    codes = ("CONV_3D",)
    dynamic_axes = "NDHW"
    tflite = "NDHWC, DHWIO, O -> NDHWC"
    onnx = "NCDHW, OIDHW, O -> NCDHW"

    def emit(self, g: Builder, y: View, x: View, w: View, b: View | None = None) -> Value:
        image, window = self.read_window().place(g, x, x)
        return g.Conv(image, w, b, **window)


class Conv3DTranspose(TransposedConvolution, VolumeConvolution):
    """CONV_3D_TRANSPOSE: a transposed 3-D convolution, whose output shape is an input."""

    codes = ("CONV_3D_TRANSPOSE",)
    sizes_input = 0
    tflite = ", DHWOI, NDHWC, O -> NDHWC"
    onnx = ", IODHW, NCDHW, O -> NCDHW"


class Convolution2DTransposeBias(Convolution):
    """Convolution2DTransposeBias: MediaPipe's transposed convolution without a given size.

    With padding SAME the kernel crops k - (n - 1) % stride - 1 rows, for n rows of the input. This
    differs from the padding of the convolution that maps the output to the input.
    """

    codes = ("Convolution2DTransposeBias",)
    tflite = "NHWC, OHWI, O -> NHWC"
    onnx = "NCHW, IOHW, O -> NCHW"
    operands = "float32, float32, float32 -> float32"

    def _read_strides_and_crop(self) -> tuple[list[int], list[int]]:
        """Return the strides, and the number of rows and columns to crop."""
        padding, stride_w, stride_h = read_int32_fields(self, 3)
        strides, name = [stride_h, stride_w], find_padding(padding)
        if min(strides) < 1 or name == "UNKNOWN":
            raise OperatorError(
                f"its strides must be positive and its padding SAME or VALID, got {strides} and "
                f"{name}"
            )
        x, w = self.sizes(0), self.sizes(1)
        is_same = name == "SAME"
        crop = [
            max(0, w[axis] - (x[axis] - 1) % stride - 1) if is_same else 0
            for axis, stride in zip("HW", strides, strict=True)
        ]
        return strides, crop

    def infer_outputs(self) -> Sequence[OutputShape]:
        (strides, crop), x, w = self._read_strides_and_crop(), self.sizes(0), self.sizes(1)
        image = (
            stride * (x[axis] - 1) + w[axis] - cut
            for axis, stride, cut in zip("HW", strides, crop, strict=True)
        )
        return [(x["N"], *image, w["O"])]

    def check(self) -> None:
        self.check_operands()
        x, w = self.sizes(0), self.sizes(1)
        if x["C"] != w["I"]:
            raise OperatorError(
                f"its input must have the {w['I']} channels of its filters, got {x['C']}"
            )

    def emit(self, g: Builder, y: View, x: View, w: View, b: View) -> Value:
        strides, crop = self._read_strides_and_crop()
        pads = [n // 2 for n in crop] + [n - n // 2 for n in crop]
        kernel = [w.size("H"), w.size("W")]
        return g.ConvTranspose(x, w, b, kernel_shape=kernel, strides=strides, pads=pads)

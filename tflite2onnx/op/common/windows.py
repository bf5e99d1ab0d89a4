"""Image operators (NHWC in TFLite, NCHW in ONNX), and windows that slide over images."""

import struct
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, NamedTuple

from tflite2onnx.builder.builder import Builder, Operand, View
from tflite2onnx.graph import Op, Options
from tflite2onnx.layout import Frame
from tflite2onnx.made_options import WindowOptions
from tflite2onnx.op.base import Operator, OperatorError
from tflite2onnx.op.traits import DynamicShape
from tflite2onnx.tensor import DType, Shape, Sizes
from tflite2onnx.utils.dimension import Dim, is_known

_TURNED = (2, 1)  # swaps height and width of [batch, channels, height, width]
_PADDINGS = ("UNKNOWN", "SAME", "VALID")  # in the order of the enumeration TfLitePadding
_ACTIVATIONS = ("NONE", "RELU", "RELU_N1_TO_1", "RELU6", "TANH")  # TfLiteFusedActivation


class ImageOperator(DynamicShape):
    """The base of convolutions, pooling, resizing and block shuffling."""

    tflite = "NHWC -> NHWC"
    onnx = "NCHW -> NCHW"
    dynamic_axes = "N"
    # Whether the window of `Window.place` has the axes in the order of x.
    turns_columns: ClassVar[bool] = False

    def __init__(self, op: Op) -> None:
        super().__init__(op)
        self._known_sizes: dict[int, Mapping[str, int]] = {}

    def frames(self) -> Sequence[Frame]:
        """Return frames in which a column of pixels may be stored as a row.

        Kernels for floats compute several pixels of a row at once, so that a row is faster than a
        column (docs/performance.md). Both orders are the same bytes.
        """
        frames = super().frames()
        if not self.turns_columns or not self._is_column:
            return frames
        return [*map(self._turn_column, frames)]

    @property
    def _is_column(self) -> bool:
        """Whether the images are floats without quantization, and have one pixel in each row."""
        if not self.sizes(0)["W"] == self.sizes(~0)["W"] == 1 < self.sizes(0)["H"]:
            return False
        tensors = (self.input(0), self.output)
        floats = all(t.dtype is DType.FLOAT32 and t.symbols.keys() <= {0} for t in tensors)
        return floats and not self.op.read_made(WindowOptions).rounds_data

    def _turn_column(self, frame: Frame) -> Frame:
        """Return a frame with the width before the height."""
        if frame.label is None:
            return frame
        turned = {"H": "W", "W": "H"}
        return replace(frame, label=tuple(turned.get(name, name) for name in frame.label))

    def sizes(self, operand: int) -> Mapping[str, int]:
        """Return the sizes of an operand's axes by letter; OperatorError if an axis is empty."""
        if operand not in self._known_sizes:
            self._known_sizes[operand] = self._read_sizes(operand)
        return self._known_sizes[operand]

    def find_image_sizes(self, operand: int) -> Shape:
        """Return the sizes of those axes of D, H and W that an operand has; errors as `sizes`."""
        return tuple(size for letter, size in self.sizes(operand).items() if letter in "DHW")

    def _read_sizes(self, operand: int) -> Mapping[str, int]:
        tensor = self.output if operand < 0 else self.input(operand)
        letters = self.read_letters(operand)
        if len(letters) != tensor.rank or 0 in tensor.shape:
            raise OperatorError(
                f"{tensor.name} must have the axes {letters}, none empty, got {list(tensor.shape)}"
            )
        return dict(zip(letters, tensor.shape, strict=True))


def read_image(view: View) -> Shape:
    """Return the height and width of an operand with the axes H and W."""
    return view.size("H"), view.size("W")


def read_dynamic_image(view: View) -> Sizes:
    """Return the axes D, H and W that an operand has, with names for dynamic axes."""
    pairs = zip(view.letters, view.tensor.sizes, strict=True)
    return tuple(size for letter, size in pairs if letter in "DHW")


class Window(NamedTuple):
    """A window that slides over the rows and columns of an image: (height, width) throughout.

    A convolution slides the window over its input, a transposed convolution over its output. The
    formulas are GetWindowedOutputSize and ComputePadding in LiteRT's kernels/padding.h. TFLite
    options have no explicit `pads`: (top, left, bottom, right) come from operators that
    `fuse_convolutions` has fused.
    """

    kernel: Shape
    strides: Shape
    dilations: Shape
    same: bool
    pads: Shape = ()

    def count_steps(self, image: Sequence[Dim]) -> tuple[Dim, ...]:
        """Return how many positions the window has; OperatorError if the image is smaller."""
        counts = tuple(
            -(-size // stride) if self.same else (size + pads - extent) // stride + 1
            for size, pads, extent, stride in zip(
                image, self._sum_padding(), self._dilate_kernel(), self.strides, strict=True
            )
        )
        if any(is_known(count) and count < 1 for count in counts):
            size = self._dilate_kernel()
            raise OperatorError(f"the window must fit into the image {image}, got {size}")
        return counts

    def make_attributes(self, image: Shape) -> dict[str, Any]:
        """Return the window as ONNX attributes; `pads` are the begins of all axes, then the ends.

        SAME adds as much padding as the last window needs.
        """
        if self.pads:
            return self._list_node_attributes() | {"pads": self.pads}
        return self.list_cropping_attributes(self._compute_excess(image))

    def compute_full_size(self, image: Sequence[Dim]) -> tuple[Dim, ...]:
        """Return the size of the image that windows at all positions cover together."""
        axes = zip(image, self.strides, self._dilate_kernel(), strict=True)
        return tuple((n - 1) * stride + extent for n, stride, extent in axes)

    def list_cropping_attributes(self, excess: Sequence[int]) -> dict[str, Any]:
        """Return the window as ONNX attributes; `excess` is the total padding of each axis.

        Of an odd number, the larger half comes at the end.
        """
        totals = [max(n, 0) for n in excess]
        pads = [n // 2 for n in totals] + [n - n // 2 for n in totals]
        return self._list_node_attributes() | {"pads": pads}

    def place(self, g: Builder, x: View, data: Operand) -> tuple[Operand, dict[str, Any]]:
        """Return an image to slide over, and the window as ONNX attributes.

        `x` has the sizes of the image, which may be dynamic; `data` are its elements, NCHW, or NCWH
        if this is the order of x.
        """
        sizes = read_dynamic_image(x)
        if x.order[2:] == _TURNED:
            return data, _turn_attributes(self.make_attributes(x.tensor.shape[1:3]))
        if self._has_padding_of(sizes):
            attributes = self._list_node_attributes() | {"auto_pad": "SAME_UPPER"}
            return self._crop_unread(g, data), attributes
        pairs = zip(sizes, self._dilate_kernel(), strict=True)
        image = tuple(size if isinstance(size, int) else extent for size, extent in pairs)
        return data, self.make_attributes(image)

    def _has_padding_of(self, sizes: Sizes) -> bool:
        """Return whether the padding depends on the size of a dynamic axis.

        It does not depend on the size with VALID, with a stride of 1, or for a window of one
        element.
        """
        axes = zip(sizes, self.strides, self._dilate_kernel(), strict=True)
        return self.same and any(
            not isinstance(size, int) and stride > 1 and extent > 1 for size, stride, extent in axes
        )

    def _crop_unread(self, g: Builder, data: Operand) -> Operand:
        """Return an image without the last rows and columns that no window reads.

        With unread rows or columns, runtimes make the padding of auto_pad negative. Pooling refuses
        negative padding, and convolutions with negative padding begin at a later element.
        """
        windows = zip(self.strides, self._dilate_kernel(), strict=True)
        unread = [(axis, s, extent) for axis, (s, extent) in enumerate(windows, 2) if extent < s]
        if not unread:
            return data
        axes, strides, extents = (g.ints(numbers) for numbers in zip(*unread, strict=True))
        sizes = g.Gather(g.Shape(data), axes, axis=0)
        last = g.Div(g.Sub(sizes, [1]), strides)
        ends = g.Add(g.Mul(last, strides), extents)
        return g.Slice(data, [0] * len(unread), ends, axes)

    def _list_node_attributes(self) -> dict[str, Any]:
        return {
            "kernel_shape": self.kernel,
            "strides": self.strides,
            # AveragePool has no such attribute; its windows are never dilated.
            "dilations": self.dilations if max(self.dilations) > 1 else None,
        }

    def _sum_padding(self) -> Shape:
        axes = len(self.kernel)
        pads = self.pads or (0,) * (2 * axes)
        return tuple(pads[axis] + pads[axes + axis] for axis in range(axes))

    def _dilate_kernel(self) -> Shape:
        pairs = zip(self.kernel, self.dilations, strict=True)
        return tuple((size - 1) * dilation + 1 for size, dilation in pairs)

    def _compute_excess(self, image: Shape) -> Shape:
        """Return by how many pixels the last window exceeds the image if the first begins at 0."""
        axes = zip(self.count_steps(image), self.strides, self._dilate_kernel(), image, strict=True)
        return tuple((n - 1) * stride + extent - size for n, stride, extent, size in axes)


def _turn_attributes(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the attributes of a window with the width before the height."""
    sizes = {key: value for key, value in attributes.items() if value is not None}
    return {key: [value[i ^ 1] for i in range(len(value))] for key, value in sizes.items()}


def make_window(op: Op, *kernel: int) -> Window:
    """Return the window with this kernel size and an operator's strides, dilations and padding."""
    axes, options = "dhw"[-len(kernel) :], op.options
    return build_window(
        kernel,
        tuple(getattr(options, f"stride_{axis}") for axis in axes),
        tuple(options.get(f"dilation_{axis}_factor", 1) for axis in axes),
        options.padding,
        op.read_made(WindowOptions).pads,
    )


def read_window_lists(options: Options, axes: int) -> Window:
    """Return the window of options that are lists for all axes, including batch and channels."""
    kernel, strides = (tuple(int(n) for n in options[name]) for name in ("ksize", "strides"))
    outer = {*kernel[:: axes - 1], *strides[:: axes - 1]}
    if not len(kernel) == len(strides) == axes or outer != {1}:
        raise OperatorError(
            f"ksize and strides must have {axes} items, the first and the last 1,"
            f" got {kernel} and {strides}"
        )
    return build_window(kernel[1:-1], strides[1:-1], (1,) * (axes - 2), options.padding)


def build_window(
    kernel: Shape, strides: Shape, dilations: Shape, padding: str, pads: Shape = ()
) -> Window:
    """Return a window; OperatorError if a number is not positive or the padding is unknown."""
    if min(*kernel, *strides, *dilations) < 1:
        raise OperatorError(
            "sizes, strides and dilations of a window must be positive, got a window of"
            f" {kernel} with strides {strides} and dilations {dilations}"
        )
    if padding not in ("SAME", "VALID"):
        raise OperatorError(f"the padding must be SAME or VALID, got {padding}")
    return Window(kernel, strides, dilations, same=padding == "SAME", pads=pads)


def read_int32_fields(operator: Operator, count: int) -> tuple[int, ...]:
    """Return the first `count` options of an operator of MediaPipe: int32 fields of a C struct."""
    raw = operator.op.custom_options
    if len(raw) < 4 * count:
        raise OperatorError(f"its options must have {4 * count} bytes or more, got {len(raw)}")
    return struct.unpack(f"<{count}i", raw[: 4 * count])


def find_padding(number: int) -> str:
    """Return the name of a TfLitePadding."""
    return _find_name(number, _PADDINGS, "padding")


def find_activation(number: int) -> str:
    """Return the name of a TfLiteFusedActivation."""
    return _find_name(number, _ACTIVATIONS, "activation function")


def _find_name(number: int, names: tuple[str, ...], name_of_option: str) -> str:
    if not 0 <= number < len(names):
        raise OperatorError(f"the {name_of_option} must be below {len(names)}, got {number}")
    return names[number]

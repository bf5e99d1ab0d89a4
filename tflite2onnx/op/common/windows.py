"""Image operators (NHWC in TFLite, NCHW in ONNX), and windows that slide over images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from math import prod
from typing import Any, NamedTuple

import numpy as np

from tflite2onnx.builder.builder import Builder, Operand, Value, View
from tflite2onnx.graph import Options
from tflite2onnx.op.base import Category, OperatorError
from tflite2onnx.op.traits import DynamicShape
from tflite2onnx.tensor import DType, Shape, Sizes
from tflite2onnx.utils.dimension import Dim, is_known


class ImageOperator(DynamicShape):
    """The base of convolutions, pooling, resizing and block shuffling."""

    category = Category.IMPLICIT
    tflite = "NHWC -> NHWC"
    onnx = "NCHW -> NCHW"
    dynamic_axes = "N"

    @cached_property
    def _known_sizes(self) -> dict[int, Mapping[str, int]]:
        return {}

    def sizes(self, operand: int) -> Mapping[str, int]:
        """Return the sizes of an operand's axes by their letters.

        Raises:
            OperatorError: the operand has another number of axes than letters, or an empty axis.
        """
        if operand not in self._known_sizes:
            self._known_sizes[operand] = self._read_sizes(operand)
        return self._known_sizes[operand]

    def _read_sizes(self, operand: int) -> Mapping[str, int]:
        tensor = self.output if operand < 0 else self.input(operand)
        letters = self.axis_letters(operand)
        if len(letters) != tensor.rank or 0 in tensor.shape:
            raise OperatorError(
                f"{tensor.name} must have the axes {letters}, none empty, got {list(tensor.shape)}"
            )
        return dict(zip(letters, tensor.shape, strict=True))


def image_of(view: View) -> Shape:
    """Return the height and width of an operand with the axes H and W."""
    return view.size("H"), view.size("W")


def dynamic_image_of(view: View) -> Sizes:
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

    def steps(self, image: Sequence[Dim]) -> tuple[Dim, ...]:
        """Return how many positions the window has: the size of a convolution's output.

        Raises:
            OperatorError: the window is larger than the padded image.
        """
        counts = tuple(
            -(-size // stride) if self.same else (size + pads - extent) // stride + 1
            for size, pads, extent, stride in zip(
                image, self._sum_padding(), self._dilate_kernel(), self.strides, strict=True
            )
        )
        if any(is_known(count) and count < 1 for count in counts):
            raise OperatorError(
                f"the window must fit into the image {image}, got {self._dilate_kernel()}"
            )
        return counts

    def attributes(self, image: Shape) -> dict[str, Any]:
        """Return the window as ONNX attributes; `pads` are the begins of all axes, then the ends.

        SAME adds as much padding as the last window needs.
        """
        if self.pads:
            return self._list_node_attributes() | {"pads": self.pads}
        return self.list_cropping_attributes(self._compute_excess(image))

    def full(self, image: Sequence[Dim]) -> tuple[Dim, ...]:
        """Return the size of the image that windows at all positions cover together."""
        axes = zip(image, self.strides, self._dilate_kernel(), strict=True)
        return tuple((n - 1) * stride + extent for n, stride, extent in axes)

    def list_cropping_attributes(self, excess: Sequence[int]) -> dict[str, Any]:
        """Return the window as ONNX attributes; `excess` is the total padding of each axis.

        Of an odd number, the larger half comes at the end.
        """
        pads = [max(n, 0) for n in excess]
        return self._list_node_attributes() | {
            "pads": [n // 2 for n in pads] + [n - n // 2 for n in pads]
        }

    def place(self, g: Builder, x: View, data: Operand) -> tuple[Operand, dict[str, Any]]:
        """Return an image to slide over, and the window as ONNX attributes.

        `x` has the sizes of the image, which may be dynamic; `data` are its elements, NCHW.
        """
        sizes = dynamic_image_of(x)
        if self._padding_depends_on(sizes):
            attributes = self._list_node_attributes() | {"auto_pad": "SAME_UPPER"}
            return self._crop_unread(g, data), attributes
        pairs = zip(sizes, self._dilate_kernel(), strict=True)
        image = tuple(size if isinstance(size, int) else extent for size, extent in pairs)
        return data, self.attributes(image)

    def gather(self, g: Builder, data: Value, image: Shape, steps: Shape, filler: Operand) -> Value:
        """Return the elements of each window of images in place of their channels.

        `image` are the height, the width and the channels of `data`, channels last. The elements of
        a window are in this order, too. `steps` are the numbers of windows in a column and in a
        row. `filler` are pixels of the padding, one for each image: [images, 1, channels]. Gather
        copies the channels of a pixel at once, and takes less time than a Slice for each place in
        the window and Concat.
        """
        *size, channels = image
        if self.kernel == (1, 1) and steps == tuple(size):
            return data
        pads = self.attributes(tuple(size))["pads"]
        last = prod(size)  # the index of the filler, behind all pixels
        pixels = g.reshape(data, (-1, last, channels))
        places = g.Add(*self._list_places(g, size, steps, pads))  # a runtime folds it
        if any(pads):
            pixels = g.Concat(pixels, filler, axis=1)
            places = g.Min(places, g.scalar(last, DType.INT64))
        windows = g.Gather(pixels, places, axis=1)
        return g.reshape(windows, (-1, *steps, prod(self.kernel) * channels))

    def _list_places(
        self, g: Builder, size: Sequence[int], steps: Shape, pads: Shape
    ) -> list[Value]:
        """Return constants whose sum is the place of each element of each window in an image.

        The sum is [rows, columns, height, width]. It is the number of pixels or more for elements
        of the padding.
        """
        constants = []
        for axis, pixels in enumerate((size[1], 1)):
            inner = np.arange(self.kernel[axis]) * self.dilations[axis] - pads[axis]
            index = np.arange(steps[axis])[:, None] * self.strides[axis] + inner
            outside = (index < 0) | (index >= size[axis])
            index = np.where(outside, prod(size), index * pixels)
            places = index[:, None, :, None] if axis == 0 else index[None, :, None, :]
            constants.append(g.constant(places, DType.INT64))
        return constants

    def _padding_depends_on(self, sizes: Sizes) -> bool:
        """Return whether the padding depends on the size of a dynamic axis.

        It does not with VALID, with a stride of 1, and for a window of one element, which has none.
        """
        axes = zip(sizes, self.strides, self._dilate_kernel(), strict=True)
        return self.same and any(
            not isinstance(size, int) and stride > 1 and extent > 1 for size, stride, extent in axes
        )

    def _crop_unread(self, g: Builder, data: Operand) -> Operand:
        """Return an image without the last rows and columns, if no window reads them.

        For unread rows and columns, auto_pad of ONNX Runtime makes the padding negative, which
        pooling refuses, and with which convolutions begin at a later element.
        """
        windows = zip(self.strides, self._dilate_kernel(), strict=True)
        narrow = [(axis, s, extent) for axis, (s, extent) in enumerate(windows, 2) if extent < s]
        if not narrow:
            return data
        axes, strides, extents = (g.ints(numbers) for numbers in zip(*narrow, strict=True))
        sizes = g.Gather(g.Shape(data), axes, axis=0)
        last = g.Div(g.Sub(sizes, g.ints([1])), strides)
        ends = g.Add(g.Mul(last, strides), extents)
        return g.Slice(data, g.ints([0] * len(narrow)), ends, axes)

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
        """Return how far the last window would exceed the image if the first began at 0."""
        axes = zip(self.steps(image), self.strides, self._dilate_kernel(), image, strict=True)
        return tuple((n - 1) * stride + extent - size for n, stride, extent, size in axes)


def window_of(options: Options, *kernel: int) -> Window:
    """Return the window with this kernel size and an operator's strides, dilations and padding.

    Raises:
        OperatorError: an option is out of range.
    """
    axes = "dhw"[-len(kernel) :]
    return build_window(
        kernel,
        tuple(getattr(options, f"stride_{axis}") for axis in axes),
        tuple(options.get(f"dilation_{axis}_factor", 1) for axis in axes),
        options.padding,
        options.get("pads", ()),
    )


def window_from_lists(options: Options, axes: int) -> Window:
    """Return the window of options that are lists for all axes, with batch and channels.

    Raises:
        OperatorError: an option is out of range, or the window spans batch or channels.
    """
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
    if padding not in ("SAME", "VALID", "EXPLICIT"):
        raise OperatorError(f"the padding must be SAME, VALID or EXPLICIT, got {padding}")
    return Window(kernel, strides, dilations, same=padding == "SAME", pads=pads)

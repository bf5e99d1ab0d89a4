"""Operators on images, NHWC in TFLite and NCHW in ONNX, and the windows that slide over them."""

from __future__ import annotations

from typing import Any, NamedTuple

from tflite2onnx.builder.builder import View
from tflite2onnx.graph import Options
from tflite2onnx.op.base import Category, OperatorError
from tflite2onnx.op.traits import DynamicShape
from tflite2onnx.tensor import Shape, Sizes


class ImageOperator(DynamicShape):
    """What convolutions, pooling, resizing and block shuffling have in common."""

    category = Category.IMPLICIT
    tflite = "NHWC -> NHWC"
    onnx = "NCHW -> NCHW"
    dynamic_axes = "N"

    def sizes(self, operand: int) -> dict[str, int]:
        """Return the sizes of an operand's axes by their letters.

        Raises OperatorError if it has not the axes that the letters name, or one is empty.
        """
        tensor = self.output if operand < 0 else self.input(operand)
        letters = self.axis_letters(operand)
        if len(letters) != tensor.rank or 0 in tensor.shape:
            raise OperatorError(
                f"{tensor.name} is {list(tensor.shape)} where {letters} is expected"
            )
        return dict(zip(letters, tensor.shape, strict=True))


def image_of(view: View) -> Shape:
    """Return how many rows and columns an operand with such axes has."""
    return view.size("H"), view.size("W")


def open_image_of(view: View) -> Sizes:
    """Return the same, with names for sizes that stay open."""
    rows, columns = (view.tensor.sizes[view.letters.index(letter)] for letter in "HW")
    return rows, columns


class Window(NamedTuple):
    """A window that slides over the rows and columns of an image: (height, width) throughout.

    A convolution slides it over its input; a transposed one, which is a convolution backwards,
    over its output. The formulas are GetWindowedOutputSize's and ComputePadding's, of LiteRT's
    kernels/padding.h. Files know no `pads` but those of SAME: what is given here, (top, left,
    bottom, right), is what other operators have added (see `fuse_convolutions`).
    """

    kernel: Shape
    strides: Shape
    dilations: Shape
    same: bool
    pads: Shape = ()

    def steps(self, image: Shape) -> Shape:
        """Return how many places the window takes: the size of what a convolution makes.

        Raises OperatorError if it fits nowhere.
        """
        counts = tuple(
            -(-size // stride) if self.same else (size + pads - extent) // stride + 1
            for size, pads, extent, stride in zip(
                image, self._total_padding(), self._dilated_kernel(), self.strides, strict=True
            )
        )
        if min(counts) < 1:
            raise OperatorError(f"a window of {self._dilated_kernel()} does not fit into {image}")
        return counts

    def attributes(self, image: Shape) -> dict[str, Any]:
        """Return the window in ONNX's words; pads are all those before, then all those behind.

        SAME pads with what the last window lacks. Of an odd number the larger half is behind.
        """
        if self.pads:
            return self._node_attributes() | {"pads": self.pads}
        lacking = [max(excess, 0) for excess in self._excess(image)]
        return self._node_attributes() | {
            "pads": [n // 2 for n in lacking] + [n - n // 2 for n in lacking]
        }

    def open_attributes(self, sizes: Sizes) -> dict[str, Any]:
        """Return the same for an image of which some sizes stay open, if they are names."""
        if all(isinstance(size, int) for size in sizes):
            return self.attributes(tuple(size for size in sizes if isinstance(size, int)))
        if self.same and max(self.strides) > 1:
            return self._node_attributes() | {"auto_pad": "SAME_UPPER"}
        # What is lacking depends on no size then.
        return self.attributes(self._dilated_kernel())

    def _node_attributes(self) -> dict[str, Any]:
        return {
            "kernel_shape": self.kernel,
            "strides": self.strides,
            # AveragePool has no such attribute, and no window of its is dilated.
            "dilations": self.dilations if max(self.dilations) > 1 else None,
        }

    def count_unreached(self, image: Shape) -> Shape:
        """Return how many of the last rows and columns lie behind the last window.

        They are fewer than the stride: more had room for another window.
        """
        return tuple(max(-excess, 0) for excess in self._excess(image))

    def _total_padding(self) -> Shape:
        axes = len(self.kernel)
        pads = self.pads or (0,) * (2 * axes)
        return tuple(pads[axis] + pads[axes + axis] for axis in range(axes))

    def _dilated_kernel(self) -> Shape:
        pairs = zip(self.kernel, self.dilations, strict=True)
        return tuple((size - 1) * dilation + 1 for size, dilation in pairs)

    def _excess(self, image: Shape) -> Shape:
        """Return how far the last window would stick out if the first stood at the very start."""
        places = zip(self.steps(image), self.strides, self._dilated_kernel(), image, strict=True)
        return tuple((n - 1) * stride + extent - size for n, stride, extent, size in places)


def window_of(options: Options, *kernel: int) -> Window:
    """Return the window of this size that an operator's options describe.

    Raises OperatorError if they describe none.
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
    """Return the window of options that say something of all axes, batch and channels too.

    Raises OperatorError if they describe none.
    """
    kernel, strides = (tuple(int(n) for n in options[name]) for name in ("ksize", "strides"))
    outer = {*kernel[:: axes - 1], *strides[:: axes - 1]}
    if not len(kernel) == len(strides) == axes or outer != {1}:
        raise OperatorError(f"a window of {kernel} has strides {strides}")
    return build_window(kernel[1:-1], strides[1:-1], (1,) * (axes - 2), options.padding)


def build_window(
    kernel: Shape, strides: Shape, dilations: Shape, padding: str, pads: Shape = ()
) -> Window:
    """Return the window that these numbers describe; OperatorError if they describe none."""
    if min(*kernel, *strides, *dilations) < 1:
        raise OperatorError(f"a window of {kernel} has strides {strides} and dilations {dilations}")
    if padding not in ("SAME", "VALID", "EXPLICIT"):
        raise OperatorError(f"its padding is {padding}, neither SAME nor VALID")
    return Window(kernel, strides, dilations, same=padding == "SAME", pads=pads)

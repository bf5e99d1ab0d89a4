"""Functions with which a pass makes operators and tensors."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tflite2onnx.graph import Op, Options
from tflite2onnx.made_options import MadeOptions, ReshapeOptions
from tflite2onnx.tensor import Array, Assembly, DType, Quantization, Shape, Sizes, Tensor


class Rewriter:
    """Collects operators in `ops`, in order of execution.

    The operators get the index of the `source` operator, which error messages name.
    """

    def __init__(self, source: Op) -> None:
        self.source = source
        self.ops: list[Op] = []

    def op(
        self,
        code: str,
        *inputs: Tensor | float | list[Any] | None,
        output: Tensor | None = None,
        like: Tensor | None = None,
        name: str = "",
        shape: Shape | None = None,
        made: MadeOptions | None = None,
        **options: Any,  # noqa: ANN401 - as in the options table
    ) -> Tensor:
        """Add a builtin operator, or a TensorFlow operator (Flex), and return its output.

        A number among the inputs becomes a float32 constant of one element, and a list of whole
        numbers, or of rows of them, an int32 constant: axes, sizes, pads.
        The output is `output`, or a new tensor like another (see `make_like`), whose name ends in
        the code of the operator by default.
        """
        if not output:
            if not like:
                raise TypeError(
                    f"{code} must have an output, or a tensor with the type and shape of the output"
                )
            output = make_like(like, name or code.lower(), shape)
        tensors = tuple(map(_make_operand, inputs))
        custom = code.startswith("Flex")
        op = Op(code, self.source.index, tensors, (output,), Options(options), custom, made=made)
        self.ops.append(op)
        return output

    def convolve(
        self,
        code: str,
        x: Tensor,
        filters: Array,
        biases: Array | None = None,
        *,
        output: Tensor | None = None,
        like: Tensor | None = None,
        name: str = "",
        activation: str = "NONE",
    ) -> Tensor:
        """Add CONV_2D or DEPTHWISE_CONV_2D with constant filters of one pixel; see `op`."""
        target = output or like or x
        label = f"{target.name}/{name or code.lower()}"
        constants = [Tensor(f"{label}/filters", filters.shape, x.dtype, filters)]
        if biases is not None:
            constants.append(Tensor(f"{label}/biases", biases.shape, x.dtype, biases))
        return self.op(
            code,
            x,
            *constants,
            output=output,
            like=like,
            name=name,
            padding="VALID",
            stride_h=1,
            stride_w=1,
            dilation_h_factor=1,
            dilation_w_factor=1,
            fused_activation_function=activation,
        )

    def reshape(
        self,
        x: Tensor,
        shape: Shape = (),
        *,
        output: Tensor | None = None,
        like: Tensor | None = None,
        name: str = "",
    ) -> Tensor:
        """Add RESHAPE to a shape or an output, which may keep a dynamic first axis; see `op`."""
        shape = output.shape if output else shape
        new_shape = (-1, *shape[1:]) if 0 in x.symbols else shape
        return self.op(
            "RESHAPE", x, output=output, like=like, name=name, shape=shape, new_shape=new_shape
        )

    def transpose(
        self,
        x: Tensor,
        order: Sequence[int],
        *,
        like: Tensor | None = None,
        name: str = "",
        output: Tensor | None = None,
    ) -> Tensor:
        """Add TRANSPOSE by a constant permutation; see `op`."""
        shape = tuple(x.shape[i] for i in order)
        return self.op("TRANSPOSE", x, [*order], output=output, like=like, name=name, shape=shape)

    def multiply(
        self, a: Tensor, b: Tensor, *, like: Tensor, name: str = "", shape: Shape, **swapped: bool
    ) -> Tensor:
        """Add BATCH_MATMUL; `adj_x` and `adj_y` may swap the axes of its matrices; see `op`."""
        options: dict[str, Any] = {"adj_x": False, "adj_y": False, **swapped}
        return self.op("BATCH_MATMUL", a, b, like=like, name=name, shape=shape, **options)

    def slice(
        self,
        x: Tensor,
        axis: int,
        first: int,
        count: int,
        *,
        like: Tensor | None = None,
        name: str = "",
    ) -> Tensor:
        """Add SLICE of `count` elements of an axis; its output is like the input by default."""
        shape, begin, size = [*x.shape], [0] * x.rank, [-1] * x.rank
        shape[axis], begin[axis], size[axis] = count, first, count
        return self.op("SLICE", x, begin, size, like=like or x, name=name, shape=(*shape,))

    def crop(self, x: Tensor, first: Sequence[int], y: Tensor) -> Tensor:
        """Add SLICE from the first row and column of an image to the size of an output."""
        return self.op("SLICE", x, [0, *first, 0], [-1, *y.shape[1:]], output=y)

    def copy(self, source: Tensor, target: Tensor) -> Tensor:
        """Add an operator that copies elements and their shape; return the target."""
        made = ReshapeOptions(keeps_shape=True)
        return self.op("RESHAPE", source, output=target, new_shape=source.shape, made=made)


def _make_operand(x: Tensor | float | list[Any] | None) -> Tensor | None:
    if isinstance(x, list):
        return make_int32("numbers", x)
    return make_float32(x) if isinstance(x, (int, float)) else x


def make_like(like: Tensor, name: str, shape: Shape | None = None) -> Tensor:
    """Return a computed tensor, "<like>/<name>", with the dtype and scale of another tensor.

    The shape is `shape`, by default that of the other tensor. TensorFlow's converter joins the
    names of all operators that it fuses by semicolons; the new name has the first of these names.
    """
    new = replace(like, name=f"{like.name.partition(';')[0]}/{name}", data=None)
    return new if shape is None else replace(new, shape=shape, shape_signature=())


def make_float_like(like: Tensor, name: str) -> Tensor:
    """Return a computed float32 tensor, "<like>/<name>", for another tensor's real numbers."""
    new = make_like(like, name)
    return replace(new, dtype=DType.FLOAT32, quantization=None, is_variable=False)


def make_constant(name: str, data: Array, like: Tensor) -> Tensor:
    """Return a constant of the dtype of another tensor."""
    return Tensor(name, data.shape, like.dtype, data)


def make_from_axes(name: str, like: Sequence[Tensor], axes: Sequence[int], dtype: DType) -> Tensor:
    """Return a computed tensor; each of its axes has the size of an axis of a tensor."""
    shape = tuple(t.shape[i] for t, i in zip(like, axes, strict=True))
    sizes: Sizes = tuple(t.sizes[i] for t, i in zip(like, axes, strict=True))
    symbols = {i: size for i, size in enumerate(sizes) if isinstance(size, str)}
    return Tensor(name, shape, dtype, symbols=symbols)


def shift_filters(
    w: Tensor, shifts: Sequence[tuple[int, int]], window: Sequence[int], fill: int = 0
) -> Assembly:
    """Return filters with a larger window, [shifts * outputs, height, width, channels].

    For each of `shifts`, in rows and columns, the filters are at this position of the window. All
    other elements are `fill`.
    """
    outputs, *size, channels = w.shape
    spaces = [large - small for large, small in zip(window, size, strict=True)]
    pads = tuple(
        ((0, 0), *((n, space - n) for n, space in zip(shift, spaces, strict=True)), (0, 0))
        for shift in shifts
    )
    shape = (len(shifts) * outputs, *window, channels)
    return Assembly(w.values, pads, tuple(range(len(shape))), shape, fill)


def assemble_constant(name: str, assembly: Assembly, like: Tensor) -> Tensor:
    """Return a constant of copies of a smaller constant, with the dtype of another tensor."""
    constant = make_constant(name, assembly.elements, like)
    return replace(constant, assembly=assembly)


def repeat_channels(filters: Tensor, w: Tensor, count: int) -> Tensor:
    """Return filters whose scales repeat those of other filters `count` times."""
    scales = w.quantization
    if scales and scales.per_axis:
        scales = Quantization(np.tile(scales.scale, count), np.tile(scales.zero_point, count))
    return replace(filters, quantization=scales)


def repeat_biases(bias: Tensor | None, name: str, count: int) -> Tensor | None:
    """Return biases repeated `count` times, as "<bias>/<name>"; None if there are none."""
    if not bias:
        return None
    values = np.tile(bias.values.reshape(-1), count)
    return repeat_channels(make_constant(f"{bias.name}/{name}", values, bias), bias, count)


def make_int32(name: str, numbers: int | Sequence[int] | Array) -> Tensor:
    """Return an int32 constant: a scalar for a number, else of the shape of the numbers."""
    data = np.array(numbers, np.int32)
    return Tensor(name, data.shape, DType.INT32, data)


def make_float32(number: float) -> Tensor:
    """Return a float32 constant of one element, a scalar."""
    return Tensor(f"{number:g}", (), DType.FLOAT32, np.array(number, np.float32))


def as_builtin(
    op: Op, code: str, /, *inputs: Tensor | None, made: MadeOptions | None = None, **options: object
) -> Op:
    """Return an operator as a builtin operator with other options; on its own inputs by default."""
    table = Options(options)
    return replace(
        op, code=code, custom=False, inputs=inputs or op.inputs, options=table, made=made
    )

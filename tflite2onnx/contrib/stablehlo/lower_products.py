"""Lower STABLEHLO_CONVOLUTION and STABLEHLO_DOT_GENERAL to LiteRT's products.

A convolution has any order of axes. lhs_dilation puts zeros between the elements of the input, so
that a convolution with stride 1 is a transposed convolution.
"""

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from tflite2onnx.operators import Op, OperatorError, Shape, Tensor
from tflite2onnx.rewriting import Rewriter, make_constant

_AXES = {2: "hw", 3: "dhw"}
_MOST_GROUPS = 64  # each group of a 3-D convolution is an operator of its own


def lower_convolution(rw: Rewriter, op: Op, x: Tensor, w: Tensor) -> None:
    """Make a convolution of 1 to 3 spatial axes; with lhs_dilation, a transposed one.

    Raises:
        OperatorError: the convolution has a form that the operators lack.
    """
    o, (y,) = op.options, op.outputs
    spatial, kernel = tuple(o.input_spatial_dimensions), tuple(o.kernel_spatial_dimensions)
    count = len(spatial)
    _check_convolution(op, x, w)
    ones = [1] * count
    strides, bases, steps = (
        list(column or ones) for column in (o.window_strides, o.lhs_dilation, o.rhs_dilation)
    )
    pads = list(o.padding or [0, 0] * count)
    low, high = pads[::2], pads[1::2]
    image = rw.transpose(
        x, (o.input_batch_dimension, *spatial, o.input_feature_dimension), like=x, name="image"
    )
    # The filters are in the order of the kernel's spatial axes, input and output channels.
    order = (*kernel, o.kernel_input_feature_dimension, o.kernel_output_feature_dimension)
    filters = rw.transpose(w, order, like=w, name="filters")
    turned = [axis for axis, yes in enumerate(o.window_reversal or ()) if yes]
    groups = o.feature_group_count or 1
    transposed = max(bases) > 1 and groups == 1 and max(*strides, *steps) == 1
    if transposed:
        # A transposed convolution writes its windows: it reads the mirrored filters.
        turned = [axis for axis in range(count) if axis not in turned]
    if turned:
        filters = rw.op("REVERSE_V2", filters, turned, like=filters, name="reversed")
    if count == 1:  # a row of an image
        image = _insert_axis(rw, image, 1)
        filters = _insert_axis(rw, filters, 0)
        strides, bases, steps = ([1, *column] for column in (strides, bases, steps))
        low, high = [0, *low], [0, *high]
    if transposed:
        whole = _transpose_convolution(rw, y, image, filters, bases)
        kernel_sizes = filters.shape[:-2]
        low, high = (
            [pad - size + 1 for pad, size in zip(side, kernel_sizes, strict=True)]
            for side in (low, high)
        )
        result = _pad(rw, whole, low, high, [1] * len(bases))
    else:
        result = _convolve(
            rw, y, _pad(rw, image, low, high, bases), filters, strides, steps, groups
        )
    _put_axes_in_place(rw, op, _join_rows(rw, result) if count == 1 else result)


def _check_convolution(op: Op, x: Tensor, w: Tensor) -> None:
    count = len(op.options.input_spatial_dimensions)
    if count not in (1, 2, 3) or x.rank != count + 2 or w.rank != count + 2:
        raise OperatorError(f"it must have 1 to 3 spatial axes, got {count}")
    if op.options.batch_group_count > 1:
        raise OperatorError(
            f"its batch_group_count must be 1, got {op.options.batch_group_count}: it is the"
            " gradient of a convolution, a part of training"
        )


def _join_rows(rw: Rewriter, image: Tensor) -> Tensor:
    """Return images of one row without their height."""
    sizes = _sizes(image)
    shape, new_shape = (image.shape[0], *image.shape[2:]), (sizes[0], *sizes[2:])
    return rw.op("RESHAPE", image, like=image, name="rows", shape=shape, new_shape=new_shape)


def _put_axes_in_place(rw: Rewriter, op: Op, image: Tensor) -> None:
    """Move the axes of images, with channels last, to those of the output."""
    (y,), axes = op.outputs, op.options
    back = [0] * y.rank
    back[axes.output_feature_dimension] = y.rank - 1
    for number, axis in enumerate(axes.output_spatial_dimensions, 1):
        back[axis] = number
    rw.transpose(image, back, output=y)


def _insert_axis(rw: Rewriter, x: Tensor, axis: int) -> Tensor:
    shape = (*x.shape[:axis], 1, *x.shape[axis:])
    return rw.op("EXPAND_DIMS", x, [axis], like=x, name="expanded", shape=shape)


def _sizes(x: Tensor) -> Shape:
    """Return a shape for RESHAPE, in which the first axis is the rest of the elements."""
    return (-1, *x.shape[1:])


def _pad(
    rw: Rewriter, x: Tensor, low: Sequence[int], high: Sequence[int], bases: Sequence[int]
) -> Tensor:
    """Add zeros between and around the elements of images; negative numbers crop."""
    if max(bases) == 1 and not any((*low, *high)):
        return x
    zero = make_constant(f"{x.name}/zero", np.zeros((), x.dtype.numpy), x)
    shape = [
        (n - 1) * base + 1 + before + after
        for n, base, before, after in zip(x.shape[1:-1], bases, low, high, strict=True)
    ]
    if min(shape) < 1:
        raise OperatorError(f"its padded images must have elements, got the sizes {shape}")
    shape = [x.shape[0], *shape, x.shape[-1]]
    if max(bases) == 1 and min(*low, *high) >= 0:
        table = [[0, 0], *([*pair] for pair in zip(low, high, strict=True)), [0, 0]]
        return rw.op("PAD", x, table, like=x, name="padded", shape=tuple(shape))
    return rw.op(
        "STABLEHLO_PAD", x, zero, like=x, name="padded", shape=tuple(shape),
        edge_padding_low=(0, *low, 0), edge_padding_high=(0, *high, 0),
        interior_padding=(0, *(base - 1 for base in bases), 0),
    )  # fmt: skip


def _windows(strides: Sequence[int], steps: Sequence[int]) -> dict[str, Any]:
    axes = _AXES[len(strides)]
    return {
        "padding": "VALID",
        **{f"stride_{axis}": n for axis, n in zip(axes, strides, strict=True)},
        **{f"dilation_{axis}_factor": n for axis, n in zip(axes, steps, strict=True)},
    }


def _convolve(
    rw: Rewriter,
    y: Tensor,
    image: Tensor,
    filters: Tensor,
    strides: Sequence[int],
    steps: Sequence[int],
    groups: int,
) -> Tensor:
    """Add a convolution without padding; the filters are [..., input, output channels]."""
    options = _windows(strides, steps)
    *window, inputs, outputs = filters.shape
    sizes = [
        (n - (k - 1) * step - 1) // stride + 1
        for n, k, step, stride in zip(image.shape[1:-1], window, steps, strides, strict=True)
    ]
    if inputs * groups != image.shape[-1] or outputs % groups:
        raise OperatorError(
            f"its {image.shape[-1]} channels must be {groups} groups of the {inputs} channels of a"
            f" filter, and its {outputs} filters a multiple of the groups"
        )
    shape = (image.shape[0], *sizes, outputs)
    if len(window) == 2:
        filters = rw.transpose(filters, (3, 0, 1, 2), like=filters, name="ohwi")
        return rw.op("CONV_2D", image, filters, like=y, name="conv", shape=shape, **options)
    if groups == 1:
        return rw.op("CONV_3D", image, filters, like=y, name="conv", shape=shape, **options)
    if groups > _MOST_GROUPS:
        raise OperatorError(f"it must have at most {_MOST_GROUPS} groups, got {groups}")
    parts = []
    for group in range(groups):
        part = rw.slice(image, -1, group * inputs, inputs, name=f"part_{group}")
        count = outputs // groups
        of_part = rw.slice(filters, -1, group * count, count, name=f"part_{group}")
        shape = (image.shape[0], *sizes, outputs // groups)
        name = f"conv_{group}"
        parts.append(rw.op("CONV_3D", part, of_part, like=y, name=name, shape=shape, **options))
    shape = (image.shape[0], *sizes, outputs)
    return rw.op("CONCATENATION", *parts, like=y, name="groups", shape=shape, axis=4)


def _transpose_convolution(
    rw: Rewriter, y: Tensor, image: Tensor, filters: Tensor, strides: Sequence[int]
) -> Tensor:
    """Add a transposed convolution of all windows; the filters are [..., input, output]."""
    *window, _, outputs = filters.shape
    pairs = zip(image.shape[1:-1], window, strides, strict=True)
    shape = (image.shape[0], *((n - 1) * stride + k for n, k, stride in pairs), outputs)
    options = _windows(strides, [1] * len(strides))
    if len(window) == 2:
        del options["dilation_h_factor"], options["dilation_w_factor"]
        filters = rw.transpose(filters, (3, 0, 1, 2), like=filters, name="ohwi")
        code = "TRANSPOSE_CONV"
    else:
        filters = rw.transpose(filters, (0, 1, 2, 4, 3), like=filters, name="dhwoi")
        code = "CONV_3D_TRANSPOSE"
    return rw.op(code, [*shape], filters, image, like=y, name="conv", shape=shape, **options)


def lower_dot_general(rw: Rewriter, op: Op, a: Tensor, b: Tensor) -> None:
    """Make one matrix product for each batch, with any free and contracted axes."""
    o, (y,) = op.options, op.outputs
    batches = [tuple(o.lhs_batching_dimensions or ()), tuple(o.rhs_batching_dimensions or ())]
    sums = [tuple(o.lhs_contracting_dimensions or ()), tuple(o.rhs_contracting_dimensions or ())]
    free = [
        tuple(axis for axis in range(x.rank) if axis not in (*batches[i], *sums[i]))
        for i, x in enumerate((a, b))
    ]
    dynamic = [i for i, x in enumerate((a, b)) if x.dynamic_axes]
    operands = []
    for i, x in enumerate((a, b)):
        if x.dtype is not y.dtype:
            raise OperatorError(
                f"its operands must have the output's type {y.dtype.label}, got {x.dtype.label}"
            )
        groups = (free[i], sums[i]) if i == 0 else (sums[i], free[i])
        order = (*batches[i], *groups[0], *groups[1])
        moved = rw.transpose(x, order, like=x, name="matrices")
        if any(len(group) != 1 for group in groups):
            shape = (
                *(x.shape[axis] for axis in batches[i]),
                *(prod(x.shape[axis] for axis in group) for group in groups),
            )
            parts = (*((axis,) for axis in batches[i]), *groups)
            sizes = _free_one(shape, [any(n in x.dynamic_axes for n in part) for part in parts])
            moved = rw.op("RESHAPE", moved, like=moved, name="rows", shape=shape, new_shape=sizes)
        operands.append(moved)
    merged = any(len(group) != 1 for group in free)
    code = "BATCH_MATMUL" if max(x.rank for x in operands) > 1 else "FlexBatchMatMulV2"
    options: dict[str, Any] = {"adj_x": False, "adj_y": False, "asymmetric_quantize_inputs": False}
    if y.dtype.label != "float32":
        code = "FlexBatchMatMulV2"
    shape = (*operands[0].shape[:-1], operands[1].shape[-1])
    if not merged:
        rw.op(code, *operands, output=y, **options)
        return
    product = rw.op(code, *operands, like=y, name="product", shape=shape, **options)
    sizes = _free_one(y.shape, [i in y.dynamic_axes for i in range(y.rank)]) if dynamic else y.shape
    rw.op("RESHAPE", product, output=y, new_shape=sizes)


def _free_one(shape: Sequence[int], dynamic: Sequence[bool]) -> Shape:
    """Return a shape for RESHAPE, with -1 for its dynamic axis."""
    if sum(dynamic) > 1:
        raise OperatorError(f"at most one of its axes may be dynamic, got {sum(dynamic)}")
    return tuple(-1 if free else n for n, free in zip(shape, dynamic, strict=True))

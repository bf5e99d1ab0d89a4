"""Functions that rewrite TensorFlow operators as TFLite operators (see `passes.flex.rules`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from zlib import crc32

import numpy as np

from tflite2onnx.graph import Op, Options
from tflite2onnx.passes.rewriter import Rewriter, as_builtin, constant, int32_constant, new_tensor
from tflite2onnx.tensor import DType, Shape, Tensor

_OPERANDS = 3
_ADDED = (DType.FLOAT32, DType.FLOAT16, DType.INT16, DType.INT32, DType.INT64)

# A rule returns the operators that replace one operator, None if TFLite has no equivalent.
Rule = Callable[[Op], Sequence[Op] | None]


@dataclass(frozen=True)
class Same:
    """A rule for an operator that TFLite has under another name.

    Attributes:
        code: the name in TFLite, of a builtin operator unless `custom`.
        options: the attributes that are options, "attribute" or "attribute:option".
        fixed: default values of TFLite options.
        needs: attributes that must have these values if they are present.
        inputs: the number of inputs that the operator must have; any number if None.
        custom: whether `code` is a custom operator.
        through: dtypes that TFLite lacks, and the dtypes that carry their elements between CASTs.
        stays: input dtypes for which the operator keeps its name, with TFLite's options.
        wide: whether TensorFlow's kernel supports more dtypes; the option `wide_types` says so.
    """

    code: str
    options: str = ""
    fixed: Mapping[str, Any] | None = None
    needs: Mapping[str, Any] | None = None
    inputs: int | None = None
    custom: bool = False
    through: Mapping[DType, DType] | None = None
    stays: tuple[DType, ...] = ()
    wide: bool = False

    def __call__(self, op: Op) -> Sequence[Op] | None:
        attributes = op.options
        if any(attributes.get(name, value) != value for name, value in (self.needs or {}).items()):
            return None
        if len(op.inputs) != (self.inputs or len(op.inputs)):
            return None
        pairs = (each.partition(":") for each in self.options.split())
        options = {ours or name: attributes[name] for name, _, ours in pairs if name in attributes}
        fixed = {"fused_activation_function": "NONE", **(self.fixed or {})}
        # A file may have an integer in place of a bool.
        flags = (name for name, usual in fixed.items() if isinstance(usual, bool))
        options |= {name: bool(options[name]) for name in flags if type(options.get(name)) is int}
        if any(type(options.get(name, usual)) is not type(usual) for name, usual in fixed.items()):
            return None
        table = Options({**fixed, **options, **({"wide_types": True} if self.wide else {})})
        if any(t.dtype in self.stays for t in op.present):
            return [replace(op, options=table)]
        same = replace(op, code=self.code, custom=self.custom, options=table)
        return _cast_through(same, self.through or {})


def _cast_through(op: Op, carriers: Mapping[DType, DType]) -> Sequence[Op]:
    """Return an operator that computes in other dtypes, and the CASTs before and after it."""
    others = {
        t: replace(t, name=f"{t.name}/wide", dtype=carriers[t.dtype], data=None, quantization=None)
        for t in (*op.present, *op.outputs)
        if t.dtype in carriers
    }
    casts = partial(Op, "CAST", op.index)
    return [
        *(casts((t,), (others[t],)) for t in dict.fromkeys(op.inputs) if t in others),
        replace(op.with_inputs(others), outputs=tuple(others.get(t, t) for t in op.outputs)),
        *(casts((others[t],), (t,)) for t in op.outputs if t in others),
    ]


def rule_with_axis_input(code: str, place: int, option: str = "axis") -> Rule:
    """Return a rule for an operator whose axis is input `place`, and an option in TFLite."""

    def rule(op: Op) -> Sequence[Op] | None:
        axis = op.operand(place % max(len(op.inputs), 1)).values
        if axis.size != 1 or not -len(op.inputs) <= place < len(op.inputs):
            return None
        inputs = [t for i, t in enumerate(op.inputs) if i != place % len(op.inputs)]
        options = {
            "fused_activation_function": "NONE",
            option: int(axis.reshape(-1)[0]),
            "batch_dims": op.options.get("batch_dims", 0),
        }
        return [replace(as_builtin(op, code, **options), inputs=tuple(inputs))]

    return rule


def rewrite_conv_2d(op: Op) -> Sequence[Op] | None:
    """Conv2D and DepthwiseConv2dNative: TFLite's weights have another order of axes."""
    if op.options.get("padding") == "EXPLICIT":
        return _pad_first(op)
    window, weights = _translate_window(op), op.operand(1)
    if not window or weights.rank != 4 or len(op.inputs) != 2:
        return None
    height, width, channels, filters = weights.shape
    rw = Rewriter(op)
    if op.code.endswith("Native"):
        shape = (1, height, width, channels * filters)
        turned = _add_reshape(rw, weights, shape)
        code = "DEPTHWISE_CONV_2D"
    else:
        shape = (filters, height, width, channels)
        turned = _add_transpose(rw, weights, (3, 0, 1, 2), shape)
        code = "CONV_2D"
    return [*rw.ops, as_builtin(op, code, op.inputs[0], turned, **window)]


def _add_reshape(rw: Rewriter, x: Tensor, shape: Shape) -> Tensor:
    return rw.op(
        "RESHAPE", x, int32_constant(f"{x.name}/shape", shape), like=x, shape=shape, new_shape=shape
    )


def _add_transpose(rw: Rewriter, x: Tensor, order: Sequence[int], shape: Shape) -> Tensor:
    return rw.op("TRANSPOSE", x, int32_constant(f"{x.name}/order", order), like=x, shape=shape)


def _pad_first(op: Op) -> Sequence[Op] | None:
    """Return PAD and a convolution, for the padding EXPLICIT."""
    pads, x = op.options.get("explicit_paddings", []), op.operand(0)
    if x.rank != 4 or len(pads) != 2 * x.rank or min(pads) < 0:
        return None
    shape = tuple(size + a + b for size, a, b in zip(x.shape, pads[::2], pads[1::2], strict=True))
    paddings = int32_constant(
        f"{op.outputs[0].name}/paddings", np.array(pads, np.int32).reshape(x.rank, 2)
    )
    rw = Rewriter(op)
    padded = rw.op("PAD", x, paddings, like=x, shape=shape)
    options = Options({**op.options, "padding": "VALID"})
    convolution = rewrite_conv_2d(replace(op, inputs=(padded, *op.inputs[1:]), options=options))
    return [*rw.ops, *convolution] if convolution else None


def _translate_window(op: Op, axes: str = "hw") -> Mapping[str, Any]:
    """Return TFLite's options of a convolution or pool, {} if TFLite cannot express them.

    TFLite has an option for each axis of the image in place of lists.
    """
    attributes, layout = op.options, f"N{axes.upper()}C"
    strides, dilations = (
        attributes.get(name, [1] * len(layout)) for name in ("strides", "dilations")
    )
    plain = (
        attributes.get("data_format", layout) == layout and attributes.get("padding") != "EXPLICIT"
    )
    if not plain or any(
        len(each) != len(layout) or each[0] != 1 or each[-1] != 1 for each in (strides, dilations)
    ):
        return {}
    return {
        "fused_activation_function": "NONE",
        "padding": attributes.get("padding"),
        **{f"stride_{a}": n for a, n in zip(axes, strides[1:], strict=False)},
        **{f"dilation_{a}_factor": n for a, n in zip(axes, dilations[1:], strict=False)},
    }


def rewrite_conv_3d(op: Op) -> Sequence[Op] | None:
    """Conv3D and Conv3DBackpropInputV2."""
    window, backprop = _translate_window(op, "dhw"), "Backprop" in op.code
    if not window or len(op.inputs) != (_OPERANDS if backprop else 2):
        return None
    return [as_builtin(op, "CONV_3D_TRANSPOSE" if backprop else "CONV_3D", **window)]


def rewrite_pool_2d(op: Op) -> Sequence[Op] | None:
    """MaxPool and AvgPool."""
    window, kernel = _translate_window(op), op.options.get("ksize", [])
    if not window or len(kernel) != 4 or kernel[0] != 1 or kernel[3] != 1:
        return None
    code = "MAX_POOL_2D" if "Max" in op.code else "AVERAGE_POOL_2D"
    size = {"filter_height": kernel[1], "filter_width": kernel[2]}
    return [as_builtin(op, code, **window, **size)]


def rewrite_clip_by_value(op: Op) -> Sequence[Op] | None:
    """ClipByValue: MAXIMUM(MINIMUM(x, high), low)."""
    if len(op.inputs) != 3 or len(op.outputs) != 1:
        return None
    x, low, high = (op.operand(i) for i in range(3))
    capped = replace(op.outputs[0], name=f"{op.outputs[0].name}/minimum")
    custom = x.dtype in (DType.FLOAT64, DType.UINT16, DType.UINT32, DType.UINT64)
    least, most = ("FlexMinimum", "FlexMaximum") if custom else ("MINIMUM", "MAXIMUM")
    first = replace(
        op, code=least, custom=custom, inputs=(x, high), outputs=(capped,), options=Options()
    )
    return [first, replace(first, code=most, inputs=(capped, low), outputs=op.outputs)]


def rewrite_conv_backprop(op: Op) -> Sequence[Op] | None:
    """Conv2DBackpropInput: TRANSPOSE_CONV, whose weights have another order of axes."""
    window = _translate_window(op)
    sizes, weights, x = (op.operand(i) for i in range(3))
    if not window or weights.rank != 4 or len(op.inputs) != _OPERANDS:
        return None
    height, width, out, channels = weights.shape
    rw = Rewriter(op)
    turned = _add_transpose(rw, weights, (2, 0, 1, 3), (out, height, width, channels))
    return [*rw.ops, as_builtin(op, "TRANSPOSE_CONV", sizes, turned, x, **window)]


def rewrite_bias_add(op: Op) -> Sequence[Op] | None:
    """BiasAdd: the bias belongs to the last axis, or to axis 1 of an NCHW image."""
    x, bias = op.operand(0), op.operand(1)
    add = replace(op, code="FlexAddV2", options=Options())
    if x.dtype in _ADDED:
        add = as_builtin(op, "ADD", fused_activation_function="NONE")
    if op.options.get("data_format", "NHWC") != "NCHW":
        return [add]
    if len(op.inputs) != 2:
        return None
    rw = Rewriter(op)
    turned = _add_reshape(rw, bias, (bias.elements, *[1] * (x.rank - 2)))
    return [*rw.ops, replace(add, inputs=(x, turned))]


def rewrite_identity_n(op: Op) -> Sequence[Op] | None:
    """IdentityN: one Identity for each input."""
    if len(op.inputs) != len(op.outputs):
        return None
    return [
        replace(op, code="FlexIdentity", inputs=(x,), outputs=(y,))
        for x, y in zip(op.inputs, op.outputs, strict=True)
    ]


def rewrite_reverse(op: Op) -> Sequence[Op] | None:
    """Reverse: a bool for each axis selects the axes; TFLite has a list of axes."""
    x, which = op.operand(0), op.operand(1)
    if not which.has_data:
        return None
    axes = int32_constant(f"{which.name}/axes", np.flatnonzero(which.values))
    return [as_builtin(op, "REVERSE_V2", x, axes)]


def rewrite_fake_quantization(op: Op) -> Sequence[Op] | None:
    """FakeQuantWithMinMaxVars: the bounds are inputs, and options in TFLite."""
    x, *bounds = op.inputs
    if len(bounds) != 2 or any(not t or t.values.size != 1 for t in bounds):
        return None
    low, high = (float(t.values.item()) for t in op.present[1:])
    options = {"num_bits": 8, "narrow_range": False, **op.options, "min": low, "max": high}
    return [as_builtin(op, "FAKE_QUANT", x, **options)]


def rewrite_format_permute(op: Op) -> Sequence[Op] | None:
    """DataFormatVecPermute: GATHER of one value for each axis, in the order of another format."""
    source, target = (
        str(op.options.get(name, usual))
        for name, usual in (("src_format", "NHWC"), ("dst_format", "NCHW"))
    )
    x = op.operand(0)
    if x.shape[:1] != (len(source),) or sorted(source) != sorted(target):
        return None
    order = int32_constant(f"{op.outputs[0].name}/order", [source.index(axis) for axis in target])
    return [as_builtin(op, "GATHER", x, order, axis=0, batch_dims=0)]


def rewrite_table(op: Op) -> Sequence[Op] | None:
    """HashTableV2: the number of a table in TFLite is a hash of its TensorFlow name."""
    name = str(op.options.get("shared_name", ""))
    if not name:
        return None
    number = crc32(f"{op.options.get('container', '')}/{name}".encode())
    return [as_builtin(op, "HASHTABLE", table_id=number)]


def rule_with_block_size(code: str) -> Rule:
    """Return a rule for operators with one block size for both axes of an image."""

    def rule(op: Op) -> Sequence[Op] | None:
        size = int(op.options.get("block_size", 0))
        if len(op.inputs) != 2 or size < 1:
            return None
        block = int32_constant(f"{op.outputs[0].name}/block", (size, size))
        return [as_builtin(op, code, op.inputs[0], block, op.inputs[1])]

    return rule


def rewrite_batch_norm(op: Op) -> Sequence[Op] | None:
    """FusedBatchNorm in inference: (x - mean) * scale / sqrt(variance + epsilon) + offset."""
    attributes, dtype = op.options, DType.FLOAT32
    plain = attributes.get("data_format", "NHWC") in ("NHWC", "NDHWC")
    if (
        attributes.get("is_training", True)
        or not plain
        or len(op.present) != 5
        or any(t.dtype is not dtype for t in op.present)
    ):
        return None
    x, scale, offset, mean, variance = op.present
    y, rw = op.outputs[0], Rewriter(op)
    channels = replace(variance, name=y.name)
    epsilon = np.array(attributes.get("epsilon", 1e-4), np.float32).reshape(())
    least = constant(f"{y.name}/epsilon", epsilon, variance)
    stabilized = rw.op("ADD", variance, least, like=channels, name="variance")
    deviation = rw.op("SQRT", stabilized, like=channels, name="deviation")
    factor = rw.op("DIV", scale, deviation, like=channels, name="factor")
    product = rw.op("MUL", mean, factor, like=channels, name="mean")
    rest = rw.op("SUB", offset, product, like=channels, name="rest")
    rw.op("ADD", rw.op("MUL", x, factor, like=y, name="product"), rest, output=y)
    # The further outputs are the statistics for training, then values for gradients.
    for output, statistic in zip(op.outputs[1:5], (mean, variance, mean, variance), strict=False):
        if output.shape == statistic.shape:
            rw.op("RESHAPE", statistic, output=output, new_shape=output.shape)
    return rw.ops


def rewrite_table_size(op: Op) -> Sequence[Op] | None:
    """LookupTableSizeV2: a scalar; TFLite's operator returns a list of one number."""
    if len(op.outputs) != 1:
        return None
    (y,) = op.outputs
    rw, size = Rewriter(op), new_tensor(y, "list", (1,))
    rw.op("RESHAPE", size, output=y, new_shape=())
    return [as_builtin(replace(op, outputs=(size,)), "HASHTABLE_SIZE"), *rw.ops]

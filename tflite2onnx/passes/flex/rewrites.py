"""How TensorFlow's operators are rewritten as TFLite's: what `passes.flex.rules` names."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from zlib import crc32

import numpy as np

from tflite2onnx.graph import Op, Options
from tflite2onnx.tensor import DType, Tensor

_OPERANDS = 3
_ADDED = (DType.FLOAT32, DType.FLOAT16, DType.INT16, DType.INT32, DType.INT64)

# A rule returns the operators that stand for one, None if there are no such.
Rule = Callable[[Op], Sequence[Op] | None]


@dataclass(frozen=True)
class Same:
    """The same operator under a name of TFLite's.

    Attributes:
        code: TFLite's name, of a builtin operator unless it is `custom`.
        options: TFLite's option for each attribute of TensorFlow's that counts.
        needs: attributes that have to be these, where they are given at all.
        fixed: options of TFLite's that have these values, where no attribute says otherwise.
        inputs: how many inputs both have; any number if None.
        custom: the name is that of a custom operator.
        through: types that TFLite lacks, and what holds their elements: there and back by CAST.
        stays: types in which it stays what it is, with TFLite's options.
    """

    code: str
    options: Mapping[str, str] | None = None
    needs: Mapping[str, Any] | None = None
    fixed: Mapping[str, Any] | None = None
    inputs: int | None = None
    custom: bool = False
    through: Mapping[DType, DType] | None = None
    stays: tuple[DType, ...] = ()

    def __call__(self, op: Op) -> Sequence[Op] | None:
        given = op.options
        if any(given.get(name, value) != value for name, value in (self.needs or {}).items()):
            return None
        if self.inputs is not None and len(op.inputs) != self.inputs:
            return None
        found = {ours: given[name] for name, ours in (self.options or {}).items() if name in given}
        fixed = {"fused_activation_function": "NONE", **(self.fixed or {})}
        if any(type(found.get(name, usual)) is not type(usual) for name, usual in fixed.items()):
            return None
        options = Options({**fixed, **found})
        if any(t is not None and t.dtype in self.stays for t in op.inputs):
            return [replace(op, options=options)]
        same = replace(op, code=self.code, custom=self.custom, options=options)
        return _cast_through(same, self.through or {})


def _cast_through(op: Op, carriers: Mapping[DType, DType]) -> Sequence[Op]:
    """Return an operator in the types that carry those of its operands, between CASTs."""
    others = {
        t: replace(t, name=f"{t.name}/wide", dtype=carriers[t.dtype], data=None, quantization=None)
        for t in (*op.inputs, *op.outputs)
        if t is not None and t.dtype in carriers
    }
    casts = partial(Op, "CAST", op.index)
    return [
        *(casts((t,), (others[t],)) for t in dict.fromkeys(op.inputs) if t in others),
        replace(op.with_inputs(others), outputs=tuple(others.get(t, t) for t in op.outputs)),
        *(casts((others[t],), (t,)) for t in op.outputs if t in others),
    ]


def of_axis_input(code: str, place: int, option: str = "axis") -> Rule:
    """Return a rule for an operator whose axis is an input, and in TFLite an option."""

    def rule(op: Op) -> Sequence[Op] | None:
        axis = op.inputs[place] if -len(op.inputs) <= place < len(op.inputs) else None
        if axis is None or axis.data is None or axis.data.size != 1:
            return None
        inputs = [t for i, t in enumerate(op.inputs) if i != place % len(op.inputs)]
        options = {
            "fused_activation_function": "NONE",
            option: int(axis.data.reshape(-1)[0]),
            "batch_dims": op.options.get("batch_dims", 0),
        }
        new = replace(op, code=code, custom=False, inputs=tuple(inputs), options=Options(options))
        return [new]

    return rule


def conv_2d(op: Op) -> Sequence[Op] | None:
    """Conv2D and DepthwiseConv2dNative: the weights' axes stand in another order."""
    if op.options.get("padding") == "EXPLICIT":
        return _pad_first(op)
    window = _window(op)
    weights = op.inputs[1] if len(op.inputs) == 2 else None
    if window is None or weights is None or weights.rank != 4:
        return None
    height, width, channels, filters = weights.shape
    if op.code.endswith("Native"):
        shape = (1, height, width, channels * filters)
        how = _constant(f"{weights.name}/shape", shape)
        turned, turn = _op(op, "RESHAPE", weights, how, shape, {"new_shape": shape})
        code = "DEPTHWISE_CONV_2D"
    else:
        shape = (filters, height, width, channels)
        how = _constant(f"{weights.name}/order", (3, 0, 1, 2))
        turned, turn = _op(op, "TRANSPOSE", weights, how, shape, {})
        code = "CONV_2D"
    inputs = op.inputs[0], turned
    return [turn, replace(op, code=code, custom=False, inputs=inputs, options=Options(window))]


def _pad_first(op: Op) -> Sequence[Op] | None:
    """Return a convolution of an image that is padded as a list says."""
    pads, x = op.options.get("explicit_paddings", []), op.inputs[0]
    if x is None or x.rank != 4 or len(pads) != 2 * x.rank or min(pads) < 0:
        return None
    shape = [size + a + b for size, a, b in zip(x.shape, pads[::2], pads[1::2], strict=True)]
    how = _constant(f"{op.outputs[0].name}/paddings", pads)
    how = replace(how, shape=(x.rank, 2), data=np.reshape(pads, (x.rank, 2)).astype(np.int32))
    padded, pad = _op(op, "PAD", x, how, shape, {})
    inside = replace(
        op, inputs=(padded, *op.inputs[1:]), options=Options({**op.options, "padding": "VALID"})
    )
    convolution = conv_2d(inside)
    return None if convolution is None else [pad, *convolution]


def _window(op: Op) -> Mapping[str, Any] | None:
    """Return the options of a convolution or pool over images, None if TFLite has none such."""
    given = op.options
    strides, dilations = (given.get(name, [1, 1, 1, 1]) for name in ("strides", "dilations"))
    plain = given.get("data_format", "NHWC") == "NHWC" and given.get("padding") != "EXPLICIT"
    if not plain or any(
        len(each) != 4 or each[0] != 1 or each[3] != 1 for each in (strides, dilations)
    ):
        return None
    return {
        "fused_activation_function": "NONE",
        "padding": given.get("padding"),
        "stride_h": strides[1],
        "stride_w": strides[2],
        "dilation_h_factor": dilations[1],
        "dilation_w_factor": dilations[2],
    }


def conv_3d(op: Op) -> Sequence[Op] | None:
    """Conv3D and Conv3DBackpropInputV2: the same, but for how options are written."""
    given, axes, code = op.options, "dhw", "CONV_3D"
    count = 2
    if "Backprop" in op.code:
        code, count = "CONV_3D_TRANSPOSE", _OPERANDS
    strides, dilations = (given.get(name, [1] * 5) for name in ("strides", "dilations"))
    if given.get("data_format", "NDHWC") != "NDHWC" or len(op.inputs) != count:
        return None
    if any(len(each) != 5 or each[0] != 1 or each[4] != 1 for each in (strides, dilations)):
        return None
    options = {
        "fused_activation_function": "NONE",
        "padding": given.get("padding"),
        **{f"stride_{a}": n for a, n in zip(axes, strides[1:4], strict=True)},
        **{f"dilation_{a}_factor": n for a, n in zip(axes, dilations[1:4], strict=True)},
    }
    return [replace(op, code=code, custom=False, options=Options(options))]


def pool_2d(op: Op) -> Sequence[Op] | None:
    """MaxPool and AvgPool: windows as lists of four."""
    window, kernel = _window(op), op.options.get("ksize", [])
    if window is None or len(kernel) != 4 or kernel[0] != 1 or kernel[3] != 1:
        return None
    code = "MAX_POOL_2D" if "Max" in op.code else "AVERAGE_POOL_2D"
    size = {"filter_height": kernel[1], "filter_width": kernel[2]}
    return [replace(op, code=code, custom=False, options=Options({**window, **size}))]


def rewrite_clip_by_value(op: Op) -> Sequence[Op] | None:
    """ClipByValue: the smaller of one bound and the larger of the other."""
    if len(op.inputs) != 3 or len(op.outputs) != 1:
        return None
    x, low, high = op.inputs
    if x is None:
        return None
    capped = replace(op.outputs[0], name=f"{op.outputs[0].name}/minimum")
    custom = x.dtype in (DType.FLOAT64, DType.UINT16, DType.UINT32, DType.UINT64)
    least, most = ("FlexMinimum", "FlexMaximum") if custom else ("MINIMUM", "MAXIMUM")
    first = replace(
        op, code=least, custom=custom, inputs=(x, high), outputs=(capped,), options=Options()
    )
    return [first, replace(first, code=most, inputs=(capped, low), outputs=op.outputs)]


def _constant(name: str, numbers: Sequence[int]) -> Tensor:
    data = np.array(numbers, np.int32)
    return Tensor(name, data.shape, DType.INT32, data)


def _op(
    op: Op, code: str, x: Tensor, how: Tensor, shape: Sequence[int], options: Mapping[str, Any]
) -> tuple[Tensor, Op]:
    """Return a tensor made of another, and the operator that makes it."""
    made = replace(
        x, name=f"{x.name}/{code.lower()}", shape=tuple(shape), data=None, shape_signature=()
    )
    inputs = (x, how)
    return made, Op(code, op.index, inputs, (made,), Options(options))


def rewrite_conv_backprop(op: Op) -> Sequence[Op] | None:
    """Conv2DBackpropInput: a convolution backwards, the weights' axes in another order."""
    window = _window(op)
    sizes, weights, x = op.inputs if len(op.inputs) == _OPERANDS else (None, None, None)
    if window is None or weights is None or weights.rank != 4:
        return None
    height, width, out, channels = weights.shape
    how = _constant(f"{weights.name}/order", (2, 0, 1, 3))
    turned, turn = _op(op, "TRANSPOSE", weights, how, (out, height, width, channels), {})
    inputs = sizes, turned, x
    code = "TRANSPOSE_CONV"
    return [turn, replace(op, code=code, custom=False, inputs=inputs, options=Options(window))]


def with_bias(op: Op) -> Sequence[Op] | None:
    """BiasAdd: of an image channels first the bias belongs to the second axis."""
    x, bias = op.inputs if len(op.inputs) == 2 else (None, None)
    add = replace(op, code="FlexAddV2", options=Options())
    if x is not None and x.dtype in _ADDED:
        add = replace(
            add, code="ADD", custom=False, options=Options({"fused_activation_function": "NONE"})
        )
    if op.options.get("data_format", "NHWC") != "NCHW":
        return [add]
    if x is None or bias is None:
        return None
    shape = (bias.elements, *[1] * (x.rank - 2))
    how = _constant(f"{bias.name}/shape", shape)
    turned, turn = _op(op, "RESHAPE", bias, how, shape, {"new_shape": shape})
    return [turn, replace(add, inputs=(x, turned))]


def rewrite_identity_n(op: Op) -> Sequence[Op] | None:
    """IdentityN: each input is an output."""
    if len(op.inputs) != len(op.outputs):
        return None
    return [
        replace(op, code="FlexIdentity", inputs=(x,), outputs=(y,))
        for x, y in zip(op.inputs, op.outputs, strict=True)
    ]


def rewrite_reverse(op: Op) -> Sequence[Op] | None:
    """Reverse: a truth value for each axis says whether it is reversed."""
    x, which = op.inputs if len(op.inputs) == 2 else (None, None)
    if which is None or which.data is None:
        return None
    axes = _constant(f"{which.name}/axes", [int(i) for i in np.flatnonzero(which.data)])
    return [replace(op, code="REVERSE_V2", custom=False, inputs=(x, axes), options=Options())]


def fake_quantized(op: Op) -> Sequence[Op] | None:
    """FakeQuantWithMinMaxVars: its bounds are inputs, and in TFLite options."""
    x, *bounds = op.inputs
    if len(bounds) != 2 or any(t is None or t.data is None or t.elements != 1 for t in bounds):
        return None
    low, high = (float(t.data.item()) for t in bounds if t is not None and t.data is not None)
    options = {"num_bits": 8, "narrow_range": False, **op.options, "min": low, "max": high}
    new = replace(op, code="FAKE_QUANT", custom=False, inputs=(x,), options=Options(options))
    return [new]


def rewrite_format_permute(op: Op) -> Sequence[Op] | None:
    """DataFormatVecPermute: sizes, or other things of each axis, in the order of a format."""
    source, target = (
        str(op.options.get(name, usual))
        for name, usual in (("src_format", "NHWC"), ("dst_format", "NCHW"))
    )
    x = op.inputs[0]
    if x is None or x.shape[:1] != (len(source),) or sorted(source) != sorted(target):
        return None
    order = _constant(f"{op.outputs[0].name}/order", [source.index(axis) for axis in target])
    options = Options({"axis": 0, "batch_dims": 0})
    return [replace(op, code="GATHER", custom=False, inputs=(x, order), options=options)]


def table(op: Op) -> Sequence[Op] | None:
    """HashTableV2: TFLite numbers its tables, where TensorFlow gives them names."""
    name = str(op.options.get("shared_name", ""))
    if not name:
        return None
    number = crc32(f"{op.options.get('container', '')}/{name}".encode())
    return [replace(op, code="HASHTABLE", custom=False, options=Options({"table_id": number}))]


def in_blocks(code: str) -> Rule:
    """Return a rule for what has one block size for both axes of an image."""

    def rule(op: Op) -> Sequence[Op] | None:
        size = int(op.options.get("block_size", 0))
        if len(op.inputs) != 2 or size < 1:
            return None
        block = _constant(f"{op.outputs[0].name}/block", (size, size))
        inputs = op.inputs[0], block, op.inputs[1]
        return [replace(op, code=code, custom=False, inputs=inputs, options=Options())]

    return rule


def rewrite_batch_norm(op: Op) -> Sequence[Op] | None:
    """FusedBatchNorm of what is learned: times scale / sqrt(variance + epsilon), plus the rest."""
    given, dtype = op.options, DType.FLOAT32
    operands = [t for t in op.inputs if t is not None]
    plain = given.get("data_format", "NHWC") in ("NHWC", "NDHWC")
    if (
        given.get("is_training", True)
        or not plain
        or len(operands) != 5
        or any(t.dtype is not dtype for t in operands)
    ):
        return None
    x, scale, offset, mean, variance = operands
    name, made = op.outputs[0].name, []

    def step(code: str, label: str, *inputs: Tensor, y: Tensor | None = None) -> Tensor:
        y = y or replace(variance, name=f"{name}/{label}", data=None)
        made.append(Op(code, op.index, inputs, (y,), options))
        return y

    options = Options({"fused_activation_function": "NONE"})
    epsilon = np.array(given.get("epsilon", 1e-4), np.float32).reshape(())
    least = Tensor(f"{name}/epsilon", (), dtype, epsilon)
    deviation = step("SQRT", "deviation", step("ADD", "variance", variance, least))
    factor = step("DIV", "factor", scale, deviation)
    rest = step("SUB", "rest", offset, step("MUL", "mean", mean, factor))
    product = replace(op.outputs[0], name=f"{name}/product")
    step("ADD", "", step("MUL", "", x, factor, y=product), rest, y=op.outputs[0])
    # What training goes on with is what was learned; the rest of the outputs is for gradients.
    learned = zip(op.outputs[1:5], (mean, variance, mean, variance), strict=False)
    return [
        *made,
        *(
            Op("RESHAPE", op.index, (t,), (y,), Options({"new_shape": y.shape}))
            for y, t in learned
            if y.shape == t.shape
        ),
    ]


def table_size(op: Op) -> Sequence[Op] | None:
    """LookupTableSizeV2: a number, of which TFLite makes a list."""
    if len(op.outputs) != 1:
        return None
    (y,) = op.outputs
    listed = replace(y, name=f"{y.name}/list", shape=(1,), shape_signature=())
    size = replace(op, code="HASHTABLE_SIZE", custom=False, outputs=(listed,), options=Options())
    return [size, Op("RESHAPE", op.index, (listed,), (y,), Options({"new_shape": ()}))]

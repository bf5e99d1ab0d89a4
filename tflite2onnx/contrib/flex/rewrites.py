"""Functions that rewrite TensorFlow operators as TFLite operators (see `contrib.flex.rules`)."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from zlib import crc32

import numpy as np

from tflite2onnx.operators import DType, Op, OperatorError, Options, Tensor
from tflite2onnx.rewriting import (
    MadeOptions,
    Rewriter,
    as_builtin,
    make_constant,
    make_int32,
    make_like,
)

_MOST_BITS = 16
_ADDED = (DType.FLOAT32, DType.FLOAT16, DType.INT16, DType.INT32, DType.INT64)

# A rule returns the operators that replace an operator. It returns None, or raises an error of
# `as_operator_error`, if TFLite has no equivalent.
Translation = Callable[[Op], Sequence[Op] | None]


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
        through: dtypes that TFLite lacks, and the wider dtypes in which the operator computes
            between CASTs.
        stays: input dtypes for which the operator keeps its TensorFlow name, with TFLite's options.
        wide: whether the operator keeps the wider support of TensorFlow's kernel.
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
        pairs = (item.partition(":") for item in self.options.split())
        options = {ours or name: attributes[name] for name, _, ours in pairs if name in attributes}
        fixed = {"fused_activation_function": "NONE", **(self.fixed or {})}
        # A file may contain an integer in place of a bool.
        flags = (name for name, usual in fixed.items() if isinstance(usual, bool))
        options |= {name: bool(options[name]) for name in flags if type(options.get(name)) is int}
        if any(type(options.get(name, usual)) is not type(usual) for name, usual in fixed.items()):
            return None
        table, made = Options({**fixed, **options}), MadeOptions(of_tensorflow=True)
        if any(t.dtype in self.stays for t in op.present):
            return [replace(op, options=table, made=made if self.wide else None)]
        renamed = as_builtin(op, self.code, made=made if self.wide else None)
        renamed = replace(renamed, custom=self.custom, options=table)
        return _cast_through(renamed, self.through or {})


def _cast_through(op: Op, carriers: Mapping[DType, DType]) -> Sequence[Op]:
    """Return an operator that computes in other dtypes, and the CASTs before and after it."""
    others = {
        t: replace(t, name=f"{t.name}/wide", dtype=carriers[t.dtype], data=None, quantization=None)
        for t in op.tensors
        if t.dtype in carriers
    }
    casts = partial(Op, "CAST", op.index)
    return [
        *(casts((t,), (others[t],)) for t in dict.fromkeys(op.inputs) if t in others),
        replace(op.with_inputs(others), outputs=tuple(others.get(t, t) for t in op.outputs)),
        *(casts((others[t],), (t,)) for t in op.outputs if t in others),
    ]


def move_axis_to_option(code: str, place: int) -> Translation:
    """Return a rule that turns the input `place`, which is an axis, into the option `axis`."""

    def rewrite_op(op: Op) -> Sequence[Op]:
        inputs = [*op.present]
        options = {
            "axis": int(inputs.pop(place).values.item()),
            "batch_dims": op.options.get("batch_dims", 0),
        }
        return [as_builtin(op, code, *inputs, **options)]

    return rewrite_op


def put_channels_last(rewrite: Translation, place: int = 0) -> Translation:
    """Return a rule that also takes an NCHW or NCDHW image as the input `place`.

    TensorFlow's optimizer for GPUs leaves such operators. TRANSPOSEs before and after the operator
    make its image NHWC.
    """

    def rewrite_op(op: Op) -> Sequence[Op] | None:
        layout = str(op.options.get("data_format", ""))
        if layout not in ("NCHW", "NCDHW"):
            return rewrite(op)
        x, y, inputs, rw = op.operand(place), op.outputs[0], [*op.inputs], Rewriter(op)
        if not x.rank == y.rank == len(layout):
            return None
        to_last = (0, *range(2, x.rank), 1)
        inputs[place] = rw.transpose(x, to_last, like=x, name="channels_last")
        if place and op.operand(0).elements == x.rank:  # the sizes of the result
            order = make_int32(f"{y.name}/order", to_last)
            inputs[0] = rw.op("GATHER", inputs[0], order, like=inputs[0], axis=0, batch_dims=0)
        made = make_like(y, "channels_last", tuple(y.shape[i] for i in to_last))
        options = {**op.options, "data_format": "".join(layout[i] for i in to_last)}
        for name in ("strides", "dilations", "ksize", "explicit_paddings"):
            if numbers := options.get(name):
                rows = np.reshape(numbers, (x.rank, -1))[[*to_last]]
                options[name] = [int(number) for number in rows.flat]
        outputs = (made, *op.outputs[1:])
        turned = replace(op, inputs=(*inputs,), outputs=outputs, options=Options(options))
        before, rest = [*rw.ops], rewrite(turned)
        rw.transpose(made, (0, x.rank - 1, *range(1, x.rank - 1)), output=y)
        return [*before, *rest, rw.ops[-1]] if rest else None

    return rewrite_op


def rewrite_conv_2d(op: Op) -> Sequence[Op] | None:
    """Conv2D and DepthwiseConv2dNative: TFLite's weights have another order of axes."""
    if op.options.get("padding") == "EXPLICIT":
        return _pad_first(op, 0, rewrite_conv_2d)
    x, weights = op.present
    height, width, channels, filters = weights.shape
    rw = Rewriter(op)
    if op.code.endswith("Native"):
        code, shape = "DEPTHWISE_CONV_2D", (1, height, width, channels * filters)
        # The number of channels of computed filters may be known at run time only.
        new_shape = (*shape[:3], -1) if weights.dynamic_axes else shape
        turned = rw.op("RESHAPE", weights, like=weights, shape=shape, new_shape=new_shape)
    else:
        code, turned = "CONV_2D", rw.transpose(weights, (3, 0, 1, 2), like=weights)
    options = {**_translate_window(op), "depth_multiplier": filters}
    return [*rw.ops, as_builtin(op, code, x, turned, **options)]


def _pad_first(op: Op, fill: float, rewrite: Translation) -> Sequence[Op] | None:
    """Return PADV2 and the operator on the padded image, for the padding EXPLICIT."""
    rw, pads, (x, *weights) = Rewriter(op), op.options.explicit_paddings, op.present
    if x.rank != 4 or min(pads) < 0:
        return None
    shape = tuple(size + a + b for size, a, b in zip(x.shape, pads[::2], pads[1::2], strict=True))
    paddings = np.reshape(pads, (-1, 2)).tolist()
    outside = make_constant(f"{op.outputs[0].name}/outside", np.asarray(fill), x)
    image = rw.op("PADV2", x, paddings, outside, like=x, shape=shape)
    options = Options({**op.options, "padding": "VALID"})
    rest = rewrite(replace(op, inputs=(image, *weights), options=options))
    return [*rw.ops, *rest] if rest else None


def _translate_window(op: Op, axes: str = "hw") -> Mapping[str, Any]:
    """Return the options of each axis of a window, no lists; OperatorError if TFLite lacks them."""
    layout, padding = f"N{axes.upper()}C", op.options.get("padding")
    lists = strides, dilations = [
        op.options.get(name, [1] * len(layout)) for name in ("strides", "dilations")
    ]
    is_plain = all(len(part) == len(layout) and part[0] == part[-1] == 1 for part in lists)
    if not is_plain or op.options.get("data_format", layout) != layout or padding == "EXPLICIT":
        raise OperatorError("its window must have one number for each axis of an image")
    return {
        "padding": padding,
        **{f"stride_{a}": n for a, n in zip(axes, strides[1:], strict=False)},
        **{f"dilation_{a}_factor": n for a, n in zip(axes, dilations[1:], strict=False)},
    }


def rewrite_conv_3d(op: Op) -> Sequence[Op] | None:
    """Conv3D and Conv3DBackpropInputV2."""
    code, count = ("CONV_3D_TRANSPOSE", 3) if "Backprop" in op.code else ("CONV_3D", 2)
    window = _translate_window(op, "dhw")
    return [as_builtin(op, code, **window)] if len(op.inputs) == count else None


def rewrite_pool_2d(op: Op) -> Sequence[Op] | None:
    """MaxPool and AvgPool; the padding EXPLICIT of MaxPool is less than any number."""
    if op.options.get("padding") == "EXPLICIT" and "Max" in op.code:
        return _pad_first(op, -np.inf, rewrite_pool_2d)
    batch, height, width, channels = op.options.ksize
    code = "MAX_POOL_2D" if "Max" in op.code else "AVERAGE_POOL_2D"
    options = {**_translate_window(op), "filter_height": height, "filter_width": width}
    return [as_builtin(op, code, **options)] if batch == channels == 1 else None


def rewrite_clip_by_value(op: Op) -> Sequence[Op]:
    """ClipByValue: MAXIMUM(MINIMUM(x, high), low)."""
    (x, low, high), (y,) = op.present, op.outputs
    capped = replace(y, name=f"{y.name}/minimum")
    custom = x.dtype in (DType.FLOAT64, DType.UINT16, DType.UINT32, DType.UINT64)
    lower, upper = ("FlexMinimum", "FlexMaximum") if custom else ("MINIMUM", "MAXIMUM")
    first = replace(
        op, code=lower, custom=custom, inputs=(x, high), outputs=(capped,), options=Options()
    )
    return [first, replace(first, code=upper, inputs=(capped, low), outputs=op.outputs)]


def rewrite_conv_backprop(op: Op) -> Sequence[Op] | None:
    """Conv2DBackpropInput: TRANSPOSE_CONV, whose weights have another order of axes.

    For the padding EXPLICIT, a SLICE removes the padding from the result.
    """
    rw, (sizes, weights, x), (y,) = Rewriter(op), op.present, op.outputs
    if weights.rank != 4:
        return None
    turned = rw.transpose(weights, (2, 0, 1, 3), like=weights)
    if sizes.elements == 2 and sizes.has_data:
        whole = (x.shape[0], *map(int, sizes.values.flat), weights.shape[2])
        sizes = make_int32(f"{y.name}/sizes", whole)
    if op.options.get("padding") != "EXPLICIT":
        window = _translate_window(op)
        return [*rw.ops, as_builtin(op, "TRANSPOSE_CONV", sizes, turned, x, **window)]
    pads = np.reshape(op.options.explicit_paddings, (-1, 2))
    if pads.shape != (4, 2) or pads.min() < 0 or pads[[0, 3]].any():
        return None
    window = _translate_window(replace(op, options=Options({**op.options, "padding": "VALID"})))
    shape = tuple(int(n) for n in sizes.values.reshape(-1) + pads.sum(1))
    full = rw.op("TRANSPOSE_CONV", [*shape], turned, x, like=y, shape=shape, **window)
    rw.crop(full, [int(n) for n in pads[1:3, 0]], y)
    return rw.ops


def rewrite_bias_add(op: Op) -> Sequence[Op] | None:
    """BiasAdd: the bias belongs to the last axis, or to axis 1 of an NCHW image."""
    rw, (x, bias) = Rewriter(op), op.present
    if op.options.get("data_format", "NHWC") == "NCHW":
        bias = rw.reshape(bias, (bias.elements, *[1] * (x.rank - 2)), like=bias)
    add = as_builtin(op, "ADD", x, bias)
    if x.dtype not in _ADDED:
        add = replace(add, code="FlexAddV2", custom=True)
    return [*rw.ops, add]


def apply_to_each(code: str) -> Translation:
    """Return a rule that applies an operator to each input, for the output in its place."""

    def rewrite_op(op: Op) -> Sequence[Op]:
        pairs, custom = zip(op.inputs, op.outputs, strict=True), code.startswith("Flex")
        return [replace(as_builtin(op, code, x), outputs=(y,), custom=custom) for x, y in pairs]

    return rewrite_op


def rewrite_reverse(op: Op) -> Sequence[Op] | None:
    """Reverse: a bool for each axis selects the axes; TFLite has a list of axes."""
    x, flags = op.operand(0), op.operand(1)
    if not flags.has_data:
        return None
    axes = make_int32(f"{flags.name}/axes", np.flatnonzero(flags.values))
    return [as_builtin(op, "REVERSE_V2", x, axes)]


def rewrite_fake_quantization(op: Op) -> Sequence[Op]:
    """FakeQuantWithMinMaxArgs and FakeQuantWithMinMaxVars, whose bounds are inputs: FAKE_QUANT.

    Without the lowest integer (narrow_range), which FAKE_QUANT lacks, and with bounds for each
    channel, the arithmetic is spelled out.
    """
    x, *bounds = op.present
    options = {"min": -6.0, "max": 6.0, "num_bits": 8, "narrow_range": False, **op.options}
    bits = options["num_bits"]
    if not 2 <= bits <= _MOST_BITS:
        raise OperatorError(f"its num_bits must be from 2 to {_MOST_BITS}, got {bits}")
    name = op.outputs[0].name
    for key in () if bounds else ("min", "max"):
        bounds.append(make_constant(f"{name}/{key}", np.asarray(options[key], np.float32), x))
    low, high = bounds
    if low.has_data and high.has_data:
        if not (low.values <= high.values).all():
            raise OperatorError(
                "its lower bound must be at most its upper one,"
                f" got {low.values.tolist()} and {high.values.tolist()}"
            )
        if low.elements == 1 and not options["narrow_range"]:
            options |= {"min": low.values.item(), "max": high.values.item()}
            return [as_builtin(op, "FAKE_QUANT", x, **options)]
    return _spell_fake_quantization(op, options, low, high)


def _spell_fake_quantization(
    op: Op, options: Mapping[str, Any], low: Tensor, high: Tensor
) -> Sequence[Op]:
    """Return floor((clip(x) - minimum) / scale + 0.5) * scale + minimum.

    The range is shifted so that 0 is representable. Equal bounds make 0. What depends on constant
    bounds only is folded.
    """
    first, last = np.float32(options["narrow_range"]), np.float32(2 ** options["num_bits"] - 1)
    x, y, rw = op.operand(0), op.outputs[0], Rewriter(op)

    def step(
        code: str,
        a: Tensor | np.float32,
        b: Tensor | np.float32,
        output: Tensor | None = None,
        like: Tensor = y,
    ) -> Tensor:
        name = f"{y.name}/{len(rw.ops)}"
        operands = (
            t if isinstance(t, Tensor) else make_constant(name, np.asarray(t), x) for t in (a, b)
        )
        return rw.op(code, *operands, output=output, like=like, name=str(len(rw.ops)))

    compute = partial(step, like=replace(low, data=None))
    scale = compute("DIV", compute("SUB", high, low), last - first)
    divisor = compute("MAXIMUM", scale, np.finfo(np.float32).tiny)  # without a range it is 0
    start = compute("SUB", first, compute("DIV", low, divisor))
    start = compute("MINIMUM", compute("MAXIMUM", start, first), last)
    zero_point = rw.op("FLOOR", compute("ADD", start, np.float32(0.5)), like=start)
    minimum, maximum = (
        compute("MUL", compute("SUB", end, zero_point), scale) for end in (first, last)
    )
    clipped = step("MAXIMUM", step("MINIMUM", x, maximum), minimum)
    steps = step("ADD", step("DIV", step("SUB", clipped, minimum), divisor), np.float32(0.5))
    whole = rw.op("FLOOR", steps, like=y)
    step("ADD", step("MUL", whole, scale), minimum, y)
    return rw.ops


def rewrite_format_permute(op: Op) -> Sequence[Op] | None:
    """DataFormatVecPermute: GATHER of one value for each axis, in the order of another format."""
    source = str(op.options.get("src_format", "NHWC"))
    target = str(op.options.get("dst_format", "NCHW"))
    x = op.operand(0)
    if x.shape[:1] != (len(source),) or sorted(source) != sorted(target):
        return None
    order = make_int32(f"{op.outputs[0].name}/order", [source.index(axis) for axis in target])
    return [as_builtin(op, "GATHER", x, order, axis=0, batch_dims=0)]


def rewrite_table(op: Op) -> Sequence[Op] | None:
    """HashTableV2: the number of a table in TFLite is a hash of its TensorFlow name."""
    name = str(op.options.get("shared_name", ""))
    if not name:
        return None
    number = crc32(f"{op.options.get('container', '')}/{name}".encode())
    return [as_builtin(op, "HASHTABLE", table_id=number)]


def repeat_block_size(code: str) -> Translation:
    """Return a rule for operators with one block size for both axes of an image."""

    def rewrite_op(op: Op) -> Sequence[Op] | None:
        size, (x, crops) = int(op.options.block_size), op.present
        block = make_int32(f"{op.outputs[0].name}/block", (size, size))
        return [as_builtin(op, code, x, block, crops)] if size > 0 else None

    return rewrite_op


def rewrite_batch_norm(op: Op) -> Sequence[Op] | None:
    """FusedBatchNorm in inference: (x - mean) * scale / sqrt(variance + epsilon) + offset."""
    is_plain = op.options.get("data_format", "NHWC") in ("NHWC", "NDHWC")
    is_float = all(t.dtype is DType.FLOAT32 for t in op.present)
    if op.options.get("is_training", True) or not is_plain or not is_float:
        return None
    x, scale, offset, mean, variance = op.present
    y, rw = op.outputs[0], Rewriter(op)
    channels = replace(variance, name=y.name)
    epsilon = np.array(op.options.get("epsilon", 1e-4), np.float32).reshape(())
    epsilon_constant = make_constant(f"{y.name}/epsilon", epsilon, variance)
    stabilized = rw.op("ADD", variance, epsilon_constant, like=channels, name="variance")
    deviation = rw.op("SQRT", stabilized, like=channels, name="deviation")
    factor = rw.op("DIV", scale, deviation, like=channels, name="factor")
    product = rw.op("MUL", mean, factor, like=channels, name="mean")
    rest = rw.op("SUB", offset, product, like=channels, name="rest")
    rw.op("ADD", rw.op("MUL", x, factor, like=y, name="product"), rest, output=y)
    # The outputs after the first are the statistics for training, then values for gradients.
    for output, statistic in zip(op.outputs[1:5], (mean, variance, mean, variance), strict=False):
        if output.shape == statistic.shape:
            rw.op("RESHAPE", statistic, output=output, new_shape=output.shape)
    return rw.ops


def rewrite_table_size(op: Op) -> Sequence[Op]:
    """LookupTableSizeV2: a scalar; TFLite's operator returns a list of one number."""
    (y,) = op.outputs
    rw, size = Rewriter(op), make_like(y, "list", (1,))
    rw.op("RESHAPE", size, output=y, new_shape=())
    return [as_builtin(replace(op, outputs=(size,)), "HASHTABLE_SIZE"), *rw.ops]


def rewrite_unique(op: Op) -> Sequence[Op] | None:
    """UniqueV2 of the elements of a list, whose axis is absent or 0."""
    x, axis = op.present
    if x.rank != 1 or any(axis.values.reshape(-1).tolist()):
        return None
    return [replace(op, code="UNIQUE", custom=False, inputs=(x,))]


def rewrite_sparse_segments(op: Op) -> Sequence[Op]:
    """SparseSegment*: GATHER of rows, then the reduction of segments.

    SparseSegmentSqrtN divides the sums by the square roots of the numbers of rows, and
    SparseSegmentMeanWithNumSegments by the numbers.
    """
    (x, indices, numbers, *count), (y,) = op.present, op.outputs
    rw, rows = Rewriter(op), (*indices.shape, *x.shape[1:])
    gathered = rw.op("GATHER", x, indices, like=x, shape=rows, axis=0, batch_dims=0)
    if op.code == "FlexSparseSegmentMean":
        rw.op("FlexSegmentMean", gathered, numbers, output=y)
        return rw.ops
    code = "FlexUnsortedSegmentSum" if count else "FlexSegmentSum"
    if "Sum" in op.code:
        rw.op(code, gathered, numbers, *count, output=y)
        return rw.ops
    ones = rw.op(
        "FlexOnesLike",
        rw.op("CAST", numbers, like=y, shape=numbers.shape),
        like=y,
        shape=numbers.shape,
    )
    lengths = rw.op(code, ones, numbers, *count, like=y, name="lengths", shape=y.shape[:1])
    one = make_constant(f"{y.name}/one", np.ones((), np.float32), y)
    roots = rw.op("FlexMaximum", lengths, one, like=lengths)
    if "SqrtN" in op.code:
        roots = rw.op("FlexSqrt", roots, like=lengths)
    column = (-1, *[1] * (y.rank - 1))
    divisor = rw.op("RESHAPE", roots, like=y, shape=(*y.shape[:1], *column[1:]), new_shape=column)
    rw.op("FlexRealDiv", rw.op(code, gathered, numbers, *count, like=y), divisor, output=y)
    return rw.ops


def rewrite_seed(op: Op) -> Sequence[Op]:
    """StatelessRandomGetKeyCounterAlg and StatelessRandomGetAlg: the algorithm is Philox."""
    *rest, algorithm = op.outputs
    philox = make_int32(f"{algorithm.name}/philox", [1])
    chosen = as_builtin(replace(op, outputs=(algorithm,)), "RESHAPE", philox, new_shape=())
    code = "FlexStatelessRandomGetKeyCounter"
    return [replace(op, code=code, outputs=tuple(rest)), chosen] if rest else [chosen]


def rewrite_stateless(op: Op) -> Sequence[Op]:
    """StatelessRandom* of a seed: the newer operator, of a key and a counter."""
    shape, seed, *bounds = op.present
    y = op.outputs[0]
    key, counter, algorithm = (
        Tensor(f"{y.name}/{name}", size, dtype)
        for name, size, dtype in (
            ("key", (1,), DType.UINT64),
            ("counter", (2,), DType.UINT64),
            ("algorithm", (), DType.INT32),
        )
    )
    made = (key, counter, algorithm)
    drawn = replace(op, code=f"{op.code}V2", inputs=(shape, *made, *bounds))
    return [*rewrite_seed(replace(op, inputs=(seed,), outputs=made)), drawn]

"""Replace StableHLO operators that LiteRT has no kernel for by operators of the same meaning.

The source of all meanings is StableHLO's specification. `SAME` has the operators that another
operator computes from the same operands. `LOWERINGS` has a function for each other operator. A
form that has no equivalent stays, with its reason as the option `reason`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from tflite2onnx.contrib.stablehlo.lower_products import lower_convolution, lower_dot_general
from tflite2onnx.contrib.stablehlo.lower_regions import (
    DIRECTIONS,
    PREFIX,
    TOTAL_ORDER,
    Lowering,
    lower_sort,
    reduce_halves,
)
from tflite2onnx.contrib.stablehlo.resolve_computations import OF_BOOLS, ComputationOptions
from tflite2onnx.operators import DType, Op, OperatorError, Options, Shape, Tensor
from tflite2onnx.rewriting import (
    Graph,
    Model,
    RefusalOptions,
    Rewriter,
    as_builtin,
    as_operator_error,
    make_constant,
    make_int32,
    make_like,
)

# Operators of the same operands; TensorFlow's operators (Flex) take more element types.
SAME: Mapping[str, str] = {
    "ABS": "FlexAbs",
    "CONVERT": "CAST",
    "COSINE": "FlexCos",
    "DIVIDE": "FlexDiv",
    "EXPONENTIAL": "FlexExp",
    "FLOOR": "FlexFloor",
    "LOG": "FlexLog",
    "LOGISTIC": "FlexSigmoid",
    "NEGATE": "FlexNeg",
    "POWER": "FlexPow",
    "REMAINDER": "FlexTruncateMod",
    "RSQRT": "FlexRsqrt",
    "SELECT": "SELECT_V2",
    "SUBTRACT": "FlexSub",
    "TANH": "FlexTanh",
}
# The operator of each reduction, and the operator that adds the initial value.
_REDUCED: Mapping[str, tuple[str, str]] = {
    "add": ("SUM", "FlexAddV2"),
    "mul": ("REDUCE_PROD", "FlexMul"),
    "max": ("REDUCE_MAX", "FlexMaximum"),
    "min": ("REDUCE_MIN", "FlexMinimum"),
    "and": ("REDUCE_ALL", "LOGICAL_AND"),
    "or": ("REDUCE_ANY", "LOGICAL_OR"),
}
_SEVERAL = ("WHILE", "REDUCE", "SORT")  # operators that may have several outputs


def lower_stablehlo(model: Model) -> Model:
    """Return the model with other operators in place of those of the tables."""
    lower_op = partial(_lower_op, graphs=model.graphs)
    return model._replace(graphs=tuple(graph.rewrite(lower_op) for graph in model.graphs))


def _lower_op(op: Op, graphs: Sequence[Graph]) -> Sequence[Op]:
    name = op.code.removeprefix(PREFIX)
    if op.custom or name == op.code:
        return [op]
    if name in SAME and len(op.outputs) == 1:
        code = SAME[name]
        return [replace(op, code=code, custom=code.startswith("Flex"), options=Options())]
    if name not in LOWERINGS or (len(op.outputs) != 1 and name not in _SEVERAL):
        return [op]
    try:
        with as_operator_error():
            rw = Lowering(op, graphs, partial(_lower_op, graphs=graphs))
            LOWERINGS[name](rw, op, *op.inputs)
            return rw.ops
    except OperatorError as error:
        return [replace(op, made=RefusalOptions(reason=str(error)))]


def _lower_concatenate(rw: Rewriter, op: Op, *_: Tensor | None) -> None:
    """Make CONCATENATION."""
    axis = op.options.dimension
    rw.ops.append(as_builtin(op, "CONCATENATION", axis=axis))


def _lower_transpose(rw: Rewriter, op: Op, x: Tensor) -> None:
    """Make TRANSPOSE."""
    rw.transpose(x, op.options.permutation, output=op.outputs[0])


def _lower_clamp(rw: Rewriter, op: Op, low: Tensor, x: Tensor, high: Tensor) -> None:
    """Make a minimum and a maximum."""
    (y,) = op.outputs
    rw.op("FlexMaximum", rw.op("FlexMinimum", x, high, like=y), low, output=y)


def _lower_cbrt(rw: Rewriter, op: Op, x: Tensor) -> None:
    """Make a power of the absolute value, with the sign."""
    (y,) = op.outputs
    third = make_constant("third", np.array(1 / 3, x.dtype.numpy), x)
    root = rw.op("FlexPow", rw.op("FlexAbs", x, like=y), third, like=y)
    rw.op("FlexMul", rw.op("FlexSign", x, like=y), root, output=y)


def _lower_compare(rw: Rewriter, op: Op, a: Tensor, b: Tensor) -> None:
    """Make a comparison; floats compare without a total order."""
    (y,), o = op.outputs, op.options
    if o.compare_type == TOTAL_ORDER:
        raise OperatorError(
            "its floats must be compared by IEEE 754's rules (compare_type FLOAT), got TOTALORDER"
        )
    direction = DIRECTIONS[o.comparison_direction]
    if a.dtype is DType.BOOL:
        a, b = (_cast(rw, x, DType.INT32) for x in (a, b))
    rw.op(f"Flex{direction}", a, b, output=y)


def _lower_or(rw: Rewriter, op: Op, a: Tensor, b: Tensor) -> None:
    """Make LOGICAL_OR for bools, else a bitwise or."""
    code = "LOGICAL_OR" if a.dtype is DType.BOOL else "FlexBitwiseOr"
    rw.op(code, a, b, output=op.outputs[0])


def _lower_reshape(rw: Rewriter, op: Op, x: Tensor) -> None:
    """Make RESHAPE; one axis may be dynamic."""
    (y,) = op.outputs
    rw.op("RESHAPE", x, output=y, new_shape=_read_declared_shape(y))


def _lower_broadcast(rw: Rewriter, op: Op, x: Tensor) -> None:
    """Make TRANSPOSE, RESHAPE and BROADCAST_TO, as far as they are needed."""
    (y,), places = op.outputs, tuple(op.options.broadcast_dimensions or ())
    if len(places) != x.rank or len(set(places)) != x.rank:
        raise OperatorError(f"its broadcast_dimensions must be {x.rank} axes, got {list(places)}")
    order = sorted(range(x.rank), key=lambda axis: places[axis])
    if list(order) != list(range(x.rank)):
        x = rw.transpose(x, order, like=x)
    sizes = [1] * y.rank
    for size, place in zip(_read_declared_shape(x), sorted(places), strict=True):
        sizes[place] = size
    whole = _read_declared_shape(y)
    if sizes == list(whole):
        rw.op("RESHAPE", x, output=y, new_shape=tuple(sizes))
        return
    spread = rw.op(
        "RESHAPE",
        x,
        like=x,
        name="spread",
        shape=tuple(1 if n == -1 else n for n in sizes),
        new_shape=tuple(sizes),
    )
    # A factor of dynamic size would be unknown, but a dynamic size is an axis of x, which it keeps.
    if -1 not in whole:
        rw.op("BROADCAST_TO", spread, [*whole], output=y)
        return
    ones = [1 if n == -1 else n for n in whole]
    if any(n == -1 and size != -1 for n, size in zip(whole, sizes, strict=True)):
        raise OperatorError("a dynamic axis of its output must be an axis of its input")
    # SELECT_V2 broadcasts both of its operands.
    shape = tuple(ones)
    yes = Tensor(f"{y.name}/true", shape, DType.BOOL, np.ones(shape, np.bool_))
    rw.op("SELECT_V2", yes, spread, spread, output=y)


def _lower_slice(rw: Rewriter, op: Op, x: Tensor) -> None:
    """Make STRIDED_SLICE."""
    (y,), o = op.outputs, op.options
    begin, end, strides = (
        list(column or ()) for column in (o.start_indices, o.limit_indices, o.strides)
    )
    # A dynamic axis is whole up to its end: its limit is the size that the file declares.
    mask = sum(
        1 << axis
        for axis, (size, limit) in enumerate(zip(x.shape, end, strict=True))
        if axis in x.dynamic_axes and limit == size
    )
    rw.op(
        "STRIDED_SLICE", x, begin, end, strides, output=y, begin_mask=0, end_mask=mask,
        ellipsis_mask=0, new_axis_mask=0, shrink_axis_mask=0, offset=False,
    )  # fmt: skip


def _lower_iota(rw: Rewriter, op: Op) -> None:
    """Make a constant; the shape is fixed."""
    (y,), axis = op.outputs, op.options.iota_dimension
    if y.dynamic_axes:
        raise OperatorError(
            f"its output must have a fixed shape, got {list(_read_declared_shape(y))}"
        )
    sizes = [1] * y.rank
    sizes[axis] = y.shape[axis]
    numbers = np.arange(y.shape[axis]).astype(y.dtype.numpy).reshape(sizes)
    constant = make_constant(f"{y.name}/numbers", numbers, y)
    rw.op("BROADCAST_TO", constant, [*y.shape], output=y)


def _pack_starts(rw: Rewriter, x: Tensor, starts: Sequence[Tensor | None]) -> Tensor:
    """Return the index vector of scalars."""
    scalars = [_cast(rw, start, DType.INT32) for start in starts if start is not None]
    if len(scalars) != x.rank or not scalars:
        raise OperatorError(f"it must have {x.rank} start indices, got {len(scalars)}")
    return rw.op(
        "PACK", *scalars, like=scalars[0], name="starts", shape=(x.rank,), axis=0,
        values_count=x.rank,
    )  # fmt: skip


def _lower_dynamic_slice(rw: Rewriter, op: Op, x: Tensor, *starts: Tensor | None) -> None:
    """Make SLICE, whose clamped begin is computed; the shape is fixed."""
    (y,), sizes = op.outputs, tuple(op.options.slice_sizes)
    if x.dynamic_axes:
        raise OperatorError(
            f"its input must have a fixed shape, got {list(_read_declared_shape(x))}"
        )
    begin = _pack_starts(rw, x, starts)
    last = make_int32(f"{y.name}/last", [n - m for n, m in zip(x.shape, sizes, strict=True)])
    zeros = make_int32(f"{y.name}/zeros", [0] * x.rank)
    begin = rw.op("MAXIMUM", rw.op("MINIMUM", begin, last, like=begin), zeros, like=begin)
    rw.op("SLICE", x, begin, [*sizes], output=y)


def _lower_update(rw: Rewriter, op: Op, x: Tensor, update: Tensor, *starts: Tensor | None) -> None:
    """Make DYNAMIC_UPDATE_SLICE."""
    # The kernel clamps the indices as StableHLO does.
    rw.op("DYNAMIC_UPDATE_SLICE", x, update, _pack_starts(rw, x, starts), output=op.outputs[0])


def _lower_reduce(rw: Lowering, op: Op, *operands: Tensor) -> None:
    """Make a sum, product, maximum or minimum; else combine halves until one element is left."""
    reduction = op.read_made(ComputationOptions).reduction
    if len(operands) != 2 or not reduction:
        reduce_halves(rw, op, operands)
        return
    (x, first), (y,), axes = operands, op.outputs, tuple(op.options.dimensions or ())
    if x.dtype is DType.BOOL:
        reduction = OF_BOOLS[reduction]
    elif reduction in ("and", "or"):
        raise OperatorError(f"{reduction.upper()} must reduce bools, got {x.dtype.label}")
    code, combine = _REDUCED[reduction]
    reduced = rw.op(code, x, [*axes], like=y, keep_dims=False)
    rw.op(combine, reduced, first, output=y)


def _lower_while(rw: Rewriter, op: Op, *_: Tensor | None) -> None:
    """Make WHILE."""
    o = op.options
    graphs = {name: getattr(o, name) for name in ("cond_subgraph_index", "body_subgraph_index")}
    rw.ops.append(as_builtin(op, "WHILE", **graphs))


def _refuse_custom_call(_: Rewriter, op: Op, *__: Tensor | None) -> None:
    """Say which function the exporter called."""
    name = op.options.get("call_target_name") or "without a name"
    raise OperatorError(
        f"it calls {name}, a function of the exporter's runtime: export the model with this"
        " function as operators, or as STABLEHLO_COMPOSITE"
    )


def _cast(rw: Rewriter, x: Tensor, dtype: DType) -> Tensor:
    if x.dtype is dtype:
        return x
    return rw.op("CAST", x, output=replace(make_like(x, "cast"), dtype=dtype))


def _read_declared_shape(x: Tensor) -> Shape:
    """Return the sizes that the file fixes, -1 for the others."""
    return tuple(-1 if i in x.dynamic_axes else n for i, n in enumerate(x.shape))


LOWERINGS: Mapping[str, Callable[..., None]] = {
    "BROADCAST_IN_DIM": _lower_broadcast,
    "CBRT": _lower_cbrt,
    "CLAMP": _lower_clamp,
    "COMPARE": _lower_compare,
    "CONCATENATE": _lower_concatenate,
    "CONVOLUTION": lower_convolution,
    "CUSTOM_CALL": _refuse_custom_call,
    "DOT_GENERAL": lower_dot_general,
    "DYNAMIC_SLICE": _lower_dynamic_slice,
    "DYNAMIC_UPDATE_SLICE": _lower_update,
    "IOTA": _lower_iota,
    "OR": _lower_or,
    "REDUCE": _lower_reduce,
    "RESHAPE": _lower_reshape,
    "SLICE": _lower_slice,
    "SORT": lower_sort,
    "TRANSPOSE": _lower_transpose,
    "WHILE": _lower_while,
}

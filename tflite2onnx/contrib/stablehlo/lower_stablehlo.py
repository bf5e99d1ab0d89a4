"""Replace StableHLO operators that LiteRT has no kernel for by operators of the same meaning.

The source of all meanings is StableHLO's specification. `SAME` has the operators that another
operator computes from the same operands. `LOWERINGS` has a function for each other operator. A
form that has no equivalent stays, with its reason as the option `reason`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import prod

import numpy as np

from tflite2onnx.contrib.stablehlo.lower_products import lower_convolution, lower_dot_general
from tflite2onnx.contrib.stablehlo.resolve_computations import (
    DIRECTIONS,
    TOTAL_ORDER,
    ComputationOptions,
)
from tflite2onnx.errors import OperatorError, as_operator_error
from tflite2onnx.graph import Graph, Model, Op, Options
from tflite2onnx.made_options import RefusalOptions
from tflite2onnx.passes.rewriter import Rewriter, as_builtin, make_constant, make_int32, make_like
from tflite2onnx.tensor import DType, Shape, Tensor

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
_PREFIX = "STABLEHLO_"
# The reduction, and the operator that adds the initial value, by the operator of the sub-graph.
_REDUCTIONS: Mapping[str, tuple[str, str]] = {
    "ADD": ("SUM", "FlexAddV2"),
    "MULTIPLY": ("REDUCE_PROD", "FlexMul"),
    "MUL": ("REDUCE_PROD", "FlexMul"),
    "MAXIMUM": ("REDUCE_MAX", "FlexMaximum"),
    "MINIMUM": ("REDUCE_MIN", "FlexMinimum"),
    "AND": ("REDUCE_ALL", "LOGICAL_AND"),
    "LOGICAL_AND": ("REDUCE_ALL", "LOGICAL_AND"),
    "OR": ("REDUCE_ANY", "LOGICAL_OR"),
    "LOGICAL_OR": ("REDUCE_ANY", "LOGICAL_OR"),
}
_SEVERAL = ("WHILE", "REDUCE", "SORT")  # operators that may have several outputs
# The operators of a function that a reduction may apply to many elements at once.
_ELEMENTWISE = frozenset(
    {
        *SAME,
        *("ADD", "AND", "CBRT", "CLAMP", "COMPARE", "MAXIMUM", "MINIMUM", "MULTIPLY", "OR"),
        # The names of TFLite's operators.
        *("EQUAL", "GREATER", "GREATER_EQUAL", "LESS", "LESS_EQUAL", "LOGICAL_AND", "LOGICAL_NOT"),
        *("LOGICAL_OR", "MUL", "NEG", "NOT_EQUAL", "SELECT", "SELECT_V2", "SUB"),
    }
)
# The same for bools, whose sum is their disjunction.
_OF_BOOLS = {
    "SUM": _REDUCTIONS["OR"], "REDUCE_MAX": _REDUCTIONS["OR"],
    "REDUCE_PROD": _REDUCTIONS["AND"], "REDUCE_MIN": _REDUCTIONS["AND"],
}  # fmt: skip


def lower_stablehlo(model: Model) -> Model:
    """Return the model with other operators in place of those of the tables."""

    def lower_op(op: Op) -> Sequence[Op]:
        return _lower_op(op, model.graphs)

    return model._replace(graphs=tuple(graph.rewrite(lower_op) for graph in model.graphs))


class _Lowering(Rewriter):
    """Collects the operators that replace an operator, which may have a sub-graph of `graphs`."""

    def __init__(self, source: Op, graphs: Sequence[Graph]) -> None:
        super().__init__(source)
        self.graphs = graphs


def _lower_op(op: Op, graphs: Sequence[Graph]) -> Sequence[Op]:
    name = op.code.removeprefix(_PREFIX)
    if op.custom or name == op.code:
        return [op]
    if name in SAME and len(op.outputs) == 1:
        code = SAME[name]
        return [replace(op, code=code, custom=code.startswith("Flex"), options=Options())]
    if name not in LOWERINGS or (len(op.outputs) != 1 and name not in _SEVERAL):
        return [op]
    try:
        with as_operator_error():
            rw = _Lowering(op, graphs)
            LOWERINGS[name](rw, op, *op.inputs)
            return rw.ops
    except OperatorError as error:
        return [replace(op, made=RefusalOptions(reason=str(error)))]


def _lower_concatenate(rw: Rewriter, op: Op, *_: Tensor | None) -> None:
    """Make CONCATENATION."""
    axis = op.options.dimension
    rw.ops.append(as_builtin(op, "CONCATENATION", axis=axis, fused_activation_function="NONE"))


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
        shape=_fill_unknown_sizes(sizes),
        new_shape=tuple(sizes),
    )
    # A factor of dynamic size would be unknown, but a dynamic size is an axis of x, which it keeps.
    if -1 not in whole:
        rw.op("BROADCAST_TO", spread, make_int32(f"{y.name}/shape", whole), output=y)
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
    columns = zip(("begin", "end", "strides"), (begin, end, strides), strict=True)
    constants = [make_int32(f"{y.name}/{name}", column) for name, column in columns]
    rw.op(
        "STRIDED_SLICE", x, *constants, output=y, begin_mask=0, end_mask=mask, ellipsis_mask=0,
        new_axis_mask=0, shrink_axis_mask=0, offset=False,
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
    rw.op("BROADCAST_TO", constant, make_int32(f"{y.name}/shape", y.shape), output=y)


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
    rw.op("SLICE", x, begin, make_int32(f"{y.name}/size", sizes), output=y)


def _lower_update(rw: Rewriter, op: Op, x: Tensor, update: Tensor, *starts: Tensor | None) -> None:
    """Make DYNAMIC_UPDATE_SLICE."""
    # The kernel clamps the indices as StableHLO does.
    rw.op("DYNAMIC_UPDATE_SLICE", x, update, _pack_starts(rw, x, starts), output=op.outputs[0])


def _lower_reduce(rw: _Lowering, op: Op, *operands: Tensor) -> None:
    """Make a sum, product, maximum, minimum, or a reduction of bools, of one tensor.

    Other functions, also of several tensors, combine halves until one element is left.
    """
    function = (op.read_made(ComputationOptions).computation or "").removeprefix(_PREFIX)
    if len(operands) != 2 or function not in _REDUCTIONS:
        _reduce_halves(rw, op, operands)
        return
    (x, first), (y,), axes = operands, op.outputs, tuple(op.options.dimensions or ())
    code, combine = _REDUCTIONS[function]
    if x.dtype is DType.BOOL:
        code, combine = _OF_BOOLS.get(code, (code, combine))
    elif code in ("REDUCE_ALL", "REDUCE_ANY"):
        raise OperatorError(f"{function} must reduce bools, got {x.dtype}")
    reduced = rw.op(code, x, make_int32(f"{y.name}/axes", axes), like=y, keep_dims=False)
    rw.op(combine, reduced, first, output=y)


def _reduce_halves(rw: _Lowering, op: Op, operands: Sequence[Tensor]) -> None:
    """Apply the sub-graph to the first and the second half of the elements, again and again.

    StableHLO does not define the sequence in which elements are combined.
    """
    index, count = op.options.get("body_subgraph_index", -1), len(op.outputs)
    if not isinstance(index, int) or not 0 <= index < len(rw.graphs) or len(operands) != 2 * count:
        raise OperatorError("it must have a function, and an initial value for each tensor")
    region, axes = rw.graphs[index], tuple(op.options.dimensions or ())
    codes = [inner.code for inner in region.ops]
    unknown = [code for code in codes if code.removeprefix(_PREFIX) not in _ELEMENTWISE]
    if unknown or len(region.inputs) != 2 * count or len(region.outputs) != count:
        raise OperatorError(
            f"its function must compute each element on its own, got {' '.join(codes) or 'none'}"
        )
    dynamic = [x.name for x in operands if x.dynamic_axes]
    if dynamic:
        raise OperatorError(f"{dynamic[0]} must have a fixed shape, or its function be a sum,"
                            " product, maximum or minimum")  # fmt: skip
    rows: list[Tensor] = []
    for x, y in zip(operands, op.outputs, strict=False):
        order = (*axes, *(axis for axis in range(x.rank) if axis not in axes))
        moved = rw.transpose(x, order, like=x)
        shape = (prod(x.shape[axis] for axis in axes), *y.shape)
        rows.append(rw.op("RESHAPE", moved, like=x, name="rows", shape=shape, new_shape=shape))
    for i, first in enumerate(operands[count:]):
        shape = (1, *rows[i].shape[1:])
        target = make_int32(f"{first.name}/shape", shape)
        spread = rw.op("BROADCAST_TO", first, target, like=first, name="first", shape=shape)
        rows[i] = _join(rw, spread, rows[i], "all")
    step = 0
    while (size := rows[0].shape[0]) > 1:
        step, half = step + 1, size // 2
        halves = [
            _take_rows(rw, x, part * half, half, f"{step}_{part}")
            for part in range(2)
            for x in rows
        ]
        combined = _apply(rw, region, halves, str(step))
        if size % 2:
            last = (_take_rows(rw, x, size - 1, 1, f"{step}_last") for x in rows)
            combined = [
                _join(rw, x, rest, str(step)) for x, rest in zip(combined, last, strict=True)
            ]
        rows = combined
    for x, y in zip(rows, op.outputs, strict=True):
        rw.op("RESHAPE", x, output=y, new_shape=y.shape)


def _join(rw: Rewriter, a: Tensor, b: Tensor, name: str) -> Tensor:
    shape = (a.shape[0] + b.shape[0], *a.shape[1:])
    return rw.op(
        "CONCATENATION", a, b, like=b, name=f"joined_{name}", shape=shape, axis=0,
        fused_activation_function="NONE",
    )  # fmt: skip


def _take_rows(rw: Rewriter, x: Tensor, first: int, count: int, name: str) -> Tensor:
    shape = (count, *x.shape[1:])
    begin = make_int32(f"{x.name}/begin_{name}", [first] + [0] * (x.rank - 1))
    size = make_int32(f"{x.name}/size_{name}", shape)
    return rw.op("SLICE", x, begin, size, like=x, name=f"part_{name}", shape=shape)


def _apply(rw: _Lowering, region: Graph, operands: Sequence[Tensor], name: str) -> list[Tensor]:
    """Add the operators of a function of scalars, for tensors of one shape."""
    known = dict(zip(region.inputs, operands, strict=True))
    for inner in region.ops:
        outputs = [
            replace(y, name=f"{operands[0].name}/{name}/{y.name}", shape=operands[0].shape,
                    shape_signature=())
            for y in inner.outputs
        ]  # fmt: skip
        cloned = replace(inner.with_inputs(known), index=rw.source.index, outputs=tuple(outputs))
        rw.ops += _lower_op(cloned, rw.graphs)
        known |= dict(zip(inner.outputs, outputs, strict=True))
    return [known[y] for y in region.outputs]


def _lower_sort(rw: Rewriter, op: Op, *operands: Tensor) -> None:
    """Make TOPK_V2 of all elements of the keys, for one comparison of keys."""
    comparison = op.read_made(ComputationOptions).computation or ""
    direction, _, number = comparison.partition(" ")
    if direction not in ("Less", "LessEqual", "Greater", "GreaterEqual"):
        raise OperatorError(
            "its comparator must be one comparison of its two arguments, LT, LE, GT or GE, without"
            " a total order of floats"
        )
    x = operands[int(number)]
    axis = op.options.dimension % x.rank
    if axis in x.dynamic_axes:
        raise OperatorError(f"axis {axis}, which it sorts, must have a fixed size")
    order = [i for i in range(x.rank) if i != axis] + [axis]
    back = [order.index(i) for i in range(x.rank)]
    rows = [
        rw.transpose(each, order, like=each) if axis != x.rank - 1 else each for each in operands
    ]
    keys, last = rows[int(number)], make_int32(f"{x.name}/axis", [x.rank - 1])
    is_ascending, several = direction.startswith("Less"), len(operands) > 1
    # TOPK_V2 takes the first of equal keys first. Keys in reverse keep this in an ascending sort.
    if is_ascending and several:
        keys = rw.op("REVERSE_V2", keys, last, like=keys, name="reversed")
    indices = replace(make_like(keys, "indices"), dtype=DType.INT32)
    ordered, count = make_like(keys, "ordered"), make_int32(f"{x.name}/count", x.shape[axis])
    rw.ops.append(
        Op("TOPK_V2", op.index, (keys, count), (ordered, indices), Options({}), custom=False)
    )
    if not several:
        if is_ascending:
            ordered = rw.op("REVERSE_V2", ordered, last, like=keys, name="ascending")
        rw.transpose(ordered, back, output=op.outputs[0])
        return
    if is_ascending:
        most = make_int32(f"{x.name}/most", x.shape[axis] - 1)
        turned = rw.op("REVERSE_V2", indices, last, like=indices, name="reversed")
        indices = rw.op("SUB", most, turned, like=indices, fused_activation_function="NONE")
    for each, y in zip(rows, op.outputs, strict=True):
        moved = rw.op(
            "GATHER", each, indices, like=each, name="sorted", axis=x.rank - 1,
            batch_dims=x.rank - 1,
        )  # fmt: skip
        rw.transpose(moved, back, output=y)


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


def _fill_unknown_sizes(sizes: Sequence[int]) -> Shape:
    return tuple(1 if n == -1 else n for n in sizes)


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
    "SORT": _lower_sort,
    "TRANSPOSE": _lower_transpose,
    "WHILE": _lower_while,
}

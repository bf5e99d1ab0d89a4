"""Lower STABLEHLO_REDUCE and STABLEHLO_SORT whose function is a sub-graph of several operators.

The operators of a sub-graph compute scalars. They become operators on whole tensors.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import NamedTuple

import numpy as np

from tflite2onnx.operators import DType, Op, OperatorError, Options, Tensor
from tflite2onnx.rewriting import Graph, Producers, Rewriter, make_constant, make_int32, make_like

PREFIX = "STABLEHLO_"
# The operators of comparison_direction, and the value of compare_type for IEEE 754's total order.
DIRECTIONS = ("Equal", "NotEqual", "GreaterEqual", "Greater", "LessEqual", "Less")
TOTAL_ORDER = 2
_SWAPPED = {"Less": "Greater", "LessEqual": "GreaterEqual"}
_SWAPPED |= {value: key for key, value in _SWAPPED.items()}
# The operators of StableHLO and of TFLite that compute each element on its own.
_NAMES = (
    "ABS ADD AND CBRT CLAMP COMPARE CONVERT COSINE DIVIDE EQUAL EXPONENTIAL FLOOR GREATER"
    " GREATER_EQUAL LESS LESS_EQUAL LOG LOGICAL_AND LOGICAL_NOT LOGICAL_OR LOGISTIC MAXIMUM MINIMUM"
    " MUL MULTIPLY NEG NEGATE NOT_EQUAL OR POWER REMAINDER RSQRT SELECT SELECT_V2 SUB SUBTRACT"
    " TANH"
)
_ELEMENTWISE = frozenset(_NAMES.split())


class Lowering(Rewriter):
    """Collects the operators that replace an operator, which may have a sub-graph of `graphs`.

    `lower` replaces an operator of a sub-graph.
    """

    def __init__(
        self, source: Op, graphs: Sequence[Graph], lower: Callable[[Op], Sequence[Op]]
    ) -> None:
        super().__init__(source)
        self.graphs = graphs
        self.lower = lower

    def find_region(self, option: str, inputs: int, outputs: int) -> Graph:
        """Return a sub-graph; OperatorError unless it has so many inputs and outputs."""
        index = self.source.options.get(option, -1)
        if isinstance(index, int) and 0 <= index < len(self.graphs):
            region = self.graphs[index]
            if (len(region.inputs), len(region.outputs)) == (inputs, outputs):
                return region
        raise OperatorError(
            f"the numbers of inputs and outputs of its function must be {inputs} and {outputs}"
        )

    def apply(
        self, ops: Sequence[Op], operands: Mapping[Tensor, Tensor], name: str
    ) -> Mapping[Tensor, Tensor]:
        """Add operators on scalars, for tensors of one shape; return the tensors by the scalars."""
        unknown = [op.code for op in ops if op.code.removeprefix(PREFIX) not in _ELEMENTWISE]
        if unknown:
            raise OperatorError(
                f"its function must compute each element on its own, got {', '.join(unknown)}"
            )
        known, like = dict(operands), next(iter(operands.values()))
        for inner in ops:
            outputs = tuple(
                replace(make_like(like, f"{name}/{y.name}"), dtype=y.dtype) for y in inner.outputs
            )
            changed = replace(inner.with_inputs(known), index=self.source.index, outputs=outputs)
            self.ops += self.lower(changed)
            known |= dict(zip(inner.outputs, outputs, strict=True))
        return known


def reduce_halves(rw: Lowering, op: Op, operands: Sequence[Tensor]) -> None:
    """Apply the function to the first and the second half of the elements, again and again.

    StableHLO does not define the sequence in which elements are combined.

    Raises:
        OperatorError: the function does not compute each element on its own, or a size is dynamic.
    """
    axes = tuple(op.options.dimensions or ())
    region = rw.find_region("body_subgraph_index", len(operands), len(operands) // 2)
    dynamic = [x.name for x in operands if x.dynamic_axes]
    if dynamic:
        raise OperatorError(
            f"{dynamic[0]} must have a fixed shape, or the function be a sum, product, maximum or"
            " minimum"
        )
    rows: list[Tensor] = []
    for x, first, y in zip(operands, operands[len(op.outputs) :], op.outputs, strict=False):
        moved = rw.transpose(x, (*axes, *(i for i in range(x.rank) if i not in axes)), like=x)
        shape = (prod(x.shape[axis] for axis in axes), *y.shape)
        row = rw.op("RESHAPE", moved, like=x, name="rows", shape=shape, new_shape=shape)
        shape = (1, *y.shape)
        spread = rw.op("BROADCAST_TO", first, [*shape], like=first, name="first", shape=shape)
        rows.append(_join(rw, spread, row, "all"))
    step = 0
    while (size := rows[0].shape[0]) > 1:
        step, half = step + 1, size // 2
        halves = [
            rw.slice(x, 0, part * half, half, name=f"part_{step}_{part}")
            for part in range(2)
            for x in rows
        ]
        known = rw.apply(region.ops, dict(zip(region.inputs, halves, strict=True)), str(step))
        combined = [known[y] for y in region.outputs]
        if size % 2:
            last = (rw.slice(x, 0, size - 1, 1, name=f"part_{step}_last") for x in rows)
            pairs = zip(combined, last, strict=True)
            combined = [_join(rw, x, rest, str(step)) for x, rest in pairs]
        rows = combined
    for x, y in zip(rows, op.outputs, strict=True):
        rw.op("RESHAPE", x, output=y, new_shape=y.shape)


def _join(rw: Rewriter, a: Tensor, b: Tensor, name: str) -> Tensor:
    shape = (a.shape[0] + b.shape[0], *a.shape[1:])
    return rw.op("CONCATENATION", a, b, like=b, name=f"joined_{name}", shape=shape, axis=0)


class _RegionKey(NamedTuple):
    """The elements of a tensor, by a function of each of them.

    Attributes:
        number: the tensor.
        direction: Less or LessEqual for an ascending sort, Greater or GreaterEqual for another.
        ops: the operators of the function of an element; none for the element itself.
        result: what the function returns.
        total: whether NaN is after all numbers, and 0 after -0.
    """

    number: int
    direction: str
    ops: Sequence[Op]
    result: Tensor
    total: bool


def _read_keys(region: Graph, result: Tensor) -> list[_RegionKey]:
    """Return the keys of a comparator, the first one first: a < b, or a < b | (a == b & others)."""
    makers = Producers(region.ops)
    op = makers.find(result)
    if op.code.removeprefix(PREFIX) in ("OR", "LOGICAL_OR"):
        first, both = op.present
        rest = makers.find(both)
        if rest.code.removeprefix(PREFIX) in ("AND", "LOGICAL_AND"):
            equal, others = rest.present
            is_equal = _name_comparison(makers.find(equal)) == "Equal"
            if is_equal and makers.find(first).inputs == makers.find(equal).inputs:
                return [*_read_keys(region, first), *_read_keys(region, others)]
    direction = _name_comparison(op)
    if direction in _SWAPPED:
        sides = [{*makers.walk_back(x)} for x in op.present]
        read = [[i for i, x in enumerate(region.inputs) if x in side] for side in sides]
        ops, ops_of_other = ([each for each in region.ops if each.outputs[0] in s] for s in sides)
        total = bool(op.options.get("compare_type", 0) == TOTAL_ORDER)
        has_one_function = [each.code for each in ops] == [each.code for each in ops_of_other]
        left = read[0][0] if read[0] else -1
        if read == [[left], [left ^ 1]] and has_one_function:
            direction = _SWAPPED[direction] if left % 2 else direction
            return [_RegionKey(left // 2, direction, ops, op.present[0], total)]
    raise OperatorError(
        "its comparator must compare elements, or a function of them, by LT, LE, GT or GE, and"
        " equal ones by the next tensor"
    )


def _name_comparison(op: Op) -> str:
    if op.custom:
        return ""
    if op.code == f"{PREFIX}COMPARE":
        return DIRECTIONS[op.options.comparison_direction]
    return op.code.title().replace("_", "")


def lower_sort(rw: Lowering, op: Op, *operands: Tensor) -> None:
    """Make TOPK_V2 of all elements, once for each key, and GATHER."""
    region = rw.find_region("comparator_subgraph_index", 2 * len(operands), 1)
    keys, (x, *others) = _read_keys(region, region.outputs[0]), operands
    axis = op.options.dimension % x.rank
    if axis in x.dynamic_axes:
        raise OperatorError(f"axis {axis}, which it sorts, must have a fixed size")
    order = [i for i in range(x.rank) if i != axis] + [axis]
    back = [order.index(i) for i in range(x.rank)]
    is_last = axis == x.rank - 1
    rows = [each if is_last else rw.transpose(each, order, like=each) for each in operands]
    if not others and len(keys) == 1 and not keys[0].ops and not keys[0].total:
        ordered, _ = _sort_rows(rw, rows[0], "key")
        if keys[0].direction.startswith("Less"):
            ordered = rw.op("REVERSE_V2", ordered, [x.rank - 1], like=ordered, name="ascending")
        rw.transpose(ordered, back, output=op.outputs[0])
        return
    indices = None
    # A stable sort by the last key first.
    for number, key in enumerate(reversed(keys)):
        for part, numbers in enumerate(_compute_key(rw, region, key, rows, f"key_{number}")):
            name = f"key_{number}_{part}"
            moved = _gather(rw, numbers, indices, name) if indices else numbers
            places = _order_rows(rw, moved, name, ascending=key.direction.startswith("Less"))
            indices = _gather(rw, indices, places, f"{name}/places") if indices else places
    for each, y in zip(rows, op.outputs, strict=True):
        if indices:
            rw.transpose(_gather(rw, each, indices, "sorted"), back, output=y)


def _compute_key(
    rw: Lowering, region: Graph, key: _RegionKey, rows: Sequence[Tensor], name: str
) -> list[Tensor]:
    """Return the numbers by which rows are sorted; of several the last is the most important."""
    x = rows[key.number]
    known = {region.inputs[2 * key.number + i]: x for i in range(2)}
    value = rw.apply(key.ops, known, name)[key.result] if key.ops else x
    if not key.total or not value.dtype.is_float:
        return [value]
    condition = replace(make_like(value, f"{name}/is_nan"), dtype=DType.BOOL)
    is_nan = rw.op("FlexIsNan", value, output=condition)
    most = make_constant(f"{name}/most", np.array(np.inf, value.dtype.numpy), value)
    number = replace(make_like(value, f"{name}/nan"), dtype=DType.INT32)
    parts = [
        rw.op("SELECT_V2", is_nan, most, value, like=value, name=f"{name}/finite"),
        rw.op("CAST", is_nan, output=number),
    ]
    if key.ops:  # exporters make all zeros equal
        return parts
    zero, one = (
        make_constant(f"{name}/{n}", np.array(n, value.dtype.numpy), value) for n in (0, 1)
    )
    is_zero = rw.op("EQUAL", value, zero, output=replace(condition, name=f"{name}/is_zero"))
    # 1 / -0 is minus infinity, which puts -0 before 0.
    infinite = rw.op("DIV", one, value, like=value, name=f"{name}/inverse")
    sign = rw.op("SELECT_V2", is_zero, infinite, zero, like=value, name=f"{name}/sign")
    return [sign, *parts]


def _sort_rows(rw: Rewriter, rows: Tensor, name: str) -> tuple[Tensor, Tensor]:
    """Add TOPK_V2 of all elements of rows; return them and their indices, the largest first."""
    indices = replace(make_like(rows, f"{name}/indices"), dtype=DType.INT32)
    ordered, size = make_like(rows, f"{name}/ordered"), make_int32(f"{name}/k", rows.shape[-1])
    outputs = (ordered, indices)
    rw.ops.append(Op("TOPK_V2", rw.source.index, (rows, size), outputs, Options({}), custom=False))
    return outputs


def _order_rows(rw: Rewriter, rows: Tensor, name: str, *, ascending: bool) -> Tensor:
    """Return the indices of the elements of rows in order; equal ones keep their sequence."""
    if not ascending:
        return _sort_rows(rw, rows, name)[1]
    # TOPK_V2 takes the first of equal elements first, so they are in reverse, too.
    last = [rows.rank - 1]
    turned = rw.op("REVERSE_V2", rows, last, like=rows, name=f"{name}/reversed")
    _, indices = _sort_rows(rw, turned, name)
    indices = rw.op("REVERSE_V2", indices, last, like=indices, name="reversed")
    most = make_int32(f"{name}/most", rows.shape[-1] - 1)
    return rw.op("SUB", most, indices, like=indices)


def _gather(rw: Rewriter, x: Tensor, indices: Tensor, name: str) -> Tensor:
    """Add a GATHER of elements of each row."""
    place = x.rank - 1
    return rw.op("GATHER", x, indices, like=x, name=name, axis=place, batch_dims=place)

"""Products with the states of a recurrence become one product, and its steps become few nodes.

State space models (Mamba) update a matrix in each step, and multiply it by a column:

    state[t] = factors[t] * state[t - 1] + terms[t]     [rows, columns], element by element
    y[t] = BATCH_MATMUL(state[t], columns[t])           [rows, 1]
    y = CONCATENATION(y[0], y[1], ...)

litert-torch writes the steps one by one, with slices of the factors, of the terms and of the
columns, and RESHAPEs between them: ten nodes for each step. The form has a SPLIT of the factors,
one of the terms, MUL and ADD for each step, and one product for all steps:

    y = BATCH_MATMUL(columns, CONCATENATION(state[0], state[1], ...))     [steps, 1, rows]

States are stored as [columns, rows], because kernels compute long rows at once, and a model has
more rows (256 and more) than columns (16). The planner moves the smaller tensors of which factors
and terms are computed. The steps are replaced if

1. there are several, all of float32 and of known sizes, and no batch has several samples;
2. the first state is the first term, and no state is an output of the graph.

`join_steps` alone keeps a product for each step. 16 and 64 steps of 256 rows and 16 columns take
0.64 to 0.92 of its time, 32 steps of 512 rows 0.71 to 1.05: processor time of sessions with the
form and without it in turns, on one thread of an AMD EPYC (family 25, model 17, with AVX-512).
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from tflite2onnx.graph import Graph, Op
from tflite2onnx.op.movement.slice import SLICES
from tflite2onnx.passes.operands import (
    are_fixed_floats,
    find_taken_ranges,
    squeeze_shape,
    trace_sequence,
)
from tflite2onnx.passes.patterns.join_parts import find_axis
from tflite2onnx.passes.patterns.matching import Match
from tflite2onnx.passes.patterns.rules import rule
from tflite2onnx.passes.rewriter import Rewriter, make_int32, make_like
from tflite2onnx.tensor import Shape, Tensor

_MATRIX = 2  # axes


class _Steps(NamedTuple):
    """A tensor that is [steps, ...] in this order of its axes, after `units` axes of size 1."""

    whole: Tensor
    order: tuple[int, ...]
    units: int

    @property
    def shape(self) -> Shape:
        return tuple(self.whole.shape[i] for i in self.order[self.units :])

    def move(self, rw: Rewriter, shape: Shape) -> Tensor:
        """Return the tensor with the steps first, in a shape."""
        moved = rw.transpose(self.whole, self.order, like=self.whole, name="moved")
        return rw.reshape(moved, shape, like=self.whole, name="steps")

    def split(self, rw: Rewriter) -> tuple[Tensor, ...]:
        """Return the steps, each [1, ...]."""
        x, (steps, *matrix) = self.move(rw, self.shape), self.shape
        parts = tuple(make_like(x, f"step{i}", (1, *matrix)) for i in range(steps))
        rw.ops.append(Op("SPLIT", rw.source.index, (make_int32("axis", 0), x), parts))
        return parts


def _find_steps(items: Sequence[Tensor], first: int, graph: Graph) -> _Steps | None:
    """Return the tensor of which the items are slices, from the index `first` to the last one."""
    wholes: set[tuple[Tensor, int, bool]] = set()
    for index, item in enumerate(items, first):
        op = graph.producers.find(trace_sequence(item, graph))
        taken = find_taken_ranges(op) if op.is_builtin(*SLICES) else {}
        wholes.update((op.operand(0), i, [*indices] == [index]) for i, indices in taken.items())
        if not taken or len(wholes) != 1:
            return None
    for x, axis, fits in wholes:
        if fits and x.shape[axis] == first + len(items):
            units = [i for i in range(x.rank) if x.shape[i] == 1]
            others = [i for i in reversed(range(x.rank)) if i != axis and i not in units]
            return _Steps(x, (*units, axis, *others), len(units))
    return None


def _find_pair(add: Op, state: Tensor, graph: Graph) -> tuple[Tensor, Tensor] | None:
    """Return factor and term of ADD(MUL(factor, state), term), None if it is another operator."""
    for product, term in (add.present[::-1], add.present) if add.is_builtin("ADD") else ():
        mul = graph.producers.find(product)
        for x, factor in (mul.present[::-1], mul.present) if mul.is_builtin("MUL") else ():
            if trace_sequence(x, graph) is state and add.activation == mul.activation == "NONE":
                return factor, term
    return None


@rule(
    "products with the states of a linear recurrence",
    "SPLIT, MUL, ADD, CONCATENATION, BATCH_MATMUL",
    ("CONCATENATION", ...),
    needs=("BATCH_MATMUL",),
)
def join_states(found: Match) -> list[Op] | str:
    """Return what replaces the products and the steps, or why nothing does."""
    graph, op, y, find = found.graph, found.last, found.output, found.graph.producers.find
    products = [find(trace_sequence(t, graph)) for t in op.present]
    if (
        len(products) == 1
        or op.activation != "NONE"
        or not all(each.is_builtin("BATCH_MATMUL") and not each.options.adj_x for each in products)
    ):
        return "it must join products"
    states = [trace_sequence(each.operand(0), graph) for each in products]
    outputs = {trace_sequence(t, graph) for t in graph.outputs}
    pairs = [_find_pair(find(after), before, graph) for before, after in pairwise(states)]
    if not all(pairs) or not outputs.isdisjoint(states):
        return "each state must be computed of the one before, and be no output"
    factors, terms = zip(*filter(None, pairs), strict=True)
    a, b = _find_steps(factors, 1, graph), _find_steps((states[0], *terms), 0, graph)
    c = _find_steps([each.operand(1) for each in products], 0, graph)
    if not (a and b and c and are_fixed_floats(a.whole, b.whole, c.whole, y)):
        return "factors, terms and columns must be slices of float32 and of known sizes"
    steps, *matrix = a.shape
    columns, rows = matrix if len(matrix) == _MATRIX else (0, 0)
    shapes = {
        tuple(squeeze_shape(t.shape) for t in (*each.present, part))
        for each, part in zip(products, op.present, strict=True)
    }
    is_column = all(each.operand(1).shape[-1] == 1 for each in products)
    if not is_column or shapes != {((rows, columns), (columns,), (rows,))} or a.shape != b.shape:
        return "the states must be matrices, and multiplied by columns"
    rw = Rewriter(op)
    split_a, split_b = a.split(rw), b.split(rw)
    joined = [split_b[0]]
    for factor, term in zip(split_a[1:], split_b[1:], strict=True):
        x = rw.op("MUL", factor, joined[-1], like=factor)
        joined.append(rw.op("ADD", x, term, like=term))
    along = {**op.options, "axis": 0}
    whole = rw.op(op.code, *joined, like=b.whole, name="states", shape=a.shape, **along)
    column = c.move(rw, (steps, 1, columns))
    options, shape = products[0].options, (steps, 1, rows)
    result = rw.op("BATCH_MATMUL", column, whole, like=y, shape=shape, **options)
    result = rw.reshape(result, (steps, rows), like=y, name="rows")
    if (find_axis(op) or 0) > op.operand(0).shape.index(rows):
        result = rw.transpose(result, (1, 0), like=y, name="columns")
    rw.reshape(result, output=y)
    return rw.ops

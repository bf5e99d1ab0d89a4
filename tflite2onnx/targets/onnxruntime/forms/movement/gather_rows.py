"""Slices, joins and transposes that move whole rows become one GATHER of rows.

    y = RESHAPE(GATHER(RESHAPE(x, [rows, n]), indices))

Swin rolls an image by two slices and a join along each axis, and cuts it into windows by a
TRANSPOSE; between its stages it joins every second pixel. Each operator copies the whole image, and
Gather copies it once, a row of channels at a time. SLICE, STRIDED_SLICE, SPLIT, CONCATENATION,
RESHAPE and TRANSPOSE are replaced if

1. all parameters are constants, the elements come from one float tensor of fixed sizes, and nothing
   else reads the tensors between;
2. a CONCATENATION is among them;
3. a shorter time is expected (`costs.py`): Gather copies the numbers once in place of several
   times, but calls memcpy for each row. A row is a row of x, or as long as all runs of elements
   that stay together allow, which the places of all elements tell;
4. no image with channels first is at either end: its rows would have to be made first.
"""

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from tflite2onnx.graph import Graph, Op
from tflite2onnx.op import find_operator
from tflite2onnx.passes.operands import are_fixed_floats
from tflite2onnx.passes.patterns.rules import log_loss
from tflite2onnx.passes.recurrent.formulas import evaluate_op
from tflite2onnx.passes.rewriter import Rewriter, make_int32
from tflite2onnx.passes.simplify import eliminate_dead_operators
from tflite2onnx.planning import has_channels_first
from tflite2onnx.targets.onnxruntime.costs import MOVED, Terms, Times, estimate_nodes
from tflite2onnx.tensor import Array, Tensor

_FLOAT = 4  # bytes
_TAKES = ("SLICE", "SPLIT", "SPLIT_V", "STRIDED_SLICE", "TRANSPOSE")
_MOVES = ("CONCATENATION", "RESHAPE", *_TAKES)
_MOST_OPS, _MOST = 32, 1 << 21  # operators of one gather, and elements of a tensor


class _RowMoves(NamedTuple):
    """Operators in reverse order, and the tensors whose elements they move."""

    ops: tuple[Op, ...]
    sources: frozenset[Tensor]


def gather_rows(graph: Graph) -> Graph:
    """Return the graph with GATHER in place of operators that move rows; see above."""
    inner: set[Op] = set()
    found: dict[Op, list[Op]] = {}
    places = _Places(graph)
    for op in reversed(graph.ops):
        if op in inner or not op.is_builtin(*_MOVES):
            continue
        moves = _trace(graph, op)
        made = _gather(places, op, moves) if moves else ""
        if isinstance(made, str):
            if made:
                log_loss(op, "GATHER", made)
        elif moves:
            found[op] = made
            inner.update(moves.ops)
    if not found:
        return graph
    return eliminate_dead_operators(graph.rewrite(lambda op: found.get(op, [op])))


def _trace(graph: Graph, last: Op) -> _RowMoves | None:
    """Return the operators that move elements to an output, None unless 1 and 2 may hold."""
    ops: dict[Op, None] = {last: None}
    waiting, sources = [last], set[Tensor]()
    while waiting and len(ops) <= _MOST_OPS:
        for tensor in _list_data(waiting.pop()):
            op = graph.producers.find(tensor)
            if op.is_builtin(*_MOVES):
                waiting += [] if op in ops else [op]
                ops[op] = None
            else:
                sources.add(tensor)
    joins = any(op.code == "CONCATENATION" for op in ops)
    inside = [t for op in ops if op is not last for t in op.outputs]
    alone = all(graph.readers.are_among(ops, t) for t in inside)
    plain = len(last.outputs) == 1 and all(op.activation == "NONE" for op in ops)
    if waiting or len(sources) != 1 or not (joins and alone and plain):
        return None
    return _RowMoves((*ops,), frozenset(sources))


def _list_data(op: Op) -> tuple[Tensor, ...]:
    """Return the inputs whose elements an operator moves."""
    if op.code == "CONCATENATION":
        return op.present
    return (op.operand(1 if op.code == "SPLIT" else 0),)


class _Places:
    """Where the elements of tensors are in their source, which the last operators have.

    If the last operator of several stays, the operators before it are tried, whose places are
    known then.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self._known: dict[Tensor, Array] = {}

    def find(self, tensor: Tensor, source: Tensor) -> Mapping[Tensor, Array] | None:
        """Return the places of the elements of a tensor and those before it.

        None if they are not known.
        """
        if source not in self._known:
            self._known = {source: np.arange(source.elements, dtype=np.int32).reshape(source.shape)}
        waiting = [tensor]
        while waiting:
            op = self.graph.producers.find(waiting[-1])
            data = _list_data(op)
            if waiting[-1] in self._known:
                waiting.pop()
            elif missing := [t for t in data if t not in self._known]:
                waiting += missing
            elif not self._move(op, data):
                return None
        return self._known

    def _move(self, op: Op, data: tuple[Tensor, ...]) -> bool:
        """Find the places of the outputs; return whether they are known."""
        # The shape of a RESHAPE is that of its output.
        operands = data if op.code == "RESHAPE" else op.present
        if not all(t in data or t.has_data for t in operands):
            return False
        arrays = [self._known[t] if t in data else t.values for t in operands]
        results = evaluate_op(find_operator(op), arrays)
        if len(results) != len(op.outputs):
            return False
        self._known.update(zip(op.outputs, results, strict=True))
        return True


def _gather(all_places: _Places, last: Op, moves: _RowMoves) -> list[Op] | str:
    """Return what replaces the last operator, or why nothing does."""
    (x,), y = moves.sources, last.outputs[0]
    if not are_fixed_floats(x, y) or x.elements > _MOST or not x.rank or x.has_data:
        return f"the tensor must be float32, of known sizes and at most {_MOST} elements"
    places = all_places.find(y, x)
    if places is None:
        return "the operands that say where elements move must be constant"
    order = places[y].reshape(-1)
    starts = _find_runs(order)
    longest = 1  # if there are more runs than pairs of elements, one run is a single element
    if 2 * starts.size <= order.size:
        longest = math.gcd(x.elements, y.elements, *np.gcd.reduce([starts, order[starts]], axis=1))
    lengths = {longest, x.shape[-1] if longest % x.shape[-1] == 0 else longest}
    times = {n: _estimate_gather(n, x, y) for n in lengths}
    length = min(times, key=lambda n: times[n].mean)
    copies = [
        ("move", Terms(loads=_find_runs(places[t]).size, size=_FLOAT * t.elements))
        for op in moves.ops
        if op.code != "RESHAPE"
        for t in op.outputs
    ]
    if loss := times[length].explain_loss(estimate_nodes(*copies), MOVED):
        return loss
    if any(has_channels_first(all_places.graph, image) for image in (x, y)):
        return "the images must not have channels first"
    rw, indices = Rewriter(last), make_int32(f"{y.name}/rows", order[::length] // length)
    matrix = rw.reshape(x, (x.elements // length, length), like=x, name="rows")
    shape = (y.elements // length, length)
    gathered = rw.op("GATHER", matrix, indices, like=y, shape=shape, axis=0, batch_dims=0)
    rw.reshape(gathered, output=y)
    return rw.ops


def _estimate_gather(length: int, x: Tensor, y: Tensor) -> Times:
    """Return the time of Gather; dense layers have the matrix of the rows of x without RESHAPE."""
    rows = Terms(loads=y.elements / length, size=_FLOAT * y.elements)
    reshapes = [] if length == x.shape[-1] else 2 * [("move", Terms())]
    return estimate_nodes(("rows", rows), *reshapes)


def _find_runs(places: Array) -> Array:
    """Return where runs of elements start that are together in the source, too."""
    flat = places.reshape(-1)
    starts = np.ones(flat.size, np.bool_)
    starts[1:] = flat[1:] - flat[:-1] != 1
    return np.flatnonzero(starts)

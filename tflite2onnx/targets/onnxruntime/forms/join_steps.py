"""The same operators in all steps of a recurrence become one operator over the steps.

Exporters write a recurrence step by step: each step takes its items by slices, and repeats the
operators. Only some of them wait for the step before. RWKV has 27 operators in a step, and waits
for six:

    m[t] = MAXIMUM(m[t - 1] + w, k[t])                  one after the other
    a[t] = EXP(k[t] - m[t])                             a = EXP(k - PACK(m[0], m[1], ...))

A node of ONNX Runtime over few numbers takes as long as its call. So the operators become one,
whose operands have the steps along a new first axis, if

1. at least four operators compute the same: they have equal codes, options, shapes and constants,
   and so have the operators before them, up to four deep, from the slices of one tensor on;
2. none of them waits for another, and nothing that a joined operator waits for, waits for it;
3. the operator has a form for one more axis (`add_leading_axis`), or multiplies rows by weights;
4. fewer nodes and parts of Split and Concat are expected to take less time: a result that is read
   in its step is a part of a Split, and an operand that a step computes is a part of a Concat.

Operands are taken whole from joined results and from the tensors that are sliced. Slices that are
left, four or more of a small tensor, become one SPLIT: a Slice and its Reshape take 0.7
microseconds, a part of a Split 0.15.
"""

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import chain, groupby
from math import prod
from typing import NamedTuple, TypeAlias

from tflite2onnx.graph import NO_OP, Graph, Op, Options, copy_op, sort_ops
from tflite2onnx.op import find_operator
from tflite2onnx.op.elementwise.arithmetic import Elementwise
from tflite2onnx.op.movement.slice import SLICES
from tflite2onnx.op.traits import Broadcasts
from tflite2onnx.passes.operands import find_data, find_taken_ranges, keeps_sequence, trace_sequence
from tflite2onnx.passes.patterns.join_parts import find_axis
from tflite2onnx.passes.patterns.rules import log_loss
from tflite2onnx.passes.rewriter import Rewriter, make_int32, make_like
from tflite2onnx.passes.simplify import eliminate_dead_operators
from tflite2onnx.targets.onnxruntime.costs import FACTORS
from tflite2onnx.tensor import Shape, Tensor
from tflite2onnx.utils.mapped_files import find_address

_FEWEST = 4  # operators that become one
_DEPTH = 4  # operators that are compared
_MOST_ESTIMATED = 1 << 20  # operators, in all trials to leave a group out
_SMALL = 64  # elements of constants that are compared, not where they are stored
_MOST = 1 << 13  # operators of a graph, whose dependencies are sets of bits
_FLOAT = 4  # bytes
# Kernels that do not depend on AVX-512.
_MOVE = FACTORS[8]["move"]
_NODE, _PART, _RESHAPE = (FACTORS[8][kernel].node for kernel in ("small", "part", "reshape"))
_PRODUCTS = ("FULLY_CONNECTED",)  # of rows by weights


class _SlicedAxis(NamedTuple):
    """A tensor that is sliced, the axis, and the size of a slice."""

    whole: Tensor
    axis: int
    size: int


_Alike: TypeAlias = tuple[Op, ...]  # that become one
_Source: TypeAlias = _Alike | _SlicedAxis
_Locations: TypeAlias = Mapping[Tensor, tuple[_SlicedAxis, int]]  # slices and their indices


class _Series(NamedTuple):
    """Items that follow each other in a source, from an index on; others have no source."""

    source: _Source | None
    items: Sequence[Tensor]
    first: int


def join_steps(graph: Graph) -> Graph:
    """Return the graph with one operator in place of those of several steps."""
    places = _find_places(graph)
    if not places or len(graph.ops) > _MOST or any(op.graphs for op in graph.ops):
        return graph
    groups = _find_groups(graph, places)
    steps = _JoinedSteps(graph, places, _keep_acyclic(graph, groups))
    return steps.make_graph()


def _find_places(graph: Graph) -> _Locations:
    """Return the slices of tensors that are taken apart into four parts or more."""
    slices: dict[_SlicedAxis, dict[Tensor, tuple[_SlicedAxis, int]]] = {}

    def add(source: _SlicedAxis, parts: Mapping[Tensor, int]) -> None:
        if not source.whole.symbols and not source.whole.quantization:
            slices.setdefault(source, {}).update({t: (source, i) for t, i in parts.items()})

    for op in graph.ops:
        if op.is_builtin("SPLIT", "UNPACK"):
            x, axis = find_data(op), find_axis(op)
            if axis is not None:
                size = x.shape[axis] // len(op.outputs)
                add(_SlicedAxis(x, axis, size), {t: i for i, t in enumerate(op.outputs)})
        elif op.is_builtin(*SLICES):
            x, taken = op.operand(0), find_taken_ranges(op)
            for axis, indices in taken.items() if len(taken) == 1 else ():
                size = len(indices)
                if size and indices.step == 1 and not (x.shape[axis] % size or indices[0] % size):
                    add(_SlicedAxis(x, axis, size), {op.outputs[0]: indices[0] // size})
    return {t: p for each in slices.values() if len(each) >= _FEWEST for t, p in each.items()}


def _find_groups(graph: Graph, places: _Locations) -> list[_Alike]:
    """Return operators that compute the same, in order of execution."""
    colours: dict[Hashable, int] = {}

    @cache
    def find_colour(tensor: Tensor, depth: int) -> int:
        """Return a number for how a tensor is computed, up to a depth."""
        base = tensor if tensor.has_data else trace_sequence(tensor, graph)
        op = graph.producers.find(base)
        key: Hashable = base
        if tensor.has_data:
            small = tensor.elements <= _SMALL
            key = tensor.values.tobytes() if small else find_address(tensor.values)
        elif base in places:
            key = places[base][0]
        elif op is not NO_OP and depth:
            key = (_describe(op), *(find_colour(t, depth - 1) for t in op.present))
        elif op is not NO_OP:
            key = op.code
        return colours.setdefault((key, tensor.shape, tensor.dtype), len(colours))

    groups: dict[Hashable, list[Op]] = {}
    for op in graph.ops:
        if _may_join(op) and places.keys().isdisjoint(op.outputs):
            groups.setdefault(find_colour(op.outputs[0], _DEPTH), []).append(op)
    return [(*ops,) for ops in groups.values() if len(ops) >= _FEWEST]


def _describe(op: Op) -> Hashable:
    return op.code, str(dict(op.options)), len(op.inputs), op.made


def _may_join(op: Op) -> bool:
    """Return whether conditions on a single operator hold: it is one of fixed, real numbers."""
    if op.custom or len(op.outputs) != 1 or keeps_sequence(op) or _is_join(op):
        return False
    if None in op.inputs or any(t.symbols or 0 in t.shape for t in op.tensors):
        return False
    quantized = [t for t in op.tensors if t.quantization]
    if op.is_builtin("FULLY_CONNECTED"):
        x, *weights = op.present
        rows = x.shape[-1:] == weights[0].shape[1:]  # not several axes of features
        return rows and quantized in ([], weights[:1]) and all(t.has_data for t in weights)
    if quantized or all(t.has_data for t in op.present):
        return False
    wider = find_operator(op).add_leading_axis()
    return wider is not None


def _keep_acyclic(graph: Graph, groups: Sequence[_Alike]) -> list[_Alike]:
    """Return groups of operators that do not wait for each other, for which condition 2 holds."""
    bits = {op: 1 << i for i, op in enumerate(graph.ops)}
    before: dict[Op, int] = {}
    for op in graph.ops:
        makers = {graph.producers.find(t) for t in op.present}
        before[op] = 0
        for maker in makers - {NO_OP}:
            before[op] |= before[maker] | bits[maker]
    kept: list[_Alike] = []
    for group in groups:
        for ops in _divide_group(group, bits, before):
            own, needed = sum(bits[op] for op in ops), 0
            for op in ops:
                needed |= before[op]
            if needed & own:
                continue
            kept.append(ops)
            for op, each in before.items():
                if each & own or op in ops:
                    before[op] |= needed | (own if each & own else 0)
    return kept


def _divide_group(
    group: _Alike, bits: Mapping[Op, int], before: Mapping[Op, int]
) -> Iterator[_Alike]:
    """Yield the runs of a group in which no operator waits for another of the run."""
    part: list[Op] = []
    own = 0
    for op in group:
        if before[op] & own:
            if len(part) >= _FEWEST:
                yield (*part,)
            part, own = [], 0
        part.append(op)
        own |= bits[op]
    if len(part) >= _FEWEST:
        yield (*part,)


class _JoinedSteps:
    """The groups of a graph whose operators become one, as the expected time decides."""

    def __init__(self, graph: Graph, places: _Locations, groups: Sequence[_Alike]) -> None:
        self._graph, self._places = graph, places
        self._trace = cache(lambda t: trace_sequence(t, graph))
        self._joins = [op for op in graph.ops if _is_join(op)]
        joins = {*self._joins}
        # The operators that read items; what RESHAPEs and joins read, others read.
        self._readers = [op for op in graph.ops if op not in joins and not keeps_sequence(op)]
        self._operands = {ops: _list_operands(ops) for ops in groups}
        self._members: Mapping[Tensor, tuple[_Alike, int]] = {}
        self.groups = (*groups,)
        self._keep_faster()
        self._rw = Rewriter(graph.ops[0])
        self._wholes: dict[_Source, Tensor] = {}
        self._taken: dict[tuple[tuple[Tensor, ...], Shape], Tensor] = {}

    # Time

    def _keep_faster(self) -> None:
        """Leave the groups out without which the graph is expected to take less time."""
        best, count = self._estimate(self.groups), 0
        left = _MOST_ESTIMATED // len(self._graph.ops)
        while count != len(self.groups):
            count = len(self.groups)
            for ops in self.groups[:left]:
                others = tuple(each for each in self.groups if each is not ops)
                if (time := self._estimate(others)) <= best:
                    loss = f"{best - time:.1f} us fewer are expected without it"
                    log_loss(ops[0], "one operator of all steps", loss, len(ops) - 1)
                    self.groups, best = others, time
            left = max(left - count, 0)
        self._estimate(self.groups)

    def _estimate(self, groups: Sequence[_Alike]) -> float:
        """Return the microseconds that are expected to be added for groups that become one."""
        self._members = {op.outputs[0]: (ops, i) for ops in groups for i, op in enumerate(ops)}
        runs = self._list_runs(groups)
        read = {*map(self._trace, self._list_read(runs))}
        time = _NODE * (len(groups) - len(self._members)) + sum(map(_estimate_runs, runs))
        for ops in groups:
            results = [op.outputs[0] for op in ops]
            parts = len(read.intersection(results))
            if _is_slice_faster(parts, len(ops)):
                time += _NODE * parts
            else:
                time += _RESHAPE + _estimate_parts(results)
        return time

    def _list_runs(self, groups: Sequence[_Alike]) -> list[list[_Series]]:
        """Return the runs of each tensor of items that operators of groups, or joins, read."""
        operands = {items for ops in groups for items, _ in self._operands[ops].values()}
        return [*map(self._find_runs, (*operands, *(op.present for op in self._joins)))]

    def _list_read(self, runs: Sequence[Sequence[_Series]]) -> list[Tensor]:
        """Return the tensors that are read one by one."""
        read = [*self._graph.outputs]
        for op in self._readers:
            read += () if op.outputs[0] in self._members else op.present
        for run in chain.from_iterable(runs):
            read += () if run.source else run.items
        return read

    # Items

    def _find_runs(self, items: Sequence[Tensor]) -> list[_Series]:
        """Return items as runs; a run of a source has at least two items."""
        sources = [self._find_source(t) for t in items]

        def find_run(number: int) -> Hashable:
            source, index = sources[number]
            return source and (source, index - number)

        runs = []
        for _, numbers in groupby(range(len(items)), find_run):
            places = [*numbers]
            source, index = sources[places[0]]
            found = source if len(places) > 1 else None
            runs.append(_Series(found, [items[i] for i in places], index))
        return runs

    def _find_source(self, item: Tensor) -> tuple[_Source | None, int]:
        base = self._trace(item)
        if base in self._members:
            return self._members[base]
        return self._places.get(base, (None, 0))

    # Operators

    def make_graph(self) -> Graph:
        """Return the graph with the groups as single operators."""
        joins = [op for op in self._joins if self._has_results(op)]
        items: dict[_Source, dict[Tensor, int]] = {ops: {} for ops in self.groups}
        for t in self._list_read(self._list_runs(self.groups)):
            source, index = self._find_source(t)
            if source:
                items.setdefault(source, {})[t] = index
        for ops in self.groups:
            self._find_whole(ops)
        for op in joins:
            self._join_items(op)
        for source, read in items.items():
            self._split(source, read)
        if not self._rw.ops:
            return self._graph
        replaced = {op for ops in self.groups for op in ops}.union(joins)
        made = {t for op in self._rw.ops for t in op.outputs}
        kept = [op for op in self._graph.ops if op not in replaced and made.isdisjoint(op.outputs)]
        return eliminate_dead_operators(replace(self._graph, ops=sort_ops([*kept, *self._rw.ops])))

    def _has_results(self, op: Op) -> bool:
        """Return whether an operator joins results of a group, at least two in sequence."""
        return any(
            run.source and not isinstance(run.source, _SlicedAxis)
            for run in self._find_runs(op.present)
        )

    def _join(self, ops: _Alike) -> None:
        """Add the operator of a group."""
        first, count, rw = ops[0], len(ops), self._rw
        rows, op = self._operands[ops], first if _keeps_rank(first) else _add_axis(first)
        inputs = [*op.inputs]
        for i, (items, row) in rows.items():
            inputs[i] = self._take(items, row)
        y = first.outputs[0]
        shape = (count, *(1,) * (_find_rank(first) - y.rank), *y.shape)
        if _keeps_rank(first):
            shape = (count, *y.shape[1:])
        if first.code in _PRODUCTS:
            x = inputs[0] or y
            features = x.shape[-1]
            inputs[0] = _reshape(rw, x, (x.elements // features, features))
            shape = (count * prod(y.shape[:-1]), y.shape[-1])
        whole = make_like(y, "steps", shape)
        rw.ops.append(replace(op, inputs=(*inputs,), outputs=(whole,)))
        self._wholes[ops] = whole if shape[0] == count else _reshape(rw, whole, (count, *y.shape))

    def _split(self, source: _Source, read: Mapping[Tensor, int]) -> None:
        """Add what takes the items of a source apart that are read one by one."""
        # Most readers have the same RESHAPE before them, whose result the part is then.
        shapes = Counter(t.shape for t in read).most_common(1)
        parts = {i: t for t, i in read.items() if t.shape == shapes[0][0]}
        if not isinstance(source, _SlicedAxis) and len(parts) < len(read):
            parts = {i: source[i].outputs[0] for i in read.values()}
        if not parts:
            return
        if isinstance(source, _SlicedAxis) and not self._is_split_faster(source, parts):
            return
        whole, rw, shape = self._find_whole(source), self._rw, next(iter(parts.values())).shape
        count, row = whole.shape[0], shape if shape[:1] == (1,) else (1, *shape)
        flat = _reshape(rw, whole, (count, *row[1:]))
        if _is_slice_faster(len(parts), count):
            for i, part in parts.items():
                taken = rw.slice(flat, 0, i, 1, name="run")
                rw.ops.append(copy_op(rw.source, taken, part, resizes=False))
            return
        items = [parts.get(i) or make_like(whole, f"item{i}", shape) for i in range(count)]
        inputs, index = (make_int32("axis", 0), flat), rw.source.index
        if row == shape:
            rw.ops.append(Op("SPLIT", index, inputs, (*items,), Options({"num_splits": count})))
        else:
            options = Options({"axis": 0, "num": count})
            rw.ops.append(Op("UNPACK", index, inputs[1:], (*items,), options))

    def _is_split_faster(self, source: _SlicedAxis, parts: Mapping[int, Tensor]) -> bool:
        """Return whether a Split of a tensor is expected to be faster than its slices are."""
        makers = {self._graph.producers.find(self._trace(t)).code for t in parts.values()}
        moves = 1 + (prod(source.whole.shape[: source.axis]) > 1)
        time = moves * _MOVE.estimate_move(2 * _FLOAT * source.whole.elements)
        time += _PART * source.whole.shape[source.axis] / source.size
        return makers.issubset(SLICES) and time < _NODE * len(parts)

    def _take(self, items: tuple[Tensor, ...], row: Shape) -> Tensor:
        """Return items with the steps in place of the first axis of a row, [1, ...]."""
        if (items, row) not in self._taken:
            rw, parts = self._rw, list[Tensor]()
            for run in self._find_runs(items):
                if run.source:
                    parts.append(self._take_run(run.source, run, row))
                else:
                    parts += (_reshape(rw, t, row) for t in run.items)
            x = parts[0]
            if len(parts) > 1:
                flat = (len(items), *row[1:])
                x = rw.op("CONCATENATION", *parts, like=x, name="joined", shape=flat, axis=0)
            self._taken[items, row] = x
        return self._taken[items, row]

    def _take_run(self, source: _Source, run: _Series, row: Shape) -> Tensor:
        """Return items of a source, with the steps in place of the first axis of a row."""
        whole, count, rw = self._find_whole(source), len(run.items), self._rw
        x = _reshape(rw, whole, (whole.shape[0], *row[1:]))
        return x if count == x.shape[0] else rw.slice(x, 0, run.first, count, name="run")

    def _find_whole(self, source: _Source) -> Tensor:
        """Return all items of a source, along a new first axis."""
        if source in self._wholes:
            return self._wholes[source]
        if isinstance(source, _SlicedAxis):
            x, axis, size = source
            parts = (*x.shape[:axis], x.shape[axis] // size, size, *x.shape[axis + 1 :])
            order = (axis, *(i for i in range(x.rank + 1) if i != axis))
            split = self._rw.reshape(x, parts, like=x, name="parts")
            self._wholes[source] = self._rw.transpose(split, order, like=x, name="moved")
        else:
            self._join(source)
        return self._wholes[source]

    def _join_items(self, op: Op) -> None:
        """Add what joins the items of an operator, with the items of a source taken at once."""
        rw, shape, y = self._rw, op.operand(0).shape, op.outputs[0]
        axis = find_axis(op) or 0
        x = self._take(op.present, (1, *shape))
        order = (*range(1, axis + 1), 0, *range(axis + 1, x.rank))
        rw.reshape(rw.transpose(x, order, like=x, name="turned") if axis else x, output=y)


def _is_slice_faster(parts: int, count: int) -> bool:
    """Return whether a Slice for each of some parts is expected to be faster than a Split."""
    return parts * _NODE < count * _PART


def _reshape(rw: Rewriter, x: Tensor, shape: Shape) -> Tensor:
    return x if x.shape == shape else rw.reshape(x, shape, like=x, name="shaped")


def _is_join(op: Op) -> bool:
    return (
        op.is_builtin("CONCATENATION", "PACK")
        and op.activation == "NONE"
        and len(op.present) >= _FEWEST
        and len({t.shape for t in op.present}) == 1
        and not any(t.symbols or t.quantization or 0 in t.shape for t in op.tensors)
    )


def _find_rank(op: Op) -> int:
    """Return the rank to which the operands of an operator are broadcast."""
    return max(t.rank for t in op.tensors) if _broadcasts(op) else op.outputs[0].rank


def _broadcasts(op: Op) -> bool:
    return isinstance(find_operator(op), Broadcasts)


def _keeps_rank(op: Op) -> bool:
    """Return whether the first axis of an operator, of size 1, may have the steps."""
    if op.code in _PRODUCTS:
        return True
    rank, operator = op.outputs[0].rank, find_operator(op)
    firsts = {t.shape[0] for t in op.tensors if t.rank == rank > 0}
    return isinstance(operator, Elementwise) and firsts == {1}


def _add_axis(op: Op) -> Op:
    """Return an operator for one more axis; it is known to have this form."""
    wider = find_operator(op).add_leading_axis()
    return wider[0] if wider else op


def _list_operands(ops: _Alike) -> Mapping[int, tuple[tuple[Tensor, ...], Shape]]:
    """Return the operands that get the steps, by index, and the shape of a row of each.

    An operand that all operators have in common is broadcast.
    """
    first, found = ops[0], {}
    wider = None if first.code in _PRODUCTS else find_operator(first).add_leading_axis()
    rank, broadcasts = _find_rank(first), _broadcasts(first)
    for i in wider[1] if wider else (0,):
        items = tuple(op.operand(i) for op in ops)
        shape = items[0].shape
        if first.code in _PRODUCTS:
            found[i] = items, (1, *(shape if prod(shape[:-1]) > 1 else shape[-1:]))
        elif not (broadcasts and (len({*items}) == 1 or items[0].has_data)):
            aligned = (*(1,) * (rank - len(shape) if broadcasts else 0), *shape)
            found[i] = items, aligned if _keeps_rank(first) else (1, *aligned)
    return found


def _estimate_runs(runs: Sequence[_Series]) -> float:
    """Return the expected time of what makes one tensor of items."""
    pieces = [run.items[0] for run in runs if run.source]
    alone = [t for run in runs if not run.source for t in run.items]
    time = _estimate_parts([*pieces, *alone]) if len(runs) > 1 or alone else _RESHAPE
    for run in runs:
        if isinstance(run.source, _SlicedAxis):
            x, axis, size = run.source
            time += _MOVE.estimate_move(2 * _FLOAT * x.elements) * (prod(x.shape[:axis]) > 1)
            time += _NODE * (len(run.items) * size < x.shape[axis])
        elif run.source:
            time += _NODE * (len(run.items) < len(run.source))
    return time


def _estimate_parts(parts: Sequence[Tensor]) -> float:
    """Return the expected time of a Split or a Concat of parts."""
    size = _FLOAT * sum(t.elements for t in parts)
    return _MOVE.estimate_move(2 * size) + _PART * len(parts)

"""Replace steps of recurrent layers, as unrolled layers and streaming models have, by operators.

A step computes the next states of an LSTM or a GRU, by the formulas of `cells`. Steps that follow
each other are replaced by one operator over the sequence of their items if

1. each step has the states after the step before, and equal parameters;
2. no item depends on a state after a step. A decoder reads its own results, so that each of its
   steps is an operator of its own;
3. the states and the items are [batch, numbers], and the model runs no sub-graphs;
4. a single step has a batch of at most 8 and float32 weights. ONNX Runtime computes a larger batch
   faster in a Gemm, and multiplies 8-bit weights as they are in MatMulNBits only.

The operator is one of those that `raise_recurrent_loops` makes. A single step of an LSTM takes 1.0
to 1.1 of the time, and less than before where its neighbours need no other axes. This is no rule
(`patterns/rules.py`): the operators of any number of steps become one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from tflite2onnx.graph import Graph, Op, Options, Producers, copy_op
from tflite2onnx.passes.normalise import eliminate_dead_operators
from tflite2onnx.passes.patterns.matching import are_equal
from tflite2onnx.passes.recurrent.cells import RecurrentCell, find_cells
from tflite2onnx.passes.recurrent.formulas import Applied, Atom, Formula, Formulas, Sum
from tflite2onnx.passes.rewriter import Rewriter
from tflite2onnx.tensor import Tensor

_STATE = 2  # axes
_LAST = ("MUL", "ADD")  # the operators that compute h: of an LSTM, of a GRU
_GATES = ("LOGISTIC", "HARD_SIGMOID")  # their functions
_MOST_ROWS = 8  # of a single step
_PRODUCTS = {"FULLY_CONNECTED", "BATCH_MATMUL"}  # one of which all cells have


class _Step(NamedTuple):
    """An operator whose output is the next h, and the cells that compute this output."""

    op: Op
    cells: Sequence[RecurrentCell]


def raise_recurrent_steps(graph: Graph) -> Graph:
    """Return the graph with recurrent operators in place of steps of recurrent layers."""
    codes = graph.codes
    functions = "HARD_SIGMOID" in codes or codes >= {"LOGISTIC", "TANH"}
    cells = functions and "MUL" in codes and not codes.isdisjoint(_PRODUCTS)
    if not cells or any(op.graphs for op in graph.ops):
        return graph
    formulas = Formulas(graph.ops)
    chains = _link_steps(_find_steps(graph, formulas))
    replacement = _Replacement(graph, formulas)
    for chain in chains:
        if not replacement.add(chain):
            for step in chain:
                replacement.add([step])
    return replacement.make_graph() if replacement.layers else graph


def _find_steps(graph: Graph, formulas: Formulas) -> list[_Step]:
    """Return the operators whose output is the next h of a cell, in order of execution."""
    steps = []
    for op in graph.ops:
        if op.is_builtin(*_LAST) and op.outputs[0].rank == _STATE:
            result = formulas.find_formula(op.outputs[0])
            states = dict.fromkeys(_list_states(result, 2))
            cells = [cell for h in states for cell in find_cells(result, h)]
            steps += [_Step(op, cells)] if cells else []
    return steps


def _list_states(formula: Formula, depth: int) -> Iterator[Formula]:
    """Yield what the gates of a cell are computed of; Keras adds the product of h last."""
    if not isinstance(formula, Applied):
        return
    for argument in formula.arguments:
        if formula.code in _GATES and isinstance(argument, Sum):
            yield from reversed(list(argument.products))
        elif depth:
            yield from _list_states(argument, depth - 1)


def _link_steps(steps: Iterable[_Step]) -> list[list[_Step]]:
    """Return the steps as chains; each step follows the step before."""
    chains: list[list[_Step]] = []
    ends: dict[Formula, list[_Step]] = {}
    for step in steps:
        for cell in step.cells:
            chain = ends.get(cell.changes[0].before)
            last = chain[-1] if chain else None
            before = [each for each in last.cells if _follows(each, cell)] if last else []
            if chain and last and before:
                chain[-1:] = [last._replace(cells=before), _Step(step.op, [cell])]
                ends[cell.changes[0].after] = chain
                break
        else:
            chains.append([step])
            ends[step.cells[0].changes[0].after] = chains[-1]
    return chains


def _follows(one: RecurrentCell, other: RecurrentCell) -> bool:
    """Return whether a cell has the states after another cell, and equal parameters."""
    states = zip(one.changes, other.changes, strict=False)
    same = (one.code, one.options) == (other.code, other.options)
    if not same or any(a.after is not b.before for a, b in states):
        return False
    return all(map(are_equal, one.parameters, other.parameters))


class _Layer(NamedTuple):
    """A recurrent operator in place of steps, the copies around it, and what it replaces.

    `outputs` are the last states; `every` are the states h after each step.
    """

    op: Op
    before: Sequence[Op]
    every: Sequence[Tensor]
    outputs: Sequence[Tensor]


class _Replacement:
    """The layers that replace chains of steps, and the operators that compute each tensor then."""

    def __init__(self, graph: Graph, formulas: Formulas) -> None:
        self.layers: list[_Layer] = []
        self._graph = graph
        self._producers = Producers(graph.ops)
        self._tensors: dict[Formula, list[Tensor]] = {}
        for tensor in (*graph.inputs, *self._producers):
            self._tensors.setdefault(formulas.find_formula(tensor), []).append(tensor)

    def add(self, chain: Sequence[_Step]) -> bool:
        """Replace a chain by a layer; return whether the conditions hold."""
        cells, last = [step.cells[0] for step in chain], chain[-1].op
        cell, h, rw = cells[0], last.outputs[0], Rewriter(last)
        weights = cell.parameters[0]
        item = replace(h, shape=(h.shape[0], weights.shape[1] if weights else 0))
        items = [self._find_tensor(each.item, item, rw) for each in cells]
        starts = [self._find_tensor(each.before, h, rw) for each in cell.changes]
        found = [t for t in (*items, *starts) if t]
        outputs = [self._tensors[each.after][0] for each in cells[-1].changes]
        every = [step.op.outputs[0] for step in chain]
        results = {*every, *outputs}
        fits = (
            (len(chain) > 1 or _suits_one_step(cell, h))
            and len(found) == len(items) + len(starts)
            and all(t.sizes == h.sizes for t in outputs)
            and cell.fits(item.sizes, [h.sizes for _ in starts])
            and results.isdisjoint(self._producers.walk_back(*found))
        )
        if not fits:
            return False
        sequence = self._join_items(found[: len(items)], item, rw)
        states = _make_sequence_tensor(every[0], len(every), f"{outputs[0].name}/sequence")
        made = (states, *(replace(t, name=f"{t.name}/end") for t in outputs))
        inputs = (sequence, *cell.make_parameters(h.name), *found[len(items) :])
        op = Op(cell.code, last.index, inputs, made, Options(cell.options))
        self.layers.append(_Layer(op, rw.ops, every, outputs))
        self._producers |= dict.fromkeys((*every, *outputs, *made), op)
        return True

    def _find_tensor(self, formula: Formula, like: Tensor, rw: Rewriter) -> Tensor | None:
        """Return a tensor that has a formula and the shape of `like`, None if no tensor has it.

        A tensor of another shape is copied.
        """
        tensors = self._tensors.get(formula, [formula.tensor] if isinstance(formula, Atom) else [])
        same = next((t for t in tensors if t.sizes == like.sizes), None)
        source = same or next((t for t in tensors if t.elements == like.elements), None)
        if same or not source:
            return same
        target = replace(like, name=f"{source.name}/item", data=None)
        rw.ops.append(copy_op(rw.source, source, target))
        self._producers[target] = rw.ops[-1]
        return target

    def _join_items(self, items: Sequence[Tensor], item: Tensor, rw: Rewriter) -> Tensor:
        """Return the items as a sequence [time, batch, numbers]."""
        producer = self._producers.find(items[0])
        source, axis = producer.operand(0), producer.options.get("axis", 0)
        whole = producer.is_builtin("UNPACK") and producer.outputs == tuple(items)
        target = _make_sequence_tensor(item, len(items), f"{items[0].name}/sequence")
        if whole and source.sizes == target.sizes and axis in (0, -3):
            return source
        if whole and axis in (1, -2):
            rw.transpose(source, (1, 0, 2), output=target)
        elif len(items) == 1:
            rw.ops.append(copy_op(rw.source, items[0], target))
        else:
            rw.op("PACK", *items, output=target, axis=0, values_count=len(items))
        self._producers[target] = rw.ops[-1]
        return target

    def make_graph(self) -> Graph:
        """Return the graph with the layers.

        If only the last state h is read, it is an output of the recurrent operator. Otherwise the
        sequence of the states is unpacked.
        """
        made = {t for layer in self.layers for t in (*layer.every, *layer.outputs)}
        ops = [op for op in self._graph.ops if made.isdisjoint(op.outputs)]
        copies: dict[Op, Op] = {}
        for layer in self.layers:
            sequence, *ends = layer.op.outputs
            options = Options({"axis": 0, "num": len(layer.every)})
            unpack = Op("UNPACK", layer.op.index, (sequence,), (*layer.every,), options)
            copies[unpack], *rest = map(partial(copy_op, layer.op), ends, layer.outputs)
            ops += [*layer.before, layer.op, unpack, *rest]
        graph = eliminate_dead_operators(replace(self._graph, ops=_sort_ops(ops)))

        def copy_last(op: Op) -> list[Op]:
            unread = (graph.readers.are_among((), t) for t in op.outputs[:-1])
            return [copies[op] if op in copies and all(unread) else op]

        return graph.rewrite(copy_last)


def _suits_one_step(cell: RecurrentCell, h: Tensor) -> bool:
    """Return whether condition 4 holds."""
    quantized = any(each and each.quantization for each in cell.parameters)
    return h.shape[0] <= _MOST_ROWS and not quantized


def _make_sequence_tensor(item: Tensor, times: int, name: str) -> Tensor:
    symbols = {axis + 1: size for axis, size in item.symbols.items()}
    shape = (times, *item.shape)
    return replace(item, name=name, shape=shape, shape_signature=(), symbols=symbols)


def _sort_ops(ops: Sequence[Op]) -> tuple[Op, ...]:
    """Return operators in order of execution, which changes as little as possible."""
    producers = {t: op for op in ops for t in op.outputs}
    done: dict[Op, None] = {}
    for op in ops:
        waiting = [op]
        while waiting:
            needed = [producers[t] for t in waiting[-1].inputs if t in producers]
            missing = [each for each in needed if each not in done]
            if missing:
                waiting += missing
            else:
                done.setdefault(waiting.pop())
    return tuple(done)

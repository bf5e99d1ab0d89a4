"""Replace steps of recurrent layers, as unrolled layers and streaming models have, by operators.

A step computes the next states of an LSTM or a GRU, by the formulas of `cells`. Steps that follow
each other are replaced by one operator over the sequence of their items if

1. each step has the states after the step before, and equal parameters;
2. no item depends on a state after a step. A decoder reads its own results, so that each of its
   steps is an operator of its own;
3. the states are [batch, numbers], or have one axis of size 1 more, and the model runs no
   sub-graphs;
4. a single step has a batch of at most 8 and float32 weights, and is no RNN. A larger
   batch is faster in a Gemm, and kernels of LSTM and GRU multiply no 8-bit weights as they are.

PyTorch's layers, as litert-torch exports them, multiply the whole sequence by the weights, and take
the items of the product. Their first step begins at states of 0, of which no operator is left
(`find_first_item`). Their other direction reads the items, and joins the states, from last to
first. If the file declares the batch dynamic, rows are those of one sample. Steps of integer data
stay, because they round each value as LiteRT does.

The operator is one of those that `raise_recurrent_loops` makes. A single step of an LSTM takes 1.0
to 1.1 of the time, and less than before where its neighbours need no other axes. This is no rule
(`patterns/rules.py`): the operators of any number of steps become one.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np

from tflite2onnx.graph import Graph, Op, Options, Producers, copy_op, sort_ops
from tflite2onnx.passes.patterns.matching import are_equal
from tflite2onnx.passes.recurrent.cells import (
    Change,
    RecurrentCell,
    find_cells,
    find_first_item,
    split_projection,
)
from tflite2onnx.passes.recurrent.formulas import Affine, Applied, Atom, Formula, Formulas, Rows
from tflite2onnx.passes.recurrent.step_codes import LAST
from tflite2onnx.passes.rewriter import Rewriter, make_from_axes, make_int32
from tflite2onnx.passes.simplify import eliminate_dead_operators
from tflite2onnx.tensor import Array, Tensor

_STATE = 2  # axes
_STATES = (2, 3)  # axes of tensors that are states
_GATES = ("LOGISTIC", "HARD_SIGMOID")  # their functions
_DEPTH = 2  # operators between h and a gate
_MOST_ROWS = 8  # of a single step


class _CellStep(NamedTuple):
    """An operator whose output is the next h, and the cells that compute this output."""

    op: Op
    cells: Sequence[RecurrentCell]


def raise_recurrent_steps(graph: Graph) -> Graph:
    """Return the graph with recurrent operators in place of steps of recurrent layers."""
    if any(op.graphs for op in graph.ops):
        return graph
    formulas = Formulas(graph.ops)
    chains = _link_steps(_find_steps(graph, formulas))
    replacement = _Replacement(graph, formulas)
    for chain in chains:
        if not replacement.add_from_zero(chain) and not replacement.add(chain):
            for step in chain:
                replacement.add([step])
    return replacement.make_graph() if replacement.layers else graph


def _find_steps(graph: Graph, formulas: Formulas) -> list[_CellStep]:
    """Return the operators whose output is the next h of a cell, in order of execution."""
    steps = []
    for op in graph.ops:
        if op.is_builtin(*LAST) and op.outputs[0].rank in _STATES:
            result = formulas.find_formula(op.outputs[0])
            states = dict.fromkeys(_list_states(result, _DEPTH))
            cells = [cell for h in states for cell in find_cells(result, h)]
            steps += [_CellStep(op, cells)] if cells else []
    return steps


def _list_states(formula: Formula, depth: int) -> Iterator[Formula]:
    """Yield what the gates of a cell are computed of; Keras adds the product of h last."""
    if not isinstance(formula, Applied):
        return
    for argument in formula.arguments:
        is_gate = formula.code in _GATES or (depth == _DEPTH and len(formula.arguments) == 1)
        if is_gate and isinstance(argument, Affine):
            for source in reversed(list(argument.products)):
                yield from dict.fromkeys((source, split_projection(source)[0]))
        elif depth:
            yield from _list_states(argument, depth - 1)


def _link_steps(steps: Iterable[_CellStep]) -> list[list[_CellStep]]:
    """Return the steps as chains; each step follows the step before."""
    chains: list[list[_CellStep]] = []
    ends: dict[Formula, list[_CellStep]] = {}
    for step in steps:
        for cell in step.cells:
            chain = ends.get(cell.changes[0].before)
            last = chain[-1] if chain else None
            before = [each for each in last.cells if _follows(each, cell)] if last else []
            if chain and last and before:
                chain[-1:] = [last._replace(cells=before), _CellStep(step.op, [cell])]
                ends[cell.changes[0].after] = chain
                break
        else:
            chains.append([step])
            ends[step.cells[0].changes[0].after] = chains[-1]
    return chains


def _follows(one: RecurrentCell, other: RecurrentCell) -> bool:
    """Return whether a cell has the states after another cell, and equal parameters."""
    states = zip(one.changes, other.changes, strict=False)
    same = (one.code, one.made) == (other.code, other.made)
    if not same or any(a.after is not b.before for a, b in states):
        return False
    return all(map(are_equal, one.parameters, other.parameters))


class _StepLayer(NamedTuple):
    """A recurrent operator in place of steps, the copies around it, and what it replaces.

    `outputs` are the last states; `every` are the states h after each step.
    """

    op: Op
    before: Sequence[Op]
    every: tuple[Tensor, ...]
    outputs: Sequence[Tensor]


class _Replacement:
    """The layers that replace chains of steps, and the operators that compute each tensor then."""

    def __init__(self, graph: Graph, formulas: Formulas) -> None:
        self.layers: list[_StepLayer] = []
        self._graph = graph
        self._producers = Producers(graph.ops)
        self._tensors: dict[Formula, list[Tensor]] = {}
        for tensor in (*graph.inputs, *self._producers):
            self._tensors.setdefault(formulas.find_formula(tensor), []).append(tensor)

    def add_from_zero(self, chain: Sequence[_CellStep]) -> bool:
        """Replace a chain and a step before it, which begins at states of 0; see `add`."""
        (op, cells), *others = chain
        firsts = ((cell, find_first_item(cell)) for cell in cells)
        return any(
            first and self.add([_CellStep(op, [cell]), *others], first) for cell, first in firsts
        )

    def add(self, chain: Sequence[_CellStep], first: Formula | None = None) -> bool:
        """Replace a chain by a layer; return whether the conditions hold.

        `first` is the item of a step before the chain, which begins at states of 0.
        """
        cells, last = [step.cells[0] for step in chain], chain[-1].op
        cell, h, rw = cells[0], last.outputs[0], Rewriter(last)
        changes = cells[-1].changes
        outputs = [t for each in changes if (t := self._find_state_after(each, h))]
        if len(outputs) < len(changes):
            return False
        ends = [_make_state(t) for t in outputs]
        state, weights = ends[0], cell.parameters[0]
        item = replace(state, shape=(state.shape[0], weights.shape[1] if weights else 0))
        before = [] if first is None else [self._tensors[cell.changes[0].before][0]]
        every = (*before, *(step.op.outputs[0] for step in chain))
        if any(t.sizes != h.sizes for t in every) or (h.symbols and before):
            return False
        items = [*([] if first is None else [first]), *(each.item for each in cells)]
        sequence = self._find_sequence(items, item, rw)
        starts = [
            _make_zeros(end) if before else self._find_tensor(each.before, end, rw)
            for each, end in zip(cell.changes, ends, strict=True)
        ]
        found = [t for t in (sequence, *starts) if t]
        fits = (
            (len(every) > 1 or _suits_one_step(cell, state))
            and len(found) == 1 + len(starts)
            and all(a.elements == b.elements for a, b in zip(ends, outputs, strict=True))
            and cell.fits(item.sizes, [end.sizes for end in ends])
            and {*every, *outputs}.isdisjoint(self._producers.walk_back(*found))
        )
        if not fits:
            return False
        states = _make_sequence_tensor(state, len(every), f"{outputs[0].name}/sequence")
        made = (states, *(replace(t, name=f"{t.name}/end") for t in ends))
        inputs = (found[0], *cell.make_parameters(h.name), *found[1:])
        op = cell.make_op(last.index, inputs, made)
        self.layers.append(_StepLayer(op, rw.ops, every, outputs))
        self._producers |= dict.fromkeys((*every, *outputs, *made), op)
        return True

    def _find_state_after(self, change: Change, h: Tensor) -> Tensor | None:
        """Return the tensor of a state after a step, None if its shape is unknown.

        The last c of a layer with the activation RELU has no tensor in the file: its only reader is
        the activation, which the ADD applies. The result is a tensor that no operator reads then.
        """
        before = [t for t in self._tensors.get(change.before, []) if t.rank == h.rank]
        unread = [replace(t, name=f"{h.name}/c") for t in before]
        return next(iter([*self._tensors.get(change.after, []), *unread]), None)

    def _find_sequence(self, items: Sequence[Formula], item: Tensor, rw: Rewriter) -> Tensor | None:
        """Return the items as a sequence [time, batch, numbers], None if a tensor is missing."""
        rows = [each for each in items if isinstance(each, Rows) and each not in self._tensors]
        if len(rows) == len(items) and len({each.source for each in rows}) == 1:
            return self._take_items(rows, item, rw)
        found = [t for each in items if (t := self._find_tensor(each, item, rw))]
        return self._join_items(found, item, rw) if len(found) == len(items) else None

    def _take_items(self, items: Sequence[Rows], item: Tensor, rw: Rewriter) -> Tensor | None:
        """Return items that are rows of one tensor as a sequence, None if no tensor has them."""
        source, features = items[0].source, item.shape[-1]
        tensors = self._tensors.get(source, [source.tensor] if isinstance(source, Atom) else [])
        found = [t for t in tensors if t.shape[-1:] == (features,) and _has_batch(t, item)]
        if item.symbols:  # a tensor with the times first needs no TRANSPOSE
            found = [
                t for axis in (1, 0) for t in found if t.rank == item.rank + 1 and axis in t.symbols
            ]
        batch = 1 if item.symbols else item.shape[0]
        if not found or any(each.indices.size != batch for each in items):
            return None
        tensor = found[0]
        target = _make_sequence_tensor(item, len(items), f"{tensor.name}/sequence")
        rows = np.stack([each.indices for each in items])
        if item.symbols:
            return self._take_times(tensor, rows[:, 0], target, rw)
        count = tensor.elements // features
        every = np.arange(count)
        by_sample = target.shape[1], target.shape[0], features
        if np.array_equal(rows.reshape(-1), every):
            if tensor.sizes == target.sizes:
                return tensor
            rw.reshape(tensor, output=target)
        elif np.array_equal(rows.T.reshape(-1), every):
            rw.transpose(rw.reshape(tensor, by_sample, like=target), (1, 0, 2), output=target)
        else:
            matrix = rw.reshape(tensor, (count, features), like=target, name="rows")
            indices = make_int32(f"{target.name}/indices", rows)
            rw.op("GATHER", matrix, indices, output=target, axis=0, batch_dims=0)
        self._producers |= {t: op for op in rw.ops for t in op.outputs}
        return target

    def _take_times(self, tensor: Tensor, times: Array, target: Tensor, rw: Rewriter) -> Tensor:
        """Return items of a dynamic batch, [time, batch, numbers] or [batch, time, numbers]."""
        if 0 in tensor.symbols:
            shape = tensor.shape[1], *target.shape[1:]
            turned = replace(target, name=f"{target.name}/times", shape=shape)
            tensor = rw.transpose(tensor, (1, 0, 2), output=turned)
        if not np.array_equal(times, np.arange(tensor.shape[0])):
            indices = make_int32(f"{target.name}/indices", times)
            tensor = rw.op("GATHER", tensor, indices, output=target, axis=0, batch_dims=0)
        self._producers |= {t: op for op in rw.ops for t in op.outputs}
        return tensor

    def _find_tensor(self, formula: Formula, like: Tensor, rw: Rewriter) -> Tensor | None:
        """Return a tensor that has a formula and the shape of `like`, None if no tensor has it.

        A tensor of another shape is copied.
        """
        tensors = self._tensors.get(formula, [formula.tensor] if isinstance(formula, Atom) else [])
        same = next((t for t in tensors if t.sizes == like.sizes), None)
        alike = (t for t in tensors if t.elements == like.elements and _has_batch(t, like))
        source = same or next(alike, None)
        if same or not source:
            return same
        target = replace(like, name=f"{source.name}/item", data=None)
        rw.ops.append(copy_op(rw.source, source, target))
        self._producers[target] = rw.ops[-1]
        return target

    def _join_items(self, items: Sequence[Tensor], item: Tensor, rw: Rewriter) -> Tensor:
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
        # The state after a single step is the last state, which needs no node.
        joined: dict[tuple[Tensor | None, ...], _StepLayer] = {
            each.every: each for each in self.layers if len(each.every) > 1
        }
        ops: list[Op] = []
        for op in self._graph.ops:
            if made.isdisjoint(op.outputs):
                layer = joined.get(op.inputs) or joined.get(op.inputs[::-1])
                axis = _find_joined_axis(op) if layer else None
                ops += [op] if layer is None or axis is None else _join_states(op, axis, layer)
        copies: dict[Op, Op] = {}
        for layer in self.layers:
            sequence, *ends = layer.op.outputs
            *turn, unpack = _unpack_states(layer, sequence)
            copies[unpack], *rest = map(partial(copy_op, layer.op), ends, layer.outputs)
            ops += [*layer.before, layer.op, *turn, unpack, *rest]
        graph = eliminate_dead_operators(replace(self._graph, ops=sort_ops(ops)))

        def copy_last(op: Op) -> list[Op]:
            unread = (graph.readers.are_among((), t) for t in op.outputs[:-1])
            return [copies[op] if op in copies and all(unread) else op]

        return eliminate_dead_operators(graph.rewrite(copy_last))


def _find_joined_axis(op: Op) -> int | None:
    """Return the axis along which an operator joins states, None if it is one of their numbers."""
    if not op.is_builtin("CONCATENATION", "PACK") or op.activation != "NONE":
        return None
    axis = int(op.options.get("axis", 0)) % op.outputs[0].rank
    return axis if axis < _STATE else None


def _join_states(op: Op, axis: int, layer: _StepLayer) -> list[Op]:
    """Return what computes the states of a layer, joined from first to last, or from last on."""
    rw, states = Rewriter(op), layer.op.outputs[0]
    if op.inputs != layer.every:
        states = rw.op("REVERSE_V2", states, [0], like=states, name="reversed")
    if axis and _has_samples_first(layer.every[0]):
        states = _put_samples_first(rw, states)
    return [*rw.ops, copy_op(op, states, op.outputs[0])]


def _unpack_states(layer: _StepLayer, sequence: Tensor) -> list[Op]:
    rw, h, count = Rewriter(layer.op), layer.every[0], len(layer.every)
    if h.rank == _STATE:
        options = Options({"axis": 0, "num": count})
        return [Op("UNPACK", layer.op.index, (sequence,), layer.every, options)]
    axis = int(_has_samples_first(h))
    source = _put_samples_first(rw, sequence) if axis else sequence
    inputs = make_int32(f"{sequence.name}/axis", axis), source
    options = Options({"num_splits": count})
    return [*rw.ops, Op("SPLIT", layer.op.index, inputs, layer.every, options)]


def _has_samples_first(h: Tensor) -> bool:
    """Return whether the first axis of a state is the batch."""
    return h.rank == _STATE or h.sizes[0] != 1


def _put_samples_first(rw: Rewriter, sequence: Tensor) -> Tensor:
    turned = make_from_axes(f"{sequence.name}/samples", [sequence] * 3, (1, 0, 2), sequence.dtype)
    return rw.transpose(sequence, (1, 0, 2), output=turned)


def _has_batch(tensor: Tensor, like: Tensor) -> bool:
    """Return whether a tensor has the dynamic batch of another, or both have none."""
    return [*tensor.symbols.values()] == [*like.symbols.values()]


def _make_zeros(state: Tensor) -> Tensor:
    data = np.zeros(state.shape, np.float32)
    return replace(state, name=f"{state.name}/zeros", data=data)


def _make_state(h: Tensor) -> Tensor:
    """Return a tensor [batch, numbers] like a state, which may have one axis of size 1 more."""
    batch = 0 if _has_samples_first(h) else h.rank - _STATE
    return make_from_axes(h.name, [h, h], (batch, h.rank - 1), h.dtype)


def _suits_one_step(cell: RecurrentCell, h: Tensor) -> bool:
    """Return whether condition 4 holds."""
    quantized = any(each and each.quantization for each in cell.parameters)
    is_rnn = cell.code == "UNIDIRECTIONAL_SEQUENCE_RNN"
    return h.shape[0] <= _MOST_ROWS and not quantized and not is_rnn


def _make_sequence_tensor(item: Tensor, times: int, name: str) -> Tensor:
    symbols = {axis + 1: size for axis, size in item.symbols.items()}
    shape = (times, *item.shape)
    return replace(item, name=name, shape=shape, shape_signature=(), symbols=symbols)

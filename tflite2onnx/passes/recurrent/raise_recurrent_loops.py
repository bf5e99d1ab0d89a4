"""Replace WHILE loops that are recurrent layers, as Keras writes them, by recurrent operators.

A loop is replaced if:

1. it counts iterations from a constant to a constant, or to the size of the sequence if that size
   is dynamic;
2. each iteration reads the next item of one sequence;
3. the next values of the states are those of a cell (`cells`). Formulas are compared
   (`formulas`), not operators, because converters write the same formula in many ways;
4. each variable of the loop is a counter, a state, a list of the outputs, or the last output, of
   one layer or of several, each of which reads the outputs of the layer before it;
5. constant integer weights are dequantized, as the recurrent operators do. Hybrid kernels quantize
   the data too, which only a Loop could do: it takes 18 to 23 times as long as LSTM.

A loop that leaves out the masked items of a sequence is a layer between the operators of
`masked_loops`.

LSTM and RNN become UNIDIRECTIONAL_SEQUENCE_LSTM and _RNN with their last states as outputs. TFLite
has no GRU; the operator GRU, which no file has, reads (sequence, W, R, b, state), where W and R are
one matrix for each gate, in ONNX's order of gates.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from tflite2onnx.graph import ABSENT, Graph, Op, copy_op
from tflite2onnx.op import find_operator
from tflite2onnx.passes.operands import RESHAPES
from tflite2onnx.passes.patterns.matching import GraphMatcher, Pattern, Through
from tflite2onnx.passes.recurrent.cells import Change, RecurrentCell, find_cells
from tflite2onnx.passes.recurrent.formulas import Atom, Formula, Formulas, evaluate_op, has_number
from tflite2onnx.passes.recurrent.masked_loops import (
    MaskedChoice,
    MaskedSequence,
    find_choice,
    remove_choices,
)
from tflite2onnx.passes.rewriter import Rewriter, make_from_axes
from tflite2onnx.tensor import DType, Tensor

_NEXT: Pattern = ("ADD", "count", 1)
# EXPAND_DIMS is TensorFlow 2.2's.
_PLACE: Pattern = ("CONCATENATION", Through("count", *RESHAPES), 0)


def raise_recurrent_loops(graph: Graph) -> Graph:
    """Return the graph with recurrent operators in place of loops that are recurrent layers."""

    def rewrite_op(op: Op) -> list[Op]:
        if not op.is_builtin("WHILE") or len(op.graphs) != 1:
            return [op]
        loop = _Loop(op, graph)
        return _replace_loop(loop) or _replace_masked_loop(loop, graph) or [op]

    return graph.rewrite(rewrite_op)


class _LoopVariable(NamedTuple):
    """A loop variable: its first value, its value in an iteration, the next, and the last value."""

    first: Tensor
    now: Tensor
    next: Tensor
    last: Tensor


class _LoopLayer(NamedTuple):
    """The cell of a recurrent operator, and the variables that are its states (h first)."""

    cell: RecurrentCell
    states: Sequence[_LoopVariable]


class _Outputs(NamedTuple):
    """What a layer computes: the sequence of all h, the last states, and the next h in the loop."""

    states: Sequence[_LoopVariable]
    every: Tensor
    ends: Sequence[Tensor]
    result: Formula


class _Loop:
    """A loop with counters, whose values start at numbers, and `states`, the other variables.

    `rounds` is the number of iterations, 0 if it is unknown, or the name of a dynamic size. `limit`
    is the tensor that ends the count. `graph` is the graph of the whole model.
    """

    def __init__(self, op: Op, graph: Graph) -> None:
        (body,) = op.graphs
        self.op, self.body = op, body
        rows = zip(op.present[1:], body.inputs, body.outputs[1:], op.outputs, strict=True)
        self.variables = [_LoopVariable(*row) for row in rows]
        self.formulas = Formulas(body.ops)
        self.producers = self.formulas.producers
        self._matcher = GraphMatcher(body, dtype=None)
        counting = [v for v in self.variables if self._counts(v)]
        self.counters = {v.now: int(v.first.values.max()) for v in counting}
        self.states = [v for v in self.variables if v not in counting]
        self.limit = ABSENT
        self._graph = graph
        self.rounds = self._count_rounds()

    def _counts(self, variable: _LoopVariable) -> bool:
        after = variable.next
        plain = variable.first.values.size and after.dtype is DType.INT32 and after.elements == 1
        return bool(plain) and variable.now in self._find_counts(_NEXT, after)

    def _find_counts(self, pattern: Pattern, tensor: Tensor) -> list[object]:
        """Return what the name `count` of a pattern may be."""
        return [found.values["count"] for found in self._matcher.find_matches(pattern, tensor)]

    def _count_rounds(self) -> int | str:
        begins = self.op.operand(0).values
        starts = {v.next: self.counters[v.now] for v in self.variables if v.now in self.counters}
        tests = self._list_tests()
        if not all(op.is_builtin("LESS") and op.operand(0) in starts for op in tests):
            return 0
        self.limit = tests[0].operand(1)
        ends = [self._count_from(op.operand(1), starts[op.operand(0)]) for op in tests]
        if not begins.size or not begins.all():
            return 0
        counts = [end for end in ends if isinstance(end, int)]
        if len(counts) == len(ends):
            return max(min(counts), 1)
        return (ends[0] or 0) if len(set(ends)) == 1 else 0

    def _count_from(self, limit: Tensor, start: int) -> int | str | None:
        if limit.has_data:
            return int(limit.values.max()) - start
        op = self._graph.producers.find(limit)
        shape = self._graph.producers.find(op.operand(0))
        if not shape.is_builtin("SHAPE") or start:
            return None
        x, constants = shape.operand(0), op.present[1:]
        known = [t.values for t in constants if t.has_data]
        if len(known) < len(constants):
            return None
        places = evaluate_op(find_operator(op), [np.arange(x.rank), *known])
        return x.sizes[int(places[0].max())] if [each.size for each in places] == [1] else None

    def _list_tests(self) -> list[Op]:
        """Return the operators whose results must all be true for another iteration."""
        tests, conditions = [], [self.body.outputs[0]]
        for condition in conditions:  # the loop appends to the list
            op = self.producers.find(self.producers.trace(condition, "RESHAPE"))
            if op.is_builtin("LOGICAL_AND"):
                conditions += (t for t in op.present if t not in conditions)
            else:
                tests.append(op)
        return tests

    def find_last_count(self, start: int) -> Tensor | None:
        if isinstance(self.rounds, str):
            return None if start else self.limit
        return Tensor("count", (), DType.INT32, np.array(start + self.rounds, np.int32))

    def find_formula(self, variable: _LoopVariable) -> Formula:
        return self.formulas.find_formula(variable.next)

    def carries(self, variable: _LoopVariable, change: Change) -> bool:
        before, after = self.formulas.find_formula(variable.now), self.find_formula(variable)
        return before is change.before and after is change.after

    def find_sequence(self, item: Tensor) -> Tensor | None:
        """Return the sequence outside the loop whose next item a tensor is, None if it is not."""
        op = self.producers.find(item)
        if not op.is_builtin("GATHER") or op.options.get("batch_dims"):
            return None
        sequence, index = op.operand(0), op.operand(1)
        inside = sequence in self.producers or sequence in self.body.inputs
        axis = op.options.get("axis", 0) % max(sequence.rank, 1)
        fits = sequence.rank == 3 and sequence.sizes[0] == self.rounds and axis == 0
        return sequence if fits and not inside and self.counters.get(index) == 0 else None

    def starts_at_zero(self, variable: _LoopVariable) -> bool:
        return has_number(self._graph.producers, variable.first, 0)

    def find_written_item(self, variable: _LoopVariable) -> Formula | None:
        """Return the item that each iteration writes to a list, None for other variables."""
        op = self.producers.find(self.producers.trace(variable.next, "CAST"))
        if not op.is_builtin("DYNAMIC_UPDATE_SLICE"):
            return None
        items, item, starts = op.present
        if items is not variable.now:
            return None
        # TensorFlow makes some lists for the batch 1 beside items of a dynamic batch. LiteRT then
        # runs the loop for this batch only.
        whole = (1, *variable.now.shape[1:]) == item.shape
        fits = whole and variable.now.sizes[0] == self.rounds and self._is_place(starts)
        return self.formulas.find_formula(item) if fits else None

    def _is_place(self, starts: Tensor) -> bool:
        """Return whether `starts` is the iteration along the first axis, and 0 along other axes."""
        counts = self._find_counts(_PLACE, starts)
        return any(start == 0 and now in counts for now, start in self.counters.items())


def _replace_loop(loop: _Loop) -> list[Op]:
    """Return the operators that replace a loop; empty if it has other variables than layers."""
    states = loop.states if loop.rounds else []
    waiting = [layer for state in states for layer in _find_layers(loop, state)]
    layers: list[_Outputs] = []
    ops: list[Op] = []
    while waiting:  # a layer may read what another one computes
        sequences = {made.result: made.every for made in layers}
        found = ((each, _find_layer_sequence(loop, each, sequences)) for each in waiting)
        layer, sequence = next((pair for pair in found if pair[1]), (None, None))
        if not layer or not sequence:
            break
        op, outputs = _make_recurrent(loop, layer, sequence)
        ops.append(op)
        layers.append(outputs)
        waiting = [each for each in waiting if each.states[0] is not layer.states[0]]
    sources = [_find_source(loop, layers, variable) for variable in loop.variables]
    return _add_copies(ops, loop, sources, {v.last for v in loop.variables}) if ops else []


def _find_layer_sequence(
    loop: _Loop, layer: _LoopLayer, sequences: Mapping[Formula, Tensor]
) -> Tensor | None:
    """Return the sequence that a layer reads, None if its matrices do not fit.

    `sequences` are those of values that the loop computes.
    """
    item = layer.cell.item
    sequence = sequences.get(item)
    if not sequence and isinstance(item, Atom):
        sequence = loop.find_sequence(item.tensor)
    states = [each.now.sizes for each in layer.states]
    fits = sequence and layer.cell.fits(sequence.sizes[1:], states)
    return sequence if fits else None


def _make_recurrent(loop: _Loop, layer: _LoopLayer, sequence: Tensor) -> tuple[Op, _Outputs]:
    """Return the operator of a layer that reads a sequence, and what it computes."""
    cell, states = layer
    h, name = states[0], states[0].last.name
    every = make_from_axes(f"{name}/sequence", (sequence, h.now, h.now), (0, 0, 1), DType.FLOAT32)
    ends = [replace(each.last, name=f"{each.last.name}/end") for each in states]
    inputs = (sequence, *cell.make_parameters(name), *(each.first for each in states))
    op = cell.make_op(loop.op.index, inputs, (every, *ends))
    return op, _Outputs(states, every, ends, loop.find_formula(h))


def _add_copies(
    ops: list[Op], loop: _Loop, sources: Sequence[Tensor | None], needed: Collection[Tensor]
) -> list[Op]:
    """Return operators and copies to the outputs of the loop; empty if a needed one is missing."""
    pairs = [(x, v.last) for x, v in zip(sources, loop.variables, strict=True) if v.last in needed]
    copied = [(x, y) for x, y in pairs if x and x.elements == y.elements]
    if len(copied) < len(pairs):
        return []
    return [*ops, *(copy_op(loop.op, source, target) for source, target in copied)]


def _replace_masked_loop(loop: _Loop, graph: Graph) -> list[Op]:
    """Return the operators that replace a loop with a mask; empty if it is no recurrent layer."""
    found = {v.now: find_choice(loop.producers, v.next) for v in loop.states}
    choices = {now: choice for now, choice in found.items() if choice}
    masks = {loop.find_sequence(choice.item) for choice in choices.values()}
    mask = masks.pop() if masks else None
    if masks or not mask or len(choices) < len(loop.states) or isinstance(loop.rounds, str):
        return []
    body = remove_choices(loop.body, choices.values())
    plain = _Loop(replace(loop.op, graphs=(body,)), graph)
    layers = (layer for state in plain.states for layer in _find_layers(plain, state))
    built = (_build_masked_layer(plain, layer, mask, choices, graph) for layer in layers)
    return next(filter(None, built), [])


def _build_masked_layer(
    loop: _Loop,
    layer: _LoopLayer,
    mask: Tensor,
    choices: Mapping[Tensor, MaskedChoice],
    graph: Graph,
) -> list[Op]:
    """Return the operators of a layer of the unmasked items; `choices` by the variables."""
    h, sequence = layer.states[0], _find_layer_sequence(loop, layer, {})
    keeps = all(_keeps_value(loop, v, h, choices) for v in loop.variables if v.now in choices)
    own = all(choices[v.now].old is v.now for v in layer.states)
    if not sequence or mask.sizes != (*sequence.sizes[:2], 1) or not (keeps and own):
        return []
    rw = Rewriter(loop.op)
    masked = MaskedSequence(rw, mask, h.last.name)
    op, made = _make_recurrent(loop, layer, masked.put_unmasked_first(sequence))
    rw.ops.append(op)
    kept = masked.find_states(h.first, made.every)
    outputs = {False: kept, True: masked.clear_masked(kept)}
    lasts = {zero: masked.take_last(each) for zero, each in outputs.items()}
    sources: list[Tensor | None] = []
    for variable in loop.variables:
        zero = variable.now in choices and choices[variable.now].is_zero
        shown = made._replace(every=outputs[zero], ends=[lasts[zero], *made.ends[1:]])
        source = _find_source(loop, [shown], variable)
        # The last c of the layer is that after all items, masked ones included.
        sources.append(None if source in made.ends else source)
    read = {v.last for v in loop.variables if not graph.readers.are_among((), v.last)}
    return _add_copies(rw.ops, loop, sources, read)


def _keeps_value(
    loop: _Loop, variable: _LoopVariable, h: _LoopVariable, choices: Mapping[Tensor, MaskedChoice]
) -> bool:
    """Return whether a masked item leaves a variable as it is, or is stored as 0 or the last h."""
    choice, result = choices[variable.now], loop.find_formula(h)
    value = loop.find_written_item(variable) or loop.find_formula(variable)
    if choice.is_zero or value is not result:
        return choice.is_zero or choice.old is variable.now
    kept = next((v for v in loop.variables if v.now is choice.old), None)
    if not kept or loop.find_formula(kept) is not result:
        return False
    same = kept.first is h.first or (loop.starts_at_zero(kept) and loop.starts_at_zero(h))
    return same and choices[kept.now].old is kept.now


def _find_source(loop: _Loop, layers: Sequence[_Outputs], variable: _LoopVariable) -> Tensor | None:
    if variable.now in loop.counters:
        return loop.find_last_count(loop.counters[variable.now])
    stored, value = loop.find_written_item(variable), loop.find_formula(variable)
    for states, every, ends, result in layers:
        if variable in states:
            return ends[states.index(variable)]
        if result in (stored, value):
            return every if stored is result else ends[0]
    return None


def _find_layers(loop: _Loop, state: _LoopVariable) -> Iterator[_LoopLayer]:
    h, result = loop.formulas.find_formula(state.now), loop.find_formula(state)
    for cell in find_cells(result, h):
        others = [
            next((v for v in loop.variables if loop.carries(v, change)), None)
            for change in cell.changes[1:]
        ]
        states = [state, *(v for v in others if v)]
        if len(states) == len(cell.changes):
            yield _LoopLayer(cell, states)

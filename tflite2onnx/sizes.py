"""Which sizes stay open in the ONNX model: those of inputs that the file does not fix.

Of what some operators make (WHERE, UNIQUE) no size is known before the model runs: it is open too.

What other sizes follow from them is found out by trial: the open sizes get other values, distinct
ones, and each operator says what shapes it makes then. A size that changes with them is open too,
and sizes that are equal in all trials have one name. The file's own word on inner tensors is not
asked, since it is often missing or stale.

Shapes that are computed in the graph (SHAPE, STRIDED_SLICE, PACK, RESHAPE) are computed in the
trials as well: what comes out the same is a constant, and what does not is left to be computed.

Whether an operator can be converted for any size is its own affair: `Operator.keeps_open`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Protocol

import numpy as np

from tflite2onnx.errors import FixedSizeError, OperatorError, guarded
from tflite2onnx.fold import Rules, constants_made, room_for
from tflite2onnx.graph import Graph, Op
from tflite2onnx.normalise import densify
from tflite2onnx.tensor import Shape, Tensor

# How the sizes grow: in one trial by so much that even what is divided many times grows, and what
# has to be even stays so; in the other by little, to tell apart what divides without a rest.
_STRIDE = 128
_PRIMES = (2, 5, 11, 17, 23, 31, 41, 47, 59, 67, 73, 83)
BATCH = "batch"

Known = Mapping[Tensor, Tensor]
_Place = tuple[Tensor, int]  # an axis of an input, or of an output whose size nobody foresees


class Sized(Rules, Protocol):
    """What is asked of an operator: its shapes, and whether it can do without them."""

    def inferred(self) -> tuple[Shape, ...]:
        """Return the shapes of the outputs that follow from the inputs."""

    def unforeseen(self) -> Sequence[Sequence[tuple[int, int]]]:
        """Return sizes that are known at run time, each as (output, axis) that are equal."""

    def entries(self) -> Sequence[Sequence[Shape]]:
        """Return the shapes of the inputs of each sub-graph."""

    def keeps_open(self, operand: int, axis: int) -> bool:
        """Return whether the operator can be converted for any size of an axis."""


SizedOf = Callable[[Op], Sized]


def settled(graph: Graph, operator_of: SizedOf) -> Graph:
    """Return the graph in the shapes that its operators make of inputs as the file sizes them.

    A size that the file leaves open it declares as 1, inner ones too: of what is flattened with an
    open batch it says that there is one row. LiteRT asks the kernels, as is done here.
    """
    if not any(t.dynamic_axes for op in graph.every_op() for t in op.outputs):
        return graph
    return _Settled(operator_of, room_for(graph)).graph(graph)


class _Settled:
    """Knows what the tensors so far are, and what they hold where that can be told."""

    def __init__(self, operator_of: SizedOf, room: int) -> None:
        self._operator_of = operator_of
        self._room = room
        self._tensors: dict[Tensor, Tensor] = {}
        self._values: dict[Tensor, Tensor] = {}

    def graph(self, graph: Graph) -> Graph:
        """Return a graph whose inputs are what they are."""
        ops = tuple(self._op(op) for op in graph.ops)
        outputs = tuple(self._tensors.get(t, t) for t in graph.outputs)
        tensors = tuple(self._tensors.get(t, t) for t in graph.tensors)
        return replace(graph, ops=ops, outputs=outputs, tensors=tensors)

    def _op(self, op: Op) -> Op:
        here = op.reading(self._values)
        # What is wrong with an operator at these sizes is said when it is converted.
        with suppress(OperatorError), guarded():
            if op.graphs:
                entries = self._operator_of(here).entries()
                pairs = zip(op.graphs, entries, strict=True)
                here = replace(here, graphs=tuple(self._entered(g, e) for g, e in pairs))
            here = replace(here, outputs=_made(here, self._operator_of))
        settled = replace(op.reading(self._tensors), outputs=here.outputs, graphs=here.graphs)
        self._tensors |= dict(zip(op.outputs, here.outputs, strict=True))
        made = constants_made(here, self._operator_of, self._room)
        self._room -= sum(t.nbytes for t in made)
        self._values |= dict(zip(op.outputs, made or here.outputs, strict=True))
        return settled

    def _entered(self, graph: Graph, shapes: Sequence[Shape]) -> Graph:
        """Return a sub-graph whose inputs have these shapes."""
        inputs = tuple(
            t if t.shape == shape else replace(t, shape=shape)
            for t, shape in zip(graph.inputs, shapes, strict=True)
        )
        pairs = dict(zip(graph.inputs, inputs, strict=True))
        self._tensors |= pairs
        self._values |= pairs
        return self.graph(replace(graph, inputs=inputs))


def opened(graph: Graph, operator_of: SizedOf, *, inputs: bool = True) -> Graph:
    """Return the graph with the names of all open sizes, and constants where none is involved.

    Sizes of inputs can be those of the file.

    Raises:
        FixedSizeError: an operator makes no output for other sizes than the file's.
    """
    places = [(t, axis) for t in graph.inputs for axis in sorted(t.dynamic_axes) if inputs]
    unforeseen = dict(_unforeseen(graph, operator_of))
    if not places and not unforeseen:
        return graph
    graph = densify(graph)
    for op in (op for op in graph.ops if op.graphs):
        message = "the sizes within its sub-graphs are those of the file"
        raise FixedSizeError(message).at(op.place)
    trials = _Trials(graph, operator_of, places, unforeseen)
    return trials.result()


def _unforeseen(graph: Graph, operator_of: SizedOf) -> Iterator[tuple[_Place, str]]:
    """Yield the sizes that nobody foresees with their names.

    What follows from constants, or from shapes, is foreseen.
    """
    if not any(_groups(op, operator_of) for op in graph.every_op()):
        return
    outermost, known, room = {*graph.ops}, dict[Tensor, Tensor](), room_for(graph)
    for op in graph.every_op():
        here = op.reading(known)
        groups = _groups(here, operator_of)
        made = constants_made(here, operator_of, room)
        room -= sum(t.nbytes for t in made)
        known |= dict(zip(op.outputs, made, strict=False))
        if groups and op not in outermost:
            message = "what it makes in a sub-graph has a size that is known when it runs"
            raise FixedSizeError(message).at(op.place)
        for group in groups:
            (first, axis), *_ = places = [(op.outputs[output], axis) for output, axis in group]
            yield from ((place, f"{first.name}_{axis}") for place in places)


def _groups(op: Op, operator_of: SizedOf) -> Sequence[Sequence[tuple[int, int]]]:
    try:
        with guarded():
            return operator_of(op).unforeseen()
    except OperatorError:  # said later, with all else that is wrong
        return ()


def check_open(operators: Sequence[tuple[Op, Sized]]) -> None:
    """Raise FixedSizeError if an operator cannot do with an open size that it reads or writes."""
    for op, operator in operators:
        operands = [(i, t) for i, t in enumerate(op.inputs) if t is not None]
        operands += [(~i, t) for i, t in enumerate(op.outputs)]
        for operand, tensor, axis in ((i, t, axis) for i, t in operands for axis in t.symbols):
            with guarded():
                if not operator.keeps_open(operand, axis):
                    message = f"it needs to know the size of axis {axis} of {tensor.name}"
                    raise FixedSizeError(message).at(op.place)


class _Trials:
    """The graph as it is at the sizes of the file, and at others."""

    def __init__(
        self, graph: Graph, operator_of: SizedOf, places: Sequence[_Place],
        unforeseen: Mapping[_Place, str],
    ) -> None:  # fmt: skip
        self._graph, self._operator_of, self._unforeseen = graph, operator_of, unforeseen
        self._file = self._known({})
        names, grown = self._grown(places)
        close = self._tried(_sizes(names, 1))
        self._others = [grown] if close is None else [grown, close]
        self._names: dict[tuple[int, ...], str] = {}
        for (tensor, axis), name in names.items():
            self._names.setdefault(self._sizes_of(tensor, axis), name)

    def _grown(self, places: Sequence[_Place]) -> tuple[dict[_Place, str], Known]:
        """Return names for the open sizes of the inputs: each its own, or one for all batches."""
        own = {place: f"{place[0].name}_{place[1]}" for place in places}
        apart = {**own, **self._unforeseen}
        batches = [place for place in places if place[1] == 0]
        together = apart | dict.fromkeys(batches, BATCH)
        if len(batches) > 1:
            known = self._tried(_sizes(apart, _STRIDE))
            if known is not None:
                return apart, known
        return together, self._known(_sizes(together, _STRIDE))

    def _tried(self, sizes: Mapping[_Place, int]) -> Known | None:
        try:
            return self._known(sizes)
        except FixedSizeError:
            return None

    def _known(self, sizes: Mapping[_Place, int]) -> Known:
        """Return each tensor as it is when inputs have these sizes: shapes, and constants."""
        known: dict[Tensor, Tensor] = {}
        for tensor in self._graph.inputs:
            shape = [sizes.get((tensor, i), size) for i, size in enumerate(tensor.shape)]
            known[tensor] = replace(tensor, shape=tuple(shape))
        room = room_for(self._graph)
        for op in self._graph.ops:
            here = op.reading(known)
            if sizes:
                pairs = zip(op.outputs, _made(here, self._operator_of), strict=True)
                here = replace(here, outputs=tuple(_resized(*pair, sizes) for pair in pairs))
            made = constants_made(here, self._operator_of, room)
            room -= sum(t.nbytes for t in made)
            known |= dict(zip(op.outputs, made or here.outputs, strict=True))
        return known

    def _sizes_of(self, tensor: Tensor, axis: int) -> tuple[int, ...]:
        """Return the sizes of an axis in the file and in the trials."""
        return tuple(known[tensor].shape[axis] for known in (self._file, *self._others))

    def result(self) -> Graph:
        """Return the graph with names of sizes."""
        known: dict[Tensor, Tensor] = {t: self._named(t) for t in self._graph.inputs}
        ops = []
        for op in self._graph.ops:
            same = [self._same(t) for t in op.outputs]
            if op.outputs and all(same):
                known |= {t: self._file[t] for t in op.outputs}
            else:
                known |= {t: self._named(t) for t in op.outputs}
                here = op.reading(known)
                ops.append(replace(here, outputs=tuple(known[t] for t in op.outputs)))
        return replace(
            self._graph, ops=tuple(ops),
            inputs=tuple(known[t] for t in self._graph.inputs),
            outputs=tuple(known.get(t, t) for t in self._graph.outputs),
            tensors=tuple(known.get(t, t) for t in self._graph.tensors),
        )  # fmt: skip

    def _same(self, tensor: Tensor) -> bool:
        """Return whether a tensor holds the same elements in all trials."""
        data = self._file[tensor].data
        others = [known[tensor].data for known in self._others]
        return data is not None and all(o is not None and np.array_equal(data, o) for o in others)

    def _named(self, tensor: Tensor) -> Tensor:
        symbols = {}
        for axis in range(tensor.rank):
            sizes = self._sizes_of(tensor, axis)
            if len(set(sizes)) > 1:
                symbols[axis] = self._names.setdefault(sizes, f"{tensor.name}_{axis}")
        return replace(tensor, symbols=symbols) if symbols else tensor


def _sizes(names: Mapping[_Place, str], by: int) -> dict[_Place, int]:
    """Return sizes for a trial; those of one name grow alike, those of others do not."""
    order = list(dict.fromkeys(names.values()))
    primes = [prime + 100 * (i // len(_PRIMES)) for i, prime in enumerate(_primes(len(order)))]
    growth = dict(zip(order, primes, strict=True))
    # A batch can well be small: what is computed of it takes room.
    return {
        (t, axis): t.shape[axis] + growth[name] * (by if axis else 1) + (by == 1)
        for (t, axis), name in names.items()
    }


def _resized(origin: Tensor, tensor: Tensor, sizes: Mapping[_Place, int]) -> Tensor:
    """Return a tensor with the sizes in a trial that nobody foresees."""
    shape = tuple(sizes.get((origin, axis), size) for axis, size in enumerate(tensor.shape))
    return tensor if shape == tensor.shape else replace(tensor, shape=shape)


def _primes(count: int) -> Iterator[int]:
    return (_PRIMES[i % len(_PRIMES)] for i in range(count))


def _made(op: Op, operator_of: SizedOf) -> tuple[Tensor, ...]:
    """Return the outputs of an operator in the shapes that its inputs lead to."""
    try:
        with guarded():
            shapes = operator_of(op).inferred()
    except OperatorError as error:
        raise FixedSizeError(error.reason).at(op.place) from error
    if any(len(shape) != t.rank for t, shape in zip(op.outputs, shapes, strict=True)):
        message = "its output has another rank than the file says"
        raise FixedSizeError(message).at(op.place)
    return tuple(
        t if t.shape == shape else replace(t, shape=shape)
        for t, shape in zip(op.outputs, shapes, strict=True)
    )

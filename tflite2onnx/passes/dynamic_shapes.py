"""Which sizes stay open in the ONNX model: those of inputs that the file does not fix.

Of what some operators make (WHERE, UNIQUE) no size is known before the model runs: it is open too.

What other sizes follow from them is found out by trial: the open sizes get other values, distinct
ones, and each operator says what shapes it makes then. A size that changes with them is open too,
and sizes that are equal in all trials have one name. Where different ones meet in an operator that
wants them equal they are so, or the model could not run: they get one name, too. The file's own
word on inner tensors is not asked, since it is often missing or stale.

Shapes that are computed in the graph (SHAPE, STRIDED_SLICE, PACK, RESHAPE) are computed in the
trials as well: what comes out the same is a constant, and what does not is left to be computed.
A size that nobody foresees can be anything, as that of a variable which grows in a loop: what is
the same in two trials, as whether such a size is less than a number, may differ in a third. It is
a constant only if all operators behind the size move elements.

Operators say for which axes they can be converted: `Operator.supports_dynamic_axis`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise, zip_longest

import numpy as np

from tflite2onnx.errors import (
    FixedSizeError,
    OperatorError,
    UnsupportedOperators,
    as_operator_error,
)
from tflite2onnx.graph import Graph, Op
from tflite2onnx.op import operator_for
from tflite2onnx.op.base import Operator
from tflite2onnx.passes.normalise import densify
from tflite2onnx.passes.shape_walk import (
    ClashError,
    Known,
    OperatorOf,
    Place,
    ShapeWalk,
    infer_op_outputs,
    is_dynamic,
)
from tflite2onnx.tensor import Tensor

# How the sizes grow: in one trial by so much that even what is divided many times grows, and what
# has to be even stays so; in the other by little, to tell apart what divides without a rest.
_STRIDE = 128
_PRIMES = (2, 5, 11, 17, 23, 31, 41, 47, 59, 67, 73, 83)
# What is enough for any window, and divides without a rest.
_ROOM = 4096
BATCH = "batch"


def infer_shapes(graph: Graph) -> Graph:
    """Return the graph in the shapes that its operators make of inputs as the file sizes them.

    A size that the file leaves open it declares as 1, inner ones too: of what is flattened with an
    open batch it says that there is one row. Where it does not know how many axes there are it
    declares none, like those of a number. LiteRT asks the kernels, as is done here. What is wrong
    with an operator at these sizes is said when it is converted.
    """
    guessed = any(t.dynamic_axes or not t.rank for op in graph.every_op() for t in op.outputs)
    if not guessed and not any(_resizes(operator_for(op)) for op in graph.every_op()):
        return graph
    walk = ShapeWalk(graph)
    walk.walk_ops(graph.ops)
    return graph.replace_tensors(walk.shapes)


def run_trials(graph: Graph) -> list[Known]:
    """Return each tensor as it is at the sizes of the file, and as it is where inputs are larger.

    What cannot be inferred is as declared.
    """
    places = [(t, axis) for t in graph.inputs for axis in sorted(t.dynamic_axes)]
    names = {(t, axis): f"{t.name}_{axis}" if axis else BATCH for t, axis in places}
    graph, trials = densify(graph), [{}, _sizes(names, _STRIDE)] if places else [{}]
    return [ShapeWalk(graph, sizes=sizes).walk() for sizes in trials]


def open_dimensions(graph: Graph, operator_of: OperatorOf, *, inputs: bool = True) -> Graph:
    """Return the graph with the names of all open sizes, and constants where none is involved.

    Sizes of inputs can be those of the file.

    Raises:
        FixedSizeError: an operator makes no output for other sizes than the file's.
    """
    graph = _enlarge_inputs(graph, operator_of) if inputs else graph
    places = [(t, axis) for t in graph.inputs for axis in sorted(t.dynamic_axes) if inputs]
    unforeseen = _data_dependent_sizes(graph, operator_of)
    if not places and not unforeseen:
        return graph
    graph = densify(graph)
    computed: frozenset[Tensor] = frozenset()
    while True:
        trials = _Trials(graph, operator_of, places, unforeseen, computed)
        more = trials.find_computed()
        if more <= computed:
            return trials.result()
        computed |= more
        unforeseen = _data_dependent_sizes(graph, operator_of, computed)


def _enlarge_inputs(graph: Graph, operator_of: OperatorOf) -> Graph:
    """Return the graph with larger inputs where it runs with those only.

    An open size is declared as 1: no window of a spectrogram fits into a single sample.
    """
    places = [(t, axis) for t in graph.inputs for axis in t.dynamic_axes if t.shape[axis] == 1]
    room = {(t, axis): _ROOM for t, axis in places if axis}
    for sizes in ({}, room) if room else ():
        walk = ShapeWalk(graph, operator_of, sizes, strict=True)
        try:
            walk.walk()
        except OperatorError:
            continue
        return graph.replace_tensors(walk.shapes) if sizes else graph
    return graph


def _data_dependent_sizes(
    graph: Graph, operator_of: OperatorOf, computed: frozenset[Tensor] = frozenset()
) -> dict[Place, str]:
    """Return the sizes that nobody foresees with their names.

    What follows from constants, or from shapes, is foreseen. What follows from such a size in a
    sub-graph may be another one: whether it is, is seen where that grows.
    """
    found: dict[Place, str] = {}
    outermost = {*graph.ops}
    if not any(_groups(op, operator_of) for op in graph.every_op()):
        return found
    while True:
        walk = ShapeWalk(graph, operator_of, _sizes(found, _STRIDE), computed)
        walk.walk()
        more = {
            place: f"{places[0][0].name}_{places[0][1]}"
            for op, here in walk.ran
            # The file is believed there, see `check_open`.
            if op in outermost or not is_dynamic(operator_of(here))
            for places in _groups(here, operator_of, op)
            for place in places
        }
        if more.keys() <= found.keys():
            return found
        found = more | found


def _groups(op: Op, operator_of: OperatorOf, origin: Op | None = None) -> Sequence[Sequence[Place]]:
    """Return the sizes that nobody foresees, each as the places of what is equal.

    These are of the operator's own tensors, or of those that it has in the graph.
    """
    try:
        with as_operator_error():
            groups = operator_of(op).data_dependent_dims()
            writes = operator_of(origin or op).plan_outputs
            found = [[(writes[place], axis) for place, axis in group] for group in groups]
    except OperatorError:  # said later, with all else that is wrong
        return ()
    return found if all(axis < t.rank for group in found for t, axis in group) else ()


def _resizes(operator: Operator) -> bool:
    try:
        with as_operator_error():
            return operator.resizes
    except OperatorError:  # likewise
        return False


def check_open(operators: Sequence[tuple[Op, Operator]]) -> None:
    """Raise an error if an operator cannot do with an open size that it reads or writes.

    Raises:
        FixedSizeError: it needs to know the size.
        UnsupportedOperators: it needs one that not even the file knows.
    """
    for op, operator in operators:
        if is_dynamic(operator) and any(t.dynamic_axes - t.symbols.keys() for t in op.outputs):
            raise UnsupportedOperators(
                [
                    OperatorError("how large its output is, is known at run time only").with_place(
                        op.place
                    )
                ]
            )
        operands = [(i, t) for i, t in enumerate(op.inputs) if t is not None]
        operands += [(~i, t) for i, t in enumerate(op.outputs)]
        for operand, tensor, axis in ((i, t, axis) for i, t in operands for axis in t.symbols):
            with as_operator_error():
                if not operator.supports_dynamic_axis(operand, axis):
                    raise FixedSizeError(
                        f"it needs to know the size of axis {axis} of {tensor.name}"
                    ).with_place(op.place)


def _aligned_sizes(op: Op, called: Mapping[int, str]) -> Iterator[tuple[str, str]]:
    """Yield two names of sizes where inputs are aligned at their last axes."""
    shapes = [t.shape[::-1] for t in op.inputs if t is not None]
    for sizes in zip_longest(*shapes, fillvalue=1):
        yield from pairwise(dict.fromkeys(called[size] for size in sizes if size in called))


def _unify_names(pairs: Sequence[tuple[str, str]]) -> dict[str, str]:
    """Return for all names but one of those that are equal this one."""
    first: dict[str, str] = {}
    for pair in pairs:
        one, other = (first.get(name, name) for name in pair)
        if one != other:
            first = {name: one if found == other else found for name, found in first.items()}
            first[other] = one
    return first


def _with_sizes(op: Op, same: Mapping[int, int]) -> Op:
    """Return an operator some of whose inputs' sizes are others."""
    inputs = tuple(
        t and replace(t, shape=tuple(same.get(size, size) for size in t.shape)) for t in op.inputs
    )
    return replace(op, inputs=inputs)


class _Trials:
    """The graph as it is at the sizes of the file, and at others."""

    def __init__(
        self,
        graph: Graph,
        operator_of: OperatorOf,
        places: Sequence[Place],
        unforeseen: Mapping[Place, str],
        computed: frozenset[Tensor],
    ) -> None:
        self._graph, self._operator_of, self._unforeseen = graph, operator_of, unforeseen
        self._computed = computed
        self._file = self._known_tensors({})
        names, grown = self._grown(places)
        close = self._try_sizes(_sizes(names, 1))
        self._others = [grown] if close is None else [grown, close]
        self._names: dict[tuple[int, ...], str] = {}
        for (tensor, axis), name in names.items():
            self._names.setdefault(self._sizes_of(tensor, axis), name)

    def _grown(self, places: Sequence[Place]) -> tuple[dict[Place, str], Known]:
        """Return names for the open sizes of the inputs: each its own, or one for all batches."""
        own = {place: f"{place[0].name}_{place[1]}" for place in places}
        apart = {**own, **self._unforeseen}
        batches = [place for place in places if place[1] == 0]
        together = apart | dict.fromkeys(batches, BATCH)
        if len(batches) > 1:
            known = self._try_sizes(_sizes(apart, _STRIDE))
            if known is not None:
                return apart, known
        return self._unify_sizes(together)

    def _unify_sizes(self, names: dict[Place, str]) -> tuple[dict[Place, str], Known]:
        """Return names by which all sizes that have to be equal are, and the trial."""
        while True:
            sizes = _sizes(names, _STRIDE)
            try:
                return names, self._known_tensors(sizes)
            except ClashError as clash:
                called = {size: names[place] for place, size in sizes.items()}
                same = self._find_unification(clash.op, called)
                if not same:
                    raise
                names = {place: same.get(name, name) for place, name in names.items()}

    def _find_unification(self, op: Op, called: Mapping[int, str]) -> dict[str, str]:
        """Return which names are another's if that is what an operator wants, none if it is not."""
        pairs = list(dict.fromkeys(_aligned_sizes(op, called)))
        sizes = {name: size for size, name in called.items()}
        for chosen in [*([pair] for pair in pairs), pairs]:
            same = _unify_names(chosen)
            equal = {sizes[other]: sizes[one] for other, one in same.items()}
            try:
                infer_op_outputs(_with_sizes(op, equal), self._operator_of)
            except FixedSizeError:
                continue
            return same
        return {}

    def _try_sizes(self, sizes: Mapping[Place, int]) -> Known | None:
        try:
            return self._known_tensors(sizes)
        except FixedSizeError:
            return None

    def _known_tensors(self, sizes: Mapping[Place, int]) -> Known:
        """Return each tensor as it is when inputs have these sizes: shapes, and constants."""
        strict = bool(sizes)
        return ShapeWalk(
            self._graph, self._operator_of, sizes, self._computed, strict=strict
        ).walk()

    def _sizes_of(self, tensor: Tensor, axis: int) -> tuple[int, ...]:
        """Return the sizes of an axis in the file and in the trials."""
        return tuple(known[tensor].shape[axis] for known in (self._file, *self._others))

    def find_computed(self) -> frozenset[Tensor]:
        """Return what is the same in all trials, but follows from sizes that nobody foresees."""
        later = self._try_sizes(_sizes(self._unforeseen, _STRIDE)) if self._unforeseen else None
        found: set[Tensor] = set()
        if later is None:
            return frozenset()
        for op in self._graph.every_op():
            operator, inputs = self._operator_of(op), [t for t in op.inputs if t is not None]
            moved = operator.moves_only or operator.shape_only
            varies = not moved and any(self._varies(t, later) for t in inputs)
            if varies or (not operator.shape_only and not found.isdisjoint(inputs)):
                found.update(t for t in op.outputs if self._same_in_all(t))
        return frozenset(found)

    def _varies(self, tensor: Tensor, later: Known) -> bool:
        """Return whether a tensor holds other elements where sizes that nobody foresees differ."""
        data, other = (known.get(tensor, tensor).data for known in (self._file, later))
        return data is not None and other is not None and not np.array_equal(data, other)

    def result(self) -> Graph:
        """Return the graph with names of sizes."""
        known: dict[Tensor, Tensor] = {}
        graph = self._graph_with(self._graph, known)
        return replace(graph, tensors=tuple(known.get(t, t) for t in graph.tensors))

    def _graph_with(self, graph: Graph, known: dict[Tensor, Tensor]) -> Graph:
        """Return a graph with names of sizes, and note its tensors."""
        known |= {t: self._name_sizes(t) for t in graph.inputs}
        ops, outermost = [], graph is self._graph
        for op in graph.ops:
            same = [self._same_in_all(t) for t in op.outputs]
            if op.outputs and all(same):
                known |= {t: self._file[t] for t in op.outputs}
            else:
                named = {t: self._name_sizes(t) for t in op.outputs}
                # What the file says of it in a sub-graph is needed still, see `check_open`.
                known |= {t: _declare_sizes(y) for t, y in named.items()} if outermost else named
                graphs = tuple(self._graph_with(inner, known) for inner in op.graphs)
                outputs = tuple(known[t] for t in op.outputs)
                ops.append(replace(op.with_inputs(known), outputs=outputs, graphs=graphs))
        return replace(
            graph,
            ops=tuple(ops),
            inputs=tuple(known[t] for t in graph.inputs),
            outputs=tuple(known.get(t, t) for t in graph.outputs),
        )

    def _same_in_all(self, tensor: Tensor) -> bool:
        """Return whether a tensor holds the same elements in all trials."""
        data = self._file[tensor].data
        others = [known[tensor].data for known in self._others]
        return data is not None and all(o is not None and np.array_equal(data, o) for o in others)

    def _name_sizes(self, tensor: Tensor) -> Tensor:
        symbols = {}
        for axis in range(tensor.rank):
            sizes = self._sizes_of(tensor, axis)
            if len(set(sizes)) > 1:
                symbols[axis] = self._names.setdefault(sizes, f"{tensor.name}_{axis}")
        return replace(tensor, symbols=symbols) if symbols else tensor


def _declare_sizes(tensor: Tensor) -> Tensor:
    """Return a tensor all whose sizes are known but for those that have names."""
    if tensor.dynamic_axes <= tensor.symbols.keys():
        return tensor
    sizes = (-1 if axis in tensor.symbols else size for axis, size in enumerate(tensor.shape))
    return replace(tensor, shape_signature=tuple(sizes))


def _sizes(names: Mapping[Place, str], by: int) -> dict[Place, int]:
    """Return sizes for a trial; those of one name grow alike, those of others do not."""
    order = list(dict.fromkeys(names.values()))
    primes = [prime + 100 * (i // len(_PRIMES)) for i, prime in enumerate(_primes(len(order)))]
    growth = dict(zip(order, primes, strict=True))
    # A batch can well be small: what is computed of it takes room.
    return {
        (t, axis): t.shape[axis] + growth[name] * (by if axis else 1) + (by == 1)
        for (t, axis), name in names.items()
    }


def _primes(count: int) -> Iterator[int]:
    return (_PRIMES[i % len(_PRIMES)] for i in range(count))

"""Find the sizes that stay dynamic in the ONNX model, and give them names.

Two kinds of sizes are dynamic: dynamic axes of inputs, and sizes that depend on data (the outputs
of WHERE and UNIQUE).

1. Sizes that follow from dynamic sizes are found by trial: the dynamic sizes get other, distinct
   values and each operator infers its output shapes. A size that changes is dynamic too. Sizes that
   are equal in all trials get one name. The declared shapes of inner tensors are not used, because
   they are often missing or stale.
2. If an operator requires two sizes to be equal, these sizes get one name: the model could not run
   otherwise.
3. Shapes that are computed in the graph (SHAPE, STRIDED_SLICE, PACK, RESHAPE) are computed in the
   trials too. A tensor that is the same in all trials is a constant.
4. A data-dependent size can have any value, such as the length of a list that grows in a loop. A
   result that is the same in two trials, such as whether the size is less than a number, may differ
   in a third. Such a tensor is a constant only if all operators after the size move elements.

Operators state the axes for which they can be converted: `DynamicShape.supports_dynamic_axis`.
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
from tflite2onnx.op.traits import DynamicShape
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

# The sizes grow by multiples of _STRIDE in one trial, so that sizes after many divisions grow too
# and even sizes stay even. They grow by small numbers in the other trial, which shows roundings.
_STRIDE = 128
_PRIMES = (2, 5, 11, 17, 23, 31, 41, 47, 59, 67, 73, 83)
# Large enough for any window, and divisible by powers of 2.
_ROOM = 4096
BATCH = "batch"


def infer_shapes(graph: Graph) -> Graph:
    """Return the graph with the shapes that the operators infer from the declared input shapes.

    A file declares a dynamic size as 1, also in inner tensors: a tensor that is flattened with a
    dynamic batch is declared with one row. A tensor of unknown rank is declared as a scalar. LiteRT
    asks the kernels for the shapes. Errors of operators at these sizes are ignored here; the
    conversion of the operator raises them again.
    """
    guessed = any(t.dynamic_axes or not t.rank for op in graph.every_op() for t in op.outputs)
    if not guessed and not any(_resizes(operator_for(op)) for op in graph.every_op()):
        return graph
    walk = ShapeWalk(graph)
    walk.walk_ops(graph.ops)
    return graph.replace_tensors(walk.shapes)


def run_trials(graph: Graph) -> list[Known]:
    """Return all tensors at the declared sizes, then at larger sizes of dynamic axes.

    Tensors whose shape cannot be inferred keep their declared shape.
    """
    places = [(t, axis) for t in graph.inputs for axis in sorted(t.dynamic_axes)]
    names = {(t, axis): f"{t.name}_{axis}" if axis else BATCH for t, axis in places}
    graph, trials = densify(graph), [{}, _sizes(names, _STRIDE)] if places else [{}]
    return [ShapeWalk(graph, sizes=sizes).walk() for sizes in trials]


def name_dynamic_axes(graph: Graph, operator_of: OperatorOf, *, inputs: bool = True) -> Graph:
    """Return the graph with names for all dynamic sizes, and with constants that no size changes.

    `inputs` is whether the dynamic axes of the inputs stay dynamic.

    Raises:
        FixedSizeError: an operator has a valid output shape at the declared sizes only.
    """
    graph = _enlarge_inputs(graph, operator_of) if inputs else graph
    places = [(t, axis) for t in graph.inputs for axis in sorted(t.dynamic_axes) if inputs]
    data_dependent = _data_dependent_sizes(graph, operator_of)
    if not places and not data_dependent:
        return graph
    graph = densify(graph)
    computed: frozenset[Tensor] = frozenset()
    while True:
        trials = _Trials(graph, operator_of, places, data_dependent, computed)
        more = trials.find_computed()
        if more <= computed:
            return trials.result()
        computed |= more
        data_dependent = _data_dependent_sizes(graph, operator_of, computed)


def _enlarge_inputs(graph: Graph, operator_of: OperatorOf) -> Graph:
    """Return the graph with larger inputs if it does not run at the declared sizes.

    A dynamic size is declared as 1, but no window of a spectrogram fits into a single sample.
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
    """Return the data-dependent sizes with their names.

    Sizes that follow from constants or shapes do not depend on data. In a sub-graph, a size that
    follows from a data-dependent size may be data-dependent itself: the walk is repeated with
    larger sizes until no further size is found.
    """
    names: dict[Place, str] = {}
    outermost = {*graph.ops}
    if not any(_groups(op, operator_of) for op in graph.every_op()):
        return names
    while True:
        walk = ShapeWalk(graph, operator_of, _sizes(names, _STRIDE), computed)
        walk.walk()
        more = {
            place: f"{places[0][0].name}_{places[0][1]}"
            for op, here in walk.ran
            # In sub-graphs the declared shapes are used, see `check_dynamic_axes`.
            if op in outermost or not is_dynamic(operator_of(here))
            for places in _groups(here, operator_of, op)
            for place in places
        }
        if more.keys() <= names.keys():
            return names
        names = more | names


def _groups(op: Op, operator_of: OperatorOf, origin: Op | None = None) -> Sequence[Sequence[Place]]:
    """Return the data-dependent sizes of an operator, each as the places that are always equal.

    The places are in the tensors of `origin`, the operator as it is in the graph; by default in the
    tensors of the operator itself.
    """
    try:
        with as_operator_error():
            operator, writes = operator_of(op), (origin or op).plan_outputs
            groups = operator.data_dependent_dims() if isinstance(operator, DynamicShape) else ()
            places = [[(writes[place], axis) for place, axis in group] for group in groups]
    except OperatorError:  # the conversion of the operator raises it again
        return ()
    return places if all(-t.rank <= axis < t.rank for g in places for t, axis in g) else ()


def _resizes(operator: Operator) -> bool:
    try:
        with as_operator_error():
            return isinstance(operator, DynamicShape) and operator.resizes
    except OperatorError:  # the conversion of the operator raises it again
        return False


def check_dynamic_axes(operators: Sequence[tuple[Op, Operator]]) -> None:
    """Check that operators can be converted for the dynamic sizes that they read or write.

    Raises:
        FixedSizeError: an operator needs to know the size.
        UnsupportedOperators: an operator needs to know a data-dependent size.
    """
    for op, operator in operators:
        if is_dynamic(operator) and any(t.dynamic_axes - t.symbols.keys() for t in op.outputs):
            raise UnsupportedOperators(
                [OperatorError("its output shape is only known at run time").with_place(op.place)]
            )
        operands = [(i, t) for i, t in enumerate(op.inputs) if t is not None]
        operands += [(~i, t) for i, t in enumerate(op.outputs)]
        for operand, tensor, axis in ((i, t, axis) for i, t in operands for axis in t.symbols):
            with as_operator_error():
                if not (
                    isinstance(operator, DynamicShape)
                    and operator.supports_dynamic_axis(operand, axis)
                ):
                    raise FixedSizeError(
                        f"it needs the size of axis {axis} of {tensor.name} as a constant"
                    ).with_place(op.place)


def _aligned_sizes(op: Op, called: Mapping[int, str]) -> Iterator[tuple[str, str]]:
    """Yield pairs of names of sizes that broadcasting would align."""
    shapes = [t.shape[::-1] for t in op.inputs if t is not None]
    for sizes in zip_longest(*shapes, fillvalue=1):
        yield from pairwise(dict.fromkeys(called[size] for size in sizes if size in called))


def _unify_names(pairs: Sequence[tuple[str, str]]) -> dict[str, str]:
    """Return a replacement for each name that equals an earlier name, from pairs of equal names."""
    first: dict[str, str] = {}
    for pair in pairs:
        one, other = (first.get(name, name) for name in pair)
        if one != other:
            first = {name: one if found == other else found for name, found in first.items()}
            first[other] = one
    return first


def _with_sizes(op: Op, same: Mapping[int, int]) -> Op:
    """Return an operator with other sizes of its inputs, by the sizes that they replace."""
    inputs = tuple(
        t and replace(t, shape=tuple(same.get(size, size) for size in t.shape)) for t in op.inputs
    )
    return replace(op, inputs=inputs)


class _Trials:
    """The tensors of a graph at the declared sizes, and at other sizes."""

    def __init__(
        self,
        graph: Graph,
        operator_of: OperatorOf,
        places: Sequence[Place],
        data_dependent: Mapping[Place, str],
        computed: frozenset[Tensor],
    ) -> None:
        self._graph, self._operator_of, self._data_dependent = graph, operator_of, data_dependent
        self._computed = computed
        self._file = self._known_tensors({})
        names, larger = self._infer_at_larger_sizes(places)
        close = self._try_sizes(_sizes(names, 1))
        self._others = [larger] if close is None else [larger, close]
        self._names: dict[tuple[int, ...], str] = {}
        for (tensor, axis), name in names.items():
            self._names.setdefault(self._sizes_of(tensor, axis), name)

    def _infer_at_larger_sizes(self, places: Sequence[Place]) -> tuple[dict[Place, str], Known]:
        """Return names of the dynamic sizes, and the trial; batch sizes may share a name."""
        own = {place: f"{place[0].name}_{place[1]}" for place in places}
        apart = {**own, **self._data_dependent}
        batches = [place for place in places if place[1] == 0]
        together = apart | dict.fromkeys(batches, BATCH)
        if len(batches) > 1:
            known = self._try_sizes(_sizes(apart, _STRIDE))
            if known is not None:
                return apart, known
        return self._unify_sizes(together)

    def _unify_sizes(self, names: dict[Place, str]) -> tuple[dict[Place, str], Known]:
        """Return names such that sizes that must be equal share a name, and the trial."""
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
        """Return replacements of names that make an operator valid; empty if there are none."""
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
        """Return all tensors at these sizes: their shapes, and the elements of constants."""
        strict = bool(sizes)
        return ShapeWalk(
            self._graph, self._operator_of, sizes, self._computed, strict=strict
        ).walk()

    def _sizes_of(self, tensor: Tensor, axis: int) -> tuple[int, ...]:
        """Return the sizes of an axis: as declared, then in each trial."""
        return tuple(known[tensor].shape[axis] for known in (self._file, *self._others))

    def find_computed(self) -> frozenset[Tensor]:
        """Return the tensors that depend on data-dependent sizes, but are equal in all trials."""
        sizes = _sizes(self._data_dependent, _STRIDE)
        later = self._try_sizes(sizes) if sizes else None
        found: set[Tensor] = set()
        if later is None:
            return frozenset()
        for op in self._graph.every_op():
            operator, inputs = self._operator_of(op), [t for t in op.inputs if t is not None]
            moved = operator.moves_elements() or operator.shape_only
            varies = not moved and any(self._varies(t, later) for t in inputs)
            if varies or (not operator.shape_only and not found.isdisjoint(inputs)):
                found.update(t for t in op.outputs if self._same_in_all(t))
        return frozenset(found)

    def _varies(self, tensor: Tensor, later: Known) -> bool:
        """Return whether the elements of a tensor change with data-dependent sizes."""
        data, other = (known.get(tensor, tensor).data for known in (self._file, later))
        return data is not None and other is not None and not np.array_equal(data, other)

    def result(self) -> Graph:
        """Return the graph with names of dynamic sizes."""
        known: dict[Tensor, Tensor] = {}
        graph = self._graph_with(self._graph, known)
        return replace(graph, tensors=tuple(known.get(t, t) for t in graph.tensors))

    def _graph_with(self, graph: Graph, known: dict[Tensor, Tensor]) -> Graph:
        """Return a graph with names of dynamic sizes; `known` gets its tensors."""
        known |= {t: self._name_sizes(t) for t in graph.inputs}
        ops, outermost = [], graph is self._graph
        for op in graph.ops:
            same = [self._same_in_all(t) for t in op.outputs]
            if op.outputs and all(same):
                known |= {t: self._file[t] for t in op.outputs}
            else:
                named = {t: self._name_sizes(t) for t in op.outputs}
                # `check_dynamic_axes` needs the declared signatures of tensors in sub-graphs.
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
        """Return whether a tensor is constant with the same elements in all trials."""
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
    """Return a tensor whose signature fixes all sizes that have no name."""
    if tensor.dynamic_axes <= tensor.symbols.keys():
        return tensor
    sizes = (-1 if axis in tensor.symbols else size for axis, size in enumerate(tensor.shape))
    return replace(tensor, shape_signature=tuple(sizes))


def _sizes(names: Mapping[Place, str], by: int) -> dict[Place, int]:
    """Return sizes for a trial: sizes of one name grow alike, sizes of other names differently."""
    order = list(dict.fromkeys(names.values()))
    primes = [prime + 100 * (i // len(_PRIMES)) for i, prime in enumerate(_primes(len(order)))]
    growth = dict(zip(order, primes, strict=True))
    # The batch size grows little, because constants of each trial take memory.
    return {
        (t, axis): t.shape[axis] + growth[name] * (by if axis else 1) + (by == 1)
        for (t, axis), name in names.items()
    }


def _primes(count: int) -> Iterator[int]:
    return (_PRIMES[i % len(_PRIMES)] for i in range(count))

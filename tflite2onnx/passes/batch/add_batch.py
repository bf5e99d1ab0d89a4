"""Compute a batch of independent samples with a network that is given for one sample.

The network is walked once, in order of execution, with a symbol for the number of samples. Each
tensor that depends on an input has a place for the samples (see `places`), which follows from the
shapes that the operators infer, from the axes along which they compute
(`Operator.find_mixed_axes`), and from the axes that their operands have in common
(`Operator.find_common_axis`).

1. The samples of an input are its first axis if the first size is dynamic or 1. Any other input,
   and any other output, gets one more axis in front.
2. RESHAPE, SQUEEZE and EXPAND_DIMS keep the sequence of the elements, and so the place of the
   samples: it is between two axes, or inside an axis. A constant shape becomes a shape for the
   batch.
3. An operator that takes the only element of the batch axis (STRIDED_SLICE, UNPACK, GATHER) takes
   all elements. A reduction over this axis and others reduces the others only.
4. Constants that must be as long as the batch (in CONCATENATION, PACK, or as a state) are repeated.
   A state that depends on no sample is the same for all samples. Constants that list sizes (of
   BROADCAST_TO, TRANSPOSE_CONV) get the size of the batch.
5. If an operator computes along the axis that has the samples, the samples move to another axis of
   size 1, or to the next axis. If the axis has other elements beside the samples, or the operator
   computes along other axes together with it (`IndexesTogether`), the samples move to a new first
   axis (`Operator.add_leading_axis`). Otherwise the operator mixes samples, and the
   graph has no batch. If an operator mixes samples after a RESHAPE that leaves a choice between
   two axes, the second axis is tried.
6. A FULLY_CONNECTED whose weights depend on the sample becomes a BATCH_MATMUL.
7. Sub-graphs are walked like the graph. A loop variable is repeated if it depends on samples after
   an iteration. A condition must be the same for all samples.

The result is right for any number of samples: constant sizes of 1 are replaced by lists with the
first size of the first input.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import ClassVar

from tflite2onnx.errors import OperatorError
from tflite2onnx.graph import ABSENT, NO_OP, Graph, Op, Options, copy_op
from tflite2onnx.op.base import Operator
from tflite2onnx.op.facts import Fact
from tflite2onnx.op.traits import (
    Broadcasts,
    DynamicShape,
    FlattensRows,
    IndexesAxes,
    IndexesTogether,
    MovesSamples,
    ReshapesInputs,
    TakesRanges,
)
from tflite2onnx.passes.batch.batch_builder import (
    BatchBuilder,
    check_one_sample,
    list_shape_inputs,
    make_tensor,
    require_input,
)
from tflite2onnx.passes.batch.inputs import (
    add_first_axis,
    find_shared_states,
    has_batch_axis,
)
from tflite2onnx.passes.batch.mixed_samples import MixedSamplesError
from tflite2onnx.passes.batch.places import (
    SAMPLES,
    Place,
    count_before,
    divide,
    find_sample_axis,
    has_samples,
    join_samples,
    rank_places,
    take_sample,
)
from tflite2onnx.passes.dynamic_shapes import name_dimensions
from tflite2onnx.passes.shape_walk import OperatorOf
from tflite2onnx.tensor import Tensor
from tflite2onnx.utils.dimension import Dim, Dimension, evaluate, is_known

_MIXES = "it mixes samples"
_MATRIX = 2  # axes


class _UnalignedError(Exception):
    """The samples of an input cannot move to the axis that an operator requires."""


def add_batch(
    graph: Graph, operator_of: OperatorOf, words: Mapping[str, str], same: Mapping[Dimension, Dim]
) -> Graph:
    """Return the graph for a batch, whose size is the first size of all inputs and outputs.

    The inputs are declared with the shapes of one sample, and a first size of 1. `words` are names
    of other dynamic sizes of the inputs, by the name of the axis; `same` has the dimensions that
    replace equal dimensions.

    Raises:
        MixedSamplesError: the samples are not independent, or it is not known whether they are.
    """
    tensors, shared = set[Tensor](), find_shared_states(graph)
    unequal: MixedSamplesError | None = None
    while True:
        batching = Batching(graph, operator_of, words, same, shared, tensors)
        try:
            return batching.make_graph()
        except MixedSamplesError as error:
            unequal = unequal or (error if error.dims else None)
            reshaped = batching.find_ambiguous_reshape()
            if reshaped is ABSENT or reshaped in tensors:
                raise unequal or error from None
            tensors.add(reshaped)


class Batching:
    """A walk over a graph for one sample; `shared` inputs and states are equal for all samples."""

    # Whether an operator that computes along an axis that has nothing but the samples mixes them.
    _may_mix: ClassVar[bool] = True

    def __init__(
        self,
        graph: Graph,
        operator_of: OperatorOf,
        words: Mapping[str, str],
        same: Mapping[Dimension, Dim],
        shared: Mapping[Tensor, Tensor],
        moved: Collection[Tensor] = (),
    ) -> None:
        self._graph, self._operator_of = graph, operator_of
        self._following: Collection[Tensor] = shared.values()
        self._given = [
            t if t in shared or has_batch_axis(t) else add_first_axis(t) for t in graph.inputs
        ]
        opened = name_dimensions(self._given, words)
        self._builder = BatchBuilder(graph, self._given, operator_of, opened, same, shared)
        self._places = self._builder.places
        self._replaced: dict[Tensor, Tensor] = {}
        # Tensors whose elements depend on the number of samples, but are not dimensions.
        self._counted: set[Tensor] = set()
        # All the places for outputs of RESHAPE whose samples may be in one of several places. For
        # the outputs in `_moved` the second place is tried.
        self._choices: dict[Tensor, Sequence[Place]] = {}
        self._moved = moved
        self._last = NO_OP
        read = {t for op in graph.walk_ops() for t in op.present}
        self._unread = {t for t in graph.outputs if t not in read}

    def make_graph(self) -> Graph:
        for old, new in zip(self._graph.inputs, self._given, strict=True):
            if new is not old:
                self._reshape(new, self._builder.find_sample_shape(new)[1:], 1, old)
        self._add_ops(self._graph.ops)
        outputs = tuple(map(self._put_samples_first, self._graph.outputs))
        ops = tuple(self._builder.ops)
        graph = replace(self._graph, inputs=tuple(self._given), outputs=outputs, ops=ops)
        # Inputs and outputs keep their names.
        names = {t.name for t in (*self._given, *outputs)}
        inner = {t for op in ops for t in op.outputs if t.name in names}.difference(outputs)
        renamed = {t: replace(t, name=f"{t.name}/samples") for t in inner}
        return graph.replace_tensors(renamed) if renamed else graph

    def _depends_on_count(self, tensor: Tensor | None) -> bool:
        values = self._builder.walk.known.get(tensor or ABSENT, ABSENT).values
        is_counted = values.dtype == object and any(map(has_samples, values.flat))
        return is_counted or tensor in self._counted

    def _reshape(
        self, x: Tensor, sample: Sequence[Dim], before: Dim, y: Tensor, place: Place | None = None
    ) -> None:
        self._builder.reshape(x, sample or (1,), before, self._make_vector(y), place)

    def _make_vector(self, y: Tensor) -> Tensor:
        """Return a tensor of the network; a scalar gets an axis for the samples."""
        return y if y.rank else self._replaced.setdefault(y, replace(y, shape=(1,)))

    def find_ambiguous_reshape(self) -> Tensor:
        """Return the nearest output of a RESHAPE whose samples may be in several places.

        The output is computed before the last operator, which mixes samples. Returns `ABSENT` if
        no RESHAPE before it has several places.
        """
        op = self._last
        while op.inputs and op.operand(0) not in self._choices:
            op = self._graph.producers.find(op.operand(0))
        return op.operand(0)

    # Operators

    def _add_ops(self, ops: Sequence[Op]) -> None:
        for op in ops:
            self._last = op
            try:
                self._add_op(op.with_inputs(self._replaced))
            except MixedSamplesError:
                raise
            except Exception as error:
                check_one_sample(op, self._operator_of(op))
                if not isinstance(error, OperatorError):
                    raise  # a bug: the operator is valid
                raise MixedSamplesError(error.reason, op.place, error) from error

    def _add_op(self, op: Op) -> None:
        operator = self._operator_of(op)
        if op.graphs:
            self._add_control(op)
        elif Fact.SHAPE_ONLY in operator.facts or not any(t in self._places for t in op.inputs):
            self._add_shared(op, operator)
        elif Fact.KEEPS_SEQUENCE in operator.facts:
            self._add_reshape(op)
        elif op.is_builtin("FULLY_CONNECTED") and op.operand(1) in self._places:
            for each in _multiply_matrices(op):
                self._add_op(each)
        else:
            self._add_computation(op)

    def _add_shared(self, op: Op, operator: Operator) -> None:
        """Add an operator that reads no sample; its outputs may have sizes of the batch."""
        self._builder.emit(op)
        for y in op.outputs:
            tensor = self._builder.walk.known[y]
            if any(map(has_samples, tensor.shape)):
                axis = find_sample_axis(tensor.shape)
                if axis is None or Fact.REPEATS not in operator.facts:
                    raise OperatorError("its elements depend on the number of samples")
                self._places[y] = Place(axis)
            elif not tensor.has_data and any(map(self._depends_on_count, op.inputs)):
                self._counted.add(y)

    def _add_reshape(self, op: Op) -> None:
        """Add RESHAPE, SQUEEZE or EXPAND_DIMS."""
        x, y = require_input(op), op.outputs[0]
        before = self._builder.count_before(x)
        if any(map(self._depends_on_count, op.inputs)):
            self._builder.emit(op)
            self._places[y] = self._builder.find_computed_place(y, before)
            return
        sample = self._builder.infer_shape(op, {x: self._builder.find_sample_shape(x)})
        places = rank_places(sample, before)
        if len(places) > 1:
            self._choices[y] = places
        place = next(iter(places[y in self._moved :]), None)
        if place and self._builder.infer_shape(op, {}) == join_samples(sample, place):
            self._places[y] = place
            self._builder.emit(op)
        else:
            self._reshape(x, sample, before, y, place)

    # Operators that compute

    def _add_computation(self, op: Op) -> None:
        operator = self._operator_of(op)
        shapes = list_shape_inputs(operator)
        if any(self._depends_on_count(t) and i not in shapes for i, t in enumerate(op.inputs)):
            raise OperatorError("it computes with the number of samples")
        if self._takes_counted_range(op, operator):
            self._add_whole_range(op)
            return
        op = self._flatten_first(self._align_ranks(op, operator), operator)
        if self._list_vectors(op) and op.outputs[0].rank and not isinstance(operator, Broadcasts):
            self._add_with_leading_axis(op)
            return
        for first, place in self._builder.list_places(op):
            try:
                aligned = self._align_inputs(op, first, place)
            except _UnalignedError:
                continue
            self._add_aligned(aligned, first, place)
            return
        self._add_with_leading_axis(op)

    def _takes_counted_range(self, op: Op, operator: Operator) -> bool:
        """Return whether an operator takes a range that is computed from the number of samples."""
        return (
            isinstance(operator, TakesRanges)
            and op.operand(0) in self._places
            and operator.find_mixed_axes(0) is None
            and any(map(self._depends_on_count, op.inputs))
        )

    def _add_whole_range(self, op: Op) -> None:
        """Add an operator whose range has all samples, since the size of their axis stays."""
        x, y = require_input(op), op.outputs[0]
        axis = self._places[x].axis
        self._builder.emit(op)
        sizes = [self._builder.find_shape(t) for t in (x, y)]
        if len(sizes[0]) != len(sizes[1]) or sizes[0][axis] != sizes[1][axis]:
            raise OperatorError(_MIXES)
        self._places[y] = self._places[x]

    def _list_vectors(self, op: Op) -> Collection[Tensor]:
        """Return the inputs that are scalars for one sample, and vectors for the batch."""
        return set(self._replaced.values()).intersection(op.present)

    def _align_ranks(self, op: Op, operator: Operator) -> Op:
        """Give samples of fewer axes, which broadcast, leading axes of size 1.

        The samples stay in their axis if the samples of another input are in the same axis.
        """
        rank = max(t.rank for t in op.tensors)
        places = [self._places.get(t) for t in op.present if t.rank == rank]
        inputs = {}
        for x in op.present:
            if isinstance(operator, ReshapesInputs) and x in self._places and x.rank < rank:
                place_of_x = self._places[x]
                kept = Place(place_of_x.axis + rank - x.rank, place_of_x.outer)
                sample = (1,) * (rank - x.rank) + self._builder.find_sample_shape(x)
                before, place = self._builder.count_before(x), kept if kept in places else None
                inputs[x] = self._builder.reshape(x, sample, before, place=place)
        return op.with_inputs(inputs)

    def _flatten_first(self, op: Op, operator: Operator) -> Op:
        """Reshape the first input as the kernel does."""
        x = op.operand(0)
        width = operator.row_size if isinstance(operator, FlattensRows) else None
        if x not in self._places or width is None:
            return op
        sample, before = self._builder.find_sample_shape(x), self._builder.count_before(x)
        rows = divide(prod(sample), width)
        if rows is None:
            wrong = f"the shape {list(sample)} must be rows of {width} elements"
            raise OperatorError(_MIXES if is_known(prod(sample)) else wrong)
        return op.with_inputs({x: self._builder.reshape(x, (rows, width), before)})

    def _align_inputs(self, op: Op, first: int, place: Place) -> Op:
        """Return the operator with samples of all inputs in the axis of one input's samples.

        Raises:
            _UnalignedError: the operator computes along this axis, and would mix samples.
        """
        operator = self._operator_of(op)
        targets = [self._find_place(op, operator, (first, place), i) for i in range(len(op.inputs))]
        inputs = list(op.inputs)
        for i, (t, target) in enumerate(zip(op.inputs, targets, strict=True)):
            if t and target and self._places.get(t) != target:
                put = self._builder.move_samples if t in self._places else self._builder.repeat
                inputs[i] = put(t, target)
        return replace(op, inputs=tuple(inputs))

    def _find_place(
        self, op: Op, operator: Operator, known: tuple[int, Place], index: int
    ) -> Place | None:
        """Return the place of the samples in an input, None if all samples have the same input."""
        (first, place), x, t = known, require_input(op, known[0]), op.inputs[index]
        if not t:
            return None
        same = place.axis if index == first else operator.find_common_axis(first, place.axis, index)
        size = self._builder.find_sample_shape(x)[place.axis]
        if t not in self._places:
            return self._find_place_of_shared(operator, t, index, same, place, size)
        mixed = operator.find_mixed_axes(index)
        if same is None or mixed is None or same in {axis % t.rank for axis in mixed}:
            raise _UnalignedError
        # A dynamic size of a sample that the file declares as 1 is not 1.
        is_longer = t.shape[same] == 1 != self._builder.find_sample_shape(t)[same]
        if is_longer and isinstance(operator, IndexesAxes) and operator.keep_axis(same):
            raise _UnalignedError
        target, shape = Place(same, place.outer), self._builder.find_sample_shape(t)[same]
        # The samples move to an axis of size 1, or the sequence of elements stays the same.
        moves = count_before(
            self._builder.find_sample_shape(t), target
        ) != self._builder.count_before(t)
        if shape != size or (moves and (size, place.outer) != (1, 1)):
            raise _UnalignedError
        return target

    def _find_place_of_shared(
        self, operator: Operator, t: Tensor, index: int, axis: int | None, place: Place, size: Dim
    ) -> Place | None:
        """Return the place at which a shared input is repeated, None if it is not repeated."""
        if axis is None or index in list_shape_inputs(operator):
            return None
        length = self._builder.find_shape(t)[axis]
        if isinstance(operator, Broadcasts) and length == 1:
            return None
        if length != size:
            raise _UnalignedError
        return Place(axis, place.outer)

    def _add_aligned(self, op: Op, first: int, place: Place) -> None:
        """Add an operator, all of whose inputs have their samples at matching places."""
        operator = self._operator_of(op)
        if isinstance(operator, IndexesAxes):
            kept_op = operator.keep_axis(place.axis)
            if kept_op and kept_op.outputs[0].rank != op.outputs[0].rank:
                self._add_indexing(op, kept_op, place)
                return
            op = replace(kept_op, outputs=op.outputs) if kept_op else op
        op = replace(op, outputs=tuple(map(self._make_vector, op.outputs)))
        self._builder.emit(self._put_batch_into_sizes(op, operator, first, place))
        outer: Dim | None = place.outer
        if isinstance(operator, MovesSamples):
            outer = operator.count_before_samples(place.outer)
        for y in op.outputs:
            shape = self._builder.find_shape(y)
            axis = find_sample_axis(shape)
            moves = isinstance(operator, ReshapesInputs) and axis != place.axis
            if axis is None or outer is None or moves:
                raise OperatorError(_MIXES)
            if tuple(map(evaluate, take_sample(shape, Place(axis)))) != y.shape:
                raise OperatorError("the shape of its output does not follow from one sample")
            self._places[y] = Place(axis, outer)

    def _add_indexing(self, op: Op, kept: Op, place: Place) -> None:
        """Add an operator that takes the only element of the batch axis, and drops the axis."""
        y = kept.outputs[0]
        self._builder.emit(kept)
        axis = find_sample_axis(self._builder.find_shape(y))
        if axis is None:
            raise OperatorError(_MIXES)
        self._places[y] = Place(axis, place.outer)
        sample, before = self._builder.find_sample_shape(y), self._builder.count_before(y)
        dropped, old = (*sample[:axis], *sample[axis + 1 :]), op.outputs[0]
        if (axis, sample[:1]) == (0, (1,)) != (0, dropped[:1]) and old in self._unread:
            self._replaced[old] = y  # an output has the samples in front in any case
        else:
            self._reshape(y, dropped, before, old)

    def _put_batch_into_sizes(self, op: Op, operator: Operator, first: int, place: Place) -> Op:
        """Return an operator whose constant list of sizes includes the batch."""
        index = operator.sizes_input if isinstance(operator, DynamicShape) else None
        if index is None or not op.operand(index).has_data:
            return op
        axis = operator.find_common_axis(first, place.axis, ~0)
        if axis is None:
            raise OperatorError("its sizes must have the samples in one axis")
        numbers: list[Dim] = [*map(int, op.operand(index).values.flat)]
        numbers[axis] = numbers[axis] * SAMPLES
        inputs = list(op.inputs)
        inputs[index] = self._builder.list_sizes(numbers, rest=False)
        return replace(op, inputs=tuple(inputs))

    def _add_with_leading_axis(self, op: Op) -> None:
        """Add an operator whose operands get a first axis, which has the samples."""
        data = [t for t in op.present if t in self._places]
        vectors = self._list_vectors(op)
        has_axis = all(
            t not in vectors and self._builder.find_sample_shape(t)[self._places[t].axis] == 1
            for t in data
        )
        operator = self._operator_of(op)
        mixes = self._may_mix and has_axis and not self._mixes_others(op)
        wider = None if mixes else operator.add_leading_axis()
        if not wider:
            raise OperatorError(_MIXES)
        wider_op, indices = wider
        inputs = list(wider_op.inputs)
        for i in indices:
            x = require_input(op, i)
            is_wide = x in vectors and not isinstance(operator, Broadcasts)
            shape = (1, *(() if is_wide else self._builder.find_sample_shape(x)))
            if x in self._places:
                inputs[i] = self._builder.move_to(x, 1, shape, Place(0))
            else:
                inputs[i] = self._builder.reshape_batch(x, shape, make_tensor(x, shape))
        outputs = tuple(make_tensor(y, (1, *y.shape)) for y in op.outputs)
        wider_op = replace(wider_op, inputs=tuple(inputs), outputs=outputs)
        if {self._places[t].axis for t in inputs if t in self._places} != {0}:
            raise OperatorError(_MIXES)
        first = next(i for i in indices if inputs[i] in self._places)
        try:
            self._add_aligned(self._align_inputs(wider_op, first, Place(0)), first, Place(0))
        except _UnalignedError:
            raise OperatorError(_MIXES) from None
        for y, operand in zip(op.outputs, outputs, strict=True):
            self._reshape(operand, self._builder.find_sample_shape(operand)[1:], 1, y)

    def _mixes_others(self, op: Op) -> bool:
        """Return whether an operator may compute along the samples and other axes together."""
        indexes = isinstance(self._operator_of(op), IndexesTogether)
        return indexes and require_input(op) in self._places

    # Sub-graphs

    def _add_control(self, op: Op) -> None:
        condition = require_input(op)
        if condition in self._places or self._depends_on_count(condition):
            raise OperatorError("its condition must be the same for all samples")
        if op.is_builtin("WHILE"):
            self._add_loop(op)
        else:
            self._add_branches(op)

    def _add_branches(self, op: Op) -> None:
        parts = []
        for graph in op.graphs:
            with self._builder.open_subgraph() as ops:
                self._add_ops(graph.ops)
            parts.append(ops)
        graphs = []
        places = [self._places.get(t) for graph in op.graphs for t in graph.outputs]
        count = len(op.outputs)
        merged = [next(filter(None, places[i::count]), None) for i in range(count)]
        for graph, ops in zip(op.graphs, parts, strict=True):
            with self._builder.open_subgraph() as more:
                outputs = [self._put_at(t, p) for t, p in zip(graph.outputs, merged, strict=True)]
            graphs.append(replace(graph, ops=(*ops, *more), outputs=tuple(outputs)))
        self._builder.emit(replace(op, graphs=tuple(graphs)))
        self._places |= {y: p for y, p in zip(op.outputs, merged, strict=True) if p}

    def _put_at(self, old: Tensor, place: Place | None) -> Tensor:
        """Return a tensor with its samples at a place; a tensor without samples is repeated."""
        x = self._replaced.get(old, old)
        place_of_x = self._places.get(x)
        if place_of_x == place or not place:
            return x
        if not place_of_x:
            return self._builder.repeat(x, place)
        if self._builder.find_sample_shape(x)[place.axis] != 1:
            raise OperatorError("the samples of its sub-graphs must be in one axis")
        return self._builder.move_samples(x, Place(place.axis))

    def _add_loop(self, op: Op) -> None:
        (body,) = op.graphs
        _, *first = op.present
        places = [self._places.get(t) for t in first]
        while True:
            inputs = [self._put_at(t, p) for t, p in zip(first, places, strict=True)]
            self._builder.walk.set_inputs(body.inputs, [*map(self._builder.find_shape, inputs)])
            self._places |= {t: p for t, p in zip(body.inputs, places, strict=True) if p}
            with self._builder.open_subgraph() as ops:
                self._add_ops(body.ops)
                condition, *following = (self._replaced.get(t, t) for t in body.outputs)
                outer = [self._places.get(t) for t in following]
                if all(q or not p for p, q in zip(outer, places, strict=True)):
                    outputs = [self._put_at(*pair) for pair in zip(following, places, strict=True)]
                    break
            places = [p or q for p, q in zip(places, outer, strict=True)]
        if condition in self._places:
            raise OperatorError("its condition must be the same for all samples")
        body = replace(body, ops=tuple(ops), outputs=(condition, *outputs))
        self._builder.emit(replace(op, inputs=(op.inputs[0], *inputs), graphs=(body,)))
        self._places |= {y: p for y, p in zip(op.outputs, places, strict=True) if p}

    # Outputs

    def _put_samples_first(self, old: Tensor) -> Tensor:
        """Return an output of the network with the samples in its first axis."""
        x = self._replaced.get(old, old)
        if self._depends_on_count(x):
            raise MixedSamplesError(f"the output {old.name} depends on the number of samples")
        if x not in self._places:
            return x if old in self._following else self._builder.repeat_output(x)
        sample, place = self._builder.find_sample_shape(x), self._places[x]
        shape = sample if sample[:1] == (1,) else (1, *sample)
        if shape == sample and place == Place(0):
            return x
        y = replace(old, shape=tuple(map(evaluate, shape)), shape_signature=())
        return self._builder.move_to(x, 1, shape, Place(0), y)


def _multiply_matrices(op: Op) -> list[Op]:
    """Return a FULLY_CONNECTED whose weights depend on the sample as a BATCH_MATMUL of one matrix.

    Exporters multiply by the keys of an attention with one head in this way.
    """
    (x, w, *bias), (y,) = op.inputs, op.outputs
    if x is None or w is None or any(bias) or op.activation != "NONE" or w.rank != _MATRIX:
        raise OperatorError("it multiplies by weights that depend on the sample")
    rows = x.elements // w.shape[-1]
    a, product = make_tensor(x, (1, rows, w.shape[-1])), make_tensor(y, (1, rows, w.shape[0]))
    b = make_tensor(w, (1, *w.shape))
    options = Options({"adj_x": False, "adj_y": True})
    return [
        copy_op(op, x, a, resizes=False),
        copy_op(op, w, b, resizes=False),
        Op("BATCH_MATMUL", op.index, (a, b), (product,), options),
        copy_op(op, product, y, resizes=False),
    ]

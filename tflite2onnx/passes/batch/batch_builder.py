"""Add operators to a graph for a batch, and move samples between axes."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from tflite2onnx.errors import OperatorError, as_operator_error
from tflite2onnx.graph import Graph, Op
from tflite2onnx.op.base import Operator, Unknown
from tflite2onnx.op.traits import DynamicShape
from tflite2onnx.passes.batch.places import (
    SAMPLES,
    Place,
    Sizes,
    count_before,
    count_in_sample,
    divide,
    find_sample_axis,
    has_samples,
    join_samples,
    list_places,
    rank_places,
    take_sample,
)
from tflite2onnx.passes.rewriter import Rewriter, make_int32
from tflite2onnx.passes.shape_walk import OperatorOf, Place as Axis, ShapeWalk
from tflite2onnx.tensor import DType, Tensor
from tflite2onnx.utils.dimension import Dim, Dimension, evaluate, is_known

ADDED = Op("", 0, (), ())  # the source of operators that a batch adds
_NO_MASKS: Mapping[str, Any] = dict.fromkeys(
    ("begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask", "shrink_axis_mask"), 0
)


class BatchBuilder:
    """The operators for a batch, in order of execution, and the places of samples in tensors.

    The first size of each input is the number of samples. All other tensors are declared with the
    shape of one sample.

    Attributes:
        ops: the operators for the batch.
        places: where the samples are, by tensor; tensors that are the same for all samples have no
            place.
        walk: infers shapes, with a symbol for the number of samples.
        count: the number of samples, as a list of one number.

    `opened` are the other dynamic sizes of the inputs, `same` has the dimensions that replace equal
    dimensions. Inputs in `shared` are the same for all samples.
    """

    def __init__(
        self,
        graph: Graph,
        inputs: Sequence[Tensor],
        operator_of: OperatorOf,
        opened: Mapping[Axis, Dimension],
        same: Mapping[Dimension, Dim],
        shared: Collection[Tensor],
    ) -> None:
        batched = [t for t in inputs if t not in shared]
        empty = replace(graph, inputs=tuple(inputs), ops=())
        sizes = {**opened, **{(t, 0): SAMPLES for t in batched}}
        self.walk = ShapeWalk(empty, operator_of, sizes, same, strict=True)
        self.walk.walk()
        self._operator_of = operator_of
        self.ops: list[Op] = []
        self.places = dict.fromkeys(batched, Place(0))
        self.count = self._compute_size(batched[0], 0)

    def find_shape(self, tensor: Tensor) -> Sizes:
        """Return the shape of a tensor for the batch, whose sizes may be dimensions."""
        return self.walk.known.get(tensor, tensor).shape

    def find_sample_shape(self, tensor: Tensor) -> Sizes:
        """Return the shape of one sample, whose sizes may be dimensions."""
        shape, place = self.find_shape(tensor), self.places.get(tensor)
        return take_sample(shape, place) if place else shape

    def count_before(self, tensor: Tensor) -> Dim:
        """Return how many elements of a sample come before the samples."""
        return count_before(self.find_sample_shape(tensor), self.places[tensor])

    def list_places(self, op: Op) -> Iterator[tuple[int, Place]]:
        """Yield the places that samples may have in an operator, and the input of each place."""
        pairs = [(i, t) for i, t in enumerate(op.inputs) if t and t in self.places]
        samples = [self.find_sample_shape(t) for _, t in pairs]
        places = [self.places[t] for _, t in pairs]
        best = min(range(len(pairs)), key=lambda i: samples[i][places[i].axis] != 1)
        first = pairs[best][0]
        yield first, places[best]
        for place in list_places(samples[best], count_before(samples[best], places[best])):
            # The samples may be in either of two neighbouring axes.
            if place != places[best] and place.outer == samples[best][place.axis]:
                yield first, place
        for axis, size in enumerate(samples[best]):
            if size == 1 and axis != places[best].axis:
                yield first, Place(axis)

    def infer_shape(self, op: Op, shapes: Mapping[Tensor, Sizes]) -> Sizes:
        """Return the shape of the output if inputs have these shapes; empty for wrong shapes."""
        tensors = self.walk.known
        # In a shape walk the sizes of a tensor may be dimensions.
        resized = {t: replace(tensors[t], shape=shape) for t, shape in shapes.items()}  # type: ignore[arg-type]
        try:
            with as_operator_error():
                (shape,) = self._operator_of(op.with_inputs({**tensors, **resized})).infer_outputs()
        except OperatorError:
            if shapes:
                raise
            return ()
        if any(isinstance(size, Unknown) for size in shape):
            raise OperatorError("its shape depends on elements that are computed")
        return tuple(map(self.walk.unify_size, shape))

    def find_computed_place(self, y: Tensor, before: Dim) -> Place:
        """Return the place of the samples in a shape that is computed from their number."""
        shape = self.find_shape(y)
        axis = find_sample_axis(shape)
        if axis is not None:
            sample = take_sample(shape, Place(axis))
            outer = divide(before, prod(sample[:axis]))
            if outer is not None and divide(sample[axis], outer) is not None:
                return Place(axis, outer)
        raise OperatorError("its shape must have the samples in one axis")

    def emit(self, op: Op) -> None:
        """Add an operator whose inputs are known."""
        self.walk.walk_ops([op])
        self.ops.append(op)

    @contextmanager
    def open_subgraph(self) -> Iterator[list[Op]]:
        """Return a context that adds operators to a sub-graph: it yields their list."""
        outer, self.ops = self.ops, []
        try:
            yield self.ops
        finally:
            self.ops = outer

    def reshape(
        self,
        x: Tensor,
        sample: Sequence[Dim],
        before: Dim,
        y: Tensor | None = None,
        place: Place | None = None,
    ) -> Tensor:
        """Reshape the samples of x; `before` elements of a sample come before the samples."""
        place = place or next(iter(rank_places(sample, before)), None)
        if not place:
            raise OperatorError(f"its output {list(sample)} has no axis for the samples")
        y = y or make_tensor(x, sample)
        self.places[y] = place
        return self.reshape_batch(x, join_samples(sample, place), y)

    def reshape_batch(self, x: Tensor, shape: Sequence[Dim], y: Tensor) -> Tensor:
        return self.add("RESHAPE", [x, self.list_sizes(shape, rest=True, x=x)], y)

    def move_samples(self, x: Tensor, place: Place) -> Tensor:
        sample = self.find_sample_shape(x)
        return self.move_to(x, count_before(sample, place), sample, place)

    def move_to(
        self, x: Tensor, after: Dim, sample: Sizes, place: Place, y: Tensor | None = None
    ) -> Tensor:
        """Return x, of shape `sample`, with the samples in front of which are `after` elements."""
        before = self.count_before(x)
        low, high = (after, before) if divide(before, after) is not None else (before, after)
        middle, rest = divide(high, low), divide(prod(sample), high)
        if middle is None or rest is None:
            raise OperatorError(f"the samples of {x.name} must be in an axis of their own")
        if middle != 1 and 0 not in sample:
            pair = (SAMPLES, middle) if low == before else (middle, SAMPLES)
            parts, turned = (
                make_tensor(x, _drop_samples((low, *move, rest))) for move in (pair, pair[::-1])
            )
            self.reshape_batch(x, (low, *pair, rest), parts)
            x = self.add("TRANSPOSE", [parts, make_list([0, 2, 1, 3])], turned)
        y = y or make_tensor(x, sample)
        self.places[y] = place
        return self.reshape_batch(x, join_samples(sample, place), y)

    def repeat(self, x: Tensor, place: Place) -> Tensor:
        """Return x, which is the same for all samples, repeated for each sample."""
        sample = self.find_shape(x)
        inner = divide(sample[place.axis], place.outer)
        if inner is None:
            raise OperatorError(f"the samples of {x.name} must fill an axis, got {list(sample)}")
        whole = join_samples(sample, place)
        single, shape = (
            (*sample[: place.axis], place.outer, size, inner, *sample[place.axis + 1 :])
            for size in (1, SAMPLES)
        )
        if (place.outer, inner) != (1, 1):
            x = self.reshape_batch(x, single, make_tensor(x, single))
        else:
            shape = whole
        y = make_tensor(x, _drop_samples(shape))
        self.add("BROADCAST_TO", [x, self.list_sizes(shape, rest=False)], y)
        if shape != whole:
            y = self.reshape_batch(y, whole, make_tensor(y, sample))
        self.places[y] = place
        return y

    def repeat_output(self, x: Tensor) -> Tensor:
        """Return an output that is the same for all samples, repeated for each sample."""
        sample = self.find_shape(x)
        shape = sample if sample[:1] == (1,) else (1, *sample)
        single = self.reshape_batch(x, shape, make_tensor(x, shape))
        y = self.repeat(single, Place(0))
        named = replace(x, shape=y.shape, data=None, shape_signature=())
        return self.reshape_batch(y, self.find_shape(y), named)

    def list_sizes(self, sizes: Sequence[Dim], *, rest: bool, x: Tensor | None = None) -> Tensor:
        """Return a list of sizes as a tensor; with `rest` one dynamic size may be -1.

        Other dynamic sizes are read from axes of x.

        Raises:
            OperatorError: a size is 0, so that nothing tells another dynamic size than the batch.
        """
        numbers: list[Dim] = list(sizes)
        dynamic = [i for i, size in enumerate(sizes) if not is_known(size)]
        others = [i for i in dynamic if not has_samples(sizes[i])]
        if rest and dynamic and 0 not in sizes:
            numbers[(others or dynamic)[0]] = -1
        if all(map(is_known, numbers)):
            return make_list(numbers)
        parts = [
            self._multiply_count(count_in_sample(number))
            if has_samples(number)
            else self._compute_size(x, self.find_shape(x).index(number))
            if x and not is_known(number) and number in self.find_shape(x)
            else number
            for number in numbers
        ]
        lists = [part if isinstance(part, Tensor) else make_list([part]) for part in parts]
        y = Tensor("sizes", (len(sizes),), DType.INT32)
        return self.add("CONCATENATION", lists, y, axis=0)

    def add(self, code: str, inputs: Sequence[Tensor], y: Tensor, **options: Any) -> Tensor:  # noqa: ANN401
        rw = Rewriter(ADDED)
        rw.op(code, *inputs, output=y, **options)
        self.emit(*rw.ops)
        return y

    def _compute_size(self, x: Tensor, axis: int) -> Tensor:
        rw = Rewriter(ADDED)
        made = compute_size(rw, x, axis)
        for op in rw.ops:
            self.emit(op)
        return made

    def _multiply_count(self, factor: Dim) -> Tensor:
        if factor == 1:
            return self.count
        y = Tensor("batch", (1,), DType.INT32)
        return self.add("MUL", [self.count, make_list([factor])], y)


def _drop_samples(shape: Sequence[Dim]) -> Sizes:
    return tuple(count_in_sample(size) if has_samples(size) else size for size in shape)


def compute_size(rw: Rewriter, x: Tensor, axis: int) -> Tensor:
    """Add operators that compute the size of an axis, and return it as a list of one number."""
    shape, count = Tensor("sizes", (x.rank,), DType.INT32), Tensor("batch", (1,), DType.INT32)
    rw.op("SHAPE", x, output=shape, out_type="INT32")
    bounds = [make_list([i]) for i in (axis, axis + 1, 1)]
    return rw.op("STRIDED_SLICE", shape, *bounds, output=count, **_NO_MASKS, offset=False)


def make_list(numbers: Sequence[Dim]) -> Tensor:
    """Return a constant list of integers."""
    if not all(map(is_known, numbers)):
        raise OperatorError(
            f"the shape {list(numbers)} must have at most one dynamic size besides the batch"
        )
    return make_int32("sizes", np.array(numbers, np.int32))


def make_tensor(like: Tensor, sample: Sequence[Dim]) -> Tensor:
    """Return a new tensor with the type of another tensor and the shape of one sample."""
    if like.per_axis:
        raise OperatorError(f"{like.name} must have one scale: correct the scales in the file")
    name, shape = like.name.removesuffix("/samples") + "/samples", tuple(map(evaluate, sample))
    return Tensor(name, shape, like.dtype, quantization=like.quantization)


def require_input(op: Op, index: int = 0) -> Tensor:
    """Return an input that the operator must have."""
    tensor = op.inputs[index]
    if not tensor:
        raise OperatorError(f"input {index} is missing")
    return tensor


def list_shape_inputs(operator: Operator) -> tuple[int, ...]:
    """Return the indices of inputs that list sizes."""
    if not isinstance(operator, DynamicShape):
        return ()
    index = operator.sizes_input
    return (*(() if index is None else (index,)), *operator.shape_inputs)


def check_one_sample(op: Op, operator: Operator) -> None:
    """Raise OperatorError if an operator cannot be converted even for a single sample."""
    with as_operator_error():
        try:
            operator.infer_outputs()
            operator.verify()
        except OperatorError as error:
            raise OperatorError(error.reason, op.place) from None

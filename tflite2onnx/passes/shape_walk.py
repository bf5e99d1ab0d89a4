"""Infer the shapes of all tensors of a graph, and the elements of small integer tensors.

The walk asks each operator for the shapes of its outputs (`Operator.infer_outputs`), in order of
execution. The sizes of the graph's inputs are integers or dimensions (see `dimension`), so that one
walk finds how each size depends on the dynamic sizes. Integer tensors that are computed from sizes
(SHAPE, STRIDED_SLICE, PACK) have dimensions as elements.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import zip_longest

import numpy as np

from tflite2onnx.errors import OperatorError, as_operator_error
from tflite2onnx.graph import Graph, Op
from tflite2onnx.made_options import MadeOptions
from tflite2onnx.op import find_operator
from tflite2onnx.op.base import DataDependentSize, Operator, OutputShape, Unknown
from tflite2onnx.op.facts import Fact
from tflite2onnx.op.traits import DynamicShape, Foldable, RunsSubgraphs
from tflite2onnx.passes.fold_constants import Folder
from tflite2onnx.tensor import Array, DType, Tensor, name_axis
from tflite2onnx.utils.dimension import (
    BroadcastError,
    Dim,
    Dimension,
    Symbol,
    as_dim,
    evaluate,
    has_dimensions,
    is_no_less,
    list_symbols,
    make_array,
    make_dimension,
)

InferredTensors = Mapping[Tensor, Tensor]  # those of a graph, and the same with computed shapes
Sizes = tuple[Dim, ...]
Place = tuple[Tensor, int]  # an axis of a tensor of the graph

# `find_operator`, or a function that also accepts custom operators without a class.
OperatorOf = Callable[[Op], Operator]

# The largest number of elements of a tensor whose elements are computed from sizes.
_MOST_ELEMENTS = 256


class ClashError(OperatorError):
    """An operator cannot run with these sizes of its inputs.

    `dims` are the dimensions that must be equal, if unequal sizes are the reason. `broadcasts` is
    set if one of the dimensions may also be 1. `names` are the symbols that are the reason, none if
    they are unknown. (A reference to the original error would make a cycle through the frames that
    catch it.)
    """

    def __init__(self, reason: str, place: str = "", cause: OperatorError | None = None) -> None:
        self.dims: Sequence[Dim] = getattr(cause, "dims", ())
        unequal = {symbol.name for dim in self.dims for symbol in list_symbols(dim)}
        self.names: Collection[str] = getattr(cause, "names", unequal)
        self.broadcasts = isinstance(cause, BroadcastError) or getattr(cause, "broadcasts", False)
        super().__init__(reason, place)


class ShapeWalk:
    """A walk over the operators of a graph and its sub-graphs, in order of execution.

    The constructor takes the dimensions of dynamic axes of the inputs (`opened`), and dimensions
    that replace other dimensions, to which they are equal (`same`). Without `opened` all sizes are
    integers. A size that is known at run time only is then the declared size, or `example` if the
    file declares 1, which stands for unknown sizes. If not `strict`, tensors whose shape cannot be
    inferred keep their declared shape; if `strict`, operators also check integer sizes.

    Attributes:
        shapes: the tensors with their inferred shapes, by the tensors of the graph.
        known: the same tensors, with the elements of constants and of integers made of sizes.
        made: options of operators that follow from dimensions of their operands.
        least: sizes that must not be less than a number.
    """

    def __init__(
        self,
        graph: Graph,
        operator_of: OperatorOf = find_operator,
        opened: Mapping[Place, Dimension] | None = None,
        same: Mapping[Dimension, Dim] | None = None,
        *,
        strict: bool = False,
        example: int = 1,
    ) -> None:
        self._example = example
        self._graph, self._operator_of, self._strict = graph, operator_of, strict
        self._opened, self._same, self._is_open = opened or {}, same or {}, opened is not None
        self._folder = Folder(graph)
        self.shapes: dict[Tensor, Tensor] = {}
        self.known: dict[Tensor, Tensor] = {}
        self.made: dict[Op, MadeOptions | None] = {}
        self.least: list[tuple[Dim, int]] = []
        # The elements of lists of sizes; None for elements that are not known.
        self._elements: dict[Tensor, Sequence[Dim | None]] = {}

    def walk(self) -> InferredTensors:
        shapes = [
            tuple(self._opened.get((t, axis), size) for axis, size in enumerate(t.shape))
            for t in self._graph.inputs
        ]
        self.set_inputs(self._graph.inputs, shapes)
        self.walk_ops(self._graph.ops)
        return self.known

    def walk_ops(self, ops: Sequence[Op]) -> None:
        for op in ops:
            known_op = op.with_inputs(self.known)
            try:
                # One context for each operator, because entering it takes long.
                with as_operator_error():
                    known_op = self._walk_subgraphs(known_op) if op.graphs else known_op
                    operator = self._operator_of(known_op)
                    outputs = self._infer_outputs(op, operator)
            except OperatorError as error:
                if isinstance(error, ClashError):
                    raise
                if self._strict:
                    raise ClashError(error.reason, op.place, error) from error
                # This walk skips invalid operators: `verify_operators` reports them later.
                operator, outputs = self._operator_of(known_op), known_op.outputs
            self.shapes.update(zip(op.outputs, outputs, strict=True))
            if outputs != known_op.outputs:
                known_op = replace(known_op, outputs=outputs)
                operator = self._operator_of(known_op)
            if self._is_open and isinstance(operator, DynamicShape):
                # The conversion raises the error again.
                with suppress(OperatorError), as_operator_error():
                    self.made[op] = operator.compute_dimension_options()
                    for axis, least in operator.find_least_sizes().items():
                        self.least.append((known_op.operand(0).shape[axis], least))
            if self._strict and not self._is_open:
                self._check_op(op, operator)
            constants = self._evaluate_op(known_op, operator)
            self.known.update(zip(op.outputs, constants or outputs, strict=True))
            if not constants:
                self._record_elements(op, operator)

    @staticmethod
    def _check_op(op: Op, operator: Operator) -> None:
        try:
            with as_operator_error():
                operator.verify()
        except OperatorError as error:
            raise ClashError(error.reason, op.place, error) from error

    # Shapes

    def set_inputs(self, tensors: Sequence[Tensor], shapes: Sequence[Sequence[Dim]]) -> None:
        for tensor, sizes in zip(tensors, shapes, strict=True):
            self.shapes[tensor] = self.known[tensor] = self._resize_tensor(tensor, sizes)

    def _resize_tensor(self, tensor: Tensor, sizes: Sequence[Dim]) -> Tensor:
        shape = tuple(self.unify_size(size) for size in sizes)
        # In a shape walk the sizes of a tensor may be dimensions.
        return tensor if shape == tensor.shape else replace(tensor, shape=shape)  # type: ignore[arg-type]

    def unify_size(self, size: Dim) -> Dim:
        """Return the dimension that replaces an equal dimension."""
        while isinstance(size, Dimension) and size in self._same:
            size = self._same[size]
        return int(size) if isinstance(size, np.integer) else size

    def _infer_outputs(self, op: Op, operator: Operator) -> tuple[Tensor, ...]:
        known_op = operator.op
        # Operators that users registered for an earlier version return None. The last outputs may
        # be the next values of internal states: these have the declared shapes.
        shapes: Sequence[OutputShape | None] = operator.output_shapes[: len(known_op.outputs)]
        listed = self._find_listed_sizes(op, operator)
        if listed and len(shapes) == 1 and shapes[0] and len(shapes[0]) == len(listed):
            pairs = zip(shapes[0], listed, strict=True)
            shapes = [[b if isinstance(a, Unknown) and b is not None else a for a, b in pairs]]
        named: dict[Unknown, Dim] = {}
        return tuple(
            t if shape is None or (*shape,) == t.shape else self._set_shape(origin, t, shape, named)
            for origin, t, shape in zip_longest(op.outputs, known_op.outputs, shapes)
        )

    def _set_shape(
        self, origin: Tensor, tensor: Tensor, shape: OutputShape, named: dict[Unknown, Dim]
    ) -> Tensor:
        result = self._resize_tensor(tensor, self._name_unknown(origin, tensor, shape, named))
        if self._is_open or result.dynamic_axes:
            return result
        # The file may omit the signature that says which sizes are unknown.
        signature = [-1 if isinstance(size, Unknown) else size for size in shape]
        return replace(result, shape_signature=(*signature,)) if -1 in signature else result

    def _name_unknown(
        self, origin: Tensor, tensor: Tensor, shape: OutputShape, named: dict[Unknown, Dim]
    ) -> Sizes:
        """Return a shape with a dimension, or the declared size, for each unknown size."""
        sizes: list[Dim] = []
        for axis, size in enumerate(shape):
            if not isinstance(size, Unknown):
                sizes.append(size)
                continue
            declared_size = tensor.shape[axis] if tensor.rank == len(shape) else 1
            declared_size = self._example if declared_size <= 1 else declared_size
            declared_size = max(declared_size, size.least)
            # If a signature has no dynamic axis, its sizes may be dynamic or fixed.
            signed = len(tensor.shape_signature) == len(shape) and tensor.dynamic_axes
            is_fixed = signed and axis not in tensor.dynamic_axes
            if not self._is_open or (is_fixed and not isinstance(size, DataDependentSize)):
                named.setdefault(size, declared_size)
            else:
                symbol = Symbol(name_axis(origin, axis), declared_size, size.least)
                named.setdefault(size, make_dimension(symbol))
            sizes.append(named[size])
        return tuple(sizes)

    def _walk_subgraphs(self, op: Op) -> Op:
        """Return an operator with its sub-graphs, whose tensors have their inferred shapes.

        A size that changes from one iteration to the next is dynamic: the sub-graph is walked
        again.
        """
        operator = self._operator_of(op)
        shapes: list[list[Sequence[Dim]]] = [list(inputs) for inputs in op.subgraph_input_shapes]
        if isinstance(operator, RunsSubgraphs):
            shapes = [list(inputs) for inputs in operator.infer_subgraph_inputs()]
        varying: set[tuple[int, int, int]] = set()
        while True:
            pairs = zip(op.graphs, shapes, strict=True)
            walked = replace(op, graphs=tuple(self._walk_subgraph(*pair) for pair in pairs))
            operator = self._operator_of(walked)
            varying_sizes = (
                {*operator.find_varying_sizes()} if isinstance(operator, RunsSubgraphs) else varying
            )
            if not self._is_open or varying_sizes <= varying:
                return walked
            varying |= varying_sizes
            for graph, i, axis in varying_sizes:
                tensor, sizes = op.graphs[graph].inputs[i], list(shapes[graph][i])
                symbol = Symbol(name_axis(tensor, axis), evaluate(sizes[axis]), least=0)
                sizes[axis] = make_dimension(symbol)
                shapes[graph][i] = tuple(sizes)

    def _walk_subgraph(self, graph: Graph, shapes: Sequence[Sequence[Dim]]) -> Graph:
        self.set_inputs(graph.inputs, shapes)
        self.walk_ops(graph.ops)
        return replace(
            graph,
            inputs=tuple(self.known[t] for t in graph.inputs),
            outputs=tuple(self.known.get(t, t) for t in graph.outputs),
        )

    # Elements

    def _record_elements(self, op: Op, operator: Operator) -> None:
        """Record the elements of a list that joins lists of integers, if some are known."""
        if not self._is_open or not isinstance(operator, Foldable) or not operator.joins_elements:
            return
        inputs = op.present[:1] if Fact.KEEPS_SEQUENCE in operator.facts else op.present
        lists = [self._list_elements(t) for t in inputs]
        if len(op.outputs) != 1 or None in lists:
            return
        y = op.outputs[0]
        if self.known[y].rank > 1 or not _is_integer(y):
            return
        elements = [element for items in lists if items for element in items]
        if any(element is not None for element in elements):
            self._elements[y] = elements

    def _list_elements(self, tensor: Tensor) -> Sequence[Dim | None] | None:
        """Return a tensor's elements, None for unknown elements; None if all are unknown."""
        known_tensor = self.known.get(tensor, tensor)
        if has_dimensions(known_tensor.shape) or known_tensor.elements > _MOST_ELEMENTS:
            return None
        if known_tensor.has_data:
            return [as_dim(element) for element in known_tensor.values.reshape(-1)]
        return self._elements.get(tensor, [None] * known_tensor.elements)

    def _find_listed_sizes(self, op: Op, operator: Operator) -> Sequence[Dim | None]:
        """Return the sizes of the output that an input lists; None for a size that may be -1."""
        if not isinstance(operator, DynamicShape):
            return ()
        index = operator.find_listed_sizes()
        if index is None or not operator.has_data_dependent_shape:
            return ()
        elements = self._elements.get(op.operand(index), ())
        return [size if size is None or is_no_less(size, 0) else None for size in elements]

    def _evaluate_op(self, op: Op, operator: Operator) -> list[Tensor]:
        """Return the outputs with their elements; empty if the elements are not known."""
        if self._is_open:
            if any(has_dimensions(t.shape) for t in op.outputs):
                return []
            if _reads_dimensions(op):
                return self._evaluate_dimensions(op, operator)
        return self._folder.fold(op, operator)

    def _evaluate_dimensions(self, op: Op, operator: Operator) -> list[Tensor]:
        if not isinstance(operator, Foldable) or not operator.evaluates_dimensions:
            return []
        arrays = [op.operand(i).data for i in range(len(op.inputs))]
        unknown = any(a is None or a.size > _MOST_ELEMENTS for a in arrays)
        unknown = unknown and Fact.SHAPE_ONLY not in operator.facts
        if unknown or not all(map(_is_integer, op.outputs)):
            return []
        try:
            with as_operator_error():
                results = operator.evaluate(*(np.empty(0) if a is None else a for a in arrays))
                pairs = zip(op.outputs, results or (), strict=True)
                return [replace(t, data=self._store_elements(t, array)) for t, array in pairs]
        except OperatorError:  # the elements depend on dynamic sizes in another way
            return []

    def _store_elements(self, tensor: Tensor, array: Array) -> Array:
        values = np.asarray(array, object)
        if values.shape != tensor.shape or values.size > _MOST_ELEMENTS:
            raise OperatorError(f"{tensor.name} must have the shape {list(tensor.shape)}")
        flat = np.empty(values.size, object)
        flat[:] = [self.unify_size(value) for value in values.reshape(-1)]
        return make_array(flat.reshape(values.shape), tensor.dtype.numpy)


def _is_integer(tensor: Tensor) -> bool:
    is_integer = tensor.dtype.is_integer or tensor.dtype is DType.BOOL
    return is_integer and not tensor.quantization


def _reads_dimensions(op: Op) -> bool:
    """Return whether there are dimensions in the shapes or in the elements of the inputs."""
    inner = (t for graph in op.graphs for t in (*graph.inputs, *graph.outputs))
    values = (value for t in op.present for value in (t.shape, t.data))
    return any(map(has_dimensions, (*values, *(t.shape for t in inner))))

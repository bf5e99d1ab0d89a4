"""Infer the shapes of all tensors of a graph, at given sizes of its inputs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from tflite2onnx.errors import (
    FixedSizeError,
    OperatorError,
    as_operator_error,
)
from tflite2onnx.graph import Graph, Op
from tflite2onnx.op import operator_for
from tflite2onnx.op.base import Operator
from tflite2onnx.op.traits import DynamicShape, RunsSubgraphs
from tflite2onnx.passes.fold_constants import constant_budget, fold_operator
from tflite2onnx.tensor import Shape, Tensor

Known = Mapping[Tensor, Tensor]
Place = tuple[Tensor, int]  # an axis of an input, or a data-dependent axis of an output


# `operator_for`, or a function that also keeps custom operators that have no class.
OperatorOf = Callable[[Op], Operator]


class ClashError(FixedSizeError):
    """The inputs of an operator have incompatible shapes at the sizes of a trial."""

    def __init__(self, error: OperatorError, op: Op) -> None:
        self.op = op
        super().__init__(error.reason, op.place)


class ShapeWalk:
    """A walk over the operators of a graph and its sub-graphs, in order of execution.

    Attributes:
        shapes: the tensors with their inferred shapes, by the tensors of the graph.
        known: the same tensors, with the elements of constants.
        ran: the operators, each as in the graph and with the inputs that it reads.

    The constructor takes `sizes` for dynamic axes, and tensors that are `computed` from
    data-dependent sizes and so are not constant. If not `strict`, tensors whose shape cannot be
    inferred keep their declared shape.
    """

    def __init__(
        self,
        graph: Graph,
        operator_of: OperatorOf = operator_for,
        sizes: Mapping[Place, int] | None = None,
        computed: frozenset[Tensor] = frozenset(),
        *,
        strict: bool = False,
    ) -> None:
        self._graph, self._operator_of = graph, operator_of
        self._sizes, self._computed, self._strict = sizes or {}, computed, strict
        self._room = constant_budget(graph)
        self.shapes: dict[Tensor, Tensor] = {}
        self.known: dict[Tensor, Tensor] = {}
        self.ran: list[tuple[Op, Op]] = []

    def walk(self) -> Known:
        """Return all tensors with their shapes, and the elements of constants."""
        self.begin(self._graph.inputs, [t.shape for t in self._graph.inputs])
        self.walk_ops(self._graph.ops)
        return self.known

    def begin(self, tensors: Sequence[Tensor], shapes: Sequence[Shape]) -> tuple[Tensor, ...]:
        """Set the shapes of inputs, and return the inputs with these shapes."""
        resized = tuple(
            resize_tensor(t, t if t.shape == shape else replace(t, shape=shape), self._sizes)
            for t, shape in zip(tensors, shapes, strict=True)
        )
        self.shapes |= dict(zip(tensors, resized, strict=True))
        self.known |= dict(zip(tensors, resized, strict=True))
        return resized

    def walk_ops(self, ops: Sequence[Op]) -> None:
        """Infer the outputs of operators."""
        for op in ops:
            here = op.with_inputs(self.known)
            here = replace(here, graphs=self._walk_subgraphs(here)) if op.graphs else here
            self.ran.append((op, here))
            outputs = [resize_tensor(*pair, self._sizes) for pair in self._outputs(op, here)]
            here = replace(here, outputs=tuple(outputs))
            self.shapes |= dict(zip(op.outputs, outputs, strict=True))
            fixed = self._computed.isdisjoint(op.outputs)
            constants = fold_operator(here, self._operator_of(here), self._room) if fixed else []
            self._room -= sum(t.nbytes for t in constants)
            self.known |= dict(zip(op.outputs, constants or outputs, strict=True))

    def _outputs(self, op: Op, here: Op) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield pairs of each output as declared and as inferred."""
        outputs = here.outputs
        try:
            outputs = infer_op_outputs(here, self._operator_of, other_ranks=not self._sizes)
        except OperatorError:
            if self._strict:
                raise
        return zip(op.outputs, outputs, strict=True)

    def _walk_subgraphs(self, op: Op) -> tuple[Graph, ...]:
        operator, graphs = self._operator_of(op), []
        sizes: Sequence[Sequence[Shape]] = op.subgraph_input_shapes
        if isinstance(operator, RunsSubgraphs):
            sizes = operator.subgraph_input_shapes()
        for graph, shapes in zip(op.graphs, sizes, strict=True):
            inputs = self.begin(graph.inputs, shapes)
            self.walk_ops(graph.ops)
            outputs = tuple(self.known.get(t, t) for t in graph.outputs)
            graphs.append(replace(graph, inputs=inputs, outputs=outputs))
        return tuple(graphs)


def is_dynamic(operator: Operator) -> bool:
    """Return whether the shapes of the outputs depend on elements that are not constant."""
    try:
        with as_operator_error():
            return isinstance(operator, DynamicShape) and operator.has_data_dependent_shape
    except OperatorError:  # the conversion of the operator raises it again
        return False


def resize_tensor(origin: Tensor, tensor: Tensor, sizes: Mapping[Place, int]) -> Tensor:
    """Return a tensor with the sizes of a trial for the dynamic axes of `origin`."""
    shape = tuple(sizes.get((origin, axis), size) for axis, size in enumerate(tensor.shape))
    return tensor if shape == tensor.shape else replace(tensor, shape=shape)


def infer_op_outputs(
    op: Op, operator_of: OperatorOf, *, other_ranks: bool = False
) -> tuple[Tensor, ...]:
    """Return the outputs of an operator with the shapes that follow from its inputs.

    Raises:
        FixedSizeError: the operator has no valid output shape, or an output has another rank than
            the file declares and not `other_ranks`.
    """
    try:
        with as_operator_error():
            shapes = operator_of(op).resolve_output_shapes()
            pairs = list(zip(op.outputs, shapes, strict=True))
    except OperatorError as error:
        raise ClashError(error, op) from error
    other_rank = any(t.rank not in (0, len(shape)) for t, shape in pairs)
    if other_rank and not (other_ranks or is_dynamic(operator_of(op))):
        raise FixedSizeError("its output must have the rank that the file declares").with_place(
            op.place
        )
    return tuple(t if t.shape == shape else replace(t, shape=shape) for t, shape in pairs)

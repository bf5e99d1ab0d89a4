"""Control flow, in the forms that `inline_subgraphs` makes."""

from collections.abc import Iterator, Sequence

from tflite2onnx.builder.builder import Body, Builder, Value, View
from tflite2onnx.graph import Graph, Op, copy_op
from tflite2onnx.layout import Frame, axis_names
from tflite2onnx.op.base import Category, DataDependentSize, OperatorError, OutputShape
from tflite2onnx.op.traits import AnySizes, RunsSubgraphs
from tflite2onnx.quantization.declarations import Moves
from tflite2onnx.tensor import DType, Shape, Tensor

_PACKED = (DType.INT2, DType.INT4, DType.UINT4)


class Control(AnySizes, RunsSubgraphs):
    """The base of If and While: a value keeps one axis order, inside and outside sub-graphs."""

    category = Category.TRANSPARENT
    returns_tuple = True
    # An operand has the same scale outside and inside of sub-graphs.
    quantization = Moves(keeps_scales=True)


class If(Control):
    """IF and STABLEHLO_CASE: one of two sub-graphs runs."""

    codes = ("IF", "STABLEHLO_CASE")

    def check(self) -> None:
        _expect_graphs(self.op, 2)
        for graph in self.op.graphs:
            _expect_same_types(self.op.outputs, graph.outputs)

    def frames(self) -> Sequence[Frame]:
        count = len(self.op.outputs)
        operands = [(~i, 1 + i, 1 + count + i) for i in range(count)]
        return [_make_frame(t, *o) for t, o in zip(self.op.outputs, operands, strict=True)]

    @property
    def _known_branch(self) -> Graph | None:
        """The branch that runs, if the condition is constant."""
        condition = self.input(0).data
        return None if condition is None else self.op.graphs[0 if condition.all() else 1]

    def infer_outputs(self) -> Sequence[OutputShape]:
        if self._known_branch:
            return [t.shape for t in self._known_branch.outputs]
        then, other = self.op.graphs
        pairs = zip(then.outputs, other.outputs, strict=True)
        return [_find_common_shape(a.shape, b.shape) for a, b in pairs]

    def fold_branch(self) -> Sequence[Op] | None:
        branch = self._known_branch
        return [*branch.ops, *_copy_tensors(self.op, branch.outputs)] if branch else None

    def emit(
        self, g: Builder, ys: Sequence[View], bodies: Sequence[Body], condition: View
    ) -> Sequence[Value]:
        then, other = bodies
        _require_types(g, "If", ys)
        return g.node_outputs("If", len(ys), condition, then_branch=then, else_branch=other)


class While(Control):
    """WHILE: a sub-graph runs as long as a condition holds."""

    codes = ("WHILE",)

    def check(self) -> None:
        (body,) = _expect_graphs(self.op, 1)
        for tensors in (self.op.inputs[1:], body.inputs, body.outputs[1:]):
            _expect_same_types(self.op.outputs, tensors)

    @property
    def _never_begins(self) -> bool:
        condition = self.input(0).data
        return condition is not None and not condition.any()

    def infer_subgraph_inputs(self) -> Sequence[Sequence[Shape]]:
        return [[self.input(i).shape for i in range(1, len(self.op.inputs))]]

    def frames(self) -> Sequence[Frame]:
        count = len(self.op.outputs)
        # The condition is input 0, and the first output of the body.
        operands = [(1 + i, ~i, 2 + count + i, ~(count + i)) for i in range(count)]
        return [_make_frame(t, *o) for t, o in zip(self.op.outputs, operands, strict=True)]

    def find_varying_sizes(self) -> Iterator[tuple[int, int, int]]:
        (body,) = self.op.graphs
        pairs = zip(body.inputs, body.outputs[1:], strict=True)
        for i, (now, following) in enumerate(pairs):
            axes = enumerate(zip(now.shape, following.shape, strict=True))
            yield from ((0, i, axis) for axis, (a, b) in axes if a != b)

    def infer_outputs(self) -> Sequence[OutputShape]:
        (body,) = self.op.graphs
        (first,) = self.infer_subgraph_inputs()
        if self._never_begins:
            return first
        variables = zip(first, body.inputs, body.outputs[1:], strict=True)
        return [
            _find_common_shape(start, _find_common_shape(now.shape, following.shape))
            for start, now, following in variables
        ]

    def fold_branch(self) -> Sequence[Op] | None:
        if not self._never_begins:
            return None
        return _copy_tensors(self.op, [self.input(i) for i in range(1, len(self.op.inputs))])

    def emit(
        self, g: Builder, ys: Sequence[View], bodies: Sequence[Body], condition: View, *first: View
    ) -> Sequence[Value]:
        # The body of Loop has two more inputs: the number of the iteration, and the previous
        # condition.
        iteration = Value(dtype=DType.INT64, name="iteration")
        last = Value(dtype=DType.BOOL, name="condition")  # in LiteRT the condition may have an axis
        shape = condition.tensor.shape
        inputs = [g.annotate(iteration, DType.INT64, ()), g.annotate(last, DType.BOOL, shape)]
        body = bodies[0]._replace(inputs=(*inputs, *bodies[0].inputs))
        _require_types(g, "Loop", ys)
        return g.node_outputs("Loop", len(ys), None, condition, *first, body=body)


def _expect_graphs(op: Op, count: int) -> Sequence[Graph]:
    if len(op.graphs) != count or not op.inputs:
        raise OperatorError(
            f"it must have inputs and {count} sub-graphs,"
            f" got {len(op.inputs)} inputs and {len(op.graphs)} sub-graphs"
        )
    return op.graphs


def _require_types(g: Builder, node: str, ys: Sequence[View]) -> None:
    for y in ys:
        g.compute_type(node, y.dtype)


def _expect_same_types(outputs: Sequence[Tensor], tensors: Sequence[Tensor | None]) -> None:
    types = [[t and (t.dtype, t.rank) for t in group] for group in (outputs, tensors)]
    if types[0] != types[1]:
        raise OperatorError(
            "the inputs and outputs of its sub-graphs must have the types and ranks of its outputs"
        )
    for tensor in outputs:
        # Kernels of If and Identity for these types are missing in runtimes.
        if tensor.dtype in _PACKED:
            raise OperatorError(
                f"the operands of its sub-graphs must have 8 bits or more, got {tensor.dtype.label}"
            )


def _find_common_shape(first: OutputShape, other: OutputShape) -> OutputShape:
    """Return the sizes that are equal in two shapes of one rank; other sizes are unknown."""
    return [a if a == b else DataDependentSize() for a, b in zip(first, other, strict=True)]


def _make_frame(tensor: Tensor, *operands: int) -> Frame:
    names = axis_names(tensor.rank)
    return Frame(dict.fromkeys(operands, names), names)


def _copy_tensors(op: Op, sources: Sequence[Tensor]) -> list[Op]:
    return [copy_op(op, x, y) for x, y in zip(sources, op.outputs, strict=True)]

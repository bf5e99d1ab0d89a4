"""What a model file says: operators over tensors, in TFLite's words and in order of execution."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from tflite2onnx.tensor import Array, Shape, Tensor


class Options(Mapping[str, Any]):
    """An operator's options table: the schema's field names in snake_case, as attributes too.

    A custom operator has those of its flexbuffer.

    Of an operator that a pass makes without any options every attribute reads 0. A field that the
    table does not have is our own mistake and raises AttributeError.
    """

    __slots__ = ("_fields",)

    def __init__(self, fields: Mapping[str, Any] | None = None) -> None:
        self._fields = dict(fields or {})

    def __getitem__(self, name: str) -> Any:  # noqa: ANN401 - the schema's fields have any type
        return self._fields[name]

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - the schema's fields have any type
        if name.startswith("_"):
            raise AttributeError(name)
        if not self._fields:
            return 0
        try:
            return self._fields[name]
        except KeyError:
            raise AttributeError(name) from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._fields)

    def __len__(self) -> int:
        return len(self._fields)


@dataclass(frozen=True, eq=False)
class Op:
    """One operator: `code` is its BuiltinOperator name, or the custom code of a custom operator.

    `index` is its place in the file, for messages. Absent optional inputs are None.
    `custom_options` are the bytes behind a custom operator's `options`, for those that keep
    something else than a flexbuffer there. `graphs` are the sub-graphs that control flow runs, put
    there by `inline_subgraphs`, which says in what form. They may read tensors of the graphs around
    them; no tensor is computed, or an input, in two graphs.
    """

    code: str
    index: int
    inputs: tuple[Tensor | None, ...]
    outputs: tuple[Tensor, ...]
    options: Options = field(default_factory=Options)
    custom: bool = False
    custom_options: bytes = b""
    intermediates: tuple[Tensor, ...] = ()
    version: int = 1
    graphs: tuple[Graph, ...] = ()

    @property
    def place(self) -> str:
        """Name the operator for a message."""
        made = self.outputs[0].name if self.outputs else "no output"
        return f"{self.code or 'custom'} (operator {self.index}, {made})"

    @property
    def activation(self) -> str:
        """The activation function that is fused into it, "NONE" if there is none."""
        return str(self.options.get("fused_activation_function", "NONE"))

    @property
    def plan_inputs(self) -> tuple[Tensor | None, ...]:
        """The inputs, then the outputs of the sub-graphs: the layout planner's inputs."""
        return (*self.inputs, *(t for graph in self.graphs for t in graph.outputs))

    @property
    def plan_outputs(self) -> tuple[Tensor, ...]:
        """The outputs, then the inputs of the sub-graphs: the layout planner's outputs."""
        return (*self.outputs, *(t for graph in self.graphs for t in graph.inputs))

    @property
    def subgraph_input_shapes(self) -> list[list[Shape]]:
        """The shapes of the inputs of each sub-graph, as declared."""
        return [[t.shape for t in graph.inputs] for graph in self.graphs]

    def is_builtin(self, *codes: str) -> bool:
        """Return whether this is TFLite's own operator of one of these names."""
        return self.code in codes and not self.custom

    def with_inputs(self, known: Mapping[Tensor, Tensor]) -> Op:
        """Return the operator with other tensors for some of its inputs."""
        if not any(t in known for t in self.inputs):
            return self
        inputs = tuple(t if t is None else known.get(t, t) for t in self.inputs)
        return replace(self, inputs=inputs)


@dataclass(frozen=True, eq=False)
class Graph:
    """One subgraph; `ops` are in order of execution.

    `initial` are the initial values of what lasts from one run to the next: its values are the
    last inputs, and its next values the last outputs, in the same sequence (see `lift_variables`).
    `variables` are their names in the file.
    """

    name: str
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    ops: tuple[Op, ...]
    tensors: tuple[Tensor, ...] = ()
    initial: tuple[Array, ...] = ()
    variables: tuple[str, ...] = ()

    @property
    def own_inputs(self) -> tuple[Tensor, ...]:
        """The inputs but for state."""
        return self.inputs[: len(self.inputs) - len(self.initial)]

    @property
    def own_outputs(self) -> tuple[Tensor, ...]:
        """The outputs but for state."""
        return self.outputs[: len(self.outputs) - len(self.initial)]

    def every_op(self) -> Iterator[Op]:
        """Yield all operators, those of sub-graphs behind the operator that runs them."""
        for op in self.ops:
            yield op
            for graph in op.graphs:
                yield from graph.every_op()

    def every_graph(self) -> Iterator[Graph]:
        """Yield the graph and all sub-graphs within it."""
        yield self
        for graph in (graph for op in self.ops for graph in op.graphs):
            yield from graph.every_graph()

    def replace_tensors(self, known: Mapping[Tensor, Tensor]) -> Graph:
        """Return the graph on other tensors in place of those known, in its sub-graphs too."""

        def replace_known(tensors: Iterable[Tensor]) -> tuple[Tensor, ...]:
            return tuple(known.get(t, t) for t in tensors)

        ops = [
            replace(
                op.with_inputs(known),
                outputs=replace_known(op.outputs),
                graphs=tuple(inner.replace_tensors(known) for inner in op.graphs),
            )
            for op in self.ops
        ]
        return replace(
            self,
            inputs=replace_known(self.inputs),
            outputs=replace_known(self.outputs),
            ops=tuple(ops),
            tensors=replace_known(self.tensors),
        )

    def rewrite(
        self, change: Callable[[Op], Iterable[Op]], known: Mapping[Tensor, Tensor] | None = None
    ) -> Graph:
        """Return the graph with what becomes of each operator in turn, in its sub-graphs too.

        Its outputs are those `known` in place of its own, once all operators are changed.
        """
        known = {} if known is None else known
        ops = []
        for op in (each for old in self.ops for each in change(old)):
            graphs = tuple(graph.rewrite(change, known) for graph in op.graphs)
            ops.append(replace(op, graphs=graphs) if graphs else op)
        outputs = tuple(known.get(t, t) for t in self.outputs)
        return replace(self, ops=tuple(ops), outputs=outputs)


def copy_op(near: Op, source: Tensor, target: Tensor, *, resizes: bool = True) -> Op:
    """Return an operator that copies the elements as they are stored, into any shape.

    What has the same shape keeps it, whatever its open sizes turn out to be, if the target is
    something that `resizes`.
    """
    shape: dict[str, object] = {"new_shape": target.shape}
    if resizes and same_declared_shape(source, target):
        shape["keeps_shape"] = True
    return Op("RESHAPE", near.index, (source,), (target,), Options(shape))


def same_declared_shape(one: Tensor, other: Tensor) -> bool:
    """Return whether two tensors have one shape, but for what the file only guesses of either."""
    guessed = one.dynamic_axes | other.dynamic_axes
    sizes = zip(one.shape, other.shape, strict=False)
    same = (a == b or axis in guessed for axis, (a, b) in enumerate(sizes))
    return one.rank == other.rank and all(same)


def ordering_error(graph: Graph) -> str:
    """Return why the operators cannot run one after another, empty if they can.

    Each tensor is computed once, and before it is read. A variable tensor is state, which is
    there from the start and may be written to by several operators (see `lift_variables`).
    """
    computed = {t: op for op in graph.ops for t in op.outputs if not t.is_variable}
    known = dict.fromkeys(graph.inputs, "an input of the model")
    if len(known) < len(graph.inputs):
        return "one of its tensors is an input twice"
    for op in graph.ops:
        for tensor in op.inputs:
            if tensor in computed and tensor not in known:
                return f"{op.place} reads {tensor.name} before {computed[tensor].place}"
        for tensor in op.outputs:
            taken = known.get(tensor, "" if tensor.data is None else "constant")
            if taken:
                return f"{op.place} computes {tensor.name}, which is {taken}"
            if tensor in computed:
                known[tensor] = f"an output of {computed[tensor].place}"
    return ""


class Signature(NamedTuple):
    """A named entry point: its own names for a subgraph's inputs and outputs."""

    key: str
    subgraph: int
    inputs: Mapping[str, Tensor]
    outputs: Mapping[str, Tensor]


class Model(NamedTuple):
    """A whole file. `metadata` holds raw buffers by name."""

    graphs: tuple[Graph, ...]
    signatures: tuple[Signature, ...]
    metadata: Mapping[str, bytes]
    description: str
    version: int

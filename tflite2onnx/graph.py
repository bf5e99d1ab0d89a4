"""A TFLite model: operators over tensors, with TFLite's names and in order of execution."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

import numpy as np

from tflite2onnx.made_options import KeptOptions, MadeOptions, ReshapeOptions
from tflite2onnx.tensor import Array, DType, Shape, Tensor
from tflite2onnx.utils.console import shorten

T = TypeVar("T")
M = TypeVar("M", bound=MadeOptions)


class Options(Mapping[str, Any]):
    """An operator's options table: the schema's field names in snake_case, as attributes too.

    A custom operator has the fields of its flexbuffer.

    If the table is empty, as in an operator that a pass adds without options, every attribute is 0.
    Otherwise a field that the table lacks raises AttributeError.
    """

    __slots__ = ("_fields",)

    def __init__(self, fields: Mapping[str, Any] | None = None) -> None:
        self._fields = dict(fields or {})

    def __getitem__(self, name: str) -> Any:  # noqa: ANN401 - the schema's fields have any type
        return self._fields[name]

    def get(self, name: str, default: Any = None) -> Any:  # noqa: ANN401
        """Return a field; the method of Mapping would catch a KeyError, which is slow."""
        return self._fields.get(name, default)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - the schema's fields have any type
        if name[0] == "_":
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


@dataclass(frozen=True, eq=False, slots=True)
class Op:
    """One operator: `code` is its BuiltinOperator name, or the custom code of a custom operator.

    `index` is its position in the file, for messages. Absent optional inputs are None.
    `custom_options` are the bytes from which a custom operator's `options` are read; for some
    operators the bytes are not a flexbuffer. `made` are the options of an operator in a form that
    no file has; see `read_made`. `present` are the inputs that are not None. `graphs`
    are the sub-graphs of control flow, in the form that `inline_subgraphs` describes. They may read
    tensors of the enclosing graphs. No tensor is an input or an output of operators in two graphs.
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
    made: MadeOptions | None = None
    present: tuple[Tensor, ...] = field(init=False)

    def __post_init__(self) -> None:
        present = self.inputs
        if None in present:
            present = tuple(t for t in present if t is not None)
        object.__setattr__(self, "present", present)
        if self.made is not None and not self.made.suits(self.code):
            raise TypeError(f"{self.code} must not have {type(self.made).__name__}")

    @property
    def place(self) -> str:
        """The code that the file has, the index and the first output, for messages."""
        return self._describe(self.outputs[0].name if self.outputs else "no output")

    @property
    def short_place(self) -> str:
        """The same for the log: names of fused operators have hundreds of characters."""
        return self._describe(shorten(self.outputs[0].name) if self.outputs else "no output")

    def _describe(self, output: str) -> str:
        code = self.made.name if isinstance(self.made, KeptOptions) else self.code
        return f"{code or 'custom'} (operator {self.index}, {output})"

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """The inputs that are not None, and the outputs."""
        return (*self.present, *self.outputs)

    def operand(self, index: int) -> Tensor:
        """Return an input, or `ABSENT` if the file omits it."""
        return (self.inputs[index] if index < len(self.inputs) else None) or ABSENT

    @property
    def activation(self) -> str:
        """The fused activation function, "NONE" if there is none."""
        return str(self.options.get("fused_activation_function", "NONE"))

    def read_made(self, kind: type[M]) -> M:
        """Return the options of a form that no file has, the default ones for other forms."""
        if isinstance(self.made, kind):
            return self.made
        return kind() if self.made is None else kind(**vars(self.made))

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

    def list_subgraph_indices(self, graphs: int) -> Iterator[int]:
        """Yield the indices of the sub-graphs that the operator runs, of `graphs` in the model."""
        for name, value in self.options.items():
            if "subgraph" in name and not self.custom:
                numbers = map(int, np.ravel(value))
                yield from (i for i in numbers if 0 <= i < graphs)

    def shift_subgraph_indices(self, number: int) -> Op:
        """Return the operator for a model that has its sub-graphs `number` places later."""
        indices = {
            name: np.add(value, np.where(np.less(value, 0), 0, number)).tolist()
            for name, value in self.options.items()
            if "subgraph" in name and not self.custom
        }
        return self.with_options(**indices) if indices else self

    def is_builtin(self, *codes: str) -> bool:
        """Return whether this is a built-in operator with one of these codes."""
        return self.code in codes and not self.custom

    def with_activation(self, activation: str) -> Op:
        """Return the operator with another fused activation function."""
        return self.with_options(fused_activation_function=activation)

    def with_options(self, **changes: object) -> Op:
        """Return the operator with some other options."""
        return replace(self, options=Options({**self.options, **changes}))

    def with_inputs(self, replacements: Mapping[Tensor, Tensor]) -> Op:
        """Return the operator with some of its inputs replaced."""
        if replacements.keys().isdisjoint(self.present):
            return self
        return self.map_inputs(lambda t: replacements.get(t, t))

    def map_inputs(self, change: Callable[[Tensor], Tensor]) -> Op:
        """Return the operator with each present input replaced by the result of a function."""
        inputs = tuple([t if t is None else change(t) for t in self.inputs])
        return self if inputs == self.inputs else replace(self, inputs=inputs)


@dataclass(frozen=True, eq=False)
class Graph:
    """One subgraph; `ops` are in order of execution.

    The last inputs are the state that lasts from one run to the next, and the last outputs are the
    next state, in the same sequence (see `lift_variables`). `initial` are the initial values of the
    state, and `variables` its names in the file. `least_sizes` has the dynamic sizes that must not
    be less than a number, by name.
    """

    name: str
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    ops: tuple[Op, ...]
    tensors: tuple[Tensor, ...] = ()
    initial: tuple[Array, ...] = ()
    variables: tuple[str, ...] = ()
    least_sizes: Mapping[str, int] = field(default_factory=dict)

    def list_subgraph_indices(self, graphs: int) -> Iterator[int]:
        """Yield the indices of the sub-graphs that the operators run, of `graphs` in the model."""
        return (i for op in self.ops for i in op.list_subgraph_indices(graphs))

    @property
    def own_inputs(self) -> tuple[Tensor, ...]:
        """The inputs without the state."""
        return self.inputs[: len(self.inputs) - len(self.initial)]

    @property
    def own_outputs(self) -> tuple[Tensor, ...]:
        """The outputs without the next state."""
        return self.outputs[: len(self.outputs) - len(self.initial)]

    @cached_property
    def codes(self) -> frozenset[str]:
        """The codes of all operators, and of the activations that they apply."""
        return frozenset(code for op in self.walk_ops() for code in (op.code, op.activation))

    @cached_property
    def typed_codes(self) -> frozenset[tuple[str, DType]]:
        """The codes of all operators and of their activations, with the type that they compute."""
        codes = {
            (op.code, op.activation, t.dtype) for op in self.walk_ops() for t in op.outputs[:1]
        }
        return frozenset((code, dtype) for *both, dtype in codes for code in both)

    @cached_property
    def producers(self) -> Producers:
        """The operators by the tensors that they compute, in sub-graphs too."""
        return Producers(self.walk_ops())

    @cached_property
    def readers(self) -> Readers:
        """The operators by the tensors that they read, in sub-graphs too."""
        return Readers(self)

    @cached_property
    def _analyses(self) -> dict[Callable[[Graph], Any], Any]:
        return {}

    def analyze(self, analysis: Callable[[Graph], T]) -> T:
        """Return what a function finds in the graph; it is called once."""
        if analysis not in self._analyses:
            self._analyses[analysis] = analysis(self)
        found: T = self._analyses[analysis]
        return found

    def walk_ops(self) -> Iterator[Op]:
        """Yield all operators; the operators of sub-graphs follow the operator that runs them."""
        for op in self.ops:
            yield op
            for graph in op.graphs:
                yield from graph.walk_ops()

    def walk_graphs(self) -> Iterator[Graph]:
        """Yield the graph and all graphs nested in it."""
        yield self
        for graph in (graph for op in self.ops for graph in op.graphs):
            yield from graph.walk_graphs()

    def walk_tensors(self) -> Iterator[Tensor]:
        """Yield the tensors of the graph and of all operators, some of them several times."""
        yield from (*self.tensors, *self.inputs, *self.outputs)
        for op in self.walk_ops():
            yield from op.tensors

    def walk_outputs(self) -> Iterator[Tensor]:
        """Yield the outputs of the graph and of all graphs nested in it."""
        for graph in self.walk_graphs():
            yield from graph.outputs

    def read_tensors(self) -> set[Tensor]:
        """Return the tensors that operators read, and the outputs of all graphs."""
        inputs = {t for op in self.walk_ops() for t in op.present}
        return inputs.union(self.walk_outputs())

    def replace_tensors(self, replacements: Mapping[Tensor, Tensor]) -> Graph:
        """Return the graph with some tensors replaced, in its sub-graphs too."""

        def replace_in(tensors: Iterable[Tensor]) -> tuple[Tensor, ...]:
            return tuple(replacements.get(t, t) for t in tensors)

        def replace_in_op(op: Op) -> Op:
            if replacements.keys().isdisjoint(op.outputs) and not op.graphs:
                return op.with_inputs(replacements)
            graphs = tuple(inner.replace_tensors(replacements) for inner in op.graphs)
            changed = op.with_inputs(replacements)
            return replace(changed, outputs=replace_in(op.outputs), graphs=graphs)

        return replace(
            self,
            inputs=replace_in(self.inputs),
            outputs=replace_in(self.outputs),
            ops=tuple(map(replace_in_op, self.ops)),
            tensors=replace_in(self.tensors),
        )

    def rewrite(
        self, change: Callable[[Op], Iterable[Op]], known: Mapping[Tensor, Tensor] | None = None
    ) -> Graph:
        """Return the graph with all operators, also in sub-graphs, replaced by `change`.

        Outputs are replaced by `known`, to which `change` may add tensors, after all operators. If
        no operator changes, the graph itself is returned, which keeps its `producers` and
        `readers`.
        """
        known = {} if known is None else known
        ops = []
        for op in (replacement for old in self.ops for replacement in change(old)):
            ops.append(op)
            graphs = op.graphs and tuple(graph.rewrite(change, known) for graph in op.graphs)
            if graphs != op.graphs:
                ops[-1] = replace(op, graphs=graphs)
        outputs = tuple(known.get(t, t) for t in self.outputs)
        if (*ops,) == self.ops and outputs == self.outputs:
            return self
        return replace(self, ops=tuple(ops), outputs=outputs)


def copy_op(origin: Op, source: Tensor, target: Tensor, *, resizes: bool = True) -> Op:
    """Return an operator that copies stored elements to a tensor of any shape.

    If `resizes` is set and both tensors have the same rank, the target has the source's shape at
    run time, whatever sizes the file declares. Messages name the operator `origin`.
    """
    made = ReshapeOptions(keeps_shape=True) if resizes and source.rank == target.rank else None
    shape = Options({"new_shape": target.shape})
    return Op("RESHAPE", origin.index, (source,), (target,), shape, made=made)


def sort_ops(ops: Sequence[Op]) -> tuple[Op, ...]:
    """Return operators in order of execution, which changes as little as possible."""
    producers, done = Producers(ops), dict[Op, None]()
    for op in ops:
        waiting = [op]
        while waiting:
            needed = [producers[t] for t in waiting[-1].present if t in producers]
            missing = [each for each in needed if each not in done]
            if missing:
                waiting += missing
            else:
                done.setdefault(waiting.pop())
    return tuple(done)


def explain_order(graph: Graph) -> str:
    """Return why the operators cannot run one after another, empty if they can.

    Each tensor must be computed once, before it is read. A variable tensor is state: it has a value
    from the start, and several operators may write to it (see `lift_variables`).
    """
    computed = {t: op for op in graph.ops for t in op.outputs if not t.is_variable}
    sources = dict.fromkeys(graph.inputs, "an input of the model")
    if len(sources) < len(graph.inputs):
        return "its inputs must be different tensors"
    for op in graph.ops:
        for tensor in op.inputs:
            if tensor in computed and tensor not in sources:
                return f"{op.place} reads {tensor.name} before {computed[tensor].place} computes it"
        for tensor in op.outputs:
            source = sources.get(tensor, "" if tensor.data is None else "constant")
            if source:
                return f"{op.place} computes {tensor.name}, which is {source}"
            if tensor in computed:
                sources[tensor] = f"an output of {computed[tensor].place}"
    return ""


class Signature(NamedTuple):
    """A named entry point, with names for the inputs and outputs of a subgraph."""

    key: str
    subgraph: int
    inputs: Mapping[str, Tensor]
    outputs: Mapping[str, Tensor]


class Model(NamedTuple):
    """A whole file; `metadata` has raw buffers by name."""

    graphs: tuple[Graph, ...]
    signatures: tuple[Signature, ...]
    metadata: Mapping[str, bytes]
    description: str
    version: int


# The tensor or operator that patterns read for an input that the file omits, or for an operator
# that does not exist. Both have no code, no type, no axes and no elements, so that no condition
# holds for them.
ABSENT = Tensor("", (), DType.VARIANT)
NO_OP = Op("", -1, (), ())
NO_GRAPH = Graph("", (), (), ())


class Producers(dict[Tensor, Op]):
    """The operators by the tensors that they compute."""

    def __init__(self, ops: Iterable[Op]) -> None:
        super().__init__({tensor: op for op in ops for tensor in op.outputs})

    def find(self, tensor: Tensor) -> Op:
        """Return the operator that computes a tensor, `NO_OP` if none does."""
        return self.get(tensor, NO_OP)

    def trace(self, tensor: Tensor, *codes: str) -> Tensor:
        """Return a tensor before all operators of some codes, which read it first."""
        while (op := self.find(tensor)).is_builtin(*codes):
            tensor = op.operand(0)
        return tensor

    def walk_back(self, *tensors: Tensor) -> Iterator[Tensor]:
        """Yield tensors, and all tensors of which they are computed, each once."""
        waiting, seen = list(tensors), set[Tensor]()
        while waiting:
            tensor = waiting.pop()
            if tensor not in seen:
                seen.add(tensor)
                yield tensor
                waiting += self.find(tensor).present


class Readers:
    """The operators that read each tensor, in a graph and in its sub-graphs."""

    def __init__(self, graph: Graph) -> None:
        self._ops: dict[Tensor, list[Op]] = {}
        for op in graph.walk_ops():
            for tensor in dict.fromkeys(op.present):
                self._ops.setdefault(tensor, []).append(op)
        self._outputs = {*graph.walk_outputs()}

    def are_among(self, ops: Collection[Op], tensor: Tensor) -> bool:
        """Return whether only these operators read a tensor, and no graph returns it."""
        return tensor not in self._outputs and all(op in ops for op in self._ops.get(tensor, ()))

    def find_only_reader(self, tensor: Tensor) -> Op:
        """Return the only operator that reads a tensor.

        Returns `NO_OP` if there are several or none, or if the tensor is the output of a graph.
        """
        ops = self._ops.get(tensor, ())
        return ops[0] if len(ops) == 1 and tensor not in self._outputs else NO_OP

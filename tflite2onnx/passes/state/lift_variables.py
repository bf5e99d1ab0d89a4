"""Make variables inputs and outputs of the graph.

TFLite has two kinds of variables. A *resource* has a name: VAR_HANDLE refers to it, ASSIGN_VARIABLE
sets it, READ_VARIABLE reads it, and CALL_ONCE runs a sub-graph before the first run that sets
initial values. A *variable tensor* (`is_variable`) keeps its elements; operators such as SVDF and
LSTM write to it although it is one of their inputs.

The pass walks over the operators in order of execution, and keeps the tensor that holds the current
value of each variable. Readers get this tensor; writers make a new tensor.

1. A variable that is written to, and read in a later run, is a state: its first value is an input
   of the graph and its last value is an output. A state that no output depends on is dropped.
2. A variable that nothing writes to is a constant.
3. Variable tensors of sub-graphs are cleared each time the sub-graph runs. A variable tensor that
   an operator of the sub-graph computes before it is read is no state.
4. An operator that writes to its variable inputs gets one more output for each variable input, in
   the same order: the next value. If two of the inputs are one variable, the option
   `shared_state` is set.
5. Internal memory of an operator is a variable input as well (see `lift_kernel_memory`).
6. A variable tensor may be an output of an operator (the `initial_state` of a Keras layer). The
   operator overwrites it in each run. But LiteRT runs some operators on constants only once. The
   variable of such an operator is a state, and the constant is its initial value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from typing import NamedTuple, TypeAlias

from tflite2onnx.errors import OperatorError, as_unsupported, collect_errors
from tflite2onnx.graph import Graph, Model, Op, copy_op
from tflite2onnx.made_options import RecurrentOptions
from tflite2onnx.op import find_facts
from tflite2onnx.op.control_flow.lowered import RESOURCES
from tflite2onnx.op.facts import Fact
from tflite2onnx.passes.dynamic_shapes import infer_shapes
from tflite2onnx.passes.fold_constants import fold_operators
from tflite2onnx.passes.inline_subgraphs import inline_subgraphs
from tflite2onnx.passes.simplify import eliminate_dead_operators
from tflite2onnx.passes.state.drop_unobserved_states import drop_unobserved_states
from tflite2onnx.passes.state.initial_values import (
    clear_elements,
    compute_once,
    unmark_computed_variables,
)
from tflite2onnx.passes.state.lift_kernel_memory import lift_kernel_memory
from tflite2onnx.tensor import Array, Tensor
from tflite2onnx.utils.unique_names import Names

_MOST_BYTES = 1 << 30  # The largest number of bytes of all initial values that are not in the file.


class Resource(NamedTuple):
    """The variable of a VAR_HANDLE."""

    container: str
    name: str


Variable: TypeAlias = Resource | Tensor


class Use(NamedTuple):
    """A read of a variable and the tensor that it fills, or a write and the tensor that it stores.

    For a variable tensor, `tensor` is the variable.
    """

    variable: Variable
    tensor: Tensor
    writes: bool


def lift_variables(graph: Graph, model: Model, index: int = 0) -> Graph:
    """Return the graph without variables, with its states as inputs and outputs.

    `graph` is the sub-graph `index` of the model after `inline_subgraphs`.

    Raises:
        UnsupportedOperators: a variable is unknown, or a value has another dtype or size.
    """
    graph, memory, goes_on = lift_kernel_memory(graph)
    ops = list(graph.walk_ops())
    variables = (t for op in ops for t in op.tensors if t.is_variable)
    if not any(variables) and not any(op.is_builtin(*RESOURCES) for op in ops):
        return graph
    lasting = memory.union(model.graphs[index].tensors)
    graph = unmark_computed_variables(graph, lasting)
    return _Explicit(model, graph, index, lasting).make_graph(goes_on)


def _writes_to_inputs(op: Op) -> bool:
    return op.custom or Fact.WRITES_INPUTS in find_facts(op)


def _find_handles(ops: Iterable[Op]) -> dict[Tensor, Resource]:
    """Return the resources of the handles; equal names are one variable."""
    return {
        op.outputs[0]: Resource(
            str(op.options.get("container", "")), str(op.options.get("shared_name", ""))
        )
        for op in ops
        if op.is_builtin("VAR_HANDLE") and op.outputs
    }


def _find_variable_uses(
    graph: Graph, around: Mapping[Tensor, Resource] | None = None
) -> Iterator[Use]:
    """Yield the reads and writes of variables in a graph and its sub-graphs.

    `around` are the handles of the outermost graph, if `graph` is a sub-graph.
    """
    handles = _find_handles(graph.walk_ops()) if around is None else around
    for op in graph.walk_ops():
        resource = handles.get(op.operand(0))
        if resource and op.is_builtin("READ_VARIABLE"):
            yield from (Use(resource, t, writes=False) for t in op.outputs)
        elif resource and op.is_builtin("ASSIGN_VARIABLE"):
            yield from (Use(resource, t, writes=True) for t in op.present[1:])
        reads = [t for t in op.present if t.is_variable]
        yield from (Use(t, t, writes=False) for t in reads)
        writes = [*(reads if _writes_to_inputs(op) else ()), *op.outputs]
        yield from (Use(t, t, writes=True) for t in writes if t.is_variable)


class _Walk:
    """A walk over the operators in order of execution.

    `start` returns the tensor that holds a variable at the start; it is called at the first read.
    `goes_on` are bool tensors: whether the run goes on after the operator that computes the tensor.

    Attributes:
        ops: the operators without variables.
        now: the tensors that hold the variables at the end.
        written: the last operators that wrote to the variables.
        known: replacements of tensors.
    """

    def __init__(
        self,
        graph: Graph,
        start: Callable[[Variable], Tensor],
        names: Names,
        around: _Walk | None = None,
        now: Mapping[Variable, Tensor] | None = None,
        goes_on: frozenset[Tensor] = frozenset(),
    ) -> None:
        self._start, self._names = start, names
        handles = around.handles if around else _find_handles(graph.walk_ops())
        self.handles: Mapping[Tensor, Resource] = handles
        self.ops: list[Op] = []
        self.now: dict[Variable, Tensor] = dict(now or {})
        self.written: dict[Variable, Op] = {}
        self.known: dict[Tensor, Tensor] = around.known if around else {}
        steps = {
            "CALL_ONCE": self._check_first_call,
            "READ_VARIABLE": self._read_variable,
            "ASSIGN_VARIABLE": self._assign_variable,
        }
        running: Tensor | None = None
        with collect_errors() as errors:
            for op in graph.ops:
                before = dict(self.now) if running else {}
                with errors.at(_describe_op(op)):
                    (self._add_op if op.custom else steps.get(op.code, self._add_op))(op)
                    if running:
                        self._keep_values_after_end(op, running, before)
                    running = self._combine_goes_on(op, running, goes_on)

    def _check_first_call(self, _: Op) -> None:
        """Raise OperatorError if initial values would replace values that the same run assigned."""
        if any(isinstance(variable, Resource) for variable in self.written):
            raise OperatorError("it must come before the operators that assign to variables")

    def find_current(self, tensor: Tensor) -> Tensor:
        """Return the tensor in place of a tensor; for a variable, of its current value."""
        return self.find_value(tensor) if tensor.is_variable else self.known.get(tensor, tensor)

    def find_value(self, variable: Variable) -> Tensor:
        if variable not in self.now:
            self.now[variable] = self._start(variable)
        return self.now[variable]

    def _write_variable(self, variable: Variable, value: Tensor, op: Op) -> None:
        self.now[variable], self.written[variable] = value, op

    def _find_resource(self, op: Op) -> Resource:
        if op.operand(0) not in self.handles:
            raise OperatorError("its handle must come from a VAR_HANDLE")
        return self.handles[op.operand(0)]

    def _read_variable(self, op: Op) -> None:
        variable, (target,) = self._find_resource(op), op.outputs
        source = self.find_value(variable)
        if not target.shape:  # the file declares no shape, so the shape is that of the value
            self.known[target] = target = replace(target, shape=source.shape)
        if variable not in self.written:
            _check_same(source, target)
        if not source.has_data:
            self.ops.append(copy_op(op, source, target, resizes=not target.shape))
        else:
            self.known[target] = replace(target, data=source.values.reshape(target.shape))

    def _assign_variable(self, op: Op) -> None:
        _, value = op.inputs
        if not value:
            raise OperatorError("input 1 is missing")
        self._write_variable(self._find_resource(op), self.find_current(value), op)

    def _add_op(self, op: Op) -> None:
        changed = op.map_inputs(self.find_current)
        variables = [t for t in op.present if t.is_variable]
        outputs = [self._make_written_tensor(t, op) if t.is_variable else t for t in op.outputs]
        if _writes_to_inputs(op):
            outputs += [self._make_written_tensor(t, op) for t in variables]
            if len({*variables}) < len(variables):
                op = replace(op, made=RecurrentOptions(shared_state=True))
        op = replace(op, inputs=changed.inputs, outputs=tuple(outputs))
        self.ops.append(self._rewrite_control_flow(op) if op.graphs else op)

    def _combine_goes_on(
        self, op: Op, before: Tensor | None, goes_on: frozenset[Tensor]
    ) -> Tensor | None:
        """Return whether the run goes on after `op`, as a bool tensor; None if it always does."""
        runs_on = next((t for t in op.outputs if t in goes_on), None)
        if not runs_on or not before:
            return runs_on or before
        both = replace(runs_on, name=self._names.make_unique(runs_on.name))
        self.ops.append(Op("LOGICAL_AND", op.index, (before, runs_on), (both,)))
        return both

    def _keep_values_after_end(
        self, op: Op, running: Tensor, before: Mapping[Variable, Tensor]
    ) -> None:
        """Keep the old values of variables that `op` wrote, if the run has ended before it."""
        for variable, value in list(self.now.items()):
            if variable in self.written and value is not before.get(variable):
                old = before[variable] if variable in before else self._start(variable)
                new = self._make_tensor_like(variable, old, "new")
                selected = self._make_tensor_like(variable, old, "held")
                self.ops.append(copy_op(op, value, new, resizes=False))
                self.ops.append(Op("SELECT_V2", op.index, (running, new, old), (selected,)))
                self.now[variable] = selected

    def _rewrite_control_flow(self, op: Op) -> Op:
        """Return control flow with the variables that its sub-graphs write as outputs."""
        uses = (use for graph in op.graphs for use in _find_variable_uses(graph, self.handles))
        written = list(dict.fromkeys(use.variable for use in uses if use.writes))
        before = [self.find_value(variable) for variable in written]
        graphs = [
            self._rewrite_subgraph(op, graph, dict(zip(written, before, strict=True)))
            for graph in op.graphs
        ]
        for variable, tensor in zip(written, before, strict=True):
            self._write_variable(variable, self._make_tensor_like(variable, tensor, "after"), op)
        first = before if op.is_builtin("WHILE") else []
        return replace(
            op,
            inputs=(*op.inputs, *first),
            graphs=tuple(graphs),
            outputs=(*op.outputs, *(self.now[variable] for variable in written)),
        )

    def _rewrite_subgraph(self, op: Op, graph: Graph, before: Mapping[Variable, Tensor]) -> Graph:
        """Return a sub-graph with the variables as outputs, and for a loop also as inputs."""
        first = before if op.is_builtin("WHILE") else {}
        before_values = {v: self._make_tensor_like(v, t, "before") for v, t in first.items()}
        inner = _Walk(graph, self.find_value, self._names, self, before_values)
        outputs = [inner.find_current(t) for t in graph.outputs]
        for variable, tensor in before.items():
            source = inner.find_value(variable)
            outputs.append(self._make_tensor_like(variable, tensor, "made"))
            inner.ops.append(copy_op(op, source, outputs[-1], resizes=False))
        inputs = (*graph.inputs, *before_values.values())
        return replace(graph, inputs=inputs, outputs=tuple(outputs), ops=tuple(inner.ops))

    def _make_tensor_like(self, variable: Variable, tensor: Tensor, role: str) -> Tensor:
        """Return a new tensor for a variable, named after the variable to keep names short."""
        name = self._names.make_unique(f"{variable.name or 'variable'}/{role}")
        return replace(tensor, name=name, data=None)

    def _make_written_tensor(self, variable: Tensor, op: Op) -> Tensor:
        value = replace(self._make_tensor_like(variable, variable, "made"), is_variable=False)
        self._write_variable(variable, value, op)
        return self.now[variable]


def _describe_op(op: Op) -> str:
    """Name the operator, with its inputs if it has no outputs."""
    if op.outputs or not op.inputs:
        return op.place
    return f"{op.code} (operator {op.index}, {', '.join(t.name for t in op.inputs if t)})"


def _check_same(source: Tensor, target: Tensor) -> None:
    """Raise OperatorError unless two tensors have the same dtype and number of elements."""
    if (source.elements, source.dtype) != (target.elements, target.dtype):
        declared = [f"{t.dtype.label}{list(t.shape)}" for t in (source, target)]
        raise OperatorError(
            f"{source.name} must be {declared[1]} as the variable, got {declared[0]}"
        )


class _Explicit:
    """The variables of one graph of a model, their initial values, and the graph without them."""

    def __init__(self, model: Model, graph: Graph, index: int, lasting: frozenset[Tensor]) -> None:
        self._model, self._graph, self._index, self._lasting = model, graph, index, lasting
        self._names = Names(t.name for t in graph.tensors)
        self._inputs = {*graph.inputs}
        uses = list(_find_variable_uses(graph))
        self._written = {use.variable for use in uses if use.writes}
        # The tensor of a read defines shape and scale of a variable. A variable without reads has
        # the shape and scale of a write. A read without a declared shape has the
        # shape of the variable.
        uses.sort(key=lambda use: (use.writes, not use.tensor.shape))
        self._like = {use.variable: use.tensor for use in reversed(uses)}
        resources = any(isinstance(variable, Resource) for variable in self._like)
        self._values = _find_initial_values(model, graph) if resources else {}
        once = compute_once(graph)
        self._computed_once: dict[Variable, Array] = {v: once[v] for v in once if v in lasting}
        self._room = _MOST_BYTES
        self._start: dict[Variable, Tensor] = {}
        self._initial: dict[Variable, Array] = {}

    def make_graph(self, goes_on: frozenset[Tensor] = frozenset()) -> Graph:
        """Return the graph without variables; `goes_on` as for the walk."""
        graph = self._graph
        ops = tuple(op for op in graph.ops if self._computed_once.keys().isdisjoint(op.outputs))
        graph = replace(graph, ops=ops)
        walk = _Walk(graph, self._make_initial_tensor, self._names, goes_on=goes_on)
        outputs = tuple(walk.find_current(t) for t in graph.outputs)
        elsewhere = self._find_variables_read_elsewhere()
        lasting = [*self._start, *(v for v in elsewhere if v not in self._start)]
        states = [(v, walk.written[v]) for v in lasting if v in walk.written]
        endpoints = [self._make_state_endpoints(walk, variable, op) for variable, op in states]
        known = [self._start.get(t, walk.known.get(t, t)) for t in graph.tensors]
        listed = {*graph.tensors}
        added = [t for v, t in self._start.items() if v not in listed]
        changed = replace(
            graph,
            inputs=(*graph.inputs, *(before for before, _ in endpoints)),
            outputs=(*outputs, *(after for _, after in endpoints)),
            ops=tuple(walk.ops),
            tensors=(*known, *added),
            initial=tuple(self._initial[variable] for variable, _ in states),
            variables=tuple(_name_variable(variable) for variable, _ in states),
        )
        kept = [i for i, (variable, _) in enumerate(states) if variable in elsewhere]
        return drop_unobserved_states(eliminate_dead_operators(changed), kept)

    def _make_initial_tensor(self, variable: Variable) -> Tensor:
        """Return the tensor of a variable at the start: an input, or a constant if unwritten."""
        if isinstance(variable, Tensor) and variable in self._inputs:
            return variable
        if isinstance(variable, Tensor) and variable not in self._lasting:
            return replace(variable, is_variable=False, data=self._find_initial_elements(variable))
        if variable not in self._start:
            if isinstance(variable, Resource):
                start = self._make_resource(variable)
            else:
                start = replace(variable, is_variable=False, shape_signature=())
            if variable in self._computed_once:
                start = replace(start, data=self._computed_once[variable])
            data = start.values if start.has_data else self._find_initial_elements(start)
            self._initial[variable] = data.astype(start.dtype.numpy, copy=False)
            constant = None if variable in self._written else data
            self._start[variable] = replace(start, data=constant)
        return self._start[variable]

    def _find_initial_elements(self, variable: Tensor) -> Array:
        self._room -= variable.nbytes
        return clear_elements(variable, self._room)

    def _make_resource(self, variable: Resource) -> Tensor:
        like, name = self._like[variable], variable.name or "variable"
        value = self._values.get(variable)
        if not value:
            if variable not in self._assigned_variables:
                raise OperatorError(
                    f"the variable {name} must be assigned a value by an operator, got none"
                )
            value = replace(like, data=None)
        elif not value.has_data or value.values.shape != value.shape:
            raise OperatorError(f"the initial value of {name} must be constant")
        _check_same(replace(value, name=name), replace(like, shape=like.shape or value.shape))
        quantization = like.quantization if like.shape == value.shape else value.quantization
        return Tensor(
            self._names.make_unique(name), value.shape, value.dtype, value.data, quantization
        )

    @cached_property
    def _assigned_variables(self) -> set[Variable]:
        uses = (use for graph in self._model.graphs for use in _find_variable_uses(graph))
        return {use.variable for use in uses if use.writes}

    def _find_variables_read_elsewhere(self) -> list[Variable]:
        others = sorted({s.subgraph for s in self._model.signatures} - {self._index})
        uses = (use for i in others for use in _find_variable_uses(self._model.graphs[i]))
        return list(dict.fromkeys(use.variable for use in uses if not use.writes))

    def _make_state_endpoints(
        self, walk: _Walk, variable: Variable, op: Op
    ) -> tuple[Tensor, Tensor]:
        """Return the input and the output of a state; `op` is the last operator that writes it."""
        with as_unsupported(_describe_op(op)):
            before = self._make_initial_tensor(variable)
        after = replace(before, name=self._names.make_unique(f"{before.name}/next"))
        walk.ops.append(copy_op(op, walk.now[variable], after, resizes=False))
        return before, after


def _name_variable(variable: Variable) -> str:
    """Return the name of a variable, which is the same for all signatures."""
    container = variable.container if isinstance(variable, Resource) else ""
    return f"{container}/{variable.name}" if container else variable.name


def _find_initial_values(model: Model, graph: Graph) -> dict[Resource, Tensor]:
    """Return the values that CALL_ONCE assigns to resources; constants if they can be folded.

    Each sub-graph is called once for all signatures; a signature without a CALL_ONCE relies on the
    CALL_ONCEs of others.
    """
    values: dict[Resource, Tensor] = {}
    called: set[int] = set()
    for inner in (graph, *model.graphs):
        for op in inner.ops:
            if not op.is_builtin("CALL_ONCE"):
                continue
            with as_unsupported(_describe_op(op)):
                index = int(op.options.init_subgraph_index)
                if index not in called:
                    called.add(index)
                    assignments = _find_initial_assignments(model, index, values)
                    for resource, value in assignments.items():
                        if inner is graph or resource not in values:
                            values[resource] = value
    return values


def _find_initial_assignments(
    model: Model, index: int, known: Mapping[Resource, Tensor]
) -> dict[Resource, Tensor]:
    """Return the values that a sub-graph assigns to resources."""

    def start(variable: Variable) -> Tensor:
        if not isinstance(variable, Resource) or variable not in known:
            raise OperatorError("it must read only variables to which an earlier operator assigns")
        return known[variable]

    if not 0 <= index < len(model.graphs):
        raise OperatorError(
            f"the index of a sub-graph must be below {len(model.graphs)}, got {index}"
        )
    graph = inline_subgraphs(model, index)
    walk = _Walk(graph, start, Names(t.name for t in graph.tensors))
    written = {v: walk.now[v] for v in walk.written if isinstance(v, Resource)}
    graph = replace(graph, ops=tuple(walk.ops), outputs=tuple(written.values()))
    folded = fold_operators(infer_shapes(graph))
    return dict(zip(written, folded.outputs, strict=True))

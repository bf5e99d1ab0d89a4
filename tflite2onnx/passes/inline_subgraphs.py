"""Sub-graphs, put where the operators are that run them.

Calls are replaced by the operators of their sub-graph. STABLEHLO_COMPOSITE names what it computes,
and has a sub-graph that says how; CALL has a sub-graph alone.

Control flow keeps sub-graphs (`Op.graphs`), which read what they need from the graphs around them:

- IF has one input, the condition, and two graphs without inputs: then and else.
- STABLEHLO_CASE becomes IFs, each of which halves the branches.
- WHILE has one graph, the body. The operator's inputs are the condition of the first round and the
  first values of the variables, the body's inputs are the variables, and its outputs the condition
  of the next round and their next values. What the file has as a sub-graph of its own, to compute
  the condition, is called in front of the loop and at the end of the body. What the body hands on
  as it is given is no variable: it is read from around.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from tflite2onnx.errors import OperatorError, as_unsupported
from tflite2onnx.graph import Graph, Model, Op, same_declared_shape
from tflite2onnx.op.control_flow.calls import CALLS
from tflite2onnx.passes.rewriter import Rewriter, int32_constant
from tflite2onnx.quantize import same_scale
from tflite2onnx.tensor import DType, Tensor
from tflite2onnx.utils.unique_names import Names

# Sub-graphs that call each other twice make a huge model of a tiny file.
_MOST_OPERATORS = 1 << 16
_MOST_LEVELS = 64
# A protobuf ends at 100 messages within each other, three to each graph.
_MOST_NESTED = 24


class _Place(NamedTuple):
    """Where operators are expanded.

    `levels` are the sub-graphs that are being run, the innermost last; as they become operators
    there are `nested` graphs around these.
    """

    levels: tuple[int, ...]
    nested: int = 0

    def nested_in(self, graphs: int) -> _Place:
        """Return the place within so many graphs more."""
        return self._replace(nested=self.nested + graphs)


def inline_subgraphs(model: Model, index: int = 0) -> Graph:
    """Return a graph of a model, the main one by default, with all that it calls inside.

    Raises:
        UnsupportedOperators: a sub-graph is not there, calls itself, does not have the inputs and
            outputs of the call, or there is too much to call.
    """
    graph = model.graphs[index]
    if not any(runs_graphs(op) for op in graph.ops):
        return graph
    inliner = _Inliner(model, graph)
    ops = tuple(inliner.expand_ops(graph, _Place((index,)), {}))
    return replace(graph, ops=ops, tensors=tuple(inliner.tensors))


class _Inliner:
    """Copies operators into one graph; knows all its tensors, whose names differ."""

    def __init__(self, model: Model, graph: Graph) -> None:
        self._graphs = model.graphs
        self._left = _MOST_OPERATORS
        self.tensors = list(graph.tensors)
        self._names = Names(t.name for t in self.tensors)

    def expand_ops(self, graph: Graph, place: _Place, known: Mapping[Tensor, Tensor]) -> list[Op]:
        """Return the operators of a graph on the tensors that are known in place of its own."""
        ops = []
        for op in graph.ops:
            self._left -= 1
            here = replace(
                op,
                inputs=tuple(None if t is None else known.get(t, t) for t in op.inputs),
                outputs=tuple(known.get(t, t) for t in op.outputs),
                intermediates=tuple(known.get(t, t) for t in op.intermediates),
            )
            ops += self._expand_op(here, place) if runs_graphs(op) else [here]
        return ops

    def _expand_op(self, op: Op, place: _Place) -> list[Op]:
        with as_unsupported(op.place):
            return _FORMS[op.code](self, op, place)

    # The forms

    def call(self, op: Op, place: _Place) -> list[Op]:
        callee = int(getattr(op.options, CALLS[op.code]))
        return self._inline_call(op, callee, op.inputs, op.outputs, place)

    def if_(self, op: Op, place: _Place) -> list[Op]:
        options = op.options
        branches = [int(options.then_subgraph_index), int(options.else_subgraph_index)]
        rw = Rewriter(op)
        condition = self._scalar(rw, _input(op, 0, DType.BOOL))
        return [*rw.ops, *self._build_if(op, condition, branches, op.outputs, place)]

    def case(self, op: Op, place: _Place) -> list[Op]:
        branches = [int(index) for index in op.options.branch_subgraph_indices]
        if not branches:
            raise OperatorError("it has no branches")
        rw = Rewriter(op)
        index = self._scalar(rw, _input(op, 0, DType.INT32))
        # What is out of range, on either side, is the last branch.
        negative, last = (
            self._new_tensor("negative", DType.BOOL),
            self._new_tensor("branch", DType.INT32),
        )
        rw.op("LESS", index, int32_constant("number", 0), output=negative)
        rw.op(
            "SELECT_V2", negative, int32_constant("number", len(branches) - 1), index, output=last
        )
        every = range(len(branches))
        return [*rw.ops, *self._select_branch(op, last, every, branches, op.outputs, place)]

    def _select_branch(
        self,
        op: Op,
        index: Tensor,
        among: range,
        branches: Sequence[int],
        outputs: Sequence[Tensor],
        place: _Place,
    ) -> list[Op]:
        """Return the operators that run one of some branches."""
        if len(among) == 1:
            return self._inline_call(op, branches[among[0]], op.inputs[1:], outputs, place)
        middle = len(among) // 2
        rw, lower = Rewriter(op), self._new_tensor("lower", DType.BOOL)
        rw.op("LESS", index, int32_constant("number", among[middle]), output=lower)
        graphs = []
        for half in (among[:middle], among[middle:]):
            made = tuple(self._copy(t) for t in outputs)
            ops = self._select_branch(op, index, half, branches, made, place.nested_in(1))
            graphs.append(Graph(f"{op.code} {half[0]} to {half[-1]}", (), made, tuple(ops)))
        return [*rw.ops, _control(op, "IF", (lower,), outputs, graphs)]

    def _build_if(
        self,
        op: Op,
        condition: Tensor,
        branches: Sequence[int],
        outputs: Sequence[Tensor],
        place: _Place,
    ) -> list[Op]:
        graphs = []
        for branch in branches:
            made = tuple(self._copy(t) for t in self._size_outputs(outputs, branch))
            ops = self._inline_call(op, branch, op.inputs[1:], made, place.nested_in(1))
            graphs.append(Graph(self._graphs[branch].name, (), made, tuple(ops)))
        return [_control(op, "IF", (condition,), outputs, graphs)]

    def _size_outputs(self, outputs: Sequence[Tensor], branch: int) -> Sequence[Tensor]:
        """Return outputs in the sizes that they have in a branch, which may be others."""
        inner = self._graphs[branch].outputs if 0 <= branch < len(self._graphs) else ()
        if [t.rank for t in inner] != [t.rank for t in outputs]:
            return outputs  # which is wrong, as will be said
        return [replace(t, shape=i.shape) for t, i in zip(outputs, inner, strict=True)]

    def while_(self, op: Op, place: _Place) -> list[Op]:
        number = int(op.options.body_subgraph_index)
        body = self._callee(number, op.inputs, op.outputs, place)
        rw = Rewriter(op)
        given = [_input(op, i, t.dtype) for i, t in enumerate(op.outputs)]
        starts, ends = list(given), list(given)
        first, targets = [], []
        for i, (source, target) in enumerate(zip(given, op.outputs, strict=True)):
            if body.outputs[i] is body.inputs[i] and _same_elements(source, body.inputs[i]):
                rw.copy(source, target)
                continue
            targets.append(target)
            like = (
                replace(target, shape=source.shape)
                if same_declared_shape(source, target)
                else target
            )
            first.append(self._reinterpret(rw, source, like))
            starts[i] = self._copy(replace(like, name=body.inputs[i].name))
            ends[i] = self._copy(replace(like, name=body.outputs[i].name))
        if not targets:  # such a loop never begins, or never ends
            return rw.ops
        condition = int(op.options.cond_subgraph_index)
        begins, goes_on = (self._new_tensor("condition", DType.BOOL) for _ in range(2))
        inside = place.nested_in(1)
        rw.ops += self._inline_call(op, condition, given, [begins], place)
        inner = self._inline_call(op, number, starts, ends, inside)
        inner += self._inline_call(op, condition, ends, [goes_on], inside)
        before = tuple(t for t in starts if t not in given)
        after = tuple(t for t in ends if t not in given)
        graph = Graph(body.name, before, (goes_on, *after), tuple(inner))
        return [*rw.ops, _control(op, "WHILE", (begins, *first), targets, [graph])]

    # What the forms are made of

    def _inline_call(
        self,
        op: Op,
        index: int,
        given: Sequence[Tensor | None],
        made: Sequence[Tensor],
        place: _Place,
    ) -> list[Op]:
        """Return the operators with which a sub-graph makes some tensors of others.

        Constants are the sub-graph's own, however often it is run. Variable tensors begin anew, as
        the kernels release their memory.
        """
        callee = self._callee(index, given, made, place)
        rw = Rewriter(op)
        known: dict[Tensor, Tensor] = {}
        for outer, inner in zip(given, callee.inputs, strict=True):
            if outer is not None:
                known[inner] = self._reinterpret(rw, outer, inner)
        computed = {t for each in callee.ops for t in each.outputs if not t.is_variable}
        own = dict(zip(callee.outputs, made, strict=True))
        for tensor in callee.tensors:
            if tensor in computed and tensor in own and _same_elements(tensor, own[tensor]):
                known[tensor] = own[tensor]
            elif tensor in computed or (tensor.is_variable and tensor not in known):
                known[tensor] = self._copy(tensor)
        rw.ops += self.expand_ops(callee, place._replace(levels=(*place.levels, index)), known)
        for inner, outer in zip(callee.outputs, made, strict=True):
            source = known.get(inner, inner)
            if source is not outer:
                rw.copy(source, outer)
        return rw.ops

    def _callee(
        self, index: int, given: Sequence[Tensor | None], made: Sequence[Tensor], place: _Place
    ) -> Graph:
        message = ""
        if not 0 <= index < len(self._graphs):
            message = f"there is no sub-graph {index}"
        elif index in place.levels:
            message = f"sub-graph {index} calls itself"
        elif len(place.levels) >= _MOST_LEVELS:
            message = f"calls are nested more than {_MOST_LEVELS} deep"
        elif place.nested > _MOST_NESTED:
            message = f"control flow is nested more than {_MOST_NESTED} deep"
        elif self._left < 0:
            message = f"the model has more than {_MOST_OPERATORS} operators with all that it calls"
        else:
            _check_operands("inputs", given, self._graphs[index].inputs)
            _check_operands("outputs", made, self._graphs[index].outputs)
        if message:
            raise OperatorError(message)
        return self._graphs[index]

    def _reinterpret(self, rw: Rewriter, source: Tensor, like: Tensor) -> Tensor:
        """Return a tensor whose stored elements are read as those of another are."""
        if _same_elements(source, like):
            return source
        return rw.copy(source, self._copy(like))

    def _scalar(self, rw: Rewriter, tensor: Tensor) -> Tensor:
        """Return the one element of a tensor without axes."""
        return self._reinterpret(rw, tensor, Tensor(tensor.name, (), tensor.dtype))

    def _new_tensor(self, name: str, dtype: DType) -> Tensor:
        return self._copy(Tensor(name, (), dtype))

    def _copy(self, tensor: Tensor) -> Tensor:
        self.tensors.append(replace(tensor, name=self._names.make_unique(tensor.name)))
        return self.tensors[-1]


_FORMS: Mapping[str, Callable[[_Inliner, Op, _Place], list[Op]]] = {
    **dict.fromkeys(CALLS, _Inliner.call),
    "IF": _Inliner.if_,
    "STABLEHLO_CASE": _Inliner.case,
    "WHILE": _Inliner.while_,
}


def runs_graphs(op: Op) -> bool:
    """Return whether an operator runs sub-graphs."""
    return op.is_builtin(*_FORMS)


def _check_operands(kind: str, given: Sequence[Tensor | None], callee: Sequence[Tensor]) -> None:
    """Raise OperatorError unless a call has the inputs, or the outputs, of its sub-graph."""
    if len(given) != len(callee):
        raise OperatorError(f"it has {len(given)} {kind} and its sub-graph {len(callee)}")
    for outer, inner in zip(given, callee, strict=True):
        if outer is None or (outer.dtype is inner.dtype and same_declared_shape(outer, inner)):
            continue
        # [1] is as good as a scalar.
        if (outer.elements, inner.elements, outer.dtype) != (1, 1, inner.dtype):
            pair = (f"{t.name}, which is {t.dtype.label}{list(t.shape)}" for t in (inner, outer))
            raise OperatorError(f"its sub-graph has {', for '.join(pair)}")


def _input(op: Op, index: int, dtype: DType) -> Tensor:
    """Return an input that has to be there, and of a type."""
    found = op.inputs[index] if index < len(op.inputs) else None
    if found is None or found.dtype is not dtype:
        raise OperatorError(f"input {index} is no tensor of type {dtype.label}")
    return found


def _same_elements(outer: Tensor, inner: Tensor) -> bool:
    """Return whether the elements of two tensors of one type stand for the same, in one shape."""
    return same_declared_shape(outer, inner) and same_scale(outer, inner)


def _control(
    op: Op, code: str, inputs: Sequence[Tensor], outputs: Sequence[Tensor], graphs: Sequence[Graph]
) -> Op:
    return Op(code, op.index, tuple(inputs), tuple(outputs), graphs=tuple(graphs))

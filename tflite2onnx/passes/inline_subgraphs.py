"""Put the operators of sub-graphs in place of the operators that run the sub-graphs.

1. CALL and STABLEHLO_COMPOSITE become the operators of their sub-graph.
2. IF has one input, the condition, and two graphs without inputs: then and else (`Op.graphs`).
3. STABLEHLO_CASE becomes nested IFs, each of which halves the branches. An index out of range
   selects the last branch, as in the kernel.
4. WHILE has one graph, the body. The inputs of the operator are the condition of the first
   iteration and the first values of the variables. The inputs of the body are the variables; its
   outputs are the condition of the next iteration and the next values. The sub-graph that computes
   the condition is inlined before the loop and at the end of the body. A variable that the body
   returns unchanged is removed: the body reads it from the graph around it.

The graphs of control flow may read tensors of the graphs around them.

The kernels resize the tensors of a sub-graph to the operands of the call (CopyTensorsShapeAndType),
so the shapes that the sub-graph declares are not read: `infer_shapes` computes them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from tflite2onnx.errors import OperatorError, as_unsupported
from tflite2onnx.graph import Graph, Model, Op
from tflite2onnx.op.control_flow.lowered import CALLS
from tflite2onnx.passes.patterns.repair_attention import ATTENTION, repair_attention
from tflite2onnx.passes.rewriter import Rewriter, make_int32
from tflite2onnx.quantization.storage import same_scale
from tflite2onnx.tensor import DType, Tensor
from tflite2onnx.utils.unique_names import Names

# The largest number of operators of a graph. In a tiny file, sub-graphs that each call the next one
# twice would make a huge graph.
_MOST_OPERATORS = 1 << 16
_MOST_LEVELS = 64
# The largest number of nested graphs. Protobuf allows 100 nested messages, and each ONNX graph
# nests three.
_MOST_NESTED = 24


class _CallSite(NamedTuple):
    """The place at which operators are expanded.

    `levels` are the indices of the sub-graphs that are being inlined, the innermost last. `nested`
    is the number of control flow graphs around the operators.
    """

    levels: tuple[int, ...]
    nested: int = 0

    @property
    def nested_place(self) -> _CallSite:
        """The place inside of one more nested graph."""
        return self._replace(nested=self.nested + 1)


def inline_subgraphs(model: Model, index: int = 0) -> Graph:
    """Return a graph of a model, by default the main graph, with its calls inlined.

    Raises:
        UnsupportedOperators: a sub-graph does not exist, calls itself, or does not have the inputs
            and outputs of the call; or calls are nested too deep, or make too many operators.
    """
    graph = model.graphs[index]
    if not any(runs_graphs(op) for op in graph.ops):
        return graph
    inliner = _Inliner(model, graph)
    ops = tuple(inliner.expand_ops(graph, _CallSite((index,)), {}))
    return replace(graph, ops=ops, tensors=tuple(inliner.tensors))


class _Inliner:
    """Copies operators into one graph.

    `tensors` are the tensors of the graph, with unique names.
    """

    def __init__(self, model: Model, graph: Graph) -> None:
        self._graphs = model.graphs
        self._left = _MOST_OPERATORS
        self.tensors = list(graph.tensors)
        self._names = Names(t.name for t in self.tensors)

    def expand_ops(
        self, graph: Graph, place: _CallSite, known: Mapping[Tensor, Tensor]
    ) -> list[Op]:
        """Return the operators of a graph, sub-graphs inlined and tensors replaced by `known`."""
        ops = []
        for op in graph.ops:
            self._left -= 1
            renamed = replace(
                op.with_inputs(known),
                outputs=tuple(known.get(t, t) for t in op.outputs),
                intermediates=tuple(known.get(t, t) for t in op.intermediates),
            )
            if runs_graphs(op):
                with as_unsupported(op.place):
                    ops += _FORMS[op.code](self, renamed, place)
            else:
                ops.append(renamed)
        return ops

    # The operators that run sub-graphs

    def call(self, op: Op, place: _CallSite) -> list[Op]:
        callee = int(getattr(op.options, CALLS[op.code]))
        if callee < 0:  # the default of the file's format
            name = op.options.get("name") or "it"
            raise OperatorError(f"{name} must have a sub-graph that computes it, got none")
        return self._inline_call(op, callee, op.inputs, op.outputs, place)

    def inline_if(self, op: Op, place: _CallSite) -> list[Op]:
        condition = _find_input(op, 0, DType.BOOL)
        graphs = []
        for branch in (int(op.options.then_subgraph_index), int(op.options.else_subgraph_index)):
            results = self._copy_results(self._size_outputs(op.outputs, branch))
            ops = self._inline_call(op, branch, op.inputs[1:], results, place.nested_place)
            graphs.append(Graph(self._graphs[branch].name, (), results, tuple(ops)))
        return [_make_control(op, "IF", (condition,), op.outputs, graphs)]

    def inline_case(self, op: Op, place: _CallSite) -> list[Op]:
        branches = [int(index) for index in op.options.branch_subgraph_indices]
        if not branches:
            raise OperatorError("it must have branches, got none")
        rw, index = Rewriter(op), _find_input(op, 0, DType.INT32)
        negative = self._add_tensor("negative", DType.BOOL)
        last = self._add_tensor("branch", DType.INT32)
        rw.op("LESS", index, make_int32("number", 0), output=negative)
        highest = make_int32("number", len(branches) - 1)
        rw.op("SELECT_V2", negative, highest, index, output=last)
        indices = range(len(branches))
        return [*rw.ops, *self._select_branch(op, last, indices, branches, op.outputs, place)]

    def _select_branch(
        self,
        op: Op,
        index: Tensor,
        among: range,
        branches: Sequence[int],
        outputs: Sequence[Tensor],
        place: _CallSite,
    ) -> list[Op]:
        """Return the operators that run one of the branches `among`, by nested IFs."""
        if len(among) == 1:
            return self._inline_call(op, branches[among[0]], op.inputs[1:], outputs, place)
        middle = len(among) // 2
        rw, lower = Rewriter(op), self._add_tensor("lower", DType.BOOL)
        rw.op("LESS", index, make_int32("number", among[middle]), output=lower)
        graphs = []
        for half in (among[:middle], among[middle:]):
            results = self._copy_results(outputs)
            ops = self._select_branch(op, index, half, branches, results, place.nested_place)
            graphs.append(Graph(f"{op.code} {half[0]} to {half[-1]}", (), results, tuple(ops)))
        return [*rw.ops, _make_control(op, "IF", (lower,), outputs, graphs)]

    def _size_outputs(self, outputs: Sequence[Tensor], branch: int) -> Sequence[Tensor]:
        """Return outputs with the sizes of a branch; the sizes of branches may differ."""
        inner = self._graphs[branch].outputs if 0 <= branch < len(self._graphs) else ()
        if [t.rank for t in inner] != [t.rank for t in outputs]:
            return outputs  # `_find_callee` raises the error
        return [replace(t, shape=i.shape) for t, i in zip(outputs, inner, strict=True)]

    def inline_while(self, op: Op, place: _CallSite) -> list[Op]:
        number = int(op.options.body_subgraph_index)
        body = self._find_callee(number, op.inputs, op.outputs, place)
        rw = Rewriter(op)
        inputs = [_find_input(op, i, t.dtype) for i, t in enumerate(op.outputs)]
        starts, ends = list(inputs), list(inputs)
        first, targets = [], []
        for i, (source, target) in enumerate(zip(inputs, op.outputs, strict=True)):
            if body.outputs[i] is body.inputs[i] and same_scale(source, body.inputs[i]):
                rw.copy(source, target)
                continue
            targets.append(target)
            # Tensors inside the loop are no states, even if the output is a variable.
            like = _with_shape(replace(target, is_variable=False), source)
            first.append(self._reinterpret(rw, source, like))
            starts[i] = self._copy_tensor(replace(like, name=body.inputs[i].name))
            ends[i] = self._copy_tensor(replace(like, name=body.outputs[i].name))
        if not targets:  # no tensor changes: the loop never begins, or never ends
            return rw.ops
        condition = int(op.options.cond_subgraph_index)
        begins, goes_on = (self._add_tensor("condition", DType.BOOL) for _ in range(2))
        rw.ops += self._inline_call(op, condition, inputs, [begins], place)
        inner = self._inline_call(op, number, starts, ends, place.nested_place)
        inner += self._inline_call(op, condition, ends, [goes_on], place.nested_place)
        before = tuple(t for t in starts if t not in inputs)
        after = tuple(t for t in ends if t not in inputs)
        graph = Graph(body.name, before, (goes_on, *after), tuple(inner))
        return [*rw.ops, _make_control(op, "WHILE", (begins, *first), targets, [graph])]

    # Their parts

    def _inline_call(
        self,
        op: Op,
        index: int,
        inputs: Sequence[Tensor | None],
        outputs: Sequence[Tensor],
        place: _CallSite,
    ) -> list[Op]:
        """Return the operators of a sub-graph that compute `outputs` from `inputs`.

        Calls of one sub-graph share its constants. Variable tensors are cleared for each call,
        because the kernels release their memory.
        """
        callee = self._find_callee(index, inputs, outputs, place)
        if op.options.get("name") == ATTENTION:
            callee = repair_attention(callee)
        rw = Rewriter(op)
        known: dict[Tensor, Tensor] = {}
        for outer, inner in zip(inputs, callee.inputs, strict=True):
            if outer is not None:
                known[inner] = self._reinterpret(rw, outer, inner)
        computed = {t for op_inside in callee.ops for t in op_inside.outputs if not t.is_variable}
        results = dict(zip(callee.outputs, outputs, strict=True))
        for tensor in callee.tensors:
            if tensor in computed and tensor in results and same_scale(tensor, results[tensor]):
                known[tensor] = results[tensor]
            elif tensor in computed or (tensor.is_variable and tensor not in known):
                known[tensor] = self._copy_tensor(tensor)
        rw.ops += self.expand_ops(callee, place._replace(levels=(*place.levels, index)), known)
        for inner, outer in zip(callee.outputs, outputs, strict=True):
            source = known.get(inner, inner)
            if source is not outer:
                rw.copy(source, outer)
        return rw.ops

    def _find_callee(
        self,
        index: int,
        inputs: Sequence[Tensor | None],
        outputs: Sequence[Tensor],
        place: _CallSite,
    ) -> Graph:
        message = ""
        if not 0 <= index < len(self._graphs):
            message = f"the index of a sub-graph must be below {len(self._graphs)}, got {index}"
        elif index in place.levels:
            message = f"sub-graph {index} must not call itself"
        elif len(place.levels) >= _MOST_LEVELS:
            message = f"calls must be nested at most {_MOST_LEVELS} deep"
        elif place.nested > _MOST_NESTED:
            message = f"control flow must be nested at most {_MOST_NESTED} deep"
        elif self._left < 0:
            message = (
                f"the model must have at most {_MOST_OPERATORS} operators with all that it calls"
            )
        else:
            _check_operands("inputs", inputs, self._graphs[index].inputs)
            _check_operands("outputs", outputs, self._graphs[index].outputs)
        if message:
            raise OperatorError(message)
        return self._graphs[index]

    def _reinterpret(self, rw: Rewriter, source: Tensor, reference: Tensor) -> Tensor:
        """Return a tensor with the same stored elements and the scale of `reference`."""
        if same_scale(source, reference):
            return source
        return rw.copy(source, self._copy_tensor(_with_shape(reference, source)))

    def _add_tensor(self, name: str, dtype: DType) -> Tensor:
        return self._copy_tensor(Tensor(name, (), dtype))

    def _copy_results(self, outputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Return tensors for the results of a branch, which are not variables."""
        return tuple(self._copy_tensor(replace(t, is_variable=False)) for t in outputs)

    def _copy_tensor(self, tensor: Tensor) -> Tensor:
        self.tensors.append(replace(tensor, name=self._names.make_unique(tensor.name)))
        return self.tensors[-1]


_FORMS: Mapping[str, Callable[[_Inliner, Op, _CallSite], list[Op]]] = {
    **dict.fromkeys(CALLS, _Inliner.call),
    "IF": _Inliner.inline_if,
    "STABLEHLO_CASE": _Inliner.inline_case,
    "WHILE": _Inliner.inline_while,
}


def runs_graphs(op: Op) -> bool:
    """Return whether an operator runs sub-graphs."""
    return op.is_builtin(*_FORMS)


def _check_operands(kind: str, operands: Sequence[Tensor | None], callee: Sequence[Tensor]) -> None:
    """Check that a call has as many inputs, or outputs, as its sub-graph, of equal types."""
    if len(operands) != len(callee):
        raise OperatorError(
            f"it must have {len(callee)} {kind} as its sub-graph, got {len(operands)}"
        )
    for outer, inner in zip(operands, callee, strict=True):
        if outer and outer.dtype is not inner.dtype:
            raise OperatorError(
                f"{inner.name} of its sub-graph must be {outer.dtype.label} as {outer.name},"
                f" got {inner.dtype.label}"
            )


def _find_input(op: Op, index: int, dtype: DType) -> Tensor:
    if op.operand(index).dtype is not dtype:
        raise OperatorError(f"input {index} must be a tensor of type {dtype.label}")
    return op.operand(index)


def _with_shape(tensor: Tensor, reference: Tensor) -> Tensor:
    return replace(tensor, shape=reference.shape, shape_signature=reference.shape_signature)


def _make_control(
    op: Op, code: str, inputs: Sequence[Tensor], outputs: Sequence[Tensor], graphs: Sequence[Graph]
) -> Op:
    return Op(code, op.index, tuple(inputs), tuple(outputs), graphs=tuple(graphs))

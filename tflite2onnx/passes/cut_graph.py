"""Cut a graph at inner tensors: keep the operators between new inputs and new outputs.

The cut comes before all other passes, so that operators outside of the part need not be supported.
A state that the part reads is kept: the operators that write the same variable, and all operators
that these need, belong to the part.
"""

from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache

from tflite2onnx.errors import OptionError
from tflite2onnx.graph import Graph, Model, Op
from tflite2onnx.tensor import DType, Tensor
from tflite2onnx.utils.suggestions import suggest_names

_MOST_SUGGESTIONS = 3


def cut_model(
    model: Model, index: int, inputs: Sequence[str] | None, outputs: Sequence[str] | None
) -> Model:
    """Return a model whose sub-graph `index` is cut; its signatures keep the names that remain.

    Raises:
        OptionError: see `cut_graph`.
    """
    graph = cut_graph(model, index, inputs, outputs)
    signatures = tuple(
        signature._replace(
            inputs={name: t for name, t in signature.inputs.items() if t in graph.inputs},
            outputs={name: t for name, t in signature.outputs.items() if t in graph.outputs},
        )
        if signature.subgraph == index
        else signature
        for signature in model.signatures
    )
    graphs = (*model.graphs[:index], graph, *model.graphs[index + 1 :])
    return model._replace(graphs=graphs, signatures=signatures)


def cut_graph(
    model: Model, index: int, inputs: Sequence[str] | None, outputs: Sequence[str] | None
) -> Graph:
    """Return the part of a sub-graph that computes tensors from other tensors, given by name.

    None for `outputs` means the outputs of the sub-graph. None for `inputs` means the sub-graph's
    inputs that the part reads.

    Raises:
        OptionError: a tensor does not exist or cannot be an input or an output; an input is not
            needed; or the outputs need another input.
    """
    graph = model.graphs[index]
    targets = graph.outputs if outputs is None else _find_outputs(model, graph, outputs)
    cut_inputs = () if inputs is None else _find_inputs(model, graph, inputs)
    ops = _select_ops(model, graph, targets, {*cut_inputs})
    inputs_read = {t for op in ops for t in op.inputs} | {*targets}
    needed = tuple(t for t in graph.inputs if t in inputs_read)
    if inputs is not None:
        _check_inputs(ops, cut_inputs, inputs_read, [t for t in needed if not t.is_variable])
        cut_inputs += tuple(t for t in needed if t.is_variable and t not in cut_inputs)
    return replace(graph, inputs=cut_inputs or needed, outputs=targets, ops=ops)


def _find_inputs(model: Model, graph: Graph, names: Sequence[str]) -> tuple[Tensor, ...]:
    cut_tensors = _find_tensors(model, graph, names, "inputs")
    for tensor in cut_tensors:
        if tensor.has_data:
            raise OptionError(
                f"`inputs`: {tensor.name} is a constant; an input must be an input of the model, or"
                " a tensor that an operator computes"
            )
    return cut_tensors


def _find_outputs(model: Model, graph: Graph, names: Sequence[str]) -> tuple[Tensor, ...]:
    cut_tensors = _find_tensors(model, graph, names, "outputs")
    tensors = {*graph.inputs, *(t for op in graph.ops for t in op.outputs)}
    for tensor in cut_tensors:
        if tensor not in tensors and not tensor.has_data:
            raise OptionError(f"`outputs`: no operator computes {tensor.name}")
    return cut_tensors


def _find_tensors(
    model: Model, graph: Graph, names: Sequence[str], option: str
) -> tuple[Tensor, ...]:
    tensors = {t.name: t for t in graph.tensors}
    for name in names:
        if name not in tensors:
            raise OptionError(f"`{option}`: {_describe_missing(model, graph, name)}")
        tensor = tensors[name]
        if tensor.is_variable or tensor.dtype in (DType.RESOURCE, DType.VARIANT):
            reason = "a variable" if tensor.is_variable else f"of type {tensor.dtype.label}"
            raise OptionError(f"`{option}`: {name} is {reason}, at which a model cannot be cut")
    return tuple(tensors[name] for name in names)


def _describe_missing(model: Model, graph: Graph, name: str) -> str:
    for other in model.graphs:
        if other is not graph and any(t.name == name for t in other.tensors):
            return (
                f"{name} is in the sub-graph {other.name or 'without a name'}; a model can be cut"
                " at the tensors of the converted sub-graph only"
            )
    names = [t.name for t in graph.tensors if not t.has_data]
    hint = suggest_names(name, names, _MOST_SUGGESTIONS)
    hint = hint or "; tflite2onnx inspect --graph lists the tensors"
    return f"the model has no tensor {name}{hint}"


def _check_inputs(
    ops: Iterable[Op], cut_inputs: Sequence[Tensor], inputs_read: Collection[Tensor | None],
    needed: Sequence[Tensor],
) -> None:  # fmt: skip
    """Raise OptionError unless `cut_inputs` are exactly the inputs that the operators need.

    `needed` are the inputs of the uncut graph that the operators read.
    """
    names = [t.name for t in needed if t not in cut_inputs]
    if names:
        raise OptionError(
            f"`inputs`: the outputs also need {', '.join(names)}; name every input that is needed,"
            " or fewer outputs"
        )
    for op in ops:
        tensors = [t for t in op.outputs if t in cut_inputs]
        if tensors:
            raise OptionError(
                f"`inputs`: {op.place} computes {tensors[0].name} and another tensor that the"
                " outputs need; name both tensors as inputs, or none of them"
            )
    unread = [t.name for t in cut_inputs if t not in inputs_read]
    if unread:
        raise OptionError(f"`inputs`: no output needs {', '.join(unread)}")


def _select_ops(
    model: Model, graph: Graph, outputs: Iterable[Tensor], cut_inputs: Collection[Tensor]
) -> tuple[Op, ...]:
    """Return the operators that compute `outputs` from `cut_inputs`, in order of execution."""
    states = _list_states(model, graph)
    needed: set[Hashable] = {t for t in outputs if t not in cut_inputs}
    selected: set[Op] = set()
    before = -1
    while before < len(selected):
        before = len(selected)
        for op in reversed(graph.ops):
            made = {*op.outputs, *(states[op] if _writes_state(op) else ())}
            if op not in selected and not needed.isdisjoint(made):
                selected.add(op)
                needed |= {t for t in op.inputs if t not in cut_inputs}
                # An operator without inputs and outputs is CALL_ONCE, which sets variables to their
                # first values.
                needed |= states[op] if op.inputs or op.outputs else set()
    return tuple(op for op in graph.ops if op in selected)


def _writes_state(op: Op) -> bool:
    """Return whether an operator may write a state although nothing reads its outputs."""
    return not op.outputs or any(t.is_variable for t in op.present)


def _list_states(model: Model, graph: Graph) -> Mapping[Op, set[Hashable]]:
    """Return the variables and tables that each operator uses, in its sub-graphs too."""

    @cache
    def list_states_of(index: int) -> Mapping[Op, set[Hashable]]:
        return _list_own_states(model.graphs[index])

    def list_subgraph_states(op: Op) -> set[Hashable]:
        reached = [*op.list_subgraph_indices(len(model.graphs))]
        for index in reached:  # the loop appends to the list
            inner = model.graphs[index].list_subgraph_indices(len(model.graphs))
            reached += [i for i in dict.fromkeys(inner) if i not in reached]
        return {state for i in reached for states in list_states_of(i).values() for state in states}

    return {
        op: {*states, *list_subgraph_states(op)} for op, states in _list_own_states(graph).items()
    }


def _list_own_states(graph: Graph) -> Mapping[Op, set[Hashable]]:
    """Return the variables and tables of each operator: tensors, or operators that make handles."""
    handles: dict[Tensor, Hashable] = {
        t: (op.code, repr(dict(op.options)), op.custom_options)
        for op in graph.ops
        for t in op.outputs
        if t.dtype is DType.RESOURCE
    }
    return {
        op: {handles.get(t, t) for t in op.tensors if t.is_variable or t.dtype is DType.RESOURCE}
        for op in graph.ops
    }

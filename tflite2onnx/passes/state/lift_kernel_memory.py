"""What kernels keep from one run to the next where no tensor of the file says so.

Custom operators for microcontrollers have buffers of their own: the last samples, an estimate of
the noise. Here each is a variable tensor that its operator reads and writes to, as those are that
the file has, and `lift_variables` makes inputs and outputs of all of them.

Some end the run. An ONNX model is always run as a whole, but what is behind such an operator can
leave no trace: whether the run goes on is one more output, and `lift_variables` keeps what
variables hold.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from tflite2onnx.errors import OperatorError, as_unsupported, collect_errors
from tflite2onnx.graph import Graph, Op
from tflite2onnx.op import rules_for
from tflite2onnx.tensor import DType, Tensor
from tflite2onnx.utils.unique_names import Names


class LiftedMemory(NamedTuple):
    """A graph with what operators keep inside as their last inputs, and what of it is new.

    `kept` are these inputs, `goes_on` the last outputs of operators that may end the run.
    """

    graph: Graph
    kept: frozenset[Tensor] = frozenset()
    goes_on: frozenset[Tensor] = frozenset()


def lift_kernel_memory(graph: Graph) -> LiftedMemory:
    """Return the graph with what operators keep inside.

    Only custom operators are asked: TFLite's own keep what they keep in tensors.

    Raises:
        UnsupportedOperators: one of them is within a loop or a branch.
    """
    custom = [op for op in graph.every_op() if op.custom]
    names = Names(t.name for t in graph.tensors) if custom else Names()
    found = {op: _internal_state(op, names) for op in custom}
    kept, goes_on = ([t for each in found.values() for t in each[i]] for i in (0, 1))
    if not (kept or goes_on):
        return LiftedMemory(graph)
    outermost = {*graph.ops}
    with collect_errors() as errors:
        for op in (op for op, each in found.items() if any(each) and op not in outermost):
            with errors.at(op.place):
                raise OperatorError(
                    "it has internal state, which is not supported inside a loop or a branch"
                )
    ops = []
    for op in graph.ops:
        inputs, outputs = found.get(op, ((), ()))
        ops.append(replace(op, inputs=(*op.inputs, *inputs), outputs=(*op.outputs, *outputs)))
    changed = replace(graph, ops=tuple(ops), tensors=(*graph.tensors, *kept, *goes_on))
    # What an output would keep is among that by now.
    made = (t for op, each in found.items() if each[0] for t in op.outputs if t.is_variable)
    changed = changed.replace_tensors({t: replace(t, is_variable=False) for t in made})
    return LiftedMemory(changed, frozenset(kept), frozenset(goes_on))


def _internal_state(op: Op, names: Names) -> tuple[list[Tensor], list[Tensor]]:
    """Return what an operator keeps inside, and a tensor for whether the run goes on behind it."""
    operator = rules_for(op)
    if operator is None:
        return [], []
    with as_unsupported(op.place):
        memory, stops = operator.internal_state(), operator.may_end_run
    kept = [replace(t, name=names.make_unique(t.name), is_variable=True) for t in memory]
    if not stops:
        return kept, []
    return kept, [Tensor(names.make_unique(f"{op.outputs[0].name}/goes on"), (1,), DType.BOOL)]

"""Make memory inside kernels explicit, as variable tensors.

Custom operators for microcontrollers keep buffers inside their kernels: the last samples, or an
estimate of the noise. Each buffer becomes a variable tensor that the operator reads and writes;
`lift_variables` then makes inputs and outputs of it.

Some operators may end the run. An ONNX model always runs to its end, so these operators get one
more output: whether the run goes on. If the run has ended, `lift_variables` keeps the old values of
the variables that later operators write.
"""

from dataclasses import replace
from typing import NamedTuple

from tflite2onnx.errors import OperatorError, as_operator_error, as_unsupported, collect_errors
from tflite2onnx.graph import Graph, Op
from tflite2onnx.op import find_operator
from tflite2onnx.op.base import verify_declared
from tflite2onnx.op.traits import HasInternalState
from tflite2onnx.tensor import DType, Tensor
from tflite2onnx.utils.unique_names import Names


class LiftedMemory(NamedTuple):
    """A graph whose operators have their internal memory as last inputs.

    `states` are these inputs. `goes_on` are the last outputs of operators that may end the run.
    """

    graph: Graph
    states: frozenset[Tensor] = frozenset()
    goes_on: frozenset[Tensor] = frozenset()


def lift_kernel_memory(graph: Graph) -> LiftedMemory:
    """Return the graph with the internal memory of custom operators as inputs.

    Builtin operators keep their state in tensors.

    Raises:
        UnsupportedOperators: an operator with memory is inside a loop or a branch.
    """
    custom = [op for op in graph.walk_ops() if op.custom]
    names = Names(t.name for t in graph.tensors) if custom else Names()
    memory = {op: _make_internal_state(op, names) for op in custom}
    states, goes_on = ([t for state in memory.values() for t in state[i]] for i in (0, 1))
    if not (states or goes_on):
        return LiftedMemory(graph)
    outermost = {*graph.ops}
    with collect_errors() as errors:
        for op in (op for op, state in memory.items() if any(state) and op not in outermost):
            with errors.at(op.place):
                raise OperatorError(
                    "it has internal state, which is not supported inside a loop or a branch"
                )
    ops = []
    for op in graph.ops:
        inputs, outputs = memory.get(op, ((), ()))
        ops.append(replace(op, inputs=(*op.inputs, *inputs), outputs=(*op.outputs, *outputs)))
    changed = replace(graph, ops=tuple(ops), tensors=(*graph.tensors, *states, *goes_on))
    # The inputs now include the memory that the file declares as a variable output.
    variables = (t for op, state in memory.items() if state[0] for t in op.outputs if t.is_variable)
    changed = changed.replace_tensors({t: replace(t, is_variable=False) for t in variables})
    return LiftedMemory(changed, frozenset(states), frozenset(goes_on))


def _make_internal_state(op: Op, names: Names) -> tuple[list[Tensor], list[Tensor]]:
    """Return the memory of an operator, and the bool tensor that says whether the run goes on."""
    operator = find_operator(op)
    if not isinstance(operator, HasInternalState):
        return [], []
    try:
        with as_operator_error():
            verify_declared(operator)
    except OperatorError:  # the conversion raises the error again
        return [], []
    with as_unsupported(op.place):
        memory, stops = operator.internal_state(), operator.may_end_run
    states = [replace(t, name=names.make_unique(t.name), is_variable=True) for t in memory]
    if not stops:
        return states, []
    return states, [Tensor(names.make_unique(f"{op.outputs[0].name}/goes on"), (1,), DType.BOOL)]

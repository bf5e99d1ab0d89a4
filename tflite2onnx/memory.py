"""What kernels keep from one run to the next where no tensor of the file says so.

Custom operators for microcontrollers have buffers of their own: the last samples, an estimate of
the noise. Here each is a variable tensor that its operator reads and writes to, as those are that
the file has, and `state` makes inputs and outputs of all of them.
"""

from __future__ import annotations

from dataclasses import replace

from tflite2onnx.errors import OperatorError, UnsupportedOperators
from tflite2onnx.fold import RulesOf
from tflite2onnx.graph import Graph, Op
from tflite2onnx.names import Names
from tflite2onnx.tensor import Tensor


def remembered(graph: Graph, rules_of: RulesOf) -> tuple[Graph, tuple[Tensor, ...]]:
    """Return the graph with what operators keep inside as their last inputs, and these tensors.

    Only custom operators are asked: TFLite's own keep what they keep in tensors.

    Raises:
        UnsupportedOperators: one of them is within a loop or a branch.
    """
    custom = [op for op in graph.every_op() if op.custom]
    names = Names(t.name for t in graph.tensors) if custom else Names()
    kept = {op: tuple(_named(t, names) for t in _memory(op, rules_of)) for op in custom}
    made = tuple(t for tensors in kept.values() for t in tensors)
    if not made:
        return graph, ()
    inside = [op for op in kept if kept[op] and op not in graph.ops]
    if inside:
        message = "it remembers what it has read, which within a loop or a branch is not supported"
        raise UnsupportedOperators([OperatorError(message).at(op.place) for op in inside])
    ops = (replace(op, inputs=(*op.inputs, *kept.get(op, ()))) for op in graph.ops)
    return replace(graph, ops=tuple(ops), tensors=(*graph.tensors, *made)), made


def _memory(op: Op, rules_of: RulesOf) -> tuple[Tensor, ...]:
    rules = rules_of(op)
    return () if rules is None else tuple(rules.memory())


def _named(tensor: Tensor, names: Names) -> Tensor:
    return replace(tensor, name=names.free(tensor.name), is_variable=True)

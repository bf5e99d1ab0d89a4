"""The driver: operators and a plan in, ONNX nodes out.

It does once what is the same for every operator: fetch inputs in the planned order, apply the
fused activation, put the outputs where the plan has them, and name the operator in an error.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tflite2onnx.builder import Builder, NeedsOpset, Value, View
from tflite2onnx.errors import OperatorError, UnsupportedOperators
from tflite2onnx.graph import Graph
from tflite2onnx.layout import Order, Plan, Site
from tflite2onnx.op.activation import activate
from tflite2onnx.op.base import Operator


def sites(operators: Sequence[Operator]) -> list[Site]:
    """Return the operators of a graph as the planner sees them.

    Raises:
        UnsupportedOperators: some operators cannot be converted; all of them are named.
    """
    found, problems = [], []
    for operator in operators:
        op = operator.op
        try:
            operator.check()
            found.append(Site(op.inputs, op.outputs, tuple(operator.frames())))
        except OperatorError as error:
            problems.append(error.at(op.place))
    if problems:
        raise UnsupportedOperators(problems)
    return found


def emit(graph: Graph, operators: Sequence[Operator], plan: Plan, opset: int) -> Builder:
    """Emit a whole graph; `plan` has the graph's inputs as its first site, its outputs as last."""
    g = Builder(opset)
    for i, tensor in enumerate(graph.inputs):
        g.put(tensor, Value(dtype=tensor.dtype), plan.orders[0][~i])
    for operator, orders in zip(operators, plan.orders[1:-1], strict=True):
        try:
            _emit_operator(g, operator, orders)
        except OperatorError as error:
            raise UnsupportedOperators([error.at(operator.op.place)]) from error
        except NeedsOpset as need:
            raise NeedsOpset(need.version, f"{need.node}, for {operator.op.place},") from None
    return g


def _emit_operator(g: Builder, operator: Operator, orders: Mapping[int, Order]) -> None:
    op = operator.op
    g.scope = op.outputs[0].name if op.outputs else op.code
    inputs = [
        None if t is None else g.view(t, orders[i], operator.letters(i))
        for i, t in enumerate(op.inputs)
    ]
    outputs = tuple(
        View(t, orders[~i], operator.letters(~i)) for i, t in enumerate(op.outputs)
    )
    made = operator.emit(g, outputs if operator.many_outputs else outputs[0], *inputs)
    values = list(made) if operator.many_outputs else [made]
    activation = op.options.get("fused_activation_function", "NONE")
    if activation != "NONE" and operator.fuses_activation:
        values[0] = activate(g, activation, values[0], outputs[0].dtype)
    for view, value in zip(outputs, values, strict=False):
        g.put(view.tensor, value, view.order)

"""The driver: operators and a plan in, ONNX nodes out.

It does once what is the same for every operator: fetch inputs in the planned order, apply the
fused activation, put the outputs where the plan has them, and name the operator in an error.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from inspect import signature
from itertools import count

from tflite2onnx.builder import REAL, Builder, Port, Unshaped, Value, View
from tflite2onnx.errors import OperatorError, UnsupportedOperators, guarded
from tflite2onnx.graph import Graph
from tflite2onnx.layout import Order, Plan, Site
from tflite2onnx.nodes import NeedsOpset, Node
from tflite2onnx.op.activation import fused
from tflite2onnx.op.base import Operator
from tflite2onnx.quantize import Storage, bias_storage, clamp, is_quantized, weight_storage
from tflite2onnx.tensor import DType, Tensor


def sites(operators: Sequence[Operator]) -> list[Site]:
    """Return the operators of a graph as the planner sees them.

    Raises:
        UnsupportedOperators: some operators cannot be converted; all of them are named.
    """
    found, problems = [], []
    for operator in operators:
        try:
            with guarded():
                found.append(_site(operator))
        except OperatorError as error:
            problems.append(error.at(operator.op.place))
    if problems:
        raise UnsupportedOperators(problems)
    return found


def _site(operator: Operator) -> Site:
    op = operator.op
    operator.check()
    if not op.outputs and not operator.many_outputs:
        message = "it has no output"
        raise OperatorError(message)
    try:  # what `emit` takes is what the operator takes
        signature(operator.emit).bind(None, None, *op.inputs)
    except TypeError:
        message = f"it has {len(op.inputs)} inputs, which are too many or too few"
        raise OperatorError(message) from None
    return Site(op.inputs, op.outputs, tuple(operator.frames()))


def prefers_uint8(operators: Sequence[Operator]) -> bool:
    """Return whether int8 activations are better kept as uint8.

    They are where an operator does more with them than to move them: ONNX Runtime has integer
    kernels for uint8 on x86-64. Integers without a scale stay what they are, and where there are
    such, all stay: one operator could move the one into the other.
    """
    int8 = [(t, o) for o in operators for t in o.op.outputs if t.dtype is DType.INT8]
    return all(is_quantized(t) for t, _ in int8) and any(not o.on_integers() for _, o in int8)


@dataclass(frozen=True, eq=False)
class Emitted:
    """A graph in ONNX: nodes over values, and which values are which tensors."""

    nodes: tuple[Node, ...]
    opset: int
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    tensors: tuple[Port, ...]


def emit(graph: Graph, operators: Sequence[Operator], plan: Plan, g: Builder) -> Emitted:
    """Emit a whole graph; `plan` has the graph's inputs as its first site, its outputs as last."""
    inputs = tuple(_input(g, t, plan.orders[0][~i]) for i, t in enumerate(graph.inputs))
    for operator, orders in zip(operators, plan.orders[1:-1], strict=True):
        try:
            with guarded():
                _emit_operator(g, operator, orders)
        except OperatorError as error:
            raise UnsupportedOperators([error.at(operator.op.place)]) from error
        except NeedsOpset as need:
            raise NeedsOpset(need.version, f"{need.node}, for {operator.op.place},") from None
    outputs = _outputs(g, graph, [plan.orders[-1][i] for i in range(len(graph.outputs))])
    tensors = tuple(Port(t.name, v, t, o, g.storage(t).dtype) for t, v, o in g.homes())
    return Emitted(tuple(g.nodes), g.opset, inputs, outputs, tensors)


def _input(g: Builder, tensor: Tensor, order: Order) -> Port:
    """Return an input of the file's type; inside, the tensor may be kept in another."""
    kept, given = g.storage(tensor), g.storage(tensor, weight=True)
    value = Value(dtype=given.dtype)
    inner = value
    if kept.dtype is not given.dtype:
        inner = g.quantize(g.dequantize(value, given, order), kept, order)
    g.put(tensor, inner, order)
    return Port(tensor.name, value, tensor, order, given.dtype)


def _outputs(g: Builder, graph: Graph, orders: Sequence[Order]) -> tuple[Port, ...]:
    """Return the outputs, each of the file's type, with a value and a name of its own."""
    ports: list[Port] = []
    used = {t.name for t in graph.inputs}
    reserved = {t.name for t in graph.outputs}
    taken = {value for t, value, _ in g.homes() if t in graph.inputs}
    for tensor, order in zip(graph.outputs, orders, strict=True):
        kept, given = g.storage(tensor), g.storage(tensor, weight=True)
        value = g.view(tensor, order).value
        if kept.dtype is not given.dtype:
            value = g.quantize(g.dequantize(value, kept, order), given, order)
        elif value in taken or value.data is not None:
            value = g.Identity(value)
        taken.add(value)
        name = _own_name(tensor.name, used, reserved)
        used.add(name)
        ports.append(Port(name, value, tensor, order, given.dtype))
    return tuple(ports)


def _own_name(name: str, used: set[str], reserved: set[str]) -> str:
    """Return an output's name, numbered if an input or an output before it has the same."""
    numbered = (f"{name}_{i}" for i in count(1))
    return name if name not in used else next(n for n in numbered if n not in used | reserved)


def _emit_operator(g: Builder, operator: Operator, orders: Mapping[int, Order]) -> None:
    op = operator.op
    real = g.plain or not operator.on_integers()
    inputs = [
        None if t is None else g.view(
            t, orders[i], operator.letters(i), real=real, kept=_kept(operator, i)
        )
        for i, t in enumerate(op.inputs)
    ]  # fmt: skip
    outputs = tuple(
        _output(g, t, orders[~i], operator.letters(~i), real=real) for i, t in enumerate(op.outputs)
    )
    made = operator.emit(g, outputs if operator.many_outputs else outputs[0], *inputs)
    values = list(made) if operator.many_outputs else [made]
    activation = op.options.get("fused_activation_function", "NONE")
    for i, (view, value) in enumerate(zip(outputs, values, strict=False)):
        applied = activation if i == 0 and operator.fuses_activation else "NONE"
        g.put(view.tensor, _finished(g, view, value, applied), view.order)


def _kept(operator: Operator, operand: int) -> Storage | None:
    """Return how an input is kept that is not kept as activations are: weights and biases."""
    if operator.product is None or operator.input(operand).data is None:
        return None
    data, weights, bias = operator.product
    if operand == weights:
        return weight_storage(operator.input(data), operator.input(weights))
    if operand == bias:
        return bias_storage(*(operator.input(i) for i in operator.product))
    return None


def _output(g: Builder, tensor: Tensor, order: Order, letters: str, *, real: bool) -> View:
    kept = g.storage(tensor)
    return View(tensor, order, REAL if real and kept.quantization else kept, letters)


def _finished(g: Builder, view: View, made: Value | Unshaped, activation: str) -> Value:
    """Apply the fused activation, quantize what was computed as real numbers, give it its shape.

    An activation that the integers' range already implies is left out, and another clamps the
    integers: between the operator and QuantizeLinear either would break the fusion.
    """
    value = made.value if isinstance(made, Unshaped) else made
    kept = g.storage(view.tensor)
    if view.kept is not REAL or kept.quantization is None:
        value = fused(g, activation, value, view.dtype)
    else:
        value = _quantized(g, view, value, activation, kept)
    return g.reshape(value, view.shape) if isinstance(made, Unshaped) else value


def _quantized(g: Builder, view: View, value: Value, activation: str, kept: Storage) -> Value:
    value = g.quantize(value, kept, view.order)
    bounds = clamp(activation, kept)
    if bounds is None:
        return value
    low, high = (g.scalar(b, kept.dtype) for b in bounds)
    return g.carried("Clip", kept.dtype, value, low, high)

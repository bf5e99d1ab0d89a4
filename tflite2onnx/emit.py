"""The driver: operators and a plan in, ONNX nodes out.

It does once what is the same for every operator: fetch inputs in the planned order, apply the
fused activation, put the outputs where the plan has them, and name the operator in an error.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from inspect import signature
from itertools import count
from types import MappingProxyType
from typing import NamedTuple

from tflite2onnx.builder.builder import (
    REAL,
    AlreadyStored,
    Body,
    Builder,
    NeedsReshape,
    Port,
    Value,
    View,
    eliminate_dead_nodes,
)
from tflite2onnx.builder.nodes import NeedsOpset, Node
from tflite2onnx.errors import OperatorError, UnsupportedOperators, as_operator_error
from tflite2onnx.graph import Graph, Op
from tflite2onnx.layout import Order, Plan, Site
from tflite2onnx.op.base import Operator
from tflite2onnx.op.elementwise.activation import apply_fused_activation
from tflite2onnx.quantize import (
    Storage,
    bias_storage,
    clamp,
    decode_constant,
    is_exact_depthwise,
    is_quantized,
    real_bounds,
    weight_storage,
)
from tflite2onnx.tensor import Array, DType, Sizes, Tensor
from tflite2onnx.utils.unique_names import Names


def sites(operators: Sequence[Operator]) -> list[Site]:
    """Return the operators of a graph as the planner sees them.

    Raises:
        UnsupportedOperators: some operators cannot be converted; all of them are named.
    """
    found, problems = [], []
    for operator in operators:
        try:
            with as_operator_error():
                found.append(_site(operator))
        except OperatorError as error:
            problems.append(error.with_place(operator.op.place))
    if problems:
        raise UnsupportedOperators(problems)
    return found


def _site(operator: Operator) -> Site:
    op = operator.op
    operator.check()
    if not op.outputs and not operator.returns_tuple:
        raise OperatorError("it has no output")
    if not _accepts_inputs(type(operator).emit, len(op.inputs) + bool(op.graphs)):
        raise OperatorError(f"it has {len(op.inputs)} inputs, which are too many or too few")
    unscaled = operator.without_scale
    if unscaled is not None and not operator.reads_stored_integers():
        raise OperatorError(f"{unscaled.name} has no scale, where other operands have one")
    return Site(op.plan_inputs, op.plan_outputs, tuple(operator.frames()))


@lru_cache(maxsize=1024)
def _accepts_inputs(emit: Callable[..., object], inputs: int) -> bool:
    """Return whether operators take so many inputs: as many as the `emit` of their class does."""
    try:
        signature(emit).bind(*[None] * (3 + inputs))  # self, the builder, the output
    except TypeError:
        return False
    return True


def prefers_uint8(operators: Sequence[Operator]) -> bool:
    """Return whether int8 activations are better kept as uint8.

    They are where an operator does more with them than to move them: ONNX Runtime has integer
    kernels for uint8 on x86-64. Integers without a scale stay what they are, and where there are
    such, all stay: one operator could move the one into the other.
    """
    int8 = [(t, o) for o in operators for t in o.op.outputs if t.dtype is DType.INT8]
    return all(is_quantized(t) for t, _ in int8) and any(
        not o.reads_stored_integers() for _, o in int8
    )


class Emitted(NamedTuple):
    """A graph in ONNX: nodes over values, which values are which tensors, types and shapes.

    `types` has the values whose type and shape follow from the tensors, which may be all.
    `initial` has the initial values of state as they are stored, in the sequence of the inputs and
    outputs that it is: the last of all; `variables` what the file calls it.
    `open_sizes` has the file's value of each size that is a name.
    """

    nodes: tuple[Node, ...]
    opset: int
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    tensors: tuple[Port, ...]
    types: Mapping[Value, tuple[DType, Sizes]]
    initial: tuple[Array, ...] = ()
    variables: tuple[str, ...] = ()
    open_sizes: Mapping[str, int] = MappingProxyType({})


_Planned = Mapping[Op, tuple[Operator, Mapping[int, Order]]]


def emit(graph: Graph, operators: Sequence[Operator], plan: Plan, g: Builder) -> Emitted:
    """Emit a whole graph; the operators are those of `Graph.every_op`.

    The first site of `plan` is the graph's interface, the others are its operators.
    """
    ends, *orders_inside = plan.orders
    inputs = tuple(_input(g, t, ends[~i]) for i, t in enumerate(graph.inputs))
    pairs = zip(operators, orders_inside, strict=True)
    planned = {operator.op: (operator, orders) for operator, orders in pairs}
    _emit_operators(g, graph, planned)
    outputs = _outputs(g, graph, [ends[i] for i in range(len(graph.outputs))])
    nodes = eliminate_dead_nodes(g.nodes, [port.value for port in outputs])
    states = zip(inputs[len(graph.own_inputs) :], graph.initial, strict=True)
    initial = tuple(_initial(g, port, data) for port, data in states)
    sizes = {s: t.shape[axis] for t, *_ in g.stored_tensors() for axis, s in t.symbols.items()}
    ports = _ports(g)
    return Emitted(nodes, g.opset, inputs, outputs, ports, g.types, initial, graph.variables, sizes)


def _ports(g: Builder) -> tuple[Port, ...]:
    return tuple(Port(t.name, v, t, o, g.storage(t).dtype) for t, v, o in g.stored_tensors())


def _emit_operators(g: Builder, graph: Graph, planned: _Planned) -> None:
    for op in graph.ops:
        operator, orders = planned[op]
        bodies = _bodies(g, operator, orders, planned)
        try:
            with as_operator_error():
                _emit_operator(g, operator, orders, bodies)
        except OperatorError as error:
            raise UnsupportedOperators([error.with_place(op.place)]) from error
        except NeedsOpset as need:
            raise NeedsOpset(need.version, f"{need.node}, for {op.place},") from None


def _bodies(
    g: Builder, operator: Operator, orders: Mapping[int, Order], planned: _Planned
) -> list[Body]:
    """Return the sub-graphs of an operator, which follow its own operands in the plan."""
    read, written = count(len(operator.op.inputs)), count(len(operator.op.outputs))
    bodies = []
    for graph in operator.op.graphs:
        before = [orders[~i] for _, i in zip(graph.inputs, written, strict=False)]
        after = [orders[i] for _, i in zip(graph.outputs, read, strict=False)]
        bodies.append(_body(g.make_nested(), graph, before, after, planned))
    return bodies


def _body(
    g: Builder, graph: Graph, before: Sequence[Order], after: Sequence[Order], planned: _Planned
) -> Body:
    inputs = []
    for tensor, order in zip(graph.inputs, before, strict=True):
        inputs.append(Value(dtype=g.storage(tensor).dtype))
        g.define(tensor, inputs[-1], order)
    _emit_operators(g, graph, planned)
    views = [
        g.view(tensor, order, real=g.float_only)
        for tensor, order in zip(graph.outputs, after, strict=True)
    ]
    outputs = [view.value for view in views]
    # Each has to be a value of its own that a node of this very graph makes.
    own = {value for node in g.nodes for value in node.outputs}
    for i, (view, value) in enumerate(zip(views, outputs, strict=True)):
        if value not in own:
            outputs[i] = g.annotate(g.Identity(value), view.dtype, view.sizes)
        own.discard(value)
    nodes = eliminate_dead_nodes(g.nodes, outputs)
    return Body(graph.name or "body", tuple(inputs), nodes, tuple(outputs), _ports(g))


def _input(g: Builder, tensor: Tensor, order: Order) -> Port:
    """Return an input of the file's type; inside, the tensor may be kept in another."""
    kept, given = g.storage(tensor), g.storage(tensor, weight=True)
    shape = tuple(tensor.sizes[i] for i in order)
    value = g.annotate(Value(dtype=given.dtype), given.dtype, shape)
    g.define(tensor, g.convert(value, given, kept, order), order)
    return Port(tensor.name, value, tensor, order, given.dtype)


def _initial(g: Builder, port: Port, data: Array) -> Array:
    """Return the initial value of an input as the ONNX model stores it."""
    if g.storage(port.tensor, weight=True) is REAL and port.tensor.quantization is not None:
        data = decode_constant(data, port.tensor.quantization)
    return data.transpose(port.order)


def _outputs(g: Builder, graph: Graph, orders: Sequence[Order]) -> tuple[Port, ...]:
    """Return the outputs, each of the file's type, with a value and a name of its own.

    A name is numbered if an input or an output before has it.
    """
    ports: list[Port] = []
    used = {t.name for t in graph.inputs}
    names = Names((*used, *(t.name for t in graph.outputs)))
    given_in = {*graph.inputs}
    taken = {value for t, value, _ in g.stored_tensors() if t in given_in}
    for tensor, order in zip(graph.outputs, orders, strict=True):
        kept, given = g.storage(tensor), g.storage(tensor, weight=True)
        value = g.convert(g.view(tensor, order).value, kept, given, order)
        if value in taken or value.data is not None:
            value = g.Identity(value)
        taken.add(value)
        name = names.make_unique(tensor.name) if tensor.name in used else tensor.name
        used.add(tensor.name)
        ports.append(Port(name, value, tensor, order, given.dtype))
    return tuple(ports)


def _emit_operator(
    g: Builder, operator: Operator, orders: Mapping[int, Order], bodies: Sequence[Body]
) -> None:
    op, real = operator.op, _on_real_numbers(g, operator)
    inputs = [
        None if t is None else _view(g, operator, i, orders[i], real=real)
        for i, t in enumerate(op.inputs)
    ]
    outputs = tuple(_output(g, operator, i, orders[~i], real=real) for i in range(len(op.outputs)))
    given = (bodies, *inputs) if bodies else inputs
    made = operator.emit(g, outputs if operator.returns_tuple else outputs[0], *given)
    values = list(made) if operator.returns_tuple else [made]
    for i, (view, value) in enumerate(zip(outputs, values, strict=False)):
        activation = "NONE" if i else operator.activation
        g.define(view.tensor, _finish_output(g, operator, view, value, activation), view.order)


def _on_real_numbers(g: Builder, operator: Operator) -> bool:
    """Return whether an operator is given quantized operands as real numbers.

    Where these are all there is they can be moved as well, as long as moving an integer from one
    tensor to the next leaves it to stand for the same number.
    """
    if not operator.reads_stored_integers():
        return True
    moved = operator.has_one_scale and operator.matmul_operands is None
    return g.float_only and moved and not operator.computes_on_stored_integers


def _as_filed(operator: Operator) -> bool:
    """Return whether integers have to be those of the file; one without a scale is no other."""
    return operator.computes_on_stored_integers or operator.without_scale is not None


def _view(g: Builder, operator: Operator, i: int, order: Order, *, real: bool) -> View:
    tensor, kept = operator.input(i), _input_storage(g, operator, i)
    if kept is None and not real:
        kept = g.integer_storage(tensor, as_filed=_as_filed(operator))
    elif kept is None and not g.float_only and is_quantized(tensor):
        read = operator.scale_read(i)
        kept = None if read is None else g.integer_storage(replace(tensor, quantization=read))
    return g.view(tensor, order, operator.axis_letters(i), real=real, storage=kept)


def _input_storage(g: Builder, operator: Operator, operand: int) -> Storage | None:
    """Return how an input is kept that is not kept as activations are: weights and biases.

    Within a graph ONNX Runtime (1.31) does not find the weights for a product of float data and
    integers (TransposeDQWeightsForMatMulNBits), and refuses the model: these become real first.
    """
    if operator.matmul_operands is None or operator.input(operand).data is None:
        return None
    data, weights, bias = operator.matmul_operands
    if operand == weights:
        x, w = operator.input(data), operator.input(weights)
        exact = operator.is_depthwise and is_exact_depthwise(w)
        choice = None if g.weights == "auto" and exact else g.weights
        return weight_storage(
            x, w, choice, folds=operator.dequantizes_weights_at_load or g.is_nested
        )
    if operand == bias:
        return bias_storage(*(operator.input(i) for i in operator.matmul_operands))
    return None


def _output(g: Builder, operator: Operator, i: int, order: Order, *, real: bool) -> View:
    tensor = operator.op.outputs[i]
    kept = g.integer_storage(tensor, as_filed=_as_filed(operator))
    return View(
        tensor, order, REAL if real and kept.quantization else kept, operator.axis_letters(~i)
    )


def _finish_output(
    g: Builder,
    operator: Operator,
    view: View,
    made: Value | NeedsReshape | AlreadyStored,
    activation: str,
) -> Value:
    """Apply the fused activation, quantize what was computed as real numbers, give it its shape."""
    if isinstance(made, AlreadyStored):
        return made.value
    value = (
        made.value if isinstance(made, NeedsReshape) else g.annotate(made, view.dtype, view.sizes)
    )
    if g.float_only and view.storage is REAL and is_quantized(view.tensor):
        value = _limit_range(g, operator, view.tensor, value, activation)
    else:
        value = _store_output(g, operator, view, value, activation)
    return g.reshape(value, view.sizes) if isinstance(made, NeedsReshape) else value


def _limit_range(
    g: Builder, operator: Operator, tensor: Tensor, value: Value, activation: str
) -> Value:
    """Return real numbers as far as they are within the range that integers would have.

    Files leave out activations that the range implies: without it a RELU may be missing.
    """
    written = _with_written_scale(g, operator, tensor)
    kept, given = (g.integer_storage(t, as_filed=True) for t in (written, tensor))
    if len(kept.scale) > 1 or (operator.moves_only and activation == "NONE"):
        return apply_fused_activation(g, activation, value, DType.FLOAT32)
    value = g.Clip(
        value, *(g.scalar(n, DType.FLOAT32) for n in real_bounds(activation, given, kept))
    )
    if written is tensor:
        return value
    # The integers stay, and stand for other numbers.
    value = g.Mul(value, g.scalar(given.scale[0] / kept.scale[0], DType.FLOAT32))
    moved = (kept.zero_point - given.zero_point) * given.scale[0]
    return g.Add(value, g.scalar(moved, DType.FLOAT32))


def _store_output(
    g: Builder, operator: Operator, view: View, value: Value, activation: str
) -> Value:
    """Return what an operator makes as it is stored.

    An activation that the integers' range already implies is left out, and another clamps the
    integers: between the operator and QuantizeLinear either would break the fusion.
    """
    kept, home = view.storage, g.storage(view.tensor)
    written = _with_written_scale(g, operator, view.tensor)
    if kept is REAL and (home is not REAL or written is not view.tensor):
        value = g.quantize(value, g.integer_storage(written), view.order)
        kept = g.integer_storage(view.tensor)
    if kept.quantization is None:
        value = apply_fused_activation(g, activation, value, kept.dtype)
    else:
        value = _clamp_integers(g, value, activation, kept)
    return g.convert(value, kept, home, view.order)


def _with_written_scale(g: Builder, operator: Operator, tensor: Tensor) -> Tensor:
    """Return an output with the scale in which the kernel writes it."""
    scale = operator.output_quantization if g.float_only else operator.scale_made
    if scale is None or not is_quantized(tensor) or scale.same_as(tensor.quantization):
        return tensor
    return replace(tensor, quantization=scale)


def _clamp_integers(g: Builder, value: Value, activation: str, kept: Storage) -> Value:
    bounds = clamp(activation, kept)
    if bounds is None:
        return value
    low, high = (g.scalar(b, kept.dtype) for b in bounds)
    return g.in_compute_type("Clip", kept.dtype, value, low, high)

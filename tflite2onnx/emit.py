"""The driver: operators and a plan in, ONNX nodes out.

It does what every operator needs: it fetches inputs in the planned order, applies the fused
activation, stores outputs in the planned order, and names the operator in an error.
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
    """Return the operators of a graph as sites of the layout plan.

    Raises:
        UnsupportedOperators: operators cannot be converted; the error lists all of them.
    """
    operator_sites, problems = [], []
    for operator in operators:
        try:
            with as_operator_error():
                operator_sites.append(_site(operator))
        except OperatorError as error:
            problems.append(error.with_place(operator.op.place))
    if problems:
        raise UnsupportedOperators(problems)
    return operator_sites


def _site(operator: Operator) -> Site:
    op = operator.op
    operator.check()
    handles = (t for t in (*op.inputs, *op.outputs) if t is not None and t.dtype.is_handle)
    if handle := next(handles, None):
        raise OperatorError(f"{handle.name} must hold numbers or text, got {handle.dtype.label}")
    if not op.outputs and not operator.returns_tuple:
        raise OperatorError("it must have an output, got none")
    if not _accepts_inputs(type(operator).emit, len(op.inputs) + bool(op.graphs)):
        raise OperatorError(f"it does not accept {len(op.inputs)} inputs")
    unscaled = operator.without_scale
    if unscaled is not None and not operator.reads_stored_integers():
        raise OperatorError(f"{unscaled.name} must have a scale, because other operands have one")
    return Site(op.plan_inputs, op.plan_outputs, tuple(operator.frames()))


@lru_cache(maxsize=1024)
def _accepts_inputs(emit: Callable[..., object], inputs: int) -> bool:
    """Return whether an operator's `emit` accepts this number of inputs."""
    try:
        signature(emit).bind(*[None] * (3 + inputs))  # self, the builder, the output
    except TypeError:
        return False
    return True


def prefers_uint8(operators: Sequence[Operator]) -> bool:
    """Return whether int8 activations are better stored as uint8.

    This is so if an operator computes with them, because ONNX Runtime has integer kernels for uint8
    on x86-64. If any int8 tensor has no scale, all int8 tensors stay int8: an operator may move
    elements from a tensor without a scale to a tensor with a scale.
    """
    int8 = [(t, o) for o in operators for t in o.op.outputs if t.dtype is DType.INT8]
    return all(is_quantized(t) for t, _ in int8) and any(
        not o.reads_stored_integers() for _, o in int8
    )


class Emitted(NamedTuple):
    """A graph in ONNX: nodes over values, and the tensors that the values hold.

    `types` has the types and shapes of the values that hold tensors. State is the last inputs and
    the last outputs: `initial` has its initial values as ONNX stores them and `variables` its names
    in the file, in the same sequence. `dynamic_sizes` has the file's value of each dynamic size, by
    name.
    """

    nodes: tuple[Node, ...]
    opset: int
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    tensors: tuple[Port, ...]
    types: Mapping[Value, tuple[DType, Sizes]]
    initial: tuple[Array, ...] = ()
    variables: tuple[str, ...] = ()
    dynamic_sizes: Mapping[str, int] = MappingProxyType({})

    def with_letters(self, letters: Mapping[Tensor, str]) -> Emitted:
        """Return the same with the letters of axes, by tensor."""

        def add_letters(ports: Sequence[Port]) -> tuple[Port, ...]:
            return tuple(port._replace(letters=letters.get(port.tensor, "")) for port in ports)

        return self._replace(
            inputs=add_letters(self.inputs),
            outputs=add_letters(self.outputs),
            tensors=add_letters(self.tensors),
        )


_Planned = Mapping[Op, tuple[Operator, Mapping[int, Order]]]


def emit(graph: Graph, operators: Sequence[Operator], plan: Plan, g: Builder) -> Emitted:
    """Emit a whole graph; `operators` are in the sequence of `Graph.every_op`.

    The first site of `plan` is the graph's interface, the others are the operators.

    Raises:
        UnsupportedOperators: an operator cannot be converted.
        NeedsOpset: an operator needs a newer opset than the builder's.
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
    """Return the sub-graphs of an operator; their operands follow its own in the plan."""
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
    # ONNX wants each output to be a different value, computed by a node of this graph.
    own = {value for node in g.nodes for value in node.outputs}
    for i, (view, value) in enumerate(zip(views, outputs, strict=True)):
        if value not in own:
            outputs[i] = g.annotate(g.Identity(value), view.dtype, view.sizes)
        own.discard(value)
    nodes = eliminate_dead_nodes(g.nodes, outputs)
    return Body(graph.name or "body", tuple(inputs), nodes, tuple(outputs), _ports(g))


def _input(g: Builder, tensor: Tensor, order: Order) -> Port:
    """Return an input of the file's type; inside the model the tensor may have another type."""
    inside, in_file = g.storage(tensor), g.storage(tensor, weight=True)
    shape = tuple(tensor.sizes[i] for i in order)
    value = g.annotate(Value(dtype=in_file.dtype), in_file.dtype, shape)
    g.define(tensor, g.convert(value, in_file, inside, order), order)
    return Port(tensor.name, value, tensor, order, in_file.dtype)


def _initial(g: Builder, port: Port, data: Array) -> Array:
    """Return the initial value of a state as the ONNX model stores it."""
    if g.storage(port.tensor, weight=True) is REAL and port.tensor.quantization is not None:
        data = decode_constant(data, port.tensor.quantization)
    return data.transpose(port.order)


def _outputs(g: Builder, graph: Graph, orders: Sequence[Order]) -> tuple[Port, ...]:
    """Return the outputs, each of the file's type, with distinct values and names.

    A name gets a number if an input or an earlier output has the same name.
    """
    ports: list[Port] = []
    used = {t.name for t in graph.inputs}
    names = Names((*used, *(t.name for t in graph.outputs)))
    input_tensors = {*graph.inputs}
    values = {value for t, value, _ in g.stored_tensors() if t in input_tensors}
    for tensor, order in zip(graph.outputs, orders, strict=True):
        inside, in_file = g.storage(tensor), g.storage(tensor, weight=True)
        value = g.convert(g.view(tensor, order).value, inside, in_file, order)
        if value in values or value.data is not None:
            value = g.Identity(value)
        values.add(value)
        name = names.make_unique(tensor.name) if tensor.name in used else tensor.name
        used.add(tensor.name)
        ports.append(Port(name, value, tensor, order, in_file.dtype))
    return tuple(ports)


def _emit_operator(
    g: Builder, operator: Operator, orders: Mapping[int, Order], bodies: Sequence[Body]
) -> None:
    op, real = operator.op, _reads_real_numbers(g, operator)
    inputs = [
        None if t is None else _view(g, operator, i, orders[i], real=real)
        for i, t in enumerate(op.inputs)
    ]
    outputs = tuple(_output(g, operator, i, orders[~i], real=real) for i in range(len(op.outputs)))
    operands = (bodies, *inputs) if bodies else inputs
    emitted = operator.emit(g, outputs if operator.returns_tuple else outputs[0], *operands)
    values = list(emitted) if operator.returns_tuple else [emitted]
    for i, (view, value) in enumerate(zip(outputs, values, strict=False)):
        activation = "NONE" if i else operator.activation
        g.define(view.tensor, _finish_output(g, operator, view, value, activation), view.order)


def _reads_real_numbers(g: Builder, operator: Operator) -> bool:
    """Return whether an operator reads quantized operands as real numbers.

    With `float_only` an operator that only moves stored integers can move real numbers instead, if
    all its operands have one scale.
    """
    if not operator.reads_stored_integers():
        return True
    moves = operator.has_one_scale and operator.matmul_operands is None
    return g.float_only and moves and not operator.computes_on_stored_integers


def _as_filed(operator: Operator) -> bool:
    """Return whether an operator must read the file's integers, and not int8 moved to uint8."""
    return operator.computes_on_stored_integers or operator.without_scale is not None


def _view(g: Builder, operator: Operator, i: int, order: Order, *, real: bool) -> View:
    tensor, storage = operator.input(i), _input_storage(g, operator, i)
    if storage is None and not real:
        storage = g.integer_storage(tensor, as_filed=_as_filed(operator))
    elif storage is None and not g.float_only and is_quantized(tensor):
        scale = operator.scale_read(i)
        if scale is not None:
            storage = g.integer_storage(replace(tensor, quantization=scale))
    return g.view(tensor, order, operator.axis_letters(i), real=real, storage=storage)


def _input_storage(g: Builder, operator: Operator, operand: int) -> Storage | None:
    """Return the storage of weights and biases, None for inputs that are stored as activations.

    In a nested graph ONNX Runtime 1.31 does not find the weights of a product of float data and
    integers (TransposeDQWeightsForMatMulNBits) and rejects the model, so the weights are
    dequantized at load.
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
    storage = g.integer_storage(tensor, as_filed=_as_filed(operator))
    storage = REAL if real and storage.quantization else storage
    return View(tensor, order, storage, operator.axis_letters(~i))


def _finish_output(
    g: Builder,
    operator: Operator,
    view: View,
    emitted: Value | NeedsReshape | AlreadyStored,
    activation: str,
) -> Value:
    """Apply the fused activation, quantize real numbers, and reshape the value if it needs that."""
    if isinstance(emitted, AlreadyStored):
        return emitted.value
    if isinstance(emitted, NeedsReshape):
        value = emitted.value
    else:
        value = g.annotate(emitted, view.dtype, view.sizes)
    if g.float_only and view.storage is REAL and is_quantized(view.tensor):
        value = _limit_range(g, operator, view.tensor, value, activation)
    else:
        value = _store_output(g, operator, view, value, activation)
    return g.reshape(value, view.sizes) if isinstance(emitted, NeedsReshape) else value


def _limit_range(
    g: Builder, operator: Operator, tensor: Tensor, value: Value, activation: str
) -> Value:
    """Return real numbers, clipped to the range that the stored integers would have.

    Converters omit an activation that the range implies, so without the range a RELU may be
    missing.
    """
    written_tensor = _with_written_scale(g, operator, tensor)
    written = g.integer_storage(written_tensor, as_filed=True)
    read = g.integer_storage(tensor, as_filed=True)
    if len(written.scale) > 1 or (operator.moves_only and activation == "NONE"):
        return apply_fused_activation(g, activation, value, DType.FLOAT32)
    bounds = real_bounds(activation, read, written)
    value = g.Clip(value, *(g.scalar(bound, DType.FLOAT32) for bound in bounds))
    if written_tensor is tensor:
        return value
    # Readers of the tensor apply another scale to the same stored integers.
    value = g.Mul(value, g.scalar(read.scale[0] / written.scale[0], DType.FLOAT32))
    offset = (written.zero_point - read.zero_point) * read.scale[0]
    return g.Add(value, g.scalar(offset, DType.FLOAT32))


def _store_output(
    g: Builder, operator: Operator, view: View, value: Value, activation: str
) -> Value:
    """Return the output of an operator in its storage, with the fused activation applied.

    An activation is omitted if the range of the integers implies it; otherwise it clamps the stored
    integers. A node between the operator and QuantizeLinear would break the fusion.
    """
    storage, target = view.storage, g.storage(view.tensor)
    written = _with_written_scale(g, operator, view.tensor)
    if storage is REAL and (target is not REAL or written is not view.tensor):
        value = g.quantize(value, g.integer_storage(written), view.order)
        storage = g.integer_storage(view.tensor)
    if storage.quantization is None:
        value = apply_fused_activation(g, activation, value, storage.dtype)
    else:
        value = _clamp_integers(g, value, activation, storage)
    return g.convert(value, storage, target, view.order)


def _with_written_scale(g: Builder, operator: Operator, tensor: Tensor) -> Tensor:
    """Return an output with the scale with which the kernel writes it."""
    scale = operator.output_quantization if g.float_only else operator.scale_made
    if scale is None or not is_quantized(tensor) or scale.same_as(tensor.quantization):
        return tensor
    return replace(tensor, quantization=scale)


def _clamp_integers(g: Builder, value: Value, activation: str, storage: Storage) -> Value:
    bounds = clamp(activation, storage)
    if bounds is None:
        return value
    low, high = (g.scalar(bound, storage.dtype) for bound in bounds)
    return g.in_compute_type("Clip", storage.dtype, value, low, high)

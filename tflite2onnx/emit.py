"""The driver: it makes ONNX nodes of operators and a plan.

For every operator it fetches inputs in the planned order, applies the fused activation, stores
outputs in the planned order, and names the operator in an error.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from types import MappingProxyType
from typing import NamedTuple

from tflite2onnx.builder.adaptive_weights import add_adaptive_weights
from tflite2onnx.builder.builder import (
    Body,
    Builder,
    NeedsReshape,
    Port,
    Value,
    View,
    find_bodies,
    walk_nodes,
)
from tflite2onnx.builder.node_passes import NodePass, apply_node_passes, drop_dead_nodes
from tflite2onnx.builder.nodes import NeedsOpset, Node
from tflite2onnx.builder.older_opsets import lower_nodes
from tflite2onnx.builder.qoperators import find_pairs, make_qlinear_products
from tflite2onnx.builder.rewrites import (
    join_reshapes,
    merge_equal_nodes,
    omit_zero_states,
    rename_ports,
)
from tflite2onnx.builder.store_once import share_transposed
from tflite2onnx.errors import OperatorError, as_unsupported, collect_errors
from tflite2onnx.graph import Graph, Op
from tflite2onnx.layout import Order, Plan
from tflite2onnx.op.base import Operator
from tflite2onnx.op.elementwise.activation import apply_fused_activation, apply_limits
from tflite2onnx.quantization.rules import Reading
from tflite2onnx.quantization.storage import (
    REAL,
    decode_constant,
    encode_constant,
    find_integer_range,
)
from tflite2onnx.quantize import OperandStorage, StoragePlan
from tflite2onnx.tensor import Array, DType, Sizes, Tensor
from tflite2onnx.utils.unique_names import Names


class Emitted(NamedTuple):
    """A graph in ONNX: nodes over values, and the tensors that the values hold.

    `types` has the types and shapes of the values that hold tensors. The last inputs and the last
    outputs are states: `initial` has their initial values as ONNX stores them, and `variables`
    their names in the file, in the same sequence. `dynamic_sizes` has the file's value of each
    dynamic size, by name. `plan` is the storage of all operands.
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
    plan: StoragePlan = StoragePlan()

    def walk_tensors(self) -> Iterator[Port]:
        yield from self.tensors
        for body in (b for node in walk_nodes(self.nodes) for b in find_bodies(node).values()):
            yield from body.tensors

    def with_letters(self, letters: Mapping[Tensor, str]) -> Emitted:
        """Return the emitted graph with letters of axes, which are given by tensor."""

        def add_letters(ports: Sequence[Port]) -> tuple[Port, ...]:
            return tuple(port._replace(letters=letters.get(port.tensor, "")) for port in ports)

        return self._replace(
            inputs=add_letters(self.inputs),
            outputs=add_letters(self.outputs),
            tensors=add_letters(self.tensors),
        )


def find_shared_caches(emitted: Emitted) -> dict[str, str]:
    """Return the inputs whose memory outputs may share, by output: names of values.

    A node writes a row of the output. If the output has other memory, its rows after the position
    of the token are undefined.
    """
    names = {port.value: port.name for port in (*emitted.inputs, *emitted.outputs)}
    return {
        names[new]: names[old]
        for node in emitted.nodes
        if node.op_type == "GroupQueryAttention"
        for new, old in zip(node.outputs[1:], node.inputs[3:5], strict=True)
        if new in names and old in names
    }


_Planned = Mapping[Op, tuple[Operator, Mapping[int, Order]]]


# The passes over the nodes of the main graph, before those of the target.
_FIRST: tuple[NodePass, ...] = (
    # Operators reshape around ONNX operators with other axes; one Reshape reverses another.
    join_reshapes,
    # Operators that read the same tensor emit the same nodes, maybe after the same Reshape.
    merge_equal_nodes,
    # Zeros of a dynamic batch take eight nodes, and are the default of recurrent nodes.
    omit_zero_states,
)
# The passes of a target that has none, and the last ones of most targets.
PLAIN_PASSES: tuple[NodePass, ...] = (
    # Nodes that nothing reads need no weights.
    drop_dead_nodes,
    # All nodes that read adaptive weights exist now.
    add_adaptive_weights,
    # The branches of adaptive weights have constants, too.
    share_transposed,
)
# The passes over the nodes of a nested graph. Its constants are shared as those of the main graph.
_NESTED: tuple[NodePass, ...] = (drop_dead_nodes, add_adaptive_weights, make_qlinear_products)


def emit(
    graph: Graph,
    operators: Sequence[Operator],
    plan: Plan,
    g: Builder,
    passes: Sequence[NodePass] = PLAIN_PASSES,
) -> Emitted:
    """Emit a whole graph; `operators` are in the sequence of `Graph.walk_ops`.

    The first site of `plan` is the graph's interface, the others are the operators. `passes` are
    those of the target over the nodes of the main graph.

    Raises:
        UnsupportedOperators: an operator cannot be converted.
        NeedsOpset: an operator needs a newer opset than the builder's.
    """
    orders, *orders_inside = plan.orders
    least = graph.least_sizes
    inputs = tuple(_emit_input(g, t, orders[~i], least) for i, t in enumerate(graph.inputs))
    pairs = zip(operators, orders_inside, strict=True)
    planned = {operator.op: (operator, orders) for operator, orders in pairs}
    _emit_operators(g, graph, planned)
    outputs = _emit_outputs(g, graph, [orders[i] for i in range(len(graph.outputs))])
    results = [port.value for port in outputs]
    made = apply_node_passes((*_FIRST, *passes, make_qlinear_products), g, g.nodes, results)
    renamed = rename_ports(_list_ports(g), made.merged)
    ports = tuple(port for port in renamed if port.value not in made.changed)
    _require_products(g, graph, made.nodes, ports)
    nodes = lower_nodes(made.nodes, g.opset, g.types)
    states = zip(inputs[len(graph.own_inputs) :], graph.initial, strict=True)
    initial = tuple(_store_initial_value(g, port, data) for port, data in states)
    sizes = {s: t.shape[axis] for t, *_ in g.walk_stored_tensors() for axis, s in t.symbols.items()}
    return Emitted(
        nodes, g.opset, inputs, outputs, ports, g.types, initial, graph.variables, sizes, g.plan
    )


def _require_products(
    g: Builder, graph: Graph, nodes: Sequence[Node], ports: Sequence[Port]
) -> None:
    """Raise UnsupportedOperators if the options allow QLinear products only, and others remain."""
    if g.plan.qoperator != "qoperator":
        return
    values = {port.tensor: port.value for port in ports}
    with collect_errors() as errors:
        for op in find_pairs(graph.ops, g.plan, values, nodes):
            with errors.at(op.place):
                raise OperatorError(
                    "ONNX has no QLinear operator for it: set `quantization` to qoperator-mixed"
                    " or qdq, or cut the model before it with `outputs`"
                )


def _list_ports(g: Builder) -> tuple[Port, ...]:
    return tuple(
        Port(t.name, v, t, o, g.find_storage(t).dtype) for t, v, o in g.walk_stored_tensors()
    )


def _emit_operators(g: Builder, graph: Graph, planned: _Planned) -> None:
    for op in graph.ops:
        operator, orders = planned[op]
        bodies = _emit_bodies(g, operator, orders, planned)
        try:
            with as_unsupported(op.place):
                _emit_operator(g, operator, orders, bodies)
        except NeedsOpset as need:
            raise NeedsOpset(need.version, f"{need.node}, for {op.place},") from None


def _emit_bodies(
    g: Builder, operator: Operator, orders: Mapping[int, Order], planned: _Planned
) -> list[Body]:
    """Return the sub-graphs of an operator, whose operands follow the operator's in the plan."""
    inputs, written = count(len(operator.op.inputs)), count(len(operator.op.outputs))
    bodies = []
    for graph in operator.op.graphs:
        before = [orders[~i] for _, i in zip(graph.inputs, written, strict=False)]
        after = [orders[i] for _, i in zip(graph.outputs, inputs, strict=False)]
        bodies.append(_emit_body(g.make_nested(), graph, before, after, planned))
    return bodies


def _emit_body(
    g: Builder, graph: Graph, before: Sequence[Order], after: Sequence[Order], planned: _Planned
) -> Body:
    inputs = [Value(dtype=g.find_storage(tensor).dtype) for tensor in graph.inputs]
    for tensor, value, order in zip(graph.inputs, inputs, before, strict=True):
        g.define(tensor, value, order)
    _emit_operators(g, graph, planned)
    views = [
        g.view(tensor, order, planned=g.plan.find_result_storage(tensor))
        for tensor, order in zip(graph.outputs, after, strict=True)
    ]
    outputs = [view.value for view in views]
    # ONNX requires that all outputs are different values, and that nodes of this graph compute
    # them.
    results = {value for node in g.nodes for value in node.outputs}
    for i, (view, value) in enumerate(zip(views, outputs, strict=True)):
        if value not in results:
            outputs[i] = g.annotate(g.identity(value, view.dtype), view.dtype, view.sizes)
        results.discard(value)
    ports = _list_ports(g)
    nodes = apply_node_passes(_NESTED, g, g.nodes, outputs).nodes
    _require_products(g, graph, nodes, ports)
    return Body(graph.name or "body", tuple(inputs), nodes, tuple(outputs), ports)


def _emit_input(g: Builder, tensor: Tensor, order: Order, least_sizes: Mapping[str, int]) -> Port:
    """Return an input of the file's type; inside the model the tensor may have another type.

    An input with a dynamic size that is too small ends the run: Reshape names the least sizes. It
    copies no element, while a check at the operator would split the part of the network that a
    runtime computes in its own layout (1.1 to 1.3 of the time).
    """
    inside, in_file = g.find_storage(tensor), g.find_endpoint_storage(tensor)
    shape = tuple(tensor.sizes[i] for i in order)
    value = checked = g.annotate(Value(dtype=in_file.dtype), in_file.dtype, shape)
    g.inputs.append(value)
    least = [least_sizes.get(str(size), 0) for size in shape]
    if any(least):
        sizes = g.Max(g.Shape(value), g.ints(least))
        checked = g.annotate(g.Reshape(value, sizes), in_file.dtype, shape)
    g.define(tensor, g.convert(checked, in_file, inside, order), order)
    return Port(tensor.name, value, tensor, order, in_file.dtype)


def _store_initial_value(g: Builder, port: Port, data: Array) -> Array:
    """Return the initial value of a state as the ONNX model stores it."""
    storage = g.find_endpoint_storage(port.tensor)
    if storage is REAL and port.tensor.quantization is not None:
        data = decode_constant(data, port.tensor.quantization)
    elif storage.moved:
        data = encode_constant(data, port.tensor.dtype, storage)
    return data.transpose(port.order)


def _emit_outputs(g: Builder, graph: Graph, orders: Sequence[Order]) -> tuple[Port, ...]:
    """Return the outputs, each of the file's type, with distinct values and names.

    A name gets a number if an input or an earlier output has the same name.

    Raises:
        OperatorError: an output is an input that holds a variable, a table or a list.
    """
    ports: list[Port] = []
    used = {t.name for t in graph.inputs}
    names = Names((*used, *(t.name for t in graph.outputs)))
    values = {value for t, value, _ in g.walk_stored_tensors() if t in graph.inputs}
    for tensor, order in zip(graph.outputs, orders, strict=True):
        if tensor.dtype.is_handle:
            raise OperatorError(
                f"the output {tensor.name} must hold numbers or text, got {tensor.dtype.label}"
            )
        inside, in_file = g.find_storage(tensor), g.find_endpoint_storage(tensor)
        value = g.convert(g.view(tensor, order).value, inside, in_file, order)
        if value in values or value.data is not None:
            value = g.identity(value, in_file.dtype)
        values.add(value)
        name = names.make_unique(tensor.name) if tensor.name in used else tensor.name
        used.add(tensor.name)
        ports.append(Port(name, value, tensor, order, in_file.dtype))
    return tuple(ports)


def _emit_operator(
    g: Builder, operator: Operator, orders: Mapping[int, Order], bodies: Sequence[Body]
) -> None:
    op, planned = operator.op, g.plan.operands[operator.op]
    inputs = [
        None if t is None else g.view(t, orders[i], operator.read_letters(i), planned[i])
        for i, t in enumerate(op.inputs)
    ]
    outputs = tuple(
        View(t, orders[~i], planned[~i], operator.read_letters(~i))
        for i, t in enumerate(op.outputs)
    )
    operands = (bodies, *inputs) if bodies else inputs
    emitted = operator.emit(g, outputs if operator.returns_tuple else outputs[0], *operands)
    values = list(emitted) if operator.returns_tuple else [emitted]
    for i, (view, value) in enumerate(zip(outputs, values, strict=False)):
        activation = "NONE" if i else operator.activation
        g.define(view.tensor, _finish_output(g, view, value, activation), view.order)


def _finish_output(g: Builder, view: View, emitted: Value | NeedsReshape, activation: str) -> Value:
    """Apply the fused activation, quantize real numbers, and reshape a `NeedsReshape`.

    Several scales belong to an axis of the output's shape, so the value is reshaped before
    QuantizeLinear. Operators that read in the scale of the tensor move real numbers only.
    """
    first = view.tensor.per_axis or view.plan.reading is Reading.UNIFORM
    if isinstance(emitted, NeedsReshape) and first:
        emitted = g.reshape(emitted.value, view.sizes, like=emitted.like)
    if isinstance(emitted, NeedsReshape):
        value = emitted.value
    else:
        value = g.annotate(emitted, view.dtype, view.sizes)
    if view.plan.reading is Reading.FLOAT:
        value = _limit_range(g, view.plan, value, activation)
    else:
        value = _store_output(g, view, value, activation)
    if isinstance(emitted, NeedsReshape):
        return g.reshape(value, view.sizes, like=emitted.like)
    return value


def _limit_stored(g: Builder, view: View, stored: Value, low: float, high: float) -> Value:
    """Return stored integers, limited as real numbers in the same scale.

    Between a convolution and QuantizeLinear the nodes would make it a convolution of floats.
    """
    storage = view.plan.storage
    scale, zero = float(storage.scale[0]), storage.zero_point
    least, greatest = find_integer_range(storage.dtype)
    value = g.dequantize(stored, storage, view.order)
    lowest = scale * (low - zero) if low == zero or low > least else None
    highest = scale * (high - zero) if high < greatest else None
    return g.quantize(apply_limits(g, value, lowest, highest), storage, view.order)


def _limit_range(g: Builder, planned: OperandStorage, value: Value, activation: str) -> Value:
    """Return real numbers, clipped to the range that the stored integers would have."""
    if planned.limits is None:
        return apply_fused_activation(g, activation, value, DType.FLOAT32)
    if g.plan.rounds:
        # The numbers that QuantizeLinear and DequantizeLinear return, bit by bit.
        step = g.scalar(float((planned.written or planned.storage).scale[0]), DType.FLOAT32)
        value = g.Mul(g.Round(g.Div(value, step)), step)
    value = g.Clip(value, *(g.scalar(limit, DType.FLOAT32) for limit in planned.limits))
    return _rescale(g, planned, value)


def _rescale(g: Builder, planned: OperandStorage, value: Value) -> Value:
    """Return the real numbers that readers read from the integers that the kernel writes."""
    source, written = planned.storage, planned.written
    if written is None:
        return value
    # Other readers read the same stored integers with another scale.
    value = g.Mul(value, g.scalar(source.scale[0] / written.scale[0], DType.FLOAT32))
    offset = (written.zero_point - source.zero_point) * source.scale[0]
    return g.Add(value, g.scalar(offset, DType.FLOAT32))


def _store_output(g: Builder, view: View, value: Value, activation: str) -> Value:
    """Return the output of an operator in the storage of the tensor, with the activation applied.

    An activation is omitted if the range of the integers implies it; otherwise it clamps the stored
    integers. A node between the operator and QuantizeLinear would break the fusion.
    """
    storage = view.plan.storage
    if g.plan.applies_activation(view.plan):
        value = apply_fused_activation(g, activation, value, DType.FLOAT32)
    elif view.plan.reading is Reading.UNIFORM:
        stored = g.quantize(_rescale(g, view.plan, value), storage, view.order)
        if view.plan.limits is not None:
            stored = _limit_stored(g, view, stored, *view.plan.limits)
        return g.convert(stored, storage, g.find_storage(view.tensor), view.order)
    if view.plan.reading is Reading.DEQUANTIZED:
        value = g.quantize(value, view.plan.written or storage, view.order)
    if storage.quantization is None:
        value = apply_fused_activation(g, activation, value, storage.dtype)
    elif view.plan.limits is not None:
        low, high = (g.scalar(limit, storage.dtype) for limit in view.plan.limits)
        value = g.add_with_casts("Clip", storage.dtype, value, low, high)
    return g.convert(value, storage, g.find_storage(view.tensor), view.order)

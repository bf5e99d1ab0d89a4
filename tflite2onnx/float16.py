"""Half precision: the ONNX graph with float16 in place of float32, where that is safe.

Operators stay in float32, with Casts around them, if float16 may overflow, if ONNX or runtimes lack
the operator for float16 (docs/runtime-faults.md), or if the operator belongs to quantized data.
`_Float32Nodes` chooses the type of each node, `_HalfRewriter` rewrites the graph.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from tflite2onnx.builder.builder import Body, Port, eliminate_dead_nodes, find_bodies, walk_nodes
from tflite2onnx.builder.nodes import Node, Value, require_onnx_type
from tflite2onnx.emit import Emitted
from tflite2onnx.tensor import Array, DType
from tflite2onnx.validity import find_parameters, infer_types

_FLOAT, _HALF = DType.FLOAT32.label, DType.FLOAT16.label
_LARGE = 1024  # bytes; a larger constant is stored in float16 even if nodes read it in float32
_LARGEST = float(np.finfo(np.float16).max)
# The largest relative error with which float16 may represent the largest element of a constant.
_PART = 0.01
_MOST_ADDED = 1024  # A sum of more elements may overflow float16 although each element is small.

QUANTIZED = "quantized"
NO_FORM = "ONNX has no float16 form"
NO_KERNEL = "runtimes have no float16 kernel"
CONSTANT = "float16 cannot represent a constant"
OVERFLOW = "float16 may overflow"
SCAN = "runtimes fail on float16 in a model with a Scan"
FOLLOWS = "all inputs are in float32"

_WIDE_REASONS = {NO_KERNEL, NO_FORM, CONSTANT, OVERFLOW, FOLLOWS}
_CONTROL_FLOW = {"If", "Loop"}
_QDQ = {"DequantizeLinear", "QuantizeLinear"}
# The nodes before a Cast to int16 in opsets whose QuantizeLinear lacks it, the last first.
_ROUNDING = ("Clip", "Add", "Round", "Div")
_SUMS = {"ReduceMean", "ReduceSum", "GlobalAveragePool", "AveragePool"}
# Powers, and operators that add powers or many elements.
_OVERFLOWING = {
    *("Exp", "Pow", "Cosh", "Sinh", "Tan", "CumSum", "DFT", "STFT", "Det", "LRN"),
    *("ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceProd", "ReduceSumSquare"),
    *("LpNormalization", "LpPool", "GlobalLpPool", "MeanVarianceNormalization"),
}
# Runtimes have no float16 kernel for these operators if they add, multiply or compare elements.
_SCATTERING = {"ScatterElements", "ScatterND"}
# The mean absolute element above which a matrix is likely to be a transform, whose products add
# many elements: the mean of a Fourier matrix is 0.64. Weights of networks are far smaller.
_MEAN_OF_SUMS = 0.5
# Operators that stay in float32 if they read values that float16 may not hold.
_ELEMENTWISE = {
    *("Abs", "Add", "Ceil", "Clip", "Div", "Floor", "Identity", "Log", "Max", "Min", "Mod", "Mul"),
    *("Neg", "Reciprocal", "Relu", "Round", "Sign", "Sqrt", "Sub", "Sum", "Where"),
    *("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"),
    *("Concat", "Expand", "Gather", "Pad", "Reshape", "Slice", "Split", "Squeeze", "Tile"),
    *("ReduceMax", "ReduceMin", "Transpose", "Unsqueeze", *_SUMS),
}
# Elementwise operators whose results float16 holds for any input.
_BOUNDED = {"Cos", "Erf", "HardSigmoid", "Sigmoid", "Sin", "Softmax", "Tanh"}
_UNTYPED = {"Shape", "Size"}  # Operators whose results do not depend on the element type.
# Element types whose elements float16 represents exactly.
_NARROW = {DType.BOOL.label, DType.INT8.label, DType.UINT8.label}


class Float32Node(NamedTuple):
    """A node that computes in float32 in a model of half precision.

    `tensor` is the TFLite tensor that the node computes, or the next tensor that a node computes.
    """

    op_type: str
    tensor: str
    reason: str


def to_float16(emitted: Emitted, *, io: bool) -> tuple[Emitted, tuple[Float32Node, ...]]:
    """Return the graph in half precision, and the nodes that stay in float32.

    With `io`, the inputs, outputs and states are float16 as well.
    """
    choice = _Float32Nodes(emitted)
    choice.visit(emitted.nodes)
    half = _HalfRewriter(emitted, choice).rewrite_graph(emitted, io=io)
    return half, tuple(_list_float32(emitted, choice.reasons))


def _list_float32(emitted: Emitted, reasons: Mapping[Value, str]) -> Iterator[Float32Node]:
    """Yield the nodes in float32; only the last node of an operator computes a TFLite tensor."""
    names = {p.value: p.tensor.name for p in (*emitted.walk_tensors(), *emitted.outputs)}
    rows, name = [], ""
    for node in reversed([*walk_nodes(emitted.nodes)]):
        name = next((names[v] for v in node.outputs if v in names), name)
        if node.outputs[0] in reasons:
            rows.append(Float32Node(node.op_type, name, reasons[node.outputs[0]]))
    yield from reversed(rows)


class _Float32Nodes:
    """Chooses the nodes that stay in float32: `reasons` by their first outputs.

    `_wide` are the values that these nodes compute and that float16 may not hold.
    """

    def __init__(self, emitted: Emitted) -> None:
        self._types = infer_types(emitted)
        self.reasons: dict[Value, str] = {}
        self._wide: set[Value] = set()
        self._weights: set[Value] = set()  # constants that the TFLite file has in float16
        self.opset, self._sizes = emitted.opset, emitted.types
        nodes = [*walk_nodes(emitted.nodes)]
        self._quantized = {v for n in nodes if n.op_type == "QuantizeLinear" for v in n.inputs}
        self._quantized |= {v for n in nodes if n.op_type == "DequantizeLinear" for v in n.outputs}
        self._quantized |= self._find_rounded(nodes)
        # Values of constants that are dequantized at load belong to the nodes that read them.
        folded = _list_folded(nodes)
        for node in reversed(nodes):
            if not self._quantized.isdisjoint((*node.present, *node.outputs)):
                self._quantized |= folded.intersection(node.present)
        self.has_scan = any(node.op_type == "Scan" for node in nodes)

    def _find_rounded(self, nodes: Sequence[Node]) -> set[Value]:
        """Return the values that nodes round to int16 in place of a QuantizeLinear.

        In float16 their upper limit, 32,767, would be 32,768, which is -32,768 in int16.
        """
        producers = {v: n for n in nodes for v in n.outputs if n.op_type in _ROUNDING}
        rounded = set[Value]()
        for node in nodes:
            if node.op_type != "Cast" or self.find_label(node.outputs[0]) != DType.INT16.label:
                continue
            value = node.present[0]
            while value in producers:
                value = producers[value].present[0]
                rounded |= {value, node.present[0]}
        return rounded

    def visit(self, nodes: Iterable[Node]) -> None:
        """Choose the types of nodes, and of the nodes of their nested graphs."""
        for node in nodes:
            for body in find_bodies(node).values():
                self.visit(body.nodes)
            reason = self._explain_float32(node)
            if reason:
                self.reasons[node.outputs[0]] = reason
            if reason in _WIDE_REASONS and node.op_type not in _BOUNDED:
                self._wide.update(v for v in node.outputs if self.is_float(v))

    def find_label(self, value: Value) -> str:
        return self._types.get(value, "") if value.dtype is None else value.dtype.label

    def is_float(self, value: Value | None) -> bool:
        return value is not None and self.find_label(value) == _FLOAT

    def _explain_float32(self, node: Node) -> str:
        """Return why a node must stay in float32, "" if there is no reason or no float."""
        floats = [v for v in (*node.inputs, *node.outputs) if self.is_float(v)]
        if not floats or node.op_type in _CONTROL_FLOW | _UNTYPED:
            return ""
        if node.op_type == "Cast":
            return self._explain_cast(node)
        operands = [v for v in node.present if self.is_float(v)]
        reduces = node.attributes.get("reduction", "none") != "none"
        reasons = (
            (SCAN, self.has_scan),
            (QUANTIZED, node.op_type in _QDQ or not self._quantized.isdisjoint(floats)),
            (NO_KERNEL, bool(node.domain) or (node.op_type in _SCATTERING and reduces)),
            (NO_FORM, not self._has_form(node)),
            (CONSTANT, not all(_fits(v.data) for v in operands if v.data is not None)),
            (OVERFLOW, self._may_overflow(node)),
            (FOLLOWS, self._reads_wide_values(node, operands)),
        )
        return next((reason for reason, holds in reasons if holds), "")

    def _reads_wide_values(self, node: Node, operands: Iterable[Value]) -> bool:
        """Return whether all inputs of an elementwise node may be too large for float16."""
        results = {v for v in operands if v.data is None} - self._weights
        elementwise = node.op_type in _ELEMENTWISE | _BOUNDED
        return elementwise and bool(results) and self._wide.issuperset(results)

    def _explain_cast(self, node: Node) -> str:
        """Return why a Cast to float32 must stay: it may compute a large number."""
        (source,), (target,) = node.inputs, node.outputs
        if source is None or not self.is_float(target) or self.is_float(source):
            return ""
        if target in self._quantized:
            return QUANTIZED
        label = self.find_label(source)
        if source.data is not None and label == _HALF:
            self._weights.add(target)
        return "" if label in _NARROW | {_HALF} else OVERFLOW

    def _has_form(self, node: Node) -> bool:
        """Return whether ONNX has the operator for float16 in place of float32."""
        inputs, outputs = find_parameters(node, self.opset)
        operands = zip((*node.inputs, *node.outputs), (*inputs, *outputs), strict=False)
        has_form = any(self.is_float(v) and _HALF in label.types for v, label in operands)
        return has_form and node.op_type != "BitCast"

    def _may_overflow(self, node: Node) -> bool:
        if node.op_type == "Mul":
            return node.inputs[0] is node.inputs[1]  # both factors are the same value: a square
        if node.op_type in _SUMS:
            added = self._count_added(node)
            return added is None or added > _MOST_ADDED
        if node.op_type == "MatMul":
            constants = (v.data for v in node.present if v.data is not None and v.data.size)
            return any(np.abs(data).mean() > _MEAN_OF_SUMS for data in constants)
        return node.op_type in _OVERFLOWING

    def _count_added(self, node: Node) -> int | None:
        """Return how many elements a sum or a mean adds, None if this is unknown."""
        if node.op_type == "AveragePool":
            return int(math.prod(node.attributes["kernel_shape"]))
        value, *operands = node.present
        constants = [operand.data for operand in operands if operand.data is not None]
        if value not in self._sizes or len(constants) < len(operands):
            return None
        sizes = self._sizes[value][1]
        axes = [int(axis) for data in constants for axis in np.ravel(data)]
        axes = axes or [*node.attributes.get("axes", ())]
        if node.op_type == "GlobalAveragePool":
            axes = [*range(2, len(sizes))]
        added = [sizes[axis] for axis in axes or range(len(sizes))]
        numbers = [size for size in added if isinstance(size, int)]
        return math.prod(numbers) if len(numbers) == len(added) else None


def _list_folded(nodes: Iterable[Node]) -> set[Value]:
    """Return the values that nodes compute of constants alone."""
    folded: set[Value] = set()
    for node in nodes:
        if node.present and all(v.data is not None or v in folded for v in node.present):
            folded.update(node.outputs)
    return folded


def _fits(data: Array) -> bool:
    """Return whether float16 represents the largest finite element of a constant."""
    finite = data[np.isfinite(data)]
    largest = max(float(finite.max(initial=0)), -float(finite.min(initial=0)))
    if largest > _LARGEST:
        return False
    return abs(float(np.float16(largest)) - largest) <= _PART * largest


class _HalfRewriter:
    """Rewrites the nodes of a graph, and of its nested graphs, in sequence.

    `_half` has the float16 version of float32 values, and `_single` the float32 version of values
    that are computed in float16; both have only the values of the graph that is being rewritten.
    """

    def __init__(self, emitted: Emitted, choice: _Float32Nodes) -> None:
        self._choice = choice
        self._types = dict(emitted.types)
        self._nodes: list[Node] = []
        self._half: dict[Value, Value] = {}
        self._single: dict[Value, Value] = {}
        self._constants: dict[Value, Value] = {}
        self._depth = 0
        # The constants that nodes read in float32.
        self._read: set[Value] = set()

    def rewrite_graph(self, emitted: Emitted, *, io: bool) -> Emitted:
        inputs = tuple(self._convert_input(port, io=io) for port in emitted.inputs)
        for node in emitted.nodes:
            self._rewrite_node(node)
        outputs: list[Port] = []
        for port in emitted.outputs:
            outputs.append(self._convert_output(port, [*inputs, *outputs], io=io))
        initial = tuple(
            a.astype(np.float16) if io and a.dtype == np.float32 else a for a in emitted.initial
        )
        return emitted._replace(
            nodes=eliminate_dead_nodes(self._nodes, [port.value for port in outputs]),
            inputs=inputs,
            outputs=tuple(outputs),
            tensors=tuple(map(self._convert_port, emitted.tensors)),
            types=MappingProxyType(self._types),
            initial=initial,
        )

    def _convert_input(self, port: Port, *, io: bool) -> Port:
        if port.dtype is not DType.FLOAT32:
            return port
        if not io:
            self._single[port.value] = port.value
            return port
        value = Value(dtype=DType.FLOAT16)
        self._half[port.value] = value
        return port._replace(value=value, dtype=DType.FLOAT16)

    def _convert_output(self, port: Port, ports: Sequence[Port], *, io: bool) -> Port:
        """Return an output that a node computes and that is no other output, as ONNX requires."""
        if port.dtype is not DType.FLOAT32:
            return port
        if not io:
            return port._replace(value=self._as_single(port.value))
        value = self._as_half(port.value)
        if value.data is not None or any(value is other.value for other in ports):
            value = self._add("Identity", value, port.value, DType.FLOAT16)
        return port._replace(value=value, dtype=DType.FLOAT16)

    def _convert_port(self, port: Port) -> Port:
        value = port.value
        half = self._half.get(value, self._constants.get(value))
        is_single = value.data is None and self._single.get(value) is value
        if half is None or value in self._read or is_single:
            return port
        return port._replace(value=half, dtype=DType.FLOAT16)

    # Nodes

    def _rewrite_node(self, node: Node) -> None:
        choice = self._choice
        if not any(map(choice.is_float, (*node.inputs, *node.outputs))) and not find_bodies(node):
            self._nodes.append(node)
        elif node.op_type == "Cast":
            self._rewrite_cast(node)
        elif node.op_type in _UNTYPED:
            self._nodes.append(node._replace(inputs=tuple(map(self._as_computed, node.inputs))))
        elif node.outputs[0] in choice.reasons or node.op_type in _CONTROL_FLOW:
            self._keep_node(node)
        else:
            self._halve_node(node)

    def _keep_node(self, node: Node) -> None:
        """Add a node that computes in float32, except the nested graphs of control flow."""
        if self._choice.has_scan:
            self._cast_weights(node)
        inputs = tuple(
            self._as_single(v) if v is not None and self._choice.is_float(v) else v
            for v in node.inputs
        )
        bodies = {key: self._rewrite_body(body) for key, body in find_bodies(node).items()}
        self._single |= {v: v for v in node.outputs if self._choice.is_float(v)}
        self._nodes.append(node._replace(inputs=inputs, attributes={**node.attributes, **bodies}))

    def _halve_node(self, node: Node) -> None:
        """Add a node that computes in float16, except operands that ONNX has in float32 only."""
        parameters, schema_outputs = find_parameters(node, self._choice.opset)
        inputs, halved = [], set()
        for value, parameter in zip(node.inputs, parameters, strict=False):
            inputs.append(value)
            if value is not None and self._choice.is_float(value):
                halves = _HALF in parameter.types
                halved |= {parameter.constraint} if halves else set()
                inputs[-1] = self._as_half(value) if halves else self._as_single(value)
        outputs = []
        for value, parameter in zip(node.outputs, schema_outputs, strict=False):
            outputs.append(value)
            if self._choice.is_float(value) and parameter.constraint in halved - {""}:
                outputs[-1] = self._add_value_like(value, DType.FLOAT16)
                self._half[value] = outputs[-1]
        self._nodes.append(node._replace(inputs=tuple(inputs), outputs=tuple(outputs)))

    def _rewrite_cast(self, node: Node) -> None:
        (source,), (target,) = node.inputs, node.outputs
        if not self._choice.is_float(target):
            self._nodes.append(node._replace(inputs=(self._as_computed(source),)))
        elif target in self._choice.reasons or source is None or self._choice.is_float(source):
            self._keep_node(node)
        elif self._choice.find_label(source) == _HALF:
            self._half[target] = source  # float16 weights of the TFLite file
        else:
            self._half[target] = self._add("Cast", source, target, DType.FLOAT16)

    def _cast_weights(self, node: Node) -> None:
        """Store the large weights that a node and its nested graphs read in float32 as float16."""
        for value in (v for inner in walk_nodes([node]) for v in inner.inputs):
            if value is None or value.data is None or not self._choice.is_float(value):
                continue
            if value.data.nbytes > _LARGE and _fits(value.data) and value not in self._single:
                half = self._as_half(value)
                self._single[value] = self._add("Cast", half, value, DType.FLOAT32)

    def _rewrite_body(self, body: Body) -> Body:
        """Return a nested graph, whose inputs and outputs stay float32."""
        saved = self._nodes, dict(self._half), dict(self._single)
        self._nodes, self._depth = [], self._depth + 1
        self._single |= {v: v for v in body.inputs if self._choice.is_float(v)}
        for node in body.nodes:
            self._rewrite_node(node)
        outputs = tuple(self._as_single(v) if self._choice.is_float(v) else v for v in body.outputs)
        result = body._replace(
            nodes=eliminate_dead_nodes(self._nodes, outputs),
            outputs=outputs,
            tensors=tuple(map(self._convert_port, body.tensors)),
        )
        self._nodes, self._half, self._single = saved
        self._depth -= 1
        return result

    # Values

    def _as_half(self, value: Value) -> Value:
        if value.data is not None:
            if value not in self._constants:
                with np.errstate(all="ignore"):
                    data = value.data.astype(np.float16)
                self._constants[value] = Value(data, DType.FLOAT16, value.name)
            return self._constants[value]
        if value not in self._half:
            self._single.setdefault(value, value)  # it is computed in float32
            self._half[value] = self._add("Cast", value, value, DType.FLOAT16)
        return self._half[value]

    def _as_single(self, value: Value) -> Value:
        if value in self._single:
            return self._single[value]
        if value.data is not None:
            self._read.add(value)
        if value not in self._half:
            return value
        target = self._add_value_like(value, DType.FLOAT32) if self._depth else value
        self._nodes.append(_cast(self._half[value], target, DType.FLOAT32))
        self._single[value] = target
        return target

    def _as_computed(self, value: Value | None) -> Value | None:
        return value if value is None else self._single.get(value, self._half.get(value, value))

    def _add(self, op_type: str, source: Value, like: Value, dtype: DType) -> Value:
        """Add a Cast or an Identity, and return its output."""
        target = self._add_value_like(like, dtype)
        node = _cast(source, target, dtype)
        self._nodes.append(node if op_type == "Cast" else Node(op_type, (source,), (target,), {}))
        return target

    def _add_value_like(self, value: Value, dtype: DType) -> Value:
        new = Value()
        if value in self._types:
            self._types[new] = dtype, self._types[value][1]
        return new


def _cast(source: Value, target: Value, dtype: DType) -> Node:
    return Node("Cast", (source,), (target,), {"to": require_onnx_type(dtype)})

"""Checks of every emitted ONNX graph: a bug in the converter becomes an error, not a file.

Each node must be in the opset, read values that are computed before it, and have inputs and
attributes of the types in ONNX's schema. Each output must have the type that is recorded for it.
Shapes are not checked, except for the sizes that Reshape infers. A node that only a newer opset has
is not a bug: the caller chooses that opset.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, NoReturn

import numpy as np
from onnx import defs

from tflite2onnx.builder.builder import Port, find_bodies
from tflite2onnx.builder.nodes import NeedsOpset, Node, Value, find_onnx_type
from tflite2onnx.builder.opsets import DOMAINS, FIRST_KERNEL
from tflite2onnx.emit import Emitted
from tflite2onnx.errors import OperatorError, UnsupportedOperators
from tflite2onnx.graph import Graph
from tflite2onnx.tensor import DType

_FORMAL, _KIND = defs.OpSchema.FormalParameterOption, defs.OpSchema.AttrType
# The Python types of numbers in attributes. No integer is converted to a float.
_NUMBERS = {_KIND.INT: (int, np.integer), _KIND.FLOAT: (float, np.floating)}
# The attribute that gives the type of the output, for nodes whose inputs do not determine it.
_NAMED_BY = {"BitCast": "to", "Cast": "to", "Multinomial": "dtype"}
# For nodes with nested graphs: the output of the graph that corresponds to the first output of the
# node.
_FIRST_OUTPUT = {"If": 0, "Loop": 1, "Scan": 0}
_BUG = "this is a bug in the converter, please report it: "
# Types that few nodes of ONNX support. No operator of this package computes with them.
_UNKNOWN_TYPES = {DType.FLOAT8_E4M3FN.label, DType.FLOAT8_E5M2.label}
_RENAMED = {"float32": "float", "float64": "double"}
_LABELS = {
    f"tensor({_RENAMED.get(dtype.label, dtype.label.replace('_', ''))})": dtype.label
    for dtype in DType
}


class Parameter(NamedTuple):
    """An input or output: the types that it may have, and the name of its type constraint.

    Inputs and outputs with one constraint have the same type; "" is no constraint.
    """

    types: frozenset[str]
    constraint: str
    required: bool


class _SchemaOperands(NamedTuple):
    """The inputs, or the outputs, of a schema; the last input or output may be repeated."""

    each: tuple[Parameter, ...]
    is_repeated: bool

    def take(self, node: Node, count: int) -> Sequence[Parameter]:
        """Return a parameter for each of `count` inputs or outputs of a node."""
        if any(parameter.required for parameter in self.each[count:]):
            _refuse(node, f"has too few inputs or outputs: {count}")
        count_missing = count - len(self.each)
        if count_missing > 0 and not self.is_repeated:
            _refuse(node, f"has too many inputs or outputs: {count}")
        return self.each[:count] + self.each[-1:] * count_missing


class _NodeSchema(NamedTuple):
    inputs: _SchemaOperands
    outputs: _SchemaOperands
    attributes: Mapping[str, tuple[type, ...]]
    required: frozenset[str]


@lru_cache(maxsize=1024)
def _find_schema(op_type: str, opset: int, domain: str) -> _NodeSchema | None:
    try:
        schema = defs.get_schema(op_type, opset, domain)
    except defs.SchemaError:
        return None
    if schema.deprecated:
        return None
    attributes = schema.attributes.items()
    return _NodeSchema(
        _read_parameters(schema.inputs),
        _read_parameters(schema.outputs),
        {name: _NUMBERS.get(attribute.type, (object,)) for name, attribute in attributes},
        frozenset(name for name, attribute in attributes if attribute.required),
    )


def _read_parameters(formals: Sequence[Any]) -> _SchemaOperands:
    parameters = tuple(
        Parameter(
            frozenset(_LABELS[name] for name in formal.types if name in _LABELS),
            formal.type_str if formal.is_homogeneous else "",
            formal.option == _FORMAL.Single,
        )
        for formal in formals
    )
    return _SchemaOperands(parameters, any(item.option == _FORMAL.Variadic for item in formals))


@lru_cache(maxsize=1)
def _list_types() -> Mapping[int, str]:
    """Return the names of the element types that the installed onnx has, by their numbers."""
    numbers = {dtype: find_onnx_type(dtype) for dtype in DType}
    return {number: dtype.label for dtype, number in numbers.items() if number is not None}


def check(emitted: Emitted, graph: Graph) -> Mapping[Value, str]:
    """Check the ONNX graph that was emitted for a graph; return the types as `infer_types`.

    Raises:
        UnsupportedOperators: the ONNX graph is invalid; the error names the operator of the first
            invalid node.
        NeedsOpset: only a newer opset has a node, or has the node for the type of an input.
    """
    checker = _Checker(emitted)
    try:
        checker.check_nodes(emitted.nodes)
        checker.check_ports(emitted.outputs)
    except _InvalidError as error:
        nodes, index = checker.at
        places = {tensor: op.place for op in graph.walk_ops() for tensor in op.outputs}
        place_of = {port.value: places.get(port.tensor) for port in emitted.walk_tensors()}
        # The invalid node belongs to the operator whose output is the next tensor of the file.
        following = (place_of.get(value) for node in nodes[index:] for value in node.outputs)
        place = next((place for place in following if place), graph.name)
        raise UnsupportedOperators([OperatorError(str(error), place)]) from error
    return checker.known


def infer_types(emitted: Emitted) -> Mapping[Value, str]:
    """Return the element types of all values of a graph that `check` accepts; "" if unknown."""
    checker = _Checker(emitted)
    checker.check_nodes(emitted.nodes)
    return checker.known


def find_parameters(node: Node, opset: int) -> tuple[Sequence[Parameter], Sequence[Parameter]]:
    """Return a parameter for each input and each output of a node that `check` accepts.

    A node in a domain without schemas has no parameters.
    """
    rule = _find_schema(node.op_type, DOMAINS.get(node.domain, opset), node.domain)
    if rule is None:
        return (), ()
    inputs = rule.inputs.take(node, len(node.inputs))
    return inputs, rule.outputs.take(node, len(node.outputs))


class _InvalidError(Exception):
    """A graph is not valid ONNX."""


class _Checker:
    """Checks nodes in sequence; `known` has the types of all values so far, "" if unknown.

    `at` is the current node: the nodes of its graph, and its index.
    """

    def __init__(self, emitted: Emitted) -> None:
        self._opset, self._types = emitted.opset, emitted.types
        self.known = {port.value: port.dtype.label for port in emitted.inputs}
        self.at: tuple[Sequence[Node], int] = (), 0

    def check_nodes(self, nodes: Sequence[Node]) -> None:
        """Check nodes one after another, with the nodes of their nested graphs."""
        for index, node in enumerate(nodes):
            if node.op_type in _FIRST_OUTPUT:
                for body in find_bodies(node).values():
                    self.known |= {value: self._find_declared_type(value) for value in body.inputs}
                    self.check_nodes(body.nodes)
            self.at = nodes, index
            if not node.domain or node.domain in DOMAINS:
                self._check_node(node)
            else:  # the domain of a user has no schema
                self.known |= {value: self._find_declared_type(value) for value in node.outputs}

    def check_ports(self, ports: Iterable[Port]) -> None:
        """Check that the outputs of the graph are computed, and their types."""
        for port in ports:
            if self.known.get(port.value, "nothing") not in (port.dtype.label, ""):
                raise _InvalidError(f"{_BUG}{port.name} is not computed as {port.dtype.label}")

    def _check_node(self, node: Node) -> None:
        rule = self._find_rule(node)
        _check_attributes(node, rule)
        if node.op_type == "Reshape" and not node.domain:
            _check_shape(node)
        bound = self._find_constraint_types(node, rule)
        parameters = rule.outputs.take(node, len(node.outputs))
        for place, (value, parameter) in enumerate(zip(node.outputs, parameters, strict=True)):
            actual = bound.get(parameter.constraint) or self._infer_output_type(
                node, parameter, place
            )
            dtype = self._find_declared_type(value)
            if actual and dtype and actual != dtype:
                _refuse(node, f"computes {actual}, not {dtype}")
            self.known[value] = actual or dtype

    def _find_constraint_types(self, node: Node, rule: _NodeSchema) -> dict[str, str]:
        """Return the type of each type constraint of a node, which its inputs determine."""
        bound: dict[str, str] = {}
        parameters = rule.inputs.take(node, len(node.inputs))
        for value, parameter in zip(node.inputs, parameters, strict=True):
            if value is None:
                if parameter.required:
                    _refuse(node, "lacks an input")
                continue
            dtype = self._find_input_type(node, value)
            needed = FIRST_KERNEL.get((node.op_type, dtype), 0)
            if needed > self._opset:
                raise NeedsOpset(needed, f"{node.op_type} of {dtype}")
            if dtype and dtype not in parameter.types:
                self._check_newer(node, dtype)
                if dtype in _UNKNOWN_TYPES:
                    raise _InvalidError(f"ONNX's {node.op_type} does not take {dtype}")
                _refuse(node, f"does not take {dtype}")
            if dtype and parameter.constraint:
                first = bound.setdefault(parameter.constraint, dtype)
                if first != dtype:
                    _refuse(node, f"must have operands of one type, got {first} and {dtype}")
        return bound

    def _find_rule(self, node: Node) -> _NodeSchema:
        rule = _find_schema(node.op_type, DOMAINS.get(node.domain, self._opset), node.domain)
        if rule is None:
            self._check_newer(node)
            _refuse(node, f"is not in opset {self._opset}")
        return rule

    def _check_newer(self, node: Node, dtype: str = "") -> None:
        """Raise NeedsOpset if a newer opset has a node for the given type."""
        for opset in range(self._opset + 1, defs.onnx_opset_version() + 1):
            rule = None if node.domain else _find_schema(node.op_type, opset, "")
            if rule is not None and any(dtype in {"", *each.types} for each in rule.inputs.each):
                raise NeedsOpset(opset, f"{node.op_type} of {dtype}" if dtype else node.op_type)

    def _find_input_type(self, node: Node, value: Value) -> str:
        if value.data is not None and value.dtype is not None:
            return value.dtype.label
        if value not in self.known:
            _refuse(node, "reads a value that is not computed before it")
        return self.known[value]

    def _infer_output_type(self, node: Node, parameter: Parameter, place: int) -> str:
        """Return the type of an output that does not follow from inputs, "" if it is unknown."""
        if len(parameter.types) == 1:
            return next(iter(parameter.types))
        if node.op_type in _FIRST_OUTPUT:
            body = next(iter(find_bodies(node).values()))
            return self.known[body.outputs[_FIRST_OUTPUT[node.op_type] + place]]
        name = _NAMED_BY.get(node.op_type, "")
        if node.op_type == "DequantizeLinear" and name not in node.attributes:
            return self._find_input_type(node, node.present[1])  # the scale, from opset 23 on
        return _list_types().get(node.attributes.get(name, 0), "")

    def _find_declared_type(self, value: Value) -> str:
        dtype = self._types[value][0] if value in self._types else value.dtype
        return "" if dtype is None else dtype.label


def _check_shape(node: Node) -> None:
    """Refuse Reshape that would have to infer several sizes."""
    shape = node.inputs[1] if node.inputs[1:] else None
    if shape is not None and shape.data is not None and np.count_nonzero(shape.data == -1) > 1:
        _refuse(node, f"infers several sizes of {shape.data.tolist()}")


def _check_attributes(node: Node, rule: _NodeSchema) -> None:
    for name, value in node.attributes.items():
        if not isinstance(value, rule.attributes.get(name, ())):
            _refuse(node, f"has no attribute {name} that is {value}")
    if not rule.required <= node.attributes.keys():
        _refuse(node, "lacks an attribute")


def _refuse(node: Node, reason: str) -> NoReturn:
    raise _InvalidError(f"{_BUG}{node.op_type} {reason}")

"""The builder that operators emit nodes into: tensors in any order, as integers or as floats."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import prod
from typing import Any, NamedTuple

import numpy as np

from tflite2onnx.builder.nodes import Node, Operand, Value
from tflite2onnx.builder.opsets import find_first_opset
from tflite2onnx.builder.qdq import QdqNodes
from tflite2onnx.errors import OperatorError
from tflite2onnx.layout import Order, make_identity, moves_nothing
from tflite2onnx.quantization.rules import Reading
from tflite2onnx.quantization.storage import (
    REAL,
    Storage,
    as_numbers,
    decode_constant,
    encode_constant,
)
from tflite2onnx.quantize import OperandStorage, StoragePlan
from tflite2onnx.reader.buffers import pack_subbyte
from tflite2onnx.tensor import Array, Assembly, DType, Shape, Sizes, Tensor
from tflite2onnx.utils.constant_budget import ConstantBudget
from tflite2onnx.utils.mapped_files import find_address

__all__ = ["REAL", "Body", "Builder", "NeedsReshape", "Operand", "Port", "Value", "View"]

_DEQUANTIZING = (Reading.DEQUANTIZED, Reading.UNIFORM, Reading.FOLDED, Reading.NUMBERS)


class View(NamedTuple):
    """A tensor in the order in which an operator reads or writes it.

    `plan` says how the operator reads or writes the elements. `letters` are the names of the
    tensor's TFLite axes, if the operator defines names.
    """

    tensor: Tensor
    order: Order
    plan: OperandStorage
    letters: str = ""
    source: Callable[[Order, Sizes | None], Value] | None = None

    @property
    def value(self) -> Value:
        """The ONNX value; its nodes are emitted on first use."""
        return self._make_value(None)

    def reshape(self, shape: Sequence[int | str]) -> Value:
        """Return the value in another shape, reshaped before DequantizeLinear.

        A Reshape between DequantizeLinear and an operator would prevent their fusion.
        """
        return self._make_value(None if tuple(shape) == self.sizes else tuple(shape))

    def with_order(self, order: Order) -> View:
        """Return a view of the same tensor in another order; for a constant this needs no node."""
        return self._replace(order=order)

    def _make_value(self, shape: Sizes | None) -> Value:
        if self.source is None:
            raise OperatorError(f"{self.tensor.name} must be computed before it is read")
        return self.source(self.order, shape)

    @property
    def shape(self) -> Shape:
        """Sizes in the stored order, with the file's values of dynamic sizes."""
        return tuple(self.tensor.shape[i] for i in self.order)

    @property
    def sizes(self) -> Sizes:
        """Sizes in the stored order, with the names of dynamic sizes."""
        return _reorder_sizes(self.tensor, self.order)

    @property
    def rank(self) -> int:
        """Number of axes."""
        return len(self.order)

    @property
    def storage(self) -> Storage:
        """The storage of the elements that the operator reads or writes."""
        as_stored = self.plan.reading in (Reading.STORED, Reading.DYNAMIC, Reading.NUMBERS)
        return self.plan.storage if as_stored else REAL

    @property
    def dtype(self) -> DType:
        """The element type that the operator reads or writes: float32 for real numbers."""
        return self.storage.dtype

    def axis(self, axis: int) -> int:
        """Return the position of a TFLite axis (negative: from the end) in the stored order."""
        if not -self.rank <= axis < self.rank:
            raise OperatorError(
                f"an axis of {self.tensor.name} must be at least {-self.rank} and below"
                f" {self.rank}, got {axis}"
            )
        return self.order.index(axis % self.rank)

    def reorder(self, items: Sequence[Any]) -> list[Any]:
        """Return a list that has one item for each TFLite axis in the stored order."""
        return [items[i] for i in self.order]

    def size(self, letter: str) -> int:
        """Return the size of the axis with this letter."""
        return self.tensor.shape[self.letters.index(letter)]

    @property
    def constant(self) -> Array:
        """The elements in TFLite order; OperatorError if the tensor is not constant."""
        if self.tensor.data is None:
            raise OperatorError(f"{self.tensor.name} must be constant")
        return self.tensor.data

    @property
    def ints(self) -> list[int]:
        """The elements of a constant as a flat list: axes, sizes, pads."""
        return [int(i) for i in self.constant.reshape(-1)]


class NeedsReshape(NamedTuple):
    """A result of `emit` that the driver must reshape to the output's shape.

    The driver reshapes the value after QuantizeLinear, so that the operator can be fused with it.
    Reshape infers one dynamic size; several are read from the shape of `like`, an operand.
    """

    value: Value
    like: Operand | None = None


class Port(NamedTuple):
    """A value that stores a tensor in an order: an input, an output, or one in between.

    `letters` are the names of the tensor's axes in TFLite's order, if an operator or the user names
    them.
    """

    name: str
    value: Value
    tensor: Tensor
    order: Order
    dtype: DType
    letters: str = ""


class Body(NamedTuple):
    """A graph that is an attribute of a node; its nodes may read values of enclosing graphs.

    `tensors` are the inputs, and the tensors that the nodes compute.
    """

    name: str
    inputs: tuple[Value, ...]
    nodes: tuple[Node, ...]
    outputs: tuple[Value, ...]
    tensors: tuple[Port, ...]


class AdaptiveWeight(NamedTuple):
    """Constant integers that are read as int8 or as uint8 (`Storage.adapts`)."""

    integers: Value
    storage: Storage
    order: Order


class StoredAssembly(NamedTuple):
    """The elements of a constant, and how nodes compute them from a smaller constant.

    Both constants have the same storage. Operators read the constant in `order` and `shape`.
    """

    elements: Array
    assembly: Assembly
    order: Order
    shape: Sizes | None


class Builder(QdqNodes):
    """Collects nodes for one opset, and maps each tensor to its values.

    `plan` says how tensors are stored and how operands are read. A nested graph may read
    tensors of the graph `around` it. The outer graph has the Transpose nodes of these tensors,
    outside of any loop, and all constants.
    """

    def __init__(
        self,
        opset: int,
        *,
        opset_is_fixed: bool = False,
        plan: StoragePlan = StoragePlan(),  # noqa: B008 - frozen
        budget: ConstantBudget | None = None,
        around: Builder | None = None,
    ) -> None:
        super().__init__(opset, opset_is_fixed=opset_is_fixed, budget=budget, around=around)
        self.plan = plan
        self._around = around
        self._stored: dict[Tensor, dict[Order, Value]] = {}  # the order of the producer comes first
        self._views: dict[tuple[Hashable, Order, DType, bool, Sizes | None], Value] = {}
        self._real: dict[tuple[Hashable, Order, Hashable, Sizes | None], Value] = {}
        # Constants that were converted to other types.
        self._read: dict[tuple[Hashable, ...], Value] = {}
        self.adaptive: dict[Value, AdaptiveWeight] = {}  # The keys are the dequantized weights.
        # The keys are the ids of the element arrays.
        self.assemblies: dict[int, StoredAssembly] = {}
        self.int8_is_exact: Value = (
            around.int8_is_exact if around else Value(dtype=DType.BOOL, name="int8_is_exact")
        )

    def pack_bytes(self, x: View) -> Value:
        """Return a constant of less than 8 bits as uint8; readers of the same elements share it.

        The last axis must have whole bytes.
        """
        data = x.constant
        key = find_address(data), data.shape
        if key not in self.packed:
            packed = pack_subbyte(data, x.tensor.dtype).reshape(*data.shape[:-1], -1)
            self.packed[key] = data, self.constant(packed, DType.UINT8, x.tensor.name)
        return self.packed[key][1]

    def keep_order(self, x: View) -> None:
        """Store a constant in the file's order; nodes that runtimes fold make another order."""
        self.kept.add((find_address(x.constant), x.constant.shape))

    def make_nested(self) -> Builder:
        """Return the builder of a graph that is nested in this graph."""
        return Builder(self.opset, opset_is_fixed=self.opset_is_fixed, plan=self.plan, around=self)

    def walk_stored_tensors(self) -> Iterator[tuple[Tensor, Value, Order]]:
        """Yield each computed tensor, and the value and the order that its producer stored."""
        for tensor, values in self._stored.items():
            order, value = next(iter(values.items()))
            yield tensor, value, order

    def find_storage(self, tensor: Tensor) -> Storage:
        """Return the storage of a tensor inside the model."""
        return self._find_storage_in_opset(tensor, self.plan.find_storage(tensor)).storage

    def find_endpoint_storage(self, tensor: Tensor) -> Storage:
        """Return the storage of a tensor as an input, output or state of the model."""
        return self._find_storage_in_opset(tensor, self.plan.find_endpoint_storage(tensor)).storage

    def _find_storage_in_opset(self, tensor: Tensor, planned: OperandStorage) -> OperandStorage:
        """Return the storage of an operand; constants are wider if the opset lacks their type."""
        if tensor.data is None or planned.reading is Reading.FLOAT:
            return planned
        storage = self.widen_storage(planned.storage)
        return planned if storage is planned.storage else planned._replace(storage=storage)

    def as_int64_list(self, numbers: View, order: Order | None = None) -> Value:
        """Return integers, one for each TFLite axis, as a list of int64 in an order."""
        rows = self.as_int64_rows(numbers, order)
        # Kernels read the elements of a constant, whatever its shape is.
        return rows if numbers.rank == 1 else self.reshape(rows, [-1])

    def as_int64_rows(self, numbers: View, order: Order | None = None) -> Value:
        """Return integers, a row for each TFLite axis, as int64 in an order."""
        indices = self.recast(numbers, numbers.dtype, DType.INT64)
        if order is None or order == make_identity(len(order)):
            return indices
        return self.Gather(indices, self.ints(order), axis=0)

    def define(self, tensor: Tensor, value: Value, order: Order) -> None:
        """Record the value of a tensor in an order; OperatorError if the tensor has a value."""
        if tensor in self._stored:
            raise OperatorError(f"{tensor.name} must be computed once, got a second value")
        self._stored[tensor] = {order: value}
        self.annotate(value, self.find_storage(tensor).dtype, _reorder_sizes(tensor, order))

    def view(
        self, tensor: Tensor, order: Order, letters: str = "", planned: OperandStorage | None = None
    ) -> View:
        """Return the tensor in an order, read as planned; None reads its elements as stored.

        A Transpose that the order needs is emitted once, on the stored integers.
        """
        planned = self._find_storage_in_opset(tensor, planned or self.plan.find_storage(tensor))
        is_float = planned.reading is Reading.FLOAT
        storage = self.plan.find_storage(tensor).storage if is_float else planned.storage

        def make(order: Order, shape: Sizes | None) -> Value:
            if is_float and tensor.data is not None:
                return self._dequantize_constant(tensor, order, planned.storage, shape)
            value = self._fetch(tensor, order, storage, shape)
            if planned.reading not in _DEQUANTIZING:
                return value
            source = as_numbers(storage) if planned.reading is Reading.NUMBERS else storage
            return self._dequantize(value, *_reshape_storage(tensor, order, source, shape))

        return View(tensor, order, planned, letters, make)

    def _fetch(self, tensor: Tensor, order: Order, target: Storage, shape: Sizes | None) -> Value:
        if self._around is not None and tensor not in self._stored:
            return self._around._fetch(tensor, order, target, shape)  # noqa: SLF001 - same class
        key = (_make_key(tensor), order, target.dtype, target.moved, shape)
        if key not in self._views:
            self._views[key] = self._fetch_value(tensor, order, target, shape)
        sizes = _reorder_sizes(tensor, order) if shape is None else shape
        return self.annotate(self._views[key], target.dtype, sizes)

    def _fetch_value(
        self, tensor: Tensor, order: Order, target: Storage, shape: Sizes | None
    ) -> Value:
        if tensor.data is not None:
            data = _reshape_to_sizes(tensor.data.transpose(order), shape)
            value = self._reorder_constant(tensor, data, target)
            self._keep_assembly(tensor, value, target, order, shape)
            return value
        if shape is not None:
            whole = self._fetch(tensor, order, target, None)
            return self._move_elements(whole, target, lambda x: self.reshape(x, shape))
        return self.convert(
            self._move_value(tensor, order), self.find_storage(tensor), target, order
        )

    def _keep_assembly(
        self, tensor: Tensor, value: Value, target: Storage, order: Order, shape: Sizes | None
    ) -> None:
        """Record how nodes may make a constant of a smaller constant (`assemble_constants`)."""
        assembly = tensor.assembly
        if assembly is None or assembly.elements is not tensor.data or value.data is None:
            return
        fill = np.asarray(assembly.fill).astype(assembly.source.dtype)
        source, fill = (encode_constant(x, tensor.dtype, target) for x in (assembly.source, fill))
        copies = replace(assembly, source=source, fill=int(fill))
        entry = StoredAssembly(value.data, copies, order, shape)
        self.assemblies[id(value.data)] = entry

    def _reorder_constant(self, tensor: Tensor, data: Array, target: Storage) -> Value:
        """Return a transposed constant; float16 weights that are read as float32 are cast."""
        if data.dtype == tensor.dtype.numpy or tensor.dtype is DType.STRING:
            return self.store_constant(data, tensor.dtype, target, tensor.name)
        value = self.constant(data, name=tensor.name)
        key = (value, tensor.dtype)
        if key not in self._read:
            self._read[key] = self.cast(value, tensor.dtype)
        return self._read[key]

    def _dequantize(self, value: Value, storage: Storage, order: Order) -> Value:
        """Return the float32 numbers that stored integers stand for, for one more reader.

        Each reader of int8 constants has its own constants (`make_separate_constant`). Constants of
        other types, and those that Cast and Mul read, have one node for all readers.
        """
        quantization = storage.quantization
        if value.data is None or quantization is None:
            return self.dequantize(value, storage, order)
        if storage.dtype is DType.INT8 and not storage.adapts and not storage.folds:
            separate = self.make_separate_constant(value.data, storage.dtype, value.name)
            return self.dequantize(separate, storage, order)
        # One bias has different scales in different products.
        key = (value, order, quantization.key)
        if key not in self._read:
            self._read[key] = self.dequantize_weights(value, storage, order)
        return self._read[key]

    def dequantize_weights(self, integers: Value, storage: Storage, order: Order) -> Value:
        """Return the float32 numbers that constant integers stand for.

        The nodes of weights whose type is chosen at load are added when the graph is complete
        (`add_adaptive_weights`).
        """
        if not storage.adapts:
            return self.dequantize(integers, storage, order)
        # The nodes of the weights have this operator. A newer opset is requested at the first
        # weight, because all nodes are made again.
        self.supports(find_first_opset("BitwiseXor"), "BitwiseXor")
        result = self.annotate_like(integers, Value(), DType.FLOAT32)
        self.adaptive[result] = AdaptiveWeight(integers, storage, order)
        return result

    def _dequantize_constant(
        self, tensor: Tensor, order: Order, storage: Storage, shape: Sizes | None
    ) -> Value:
        """Return the float32 numbers that a quantized constant stands for."""
        quantization = storage.quantization
        if tensor.data is None or quantization is None:
            raise OperatorError(f"{tensor.name} must be a quantized constant")
        if self._around is not None:
            return self._around._dequantize_constant(tensor, order, storage, shape)  # noqa: SLF001 - same class
        # One bias has different scales in different products.
        key = (_make_key(tensor), order, quantization.key, shape)
        if key not in self._real:
            elements = encode_constant(tensor.data, tensor.dtype, storage)
            data = decode_constant(elements, quantization).transpose(order)
            self._real[key] = self.constant(_reshape_to_sizes(data, shape), name=tensor.name)
        return self._real[key]

    def _move_value(self, tensor: Tensor, order: Order) -> Value:
        if tensor not in self._stored:
            raise OperatorError(f"{tensor.name} must be constant or computed before it is read")
        values = self._stored[tensor]
        if order not in values:
            values[order] = self._move(tensor, values, order)
        return values[order]

    def _move(self, tensor: Tensor, values: Mapping[Order, Value], order: Order) -> Value:
        storage = self.find_storage(tensor)
        for other, value in values.items():
            if moves_nothing(tensor.layout_shape, other, order):
                move = partial(self.reshape, shape=_reorder_sizes(tensor, order))
                return self._move_elements(value, storage, move)
        first, value = next(iter(values.items()))
        perm = [first.index(i) for i in order]
        return self._move_elements(value, storage, lambda x: self.Transpose(x, perm=perm))

    def _move_elements(
        self, value: Value, storage: Storage, move: Callable[[Value], Value]
    ) -> Value:
        """Return a moved value, in the same storage; with `uniform` real numbers are moved."""
        scales = storage.quantization
        if not self.plan.uniform or scales is None or scales.per_axis:
            return move(value)
        return self.quantize(move(self.dequantize(value, storage, ())), storage, ())

    def convert(self, x: Value, source: Storage, target: Storage, order: Order) -> Value:
        """Return the same real numbers in another storage."""
        if source.dtype is target.dtype:
            return x
        numbers = x if source.quantization is None else self.dequantize(x, source, order)
        return numbers if target.quantization is None else self.quantize(numbers, target, order)


WITH_GRAPHS = frozenset({"If", "Loop", "Scan"})


def find_bodies(node: Node) -> dict[str, Body]:
    """Return the graphs that are attributes of a node, by the names of the attributes."""
    if node.op_type not in WITH_GRAPHS:
        return {}
    return {key: body for key, body in node.attributes.items() if isinstance(body, Body)}


def walk_nodes(nodes: Iterable[Node]) -> Iterator[Node]:
    """Yield nodes, and the nodes of their nested graphs."""
    for node in nodes:
        yield node
        for body in find_bodies(node).values():
            yield from walk_nodes(body.nodes)


def find_makers(nodes: Iterable[Node]) -> Mapping[Value | None, Node]:
    """Return the node that computes each value, without the nodes of nested graphs."""
    return {value: node for node in nodes for value in node.outputs}


def find_readers(nodes: Iterable[Node]) -> Mapping[Value, Sequence[Node]]:
    """Return the nodes that read each value, also nodes of nested graphs."""
    readers: dict[Value, list[Node]] = {}
    for node in walk_nodes(nodes):
        for value in node.present:
            readers.setdefault(value, []).append(node)
    return readers


def eliminate_dead_nodes(nodes: Sequence[Node], outputs: Iterable[Value]) -> tuple[Node, ...]:
    """Return the nodes on which the outputs depend.

    A node that computes a shape, for example, is dead if an attribute gives the shape in ONNX.
    """
    inputs: set[Value | None] = set(outputs)
    live = []
    for node in reversed(nodes):
        if not inputs.isdisjoint(node.outputs):
            live.append(node)
            for inner in walk_nodes([node]) if find_bodies(node) else (node,):
                inputs.update(inner.inputs, *(body.outputs for body in find_bodies(inner).values()))
    return tuple(reversed(live))


def _reorder_sizes(tensor: Tensor, order: Order) -> Sizes:
    return tuple(tensor.sizes[i] for i in order)


def _reshape_to_sizes(data: Array, sizes: Sizes | None) -> Array:
    """Return a constant in another shape; the only dynamic size follows from the others."""
    if sizes is None:
        return data
    return data.reshape([-1 if isinstance(size, str) else size for size in sizes])


def _make_key(tensor: Tensor) -> Hashable:
    """Return a key of a tensor, equal for constants of one shape, type and memory address.

    Tensors of a file may share a buffer, and weights that are tied must stay tied.
    """
    if tensor.data is None or tensor.data.size == 0:
        return tensor
    memory = tensor.data.__array_interface__
    return memory["data"][0], memory["typestr"], tensor.data.strides, tensor.shape, tensor.dtype


def _reshape_storage(
    tensor: Tensor, order: Order, storage: Storage, shape: Sizes | None
) -> tuple[Storage, Order]:
    """Return the storage and the order of a reshaped tensor; the axis of scales may change."""
    if shape is None or storage.quantization is None:
        return storage, order
    if not storage.quantization.per_axis:
        return storage, make_identity(len(shape))
    old_axis = order.index(storage.quantization.axis)
    sizes = [tensor.shape[i] for i in order]
    known_sizes = [size for size in shape if isinstance(size, int)]
    axes = [
        i
        for i, size in enumerate(known_sizes)
        if len(known_sizes) == len(shape)
        and size == sizes[old_axis]
        and prod(known_sizes[:i]) == prod(sizes[:old_axis])
    ]
    if not axes or storage.quantization.block_size:
        raise OperatorError(
            f"the scales of {tensor.name} must belong to one of the axes of {list(shape)}"
        )
    quantization = replace(storage.quantization, axis=axes[0])
    return storage._replace(quantization=quantization), make_identity(len(shape))

"""What operators emit into: tensors viewed in an order, dequantized and quantized where asked."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any, NamedTuple

from tflite2onnx.builder.nodes import Node, Operand, Value
from tflite2onnx.builder.qdq import QdqNodes
from tflite2onnx.errors import OperatorError
from tflite2onnx.layout import Order, identity, moves_nothing
from tflite2onnx.quantize import Storage, decode_constant, encode_constant, is_quantized, storage
from tflite2onnx.tensor import Array, DType, Shape, Sizes, Tensor
from tflite2onnx.utils.constant_budget import ConstantBudget

__all__ = [
    "REAL",
    "AlreadyStored",
    "Body",
    "Builder",
    "NeedsReshape",
    "Operand",
    "Port",
    "Value",
    "View",
]

REAL = Storage(DType.FLOAT32)


class View(NamedTuple):
    """A tensor in the order that an operator reads or writes it in.

    `storage` is what the operator sees of it: stored integers as they are, or real numbers.
    `letters` are the names of its TFLite axes, where the operator has given them.
    """

    tensor: Tensor
    order: Order
    storage: Storage
    letters: str = ""
    source: Callable[[Order, Sizes | None], Value] | None = None

    @property
    def value(self) -> Value:
        """The ONNX value; made on first use, so that what is only looked at costs nothing."""
        return self._make_value(None)

    def reshape(self, shape: Sequence[int | str]) -> Value:
        """Return the value in another shape; what is stored is reshaped, then dequantized.

        A Reshape between DequantizeLinear and an operator would keep the two from fusing.
        """
        return self._make_value(None if tuple(shape) == self.sizes else tuple(shape))

    def in_order(self, order: Order) -> View:
        """Return the tensor in another order, which costs nothing of a constant."""
        return self._replace(order=order)

    def _make_value(self, shape: Sizes | None) -> Value:
        if self.source is None:
            raise OperatorError(f"{self.tensor.name} is not computed yet")
        return self.source(self.order, shape)

    @property
    def shape(self) -> Shape:
        """Sizes in the stored order; those that stay open are as in the file."""
        return tuple(self.tensor.shape[i] for i in self.order)

    @property
    def sizes(self) -> Sizes:
        """Sizes in the stored order, with the names of those that stay open."""
        return _sizes(self.tensor, self.order)

    @property
    def rank(self) -> int:
        """Number of axes."""
        return len(self.order)

    @property
    def dtype(self) -> DType:
        """The element type that the operator reads or writes: float32 for real numbers."""
        return self.storage.dtype

    def axis(self, axis: int) -> int:
        """Return where the TFLite axis (negative: from the end) stands in the stored order."""
        if not -self.rank <= axis < self.rank:
            raise OperatorError(f"axis {axis} of {self.tensor.name}, which has {self.rank} axes")
        return self.order.index(axis % self.rank)

    def reorder(self, items: Sequence[Any]) -> list[Any]:
        """Return a list with one item per TFLite axis in the stored order."""
        return [items[i] for i in self.order]

    def size(self, letter: str) -> int:
        """Return the size of the axis with this letter."""
        return self.tensor.shape[self.letters.index(letter)]

    @property
    def constant(self) -> Array:
        """The elements in TFLite order; an OperatorError if they are not known."""
        if self.tensor.data is None:
            raise OperatorError(f"{self.tensor.name} is not constant")
        return self.tensor.data

    @property
    def ints(self) -> list[int]:
        """The elements of a constant as a flat list: axes, sizes, pads."""
        return [int(i) for i in self.constant.reshape(-1)]


class NeedsReshape(NamedTuple):
    """What `emit` may return for a value that still has to take the output's shape.

    The driver reshapes it after quantizing, so that the operator and QuantizeLinear can fuse.
    """

    value: Value


class AlreadyStored(NamedTuple):
    """What `emit` may return for a value that is stored already, as `Builder.storage` has it."""

    value: Value


class Port(NamedTuple):
    """A value that stores a tensor in an order: an input, an output, or one in between.

    `letters` are those of its axes in TFLite's order, where anybody named them.
    """

    name: str
    value: Value
    tensor: Tensor
    order: Order
    dtype: DType
    letters: str = ""


class Body(NamedTuple):
    """A graph that is an attribute of a node; `tensors` are those that it computes or is given.

    Its nodes may read values of the graphs around it.
    """

    name: str
    inputs: tuple[Value, ...]
    nodes: tuple[Node, ...]
    outputs: tuple[Value, ...]
    tensors: tuple[Port, ...]


class Builder(QdqNodes):
    """Collects nodes for one opset, and knows what each tensor has become.

    `int8_as_uint8` keeps int8 activations as uint8; `float_only` keeps real numbers in place of all
    quantized integers; `weights` is how weights of integer products are stored. The builder of a
    nested graph knows the one `around` it: what comes from there is moved there, outside of any
    loop, and so are constants.
    """

    def __init__(
        self,
        opset: int,
        *,
        opset_is_fixed: bool = False,
        int8_as_uint8: bool = False,
        float_only: bool = False,
        weights: str = "auto",
        budget: ConstantBudget | None = None,
        around: Builder | None = None,
    ) -> None:
        super().__init__(opset, opset_is_fixed=opset_is_fixed, budget=budget, around=around)
        self.int8_as_uint8 = int8_as_uint8
        self.float_only = float_only
        self.weights = weights
        self._around = around
        self._stored: dict[Tensor, dict[Order, Value]] = {}  # the producer's order first
        self._views: dict[tuple[Hashable, Order, DType, bool, Sizes | None], Value] = {}
        self._real: dict[tuple[Hashable, Order, bytes, Sizes | None], Value] = {}

    @property
    def is_nested(self) -> bool:
        """Whether it is a graph within another."""
        return self._around is not None

    def make_nested(self) -> Builder:
        """Return the builder of a graph within this one."""
        return Builder(
            self.opset,
            opset_is_fixed=self.opset_is_fixed,
            int8_as_uint8=self.int8_as_uint8,
            float_only=self.float_only,
            weights=self.weights,
            around=self,
        )

    def stored_tensors(self) -> Iterator[tuple[Tensor, Value, Order]]:
        """Yield each computed tensor with its value, and the order that its producer gave it."""
        for tensor, there in self._stored.items():
            order, value = next(iter(there.items()))
            yield tensor, value, order

    def storage(self, tensor: Tensor, *, weight: bool = False) -> Storage:
        """Return how a tensor is kept; weights stay as they are in the file."""
        if self.float_only and is_quantized(tensor) and tensor.data is None:
            return REAL
        return self.integer_storage(tensor, as_filed=weight)

    def integer_storage(self, tensor: Tensor, *, as_filed: bool = False) -> Storage:
        """Return the integers that stand for a tensor's real numbers: the file's, or these moved.

        Of a tensor that is not quantized they are its own elements.
        """
        kept = storage(tensor, unsigned=self.int8_as_uint8 and not as_filed)
        return kept if tensor.data is None or self.float_only else self.storage_in_opset(kept)

    def as_int64_list(self, numbers: View, order: Order | None = None) -> Value:
        """Return a list of computed integers, one for each TFLite axis, as int64 in an order."""
        wide = self.recast(numbers, numbers.dtype, DType.INT64)
        if order is None or order == identity(len(order)):
            return wide
        return self.Gather(wide, self.ints(order), axis=0)

    def define(self, tensor: Tensor, value: Value, order: Order) -> None:
        """Say that the tensor is now known, as it is stored, in this order."""
        if tensor in self._stored:
            raise OperatorError(f"{tensor.name} is computed twice")
        self._stored[tensor] = {order: value}
        self.annotate(value, self.storage(tensor).dtype, _sizes(tensor, order))

    def view(
        self,
        tensor: Tensor,
        order: Order,
        letters: str = "",
        *,
        real: bool = False,
        storage: Storage | None = None,
    ) -> View:
        """Return the tensor in an order, as it is stored or as real numbers.

        The move that takes, if any, is emitted once, on the stored integers. An operator can be
        given it `kept` otherwise than it is elsewhere.
        """
        storage = storage or self.storage(tensor)
        pair = real and storage.quantization is not None
        if tensor.data is not None and not (pair and self.float_only):
            storage = self.storage_in_opset(storage)

        def make(order: Order, shape: Sizes | None) -> Value:
            if pair and self.float_only:
                return self._real_constant(tensor, order, storage, shape)
            value = self._fetch(tensor, order, storage, shape)
            if pair and storage.dtype is DType.INT8 and value.data is not None:
                value = self.own_constant(value.data, storage.dtype, value.name)
            # Every reader gets a DequantizeLinear of its own, as fusions want it.
            return (
                self.dequantize(value, *_in_shape(tensor, order, storage, shape)) if pair else value
            )

        return View(tensor, order, REAL if pair else storage, letters, make)

    def _fetch(self, tensor: Tensor, order: Order, kept: Storage, shape: Sizes | None) -> Value:
        if self._around is not None and tensor not in self._stored:
            return self._around._fetch(tensor, order, kept, shape)  # noqa: SLF001 - its own kind
        key = (_identity(tensor), order, kept.dtype, kept.moved, shape)
        if key not in self._views:
            self._views[key] = self._fetch_value(tensor, order, kept, shape)
        sizes = _sizes(tensor, order) if shape is None else shape
        return self.annotate(self._views[key], kept.dtype, sizes)

    def _fetch_value(
        self, tensor: Tensor, order: Order, kept: Storage, shape: Sizes | None
    ) -> Value:
        if tensor.data is not None:
            data = _in_sizes(tensor.data.transpose(order), shape)
            return self._weights(tensor, data, kept)
        if shape is not None:
            return self.reshape(self._fetch(tensor, order, kept, None), shape)
        return self.convert(self._move_value(tensor, order), self.storage(tensor), kept, order)

    def _weights(self, tensor: Tensor, data: Array, kept: Storage) -> Value:
        """Return a constant tensor, moved already; stored narrower than it is read, it is cast."""
        if data.dtype == tensor.dtype.numpy or tensor.dtype is DType.STRING:
            return self.stored_constant(data, tensor.dtype, kept, tensor.name)
        return self.cast(self.constant(data, name=tensor.name), tensor.dtype)

    def _real_constant(
        self, tensor: Tensor, order: Order, kept: Storage, shape: Sizes | None
    ) -> Value:
        """Return the real numbers that a quantized constant stands for."""
        if tensor.data is None or kept.quantization is None:
            raise OperatorError(f"{tensor.name} is no quantized constant")
        if self._around is not None:
            return self._around._real_constant(tensor, order, kept, shape)  # noqa: SLF001 - its own kind
        # The scale of a bias is not its own.
        scales = kept.quantization.scale.tobytes() + kept.quantization.zero_point.tobytes()
        key = (_identity(tensor), order, scales, shape)
        if key not in self._real:
            data = decode_constant(
                encode_constant(tensor.data, tensor.dtype, kept), kept.quantization
            )
            data = _in_sizes(data.transpose(order), shape)
            self._real[key] = self.constant(data, name=tensor.name)
        return self._real[key]

    def _move_value(self, tensor: Tensor, order: Order) -> Value:
        if tensor not in self._stored:
            raise OperatorError(f"{tensor.name} is neither constant nor computed")
        there = self._stored[tensor]
        if order not in there:
            there[order] = self._move(tensor, there, order)
        return there[order]

    def _move(self, tensor: Tensor, there: Mapping[Order, Value], order: Order) -> Value:
        for other, value in there.items():
            if moves_nothing(tensor.layout_shape, other, order):
                return self.reshape(value, _sizes(tensor, order))
        home, value = next(iter(there.items()))
        return self.Transpose(value, perm=[home.index(i) for i in order])

    def convert(self, x: Value, have: Storage, want: Storage, order: Order) -> Value:
        """Return what is kept in one way as it is kept in another: the same real numbers."""
        if have.dtype is want.dtype:
            return x
        real = x if have.quantization is None else self.dequantize(x, have, order)
        return real if want.quantization is None else self.quantize(real, want, order)


def bodies_of(node: Node) -> dict[str, Body]:
    """Return the graphs within a node, by the names of its attributes."""
    return {key: body for key, body in node.attributes.items() if isinstance(body, Body)}


def every_node(nodes: Iterable[Node]) -> Iterator[Node]:
    """Yield nodes, and those of the graphs within them."""
    for node in nodes:
        yield node
        for body in bodies_of(node).values():
            yield from every_node(body.nodes)


def eliminate_dead_nodes(nodes: Sequence[Node], outputs: Iterable[Value]) -> tuple[Node, ...]:
    """Return the nodes that something reads.

    What computes a shape, say, is not read if ONNX's node takes the shape as an attribute.
    """
    read: set[Value | None] = set(outputs)
    kept = []
    for node in reversed(nodes):
        if not read.isdisjoint(node.outputs):
            kept.append(node)
            for inner in every_node([node]):
                read.update(inner.inputs, *(body.outputs for body in bodies_of(inner).values()))
    return tuple(reversed(kept))


def _sizes(tensor: Tensor, order: Order) -> Sizes:
    return tuple(tensor.sizes[i] for i in order)


def _in_sizes(data: Array, sizes: Sizes | None) -> Array:
    """Return a constant in another shape, none of which stays open."""
    if sizes is None:
        return data
    return data.reshape([-1 if isinstance(size, str) else size for size in sizes])


def _identity(tensor: Tensor) -> Hashable:
    """Return what tells a tensor from others: a constant is where its elements lie.

    Files share buffers between tensors, and weights that are tied shall stay so.
    """
    if tensor.data is None or tensor.data.size == 0:
        return tensor
    lies = tensor.data.__array_interface__
    return lies["data"][0], lies["typestr"], tensor.data.strides, tensor.shape, tensor.dtype


def _in_shape(
    tensor: Tensor, order: Order, kept: Storage, shape: Sizes | None
) -> tuple[Storage, Order]:
    """Return how a tensor is kept once it is reshaped, and its order: the axis of scales counts."""
    if shape is None or kept.quantization is None or not kept.quantization.per_axis:
        return kept, order
    place = order.index(kept.quantization.axis)
    sizes = [tensor.shape[i] for i in order]
    fixed = [size for size in shape if isinstance(size, int)]
    places = [
        i
        for i, size in enumerate(fixed)
        if len(fixed) == len(shape)
        and size == sizes[place]
        and prod(fixed[:i]) == prod(sizes[:place])
    ]
    if not places or kept.quantization.block_size:
        raise OperatorError(
            f"the scales of {tensor.name} do not belong to one of the axes of {list(shape)}"
        )
    quantization = replace(kept.quantization, axis=places[0])
    return kept._replace(quantization=quantization), identity(len(shape))

"""The model's inputs and outputs as the planner sees them, and the user's own layouts."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tflite2onnx.errors import LayoutError
from tflite2onnx.graph import Graph, Op, Options
from tflite2onnx.layout import (
    Choice,
    Frame,
    Order,
    Site,
    axis_names,
    channels_first,
    identity,
    order_of,
    pin_operand,
)
from tflite2onnx.tensor import Array, DType, Shape, Sizes, Tensor

# What the metadata of the ONNX model say of its interface is under these keys, as JSON.
INPUTS, OUTPUTS = "tflite2onnx.inputs", "tflite2onnx.outputs"


@dataclass(frozen=True)
class Endpoint:
    """An input or output of the model; onnx_shape[i] is tflite_shape[order[i]].

    `dtype` is the element type, by TFLite's name in small letters. `symbols` are the names of the
    sizes that stay open, by TFLite axis; the shapes have those of the file. `letters` are those of
    the axes in TFLite's order, empty where nobody named them.
    """

    name: str
    dtype: str
    tflite_shape: Shape
    onnx_shape: Shape
    order: Order
    symbols: Mapping[int, str] = field(default_factory=dict)
    letters: str = ""

    @property
    def sizes(self) -> Sizes:
        """The ONNX shape, with the names of sizes that stay open."""
        return tuple(self.symbols.get(i, self.tflite_shape[i]) for i in self.order)

    @property
    def tflite_sizes(self) -> Sizes:
        """The TFLite shape, with the names of sizes that stay open."""
        return tuple(self.symbols.get(i, size) for i, size in enumerate(self.tflite_shape))

    @property
    def layout(self) -> tuple[str, str]:
        """The layout in TFLite and in ONNX: ("NHWC", "NCHW"); equal if nothing moved.

        Axes that nobody named are numbers: ("0123", "0312").
        """
        letters = self.letters or "".join(axis_names(len(self.order)))
        return letters, "".join(letters[i] for i in self.order)

    def to_dict(self) -> dict[str, Any]:
        """Return what the metadata of the ONNX model say of it."""
        tflite_layout, onnx_layout = self.layout
        return {
            "name": self.name,
            "dtype": self.dtype,
            "tflite_shape": self.tflite_shape,
            "onnx_shape": self.onnx_shape,
            **({"onnx_sizes": self.sizes} if self.symbols else {}),
            "order": self.order,
            "tflite_layout": tflite_layout,
            "onnx_layout": onnx_layout,
        }

    @classmethod
    def from_dict(cls, said: Mapping[str, Any]) -> Endpoint:
        """Return what the metadata of an ONNX model say.

        Raises:
            TypeError, KeyError: something else.
        """
        order = tuple(said["order"])
        letters = said["tflite_layout"]
        numbers = "".join(axis_names(len(order)))
        sizes = zip(order, said.get("onnx_sizes", ()), strict=False)
        return cls(
            said["name"],
            said["dtype"],
            tuple(said["tflite_shape"]),
            tuple(said["onnx_shape"]),
            order,
            {axis: size for axis, size in sizes if isinstance(size, str)},
            "" if letters == numbers else letters,
        )


@dataclass(frozen=True, eq=False)
class State:
    """What lasts from one run to the next: the input that takes it, the output that gives it.

    `initial` is what the input takes at the start, and by itself where it is not fed; like both
    it is in ONNX's order. `variable` is its name in the file, whatever input and output are called.
    """

    input: Endpoint
    output: Endpoint
    initial: Array
    variable: str

    def to_dict(self) -> dict[str, Any]:
        """Return what the metadata of the ONNX model say of it."""
        return self.input.to_dict() | {"output": self.output.name, "variable": self.variable}


def endpoint(tensor: Tensor, order: Order, name: str, dtype: DType, letters: str = "") -> Endpoint:
    """Describe a tensor that is stored in an order."""
    stored = tuple(tensor.shape[i] for i in order)
    return Endpoint(name, dtype.label, tensor.shape, stored, order, tensor.symbols, letters)


def read_layouts(layouts: Mapping[str, Sequence[str]], graph: Graph) -> dict[Tensor, Order]:
    """Turn the user's {"tensor": ("NHWC", "NCHW")} into orders.

    Raises:
        LayoutError: there is no such tensor, or the letters do not fit it or each other.
    """
    if not isinstance(layouts, Mapping):
        raise LayoutError('layouts must be a mapping such as {"input": ["NHWC", "NCHW"]}')
    tensors = {t.name: t for t in graph.tensors}
    return {_find(tensors, name): _order(tensors[name], pair) for name, pair in layouts.items()}


def _find(tensors: Mapping[str, Tensor], name: str) -> Tensor:
    if name not in tensors:
        close = difflib.get_close_matches(str(name), tensors, n=1)
        hint = f"; did you mean {close[0]}?" if close else ""
        raise LayoutError(f"layout of {name}: the model has no such tensor{hint}")
    return tensors[name]


def _order(tensor: Tensor, pair: Sequence[str]) -> Order:
    match pair:
        case [str(old), str(new)] if sorted(old) != sorted(new) or len(set(old)) < len(old):
            reason = f"{old} and {new} must have the same letters, each once"
        case [str(old), str()] if len(old) != tensor.rank:
            reason = f"{old} has {len(old)} letters and the tensor {tensor.rank} axes"
        case [str(old), str(new)]:
            return tuple(old.index(letter) for letter in new)
        case _:
            reason = 'it must be a pair such as ["NHWC", "NCHW"]'
    raise LayoutError(f"layout of {tensor.name}: {reason}")


def interface(graph: Graph, wanted: Mapping[Tensor, Order], io_layout: str) -> Site:
    """Return what is around the operators as one site: it makes the inputs and reads the outputs.

    Under "auto" a tensor whose shape reads the same channels first stays as it is: nobody could
    tell from the model that its data has to be moved. So does an input with an open size that would
    move: who takes it from the file, axis by axis, would feed a shape that is neither. State may be
    in any order, as nobody needs to look into it; its input and its output are in the same, so that
    one can be fed to the other.
    """

    def frame(operand: int, tensor: Tensor) -> Frame:
        if tensor in wanted:
            return pin_operand(operand, wanted[tensor], meaning=True)
        first = channels_first(tensor.rank)
        silent = tuple(tensor.sizes[i] for i in first) == tensor.sizes
        loose = operand < 0 and any(first[axis] != axis for axis in tensor.symbols)
        if io_layout == "tflite" or (io_layout == "auto" and (silent or loose)):
            return pin_operand(operand, identity(tensor.rank))
        names = axis_names(tensor.rank)
        choice = Choice.INTERFACE if io_layout == "auto" else Choice.CHANNELS_FIRST
        return Frame(
            {operand: names},
            names,
            None,
            lambda label: order_of(names, label) in (first, identity(len(names))),
            choice,
        )

    def state(first: int, second: int) -> Frame:
        ends = graph.inputs[~first], graph.outputs[second]
        names = axis_names(ends[0].rank)
        orders = [wanted[t] for t in ends if t in wanted]
        order = orders[0] if orders else identity(len(names)) if io_layout == "tflite" else None
        label = None if order is None else tuple(names[i] for i in order)
        return Frame({first: names, second: names}, names, label, semantic=bool(orders))

    inputs, outputs = len(graph.own_inputs), len(graph.own_outputs)
    frames = [
        *(frame(~i, t) for i, t in enumerate(graph.own_inputs)),
        *(frame(i, t) for i, t in enumerate(graph.own_outputs)),
        *(state(~(inputs + i), outputs + i) for i in range(len(graph.initial))),
    ]
    return Site(graph.outputs, graph.inputs, tuple(frames))


def pin_orders(graph: Graph, wanted: Mapping[Tensor, Order]) -> Graph:
    """Hold inner tensors in the order that the user wants.

    An operator of ours, AS_PLANNED, is put behind each: it reads and writes the tensor in that
    order, and emits nothing but its name.
    """
    inner = wanted.keys() - set(graph.inputs) - set(graph.outputs)
    if not inner:
        return graph
    made = {t for op in graph.ops for t in op.outputs}
    for tensor in wanted:
        if tensor in inner - made:
            raise LayoutError(f"layout of {tensor.name}: {_missing_reason(tensor, graph)}")
    ops: list[Op] = []
    for op in graph.ops:
        before = {t: replace(t, name=t.name + "/as_made") for t in op.outputs if t in inner}
        ops.append(replace(op, outputs=tuple(before.get(t, t) for t in op.outputs)))
        for tensor, source in before.items():
            options = Options({"order": wanted[tensor]})
            ops.append(Op("AS_PLANNED", op.index, (source,), (tensor,), options))
    return replace(graph, ops=tuple(ops))


def _missing_reason(tensor: Tensor, graph: Graph) -> str:
    """Return why nothing outside of sub-graphs makes a tensor."""
    for op in graph.ops:
        for part in (part for each in op.graphs for part in each.every_graph()):
            if tensor in {*part.inputs, *(t for inner in part.ops for t in inner.outputs)}:
                return f"it is in a sub-graph of {op.place}, where layouts cannot be chosen"
    return "it is constant, or not used by the ONNX model"

"""The model's inputs and outputs as a site of the layout plan, and the user's layouts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from tflite2onnx.errors import LayoutError
from tflite2onnx.graph import Graph, Op
from tflite2onnx.layout import (
    Axes,
    Choice,
    Frame,
    Order,
    Plan,
    Site,
    axis_names,
    make_channels_first,
    make_identity,
    make_order,
    moves_nothing,
    pin_operand,
)
from tflite2onnx.made_options import OrderOptions
from tflite2onnx.quantization.storage import Storage, is_quantized, move_zero_point
from tflite2onnx.tensor import Array, DType, Quantization, Shape, Sizes, Tensor
from tflite2onnx.utils.suggestions import suggest_names

# The keys of the ONNX model's metadata that describe its interface, in JSON.
INPUTS, OUTPUTS = "tflite2onnx.inputs", "tflite2onnx.outputs"
CACHES = "tflite2onnx.caches"  # the input whose memory an output should share


@dataclass(frozen=True)
class Endpoint:
    """An input or output of the model; onnx_shape[i] is tflite_shape[order[i]].

    `dtype` is TFLite's name of the element type in lower case. `symbols` are the names of the
    dynamic sizes by TFLite axis; the shapes have the file's values of dynamic sizes. `letters` name
    the axes in TFLite's order; they are empty if neither an operator nor the user names the axes.
    `scale` and `zero_point` are the quantization of integers that stand for real numbers, else
    None.
    """

    name: str
    dtype: str
    tflite_shape: Shape
    order: Order
    symbols: Mapping[int, str] = field(default_factory=dict)
    letters: str = ""
    scale: float | None = None
    zero_point: int | None = None

    @property
    def onnx_shape(self) -> Shape:
        """The ONNX shape, with the file's values of dynamic sizes."""
        return tuple(self.tflite_shape[i] for i in self.order)

    @property
    def sizes(self) -> Sizes:
        """The ONNX shape, with the names of dynamic sizes."""
        return tuple(self.symbols.get(i, self.tflite_shape[i]) for i in self.order)

    @property
    def tflite_sizes(self) -> Sizes:
        """The TFLite shape, with the names of dynamic sizes."""
        return tuple(self.symbols.get(i, size) for i, size in enumerate(self.tflite_shape))

    @property
    def layout(self) -> tuple[str, str]:
        """The layout in TFLite and in ONNX: ("NHWC", "NCHW"); equal if the order is the same.

        Axes without letters are numbers: ("0123", "0312").
        """
        letters = self.letters or "".join(axis_names(len(self.order)))
        return letters, "".join(letters[i] for i in self.order)

    @property
    def shown_layout(self) -> tuple[str, str]:
        """The layout for a reader; of axes without letters, how ONNX stores them if it differs."""
        rank = len(self.order)
        if self.letters or self.order == make_identity(rank):
            return (self.letters, self.layout[1]) if self.letters else ("", "")
        is_first = self.order == make_channels_first(rank)
        return "", "channels first" if is_first else f"transposed {self.order}"

    @property
    def quantization(self) -> Quantization | None:
        """The scale and the zero point, None if there are none."""
        if self.scale is None or self.zero_point is None:
            return None
        return Quantization(np.array([self.scale], np.float32), np.array([self.zero_point]))

    def to_dict(self) -> dict[str, Any]:
        """Return the description of the endpoint in the metadata of the ONNX model."""
        described = {
            "name": self.name,
            "dtype": self.dtype,
            "scale": self.scale,
            "zero_point": self.zero_point,
            "tflite_shape": self.tflite_shape,
            "onnx_shape": self.onnx_shape,
            "onnx_sizes": self.sizes if self.symbols else None,
            "order": self.order,
            "tflite_layout": self.layout[0],
            "onnx_layout": self.layout[1],
        }
        return {key: value for key, value in described.items() if value is not None}

    @classmethod
    def from_dict(cls, entry: Mapping[str, Any]) -> Endpoint:
        """Return the endpoint of an entry that `to_dict` made; TypeError or KeyError for others."""
        order, letters = tuple(entry["order"]), entry["tflite_layout"]
        sizes = zip(order, entry.get("onnx_sizes", ()), strict=False)
        return cls(
            entry["name"],
            entry["dtype"],
            tuple(entry["tflite_shape"]),
            order,
            {axis: size for axis, size in sizes if isinstance(size, str)},
            "" if letters == "".join(axis_names(len(order))) else letters,
            entry.get("scale"),
            entry.get("zero_point"),
        )


@dataclass(frozen=True, eq=False)
class State:
    """A state: an output of a run that the next run gets as an input.

    `initial` is the value before the first run, and the default of the input; it has the ONNX shape
    of the input. `variable` is the name of the state in the file.
    """

    input: Endpoint
    output: Endpoint
    initial: Array
    variable: str

    def to_dict(self, *, initial: bool = False) -> dict[str, Any]:
        """Return the description of the state in the metadata of the ONNX model.

        The initial value, if requested, is one number if all elements are equal, else a list.
        """
        names = {"output": self.output.name, "variable": self.variable}
        described = self.input.to_dict() | names
        return described | {"initial": _list_elements(self.initial)} if initial else described


def _list_elements(array: Array) -> Any:  # noqa: ANN401 - a number, or a list of any depth
    """Return the element if all elements are equal, else all elements."""
    # Repeated elements have a stride of 0. They are not copied: a file may declare any number of
    # them.
    distinct = array[tuple(slice(None if stride else 1) for stride in array.strides)]
    is_uniform = distinct.size and (distinct == distinct.flat[0]).all()
    return distinct.flat[0].item() if is_uniform else array.tolist()


def make_endpoint(
    tensor: Tensor, order: Order, name: str, dtype: DType, letters: str = ""
) -> Endpoint:
    """Describe a tensor that is stored in an order.

    `dtype` may be float32 for its real numbers, or uint8 for an int8 state.
    """
    scales = tensor.quantization if dtype is tensor.dtype and is_quantized(tensor) else None
    if dtype is DType.UINT8 and tensor.dtype is DType.INT8:
        scales = move_zero_point(Storage(tensor.dtype, tensor.quantization), dtype).quantization
    pair = (
        (None, None)
        if scales is None or scales.per_axis
        else (scales.scale.item(), scales.zero_point.item())
    )
    return Endpoint(name, dtype.label, tensor.shape, order, tensor.symbols, letters, *pair)


def read_layouts(layouts: Mapping[str, Sequence[str]], graph: Graph) -> dict[Tensor, Order]:
    """Return the axis orders of the user's layouts, {"tensor": ("NHWC", "NCHW")}, by tensor.

    Raises:
        LayoutError: the model has no tensor of a name, or the letters do not fit the tensor or each
            other.
    """
    if not isinstance(layouts, Mapping):
        raise LayoutError(
            '`layouts` must be a mapping such as {"input": ["NHWC", "NCHW"]},'
            f" got {type(layouts).__name__}"
        )
    tensors = {t.name: t for t in graph.tensors}
    for name in layouts:
        if name not in tensors:
            hint = suggest_names(name, tensors)
            hint = hint or "; tflite2onnx inspect --graph lists the tensors"
            raise LayoutError(f"`layouts`: the model has no tensor {name}{hint}")
    return {tensors[name]: _read_order(tensors[name], pair) for name, pair in layouts.items()}


def _read_order(tensor: Tensor, pair: Sequence[str]) -> Order:
    match pair:
        case [str(old), str(new)] if sorted(old) != sorted(new) or len(set(old)) < len(old):
            reason = f"{old} and {new} must have the same letters, each once"
        case [str(old), str(new)] if len(old) != tensor.rank:
            both = old if old == new else f"{old} and {new}"
            reason = f"{both} must have a letter for each of the tensor's {tensor.rank} axes"
        case [str(old), str(new)]:
            return tuple(old.index(letter) for letter in new)
        case _:
            reason = f'it must be a pair such as ["NHWC", "NCHW"], got {pair!r}'
    raise LayoutError(f"layout of {tensor.name}: {reason}")


def make_interface(graph: Graph, user_orders: Mapping[Tensor, Order], io_layout: str) -> Site:
    """Return the interface of the graph as a site, which writes the inputs and reads the outputs.

    With "auto" two kinds of tensors keep the TFLite order. The first are tensors whose shape is the
    same in both orders: their shape in the model would not show that data must be transposed. The
    second are inputs with a dynamic axis that would move: a user who takes the size of this axis
    from the file would pass a shape that fits neither order.

    A state may have any order, because users need not read its elements. The input and the output
    of a state have the same order, so that the output is a valid input.
    """

    def make_frame(operand: int, tensor: Tensor) -> Frame:
        if tensor in user_orders:
            return pin_operand(operand, user_orders[tensor], meaning=True)
        first, shape = make_channels_first(tensor.rank), tensor.layout_shape
        same_shape = tuple(tensor.sizes[i] for i in first) == tensor.sizes
        moves_dynamic = operand < 0 and any(first[axis] != axis for axis in tensor.symbols)
        if io_layout == "tflite" or (io_layout == "auto" and (same_shape or moves_dynamic)):
            return pin_operand(operand, make_identity(tensor.rank))
        names = axis_names(tensor.rank)
        choice = Choice.INTERFACE if io_layout == "auto" else Choice.CHANNELS_FIRST

        def is_legal(label: Axes) -> bool:  # `order_endpoints` moves axes of size 1 later
            return label == names or moves_nothing(shape, make_order(names, label), first)

        return Frame({operand: names}, names, None, is_legal, choice)

    def make_state_frame(first: int, second: int) -> Frame:
        endpoints = graph.inputs[~first], graph.outputs[second]
        names = axis_names(endpoints[0].rank)
        orders = [user_orders[t] for t in endpoints if t in user_orders]
        order = (
            orders[0] if orders else make_identity(len(names)) if io_layout == "tflite" else None
        )
        label = None if order is None else tuple(names[i] for i in order)
        return Frame({first: names, second: names}, names, label, semantic=bool(orders))

    inputs, outputs = len(graph.own_inputs), len(graph.own_outputs)
    frames = [
        *(make_frame(~i, t) for i, t in enumerate(graph.own_inputs)),
        *(make_frame(i, t) for i, t in enumerate(graph.own_outputs)),
        *(make_state_frame(~(inputs + i), outputs + i) for i in range(len(graph.initial))),
    ]
    return Site(graph.outputs, graph.inputs, tuple(frames))


def order_endpoints(interface: Site, plan: Plan) -> Plan:
    """Return the plan in which endpoints with channels first have the height before the width.

    Inside the model a column of pixels may be stored as a row: both are the same bytes.
    """
    orders = dict(plan.orders[0])
    for frame in interface.frames:
        for operand in frame.slots if frame.choice is not Choice.FREE else ():
            tensor = interface.reads[operand] if operand >= 0 else interface.writes[~operand]
            order, first = orders[operand], make_channels_first(len(orders[operand]))
            if tensor and order != make_identity(len(order)):
                is_same = moves_nothing(tensor.layout_shape, order, first)
                orders[operand] = first if is_same else order
    return plan._replace(orders=(orders, *plan.orders[1:]))


def pin_orders(graph: Graph, user_orders: Mapping[Tensor, Order]) -> Graph:
    """Pin inner tensors to the orders that the user wants.

    The internal operator AS_PLANNED is inserted after each of these tensors. It reads and writes
    the tensor in the wanted order, and emits no node.

    Raises:
        LayoutError: no operator of the main graph computes a tensor.
    """
    inner = user_orders.keys() - {*graph.inputs, *graph.outputs}
    if not inner:
        return graph
    results = {t for op in graph.ops for t in op.outputs}
    for tensor in user_orders:
        if tensor in inner - results:
            raise LayoutError(f"layout of {tensor.name}: {_explain_missing(tensor, graph)}")
    ops: list[Op] = []
    for op in graph.ops:
        sources = {t: replace(t, name=t.name + "/as_made") for t in op.outputs if t in inner}
        ops.append(replace(op, outputs=tuple(sources.get(t, t) for t in op.outputs)))
        for tensor, source in sources.items():
            made = OrderOptions(order=user_orders[tensor])
            ops.append(Op("AS_PLANNED", op.index, (source,), (tensor,), made=made))
    return replace(graph, ops=tuple(ops))


def _explain_missing(tensor: Tensor, graph: Graph) -> str:
    """Return why no operator of the main graph computes a tensor."""
    for op in graph.ops:
        for part in (part for branch in op.graphs for part in branch.walk_graphs()):
            if tensor in {*part.inputs, *(t for inner in part.ops for t in inner.outputs)}:
                return f"the tensor must be outside of sub-graphs, got one inside {op.place}"
    return "the tensor is constant, or the ONNX model does not use it"

"""The kinds of rules that a runtime may have for ONNX models.

A table of a target is a tuple of rules. A rule has its source, what happens to a model that breaks
it, and maybe advice. A rule reads a `ModelView`, which lists the nodes of all graphs with the
types, shapes and constants of their values. A type or shape that is unknown breaks no rule. Most
rules are about a single node (`NodeRule`), or about an input or output (`EndpointRule`).
"""

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple, dataclass_transform

import numpy as np

from tflite2onnx.tensor import Array
from tflite2onnx.utils.suggestions import join_alternatives

QDQ = ("QuantizeLinear", "DequantizeLinear")
STANDARD = ("", "ai.onnx")
RESHAPES = ("Flatten", "Reshape", "Squeeze", "Unsqueeze")
SUMS = ("Add", "Sub")
MIDDLES = {"int8": 0, "uint8": 128}  # the zero points in the middle of a type
_PADDING = "output_padding"

# What happens to a model that breaks a rule:
NOT_LOADED = "the runtime does not load the model"
ON_THE_CPU = "ONNX Runtime runs the node on its CPU provider"
WRONG = "the numbers are wrong"


def list_names(text: str) -> tuple[str, ...]:
    """Return the names in a text, which are separated by blanks."""
    return tuple(text.split())


class NodeView(NamedTuple):
    """A node: its name, operator, domain, inputs, outputs, and attributes.

    The attributes are those that are an integer, integers, or a word.
    """

    name: str
    operator: str
    domain: str
    inputs: Sequence[str]
    outputs: Sequence[str]
    attributes: Mapping[str, Any]

    def name_input(self, place: int) -> str:
        """Return the name of an input, "" if the node lacks it."""
        return self.inputs[place] if place < len(self.inputs) else ""

    @property
    def quantized_tensor(self) -> str:
        """The name of the integers that QuantizeLinear computes or DequantizeLinear reads."""
        return self.outputs[0] if self.operator == "QuantizeLinear" else self.name_input(0)


@dataclass(frozen=True)
class ModelView:
    """The view of a model that rules read.

    `types` are element types by the name of the value, as in numpy: "float32". `shapes` are sizes,
    None for a size that is dynamic. `constants` are the names of values that are stored in the
    model. `arrays` has the elements of zero points, scales and weights of 8 bits, and those of the
    places of Slice, Split, Pad and ReduceMean, which rules read.
    """

    opset: int
    nodes: Sequence[NodeView]
    inputs: Sequence[str]
    outputs: Sequence[str]
    types: Mapping[str, str]
    shapes: Mapping[str, Sequence[int | None]]
    constants: Collection[str]
    arrays: Mapping[str, Array]

    @cached_property
    def makers(self) -> Mapping[str, NodeView]:
        """The nodes by the values that they compute."""
        return {value: node for node in self.nodes for value in node.outputs}

    @cached_property
    def values_read(self) -> Collection[str]:
        return {name for node in self.nodes for name in node.inputs}

    @cached_property
    def known(self) -> Collection[str]:
        """The names of constants, and of what nodes compute from constants only."""
        known = {*self.constants}
        for node in self.nodes:
            is_known = bool(node.inputs) and known.issuperset(filter(None, node.inputs))
            if node.operator == "Constant" or is_known:
                known.update(node.outputs)
        return known

    def find_dequantized(self, value: str) -> NodeView | None:
        """Return the DequantizeLinear that computes a value."""
        maker = self.makers.get(value)
        return maker if maker is not None and maker.operator == "DequantizeLinear" else None

    def read_array(self, node: NodeView, place: int) -> Array | None:
        """Return the elements of an input of a node, None if they are not known."""
        return self.arrays.get(node.name_input(place))


class Breach(NamedTuple):
    """A place that breaks a rule: the name of a node or value, its operator, and the message."""

    place: str
    operator: str
    message: str


@dataclass_transform(kw_only_default=True, frozen_default=True)
class _RuleFields:
    """Base of classes that are immutable dataclasses with named fields."""

    def __init_subclass__(cls) -> None:
        dataclass(frozen=True, kw_only=True)(cls)


class RuntimeRule(_RuleFields, ABC):
    """A rule: what happens to a model that breaks it, what a user can do, and its source.

    The source is this project's measurements unless it is given.
    """

    consequence: str
    advice: str = ""
    source: str = "docs/runtimes.md"

    @abstractmethod
    def find_breaches(self, model: ModelView) -> Iterator[Breach]:
        """Yield every place of a model that breaks the rule."""


class NodeRule(RuntimeRule):
    """A rule about each node, or about the nodes of some operators."""

    operators: Collection[str] = ()

    def find_breaches(self, model: ModelView) -> Iterator[Breach]:
        for node in model.nodes:
            has_rule = not self.operators or node.operator in self.operators
            if has_rule and (fault := self.find_fault(model, node)):
                yield Breach(node.name, node.operator, fault)

    @abstractmethod
    def find_fault(self, model: ModelView, node: NodeView) -> str:
        """Return how a node breaks the rule, "" if it does not."""


class EndpointRule(RuntimeRule):
    """A rule about each input and output of a model."""

    def find_breaches(self, model: ModelView) -> Iterator[Breach]:
        for kind, names in (("input", model.inputs), ("output", model.outputs)):
            for name in names:
                if fault := self.find_fault(model, name, kind):
                    yield Breach(name, kind, fault)

    @abstractmethod
    def find_fault(self, model: ModelView, name: str, kind: str) -> str:
        """Return how an "input" or "output" breaks the rule, "" if it does not."""


class OpsetRange(RuntimeRule):
    """The opset of the standard domain must be in a range."""

    least: int = 1
    most: int

    def find_breaches(self, model: ModelView) -> Iterator[Breach]:
        if not self.least <= model.opset <= self.most:
            demand = f"opset must be {self.least} to {self.most}, got {model.opset}"
            yield Breach("model", "opset", demand)


class Operators(NodeRule):
    """Operators must be of the standard domain, among `known` if it is given, and not `refused`."""

    known: Collection[str] = ()
    refused: Collection[str] = ()

    def find_fault(self, model: ModelView, node: NodeView) -> str:
        foreign = node.domain not in STANDARD
        unknown = bool(self.known) and node.operator not in self.known
        if not (foreign or unknown or node.operator in self.refused):
            return ""
        name = f"{node.domain}.{node.operator}" if foreign else node.operator
        return f"operator must be one that the runtime has, got {name}"


class RefusedAttributes(NodeRule):
    """Operators must not have such values of all these attributes; None is a missing one."""

    values: Mapping[str, Sequence[int | str | None]]

    def find_fault(self, model: ModelView, node: NodeView) -> str:
        found = [node.attributes.get(name) in refused for name, refused in self.values.items()]
        words = [f"{name} must not be {each[0]}" for name, each in self.values.items()]
        return " if ".join(words) if all(found) else ""


class SymmetricPads(NodeRule):
    """Operators must have equal pads at both ends of an axis."""

    def find_fault(self, model: ModelView, node: NodeView) -> str:
        pads = [*node.attributes.get("pads", ())]
        half = len(pads) // 2
        is_equal = pads[:half] == pads[half:]
        return "" if is_equal else f"pads must be equal at both ends, got {_join_words(pads)}"


class NoDilations(NodeRule):
    """Operators must have no dilations."""

    def find_fault(self, model: ModelView, node: NodeView) -> str:
        most = max(node.attributes.get("dilations", (1,)))
        return f"dilations must be 1, got {most}" if most > 1 else ""


class NoOutputPadding(NodeRule):
    """Operators of one channel in each group must have no output_padding."""

    def find_fault(self, model: ModelView, node: NodeView) -> str:
        groups, most = node.attributes.get("group", 1), max(node.attributes.get(_PADDING, (0,)))
        is_depthwise = (*model.shapes.get(node.name_input(1), ()),)[:2] == (groups, 1)
        if groups == 1 or not is_depthwise or not most:
            return ""
        return f"{_PADDING} of {groups} groups of one channel must be 0, got {most}"


class StridesBesideIntegers(NodeRule):
    """In a model with integers even strides of a Conv must be at most `most`.

    The rule is about a Conv of floats, and about a window of more than `window` rows or columns.
    """

    operators: Collection[str] = ("Conv",)
    most: int
    window: int

    def find_fault(self, model: ModelView, node: NodeView) -> str:
        even = [i for i in node.attributes.get("strides", ()) if i > self.most and i % 2 == 0]
        if not even or all(each.operator not in QDQ for each in model.nodes):
            return ""
        if not model.find_dequantized(node.name_input(0)):
            return f"even strides of floats must be at most {self.most}, got {even[0]}"
        window = max(node.attributes.get("kernel_shape", (1,)))
        demand = f"a window with an even stride over {self.most} must be at most {self.window}"
        return f"{demand}, got {window}" if window > self.window else ""


class OneScaleOfGroups(NodeRule):
    """A Conv of several groups with a bias must have one scale, or one channel in each group."""

    operators: Collection[str] = ("Conv",)

    def find_fault(self, model: ModelView, node: NodeView) -> str:
        groups = node.attributes.get("group", 1)
        source = model.find_dequantized(node.name_input(1))
        if groups == 1 or len(node.inputs) < 3 or source is None:
            return ""
        scales = model.read_array(source, 1)
        if scales is None or scales.size == 1 or model.shapes.get(node.inputs[1], (1, 1))[1] == 1:
            return ""
        return f"weights of {groups} groups must have one scale, got {scales.size}"


class ZeroPointsOfZero(NodeRule):
    """Zero points of QuantizeLinear and DequantizeLinear must be 0."""

    operators: Collection[str] = QDQ

    def find_fault(self, model: ModelView, node: NodeView) -> str:
        zero_point = model.read_array(node, 2)
        if zero_point is None or not zero_point.any():
            return ""
        return f"zero point must be 0, got {zero_point[zero_point != 0].flat[0]}"


class QuantizedTypes(NodeRule):
    """Integers of QuantizeLinear and DequantizeLinear must have one of these element types.

    `data` are the types of computed tensors, `weights` those of constants if they are others;
    biases may be int32.
    """

    operators: Collection[str] = QDQ
    data: Sequence[str]
    weights: Sequence[str] = ()

    def find_fault(self, model: ModelView, node: NodeView) -> str:
        constant = node.name_input(0) in model.constants
        subject = "constants" if constant else "quantized tensors"
        allowed = (*(self.weights or self.data), "int32") if constant else self.data
        return _find_wrong_type(
            f"type of {subject}", allowed, model.types.get(node.quantized_tensor)
        )


class PerChannelWeights(NodeRule):
    """Only constants may have several scales; `axes` are the allowed axes, all if it is empty."""

    operators: Collection[str] = QDQ
    axes: Collection[int] = ()

    def find_fault(self, model: ModelView, node: NodeView) -> str:
        if all(size == 1 for size in model.shapes.get(node.name_input(1), ())):
            return ""
        axis = node.attributes.get("axis", 1)
        if node.name_input(0) not in model.constants:
            return "scale of data must be one number, got one for each channel"
        if not self.axes or axis in self.axes:
            return ""
        return f"axis of scales must be {_join_words(self.axes)}, got {axis}"


class StaticShapes(EndpointRule):
    """All sizes of inputs must be numbers."""

    def find_fault(self, model: ModelView, name: str, kind: str) -> str:
        is_dynamic = kind == "input" and None in model.shapes.get(name, ())
        return "sizes must be numbers, got a dynamic size" if is_dynamic else ""


class Ranks(NodeRule):
    """The first input of operators must have one of these numbers of axes."""

    ranks: Sequence[int]

    def find_fault(self, model: ModelView, node: NodeView) -> str:
        shape = model.shapes.get(node.name_input(0))
        if shape is None or len(shape) in self.ranks:
            return ""
        return f"number of axes must be {_join_words(self.ranks)}, got {len(shape)}"


class PlainIndices(NodeRule):
    """Operators must gather by two indices or more for each element, in at most `most` axes."""

    most: int

    def find_fault(self, model: ModelView, node: NodeView) -> str:
        shape = model.shapes.get(node.name_input(1), ())
        if len(shape) > self.most:
            return f"indices must have at most {self.most} axes, got {len(shape)}"
        return "indices must address two axes or more, got one" if (*shape[-1:],) == (1,) else ""


class TypesOfEndpoints(EndpointRule):
    """Inputs must have one of `inputs`, and outputs one of `outputs` (default: `inputs`)."""

    inputs: Collection[str]
    outputs: Collection[str] = ()

    def find_fault(self, model: ModelView, name: str, kind: str) -> str:
        allowed = (kind == "output" and self.outputs) or self.inputs
        return _find_wrong_type("type", allowed, model.types.get(name))


class NoTypes(NodeRule):
    """No node may read or write these element types, except the operators `unless`."""

    types: Collection[str]
    unless: Collection[str] = ()

    def find_fault(self, model: ModelView, node: NodeView) -> str:
        types = {model.types.get(value, "") for value in (*node.inputs, *node.outputs)}
        wrong = sorted(types & {*self.types})
        if not wrong or node.operator in self.unless:
            return ""
        return f"type must not be {_join_words(self.types)}, got {wrong[0]}"


class NoNegativePads(NodeRule):
    """Pad must remove no rows."""

    operators: Collection[str] = ("Pad",)

    def find_fault(self, model: ModelView, node: NodeView) -> str:
        pads = model.read_array(node, 1)
        least = 0 if pads is None else pads.min(initial=0)
        return f"pads must not be negative, got {least}" if least < 0 else ""


class NoDefaultInputs(EndpointRule):
    """An input must not have an initial value."""

    consequence: str = "the runtime reads the input as a constant"
    advice: str = "convert with --states required"

    def find_fault(self, model: ModelView, name: str, kind: str) -> str:
        has_value = kind == "input" and name in model.constants
        return "input must have no initial value, got one" if has_value else ""


class InputsAreRead(EndpointRule):
    """A node must read each input."""

    def find_fault(self, model: ModelView, name: str, kind: str) -> str:
        is_unread = kind == "input" and name not in model.values_read
        return "a node must read the input, got none" if is_unread else ""


class NoQuantizedFloats(EndpointRule):
    """An input of floats must not be quantized."""

    def find_fault(self, model: ModelView, name: str, kind: str) -> str:
        is_float = kind == "input" and model.types.get(name) == "float32"
        quantized = (n for n in model.nodes if n.operator == QDQ[0] and n.name_input(0) == name)
        return "type must be an integer type, got float32" if is_float and any(quantized) else ""


class ConstantInputs(NodeRule):
    """Some inputs of operators must be constants, or be computed from constants only."""

    inputs: Mapping[str, Sequence[int]]

    def find_fault(self, model: ModelView, node: NodeView) -> str:
        for place in self.inputs.get(node.operator, ()):
            if (name := node.name_input(place)) and name not in model.known:
                return f"input {place} must be a constant, got a computed tensor"
        return ""


class DequantizedInputs(NodeRule):
    """An input of operators that comes from DequantizeLinear must have integers of these types.

    `constant` is whether the rule is about constants or about computed integers; None for both.
    """

    place: int = 0
    types: Sequence[str]
    constant: bool | None = None

    def find_fault(self, model: ModelView, node: NodeView) -> str:
        source = model.find_dequantized(node.name_input(self.place))
        if source is None or self.constant not in (None, source.name_input(0) in model.constants):
            return ""
        subject = f"type of input {self.place} before DequantizeLinear"
        return _find_wrong_type(subject, self.types, model.types.get(source.name_input(0)))


class InputRanges(NodeRule):
    """Integers that some functions read must stand for numbers in a range, or a step more."""

    ranges: Mapping[str, tuple[float, float]]

    def find_fault(self, model: ModelView, node: NodeView) -> str:
        source = model.find_dequantized(node.name_input(0))
        if source is None or node.operator not in self.ranges:
            return ""
        scale, zero = (model.read_array(source, place) for place in (1, 2))
        if scale is None or zero is None or scale.size > 1:
            return ""
        ends = np.array([np.iinfo(zero.dtype).min, np.iinfo(zero.dtype).max])
        low, high = ((ends - zero.reshape(-1)) * scale.reshape(-1)).tolist()
        lowest, highest = self.ranges[node.operator]
        if lowest - scale <= low and high <= highest + scale:
            return ""
        demand = f"integers of the input must stand for {lowest:g} to {highest:g}"
        return f"{demand}, got {low:.3g} to {high:.3g}"


class SmallWindows(NodeRule):
    """Averages of dequantized images must have at most so many rows and columns."""

    most: int

    def find_fault(self, model: ModelView, node: NodeView) -> str:
        shape = model.shapes.get(node.name_input(0), ())
        named = node.attributes.get("axes", model.arrays.get(node.inputs[-1], range(2, 4)))
        is_image = len(shape) > 3 and len(named) > 1
        sides = [shape[i] or 0 for i in named if is_image and -len(shape) <= i < len(shape)]
        largest = max(node.attributes.get("kernel_shape", sides), default=0)
        if largest <= self.most or not model.find_dequantized(node.name_input(0)):
            return ""
        return f"rows and columns must be at most {self.most}, got {largest}"


class NoRescaledData(NodeRule):
    """Functions of integers must keep their scale, if nodes read the result.

    What a Max of integers makes, and inputs of floats, may have another scale.
    """

    def find_fault(self, model: ModelView, node: NodeView) -> str:
        read = model.find_dequantized(node.name_input(0))
        stored = model.makers.get(read.name_input(0)) if read is not None else None
        maker = model.makers.get(stored.name_input(0)) if stored is not None else None
        is_apart = stored is not None and (
            maker is None
            or (maker.operator == "Max" and all(map(model.find_dequantized, maker.inputs)))
        )
        if read is None or is_apart:
            return ""
        is_rescaled = any(
            not all(map(partial(_are_equal, model), read.inputs[1:], written.inputs[1:]))
            for written in model.nodes
            if written.operator == "QuantizeLinear"
            and written.name_input(0) == node.outputs[0]
            and written.outputs[0] in model.values_read
        )
        x = read.name_input(0)
        return f"result must have the scale and zero point of the data {x}" if is_rescaled else ""


class NoChainOfConstants(NodeRule):
    """A sum of a constant must not follow one, and a product of a constant not another.

    With constants of one number for each channel, or for all, a sum must not follow such a product
    either, and a product not one of the operators `products`.
    """

    products: Collection[str]
    operators: Collection[str] = (*SUMS, "Mul")

    def find_fault(self, model: ModelView, node: NodeView) -> str:
        for read in filter(None, map(model.find_dequantized, node.inputs)):
            maker = model.makers.get(read.name_input(0))
            first = model.makers.get(maker.name_input(0)) if maker is not None else None
            if first is None:
                continue
            shapes = (_list_constants(model, first), _list_constants(model, node))
            if joins_constants((first.operator, node.operator), shapes, self.products):
                return f"with a constant it must not follow {first.operator}"
        return ""


def _list_constants(model: ModelView, node: NodeView) -> list[Sequence[int | None]]:
    reads = filter(None, map(model.find_dequantized, node.inputs))
    return [model.shapes[x] for read in reads if (x := read.name_input(0)) in model.constants]


def joins_constants(
    operators: tuple[str, str],
    shapes: tuple[Sequence[Sequence[int | None]], Sequence[Sequence[int | None]]],
    products: Collection[str],
) -> bool:
    """Return whether two nodes, whose constants have these shapes, break `NoChainOfConstants`."""
    (first, second), (before, own) = operators, shapes
    if first in products:
        return second == "Mul" and bool(own) and all(map(_is_of_channels, own))
    if not (before and own):
        return False
    if first == "Mul" and second in SUMS:
        return all(map(_is_of_channels, (*before, *own)))
    return first == second == "Mul" or {first, second} <= {*SUMS}


def _is_of_channels(shape: Sequence[int | None]) -> bool:
    channels = 0 if len(shape) == 3 else 1  # an image may lack the batch
    return all(size == 1 for axis, size in enumerate(shape) if axis != channels)


class NoReshapedPixels(NodeRule):
    """A Conv must read no image of one pixel that Reshape makes of channels before sizes of 1."""

    operators: Collection[str] = ("Conv",)

    def find_fault(self, model: ModelView, node: NodeView) -> str:
        x = node.name_input(0)
        while x in model.makers and model.makers[x].operator in (*QDQ, *RESHAPES):
            x = model.makers[x].name_input(0)
        shape, image = (model.shapes.get(name, ()) for name in (x, node.name_input(0)))
        if not is_reshaped_pixel(shape, image):
            return ""
        return f"an image of one pixel must not be reshaped, got one of {[*shape]}"


class ShortNames(EndpointRule):
    """The names of inputs and outputs must have at most so many letters."""

    most: int

    def find_fault(self, model: ModelView, name: str, kind: str) -> str:
        is_long = len(name) > self.most
        return f"name must have at most {self.most} letters, got {len(name)}" if is_long else ""


class OutputsAreEnds(NodeRule):
    """No node may read an output of integers that QuantizeLinear computes."""

    operators: Collection[str] = ("QuantizeLinear",)

    def find_fault(self, model: ModelView, node: NodeView) -> str:
        output = node.quantized_tensor
        is_read = output in model.values_read and output in model.outputs
        return f"no node must read the output {output}, got one that does" if is_read else ""


class OneTypeAround(NodeRule):
    """DequantizeLinear and QuantizeLinear around some operators, or around nothing, have one type.

    This is the type of their integers.
    """

    operators: Collection[str] = ("QuantizeLinear",)
    around: Collection[str]

    def find_fault(self, model: ModelView, node: NodeView) -> str:
        maker = model.makers.get(node.name_input(0))
        if maker is not None and maker.operator in self.around:
            maker = model.makers.get(maker.name_input(0))
        source = maker and model.find_dequantized(maker.outputs[0])
        before = source and model.types.get(source.name_input(0))
        after = model.types.get(node.quantized_tensor)
        if before is None or after in (None, before):
            return ""
        return f"type must be {before} as before DequantizeLinear, got {after}"


class OneQuantization(RuntimeRule):
    """All QuantizeLinear and DequantizeLinear of a tensor must have one scale and zero point."""

    def find_breaches(self, model: ModelView) -> Iterator[Breach]:
        first: dict[str, Sequence[str]] = {}
        for node in _list_quantized(model):
            names = first.setdefault(node.quantized_tensor, node.inputs[1:])
            pairs = zip(names, node.inputs[1:], strict=False)
            if any(a != b and not _are_equal(model, a, b) for a, b in pairs):
                message = f"{node.quantized_tensor} must have one scale and zero point, got several"
                yield Breach(node.name, node.operator, message)


class WeightsOfInt8(NodeRule):
    """Weights of some operators must be -128 to 127 steps from their zero point.

    Weights that are 0 or one other number, as those of averages, are exact with another scale.
    """

    def find_fault(self, model: ModelView, node: NodeView) -> str:
        source = model.find_dequantized(node.name_input(1))
        stored, zero = (source and model.read_array(source, place) for place in (0, 2))
        if source is None or stored is None or zero is None:
            return ""
        steps = count_steps(stored, zero, source.attributes.get("axis", 1))
        low, high = steps.min(initial=0), steps.max(initial=0)
        if (low >= -128 and high <= 127) or np.isin(steps, (0, low or high)).all():
            return ""
        return f"weights must be -128 to 127 steps from their zero point, got {low} to {high}"


class NoMiddleZeroPoints(RuntimeRule):
    """Tensors of 8 bits must have another zero point than the middle of their type.

    The first node of a tensor whose zero points all are the middle stands for all its nodes.
    """

    def find_breaches(self, model: ModelView) -> Iterator[Breach]:
        seen = set()
        for node in _list_quantized(model):
            dtype = model.types.get(node.quantized_tensor, "")
            middle = MIDDLES.get(dtype)
            zero = model.read_array(node, 2) if len(node.inputs) > 2 else np.int8(0)
            is_middle = middle is not None and zero is not None and np.all(zero == middle)
            if is_middle and node.quantized_tensor not in seen:
                seen.add(node.quantized_tensor)
                message = f"zero point must not be the middle of {dtype}, got {middle}"
                yield Breach(node.name, node.operator, message)


class LowestZeroPoints(RuntimeRule):
    """Some results must be quantized with the lowest integer as zero point.

    `chain` are the nodes that compute the result, as in `NoChain`; `types` are those of integers.
    """

    chain: Sequence[Collection[str]]
    types: Collection[str]

    def find_breaches(self, model: ModelView) -> Iterator[Breach]:
        for node in _find_chains(model, (*self.chain, ("QuantizeLinear",))):
            zero = model.read_array(node, 2)
            lowest = 0 if zero is None else np.iinfo(zero.dtype).min
            if zero is not None and zero.dtype.name in self.types and (zero != lowest).any():
                message = f"zero point must be {lowest}, got {zero.flat[0]}"
                yield Breach(node.name, node.operator, message)


class NoChain(RuntimeRule):
    """No chain of nodes, each of which reads the one before, may have these operators.

    `chain` are the operators of each place.
    """

    chain: Sequence[Collection[str]]

    def find_breaches(self, model: ModelView) -> Iterator[Breach]:
        before = ", ".join(map(_join_words, self.chain[:-1]))
        for node in _find_chains(model, self.chain):
            yield Breach(node.name, node.operator, f"it must not follow {before}")


class WholeBlocks(RuntimeRule):
    """Parts of images between some operators must start at a multiple of a number of pixels.

    Slice, Split and Concat have parts.
    """

    size: int
    operators: Collection[str]

    def find_breaches(self, model: ModelView) -> Iterator[Breach]:
        before: dict[str, str] = {}
        for node in model.nodes:
            moved = before.get(node.inputs[0], "") if node.operator in QDQ else node.operator
            before |= dict.fromkeys(node.outputs, moved)
        after: dict[str, set[str]] = {}
        for node in reversed(model.nodes):
            found = {each for value in node.outputs for each in after.get(value, ())}
            for value in node.inputs:
                after.setdefault(value, set()).update(
                    found if node.operator in QDQ else {node.operator}
                )
        for node in model.nodes:
            readers = {each for value in node.outputs for each in after.get(value, ())}
            is_between = readers & {*self.operators} and any(
                before.get(value) in self.operators for value in node.inputs
            )
            starts = _list_starts(model, node) if is_between else []
            wrong = [start for start in starts if start % self.size]
            if wrong:
                message = f"start of rows must be a multiple of {self.size}, got {wrong[0]}"
                yield Breach(node.name, node.operator, message)


def _find_chains(model: ModelView, chain: Sequence[Collection[str]]) -> Sequence[NodeView]:
    """Return the last nodes of chains, in which each node has one of the operators of its place."""
    nodes: Sequence[NodeView] = model.nodes
    for place, operators in enumerate(chain):
        values = {value for node in nodes for value in node.outputs}
        found = [n for n in model.nodes if n.operator in operators]
        nodes = [n for n in found if not values.isdisjoint(n.inputs)] if place else found
    return nodes


def _list_starts(model: ModelView, node: NodeView) -> list[int]:
    """Return where the parts of a Slice, Split or Concat along height or width start."""
    arrays = [model.arrays.get(name, np.zeros(0, int)) for name in node.inputs[1:]]
    numbers = [[int(i) for i in array.reshape(-1)] for array in arrays]
    axis = node.attributes.get("axis", 0)
    rank = len(model.shapes.get(node.inputs[0], ()) if node.inputs else ())
    if node.operator == "Slice" and len(numbers) > 2:
        return [
            start
            for start, axis in zip(numbers[0], numbers[2], strict=False)  # computed starts: none
            if axis % max(rank, 1) > 1
        ]
    if axis % max(rank, 1) < 2:
        return []
    if node.operator == "Split" and numbers:
        return [sum(numbers[0][:i]) for i in range(len(numbers[0]))]
    if node.operator == "Concat":
        sizes = [model.shapes.get(name, ()) for name in node.inputs]
        known = [(shape[axis] or 0) if len(shape) == rank else 0 for shape in sizes]
        return [sum(known[:i]) for i in range(len(known))]
    return []


def _are_equal(model: ModelView, a: str, b: str) -> bool:
    """Return whether two constants are equal; those that are not known may be equal."""
    x, y = model.arrays.get(a), model.arrays.get(b)
    return x is None or y is None or np.array_equal(x, y)


def is_reshaped_pixel(shape: Sequence[int | None], image: Sequence[int | None]) -> bool:
    """Return whether sizes that are reshaped to an image of one pixel end with its channels and 1.

    Such sizes are [1, 16, 1] and [1, 1, 16, 1] for an image of [1, 16, 1, 1].
    """
    channels = [*shape]
    while channels and channels[-1] == 1:
        channels.pop()
    is_pixel = len(image) > 2 and all(size == 1 for size in image[2:])
    is_moved = 2 <= len(channels) < len(shape) and [*shape] != [*image]
    return is_pixel and is_moved and channels[-1] == image[1]


def count_steps(stored: Array, zero: Array, axis: int) -> Array:
    """Return how many steps integers of 8 bits are from their zero points along an axis."""
    shape = [1] * stored.ndim
    if zero.size > 1:
        shape[axis] = -1
    steps: Array = stored.astype(np.int16) - zero.astype(np.int16).reshape(shape)
    return steps


def _find_wrong_type(subject: str, allowed: Collection[str], dtype: str | None) -> str:
    """Return the message about an element type that is not allowed; an unknown type is."""
    is_right = dtype is None or dtype in allowed
    return "" if is_right else f"{subject} must be {_join_words(allowed)}, got {dtype}"


def _list_quantized(model: ModelView) -> Iterator[NodeView]:
    return (node for node in model.nodes if node.operator in QDQ and len(node.inputs) > 1)


def _join_words(words: Collection[object]) -> str:
    return join_alternatives([*map(str, words)])

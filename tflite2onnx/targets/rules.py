"""The kinds of rules that a runtime may have for ONNX models.

A table of a target is a tuple of rules. A rule has its source, what happens to a model that breaks
it, and maybe advice. A rule reads a `ModelView`, which lists the nodes of all graphs with the
types, shapes and constants of their values. A type or shape that is unknown breaks no rule.
"""

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from tflite2onnx.tensor import Array
from tflite2onnx.utils.suggestions import join_alternatives

QDQ = ("QuantizeLinear", "DequantizeLinear")
STANDARD = ("", "ai.onnx")
RESHAPES = ("Flatten", "Reshape", "Squeeze", "Unsqueeze")
MIDDLES = {"int8": 0, "uint8": 128}  # the zero points in the middle of a type

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


class ModelView(NamedTuple):
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


class Breach(NamedTuple):
    """A place that breaks a rule: the name of a node or value, its operator, and the message."""

    place: str
    operator: str
    message: str


@dataclass(frozen=True, kw_only=True)
class RuntimeRule(ABC):
    """A rule: what happens to a model that breaks it, what a user can do, and its source.

    The source is this project's measurements unless it is given.
    """

    consequence: str
    advice: str = ""
    source: str = "docs/runtimes.md"

    @abstractmethod
    def find_breaches(self, model: ModelView) -> Iterator[Breach]:
        """Yield every place of a model that breaks the rule."""


@dataclass(frozen=True, kw_only=True)
class OpsetRange(RuntimeRule):
    """The opset of the standard domain must be in a range."""

    least: int = 1
    most: int

    def find_breaches(self, model: ModelView) -> Iterator[Breach]:
        """Yield the model if its opset is out of the range."""
        if not self.least <= model.opset <= self.most:
            demand = f"opset must be {self.least} to {self.most}, got {model.opset}"
            yield Breach("model", "opset", demand)


@dataclass(frozen=True, kw_only=True)
class Operators(RuntimeRule):
    """Operators must be of the standard domain, among `known` if it is given, and not `refused`."""

    known: Collection[str] = ()
    refused: Collection[str] = ()

    def find_breaches(self, model: ModelView) -> Iterator[Breach]:
        """Yield every node with another operator."""
        for node in model.nodes:
            foreign = node.domain not in STANDARD
            unknown = bool(self.known) and node.operator not in self.known
            if foreign or unknown or node.operator in self.refused:
                name = f"{node.domain}.{node.operator}" if foreign else node.operator
                message = f"operator must be one that the runtime has, got {name}"
                yield Breach(node.name, node.operator, message)


@dataclass(frozen=True, kw_only=True)
class RefusedAttributes(RuntimeRule):
    """An operator must not have such values of all these attributes; None is a missing one."""

    operator: str
    values: Mapping[str, Sequence[int | str | None]]

    def find_breaches(self, model: ModelView) -> Iterator[Breach]:
        """Yield every node with such values."""
        for node in model.nodes:
            found = [node.attributes.get(name) in refused for name, refused in self.values.items()]
            if node.operator == self.operator and all(found):
                words = [f"{name} must not be {each[0]}" for name, each in self.values.items()]
                yield Breach(node.name, node.operator, " if ".join(words))


@dataclass(frozen=True, kw_only=True)
class SymmetricPads(RuntimeRule):
    """Operators must have equal pads at both ends of an axis."""

    operators: Collection[str]

    def find_breaches(self, model: ModelView) -> Iterator[Breach]:
        """Yield every node with other pads."""
        for node in model.nodes:
            pads = [*node.attributes.get("pads", ())]
            half = len(pads) // 2
            if node.operator in self.operators and pads[:half] != pads[half:]:
                message = f"pads must be equal at both ends, got {_join_words(pads)}"
                yield Breach(node.name, node.operator, message)


@dataclass(frozen=True, kw_only=True)
class NoDilations(RuntimeRule):
    """Operators must have no dilations."""

    operators: Collection[str]

    def find_breaches(self, model: ModelView) -> Iterator[Breach]:
        """Yield every node with dilations."""
        for node in model.nodes:
            most = max(node.attributes.get("dilations", (1,)))
            if node.operator in self.operators and most > 1:
                yield Breach(node.name, node.operator, f"dilations must be 1, got {most}")


@dataclass(frozen=True, kw_only=True)
class StridesBesideIntegers(RuntimeRule):
    """In a model with integers even strides of a Conv must be at most `most`.

    The rule is about a Conv of floats, and about a window of more than `window` rows or columns.
    """

    most: int
    window: int

    def find_breaches(self, model: ModelView) -> Iterator[Breach]:
        """Yield every Conv with a larger even stride."""
        real = _find_dequantized(model)
        for node in model.nodes if any(_list_quantized(model)) else ():
            even = [i for i in node.attributes.get("strides", ()) if i > self.most and i % 2 == 0]
            window = max(node.attributes.get("kernel_shape", (1,)))
            if node.operator == "Conv" and even and node.inputs[0] not in real:
                message = f"even strides of floats must be at most {self.most}, got {even[0]}"
                yield Breach(node.name, node.operator, message)
            elif node.operator == "Conv" and even and window > self.window:
                demand = f"a window with an even stride over {self.most} must be at most"
                yield Breach(node.name, node.operator, f"{demand} {self.window}, got {window}")


@dataclass(frozen=True, kw_only=True)
class OneScaleOfGroups(RuntimeRule):
    """A Conv of several groups with a bias must have one scale, or one channel in each group."""

    def find_breaches(self, model: ModelView) -> Iterator[Breach]:
        """Yield every Conv with a scale for each channel."""
        weights = _find_dequantized(model)
        for node in model.nodes:
            groups = node.attributes.get("group", 1)
            if node.operator != "Conv" or groups == 1 or len(node.inputs) < 3:
                continue
            source = weights.get(node.inputs[1])
            scales = model.arrays.get(source.inputs[1]) if source else None
            width = model.shapes.get(node.inputs[1], (1, 1))[1]
            if scales is not None and scales.size > 1 and width != 1:
                message = f"weights of {groups} groups must have one scale, got {scales.size}"
                yield Breach(node.name, node.operator, message)


@dataclass(frozen=True, kw_only=True)
class ZeroPointsOfZero(RuntimeRule):
    """Zero points of QuantizeLinear and DequantizeLinear must be 0."""

    def find_breaches(self, model: ModelView) -> Iterator[Breach]:
        """Yield every node with another zero point."""
        for node in _list_quantized(model):
            zero_point = model.arrays.get(node.inputs[2]) if len(node.inputs) > 2 else None
            if zero_point is not None and zero_point.any():
                other = zero_point[zero_point != 0].flat[0]
                yield Breach(node.name, node.operator, f"zero point must be 0, got {other}")


@dataclass(frozen=True, kw_only=True)
class QuantizedTypes(RuntimeRule):
    """Integers of QuantizeLinear and DequantizeLinear must have one of these element types.

    `data` are the types of computed tensors, `weights` the types of constants; biases may be int32.
    """

    data: Sequence[str]
    weights: Sequence[str]

    def find_breaches(self, model: ModelView) -> Iterator[Breach]:
        """Yield every node whose integers have another type."""
        for node in _list_quantized(model):
            integers = node.inputs[0] if node.operator == "DequantizeLinear" else node.outputs[0]
            constant = node.inputs[0] in model.constants
            allowed = (*self.weights, "int32") if constant else self.data
            dtype = model.types.get(integers)
            if dtype is not None and dtype not in allowed:
                subject = "constants" if constant else "quantized tensors"
                message = f"type of {subject} must be {_join_words(allowed)}, got {dtype}"
                yield Breach(node.name, node.operator, message)


@dataclass(frozen=True, kw_only=True)
class PerChannelWeights(RuntimeRule):
    """Only constants may have several scales; `axes` are the allowed axes, all if it is empty."""

    axes: Collection[int] = ()

    def find_breaches(self, model: ModelView) -> Iterator[Breach]:
        """Yield every node with several scales for data, or along another axis."""
        for node in _list_quantized(model):
            if all(size == 1 for size in model.shapes.get(node.inputs[1], ())):
                continue
            axis = node.attributes.get("axis", 1)
            if node.inputs[0] not in model.constants:
                message = "scale of data must be one number, got one for each channel"
                yield Breach(node.name, node.operator, message)
            elif self.axes and axis not in self.axes:
                message = f"axis of scales must be {_join_words(self.axes)}, got {axis}"
                yield Breach(node.name, node.operator, message)


@dataclass(frozen=True, kw_only=True)
class StaticShapes(RuntimeRule):
    """All sizes of inputs must be numbers."""

    def find_breaches(self, model: ModelView) -> Iterator[Breach]:
        """Yield every input with a dynamic size."""
        for name in model.inputs:
            if None in model.shapes.get(name, ()):
                yield Breach(name, "input", "sizes must be numbers, got a dynamic size")


@dataclass(frozen=True, kw_only=True)
class Ranks(RuntimeRule):
    """The first input of some operators must have one of these numbers of axes."""

    ranks: Mapping[str, Sequence[int]]

    def find_breaches(self, model: ModelView) -> Iterator[Breach]:
        """Yield every node whose first input has another number of axes."""
        for node in model.nodes:
            shape = model.shapes.get(node.inputs[0]) if node.operator in self.ranks else None
            if shape is not None and len(shape) not in self.ranks[node.operator]:
                allowed = _join_words(self.ranks[node.operator])
                message = f"number of axes must be {allowed}, got {len(shape)}"
                yield Breach(node.name, node.operator, message)


@dataclass(frozen=True, kw_only=True)
class TypesOfEndpoints(RuntimeRule):
    """Inputs must have one of `inputs`, and outputs one of `outputs` (default: `inputs`)."""

    inputs: Collection[str]
    outputs: Collection[str] = ()

    def find_breaches(self, model: ModelView) -> Iterator[Breach]:
        """Yield every input and output with another type."""
        endpoints = [(name, "input", self.inputs) for name in model.inputs]
        endpoints += [(name, "output", self.outputs or self.inputs) for name in model.outputs]
        for name, kind, allowed in endpoints:
            dtype = model.types.get(name)
            if dtype is not None and dtype not in allowed:
                message = f"type must be {_join_words(allowed)}, got {dtype}"
                yield Breach(name, kind, message)


@dataclass(frozen=True, kw_only=True)
class NoTypes(RuntimeRule):
    """No node may read or write these element types, except the operators `unless`."""

    types: Collection[str]
    unless: Collection[str] = ()

    def find_breaches(self, model: ModelView) -> Iterator[Breach]:
        """Yield every node that has a value of one of these types."""
        for node in model.nodes:
            types = {model.types.get(value, "") for value in (*node.inputs, *node.outputs)}
            wrong = sorted(types & {*self.types})
            if wrong and node.operator not in self.unless:
                message = f"type must not be {_join_words(self.types)}, got {wrong[0]}"
                yield Breach(node.name, node.operator, message)


@dataclass(frozen=True, kw_only=True)
class NoNegativePads(RuntimeRule):
    """Pad must remove no rows."""

    def find_breaches(self, model: ModelView) -> Iterator[Breach]:
        """Yield every Pad with a negative number."""
        for node in model.nodes:
            pads = model.arrays.get(node.inputs[1]) if node.operator == "Pad" else None
            if pads is not None and (pads < 0).any():
                message = f"pads must not be negative, got {pads.min()}"
                yield Breach(node.name, node.operator, message)


@dataclass(frozen=True, kw_only=True)
class NoDefaultInputs(RuntimeRule):
    """An input must not have an initial value."""

    consequence: str = "the runtime reads the input as a constant"
    advice: str = "convert with --states required"

    def find_breaches(self, model: ModelView) -> Iterator[Breach]:
        """Yield every input that is an initializer too."""
        for name in model.inputs:
            if name in model.constants:
                yield Breach(name, "input", "input must have no initial value, got one")


@dataclass(frozen=True, kw_only=True)
class InputsAreRead(RuntimeRule):
    """A node must read each input."""

    def find_breaches(self, model: ModelView) -> Iterator[Breach]:
        """Yield every input that no node reads."""
        read = {name for node in model.nodes for name in node.inputs}
        for name in model.inputs:
            if name not in read:
                yield Breach(name, "input", "a node must read the input, got none")


@dataclass(frozen=True, kw_only=True)
class ConstantInputs(RuntimeRule):
    """Some inputs of operators must be constants, or be computed from constants only."""

    inputs: Mapping[str, Sequence[int]]

    def find_breaches(self, model: ModelView) -> Iterator[Breach]:
        """Yield every node that reads a computed value in place of a constant."""
        constants = {*model.constants}
        for node in model.nodes:
            is_known = bool(node.inputs) and constants.issuperset(filter(None, node.inputs))
            if node.operator == "Constant" or is_known:
                constants.update(node.outputs)
        for node in model.nodes:
            for place in self.inputs.get(node.operator, ()):
                if place < len(node.inputs) and node.inputs[place] not in constants | {""}:
                    message = f"input {place} must be a constant, got a computed tensor"
                    yield Breach(node.name, node.operator, message)


@dataclass(frozen=True, kw_only=True)
class DequantizedInputs(RuntimeRule):
    """Inputs of operators that come from DequantizeLinear must have integers of these types.

    `constant` is whether the rule is about constants or about computed integers; None for both.
    """

    inputs: Mapping[str, Sequence[int]]
    types: Sequence[str]
    constant: bool | None = None

    def find_breaches(self, model: ModelView) -> Iterator[Breach]:
        """Yield every node that reads integers of another type."""
        types = {
            node.outputs[0]: model.types.get(node.inputs[0])
            for node in model.nodes
            if node.operator == "DequantizeLinear"
            and self.constant in (None, node.inputs[0] in model.constants)
        }
        for node in model.nodes:
            for place in self.inputs.get(node.operator, ()):
                value = types.get(node.inputs[place]) if place < len(node.inputs) else None
                if value is not None and value not in self.types:
                    demand = f"type of input {place} before DequantizeLinear must be"
                    message = f"{demand} {_join_words(self.types)}, got {value}"
                    yield Breach(node.name, node.operator, message)


@dataclass(frozen=True, kw_only=True)
class InputRanges(RuntimeRule):
    """Integers that some functions read must stand for numbers in a range."""

    ranges: Mapping[str, tuple[float, float]]

    def find_breaches(self, model: ModelView) -> Iterator[Breach]:
        """Yield every function whose input has a range that is larger by a step or more."""
        made = _find_dequantized(model)
        for node in model.nodes:
            source = made.get(node.inputs[0]) if node.operator in self.ranges else None
            if source is None or len(source.inputs) < 3:
                continue
            scale, zero = (model.arrays.get(name) for name in source.inputs[1:])
            if scale is None or zero is None or scale.size > 1:
                continue
            ends = np.array([np.iinfo(zero.dtype).min, np.iinfo(zero.dtype).max])
            low, high = ((ends - zero.reshape(-1)) * scale.reshape(-1)).tolist()
            lowest, highest = self.ranges[node.operator]
            if low < lowest - scale or high > highest + scale:
                demand = f"integers of the input must stand for {lowest:g} to {highest:g}"
                message = f"{demand}, got {low:.3g} to {high:.3g}"
                yield Breach(node.name, node.operator, message)


@dataclass(frozen=True, kw_only=True)
class SmallWindows(RuntimeRule):
    """Averages of dequantized images must have at most so many rows and columns."""

    operators: Collection[str]
    most: int

    def find_breaches(self, model: ModelView) -> Iterator[Breach]:
        """Yield every average with a larger window."""
        real = _find_dequantized(model)
        for node in model.nodes:
            if node.operator not in self.operators or node.inputs[0] not in real:
                continue
            shape = model.shapes.get(node.inputs[0], ())
            named = node.attributes.get("axes", model.arrays.get(node.inputs[-1], range(2, 4)))
            sides = [shape[i] or 0 for i in named if -len(shape) <= i < len(shape)]
            largest = max(node.attributes.get("kernel_shape", sides), default=0)
            if largest > self.most:
                message = f"rows and columns must be at most {self.most}, got {largest}"
                yield Breach(node.name, node.operator, message)


@dataclass(frozen=True, kw_only=True)
class NoReshapedPixels(RuntimeRule):
    """A Conv must read no image of one pixel that Reshape makes of channels before sizes of 1."""

    def find_breaches(self, model: ModelView) -> Iterator[Breach]:
        """Yield every Conv that reads such an image."""
        made = {value: node for node in model.nodes for value in node.outputs}
        for node in model.nodes:
            x = node.inputs[0] if node.operator == "Conv" else ""
            while x in made and made[x].operator in (*QDQ, *RESHAPES):
                x = made[x].inputs[0]
            shape, image = (model.shapes.get(name, ()) for name in (x, node.inputs[0] if x else ""))
            if is_reshaped_pixel(shape, image):
                message = f"an image of one pixel must not be reshaped, got one of {[*shape]}"
                yield Breach(node.name, node.operator, message)


@dataclass(frozen=True, kw_only=True)
class ShortNames(RuntimeRule):
    """The names of inputs and outputs must have at most so many letters."""

    most: int

    def find_breaches(self, model: ModelView) -> Iterator[Breach]:
        """Yield every input and output with a longer name."""
        for name in (*model.inputs, *model.outputs):
            if len(name) > self.most:
                message = f"name must have at most {self.most} letters, got {len(name)}"
                yield Breach(name, "input" if name in model.inputs else "output", message)


@dataclass(frozen=True, kw_only=True)
class OutputsAreEnds(RuntimeRule):
    """No node may read an output of integers that QuantizeLinear computes."""

    def find_breaches(self, model: ModelView) -> Iterator[Breach]:
        """Yield every node that computes such an output."""
        read = {name for node in model.nodes for name in node.inputs}
        for node in model.nodes:
            if node.operator == "QuantizeLinear" and node.outputs[0] in read & {*model.outputs}:
                message = f"no node must read the output {node.outputs[0]}, got one that does"
                yield Breach(node.name, node.operator, message)


@dataclass(frozen=True, kw_only=True)
class OneTypeAround(RuntimeRule):
    """DequantizeLinear and QuantizeLinear around some operators, or around nothing, have one type.

    This is the type of their integers.
    """

    operators: Collection[str]

    def find_breaches(self, model: ModelView) -> Iterator[Breach]:
        """Yield every QuantizeLinear of another type."""
        made = {value: node for node in model.nodes for value in node.outputs}
        for node in _list_quantized(model):
            source = made.get(node.inputs[0]) if node.operator == "QuantizeLinear" else None
            if source is not None and source.operator in self.operators:
                source = made.get(source.inputs[0])
            if source is None or source.operator != "DequantizeLinear":
                continue
            types = [model.types.get(name) for name in (source.inputs[0], node.outputs[0])]
            if None not in types and types[0] != types[1]:
                message = f"type must be {types[0]} as before DequantizeLinear, got {types[1]}"
                yield Breach(node.name, node.operator, message)


@dataclass(frozen=True, kw_only=True)
class OneQuantization(RuntimeRule):
    """All QuantizeLinear and DequantizeLinear of a tensor must have one scale and zero point."""

    def find_breaches(self, model: ModelView) -> Iterator[Breach]:
        """Yield every node whose scale or zero point is not that of an earlier node."""
        first: dict[str, Sequence[str]] = {}
        for node in _list_quantized(model):
            place = node.outputs[0] if node.operator == "QuantizeLinear" else node.inputs[0]
            names = first.setdefault(place, node.inputs[1:])
            pairs = zip(names, node.inputs[1:], strict=False)
            if any(a != b and not _are_equal(model, a, b) for a, b in pairs):
                message = f"{place} must have one scale and zero point, got several"
                yield Breach(node.name, node.operator, message)


@dataclass(frozen=True, kw_only=True)
class WeightsOfInt8(RuntimeRule):
    """Weights of some operators must be -128 to 127 steps from their zero point."""

    operators: Collection[str]

    def find_breaches(self, model: ModelView) -> Iterator[Breach]:
        """Yield every node with other weights."""
        made = _find_dequantized(model)
        for node in model.nodes:
            source = made.get(node.inputs[1]) if node.operator in self.operators else None
            arrays = [model.arrays.get(name) for name in source.inputs] if source else []
            if source is None or len(arrays) < 3 or arrays[0] is None or arrays[2] is None:
                continue
            steps = count_steps(arrays[0], arrays[2], source.attributes.get("axis", 1))
            low, high = steps.min(initial=0), steps.max(initial=0)
            if low < -128 or high > 127:
                demand = "weights must be -128 to 127 steps from their zero point"
                yield Breach(node.name, node.operator, f"{demand}, got {low} to {high}")


@dataclass(frozen=True, kw_only=True)
class NoMiddleZeroPoints(RuntimeRule):
    """Tensors of 8 bits must have another zero point than the middle of their type."""

    def find_breaches(self, model: ModelView) -> Iterator[Breach]:
        """Yield the first node of every such tensor, whose zero points all are the middle."""
        seen = set()
        for node in _list_quantized(model):
            tensor = node.outputs[0] if node.operator == "QuantizeLinear" else node.inputs[0]
            dtype = model.types.get(tensor, "")
            middle = MIDDLES.get(dtype)
            zero = model.arrays.get(node.inputs[2]) if len(node.inputs) > 2 else np.int8(0)
            is_middle = middle is not None and zero is not None and np.all(zero == middle)
            if is_middle and tensor not in seen:
                seen.add(tensor)
                message = f"zero point must not be the middle of {dtype}, got {middle}"
                yield Breach(node.name, node.operator, message)


@dataclass(frozen=True, kw_only=True)
class LowestZeroPoints(RuntimeRule):
    """Some results must be quantized with the lowest integer as zero point.

    `chain` are the nodes that compute the result, as in `NoChain`; `types` are those of integers.
    """

    chain: Sequence[Collection[str]]
    types: Collection[str]

    def find_breaches(self, model: ModelView) -> Iterator[Breach]:
        """Yield every QuantizeLinear of such a result with another zero point."""
        for node in _find_chains(model, (*self.chain, ("QuantizeLinear",))):
            zero = model.arrays.get(node.inputs[2]) if len(node.inputs) > 2 else None
            lowest = 0 if zero is None else np.iinfo(zero.dtype).min
            if zero is not None and zero.dtype.name in self.types and (zero != lowest).any():
                message = f"zero point must be {lowest}, got {zero.flat[0]}"
                yield Breach(node.name, node.operator, message)


@dataclass(frozen=True, kw_only=True)
class NoChain(RuntimeRule):
    """No chain of nodes, each of which reads the one before, may have these operators.

    `chain` are the operators of each place.
    """

    chain: Sequence[Collection[str]]

    def find_breaches(self, model: ModelView) -> Iterator[Breach]:
        """Yield the last node of every such chain."""
        before = ", ".join(map(_join_words, self.chain[:-1]))
        for node in _find_chains(model, self.chain):
            yield Breach(node.name, node.operator, f"it must not follow {before}")


@dataclass(frozen=True, kw_only=True)
class WholeBlocks(RuntimeRule):
    """Parts of images between some operators must start at a multiple of a number of pixels."""

    size: int
    operators: Collection[str]

    def find_breaches(self, model: ModelView) -> Iterator[Breach]:
        """Yield every Slice, Split and Concat with a part that starts within a block."""
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


def _find_dequantized(model: ModelView) -> Mapping[str, NodeView]:
    """Return the DequantizeLinear of each value that one computes."""
    return {n.outputs[0]: n for n in model.nodes if n.operator == "DequantizeLinear"}


def _list_quantized(model: ModelView) -> Iterator[NodeView]:
    return (node for node in model.nodes if node.operator in QDQ and len(node.inputs) > 1)


def _join_words(words: Collection[object]) -> str:
    return join_alternatives([*map(str, words)])

"""The declared operands of a class, and the verification of operators against them.

    operands = "T:float32|float64 [... n n], T [... n k], int32? [] -> T [... n k]"

Commas separate operands, "->" separates inputs from outputs. An operand is a type, marks, and axes
in brackets:

    float32|quantized   one of these types. `any` is every type, `index` is int32|int64, and
                        `integers` are all signed and unsigned integers of whole bytes
    float32+float64     types after + are types of TensorFlow's kernel only: they need
                        `MadeOptions.of_tensorflow`
    T, T:index          the type of all operands with this letter; the first may limit it
    ?                   the operand may be absent
    #                   the operand is constant
    ~                   a constant may have other types and axes
    *                   after the last type: any number of these operands
    [n 4]               two axes; axes of one name have one size
    [... n]             any axes before the last; all `...` are the same axes
    [1*]                one element, in any number of axes
    ...                 in place of an operand: any number of further operands

An operand without brackets has any axes. Without "->" there may be any outputs. If axes of outputs
are axes of inputs, too, a class needs no `infer_outputs`.
"""

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from tflite2onnx.errors import OperatorError
from tflite2onnx.graph import Op
from tflite2onnx.quantization.storage import is_quantized
from tflite2onnx.tensor import DType, Tensor
from tflite2onnx.utils.console import count
from tflite2onnx.utils.suggestions import join_alternatives

_OPERAND = re.compile(r"([A-Z]?):?([a-z0-9_|+]*)([?#*~]*) *(?:\[(.*)\])?")
_INTEGERS = [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]
_TYPES = {"": [], "any": [], "index": ["int32", "int64"], "integers": _INTEGERS}
_MORE = "..."


class Operand(NamedTuple):
    """A declared operand; without `types` it has any type, and with None as `axes` any axes."""

    letter: str
    types: tuple[str, ...]
    wide: tuple[str, ...]
    marks: str
    axes: tuple[str | int, ...] | None


class _Side(NamedTuple):
    """The declared inputs or outputs; with `more` there may be further operands."""

    kind: str
    operands: tuple[Operand, ...]
    more: bool

    @property
    def _repeats(self) -> bool:
        return "*" in self.operands[-1].marks if self.operands else False

    def pair(self, tensors: Sequence[Tensor | None]) -> Iterator[tuple[Operand, Tensor]]:
        """Yield the present operands and their tensors; OperatorError if one is missing."""
        single = self.operands[: -1 if self._repeats else None]
        others = self.operands[len(single) :] * (len(tensors) - len(single))
        for i, operand in enumerate((*single, *others)):
            tensor = tensors[i] if i < len(tensors) else None
            if tensor is not None:
                yield operand, tensor
            elif "?" not in operand.marks:
                raise OperatorError(f"{self.kind} {i} is missing")

    def expect_count(self, number: int) -> None:
        """Raise OperatorError if there are fewer or more operands than declared."""
        maximum = len(self.operands)
        minimum = sum({*"?*"}.isdisjoint(operand.marks) for operand in self.operands)
        if number < minimum or (number > maximum and not (self.more or self._repeats)):
            range_of = f"{minimum} to " if minimum < maximum else ""
            raise OperatorError(f"it must have {range_of}{count(maximum, self.kind)}, got {number}")


class _Known:
    """The types and sizes that operands of one operator have in common."""

    def __init__(self, *, wide: bool = False) -> None:
        self._wide = wide
        self._types: dict[str, DType] = {}
        self._sizes: dict[str, Sequence[Any]] = {}

    def expect(self, operand: Operand, tensor: Tensor) -> None:
        if "~" in operand.marks and tensor.is_constant:
            return
        letter, types = operand.letter, operand.types + (operand.wide if self._wide else ())
        if letter in self._types:
            types = (self._types[letter].label,)
        elif letter:
            self._types[letter] = tensor.dtype
        self.add_sizes(operand, tensor)
        shape, found_text = self.find_shape(operand, tensor), tensor.dtype.label
        fits = not types or found_text in types or ("quantized" in types and is_quantized(tensor))
        if not fits or tensor.shape != shape:
            requirement = found_text if fits else join_alternatives(types)
            single = len(types) == 1 and operand.axes not in (None, (_MORE,))
            if tensor.shape != shape or single:
                requirement += f"[{', '.join(map(str, shape))}]"
                found_text += str(list(tensor.shape))
            raise OperatorError(f"{tensor.name} must be {requirement}, got {found_text}")
        if "#" in operand.marks and tensor.data is None:
            raise OperatorError(f"{tensor.name} must be constant")

    def add_sizes(self, operand: Operand, tensor: Tensor) -> None:
        axes, sizes = operand.axes or (), iter(tensor.shape)
        others = tensor.rank - len(axes) + 1  # the number of axes that `...` stands for
        if others == 1 or (_MORE in axes and others >= 0):
            for axis in axes:
                axis_sizes = [next(sizes) for _ in range(others if axis == _MORE else 1)]
                if isinstance(axis, str):
                    self._sizes.setdefault(axis, axis_sizes)

    def find_shape(self, operand: Operand, tensor: Tensor) -> tuple[Any, ...]:
        """Return the declared shape; a size that is not known is its name."""
        if operand.axes is None:
            return tensor.shape
        if operand.axes == ("1*",):
            return (1,) * tensor.rank
        sizes: Sequence[Sequence[Any]] = [self._sizes.get(str(n), [n]) for n in operand.axes]
        return tuple(size for entry in sizes for size in entry)


@lru_cache(maxsize=1024)
def _parse_declaration(text: str) -> tuple[_Side, _Side]:
    inputs, _, outputs = text.partition("->")
    return _parse_side("input", inputs or _MORE), _parse_side("output", outputs or _MORE)


def _parse_side(kind: str, text: str) -> _Side:
    parts = [part.strip() for part in text.split(",")]
    has_more = parts[-1] == _MORE
    return _Side(kind, tuple(map(_parse_operand, parts[:-1] if has_more else parts)), has_more)


def _parse_operand(text: str) -> Operand:
    match = _OPERAND.fullmatch(text)
    if match is None:
        raise ValueError(f"an operand must be a type, marks and axes, got {text!r}")
    letter, types, marks, axes = match.groups()
    listed, extra = (
        tuple(name for part in names_of_types.split("|") for name in _TYPES.get(part, [part]))
        for names_of_types in types.partition("+")[::2]
    )
    numbers = None if axes is None else [int(n) if n.isdecimal() else n for n in axes.split()]
    return Operand(letter, listed, extra, marks, None if numbers is None else tuple(numbers))


def has_several_outputs(declared: str) -> bool:
    """Return whether there may be several outputs."""
    _, outputs = _parse_declaration(declared)
    return len(outputs.operands) + outputs.more > 1 or "*" in outputs.operands[-1].marks


def verify_operands(declared: str, op: Op) -> None:
    """Raise OperatorError unless an operator has the operands that its class declares."""
    known = _Known(wide=bool(op.made and op.made.of_tensorflow))
    sides = _parse_declaration(declared)
    for side, tensors in zip(sides, (op.inputs, op.outputs), strict=True):
        side.expect_count(len(tensors))
        for operand, tensor in side.pair(tensors):
            known.expect(operand, tensor)


def infer_declared_shapes(declared: str, op: Op) -> list[Sequence[Any]]:
    """Return the shapes of outputs that follow from axes of inputs, or the declared shapes."""
    known, (inputs, outputs) = _Known(), _parse_declaration(declared)
    for operand, tensor in inputs.pair(op.inputs):
        known.add_sizes(operand, tensor)
    # The declared shape of an output is read only if axes of inputs do not determine the shape.
    pairs = [*outputs.pair(op.outputs)]
    shapes = [known.find_shape(operand, tensor) for operand, tensor in pairs]
    known_shapes = [
        tensor.shape if any(isinstance(size, str) for size in shape) else shape
        for shape, (_, tensor) in zip(shapes, pairs, strict=True)
    ]
    return [*known_shapes, *(tensor.shape for tensor in op.outputs[len(pairs) :])]

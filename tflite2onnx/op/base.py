"""The base class of operators.

A subclass states which TFLite operators it converts (`codes`), how they use axes (`category`,
`tflite` and `onnx`, or `frames`), and adds their ONNX nodes (`emit`). Hooks that only some
operators need are in `traits.py`. The driver in `emit.py` does the work that is the same for all
operators.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from enum import Enum
from functools import cached_property, lru_cache
from typing import Any, ClassVar

from tflite2onnx.builder.builder import Builder, Value, View
from tflite2onnx.errors import DeclaredShapeError, OperatorError
from tflite2onnx.graph import Op
from tflite2onnx.layout import Frame, axis_names
from tflite2onnx.op.common.leading_axis import Wider
from tflite2onnx.op.facts import Fact
from tflite2onnx.op.operand_syntax import (
    has_several_outputs,
    infer_declared_shapes,
    verify_operands,
)
from tflite2onnx.quantization.declarations import (
    Declaration,
    Moves,
    Real,
    check_scales,
    list_operands as _operands,
    reads_integers,
)
from tflite2onnx.quantization.storage import is_quantized
from tflite2onnx.tensor import Tensor

# Operators import these names from here.
__all__ = ["Builder", "OperatorError", "Value", "View"]

_LARGEST = (1 << 31) - 1  # TFLite stores sizes as int32
_VARIADIC = 0x04  # the flag CO_VARARGS of a function


class Category(Enum):
    """How an operator uses its axes; the four kinds of frames."""

    IMPLICIT = "Implicit"  # needs an axis order of ONNX: convolutions, pooling
    TRANSPARENT = "Transparent"  # Any order, and no option names an axis: elementwise.
    # Any order, and options name axes, which are translated: concatenation, reduction.
    ATTRIBUTE = "Attribute"
    TERMINATE = "Terminate"  # keeps the TFLite order


class _DerivedCategory:
    """The category that follows from a class's other attributes."""

    def __get__(self, _: Operator | None, cls: type[Operator]) -> Category:
        if cls.onnx:
            return Category.IMPLICIT
        has_frames = "..." in cls.tflite or cls.frames is not Operator.frames
        return Category.ATTRIBUTE if has_frames else Category.TERMINATE


class Unknown:
    """A size that is known at run time only; the same object in several shapes is one size.

    It is at least `least`.
    """

    def __init__(self, least: int = 0) -> None:
        self.least = least


class DataDependentSize(Unknown):
    """A size that depends on the data of a run: any declared size is an example."""


# Sizes: integers, dimensions (see `dimension`), and `Unknown` objects.
OutputShape = Sequence[Any]


class Operator:
    """Converts one operator of a model; an instance holds only this operator.

    Attributes:
        codes: the TFLite operators that the class converts; custom operators if TFLite's schema
            lacks them.
        rows: a table with a row for each of several operators, by its code; `codes` follow from it.
        operands: the types and axes of the operands, in the language of `operand_syntax.py`.
        category: how the operator uses its axes; it follows from `onnx`, `tflite` and `frames`,
            except for Transparent.
        tflite, onnx: the letters of each operand's axes in TFLite's and in ONNX's order, as in
            "NHWC, OHWI, O -> NHWC"; or "... -> ..." if all operands share their axes in any order.
        returns_tuple: `emit` receives and returns a tuple of outputs, as if `operands` declared
            several outputs. (If the operator runs sub-graphs, `emit` also receives their bodies,
            before the inputs.)
        keeps_shape: all outputs have the shape of the first input.
        facts: what is true of all operators of the class; see `Fact`.
        quantization: how the kernel computes with stored integers: `Real`, `Integers`, `Moves` or
            `Product`; a property if it depends on the operands.
        steps: by operator and element type of the output ("TANH int16"), the number of steps by
            which its integers may differ from LiteRT's for the same inputs. For other operators see
            `allowed_steps`.
    """

    codes: ClassVar[tuple[str, ...]] = ()
    rows: ClassVar[Mapping[str, Any]] = {}
    operands: ClassVar[str] = ""
    category: ClassVar[Category] = _DerivedCategory()  # type: ignore[assignment]
    tflite: ClassVar[str] = ""
    onnx: ClassVar[str] = ""
    returns_tuple: ClassVar[bool] = False
    keeps_shape: ClassVar[bool] = False
    facts: ClassVar[tuple[Fact, ...]] = ()
    steps: ClassVar[Mapping[str, int]] = {}
    _input_counts: ClassVar[range] = range(0)  # of `emit`
    _is_valid = False  # `verify` sets it

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "rows" in vars(cls):
            cls.codes = tuple(cls.rows)
        if "operands" in vars(cls):
            cls.returns_tuple = has_several_outputs(cls.operands)
        cls._input_counts = _count_inputs(cls.emit)

    def __init__(self, op: Op) -> None:
        self.op = op
        self.options = op.options

    @property
    def row(self) -> Any:  # noqa: ANN401 - by class
        """The operator's row of the table `rows`."""
        return self.rows[self.op.code]

    @property
    def quantization(self) -> Declaration:
        """How the kernel computes with stored integers; it is read after `check`."""
        return Real()

    def verify(self) -> None:
        """Raise OperatorError if the operator cannot be converted.

        The method is called once before patterns are looked for: later code gets valid operators.
        """
        if self._is_valid:
            return
        verify_declared(self)
        self._expect_shapes()
        self._expect_operands()
        check_scales(self)
        self._is_valid = True

    def _expect_shapes(self) -> None:
        """Raise OperatorError unless the outputs have the shapes that follow from the inputs.

        A size that is known at run time only may be any size.
        """
        for tensor, shape in zip(self.op.outputs, self.output_shapes, strict=False):
            if tensor.shape and not 0 <= min(tensor.shape) <= max(tensor.shape) <= _LARGEST:
                raise OperatorError(
                    f"the sizes of {tensor.name} must be 0 to {_LARGEST}, got {list(tensor.shape)}"
                )
            if (*shape,) == tensor.shape:
                continue
            pairs = zip(tensor.shape, shape, strict=False)
            agrees = all(isinstance(size, Unknown) or size == known for known, size in pairs)
            if len(shape) != tensor.rank or not agrees:
                sizes = ["?" if isinstance(size, Unknown) else size for size in shape]
                raise DeclaredShapeError(
                    f"{tensor.name} must have the shape {sizes}, got {list(tensor.shape)}"
                )

    def _expect_operands(self) -> None:
        """Raise OperatorError for operands that no operator accepts, or not this `emit`."""
        op = self.op
        for tensor in op.tensors:
            if (dtype := tensor.dtype).is_handle:
                raise OperatorError(f"{tensor.name} must hold numbers or text, got {dtype.label}")
        if len(op.outputs) != 1 and not self.returns_tuple:
            raise OperatorError(f"it must have 1 output, got {len(op.outputs)}")
        if len(op.inputs) + bool(op.graphs) not in self._input_counts:
            raise OperatorError(f"the number of inputs must fit its class, got {len(op.inputs)}")

    def check(self) -> None:
        """Raise OperatorError for other reasons; `verify` checks `operands` itself."""

    def infer_outputs(self) -> Sequence[OutputShape]:
        """Return the shapes of the outputs; OperatorError if the inputs contradict each other.

        The sizes of inputs and outputs, and the elements of small integer inputs, may be dimensions
        (see `dimension`). A declared size of an output is used only if the inputs do not determine
        it.
        """
        if self.keeps_shape:
            return [self.input(0).shape for _ in self.op.outputs]
        return infer_declared_shapes(self.operands, self.op)

    @cached_property
    def output_shapes(self) -> Sequence[OutputShape]:
        """The result of `infer_outputs`; operators of other packages may return none."""
        return self.infer_outputs() or ()

    def frames(self) -> Sequence[Frame]:
        """Return the frames of the operands; operands without a frame keep the TFLite order."""
        if self.onnx:
            return self._make_frames_from_letters()
        if "..." in self.tflite:
            operands = _operands(self.op)
            names = axis_names(max((t.rank for t in operands.values()), default=0))
            slots = {o: names for o, t in operands.items() if t.rank == len(names)}
            return [Frame(slots, names)]
        return []

    def find_mixed_axes(self, operand: int) -> Collection[int] | None:
        """Return the axes of an input along which the operator computes.

        Elements of the outputs depend on each other along these axes. Along all other axes each
        index is computed alone, so these axes may have independent samples. Axes may count from
        the end. None stands for all axes. The shapes are the shapes of one sample.
        """
        if self.category is Category.TRANSPARENT and "..." in self.tflite:
            return ()
        letters = self.read_letters(operand)
        return [i for i, name in enumerate(letters) if name != "N"] if "N" in letters else None

    def find_common_axis(self, operand: int, axis: int, other: int) -> int | None:
        """Return the axis of another operand that corresponds to an axis, None if no axis does."""
        letters = self.read_letters(operand)
        if letters:
            position = self.read_letters(other).find(letters[axis])
            return position if position >= 0 else None
        for frame in self.frames():
            if operand in frame.slots and other in frame.slots:
                name, names = frame.slots[operand][axis], frame.slots[other]
                return names.index(name) if names.count(name) == 1 else None
        if "..." not in self.tflite:
            return None
        tensors = _operands(self.op)
        aligned = axis + tensors[other].rank - tensors[operand].rank
        return aligned if aligned >= 0 else None

    def add_leading_axis(self) -> Wider | None:
        """Return the operator for operands with one more axis in front, and its data inputs.

        Options and constant inputs count the new axis. The data inputs, and all outputs, get the
        axis. Returns None if the class has no form for one more axis.
        """
        return None

    def emit(self, g: Builder, y: Any, *xs: Any) -> Any:  # noqa: ANN401 - views, by class
        """Add the nodes; return the output's value, or a tuple of values (`returns_tuple`)."""
        raise NotImplementedError

    @property
    def allowed_steps(self) -> int:
        """The number of steps by which integers of quantized outputs may differ from LiteRT's.

        The inputs of both runtimes are the same. Integers that only move are equal. Requantized
        integers may differ by one step: LiteRT's built-in kernels round a product twice, and
        runtimes round it once.
        """
        steps = self.steps.get(f"{self.op.code} {self.output.dtype.label}")
        if steps is not None:
            return steps
        return int(is_quantized(self.output) and not reads_integers(self))

    @property
    def activation(self) -> str:
        """The activation function that the driver applies to the first output."""
        fused = self.options.get("fused_activation_function", "NONE")
        return "NONE" if Fact.APPLIES_ACTIVATION in self.facts else fused

    def read_letters(self, operand: int) -> str:
        """Return the letters of an operand's TFLite axes, empty if the class states none."""
        return _find_operand_letters(self.tflite, operand)

    def input(self, index: int) -> Tensor:
        """Return an input; OperatorError if the file omits it."""
        tensor = self.op.inputs[index] if index < len(self.op.inputs) else None
        if tensor is None:
            raise OperatorError(f"input {index} is missing")
        return tensor

    @property
    def output(self) -> Tensor:
        """The first output; OperatorError if there is no output."""
        if not self.op.outputs:
            raise OperatorError("it must have an output, got none")
        return self.op.outputs[0]

    def _make_frames_from_letters(self) -> list[Frame]:
        frames = []
        for operand, tensor in _operands(self.op).items():
            letters = self.read_letters(operand)
            if not letters:
                continue
            if len(letters) != tensor.rank:
                raise OperatorError(
                    f"{tensor.name} must have the axes {letters}, got {tensor.rank} axes"
                )
            label = tuple(_find_operand_letters(self.onnx, operand))
            frames.append(Frame({operand: tuple(letters)}, tuple(letters), label, semantic=True))
        return frames


def verify_declared(operator: Operator) -> None:
    """Raise OperatorError if the class refuses the operator; a pass may still add operands."""
    if operator.operands:
        verify_operands(operator.operands, operator.op)
    operator.check()


def moves_elements(operator: Operator) -> bool:
    """Return whether all operators of an operator's class only move elements."""
    return isinstance(type(operator).quantization, Moves)


def _count_inputs(emit: Callable[..., object]) -> range:
    """Return the numbers of inputs that a method `emit` accepts; any for another callable."""
    code = getattr(emit, "__code__", None)
    if code is None:
        return range(_LARGEST)
    most = code.co_argcount - 3  # after self, the builder and the output
    least = most - len(getattr(emit, "__defaults__", None) or ())
    return range(least, _LARGEST if code.co_flags & _VARIADIC else most + 1)


@lru_cache(maxsize=1024)
def _find_operand_letters(specs: str, operand: int) -> str:
    """Return the letters of an operand in "NHWC, OHWI, O -> NHWC", empty if there are none."""
    inputs, _, outputs = specs.partition("->")
    parts = (outputs if operand < 0 else inputs).split(",")
    index = ~operand if operand < 0 else operand
    letters = parts[index].strip() if index < len(parts) else ""
    return "" if "..." in letters else letters

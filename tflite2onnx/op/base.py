"""What an operator is: all that is true of one, in one class.

A subclass says which TFLite operators it stands for (`codes`), how their axes move (`category`,
`tflite` and `onnx`, or `frames`), and what they become (`emit`). Everything that is the same for
all operators is done by the driver in `emit.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from enum import Enum
from functools import lru_cache
from typing import Any, ClassVar

from tflite2onnx.builder.builder import Builder, Value, View
from tflite2onnx.errors import OperatorError
from tflite2onnx.graph import Op
from tflite2onnx.layout import Frame, axis_names
from tflite2onnx.quantize import AS_NUMBERS, QUANTIZED, is_quantized
from tflite2onnx.tensor import Quantization, Shape, Tensor


class Category(Enum):
    """How an operator stands to its axes; the four shapes that its frames can have."""

    IMPLICIT = "Implicit"  # pinned to an order of ONNX's: convolutions, pooling
    TRANSPARENT = "Transparent"  # any order, reads no axis: elementwise
    ATTRIBUTE = "Attribute"  # any order, axes are looked up: concatenation, reduction
    TERMINATE = "Terminate"  # keeps the TFLite order


class DeclaredShapeError(OperatorError):
    """The file declares another shape for a tensor than what the operator makes, or needs."""

    def __init__(self, reason: str, tensor: Tensor, shape: Shape) -> None:
        self.tensor = tensor
        self.shape = shape
        super().__init__(reason)


class Operator:
    """Converts one operator of a model; made once per operator, it holds nothing but that.

    Attributes:
        codes: the TFLite operators that the class converts; custom ones if `custom`.
        category: how it stands to its axes.
        tflite, onnx: the letters of each operand's axes, as in "NHWC, OHWI, O -> NHWC", in
            either world; or "... -> ..." where all operands share their axes, in any order.
        broadcasts: inputs of lower rank are aligned with the output as numpy does.
        returns_tuple: `emit` is given and gives a tuple of outputs. (Of an operator that runs
            sub-graphs it is given these, too, before the inputs.)
        moves_only: it only moves values, and so works on stored integers as they are.
        needs_equal_scales: it does so if all mean the same; else it moves real numbers. (Of a
            kernel that refuses to move integers of one scale into a tensor of another.)
        computes_on_stored_integers: it computes with stored integers, which have to be those of the
            file.
        shape_only: its outputs follow from the shapes of its inputs, whatever their elements.
        matmul_operands: the inputs that are data, weights and bias, where the first two are
            multiplied. Constant weights and biases stay in the file's type while activations may
            change theirs.
        dequantizes_weights_at_load: no runtime multiplies integer weights by float data, so that
            the weights had better become real numbers once, when the model is loaded.
        fuses_activation: `fused_activation_function` means: apply it to the first output.
        steps: by operator and element type of the output ("TANH int16"), how many steps its
            integers may be from LiteRT's, given LiteRT's inputs. Others: see `allowed_steps`.
    """

    codes: ClassVar[tuple[str, ...]] = ()
    custom: ClassVar[bool] = False
    category: ClassVar[Category]
    tflite: ClassVar[str] = ""
    onnx: ClassVar[str] = ""
    broadcasts: ClassVar[bool] = False
    returns_tuple: ClassVar[bool] = False
    fuses_activation: ClassVar[bool] = True
    moves_only: ClassVar[bool] = False
    needs_equal_scales: ClassVar[bool] = False
    computes_on_stored_integers: ClassVar[bool] = False
    shape_only: ClassVar[bool] = False
    matmul_operands: ClassVar[tuple[int, int, int] | None] = None
    dequantizes_weights_at_load: ClassVar[bool] = False
    steps: ClassVar[Mapping[str, int]] = {}

    def __init__(self, op: Op) -> None:
        self.op = op
        self.options = op.options

    @property
    def is_depthwise(self) -> bool:
        """Whether each output channel of a product reads one input channel and no other does.

        ONNX Runtime's depthwise kernels multiply in 32 bits, so that int8 weights cannot saturate.
        """
        return False

    @property
    def quantizes_dynamically(self) -> bool:
        """Whether it makes integers of real data before it computes, as a hybrid kernel does."""
        return False

    def check(self) -> None:
        """Raise OperatorError for what the class cannot convert. Called before any planning."""

    def infer_outputs(self) -> Sequence[Shape] | None:
        """Return the outputs' shapes if the file need not have them, None if it is to be believed.

        Of a custom operator converters often know nothing; its kernel finds the shapes.
        """
        return None

    def frames(self) -> Sequence[Frame]:
        """Return the frames that the operands live in; operands in none keep the TFLite order."""
        if self.onnx:
            return self._frames_from_letters()
        if "..." in self.tflite:
            operands = _operands(self.op)
            names = axis_names(max((t.rank for t in operands.values()), default=0))
            return [Frame({o: names for o, t in operands.items() if t.rank == len(names)}, names)]
        return []

    def emit(self, g: Builder, y: Any, *xs: Any) -> Any:  # noqa: ANN401 - views; each class knows
        """Emit the nodes; return the output's value, or a tuple of them (`returns_tuple`)."""
        raise NotImplementedError

    def broadcast_shapes(self) -> Sequence[Shape | None]:
        """Return the shape that each input should be given before planning, None for its own."""
        if not self.broadcasts:
            return [None] * len(self.op.inputs)
        rank = max((t.rank for t in _operands(self.op).values()), default=0)
        return [None if t is None else (1,) * (rank - t.rank) + t.shape for t in self.op.inputs]

    def resolve_output_shapes(self) -> tuple[Shape, ...]:
        """Return the shapes of the outputs that follow from the inputs, whatever is declared.

        Raises:
            OperatorError: the inputs do not fit together, or something else is wrong.
        """
        known = self.infer_outputs()
        if known is not None:
            return tuple(known)
        op = self.op
        for _ in range(2 * len(op.outputs) + 1):
            try:
                type(self)(op).check()
            except DeclaredShapeError as error:
                if error.tensor not in op.outputs:
                    raise
                right = replace(error.tensor, shape=error.shape, shape_signature=())
                made = tuple(right if t is error.tensor else t for t in op.outputs)
                op = replace(op, outputs=made)
            else:
                break
        return tuple(t.shape for t in op.outputs)

    def reads_stored_integers(self) -> bool:
        """Return whether quantized operands are read and written as stored, not as real numbers."""
        return self.computes_on_stored_integers or (
            self.moves_only and (self.has_one_scale or not self.needs_equal_scales)
        )

    @property
    def allowed_steps(self) -> int:
        """How many steps the integers of quantized outputs may be from LiteRT's.

        Both runtimes are given the same inputs. Integers that only move are equal. Integers that
        are rescaled may be one step apart: LiteRT's plain kernels round a product twice, and
        ONNX Runtime rounds it once.
        """
        known = self.steps.get(f"{self.op.code} {self.output.dtype.label}")
        if known is not None:
            return known
        moved = self.reads_stored_integers() and self.rounding_quantization is None
        return int(is_quantized(self.output) and not moved)

    @property
    def has_one_scale(self) -> bool:
        """Whether an integer stands for the same number in all quantized operands."""
        scales = [t.quantization for t in _operands(self.op).values() if is_quantized(t)]
        same = all(scale.same_as(scales[0]) for scale in scales if scale is not None)
        return same and self.without_scale is None

    @property
    def without_scale(self) -> Tensor | None:
        """An operand of few bits that has no scale, where another has one; None if all agree."""
        operands = _operands(self.op).values()
        if not any(is_quantized(t) for t in operands):
            return None
        return next((t for t in operands if t.dtype in QUANTIZED and not is_quantized(t)), None)

    @property
    def output_quantization(self) -> Quantization | None:
        """The scale in which the kernel writes, where it does not look at that of the output."""
        return self.input(0).quantization if self.rounding_quantization else None

    @property
    def rounding_quantization(self) -> Quantization | None:
        """The scale in which averages of integers are rounded right; None where it makes none.

        The kernels average stored integers, whatever they stand for, and round halves away from
        the integer 0. See `quantize.half_away_scale`.
        """
        return None

    def scale_read(self, operand: int) -> Quantization | None:
        """Return the scale in which an input's integers are read, None for its own."""
        return AS_NUMBERS if self.rounding_quantization else None

    @property
    def scale_made(self) -> Quantization | None:
        """The scale in which integers are made of real numbers, None for that of the output."""
        return self.rounding_quantization or self.output_quantization

    @property
    def activation(self) -> str:
        """The activation function that is applied to the first output."""
        fused = self.options.get("fused_activation_function", "NONE")
        return fused if self.fuses_activation else "NONE"

    def axis_letters(self, operand: int) -> str:
        """Return the letters of an operand's TFLite axes, empty where the class gives none."""
        return _spec(self.tflite, operand)

    def input(self, index: int) -> Tensor:
        """Return an input that must be there."""
        found = self.op.inputs[index] if index < len(self.op.inputs) else None
        if found is None:
            raise OperatorError(f"input {index} is missing")
        return found

    @property
    def output(self) -> Tensor:
        """The first output."""
        if not self.op.outputs:
            raise OperatorError("it has no output")
        return self.op.outputs[0]

    def _frames_from_letters(self) -> list[Frame]:
        frames = []
        for operand, tensor in _operands(self.op).items():
            letters = self.axis_letters(operand)
            if not letters:
                continue
            if len(letters) != tensor.rank:
                raise OperatorError(
                    f"{tensor.name} has {tensor.rank} axes where {letters} are expected"
                )
            label = tuple(_spec(self.onnx, operand))
            frames.append(Frame({operand: tuple(letters)}, tuple(letters), label, semantic=True))
        return frames


def _operands(op: Op) -> dict[int, Tensor]:
    operands = {i: t for i, t in enumerate(op.inputs) if t is not None}
    return operands | {~i: t for i, t in enumerate(op.outputs)}


@lru_cache(maxsize=1024)
def _spec(specs: str, operand: int) -> str:
    """Return the letters of an operand in "NHWC, OHWI, O -> NHWC", empty where there are none."""
    reads, _, writes = specs.partition("->")
    parts = (writes if operand < 0 else reads).split(",")
    index = ~operand if operand < 0 else operand
    spec = parts[index].strip() if index < len(parts) else ""
    return "" if "..." in spec else spec


__all__ = [
    "Builder",
    "Category",
    "DeclaredShapeError",
    "Operator",
    "OperatorError",
    "Value",
    "View",
]

"""The base class of operators.

A subclass states which TFLite operators it converts (`codes`), how it uses axes (`category`,
`tflite` and `onnx`, or `frames`), and which ONNX nodes it becomes (`emit`). Hooks that only some
operators need are in `traits.py`. The driver in `emit.py` does all that is the same for all
operators.
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
    """How an operator uses its axes; the four kinds of frames."""

    IMPLICIT = "Implicit"  # needs an axis order of ONNX: convolutions, pooling
    TRANSPARENT = "Transparent"  # any order, reads no axis: elementwise
    ATTRIBUTE = "Attribute"  # any order, looks its axes up: concatenation, reduction
    TERMINATE = "Terminate"  # keeps the TFLite order


class DeclaredShapeError(OperatorError):
    """The file declares another shape for a tensor than the operator computes or needs."""

    def __init__(self, reason: str, tensor: Tensor, shape: Shape) -> None:
        self.tensor = tensor
        self.shape = shape
        super().__init__(reason)


class Operator:
    """Converts one operator of a model; an instance holds only this operator.

    Attributes:
        codes: the TFLite operators that the class converts; custom operators if `custom`.
        category: how it uses its axes.
        tflite, onnx: the letters of each operand's axes in TFLite's and in ONNX's order, as in
            "NHWC, OHWI, O -> NHWC"; or "... -> ..." if all operands share their axes in any order.
        broadcasts: inputs of lower rank are aligned with the output as in numpy.
        returns_tuple: `emit` receives and returns a tuple of outputs. (If the operator runs
            sub-graphs, `emit` also receives their bodies, before the inputs.)
        moves_only: only moves elements, and so works on stored integers.
        needs_equal_scales: with `moves_only`: works on stored integers only if all operands share
            one scale; otherwise on dequantized values, because the kernel rejects mixed scales.
        computes_on_stored_integers: computes with stored integers, in the file's types.
        shape_only: the outputs depend on the shapes of the inputs but not on their elements.
        matmul_operands: the inputs that are data, weights and bias of a matrix product. Constant
            weights and biases keep the file's type if activations change theirs.
        dequantizes_weights_at_load: no runtime multiplies integer weights by float data, so that
            the weights are dequantized once, when the model is loaded.
        fuses_activation: the driver applies `fused_activation_function` to the first output.
        steps: by operator and element type of the output ("TANH int16"), the number of steps by
            which its integers may differ from LiteRT's for the same inputs. For other operators see
            `allowed_steps`.
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
        """Whether each output channel of a product reads one input channel of its own.

        ONNX Runtime's depthwise kernels multiply in 32 bits, so that int8 weights cannot saturate.
        """
        return False

    @property
    def quantizes_dynamically(self) -> bool:
        """Whether it quantizes float data at run time, as a hybrid kernel does."""
        return False

    def check(self) -> None:
        """Raise OperatorError if the operator cannot be converted. Called before planning."""

    def infer_outputs(self) -> Sequence[Shape] | None:
        """Return the shapes of the outputs, None if the file's shapes are right.

        Converters often write no shapes for custom operators; the kernel computes them in Prepare.
        """
        return None

    def frames(self) -> Sequence[Frame]:
        """Return the frames of the operands; operands without a frame keep the TFLite order."""
        if self.onnx:
            return self._frames_from_letters()
        if "..." in self.tflite:
            operands = _operands(self.op)
            names = axis_names(max((t.rank for t in operands.values()), default=0))
            return [Frame({o: names for o, t in operands.items() if t.rank == len(names)}, names)]
        return []

    def emit(self, g: Builder, y: Any, *xs: Any) -> Any:  # noqa: ANN401 - views, by class
        """Add the nodes; return the output's value, or a tuple of values (`returns_tuple`)."""
        raise NotImplementedError

    def broadcast_shapes(self) -> Sequence[Shape | None]:
        """Return the shape to which each input is reshaped before planning, None for its own."""
        if not self.broadcasts:
            return [None] * len(self.op.inputs)
        rank = max((t.rank for t in _operands(self.op).values()), default=0)
        return [None if t is None else (1,) * (rank - t.rank) + t.shape for t in self.op.inputs]

    def resolve_output_shapes(self) -> tuple[Shape, ...]:
        """Return the shapes of the outputs that follow from the inputs, whatever the file declares.

        Raises:
            OperatorError: the operator cannot be converted with these inputs.
        """
        shapes = self.infer_outputs()
        if shapes is not None:
            return tuple(shapes)
        op = self.op
        for _ in range(2 * len(op.outputs) + 1):
            try:
                type(self)(op).check()
            except DeclaredShapeError as error:
                if error.tensor not in op.outputs:
                    raise
                output = replace(error.tensor, shape=error.shape, shape_signature=())
                outputs = tuple(output if t is error.tensor else t for t in op.outputs)
                op = replace(op, outputs=outputs)
            else:
                break
        return tuple(t.shape for t in op.outputs)

    def reads_stored_integers(self) -> bool:
        """Return whether `emit` reads and writes stored integers, not dequantized values."""
        return self.computes_on_stored_integers or (
            self.moves_only and (self.has_one_scale or not self.needs_equal_scales)
        )

    @property
    def allowed_steps(self) -> int:
        """By how many steps integers of quantized outputs may differ from LiteRT's.

        Both runtimes get the same inputs. Integers that only move are equal. Requantized integers
        may differ by one step: LiteRT's built-in kernels round a product twice, ONNX Runtime rounds
        it once.
        """
        steps = self.steps.get(f"{self.op.code} {self.output.dtype.label}")
        if steps is not None:
            return steps
        moved = self.reads_stored_integers() and self.rounding_quantization is None
        return int(is_quantized(self.output) and not moved)

    @property
    def has_one_scale(self) -> bool:
        """Whether all quantized operands have the same scale and zero point."""
        scales = [t.quantization for t in _operands(self.op).values() if is_quantized(t)]
        same = all(scale.same_as(scales[0]) for scale in scales if scale is not None)
        return same and self.without_scale is None

    @property
    def without_scale(self) -> Tensor | None:
        """An integer operand without a scale if another operand has one, else None."""
        operands = _operands(self.op).values()
        if not any(is_quantized(t) for t in operands):
            return None
        return next((t for t in operands if t.dtype in QUANTIZED and not is_quantized(t)), None)

    @property
    def output_quantization(self) -> Quantization | None:
        """The quantization in which the kernel writes if it ignores the output's, else None."""
        return self.input(0).quantization if self.rounding_quantization else None

    @property
    def rounding_quantization(self) -> Quantization | None:
        """The quantization in which averages of integers are rounded right; None if there are none.

        The kernels average stored integers without their zero point, and round halves away from the
        integer 0. See `quantize.half_away_scale`.
        """
        return None

    def scale_read(self, operand: int) -> Quantization | None:
        """Return the quantization in which an input is dequantized, None for its own."""
        return AS_NUMBERS if self.rounding_quantization else None

    @property
    def scale_made(self) -> Quantization | None:
        """The quantization in which the output is quantized, None for its own."""
        return self.rounding_quantization or self.output_quantization

    @property
    def activation(self) -> str:
        """The activation function that the driver applies to the first output."""
        fused = self.options.get("fused_activation_function", "NONE")
        return fused if self.fuses_activation else "NONE"

    def axis_letters(self, operand: int) -> str:
        """Return the letters of an operand's TFLite axes, empty if the class states none."""
        return _operand_letters(self.tflite, operand)

    def input(self, index: int) -> Tensor:
        """Return an input; OperatorError if the file omits it."""
        tensor = self.op.inputs[index] if index < len(self.op.inputs) else None
        if tensor is None:
            raise OperatorError(f"input {index} is missing")
        return tensor

    @property
    def output(self) -> Tensor:
        """The first output; OperatorError if there is none."""
        if not self.op.outputs:
            raise OperatorError("it must have an output, got none")
        return self.op.outputs[0]

    def _frames_from_letters(self) -> list[Frame]:
        frames = []
        for operand, tensor in _operands(self.op).items():
            letters = self.axis_letters(operand)
            if not letters:
                continue
            if len(letters) != tensor.rank:
                raise OperatorError(
                    f"{tensor.name} must have the axes {letters}, got {tensor.rank} axes"
                )
            label = tuple(_operand_letters(self.onnx, operand))
            frames.append(Frame({operand: tuple(letters)}, tuple(letters), label, semantic=True))
        return frames


def _operands(op: Op) -> dict[int, Tensor]:
    """Return the input i by the key i, and the output i by ~i."""
    operands = {i: t for i, t in enumerate(op.inputs) if t is not None}
    return operands | {~i: t for i, t in enumerate(op.outputs)}


@lru_cache(maxsize=1024)
def _operand_letters(specs: str, operand: int) -> str:
    """Return the letters of an operand in "NHWC, OHWI, O -> NHWC", empty if there are none."""
    inputs, _, outputs = specs.partition("->")
    parts = (outputs if operand < 0 else inputs).split(",")
    index = ~operand if operand < 0 else operand
    letters = parts[index].strip() if index < len(parts) else ""
    return "" if "..." in letters else letters


__all__ = [
    "Builder",
    "Category",
    "DeclaredShapeError",
    "Operator",
    "OperatorError",
    "Value",
    "View",
]

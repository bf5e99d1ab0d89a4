"""Declarations of operators about stored integers, and their meaning for operands."""

from collections.abc import Collection
from dataclasses import replace
from typing import NamedTuple, Protocol, TypeAlias

import numpy as np

from tflite2onnx.errors import OperatorError
from tflite2onnx.graph import Op
from tflite2onnx.quantization.storage import AS_NUMBERS, QUANTIZED, find_integer_range, is_quantized
from tflite2onnx.tensor import DType, Quantization, Tensor


class Real(NamedTuple):
    """Computes with real numbers: dequantized inputs, and outputs that are quantized.

    Attributes:
        reads: the quantization in which each input is dequantized; None, or no item, for the
            input's own. writes: the quantization in which the output is quantized, None for the
            output's own. kernel_writes: the quantization in which the kernel writes output 0 if
            it ignores the output's quantization.
        multiplies: the inputs that are constant weights that multiply input 0. bias: the input that
            is the bias, and the input whose scale is a factor of the bias's scale; None if several
            scales are factors.
        moves: the operands (output i is ~i) whose elements are only moved.
        tabulates: a table has the kernel's result for each stored integer.
        folds: constants are dequantized when a runtime loads the model.
        takes_axes: the kernel reads a scale for each index of an axis, also of computed operands.
    """

    reads: tuple[Quantization | None, ...] = ()
    writes: Quantization | None = None
    kernel_writes: Quantization | None = None
    multiplies: Collection[int] = ()
    bias: tuple[int, int] | None = None
    moves: tuple[int, ...] = ()
    tabulates: bool = False
    folds: bool = False
    takes_axes: bool = False


class Integers(NamedTuple):
    """Computes with stored integers.

    Attributes:
        in_file_types: the integers have the types of the file: int8 is never stored as uint8, and
            never dequantized. equal_scales: only if all operands share one scale; otherwise the
            operator computes with real numbers.
        keeps_scales: the output has the real numbers of the input, though the integers may differ.
        takes_infinity: a constant may have an infinite scale. kernel_writes: as in `Real`.
    """

    in_file_types: bool = False
    equal_scales: bool = False
    keeps_scales: bool = False
    takes_infinity: bool = False
    kernel_writes: Quantization | None = None


class Moves(NamedTuple):
    """Only moves elements, as they are stored.

    Attributes:
        rescales: the types whose elements the kernel rescales or rejects if the operands have
            different scales; the elements are then moved as real numbers. keeps_scales: each value
            keeps its scale on its way through the operator, though the operands have several
            scales.
    """

    rescales: frozenset[DType] = frozenset()
    keeps_scales: bool = False


class Product(NamedTuple):
    """A matrix product or a convolution of the inputs `data` and `weights`, plus the `bias`.

    Attributes:
        folds: no runtime multiplies integer weights by float data in this operator.
        hybrid: how float data are quantized: by "rows"; by "images", which are rounded, or one
            image whose "integers" are multiplied; "" for neither.
        units: the axis of the weights along which the features of the output are.
        depthwise: each output channel reads only its own input channel.
        accumulates: the output is the sum of products of stored integers.
    """

    data: int
    weights: int
    bias: int
    folds: bool = False
    hybrid: str = ""
    units: int = 0
    depthwise: bool = False
    accumulates: bool = False

    @property
    def operands(self) -> tuple[int, int, int]:
        """The inputs that are data, weights and bias."""
        return self.data, self.weights, self.bias


Declaration: TypeAlias = Real | Integers | Moves | Product


class Declared(Protocol):
    """The attributes of an operator that the plan reads (`op.base.Operator`)."""

    @property
    def op(self) -> Op: ...
    @property
    def quantization(self) -> Declaration: ...
    @property
    def activation(self) -> str: ...


def declare_averages(x: Tensor, rounding: Quantization, *, upwards: bool = False) -> Real:
    """Return the declaration of averages of stored integers, whose scale is ignored.

    `rounding` is the quantization in which averages are rounded like the kernel's: halves away from
    the integer 0 (see `compute_half_away_scale`). With `upwards`, halves are rounded towards the
    larger integer.
    """
    numbers = AS_NUMBERS
    if upwards:
        lowest = np.array([find_integer_range(x.dtype)[0]], np.int64)
        numbers, rounding = (replace(q, zero_point=lowest) for q in (numbers, rounding))
    return Real((numbers,), rounding, x.quantization)


def drop_common_zero_point(declared: Real) -> Real:
    """Return averages that round halves away from 0, in whatever direction the kernel rounds.

    Integers are read and written with the same zero point, so the averages do not change.
    """
    if len(declared.reads) != 1 or declared.reads[0] is None or declared.writes is None:
        return declared
    read, written = declared.reads[0], declared.writes
    if not np.array_equal(read.zero_point, written.zero_point):
        return declared
    read, written = (replace(q, zero_point=np.zeros_like(q.zero_point)) for q in (read, written))
    return declared._replace(reads=(read,), writes=written)


def has_one_scale(op: Op) -> bool:
    """Return whether all quantized operands have the same scale and zero point."""
    scales = [t.quantization for t in list_operands(op).values() if is_quantized(t)]
    is_equal = all(scale.same_as(scales[0]) for scale in scales if scale is not None)
    return is_equal and find_tensor_without_scale(op) is None


def find_tensor_without_scale(op: Op) -> Tensor | None:
    """Return an integer operand without a scale if another operand has one, else None."""
    if not any(map(is_quantized, op.tensors)):
        return None
    return next((t for t in op.tensors if t.dtype in QUANTIZED and not is_quantized(t)), None)


def list_operands(op: Op) -> dict[int, Tensor]:
    """Return the input i by the key i, and the output i by ~i."""
    operands = {i: t for i, t in enumerate(op.inputs) if t is not None}
    return operands | {~i: t for i, t in enumerate(op.outputs)}


def reads_integers(operator: Declared) -> bool:
    """Return whether an operator works on stored integers, not on real numbers."""
    match operator.quantization:
        case Integers(equal_scales=True):
            return has_one_scale(operator.op)
        case Moves(rescales=types) if types and operator.op.outputs[0].dtype in types:
            return has_one_scale(operator.op)
        case Integers() | Moves():
            return True
        case Product(accumulates=accumulates):
            return accumulates
        case Real():
            return False


def check_scales(operator: Declared) -> None:
    """Raise OperatorError if operands on real numbers have no scale, or scales that do not fit.

    The reader has checked scales by declared shapes. A computed tensor may have another shape.
    """
    op = operator.op
    _check_infinite_scales(operator)
    several = [t for t in op.tensors if t.per_axis and is_quantized(t)]
    unscaled = find_tensor_without_scale(op)
    if (unscaled is None and not several) or reads_integers(operator):
        return
    for tensor in several:
        _check_scales_of_axis(tensor)
    match operator.quantization:
        case Real(folds=False, takes_axes=False, multiplies=multiplies, moves=moves):
            expect_one_scale(op, {*multiplies, *moves})
        case Integers() | Moves():
            expect_one_scale(op)
    if unscaled is not None:
        raise OperatorError(f"{unscaled.name} must have a scale, because other operands have one")


def _check_infinite_scales(operator: Declared) -> None:
    for tensor in operator.op.present:
        own = tensor.quantization
        if own and tensor.has_data and own.scale.max(initial=0) == np.inf:
            # It may take long to find, as for a sum of integers.
            declared = operator.quantization
            if isinstance(declared, Integers) and declared.takes_infinity:
                return
            raise OperatorError(
                f"the scales of {tensor.name} must be finite, got inf: exclude the operator from"
                " quantization"
            )


def _check_scales_of_axis(tensor: Tensor) -> None:
    scales = tensor.quantization
    if scales is None or scales.block_size:
        return
    axis, count = scales.axis, scales.scale.shape[0]
    if axis >= tensor.rank or tensor.shape[axis] != count:
        raise OperatorError(
            f"{tensor.name} must have {count} elements along axis {axis}, one for each scale, got"
            f" the shape {list(tensor.shape)}: correct the scales in the file"
        )


def expect_one_scale(op: Op, others: Collection[int] = ()) -> None:
    """Raise OperatorError if a computed operand has several scales, unless it is in `others`.

    The kernel reads the one scale of the tensor, which is 0.
    """
    for operand, tensor in list_operands(op).items():
        is_read = operand not in others and not tensor.has_data
        if is_read and tensor.per_axis and is_quantized(tensor):
            raise OperatorError(
                f"{tensor.name} must have one scale, because the kernel reads no scales of an axis:"
                " quantize it with one scale for the tensor"
            )

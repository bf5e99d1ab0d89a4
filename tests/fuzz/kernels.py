"""Operators of a damaged file for which LiteRT's kernels compute nothing that is defined.

The vector kernels that multiply float data by int8 weights negate weights, which -128 has no room
for (DotProdInt8x4x4 in sse_tensor_utils.cc). The kernel of DIV for integers has no divisor 0, and
shifts by more bits than a word has if a quotient is small (DivElementwise in div.h). The kernel of
REDUCE_PROD multiplies rounded products in 32 bits. The library fft2d, which computes RFFT2D,
transforms rows of 2 elements or more. BATCH_MATMUL of float data by integers takes the scales of
other rows if it has two axes of batches (batch_matmul.h). GELU computes 1 + erf(x) as erfc(-x)
(gelu.h), which does not cancel; ONNX's operator adds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from tests.support.runtimes import Array
from tflite2onnx.graph import Model, Op
from tflite2onnx.passes.operands import is_float
from tflite2onnx.quantization.storage import QUANTIZED
from tflite2onnx.reader.model import read_model
from tflite2onnx.tensor import DType, Quantization, Tensor

# Shifts by more places than a type has are undefined in C++.
_UNDEFINED = {"STABLEHLO_SHIFT_LEFT"}
# Of two scales of an operator. Products of int16 by larger quotients exceed 32 bits.
_LARGEST_QUOTIENT = 1 << 15
_LOWEST_WEIGHT = 0x80  # the bits of -128
# Operators whose result may change by many steps if an operand changes by one step, which the
# operator that computes the operand is allowed to differ by.
_AMPLIFIERS = {"CAST", "DIV", "EXP", "LOG", "POW", "RSQRT"}
_LARGEST_INT16 = 1 << 15
_SMALLEST_DIVISOR = 1e-30
_COMPARISONS = {"EQUAL", "NOT_EQUAL", "GREATER", "GREATER_EQUAL", "LESS", "LESS_EQUAL"}
# Operators that jump by 1, and functions whose limit one runtime reaches earlier: LiteRT's TANH is
# -1 below -7.91 (Tanh in optimized_ops.h, by Eigen), ONNX Runtime's LOGISTIC is 0 below -88.
_JUMPS, _LIMITED = {"CEIL", "FLOOR", "ROUND"}, {"TANH", "LOGISTIC"}
_NEGATIVE = -2.0  # below it the sum 1 + erf(x) has less than 5 % of its operands
_CONVOLUTIONS = {"CONV_2D", "DEPTHWISE_CONV_2D", "TRANSPOSE_CONV"}
# Operators whose kernels read the scale of each channel.
_PER_AXIS = _CONVOLUTIONS | {"BATCH_MATMUL", "DEQUANTIZE", "EMBEDDING_LOOKUP", "FULLY_CONNECTED"}
# Activations that cut the range of sums of rounded data, whose errors are parts of the whole range.
_CUTS = {"RELU_N1_TO_1", "RELU6", "TANH", "SIGN_BIT"}


def find_undefined_operators(
    model: Model, inputs: Mapping[Tensor, Sequence[Array]]
) -> Iterator[str]:
    """Yield the codes of operators without a defined result; `inputs` are those of all runs."""
    tests = (
        _lacks_scale,
        _overflows,
        _has_lowest_weight,
        _wraps_product,
        _saturates_table,
        _transforms_single_columns,
        _takes_scales_of_others,
        _is_integer_power,
        _compares_large_steps,
        _overruns_output,
        _misreads_operands,
        _reads_several_scales,
    )
    for op in operators_of(model):
        is_undefined = op.code in _UNDEFINED or any(test(op) for test in tests)
        by_value = (_is_undefined_quotient, _divides_by_zero, _cancels)
        if is_undefined or any(test(op, inputs) for test in by_value):
            yield op.code


def find_amplifiers(data: bytes) -> str:
    """Return the code of an operator that amplifies steps of its operands, "" if none.

    Float operands have steps if LiteRT rounds float data of the model to 8 bits.
    """
    model = read_model(data)
    computed = {tensor for op in operators_of(model) for tensor in op.outputs}
    limited = {t for op in operators_of(model) if op.code in _LIMITED for t in op.outputs}
    rounds = any(_integer_weights(op) for op in operators_of(model))
    found = (
        op.code
        for op in operators_of(model)
        if (op.options.get("fused_activation_function") in _CUTS and _integer_weights(op))
        or (op.code in _JUMPS and not limited.isdisjoint(op.inputs))
        or (
            op.code in _AMPLIFIERS
            and any(
                t in computed and (rounds or t.quantization is not None) for t in op.inputs if t
            )
        )
    )
    return next(found, "")


def _overflows(op: Op) -> bool:
    """Return whether the quotient of two scales is so large that an integer product overflows.

    The kernel of LEAKY_RELU multiplies the quotient by the slope (LeakyReluPrepare).
    """
    read, written = (
        [t.quantization.scale for t in tensors if t is not None and t.quantization]
        for tensors in (op.inputs, op.outputs)
    )
    if not read or not written:
        return False
    slope = abs(op.options.get("alpha", 0.0)) if op.code == "LEAKY_RELU" else 0.0
    largest = np.concatenate(read).max() * max(slope, 1.0)
    return bool(largest > _LARGEST_QUOTIENT * np.concatenate(written).min())


def _integer_weights(op: Op) -> list[Array]:
    """Return the constants of 8 bits with a scale by which float data are multiplied."""
    data = next(iter(op.inputs), None)
    if data is None or data.dtype is not DType.FLOAT32:
        return []
    weights = [t for t in op.inputs[1:] if t is not None and t.dtype in (DType.INT8, DType.UINT8)]
    return [w.data for w in weights if w.data is not None and w.quantization is not None]


def _has_lowest_weight(op: Op) -> bool:
    """Return whether float data are multiplied by integer weights one of which is -128."""
    return any(bool((w.view(np.uint8) == _LOWEST_WEIGHT).any()) for w in _integer_weights(op))


def _is_undefined_quotient(op: Op, inputs: Mapping[Tensor, Sequence[Array]]) -> bool:
    """Return whether the kernel of DIV for integers divides by 0, or shifts by more than 31 bits.

    It shifts a numerator of 1 by 30 bits and by the bits of the divisor, less those of the scale.
    """
    scales = _scales(op)
    divisor = op.inputs[1] if op.code == "DIV" and len(op.inputs) > 1 and scales else None
    if divisor is None or divisor.quantization is None:
        return False
    known = _known_values(divisor, inputs)
    zero_point = divisor.quantization.zero_point[0]
    steps = np.abs(np.concatenate([[], *(each.ravel() for each in known)]) - zero_point)
    if not steps.size or not steps.all():
        return True
    x, y = scales
    _, bits = np.frexp(x.scale[0] / (divisor.quantization.scale[0] * y.scale[0]))
    return int(bits) - int(steps.max()).bit_length() - 30 < -31


def _divides_by_zero(op: Op, inputs: Mapping[Tensor, Sequence[Array]]) -> bool:
    """Return whether DIV divides floats by 0, or nearly: the kernel limits an infinity to 3.4e38.

    The operators after it then compute with the largest float.
    """
    divisor = op.inputs[1] if op.code == "DIV" and len(op.inputs) > 1 else None
    known = () if divisor is None or not is_float(divisor) else _known_values(divisor, inputs)
    return any(bool((np.abs(each) < _SMALLEST_DIVISOR).any()) for each in known)


def _cancels(op: Op, inputs: Mapping[Tensor, Sequence[Array]]) -> bool:
    """Return whether GELU reads only numbers whose results are small parts of them.

    The difference of the two formulas is 10^-7 of the operand. A computed number may be such.
    """
    x = op.inputs[0] if op.code == "GELU" and op.inputs else None
    if x is None or x.dtype is not DType.FLOAT32:
        return False
    known = _known_values(x, inputs)
    if not len(known):
        return x.elements == 1
    return any(bool((each < _NEGATIVE).all()) for each in known)


def _known_values(tensor: Tensor, inputs: Mapping[Tensor, Sequence[Array]]) -> Sequence[Array]:
    """Return the elements of a constant, or of an input in all runs; none if computed."""
    return [tensor.data] if tensor.data is not None else inputs.get(tensor, ())


def _wraps_product(op: Op) -> bool:
    """Return whether products of REDUCE_PROD may exceed the range of the output."""
    if op.code != "REDUCE_PROD" or not _scales(op):
        return False
    (source, target), x, y = _scales(op), op.inputs[0], op.outputs[0]
    if x is None:
        return False
    largest = np.log(source.scale[0] * 2.0 ** (x.dtype.bits - 1)) * x.elements
    return bool(largest > np.log(target.scale[0] * 2.0 ** (y.dtype.bits - 1)) * max(y.elements, 1))


def _saturates_table(op: Op) -> bool:
    """Return whether an entry of the table of 513 numbers is cut to a limit of int16, or moved.

    The kernels of EXP, GELU and LOG interpolate between entries. The logarithm of 0 is always cut.
    A zero point of the output, which int16 must not have, is not added (LUTPopulateInt16 in
    common.h).
    """
    if op.code == "LOG" and op.outputs[0].dtype is DType.INT16:
        return True
    if op.code not in ("EXP", "GELU") or op.outputs[0].dtype is not DType.INT16 or not _scales(op):
        return False
    source, target = _scales(op)
    if target.zero_point[0]:
        return True
    if op.code == "GELU":  # of the largest number, which it returns
        return bool(source.scale[0] > target.scale[0])
    return bool(source.scale[0] * _LARGEST_INT16 > np.log(target.scale[0] * _LARGEST_INT16))


def _lacks_scale(op: Op) -> bool:
    """Return whether an operator mixes integers with a scale and integers without a scale."""
    operands = [t for t in (*op.inputs, *op.outputs) if t is not None and t.dtype in QUANTIZED]
    scales = [t.quantization for t in operands if t.quantization is not None]
    return 0 < len(scales) < len(operands)


def _transforms_single_columns(op: Op) -> bool:
    """Return whether RFFT2D transforms rows of one element."""
    lengths = op.inputs[1] if op.code == "RFFT2D" and len(op.inputs) > 1 else None
    return lengths is not None and lengths.data is not None and 1 in lengths.data.ravel()[1:]


def _takes_scales_of_others(op: Op) -> bool:
    """Return whether BATCH_MATMUL multiplies rounded float data with two axes of batches.

    The reference kernel takes the scales of rows from another batch if the first axis is not 1.
    """
    outer = op.inputs[0].shape[:-3] if op.code == "BATCH_MATMUL" and op.inputs[0] else ()
    return any(size != 1 for size in outer) and bool(_integer_weights(op))


def _is_integer_power(op: Op) -> bool:
    """Return whether POW raises integers that are not constant, whose power may overflow."""
    base = op.inputs[0] if op.code == "POW" and op.inputs else None
    return base is not None and base.dtype.is_integer and base.data is None


def _compares_large_steps(op: Op) -> bool:
    """Return whether a comparison reads integers of 8 bits with a scale of 1 or more.

    The kernel asserts that it shifts products to the right (comparisons.h).
    """
    narrow = [t for t in op.inputs if t is not None and t.dtype in (DType.INT8, DType.UINT8)]
    scales = [t.quantization.scale.max() for t in narrow if t.quantization is not None]
    return op.code in _COMPARISONS and any(scale >= 1 for scale in scales)


def _overruns_output(op: Op) -> bool:
    """Return whether aeq.hadamard_rotation copies its input to an output of another size.

    The kernel keeps the declared shape of its output (Eval in hadamard_rotation.cc), and writes
    beyond a smaller output; nothing writes the rest of a larger output.
    """
    if op.code != "aeq.hadamard_rotation" or not op.inputs or op.inputs[0] is None:
        return False
    return op.inputs[0].elements != op.outputs[0].elements


def _misreads_operands(op: Op) -> bool:
    """Return whether FULLY_CONNECTED reads int8 data as uint8, because the output is int16.

    See EvalQuantized in fully_connected.cc.
    """
    if op.code != "FULLY_CONNECTED" or not op.inputs or op.inputs[0] is None:
        return False
    return op.inputs[0].dtype is DType.INT8 and op.outputs[0].dtype is DType.INT16


def _reads_several_scales(op: Op) -> bool:
    """Return whether a kernel for one scale reads or writes a tensor of several scales.

    LiteRT passes such a kernel the scale 0 (GetLegacyQuantization in subgraph.cc). The products
    have several scales for constant weights only.
    """
    tensors = [t for t in (*op.inputs, *op.outputs) if t is not None]
    several = [t for t in tensors if t.quantization and t.quantization.per_axis]
    return any(op.code not in _PER_AXIS or t.data is None for t in several)


def operators_of(model: Model) -> Iterator[Op]:
    """Yield the operators of all graphs."""
    for graph in model.graphs:
        yield from graph.ops


def _scales(op: Op) -> list[Quantization]:
    """Return the quantization of the first input and of the first output, if both have one."""
    ends = [t for t in (*op.inputs[:1], *op.outputs[:1]) if t is not None]
    scales = [t.quantization for t in ends if t.quantization and t.dtype in QUANTIZED]
    return scales if len(scales) == 2 else []

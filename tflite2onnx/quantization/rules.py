"""The rules of the storage plan: tables, of which the first rule that applies is used.

docs/quantization.md has the same tables, and docs/integer-kernels.md the measured reasons.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from enum import Enum
from math import prod
from typing import Any, NamedTuple

import numpy as np

from tflite2onnx.errors import OperatorError
from tflite2onnx.quantization.declarations import Declared, Product
from tflite2onnx.quantization.storage import (
    EIGHT_BITS,
    REAL,
    Storage,
    find_integer_range,
    is_quantized,
    move_zero_point,
    widen_subbyte,
)
from tflite2onnx.tensor import DType, Quantization, Tensor
from tflite2onnx.utils.mapped_files import read_rows

# The least number of multiplications for which integers are the fastest form of a dense hybrid
# product that quantizes its data: of one row, and of several rows.
WORTHWHILE_FOR_ROW, WORTHWHILE = 1 << 16, 1 << 18
# With fewer features, several rows are faster as floats: the nodes around an integer product read
# and write all outputs.
DEEP = 72
# A product with fewer multiplications takes less than a microsecond with weights of any type.
_FEW = 1 << 14
# The values of the option `weights` with which products are right on every processor.
_SAFE = ("auto", "adaptive")
# Two products of uint8 by weights up to this size fit into 16 bits.
_LARGEST_EXACT = 64


class Reading(Enum):
    """How an operator reads or writes the elements of an operand."""

    STORED = "as stored"
    DEQUANTIZED = "real numbers"  # DequantizeLinear makes them, QuantizeLinear reads them
    UNIFORM = "real numbers, in the scale of the tensor"  # likewise; not in the kernel's scales
    FOLDED = "real numbers, dequantized at load"
    FLOAT = "real numbers in the file"  # the file stores floats in place of integers
    DYNAMIC = "quantized at run time"
    # Integers minus the zero point, by DequantizeLinear with scale 1. Runtimes make an integer
    # product of a MatMul that reads data and weights in this way.
    NUMBERS = "integers, as float32"


class StorageRule(NamedTuple):
    """A row of a table: the condition on a case, the choice, and the reason."""

    when: str
    then: str
    why: str
    applies: Callable[[Any], bool]
    choose: Callable[[Any], Any]


class TensorCase(NamedTuple):
    """A tensor, and the options of the conversion that affect its storage."""

    tensor: Tensor
    float_only: bool = False
    int8_as_uint8: bool = False


class _WeightCase(NamedTuple):
    """Weights of a product; `own` is their storage in the file, `signed` that without a zero point.

    `data` is the type of quantized data, None for floats. `eight_bits` is set if the weights have 8
    bits and the data 8 bits or floats, `exact` if no kernel can saturate with these weights, and
    `wraps` if kernels of ARM64 can wrap around. `has_few` is set if no type of the weights makes a
    product faster.
    """

    own: Storage
    signed: Storage
    choice: str
    data: DType | None
    eight_bits: bool
    exact: bool
    wraps: bool
    has_few: bool


class OperandCase(NamedTuple):
    """An operand and its storage.

    `role` is "data", "weights" or "bias" in a product, "vector" for weights that are multiplied
    element by element, else "". `dynamic` says how the data of a product are quantized at run time
    (`quantizes_data`). `real_bias` is set if no kernel of integers reads the bias, and `is_uniform`
    if each tensor has one scale in the whole model.
    """

    storage: Storage
    role: str = ""
    real: bool = True
    float_only: bool = False
    dynamic: str = ""
    real_bias: bool = False
    is_uniform: bool = False


# The storage of each tensor inside the model.
TENSORS = (
    StorageRule(
        "floats, bool, strings; integers without a scale or of 32 and 64 bits",
        "the file's type",
        "kernels read the stored elements",
        lambda case: not is_quantized(case.tensor),
        lambda case: Storage(case.tensor.dtype),
    ),
    StorageRule(
        "`--quantization float`, computed tensors",
        "float32",
        "the option asks for real numbers",
        lambda case: case.float_only and case.tensor.data is None,
        lambda _: REAL,
    ),
    StorageRule(
        "int8; `--activations uint8`, or `auto` if an operator computes with int8",
        "uint8, the zero point is 128 higher",
        "the real numbers are the same, and runtimes have more integer kernels for uint8",
        lambda case: case.int8_as_uint8 and case.tensor.dtype is DType.INT8,
        lambda case: move_zero_point(find_file_storage(case.tensor), DType.UINT8),
    ),
    StorageRule(
        "other quantized integers",
        "the file's type",
        "no other type has more kernels",
        lambda _: True,
        lambda case: find_file_storage(case.tensor),
    ),
)
# The storage of inputs, outputs and states of the model.
ENDPOINT = StorageRule(
    "inputs, outputs and states of the model",
    "the file's type; float32 with `--quantization float`",
    "callers pass the same data as to the TFLite model",
    lambda _: True,
    lambda case: choose(TENSORS, case._replace(int8_as_uint8=False))[0],
)
# The storage of states that callers only pass on.
STATE = StorageRule(
    "states with `--quantization rounded`, and with `--forms fastest --states optional`, but not"
    " `--io-layout tflite`",
    "as inside the model",
    "a run passes a state to the next one, and an int8 state would take four nodes in each run",
    lambda _: True,
    lambda case: choose(TENSORS, case)[0],
)
# The storage of values inside an operator.
INNER = StorageRule(
    "sums, gates and states inside a recurrent operator",
    "the kernel's type; float32 with `--quantization float`",
    "the kernel rounds each value that it stores",
    lambda _: True,
    lambda case: REAL if case.float_only else case.storage,
)
# The storage of a constant int32 or int64 bias of a product of integers: see `find_bias_storage`.
BIAS = StorageRule(
    "biases of quantized data and weights",
    "int32, the scale is that of data times that of weights",
    "kernels add the bias to the sums of products, and ignore the scale of the bias",
    lambda _: True,
    lambda case: case,
)
# The storage of constant weights of products.
WEIGHTS = (
    StorageRule(
        "float weights",
        "the file's type",
        "there is nothing to dequantize",
        lambda case: case.own.quantization is None,
        lambda case: case.own,
    ),
    StorageRule(
        "quantized data or weights of 16 bits",
        "the file's type, at least 8 bits; matrices are transposed, or get more than 2 axes",
        "there are no integer kernels of 16 bits; runtimes multiply by matrices [k, n] with a"
        " kernel that rounds the data to 8 bits",
        lambda case: DType.INT16 in (case.data, case.own.dtype) and case.data is not None,
        lambda case: case.own._replace(dtype=widen_subbyte(case.own.dtype)),
    ),
    StorageRule(
        "quantized data; weights of 4 or 2 bits",
        "int8 or uint8",
        "integer kernels take no narrower type, and two products fit into 16 bits",
        lambda case: case.data is not None and not case.eight_bits,
        lambda case: case.own._replace(dtype=widen_subbyte(case.own.dtype)),
    ),
    StorageRule(
        "quantized data; `--weights auto` or `adaptive`; depthwise with one weight of -128 in a"
        " filter at most, or all weights are int8 from -64 to 64",
        "the file's type",
        "no kernel saturates, and int8 weights are faster",
        lambda case: case.data is not None and case.choice in _SAFE and case.exact,
        lambda case: case.own,
    ),
    StorageRule(
        "quantized data; `--weights adaptive`, 2^14 multiplications or more, unless several weights"
        " of a unit are -128 without a zero point",
        "int8, read as uint8 on processors where int8 saturates",
        "int8 weights are faster with VNNI and ARM's dot product, and right only with these",
        lambda case: case.data is not None and case.choice == "adaptive" and _gains(case),
        lambda case: move_zero_point(case.own, DType.INT8)._replace(adapts=True),
    ),
    StorageRule(
        "quantized data; `--weights float`",
        "the file's type, dequantized at load",
        "products of real numbers never saturate",
        lambda case: case.data is not None and case.choice == "float",
        lambda case: case.own._replace(folds=True, hides=True),
    ),
    StorageRule(
        "quantized data; `--weights int8`",
        "int8",
        "faster with VNNI and ARM's dot product",
        lambda case: case.data is not None and case.choice == "int8",
        lambda case: move_zero_point(case.own, DType.INT8),
    ),
    StorageRule(
        "quantized data",
        "uint8",
        "uint8 data by int8 weights saturate on x86-64 without VNNI",
        lambda case: case.data is not None,
        lambda case: move_zero_point(case.own, DType.UINT8),
    ),
    StorageRule(
        "float data; convolutions, recurrent layers, nested graphs; matrix products of fewer than"
        " 2^18 multiplications",
        "int8, int4 or uint4 without a zero point, dequantized at load",
        "no kernel multiplies these weights by float data as LiteRT does, and"
        " DequantizeLinear would run each time",
        lambda case: case.signed.folds,
        lambda case: case.signed,
    ),
    StorageRule(
        "float data; `--weights int8`, or weights of 4 or 2 bits",
        "int8, int4 or uint4 without a zero point",
        "kernels of float data read the bits as signed (EvalHybrid); products of 2 bits are wrong"
        " in some runtimes",
        lambda case: case.choice == "int8" or not case.eight_bits,
        lambda case: case.signed,
    ),
    StorageRule(
        "float data",
        "uint8, the zero point is 128",
        "int8 weights saturate where runtimes fuse the nodes into an integer product",
        lambda _: True,
        lambda case: move_zero_point(case.signed, DType.UINT8),
    ),
)
# How operands are read and written.
READINGS = (
    StorageRule(
        "float data of a product, quantized by LiteRT's kernel: FULLY_CONNECTED and BATCH_MATMUL;"
        " CONV_2D, DEPTHWISE_CONV_2D and TRANSPOSE_CONV",
        "quantized at run time",
        "equal to LiteRT",
        lambda case: case.dynamic and case.role == "data",
        lambda _: Reading.DYNAMIC,
    ),
    StorageRule(
        "elements without a scale",
        "as stored",
        "there is nothing to dequantize",
        lambda case: case.storage.quantization is None,
        lambda _: Reading.STORED,
    ),
    StorageRule(
        "operators that move, compare or combine integers",
        "as stored",
        "the kernel works on the integers",
        lambda case: not case.real,
        lambda _: Reading.STORED,
    ),
    StorageRule(
        "`--quantization float`",
        "float32 in the file",
        "the option asks for real numbers",
        lambda case: case.float_only,
        lambda _: Reading.FLOAT,
    ),
    StorageRule(
        "biases of quantized data and weights; `--forms canonical`, `--weights float`, or data of"
        " 16 bits",
        "float32 in the file",
        "some runtimes refuse a bias of int32 with int8 weights; others make int32 of float32;"
        " there are no integer kernels of 16 bits",
        lambda case: case.real_bias and case.role == "bias",
        lambda _: Reading.FLOAT,
    ),
    StorageRule(
        "peepholes and factors of a normalization in recurrent operators",
        "float32 in the file",
        "no integer kernel multiplies by vectors",
        lambda case: case.role == "vector",
        lambda _: Reading.FLOAT,
    ),
    StorageRule(
        "weights of float data that no kernel multiplies; of data of 16 bits, unless `--forms"
        " canonical`; `--weights float`",
        "dequantized at load",
        "Cast and Mul of constants are folded",
        lambda case: case.storage.folds,
        lambda _: Reading.FOLDED,
    ),
    StorageRule(
        "`--quantization qdq-uniform`, other operands than weights and biases",
        "real numbers in the scale of the tensor",
        "compilers of NPUs know one scale for each tensor",
        lambda case: case.is_uniform and case.role in ("", "data"),
        lambda _: Reading.UNIFORM,
    ),
    StorageRule(
        "all others",
        "real numbers, by DequantizeLinear and QuantizeLinear",
        "runtimes fuse these nodes and the operator into an integer kernel",
        lambda _: True,
        lambda _: Reading.DEQUANTIZED,
    ),
)


def _gains(case: _WeightCase) -> bool:
    """Return whether int8 weights may be faster, and are right except on x86-64."""
    return not (case.wraps or case.has_few)


def choose(table: Sequence[StorageRule], case: object) -> tuple[Any, StorageRule]:
    """Return the choice of the first rule that applies to a case, and the rule."""
    for rule in table:  # a loop: a generator takes twice the time
        if rule.applies(case):
            return rule.choose(case), rule
    raise AssertionError("the last rule of a table must apply to every case")


def find_file_storage(tensor: Tensor) -> Storage:
    """Return the storage of a tensor in the TFLite file."""
    return Storage(tensor.dtype, tensor.quantization if is_quantized(tensor) else None)


def find_weight_storage(
    x: Tensor,
    weights: Tensor,
    choice: str = "auto",
    *,
    folds: bool,
    depthwise: bool = False,
    as_integers: bool = False,
    results: Sequence[int] | None = None,
    units: int = 0,
) -> tuple[Storage, StorageRule]:
    """Return the storage of the constant weights that multiply x, and its rule.

    `choice` is the option `weights` of a conversion. `folds` is set if the weights of float data
    are dequantized at load, `as_integers` if float data are quantized to uint8 at run time.
    `results` is the shape of the product, or None for recurrent layers; `units` is the axis of the
    weights that counts the output features. Weights of float data have no zero point, and uint8
    weights are the bits of int8 weights (EvalHybrid in conv.cc and fully_connected.cc). Weights of
    2 bits are widened, because some runtimes multiply float data by them wrongly.
    """
    storage = signed = find_file_storage(weights)
    if storage.quantization is not None:
        zero = np.broadcast_to(np.int64(0), storage.quantization.zero_point.shape)
        dtype = DType.INT8 if storage.dtype in (DType.UINT8, DType.INT2) else storage.dtype
        # The same object is kept if possible, because a table may share its scales.
        quantization = storage.quantization
        if quantization.zero_point.any():
            quantization = replace(quantization, zero_point=zero)
        signed = Storage(dtype, quantization, folds)
    data = x.dtype if is_quantized(x) else None
    if as_integers:
        data, storage = DType.UINT8, signed
    eight_bits = weights.dtype in EIGHT_BITS and data in (None, *EIGHT_BITS)
    wraps = _wraps(storage, weights, units, depthwise=depthwise)
    exact = not wraps and (depthwise or _is_narrow(weights))
    # The last axis of the results is the axis of the units, which the weights have, too.
    has_few = results is not None and weights.elements * prod(results[:-1]) < _FEW
    case = _WeightCase(storage, signed, choice, data, eight_bits, exact, wraps, has_few)
    return choose(WEIGHTS, case)


def quantizes_data(operator: Declared) -> str:
    """Return how the float data of a product are quantized at run time.

    The kernels quantize each row of a matrix by its own extremes. "integers": the integers are
    multiplied. "rows" or "images": the data are rounded to the real numbers of the integers, and
    multiplied by real weights. "": the data are not rounded, for example if weights have a scale
    for each block, which no integer kernel multiplies exactly.
    """
    op, declaration = operator.op, operator.quantization
    if not isinstance(declaration, Product) or not declaration.hybrid:
        return ""
    x, w = op.inputs[declaration.data], op.inputs[declaration.weights]
    if x is None or w is None or w.data is None or is_quantized(x) or not is_quantized(w):
        return ""
    scales = w.quantization
    if scales is None or scales.block_size:
        return ""
    if declaration.hybrid != "rows":
        return declaration.hybrid
    has_units = not scales.per_axis or scales.axis == declaration.units % w.rank
    return _choose_rows(x, w, declaration.units) if has_units else ""


def _choose_rows(x: Tensor, weights: Tensor, units: int) -> str:
    """Return whether rows are faster as "integers" or as rounded "rows" of floats."""
    outputs, elements = weights.shape[units], weights.elements
    if elements != prod(weights.shape[-2:]) and units != 0:  # the weights are several matrices
        return "rows"
    if x.elements * outputs == elements:  # the data are one row
        return "integers" if elements >= WORTHWHILE_FOR_ROW else "rows"
    is_deep = elements >= DEEP * outputs
    return "integers" if is_deep and x.elements * outputs >= WORTHWHILE else "rows"


def _is_narrow(weights: Tensor) -> bool:
    """Return whether two products of any uint8 data by these int8 weights fit into 16 bits."""
    if weights.dtype is not DType.INT8 or weights.data is None:
        return False
    limit = _LARGEST_EXACT
    parts = read_rows(weights.data)
    return all(p.min(initial=0) >= -limit and p.max(initial=0) <= limit for p in parts)


def _wraps(storage: Storage, weights: Tensor, units: int, *, depthwise: bool) -> bool:
    """Return whether two products of -128 by these weights, as int8, may exceed 16 bits.

    Kernels of ARM64 add two products of one unit in 16 bits, which holds all sums except the sum of
    two products of -128 by -128. These are the kernels of depthwise convolutions, and,
    on processors without dot product, of symmetric convolutions, which need a zero point of 0. On
    x86-64 depthwise kernels accumulate in 32 bits. docs/integer-kernels.md names the sources.
    """
    if storage.dtype not in EIGHT_BITS or weights.data is None or not weights.elements:
        return False
    lowest, highest = find_integer_range(storage.dtype)
    is_symmetric = storage.zero_point == (lowest + highest + 1) // 2
    if not is_symmetric and not (depthwise and storage.dtype is DType.INT8):
        return False
    filters = np.moveaxis(weights.data, units, 0)
    places = ((part == lowest).reshape(len(part), -1) for part in read_rows(filters))
    # Few filters have two elements of the lowest number.
    several = (filters_part for filters_part in places if np.count_nonzero(filters_part) > 1)
    return any(int(filters_part.sum(1).max()) > 1 for filters_part in several)


def find_bias_storage(x: Tensor, weights: Tensor, bias: Tensor) -> Storage | None:
    """Return the storage of the bias of a quantized product, None if it is stored as in the file.

    The kernels add the bias to the accumulators, whose scale is the product of the scales of the
    input and of the weights. They ignore the bias's own scale in the file, which may be 2 % off
    (PopulateConvolutionQuantizationParams in kernel_util.cc). DequantizeLinear and the integer
    kernels of runtimes take int32 only, and most int64 biases fit into int32. A larger bias loses
    low bits, which float32 would not hold either. A float32 bias would not help: runtimes convert a
    bias of any size to int32.

    Raises:
        OperatorError: the bias is too large for the accumulators of an integer kernel.
    """
    a, b = x.quantization, weights.quantization
    if bias.data is None or bias.dtype not in (DType.INT32, DType.INT64) or a is None or b is None:
        return None
    dropped = 0
    if bias.dtype is DType.INT64:
        largest = max(abs(int(bias.data.max(initial=0))), abs(int(bias.data.min(initial=0))) - 1)
        dropped = max(largest.bit_length() - 31, 0)
    if dropped and x.dtype is not DType.INT16:
        raise OperatorError(f"{bias.name} must fit into 32 bits at the scale of its product")
    scale = a.scale[0].astype(np.float64) * b.scale.astype(np.float64) * 2.0**dropped
    quantization = Quantization(scale.astype(np.float32), np.zeros(scale.size, np.int64))
    return Storage(DType.INT32, quantization, dropped=dropped)

"""Properties of operands that patterns test."""

from math import prod

import numpy as np

from tflite2onnx.graph import NO_OP, Graph, Op
from tflite2onnx.op import find_facts, find_operator
from tflite2onnx.op.facts import Fact
from tflite2onnx.op.linear.matmul import FullyConnected
from tflite2onnx.op.movement.reshape_transpose import Reshape
from tflite2onnx.op.traits import TakesRanges
from tflite2onnx.op.vision.conv import Conv2D, DepthwiseConv2D
from tflite2onnx.quantization.storage import BOUNDS
from tflite2onnx.tensor import Array, DType, Shape, Tensor

CONVOLUTIONS = Conv2D.codes + DepthwiseConv2D.codes  # neither transposed nor of volumes
LAYERS = CONVOLUTIONS + FullyConnected.codes  # of data, weights and biases, in this sequence
# Operators whose outputs have the elements of the input in the same sequence.
RESHAPES = Reshape.codes
# Operators whose outputs are never negative, and operators whose outputs are negative only if an
# input is.
_POSITIVE_ACTIVATIONS = [name for name, (least, _) in BOUNDS.items() if least >= 0]
_POSITIVE = ("ABS", "EXP", "LOGISTIC", "SOFTMAX", *_POSITIVE_ACTIVATIONS)
_KEEPING = (
    *("AVERAGE_POOL_2D", "CONCATENATION", "MAX_POOL_2D", "MEAN", "RESHAPE"),
    *("RESIZE_NEAREST_NEIGHBOR", "TRANSPOSE"),
)
_IMAGE = 4  # axes
_STEPS = ("stride_h", "stride_w", "dilation_h_factor", "dilation_w_factor")


def normalize_axes(axes: Array, rank: int) -> set[int]:
    """Return the axes of a constant as numbers from 0 on; negative axes count from the last.

    Raises:
        ValueError, OverflowError: an axis is not finite.
    """
    return {int(axis) % rank for axis in axes.flat}


def has(op: Op, fact: Fact) -> bool:
    """Return whether the class of an operator states a fact of it."""
    return fact in find_facts(op)


def is_float(tensor: Tensor) -> bool:
    """Return whether a tensor has float32 elements that are not quantized."""
    return tensor.dtype is DType.FLOAT32 and not tensor.quantization


def are_fixed_floats(*tensors: Tensor) -> bool:
    """Return whether tensors are float32, of fixed sizes, of which none is 0."""
    return all(is_float(t) and not t.symbols and 0 not in t.shape for t in tensors)


def has_unit_steps(op: Op) -> bool:
    """Return whether the strides and dilations of a convolution are 1."""
    return all(op.options.get(name, 1) == 1 for name in _STEPS)


def find_order(op: Op) -> tuple[int, ...]:
    """Return the constant permutation of a TRANSPOSE, () for other operators."""
    return tuple(map(int, op.operand(1).values.flat)) if op.is_builtin("TRANSPOSE") else ()


def find_data(op: Op) -> Tensor:
    """Return the input of which an operator takes elements."""
    return op.operand(1 if op.is_builtin("SPLIT") else 0)


def find_taken_ranges(op: Op) -> dict[int, range]:
    """Return the indices that a slice takes along the axes that it does not take whole."""
    operator = find_operator(op)
    ranges = operator.ranges if isinstance(operator, TakesRanges) else None
    sizes = op.operand(0).shape
    return {i: r for i, r in enumerate(ranges or ()) if r != range(sizes[i])}


def squeeze_shape(shape: Shape) -> Shape:
    """Return a shape without the axes of one element."""
    return tuple(size for size in shape if size != 1)


def squeeze_order(op: Op) -> tuple[int, ...] | None:
    """Return the order in which a RESHAPE or TRANSPOSE keeps the axes of more than one element.

    Returns None if it does not keep them, or if the order is computed.
    """
    shape = op.operand(0).shape
    kept = [axis for axis, size in enumerate(shape) if size != 1]
    if op.is_builtin("RESHAPE") and squeeze_shape(shape) == squeeze_shape(op.outputs[0].shape):
        return tuple(range(len(kept)))
    order = tuple(kept.index(axis) for axis in find_order(op) if axis in kept)
    return order if len(order) == len(kept) else None


def keeps_sequence(op: Op) -> bool:
    """Return whether an operator is a RESHAPE, or a TRANSPOSE of axes of one element."""
    order = squeeze_order(op) if op.is_builtin("TRANSPOSE") else None
    return op.is_builtin("RESHAPE") or (order is not None and order == tuple(sorted(order)))


def trace_sequence(tensor: Tensor, graph: Graph) -> Tensor:
    """Return a tensor before all operators that leave its elements in their sequence."""
    while keeps_sequence(op := graph.producers.find(tensor)):
        tensor = op.operand(0)
    return tensor


def joins_last_axis(op: Op) -> bool:
    """Return whether an operator is a CONCATENATION along the last axis of its operands."""
    rank = op.operand(0).rank  # scalars become a list
    return op.is_builtin("CONCATENATION") and rank > 0 and op.options.axis in (-1, rank - 1)


def spread_over_channels(constant: Tensor, y: Tensor, axes: int = 1) -> Array:
    """Return a constant as [C], no elements if it varies along another axis than the channels.

    The channels are the last axes of y, as many as `axes`; none for 0.
    """
    channels, last = y.shape[-axes:], constant.shape[-axes:]
    fits = 0 < axes <= y.rank >= constant.rank and prod(constant.shape) == prod(last)
    pairs = zip(reversed(last), reversed(channels), strict=False)
    if not fits or any(n not in (1, size) for n, size in pairs):
        return np.empty(0)
    values = np.broadcast_to(constant.values.reshape(last), channels)
    return np.ascontiguousarray(values).reshape(-1)


def find_producer(tensor: Tensor, graph: Graph, *codes: str) -> Op:
    """Return the operator that computes a tensor if it has one of the codes, else `NO_OP`.

    Returns `NO_OP` also if the tensor has several readers.
    """
    op = graph.producers.find(tensor)
    is_alone = op.is_builtin(*codes) and graph.readers.find_only_reader(tensor) is not NO_OP
    return op if is_alone else NO_OP


def find_positive(graph: Graph) -> set[Tensor]:
    """Return the tensors in which no operator can compute a negative element."""
    positive: set[Tensor] = set()
    for op in graph.walk_ops():
        kinds = {t.dtype for t in op.outputs}
        data = [t for t in op.present if t.dtype in kinds]
        keeps = op.is_builtin(*_KEEPING) or (
            op.is_builtin("ADD", "MUL") and op.activation == "NONE"
        )
        is_positive = op.is_builtin(*_POSITIVE) or op.activation in _POSITIVE_ACTIVATIONS
        if is_positive or (keeps and data and positive.issuperset(data)):
            positive.update(op.outputs)
    return positive

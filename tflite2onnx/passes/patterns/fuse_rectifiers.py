"""Recognise RELU, LEAKY_RELU, PRELU and ABS, in whatever way a model spells them out.

All of them are x for x >= 0 and a x for x < 0. Exporters write them in many ways:

    max(x, 0) + a min(x, 0)              relu(x) - a relu(-x)
    relu(x) + (x - |x|) a / 2            (1 + a) / 2 x + (1 - a) / 2 |x|
    max(x, a x) with a <= 1              x > 0 ? x : a x

So the pass knows no spelling. A function is positively homogeneous if f(k x) = k^d f(x) for all
k > 0; d is its degree. A function of one tensor that is composed of sums, products, extrema,
comparisons and choices is homogeneous if their operands have fitting degrees. f(1) and f(-1), for
each element of the constants, then are all of the function. The pass computes both for each tensor
that depends on another one by these operators. A function of degree 1 with f(1) = 1 is replaced:

    a = -f(-1) = 0     RELU
    a = -1             ABS
    all a are equal    LEAKY_RELU
    else               PRELU

1. All tensors are float32 or bool, and the result has the shape of x. NaN may become another NaN.
2. Of several tensors on which the result depends, x is the earliest.
3. The operators between are dead afterwards, unless others read them too. The pass never adds a
   node: it replaces the last operator by one.

Networks with many PRELU, such as MobileFaceNet, take less time (docs/performance.md).
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from tflite2onnx.graph import Graph, Op
from tflite2onnx.op import OPERATORS
from tflite2onnx.passes.operands import is_float
from tflite2onnx.passes.rewriter import as_builtin, make_constant
from tflite2onnx.tensor import Array, DType, Tensor

# How the degree of the result follows from the operands. Those of a sum have one degree, which is
# that of the result; those of a comparison have one degree, and the result has 0. The degree of a
# product is the sum of degrees. The condition of a choice has degree 0, and the others have one.
_KINDS = {
    "sum": (
        *("ABS", "ADD", "CAST", "LEAKY_RELU", "MAXIMUM", "MINIMUM", "NEG", "RELU", "SUB"),
        "ZEROS_LIKE",
    ),
    "comparison": ("GREATER", "GREATER_EQUAL", "LESS", "LESS_EQUAL", "LOGICAL_NOT", "SIGN"),
    "product": ("DIV", "MUL", "PRELU"),
    "choice": ("SELECT", "SELECT_V2"),
}
# Functions of operators whose rows have none that the converter may fold constants with.
_FUNCTIONS: Mapping[str, Callable[..., Array]] = {
    "CAST": lambda x: x.astype(np.float32),
    "LEAKY_RELU": lambda x, alpha: np.where(x > 0, x, alpha * x),
    "PRELU": lambda x, slopes: np.where(x > 0, x, slopes * x),
    "RELU": lambda x: np.maximum(x, 0),
    "SIGN": np.sign,
    "SELECT": np.where,
    "SELECT_V2": np.where,
}
_RECTIFIERS = {0.0: "RELU", -1.0: "ABS"}  # by slope
_DEEPEST = 8  # tensors on which a result may depend
_MOST = 1 << 20  # elements of a constant
_CLOSE = 1e-6


class _Homogeneous(NamedTuple):
    """A function of a tensor: its degree, and its values at 1 and at -1."""

    degree: int
    above: Array
    below: Array

    @property
    def has_every_degree(self) -> bool:
        """Whether all values are zero or infinite: k^d times the value is the value for all d."""
        return all(np.all((side == 0) | np.isinf(side)) for side in (self.above, self.below))


def fuse_rectifiers(graph: Graph) -> Graph:
    """Return the graph with one operator in place of a rectifier that is spelled out."""
    functions: dict[Tensor, dict[Tensor, _Homogeneous]] = {}

    def change(op: Op) -> list[Op]:
        if not _find_kind(op) or op.activation not in {"NONE", "RELU"}:
            return [op]
        found = _find_functions(op, functions)
        functions[op.outputs[0]] = dict([*found.items()][-_DEEPEST:])
        rectifiers = (_make_rectifier(op, x, function) for x, function in found.items())
        return [next(filter(None, rectifiers), op)]

    return graph.rewrite(change)


_Functions = Mapping[Tensor, Mapping[Tensor, _Homogeneous]]


def _find_functions(op: Op, functions: _Functions) -> dict[Tensor, _Homogeneous]:
    data = [t for t in op.present if not t.has_data]
    # Otherwise the degree is none, or depends on signs.
    several = len(data) > 1 and op.is_builtin("DIV", "PRELU")
    casts_to_bool = op.is_builtin("CAST") and not is_float(op.outputs[0])
    if not data or several or casts_to_bool or not all(map(_is_known, op.tensors)):
        return {}
    found = {}
    for x in (*functions.get(data[0], {}), *filter(is_float, data[:1])):
        operands = [f for t in op.present if (f := _find_function(t, x, functions))]
        function = _evaluate_operator(op, operands) if len(operands) == len(op.present) else None
        if function:
            found[x] = function
    return found


def _find_function(tensor: Tensor, x: Tensor, functions: _Functions) -> _Homogeneous | None:
    """Return what a tensor is of x, None if it depends on another tensor."""
    if tensor.has_data:
        return _Homogeneous(0, tensor.values, tensor.values)
    if tensor is x:  # in arrays of its own: no array outlives a conversion
        return _Homogeneous(1, np.full(1, 1, np.float32), np.full(1, -1, np.float32))
    return functions.get(tensor, {}).get(x)


def _is_known(tensor: Tensor) -> bool:
    """Return whether the functions of a tensor, or the elements of a constant, can be computed."""
    if not (is_float(tensor) or tensor.dtype is DType.BOOL):
        return False
    return not tensor.has_data or 0 < tensor.values.size <= _MOST


def _evaluate_operator(op: Op, operands: list[_Homogeneous]) -> _Homogeneous | None:
    """Return the function that an operator makes of functions, None if it is not homogeneous."""
    degree = _find_degree(op, operands)
    if degree is None:
        return None
    compute = _FUNCTIONS.get(op.code) or OPERATORS[op.code].rows[op.code].numpy
    parameters = [op.options.alpha] if op.code == "LEAKY_RELU" else []
    sides = []
    for values in zip(*((each.above, each.below) for each in operands), strict=True):
        side = compute(*values, *parameters)
        if side is None:  # a divisor is 0
            return None
        sides.append(np.maximum(side, 0) if op.activation == "RELU" else side)
    return _Homogeneous(degree, *sides)


def _find_kind(op: Op) -> str:
    return next((kind for kind, codes in _KINDS.items() if op.is_builtin(*codes)), "")


def _find_degree(op: Op, operands: list[_Homogeneous]) -> int | None:
    """Return the degree of the result, None if the operands have no fitting degrees."""
    kind = _find_kind(op)
    if kind == "product":
        degree = sum(each.degree for each in operands)
        return degree if degree <= 1 else None
    if kind == "choice":
        condition, *operands = operands
        if condition.degree:
            return None
    degrees = {each.degree for each in operands if not each.has_every_degree}
    if len(degrees) > 1:
        return None
    return 0 if kind == "comparison" else max(degrees, default=0)


def _make_rectifier(op: Op, x: Tensor, function: _Homogeneous) -> Op | None:
    """Return the operator that computes a function of x, None if there is none better."""
    (y,) = op.outputs
    slopes = -np.asarray(function.below, np.float32)
    if function.degree != 1 or not is_float(y) or x.sizes != y.sizes:
        return None
    if not np.all(np.abs(function.above - 1) <= _CLOSE) or not np.all(np.isfinite(slopes)):
        return None
    slope = float(slopes.flat[0])
    code = "PRELU" if np.any(slopes != slope) else _RECTIFIERS.get(slope, "LEAKY_RELU")
    same = op.is_builtin(code) and op.inputs[0] is x and op.activation == "NONE"
    if same or np.all(slopes == 1):
        return None
    if code == "PRELU":
        return as_builtin(op, code, x, make_constant(f"{y.name}/slopes", slopes, x))
    if code == "LEAKY_RELU":
        return as_builtin(op, code, x, alpha=slope)
    return as_builtin(op, code, x)

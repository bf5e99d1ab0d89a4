"""The difference from LiteRT that is allowed for a damaged file: that of its operators."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from math import prod
from typing import TYPE_CHECKING

from ai_edge_litert import schema_py_generated as schema

from tests.conformance.rows import ROWS
from tests.conformance.table import Bound
from tests.support.facts import OPERATORS, TENSOR_TYPES
from tflite2onnx.errors import ConversionError
from tflite2onnx.op import find_operator
from tflite2onnx.reader.model import read_model

if TYPE_CHECKING:
    from tests.support.facts import Table

_CODES = {code: name for name, code in OPERATORS.items()}
_TYPES = {code: name for name, code in TENSOR_TYPES.items()}
# LiteRT rounds float data to 8 bits before it multiplies them by integers. The bounds of the table
# are parts of the range of results: an activation cuts the range, and a loop adds up rounding.
_OF_ROUNDED_DATA = Bound(0.1)
# Several operators before LOGISTIC or SOFTMAX may each differ by a step; the slope is a quarter.
_WITH_SLOPE, _SLOPE = {"LOGISTIC", "SOFTMAX"}, 1 / 4
_STEPS_BEFORE, _MOST_STEPS = 3, 64
# The operand with the data, in operators that add products. The kernels add products of int16 and
# int8 in 64 bits; float32 has 24 bits.
_SUMS = {"CONV_2D": 0, "DEPTHWISE_CONV_2D": 0, "FULLY_CONNECTED": 0, "TRANSPOSE_CONV": 2}
_LARGEST_PRODUCT, _PRECISION = 2.0**22, 2.0**-24


def bound_of_file(data: bytes, bound: Bound) -> Bound:
    """Return the largest of a bound and the bounds of all operators and element types of a file.

    A change may put another operator in the place of the one that the bound is for.
    """
    try:
        bounds = [bound, *_bounds_of_operators(schema.ModelT.InitFromPackedBuf(data))]
    except (struct.error, ArithmeticError, ValueError, TypeError, IndexError, AttributeError):
        return bound  # LiteRT does not run the file
    bounds += _bounds_of_classes(data)
    return Bound(max(each.part for each in bounds), max(each.steps for each in bounds))


def _bounds_of_classes(data: bytes) -> list[Bound]:
    """Return the steps that the operators' classes allow, which may depend on their shapes."""
    try:
        ops = [op for graph in read_model(data).graphs for op in graph.ops]
        return [Bound(0, find_operator(op).allowed_steps) for op in ops if op.outputs]
    except (ConversionError, ArithmeticError, ValueError, IndexError):
        return []


def _bounds_of_operators(model: Table) -> Iterator[Bound]:
    types = {_TYPES.get(t.type, "") for graph in model.subgraphs for t in graph.tensors}
    for code in map(_name_of, model.operatorCodes):
        for kind in ROWS[code].kinds if code in ROWS else ():
            if {*kind.split()} - {"quantized", "by", "to"} <= types:
                yield ROWS[code].bound(kind)
                yield from [_OF_ROUNDED_DATA] * kind.startswith("float32 by ")
    for graph in model.subgraphs:
        for op in graph.operators:
            name, tensors = _name_of(model.operatorCodes[op.opcodeIndex]), graph.tensors
            if name in _WITH_SLOPE:
                yield _bound_of_slope(tensors[op.inputs[0]], tensors[op.outputs[0]])
            if name in _SUMS:
                x, weights = (tensors[op.inputs[i]] for i in (_SUMS[name], 1))
                yield _bound_of_sums(x, weights, tensors[op.outputs[0]])


def _name_of(code: Table) -> str:
    if code.customCode:
        return str(code.customCode, "utf-8", "replace")
    return _CODES.get(max(code.builtinCode, code.deprecatedBuiltinCode), "")


def _bound_of_slope(x: Table, y: Table) -> Bound:
    scales = [t.quantization.scale for t in (x, y) if t.quantization is not None]
    if len(scales) < 2 or any(scale is None or len(scale) != 1 for scale in scales):
        return Bound()
    steps = _STEPS_BEFORE * _SLOPE * scales[0][0] / scales[1][0]
    return Bound(0, int(min(steps, _MOST_STEPS)))


def _bound_of_sums(x: Table, weights: Table, y: Table) -> Bound:
    """Return the steps of the output by which sums of products of int16 are rounded."""
    scales = [t.quantization.scale for t in (x, weights, y) if t.quantization is not None]
    if _TYPES.get(x.type) != "int16" or len(scales) < 3 or any(s is None for s in scales):
        return Bound()
    data, factors, results = (float(max(s)) for s in scales)
    count = prod(weights.shape) / max(int(y.shape[-1]), 1)
    steps = count * _LARGEST_PRODUCT * _PRECISION * data * factors / results
    return Bound(0, int(min(steps, _MOST_STEPS)))

"""Formulas: the values that operators compute, in a form that can be compared.

1. A `Sum` is a bias and products of formulas with constant matrices.
2. `Applied` is an elementwise operator on formulas.
3. An `Atom` is any other tensor.

Columns that are cut out of a sum are a sum with fewer rows of the matrices. Operators that move
elements but leave the columns in place do not change the formula.

Matrices stay as stored, also integers, if the operator dequantizes them. That hybrid kernels
quantize the float inputs of products is no part of a formula.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np

from tflite2onnx.errors import OperatorError, as_operator_error
from tflite2onnx.graph import Op, Producers
from tflite2onnx.op import rules_for
from tflite2onnx.op.base import Operator
from tflite2onnx.op.traits import Foldable
from tflite2onnx.passes.operands import is_float
from tflite2onnx.passes.patterns.matching import Found, Pattern, PatternMatcher, Step
from tflite2onnx.tensor import Array, DType, Quantization, Tensor


@dataclass(frozen=True, eq=False)
class Atom:
    """A tensor."""

    tensor: Tensor


@dataclass(frozen=True, eq=False)
class Applied:
    """An elementwise operator on formulas; "ONE_MINUS" is a SUB from 1."""

    code: str
    arguments: tuple[Formula, ...]


class Matrix(NamedTuple):
    """Weights as they are stored, [columns, columns of the source].

    There are no scales, or one scale, or one for each row.
    """

    data: Array
    dtype: DType
    quantization: Quantization | None = None

    def select_rows(self, indices: Array) -> Matrix:
        """Return some of the rows."""
        quantization = self.quantization
        if quantization and quantization.per_axis:
            scale, zero = quantization.scale[indices], quantization.zero_point[indices]
            quantization = quantization.with_scale(scale, zero)
        return Matrix(self.data[indices], self.dtype, quantization)


@dataclass(frozen=True, eq=False)
class Sum:
    """The bias, and the product of each source with its matrix."""

    products: Mapping[Formula, Matrix]
    bias: Array

    def select_columns(self, indices: Array) -> Sum:
        """Return some of the columns."""
        return Sum(
            {s: m.select_rows(indices) for s, m in self.products.items()}, self.bias[indices]
        )


Formula: TypeAlias = Atom | Applied | Sum

# What the formulas of cells have; an operator of another kind is an atom.
_PRODUCTS = ("FULLY_CONNECTED", "BATCH_MATMUL")
_ELEMENTWISE = ("LOGISTIC", "RELU", "TANH", "MUL", "ADD")
_MOVES = ("RESHAPE", "SQUEEZE", "EXPAND_DIMS", "SPLIT", "SPLIT_V", "SLICE", "STRIDED_SLICE")
_RANK = 2  # of a matrix
_MOST_PRODUCTS = 4  # of a sum; a gate has two
# The budget of elements that are computed; recurrent layers need far fewer.
_MOST = 1 << 24


class Formulas:
    """The formulas of the outputs of operators, one object for each tensor."""

    def __init__(self, ops: Sequence[Op]) -> None:
        self.producers = Producers(ops)
        self._left = _MOST
        self._known: dict[Tensor, Formula] = {}
        for op in ops:  # in order of execution, which keeps recursion shallow
            for tensor in op.outputs:
                self._known[tensor] = self._make_formula(op, tensor) or Atom(tensor)

    def formula_of(self, tensor: Tensor) -> Formula:
        """Return the formula of a tensor."""
        return self._known.setdefault(tensor, Atom(tensor))

    def find_producer(self, tensor: Tensor) -> Op:
        """Return the producer of a tensor, before any CAST to the same dtype; else `NO_OP`."""
        op = self.producers.find(tensor)
        while op.is_builtin("CAST") and op.operand(0).dtype is tensor.dtype:
            op = self.producers.find(op.operand(0))
        return op

    def _take_budget(self, elements: int) -> bool:
        """Take elements from the budget, and return whether it was enough."""
        self._left -= elements
        return self._left >= 0

    def _make_formula(self, op: Op, output: Tensor) -> Formula | None:
        inputs = op.present
        product = op.code in _PRODUCTS
        real = is_float(output) and (product or not any(t.quantization for t in inputs))
        if op.custom or op.activation != "NONE" or not real or not inputs:
            return None
        if product:
            return self._make_product_formula(op, inputs)
        if op.code == "CAST" and inputs[0].dtype is output.dtype:
            return self.formula_of(inputs[0])
        if op.code == "SUB" and _is_one(inputs[0]) and inputs[1].elements == output.elements:
            return Applied("ONE_MINUS", (self.formula_of(inputs[1]),))
        if op.code in _ELEMENTWISE:
            return self._make_elementwise_formula(op, inputs, output)
        return self._make_columns_formula(op, inputs, output) if op.code in _MOVES else None

    def _make_product_formula(self, op: Op, inputs: Sequence[Tensor]) -> Formula | None:
        x, weights = inputs[:2]
        matrix = None if op.options.get("adj_x") else self._make_matrix(op, weights)
        if not matrix or not is_float(x) or x.shape[-1:] != matrix.data.shape[1:]:
            return None
        bias = np.zeros(len(matrix.data), np.float32)
        if inputs[2:]:
            if inputs[2].data is None or not is_float(inputs[2]):
                return None
            bias = inputs[2].data.astype(np.float32, copy=False).reshape(-1)
        source = self.formula_of(x)
        return None if isinstance(source, Sum) else Sum({source: matrix}, bias)

    def _make_matrix(self, op: Op, weights: Tensor) -> Matrix | None:
        """Return constant weights as a matrix, None if they are computed or have other scales."""
        operator, quantization = rules_for(op), weights.quantization
        if weights.data is None or weights.rank != _RANK or operator is None:
            return None
        turned = op.code == "BATCH_MATMUL" and not op.options.get("adj_y")
        along = quantization if quantization and quantization.per_axis else None
        if along and (turned or along.axis or along.block_size):
            return None
        data = weights.data.T if turned else weights.data
        return (
            Matrix(data, weights.dtype, quantization)
            if self._take_budget(sum(data.shape))
            else None
        )

    def _make_elementwise_formula(
        self, op: Op, inputs: Sequence[Tensor], output: Tensor
    ) -> Formula | None:
        formulas = [self.formula_of(t) for t in inputs]
        if op.code == "ADD":
            if not self._take_budget(sum(f.bias.size for f in formulas if isinstance(f, Sum))):
                return None
            for a, constant in ((formulas[0], inputs[-1]), (formulas[-1], inputs[0])):
                if isinstance(a, Sum) and constant.data is not None:
                    return _with_bias(a, constant.data)
        if any(t.elements != output.elements for t in inputs):
            return None
        return (_add_sums(*formulas) if op.code == "ADD" else None) or Applied(
            op.code, (*formulas,)
        )

    def _make_columns_formula(
        self, op: Op, inputs: Sequence[Tensor], output: Tensor
    ) -> Formula | None:
        """Return the formula of an operator that cuts out columns, or leaves columns in place."""
        moving = [t for t in inputs if t.data is None]
        operator = rules_for(op)
        if operator is None or len(moving) != 1 or not self._take_budget(moving[0].elements):
            return None
        formula, shape = self.formula_of(moving[0]), moving[0].shape
        columns = formula.bias.size if isinstance(formula, Sum) else (shape or (1,))[-1]
        places = np.arange(moving[0].elements).reshape(shape)
        results = evaluate_op(operator, [places if t.data is None else t.data for t in inputs])
        if len(results) != len(op.outputs) or not columns or not places.size:
            return None
        rows = places.size // columns
        indices = results[op.outputs.index(output)].reshape(-1)
        first = indices[: indices.size // rows]
        if not np.array_equal(indices, (first + columns * np.arange(rows)[:, None]).reshape(-1)):
            return None
        if np.array_equal(first, np.arange(columns)):
            return formula
        if not isinstance(formula, Sum) or not first.size or first.max() >= columns:
            return None
        cut = sum(len(first) * matrix.data.shape[1] for matrix in formula.products.values())
        return formula.select_columns(first) if self._take_budget(cut) else None


def evaluate_op(operator: Operator, arrays: Sequence[Array]) -> Sequence[Array]:
    """Return the outputs for arrays, empty if they cannot be evaluated."""
    try:
        with as_operator_error():
            return (operator.evaluate(*arrays) or ()) if isinstance(operator, Foldable) else ()
    except OperatorError:
        return ()


def _is_one(tensor: Tensor) -> bool:
    return tensor.data is not None and bool((tensor.data == 1).all())


def _add_sums(a: Formula, b: Formula) -> Formula | None:
    """Return the sum of two sums of different products."""
    if not isinstance(a, Sum) or not isinstance(b, Sum) or a.bias.shape != b.bias.shape:
        return None
    if not a.products.keys().isdisjoint(b.products) or len(a.products) > _MOST_PRODUCTS:
        return None
    return Sum({**a.products, **b.products}, a.bias + b.bias)


def _with_bias(formula: Sum, constant: Array) -> Formula | None:
    bias = formula.bias
    if constant.size != 1 and (constant.size, constant.shape[-1:]) != (bias.size, bias.shape):
        return None
    return Sum(formula.products, bias + constant.astype(np.float32).reshape(-1))


class FormulaMatcher(PatternMatcher[Formula]):
    """Matches patterns with formulas: the same name matches the same formula."""

    def find_steps(self, value: Formula, code: str) -> Iterator[Step[Formula]]:
        """Yield the arguments of an elementwise operator."""
        if isinstance(value, Applied) and value.code == code:
            yield Step(value.arguments)

    def match(
        self, pattern: Pattern, formula: Formula, known: Mapping[str, Formula]
    ) -> Iterator[Mapping[str, Formula]]:
        """Yield the formulas by the names of a pattern, for each match; `known` names are fixed."""
        for found in self.find_matches(pattern, formula, Found(known)):
            yield found.values

"""Formulas: the values that operators compute, in a form that can be compared.

1. A `Sum` is a bias and products of formulas with constant matrices.
2. `Applied` is an elementwise operator on formulas, or the activation that an operator applies.
3. `Joined` formulas have one matrix. The product is a sum with a part of the matrix for each.
4. `Scaled` columns in a sum are a product with the diagonal of a matrix.
5. An `Atom` is any other tensor.

Columns that are cut out of a sum are a sum with fewer rows of the matrices. Operators that move
elements but leave the columns in place do not change the formula.

Matrices stay as stored, also integers, if the operator dequantizes them. That hybrid kernels
quantize the float inputs of products is no part of a formula.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple, TypeAlias

import numpy as np

from tflite2onnx.graph import Op, Producers
from tflite2onnx.op import find_operator
from tflite2onnx.op.base import Operator
from tflite2onnx.op.traits import Foldable
from tflite2onnx.passes.operands import is_float
from tflite2onnx.passes.patterns.matching import Found, Pattern, PatternMatcher, Step
from tflite2onnx.quantization.storage import BOUNDS
from tflite2onnx.tensor import Array, DType, Quantization, Sizes, Tensor


@dataclass(frozen=True, eq=False)
class Atom:
    """A tensor."""

    tensor: Tensor


@dataclass(frozen=True, eq=False)
class Applied:
    """An elementwise operator on formulas; "ONE_MINUS" is a SUB from 1.

    `numbers` are those of the operator's options.
    """

    code: str
    arguments: tuple[Formula, ...]
    numbers: tuple[float, ...] = ()


class Matrix(NamedTuple):
    """Weights as they are stored, [columns, columns of the source].

    There are no scales, or one scale, or one for each row. A vector is the diagonal of a matrix.
    """

    data: Array
    dtype: DType
    quantization: Quantization | None = None

    def split_columns(self, widths: Sequence[int]) -> list[Matrix]:
        """Return the matrix as matrices of fewer columns."""
        parts = np.split(self.data, np.cumsum(widths[:-1]), axis=1)
        return [self._replace(data=part) for part in parts]

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


@dataclass(frozen=True, eq=False)
class Joined:
    """The columns of several formulas, one after another, and how many columns each has."""

    parts: tuple[Formula, ...]
    widths: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Scaled:
    """The product of each column of a formula with a constant."""

    source: Formula
    factors: Array


Formula: TypeAlias = Atom | Applied | Sum | Joined | Scaled

# What the formulas of cells have; an operator of another kind is an atom.
_PRODUCTS = ("FULLY_CONNECTED", "BATCH_MATMUL")
_ELEMENTWISE = ("LOGISTIC", "RELU", "TANH", "ELU", "HARD_SIGMOID", "LEAKY_RELU", "MUL", "ADD")
_NUMBERS = ("alpha", "beta")  # the options of activations
_MOVES = ("RESHAPE", "SQUEEZE", "EXPAND_DIMS", "SPLIT", "SPLIT_V", "SLICE", "STRIDED_SLICE")
_RANK = 2  # of a matrix
_MOST_PRODUCTS = 4  # of a sum; a gate has two
# The budget of elements that are computed; recurrent layers need far fewer.
_MOST = 1 << 24


_Maker: TypeAlias = Callable[["Formulas", Op, Sequence[Tensor], Tensor], "Formula | None"]


class Formulas:
    """The formulas of the outputs of operators, one object for each tensor."""

    def __init__(self, ops: Sequence[Op]) -> None:
        self.producers = Producers(ops)
        self._left = _MOST
        self._known: dict[Tensor, Formula] = {}
        for op in ops:  # in order of execution, which keeps recursion shallow
            for tensor in op.outputs:
                self._known[tensor] = self._make_formula(op, tensor) or Atom(tensor)

    def find_formula(self, tensor: Tensor) -> Formula:
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
        if op.custom or not real or not inputs:
            return None
        if op.activation != "NONE":  # kernels apply bounds alone
            plain = self._make_formula(op.with_activation("NONE"), output)
            return Applied(op.activation, (plain,)) if plain and op.activation in BOUNDS else None
        make = self._makers.get(op.code)
        return make(self, op, inputs, output) if make else None

    def _make_cast_formula(self, _: Op, inputs: Sequence[Tensor], output: Tensor) -> Formula | None:
        return self.find_formula(inputs[0]) if inputs[0].dtype is output.dtype else None

    def _make_difference_formula(
        self, _: Op, inputs: Sequence[Tensor], output: Tensor
    ) -> Formula | None:
        one, x = inputs[0], inputs[-1]
        fits = has_number(self.producers, one, 1) and x.elements == output.elements
        return Applied("ONE_MINUS", (self.find_formula(x),)) if fits else None

    def _make_product_formula(self, op: Op, inputs: Sequence[Tensor], _: Tensor) -> Formula | None:
        x, weights = inputs[:2]
        matrix = None if op.options.get("adj_x") else self._make_matrix(op, weights)
        if not matrix or not is_float(x) or x.shape[-1:] != matrix.data.shape[1:]:
            return None
        bias = np.zeros(len(matrix.data), np.float32)
        if inputs[2:]:
            if not inputs[2].has_data or not is_float(inputs[2]):
                return None
            bias = inputs[2].values.astype(np.float32, copy=False).reshape(-1)
        source = self.find_formula(x)
        if isinstance(source, Joined) and len({*source.parts}) == len(source.parts):
            matrices = matrix.split_columns(source.widths)
            return Sum(dict(zip(source.parts, matrices, strict=True)), bias)
        return None if isinstance(source, (Sum, Joined)) else Sum({source: matrix}, bias)

    def _make_matrix(self, op: Op, weights: Tensor) -> Matrix | None:
        """Return constant weights as a matrix, None if they are computed or have other scales."""
        quantization = weights.quantization
        if not weights.has_data or weights.rank != _RANK:
            return None
        turned = op.code == "BATCH_MATMUL" and not op.options.get("adj_y")
        along = quantization if quantization and quantization.per_axis else None
        if along and (turned or along.axis or along.block_size):
            return None
        data = weights.values.T if turned else weights.values
        return (
            Matrix(data, weights.dtype, quantization)
            if self._take_budget(sum(data.shape))
            else None
        )

    def _make_elementwise_formula(
        self, op: Op, inputs: Sequence[Tensor], output: Tensor
    ) -> Formula | None:
        formulas = [self.find_formula(t) for t in inputs]
        if op.code == "ADD":
            if not self._take_budget(sum(f.bias.size for f in formulas if isinstance(f, Sum))):
                return None
            for a, constant in ((formulas[0], inputs[-1]), (formulas[-1], inputs[0])):
                if isinstance(a, Sum) and constant.has_data:
                    return _with_bias(a, constant.values)
        if op.code == "MUL" and len(inputs) == 2:  # a layer with dropout multiplies by 1
            for x, factor in (inputs, inputs[::-1]):
                if has_number(self.producers, factor, 1) and x.elements == output.elements:
                    return self.find_formula(x)
                if _is_row(factor, x.shape[-1:]) and x.elements == output.elements:
                    return Scaled(self.find_formula(x), factor.values.reshape(-1))
        if any(t.elements != output.elements for t in inputs):
            return None
        numbers = tuple(float(op.options[name]) for name in _NUMBERS if name in op.options)
        return (_add_sums(*formulas) if op.code == "ADD" else None) or Applied(
            op.code, (*formulas,), numbers
        )

    def _join_columns(self, op: Op, inputs: Sequence[Tensor], output: Tensor) -> Formula | None:
        """Return the formula of parts that are joined along the last axis."""
        if op.options.get("axis", 0) not in (-1, output.rank - 1) or not output.rank:
            return None
        widths = tuple(t.shape[-1] for t in inputs)
        return Joined(tuple(map(self.find_formula, inputs)), widths)

    def _make_columns_formula(
        self, op: Op, inputs: Sequence[Tensor], output: Tensor
    ) -> Formula | None:
        """Return the formula of an operator that cuts out columns, or leaves columns in place."""
        moving = [t for t in inputs if not t.has_data]
        if len(moving) != 1 or not self._take_budget(moving[0].elements):
            return None
        formula, shape = self.find_formula(moving[0]), moving[0].shape
        total = _find_sum(formula)
        columns = total.bias.size if total else (shape or (1,))[-1]
        places = np.arange(moving[0].elements).reshape(shape)
        results = evaluate_op(
            find_operator(op), [t.values if t.has_data else places for t in inputs]
        )
        if len(results) != len(op.outputs) or not columns or not places.size:
            return None
        rows = places.size // columns
        indices = results[op.outputs.index(output)].reshape(-1)
        first = indices[: indices.size // rows]
        if not np.array_equal(indices, (first + columns * np.arange(rows)[:, None]).reshape(-1)):
            return None
        if np.array_equal(first, np.arange(columns)):
            return formula
        vectors = total and any(m.data.ndim < _RANK for m in total.products.values())
        if not total or vectors or not first.size or first.max() >= columns:
            return None
        cut = sum(len(first) * matrix.data.shape[1] for matrix in total.products.values())
        return _select_columns(formula, first) if self._take_budget(cut) else None

    # How a formula follows from the operator that computes a tensor.
    _makers: ClassVar[Mapping[str, _Maker]] = {
        "CAST": _make_cast_formula,
        "CONCATENATION": _join_columns,
        "SUB": _make_difference_formula,
        **dict.fromkeys(_PRODUCTS, _make_product_formula),
        **dict.fromkeys(_ELEMENTWISE, _make_elementwise_formula),
        **dict.fromkeys(_MOVES, _make_columns_formula),
    }


def evaluate_op(operator: Operator, arrays: Sequence[Array]) -> Sequence[Array]:
    """Return the outputs for arrays, empty if they cannot be evaluated."""
    return (operator.evaluate(*arrays) or ()) if isinstance(operator, Foldable) else ()


def has_number(producers: Producers, tensor: Tensor, number: float) -> bool:
    """Return whether all elements of a tensor are a number, also if its shape is computed."""
    maker = producers.find(tensor)
    if maker.is_builtin("ZEROS_LIKE"):
        return number == 0
    tensor = maker.operand(1) if maker.is_builtin("FILL") else tensor
    return tensor.has_data and bool((tensor.values == number).all())


def _find_sum(formula: Formula) -> Sum | None:
    """Return the sum that a formula is, or of which it is a function of one argument."""
    while isinstance(formula, Applied) and len(formula.arguments) == 1:
        (formula,) = formula.arguments
    return formula if isinstance(formula, Sum) else None


def _select_columns(formula: Formula, indices: Array) -> Formula:
    """Return some of the columns of a formula for which `_find_sum` returns a sum."""
    if isinstance(formula, Applied):
        return replace(formula, arguments=(_select_columns(formula.arguments[0], indices),))
    return formula.select_columns(indices) if isinstance(formula, Sum) else formula


def _is_row(tensor: Tensor, columns: Sizes) -> bool:
    """Return whether a tensor is one constant number for each column."""
    data = tensor.values
    plain = tensor.has_data and is_float(tensor)
    return plain and data.shape[-1:] == columns == (data.size,)


def _as_sum(formula: Formula) -> Formula:
    """Return what multiplies columns as a sum of one product."""
    if not isinstance(formula, Scaled) or isinstance(formula.source, Sum):
        return formula
    factors = formula.factors.astype(np.float32, copy=False)
    return Sum({formula.source: Matrix(factors, DType.FLOAT32)}, 0 * factors)


def _add_sums(a: Formula, b: Formula) -> Formula | None:
    a, b = _as_sum(a), _as_sum(b)
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

    def find_step(self, value: Formula, code: str) -> Step[Formula] | None:
        """Return the arguments of an elementwise operator."""
        if isinstance(value, Applied) and value.code == code:
            return Step(value.arguments)
        return None

    def match(
        self, pattern: Pattern, formula: Formula, known: Mapping[str, Formula]
    ) -> Iterator[Mapping[str, Formula]]:
        """Yield the formulas by the names of a pattern, for each match; `known` names are fixed."""
        for found in self.find_matches(pattern, formula, Found(known)):
            yield found.values

"""Formulas: the values that operators compute, in a form that can be compared.

1. An `Affine` is a bias and products of formulas with constant matrices.
2. `Applied` is an elementwise operator on formulas, or the activation that an operator applies.
3. `Columns` formulas have one matrix. The product is a sum with a part of the matrix for each.
4. `Scaled` columns in a sum are a product with the diagonal of a matrix.
5. `Rows` are some rows of another formula.
6. An `Atom` is any other tensor.

A tensor is a matrix here, whose columns are its last axis. Columns that are cut out of a sum are a
sum with fewer rows of the matrices. Rows that are taken from a sum are a sum of the same rows of
its sources: exporters multiply a whole sequence by a matrix before they take its items. Operators
that move elements but leave the matrix as it is do not change the formula.

The rows of a dynamic batch are those of one sample.

Matrices stay as stored, also integers, if the operator dequantizes them and they have no zero
points. That hybrid kernels quantize the float inputs of products is no part of a formula.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import TypeAlias

import numpy as np

from tflite2onnx.graph import Op, Producers
from tflite2onnx.made_options import HardSigmoidOptions
from tflite2onnx.op import find_operator
from tflite2onnx.op.base import Operator
from tflite2onnx.op.facts import Fact
from tflite2onnx.op.recurrent.activations import ONNX_ACTIVATIONS
from tflite2onnx.op.traits import Foldable
from tflite2onnx.passes.operands import find_data, has, is_float, joins_last_axis
from tflite2onnx.passes.patterns.matching import Found, Pattern, PatternMatcher, Step
from tflite2onnx.passes.recurrent.step_codes import PRODUCTS
from tflite2onnx.quantization.storage import BOUNDS, decode_constant
from tflite2onnx.tensor import Array, DType, Quantization, Shape, Tensor
from tflite2onnx.utils.mapped_files import find_address


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


@dataclass(frozen=True, eq=False)
class Affine:
    """The bias, and the product of each source with its matrix.

    Matrices are weights as they are stored, [columns, columns of the source]. There are no scales,
    or one scale, or one for each row. A vector is the diagonal of a matrix.
    """

    products: Mapping[Formula, Tensor]
    bias: Array


@dataclass(frozen=True, eq=False)
class Columns:
    """The columns of several formulas, one after another, and how many columns each has."""

    parts: tuple[Formula, ...]
    widths: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Scaled:
    """The product of each column of a formula with a constant."""

    source: Formula
    factors: Array


@dataclass(frozen=True, eq=False)
class Rows:
    """Some rows of a formula: their indices, in a sequence that may repeat."""

    source: Formula
    indices: Array


Formula: TypeAlias = Atom | Applied | Affine | Columns | Scaled | Rows

# What the formulas of cells have; an operator of another kind is an atom.
_RANK = 2  # of a matrix
_MOST_PRODUCTS = 4  # of a sum; a gate has two
# The budget of elements that are computed; recurrent layers need far fewer.
_MOST = 1 << 24


def _list_numbers(op: Op) -> tuple[float, ...]:
    if op.code == "HARD_SIGMOID":
        made = op.read_made(HardSigmoidOptions)
        return made.alpha, made.beta
    return (float(op.options.alpha),) if op.code == "LEAKY_RELU" else ()


class Formulas:
    """The formulas of the outputs of operators, one object for each tensor."""

    def __init__(self, ops: Sequence[Op]) -> None:
        self.producers = Producers(ops)
        self._left = _MOST
        self._known: dict[Tensor, Formula] = {}
        self._rows: dict[tuple[Formula, bytes], Rows] = {}
        self._cuts: dict[Hashable, Tensor] = {}
        self._decoded: dict[Tensor, Tensor] = {}
        self._places: dict[int, Array] = {}
        self._whole: dict[Affine, Affine] = {}
        for op in ops:  # in order of execution, which keeps recursion shallow
            for tensor in op.outputs:
                self._known[tensor] = self._make_formula(op, tensor) or Atom(tensor)

    def find_formula(self, tensor: Tensor) -> Formula:
        return self._known.setdefault(tensor, Atom(tensor))

    def _take_budget(self, elements: int) -> bool:
        self._left -= elements
        return self._left >= 0

    def _make_formula(self, op: Op, output: Tensor) -> Formula | None:
        inputs = op.present
        product = op.code in PRODUCTS
        real = is_float(output) and (product or not any(t.quantization for t in inputs))
        if op.custom or not real or not inputs:
            return None
        if op.activation != "NONE":  # kernels apply bounds alone
            plain = self._make_formula(op.with_activation("NONE"), output)
            return Applied(op.activation, (plain,)) if plain and op.activation in BOUNDS else None
        if product:
            return self._make_product(op)
        if op.is_builtin("ADD", "MUL", "NEG", *ONNX_ACTIVATIONS):
            return self._make_elementwise(op, output)
        if has(op, Fact.TAKES):
            return self._move_columns(op, output)
        return self._make_other(op, output)

    def _make_other(self, op: Op, output: Tensor) -> Formula | None:
        first, last = op.present[0], op.present[-1]
        if joins_last_axis(op):
            widths = tuple(t.shape[-1] for t in op.present)
            return Columns(tuple(map(self.find_formula, op.present)), widths)
        if op.code == "CAST" and last.dtype is output.dtype:
            return self.find_formula(last)
        if op.code != "SUB" or last.elements != output.elements:
            return None
        for number, code in ((1, "ONE_MINUS"), (0, "NEG")):
            if has_number(self.producers, first, number):
                return Applied(code, (self.find_formula(last),))
        pair = self.find_formula(first), self.find_formula(last)
        return Applied("SUB", pair) if first.elements == last.elements else None

    def _make_product(self, op: Op) -> Formula | None:
        x, weights, *biases = op.present
        matrix = None if op.options.get("adj_x") else self._make_matrix(op, weights)
        if not matrix or not is_float(x) or x.shape[-1:] != matrix.shape[1:]:
            return None
        bias = np.zeros(matrix.shape[0], np.float32)
        for each in biases:
            if not each.has_data or not is_float(each):
                return None
            bias = each.values.astype(np.float32, copy=False).reshape(-1)
        source = self.find_formula(x)
        if isinstance(source, Columns) and len({*source.parts}) == len(source.parts):
            parts = np.split(matrix.values, np.cumsum(source.widths[:-1]), axis=1)
            matrices = [_with_data(matrix, part) for part in parts]
            made = Affine(dict(zip(source.parts, matrices, strict=True)), bias)
            self._whole[made] = Affine({source: matrix}, bias)
            return made
        return None if isinstance(source, Columns) else Affine({source: matrix}, bias)

    def _make_matrix(self, op: Op, weights: Tensor) -> Tensor | None:
        """Return constant weights as a matrix, None if they are computed or have other scales.

        Weights may be dequantized by an operator of their own.
        """
        maker = self.producers.find(weights)
        if maker.is_builtin("DEQUANTIZE") and maker.operand(0).has_data:
            weights = self._dequantize(maker.operand(0)) or weights
        scales = weights.quantization
        turned = op.code == "BATCH_MATMUL" and not op.options.get("adj_y")
        if not weights.has_data or weights.rank != _RANK:
            return None
        if scales and scales.per_axis and (turned or scales.axis or scales.block_size):
            return None
        matrix = _with_data(weights, weights.values.T if turned else weights.values)
        return matrix if self._take_budget(sum(matrix.shape)) else None

    def _dequantize(self, stored: Tensor) -> Tensor | None:
        """Return the weights that DEQUANTIZE reads, as floats if they have zero points.

        Recurrent operators read integers as hybrid kernels do, which ignore zero points.
        """
        scales = stored.quantization
        if not scales or not scales.zero_point.any():
            return stored
        if stored not in self._decoded and self._take_budget(stored.elements):
            data = decode_constant(stored.values, scales)
            self._decoded[stored] = Tensor("", data.shape, DType.FLOAT32, data)
        return self._decoded.get(stored)

    def _make_elementwise(self, op: Op, output: Tensor) -> Formula | None:
        inputs = op.present
        formulas = [self.find_formula(t) for t in inputs]
        if op.code == "ADD":
            if not self._take_budget(sum(f.bias.size for f in formulas if isinstance(f, Affine))):
                return None
            for a, x, constant in zip(formulas, inputs, inputs[::-1], strict=True):
                if isinstance(a, Affine) and constant.has_data:
                    return _with_bias(a, constant) if x.elements == output.elements else None
        if op.code == "MUL" and len(inputs) == 2:  # a layer with dropout multiplies by 1
            for x, factor in (inputs, inputs[::-1]):
                if has_number(self.producers, factor, 1) and x.elements == output.elements:
                    return self.find_formula(x)
                row = _find_row(factor, x.shape[-1] if x.rank else 1)
                if row is not None and x.elements == output.elements:
                    return Scaled(self.find_formula(x), row)
        if any(t.elements != output.elements for t in inputs):
            return None
        return (_add_sums(*formulas) if op.code == "ADD" else None) or Applied(
            op.code, (*formulas,), _list_numbers(op)
        )

    def _move_columns(self, op: Op, output: Tensor) -> Formula | None:
        """Return the formula of an operator that takes rows and columns, or leaves all in place."""
        data = find_data(op)
        formula, taken = self.find_formula(data), self._take_places(op, data, output)
        total = _find_sum(formula)
        columns = total.bias.size if total else (data.shape or (1,))[-1]
        if taken is None or not columns or not taken.size:
            return None
        count = prod(_find_sample_shape(data)) // columns
        widths = taken.size // count, *output.shape[-1:]
        found = filter(None, (_find_matrix(taken, columns, width) for width in widths))
        rows, cut = next(found, (taken, taken))
        if np.array_equal(rows, np.arange(count)):
            whole = np.array_equal(cut, np.arange(columns))
            return formula if whole else self._take(formula, None, cut)
        return None if rows is taken else self._take(formula, rows, cut)

    def _take_places(self, op: Op, data: Tensor, output: Tensor) -> Array | None:
        """Return the places in a sample of the data of what a sample of an output takes.

        None if this is not known, or if it differs from sample to sample.
        """
        batch, shape = [*data.symbols.values()], _find_sample_shape(data)
        is_alone = [t for t in op.present if not t.has_data] == [data]
        if not is_alone or len(batch) > 1 or batch != [*output.symbols.values()]:
            return None
        samples = np.arange(1 + len(batch))[:, None] * prod(shape)  # the first place of each
        places = self._find_places(samples.size * prod(shape))
        if places is None or not self._take_budget(samples.size * output.elements):
            return None
        every, index = places.reshape(samples.size, *shape), op.outputs.index(output)
        if batch:
            op, every = _set_batch(op, samples.size), np.moveaxis(every, 0, min(data.symbols))
        arrays = [t.values if t.has_data else every.reshape(t.shape) for t in op.present]
        results = evaluate_op(find_operator(op), arrays)
        if len(results) != len(op.outputs) or not results[index].size:
            return None
        result = results[index]
        parts = np.moveaxis(result, min(output.symbols), 0) if batch else result[None]
        taken = parts.reshape(len(parts), -1)
        return taken[0] if np.array_equal(taken, taken[0] + samples) else None

    def _take(self, formula: Formula, rows: Array | None, columns: Array) -> Formula | None:
        """Return some rows and columns of a sum of matrices, or of a function of such a sum."""
        if isinstance(formula, Applied) and len(formula.arguments) == 1:
            inner = self._take(formula.arguments[0], rows, columns)
            return inner and replace(formula, arguments=(inner,))
        if not isinstance(formula, Affine):
            return None
        # A matrix that is split has no rows of one tensor.
        formula = formula if rows is None else self._whole.get(formula, formula)
        if any(m.rank < _RANK for m in formula.products.values()):
            return None
        products = {}
        for source, matrix in formula.products.items():
            part = self._select_rows(matrix, columns)
            if part is None:
                return None
            products[source if rows is None else self._take_rows(source, rows)] = part
        return Affine(products, formula.bias[columns])

    def _take_rows(self, source: Formula, rows: Array) -> Rows:
        """Return rows of a formula, one object for the same rows."""
        if isinstance(source, Rows):
            rows = source.indices[rows]
            source = source.source
        return self._rows.setdefault((source, rows.tobytes()), Rows(source, rows))

    def _select_rows(self, matrix: Tensor, indices: Array) -> Tensor | None:
        """Return some of the rows of a matrix, one object for each; None if there is no budget.

        The steps of a layer read the same matrix.
        """
        data, scales = matrix.values, matrix.quantization
        if np.array_equal(indices, np.arange(data.shape[0])):
            return matrix
        stored = find_address(data), data.shape, data.strides, matrix.dtype
        key = *stored, indices.tobytes(), scales and scales.scale.tobytes()
        if key not in self._cuts:
            if not self._take_budget(indices.size * data.shape[1]):
                return None
            if scales and scales.per_axis:
                scales = scales.with_scale(scales.scale[indices], scales.zero_point[indices])
            self._cuts[key] = _with_data(matrix, data[indices], scales)
        return self._cuts[key]

    def _find_places(self, count: int) -> Array | None:
        """Return the places of so many elements, None if the budget is too small."""
        if count not in self._places and self._take_budget(count):
            self._places[count] = np.arange(count)
        return self._places.get(count)


def _find_sample_shape(tensor: Tensor) -> Shape:
    return tuple(size for axis, size in enumerate(tensor.shape) if axis not in tensor.symbols)


def _set_batch(op: Op, samples: int) -> Op:
    """Return an operator on tensors with so many samples, in place of a dynamic batch."""

    def resize(t: Tensor) -> Tensor:
        shape = tuple(samples if axis in t.symbols else n for axis, n in enumerate(t.shape))
        return replace(t, shape=shape, shape_signature=(), symbols={}) if t.symbols else t

    return replace(op.map_inputs(resize), outputs=tuple(map(resize, op.outputs)))


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


def _with_data(matrix: Tensor, data: Array, scales: Quantization | None = None) -> Tensor:
    """Return a matrix of the type and scales of another, or of other scales."""
    return Tensor("", data.shape, matrix.dtype, data, scales or matrix.quantization)


def _find_sum(formula: Formula) -> Affine | None:
    """Return the sum that a formula is, or of which it is a function of one argument."""
    while isinstance(formula, Applied) and len(formula.arguments) == 1:
        (formula,) = formula.arguments
    return formula if isinstance(formula, Affine) else None


def _find_matrix(places: Array, columns: int, width: int) -> tuple[Array, Array] | None:
    """Return the rows and the columns that places are, None if they are no such matrix.

    The places are those of elements in a matrix of so many `columns`, in the sequence of another
    matrix, which has `width` columns.
    """
    if not width or places.size % width:
        return None
    rows, cut = places[::width] // columns, places[:width] % columns
    whole = (columns * rows[:, None] + cut).reshape(-1)
    return (rows, cut) if np.array_equal(places, whole) else None


def _find_row(tensor: Tensor, columns: int) -> Array | None:
    if not tensor.has_data or not is_float(tensor) or not tensor.values.size:
        return None
    if tensor.values.size == 1:
        return np.full(columns, tensor.values.reshape(-1), np.float32)
    if tensor.shape[-1] != columns:
        return None
    rows = tensor.values.reshape(-1, columns)
    return rows[0] if (rows == rows[0]).all() else None


def _as_sum(formula: Formula) -> Formula:
    """Return what multiplies columns as a sum of one product."""
    if not isinstance(formula, Scaled) or isinstance(formula.source, Affine):
        return formula
    factors = formula.factors.astype(np.float32, copy=False)
    return Affine({formula.source: make_vector(factors)}, 0 * factors)


def make_vector(numbers: Array) -> Tensor:
    """Return float32 numbers as a constant without a name."""
    return Tensor("", numbers.shape, DType.FLOAT32, numbers)


def _add_sums(a: Formula, b: Formula) -> Formula | None:
    a, b = _as_sum(a), _as_sum(b)
    if not isinstance(a, Affine) or not isinstance(b, Affine) or a.bias.shape != b.bias.shape:
        return None
    if not a.products.keys().isdisjoint(b.products) or len(a.products) > _MOST_PRODUCTS:
        return None
    return Affine({**a.products, **b.products}, a.bias + b.bias)


def _with_bias(formula: Affine, constant: Tensor) -> Formula | None:
    row = _find_row(constant, formula.bias.size)
    return None if row is None else Affine(formula.products, formula.bias + row.astype(np.float32))


class FormulaMatcher(PatternMatcher[Formula]):
    """Matches patterns with formulas: the same name matches the same formula."""

    def find_step(self, value: Formula, code: str) -> Step[Formula] | None:
        if isinstance(value, Applied) and value.code == code:
            return Step(value.arguments)
        return None

    def match(
        self, pattern: Pattern, formula: Formula, known: Mapping[str, Formula]
    ) -> Iterator[Mapping[str, Formula]]:
        """Yield the formulas by the names of a pattern, for each match; `known` names are fixed."""
        for found in self.find_matches(pattern, formula, Found(known)):
            yield found.values

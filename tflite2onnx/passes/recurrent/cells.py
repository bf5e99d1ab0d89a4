"""Cells of recurrent layers, as formulas of their next states.

    LSTM: c' = s(f) * c + s(i) * a(g), h' = s(o) * b(c')
    GRU:  h' = s(z) * h + (1 - s(z)) * a(g), or s(z) * (h - a(g)) + a(g), also with 1 - s(f) for
          s(z), where g is x W + (s(r) * h) R + b, or x W + b + s(r) * (h R + b')
    RNN:  h' = a(x W + h R + b)

f, i, g, o, z, r are sums x W + h R + b, each with its own matrices. Peepholes of an LSTM add c * p
to f and i, and c' * p to o. A gate may be 1 - s(f), which is s(-f), as in LSTMs whose input gate is
the rest of the forget gate, and in GRUs with a single gate. The h' of an LSTM may be multiplied by
a matrix P, its projection. If the file projects the h of all steps after the last step, as
litert-torch does, h' is not projected, and R is P R. s is mostly the sigmoid, a and b tanh. They
may be any `GateActivation`.

If the states before a step are 0, converters fold all products of the states.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from tflite2onnx.graph import Op, Options
from tflite2onnx.made_options import GateActivation, RecurrentOptions
from tflite2onnx.op.recurrent.activations import ONNX_ACTIVATIONS
from tflite2onnx.passes.patterns.matching import OneOf, Pattern, are_equal
from tflite2onnx.passes.recurrent.formulas import (
    Affine,
    Applied,
    Formula,
    FormulaMatcher,
    Scaled,
    make_vector,
)
from tflite2onnx.quantization.storage import decode_constant
from tflite2onnx.tensor import Array, DType, Sizes, Tensor

# The functions of gates: what a recurrent operator can apply.
_LSTM: Pattern = ("MUL", "o", "ending")
_CELL: Pattern = ("ADD", ("MUL", "f", "c"), ("MUL", "i", "g"))
_GRU = OneOf(
    ("ADD", ("MUL", "z", "h"), ("MUL", ("ONE_MINUS", "z"), "g")),
    ("ADD", ("MUL", ("SUB", "h", "g"), "z"), "g"),
    ("ADD", ("MUL", ("ONE_MINUS", "f"), "h"), ("MUL", "f", "g")),
    ("ADD", ("MUL", ("SUB", "g", "h"), "f"), "h"),
)
_RESET: Pattern = ("MUL", "r", "h")
_RESET_AFTER: Pattern = ("ADD", "gx", ("MUL", "r", "gh"))
# The same, if the states before are 0.
_FIRST_CELL = OneOf(("ADD", "forgotten", ("MUL", "i", "g")), ("MUL", "i", "g"))
_FIRST_GRU = OneOf(
    ("MUL", ("ONE_MINUS", "z"), "g"),
    ("ADD", ("MUL", ("NEG", "g"), "z"), "g"),
)
_MATRIX = 2  # axes
_LEAST = -128  # of int8
# Elements of P R in place of two matrices of integers. A step multiplies by as many in the time of
# the 18 nodes that it has otherwise.
_MOST_JOINED = 1 << 16
_MATCHER = FormulaMatcher()


class Change(NamedTuple):
    """A state before and after a step."""

    before: Formula
    after: Formula


class RecurrentCell(NamedTuple):
    """A step of a recurrent operator: the item that it reads, its parameters, and its states.

    The first state is h. `code` and `made` are those of the recurrent operator.
    """

    code: str
    item: Formula
    parameters: Sequence[Tensor | None]
    changes: Sequence[Change]
    made: RecurrentOptions

    def make_op(self, index: int, inputs: Sequence[Tensor | None], outputs: Sequence[Tensor]) -> Op:
        """Return the recurrent operator, over a sequence [time, batch, features]."""
        options = {"time_major": True, "cell_clip": 0.0, "proj_clip": 0.0}
        table = Options({**options, "fused_activation_function": "TANH"})
        return Op(self.code, index, (*inputs,), (*outputs,), table, made=self.made)

    def make_parameters(self, name: str) -> list[Tensor | None]:
        return [each and replace(each, name=name) for each in self.parameters]

    def fits(self, item: Sizes, states: Sequence[Sizes]) -> bool:
        """Return whether the matrices fit items and states of these shapes, [batch, numbers]."""
        batch, features = item
        units = states[0][-1]
        matrices = [p.shape for p in self.parameters if p and p.rank == _MATRIX]
        half, projected = divmod(len(matrices), 2)
        cells = matrices[0][0]
        expected = [features] * half + [units] * half + [cells] * projected
        fits = [shape[1] for shape in matrices] == expected and (bool(projected) or cells == units)
        return fits and [*states] == [(batch, units), *[(batch, cells)] * (len(states) - 1)]


class _GateFormula(NamedTuple):
    """activation(x W + h R + b); the matrices are [units, columns]."""

    x: Formula
    weights: Tensor
    recurrent: Tensor
    bias: Array
    activation: GateActivation
    peephole: Tensor | None


def find_cells(result: Formula, h: Formula) -> Iterator[RecurrentCell]:
    """Yield the cells that compute a result as the next value of a state h."""
    known = {"h": h}
    hidden, projection = split_projection(result)
    for parts in _MATCHER.match(_LSTM, hidden, known):
        yield from _find_lstm(result, parts, projection)
    for parts in _MATCHER.match(_GRU, result, known):
        yield from _find_gru(result, parts)
    gate = _find_gate(result, h)
    if gate and gate.activation.name != "NONE":
        parameters = gate.weights, gate.recurrent, make_vector(gate.bias)
        made, change = RecurrentOptions(activations=(gate.activation,)), Change(h, result)
        yield RecurrentCell("UNIDIRECTIONAL_SEQUENCE_RNN", gate.x, parameters, [change], made)


def find_first_item(cell: RecurrentCell) -> Formula | None:
    """Return the item of a step that begins at states of 0, and after which a cell follows.

    None if the states before the cell are not the results of this step.
    """
    h = cell.changes[0].before
    finders = {"GRU": _find_first_gru, "UNIDIRECTIONAL_SEQUENCE_LSTM": _find_first_lstm}
    finder = finders.get(cell.code, _find_first_rnn)
    items = {gates[0] for gates in finder(cell, h) if gates[0] and {*gates} == {gates[0]}}
    return items.pop() if items else None


def _find_first_rnn(cell: RecurrentCell, h: Formula) -> Iterator[Sequence[Formula | None]]:
    (activation,), (weights, _, bias) = cell.made.activations, cell.parameters
    yield [_find_item(h, activation, weights, bias)]


def _find_first_lstm(cell: RecurrentCell, h: Formula) -> Iterator[Sequence[Formula | None]]:
    function, inner, last = cell.made.activations
    p, (_, c) = cell.parameters, cell.changes
    if any(p[8:11]):  # peepholes
        return
    for parts in _MATCHER.match(_LSTM, h, {}):
        if _split_activation(parts["ending"]) != (last, c.before):
            continue
        for first in _MATCHER.match(_FIRST_CELL, c.before, parts):
            forgotten = first.get("forgotten")
            is_zero = isinstance(forgotten, Scaled) and not forgotten.factors.any()
            if forgotten is None or is_zero:
                # The biases follow the peepholes, in the sequence of the gates.
                gates = [(first[letter], i) for i, letter in enumerate("ifgo") if letter in first]
                yield [
                    _find_item(gate, inner if i == 2 else function, p[i], p[11 + i])
                    for gate, i in gates
                ]


def _find_first_gru(cell: RecurrentCell, h: Formula) -> Iterator[Sequence[Formula | None]]:
    function, inner = cell.made.activations
    update, reset, candidate = cell.parameters[:3]
    biases = cell.parameters[-1]
    if not biases or not cell.made.reset_after:  # converters fold a reset gate before
        return
    z, r, g, z_of_h, r_of_h, g_of_h = np.split(biases.values, 6)
    for parts in _MATCHER.match(_FIRST_GRU, h, {}):
        activation, total = _split_activation(parts["g"])
        if not isinstance(total, Affine) or activation != inner:
            continue
        resets = [f for f, m in total.products.items() if m.rank < _MATRIX]
        plain = Affine({f: m for f, m in total.products.items() if f not in resets}, total.bias)
        # Without a bias no reset gate is left.
        factors = [total.products[each].values for each in resets] or [np.zeros_like(g_of_h)]
        if len(factors) == 1 and np.array_equal(factors[0], g_of_h):
            yield [
                _find_item(parts["z"], function, update, make_vector(z + z_of_h)),
                _find_item(plain, GateActivation("NONE"), candidate, make_vector(g)),
                *(_find_item(gate, function, reset, make_vector(r + r_of_h)) for gate in resets),
            ]


def _find_item(
    formula: Formula, activation: GateActivation, weights: Tensor | None, bias: Tensor | None
) -> Formula | None:
    """Return the item of which a gate without states is computed; None if the gate differs."""
    function, total = _split_activation(formula)
    if function != activation or not isinstance(total, Affine) or len(total.products) != 1:
        return None
    ((item, matrix),) = total.products.items()
    same = are_equal(matrix, weights) and bias and np.allclose(total.bias, bias.values, rtol=1e-6)
    return item if same else None


def split_projection(result: Formula) -> tuple[Formula, Tensor | None]:
    """Return what a result is the product of with a matrix, and the matrix; else the result."""
    if isinstance(result, Affine) and len(result.products) == 1 and not result.bias.any():
        ((hidden, matrix),) = result.products.items()
        if matrix.rank == _MATRIX:
            return hidden, matrix
    return result, None


def _find_lstm(
    result: Formula, known: Mapping[str, Formula], projection: Tensor | None
) -> Iterator[RecurrentCell]:
    h, (ending, c) = known["h"], _split_activation(known["ending"])
    for parts in _MATCHER.match(_CELL, c, known):
        cells = parts["c"], parts["c"], None, c
        gates = _find_gates([parts[letter] for letter in "ifgo"], h, cells)
        if not gates or len({gates[i].activation for i in (0, 1, 3)}) > 1:
            continue
        peepholes = [gates[i].peephole for i in (0, 1, 3)]
        if len({each is None for each in peepholes}) > 1:
            continue
        activations = gates[0].activation, gates[2].activation, ending
        matrices = [gate.weights for gate in gates] + [gate.recurrent for gate in gates]
        biases = [make_vector(gate.bias) for gate in gates]
        parameters = (*matrices, *peepholes, *biases, projection, None)
        changes = [Change(h, result), Change(parts["c"], c)]
        made = RecurrentOptions(activations=activations)
        yield RecurrentCell("UNIDIRECTIONAL_SEQUENCE_LSTM", gates[0].x, parameters, changes, made)


def _find_gru(result: Formula, parts: Mapping[str, Formula]) -> Iterator[RecurrentCell]:
    h, change = parts["h"], Change(parts["h"], result)
    if "f" in parts:
        parts = {**parts, "z": Applied("ONE_MINUS", (parts["f"],))}
    activation, candidate = _split_activation(parts["g"])
    for after in _MATCHER.match(_RESET_AFTER, candidate, parts):
        gates = _find_gates([after["z"], after["r"]], h)
        of_x, of_h = after["gx"], after["gh"]
        if not (
            isinstance(of_x, Affine) and isinstance(of_h, Affine) and list(of_h.products) == [h]
        ):
            continue
        inner = _find_gate(Affine({**of_h.products, **of_x.products}, of_x.bias), h)
        if gates and inner and list(of_x.products) == [gates[0].x]:
            gates.append(inner._replace(activation=activation))
            yield from _make_gru(change, gates, [of_x.bias, of_h.bias], after=True)
    for source in candidate.products if isinstance(candidate, Affine) else ():
        for before in _MATCHER.match(_RESET, source, parts):
            gates = _find_gates([before["z"], before["r"]], h)
            inner = _find_gate(parts["g"], source)
            if gates and inner and inner.x is gates[0].x:
                biases = [inner.bias, 0 * inner.bias]
                yield from _make_gru(change, [*gates, inner], biases, after=False)


def _make_gru(
    change: Change, gates: Sequence[_GateFormula], biases: Sequence[Array], *, after: bool
) -> Iterator[RecurrentCell]:
    update, reset, inner = gates
    if update.activation != reset.activation:
        return
    activations = update.activation, inner.activation
    made = RecurrentOptions(activations=activations, reset_after=after)
    both = [update.bias, reset.bias]
    matrices = [gate.weights for gate in gates] + [gate.recurrent for gate in gates]
    added = np.concatenate([*both, biases[0], *(0 * bias for bias in both), biases[1]])
    parameters = [*matrices, make_vector(added)]
    yield RecurrentCell("GRU", inner.x, parameters, [change], made)


def _find_gates(
    formulas: Sequence[Formula], h: Formula, cells: Sequence[Formula | None] = (None, None)
) -> list[_GateFormula]:
    """Return gates that all read the same item; empty if a formula is not a gate.

    `cells` are the states c that peepholes of the gates may read.
    """
    pairs = zip(formulas, cells, strict=True)
    gates = [gate for gate in (_find_gate(formula, h, c) for formula, c in pairs) if gate]
    same = len(gates) == len(formulas) and all(gate.x is gates[0].x for gate in gates)
    return gates if same else []


def _split_activation(formula: Formula) -> tuple[GateActivation, Formula]:
    if isinstance(formula, Applied) and formula.code in ONNX_ACTIVATIONS:
        return GateActivation(formula.code, *formula.numbers), formula.arguments[0]
    return GateActivation("NONE"), formula


def _find_gate(formula: Formula, h: Formula, c: Formula | None = None) -> _GateFormula | None:
    if isinstance(formula, Applied) and formula.code == "ONE_MINUS":
        gate = _find_gate(formula.arguments[0], h, c)
        return gate and _negate_gate(gate)
    activation, formula = _split_activation(formula)
    products = dict(formula.products) if isinstance(formula, Affine) else {}
    # Keras' initial states of a dynamic batch are one tensor of zeros, whose product is that of h.
    peephole = products.pop(c, None) if c and c is not h else None
    recurrent = products.pop(h, None) or _pop_projected(products, h)
    if not isinstance(formula, Affine) or not recurrent or len(products) != 1:
        return None
    ((x, weights),) = products.items()
    if weights.rank < _MATRIX or recurrent.rank < _MATRIX:
        return None
    if peephole and peephole.rank == _MATRIX:
        return None
    return _GateFormula(x, weights, recurrent, formula.bias, activation, peephole)


def _negate_gate(gate: _GateFormula) -> _GateFormula | None:
    """Return 1 minus a gate, None if it is no sigmoid, or if a number has no opposite."""
    matrices = gate.weights, gate.recurrent
    signed = all(m.dtype in (DType.FLOAT32, DType.INT8) for m in matrices)
    if gate.activation.name != "LOGISTIC" or gate.peephole or not signed:
        return None
    if any(m.dtype is DType.INT8 and (m.values == _LEAST).any() for m in matrices):
        return None
    weights, recurrent = (replace(m, data=-m.values) for m in matrices)
    return gate._replace(weights=weights, recurrent=recurrent, bias=-gate.bias)


def _find_numbers(matrix: Tensor) -> Array:
    scales = matrix.quantization
    return decode_constant(matrix.values, scales) if scales else matrix.values


def _pop_projected(products: dict[Formula, Tensor], h: Formula) -> Tensor | None:
    """Remove the product with a projection of h; return the matrix that multiplies h, if any."""
    for source, matrix in products.items():
        hidden, projection = split_projection(source)
        if hidden is h and projection and matrix.rank == _MATRIX:
            integers = matrix.quantization or projection.quantization
            if integers and matrix.shape[0] * projection.shape[1] > _MOST_JOINED:
                return None
            del products[source]
            return make_vector(_find_numbers(matrix) @ _find_numbers(projection))
    return None

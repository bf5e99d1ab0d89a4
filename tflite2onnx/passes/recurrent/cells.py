"""Cells of recurrent layers, as formulas of their next states.

    LSTM: c' = sigmoid(f) * c + sigmoid(i) * a(g), h' = sigmoid(o) * a(c')
    GRU:  h' = sigmoid(z) * h + (1 - sigmoid(z)) * tanh(g),
          where g is x W + (sigmoid(r) * h) R + b, or x W + b + sigmoid(r) * (h R + b')
    RNN:  h' = a(x W + h R + b)

a is tanh or relu. f, i, g, o, z, r are sums x W + h R + b, each with its own matrices.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from tflite2onnx.passes.patterns.matching import Named, Pattern
from tflite2onnx.passes.recurrent.formulas import Formula, FormulaMatcher, Matrix, Sum
from tflite2onnx.tensor import Array, DType, Sizes, Tensor


def _make_lstm_pattern(activation: str) -> Pattern:
    added: Pattern = ("MUL", ("LOGISTIC", "i"), (activation, "g"))
    cell: Pattern = ("ADD", ("MUL", ("LOGISTIC", "f"), "c"), added)
    return ("MUL", ("LOGISTIC", "o"), (activation, Named("c'", cell)))


_ACTIVATIONS = ("TANH", "RELU")  # of LSTM and RNN
_LSTM = {activation: _make_lstm_pattern(activation) for activation in _ACTIVATIONS}
_RNN: Mapping[str, Pattern] = {activation: (activation, "g") for activation in _ACTIVATIONS}
_UPDATE: Pattern = Named("z'", ("LOGISTIC", "z"))
_GRU: Pattern = ("ADD", ("MUL", _UPDATE, "h"), ("MUL", ("ONE_MINUS", "z'"), ("TANH", "g")))
_RESET: Pattern = ("MUL", ("LOGISTIC", "r"), "h")
_RESET_AFTER: Pattern = ("ADD", "gx", ("MUL", ("LOGISTIC", "r"), "gh"))
_MATCHER = FormulaMatcher()


class Change(NamedTuple):
    """A state before and after a step."""

    before: Formula
    after: Formula


class RecurrentCell(NamedTuple):
    """A step of a recurrent operator: the item that it reads, its parameters, and its states.

    The first state is h. `code` and `options` are those of the recurrent operator.
    """

    code: str
    item: Formula
    parameters: Sequence[Matrix | Array | None]
    changes: Sequence[Change]
    options: Mapping[str, object]

    def make_parameters(self, name: str) -> list[Tensor | None]:
        """Return the parameters as constants with a name."""
        return [_make_constant(name, each) for each in self.parameters]

    def fits(self, item: Sizes, states: Sequence[Sizes]) -> bool:
        """Return whether the matrices fit items and states of these shapes, [batch, numbers]."""
        batch, features = item
        units = states[0][-1]
        matrices = [p.data.shape[1] for p in self.parameters if isinstance(p, Matrix)]
        half = len(matrices) // 2
        expected = [features] * half + [units] * half
        return matrices == expected and all(state == (batch, units) for state in states)


class _Gate(NamedTuple):
    """x W + h R + b; the matrices are [units, columns]."""

    x: Formula
    weights: Matrix
    recurrent: Matrix
    bias: Array


def find_cells(result: Formula, h: Formula) -> Iterator[RecurrentCell]:
    """Yield the cells that compute a result as the next value of a state h."""
    known = {"h": h}
    for activation, pattern in _LSTM.items():
        for parts in _MATCHER.match(pattern, result, known):
            yield from _find_lstm(result, parts, activation)
    for parts in _MATCHER.match(_GRU, result, known):
        yield from _find_gru(result, parts)
    for activation, pattern in _RNN.items():
        for parts in _MATCHER.match(pattern, result, known):
            yield from _find_rnn(result, parts, activation)


def _find_rnn(
    result: Formula, parts: Mapping[str, Formula], activation: str
) -> Iterator[RecurrentCell]:
    gate = _find_gate(parts["g"], parts["h"])
    if gate:
        options = {"fused_activation_function": activation, "time_major": True}
        parameters = (gate.weights, gate.recurrent, gate.bias)
        changes = [Change(parts["h"], result)]
        yield RecurrentCell("UNIDIRECTIONAL_SEQUENCE_RNN", gate.x, parameters, changes, options)


def _find_lstm(
    result: Formula, parts: Mapping[str, Formula], activation: str
) -> Iterator[RecurrentCell]:
    h = parts["h"]
    gates = _find_gates([parts[letter] for letter in "ifgo"], h)
    if gates:
        options = {
            "fused_activation_function": activation,
            "time_major": True,
            "cell_clip": 0.0,
            "proj_clip": 0.0,
        }
        columns = list(zip(*gates, strict=True))[1:]
        weights, recurrent, biases = columns
        parameters = (*weights, *recurrent, *[None] * 3, *biases, None, None)
        changes = [Change(h, result), Change(parts["c"], parts["c'"])]
        yield RecurrentCell(
            "UNIDIRECTIONAL_SEQUENCE_LSTM", gates[0].x, parameters, changes, options
        )


def _find_gru(result: Formula, parts: Mapping[str, Formula]) -> Iterator[RecurrentCell]:
    h, candidate = parts["h"], parts["g"]
    change = Change(h, result)
    for after in _MATCHER.match(_RESET_AFTER, candidate, parts):
        gates = _find_gates([after["z"], after["r"]], h)
        of_x, of_h = after["gx"], after["gh"]
        if not (isinstance(of_x, Sum) and isinstance(of_h, Sum) and list(of_h.products) == [h]):
            continue
        inner = _find_gate(Sum({**of_h.products, **of_x.products}, of_x.bias), h)
        if gates and inner and list(of_x.products) == [gates[0].x]:
            yield _make_gru(change, [*gates, inner], [of_x.bias, of_h.bias], after=True)
    for source in candidate.products if isinstance(candidate, Sum) else ():
        for before in _MATCHER.match(_RESET, source, parts):
            gates = _find_gates([before["z"], before["r"]], h)
            inner = _find_gate(candidate, source)
            if gates and inner and inner.x is gates[0].x:
                yield _make_gru(change, [*gates, inner], [inner.bias, 0 * inner.bias], after=False)


def _make_gru(
    change: Change, gates: Sequence[_Gate], biases: Sequence[Array], *, after: bool
) -> RecurrentCell:
    update, reset, inner = gates
    both = [update.bias, reset.bias]
    matrices = [gate.weights for gate in gates] + [gate.recurrent for gate in gates]
    added = np.concatenate([*both, biases[0], *(0 * bias for bias in both), biases[1]])
    parameters: list[Matrix | Array] = [*matrices, added]
    return RecurrentCell("GRU", inner.x, parameters, [change], {"reset_after": after})


def _make_constant(name: str, parameter: Matrix | Array | None) -> Tensor | None:
    if parameter is None:
        return None
    if isinstance(parameter, Matrix):
        data, dtype, quantization = parameter
        return Tensor(name, data.shape, dtype, data, quantization)
    return Tensor(name, parameter.shape, DType.FLOAT32, parameter)


def _find_gates(formulas: Sequence[Formula], h: Formula) -> list[_Gate]:
    """Return gates that all read the same item; empty if a formula is not a gate."""
    gates = [gate for gate in (_find_gate(formula, h) for formula in formulas) if gate]
    same = len(gates) == len(formulas) and all(gate.x is gates[0].x for gate in gates)
    return gates if same else []


def _find_gate(formula: Formula, h: Formula) -> _Gate | None:
    if not isinstance(formula, Sum) or len(formula.products) != 2 or h not in formula.products:
        return None
    (x,) = formula.products.keys() - {h}
    return _Gate(x, formula.products[x], formula.products[h], formula.bias)

"""UNIDIRECTIONAL_SEQUENCE_GRU. LiteRT's interpreter has no kernel, so numpy is the reference."""

from __future__ import annotations

import numpy as np
import pytest

from tests.references import check_reference, draw_numbers
from tests.support import Build
from tests.support.runtimes import Array
from tflite2onnx.convert import convert
from tflite2onnx.errors import ConversionError

# times, batch, inputs, units
SIZES = [(7, 2, 3, 5), (1, 1, 4, 2), (11, 3, 1, 1)]


def sigmoid(x: Array) -> Array:
    y: Array = 1 / (1 + np.exp(-x))
    return y


def gru(x: Array, h: Array, *weights: Array) -> list[Array]:
    """Return the outputs as LiteRT's kernels/gru_cell.cc computes them."""
    gates, biases, candidate, bias = weights
    made = []
    for step in x:
        reset, update = np.split(sigmoid(np.hstack([step, h]) @ gates.T + biases), 2, 1)
        fresh = np.tanh(np.hstack([step, h * reset]) @ candidate.T + bias)
        h = (1 - update) * fresh + update * h
        made.append(h)
    return [np.stack(made).astype(np.float32), h.astype(np.float32)]


def parameters(inputs: int, units: int) -> list[Array]:
    wide = inputs + units
    return [
        draw_numbers(2 * units, wide, seed=1),
        draw_numbers(2 * units, seed=2),
        draw_numbers(units, wide, seed=3),
        draw_numbers(units, seed=4),
    ]


@pytest.mark.parametrize(("times", "batch", "inputs", "units"), SIZES)
def test_gru_equals_numpy_as_one_node(times: int, batch: int, inputs: int, units: int) -> None:
    x, h, weights = (
        draw_numbers(times, batch, inputs),
        draw_numbers(batch, units),
        parameters(inputs, units),
    )
    m = Build()
    operands = [m.input(x.shape), m.input(h.shape), *map(m.constant, weights)]
    m.output(*m.custom("UNIDIRECTIONAL_SEQUENCE_GRU", operands, [[], []]))
    result = check_reference(m, [x, h], gru(x, h, *weights))
    assert [n.op_type for n in result.model.graph.node].count("GRU") == 1


def test_gru_refuses_computed_weights_and_wrong_shapes() -> None:
    code, weights = "UNIDIRECTIONAL_SEQUENCE_GRU", parameters(3, 5)

    def refusal(shape: list[int], outputs: int = 2, *, fixed: bool = True) -> str:
        m = Build()
        given = [m.constant(w) if fixed else m.input(w.shape) for w in weights]
        m.output(*m.custom(code, [m.input(shape), m.input([2, 5]), *given], [[]] * outputs))
        with pytest.raises(ConversionError) as error:
            convert(m.bytes())
        return str(error.value)

    assert "float32[times, batch, inputs], got float32[2, 3]" in refusal([2, 3])
    assert "must have 2 outputs, got 1" in refusal([7, 2, 3], 1)
    assert "must be constant" in refusal([7, 2, 3], fixed=False)
    assert "float32[10, 9], got" in refusal([7, 2, 4])

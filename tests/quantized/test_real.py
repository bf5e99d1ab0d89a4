"""Quantized loops, branches, states and recurrent layers with quantization="float".

The outputs equal LiteRT's for the same network with float tensors. They are within some steps of
LiteRT's quantized outputs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tests.op.recurrent import cells
from tests.op.recurrent.cells import Form
from tests.references.real import make_float_model
from tests.support import Build, Subgraph, Tensor, check, random_inputs
from tests.support.compare import run_restored
from tests.support.control import add_if, count_rounds, counter, like, loop
from tests.support.runtimes import reference, session
from tests.support.streams import SHAPE, assign, handle, initialise, read_variable
from tflite2onnx import Stateful, convert
from tflite2onnx.reader.model import read_model

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


Array = np.ndarray[Any, Any]

X: dict[str, Any] = {"dtype": "int8", "scale": 1 / 32, "zero_point": -7}
RUNS = 8


def constant(m: Subgraph, most: float) -> Tensor:
    """Return a constant from -most to most."""
    numbers = np.linspace(-most, most, 30).reshape(SHAPE)
    return m.constant(np.round(numbers * 128).astype(np.int8), scale=1 / 128)


def add_damping(m: Subgraph, x: Tensor) -> Tensor:
    """Return x * 0.3 + 0.9, with quantized constants."""
    (product,) = m.op("MUL", [x, constant(m, 0.3)], [like(m, x)])
    return m.op("ADD", [product, constant(m, 0.9)], [like(m, x)])[0]


def build_loop() -> bytes:
    """Build a loop whose number of iterations is an input."""
    m = Build()
    x = m.input(SHAPE, name="x", **X)
    m.output(loop(m, [counter(m), x], count_rounds(lambda m, xs: [add_damping(m, xs[0])]))[1])
    return m.bytes()


def build_branches() -> bytes:
    """Build branches, one of them with a loop."""
    m = Build()
    count, x = counter(m), m.input(SHAPE, name="x", **X)
    (small,) = m.op("LESS", [count, m.constant(np.array(0, np.int32))], [[]], dtype="bool")

    def add_loop(inner: Subgraph, xs: Sequence[Tensor]) -> list[Tensor]:
        change = count_rounds(lambda m, xs: [add_damping(m, xs[0])])
        return [loop(m, [inner.constant(np.array(0, np.int32)), *xs], change, at=inner)[1]]

    m.output(*add_if(m, small, [x], lambda m, xs: [add_damping(m, xs[0])], add_loop))
    return m.bytes()


def build_variable() -> bytes:
    """Build a variable that is updated from its value and the input."""
    m = Build()
    x = m.input(SHAPE, name="x", **X)
    initialise(m, memory={"values": np.full(SHAPE, 20, np.int8), **X})
    memory = read_variable(m, handle(m), **X)
    (both,) = m.op("ADD", [add_damping(m, memory), add_damping(m, x)], [like(m, x)])
    assign(m, handle(m), both)
    m.output(both)
    return m.bytes()


def build_variable_in_loop() -> bytes:
    """Build a variable that each iteration of a loop updates."""
    m = Build()
    x = m.input(SHAPE, name="x", **X)
    initialise(m, memory={"values": np.full(SHAPE, 20, np.int8), **X})

    def change(inner: Subgraph, xs: Sequence[Tensor]) -> list[Tensor]:
        memory = add_damping(inner, read_variable(inner, handle(inner), **X))
        (both,) = inner.op("ADD", [add_damping(inner, xs[0]), memory], [like(inner, x)])
        assign(inner, handle(inner), both)
        return [add_damping(inner, both)]

    m.output(loop(m, [counter(m), x], count_rounds(change))[1])
    return m.bytes()


# The allowed difference of quantized outputs, in steps: each operator rounds, and the errors
# continue from run to run.
CASES: list[tuple[Callable[[], bytes], int]] = [
    (build_loop, 3),
    (build_branches, 3),
    (build_variable, 3),
    (build_variable_in_loop, 5),
    *(
        (lambda form=form: cells.integer_lstm(form), 3)
        for form in (
            Form(),
            Form(single=True),
            Form(coupled=True),
            Form(peephole=True, cell_clip=0.5),
            Form(normalized=True),
            Form(projection=True, projection_bias=True),
        )
    ),
    (lambda: cells.integer_svdf(Form()), 3),
]


@pytest.mark.parametrize(("make", "steps"), CASES)
def test_real_numbers_agree_with_float_and_quantized_models(
    make: Callable[[], bytes], steps: int
) -> None:
    """Float outputs agree with the float twin, and within some steps with the quantized model."""
    data = make()
    result = check(
        make_float_model(data),
        convert=lambda _: convert(data, quantization="float"),
        runs=RUNS,
        ranges={"float32": (-1.5, 1.5), "count": (-1, 3)},
    )
    runs = [random_inputs(data, seed, count=(-1, 3)) for seed in range(RUNS)]
    wanted, _ = reference(data, runs)
    live = Stateful(session(result.model, optimize=True))
    taken, made = _scales(data)
    for given, want in zip(runs, wanted, strict=True):
        inputs = [_real(x, *kept) for x, kept in zip(given, taken, strict=True)]
        have = run_restored(result, live, inputs)
        for a, b, (scale, zero) in zip(want, have, made, strict=True):
            assert np.abs(_real(a, scale, zero) - b).max() <= steps * scale


def _scales(data: bytes) -> tuple[list[tuple[float, int]], list[tuple[float, int]]]:
    """Return the scales and zero points of inputs and outputs; the scale is 0 if there is none."""
    graph = read_model(data).graphs[0]
    inputs, outputs = (
        [
            (float(t.quantization.scale[0]), int(t.quantization.zero_point[0]))
            if t.quantization
            else (0.0, 0)
            for t in tensors
        ]
        for tensors in (graph.inputs, graph.outputs)
    )
    return inputs, outputs


def _real(x: Array, scale: float, zero: int) -> Array:
    return ((x.astype(np.int64) - zero) * scale).astype(np.float32) if scale else x

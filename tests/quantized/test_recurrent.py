"""LSTM, RNN and SVDF with integer weights, and with integer activations, over many runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from onnx import TensorProto

from tests.op.recurrent import cells
from tests.op.recurrent.cells import Form
from tests.op.recurrent.test_recurrent import ALL, change_form
from tests.quantized.test_hybrid import exact_rows
from tests.support import check, random_inputs
from tests.support.needs import needs_onnxruntime
from tests.support.runtimes import session
from tflite2onnx import convert
from tflite2onnx.options import StateInputs

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support import Converted

    Make = Callable[[Form], bytes]

# Integer weights and float data: LiteRT quantizes the data of each product to 127 steps (or 255),
# also h, so that an error of 1/254 continues from step to step.
HYBRID_TOLERANCE = 0.03
# LiteRT's gates are fixed-point numbers with errors of about 2**-15. If such an error moves a
# product to the next integer, h is off by one step, and a projection adds such errors up. 140 of
# 5000 elements are off by one step; with a projection 600 are, and 3 are off by two.
STEPS, PROJECTED_STEPS = 1, 2

HYBRID = [
    *(
        (cells.lstm, form)
        for form in (
            Form(),
            Form(time_major=True),
            Form(peephole=True, coupled=True),
            Form(diagonal=True),
            Form(activation="RELU6"),
            ALL,
            change_form(ALL, coupled=True, single=True),
            Form(single=True),
        )
    ),
    *(
        (cells.bidirectional_lstm, form)
        for form in (
            Form(),
            Form(merged=True, time_major=True),
            Form(auxiliary="added"),
            Form(auxiliary="crossed", projection=True),
        )
    ),
    *((cells.rnn, form) for form in (Form(), Form(time_major=True), Form(single=True))),
    *(
        (cells.bidirectional_rnn, form)
        for form in (
            Form(),
            Form(merged=True),
            Form(auxiliary="added", more=7),
            Form(auxiliary="crossed"),
        )
    ),
    *((cells.svdf, Form(activation=name)) for name in ("NONE", "RELU", "TANH")),
]


@pytest.mark.parametrize(("make", "form"), HYBRID)
def test_integer_weights_stay_int8_in_the_file(make: Make, form: Form) -> None:
    data = make(change_form(form, weights="int8"))
    ranges = {"float32": (-2.0, 2.0)}
    result = check(data, runs=4, seeds=[0], ranges=ranges, tolerance=HYBRID_TOLERANCE)
    assert stored_types(result) <= {TensorProto.INT8, TensorProto.FLOAT, TensorProto.INT64}
    assert TensorProto.INT8 in stored_types(result)


def stored_types(result: Converted) -> set[int]:
    """Return the types of initializers and constants."""
    return {i.data_type for i in result.model.graph.initializer}


@pytest.mark.parametrize("asymmetric", [False, True])
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("make", [cells.lstm, cells.rnn])
def test_first_step_is_exact_for_exact_data(make: Make, dtype: str, *, asymmetric: bool) -> None:
    """The first step is exact if LiteRT's quantization of the data is exact, because h is 0."""
    form = Form(weights=dtype, asymmetric=asymmetric, single=True)
    x = exact_rows((form.batch, form.features), -128 if asymmetric else -127) / 8
    check(make(form), inputs=[x])


@pytest.mark.parametrize("asymmetric", [False, True])
def test_filters_are_exact_over_runs(*, asymmetric: bool) -> None:
    """SVDF is exact over runs, because the kernel quantizes its data but not its state."""
    form = Form(weights="int8", asymmetric=asymmetric, activation="NONE")
    x = exact_rows((form.batch, form.features), -128 if asymmetric else -127) / 8
    check(cells.svdf(form), inputs=[x], runs=7)


# Integer activations

FUSING = "an optimization that leaves the graph whole"
INTEGER = [
    Form(),
    Form(time_major=True),
    Form(single=True),
    Form(coupled=True),
    Form(peephole=True),
    Form(peephole=True, coupled=True, cell_clip=0.5),
    Form(normalized=True),
    Form(normalized=True, coupled=True, peephole=True, cells=16),
    Form(projection=True),
    Form(projection=True, projection_bias=True, proj_clip=0.3, cell_clip=0.5),
    Form(projection=True, normalized=True, single=True),
    Form(projection=True, hidden_zero=-128),
    Form(projection=True, hidden_zero=127),
    *(
        Form(rescaled=True, **form)
        for form in (
            {},
            {"single": True},
            {"time_major": True, "coupled": True, "peephole": True, "cell_clip": 0.5},
            {"normalized": True, "hidden_zero": -128},
            {"projection": True, "projection_bias": True, "proj_clip": 0.3},
        )
    ),
]


@pytest.mark.parametrize("form", INTEGER)
def test_integer_lstm_agrees_with_litert_over_runs(form: Form) -> None:
    if form.single:
        needs_onnxruntime(1, 31, FUSING)
    steps = PROJECTED_STEPS if form.projection else STEPS
    check(cells.integer_lstm(form), runs=50 if form.single else 8, seeds=[0], steps=steps)


def test_errors_do_not_accumulate_over_fifty_runs() -> None:
    """Errors do not accumulate over 50 runs."""
    check(cells.integer_lstm(Form(times=2)), runs=50, seeds=[0], steps=STEPS, random_layouts=[])


@pytest.mark.parametrize("activations", ["int8", "uint8"])
@pytest.mark.parametrize("make", [cells.integer_lstm, cells.integer_svdf])
def test_both_storages_of_int8_agree_with_litert(make: Make, activations: str) -> None:
    """Storage of int8 as int8 or uint8 gives the same results."""
    check(make(Form()), runs=3, seeds=[0], steps=STEPS, activations=activations)


@pytest.mark.parametrize(
    ("form", "scale", "zero"),
    [
        (Form(), cells.IntegerModel.H, -7),
        (Form(rescaled=True), 1 / 140, 9),
        (Form(rescaled=True, hidden_zero=4), 1 / 140, 9),
        (Form(rescaled=True, projection=True, proj_clip=0.3), 1 / 140, 9),
    ],
)
def test_float_lstm_rounds_no_activations(form: Form, scale: float, zero: int) -> None:
    data = cells.integer_lstm(form)
    result = convert(data, quantization="float")
    assert {x.dtype for x in (*result.inputs, *result.outputs)} == {"float32"}
    assert "QuantizeLinear" not in str(result.model.graph.node)
    want = check(data, seeds=[0], steps=PROJECTED_STEPS if form.projection else STEPS)
    (x,) = random_inputs(data, 0)
    live = session(result.model, optimize=True)
    (name,) = (each.name for each in result.inputs)
    real = (x.astype(np.float32) - 5) * np.float32(cells.IntegerModel.X)
    made = live.run([result.outputs[0].name], {name: real})[0]
    integers = session(want.model, optimize=True).run([want.outputs[0].name], {name: x})[0]
    apart = np.abs(made - (integers.astype(np.float32) - zero) * np.float32(scale))
    assert apart.max() <= (3 if form.projection else 1.01) * scale


@pytest.mark.parametrize("rank", [1, 2])
@pytest.mark.parametrize("bias", [False, True])
def test_integer_filters_agree_with_litert_over_runs(rank: int, *, bias: bool) -> None:
    """SVDF with integer activations, over 20 runs."""
    data = cells.integer_svdf(Form(), rank=rank, bias=bias)
    check(data, runs=20, seeds=[0], steps=STEPS)


def test_integer_states_of_basic_lstm_agree_with_litert() -> None:
    """The states of the kernel BASIC are as exact as other states."""
    needs_onnxruntime(1, 31, FUSING)
    check(cells.integer_basic_lstm(), runs=20, seeds=[0], steps=64)
    only = cells.integer_basic_lstm(outputs=1)
    check(only, runs=50, seeds=[0], steps=STEPS)


@pytest.mark.parametrize(
    "data",
    [cells.integer_svdf(Form(), dtype="int8"), cells.integer_lstm(Form(single=True))],
    ids=["filters", "cell"],
)
@pytest.mark.parametrize(
    ("form", "types"), [("required", {"int8", "int16"}), ("optional", {"uint8", "int16"})]
)
def test_required_states_have_the_types_of_the_file(
    data: bytes, form: StateInputs, types: set[str]
) -> None:
    """States that a run may omit have the type inside the model; the others that of the file."""
    states = convert(data, states=form).states
    assert {state.input.dtype for state in states} <= types
    assert all(state.initial.dtype == state.output.dtype for state in states)

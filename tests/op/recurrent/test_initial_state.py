"""Initial states of recurrent operators, which are inputs or computed by other operators.

Keras calls this `initial_state`. The states of the converted layer are variable tensors, as
always, but another operator writes them too, or they are inputs of the model.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from flatbuffers import flexbuffers

from tests.op.recurrent import cells
from tests.op.recurrent.cells import Form, Model
from tests.support import Build, check, random_inputs
from tflite2onnx import ConversionError, Result, convert

if TYPE_CHECKING:
    from collections.abc import Callable

    Make = Callable[[Form], bytes]

MAKERS: list[Make] = [
    cells.lstm,
    cells.bidirectional_lstm,
    cells.rnn,
    cells.bidirectional_rnn,
    cells.svdf,
    cells.basic_lstm,
]
# The kernel BASIC clears its states in Prepare, after GATHER and TILE have computed them there.
ONCE = [
    (make, code)
    for make in MAKERS
    for code in ("DEQUANTIZE", "DEQUANTIZE int8", "GATHER", "TILE")
    if make is not cells.basic_lstm or code.startswith("DEQUANTIZE")
]
SINGLE: list[Make] = [cells.lstm, cells.rnn]


def check_states(data: bytes, **options: Any) -> Result:
    result = check(data, runs=3, seeds=[0], ranges={"float32": (-2, 2)}, **options)
    assert isinstance(result, Result)
    return result


def count_states(result: Result) -> int:
    """Return the number of states of a model."""
    return len(result.states)


@pytest.mark.parametrize("initial", ["computed", "given", "EXP", "FILL"])
@pytest.mark.parametrize("make", MAKERS)
def test_initial_states_are_new_in_each_run(make: Make, initial: str) -> None:
    assert not count_states(check_states(make(Form(initial=initial))))


@pytest.mark.parametrize("initial", ["computed", "given"])
@pytest.mark.parametrize("make", SINGLE)
def test_single_steps_with_initial_states_keep_no_state(make: Make, initial: str) -> None:
    assert not count_states(check_states(make(Form(initial=initial, single=True))))


@pytest.mark.parametrize(("make", "initial"), ONCE)
def test_states_from_constants_are_computed_once(make: Make, initial: str) -> None:
    """States from constants are computed once: the second run continues from the first."""
    assert count_states(check_states(make(Form(initial=initial))))


@pytest.mark.parametrize(
    "form",
    [
        Form(),
        Form(time_major=True, peephole=True),
        Form(coupled=True, activation="RELU"),
        Form(cell_clip=1, normalized=True),
        Form(projection=True, units=11),
        Form(single=True),
        Form(diagonal=True),
    ],
)
def test_h_and_c_may_share_one_variable(form: Form) -> None:
    """If h and c share a tensor, the output gate reads the new c in place of the old h."""
    check_states(cells.lstm(Form(**{**vars(form), "initial": "one"})))


def test_h_and_c_of_a_hybrid_lstm_may_share_one_variable() -> None:
    """The hybrid kernel quantizes the old h before it writes the shared tensor."""
    check_states(cells.lstm(Form(initial="one", weights="int8")), tolerance=0.01)


@pytest.mark.parametrize(
    "make", [cells.bidirectional_lstm, cells.bidirectional_rnn, cells.basic_lstm]
)
def test_layers_that_cannot_share_h_and_c_are_refused(make: Make) -> None:
    with pytest.raises(ConversionError, match="its states must be different variables"):
        convert(make(Form(initial="one", back=11)))


def test_second_layer_starts_from_final_state_of_the_first() -> None:
    """If two layers share a state, the second layer starts from the final state of the first."""
    m = Model()
    m.initial = "computed"
    x, states = m.input([3, 7]), [m.state(3, 11)]
    for _ in range(2):
        operands = [x, m.weights(11, 7), m.weights(11, 11), m.vector(11), *states]
        m.output(*m.op("RNN", operands, [[3, 11]], fused_activation_function="TANH"))
    m.output(*states)
    check_states(m.bytes())


@pytest.mark.parametrize("batch", [1, 4])
def test_batch_of_initial_states_stays_dynamic(batch: int) -> None:
    """A given state has the dynamic batch of the sequence."""
    m, n = Model(), 11
    x, given = m.input([None, 5, 7]), m.input([None, n])
    state = m.tensor([1, n], variable=True, shape_signature=[-1, n])
    m.op("TANH", [given], [state])
    operands = [x, m.weights(n, 7), m.weights(n, n), m.vector(n), state]
    made = m.tensor([None, 5, n])
    code = "UNIDIRECTIONAL_SEQUENCE_RNN"
    m.output(*m.op(code, operands, [made], fused_activation_function="TANH"))
    sequence, initial = random_inputs(m.bytes(), 0)
    inputs = [sequence.repeat(batch, 0), initial.repeat(batch, 0)]
    result = check_states(m.bytes(), inputs=inputs)
    sizes = result.model.graph.input[0].type.tensor_type.shape.dim
    assert sizes[0].dim_param == "batch"


def test_called_graphs_compute_their_variables_in_each_call() -> None:
    """Variable tensors of a called sub-graph are computed again in each call."""
    m = Build()
    inner = m.subgraph("inner")
    x = inner.input([2, 3])
    state = inner.tensor([2, 3], variable=True)
    inner.op("TILE", [inner.constant([[1.0, 2.0, 3.0]]), inner.constant([2, 1])], [state])
    inner.output(*inner.op("ADD", [x, state], [[2, 3]]))
    m.output(
        *m.op(
            "STABLEHLO_COMPOSITE",
            [m.input([2, 3])],
            [[2, 3]],
            name="some.thing",
            decomposition_subgraph_index=inner.index,
            composite_attributes=bytes(flexbuffers.Dumps({})),
        )
    )
    assert not count_states(check_states(m.bytes()))

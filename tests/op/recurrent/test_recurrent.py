"""LSTM, RNN and SVDF with float32 activations, over several runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema
from onnx import TensorProto
from onnxruntime import InferenceSession

from tests.op.recurrent import cells
from tests.op.recurrent.cells import Form, Model
from tests.support import check, pack, random_inputs
from tests.support.fusions import optimize_model
from tflite2onnx import ConversionError, convert

if TYPE_CHECKING:
    from collections.abc import Callable

    Make = Callable[[Form], bytes]

BOUNDED = ["RELU", "RELU6", "RELU_N1_TO_1", "SIGN_BIT"]
ALL = Form(
    peephole=True,
    projection=True,
    projection_bias=True,
    normalized=True,
    cell_clip=0.4,
    proj_clip=0.5,
)


def change_form(form: Form, **fields: Any) -> Form:
    return Form(**{**vars(form), **fields})


LSTMS = [
    Form(),
    Form(time_major=True),
    Form(batch=1),
    Form(times=1),
    Form(flat=True),
    Form(peephole=True),
    Form(coupled=True),
    Form(coupled=True, peephole=True),
    Form(diagonal=True),
    Form(projection=True),
    Form(projection=True, projection_bias=True),
    Form(projection=True, proj_clip=0.1),
    Form(cell_clip=0.4),
    Form(cell_clip=10),
    Form(cell_clip=10, times=12, peephole=True, time_major=True),
    Form(cell_clip=10, times=7, coupled=True),
    Form(normalized=True),
    *(Form(activation=name) for name in BOUNDED),
    ALL,
    change_form(ALL, coupled=True, time_major=True),
]
SINGLE = [
    Form(),
    Form(flat=True),
    Form(coupled=True, peephole=True),
    Form(activation="RELU6"),
    ALL,
    change_form(ALL, coupled=True),
]
# With merged outputs the kernel uses wrong states for all batches but the first.
BIDIRECTIONAL = [
    Form(),
    Form(time_major=True, merged=True),
    Form(batch=1, merged=True),
    Form(peephole=True, coupled=True),
    Form(projection=True, projection_bias=True, cell_clip=0.4, proj_clip=0.3),
    Form(activation="RELU"),
    *(
        Form(auxiliary=kind, time_major=major, coupled=major)
        for kind in ("added", "crossed")
        for major in (False, True)
    ),
    Form(auxiliary="added", cell_clip=0.4),
    Form(auxiliary="added", cell_clip=10, times=6),
    Form(auxiliary="crossed", cell_clip=0.4, merged=True, time_major=True),
]
RNNS = [
    Form(),
    Form(time_major=True),
    Form(batch=1),
    *(Form(activation=name) for name in ("NONE", *BOUNDED)),
]
RNNS_OF_TWO = [
    Form(),
    Form(merged=True),
    Form(time_major=True, merged=True),
    Form(activation="RELU6"),
    Form(auxiliary="added"),
    Form(auxiliary="added", activation="RELU6"),
    Form(auxiliary="added", time_major=True, more=7),
    Form(auxiliary="crossed"),
    Form(auxiliary="crossed", time_major=True),
    Form(auxiliary="crossed", time_major=True, activation="RELU6"),
]
CASES = [
    *((cells.lstm, form) for form in LSTMS),
    *((cells.lstm, change_form(form, single=True)) for form in SINGLE),
    *((cells.rnn, form) for form in RNNS),
    *((cells.rnn, Form(single=True, activation=name)) for name in ("NONE", "TANH", *BOUNDED)),
    *((cells.svdf, Form(activation=name)) for name in ("NONE", "TANH", *BOUNDED)),
]


CASES_OF_TWO = [
    *((cells.bidirectional_lstm, form) for form in BIDIRECTIONAL),
    *((cells.bidirectional_rnn, form) for form in RNNS_OF_TWO),
]


@pytest.mark.parametrize(("make", "form"), CASES)
def test_all_forms_of_layers_equal_litert(make: Make, form: Form) -> None:
    check(make(form), runs=3, seeds=[0], ranges={"float32": (-2, 2)})


@pytest.mark.parametrize(("make", "form"), CASES_OF_TWO)
def test_all_forms_of_two_directions_equal_litert(make: Make, form: Form) -> None:
    check(make(form), runs=3, seeds=[0], ranges={"float32": (-2, 2)})


def nodes(result: Any) -> list[str]:
    return [node.op_type for node in result.model.graph.node]


@pytest.mark.parametrize("make", [cells.lstm, cells.bidirectional_lstm, cells.rnn])
def test_differences_do_not_accumulate_over_50_runs(make: Make) -> None:
    """Small differences do not accumulate over 50 runs."""
    check(make(Form()), runs=50, seeds=[0], ranges={"float32": (-2, 2)}, random_layouts=[])


@pytest.mark.parametrize(
    ("make", "form", "node"),
    [
        (cells.lstm, Form(peephole=True, coupled=True), "LSTM"),
        (cells.lstm, Form(activation="RELU"), "LSTM"),
        (cells.lstm, Form(diagonal=True), "LSTM"),
        (cells.lstm, Form(cell_clip=9), "Scan"),
        (cells.lstm, Form(projection=True), "Scan"),
        (cells.lstm, Form(normalized=True), "Scan"),
        (cells.lstm, Form(activation="RELU6"), "Scan"),
        (cells.rnn, Form(activation="RELU"), "RNN"),
        (cells.rnn, Form(activation="RELU6"), "Scan"),
    ],
)
def test_layers_become_recurrent_nodes_where_equivalent(make: Make, form: Form, node: str) -> None:
    """A layer becomes ONNX's recurrent node if both are equivalent, and a Scan otherwise."""
    assert {"LSTM", "RNN", "Scan"}.intersection(nodes(convert(make(form)))) == {node}


@pytest.mark.parametrize("opset", [13, 18, 19])
@pytest.mark.parametrize(
    ("make", "times", "expected"),
    [
        (cells.lstm, 5, ["If"]),
        (cells.lstm, 9, ["If"]),
        (cells.lstm, 10, ["Scan"]),
        (cells.lstm, 13, ["Scan", "If"]),
        (cells.lstm, 11, ["Scan", "If"]),
        (cells.lstm, 16, ["Scan"]),
        (cells.lstm, 46, ["Scan", "LSTM"]),
        (cells.bidirectional_lstm, 7, ["If", "If"]),
        (cells.bidirectional_lstm, 13, ["Scan", "If", "Scan", "If"]),
    ],
)
def test_cells_are_clipped_at_their_limit(
    make: Make, times: int, expected: list[str], opset: int
) -> None:
    """The cells grow by 1 in each step until the steps run one by one, and are clipped."""
    model = make(Form(cell_clip=10, times=times, auxiliary=""))
    check(model, runs=6, seeds=[0], ranges={"float32": (20.0, 21.0)}, opset=opset)
    result = convert(model, opset=opset)
    assert [node for node in nodes(result) if node in ("Scan", "If", "LSTM")] == expected
    session = InferenceSession(result.model.SerializeToString())
    names = {state.input.name: state.output.name for state in result.states}
    feeds = {i.name: np.full(i.shape, 20, np.float32) for i in session.get_inputs()}
    for _ in range(3):
        states = session.run([*names.values()], feeds)
        feeds |= dict(zip(names, states, strict=True))
    assert max(np.abs(state).max() for state in states) == 10


def test_batch_of_a_filter_is_that_of_its_state() -> None:
    """SVDF of a batch that the file declares as dynamic."""
    m = Model()
    x, state = m.input([None, 7]), m.tensor([3, 22], variable=True)
    operands = [x, m.weights(11, 7), m.weights(11, 2), None, state]
    m.output(*m.op("SVDF", operands, [m.tensor([None, 11])], rank=1))
    assert convert(m.bytes()).inputs[0].onnx_shape == (3, 7)


def test_a_single_step_needs_no_loop() -> None:
    assert nodes(convert(cells.rnn(Form(single=True)))) == [
        "MatMul",
        "Add",
        "Gemm",
        "Tanh",
        "Identity",
    ]
    for major in (False, True):
        result = check(cells.lstm(Form(times=1, cell_clip=10, time_major=major)), runs=2)
        assert "Scan" not in nodes(result)


@pytest.mark.parametrize("form", [Form(), Form(projection=True, projection_bias=True)])
def test_a_single_step_of_integers_multiplies_integers(form: Form) -> None:
    graph = optimize_model(convert(cells.integer_lstm(change_form(form, single=True))).model).graph
    products = {node.op_type for node in graph.node} & {"Gemm", "MatMul", "MatMulIntegerToFloat"}
    assert products == {"MatMulIntegerToFloat"}


def test_only_batch_major_sequences_need_transposes() -> None:
    """Only batch-major sequences with several batches and steps need Transposes."""
    assert nodes(convert(cells.lstm(Form()))).count("Transpose") == 2
    for form in (Form(time_major=True), Form(batch=1), Form(times=1)):
        assert "Transpose" not in nodes(convert(cells.lstm(form)))


def test_basic_kernel_keeps_both_states() -> None:
    """The states of the kernel BASIC are outputs of the operator, and states of the model."""
    result: Any = check(cells.basic_lstm(), runs=5)
    assert len(result.states) == 2


@pytest.mark.parametrize(
    ("make", "form"),
    [
        (cells.lstm, Form()),
        (cells.lstm, Form(cell_clip=0.4, time_major=True)),
        (cells.bidirectional_lstm, Form(merged=True, time_major=True)),
        (cells.rnn, Form()),
        (cells.rnn, Form(activation="RELU6", time_major=True)),
    ],
)
def test_time_of_sequences_stays_dynamic(make: Make, form: Form) -> None:
    """A model with dynamic time also runs on longer sequences."""
    data, longer = make(change_form(form, dynamic=True)), make(change_form(form, times=9))
    result: Any = check(data, runs=2, ranges={"float32": (-2, 2)})
    assert len(result.inputs[0].symbols) == 1
    inputs = random_inputs(longer, 0, float32=(-2, 2))
    check(data, inputs=inputs, random_layouts=[])


@pytest.mark.parametrize("make", [cells.lstm, cells.rnn, cells.svdf])
def test_missing_output_shapes_are_inferred(make: Make) -> None:
    """The output shape is inferred if the file has none, as in LiteRT's own test models."""
    known = convert(make(Form())).outputs[0].onnx_shape
    model = schema.ModelT.InitFromPackedBuf(make(Form()))
    (operator,) = model.subgraphs[0].operators
    model.subgraphs[0].tensors[operator.outputs[0]].shape = None
    assert convert(pack(model, [])).outputs[0].onnx_shape == known


@pytest.mark.parametrize("make", [cells.lstm, cells.rnn, cells.svdf])
def test_float16_weights_are_stored_as_float16(make: Make) -> None:
    """float16 weights are stored as float16."""
    result = check(make(Form(weights="float16")), runs=2, ranges={"float32": (-2, 2)})
    kinds = {i.data_type for i in result.model.graph.initializer if len(i.dims) > 1}
    assert TensorProto.FLOAT16 in kinds


# Forms that the kernels refuse, or for which they compute no sensible result


def refusal(data: bytes) -> str:
    with pytest.raises(ConversionError) as caught:
        convert(data)
    return str(caught.value)


@pytest.mark.parametrize(
    ("make", "form", "reason"),
    [
        (cells.lstm, Form(activation="NONE"), "must have an activation function"),
        (cells.lstm, Form(cell_clip=-1), "cell_clip and proj_clip must not be negative, got -1"),
        (cells.bidirectional_lstm, Form(proj_clip=-1), "must not be negative, got 0 and -1"),
        (
            cells.bidirectional_rnn,
            Form(weights="int8", time_major=True),
            "time-major sequences must not have integer weights",
        ),
        (
            cells.bidirectional_rnn,
            Form(auxiliary="added", time_major=True),
            "as LiteRT assumes, got [5, 3, 2] and [5, 3, 7]",
        ),
        (
            cells.integer_lstm,
            Form(peephole=True, projection=True),
            "it must not have both peepholes and a projection",
        ),
    ],
)
def test_refuses_invalid_options_and_operands(make: Make, form: Form, reason: str) -> None:
    assert reason in refusal(make(form))


def test_refuses_a_diagonal_of_integers() -> None:
    model = schema.ModelT.InitFromPackedBuf(cells.lstm(Form(weights="int8", diagonal=True)))
    (operator,) = model.subgraphs[0].operators
    diagonal = model.subgraphs[0].tensors[operator.inputs[8]]
    diagonal.type = schema.TensorType.INT8
    diagonal.quantization = schema.QuantizationParametersT(scale=[0.5], zeroPoint=[0])
    model.buffers[diagonal.buffer].data = model.buffers[diagonal.buffer].data[:11]
    assert "float32, got int8" in refusal(pack(model, []))


def test_refuses_a_gate_without_its_normalization() -> None:
    model = schema.ModelT.InitFromPackedBuf(cells.lstm(Form(normalized=True)))
    (operator,) = model.subgraphs[0].operators
    operator.inputs = [*operator.inputs[:-1], -1]
    assert "must have a layer normalization, or none" in refusal(pack(model, []))


@pytest.mark.parametrize("weights", [(11, 7), (11, 5)])
def test_recurrent_layers_refuse_computed_weights_and_wrong_shapes(
    weights: tuple[int, int],
) -> None:
    m = Model()
    x = m.input([3, 7])
    w = m.input(weights) if weights == (11, 7) else m.weights(*weights)
    operands = [x, w, m.weights(11, 11), m.vector(11), m.state(3, 11)]
    m.output(*m.op("RNN", operands, [[3, 11]], fused_activation_function="TANH"))
    expected = "must be constant" if weights == (11, 7) else "must be [11, 7], got [11, 5]"
    assert expected in refusal(m.bytes())

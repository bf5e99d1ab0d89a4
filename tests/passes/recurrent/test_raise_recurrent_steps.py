"""Unrolled recurrent layers, and single steps of streaming models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.support import Build, Tensor, check
from tests.support.control import number
from tests.support.graph_text import check_pass, check_unchanged, make_model, read_graph
from tests.support.keras import BATCH, FEATURES, UNITS, Cell, Keras
from tflite2onnx.passes.recurrent.raise_recurrent_steps import raise_recurrent_steps
from tflite2onnx.reader.model import read_model

CELLS = ["LSTM", "GRU", "GRU-before"]


def take_items(m: Build, x: Tensor, axis: int, count: int) -> list[Tensor]:
    """Return the items of a sequence, as Keras takes them."""
    shape = [size for i, size in enumerate(x.shape) if i != axis % len(x.shape)]
    return m.op("UNPACK", [x], [shape] * count, axis=axis, num=count)


def unroll(
    m: Build, form: Keras, items: Sequence[Tensor], states: Sequence[Tensor]
) -> list[list[Tensor]]:
    """Return the states after each step; all steps have the same parameters."""
    after: list[list[Tensor]] = []
    for item in items:
        h, *others = after[-1] if after else states
        after.append(Cell(form, m).step(item, h, others))
    return after


def make_states(m: Build, form: Keras, batch: int = BATCH) -> list[Tensor]:
    return [m.input([batch, UNITS], name=f"state {i}") for i in range(form.states)]


def model(
    form: Keras, times: int = 3, *, axis: int = 0, outputs: str = "last", batch: int = BATCH
) -> bytes:
    """Return an unrolled layer: its `last` states, its states h after `every` step, or both."""
    m = Build()
    shape = [batch, FEATURES]
    shape.insert(axis, times)
    x = m.input(shape, name="x")
    after = unroll(m, form, take_items(m, x, axis, times), make_states(m, form, batch))
    if outputs in ("every", "both"):
        states = [step[0] for step in after]
        m.output(*m.op("PACK", states, [[times, batch, UNITS]], axis=0, values_count=times))
    if outputs in ("last", "both"):
        m.output(*after[-1])
    if outputs == "first":
        m.output(after[0][0], after[-1][0])
    return m.bytes()


def proved_node_types(data: bytes, **options: Any) -> list[str]:
    """Return the types of the nodes, once their numbers are proved; see `check`."""
    result: Any = check(data, ranges={"float32": (-1, 1)}, random_layouts=[0], **options)
    moves = {"Reshape", "Squeeze", "Unsqueeze", "Identity"}
    return [node.op_type for node in result.model.graph.node if node.op_type not in moves]


STEP = """
    inputs %0: float32[1,5], %1: float32[1,11]
    %2: float32[1,33] = FULLY_CONNECTED(%0, float32[33,5], float32[33])
    %3: float32[1,11], %4: float32[1,11], %5: float32[1,11] = SPLIT(-1, %2, num_splits=3)
    %6: float32[1,22] = FULLY_CONNECTED(%1, float32[22,11], float32[22])
    %7: float32[1,11] = STRIDED_SLICE(%6, [0, 0], [0, 11], [1, 1], begin_mask=1, end_mask=1)
    %8: float32[1,11] = STRIDED_SLICE(%6, [0, 11], [0, 22], [1, 1], begin_mask=1, end_mask=1)
    %9: float32[1,11] = ADD(%3, %7)
    %10: float32[1,11] = LOGISTIC(%9)
    %11: float32[1,11] = ADD(%4, %8)
    %12: float32[1,11] = LOGISTIC(%11)
    %13: float32[1,11] = MUL(%12, %1)
    %14: float32[1,11] = FULLY_CONNECTED(%13, float32[11,11], none)
    %15: float32[1,11] = ADD(%5, %14)
    %16: float32[1,11] = TANH(%15)
    %17: float32[1,11] = SUB(1.0, %10)
    %18: float32[1,11] = MUL(%10, %1)
    %19: float32[1,11] = MUL(%17, %16)
    %20: float32[1,11] = ADD(%18, %19)
    return %20
"""


def test_operators_of_a_step_become_one_gru() -> None:
    """The operators of both cells become one operator; the item of one step is a sequence."""
    m = Build()
    form = Keras("GRU-before", batch=1)
    x, (h,) = m.input([1, FEATURES]), make_states(m, form, 1)
    m.output(*Cell(form, m).step(x, h, []))
    matrices = ", ".join(["float32[11,5]"] * 3 + ["float32[11,11]"] * 3 + ["float32[66]"])
    after = f"""
        inputs %0: float32[1,5], %1: float32[1,11]
        %2: float32[1,1,5] = RESHAPE(%0)
        %3: float32[1,1,11], %4: float32[1,11] = GRU(%2, {matrices}, %1)
        %5: float32[1,11] = RESHAPE(%4)
        return %5
    """
    graph, names = read_model(m.bytes()).graphs[0], ("begin_mask", "end_mask", "num_splits")
    check_pass(raise_recurrent_steps, graph, STEP, after, *names)


KEPT = """
    %18: float32[1,11] = MUL(%10, %1)
    %19: float32[1,11] = MUL(%17, %16)
    %20: float32[1,11] = ADD(%18, %19)
"""
COUPLED = """
    inputs x: float32[1,5], h: float32[1,4], c: float32[1,4]
    a: float32[1,12] = FULLY_CONNECTED(x, float32[12,5], float32[12])
    b: float32[1,12] = FULLY_CONNECTED(h, float32[12,4], float32[12])
    s: float32[1,12] = ADD(a, b)
    f: float32[1,4], o: float32[1,4], g: float32[1,4] = SPLIT(-1, s, num_splits=3)
    sf: float32[1,4] = LOGISTIC(f)
    so: float32[1,4] = LOGISTIC(o)
    tg: float32[1,4] = TANH(g)
    i: float32[1,4] = SUB(1.0, sf)
    kept: float32[1,4] = MUL(sf, c)
    new: float32[1,4] = MUL(i, tg)
    next: float32[1,4] = ADD(kept, new)
    t: float32[1,4] = TANH(next)
    y: float32[1,4] = MUL(so, t)
    return y, next
"""


def test_gate_of_a_gru_may_multiply_the_difference_to_the_new_state() -> None:
    lines = """
    %18: float32[1,11] = SUB(%16, %1)
    %19: float32[1,11] = MUL(%18, %10)
    %20: float32[1,11] = ADD(%1, %19)
"""
    text = STEP.replace(KEPT.strip("\n"), lines.strip("\n"))
    assert proved_node_types(make_model(text)) == ["GRU"]


def test_gru_may_have_a_single_gate() -> None:
    text = STEP.replace(KEPT.strip("\n"), KEPT.strip("\n").replace("%10", "%12"))
    text = text.replace("SUB(1.0, %10)", "SUB(1.0, %12)")
    assert proved_node_types(make_model(text)) == ["GRU"]


def test_input_gate_of_an_lstm_may_be_the_rest_of_the_forget_gate() -> None:
    assert proved_node_types(make_model(COUPLED)) == ["LSTM"]


def test_rest_of_a_gate_that_is_no_sigmoid_stays() -> None:
    kinds = proved_node_types(make_model(COUPLED.replace("LOGISTIC(f)", "TANH(f)")))
    assert "LSTM" not in kinds


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("times", [1, 3])
@pytest.mark.parametrize("outputs", ["last", "every", "both", "first"])
def test_unrolled_layers_become_one_node(cell: str, times: int, outputs: str) -> None:
    kinds = proved_node_types(model(Keras(cell), times, outputs=outputs))
    assert kinds[0] == cell.partition("-")[0]
    assert not {"Gemm", "MatMul", "Sigmoid"} & {*kinds}


def test_sequences_with_batch_first_become_lstm() -> None:
    assert proved_node_types(model(Keras(), axis=1)) == ["Transpose", "LSTM"]
    assert proved_node_types(model(Keras(), 1, axis=1))[-1] == "LSTM"
    assert proved_node_types(model(Keras(), axis=-3)) == ["LSTM"]


@pytest.mark.parametrize(
    "form", [*map(Keras, CELLS), Keras("RNN"), Keras(squash="RELU", ending="RELU")], ids=str
)
@pytest.mark.parametrize("layers", [1, 2])
def test_layers_of_a_dynamic_batch_become_nodes(form: Keras, layers: int) -> None:
    """Keras computes the states of 0 from the batch; those of an LSTM are one tensor."""
    m = Build()
    x = m.input([None, 4, FEATURES])
    batch = Keras.size_of(m, x, 0)
    (shape,) = m.op("PACK", [batch, number(m, UNITS)], [[2]], axis=0, values_count=2)
    zero = m.constant(np.array(0, np.float32))
    (zeros,) = m.op("FILL", [shape, zero], [m.tensor([None, UNITS])])
    (turned,) = m.op("TRANSPOSE", [x, m.constant([1, 0, 2])], [m.tensor([4, None, FEATURES])])
    items = take_items(m, turned, 0, 4)
    for _ in range(layers):
        after = unroll(m, form, items, [zeros] * form.states)
        items = [step[0] for step in after]
    m.output(*after[-1])
    for samples in (1, 3):
        data = np.random.default_rng(samples).uniform(-1, 1, (samples, 4, FEATURES))
        kinds = proved_node_types(m.bytes(), inputs=[data.astype(np.float32)], declared=False)
        assert kinds == ["Transpose", *[form.cell.partition("-")[0]] * layers]


@pytest.mark.parametrize("form", [Keras(int8=True), Keras("GRU", int8=True, rows=True)], ids=str)
def test_single_step_with_integer_weights_stays(form: Keras) -> None:
    """The products of a single step are faster than a recurrent node."""
    data = model(form)
    result: Any = check(data, tolerance=0.02, ranges={"float32": (-1, 1)})
    assert form.cell in {node.op_type for node in result.model.graph.node}
    graph = read_model(model(form, 1)).graphs[0]
    check_unchanged(raise_recurrent_steps, graph)


def test_single_step_of_a_large_batch_stays() -> None:
    """The products of a single step are faster than a recurrent node."""
    graph = read_model(model(Keras("GRU"), 1, batch=9)).graphs[0]
    check_unchanged(raise_recurrent_steps, graph)
    assert "GRU" in proved_node_types(model(Keras("GRU"), 2, batch=9))


def test_two_stacked_layers_become_two_nodes() -> None:
    """The second layer reads the states of the first; the operators of both are mixed."""
    m = Build()
    form = Keras(batch=1)
    first, second = make_states(m, form, 1), make_states(m, form, 1)
    for item in take_items(m, m.input([4, 1, FEATURES]), 0, 4):
        first = Cell(form, m).step(item, first[0], first[1:])
        second = Cell(form, m).step(first[0], second[0], second[1:])
    m.output(*second)
    assert [kind for kind in proved_node_types(m.bytes()) if kind == "LSTM"] == ["LSTM", "LSTM"]


def test_steps_of_a_decoder_become_single_nodes() -> None:
    """Each step but the first reads the result of the step before as its item."""
    m = Build()
    form = Keras(batch=1)
    states, item = make_states(m, form, 1), m.input([1, FEATURES])
    for _ in range(3):
        states = Cell(form, m).step(item, states[0], states[1:])
        weights = m.constant(np.ones((FEATURES, UNITS), np.float32))
        (item,) = m.op("FULLY_CONNECTED", [states[0], weights, None], [[1, FEATURES]])
        (item,) = m.op("RELU", [item], [[1, FEATURES]])
    m.output(item)
    kinds = proved_node_types(m.bytes())
    assert [kind for kind in kinds if kind != "Relu"] == ["LSTM", "Gemm"] * 3


def test_steps_with_different_parameters_become_two_nodes() -> None:
    """The second step is a layer of its own."""
    m = Build()
    forms = Keras(batch=1), Keras(batch=1, added_biases=True)
    states = make_states(m, forms[0], 1)
    for form in forms:
        states = Cell(form, m).step(m.input([1, FEATURES]), states[0], states[1:])
    m.output(*states)
    assert proved_node_types(m.bytes()) == ["LSTM", "LSTM"]


@pytest.mark.parametrize(
    "form",
    [
        Keras(gates="hard", joined=True),
        Keras(gates="hard", squash="", ending=""),
        Keras("GRU", gates="hard", squash="RELU"),
        Keras("GRU-before", gates="hard", squash=""),
        Keras("GRU", other=True),
        Keras(peepholes=True),
    ],
    ids=str,
)
def test_cells_with_other_activations_become_one_node(form: Keras) -> None:
    types = proved_node_types(model(form))
    assert types.count(form.cell.partition("-")[0]) == 1


def test_last_sum_of_a_layer_may_apply_its_function() -> None:
    """TFLite's converter fuses RELU with the last c, which only h reads; it has no tensor then."""
    m = Build()
    form = Keras(squash="RELU", ending="RELU")
    items = take_items(m, m.input([3, BATCH, FEATURES]), 0, 3)
    h, *others = unroll(m, form, items[:2], make_states(m, form))[-1]
    last = Cell(replace(form, ending="", fused=True), m).step(items[2], h, others)
    m.output(last[0])
    assert proved_node_types(m.bytes()) == ["LSTM"]


@pytest.mark.parametrize("form", [Keras(squash="ABS"), Keras(activation="RELU")], ids=str)
def test_cells_with_unknown_functions_stay_unchanged(form: Keras) -> None:
    graph = read_model(model(form)).graphs[0]
    check_unchanged(raise_recurrent_steps, graph)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("LOGISTIC(%11)", "TANH(%11)"),
        ("TANH(%15)", "ABS(%15)"),
        ("SUB(1.0, %10)", "SUB(2.0, %10)"),
        ("SUB(1.0, %10)", "SUB(1.0, %12)"),
        ("MUL(%10, %1)", "MUL(%12, %1)"),
        ("MUL(%12, %1)", "MUL(%12, %3)"),
        ("MUL(%12, %1)", "ADD(%12, %1)"),
        ("FULLY_CONNECTED(%13, float32[11,11], none)", "MUL(%13, float32[11])"),
        ("FULLY_CONNECTED(%1, float32[22,11], float32[22])", "TILE(%1, [1, 2])"),
    ],
)  # fmt: skip
def test_edited_step_stays(old: str, new: str) -> None:
    """The operators are a GRU, but no longer after any of these edits."""
    assert [op.code for op in raise_recurrent_steps(read_graph(make_model(STEP))).ops].count(
        "GRU"
    ) == 1
    assert old in STEP
    check_unchanged(raise_recurrent_steps, read_graph(make_model(STEP.replace(old, new))))

"""passes/recurrent/raise_recurrent_loops.py: loops become recurrent nodes, or stay loops."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto

from tests.support import Build, check, random_inputs
from tests.support.keras import BATCH, FEATURES, TIMES, UNITS, Keras
from tflite2onnx import convert
from tflite2onnx.op.recurrent import lstm_cell
from tflite2onnx.passes.recurrent.formulas import (
    Affine,
    Applied,
    Atom,
    FormulaMatcher,
    Formulas,
    Rows,
)
from tflite2onnx.reader.model import read_model


def checked_node_types(form: Keras) -> set[str]:
    """Compare a model with LiteRT; return the types of its nodes."""
    result: Any = check(form.model().bytes(), ranges={"float32": (-1, 1)}, random_layouts=[0])
    return {node.op_type for node in result.model.graph.node} - {"Reshape", "Squeeze", "Identity"}


@pytest.mark.parametrize(
    "form",
    [
        Keras(),
        Keras(matmul=True),
        Keras(added_biases=True),
        Keras(last=True),
        Keras(batch=1),
        Keras(batch=None),  # the list has room for one sample
        Keras(times=1),
        Keras(ranked=True),
        Keras(batch=1, matmul=True, last=True),
        Keras(times=1, last=True),
        Keras(squash="RELU", ending="RELU"),
        Keras("GRU"),
        Keras("GRU", matmul=True),
        Keras("GRU", last=True),
        Keras("GRU", batch=1),
        Keras("GRU", ranked=True),
        Keras("GRU-before"),
        Keras("GRU-before", last=True),
        Keras("RNN"),
        Keras("RNN", times=1),
        Keras("RNN", squash="RELU"),
        Keras("RNN", squash="LOGISTIC"),
        Keras("RNN", squash="hard", dropout=True),
        Keras("RNN", squash="", activation="RELU"),
        Keras("RNN", joined=True),
        Keras(squash="RELU"),
        Keras(gates="hard", squash="", ending="", dropout=True),
        Keras(gates="hard", squash="ELU", ending="ELU", batch=None),
        Keras(gates="TANH", squash="LOGISTIC"),
        Keras(joined=True),
        Keras(peepholes=True),
        Keras(peepholes=True, gates="hard", batch=None),
        Keras("GRU", gates="hard"),
        Keras("GRU", other=True),
        Keras("GRU-before", other=True),
        Keras("GRU", squash="LOGISTIC", dropout=True),
        Keras("GRU-before", gates="hard", squash="", batch=None, dropout=True),
        Keras("GRU-before", gates="RELU", squash="ELU"),
        Keras("GRU-before", joined=True),
        Keras("GRU-before", gates="hard", joined=True, last=True),
    ],
    ids=str,
)
def test_a_recurrent_layer_is_one_node(form: Keras) -> None:
    assert checked_node_types(form) == {form.cell.partition("-")[0]}


PROJECTED = Keras(projected=True, zeroed=True)


@pytest.mark.parametrize(
    "form",
    [
        PROJECTED,
        replace(PROJECTED, joined=True, batch=1),
        replace(PROJECTED, peepholes=True, dynamic=True),
        replace(PROJECTED, gates="hard", last=True),
    ],
    ids=str,
)
def test_a_projection_is_a_product_after_the_layer(form: Keras) -> None:
    types = checked_node_types(form)
    assert {"LSTM", "MatMul"} <= types
    assert types.isdisjoint({"Loop", "Scan"})


def test_unknown_states_and_large_projections_stay_scans(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first state is not known, or the product of both matrices is too large."""
    assert "Scan" in checked_node_types(replace(PROJECTED, zeroed=False))
    monkeypatch.setattr(lstm_cell, "_STEP", -1000)
    assert "Scan" in checked_node_types(PROJECTED)


@pytest.mark.parametrize(
    "form", [Keras(layers=2), Keras("GRU", layers=2, last=True), Keras("RNN", layers=2)], ids=str
)
def test_two_layers_in_one_loop_become_two_nodes(form: Keras) -> None:
    result: Any = check(form.model().bytes(), ranges={"float32": (-1, 1)}, random_layouts=[0])
    assert [n.op_type for n in result.model.graph.node].count(form.cell) == 2


@pytest.mark.parametrize(
    "form",
    [
        Keras(more=1),
        Keras(first=1),
        Keras(step=2),
        Keras(squash="ABS"),
        Keras(gates="ABS"),
        Keras(extra=True),
        Keras(activation="RELU"),
        Keras(axis=1, batch=TIMES),
        Keras(stale=True),
        Keras(bounded=True),
        Keras("GRU", one=2),
        Keras("GRU", squash="ABS"),
        Keras("GRU", extra=True),
        Keras("GRU-before", one=0.5),
        Keras("RNN", squash="ABS"),
        Keras("RNN", squash=""),
        Keras("RNN", more=2),
        Keras("RNN", activation="RELU6"),
        Keras("RNN", squash="", activation="TANH"),
        Keras("RNN", stale=True),
    ],
    ids=str,
)
def test_loops_that_differ_from_layers_stay_loops(form: Keras) -> None:
    assert "Loop" in checked_node_types(form)


@pytest.mark.parametrize(
    "form",
    [Keras(c, last=last) for c in ("LSTM", "GRU", "GRU-before", "RNN") for last in (False, True)],
    ids=str,
)
def test_dynamic_sequence_length_stays_dynamic(form: Keras) -> None:
    """A dynamic sequence length stays dynamic."""
    data = replace(form, dynamic=True).model().bytes()
    given = random_inputs(data, 0, float32=(-1, 1))
    for times in (1, 2, 13):
        sequence = np.random.default_rng(times).uniform(-1, 1, (times, BATCH, FEATURES))
        given[-1] = sequence.astype(np.float32)
        result: Any = check(data, inputs=given, random_layouts=[])
        assert result.inputs[-1].symbols
        assert form.cell.partition("-")[0] in {node.op_type for node in result.model.graph.node}


@pytest.mark.parametrize(
    "form",
    [
        Keras(dynamic=True, limit="sum"),
        Keras(dynamic=True, limit="batch", batch=1),
        Keras(dynamic=True, first=1, last=True),
    ],
    ids=str,
)
def test_loops_with_computed_limits_stay_loops(form: Keras) -> None:
    assert "Loop" in {n.op_type for n in convert(form.model().bytes()).model.graph.node}


def node_types(form: Keras) -> set[str]:
    """Compare a model with LiteRT, with several masks; return the types of its nodes."""
    data = form.model().bytes()
    given = random_inputs(data, 0, float32=(-1, 1))
    masks = np.random.default_rng(0).random((3, *given[-1].shape)) < 0.5
    for mask in (*masks, np.zeros_like(masks[0]), np.ones_like(masks[0])):
        result: Any = check(data, inputs=[*given[:-1], mask], random_layouts=[])
    return {node.op_type for node in result.model.graph.node}


@pytest.mark.parametrize(
    "form",
    [
        *(Keras(cell, mask="kept") for cell in ("LSTM", "GRU", "GRU-before", "RNN")),
        Keras(mask="zero"),
        Keras(mask="state", batch=1),
        Keras("GRU", mask="zero", tiled=True),
        Keras("GRU", mask="state", last=True),
        Keras("GRU", mask="kept", last=True, tiled=True),
        Keras(mask="kept", times=1),
    ],
    ids=str,
)
def test_a_layer_with_a_mask_reads_the_unmasked_items(form: Keras) -> None:
    # LiteRT reads the first values of states from inputs: those of what was kept are 0.
    made = replace(form, zeroed=form.mask == "kept")
    types = node_types(made)
    assert form.cell.partition("-")[0] in types
    assert "Loop" not in types


@pytest.mark.parametrize(
    "form",
    [
        Keras(mask="kept"),  # the first states are not what was kept
        Keras(mask="kept", zeroed=True, start=1),
        Keras("GRU", mask="zero", unmasked=1),
        Keras(mask="zero", unmasked=1),
        Keras(mask="zero", returned=True),
        Keras(mask="zero", first=1),
        Keras("GRU", mask="zero", squash="ABS"),
    ],
    ids=str,
)
def test_masked_loops_that_differ_from_layers_stay_loops(form: Keras) -> None:
    assert "Loop" in node_types(form)


@pytest.mark.parametrize("rows", [False, True])
@pytest.mark.parametrize("cell", ["LSTM", "GRU", "GRU-before", "RNN"])
def test_integer_weights_stay_integers(cell: str, *, rows: bool) -> None:
    """Integer weights stay integers."""
    data = Keras(cell, int8=True, rows=rows).model().bytes()
    result: Any = check(data, tolerance=0.02, ranges={"float32": (-1, 1)})
    assert cell.partition("-")[0] in {node.op_type for node in result.model.graph.node}
    constants = result.model.graph.initializer
    matrices = [i for i in constants if len(i.dims) == 3 and i.dims[-1] in (FEATURES, UNITS)]
    assert {i.data_type for i in matrices} == {TensorProto.INT8}


def test_large_layers_of_dynamic_range_become_lstm() -> None:
    """A layer is not computed in a Loop, which takes many times as long as LSTM."""
    data = Keras(int8=True, batch=2400, times=2).model().bytes()
    result: Any = check(data, tolerance=0.02, ranges={"float32": (-1, 1)}, random_layouts=[])
    assert "LSTM" in {node.op_type for node in result.model.graph.node}


# Formulas


def formulas(m: Build) -> tuple[Formulas, list[Any]]:
    """Return the formulas of a graph, and those of its outputs."""
    graph = read_model(m.bytes()).graphs[0]
    found = Formulas(graph.ops)
    return found, [found.find_formula(t) for t in graph.outputs]


def test_sums_of_products_are_split_by_columns_and_rows() -> None:
    m = Build()
    x = m.input([2, 3])
    matrix = np.arange(18, dtype=np.float32).reshape(6, 3)
    (y,) = m.op("FULLY_CONNECTED", [x, m.constant(matrix), None], [[2, 6]])
    (reshaped,) = m.op("RESHAPE", [y, m.constant([2, 3, 2])], [[2, 3, 2]])
    m.output(
        *m.op("SLICE", [y, m.constant([0, 2]), m.constant([2, 3])], [[2, 3]]),
        *m.op("SLICE", [reshaped, m.constant([0, 1, 0]), m.constant([2, 1, 2])], [[2, 1, 2]]),
        *m.op("SLICE", [y, m.constant([1, 0]), m.constant([1, 6])], [[1, 6]]),
        reshaped,
    )
    _, (columns, middle, row, same) = formulas(m)
    wanted = ([2, 3, 4], [2, 3], range(6), range(6))
    for made, rows in zip((columns, middle, same, row), wanted, strict=True):
        assert isinstance(made, Affine)
        assert [m.values.tolist() for m in made.products.values()] == [matrix[list(rows)].tolist()]
    (source,) = row.products
    assert isinstance(source, Rows)
    assert source.indices.tolist() == [1]


def test_a_constant_for_each_row_is_no_bias() -> None:
    m = Build()
    weights = m.constant(np.eye(3, dtype=np.float32))
    (y,) = m.op("FULLY_CONNECTED", [m.input([3, 3]), weights, None], [[3, 3]])
    bias = np.arange(3, dtype=np.float32)
    forms = bias, bias[None], bias[:, None]
    m.output(*(m.op("ADD", [y, m.constant(form)], [[3, 3]])[0] for form in forms))
    _, made = formulas(m)
    assert [isinstance(each, Affine) for each in made] == [True, True, False]


def test_a_name_of_a_pattern_matches_one_formula() -> None:
    a, b = (Atom(read_model(Keras().model().bytes()).graphs[0].inputs[i]) for i in range(2))
    both = Applied("MUL", (a, b))
    assert len(list(FormulaMatcher().match(("MUL", "p", "q"), both, {}))) == 2
    assert list(FormulaMatcher().match(("MUL", "p", "q"), both, {"q": a})) == [{"p": b, "q": a}]
    assert not list(FormulaMatcher().match(("MUL", "p", "p"), both, {}))
    assert not list(FormulaMatcher().match(("ADD", "p", "q"), both, {}))
    assert not list(FormulaMatcher().match(("MUL", "p", "q", "r"), both, {}))


def test_unsupported_products_stay_atoms_of_a_formula() -> None:
    """The products have a computed bias, rank 3, and transposed data."""
    m = Build()
    x, b = m.input([2, 3]), m.input([3])
    w = m.constant(np.ones((3, 3), np.float32))
    deep = m.constant(np.ones((1, 3, 3), np.float32))
    high, turned = m.input([1, 2, 3]), m.input([3, 2])
    m.output(
        *m.op("FULLY_CONNECTED", [x, w, b], [[2, 3]]),
        *m.op("BATCH_MATMUL", [high, deep], [[1, 2, 3]]),
        *m.op("BATCH_MATMUL", [turned, w], [[2, 3]], adj_x=True),
    )
    _, found = formulas(m)
    assert all(isinstance(each, Atom) for each in found)


def test_cast_to_its_own_type_is_ignored() -> None:
    m = Build()
    (same,) = m.op("CAST", [m.input([2, 3])], [[2, 3]])
    (tanh,) = m.op("TANH", [same], [[2, 3]])
    (again,) = m.op("CAST", [tanh], [[2, 3]])
    (whole,) = m.op("CAST", [again], [[2, 3]], dtype="int32")
    m.output(again, whole)
    graph = read_model(m.bytes()).graphs[0]
    known = Formulas(graph.ops)
    found = [known.find_formula(t) for t in graph.outputs]
    assert [type(each) for each in found] == [Applied, Atom]

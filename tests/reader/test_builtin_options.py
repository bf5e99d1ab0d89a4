"""Missing options tables, and tables of other operators: all fields are 0, as for kernels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tests.support import Build, check, pack
from tests.support.facts import OPERATORS, OPTIONS
from tflite2onnx.reader.model import read_model

if TYPE_CHECKING:
    from collections.abc import Mapping

ROWS: dict[str, dict[str, Any]] = {
    "ADD": {"fused_activation_function": "RELU6"},
    "GATHER": {"axis": 1},
    "LEAKY_RELU": {"alpha": 0.5},
    "LOCAL_RESPONSE_NORMALIZATION": {"radius": 1, "bias": 1, "alpha": 1, "beta": 1},
    "CUMSUM": {"exclusive": True, "reverse": True},
    "RESHAPE": {"new_shape": [3, 2]},
    "SOFTMAX": {"beta": 2.0},
    "SUM": {"keep_dims": True},
}


def build(code: str, options: Mapping[str, Any]) -> Build:
    """Return an operator with all options 0."""
    m = Build()
    shape = [1, 2, 3, 2] if code == "LOCAL_RESPONSE_NORMALIZATION" else [2, 3]
    x = m.input(shape)
    made = {"SUM": [2], "GATHER": [1, 3]}.get(code, shape)
    more = {
        "ADD": [x],
        "GATHER": [m.constant(np.array([1], np.int32))],
        "CUMSUM": [m.constant(np.array(1, np.int32))],
        "SUM": [m.constant(np.array([1], np.int32))],
        "RESHAPE": [m.constant(np.array(shape, np.int32))],
    }.get(code, [])
    m.output(*m.op(code, [x, *more], [made], **options))
    return m


@pytest.mark.parametrize("code", ROWS)
def test_operators_without_table_equal_litert(code: str) -> None:
    m = build(code, ROWS[code])
    operator = m.model().subgraphs[0].operators[0]
    operator.builtinOptions, operator.builtinOptionsType = None, 0
    check(pack(m.model()))


@pytest.mark.parametrize("code", ROWS)
def test_table_of_another_operator_is_ignored(code: str) -> None:
    """The options table of another operator is ignored."""
    m = build(code, {})
    other = "SOFTMAX" if code == "ADD" else "ADD"
    ours, theirs = (b.model().subgraphs[0].operators[0] for b in (m, build(other, ROWS[other])))
    ours.builtinOptionsType, ours.builtinOptions = theirs.builtinOptionsType, theirs.builtinOptions
    check(pack(m.model()))


def test_a_missing_table_has_all_fields() -> None:
    """A missing table has all fields of the schema, as 0 of their types."""
    for code in OPERATORS.keys() - {"CUSTOM"}:
        check_missing_table(code)


def check_missing_table(code: str) -> None:
    """Compare the options of an operator without a table with those of a whole table."""
    m = Build()
    m.op(code, [m.input([2])] * 5, [[2]])
    model = m.model()
    whole = read_model(pack(model)).graphs[0].ops[0].options
    assert bool(whole) == (len(whole) > 0)
    operator = model.subgraphs[0].operators[0]
    for union in ("", "2"):
        setattr(operator, f"builtinOptions{union}", None)
        setattr(operator, f"builtinOptions{union}Type", 0)
    cleared = read_model(pack(model)).graphs[0].ops[0].options
    assert cleared.keys() == whole.keys(), code
    assert (len(whole) > 0) <= (code in OPTIONS), code
    for name, value in cleared.items():
        unknown = name in ("padding", "mode") and code[:9] != "STABLEHLO"
        assert type(value) is (int if unknown else type(whole[name])), (code, name)
        assert not isinstance(value, int | float) or value == 0, (code, name)

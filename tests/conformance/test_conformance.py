"""A sample of the matrix of `tests.conformance`; python -m tests.conformance runs all cases.

The seed of the run (`tests.support.levels`) draws operators, and the cases of each operator. Their
results and differences must agree with the table.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema

from tests.conformance import __main__, operator_table, record
from tests.conformance.judge import FAULTY, LACKING, REFUSED, RUN, Verdict, judge_case
from tests.conformance.matrix import Outcome, sample
from tests.conformance.rows import ROWS
from tests.conformance.rows.missing import ELSEWHERE, NO_KERNEL
from tests.conformance.spellings import SPELLINGS, Spelling
from tests.conformance.table import Case, Row
from tests.support import Build, run_tflite
from tests.support.facts import OPERATORS as TFLITE
from tests.support.levels import find_seed
from tflite2onnx.contrib.flex.rules import RULES
from tflite2onnx.op import OPERATORS, find_operator, supported_operators
from tflite2onnx.reader.model import read_model

# The number of cases of each operator, in both levels.
COUNT = 3
# Operators whose int16 kernels interpolate tables, with an error that follows from the scales.
INTERPOLATED = ("EXP", "GELU", "LOG", "RSQRT")
ROOT = Path(__file__).parents[2]


@pytest.mark.nightly(cases=64)
@pytest.mark.parametrize("code", ROWS)
def test_sampled_cases_have_the_results_of_the_table(code: str) -> None:
    """Some cases of each operator have the results of the table."""
    verdicts = sample(ROWS[code], find_seed(), COUNT)
    faults = [f"{v.name}: {v.text}" for v in verdicts if v.state not in {RUN, LACKING}]
    repeat = f"repeat them with python -m tests.conformance {code}"
    assert not faults, "\n".join([*faults, repeat])
    lacking = [v.text for v in verdicts if v.state == LACKING]
    if lacking:
        pytest.skip(lacking[0])


def test_every_operator_has_a_row_or_other_tests() -> None:
    """Each operator has a row, or is listed as covered by other tests."""
    runtime = TFLITE.keys() - NO_KERNEL
    assert len(runtime) == 172
    assert runtime <= OPERATORS.keys()
    converted = {*supported_operators()} | {f"Flex{name}" for name in RULES}
    assert converted == ROWS.keys() | ELSEWHERE.keys()
    assert not ROWS.keys() & ELSEWHERE.keys()
    assert all((ROOT / place.partition(":")[0]).exists() for place in ELSEWHERE.values())


def test_references_are_used_only_without_a_litert_kernel() -> None:
    """An operator with a LiteRT kernel is compared with the kernel."""
    for code in TFLITE.keys() - NO_KERNEL:
        assert code in ELSEWHERE or not ROWS[code].referred
    for code in ROWS.keys() - TFLITE.keys():
        m = Build()
        m.input([1])
        m.output(*m.custom(code, [], [[1]]))  # a kernel without inputs fails in Prepare
        with pytest.raises((ValueError, RuntimeError)) as error:
            run_tflite(m.bytes(), [np.zeros(1, np.float32)])
        unknown = re.search("unresolved custom op|Select TensorFlow op", str(error.value))
        assert bool(unknown) == ROWS[code].referred, code


@pytest.mark.parametrize("code", sorted(NO_KERNEL - {"CUSTOM"}))
def test_litert_refuses_operators_without_a_kernel(code: str) -> None:
    """LiteRT rejects files that list these codes, so it has no kernels for them."""
    m = Build()
    m.output(m.input([1]))
    number = TFLITE[code]
    m.model().operatorCodes = [schema.OperatorCodeT(min(number, 127), None, 1, number)]
    with pytest.raises((ValueError, RuntimeError)):
        run_tflite(m.bytes(), [np.zeros(1, np.float32)])


def test_cases_have_the_same_numbers_in_each_run() -> None:
    """A case has the same random numbers in each run, so that its name reproduces it."""
    one, other = (list(ROWS["ADD"].cases()) for _ in range(2))
    assert [case.name for case in one] == [case.name for case in other]
    assert len({case.name for case in one}) == len(one)
    (data, inputs, _), (same, equal, _) = one[0].build(), other[0].build()
    assert data == same
    for a, b in zip(*inputs, *equal, strict=True):
        np.testing.assert_array_equal(a, b)


def test_cases_have_every_choice_and_every_pair() -> None:
    """The first kind has every pair of choices, other kinds have every choice."""
    row = ROWS["ADD"]
    for kind in row.kinds:
        mine = [case.choice for case in row.cases() if case.kind == kind]
        for key, values in row.grid.items():
            assert {repr(choice[key]) for choice in mine} == set(map(repr, values))
    first = [case.choice for case in row.cases() if case.kind == row.kinds[0]]
    pairs = {(c["pair"], c["fused_activation_function"]) for c in first}
    assert len(pairs) == len(row.grid["pair"]) * len(row.grid["fused_activation_function"])


@pytest.mark.parametrize("code", [code for code in ROWS if code in OPERATORS])
def test_verify_allows_the_same_steps(code: str) -> None:
    """The bounds of this table equal the bounds that `verify` uses for operator classes."""
    cases = {case.kind: case for case in reversed([*ROWS[code].cases()])}
    for kind, case in cases.items():
        if "quantized" not in kind and " by " not in kind:
            continue
        ops = read_model(case.build().data).graphs[0].ops
        for op in [op for op in ops if op.code == code and op.outputs][:1]:
            if code in INTERPOLATED and kind == "quantized int16":
                assert find_operator(op).allowed_steps > 1
            elif not op.outputs[0].dtype.is_float:
                assert find_operator(op).allowed_steps == ROWS[code].bound(kind).steps, kind


def judge_first_case(row: Row) -> Verdict:
    """Return the verdict on the first case of a row."""
    return judge_case(next(iter(row.cases())))


def test_judge_reports_refused_and_faulty_cases() -> None:
    """The judge refuses a model that LiteRT does not run, and a difference above the bound."""
    add = ROWS["ADD"]
    assert judge_case(Case(add, "string", {**next(add.cases()).choice})).state == REFUSED
    exact = Row("COS", ROWS["COS"].build, ["float32"], {"rank": [4]}, exact=True)
    verdict = judge_first_case(exact)
    assert verdict.state == FAULTY
    assert "optimize=True: output 0 is" in verdict.text
    assert 0 < verdict.part < 1e-5


def test_kinds_must_be_listed_as_converted_or_have_a_reason() -> None:
    """A type that LiteRT runs must be listed as converted, or have a reason."""
    row = Row("ADD", ROWS["ADD"].build, ["int32"], without={"float32": "say so"})
    run, refused = (Verdict("ADD x", state) for state in (RUN, REFUSED))
    assert record.faults([Outcome(row, "int32", False, [run])]) == []
    assert record.faults([Outcome(row, "float32", True, [run])]) == []
    assert record.faults([Outcome(row, "bool", True, [refused])]) == []
    assert "add it to its kinds" in record.faults([Outcome(row, "bool", True, [run])])[0]
    assert "refused" in record.faults([Outcome(row, "int32", False, [refused])])[0]


def test_faults_keep_the_record(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A run writes the record of its operators only if all results agree with the table."""
    monkeypatch.setattr(record, "FILE", tmp_path / "record.json")
    monkeypatch.setattr(operator_table, "TARGET", tmp_path / "operators.md")
    for state, status in ((FAULTY, 1), (RUN, 0)):
        made = Outcome(ROWS["ADD"], "int32", False, [Verdict("a", RUN), Verdict("b", state)])
        monkeypatch.setattr(__main__, "run_all", lambda _, made=made: [made])
        assert __main__.main(["ADD"]) == status
        assert len([*tmp_path.iterdir()]) == (2 if state == RUN else 0)


def test_record_has_exactly_the_kinds_of_the_table() -> None:
    """The record has each kind of each operator of the table, and no further kinds."""
    known = record.read_record()
    assert {code: list(entry.kinds) for code, entry in known.items()} == {
        code: list(row.kinds) for code, row in sorted(ROWS.items())
    }
    for code, entry in known.items():
        for kind, found in entry.kinds.items():
            bound = ROWS[code].bound(kind)
            assert found.part <= 2 * bound.part
            assert found.steps <= bound.steps


@pytest.mark.parametrize("spelling", SPELLINGS, ids=lambda each: f"{each.exporter} {each.written}")
def test_spellings_of_exporters_name_rows_and_tests(spelling: Spelling) -> None:
    assert set(spelling.operators) <= ROWS.keys()
    assert (Path(__file__).parents[1] / spelling.test).is_file()

"""The project's own models: text, cost and numerical results of their ONNX graphs.

The second part tests the helpers: the text of a graph, distances, budgets, processes.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.golden import records
from tests.golden.__main__ import main
from tests.golden.closeness import ConvertedModel, Distance, compare_with_litert
from tests.golden.dump import dump
from tests.golden.hold import UPDATE, check_budget, check_numbers, compare_text, hold_exactness
from tests.golden.isolated import Crashed, run_isolated
from tests.golden.kernels import count_real_kernels, integer, kernels, runtime
from tests.golden.records import ASSETS, ZOO, Case, Record, Records, assets
from tests.support import Build
from tests.support.runtimes import Array
from tflite2onnx import convert

RECORDS = Records.load()
# All models are compared in both levels: a change of a graph is reviewed in its commit.
pytestmark = pytest.mark.nightly(cases=100)
MODELS = pytest.mark.parametrize("case", [pytest.param(case, id=case.name) for case in assets()])


@MODELS
def test_graph_equals_the_recorded_text(case: Case) -> None:
    compare_text(case)


@MODELS
def test_cost_stays_within_the_budget(case: Case) -> None:
    check_budget(case, RECORDS)


@MODELS
def test_no_integer_product_may_saturate(case: Case) -> None:
    hold_exactness(case)


@MODELS
def test_recorded_models_equal_litert(case: Case) -> None:
    check_numbers(case)


# The text of a graph


def model_of(nodes: list[onnx.NodeProto], *initializers: onnx.TensorProto) -> onnx.ModelProto:
    """Return a model with these nodes, the input x and the output y."""
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, "n"])
    graph = helper.make_graph(nodes, "main", [x], [y], list(initializers))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_text_shows_nodes_and_small_constants() -> None:
    large = np.arange(12, dtype=np.float32).reshape(3, 4)
    constants: dict[str, Array] = {
        "weight": large,
        "_7": large.astype(np.int8),
        "shape": np.array([2, -1]),
        "one": np.array(0.1, np.float32),
    }
    nodes = [
        helper.make_node("Gemm", ["x", "weight", "one"], ["odd\nname"], alpha=0.2, transB=0),
        helper.make_node("Clip", ["odd\nname", "", "one"], ["clipped"]),
        helper.make_node("Sum", ["clipped", "_7"], ["sum"]),
        helper.make_node("Reshape", ["sum", "shape"], ["y"], domain="other", axes=[1, 2], s="t"),
    ]
    arrays = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    assert dump(model_of(nodes, *arrays)).splitlines() == [
        "opset 17, IR 8",
        "",
        "main",
        "input x float[2,3]",
        "output y float[2,n]",
        "constant weight float[3,4] 29e1889124dc",
        r"'odd\nname' ? = Gemm(x, weight, float{0.1}; alpha=0.2, transB=0)",
        r"clipped ? = Clip('odd\nname', -, float{0.1})",
        "sum ? = Sum(clipped, int8[3,4] fff3a9bcdd37)",
        "y float[2,n] = other.Reshape(sum, int64[2]{2, -1}; axes=[1, 2], s=t)",
    ]


def test_text_shows_subgraphs_indented() -> None:
    inner = helper.make_tensor_value_info("z", TensorProto.FLOAT, [2, 3])
    then = helper.make_graph([helper.make_node("Neg", ["x"], ["z"])], "then", [], [inner])
    other = helper.make_graph([helper.make_node("Abs", ["x"], ["z"])], "else", [], [inner])
    condition = numpy_helper.from_array(np.array(1, np.bool_), "condition")
    node = helper.make_node("If", ["condition"], ["y"], then_branch=then, else_branch=other)
    assert dump(model_of([node], condition)).splitlines()[5:] == [
        "y float[2,n] = If(bool{True})",
        "  else_branch:",
        "",
        "    else",
        "    output z float[2,3]",
        "    z float[2,3] = Abs(x)",
        "  then_branch:",
        "",
        "    then",
        "    output z float[2,3]",
        "    z float[2,3] = Neg(x)",
    ]


# Numbers


@pytest.mark.parametrize(
    ("want", "have", "largest", "relative"),
    [
        ([1.0, -4.0], [1.0, -4.0], 0, 0),
        ([1.0, -4.0], [1.0, -3.0], 1, 0.25),
        ([np.nan, np.inf, -np.inf, 2], [np.nan, np.inf, -np.inf, 2], 0, 0),
        ([1.0, 2.0], [np.nan, 2.0], np.inf, np.inf),
        ([np.inf, 2.0], [-np.inf, 2.0], np.inf, np.inf),
        ([1e30, 2.0], [3e30, 2.0], 2e30, 2),
        ([1 + 1j, 0], [1 - 1j, 0], 2, 2**0.5),
        ([], [], 0, 0),
    ],
)
def test_distance_is_the_largest_and_the_relative_difference(
    want: list[float], have: list[float], largest: float, relative: float
) -> None:
    distance = Distance.measure(np.array(want), np.array(have))
    assert (distance.largest, distance.relative) == pytest.approx((largest, relative))


def test_distance_in_decibels_is_at_most_200() -> None:
    want = np.full(100, 10.0)
    have = want.copy()
    have[0] = 11
    assert Distance.measure(want, have).decibels == pytest.approx(40)
    assert Distance.measure(want, want).decibels == 200


def tiny(factor: float) -> bytes:
    """Return a model that multiplies its input by a factor."""
    m = Build()
    x = m.input([2, 3])
    (y,) = m.op("MUL", [x, m.constant(np.full((3,), factor, np.float32))], [[2, 3]])
    m.output(y)
    return m.bytes()


def test_distance_above_the_limit_is_an_error() -> None:
    converted = ConvertedModel.from_result(convert(tiny(2)))
    compare_with_litert(tiny(2), converted)
    compare_with_litert(tiny(2.0001), converted)
    with pytest.raises(AssertionError, match=r"of the range, 40\.\d dB\); LiteRT's kernels differ"):
        compare_with_litert(tiny(2.02), converted)
    with pytest.raises(AssertionError, match="no valid ONNX model"):
        compare_with_litert(tiny(2), replace(converted, model=b""))


def test_integer_and_real_kernels_are_counted() -> None:
    floats, integers = (
        kernels(convert(ASSETS / f"keywords_{kind}.tflite").skeleton.serialize())
        for kind in ("float32", "int8")
    )
    assert integer(floats) == 0 < count_real_kernels(floats)
    assert integer(integers) == 5 > count_real_kernels(integers)
    assert integers["QLinearConv"] + integers.get("Conv", 0) == 2
    assert integer({"QLinearAdd": 2, "MatMulNBits": 3, "DynamicQuantizeLinear": 1, "Conv": 1}) == 5
    assert (
        count_real_kernels(
            {"FusedConv": 2, "Gemm": 3, "QLinearAdd": 7, "Concat": 1, "NhwcMaxPool": 1}
        )
        == 5
    )


def test_isolated_function_returns_raises_or_crashes() -> None:
    assert run_isolated(max, 3, 5) == 5
    with pytest.raises(ValueError, match="invalid literal"):
        run_isolated(int, "five")
    with pytest.raises(Crashed, match="exit code 3"):
        run_isolated(os._exit, 3)


# Budgets

COSTLY = Record("digest", "", 9, 2, 100, {"QLinearConv": 7, "Add": 2, "Pad": 1})
FUSED = {"QLinearConv": 8, "QLinearAdd": 1, "Add": 1, "Pad": 1}
LOST = {"QLinearConv": 6, "Conv": 1, "Add": 2, "Pad": 1}


@pytest.mark.parametrize(
    ("now", "worse", "better"),
    [
        (COSTLY, [], []),
        (replace(COSTLY, nodes=10), ["10 nodes, not 9"], []),
        (replace(COSTLY, transposes=3), ["3 Transposes, not 2"], []),
        (replace(COSTLY, transposes=1), [], ["1 Transposes, not 2"]),
        (
            replace(COSTLY, bytes_moved=101, kernels=FUSED),
            ["101 bytes moved, not 100"],
            ["9 integer kernels, not 7", "1 real kernels, not 2"],
        ),
        (
            replace(COSTLY, kernels=LOST),
            ["6 integer kernels, not 7", "3 real kernels, not 2"],
            [],
        ),
        (
            replace(COSTLY, kernels={**COSTLY.kernels, "Pad": 2}),
            [],
            [f"{ {**COSTLY.kernels, 'Pad': 2} }, not {COSTLY.kernels}"],
        ),
        (Record("digest", "LayoutError"), ["converted before, LayoutError now"], []),
    ],
)
def test_changes_of_cost_are_worse_or_better(
    now: Record, worse: list[str], better: list[str]
) -> None:
    assert COSTLY.changes(now) == (worse, better)


def test_changed_error_is_worse_and_a_lost_error_is_better() -> None:
    error = Record("digest", "LayoutError")
    assert error.changes(error) == ([], [])
    assert error.changes(COSTLY) == ([], ["LayoutError before, converted now"])
    assert error.changes(replace(error, error="OptionError"))[0]


def test_kernels_of_another_runtime_do_not_count() -> None:
    assert COSTLY.changes(replace(COSTLY, kernels={}), fused=False) == ([], [])


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of a project that has one model without a record."""
    monkeypatch.delenv(ZOO, raising=False)
    monkeypatch.setattr(records, "ASSETS", tmp_path)
    monkeypatch.setattr(records, "DATA", tmp_path / "data")
    monkeypatch.setattr(records, "BUDGETS", tmp_path / "budgets.json")
    (tmp_path / "tiny.tflite").write_bytes(tiny(2))
    return tmp_path


def test_update_writes_the_text_and_the_budget(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (case,) = assets()
    with pytest.raises(AssertionError, match="nothing is known of tiny"):
        check_budget(case, Records.load())
    with pytest.raises(AssertionError, match=r"the graph of tiny.tflite has changed"):
        compare_text(case)

    assert main() == 0
    known = Records.load()
    check_budget(case, known)
    compare_text(case)
    check_numbers(case)
    assert known.runtime == runtime()
    written = (project / "budgets.json").read_text()
    assert len([line for line in written.splitlines() if "tiny.tflite" in line]) == 1
    assert capsys.readouterr().out == ""


def test_error_shows_the_changed_text(project: Path) -> None:
    main()
    (case,) = assets()
    (project / "tiny.tflite").write_bytes(tiny(3))
    with pytest.raises(AssertionError, match=UPDATE) as failure:
        compare_text(case)
    assert "float[1,3]{2.0, 2.0, 2.0}" in str(failure.value)
    with pytest.raises(AssertionError, match="nothing is known of tiny"):
        check_budget(case, Records.load())


@pytest.mark.parametrize(("transposes", "status"), [(5, 0), (-1, 1)])
def test_budgets_are_lowered_but_not_raised(
    project: Path, capsys: pytest.CaptureFixture[str], transposes: int, status: int
) -> None:
    main()
    (case,) = assets()
    known = Records.load()
    (record,) = known.collections["assets"].values()
    known.with_records({case: replace(record, transposes=transposes)}).write()
    with pytest.raises(AssertionError, match="may not get worse" if status else "lower its budget"):
        check_budget(case, Records.load())
    assert main() == status
    assert Records.load().collections["assets"]["tiny.tflite"].transposes == min(transposes, 0)
    assert bool(capsys.readouterr().out) == bool(status)
    assert (project / "data" / "assets" / "tiny.txt").exists()

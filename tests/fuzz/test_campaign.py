"""The fuzzer, and a short campaign."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.fuzz.__main__ import main
from tests.fuzz.campaign import Judge, Verdict, name_fault_class, run_cases
from tests.fuzz.cases import FuzzCase, make_case
from tests.fuzz.children import Child, DiedError, Limits
from tests.fuzz.extremes import find_extremes
from tests.fuzz.minimise import minimise
from tests.fuzz.mutate import mutate_container
from tests.fuzz.seeds import SETS, Seed
from tests.support import Build
from tests.support.levels import runs_all
from tests.support.small import chain
from tflite2onnx.errors import OutputError

ROOT = Path(__file__).parents[2]
SECONDS = 1200  # enough for a slow and busy computer


def file_case(data: bytes, **options: Any) -> FuzzCase:
    """Return a case of an undamaged file."""
    return FuzzCase(0, "file", Seed("file", data), data, options)


def test_short_campaign_finds_no_fault(tmp_path: Path) -> None:
    """A campaign with fixed cases finds no fault of the converter.

    Differences from LiteRT are no failure: LiteRT's results for a damaged file may depend on the
    contents of memory.
    """
    cases = 2400 if runs_all() else 200
    command = [sys.executable, "-m", "tests.fuzz", "--seed", "ci", "--cases", str(cases)]
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    subprocess.run(
        [*command, "--folder", str(tmp_path)],
        cwd=ROOT,
        env=environment,
        timeout=SECONDS,
        check=False,
        stdout=subprocess.DEVNULL,
    )
    (path,) = tmp_path.glob("*/record.json")
    record = json.loads(path.read_text())
    assert record["cases"] == cases
    assert any(name.endswith("same numbers") for name in record["counts"])
    entries = path.with_name("faults.jsonl")
    faults = [json.loads(line) for line in entries.open()] if entries.exists() else []
    differs = ("converted, differs", "converted, fails", "converted, ONNX Runtime crashes")
    assert not [fault for fault in faults if not fault["class"].startswith(differs)]


# The fuzzer


def test_case_depends_only_on_campaign_and_number() -> None:
    """A case depends only on its number and the campaign, not on earlier cases."""
    forward = [make_case("a", number).data for number in range(20)]
    assert [make_case("a", number).data for number in reversed(range(20))] == forward[::-1]
    assert make_case("b", 0).data != forward[0]
    assert len({*forward}) > 15


def test_cases_come_from_several_sets() -> None:
    names = {make_case("sets", number).set_name for number in range(0, 16 * 60, 16)}
    assert names <= SETS.keys()
    assert len(names) >= 3


def test_campaign_of_one_set_damages_only_that_set() -> None:
    """A campaign may damage containers only; most changes are where a container is read."""
    cases = [make_case("containers/a", number) for number in range(32)]
    assert {case.set_name for case in cases} == {"containers"}
    assert len({case.data for case in cases}) > 20
    seeds = {case.seed.data for case in cases}
    assert mutate_container(next(iter(seeds)), 0) in seeds


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (lambda _: os.abort(), "SIGABRT"),
        (lambda _: sum(iter(int, 1)), "more than 1 seconds"),
        (lambda _: os._exit(3), "^\\n"),
    ],
)
def test_new_process_replaces_a_crashed_process(function: Any, reason: str, tmp_path: Path) -> None:
    """After a child has died the next request gets a new child."""
    child = Child(lambda x: function(x) if x else "alive", Limits(seconds=1), tmp_path / "log")
    assert child.call(0) == "alive"
    with pytest.raises(DiedError, match=reason):
        child.call(1)
    assert child.call(0) == "alive"
    child.close()
    child.close()


def test_child_process_has_limited_memory(tmp_path: Path) -> None:
    def allocate(size: int) -> str:
        try:
            return str(len(bytearray(size)))
        except MemoryError:
            return "too much"

    child = Child(allocate, Limits(), tmp_path / "log")
    assert child.call(1 << 20) == str(1 << 20)
    assert child.call(1 << 31) == "too much"
    child.close()


def test_exceptions_leftovers_and_invalid_models_are_faults(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """An exception, a leftover, an invalid model and too much memory are faults."""
    data, judged = chain("ABS"), []
    for fault in (_raise, _leave, _spoil, _exhaust):
        place = tmp_path / fault.__name__
        place.mkdir()
        with monkeypatch.context() as patch:
            patch.setattr("tests.fuzz.conversion.convert", fault)
            judge = Judge(place)
            judged.append(judge.judge(file_case(data)).kind)
            judge.close()
    assert judged == [
        "uncaught KeyError in no code of ours", "leftover", "invalid model",
        "uncaught MemoryError in no code of ours",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("number", "kind"), [(errno.EFBIG, "refused"), (errno.ENOSPC, "output error")]
)
def test_files_too_large_for_the_fuzzer_are_no_faults(
    number: int, kind: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """An output above the fuzzer's limit of file sizes is no fault; other errors are."""

    def fail(*_: object, **__: object) -> None:
        raise OutputError("cannot write") from OSError(number, "as ordered")

    monkeypatch.setattr("tests.fuzz.conversion.convert", fail)
    judge = Judge(tmp_path)
    assert judge.judge(file_case(chain("ABS"))).kind == kind
    judge.close()


def _raise(*_: object, **__: object) -> None:
    raise KeyError("nobody")


class _Result:
    """A result that writes an empty model, and further files."""

    inputs = outputs = ()

    def __init__(self, *names: str) -> None:
        self._names = names

    def save(self, path: Path) -> None:
        path.write_bytes(b"")
        for name in self._names:
            path.with_name(name).write_bytes(b"")


def _leave(*_: object, **__: object) -> _Result:
    return _Result("left")


def _spoil(*_: object, **__: object) -> _Result:
    return _Result()


def _exhaust(*_: object, **__: object) -> None:
    bytearray(1 << 31)


def test_difference_without_known_reason_is_a_fault(
    judge: Judge, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A difference is a fault unless there is a known reason."""
    assert judge.judge(file_case(chain("ABS"))).kind == "converted, same numbers"
    wrong = file_case(chain("ABS"))
    monkeypatch.setattr(judge, "_run_onnxruntime", lambda *_: ("differs", "by 1"))
    assert judge.judge(wrong).kind == "converted, differs, as the seed"
    other = wrong._replace(data=chain("NEG"))
    assert judge.judge(other).is_fault is False  # the undamaged seed has the same difference
    monkeypatch.setattr(judge, "_explain", lambda *_: "")
    verdict = judge.judge(other)
    assert verdict.is_fault
    assert name_fault_class(other, verdict) == "converted, differs: file"


@pytest.mark.parametrize(
    "options", [{"quantization": "float"}, {"target": "tensorrt"}, {"float16": True}]
)
def test_changed_types_are_not_compared(options: dict[str, Any], judge: Judge) -> None:
    """Results are not compared if the inputs of the model have other types than LiteRT's."""
    m = Build()
    x = m.input([3], dtype="int16", scale=0.5)
    m.output(*m.op("NEG", [x], [m.tensor([3], dtype="int16", scale=0.5)]))
    assert judge.judge(file_case(m.bytes(), **options)).kind == "converted, not compared"


def test_long_runs_are_not_compared(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An iteration of a loop takes ONNX Runtime longer than LiteRT."""
    monkeypatch.setattr("tests.fuzz.comparison._MOST_SECONDS", -1)
    judge = Judge(tmp_path)
    assert judge.judge(file_case(chain("ABS"))).kind == "converted, LiteRT refuses"
    judge.close()


def test_extreme_constants_are_found() -> None:
    for number in (float("nan"), 1e30):
        m = Build()
        m.output(*m.op("ADD", [m.input([2]), m.constant([number, 1.0])], [[2]]))
        assert find_extremes(m.bytes())
    m = Build()
    m.output(*m.op("ADD", [m.input([2]), m.constant([1.0, 2.0])], [[2]]))
    assert not find_extremes(m.bytes())
    assert not find_extremes(b"nothing")


def test_files_are_minimized_while_the_property_holds() -> None:
    """The file is reduced as long as the sought property holds."""
    data = make_case("small", 3).seed.data
    small = minimise(data, lambda each: each[4:8] == b"TFL3")
    assert len(small) < len(data) / 2
    assert minimise(b"x" * 100, lambda each: len(each) > 60) == b"x" * 62


def test_campaign_records_counts_within_its_time_limit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A campaign records its counts; a limit on the time stops it."""
    start = time.monotonic()
    record = run_cases("record", range(0, 40, 2), 600, tmp_path / "a")
    assert record.counts.total() == 20
    assert run_cases("record", range(0, 40, 2), 0, tmp_path / "b").counts.total() == 0
    assert time.monotonic() - start < 600
    record.add(make_case("record", 1), Verdict("leftover", "text"))
    record.write()
    assert main(["--totals", str(tmp_path)]) == 1
    text = capsys.readouterr().out
    assert "21 cases of the campaigns record" in text
    assert "1 leftover" in text


def test_command_judges_and_minimizes_one_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "a.tflite"
    path.write_bytes(chain("ABS"))
    assert main(["--file", str(path)]) == 0
    assert "converted, same numbers" in capsys.readouterr().out
    assert main(["--seed", "ci", "--case", "5", "--file", str(path)]) == 0
    assert path.read_bytes() == make_case("ci", 5).data
    path.write_bytes(b"PK\x03\x04" + bytes(100))
    assert main(["--file", str(path), "--minimise"]) == 0
    assert len(path.read_bytes()) < 104

"""scripts/latency.py: its table and its chart."""

import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from tflite2onnx.utils.processor import describe_processor

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "latency.py"
ASSETS = SCRIPT.parent.parent / "assets" / "models"
SLOW = 1.1  # as in the script: the ratio above which nodes are shown


def run_latency(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the script in a process."""
    words = [sys.executable, str(SCRIPT), "--runs", "2", *arguments]
    return subprocess.run(words, capture_output=True, text=True, check=False)


def test_table_and_chart_show_models_of_a_folder(tmp_path: Path) -> None:
    """A folder is searched for models; a failing command has its reason instead of a ratio."""
    folder, chart = tmp_path / "models", tmp_path / "chart.html"
    folder.mkdir()
    (folder / "keywords.tflite").write_bytes((ASSETS / "keywords_float32.tflite").read_bytes())
    fails = f"rival={sys.executable} -c \"print('no')\" {{tflite}} {{onnx}}"
    result = run_latency(str(folder), "--command", fails, "--html", str(chart))
    assert result.returncode == 0, result.stderr
    processor, _, title, _, head, _, row, *rest = result.stdout.splitlines()
    assert processor == f"Processor: {describe_processor()}; threads: 1"
    assert title == "Networks of floats:"
    columns = "tflite2onnx x | rival x | nodes | reorders | expected | time"
    assert head == f"| model | LiteRT ms | {columns} |"
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    name, time, ratio, rival, nodes, _, expected, top = cells
    assert (name, rival) == ("keywords", "-")
    assert min(float(time), float(ratio), int(nodes), float(expected)) > 0
    assert "Conv" in top
    assert any(line.startswith("tflite2onnx: median") for line in rest)
    assert any("no output: no" in line for line in rest)
    assert chart.read_text().count("<rect") == 1


@pytest.mark.nightly
def test_two_threads_are_used_and_shown() -> None:
    result = run_latency(str(ASSETS / "keywords_float32.tflite"), "--threads", "2")
    processor, _, _, _, _, _, row, *_ = result.stdout.splitlines()
    assert processor.endswith("; threads: 2")
    assert min(map(float, row.strip("|").split("|")[1:3])) > 0


@pytest.mark.nightly
def test_families_have_tables_with_grouped_slow_nodes() -> None:
    """Each family has a table; convolutions of slow models are grouped by their windows."""
    names = [f"keywords_{types}" for types in ("float32", "int8", "dynamic_range", "int16x8")]
    result = run_latency(*(str(ASSETS / f"{name}.tflite") for name in names))
    lines = result.stdout.splitlines()
    assert [line for line in lines if line.endswith(":")] == [
        "Networks of floats:",
        "Networks of 8-bit integers:",
        "Networks of dynamic range:",
        "Networks of other types:",
        "Above 1.1 times the time of LiteRT:",
    ]
    first = {name: _find_cells(lines, f"| {name} | ")[0] for name in names}
    # Beside other programs a small network may be fast now and then.
    slow = {name for name, cells in first.items() if float(cells[2]) > SLOW}
    # ONNX Runtime fuses activations with convolutions in blocks of 8 or 16 channels differently.
    windows = [
        cells
        for kind in ("Conv", "FusedConv")
        for cells in _find_cells(lines, f"| keywords_float32 | {kind} 1x5 | 1 |")
    ]
    assert len(windows) == ("keywords_float32" in slow)
    for *_, share, microseconds, products in windows:
        assert share.endswith("%")
        assert min(float(microseconds), float(products)) > 0
    integers = _find_cells(lines, "| keywords_int8 | QLinearConv")
    assert len(integers) == ("keywords_int8" in slow)
    # ONNX Runtime's profile does not have the packed weights.
    assert all(cells[-1] == "-" for cells in integers)


def _find_cells(lines: list[str], start: str) -> list[list[str]]:
    found = [line for line in lines if line.startswith(start)]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in found]


@pytest.mark.nightly
def test_small_models_are_left_out_and_missing_files_named(tmp_path: Path) -> None:
    for options in (("--least", "1000"), ("--most", "0"), ("--only", "8-bit integers")):
        result = run_latency(str(ASSETS / "keywords_float32.tflite"), *options)
        assert result.returncode == 0
        assert result.stdout.splitlines()[1:] == [""]
    result = run_latency(str(tmp_path / "missing.tflite"))
    assert "no such file" in result.stderr


def end_process(*_: object) -> None:
    """Take the place of a runtime that crashes."""
    os._exit(1)


def test_a_model_that_ends_the_process_is_left_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(SCRIPT.parent))
    latency = import_module("latency")
    monkeypatch.setattr(latency, "infer", end_process)
    assert not latency.has_time(Path("model.tflite"), 1, 0.3, 1)
    assert capsys.readouterr().err == "LiteRT ends the process: model.tflite\n"


def test_a_runtime_that_ends_has_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(SCRIPT.parent))
    latency, benchmark = import_module("latency"), import_module("benchmark")
    monkeypatch.setattr(benchmark, "infer", end_process)
    race = benchmark.Race({}, 1, 60)
    row = latency.measure(race, Path("model.tflite"), 1, "onnxruntime", latency.More())
    assert row.messages == ("model.tflite: a runtime ended",)


@pytest.mark.nightly
def test_options_add_columns_of_nodes_and_load_times() -> None:
    again = f"again={sys.executable} -m tflite2onnx -q {{tflite}} {{onnx}}"
    model = str(ASSETS / "keywords_float32.tflite")
    result = run_latency(model, "--nodes", "--start", "--command", again)
    _, _, _, _, head, _, row, *_ = result.stdout.splitlines()
    names, cells = ([c.strip() for c in line.strip("|").split("|")] for line in (head, row))
    found = dict(zip(names, cells, strict=True))
    assert found["again nodes"] == found["nodes"]
    numbers = ("LiteRT load ms", "load ms", "LiteRT MB", "MB")
    assert all(float(found[name]) > 0 for name in numbers)

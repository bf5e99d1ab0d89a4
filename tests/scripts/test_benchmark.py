"""scripts/benchmark.py: its measurements, its failures, and its generated chains."""

import json
import subprocess
import sys
from collections import Counter
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
from ai_edge_litert.interpreter import (
    Interpreter,
    OpResolverType,
)

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "benchmark.py"
ASSETS = SCRIPT.parent.parent / "assets" / "models"
COPY = "copy=cp {tflite} {onnx}"


def run_benchmark(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the script in a process."""
    words = [sys.executable, str(SCRIPT), *arguments]
    return subprocess.run(words, capture_output=True, text=True, check=False)


def python(name: str, code: str) -> str:
    """Return a command that runs a line of Python; sys.argv[2] is the output file."""
    return f'{name}={sys.executable} -c "import sys, time; {code}" {{tflite}} {{onnx}}'


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """Return a model file whose name contains a space."""
    path = tmp_path / "a model.tflite"
    path.write_bytes(b"TFL3" * 500)
    return path


def test_time_and_memory_are_those_of_the_process(model: Path, tmp_path: Path) -> None:
    write = "open(sys.argv[2], 'w').write('x')"
    report = tmp_path / "report.json"
    result = run_benchmark(
        *("--command", python("small", write)),
        *("--command", python("large", f"b'1' * 300_000_000; {write}; time.sleep(0.5)")),
        *("--runs", "3", "--json", str(report), str(model)),
    )
    assert result.returncode == 0, result.stderr
    small, large = json.loads(report.read_text())
    assert [len(small["runs"]), len(large["runs"]), small["size"]] == [3, 3, 2000]
    assert 250e6 < large["peak"] - small["peak"] < 350e6
    assert large["seconds"] > small["seconds"] + 0.4
    ratio = f"| {large['peak'] / small['peak']:.2f} | exit 0 |"
    assert ratio in result.stdout.splitlines()[-1]


@pytest.mark.parametrize(
    ("command", "failure"),
    [
        (python("rival", "sys.exit('no such operator')"), "exit 1: no such operator"),
        (python("rival", "print('did nothing')"), "no output: did nothing"),
        (python("rival", "time.sleep(60)"), "timeout: "),
        ("rival=/nowhere/converter {tflite} {onnx}", "not started: [Errno 2]"),
    ],
)
def test_a_failed_command_is_shown_not_timed(model: Path, command: str, failure: str) -> None:
    options = ("--runs", "1", "--timeout", "2", str(model))
    result = run_benchmark("--command", COPY, "--command", command, *options)
    assert result.returncode == 0, result.stderr
    assert "| rival | failed | - | - | - |" in result.stdout
    assert f"rival, {model}: {failure}" in result.stdout
    assert "exit 0" in result.stdout.splitlines()[2]


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ((), "give either models or --chains"),
        (("--chains", "0"), "begin at 1"),
        (("--threads", "0", "--latency", "a"), "begin at 1"),
        (("--chains", "5", "--latency"), "--latency is of models"),
        (("--chains", "5", "--weights", "5"), "give either models or --chains or --weights"),
        (("--command", "cp {tflite} {onnx}", "a"), "not of the form"),
        (("--command", COPY, "--command", COPY, "a"), "the same name"),
        (("absent.tflite",), "no such file: absent.tflite"),
    ],
)
def test_wrong_arguments_are_refused(arguments: tuple[str, ...], error: str) -> None:
    result = run_benchmark(*arguments)
    assert result.returncode == 2
    assert error in result.stderr.splitlines()[-1]


def test_latency_of_converted_models_is_measured(tmp_path: Path) -> None:
    model, report = ASSETS / "keywords_int8.tflite", tmp_path / "report.json"
    result = run_benchmark(
        *("--latency", "--runs", "3", "--threads", "2", "--json", str(report), str(model)),
        *("--command", f"ours={sys.executable} -m tflite2onnx {{tflite}} {{onnx}}"),
        *("--command", COPY),
        *("--command", python("rival", "sys.exit('no such operator')")),
    )
    assert result.returncode == 0, result.stderr
    ours, copy, rival, litert = json.loads(report.read_text())
    for ran in (ours, litert):
        assert ran["status"] == "ran"
        assert len(ran["seconds"]) == 3
        assert 0 < ran["median"] < 0.1
    assert litert["size"] == copy["size"] == model.stat().st_size
    assert (copy["status"], rival["status"]) == ("not run", "exit 1")
    assert "| ours | 0.0" in result.stdout
    assert "| 1.00 | ran |" in result.stdout.splitlines()[2]
    assert "| rival | 0.000 | failed | - | exit 1 |" in result.stdout
    assert f"rival, {model}: exit 1: no such operator" in result.stdout
    assert f"copy, {model}: not run: " in result.stdout


@pytest.mark.parametrize("kind", ["float32", "int8", "uint8", "int16", "int64", "bool"])
def test_inputs_cover_the_range_of_their_type(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(SCRIPT.parent)
    array = import_module("inference").make_array([13, 1000], kind)
    assert (array.dtype, array.shape) == (kind, (13, 1000))
    narrow = kind in {"int8", "uint8", "int16"}
    limits = np.iinfo(kind) if narrow else np.iinfo(np.int8)
    assert array.min() == pytest.approx(limits.min if narrow else 0, abs=limits.max / 1000)
    assert array.max() == pytest.approx(limits.max if narrow else 1, abs=limits.max / 1000)
    assert (array == import_module("inference").make_array([13, 1000], kind)).all()


def test_copied_weights_take_little_memory() -> None:
    """Beyond a small model, copying weights of any size needs the memory of one piece."""
    ours = f"ours={sys.executable} -m tflite2onnx -q {{tflite}} {{onnx}}"
    result = run_benchmark("--weights", "1,300", "--runs", "1", "--command", ours)
    assert result.returncode == 0, result.stderr
    small, large = (line.split(" | ") for line in result.stdout.splitlines()[2:])
    assert float(large[3]) - float(small[3]) < 40
    assert large[-1] == "exit 0 |"


def test_chains_are_measured_from_the_shortest() -> None:
    result = run_benchmark("--chains", "40,20", "--runs", "1", "--command", COPY)
    assert result.returncode == 0, result.stderr
    first, second = result.stdout.splitlines()[2:]
    assert first.startswith("| 20 | copy |")
    assert first.split(" | ")[4] == "1.00"
    assert second.startswith("| 40 | copy |")


def test_generated_chain_runs_with_finite_results(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(SCRIPT.parent)
    benchmark = import_module("benchmark")
    path, again = tmp_path / "chain.tflite", tmp_path / "again.tflite"
    benchmark.write_chain(path, 1000)
    benchmark.write_chain(again, 1000)
    assert path.read_bytes() == again.read_bytes()

    interpreter = Interpreter(
        str(path),
        experimental_op_resolver_type=OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES,
    )
    interpreter.allocate_tensors()
    operators = Counter(op["op_name"] for op in interpreter._get_ops_details())  # noqa: SLF001 - LiteRT has no other list
    assert operators.total() == 1000
    assert {*benchmark.BLOCKS, "CONV_2D"} == set(operators)
    (source,), (target,) = interpreter.get_input_details(), interpreter.get_output_details()
    values = np.random.default_rng(20).standard_normal(source["shape"], np.float32)
    interpreter.set_tensor(source["index"], values)
    interpreter.invoke()
    result = interpreter.get_tensor(target["index"])
    assert result.shape == benchmark.SHAPE
    assert np.isfinite(result).all()
    assert result.std() > 0

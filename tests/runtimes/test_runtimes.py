"""The project's models in OpenVINO, onnx.reference, an old ONNX Runtime and ONNX Runtime Web.

A runtime is skipped if its environment does not exist.
"""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from tests.golden.closeness import ConvertedModel, compare_with_litert
from tests.golden.records import Case, assets
from tests.runtimes.environments import OLDEST, OPENVINO, REFERENCE, ROOT, RUNTIMES, WEB, Runtime
from tests.runtimes.remote import Refused, RemoteSession, TooSlow
from tests.support import Build
from tests.support.emulation import why_not
from tests.support.project import PROJECT
from tests.support.small import chain
from tests.targets.test_plain_onnx_runtime import FLOAT_ENDS, INT8_WEIGHTS
from tflite2onnx import convert
from tflite2onnx.targets.table import TARGETS, Target
from tflite2onnx.utils.processor import describe_processor

AS_LITERT = [name for name in TARGETS if name not in (*FLOAT_ENDS, *INT8_WEIGHTS)]
VERSIONS = ("1.20", "1.22", "1.23", "1.31")  # of ONNX Runtime
_SECONDS = 120
SCRIPT = ROOT / "scripts" / "runtimes.py"
SERVE = Path(__file__).with_name("serve.py")


def compare_in_runtime(runtime: Runtime, case: Case, target: Target) -> None:
    """Compare the outputs of a model for a target, in another runtime, with those of LiteRT."""
    if not runtime.is_made:
        pytest.skip(f"not installed: scripts/runtimes.py --make {runtime.name}")
    converted = ConvertedModel.from_result(convert(case.path, target=target))
    sessions: list[RemoteSession] = []

    def load_model(converted: ConvertedModel) -> RemoteSession:
        sessions.append(RemoteSession(runtime.command, converted.model, _SECONDS))
        return sessions[0]

    try:
        compare_with_litert(case.path.read_bytes(), converted, load_model)
    finally:
        for session in sessions:
            session.close()


@pytest.mark.nightly(cases=4)
@pytest.mark.parametrize("case", assets(), ids=lambda case: case.name)
@pytest.mark.parametrize("runtime", [OLDEST, OPENVINO, REFERENCE, WEB], ids=lambda r: r.name)
def test_outputs_equal_litert_in_every_runtime(runtime: Runtime, case: Case) -> None:
    compare_in_runtime(runtime, case, runtime.target)


@pytest.mark.nightly(cases=4)
@pytest.mark.parametrize("case", assets(), ids=lambda case: case.name)
@pytest.mark.parametrize(
    "target", [name for name in TARGETS if name not in (*FLOAT_ENDS, *INT8_WEIGHTS)]
)
@pytest.mark.parametrize("version", VERSIONS)
def test_files_of_all_targets_in_older_versions(version: str, target: Target, case: Case) -> None:
    compare_in_runtime(RUNTIMES[f"onnxruntime-{version}"], case, target)


def test_the_oldest_onnx_runtime_is_the_one_that_setup_allows() -> None:
    words = PROJECT["optional-dependencies"]["verify"]
    (allowed,) = (word for word in words if word.startswith("onnxruntime>="))
    assert OLDEST.packages[0].startswith(allowed.replace(">=", "=="))


def test_arrays_pass_unchanged_to_another_process() -> None:
    """Arrays of all types and shapes are exchanged without change."""
    model = convert(chain("ABS")).model
    with closing(
        RemoteSession([sys.executable, str(SERVE), "onnxruntime"], model.SerializeToString(), 60)
    ) as session:
        (port,) = model.graph.input
        shape = [d.dim_value for d in port.type.tensor_type.shape.dim]
        x = np.linspace(-1, 1, int(np.prod(shape)), dtype=np.float32).reshape(shape)
        names = [output.name for output in session.get_outputs()]
        (y,) = session.run(names, {port.name: x})
        np.testing.assert_array_equal(y, abs(x))
        with pytest.raises(Refused, match="output other is missing"):
            session.run(["other"], {port.name: x})
        with pytest.raises(Refused, match="nothing"):
            session.run(names, {"nothing": x})
        with pytest.raises(Refused, match="exit status"):
            session.run(names, {port.name: x})


@pytest.mark.parametrize(
    ("code", "error", "message"),
    [
        ("raise SystemExit('last words')", Refused, "exit status 1: last words"),
        ("import time; time.sleep(60)", TooSlow, "more than 1 s"),
        ('print(\'{"error": "unknown operator"}\')', Refused, "unknown operator"),
    ],
)
def test_refusals_of_a_runtime_become_errors(
    code: str, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        RemoteSession([sys.executable, "-c", code], convert(chain("ABS")).skeleton.serialize(), 1)


def run_script(*words: str | Path) -> str:
    """Run the script in a process; return its output."""
    command = [sys.executable, str(SCRIPT), *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_matrix_runs_only_models_without_a_result(tmp_path: Path) -> None:
    """Models whose result is in the file are not run again."""
    for name in ("a", "b"):
        (tmp_path / f"{name}.tflite").write_bytes(chain("ABS"))
    (tmp_path / "c.tflite").write_bytes(b"no model")
    results = tmp_path / "results.jsonl"
    words = ("--runtimes", "onnx.reference", "--results", results)
    assert "the time is over" in run_script(*words, "--seconds", "-1", "--", tmp_path)
    first = run_script(*words, "--", tmp_path)
    assert [line.split()[:2] for line in first.splitlines()] == [
        ["onnx.reference", "not"],
        ["onnx.reference", "agrees"],
        ["onnx.reference", "agrees"],
    ]
    assert run_script(*words, "--", tmp_path) == ""
    assert {json.loads(line)["model"] for line in results.read_text().splitlines()} == {
        "a.tflite",
        "b.tflite",
        "c.tflite",
    }
    table = run_script("--table", "--results", results)
    assert f"| onnx.reference | {describe_processor()} | 2 | 2 | 0 | 0 | 0 |" in table
    assert "| onnx.reference | c.tflite | not converted |" in table


@pytest.mark.skipif(bool(why_not()), reason=why_not())
@pytest.mark.nightly
@pytest.mark.skipif(not OPENVINO.is_made, reason="scripts/runtimes.py --make openvino")
def test_products_saturate_on_the_emulated_processor(tmp_path: Path) -> None:
    """The runtime's products saturate on the emulated processor, which has no VNNI."""
    m = Build()
    x = m.input([4, 64], dtype="int8", scale=0.01, zero_point=-128)
    w = m.constant(np.full((8, 64), 127, np.int8), scale=0.01, zero_point=0)
    y = m.tensor([4, 8], dtype="int8", scale=0.5, zero_point=-128)
    m.output(*m.op("FULLY_CONNECTED", [x, w], [y]))
    model, results = tmp_path / "product.tflite", tmp_path / "results.jsonl"
    model.write_bytes(m.bytes())
    words = ("--runtimes", "openvino", "--results", results, "--emulate", "Haswell")
    run_script(*words, "--options", '{"weights": "int8"}', "--", model)
    (found,) = map(json.loads, results.read_text().splitlines())
    assert (found["processor"], found["verdict"]) == ("Haswell, emulated", "differs")
    assert "| openvino | Haswell, emulated | 1 | 0 | 1 |" in run_script(
        "--table", "--results", results
    )


def test_targets_of_runtimes_exist() -> None:
    for runtime in RUNTIMES.values():
        convert(chain("ABS"), target=runtime.target)

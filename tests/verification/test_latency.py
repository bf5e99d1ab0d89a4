"""The time of an inference in both runtimes: its format, and models that are special."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from contextlib import closing
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.support import Build
from tests.support.control import apply_operator, count_rounds, counter, loop
from tests.support.small import chain, network
from tests.support.streams import build_sum
from tflite2onnx import convert
from tflite2onnx.cli import main
from tflite2onnx.utils.child_process import CAN_FORK
from tflite2onnx.verification import latency
from tflite2onnx.verification.kernels import isolated
from tflite2onnx.verification.latency import (
    Latency,
    NodeTime,
    find_shares,
    measure_latency,
    measure_turns,
    profile_nodes,
    time_runs,
)

NUMBER = r"[0-9.e+-]+"
TIME = rf"LiteRT {NUMBER} ms, ONNX Runtime {NUMBER} ms \(\w+ \d+ %(, \w+ \d+ %)?\)"


def check_latency(data: bytes, **options: Any) -> Latency:
    """Return the latency of a conversion, after a check of its numbers."""
    with closing(isolated.IsolatedRuntime()) as runtime:
        found = measure_latency(data, convert(data, **options), runtime)
    assert found is not None
    assert min(found.litert, found.onnx_runtime) > 0
    assert sum(share for _, share in found.shares) == pytest.approx(1)
    assert re.fullmatch(TIME, str(found))
    return found


def test_text_shows_at_most_two_types_of_nodes() -> None:
    """Two types of nodes are shown; a model without nodes has none."""
    shares = (("Conv", 0.71), ("Add", 0.19), ("Relu", 0.1))
    assert str(Latency(1.8213, 12.34, shares)) == (
        "LiteRT 1.82 ms, ONNX Runtime 12.3 ms (Conv 71 %, Add 19 %)"
    )
    assert str(Latency(0.002, 0.004, ())) == "LiteRT 0.002 ms, ONNX Runtime 0.004 ms"


def test_nodes_of_one_type_share_one_entry() -> None:
    nodes = [NodeTime("Add", 1), NodeTime("Conv", 4), NodeTime("Add", 3)]
    assert find_shares([*nodes, NodeTime("Conv", 2)]) == (("Conv", 0.6), ("Add", 0.4))
    assert find_shares([]) == ()


def test_latency_of_a_network_is_measured() -> None:
    found = check_latency(network())
    assert "Conv" in dict(found.shares)


@pytest.mark.parametrize("states", ["optional", "required"])
def test_latency_of_stateful_models_is_measured(states: Any) -> None:
    """States start with their initial values, whether or not the model has them as inputs."""
    check_latency(build_sum(), states=states)


def test_latency_with_dynamic_sizes_is_measured_at_size_1() -> None:
    """Are measured as LiteRT allocates them: 1."""
    m = Build()
    x = m.input((1, 3), name="x", shape_signature=(-1, 3))
    m.output(*m.op("ABS", [x], [m.tensor((1, 3), name="y", shape_signature=(-1, 3))]))
    check_latency(m.bytes())


def test_small_numbers_are_used_for_inputs_that_are_indices() -> None:
    """Random numbers are no indices into a table of two rows; small numbers are."""
    m = Build()
    table = m.constant(np.zeros((2, 3), np.float32))
    x = m.input((4,), dtype="int32", name="x")
    m.output(*m.op("GATHER", [table, x], [m.tensor((4, 3), name="y")], axis=0))
    check_latency(m.bytes())


@pytest.mark.parametrize("seconds", [0, 0.2])
def test_loop_nodes_count_all_executions_without_the_loop(
    seconds: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time of a node in a loop counts all executions; the time of the loop is left out.

    A slow model runs only once.
    """
    monkeypatch.setattr(latency, "_PROFILED_SECONDS", seconds)
    events: list[dict[str, Any]] = [{"cat": "Session", "name": "model_run"}]

    def run_loop(*_: Any) -> list[Any]:
        for name, microseconds in (("Tanh", 3), ("Tanh", 3), ("Abs", 7), ("Loop", 99)):
            args: dict[str, Any] = {"op_name": name, "input_type_shape": [{"float": [2, 5]}]}
            args["output_type_shape"] = [{"int64": [7]}]
            event = {"cat": "Node", "name": f"{name}_kernel_time", "args": args}
            events.append({**event, "dur": microseconds})
        return []

    def write_profile() -> str:
        (tmp_path / "profile").write_text(json.dumps(events))
        return str(tmp_path / "profile")

    session = SimpleNamespace(
        run=run_loop,
        end_profiling=write_profile,
        get_modelmeta=lambda: SimpleNamespace(custom_metadata_map={}),
    )
    nodes = profile_nodes(session, {})
    assert [node.kind for node in nodes] == ["Tanh", "Abs"]
    assert {(node.inputs, node.outputs) for node in nodes} == {(((2, 5),), ((7,),))}
    assert [node.seconds for node in nodes] == pytest.approx([6e-6, 7e-6])


def test_parts_of_the_time_do_not_count_the_loop_node() -> None:
    m = Build()
    x = m.input((3, 5), name="x")
    m.output(loop(m, [counter(m), x], count_rounds(apply_operator("TANH")))[1])
    assert "Loop" not in dict(check_latency(m.bytes()).shares)


def test_no_latency_if_litert_refuses_the_model() -> None:
    """The report has no latency if LiteRT does not run the model."""
    with closing(isolated.IsolatedRuntime()) as runtime:
        assert measure_latency(b"", convert(chain("ABS")), runtime) is None


def test_runs_take_at_least_one_turn_until_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run takes several turns as long as time is left, and at least one."""
    counts = {"a": 0, "b": 0}

    def count(name: str) -> None:
        counts[name] += 1

    runs = [partial(time_runs, partial(count, name)) for name in counts]
    ticks = iter(range(1000))
    monkeypatch.setattr(time, "thread_time", lambda: next(ticks))
    found = measure_turns(runs, 3, clock="thread_time")
    assert found == [[1, 1, 1]] * 2
    assert counts == {"a": 4, "b": 4}
    assert [len(times) for times in measure_turns(runs, 3, seconds=0)] == [1, 1]
    counts.update(a=0, b=0)
    milliseconds = (tick / 1000 for tick in range(1000))
    monkeypatch.setattr(time, "thread_time", lambda: next(milliseconds))
    first, _ = measure_turns(runs, 1, clock="thread_time")
    assert first == pytest.approx([0.0001])
    assert counts == {"a": 12, "b": 12}  # one, then ten that are timed, after one that is not


@pytest.mark.skipif(not CAN_FORK, reason="the shell of POSIX limits the time of a process")
def test_latency_of_a_process_with_limited_time_is_measured(tmp_path: Path) -> None:
    """The clock of such a process stands still for milliseconds, far longer than an inference."""
    (tmp_path / "model.tflite").write_bytes(chain("ABS"))
    command = [sys.executable, "-m", "tflite2onnx", "verify", "model.tflite", "--json"]
    done = subprocess.run(
        ["/bin/sh", "-c", 'ulimit -t 20; exec "$@"', "sh", *command],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        check=True,
    )
    latency = json.loads(done.stdout)["latency"]
    assert 0 < latency["litert_ms"] < 1
    assert 0 < latency["onnx_runtime_ms"] < 1


def test_verification_survives_a_crash_while_measuring(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """LiteRT's fastest kernels may crash: the verification has its result, without the latency."""
    (tmp_path / "model.tflite").write_bytes(chain("ABS"))
    monkeypatch.setattr(
        isolated, "PROGRAM", isolated.PROGRAM.replace("getattr(time, clock)", "os.abort()")
    )
    assert main(["verify", str(tmp_path / "model.tflite"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["ok"], found["latency"]) == (True, None)


def test_json_has_latency_of_both_runtimes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "model.tflite").write_bytes(chain("ABS"))
    assert main(["verify", str(tmp_path / "model.tflite"), "--json"]) == 0
    latency = json.loads(capsys.readouterr().out)["latency"]
    assert latency["shares"] == {"Abs": 1}
    assert min(latency["litert_ms"], latency["onnx_runtime_ms"]) > 0

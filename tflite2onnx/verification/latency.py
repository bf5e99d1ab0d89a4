"""The time of an inference in LiteRT and in ONNX Runtime, and the nodes that take the time."""

import json
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from statistics import median
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import Any

from tflite2onnx.tensor import Array
from tflite2onnx.utils.console import filter_stderr
from tflite2onnx.verification.entry_point import extract_entry_point
from tflite2onnx.verification.inputs import RandomKind, draw_inputs, store_inputs
from tflite2onnx.verification.kernels.isolated import IsolatedRuntime
from tflite2onnx.verification.onnx_model import ConvertedModel, open_model
from tflite2onnx.verification.runtimes import (
    FASTEST_KERNELS,
    ModelFile,
    as_verify_error,
    make_session,
    run_litert,
    run_onnx,
)

SHOWN = 2  # the number of node types in the text
_TURN = 10e-3  # seconds: a turn has several inferences if one is too short to time
_TURNS, _SECONDS = 20, 0.5
_SHORTEST = 1e-6  # seconds of an inference, for a clock that stands still meanwhile
_PROFILED_RUNS, _PROFILED_SECONDS = 10, 0.2
# The time of these nodes includes the time of the nodes inside them.
_PARENTS = ("If", "Loop", "Scan")
_TIME = "_kernel_time"  # follows the name of the node in the name of an event

# Runs an inference several times, and returns the mean seconds by the clock of this name in `time`.
Timer = Callable[[int, str], float]


@dataclass(frozen=True)
class NodeTime:
    """A node that ONNX Runtime runs: its type, its seconds in a run, and the shapes of its data.

    `activation` is the function that the node applies to its result, if it is known.
    """

    kind: str
    seconds: float
    inputs: tuple[tuple[int, ...], ...] = ()
    outputs: tuple[tuple[int, ...], ...] = ()
    activation: str = ""


@dataclass(frozen=True)
class Latency:
    """The milliseconds of an inference on one thread, in LiteRT and in ONNX Runtime.

    `shares` are the types of the nodes that ONNX Runtime runs, each with its part of the time of
    all nodes, the largest part first.
    """

    litert: float
    onnx_runtime: float
    shares: tuple[tuple[str, float], ...]

    def __str__(self) -> str:
        """Return the times, and the types of nodes that take the most time."""
        shown = ((kind, f"{100 * share:.0f}") for kind, share in self.shares[:SHOWN])
        most = ", ".join(f"{kind} {percent} %" for kind, percent in shown if percent != "0")
        return (
            f"LiteRT {self.litert:.3g} ms, ONNX Runtime {self.onnx_runtime:.3g} ms"
            f"{f' ({most})' if most else ''}"
        )

    def to_dict(self) -> dict[str, Any]:
        return {
            "litert_ms": self.litert,
            "onnx_runtime_ms": self.onnx_runtime,
            "shares": dict(self.shares),
        }


def measure_latency(
    model: ModelFile, converted: ConvertedModel, isolated: IsolatedRuntime, seed: int = 0
) -> Latency | None:
    """Measure an inference of both models, on one thread and on random inputs.

    LiteRT runs its fastest kernels (XNNPACK) in the `isolated` process, which they may end. This
    takes about a second, or four inferences of each model if they take longer. The result is None
    if a runtime cannot run its model: the verification reports that.
    """
    with filter_stderr(lambda _: False):
        for kind in (RandomKind.NORMAL, RandomKind.UNIT):
            with suppress(Exception):
                return _measure_inputs(model, converted, isolated, seed, kind)
    return None


def _measure_inputs(
    model: ModelFile,
    converted: ConvertedModel,
    isolated: IsolatedRuntime,
    seed: int,
    kind: RandomKind,
) -> Latency:
    """Measure both models on one kind of random inputs; see `draw_inputs`."""
    with TemporaryDirectory(ignore_cleanup_errors=True) as directory:
        opened = open_model(
            converted, partial(make_session, threads=1, profile=f"{directory}/profile")
        )
        shapes = [endpoint.tflite_shape for endpoint in opened.inputs]
        entry_point = extract_entry_point(model, opened.signature, opened.part, shapes)
        interpreter = isolated.open(entry_point, FASTEST_KERNELS)
        arrays = draw_inputs(interpreter, seed, {}, kind)
        feeds = store_inputs(opened.inputs, arrays, interpreter.get_input_details())
        feeds |= opened.session.state
        session: Any = opened.session.session
        nodes = profile_nodes(session, feeds)
    run_litert(interpreter, arrays)
    timers = (interpreter.time_runs, partial(time_runs, partial(session.run, None, feeds)))
    litert, onnx_runtime = (find_quartile(times) for times in measure_turns(timers))
    return Latency(1e3 * litert, 1e3 * onnx_runtime, find_shares(nodes))


def profile_nodes(
    session: Any, feeds: Mapping[str, Array], activations: Mapping[str, str] = MappingProxyType({})
) -> list[NodeTime]:
    """Run a session that profiles, and return its nodes. The session stops profiling.

    `activations` has the activations of nodes by their names.

    The time of a node is the median of its executions, times their number in a run.
    """
    start, runs = time.perf_counter(), 0
    while runs < _PROFILED_RUNS and (not runs or time.perf_counter() - start < _PROFILED_SECONDS):
        run_onnx(session, feeds)
        runs += 1
    with as_verify_error("ONNX Runtime"):
        events = json.loads(Path(session.end_profiling()).read_text("utf-8"))
    found = defaultdict(list)
    for event in events:
        if event.get("cat") == "Node" and event["name"].endswith(_TIME):
            found[event["args"]["op_name"], event["name"]].append(event)
    return [
        NodeTime(
            kind,
            1e-6 * median(event["dur"] for event in times) * len(times) / runs,
            _read_shapes(times[0]["args"].get("input_type_shape", ())),
            _read_shapes(times[0]["args"].get("output_type_shape", ())),
            activations.get(name.removesuffix(_TIME), ""),
        )
        for (kind, name), times in found.items()
        if kind not in _PARENTS
    ]


def _read_shapes(typed: Iterable[Mapping[str, Sequence[int]]]) -> tuple[tuple[int, ...], ...]:
    """Return the shapes in a list of {type: shape}."""
    return tuple(tuple(shape) for entry in typed for shape in entry.values())


def find_shares(nodes: Sequence[NodeTime]) -> tuple[tuple[str, float], ...]:
    """Return each type of nodes with its part of the time of all nodes, the largest part first."""
    spent: dict[str, float] = defaultdict(float)
    for node in nodes:
        spent[node.kind] += node.seconds
    whole = sum(spent.values()) or 1
    shares = ((kind, seconds / whole) for kind, seconds in spent.items())
    return tuple(sorted(shares, key=lambda pair: -pair[1]))


def measure_turns(
    timers: Sequence[Timer], turns: int = _TURNS, *, seconds: float = _SECONDS, clock: str = ""
) -> list[list[float]]:
    """Return the seconds of an inference in each turn, for inferences that have already run once.

    The inferences take turns, so that other programs affect all of them equally. Each turn has
    another random order, because the contents of the processor's caches depend on the inference
    before. If a turn has several inferences, one more runs before them for the same reason. The
    first turn determines the number of inferences in each further turn. Its time is used only if no
    time is left for a second turn. `clock` is the name of a function of `time`, by default that of
    the time of the process, which does not include other processes.
    """
    clock = clock or _choose_clock()
    times: list[list[float]] = [[] for _ in timers]
    pairs, order = list(zip(timers, times, strict=True)), Random(0)  # noqa: S311 - no secret
    start = time.perf_counter()
    for turn in range(1 + turns):
        if turn and time.perf_counter() - start > seconds:
            break
        for timer, series in order.sample(pairs, len(pairs)):
            count = round(_TURN / max(series[0], _SHORTEST)) if turn else 1
            series.append(timer(max(1, count), clock))
    return [series[1:] or series for series in times]


def _choose_clock() -> str:
    """Return the clock of the process, or the wall clock if the former is too coarse for a turn.

    Linux moves the clock of a process that has a limit of time (`ulimit -t`) at the ticks of the
    scheduler only, milliseconds apart, and still states a resolution of a nanosecond.
    """
    start, end = time.process_time(), time.perf_counter() + _TURN / 100
    while time.process_time() == start:
        if time.perf_counter() > end:
            return "perf_counter"
    return "process_time"


def time_runs(run: Callable[[], object], count: int, clock: str) -> float:
    """Return the mean seconds of `count` runs; see `measure_turns`."""
    now: Callable[[], float] = getattr(time, clock)
    if count > 1:
        run()
    start = now()
    for _ in range(count):
        run()
    return (now() - start) / count


def find_quartile(times: Sequence[float]) -> float:
    """Return the lower quartile, which other programs change less than the median."""
    return sorted(times)[len(times) // 4]

r"""Time and peak memory of conversions, and latency of the converted models.

Compare commands over models. The first command is the reference: a ratio is the time or memory of
another command divided by that of the reference. The default command is the tflite2onnx of this
Python::

    python scripts/benchmark.py --runs 5 model1.tflite model2.tflite \
        --command 'ours=tflite2onnx {tflite} {onnx}' \
        --command 'tf2onnx=python -m tf2onnx.convert --tflite {tflite} --output {onnx}'

Compare the latency of the converted models in ONNX Runtime with LiteRT and its default delegate::

    python scripts/benchmark.py --latency --runs 20 --threads 1 model.tflite --command '...'

Measure how the time grows with the graph, on generated float32 chains of these lengths::

    python scripts/benchmark.py --chains 1000,5000,20000

Measure the memory of conversions of large models, whose weights of so many MB are only copied::

    python scripts/benchmark.py --weights 100,1900 --runs 1

Commands take turns (A B C A B C ...), so that a slow period of the machine affects all commands
alike. The first turn only warms up. Seconds are the wall time of the whole process. Memory is the
largest resident set of the process or of any single child that it waited for, in MB of 10^6 bytes.
A command fails if its exit status is not 0, if it exceeds its time limit, or if it writes no
output.

Latency is the time of one inference. One process loads all models made from a .tflite file, on the
same number of threads, and they take turns there in random order. A ratio is the median of the
ratios of the turns. Floats are random from 0 to 1, integers of 8 and 16 bits over their whole
range, others 0 or 1.

Linux only. A process inherits the peak of its parent, so no figure is below the peak of this
script, about 20 MB. The script therefore imports only the standard library. Other processes
generate the chains and run the models; they need numpy, flatbuffers, ai-edge-litert and
onnxruntime.
"""

import argparse
import json
import multiprocessing
import os
import random
import select
import shlex
import signal
import struct
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from importlib import import_module
from math import isnan, nan
from pathlib import Path
from statistics import median
from subprocess import DEVNULL, Popen
from tempfile import TemporaryDirectory, TemporaryFile
from typing import Any

from inference import infer
from large_model import write_large_model

OURS = f"tflite2onnx={shlex.quote(sys.executable)} -m tflite2onnx -q {{tflite}} {{onnx}}"


def named_command(text: str) -> tuple[str, list[str]]:
    """Split ``name=command line`` into the name and words, which contain {tflite} and {onnx}."""
    name, _, line = text.partition("=")
    if not name or " " in name or "{tflite}" not in line or "{onnx}" not in line:
        raise argparse.ArgumentTypeError(
            f"not of the form 'name=command {{tflite}} {{onnx}}': {text}"
        )
    return name, shlex.split(line)


@dataclass(frozen=True)
class Run:
    """One process: wall seconds, peak resident bytes, "exit 0" or the failure, its last line."""

    seconds: float
    peak: int
    status: str
    message: str


@dataclass(frozen=True)
class Measurement:
    """The counted runs of one command on one model; the size of the model is in bytes."""

    command: str
    model: str
    size: int
    runs: tuple[Run, ...]

    @property
    def status(self) -> str:
        """How the last run ended; only the last run can have failed."""
        return self.runs[-1].status

    @property
    def message(self) -> str:
        """The last line of output of the last run."""
        return self.runs[-1].message

    @property
    def failed(self) -> bool:
        """Whether a run failed."""
        return self.status != "exit 0"

    @property
    def seconds(self) -> float:
        """Median wall time, or NaN if the command failed."""
        return nan if self.failed else median(run.seconds for run in self.runs)

    @property
    def peak(self) -> float:
        """Median peak memory in bytes, or NaN if the command failed."""
        return nan if self.failed else median(run.peak for run in self.runs)

    @property
    def spread(self) -> str:
        """Seconds as median [minimum-maximum]."""
        return "failed" if self.failed else format_times([run.seconds for run in self.runs])

    def record(self) -> dict[str, Any]:
        """Every run, and the medians unless the command failed."""
        return asdict(self) | ({} if self.failed else {"seconds": self.seconds, "peak": self.peak})


@dataclass(frozen=True)
class Latency:
    """Seconds of an inference in every turn, and the size of the model in bytes.

    `status` is "ran" or the failure; `message` is then the last line of output.
    """

    command: str
    model: str
    size: int
    seconds: tuple[float, ...]
    status: str
    message: str

    @property
    def failed(self) -> bool:
        """Whether there is nothing to compare."""
        return not self.seconds

    def ratio(self, reference: "Latency") -> float:
        """Median of the ratios of the turns: both models run each turn under the same load."""
        turns = [b / a for a, b in zip(reference.seconds, self.seconds, strict=False)]
        return median(turns) if turns else nan

    def record(self) -> dict[str, Any]:
        """Every turn, and the median unless the model failed."""
        return asdict(self) | ({} if self.failed else {"median": median(self.seconds)})


@dataclass(frozen=True)
class Report:
    """The result of a mode of this script: a table for people, measurements for programs."""

    columns: tuple[str, ...]
    rows: list[tuple[str, ...]]
    measurements: list[Measurement | Latency]

    def markdown(self) -> str:
        """Table, then the last line of output of each command that failed."""
        table = [self.columns, ("---",) * len(self.columns), *self.rows]
        lines = [f"| {' | '.join(cells)} |\n" for cells in table]
        failed = [m for m in self.measurements if m.failed]
        lines += [f"\n{m.command}, {m.model}: {m.status}: {m.message}\n" for m in failed]
        return "".join(lines)

    def json(self) -> str:
        """All measurements."""
        return json.dumps([m.record() for m in self.measurements], indent=1)


def format_number(value: float, digits: int) -> str:
    """Format a number, or a dash for NaN."""
    return "-" if isnan(value) else f"{value:.{digits}f}"


def format_times(times: Sequence[float]) -> str:
    """Format times as median [minimum-maximum]."""
    return f"{median(times):.3f} [{min(times):.3f}-{max(times):.3f}]"


def environment() -> dict[str, str]:
    """Return the environment of this process, with Python's writing of bytecode enabled.

    Installed packages have bytecode. Without bytecode, a checkout would compile its modules in
    every turn, which takes a third of the time of a small conversion, and the installed packages
    that it is compared with would not.
    """
    return {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}


def execute(words: list[str], timeout: float) -> Run:
    """Run one process to its end, or kill it and its children after ``timeout`` seconds."""
    with TemporaryFile() as output:
        start = time.perf_counter()
        try:
            process = Popen(  # noqa: S603 - the user's own commands, without a shell
                words,
                stdin=DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                env=environment(),
            )
        except OSError as error:
            return Run(0.0, 0, "not started", str(error))
        handle, ended = os.pidfd_open(process.pid), False
        try:
            ended = bool(select.select([handle], [], [], timeout)[0])
        finally:
            os.close(handle)
            if not ended:
                os.killpg(process.pid, signal.SIGKILL)
            _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - start
        process.returncode = os.waitstatus_to_exitcode(status)
        output.seek(0)
        lines = output.read().decode(errors="replace").split("\n")
    message = next((line.strip() for line in reversed(lines) if line.strip()), "")
    how = f"exit {process.returncode}" if ended else "timeout"
    return Run(seconds, usage.ru_maxrss * 1024, how, message)


def convert(words: list[str], model: Path, onnx: Path, timeout: float) -> Run:
    """Convert once, to a file that does not exist yet."""
    filled = [w.replace("{tflite}", str(model)).replace("{onnx}", str(onnx)) for w in words]
    run = execute(filled, timeout)
    empty = not onnx.is_file() or onnx.stat().st_size == 0
    return replace(run, status="no output") if run.status == "exit 0" and empty else run


@dataclass(frozen=True)
class Race:
    """Commands by name, the number of counted turns, and the time limit of a turn in seconds."""

    commands: dict[str, list[str]]
    turns: int
    timeout: float

    def measure(self, model: Path) -> list[Measurement]:
        """Measure each command on a model; one that fails takes no further turn."""
        log: dict[str, list[Run]] = {name: [] for name in self.commands}
        for _ in range(1 + self.turns):
            for name, done in log.items():
                if not done or done[-1].status == "exit 0":
                    with TemporaryDirectory() as directory:
                        onnx = Path(directory) / "model.onnx"
                        done.append(convert(self.commands[name], model, onnx, self.timeout))
        file = (str(model), model.stat().st_size)
        # The first run warms up; it counts only if it failed and is thus the only run.
        return [Measurement(name, *file, tuple(done[1:] or done)) for name, done in log.items()]


def compare(race: Race, models: Sequence[Path]) -> Report:
    """Commands side by side over models, with ratios to the first command."""
    columns = ("model", "MB", "command", "seconds", "time x", "peak MB", "memory x", "status")
    report = Report(columns, [], [])
    for model in models:
        group = race.measure(model)
        for m in group:
            times = (m.spread, format_number(m.seconds / group[0].seconds, 2))
            memory = (format_number(m.peak / 1e6, 1), format_number(m.peak / group[0].peak, 2))
            names = (model.name, format_number(m.size / 1e6, 3), m.command)
            report.rows.append((*names, *times, *memory, m.status))
        report.measurements.extend(group)
    return report


def scale(race: Race, counts: Sequence[int]) -> Report:
    """Time per operator, start-up included, of growing chains, with ratios to the shortest chain.

    The ratios of a linear converter are below 1; the ratios of a quadratic converter grow with the
    chain.
    """
    columns = ("operators", "command", "seconds", "ms/operator", "x", "peak MB", "status")
    report = Report(columns, [], [])
    shortest: dict[str, float] = {}
    with TemporaryDirectory() as directory:
        for count in sorted(counts):
            path = Path(directory) / f"chain_{count}.tflite"
            with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
                pool.submit(write_chain, path, count).result()
            for m in race.measure(path):
                each = 1000 * m.seconds / count
                per = (
                    format_number(each, 3),
                    format_number(each / shortest.setdefault(m.command, each), 2),
                )
                peak = format_number(m.peak / 1e6, 1)
                report.rows.append((str(count), m.command, m.spread, *per, peak, m.status))
                report.measurements.append(m)
    return report


def copy_weights(race: Race, sizes: Sequence[int]) -> Report:
    """Time and peak memory for models of these sizes in MB, with the peak as a part of the file."""
    columns = ("file MB", "command", "seconds", "peak MB", "peak / file", "status")
    report = Report(columns, [], [])
    for size in sorted(sizes):
        with TemporaryDirectory() as directory:
            path = Path(directory) / f"weights_{size}.tflite"
            with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
                pool.submit(write_large_model, path, size * 10**6).result()
            for m in race.measure(path):
                peak = (format_number(m.peak / 1e6, 1), format_number(m.peak / m.size, 3))
                name = format_number(m.size / 1e6, 1)
                report.rows.append((name, m.command, m.spread, *peak, m.status))
                report.measurements.append(m)
    return report


LITERT = "LiteRT"


def run_faster(race: Race, models: Sequence[Path], threads: int) -> Report:
    """Latency of each command's models and of LiteRT, with ratios to the first command."""
    columns = ("model", "command", "MB", "ms", "x", "status")
    report = Report(columns, [], [])
    for model in models:
        group = inferences(race, model, threads)
        for m in group:
            milliseconds = "failed" if m.failed else format_times([1e3 * t for t in m.seconds])
            cells = (
                format_number(m.size / 1e6, 3),
                milliseconds,
                format_number(m.ratio(group[0]), 2),
            )
            report.rows.append((model.name, m.command, *cells, m.status))
        report.measurements.extend(group)
    return report


def inferences(
    race: Race, model: Path, threads: int, runtime: str = "onnxruntime"
) -> list[Latency]:
    """Convert a model with each command, and time the results in one process; see `infer`."""
    with TemporaryDirectory() as directory:
        paths = {n: Path(directory) / f"{i}.onnx" for i, n in enumerate(race.commands)}
        runs = {n: convert(race.commands[n], model, p, race.timeout) for n, p in paths.items()}
        made = {n: path for n, path in paths.items() if runs[n].status == "exit 0"}
        made[LITERT] = model
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
            work = pool.submit(infer, list(made.values()), race.turns, threads, runtime)
            times = work.result()
        sizes = {n: path.stat().st_size for n, path in made.items()}
    failed = {n: Latency(n, str(model), 0, (), r.status, r.message) for n, r in runs.items()}
    ran = {
        n: Latency(n, str(model), sizes[n], seconds, "not run" if error else "ran", error)
        for n, (seconds, error) in zip(made, times, strict=True)
    }
    return list((failed | ran).values())


SHAPE = (1, 4, 5, 6)
BLOCKS = ("RELU", "LOGISTIC", "ADD", "ADD", "MUL", "CONCATENATION", "TRANSPOSE", "RESHAPE")


class Chain:
    """A float32 network under construction, in the object API of the TFLite schema."""

    def __init__(self) -> None:
        self.schema = import_module("ai_edge_litert.schema_py_generated")
        self.random = random.Random(20)  # noqa: S311 - no secret, but the same chain every time
        self.codes: dict[str, int] = {}
        self.buffers = [self.schema.BufferT()]
        self.tensors: list[object] = []
        self.operators: list[object] = []
        self.tensor(SHAPE)  # The network's input, tensor 0.
        # Weights between -1/12 and 1/12 in rows of 12 make values smaller, so no chain overflows.
        weights = [self.random.uniform(-1 / 12, 1 / 12) for _ in range(6 * 12)]
        self.weights = {n: self.tensor((6, 1, 1, n), weights[: 6 * n]) for n in (6, 12)}
        self.bias = self.tensor((6,), weights[:6])

    def tensor(self, shape: Sequence[int], values: Sequence[float] = ()) -> int:
        """Add a tensor and return its index; a tensor with values is a constant of their type."""
        index = len(self.tensors)
        integers = any(isinstance(value, int) for value in values)
        kind = self.schema.TensorType.INT32 if integers else self.schema.TensorType.FLOAT32
        data = struct.pack(f"<{len(values)}{'i' if integers else 'f'}", *values)
        # Each tensor has its own buffer, even if empty, after the empty buffer 0 of the schema.
        self.buffers.append(self.schema.BufferT(data or None))
        self.tensors.append(self.schema.TensorT(shape, kind, index + 1, f"tensor_{index}"))
        return index

    def apply(self, name: str, *inputs: int, shape: Sequence[int] = SHAPE, **options: int) -> int:
        """Add an operator, its options named as in the schema, and return its output."""
        output = self.tensor(shape)
        code = self.codes.setdefault(name, len(self.codes))
        operator = self.schema.OperatorT(code, inputs, (output,))
        kind = f"{name.title().replace('_', '')}Options"
        if hasattr(self.schema.BuiltinOptions, kind):
            operator.builtinOptionsType = getattr(self.schema.BuiltinOptions, kind)
            operator.builtinOptions = getattr(self.schema, f"{kind}T")(**options)
        # Some converters read the shape from the option, others from the operand.
        if name == "RESHAPE":
            operator.builtinOptions.newShape = shape
        self.operators.append(operator)
        return output

    def convolve(self, x: int, channels: int) -> int:
        """Add a convolution of 1x1."""
        return self.apply("CONV_2D", x, self.weights[channels], self.bias, strideH=1, strideW=1)

    def add_detour(self, name: str, x: int, shape: Sequence[int], *vectors: Sequence[int]) -> int:
        """Add a RELU between two TRANSPOSE or RESHAPE; the second undoes the first."""
        there, back = (self.tensor((len(vector),), vector) for vector in vectors)
        y = self.apply("RELU", self.apply(name, x, there, shape=shape), shape=shape)
        return self.apply(name, y, back)

    def block(self, name: str, x: int) -> int:
        """Add an operator with the operators around it that keep the shape ``SHAPE``."""
        match name:
            case "ADD" | "MUL":
                return self.apply(name, x, self.apply("LOGISTIC", self.convolve(x, 6)))
            case "CONCATENATION":
                branches = (self.apply("RELU", x), self.apply("LOGISTIC", x))
                return self.convolve(self.apply(name, *branches, shape=(1, 4, 5, 12), axis=3), 12)
            case "TRANSPOSE":
                return self.add_detour(name, x, (1, 6, 4, 5), (0, 3, 1, 2), (0, 2, 3, 1))
            case "RESHAPE":
                return self.add_detour(name, x, (1, 20, 6), (1, 20, 6), SHAPE)
        return self.apply(name, x)

    def serialize(self) -> bytes:
        """Return the model from the first tensor to the newest."""
        codes = [getattr(self.schema.BuiltinOperator, name) for name in self.codes]
        last = len(self.tensors) - 1
        model = self.schema.ModelT(
            version=3,
            operatorCodes=[self.schema.OperatorCodeT(code, builtinCode=code) for code in codes],
            subgraphs=[self.schema.SubGraphT(self.tensors, (0,), (last,), self.operators)],
            buffers=self.buffers,
        )
        builder = import_module("flatbuffers").Builder()
        builder.Finish(model.Pack(builder), b"TFL3")
        return bytes(builder.Output())


def write_chain(path: Path, count: int) -> None:
    """Write a TFLite model of ``count`` operators, from float32 [1, 4, 5, 6] to the same type."""
    chain, x = Chain(), 0
    while len(chain.operators) < count:
        fits = count - len(chain.operators) >= 4  # the largest block has 4 operators
        x = chain.block(chain.random.choice(BLOCKS) if fits else "RELU", x)
    path.write_bytes(chain.serialize())


def main() -> None:
    """Read the command line, run one mode, and print its table."""
    what = "Time and peak memory of whole conversions, or latency of what they make."
    parser = argparse.ArgumentParser(description=what)
    add = parser.add_argument
    add("models", nargs="*", type=Path, metavar="model.tflite")
    add("--command", action="append", type=named_command, metavar="'NAME=... {tflite} {onnx}'")
    add("--chains", type=lambda text: [int(n) for n in text.split(",")], metavar="N,N,...")
    add("--weights", type=lambda text: [int(n) for n in text.split(",")], metavar="MB,MB,...")
    add("--runs", type=int, default=5, help="counted runs of each command (default 5)")
    add("--latency", action="store_true", help="time the ONNX models instead of the conversions")
    add("--threads", type=int, default=1, help="of each inference (default 1)")
    add("--timeout", type=float, default=600, help="seconds each run may take (default 600)")
    add("--json", type=Path, help="also write every run to this file")
    options = parser.parse_args()
    commands = dict(options.command or [named_command(OURS)])
    if sum(map(bool, (options.models, options.chains, options.weights))) != 1:
        parser.error("give either models or --chains or --weights")
    if options.latency and not options.models:
        parser.error("--latency is of models, not of --chains or --weights")
    generated = [*(options.chains or []), *(options.weights or [])]
    if min(options.runs, options.threads, *generated) < 1:
        parser.error("--runs, --threads, --chains and --weights begin at 1")
    if len(commands) < len(options.command or [1]):
        parser.error("two commands have the same name")
    if missing := [str(model) for model in options.models if not model.is_file()]:
        parser.error(f"no such file: {', '.join(missing)}")
    race = Race(commands, options.runs, options.timeout)
    if options.chains:
        report = scale(race, options.chains)
    elif options.weights:
        report = copy_weights(race, options.weights)
    elif options.latency:
        report = run_faster(race, options.models, options.threads)
    else:
        report = compare(race, options.models)
    sys.stdout.write(report.markdown())
    if options.json:
        options.json.write_text(report.json())


if __name__ == "__main__":
    main()

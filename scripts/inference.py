"""Latency of TFLite and ONNX models, measured side by side in one process.

Other scripts import this module; `latency.py` is the program.
"""

import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from importlib import import_module
from math import inf
from pathlib import Path
from typing import Any

Inference = Callable[[], object]


def infer(
    paths: Sequence[Path], turns: int, threads: int, runtime: str = "onnxruntime"
) -> list[tuple[tuple[float, ...], str]]:
    """Return for each model the seconds of an inference in each turn, or why it does not run.

    `runtime` is the package that runs the ONNX models, "onnxruntime" or "openvino". On one thread,
    seconds are those of the processor, to which the time of other processes does not count; else
    they are wall time, and the threads keep to as many cores.
    """
    latency = import_module("tflite2onnx.verification.latency")
    loaded = [load_model(path, threads, runtime) for path in paths]
    runs = [run for run in loaded if not isinstance(run, str)]
    clock = "" if threads == 1 else "perf_counter"
    if threads > 1 and hasattr(os, "sched_setaffinity"):
        spread_threads(threads)
    timers = [partial(latency.time_runs, run) for run in runs]
    times = iter(latency.measure_turns(timers, turns, seconds=inf, clock=clock))
    return [((), run) if isinstance(run, str) else (tuple(next(times)), "") for run in loaded]


def spread_threads(count: int) -> None:
    """Keep this thread to the first core and all others to the next ones (Linux only).

    A scheduler may leave two threads of a runtime on one core for as long as a model is measured.
    """
    first, *others = sorted(os.sched_getaffinity(0))[:count]
    for path in Path("/proc/self/task").iterdir():
        cores = [first] if int(path.name) == os.getpid() else others or [first]
        with suppress(ProcessLookupError):  # the thread may have ended meanwhile
            os.sched_setaffinity(int(path.name), cores)


def measure_inferences(runs: Sequence[Inference], turns: int) -> list[float]:
    """Return the lower quartile of the processor seconds of inferences, which run in turns."""
    latency = import_module("tflite2onnx.verification.latency")
    for run in runs:
        run()
    timers = [partial(latency.time_runs, run) for run in runs]
    return [*map(latency.find_quartile, latency.measure_turns(timers, turns, seconds=inf))]


def measure_start(path: Path, threads: int) -> tuple[float, float]:
    """Return the seconds of loading a model, and the MB of 10^6 bytes that a run needs at most.

    The process must be a new one: the memory is the peak of the process after one inference, less
    the memory before the model is loaded.
    """
    litert = path.suffix == ".tflite"
    import_module("ai_edge_litert.interpreter" if litert else "onnxruntime")
    import_module("numpy")
    before, start = read_memory("VmRSS"), time.perf_counter()
    run = (open_litert if litert else open_onnx_runtime)(path, threads)
    seconds = time.perf_counter() - start
    run()
    return seconds, read_memory("VmHWM") - before


def read_memory(field: str) -> float:
    """Return a field of the memory of this process in MB of 10^6 bytes (Linux only)."""
    lines = Path("/proc/self/status").read_text("ascii").splitlines()
    (line,) = (line for line in lines if line.startswith(f"{field}:"))
    return 1024e-6 * int(line.split()[1])


def load_model(path: Path, threads: int, runtime: str) -> Inference | str:
    """Return an inference that has run once, or the last line of the runtime's error."""
    loaders = {"onnxruntime": open_onnx_runtime, "openvino": open_openvino}
    try:
        run = (open_litert if path.suffix == ".tflite" else loaders[runtime])(path, threads)
        run()
    except Exception as error:  # noqa: BLE001 - a runtime may raise anything
        return str(error).strip().rpartition("\n")[2] or type(error).__name__
    return run


def open_onnx_runtime(model: Path | bytes, threads: int) -> Inference:
    """Return an inference of an ONNX model on the CPU."""
    session = open_session(model, threads)
    return partial(session.run, None, make_feeds(session))


def bind_onnx_runtime(model: bytes, *, optimize: bool = True) -> Inference:
    """Return an inference on one thread whose inputs and outputs have memory already.

    `optimize` is false for a model whose nodes all run as they are.
    """
    session = open_session(model, 1, optimize=optimize)
    binding = session.io_binding()
    for name, array in make_feeds(session).items():
        binding.bind_cpu_input(name, array)
    for port in session.get_outputs():
        binding.bind_output(port.name)
    return partial(session.run_with_iobinding, binding)


def open_session(  # noqa: ANN201 - onnxruntime is imported late
    model: Path | bytes, threads: int, optimized: Path | None = None, *, optimize: bool = True
):
    """Return a session of ONNX Runtime for an ONNX model, a file or its bytes.

    It writes the graph that it runs to the file `optimized`.
    """
    runtime = import_module("onnxruntime")
    options = runtime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    if not optimize:
        options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_DISABLE_ALL
    if optimized:
        options.optimized_model_filepath = str(optimized)
    # Threads that spin between runs would take cores from the runtime whose turn it is.
    options.add_session_config_entry("session.force_spinning_stop", "1")
    return runtime.InferenceSession(model, options, ["CPUExecutionProvider"])


def make_feeds(session: Any) -> dict[str, Any]:  # noqa: ANN401 - onnxruntime is imported late
    """Return random inputs for a session; dynamic sizes are 1."""
    kinds = {"float": "float32", "double": "float64"}
    feeds = {}
    for port in session.get_inputs():
        kind = port.type.removeprefix("tensor(").removesuffix(")")
        shape = [size if isinstance(size, int) else 1 for size in port.shape]
        feeds[port.name] = make_array(shape, kinds.get(kind, kind))
    return feeds


def open_openvino(path: Path, threads: int) -> Inference:
    """Return an inference of an ONNX model in OpenVINO's CPU plugin, with floats of 32 bits."""
    core: Any = import_module("openvino").Core()
    # A thread that is pinned to a core waits for other programs on this core.
    options = {
        "INFERENCE_PRECISION_HINT": "f32",
        "INFERENCE_NUM_THREADS": threads,
        "ENABLE_CPU_PINNING": False,
    }
    request = core.compile_model(path, "CPU", options).create_infer_request()
    for i, port in enumerate(request.model_inputs):
        sizes = [1 if size.is_dynamic else size.get_length() for size in port.partial_shape]
        array = make_array(sizes, port.element_type.to_dtype().name)
        request.set_input_tensor(i, import_module("openvino").Tensor(array))
    return partial(request.infer)


def open_litert(path: Path, threads: int) -> Inference:
    """Return an inference of a TFLite model, with the default delegate of LiteRT."""
    package = import_module("ai_edge_litert.interpreter")
    interpreter: Any = package.Interpreter(str(path), num_threads=threads)
    interpreter.allocate_tensors()
    for port in interpreter.get_input_details():
        array = make_array(port["shape"], port["dtype"].__name__)
        interpreter.set_tensor(port["index"], array)
    return partial(interpreter.invoke)


def make_array(shape: Sequence[int], kind: str) -> Any:  # noqa: ANN401 - numpy is imported late
    """Return a random array of a shape and a type, the same in every call.

    Floats are from 0 to 1, integers of 8 and 16 bits take all their values, others are 0 or 1.
    """
    numpy = import_module("numpy")
    generator = numpy.random.default_rng(20)
    if kind in {"int8", "uint8", "int16"}:
        limits = numpy.iinfo(kind)
        return generator.integers(limits.min, limits.max, shape, kind, endpoint=True)
    values = generator.random(shape)
    return (values if "float" in kind else values.round()).astype(kind)


if __name__ == "__main__":
    print(__doc__)

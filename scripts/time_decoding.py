"""Time and memory of a step of decoding in LiteRT and in ONNX Runtime, on one thread.

    tflite2onnx MODEL.tflite -o FOLDER --signature all --caches shared
    python scripts/time_decoding.py MODEL.tflite FOLDER [--position 20]

Each runtime has a process of its own, and both run blocks of steps in turn; the first steps of a
block are left out, since the other runtime has filled the processor's caches. ONNX Runtime updates
the caches of the model in place. Times are processor time, medians in ms. The ratio is the median
of several pairs of processes, which differ in where the memory of the weights is. Memory is the
largest resident memory of a process, less that before it imports the runtime.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

_STEPS, _COLD = 13, 3  # the steps of a block, and the first of them, which are not printed
_TYPES = {"tensor(float)": np.float32, "tensor(int32)": np.int32, "tensor(bool)": np.bool_}


def main() -> int:
    """Print the times and the memory of both runtimes."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--position", type=int, default=20)
    parser.add_argument("--signature", default="decode")
    parser.add_argument("--blocks", type=int, default=12)
    parser.add_argument("--pairs", type=int, default=5, help="of processes")
    parser.add_argument("--only", help="run blocks in a runtime, one for each line of the input")
    chosen = parser.parse_args()
    if chosen.only:
        make = {"LiteRT": LiteRT, "ONNX Runtime": OnnxRuntime}[chosen.only]
        return run_blocks(make, chosen)
    names = ("LiteRT", "ONNX Runtime")
    found = [time_pair(names, chosen.blocks) for _ in range(chosen.pairs)]
    times = [1e3 * median(pair[i][0] for pair in found) for i in range(2)]
    ratios = sorted(pair[1][0] / pair[0][0] for pair in found)
    print(
        f"LiteRT {times[0]:.2f} ms, ONNX Runtime {times[1]:.2f} ms: {median(ratios):.2f}"
        f" ({ratios[0]:.2f} to {ratios[-1]:.2f})"
    )
    memory = [sorted(pair[i][1] for pair in found) for i in range(2)]
    print(
        f"memory, MB: LiteRT {median(memory[0])},"
        f" ONNX Runtime {memory[1][0]} to {memory[1][-1]}, median {median(memory[1])}"
    )
    return 0


def time_pair(names: Sequence[str], blocks: int) -> list[tuple[float, int]]:
    """Return the median of the seconds of a step, and the memory in MB, of each runtime."""
    own = [sys.executable, *sys.argv]
    children = [
        subprocess.Popen(  # noqa: S603 - this script
            [*own, "--only", name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        for name in names
    ]
    times: list[list[float]] = [[] for _ in names]
    for _ in range(blocks):
        for child, known in zip(children, times, strict=True):
            assert child.stdin is not None  # noqa: S101 - pipes
            assert child.stdout is not None  # noqa: S101 - likewise
            child.stdin.write("block\n")
            child.stdin.flush()
            known.extend(map(float, child.stdout.readline().split()))
    memory = [int(child.communicate()[0]) for child in children]
    return [(median(known), size) for known, size in zip(times, memory, strict=True)]


def run_blocks(make: type[LiteRT | OnnxRuntime], chosen: argparse.Namespace) -> int:
    """Print the seconds of each step of a block for each line of the input, then the memory."""
    before = read_peak()
    step = make(chosen)
    for _ in sys.stdin:
        print(*[step.time() for _ in range(_STEPS)][_COLD:], flush=True)
    print(read_peak() - before)
    return 0


def read_peak() -> int:
    """Return the largest resident memory of the process so far, in MB."""
    found = re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text("utf-8"))
    return int(found[1]) // 1024 if found else 0


class LiteRT:
    """A step in LiteRT's default kernels."""

    def __init__(self, chosen: argparse.Namespace) -> None:
        from ai_edge_litert.interpreter import Interpreter  # noqa: PLC0415 - one of two runtimes

        self._interpreter = Interpreter(chosen.model, num_threads=1)
        self._runner = self._interpreter.get_signature_runner(chosen.signature)
        details = self._runner.get_input_details().items()
        self._runner(
            **{n: fill(n, tuple(d["shape"]), d["dtype"], chosen.position) for n, d in details}
        )

    def time(self) -> float:
        """Return the seconds of a step."""
        start = time.thread_time()
        self._runner._interpreter_wrapper.Invoke(self._runner._subgraph_index)  # noqa: SLF001
        return time.thread_time() - start


class OnnxRuntime:
    """A step in ONNX Runtime; outputs that are caches have the memory of their inputs."""

    def __init__(self, chosen: argparse.Namespace) -> None:
        import onnxruntime as ort  # noqa: PLC0415 - one of two runtimes

        options = ort.SessionOptions()
        options.intra_op_num_threads, options.log_severity_level = 1, 3
        session = ort.InferenceSession(chosen.folder / f"{chosen.signature}.onnx", options)
        metadata = session.get_modelmeta().custom_metadata_map
        names = json.loads(metadata["tflite2onnx.signatures"])[chosen.signature]
        inputs = {name: source for source, name in names["inputs"].items()}
        values = {
            each.name: ort.OrtValue.ortvalue_from_numpy(
                fill(inputs[each.name], each.shape, _TYPES[each.type], chosen.position)
            )
            for each in session.get_inputs()
        }
        caches = {new: names["inputs"].get(name) for name, new in names["outputs"].items()}
        self._session, self._binding, self._values = session, session.io_binding(), values
        for name, value in values.items():
            self._binding.bind_ortvalue_input(name, value)
        for output in session.get_outputs():
            if caches.get(output.name) in values:
                self._binding.bind_ortvalue_output(output.name, values[caches[output.name]])
            else:
                self._binding.bind_output(output.name)

    def time(self) -> float:
        """Return the seconds of a step."""
        start = time.thread_time()
        self._session.run_with_iobinding(self._binding)
        return time.thread_time() - start


def fill(
    name: str, shape: Sequence[int], dtype: type[np.generic], position: int
) -> np.ndarray[Any, Any]:
    """Return an input of a step at a position; caches are zeros."""
    if "mask" in name:
        seen = np.arange(shape[-1]) <= position
        values = seen if dtype == np.bool_ else np.where(seen, 0, -1e9)
        return np.ascontiguousarray(np.broadcast_to(values, shape), dtype)
    return np.full(shape, position if "pos" in name else 0, dtype)


if __name__ == "__main__":
    sys.exit(main())

"""Time and memory of a step of decoding in LiteRT and in ONNX Runtime, on one thread.

    tflite2onnx MODEL.tflite -o FOLDER --signature all --caches shared
    python scripts/time_decoding.py MODEL.tflite FOLDER [--position 20]

Both runtimes run blocks of steps in turn; the first steps of a block are left out, since the other
runtime has filled the processor's caches. ONNX Runtime updates the caches of the model in place.
`--alternate` takes turns step by step instead. Times are processor time, medians in ms. Memory is
the largest resident memory of a process that opens the model in one runtime and runs 20 steps, less
that of a process that only imports the runtime.
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

_DECODE = "decode"
_STEPS, _COLD = 10, 3  # of a block
_TYPES = {"tensor(float)": np.float32, "tensor(int32)": np.int32, "tensor(bool)": np.bool_}


def main() -> int:
    """Print the times and the memory of both runtimes."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--position", type=int, default=20)
    parser.add_argument("--blocks", type=int, default=20)
    parser.add_argument("--alternate", action="store_true")
    parser.add_argument("--only", help="run 20 steps in a runtime and print its memory")
    chosen = parser.parse_args()
    if chosen.only:
        make = {"LiteRT": LiteRT, "ONNX Runtime": OnnxRuntime}[chosen.only]
        before = read_peak()
        step = make(chosen.model, chosen.folder, chosen.position)
        for _ in range(20):
            step.time()
        print(read_peak() - before)
        return 0
    steps = [make(chosen.model, chosen.folder, chosen.position) for make in (LiteRT, OnnxRuntime)]
    count, cold = (1, 0) if chosen.alternate else (_STEPS, _COLD)
    times: list[list[float]] = [[], []]
    for _ in range(chosen.blocks * (_STEPS if chosen.alternate else 1)):
        for i, step in enumerate(steps):
            times[i] += [step.time() for _ in range(count)][cold:]
    litert, onnx_runtime = (1e3 * median(known) for known in times)
    print(
        f"LiteRT {litert:.2f} ms, ONNX Runtime {onnx_runtime:.2f} ms: {onnx_runtime / litert:.2f}"
    )
    own = [sys.executable, __file__, chosen.model, str(chosen.folder), "--only"]
    memory = [
        int(subprocess.check_output([*own, name], text=True))  # noqa: S603 - this script
        for name in ("LiteRT", "ONNX Runtime")
    ]
    print(f"memory, MB: LiteRT {memory[0]}, ONNX Runtime {memory[1]}")
    return 0


def read_peak() -> int:
    """Return the largest resident memory of the process so far, in MB."""
    found = re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text("utf-8"))
    return int(found[1]) // 1024 if found else 0


class LiteRT:
    """A step in LiteRT's default kernels."""

    def __init__(self, model: str, folder: Path, position: int) -> None:  # noqa: ARG002 - as below
        from ai_edge_litert.interpreter import Interpreter  # noqa: PLC0415 - one of two runtimes

        self._interpreter = Interpreter(model, num_threads=1)
        self._runner = self._interpreter.get_signature_runner(_DECODE)
        details = self._runner.get_input_details().items()
        self._runner(**{n: fill(n, tuple(d["shape"]), d["dtype"], position) for n, d in details})

    def time(self) -> float:
        """Return the seconds of a step."""
        start = time.thread_time()
        self._runner._interpreter_wrapper.Invoke(self._runner._subgraph_index)  # noqa: SLF001
        return time.thread_time() - start


class OnnxRuntime:
    """A step in ONNX Runtime; outputs that are caches have the memory of their inputs."""

    def __init__(self, model: str, folder: Path, position: int) -> None:  # noqa: ARG002 - as above
        import onnxruntime as ort  # noqa: PLC0415 - one of two runtimes

        options = ort.SessionOptions()
        options.intra_op_num_threads, options.log_severity_level = 1, 3
        session = ort.InferenceSession(folder / f"{_DECODE}.onnx", options)
        metadata = session.get_modelmeta().custom_metadata_map
        names = json.loads(metadata["tflite2onnx.signatures"])[_DECODE]
        inputs = {name: source for source, name in names["inputs"].items()}
        values = {
            each.name: ort.OrtValue.ortvalue_from_numpy(
                fill(inputs[each.name], each.shape, _TYPES[each.type], position)
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

"""ONNX Runtime on processors emulated by QEMU: the processor decides the integer kernel.

    made = run_models([(model, [[x], [x]])], "Haswell", folder)

The models are converted before. The emulated process only runs them; its script is this file.
AArch64 is not emulated: this needs a Python and an ONNX Runtime of that architecture.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import onnxruntime

from tflite2onnx.stateful import Stateful

Array: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"
Runs: TypeAlias = Sequence[Sequence[Array]]

QEMU = "qemu-x86_64"
# AVX2 without VNNI, and SSE 4.1 without AVX: two families of kernels that add products in 16 bits.
EMULATED = ("Haswell", "Nehalem")
NATIVE = "native"


def why_not() -> str:
    """Return why processors cannot be emulated here; empty if they can."""
    if platform.machine() not in ("x86_64", "AMD64"):
        return f"ONNX Runtime is installed for {platform.machine()}, not for x86-64"
    if shutil.which(QEMU) is None:
        return f"{QEMU} is not installed (apt-get install qemu-user)"
    return ""


def run_script(processor: str, script: Path, *words: str) -> None:
    """Run a Python script on a processor: a QEMU processor of this name, or this machine's.

    The script has the same import paths as this process.

    Raises:
        AssertionError: the script ends with an error, which is in the message.
    """
    # QEMU has to load the file that the link in a virtual environment resolves to. Without the
    # link Python finds only its standard library; other packages are given by their paths.
    python = str(Path(sys.executable).resolve())
    command = [python, str(script), *words]
    path = os.pathsep.join(entry for entry in sys.path if entry)
    environment = {**os.environ, "PYTHONPATH": path}
    if processor != NATIVE:
        command = [QEMU, "-cpu", processor, *command]
        # On an AMD EPYC the OpenBLAS of numpy 2.4 takes QEMU's Nehalem for Haswell, whose
        # instructions end the process.
        environment["OPENBLAS_CORETYPE"] = processor
    done = subprocess.run(
        command,
        check=False,
        capture_output=True,
        text=True,
        env=environment,
    )
    if done.returncode:
        raise AssertionError(f"{' '.join(command)} ends with {done.returncode}: {done.stderr}")


def run_models(
    models: Sequence[tuple[bytes, Runs]], processor: str, folder: Path, **config: str
) -> list[list[list[Array]]]:
    """Run models on a processor, all in one process, with all graph optimizations.

    Each model has its inputs for each run; a model without runs is only loaded. The processes
    exchange files in the folder. `config` has further session config entries "session.NAME" by
    their names.

    Returns:
        For each model the outputs of each run.
    """
    for number, (model, runs) in enumerate(models):
        (folder / f"{number}.onnx").write_bytes(model)
        _save(folder / f"{number}.inputs.npz", runs)
    words = [f"{name}={value}" for name, value in config.items()]
    run_script(processor, Path(__file__), str(folder), *words)
    return [_load(folder / f"{number}.outputs.npz") for number in range(len(models))]


def _save(path: Path, runs: Runs) -> None:
    """Write arrays by run and place."""
    arrays = {
        f"{run} {place}": array for run, each in enumerate(runs) for place, array in enumerate(each)
    }
    np.savez(path, **arrays)  # type: ignore[arg-type]


def _load(path: Path) -> list[list[Array]]:
    """Read arrays written by `_save`."""
    runs: dict[str, list[Array]] = {}
    with np.load(path) as arrays:
        for name in arrays.files:  # in the order in which they were written
            runs.setdefault(name.split()[0], []).append(arrays[name])
    return list(runs.values())


def main(folder: Path, config: Mapping[str, str]) -> None:
    """Run each model of a folder on its inputs, and write its outputs."""
    for path in folder.glob("*.onnx"):
        made = _run_model(path, _load(path.with_suffix(".inputs.npz")), config)
        _save(path.with_suffix(".outputs.npz"), made)


def _run_model(path: Path, runs: Runs, config: Mapping[str, str]) -> list[list[Array]]:
    """Return the outputs of each run of a model, which keeps its state from run to run."""
    options = onnxruntime.SessionOptions()
    for name, value in config.items():
        options.add_session_config_entry(f"session.{name}", value)
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(path, options, ["CPUExecutionProvider"])
    live = Stateful(session)
    names = [port.name for port in session.get_inputs()]
    return [
        [np.asarray(array) for array in live.run(None, dict(zip(names, arrays, strict=True)))]
        for arrays in runs
    ]


if __name__ == "__main__":
    main(Path(sys.argv[1]), dict(word.split("=") for word in sys.argv[2:]))

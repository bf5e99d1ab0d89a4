"""Run an ONNX model for another process: python serve.py RUNTIME MODEL.

The first line on stdout says whether the model is loaded. Each line on stdin then has the inputs
of a run, and each further line on stdout its outputs. Lines are JSON: arrays by name, an array as
type, shape and bytes in base64. An error is {"error": its text}.

This file runs in environments that have the runtime and numpy, and nothing of this project.
"""

from __future__ import annotations

import base64
import json
import os
import sys
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

Run = Callable[[dict[str, Any]], dict[str, Any]]


def load_onnxruntime(path: str) -> Run:
    """Load a model in ONNX Runtime's CPU provider."""
    runtime = import_module("onnxruntime")
    options = runtime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    session = runtime.InferenceSession(path, options, ["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return lambda feeds: dict(zip(names, session.run(names, feeds), strict=True))


def load_qnn(path: str, *, strict: bool) -> Run:
    """Load a model in the QNN provider, on the simulator of its HTP processor.

    If it is strict, a model is refused that the processor does not run as a whole. Without the
    numbers of a chip the simulator computes floats in float32, and lacks memory for some networks.
    """
    runtime, qnn = import_module("onnxruntime"), import_module("onnxruntime_qnn")
    provider = "QNNExecutionProvider"
    runtime.register_execution_provider_library(provider, qnn.get_library_path())
    options = runtime.SessionOptions()
    options.log_severity_level = 3
    options.add_session_config_entry("session.disable_cpu_ep_fallback", str(int(strict)))
    devices = [each for each in runtime.get_ep_devices() if each.ep_name == provider]
    backend = Path(qnn.LIB_DIR_FULL_PATH, "libQnnHtp.so")
    chip = {"backend_path": str(backend), "htp_arch": "73", "soc_model": "43"}
    options.add_provider_for_devices(devices[:1], chip)
    session = runtime.InferenceSession(path, options)
    names = [output.name for output in session.get_outputs()]
    return lambda feeds: dict(zip(names, session.run(names, feeds), strict=True))


def load_reference(path: str) -> Run:
    """Load a model in onnx.reference."""
    evaluator = import_module("onnx.reference").ReferenceEvaluator(path)
    names = evaluator.output_names
    return lambda feeds: dict(zip(names, evaluator.run(None, feeds), strict=True))


def load_openvino(path: str, **hints: str) -> Run:
    """Load a model in OpenVINO's CPU plugin, which may compute float32 as bfloat16."""
    openvino = import_module("openvino")
    model = openvino.Core().compile_model(path, "CPU", hints)
    names = [output.get_names() for output in model.outputs]

    def run_model(feeds: dict[str, Any]) -> dict[str, Any]:
        made = model(feeds)
        return {name: made[i] for i, every in enumerate(names) for name in every}

    return run_model


def load_opencv(path: str) -> Run:
    """Load a model in OpenCV."""
    dnn = import_module("cv2").dnn
    net = dnn.readNetFromONNX(path)
    names = list(net.getUnconnectedOutLayersNames())

    def run_model(feeds: dict[str, Any]) -> dict[str, Any]:
        for name, array in feeds.items():
            net.setInput(array, name)
        return dict(zip(names, net.forward(names), strict=True))

    return run_model


def load_tvm(path: str) -> Run:
    """Compile a model with TVM for this processor."""
    tvm, onnx = import_module("tvm"), import_module("onnx")
    frontend = import_module("tvm.relax.frontend.onnx")
    model = onnx.load(path)
    module = frontend.from_onnx(model, keep_params_in_input=False)
    executable = tvm.compile(module, target="llvm")
    machine = tvm.relax.VirtualMachine(executable, tvm.cpu())
    inputs = [port.name for port in model.graph.input]
    outputs = [port.name for port in model.graph.output]

    def run_model(feeds: dict[str, Any]) -> dict[str, Any]:
        made = machine["main"](*(tvm.runtime.tensor(feeds[name]) for name in inputs))
        arrays = [made] if len(outputs) == 1 else list(made)
        return {name: a.numpy() for name, a in zip(outputs, arrays, strict=True)}

    return run_model


LOADERS: dict[str, Callable[[str], Run]] = {
    "onnxruntime": load_onnxruntime,
    "opencv": load_opencv,
    "openvino": partial(load_openvino, INFERENCE_PRECISION_HINT="f32"),
    "openvino-default": load_openvino,
    "openvino-floats": partial(
        load_openvino, INFERENCE_PRECISION_HINT="f32", LP_TRANSFORMS_MODE="NO"
    ),
    "qnn": partial(load_qnn, strict=True),
    "qnn-fallback": partial(load_qnn, strict=False),
    "reference": load_reference,
    "tvm": load_tvm,
}


def decode_arrays(arrays: dict[str, Any]) -> dict[str, Any]:
    """Return arrays from their JSON."""
    return {
        name: np.frombuffer(base64.b64decode(data), dtype).reshape(shape)
        for name, (dtype, shape, data) in arrays.items()
    }


def encode_arrays(arrays: dict[str, Any]) -> dict[str, Any]:
    """Return arrays as JSON."""
    encoded = {}
    for name, value in arrays.items():
        array = np.ascontiguousarray(value)
        data = base64.b64encode(array.tobytes()).decode()
        encoded[name] = [array.dtype.name, np.shape(value), data]
    return encoded


def main(runtime: str, path: str) -> None:
    """Load a model, and run it on each line of stdin."""
    # Runtimes print on stdout, too.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def write_answer(**found: Any) -> None:
        print(json.dumps(found), file=answers, flush=True)

    try:
        run = LOADERS[runtime](path)
        write_answer(loaded=True)
        for line in sys.stdin:
            write_answer(outputs=encode_arrays(run(decode_arrays(json.loads(line)))))
    except BaseException as error:  # noqa: BLE001 - a runtime may raise anything
        write_answer(error=f"{type(error).__name__}: {error}")


if __name__ == "__main__":
    main(*sys.argv[1:])

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
import re
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import numpy as np

Run = Callable[[dict[str, Any]], dict[str, Any]]


def load_onnxruntime(path: str, provider: str = "CPU", **settings: str) -> Run:
    """Load a model in a provider of ONNX Runtime; nodes that it lacks run on the CPU.

    The environment variable PROFILE names a file for the times and providers of nodes.
    """
    runtime = import_module("onnxruntime")
    options = runtime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    if "PROFILE" in os.environ:
        options.enable_profiling, options.profile_file_prefix = True, os.environ["PROFILE"]
    name = f"{provider}ExecutionProvider"
    session = runtime.InferenceSession(path, options, [(name, settings)])
    if name not in session.get_providers():
        raise RuntimeError(f"{name} is not available")
    names = [output.name for output in session.get_outputs()]
    return lambda feeds: dict(zip(names, session.run(names, feeds), strict=True))


def load_webgpu(path: str) -> Run:
    """Load a model in the WebGPU provider, on the GPU that Chromium computes on the CPU."""
    os.environ["VK_ICD_FILENAMES"] = "/usr/lib/chromium/vk_swiftshader_icd.json"
    return load_onnxruntime(path, "WebGpu")


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


def name_ends(path: str) -> tuple[list[tuple[str, list[int]]], list[tuple[str, list[int]]]]:
    """Return the names and shapes of the inputs of a model, and of its outputs."""
    graph = import_module("onnx").load(path).graph
    inputs, outputs = (
        [(port.name, [d.dim_value for d in port.type.tensor_type.shape.dim]) for port in ports]
        for ports in (graph.input, graph.output)
    )
    return inputs, outputs


def load_tract(path: str) -> Run:
    """Load a model in tract, with its optimizations."""
    runnable = import_module("tract").onnx().load(path).into_model().into_runnable()
    inputs, outputs = name_ends(path)

    def run_model(feeds: dict[str, Any]) -> dict[str, Any]:
        made = runnable.run([feeds[name] for name, _ in inputs])
        return {name: tensor.to_numpy() for (name, _), tensor in zip(outputs, made, strict=True)}

    return run_model


def load_iree(path: str) -> Run:
    """Compile a model with IREE for this processor."""
    runtime, tools = import_module("iree.runtime"), Path(sys.executable).parent
    text, compiled = f"{path}.mlir", f"{path}.vmfb"
    subprocess.run([str(tools / "iree-import-onnx"), path, "-o", text], check=True)
    device = ["--iree-hal-target-device=local", "--iree-hal-local-target-device-backends=llvm-cpu"]
    options = [*device, "--iree-llvmcpu-target-cpu=host", "-o", compiled]
    subprocess.run([str(tools / "iree-compile"), text, *options], check=True)
    module = runtime.load_vm_flatbuffer_file(compiled, driver="local-sync")
    onnx = import_module("onnx")
    types = [port.type.tensor_type.elem_type for port in onnx.load(path).graph.output]
    kinds = [onnx.helper.tensor_dtype_to_np_dtype(each) for each in types]
    # The function has the name of the graph; others are "__init" and the function's name with "$".
    (name,) = (n for n in module.vm_module.function_names if "$" not in n and n != "__init")
    inputs, outputs = name_ends(path)

    def run_model(feeds: dict[str, Any]) -> dict[str, Any]:
        made = module[name](*(feeds[end] for end, _ in inputs))
        # Copies, because IREE frees the memory of its arrays when this function ends.
        arrays = [np.array(a) for a in (made if isinstance(made, (list, tuple)) else [made])]
        # IREE's integers have no sign.
        pairs = zip(arrays, kinds, strict=True)
        signed = [a.view(kind) if a.dtype.kind in "iu" else a for a, kind in pairs]
        return {end: a for (end, _), a in zip(outputs, signed, strict=True)}

    return run_model


def load_mnn(path: str) -> Run:
    """Convert a model for MNN, and load it.

    The command mnnconvert would install a package that reports its use.
    """
    tools, made = import_module("_tools"), f"{path}.mnn"
    words = ["mnnconvert", "-f", "ONNX", "--modelFile", path, "--MNNModel", made]
    tools.mnnconvert([*words, "--bizCode", "biz"])
    nn, expr = import_module("MNN.nn"), import_module("MNN.expr")
    inputs, outputs = ([name for name, _ in ends] for ends in name_ends(path))
    net = nn.load_module_from_file(made, inputs, outputs)
    kinds = {"int32": expr.int, "int64": expr.int64, "int8": expr.int8, "uint8": expr.uint8}
    kinds["float32"] = expr.float

    def run_model(feeds: dict[str, Any]) -> dict[str, Any]:
        arrays = [np.ascontiguousarray(feeds[name]) for name in inputs]
        found = net.forward(
            [expr.const(a, [*a.shape], expr.NCHW, kinds[a.dtype.name]) for a in arrays]
        )
        whole = [expr.convert(y, expr.NCHW) for y in found]
        return {n: np.array(y.read()) for n, y in zip(outputs, whole, strict=True)}

    return run_model


def load_ncnn(path: str) -> Run:
    """Convert a model with pnnx, and load it in ncnn, in float32."""
    ncnn = import_module("ncnn")
    pnnx = Path(str(ncnn.__file__)).parents[1] / "pnnx" / "pnnx"
    inputs, outputs = name_ends(path)
    shapes = ",".join(f"[{','.join(map(str, shape))}]" for _, shape in inputs)
    subprocess.run([str(pnnx), path, f"inputshape={shapes}", "fp16=0"], check=True)
    net = ncnn.Net()
    net.opt.use_fp16_packed = net.opt.use_fp16_storage = net.opt.use_fp16_arithmetic = False
    net.opt.use_bf16_storage, net.opt.num_threads = False, 1
    stem = path.removesuffix(".onnx")
    if net.load_param(f"{stem}.ncnn.param") or net.load_model(f"{stem}.ncnn.bin"):
        raise RuntimeError("ncnn does not load the model")
    # ncnn has no axis of batches: pnnx decides for each end which axis is left out, 233 for none.
    program = Path(f"{stem}_ncnn.py").read_text()
    axes = re.findall(r"\b((?:in|out)\d+)\.numpy\((?:\), )?batch_index=(\d+)", program)
    batches = {name: int(axis) for name, axis in axes}

    def run_model(feeds: dict[str, Any]) -> dict[str, Any]:
        extractor, made = net.create_extractor(), {}
        for i, (name, _) in enumerate(inputs):
            array, batch = np.ascontiguousarray(feeds[name]), batches[f"in{i}"]
            extractor.input(f"in{i}", ncnn.Mat(array, batch_index=batch).clone())
        for i, (name, shape) in enumerate(outputs):
            status, found = extractor.extract(f"out{i}")
            if status:
                raise RuntimeError(f"ncnn does not compute {name}: {status}")
            made[name] = found.numpy(batch_index=batches[f"out{i}"]).reshape(shape).copy()
        return made

    return run_model


def load_rknn(path: str) -> Run:
    """Convert a model for an RK3588, and load it in RKNN's simulator.

    PyTorch is imported, and only used where RKNN quantizes: an empty module stands for it.
    """
    names = ("torch", "torch.nn", "torch.nn.functional", "torch.autograd", "torch.utils.data")
    sys.modules.update({name: MagicMock() for name in names})
    kit = import_module("rknn.api").RKNN(verbose=False)
    kit.config(target_platform="rk3588")
    if kit.load_onnx(model=path) or kit.build(do_quantization=False) or kit.init_runtime():
        raise RuntimeError("RKNN does not load the model")
    inputs, outputs = name_ends(path)

    def run_model(feeds: dict[str, Any]) -> dict[str, Any]:
        arrays = [feeds[name] for name, _ in inputs]
        made = kit.inference(inputs=arrays, data_format=["nchw"] * len(inputs))
        ends = zip(outputs, made, strict=True)
        return {name: array.reshape(shape) for (name, shape), array in ends}

    return run_model


LOADERS: dict[str, Callable[[str], Run]] = {
    "onnxruntime": load_onnxruntime,
    "opencv": load_opencv,
    "openvino": partial(load_openvino, INFERENCE_PRECISION_HINT="f32"),
    "openvino-default": load_openvino,
    "openvino-floats": partial(
        load_openvino, INFERENCE_PRECISION_HINT="f32", LP_TRANSFORMS_MODE="NO"
    ),
    "onnxruntime-openvino": partial(
        load_onnxruntime, provider="OpenVINO", device_type="CPU", precision="FP32"
    ),
    "onnxruntime-webgpu": load_webgpu,
    "iree": load_iree,
    "mnn": load_mnn,
    "ncnn": load_ncnn,
    "tract": load_tract,
    "rknn": load_rknn,
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

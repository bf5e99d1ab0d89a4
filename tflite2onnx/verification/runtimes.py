"""LiteRT and ONNX Runtime: open models, run them, and turn runtime errors into VerifyError.

Both packages are imported when they are needed, because a conversion does not need them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import numpy as np

from tflite2onnx.errors import VerifyError
from tflite2onnx.tensor import Array
from tflite2onnx.verification.tolerance import QUANTIZED

PLAIN_KERNELS = "BUILTIN_WITHOUT_DEFAULT_DELEGATES"
FASTEST_KERNELS = "AUTO"  # those of LiteRT's default delegate, XNNPACK, on one thread
ModelFile = str | os.PathLike[str] | bytes


def open_interpreter(model: ModelFile, kernels: str = PLAIN_KERNELS, *, inner: bool = False) -> Any:
    """Return a LiteRT interpreter that is ready to run; `kernels` is one of OpResolverType.

    With `inner`, the interpreter keeps the tensors between the operators for `inner_tensor`.
    """
    litert = import_runtime("ai_edge_litert.interpreter")
    source = (
        {"model_content": model} if isinstance(model, bytes) else {"model_path": os.fspath(model)}
    )
    resolver = litert.OpResolverType[kernels]
    with as_verify_error("LiteRT"):
        interpreter = litert.Interpreter(
            **source,
            experimental_op_resolver_type=resolver,
            experimental_preserve_all_tensors=inner,
        )
        interpreter.allocate_tensors()
    return interpreter


def run_litert(interpreter: Any, inputs: Sequence[Array]) -> list[Array]:
    """Return the outputs for these inputs; state carries over from the previous run."""
    with as_verify_error("LiteRT"):
        for detail, array in zip(interpreter.get_input_details(), inputs, strict=True):
            interpreter.set_tensor(detail["index"], array)
        interpreter.invoke()
        details = interpreter.get_output_details()
        return [np.asarray(interpreter.get_tensor(detail["index"])) for detail in details]


def read_inner_tensor(interpreter: Any, index: int) -> Array | None:
    """Return a tensor of the last run, None if LiteRT has not kept the tensor."""
    try:
        return np.asarray(interpreter.get_tensor(index))
    except ValueError:
        return None


def is_quantized(interpreter: Any) -> bool:
    """Return whether the network has a quantized tensor."""
    return any(
        np.dtype(detail["dtype"]).name in QUANTIZED
        and detail["quantization_parameters"]["scales"].size
        for detail in interpreter.get_tensor_details()
    )


def session_of(
    model: str | bytes,
    *,
    arena: bool = True,
    optimize: bool = True,
    threads: int = 0,
    profile: str = "",
) -> Any:
    """Return an onnxruntime.InferenceSession, for a path or the bytes of a file.

    Without `arena`, the session keeps no memory between runs. Without `optimize`, each node runs in
    a kernel of its own. `threads` is the number of threads of a node, 0 for all that the processor
    has. With `profile`, the start of a path, the session records the time of each node.
    """
    runtime = import_runtime("onnxruntime")
    options = runtime.SessionOptions()
    options.log_severity_level = 3  # errors only: warnings are about nodes that are optimized away
    options.enable_cpu_mem_arena = arena
    options.intra_op_num_threads = threads
    if profile:
        options.enable_profiling, options.profile_file_prefix = True, profile
    if not optimize:
        options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_DISABLE_ALL
    with as_verify_error("ONNX Runtime"):
        return runtime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def run_onnx(
    session: Any, feeds: Mapping[str, Array], names: Sequence[str] | None = None
) -> list[Array]:
    """Return all outputs, or the outputs in `names`; `feeds` maps input names to arrays."""
    with as_verify_error("ONNX Runtime"):
        return [np.asarray(output) for output in session.run(names, dict(feeds))]


def import_runtime(name: str) -> Any:
    """Import and return one of the two runtimes."""
    try:
        return import_module(name)
    except ImportError as error:
        raise VerifyError(
            f"verifying needs two more packages: pip install tflite2onnx[verify] ({error})"
        ) from error


@contextmanager
def as_verify_error(runtime: str) -> Iterator[None]:
    """Turn any exception of a runtime into a VerifyError: its own classes have no common base."""
    try:
        yield
    except Exception as error:
        raise VerifyError(
            f"{runtime} cannot run the model: {str(error).strip() or type(error).__name__}"
        ) from error

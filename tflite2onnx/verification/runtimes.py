"""LiteRT and ONNX Runtime: open models, run them, and turn runtime errors into VerifyError.

Both packages are imported when they are needed, because a conversion does not need them.
"""

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import numpy as np

from tflite2onnx.errors import VerifyError
from tflite2onnx.interface import CACHES, Endpoint
from tflite2onnx.tensor import Array
from tflite2onnx.utils.console import filter_stderr
from tflite2onnx.verification.tolerance import QUANTIZED

PLAIN_KERNELS = "BUILTIN_WITHOUT_DEFAULT_DELEGATES"
FASTEST_KERNELS = "AUTO"  # the kernels of LiteRT's default delegate, XNNPACK, on one thread
REFERENCE_KERNELS = "BUILTIN_REF"
_TWO = "two more packages: pip install tflite2onnx[verify]"
_NOTICE = b"INFO: "
ModelFile = str | os.PathLike[str] | bytes


def open_interpreter(model: ModelFile, kernels: str = PLAIN_KERNELS, *, inner: bool = False) -> Any:
    """Return a LiteRT interpreter that is ready to run; `kernels` is one of OpResolverType.

    With `inner`, the interpreter keeps the tensors between the operators for `read_inner_tensor`.
    """
    litert = import_runtime("ai_edge_litert.interpreter")
    source = (
        {"model_content": model} if isinstance(model, bytes) else {"model_path": os.fspath(model)}
    )
    resolver = litert.OpResolverType[kernels]
    # LiteRT logs a line for each delegate on stderr, and has no option against it.
    with as_verify_error("LiteRT"), filter_stderr(lambda line: not line.startswith(_NOTICE)):
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


def has_quantized_tensors(interpreter: Any) -> bool:
    """Return whether the network has a quantized tensor."""
    return any(
        np.dtype(detail["dtype"]).name in QUANTIZED
        and detail["quantization_parameters"]["scales"].size
        for detail in interpreter.get_tensor_details()
    )


def has_half_endpoints(interpreter: Any) -> bool:
    """Return whether inputs or outputs of the network are float16, so that it rounds to float16."""
    endpoints = (*interpreter.get_input_details(), *interpreter.get_output_details())
    return any(np.dtype(detail["dtype"]) == np.float16 for detail in endpoints)


def make_session(
    model: str | bytes,
    *,
    arena: bool = True,
    optimize: bool = True,
    threads: int = 0,
    profile: str = "",
) -> Any:
    """Return an onnxruntime.InferenceSession, for a path or the bytes of a file.

    Without `arena`, the session keeps no memory between runs. Without `optimize`, each node runs in
    a kernel of its own. `threads` is the number of threads of a node, 0 for all threads of the
    processor. With `profile`, the start of a path, the session records the time of each node.
    """
    runtime = import_runtime("onnxruntime")
    options = runtime.SessionOptions()
    # Errors only: warnings are about nodes that ONNX Runtime removes.
    options.log_severity_level = 3
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
    """Return all outputs, or the outputs in `names`; `feeds` maps input names to arrays.

    Caches are updated in place.
    """
    live = getattr(session, "session", session)
    caches = json.loads(live.get_modelmeta().custom_metadata_map.get(CACHES, "{}"))
    with as_verify_error("ONNX Runtime"):
        if caches:
            return _run_in_place(live, feeds, names, caches)
        return [np.asarray(output) for output in session.run(names, dict(feeds))]


def _run_in_place(
    session: Any, feeds: Mapping[str, Array], names: Sequence[str] | None, caches: Mapping[str, str]
) -> list[Array]:
    """Return outputs; outputs in `caches` use the memory of copies of their inputs."""
    ort_value = import_runtime("onnxruntime").OrtValue
    arrays = {name: np.array(array) for name, array in feeds.items()}
    # The arrays must exist until the run ends, because the values share their memory.
    values = {name: ort_value.ortvalue_from_numpy(array) for name, array in arrays.items()}
    binding = session.io_binding()
    for name, value in values.items():
        binding.bind_ortvalue_input(name, value)
    for name in names or [output.name for output in session.get_outputs()]:
        if name in caches:
            binding.bind_ortvalue_output(name, values[caches[name]])
        else:
            binding.bind_output(name)
    session.run_with_iobinding(binding)
    return [np.array(value.numpy()) for value in binding.get_outputs()]


def import_runtime(name: str, package: str = "") -> Any:
    """Import and return a runtime: one of two, or that of a target, which is a package."""
    needs = f"{package}: pip install {package}" if package else _TWO
    try:
        return import_module(name)
    except ImportError as error:
        raise VerifyError(f"verifying needs {needs} ({error})") from error


class LiteRTError(VerifyError):
    """LiteRT cannot run a model."""


# What to do, by a part of the message of a runtime
_ADVICE = {
    "Select TensorFlow op(s)": "it has operators of TensorFlow (Flex), which ai_edge_litert lacks;"
    " convert without --verify, and compare with the interpreter of the package tensorflow",
    "Int4x2": "numpy has no int4, which an input or output has; give --io-type float if it has a"
    " scale, or convert without --verify",
}


@contextmanager
def as_verify_error(runtime: str) -> Iterator[None]:
    """Turn any exception of a runtime into a VerifyError: its own classes have no common base."""
    try:
        yield
    except VerifyError:
        raise
    except Exception as error:
        kind = LiteRTError if runtime == "LiteRT" else VerifyError
        reason = str(error).strip() or type(error).__name__
        if "INVALID_PROTOBUF" in reason:
            raise kind(
                "the converted file must be an ONNX model, got another or a damaged file; convert"
                " the model again"
            ) from error
        missing = re.search(r'External data path does not exist: "(.+?)"', reason)
        if missing:
            reason = f"the file of its weights is missing, {missing[1]}; convert the model again"
        advice = next((text for part, text in _ADVICE.items() if part in reason), reason)
        raise kind(f"{runtime} cannot run the model: {advice}") from error


class BatchInterpreter:
    """LiteRT runs each sample of a batch alone, in an interpreter with its own state.

    It has the methods of an interpreter that verification needs. `samples` are the interpreters,
    `inputs` and `outputs` those of the converted model. If `loops`, the first size of a sample
    tells whether it has the batch axis, else the ranks of the converted model do.
    """

    def __init__(
        self,
        each: Sequence[Any],
        inputs: Sequence[Endpoint],
        outputs: Sequence[Endpoint],
        *,
        loops: bool,
    ) -> None:
        self.samples = each
        self._inputs, self._outputs = (
            [
                _describe_batch(*pair, len(each), loops=loops)
                for pair in zip(details, endpoints, strict=False)
            ]
            for details, endpoints in (
                (each[0].get_input_details(), inputs),
                (each[0].get_output_details(), outputs),
            )
        )

    def get_input_details(self) -> list[dict[str, Any]]:
        return self._inputs

    def get_output_details(self) -> list[dict[str, Any]]:
        return self._outputs

    def get_tensor_details(self) -> Any:
        return self.samples[0].get_tensor_details()

    def set_tensor(self, index: int, batch: Array) -> None:
        for interpreter, sample in zip(self.samples, batch, strict=True):
            (detail,) = (d for d in interpreter.get_input_details() if d["index"] == index)
            shape = tuple(map(int, detail["shape"]))
            interpreter.set_tensor(index, np.asarray(sample).reshape(shape))

    def invoke(self) -> None:
        for interpreter in self.samples:
            interpreter.invoke()

    def get_tensor(self, index: int) -> Array:
        """Return an output, or a tensor whose first axis is the batch, of all samples."""
        samples = [interpreter.get_tensor(index) for interpreter in self.samples]
        ranks = [len(d["shape"]) for d in self._outputs if d["index"] == index]
        is_stacked = bool(ranks) and ranks[0] > np.ndim(samples[0])
        return np.stack(samples) if is_stacked else np.concatenate(samples)


def _describe_batch(
    detail: Mapping[str, Any], endpoint: Endpoint, count: int, *, loops: bool
) -> dict[str, Any]:
    """Return the description of an input or output, with the shape of the batch."""
    sample = tuple(map(int, detail["shape"]))
    has_batch = sample[:1] == (1,) if loops else len(endpoint.tflite_shape) == len(sample)
    rest = sample[1:] if has_batch else sample
    return {**detail, "shape": np.array((count, *rest), np.int32)}

"""LiteRT and ONNX Runtime, each on one thread."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import onnxruntime
from ai_edge_litert import schema_py_generated as schema
from ai_edge_litert.interpreter import Interpreter, OpResolverType

from tests.support.needs import needs_runtime

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    import onnx

Array: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"


def _interpreter(data: bytes, *, default_kernels: bool = False) -> Interpreter:
    # Without the default delegates LiteRT runs its own kernels, which define the operators.
    plain = OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    resolver = OpResolverType.AUTO if default_kernels else plain
    return Interpreter(model_content=data, num_threads=1, experimental_op_resolver_type=resolver)


def _dynamic(data: bytes) -> set[int]:
    """The tensors of the primary sub-graph whose shape or rank is unknown in the file."""
    graph = schema.Model.GetRootAs(data).Subgraphs(0)
    tensors = [graph.Tensors(index) for index in range(graph.TensorsLength())]
    return {
        index
        for index, tensor in enumerate(tensors)
        if not (tensor.ShapeLength() or tensor.HasRank())
        or -1 in np.atleast_1d(tensor.ShapeSignatureAsNumpy())
    }


def _type(detail: Mapping[str, Any]) -> str:
    return f"{np.dtype(detail['dtype'])}{detail['shape'].tolist()}"


def reference(
    data: bytes, runs: Sequence[Sequence[Array]], *, default_kernels: bool = False
) -> tuple[list[list[Array]], list[str]]:
    """LiteRT's outputs of consecutive runs in one interpreter, and wrong declarations of the file.

    `default_kernels` are those of LiteRT's default delegate, XNNPACK, where it takes an operator.
    A declaration is wrong if LiteRT's type or shape of the tensor is another.
    """
    interpreter = _interpreter(data, default_kernels=default_kernels)
    ports = interpreter.get_input_details()
    for inputs in runs:
        if len(ports) != len(inputs):
            raise ValueError(f"the model has {len(ports)} inputs, not {len(inputs)}")
    declared = interpreter.get_tensor_details()
    resized = False
    for port, value in zip(ports, runs[0], strict=True):
        if tuple(port["shape"]) != value.shape:
            interpreter.resize_tensor_input(port["index"], value.shape)
            resized = True
    interpreter.allocate_tensors()
    made = [_invoke(interpreter, inputs) for inputs in runs]
    actual = {detail["index"]: detail for detail in interpreter.get_tensor_details()}
    pairs = [(old, actual[old["index"]]) for old in declared]
    free = set(actual) if resized else _dynamic(data)
    untrue = [
        f"{old['name']} is {_type(old)} in the file but {_type(new)} in LiteRT"
        for old, new in pairs
        if old["dtype"] != new["dtype"]
        or not (old["index"] in free or np.array_equal(old["shape"], new["shape"]))
    ]
    return made, untrue


def _invoke(interpreter: Interpreter, inputs: Sequence[Array]) -> list[Array]:
    for port, value in zip(interpreter.get_input_details(), inputs, strict=True):
        interpreter.set_tensor(port["index"], value)
    interpreter.invoke()
    ports = interpreter.get_output_details()
    return [np.asarray(interpreter.get_tensor(port["index"])) for port in ports]


def run_tflite(
    data: bytes, inputs: Sequence[Array], *, default_kernels: bool = False
) -> list[Array]:
    """The outputs of the primary sub-graph, in its order, from a fresh interpreter.

    An input whose shape differs from the file resizes the model.
    """
    return reference(data, [inputs], default_kernels=default_kernels)[0][0]


def runners(data: bytes, keys: Iterable[str]) -> list[Callable[..., dict[str, Array]]]:
    """Functions that run the signatures in one interpreter; inputs and outputs are by name."""
    interpreter = _interpreter(data)
    return [interpreter.get_signature_runner(key) for key in keys]


def run_signature(data: bytes, key: str, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """The outputs of a signature, by their names in the signature."""
    (run,) = runners(data, [key])
    return run(**inputs)


_Options = onnxruntime.SessionOptions  # which a test may replace by `make_exact_options`


def make_exact_options() -> onnxruntime.SessionOptions:
    """Return options of a session whose products of uint8 by int8 saturate on no processor.

    They are for files with int8 weights: without VNNI ONNX Runtime makes uint8 weights of them.
    """
    options = _Options()
    options.add_session_config_entry("session.x64quantprecision", "1")
    return options


def session(model: onnx.ModelProto, *, optimize: bool) -> onnxruntime.InferenceSession:
    """An ONNX Runtime session with all graph optimizations or with none.

    The test is skipped if the model needs a newer ONNX Runtime, see `needs`.
    """
    needs_runtime(model)
    levels = onnxruntime.GraphOptimizationLevel
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = levels.ORT_ENABLE_ALL if optimize else levels.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    providers = ["CPUExecutionProvider"]
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers)


def run_session(live: onnxruntime.InferenceSession, feeds: Mapping[str, Array]) -> list[Array]:
    """The outputs of a session by position."""
    return [np.asarray(output) for output in live.run(None, dict(feeds))]


def run_onnx(
    model: onnx.ModelProto, feeds: Mapping[str, Array], *, optimize: bool = True
) -> list[Array]:
    """The outputs by position, with all graph optimizations of ONNX Runtime or with none."""
    return run_session(session(model, optimize=optimize), feeds)

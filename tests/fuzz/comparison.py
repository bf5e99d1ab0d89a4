"""A damaged file in LiteRT, and the converted model in ONNX Runtime."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import onnx
from ai_edge_litert.interpreter import Interpreter, OpResolverType
from onnx import TensorProto

from tests.conformance.table import Bound
from tests.fuzz.extremes import find_extremes
from tests.fuzz.kernels import find_amplifiers
from tests.support.compare import distance, in_bytes, in_pairs, run_restored, span
from tests.support.inputs import random_inputs
from tests.support.runtimes import Array, session
from tflite2onnx.stateful import Stateful

_MOST_ELEMENTS = 1 << 20
# A loop of a damaged file may run millions of times, and an iteration takes ONNX Runtime longer.
_MOST_SECONDS = 1
_PAIR = 2  # a complex number has two real numbers
_M_PERTURB = -6  # constant of malloc.h
# numpy arrays of these types cannot be given to ONNX Runtime.
_NOT_FED = {
    TensorProto.BFLOAT16,
    TensorProto.FLOAT8E4M3FN,
    TensorProto.FLOAT8E5M2,
    TensorProto.INT2,
    TensorProto.INT4,
    TensorProto.UINT2,
    TensorProto.UINT4,
}
# The model is valid: there is no kernel, the kernel is the user's, or LiteRT refuses it as well.
_KNOWN_REFUSALS = ("NOT_IMPLEMENTED", "Fatal error: tflite.", "by zero")
Runs = Sequence[Sequence[Array]]


class Numbers(NamedTuple):
    """Inputs of consecutive runs, and LiteRT's outputs."""

    runs: Runs
    want: Runs
    extreme: str = ""  # the name of a tensor with extreme values, if the check ran
    amplifier: str = ""  # an operator that amplifies steps of its operands, if the check ran


def run_litert(request: tuple[bytes, Runs, bool]) -> Numbers | str:
    """Return LiteRT's inputs and outputs, or the reason why there are none.

    The third part of the request is whether this is the second run, with other contents in memory:
    for some damaged files kernels read beyond an operand, or read memory that was never written.
    """
    data, runs, is_second = request
    ctypes.CDLL(None).mallopt(_M_PERTURB, 170 if is_second else 1)
    try:
        numbers = _run_litert(data, runs, overwrites=is_second)
    except Exception as error:  # noqa: BLE001 - any error means that LiteRT does not run the file
        return f"{type(error).__name__}: {error}"
    if is_second and isinstance(numbers, Numbers):
        extreme, amplifier = find_extremes(data, numbers.runs), find_amplifiers(data)
        return numbers._replace(extreme=extreme, amplifier=amplifier)
    return numbers


def _run_litert(data: bytes, runs: Runs, *, overwrites: bool) -> Numbers | str:
    """Return LiteRT's inputs and outputs, or the reason why there are none.

    `overwrites` changes the results of the last run before each run: a kernel that leaves elements
    of its output unwritten then shows other numbers.
    """
    resolver = OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    interpreter = Interpreter(
        model_content=data, num_threads=1, experimental_op_resolver_type=resolver
    )
    ports = interpreter.get_input_details()
    if sum(int(np.prod(port["shape"], dtype=np.float64)) for port in ports) > _MOST_ELEMENTS:
        return "its inputs are large"
    if not (runs and _fit(ports, runs[0])):
        runs = [random_inputs(data, seed) for seed in range(2)]
        if not _fit(ports, runs[0]):
            return "its inputs are unknown"
    interpreter.allocate_tensors()
    want: list[list[Array]] = []
    start = time.process_time()
    for inputs in runs:
        if overwrites and want:
            _overwrite_outputs(interpreter)
        for port, value in zip(ports, inputs, strict=True):
            interpreter.set_tensor(port["index"], value)
        interpreter.invoke()
        indices = [port["index"] for port in interpreter.get_output_details()]
        want.append([np.array(interpreter.get_tensor(index)) for index in indices])
        if sum(array.size for array in want[-1]) > _MOST_ELEMENTS:
            return "its outputs are large"
        if time.process_time() - start > _MOST_SECONDS:
            return "it runs for long"
    return Numbers(runs, want)


def _overwrite_outputs(interpreter: Interpreter) -> None:
    """Set all bytes of the outputs that an operator computes."""
    ops = interpreter._get_ops_details()  # noqa: SLF001 - nothing public tells what is computed
    computed = {i for op in ops for i in op["outputs"]}
    kept = {port["index"] for port in interpreter.get_input_details()}
    for port in interpreter.get_output_details():
        is_text = np.dtype(port["dtype"]).kind not in "fiucb"
        if port["index"] in computed - kept and not is_text:
            output = interpreter.tensor(port["index"])()
            output[...] = np.frombuffer(b"\x55" * output.itemsize, output.dtype)[0]


def _fit(ports: Sequence[Any], inputs: Sequence[Array]) -> bool:
    """Return whether inputs have the shapes and types that LiteRT expects."""
    return len(ports) == len(inputs) and all(
        (*port["shape"],) == value.shape and np.dtype(port["dtype"]).kind in (value.dtype.kind, "S")
        for port, value in zip(ports, inputs, strict=True)
    )


class Converted(NamedTuple):
    """A converted model, the axis orders of its inputs and outputs, and the expected outputs."""

    model: bytes
    orders: tuple[Sequence[Sequence[int]], Sequence[Sequence[int]]]
    numbers: Numbers | None
    bound: Bound


def run_onnxruntime(request: Converted) -> tuple[str, str]:
    """Return the outcome of a model in ONNX Runtime, and how its outputs differ from LiteRT's."""
    try:
        model = onnx.load_from_string(request.model)
        live = Stateful(session(model, optimize=False))
    except Exception as error:  # noqa: BLE001 - classes of C++
        known = any(text in str(error) for text in _KNOWN_REFUSALS)
        kind = "no kernel in" if known else "refused by"
        return f"{kind} ONNX Runtime", f"{type(error).__name__}: {error}"
    ends = (*model.graph.input, *model.graph.output)
    if request.numbers is None or not _NOT_FED.isdisjoint(_types(ends)):
        return "loaded", ""
    inputs, outputs = ([SimpleNamespace(order=o) for o in ends] for ends in request.orders)
    result: Any = SimpleNamespace(model=model, inputs=inputs, outputs=outputs)
    for arrays, wanted in zip(request.numbers.runs, request.numbers.want, strict=True):
        try:
            have = run_restored(result, live, arrays)
        except Exception as error:  # noqa: BLE001 - classes of C++
            return "fails in ONNX Runtime", f"{type(error).__name__}: {error}"
        if len(have) != len(wanted):
            return "differs in outputs", f"{len(wanted)} in LiteRT, {len(have)} in ONNX"
        for place, pair in enumerate(zip(wanted, have, strict=True)):
            kind, text = compare_output(*pair, request.bound)
            if kind:
                return kind, f"output {place}: {text}"
    return "same numbers", ""


def _types(ports: Sequence[onnx.ValueInfoProto]) -> set[int]:
    return {port.type.tensor_type.elem_type for port in ports}


def compare_output(want: Array, have: Array, bound: Bound) -> tuple[str, str]:
    """Return the class of a difference and its text; two empty texts if there is none."""
    want = in_bytes(in_pairs(want))
    if want.size == have.size <= _PAIR:  # LiteRT's sub-graphs accept [] for [1]
        want, have = want.reshape(-1), have.reshape(-1)
    if want.dtype != have.dtype:
        return "differs in type", f"LiteRT {want.dtype}, ONNX {have.dtype}"
    if want.shape != have.shape:
        return "differs in shape", f"LiteRT {list(want.shape)}, ONNX {list(have.shape)}"
    apart = distance(want, have).astype(np.float64)
    allowed = bound.steps if want.dtype.kind in "iu" else bound.part
    allowed *= span(want) if want.dtype.kind == "f" else 1
    wrong = apart > allowed
    if not wrong.any():
        return "", ""
    at = np.unravel_index(np.argmax(wrong * np.nan_to_num(apart)), apart.shape)
    count = f"{np.count_nonzero(wrong)} of {want.size}"
    text = f"{count}, at {[int(i) for i in at]}: LiteRT {want[at]!r}, ONNX {have[at]!r}"
    finite = want.dtype.kind != "f" or bool(np.isfinite([want[wrong], have[wrong]]).all())
    return "differs" if finite else "differs where not finite", text

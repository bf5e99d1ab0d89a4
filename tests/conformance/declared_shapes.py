"""Wrong declared shapes of computed tensors: a conversion succeeds and agrees with LiteRT.

LiteRT's kernels compute the shapes of their outputs, so that a file may declare anything for them.
Each model of `tests.conformance.rows` is tried with several wrong declarations of all tensors that
operators compute, and of the inputs of sub-graphs. `BELIEVED` lists the operators whose kernels
read declared shapes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import fields, replace
from itertools import islice
from typing import Any, ClassVar

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from tests.conformance.judge import compare_output
from tests.conformance.rows import ROWS
from tests.support import pack
from tests.support.compare import run_restored
from tests.support.needs import missing_feature
from tests.support.runtimes import Array, reference, session
from tflite2onnx import ConversionError, convert
from tflite2onnx.errors import OperatorError, as_operator_error
from tflite2onnx.graph import Op
from tflite2onnx.op import find_operator
from tflite2onnx.passes import MODEL_PASSES, apply_passes
from tflite2onnx.passes.inline_subgraphs import inline_subgraphs
from tflite2onnx.reader.model import read_model
from tflite2onnx.stateful import Stateful
from tflite2onnx.tensor import Tensor

# The operators whose kernels read the declared shape of an output.
BELIEVED: Mapping[str, str] = {
    "SLICE": "with constant sizes the kernel requires the declared shape to be right",
    "STABLEHLO_GATHER": "the kernel requires the declared rank to be right",
    "STABLEHLO_RNG_BIT_GENERATOR": "the state, an output, has the declared shape",
    **dict.fromkeys(
        ("ASSIGN_VARIABLE", "CALL_ONCE", "READ_VARIABLE", "VAR_HANDLE"),
        "READ_VARIABLE has the declared shape, unless its rank is unknown",
    ),
}


def _declare_unknown_rank(tensor: Any) -> None:
    tensor.shape, tensor.shapeSignature, tensor.hasRank = None, None, False


def _declare_dynamic(tensor: Any) -> None:
    rank = len(_shape_of(tensor))
    tensor.shape, tensor.shapeSignature = np.ones(rank, np.int32), np.full(rank, -1, np.int32)


def _declare(change: Callable[[Array], Array]) -> Callable[[Any], None]:
    def declare(tensor: Any) -> None:
        tensor.shape, tensor.shapeSignature = change(_shape_of(tensor)).astype(np.int32), None

    return declare


def _shape_of(tensor: Any) -> Array:
    return np.array([] if tensor.shape is None else tensor.shape, np.int32)


DECLARATIONS: Mapping[str, Callable[[Any], None]] = {
    "unknown rank": _declare_unknown_rank,
    "dynamic": _declare_dynamic,
    "all 1": _declare(np.ones_like),
    "one element": _declare(lambda _: np.ones(1)),
    "too large": _declare(lambda shape: shape + 1),
    "empty": _declare(np.zeros_like),
}


def declare_shapes(data: bytes, declare: Callable[[Any], None]) -> bytes:
    """Return a model with other declared shapes of its computed tensors."""
    model = schema.ModelT.InitFromPackedBuf(data, 0)
    types = {schema.TensorType.RESOURCE, schema.TensorType.VARIANT}
    for number, graph in enumerate(model.subgraphs):
        lists = [op.outputs for op in graph.operators if op.outputs is not None]
        computed = {int(i) for each in lists for i in each}
        inputs = {int(i) for i in graph.inputs}
        for i in computed | inputs if number else computed - inputs:
            tensor = graph.tensors[i]
            if not tensor.isVariable and tensor.type not in types:
                declare(tensor)
    return bytes(pack(model))


def judge_declared_shapes(code: str) -> list[str]:
    """Return the faults of the first case of an operator."""
    return list(_find_faults(code))


def _find_faults(code: str) -> Iterator[str]:
    case = next(iter(ROWS[code].cases()))
    built = case.build()
    right, _ = reference(built.data, built.runs)
    for name, declare in DECLARATIONS.items():
        data = declare_shapes(built.data, declare)
        try:
            want, _ = reference(data, built.runs)
        except (RuntimeError, ValueError):  # of the kernel's checks
            want = []
        shapes = [[[each.shape for each in outputs] for outputs in runs] for runs in (want, right)]
        if shapes[0] != shapes[1]:
            if code not in BELIEVED:
                yield f"{name}: LiteRT makes {shapes[0]} instead of {shapes[1]}"
            continue
        try:
            result = convert(data)
        except ConversionError as error:
            yield f"{name}: {error}"
            continue
        if missing_feature(result.model):  # of an older ONNX Runtime
            continue
        live, bound = Stateful(session(result.model, optimize=True)), case.row.bound(case.kind)
        for inputs, outputs in zip(built.runs, want, strict=True):
            for one, other in zip(outputs, run_restored(result, live, inputs), strict=True):
                fault, _ = compare_output(one, other, bound)
                if fault:
                    yield f"{name}: {fault}"


# The operators whose shape inference reads the declared shape of an output, and why it may.
READERS: Mapping[str, str] = {
    **dict.fromkeys(
        ("SELECT", "SELECT_V2"),
        "kernels copy one element to an output of the declared number of axes",
    ),
    "aeq.hadamard_rotation": "the kernel copies the elements to an output of the declared shape",
    "STABLEHLO_GATHER": "the kernel requires the declared rank to be right",
    "STABLEHLO_RNG_BIT_GENERATOR": "the state has the declared shape",
    **dict.fromkeys(
        ("TRANSPOSE_CONV", "CONV_3D_TRANSPOSE"),
        "a computed shape is one from which a window moves to the input; few others are",
    ),
    **dict.fromkeys(
        ("SignalFftAutoScale", "SignalFramer", "SignalStacker"),
        "the second output is one element, with any number of axes",
    ),
    **dict.fromkeys(
        ("CIRCULAR_BUFFER", "TransformTensor", "TransformTensorBilinear"),
        "the kernels, which LiteRT lacks, write an output of the declared shape",
    ),
    **dict.fromkeys(("READ_VARIABLE", "VAR_HANDLE"), "the kernel reads the declared shape"),
}


class _Spy(Tensor):
    """An output that notes whether its shape is read; `reads` is shared by all of them."""

    reads: ClassVar[list[str]] = []

    def __getattribute__(self, name: str) -> Any:
        if name == "shape":
            _Spy.reads.append(object.__getattribute__(self, "name"))
        return object.__getattribute__(self, name)


def reads_declared_shapes(op: Op) -> bool:
    """Return whether an operator reads the declared shapes of its outputs to infer them."""
    spies = [_Spy(**{f.name: getattr(t, f.name) for f in fields(Tensor)}) for t in op.outputs]
    operator = find_operator(replace(op, outputs=tuple(spies)))
    _Spy.reads.clear()
    with suppress(OperatorError), as_operator_error():
        operator.infer_outputs()
    return bool(_Spy.reads)


def list_readers(code: str, most: int = 12) -> set[str]:
    """Return the operators in the first cases of a row that read declared shapes."""
    found = set()
    for case in islice(ROWS[code].cases(), most):
        model = apply_passes(MODEL_PASSES, read_model(case.build().data))
        for op in inline_subgraphs(model, 0).walk_ops():
            with suppress(OperatorError):
                if reads_declared_shapes(op):
                    found.add(op.code)
    return found

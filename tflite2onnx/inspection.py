"""The contents of a TFLite model, and whether its operators can be converted."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

from tflite2onnx.canonical import OperatorCache, check_sizes, open_graph
from tflite2onnx.errors import ConversionError, FixedSizeError, UnsupportedOperators
from tflite2onnx.graph import Graph, Model, Op
from tflite2onnx.op import find_operator
from tflite2onnx.options import ConversionOptions
from tflite2onnx.passes import MODEL_PASSES, apply_passes, list_entry_point_passes
from tflite2onnx.passes.batch.resize_batch import find_batch_problem
from tflite2onnx.passes.inline_subgraphs import inline_subgraphs
from tflite2onnx.passes.resize_inputs import resize_inputs
from tflite2onnx.quantization.storage import is_quantized
from tflite2onnx.reader.model import read_model
from tflite2onnx.reader.source import AnySource, open_source
from tflite2onnx.stages import convert_model, prepare_process, read_notes
from tflite2onnx.storage_table import StorageInfo, describe_scale
from tflite2onnx.tensor import DType, Shape, Tensor, name_axis
from tflite2onnx.utils.console import handle_records
from tflite2onnx.utils.mapped_files import find_address

# Operators that only convert the elements of a tensor, which says nothing about the scheme.
_CONVERSIONS = {"QUANTIZE", "DEQUANTIZE", "CAST"}


@dataclass(frozen=True)
class TensorInfo:
    """An input or output; dynamic sizes are -1. `has_rank` is set if the file has a shape.

    `quantization` is the formula scale * (stored - zero point) as text, empty if there is none.
    """

    name: str
    dtype: str
    shape: Shape
    quantization: str
    has_rank: bool = True


@dataclass(frozen=True)
class OperatorInfo:
    """All operators of one code in a sub-graph.

    `bytes` is the size in the file of the constants that the operators read; a constant counts for
    the first operator that reads it. `opset` is the ONNX opset that the operators need. It is None
    if the opset is not known, or if one of the operators cannot be converted; then `problems` has
    the reasons.
    """

    code: str
    custom: bool
    count: int
    bytes: int
    opset: int | None
    problems: tuple[str, ...]


@dataclass(frozen=True)
class SubgraphInfo:
    """A sub-graph: its interface, and its operators by code, the most frequent first."""

    name: str
    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...]
    operators: tuple[OperatorInfo, ...]
    tensors: int


@dataclass(frozen=True)
class SignatureInfo:
    """A named entry point: the tensors of its inputs and outputs by the names that it gives."""

    key: str
    subgraph: int
    inputs: dict[str, str]
    outputs: dict[str, str]


@dataclass(frozen=True)
class AxisInfo:
    """An axis of an input: its size in the file, and whether it can be dynamic.

    `problem` is the reason why the axis cannot be dynamic, empty if it can.
    """

    input: str
    axis: int
    size: int
    problem: str


@dataclass(frozen=True)
class Inspection:
    """The contents of a model.

    `scheme` describes its quantization in words. `opset` is the opset of the ONNX model, None if
    the model cannot be converted; then `problem` is the reason. `bytes` is the size of the file.
    `metadata` is the authors' description (see `metadata.describe_model`), and `buffers` are the
    names of all metadata. `axes` are the axes of the main inputs, if the model can be converted.
    `batch_problem` is why `--batch` cannot compute a batch of independent samples, empty if it can.
    `storage` says how each quantized tensor is stored in ONNX, and why.
    """

    description: str
    version: int
    bytes: int
    scheme: str
    signatures: tuple[SignatureInfo, ...]
    subgraphs: tuple[SubgraphInfo, ...]
    buffers: tuple[str, ...]
    metadata: dict[str, Any]
    opset: int | None
    problem: str
    storage: tuple[StorageInfo, ...] = ()
    axes: tuple[AxisInfo, ...] = ()
    batch_problem: str = ""

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def inspect(model: AnySource) -> Inspection:
    """Inspect a model, given as a path or as the bytes of its file; nothing is written.

    Raises:
        ModelFileError: the file is missing, empty, truncated, or not a TFLite model.
    """
    opened = open_source(model)
    source = read_model(opened)
    whole = _try_conversion(source)
    return Inspection(
        source.description,
        source.version,
        len(opened.data),
        find_scheme(source.graphs),
        tuple(
            SignatureInfo(
                s.key,
                s.subgraph,
                {name: t.name for name, t in s.inputs.items()},
                {name: t.name for name, t in s.outputs.items()},
            )
            for s in source.signatures
        ),
        tuple(_inspect_subgraph(source, graph, whole) for graph in source.graphs),
        tuple(sorted(source.metadata)),
        read_notes(source, opened, ConversionOptions()),
        whole.opset,
        whole.problem,
        whole.storage,
        _list_axes(source) if whole.opset is not None else (),
        find_batch_problem(open_graph(source, 0, find_operator), find_operator)
        if whole.opset is not None
        else "",
    )


@prepare_process()
def _list_axes(model: Model) -> tuple[AxisInfo, ...]:
    """Return the axes of the main entry point's inputs, each tried alone."""
    model = apply_passes(MODEL_PASSES, model)
    graph = inline_subgraphs(model, 0)
    operator_of = OperatorCache(ConversionOptions())
    passes = list_entry_point_passes(model, 0, operator_of)

    def find_problem(tensor: Tensor, axis: int) -> str:
        sizes: list[int | str] = [*tensor.shape]
        sizes[axis] = "size"
        try:
            resized, words = resize_inputs(graph, {tensor.name: sizes})
            check_sizes(apply_passes(passes, resized), words, operator_of)
        except FixedSizeError as error:
            return str(error) if name_axis(tensor, axis) in error.axes else ""
        except UnsupportedOperators as error:
            return str(error.problems[0])
        return ""

    return tuple(
        AxisInfo(tensor.name, axis, size, find_problem(tensor, axis))
        for tensor in graph.inputs
        for axis, size in enumerate(tensor.shape)
    )


def find_scheme(graphs: Iterable[Graph]) -> str:
    """Return the quantization of a model in words: the types of its activations and weights."""
    ops = [op for graph in graphs for op in graph.ops if op.code not in _CONVERSIONS]
    types = {_find_real_type(t) for op in ops for t in op.outputs if _find_real_type(t)}
    second = [t for op in ops for t in op.inputs[1:2] if t is not None]
    weights = {_find_real_type(t) for t in second if t.has_data and t.rank > 1} - {""}
    constant_types = {
        _find_real_type(t) for graph in graphs for t in graph.tensors if t.data is not None
    }
    if not types:
        return "no real numbers"
    if types == {"float32"}:
        integers = sorted(w for w in weights if w not in ("float32", "float16"))
        if integers:
            return f"dynamic range: float32 with {' and '.join(integers)} weights"
        return "float32 with float16 weights" if "float16" in constant_types else "float32"
    name = " and ".join(sorted(types))
    if "float32" in types:
        return f"mixed: {name}"
    suffix = ", weights by channel" if any(t.per_axis for t in second) else ""
    others = sorted(weights - types - {"float32"})
    return f"{name}{f' with {others[0]} weights' if others else ''}{suffix}"


def _find_real_type(tensor: Tensor) -> str:
    """Return the type of floats or of quantized integers, empty for other tensors."""
    is_real = tensor.dtype.is_float or is_quantized(tensor)
    return tensor.dtype.label if is_real else ""


class _Trial(NamedTuple):
    """The conversion of a model; `reasons` has the problems of operators by their places.

    `reasons` is None if the reason why the conversion fails is not an operator.
    """

    opset: int | None
    problem: str = ""
    reasons: Mapping[str, str] | None = MappingProxyType({})
    storage: tuple[StorageInfo, ...] = ()


def _try_conversion(model: Model) -> _Trial:
    try:
        result = convert_model(model)
        return _Trial(result.opset, storage=tuple(result.skeleton.storage))
    except UnsupportedOperators as error:
        return _Trial(None, str(error), {item.place: item.reason for item in error.problems})
    except ConversionError as error:
        return _Trial(None, str(error), None)


def _inspect_subgraph(model: Model, graph: Graph, whole: _Trial) -> SubgraphInfo:
    kinds: dict[tuple[str, bool], list[Op]] = {}
    for op in graph.ops:
        kinds.setdefault((op.code, op.custom), []).append(op)
    read_bytes = _count_constant_bytes(graph.ops)
    infos = [
        OperatorInfo(
            code,
            custom,
            len(ops),
            sum(read_bytes[op] for op in ops),
            *_check_conversion(model, ops, whole),
        )
        for (code, custom), ops in kinds.items()
    ]
    return SubgraphInfo(
        graph.name,
        tuple(map(_inspect_tensor, graph.inputs)),
        tuple(map(_inspect_tensor, graph.outputs)),
        tuple(sorted(infos, key=lambda info: (-info.count, info.code))),
        len(graph.tensors),
    )


def _count_constant_bytes(ops: Sequence[Op]) -> dict[Op, int]:
    seen: set[Any] = set()
    read_bytes: dict[Op, int] = {}
    for op in ops:
        read_bytes[op] = 0
        for tensor in (constant for constant in op.present if constant.has_data):
            data = tensor.values
            address = find_address(data) if data.size else id(data)
            if address not in seen:
                seen.add(address)
                read_bytes[op] += -(-data.size * tensor.dtype.bits // 8)
    return read_bytes


def _check_conversion(
    model: Model, ops: Sequence[Op], whole: _Trial
) -> tuple[int | None, tuple[str, ...]]:
    """Return the opset that operators need, and the reasons why some cannot be converted.

    Each operator is also converted alone. The problems of the whole model take precedence, because
    state and control flow cannot be converted alone.
    """
    trials = [_convert_alone(model, op) for op in _list_distinct_ops(ops)]
    opsets = [trial.opset or whole.opset for trial in trials]
    texts = (trial.reasons.values() if trial.reasons else [trial.problem] for trial in trials)
    problems = dict.fromkeys(reason for reasons in texts for reason in reasons if reason)
    if whole.reasons is not None:
        # A pass may have rewritten the operator to one of another code.
        reasons = {_cut_code(place): reason for place, reason in whole.reasons.items()}
        places = [_cut_code(op.place) for op in ops]
        problems = dict.fromkeys(reasons[place] for place in places if place in reasons)
    versions = [opset for opset in opsets if opset is not None]
    return (None if problems else max(versions, default=None)), tuple(problems)


def _cut_code(place: str) -> str:
    """Return the index and the first output of an operator, without its code."""
    return place[place.rindex("(operator") :] if "(operator" in place else place


def _convert_alone(model: Model, op: Op) -> _Trial:
    reads = dict.fromkeys(t for t in op.present if t.data is None)
    graph = Graph("", tuple(reads), op.outputs, (op,), (*reads, *op.outputs))
    with handle_records(lambda _: None):  # they warn of inner tensors as of inputs
        return _try_conversion(model._replace(graphs=(graph, *model.graphs[1:])))


def _list_distinct_ops(ops: Sequence[Op]) -> Iterator[Op]:
    """Yield one of the operators that differ only in the elements of their tensors."""
    seen = set()
    for op in ops:
        operands = tuple(_make_operand_key(t) for t in (*op.inputs, *op.outputs))
        form = (operands, repr(dict(op.options)), op.made, op.custom_options)
        if form not in seen:
            seen.add(form)
            yield op


def _make_operand_key(tensor: Tensor | None) -> Any:  # noqa: ANN401 - only compared
    if tensor is None:
        return None
    axis = tensor.quantization.axis if tensor.quantization is not None else None
    return tensor.shape, tensor.dtype, axis, tensor.data is None


def _inspect_tensor(tensor: Tensor) -> TensorInfo:
    shape = tensor.shape_signature if len(tensor.shape_signature) == tensor.rank else tensor.shape
    return TensorInfo(
        tensor.name,
        tensor.dtype.label,
        tuple(shape),
        _spell_quantization(tensor),
        not tensor.is_unranked,
    )


def _spell_quantization(tensor: Tensor) -> str:
    scales = tensor.quantization
    is_bias = tensor.dtype in (DType.INT32, DType.INT64) and tensor.data is not None
    if scales is None or not (is_quantized(tensor) or is_bias):
        return ""
    if scales.per_axis:
        return f"{scales.scale.size} scales along axis {scales.axis}"
    return describe_scale(f"{scales.scale[0]:.9g}", int(scales.zero_point[0]))

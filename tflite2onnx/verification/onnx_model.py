"""The ONNX model: its inputs and outputs, a session that runs it, and the tensors inside it."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain, product
from pathlib import Path
from string import digits
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import Any, NamedTuple

import onnx

from tflite2onnx.bundle.lengths import join_lengths
from tflite2onnx.convert import convert
from tflite2onnx.errors import ConversionError, VerifyError
from tflite2onnx.interface import CACHES, INPUTS, OUTPUTS, Endpoint
from tflite2onnx.layout import Order
from tflite2onnx.options import (
    ACTIVATIONS,
    DYNAMIC_RANGES,
    IO_LAYOUTS,
    WEIGHTS,
    ConversionOptions,
    DynamicRange,
    Forms,
    IoType,
)
from tflite2onnx.passes.batch.resize_batch import Batch
from tflite2onnx.pictures.network import find_network
from tflite2onnx.reader.model import read_model
from tflite2onnx.result import Result
from tflite2onnx.signatures import find_signature
from tflite2onnx.stages import convert_read_model
from tflite2onnx.stateful import Stateful
from tflite2onnx.tensor import Shape, Tensor
from tflite2onnx.verification.runtimes import ModelFile, as_verify_error, make_session
from tflite2onnx.writer import LARGEST_FILE, Skeleton

_logger = logging.getLogger(__name__)
_STORAGE = ("DequantizeLinear", "QuantizeLinear")
_FORMS: tuple[Forms, ...] = ("fastest", "canonical")
_FEW_CHOICES = 16  # conversions that need no explanation
_SEARCHES = (
    "the ONNX model was made with rare options, by another version, or changed since: up to %d"
    " conversions look for its options, to compare the tensors between operators"
)
# Keys of the metadata with facts about the conversion.
_FACTS = ("signatures", "cut", "rename", "float16", "io_type", "quantization")
_SAMPLES = 3  # samples in a batch of dynamic size
_Pairs = Sequence[tuple[Tensor, Endpoint]]
ConvertedModel = Result | onnx.ModelProto | ModelFile


class OpenedModel(NamedTuple):
    """A converted model: `inputs` and `outputs` with their layouts, and a `session` that runs it.

    The session carries the state of the model from one run to the next. `signatures` are the
    signatures of its sub-graph by key: {"inputs": {name: ONNX name}, "outputs": {name: ONNX name}}.
    `part` has the names of the tensors at which the model is cut, as {"inputs": names, "outputs":
    names}; it is empty if the model is whole. `rename` are the names that the user has chosen.
    `float16` is empty unless the model computes in half precision; "io" is whether its inputs and
    outputs are float16 too. `io_type` are the types of inputs and outputs that the user has chosen.
    `quantization` is the option, if it is "symmetric", "qdq-uniform" or "rounded". `batch` is the
    size of a batch of independent samples, or its name. `joined` is whether the graph is that of
    several signatures.
    """

    inputs: Sequence[Endpoint]
    outputs: Sequence[Endpoint]
    session: Stateful
    signatures: Mapping[str, Mapping[str, Mapping[str, str]]]
    part: Mapping[str, Sequence[str]] = MappingProxyType({})
    rename: Mapping[str, str] = MappingProxyType({})
    float16: Mapping[str, bool] = MappingProxyType({})
    io_type: IoType | Mapping[str, IoType] = MappingProxyType({})
    quantization: str | Mapping[str, str] = MappingProxyType({})
    batch: int | str | None = None
    joined: bool = False

    @property
    def samples(self) -> int:
        """The number of samples of a batch, 0 if the model is not converted for a batch."""
        size = 0 if self.batch is None else Batch.from_text(self.batch).size
        return size if isinstance(size, int) else _SAMPLES

    def with_samples(self) -> OpenedModel:
        """Return the model with the shapes of a batch of `samples` in place of a dynamic size."""
        inputs, outputs = (
            [replace(e, tflite_shape=(self.samples, *e.tflite_shape[1:])) for e in endpoints]
            for endpoints in (self.inputs, self.outputs)
        )
        return self._replace(inputs=inputs, outputs=outputs)

    @property
    def signature(self) -> str | None:
        """The first signature of the sub-graph, None if the sub-graph has no signature."""
        return next(iter(self.signatures), None)


def list_sample_shapes(endpoints: Sequence[Endpoint], ranks: Sequence[int]) -> list[Shape]:
    """Return the shapes of inputs for one sample; an input of lower rank lacks the batch axis."""
    return [
        (1, *e.tflite_shape[1:]) if len(e.tflite_shape) == rank else e.tflite_shape[1:]
        for e, rank in zip(endpoints, ranks, strict=False)
    ]


def open_model(
    converted: ConvertedModel, open_session: Callable[[str | bytes], Any] = make_session
) -> OpenedModel:
    """Return the inputs and the outputs of an ONNX model, and a session that runs it.

    For a model that takes pictures, these are the inputs and outputs of the network inside.
    `open_session` opens the path or the bytes of a file; see `make_session`.

    Raises:
        VerifyError: the model cannot be read, ONNX Runtime cannot run it, or its metadata do not
            contain the layouts.
    """
    if isinstance(converted, (str, os.PathLike)):
        converted = _check_readable(converted)
    converted = find_network(converted)
    if isinstance(converted, Result):
        session = _open_result(converted, open_session)
        return _build_opened_model(session, converted.inputs, converted.outputs)
    if isinstance(converted, onnx.ModelProto):
        with as_verify_error("ONNX Runtime"):
            converted = bytes(converted.SerializeToString())
    session = open_session(os.fspath(converted))
    properties = session.get_modelmeta().custom_metadata_map
    inputs = _read_endpoints(properties.get(INPUTS))
    return _build_opened_model(session, inputs, _read_endpoints(properties.get(OUTPUTS)))


def _check_readable(path: str | os.PathLike[str]) -> str:
    """Return a path as a string, after a check that the file can be opened."""
    try:
        with Path(path).open("rb") as file:
            start = file.read(8)
    except (OSError, ValueError) as error:
        raise VerifyError(
            f"cannot read {os.fspath(path)}: {getattr(error, 'strerror', None) or error}"
        ) from error
    if not start:
        raise VerifyError(f"{os.fspath(path)} is empty")
    if start[4:] == b"TFL3":
        raise VerifyError(
            f"{os.fspath(path)} is a TFLite model; the TFLite model must be given first, and the"
            " ONNX model second"
        )
    return os.fspath(path)


def _build_opened_model(
    session: Any, inputs: Sequence[Endpoint], outputs: Sequence[Endpoint]
) -> OpenedModel:
    properties = session.get_modelmeta().custom_metadata_map
    facts = (
        json.loads(properties.get(f"tflite2onnx.{key}", default))
        for key, default in (*((key, "{}") for key in _FACTS), ("batch", "null"))
    )
    return OpenedModel(inputs, outputs, Stateful(session), *facts)


def _open_result(result: Result, open_session: Callable[[str | bytes], Any]) -> Any:
    if result.size <= LARGEST_FILE:
        return open_session(result.skeleton.serialize())
    with TemporaryDirectory(ignore_cleanup_errors=True) as directory:
        path = f"{directory}/model.onnx"
        result.save(path)
        return open_session(path)


def _read_endpoints(text: str | None) -> list[Endpoint]:
    """Read the inputs or the outputs from the metadata that `convert` wrote."""
    try:
        return [Endpoint.from_dict(e) for e in json.loads(text or "")]
    except (ValueError, TypeError, KeyError) as error:
        raise VerifyError(
            "the ONNX model must have the metadata of tflite2onnx, with the layouts of its inputs"
            " and outputs: convert the TFLite model again, and keep the metadata in other tools"
        ) from error


# Tensors between the operators


def locate_tensors(model: ModelFile, converted: ConvertedModel, opened: OpenedModel) -> Skeleton:
    """Return the ONNX model with the values that store tensors of the TFLite model.

    An ONNX file does not contain the mapping from values to tensors and axis orders. A second
    conversion gives the mapping, if the same nodes compute values of the same names and element
    types. Attributes and weights may differ: verification looks for these differences. If no second
    conversion matches, no tensors are returned.
    """
    converted = find_network(converted)
    if isinstance(converted, Result):
        return converted.skeleton
    with as_verify_error("ONNX Runtime"):
        proto = _load_model(converted)
    for result in _try_conversions(model, proto, opened):
        other = result.skeleton.proto
        if (
            _list_nodes(other) == _list_nodes(proto)
            and _read_types(other).items() <= _read_types(proto).items()
        ):
            return replace(result.skeleton, source=proto, weights=())
    return Skeleton(proto, ())


def _load_model(converted: onnx.ModelProto | ModelFile) -> onnx.ModelProto:
    if isinstance(converted, onnx.ModelProto):
        return converted
    if isinstance(converted, bytes):
        return onnx.load_from_string(converted)
    return onnx.load(os.fspath(converted))


def _try_conversions(
    model: ModelFile, proto: onnx.ModelProto, opened: OpenedModel
) -> Iterator[Result]:
    """Yield the conversions that may have produced the file, the likeliest first."""
    opset = next((entry.version for entry in proto.opset_import if not entry.domain), None)
    kinds = [("qdq", *kept) for kept in product(ACTIVATIONS, WEIGHTS)]
    is_quantized = any(node.op_type in _STORAGE for node in proto.graph.node)
    kinds.insert(len(kinds) if is_quantized else 0, ("float", "auto", "auto"))
    if opened.quantization in ("symmetric", "rounded"):
        kinds = [(str(opened.quantization), "auto", "auto")]
    elif opened.quantization == "qdq-uniform":
        kinds = [("qdq-uniform", *kept) for kept in product(ACTIVATIONS, WEIGHTS)]
    ranges: Sequence[DynamicRange] = DYNAMIC_RANGES
    tensors = chain.from_iterable(graph.tensors for graph in read_model(model).graphs)
    if all(tensor.quantization is None for tensor in tensors):  # the options have no effect
        kinds, ranges = [(kinds[0][0], "auto", "auto")], ranges[:1]
    static = not any(e.symbols for e in opened.inputs)
    shared = any(entry.key == CACHES for entry in proto.metadata_props)
    inputs, outputs = _pair_tensors(model, opened)
    convert_again = _convert_joined(model, opened) if opened.joined else partial(convert, model)
    ways: list[tuple[str, Any]] = [(io_layout, None) for io_layout in IO_LAYOUTS]
    ways.append(("auto", {tensor.name: e.layout for tensor, e in (*inputs, *outputs)}))
    choices = [*product(ranges, _FORMS, _list_candidate_namings(opened), kinds, ways)]
    for number, (dynamic_range, forms, named, kind, (io_layout, layouts)) in enumerate(choices):
        (signature, names), (quantization, activations, weights) = named, kind
        if number == _FEW_CHOICES:
            _logger.warning(_SEARCHES, len(choices))
        try:
            result = convert_again(
                layouts=layouts,
                io_layout=io_layout,
                io_type=opened.io_type or None,
                opset=opset,
                signature=signature,
                quantization=quantization,
                activations=activations,
                weights=weights,
                dynamic_range=dynamic_range,
                caches="shared" if shared else "separate",
                forms=forms,
                names=names,
                static=static,
                shapes=_find_chosen_shapes(inputs, static=static, batch=opened.batch),
                batch=opened.batch,
                inputs=opened.part.get("inputs") or None,
                outputs=opened.part.get("outputs"),
                rename=opened.rename,
                float16=bool(opened.float16),
                float16_io=opened.float16.get("io", False),
            )
        except ConversionError:
            continue
        if _list_interface_layouts(result) == _list_interface_layouts(opened):
            yield result


def _convert_joined(model: ModelFile, opened: OpenedModel) -> Callable[..., Result]:
    """Return a function that converts the graph of the signature and those joined with it."""
    source, name = read_model(model), (opened.signature or "").rstrip(digits)
    # `join_lengths` warns of other signatures.
    alike = tuple(each for each in source.signatures if each.key.rstrip(digits) == name)
    joint = next(iter(join_lengths(source._replace(signatures=alike))), None)

    def convert_again(**given: Any) -> Result:
        if joint is None:
            raise ConversionError("the signatures cannot be joined")
        chosen = {option: value for option, value in given.items() if value is not None}
        options = replace(ConversionOptions(**chosen), **joint.options)
        if options.names == "signature":
            options = replace(options, rename={})
        return convert_read_model(lambda: joint.model, model, options)

    return convert_again


def _list_interface_layouts(opened: Result | OpenedModel) -> list[tuple[str, str, Order]]:
    return [(e.name, e.dtype, e.order) for e in (*opened.inputs, *opened.outputs)]


def _list_candidate_namings(opened: OpenedModel) -> Iterator[tuple[str | None, str]]:
    """Yield the possible origins of the input and output names: (signature, `names` option)."""
    for key, called in opened.signatures.items():
        equal = (name == tensor for names in called.values() for name, tensor in names.items())
        if opened.rename or any(equal):
            yield key, "signature"
    yield opened.signature, "tensor"


def _pair_tensors(model: ModelFile, opened: OpenedModel) -> tuple[_Pairs, _Pairs]:
    """Return the inputs, and the outputs, with their tensors in the TFLite model."""
    source = read_model(model)
    graph = source.graphs[find_signature(source, opened.signature)[0]]
    tensors = {tensor.name: tensor for tensor in graph.tensors}
    tensors_of = {key: getattr(graph, key) for key in ("inputs", "outputs")}
    tensors_of |= {key: [tensors[name] for name in names] for key, names in opened.part.items()}
    return (
        [*zip(tensors_of["inputs"], opened.inputs, strict=False)],
        [*zip(tensors_of["outputs"], opened.outputs, strict=False)],
    )


def _find_chosen_shapes(
    pairs: _Pairs, *, static: bool, batch: int | str | None
) -> dict[str, Sequence[int | str]]:
    """Return the shapes that differ from the declared shapes, by the names of the tensors."""
    chosen_sizes: dict[str, Sequence[int | str]] = {}
    for tensor, e in pairs:
        shape, sizes, dynamic = e.tflite_shape, e.tflite_sizes, tensor.dynamic_axes
        if batch is not None:  # the sizes of one sample
            first = (1,) * (len(sizes) == tensor.rank)
            shape, sizes, dynamic = (*first, *shape[1:]), (*first, *sizes[1:]), dynamic - {0}
        symbols = {axis for axis, size in enumerate(sizes) if isinstance(size, str)}
        if tensor.shape != shape or not (static or dynamic == symbols):
            chosen_sizes[tensor.name] = sizes
    return chosen_sizes


def _read_types(proto: onnx.ModelProto) -> dict[str, int]:
    """Return the element types of values, by name: int8 tensors may be stored as uint8."""
    graph = proto.graph
    infos = (*graph.value_info, *graph.input, *graph.output)
    return {info.name: info.type.tensor_type.elem_type for info in infos}


def _list_nodes(proto: onnx.ModelProto) -> list[tuple[str, tuple[str, ...]]]:
    return [(node.op_type, tuple(node.output)) for node in proto.graph.node]


# Other sizes of dynamic axes, at which both runtimes are compared again
#
# Networks halve the sizes of pictures up to five times. LiteRT refuses sizes that cannot be halved.
_STEP = 32
STEPS: tuple[Callable[[int], int], ...] = (
    lambda size: size + (_STEP if size >= _STEP else 1),
    lambda size: size + (2 * _STEP if size >= _STEP else 2),
    lambda size: 2 * size,
    lambda size: 3 * size,
)


def list_other_sizes(opened: OpenedModel) -> Iterator[dict[str, int]]:
    """Yield sizes by the names of dynamic axes: first of all axes, then of the first axes only.

    Names of equal sizes get equal sizes, because LiteRT may need them to be equal.
    """
    lengths: dict[str, int] = {}
    first: set[str] = set()
    for e in opened.inputs:
        lengths |= {name: e.tflite_shape[axis] for axis, name in e.symbols.items()}
        first |= {name for axis, name in e.symbols.items() if axis == 0}
    for names in (lengths, first if first != set(lengths) else ()):
        if names:
            yield from (
                {n: s(lengths[n]) if n in names else lengths[n] for n in lengths} for s in STEPS
            )


def resize_endpoints(opened: OpenedModel, sizes: Mapping[str, int]) -> OpenedModel:
    """Return a model whose inputs have these sizes, by the names of dynamic axes."""
    inputs = [
        replace(
            e,
            tflite_shape=tuple(
                sizes.get(e.symbols.get(axis, ""), size) for axis, size in enumerate(e.tflite_shape)
            ),
        )
        for e in opened.inputs
    ]
    if opened.batch is None:
        return opened._replace(inputs=inputs)
    batch = Batch.from_text(opened.batch).size
    return opened._replace(inputs=inputs, batch=sizes.get(str(batch), batch))

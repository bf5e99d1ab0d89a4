"""The ONNX model: its inputs and outputs, a session that runs it, and the tensors inside it."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from string import digits
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import Any, NamedTuple

import onnx

from tflite2onnx.bundle.lengths import join_lengths
from tflite2onnx.errors import ConversionError, OptionError, VerifyError
from tflite2onnx.interface import INPUTS, OUTPUTS, Endpoint
from tflite2onnx.options import ConversionOptions, read_given
from tflite2onnx.passes.batch.resize_batch import Batch
from tflite2onnx.pictures.network import find_network
from tflite2onnx.reader.model import read_model
from tflite2onnx.result import Result
from tflite2onnx.stages import convert_read_model
from tflite2onnx.stateful import Stateful
from tflite2onnx.tensor import Shape
from tflite2onnx.verification.runtimes import ModelFile, as_verify_error, make_session
from tflite2onnx.writer import LARGEST_FILE, Skeleton

_logger = logging.getLogger(__name__)
_UNKNOWN = (
    "the inner tensors of the ONNX model are unknown, because a conversion with its options does"
    " not give its nodes: %s"
)
_NO_METADATA = (
    "the ONNX model must have the metadata of tflite2onnx, with the layouts of its inputs and"
    " outputs: convert the TFLite model again, and keep the metadata in other tools"
)
# Keys of the metadata with facts about the conversion.
_FACTS = ("signatures", "cut", "options")
_SAMPLES = 3  # samples in a batch of dynamic size
ConvertedModel = Result | onnx.ModelProto | ModelFile


class OpenedModel(NamedTuple):
    """A converted model: `inputs` and `outputs` with their layouts, and a `session` that runs it.

    The session carries the state of the model from one run to the next. `signatures` are the
    signatures of its sub-graph by key: {"inputs": {name: ONNX name}, "outputs": {name: ONNX name}}.
    `part` has the names of the tensors at which the model is cut, as {"inputs": names, "outputs":
    names}; it is empty if the model is whole. `options` are those of the conversion. `joined` is
    whether the graph is that of several signatures.
    """

    inputs: Sequence[Endpoint]
    outputs: Sequence[Endpoint]
    session: Stateful
    signatures: Mapping[str, Mapping[str, Mapping[str, str]]]
    part: Mapping[str, Sequence[str]] = MappingProxyType({})
    options: ConversionOptions = ConversionOptions()
    joined: bool = False

    @property
    def samples(self) -> int:
        """The number of samples of a batch, 0 if the model is not converted for a batch."""
        size = 0 if self.options.batch is None else Batch.from_text(self.options.batch).size
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
    signatures, part, given = (
        json.loads(properties.get(f"tflite2onnx.{key}", "{}")) for key in _FACTS
    )
    try:
        options = read_given(given)
    except (ValueError, TypeError, AttributeError, OptionError) as error:
        raise VerifyError(_NO_METADATA) from error
    return OpenedModel(inputs, outputs, Stateful(session), signatures, part, options)


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
        raise VerifyError(_NO_METADATA) from error


# Tensors between the operators


def locate_tensors(model: ModelFile, converted: ConvertedModel, opened: OpenedModel) -> Skeleton:
    """Return the ONNX model with the values that store tensors of the TFLite model.

    An ONNX file does not contain the mapping from values to tensors and axis orders. A second
    conversion with the options in its metadata gives the mapping, if the same nodes compute values
    of the same names and element types. Attributes and weights may differ: verification looks for
    these differences. If the second conversion has other nodes, no tensors are returned.
    """
    converted = find_network(converted)
    if isinstance(converted, Result):
        return converted.skeleton
    with as_verify_error("ONNX Runtime"):
        proto = _load_model(converted)
    try:
        result = convert_again(model, opened)
    except ConversionError as error:
        _logger.warning(_UNKNOWN, error)
        return Skeleton(proto, ())
    other = result.skeleton.proto
    if (
        _list_nodes(other) != _list_nodes(proto)
        or not _read_types(other).items() <= _read_types(proto).items()
    ):
        _logger.warning(_UNKNOWN, "its nodes have changed since, or another version made it")
        return Skeleton(proto, ())
    return replace(result.skeleton, source=proto, weights=())


def _load_model(converted: onnx.ModelProto | ModelFile) -> onnx.ModelProto:
    if isinstance(converted, onnx.ModelProto):
        return converted
    if isinstance(converted, bytes):
        return onnx.load_from_string(converted)
    return onnx.load(os.fspath(converted))


def convert_again(model: ModelFile, opened: OpenedModel) -> Result:
    """Convert the model with the options of the file; joined signatures are joined again."""
    if not opened.joined:
        return convert_read_model(partial(read_model, model), model, opened.options)
    source, name = read_model(model), (opened.signature or "").rstrip(digits)
    # `join_lengths` warns of other signatures.
    alike = tuple(each for each in source.signatures if each.key.rstrip(digits) == name)
    for joint in join_lengths(source._replace(signatures=alike)):
        return convert_read_model(partial(getattr, joint, "model"), model, opened.options)
    raise ConversionError("the signatures cannot be joined")


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
    if opened.options.batch is None:
        return opened._replace(inputs=inputs)
    batch = Batch.from_text(opened.options.batch).size
    chosen = replace(opened.options, batch=sizes.get(str(batch), batch))
    return opened._replace(inputs=inputs, options=chosen)

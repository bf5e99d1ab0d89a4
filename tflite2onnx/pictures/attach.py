"""Join the preprocessing and the postprocessing with a network, or make separate graphs.

Both are nodes over the values of the network's inputs and outputs. In one graph these values are
computed by nodes; as separate graphs they are outputs and inputs with the same names.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, NamedTuple, cast

from tflite2onnx.builder.builder import Port, eliminate_dead_nodes
from tflite2onnx.builder.nodes import Nodes, Value
from tflite2onnx.emit import Emitted
from tflite2onnx.errors import OptionError
from tflite2onnx.graph import Graph
from tflite2onnx.layout import make_identity
from tflite2onnx.pictures.families import collect_facts, find_family
from tflite2onnx.pictures.postprocessing import (
    Postprocessing,
    emit_postprocessing,
    plan_postprocessing,
)
from tflite2onnx.pictures.preprocessing import (
    IMAGE,
    Preprocessing,
    emit_frame,
    emit_picture_size,
    emit_preprocessing,
    plan_preprocessing,
)
from tflite2onnx.pictures.settings import (
    NETWORK,
    POSTPROCESS_KEYS,
    POSTPROCESSING,
    PREPROCESS_KEYS,
    PREPROCESSING,
    Settings,
    read_settings,
)
from tflite2onnx.result import Result, make_result
from tflite2onnx.tensor import DType, Tensor

_SIZE = f"{IMAGE}_size"
_OPSET = 14  # the first opset that has all nodes; Reshape to a size of 0 is the newest


class Attached(NamedTuple):
    """A network with its pre- and postprocessing: one graph, and its parts by their names.

    `inner` has the names that inputs and outputs of the network have in the whole graph.
    """

    whole: Emitted
    parts: Mapping[str, Emitted]
    inner: Mapping[str, str]


def attach_pictures(
    network: Emitted,
    preprocess: Settings,
    postprocess: Settings,
    graph: Graph,
    notes: Mapping[str, Any],
) -> Attached:
    """Return a network that takes pictures, or makes boxes, or both.

    `graph` is the graph in the file, and `notes` are its metadata (see `metadata.describe_model`).

    Raises:
        PictureError: the network does not take pictures, the normalization is not known, or no
            decoder is known for the outputs.
        OptionError: settings do not fit the network.
    """
    if network.opset < _OPSET:
        raise OptionError(
            f"`opset` must be at least {_OPSET} with `preprocess` or `postprocess`, got"
            f" {network.opset}"
        )
    before = read_settings("preprocess", preprocess, PREPROCESS_KEYS)
    settings_after = read_settings("postprocess", postprocess, POSTPROCESS_KEYS)
    own_inputs, own_outputs = (
        ports[: len(ports) - len(network.initial)] for ports in (network.inputs, network.outputs)
    )
    facts = collect_facts(own_inputs, graph, notes)
    family = find_family(own_outputs, facts, settings_after or {})
    inputs, outputs = network.inputs, network.outputs
    parts: dict[str, Emitted] = {NETWORK: network}
    picture: Preprocessing | None = None
    if before is not None:
        notes_of = dict(zip((t.name for t in graph.inputs), notes.get("inputs", ()), strict=False))
        defaults = {} if family is None else family.preprocessing
        picture = plan_preprocessing(own_inputs, before, notes_of, defaults)
        start = _make_preprocessing(network, picture)
        parts = {PREPROCESSING: start, **parts}
        inputs = tuple(start.inputs[0] if p is picture.port else p for p in inputs)
    if settings_after is not None:
        plan = plan_postprocessing(family, facts, settings_after, has_picture=before is not None)
        size = None if picture is None else parts[PREPROCESSING].outputs[1]
        end = _make_postprocessing(network, plan, picture, size)
        parts[POSTPROCESSING] = end
        outputs = (*end.outputs, *network.outputs[len(own_outputs) :])
    return _join(parts, inputs, outputs)


def _make_preprocessing(network: Emitted, plan: Preprocessing) -> Emitted:
    """Return the graph from a picture to the input of the network, and to the picture's size."""
    g = Nodes(network.opset, opset_is_fixed=True)
    tensor = plan.make_image_tensor()
    image = g.annotate(Value(dtype=plan.dtype), plan.dtype, tensor.sizes)
    size = emit_picture_size(g, image, plan)
    value = emit_preprocessing(g, image, emit_frame(g, size, plan), plan)
    pixels, named = g.identity(size, DType.INT64), Value(name=_SIZE)
    g.annotate(pixels, DType.INT64, (2,))
    outputs = [plan.port, Port(_SIZE, named, Tensor(_SIZE, (2,), DType.INT64), (0,), DType.INT64)]
    entry = Port(IMAGE, image, tensor, make_identity(tensor.rank), plan.dtype, plan.layout)
    return _finish(g, PREPROCESSING, [entry], outputs, {value: plan.port.value, pixels: named})


def _make_postprocessing(
    network: Emitted, plan: Postprocessing, picture: Preprocessing | None, size: Port | None
) -> Emitted:
    """Return the graph from the outputs of the network, and the picture's size, to boxes."""
    g = Nodes(network.opset, opset_is_fixed=True)
    inputs = [*plan.family.ports]
    frame = None
    if picture is not None and size is not None and plan.family.makes_boxes:
        frame = emit_frame(g, size.value, picture)
        inputs.append(size)
    return _finish(g, POSTPROCESSING, inputs, emit_postprocessing(g, frame, plan), {})


def _finish(
    g: Nodes,
    name: str,
    inputs: Sequence[Port],
    outputs: Sequence[Port],
    renamed: Mapping[Value, Value],
) -> Emitted:
    """Return the graph of a builder.

    Its values get names that begin with `name`, so that no value of the network gets another name.
    `renamed` replaces values.
    """
    values = {port.value for port in (*inputs, *outputs)}
    new = dict(renamed)

    def rename(value: Value) -> Value:
        if value not in values and value not in new:
            new[value] = replace(value, name=f"{name}/{len(new)}")
        return new.get(value, value)

    nodes = [
        node._replace(
            inputs=tuple(None if v is None else rename(v) for v in node.inputs),
            outputs=tuple(map(rename, node.outputs)),
        )
        for node in g.nodes
    ]
    live = eliminate_dead_nodes(nodes, [port.value for port in outputs])
    types = {new.get(value, value): entry for value, entry in g.types.items()}
    return Emitted(
        live,
        g.opset,
        tuple(inputs),
        tuple(outputs),
        (),
        MappingProxyType(types),
        dynamic_sizes=_find_file_sizes([*inputs, *outputs]),
    )


def _find_file_sizes(ports: Iterable[Port]) -> dict[str, int]:
    return {
        word: port.tensor.shape[axis]
        for port in ports
        for axis, word in port.tensor.symbols.items()
    }


def _join(
    parts: Mapping[str, Emitted], inputs: Sequence[Port], outputs: Sequence[Port]
) -> Attached:
    """Return one graph of parts, which compute each other's inputs in sequence."""
    network, graphs = parts[NETWORK], parts.values()
    outer = {port.name for port in (*inputs, *outputs)}
    endpoints = {port.value for port in (*inputs, *outputs)}
    inner = [
        port._replace(name=f"{NETWORK}/{port.name}" if port.name in outer else port.name)
        for port in (*network.inputs, *network.outputs)
        if port.value not in endpoints
    ]
    whole = network._replace(
        nodes=eliminate_dead_nodes(
            [node for graph in graphs for node in graph.nodes], [port.value for port in outputs]
        ),
        inputs=tuple(inputs),
        outputs=tuple(outputs),
        tensors=(*inner, *network.tensors),
        types=MappingProxyType({k: v for piece in graphs for k, v in piece.types.items()}),
        dynamic_sizes={k: v for piece in graphs for k, v in piece.dynamic_sizes.items()},
    )
    names = {port.value: port.name for port in inner}
    own_names = {p.name: names.get(p.value, p.name) for p in (*network.inputs, *network.outputs)}
    return Attached(whole, parts, own_names)


_Signatures = Mapping[str, Mapping[str, Mapping[str, str]]]


def assemble_parts(
    attached: Attached, metadata: Mapping[str, object], assemble: Callable[..., Result]
) -> Result:
    """Return the model with its endpoints; `Result.parts` has its parts.

    `metadata` describe the network, and `assemble` makes its result. In the metadata of the whole
    model, `network` are the inputs and outputs of the network, with the names of their values, and
    its signatures. The signatures of the whole model have only names that are left.
    """
    parts = {
        part: assemble(emitted, metadata=metadata)
        if part == NETWORK
        else make_result(emitted, part, None)
        for part, emitted in attached.parts.items()
    }
    network = parts[NETWORK]
    described: dict[str, Any] = {
        key: [e.to_dict() | {"value": attached.inner[e.name]} for e in endpoints]
        for key, endpoints in (("inputs", network.inputs), ("outputs", network.outputs))
    }
    signatures = cast("_Signatures", metadata["signatures"])
    described["signatures"] = signatures
    left = _select_names(signatures, attached.whole)
    whole = assemble(attached.whole, metadata={**metadata, "signatures": left, NETWORK: described})
    return replace(whole, parts=parts)


def _select_names(signatures: _Signatures, whole: Emitted) -> _Signatures:
    """Return signatures without the names of inputs and outputs that the whole model lacks."""
    names = {"inputs": {p.name for p in whole.inputs}, "outputs": {p.name for p in whole.outputs}}
    return {
        key: {
            kind: {name: value for name, value in called.items() if value in names[kind]}
            for kind, called in endpoints.items()
        }
        for key, endpoints in signatures.items()
    }

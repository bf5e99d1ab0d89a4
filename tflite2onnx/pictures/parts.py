"""The result of a conversion with pictures: one model, and its parts as separate models."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, cast

from tflite2onnx.emit import Emitted
from tflite2onnx.pictures.attach import Attached
from tflite2onnx.pictures.settings import NETWORK
from tflite2onnx.result import Result, make_result

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

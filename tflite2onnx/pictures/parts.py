"""The result of a conversion with pictures: one model, and its parts as separate models."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from tflite2onnx.pictures.attach import Attached
from tflite2onnx.pictures.settings import NETWORK
from tflite2onnx.result import Result, make_result


def assemble_parts(
    attached: Attached, metadata: Mapping[str, object], assemble: Callable[..., Result]
) -> Result:
    """Return the model with its ends; `Result.parts` has its parts.

    `metadata` describe the network, and `assemble` makes its result. In the metadata of the whole
    model, `network` are the inputs and outputs of the network, with the names of their values.
    """
    parts = {
        part: assemble(emitted, metadata=metadata)
        if part == NETWORK
        else make_result(emitted, part, None)
        for part, emitted in attached.parts.items()
    }
    network = parts[NETWORK]
    described = {
        key: [end.to_dict() | {"value": attached.inner[end.name]} for end in ends]
        for key, ends in (("inputs", network.inputs), ("outputs", network.outputs))
    }
    whole = assemble(attached.whole, metadata={**metadata, NETWORK: described})
    return replace(whole, parts=parts)

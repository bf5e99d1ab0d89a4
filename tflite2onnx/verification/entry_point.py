"""Changes to a TFLite model before a runtime opens it: another main sub-graph, more outputs."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from tflite2onnx.reader.flatbuffer import read_root
from tflite2onnx.reader.model import read_model
from tflite2onnx.signatures import find_signature
from tflite2onnx.verification.runtimes import ModelFile


def move_signature_first(model: ModelFile, key: str | None) -> ModelFile:
    """Return a copy of a model whose first sub-graph is that of a signature.

    A model that already begins with this sub-graph is returned unchanged. The first sub-graph and
    that of the signature are swapped. Indices in operators stay valid, because no operator refers
    to an entry point.
    """
    index = 0 if key is None else find_signature(read_model(model), key)[0]
    if index == 0:
        return model
    data = _bytes(model)
    graphs = read_root(memoryview(bytes(data)))["subgraphs"]
    for here, there in ((0, index), (index, 0)):
        place = graphs.offset_of(here)
        struct.pack_into("<I", data, place, graphs[there].position - place)
    return bytes(data)


def with_more_outputs(model: ModelFile, indices: Iterable[int]) -> bytes:
    """Return a model whose main sub-graph has these tensors as outputs, after its own outputs.

    XNNPACK writes only the outputs of a sub-graph to memory that the interpreter can read; all
    other tensors stay in XNNPACK's internal buffers.

    Raises:
        ValueError: the main sub-graph has no outputs.
    """
    data = _bytes(model)
    graph = read_root(memoryview(bytes(data)))["subgraphs"][0]
    place, own = graph.offset_of("outputs"), graph["outputs"].tolist()
    if place is None or not own:
        raise ValueError("the main sub-graph must have outputs, got none")
    outputs = np.array([*dict.fromkeys([*own, *indices])], "<i4")
    data += bytes(-len(data) % 4)
    struct.pack_into("<I", data, place, len(data) - place)
    return bytes(data) + struct.pack("<I", outputs.size) + outputs.tobytes()


def _bytes(model: ModelFile) -> bytearray:
    return bytearray(model if isinstance(model, bytes) else Path(os.fspath(model)).read_bytes())

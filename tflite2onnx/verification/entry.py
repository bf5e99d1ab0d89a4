"""The sub-graph of a signature in the place of the main one, which runtimes run and look into."""

from __future__ import annotations

import os
import struct
from pathlib import Path

from tflite2onnx.flatbuffer import root
from tflite2onnx.reader import read
from tflite2onnx.signatures import entry
from tflite2onnx.verification.runtimes import ModelFile


def with_entry(model: ModelFile, key: str | None) -> ModelFile:
    """Return a model that begins with the sub-graph of a signature, the model itself if it does.

    The two sub-graphs change places, which no operator refers to: entry points are not called.
    """
    index = 0 if key is None else entry(read(model), key)[0]
    if index == 0:
        return model
    data = bytearray(model if isinstance(model, bytes) else Path(os.fspath(model)).read_bytes())
    graphs = root(memoryview(bytes(data)))["subgraphs"]
    for here, there in ((0, index), (index, 0)):
        place = graphs.place(here)
        struct.pack_into("<I", data, place, graphs[there].position - place)
    return bytes(data)

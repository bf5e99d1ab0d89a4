"""A bundle in the form that the runtime of a target loads."""

from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

from tflite2onnx.graph import Model
from tflite2onnx.reader.containers.bundle import Bundle


class PreparedModel(NamedTuple):
    """A model that takes the place of models of a bundle.

    Attributes:
        name: the model of the bundle whose name and signature it has.
        signature: the key of the signature.
        file: the path of its ONNX file in the folder.
        model: what is converted.
        options: options of the conversion that belong to the model.
        replaced: the names of the models of the bundle that it contains.
        list_files: returns the files that the folder needs beside the model, by their paths.
    """

    name: str
    signature: str
    file: str
    model: Model
    options: Mapping[str, Any]
    replaced: Collection[str]
    list_files: Callable[[Bundle], Mapping[str, memoryview]]

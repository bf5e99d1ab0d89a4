"""Signatures of language models in LiteRT and in ONNX Runtime, with TFLite's names and layouts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from tflite2onnx.errors import VerifyError
from tflite2onnx.tensor import Array
from tflite2onnx.verification.onnx_model import ConvertedModel, open_model
from tflite2onnx.verification.runtimes import as_verify_error, run_onnx


class RunnableSignature(Protocol):
    """A signature in a runtime: the shapes and types of its inputs, and a run by TFLite's names."""

    @property
    def shapes(self) -> Mapping[str, tuple[Sequence[int], Any]]: ...

    def compute_outputs(self, feeds: Mapping[str, Array]) -> Mapping[str, Array]: ...


class LiteRTSignature:
    """A signature in LiteRT."""

    def __init__(self, interpreter: Any, key: str) -> None:
        with as_verify_error("LiteRT"):
            self._runner = interpreter.get_signature_runner(key)
        details = self._runner.get_input_details()
        self.shapes = {n: (tuple(d["shape"]), d["dtype"]) for n, d in details.items()}

    def compute_outputs(self, feeds: Mapping[str, Array]) -> Mapping[str, Array]:
        """Return copies of the outputs: LiteRT may overwrite them in the next run."""
        with as_verify_error("LiteRT"):
            return {name: np.array(made) for name, made in self._runner(**feeds).items()}


class OnnxSignature:
    """A converted signature in ONNX Runtime."""

    def __init__(self, converted: ConvertedModel, key: str) -> None:
        opened = open_model(converted)
        names = opened.signatures.get(key)
        if names is None:
            raise VerifyError(f"the ONNX model must be of the signature {key}")
        self._session = opened.session
        endpoints = {e.name: e for e in (*opened.inputs, *opened.outputs)}
        self._inputs = {n: endpoints[o] for n, o in names["inputs"].items()}
        self._outputs = {n: endpoints[o] for n, o in names["outputs"].items()}
        self.shapes = {n: (e.tflite_shape, np.dtype(e.dtype)) for n, e in self._inputs.items()}

    def compute_outputs(self, feeds: Mapping[str, Array]) -> Mapping[str, Array]:
        """Return the outputs in TFLite's layout."""
        arrays = {
            e.name: np.ascontiguousarray(feeds[name].transpose(e.order))
            for name, e in self._inputs.items()
        }
        names_wanted = [e.name for e in self._outputs.values()]
        outputs = run_onnx(self._session, arrays, names_wanted)
        return {
            name: array.transpose(np.argsort(e.order))
            for (name, e), array in zip(self._outputs.items(), outputs, strict=True)
        }

"""onnxruntime-genai runs the decoder of a folder: a prompt, and then tokens that are given."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tflite2onnx.reader.containers.bundle import Bundle
from tflite2onnx.reader.model import read_model
from tflite2onnx.targets.genai.decoder import CONFIG, choose_signature, find_decoder
from tflite2onnx.tensor import Array

PACKAGE, MODULE = "onnxruntime-genai", "onnxruntime_genai"
_ONE_THREAD = {"model": {"decoder": {"session_options": {"intra_op_num_threads": 1}}}}


def is_folder(folder: Path) -> bool:
    """Return whether a folder is one that onnxruntime-genai loads."""
    return (folder / CONFIG).is_file()


def find_decoder_signature(bundle: Bundle) -> tuple[str, str]:
    """Return the model and the signature of the decoder; BundleError if the bundle has none."""
    name = find_decoder(bundle)
    return name, choose_signature(read_model(bundle.models[name])).key


class LoadedDecoder:
    """A decoder that is loaded, on one thread; `length` is the number of tokens of its caches."""

    def __init__(self, module: Any, folder: Path) -> None:  # noqa: ANN401 - untyped
        config = module.Config(str(folder))
        config.overlay(json.dumps(_ONE_THREAD))
        self._module, self._model = module, module.Model(config)
        content = json.loads((folder / CONFIG).read_text("utf-8"))
        self.length = int(content["model"]["context_length"])

    def start(self, prompt: Sequence[int]) -> Answer:
        options = self._module.GeneratorParams(self._model)
        options.set_search_options(max_length=self.length, do_sample=False)
        return Answer(self._module.Generator(self._model, options), prompt)


class Answer:
    """A run of a prompt, and of tokens after it."""

    def __init__(self, generator: Any, prompt: Sequence[int]) -> None:  # noqa: ANN401 - untyped
        self._generator, self._prompt = generator, prompt

    def run_step(self, token: int | None) -> Array:
        """Return the logits after a token, None for the whole prompt."""
        tokens = self._prompt if token is None else [token]
        self._generator.append_tokens(np.array([tokens], np.int32))
        return np.asarray(self._generator.get_logits()).reshape(-1)

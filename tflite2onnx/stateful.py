"""Models with state in ONNX Runtime, call after call."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from tflite2onnx.tensor import Array

STATES = "tflite2onnx.states"  # in the metadata of the ONNX model


class Session(Protocol):
    """What is needed of an onnxruntime.InferenceSession."""

    def run(self, output_names: Sequence[str], input_feed: Mapping[str, Array], /) -> list[Any]:
        """Return the outputs with these names."""

    def get_outputs(self) -> Sequence[Any]:
        """Return descriptions of all outputs, which have a `name`."""

    def get_modelmeta(self) -> Any:  # noqa: ANN401 - an onnxruntime.ModelMetadata
        """Return the metadata of the model."""


class Stateful:
    """A session that remembers: what a run gives as the next state is fed to the following run.

        session = Stateful(onnxruntime.InferenceSession("model.onnx"))
        for frame in frames:
            (probability,) = session.run(None, {"input": frame})

    `state` is what the next run is fed, by the names of the inputs; where it has none the model
    takes its initial value. It may be kept, and set again.

    A model without state runs as it does without this class.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        text = session.get_modelmeta().custom_metadata_map.get(STATES, "[]")
        self._after = {each["output"]: each["name"] for each in json.loads(text)}
        names = [output.name for output in session.get_outputs()]
        self._own = [name for name in names if name not in self._after]
        self.state: dict[str, Array] = {}

    def run(self, output_names: Sequence[str] | None, feeds: Mapping[str, Array]) -> list[Any]:
        """Return the outputs with these names, all but the states if None, and take the next state.

        A state that is among `feeds` is taken from there for this run. If the session raises, the
        state stays what it is.
        """
        names = self._own if output_names is None else list(output_names)
        asked = list(dict.fromkeys((*names, *self._after)))
        made = self._session.run(asked, {**self.state, **feeds})
        values = dict(zip(asked, made, strict=True))
        self.state = {before: values[after] for after, before in self._after.items()}
        return [values[name] for name in names]

    def reset(self) -> None:
        """Begin anew, with the initial state."""
        self.state = {}

"""Run models with state in ONNX Runtime: each run gets the state of the run before."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any, Protocol

import numpy as np

from tflite2onnx.errors import OptionError
from tflite2onnx.tensor import Array

STATES = "tflite2onnx.states"  # the key of the states in the metadata of the ONNX model


class Session(Protocol):
    """The methods of an onnxruntime.InferenceSession that `Stateful` calls."""

    def run(self, output_names: Sequence[str], input_feed: Mapping[str, Array], /) -> list[Any]:
        """Return the outputs with these names."""

    def get_outputs(self) -> Sequence[Any]:
        """Return descriptions of all outputs; each has a `name`."""

    def get_modelmeta(self) -> Any:  # noqa: ANN401 - an onnxruntime.ModelMetadata
        """Return the metadata of the model."""


class Stateful:
    """A session with state: each run gets the next state that the run before has returned.

        session = Stateful("model.onnx")
        for frame in frames:
            (probability,) = session.run(None, {"input": frame})

    The argument is a session of ONNX Runtime with your own options, or the path of an ONNX file,
    which is opened with ONNX Runtime's CPU provider. `state` has the arrays of the states for the
    next run, by the names of the inputs. For an input that `state` lacks, the model uses the
    initial value. `state` may be saved, and assigned later. If the inputs are required, `state`
    starts with the initial values in the metadata of the model. `session` is the session of ONNX
    Runtime. A model without state runs as in this session.

    Raises:
        OptionError: a path is given, and ONNX Runtime is not installed.
    """

    def __init__(self, session: Session | str | os.PathLike[str]) -> None:
        if isinstance(session, (str, os.PathLike)):
            session = _open_session(session)
        self.session = session
        text = session.get_modelmeta().custom_metadata_map.get(STATES, "[]")
        states = json.loads(text)
        self._input_of = {state["output"]: state["name"] for state in states}
        self._initial = {
            state["name"]: _make_initial_value(state) for state in states if "initial" in state
        }
        names = [output.name for output in session.get_outputs()]
        self._own = [name for name in names if name not in self._input_of]
        self.state: dict[str, Array] = {}
        self.reset()

    def run(self, output_names: Sequence[str] | None, feeds: Mapping[str, Array]) -> list[Any]:
        """Return the outputs with these names (None: all without states), and keep the next state.

        A state in `feeds` replaces the kept state in this run. If the session raises an error, the
        state does not change.
        """
        names = self._own if output_names is None else list(output_names)
        requested = list(dict.fromkeys((*names, *self._input_of)))
        arrays = self.session.run(requested, {**self.state, **feeds})
        values = dict(zip(requested, arrays, strict=True))
        self.state = {name: values[output] for output, name in self._input_of.items()}
        return [values[name] for name in names]

    def reset(self) -> None:
        """Return to the initial state."""
        self.state = dict(self._initial)


def _open_session(path: str | os.PathLike[str]) -> Session:
    """Open an ONNX file with ONNX Runtime's CPU provider."""
    try:
        onnxruntime: Any = import_module("onnxruntime")
    except ImportError as error:
        message = f"ONNX Runtime is required to open {path}: pip install onnxruntime"
        raise OptionError(message) from error
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # ONNX Runtime warns of each initial value that is also an input
    providers = ["CPUExecutionProvider"]
    session: Session = onnxruntime.InferenceSession(path, options, providers)
    return session


def _make_initial_value(state: Mapping[str, Any]) -> Array:
    """Return the initial value that the metadata of the ONNX model give a state."""
    elements = np.asarray(state["initial"], state["dtype"])
    shape = state["onnx_shape"]
    return elements.reshape(shape) if elements.ndim else np.full(shape, elements)

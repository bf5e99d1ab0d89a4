"""Run models with state in ONNX Runtime: each run gets the state of the run before."""

import json
import os
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
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
        OptionError: `session` is neither a session nor the path of a file, or ONNX Runtime is not
            installed and a path is given.
    """

    def __init__(self, session: Session | str | os.PathLike[str]) -> None:
        if isinstance(session, (str, os.PathLike)):
            session = _open_session(session)
        if not hasattr(session, "get_modelmeta"):
            kind = type(session).__name__
            raise OptionError(f"`session` must be a session or the path of a file, got {kind}")
        self.session = session
        text = session.get_modelmeta().custom_metadata_map.get(STATES, "[]")
        states = json.loads(text)
        self._input_of = {state["output"]: state["name"] for state in states}
        self._initial = {
            state["name"]: _make_initial_value(state) for state in states if "initial" in state
        }
        outputs = session.get_outputs()
        self._own = [output.name for output in outputs if output.name not in self._input_of]
        self._binds = bool(states) and _can_bind(session, outputs)
        self._buffers: _StateBuffers | None = None
        self._state: dict[str, Array] | None = None  # None if the buffers have the state
        self.reset()

    @property
    def state(self) -> dict[str, Array]:
        """The states for the next run, by the names of the inputs."""
        if self._state is None:
            self._state = {} if self._buffers is None else self._buffers.read_states()
        return self._state

    @state.setter
    def state(self, state: Mapping[str, Array]) -> None:
        self._state = dict(state)

    def run(self, output_names: Sequence[str] | None, feeds: Mapping[str, Array]) -> list[Any]:
        """Return the outputs with these names (None: all without states), and keep the next state.

        A state in `feeds` replaces the kept state in this run. If the session raises an error, the
        state does not change.
        """
        buffers = self._buffers if output_names is None and self._state is None else None
        if buffers is not None and buffers.can_run(feeds):
            return buffers.run_session(feeds)
        names = self._own if output_names is None else list(output_names)
        requested = list(dict.fromkeys((*names, *self._input_of)))
        arrays = self.session.run(requested, {**self.state, **feeds})
        values = dict(zip(requested, arrays, strict=True))
        self._state = {name: values[output] for output, name in self._input_of.items()}
        if self._binds and output_names is None:
            self._buffers = self._buffers or _StateBuffers(self.session, self._input_of, values)
            self._buffers.write_states(self._state)
            self._state = None
        return [values[name] for name in names]

    def reset(self) -> None:
        """Return to the initial state."""
        self._state = dict(self._initial)


def _can_bind(session: Session, outputs: Sequence[Any]) -> bool:
    """Return whether a session has bindings, and only outputs of numbers of known sizes.

    A session of another package may lack bindings.
    """
    return hasattr(session, "io_binding") and all(
        output.type not in ("tensor(string)", "") and all(isinstance(n, int) for n in output.shape)
        for output in outputs
    )


class _StateBuffers:
    """Two places for each state: a run reads the states of one and writes those of the other.

    A plain run copies each state from ONNX Runtime and back. `outputs` are the outputs of a run.
    """

    def __init__(
        self,
        session: Any,  # noqa: ANN401 - an onnxruntime.InferenceSession
        input_of: Mapping[str, str],
        outputs: Mapping[str, Array],
    ) -> None:
        make_place = import_module("onnxruntime").OrtValue.ortvalue_from_numpy
        self._session = session
        self._inputs = {each.name for each in session.get_inputs()} - {*input_of.values()}
        # A place has the memory of the array.
        places = [{name: make_place(x.copy()) for name, x in outputs.items()} for _ in range(2)]
        self._states = [{name: each[y] for y, name in input_of.items()} for each in places]
        self._outputs = [[x for y, x in each.items() if y not in input_of] for each in places]
        self._bindings = [session.io_binding() for _ in places]
        for i, binding in enumerate(self._bindings):
            for name, place in self._states[1 - i].items():
                binding.bind_ortvalue_input(name, place)
            for name, place in places[i].items():
                binding.bind_ortvalue_output(name, place)
        self._turn = 0  # the places that the next run writes

    def can_run(self, feeds: Mapping[str, Any]) -> bool:
        """Return whether these are arrays for all inputs but the states, and for no others."""
        arrays = (isinstance(x, np.ndarray) and x.flags.c_contiguous for x in feeds.values())
        return feeds.keys() == self._inputs and all(arrays)

    def write_states(self, state: Mapping[str, Array]) -> None:
        """Set the states for the next run."""
        for name, place in self._states[1 - self._turn].items():
            place.update_inplace(state[name])

    def read_states(self) -> dict[str, Array]:
        """Return copies of the states for the next run."""
        places = self._states[1 - self._turn]
        return {name: place.numpy().copy() for name, place in places.items()}

    def run_session(self, feeds: Mapping[str, Array]) -> list[Any]:
        """Return the outputs that are not states, and keep the next state."""
        binding, outputs = self._bindings[self._turn], self._outputs[self._turn]
        for name, array in feeds.items():
            binding.bind_cpu_input(name, array)
        self._session.run_with_iobinding(binding)
        self._turn = 1 - self._turn
        return [place.numpy().copy() for place in outputs]


def _open_session(path: str | os.PathLike[str]) -> Session:
    """Open an ONNX file with ONNX Runtime's CPU provider."""
    try:
        onnxruntime: Any = import_module("onnxruntime")
    except ImportError as error:
        message = f"ONNX Runtime is required to open {path}: pip install onnxruntime"
        raise OptionError(message) from error
    if not Path(path).is_file():  # ONNX Runtime's error names its own status only
        raise OptionError(f"`session` must be the path of a file, got {os.fspath(path)}")
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

"""A session of an ONNX model in another process."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Timer
from types import SimpleNamespace
from typing import Any

import onnx

from tests.runtimes.serve import decode_arrays, encode_arrays
from tests.support.runtimes import Array


class Refused(AssertionError):  # noqa: N818 - a verdict on the model
    """The runtime does not load or run the model."""


class TooSlow(Refused):
    """The runtime was stopped because it took too long."""


class RemoteSession:
    """A model that a command runs; the methods are those of an onnxruntime.InferenceSession.

    The command is called with the path of the model and answers as serve.py does. It has `seconds`
    to load the model, and the same for each run.
    """

    def __init__(self, command: Sequence[str], model: bytes, seconds: float) -> None:
        self._seconds = seconds
        self._model = onnx.load_model_from_string(model)
        self._folder = TemporaryDirectory()
        path = Path(self._folder.name, "model.onnx")
        path.write_bytes(model)
        self._log = Path(self._folder.name, "log").open("w+")  # noqa: SIM115 - see close
        self._process = subprocess.Popen(
            [*command, str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            start_new_session=True,  # see _kill
        )
        try:
            self._read_answer()
        except Refused:
            self.close()
            raise

    def get_outputs(self) -> Sequence[Any]:
        """Return the outputs of the model."""
        return list(self._model.graph.output)

    def get_modelmeta(self) -> Any:
        """Return the metadata of the model."""
        return SimpleNamespace(
            custom_metadata_map={each.key: each.value for each in self._model.metadata_props}
        )

    def run(self, output_names: Sequence[str], input_feed: Mapping[str, Array], /) -> list[Any]:
        """Return the outputs with these names."""
        assert self._process.stdin
        try:
            self._process.stdin.write(json.dumps(encode_arrays(dict(input_feed))) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise Refused(self._last_words()) from None
        outputs = decode_arrays(self._read_answer()["outputs"])
        missing = [name for name in output_names if name not in outputs]
        if missing:
            raise Refused(f"output {missing[0]} is missing")
        return [outputs[name] for name in output_names]

    def close(self) -> None:
        """End the process."""
        self._kill()
        self._process.communicate()
        self._log.close()
        self._folder.cleanup()

    def _read_answer(self) -> dict[str, Any]:
        """Return the next answer of the process.

        Raises:
            Refused: the answer is an error, or the process ended.
            TooSlow: there is no answer in time.
        """
        assert self._process.stdout
        timer = Timer(self._seconds, self._kill)
        timer.start()
        line = self._process.stdout.readline()
        in_time = timer.is_alive()
        timer.cancel()
        if not line:
            last_words = self._last_words()
            raise Refused(last_words) if in_time else TooSlow(f"more than {self._seconds:g} s")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise Refused(answer["error"])
        return answer

    def _kill(self) -> None:
        """End the process and its children, which may hang under an emulator and hold the pipe."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def _last_words(self) -> str:
        """Return the exit status of the process, and the last lines that it printed."""
        status = self._process.wait()
        self._log.seek(0)
        return " ".join([f"exit status {status}:", *self._log.read().splitlines()[-3:]])

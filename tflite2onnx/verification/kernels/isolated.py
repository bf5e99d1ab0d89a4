"""LiteRT in a process of its own: some of its kernels end the process for some networks.

The process runs `PROGRAM`, which imports neither this package nor ONNX Runtime, so that it starts
in a quarter of a second. It opens interpreters, calls their methods and times them. Messages are
pickled tuples.
"""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from tflite2onnx.tensor import Array
from tflite2onnx.verification.runtimes import ModelFile, as_verify_error, import_runtime

PROGRAM = """
import os, pickle, sys, time
source, sink = os.fdopen(0, "rb"), os.fdopen(os.dup(1), "wb")
os.dup2(2, 1)  # messages of LiteRT do not mix with the results
from ai_edge_litert.interpreter import Interpreter, OpResolverType

def open_interpreter(model, kernels, inner):
    name = "model_content" if isinstance(model, bytes) else "model_path"
    interpreter = Interpreter(
        **{name: model},
        experimental_op_resolver_type=OpResolverType[kernels],
        experimental_preserve_all_tensors=inner,
    )
    interpreter.allocate_tensors()
    interpreters.append(interpreter)
    return len(interpreters) - 1

def time_runs(interpreter, count, clock):  # as in `verification.latency`
    now = getattr(time, clock)
    if count > 1:
        interpreter.invoke()
    start = now()
    for _ in range(count):
        interpreter.invoke()
    return (now() - start) / count

interpreters = []
while source.peek():
    index, method, arguments = pickle.load(source)
    try:
        if method == "close":
            interpreters[index] = None
            answer = True, None
        elif method == "time_runs":
            answer = True, time_runs(interpreters[index], *arguments)
        else:
            call = open_interpreter if index is None else getattr(interpreters[index], method)
            answer = True, call(*arguments)
    except Exception as error:
        answer = False, (type(error) is ValueError, str(error))
    pickle.dump(answer, sink)
    sink.flush()
"""


class IsolatedRuntime:
    """Opens interpreters in a process, which begins with the first interpreter.

    After a crash the next interpreter begins another process.
    """

    def __init__(self) -> None:
        self._process: _Process | None = None

    def open(self, model: ModelFile, kernels: str, *, inner: bool = False) -> IsolatedInterpreter:
        """Return an interpreter; LiteRTError if LiteRT does not open the model, or crashes."""
        import_runtime("ai_edge_litert.interpreter")
        with as_verify_error("LiteRT"):
            if self._process is None or self._process.running.poll() is not None:
                self._process = _Process()
            source = model if isinstance(model, bytes) else str(model)
            index = self._process.call(None, "", source, kernels, inner)
            return IsolatedInterpreter(self._process, index)

    def close(self) -> None:
        if self._process is not None:
            self._process.close()


class _Process:
    def __init__(self) -> None:
        self.running = subprocess.Popen(  # noqa: S603 - this interpreter and our program
            [sys.executable, "-c", PROGRAM],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        self._sink: Any = self.running.stdin
        self._source: Any = self.running.stdout

    def call(self, index: int | None, method: str, *arguments: object) -> Any:
        """Return the result of a method of an interpreter, or of opening one.

        Raises:
            ValueError, RuntimeError: the method raises an exception, or the process has ended.
        """
        try:
            pickle.dump((index, method, arguments), self._sink)
            self._sink.flush()
            succeeds, result = pickle.load(self._source)  # noqa: S301 - of our own process
        except (OSError, EOFError, pickle.UnpicklingError):
            self.close()
            raise RuntimeError("LiteRT has ended its process") from None
        if succeeds:
            return result
        is_value_error, text = result
        raise ValueError(text) if is_value_error else RuntimeError(text)

    def close(self) -> None:
        self.running.kill()
        self.running.communicate()


class IsolatedInterpreter:
    """An interpreter in another process, with the methods that verification needs."""

    def __init__(self, process: _Process, index: int) -> None:
        self._process, self._index = process, index
        self._inputs: Sequence[dict[str, Any]] = self._call("get_input_details")
        self._outputs: Sequence[dict[str, Any]] = self._call("get_output_details")

    def get_input_details(self) -> Sequence[dict[str, Any]]:
        return self._inputs

    def get_output_details(self) -> Sequence[dict[str, Any]]:
        return self._outputs

    def set_tensor(self, index: int, array: Array) -> None:
        self._call("set_tensor", index, array)

    def invoke(self) -> None:
        self._call("invoke")

    def time_runs(self, count: int, clock: str) -> float:
        """Return the mean seconds of `count` runs, by the clock of this name in `time`."""
        return float(self._call("time_runs", count, clock))

    def get_tensor(self, index: int) -> Any:
        """Return a tensor; ValueError if LiteRT has not kept it."""
        return self._call("get_tensor", index)

    def close(self) -> None:
        self._call("close")

    def _call(self, method: str, *arguments: object) -> Any:
        return self._process.call(self._index, method, *arguments)

"""Conversion of one damaged file: the result, or a fault.

Faults are: an exception other than ConversionError, a message that reports a bug of the converter,
a warning, a MemoryError, an invalid model, and a file that is left behind.
"""

from __future__ import annotations

import errno
import gc
import os
import resource
import shutil
import time
import traceback
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import onnx

from tflite2onnx import ConversionError, convert
from tflite2onnx.bundle import convert_bundle
from tflite2onnx.errors import InternalWarning, OutputError

_BYSTANDER = "of somebody else"
_PACKAGE = "/tflite2onnx/"


class Request(NamedTuple):
    """A file to convert, and an empty folder to work in; an archive is converted as a bundle."""

    data: bytes
    options: Mapping[str, Any]
    folder: Path
    by_path: bool
    is_bundle: bool


class Outcome(NamedTuple):
    """The outcome of a conversion; a model has the axis orders of its inputs and outputs."""

    kind: str  # "converted", "refused" or a class of faults
    text: str = ""
    model: bytes = b""
    orders: tuple[Sequence[Sequence[int]], Sequence[Sequence[int]]] = ((), ())
    seconds: float = 0.0
    peak: int = 0

    @property
    def is_fault(self) -> bool:
        """Whether the outcome is a fault."""
        return self.kind not in ("converted", "refused")


def convert_damaged(request: Request) -> Outcome:
    """Convert a file, look at the result, and leave the folder empty."""
    start = time.process_time()
    try:
        outcome = _convert_and_check(request)
    finally:
        clear_folder(request.folder)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
    return outcome._replace(seconds=time.process_time() - start, peak=peak)


def clear_folder(folder: Path) -> None:
    """Remove all files and folders in a folder."""
    for path in folder.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()


def _convert_and_check(request: Request) -> Outcome:
    folder = request.folder / "out"
    folder.mkdir()
    (folder / "other.onnx").write_text(_BYSTANDER)
    descriptors = len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - a pseudo file system
    outcome = _convert(request, folder)
    if left := sorted(p.name for p in folder.rglob("*") if p.name != "other.onnx"):
        return Outcome("leftover", f"{outcome.kind}: {left}")
    if (folder / "other.onnx").read_text() != _BYSTANDER:
        return Outcome("leftover", "a file that was there before is gone")
    if len(os.listdir("/proc/self/fd")) > descriptors:  # noqa: PTH208 - as above
        gc.collect()  # tracebacks of errors may keep a file open
    if len(os.listdir("/proc/self/fd")) > descriptors:  # noqa: PTH208 - as above
        return Outcome("descriptor", "an open file is left")
    return outcome


def _convert(request: Request, folder: Path) -> Outcome:
    """Convert a file, and remove the output, so that any other file is a leftover."""
    source: Any = request.data
    if request.by_path:
        source = request.folder / "source"
        source.write_bytes(request.data)
    try:
        if request.is_bundle:
            convert_bundle(source, folder, **_of_bundles(request.options))
            return _check_bundle(folder)
        with warnings.catch_warnings():
            warnings.simplefilter("error", InternalWarning)
            result = convert(source, **request.options)
        result.save(folder / "model.onnx")
    except ConversionError as error:
        return _classify_refusal(error)
    except Exception as error:  # noqa: BLE001 - any other exception is a fault
        return Outcome(f"uncaught {type(error).__name__} in {_find_place(error)}", _trace(error))
    path = folder / "model.onnx"
    model = path.read_bytes()
    path.unlink()
    if fault := _find_invalidity(model):
        return Outcome("invalid model", fault, model)
    inputs, outputs = ([end.order for end in ends] for ends in (result.inputs, result.outputs))
    return Outcome("converted", "", model, (inputs, outputs))


def _of_bundles(options: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in options.items() if key != "signature"}


def _check_bundle(folder: Path) -> Outcome:
    """Check every model of a converted bundle, and remove it."""
    outcome = Outcome("converted")
    for path in sorted(folder.rglob("*.onnx")):
        fault = path.name != "other.onnx" and _find_invalidity(str(path))
        if fault:
            outcome = Outcome("invalid model", fault, path.read_bytes())
    for path in sorted(folder.rglob("*"), reverse=True):
        if path.is_dir():
            path.rmdir()
        elif path.name != "other.onnx":
            path.unlink()
    return outcome


def _classify_refusal(error: ConversionError) -> Outcome:
    if isinstance(error.__cause__, MemoryError):
        return Outcome(f"memory in {_find_place(error.__cause__)}", _trace(error.__cause__))
    if "a bug in the converter" in str(error):
        return Outcome("reported bug", str(error))
    if isinstance(error, OutputError):
        # The limit of files is smaller than the limit of initial states.
        is_limit = isinstance(error.__cause__, OSError) and error.__cause__.errno == errno.EFBIG
        return Outcome("refused" if is_limit else "output error", str(error))
    return Outcome("refused", str(error))


def _find_invalidity(model: bytes | str) -> str:
    """Return why a model is invalid ONNX, or ""."""
    try:
        onnx.checker.check_model(model, full_check=True)
    except MemoryError:  # the checker copies the model
        return ""
    except Exception as error:  # noqa: BLE001 - classes of C++ without a common base
        return f"{type(error).__name__}: {error}"
    return ""


def _find_place(error: BaseException) -> str:
    """Return the innermost function of the converter in a traceback."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if _PACKAGE in f.filename]
    return f"{Path(frames[-1].filename).name}:{frames[-1].name}" if frames else "no code of ours"


def _trace(error: BaseException) -> str:
    return "".join(traceback.format_exception(error))[-4000:]

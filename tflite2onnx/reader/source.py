"""The bytes of a model, memory-mapped if they are in a file, and its external weights."""

import os
import stat
from collections.abc import Hashable
from dataclasses import dataclass, field
from pathlib import Path

from tflite2onnx.errors import ModelFileError
from tflite2onnx.reader.foreign_files import EXPORT_FIRST
from tflite2onnx.tensor import Array
from tflite2onnx.utils.archive import is_inside
from tflite2onnx.utils.mapped_files import MappedFile
from tflite2onnx.utils.suggestions import suggest_names

_LIKENESS = 0.85  # of names of files that may be meant: most end in the same suffix


@dataclass(frozen=True, eq=False)
class ModelSource:
    """A model as the bytes of its flatbuffer, and the location of its external weights.

    The external weights of a model are in files of `folder`, by the names of their groups. In a
    `.litertlm` file one section, `weights`, has the weights of all groups. `elements` are the
    constants that have been read: a model of a bundle is read more than once, and its elements of
    less than a byte are unpacked once.
    """

    data: memoryview
    folder: Path | None = None
    weights: memoryview | None = None
    elements: dict[Hashable, Array] = field(default_factory=dict, repr=False)

    def read_weights(self, group: str) -> memoryview:
        """Return the bytes of external weights; ModelFileError if there is no such file."""
        if self.weights is not None:
            return self.weights
        if self.folder is None:
            raise ModelFileError(
                f"the model has weights in the file {group}: it must be given by its path, not by"
                " its bytes"
            )
        if not is_inside(group):
            raise ModelFileError(
                f"a file with weights must be in the folder of the model, got {group!r}"
            )
        return map_file(self.folder / group)


AnySource = str | os.PathLike[str] | bytes | memoryview | ModelSource


def open_source(source: AnySource) -> ModelSource:
    """Return the model of a path or of bytes; ModelFileError if it cannot be read, or is empty."""
    if isinstance(source, ModelSource):
        return source
    if isinstance(source, (str, os.PathLike)):
        return ModelSource(map_file(source), Path(os.fspath(source)).parent)
    return ModelSource(memoryview(source).toreadonly().cast("B"))


def map_file(path: str | os.PathLike[str]) -> memoryview:
    """Return the bytes of a file; they are read at the first access.

    Raises:
        ModelFileError: the file cannot be read, is empty, or is not a regular file.
    """
    try:
        mode = os.stat(path).st_mode  # noqa: PTH116 - the path may be any PathLike
    except (OSError, ValueError) as error:
        raise _explain_unreadable(path, error) from error
    if stat.S_ISFIFO(mode):
        raise ModelFileError(
            f"cannot read {os.fspath(path)}: it is a pipe, not a regular file; give its bytes"
            " (on the command line: - and standard input)"
        )
    if stat.S_ISDIR(mode) and Path(os.fspath(path), "saved_model.pb").exists():
        raise ModelFileError(f"{os.fspath(path)} is a SavedModel of TensorFlow, {EXPORT_FIRST}")
    if stat.S_ISDIR(mode):
        raise ModelFileError(f"cannot read {os.fspath(path)}: it is a folder; give a file in it")
    if not stat.S_ISREG(mode):
        raise ModelFileError(f"cannot read {os.fspath(path)}: it is not a regular file")
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - likewise
            size = os.fstat(file.fileno()).st_size
            data = MappedFile(file) if size else b""
    except OSError as error:
        raise _explain_unreadable(path, error) from error
    if not size:
        raise ModelFileError(f"{os.fspath(path)} is empty")
    return memoryview(data)


def _explain_unreadable(
    path: str | os.PathLike[str], error: OSError | ValueError
) -> ModelFileError:
    reason = getattr(error, "strerror", None) or error
    advice = "; download it first" if "://" in os.fspath(path) else ""
    place = Path(os.fspath(path))
    if isinstance(error, FileNotFoundError) and not {"*", "?", "["}.isdisjoint(place.name):
        return ModelFileError(
            f"cannot read {os.fspath(path)}: no file has this name; the shell finds the files of a"
            " pattern without quotation marks, or give their folder"
        )
    if isinstance(error, FileNotFoundError) and not advice and place.parent.is_dir():
        files = (each.name for each in place.parent.iterdir())
        advice = suggest_names(place.name, files, likeness=_LIKENESS)
    return ModelFileError(f"cannot read {os.fspath(path)}: {reason}{advice}")

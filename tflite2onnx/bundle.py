"""Bundles: zip archives of several models, as MediaPipe's .task files are.

A bundle holds TFLite models, bundles, and other files (graphs, tokenisers, licences). Models are
known by what they hold, not by their names: those of language models have no suffix.
"""

from __future__ import annotations

import io
import json
import logging
import os
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from tflite2onnx.convert import convert
from tflite2onnx.errors import BundleError, ConversionError, OutputError
from tflite2onnx.reader.model import read_model
from tflite2onnx.result import Result
from tflite2onnx.signatures import has_signature
from tflite2onnx.utils.archive import DAMAGED, MAGIC, content, list_entries
from tflite2onnx.utils.atomic_files import replacing_all, resolve_path
from tflite2onnx.writer import write_to

_logger = logging.getLogger(__name__)

MANIFEST = "manifest.json"
_IDENTIFIER = slice(4, 8), b"TFL3"
_MOST_LEVELS = 4
# What an archive may unpack to: models hardly shrink when they are compressed.
_TIMES, _BYTES = 16, 1 << 26


@dataclass(frozen=True)
class Bundle:
    """The models of a bundle by their paths in it, and the paths of all other files."""

    models: Mapping[str, bytes]
    others: tuple[str, ...]


def is_bundle(path: str | os.PathLike[str]) -> bool:
    """Return whether a file is an archive; False if it cannot be read."""
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - the path may be any os.PathLike
            return file.read(len(MAGIC)) == MAGIC
    except (OSError, ValueError):
        return False


def read_bundle(source: str | os.PathLike[str] | bytes) -> Bundle:
    """Read all models of a bundle, and of the bundles in it.

    Raises:
        BundleError: it is no archive, is damaged, would unpack to far more than it holds, or has a
            file whose name would leave the folder it is unpacked to.
    """
    data = source if isinstance(source, bytes) else _bytes(source)
    models: dict[str, bytes] = {}
    others: list[str] = []
    for name, found in _Unpacker(_TIMES * len(data) + _BYTES).files(data):
        if name in models:
            raise BundleError(f"two files of the bundle are named {name!r}")
        if found[_IDENTIFIER[0]] == _IDENTIFIER[1]:
            models[name] = found
        else:
            others.append(name)
    if not models:
        raise BundleError("there is no TFLite model in the bundle")
    return Bundle(models, tuple(others))


def convert_bundle(
    source: str | os.PathLike[str] | bytes | Bundle,
    folder: str | os.PathLike[str],
    *,
    external_data: int | None = None,
    **options: Any,  # noqa: ANN401 - those of `convert`
) -> dict[str, Result]:
    """Convert every model of a bundle into a folder, all or none of them; return what came out.

    A model keeps its name, with the suffix .onnx, and its place in bundles within the bundle.
    `manifest.json` says for each what its inputs and outputs are, and lists what was left behind.

    Args:
        source: path of the bundle, its bytes, or what is read of it already.
        folder: where to write; it is made if it is not there.
        external_data: as of `convert`.
        options: those of `convert` for each model, but for `layouts`.

    Raises:
        ConversionError: the bundle cannot be read or a model not converted; all such are named.
    """
    bundle = source if isinstance(source, Bundle) else read_bundle(source)
    results = convert_models(bundle, **options)
    write_models(bundle, results, folder, external_data)
    return results


def convert_models(bundle: Bundle, **options: Any) -> dict[str, Result]:  # noqa: ANN401 - as above
    """Return what becomes of every model of a bundle.

    Raises:
        BundleError: a model is not converted, of which all are named, or two would be one file.
    """
    files_of(bundle)  # that each has a place is known before any takes time
    results: dict[str, Result] = {}
    problems = []
    for name, data in bundle.models.items():
        try:
            results[name] = convert(data, **_possible_names(name, data, options))
        except ConversionError as error:
            problems.append(f"{name}: {error}")
    if problems:
        raise BundleError("\n".join(problems))
    return results


def _possible_names(name: str, data: bytes, options: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the options of a model; without a signature it keeps the names of its tensors."""
    if options.get("names") != "signature" or has_signature(
        read_model(data), options.get("signature")
    ):
        return options
    _logger.warning("%s has no signature: its inputs and outputs are named as its tensors", name)
    return {**options, "names": "tensor"}


def write_models(
    bundle: Bundle, results: Mapping[str, Result], folder: str | os.PathLike[str],
    external_data: int | None = None,
) -> None:  # fmt: skip
    """Write what became of the models of a bundle into a folder, with a manifest, or nothing.

    Raises:
        OutputError: the place cannot be written to.
    """
    files = files_of(bundle)
    manifest = {
        "models": [_describe_model(name, files[name], result) for name, result in results.items()],
        "other_files": bundle.others,
    }
    placed = {files[name]: result for name, result in results.items()}
    _write(Path(folder), placed, manifest, external_data)


def _bytes(path: str | os.PathLike[str]) -> bytes:
    try:
        return Path(path).read_bytes()
    except (OSError, ValueError) as error:
        raise BundleError(
            f"cannot read {os.fspath(path)}: {getattr(error, 'strerror', None) or error}"
        ) from error


class _Unpacker:
    """Has the room for what the bundle and all bundles in it unpack to."""

    def __init__(self, room: int) -> None:
        self._left = room

    def files(self, data: bytes, place: str = "", level: int = 0) -> Iterator[tuple[str, bytes]]:
        """Yield the files of an archive, and of archives in it, with their paths."""
        if level >= _MOST_LEVELS:
            raise BundleError(f"bundles are nested more than {_MOST_LEVELS} deep")
        try:
            archive = zipfile.ZipFile(io.BytesIO(data))
            found = list_entries(archive, self._left)
            self._left -= sum(entry.file_size for entry in found)
            for entry in found:
                path = f"{place}{_check_member_name(entry.filename)}"
                data = content(archive, entry)
                if data[: len(MAGIC)] == MAGIC:
                    yield from self.files(data, f"{path}/", level + 1)
                else:
                    yield path, data
        except DAMAGED as error:
            raise BundleError(
                f"{place or 'the bundle'} is no archive, or is damaged ({error})"
            ) from error


def _check_member_name(name: str) -> str:
    """Return a file's name; it must stay in the folder that the archive is unpacked to."""
    path = PurePosixPath(name.replace("\\", "/"))
    if path.is_absolute() or ".." in path.parts or not path.parts or ":" in path.parts[0]:
        raise BundleError(f"a file of the bundle is named {name!r}")
    return str(path)


def files_of(bundle: Bundle) -> dict[str, str]:
    """Return where each model goes: bundles in the bundle become folders.

    Raises:
        BundleError: two models would become one file.
    """
    files: dict[str, str] = {}
    taken: set[str] = set()
    for name in bundle.models:
        *folders, last = PurePosixPath(name).parts
        folders = [folder.removesuffix(".task") for folder in folders]
        file = "/".join([*folders, f"{last.removesuffix('.tflite')}.onnx"])
        if file in taken:
            raise BundleError(f"two models of the bundle would become {file}")
        taken.add(file)
        files[name] = file
    return files


def _describe_model(name: str, file: str, result: Result) -> dict[str, Any]:
    """Return what the metadata of an ONNX model says of it, and where it is."""
    said = {p.key.partition(".")[2]: p.value for p in result.skeleton.proto.metadata_props}
    known = {key: json.loads(value) for key, value in said.items()}
    return {"name": name, "file": file, "opset": result.opset, **known}


def _write(
    folder: Path, results: Mapping[str, Result], manifest: Mapping[str, Any],
    external_data: int | None,
) -> None:  # fmt: skip
    """Write all files, or none if one cannot be written."""
    try:
        with replacing_all(folders=True) as create:
            text = json.dumps(manifest, indent=2).encode() + b"\n"
            create(_place(folder, MANIFEST)).write(text)
            for file, result in results.items():
                write_to(result.skeleton, _place(folder, file), create, external_data)
    except (OSError, ValueError) as error:
        raise OutputError(
            f"cannot write to {folder}: {getattr(error, 'strerror', None) or error}"
        ) from error


def _place(folder: Path, file: str) -> Path:
    """Return the place of a file in a folder.

    Raises:
        OSError: symbolic links lead back to themselves.
        ValueError: they lead out of the folder.
    """
    place = resolve_path(folder / file)
    if resolve_path(folder) not in place.parents:
        raise ValueError(f"{file} is, or is behind, a symbolic link that leads out of the folder")
    return place

"""Bundles: zip archives of several models, as MediaPipe's .task files are.

A bundle holds TFLite models, bundles, and other files (graphs, tokenisers, licences). Models are
recognised by their content, because models of language models have no suffix.
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
from tflite2onnx.utils.archive import DAMAGED, MAGIC, list_entries, read_entry
from tflite2onnx.utils.atomic_files import replace_all_atomically, resolve_path
from tflite2onnx.writer import write_to

_logger = logging.getLogger(__name__)

MANIFEST = "manifest.json"
_IDENTIFIER = slice(4, 8), b"TFL3"
_MOST_LEVELS = 4
# The limit of the unpacked size is a multiple of the packed size, because models hardly compress,
# plus a number of bytes.
_TIMES, _BYTES = 16, 1 << 26


@dataclass(frozen=True)
class Bundle:
    """The models of a bundle by their paths in it, and the paths of all other files."""

    models: Mapping[str, bytes]
    others: tuple[str, ...]


def is_bundle(source: str | os.PathLike[str] | bytes) -> bool:
    """Return whether a file, given as a path or as its bytes, is an archive.

    A file that cannot be read is not a bundle.
    """
    if isinstance(source, bytes):
        return source.startswith(MAGIC)
    try:
        with open(source, "rb") as file:  # noqa: PTH123 - the path may be any os.PathLike
            return file.read(len(MAGIC)) == MAGIC
    except (OSError, ValueError):
        return False


def read_bundle(source: str | os.PathLike[str] | bytes) -> Bundle:
    """Read all models of a bundle, and of the bundles in it.

    Raises:
        BundleError: the bundle cannot be read, is not an archive, is damaged, has no model, would
            unpack to much more than its size, or has a file whose name leads out of the bundle.
    """
    data = source if isinstance(source, bytes) else _bytes(source)
    models: dict[str, bytes] = {}
    others: list[str] = []
    for name, content in _Unpacker(_TIMES * len(data) + _BYTES).files(data):
        if name in models:
            raise BundleError(f"file names in the bundle must be unique, got {name!r} twice")
        if content[_IDENTIFIER[0]] == _IDENTIFIER[1]:
            models[name] = content
        else:
            others.append(name)
    if not models:
        raise BundleError("the bundle must have a TFLite model in it, got none")
    return Bundle(models, tuple(others))


def convert_bundle(
    source: str | os.PathLike[str] | bytes | Bundle,
    folder: str | os.PathLike[str],
    *,
    external_data: int | None = None,
    **options: Any,  # noqa: ANN401 - those of `convert`
) -> dict[str, Result]:
    """Convert every model of a bundle and write them to a folder, all of them or none.

    A model keeps its name, with the suffix .onnx; bundles in the bundle become folders.
    `manifest.json` describes the inputs and outputs of each model, and lists all other files of the
    bundle, which are not written.

    Args:
        source: the path of the bundle, its bytes, or the result of `read_bundle`.
        folder: the folder to write to; it is created if it does not exist.
        external_data: as in `convert`.
        options: the options of `convert` for each model, without `layouts`.

    Returns:
        The result of each conversion by the path of the model in the bundle.

    Raises:
        ConversionError: the bundle cannot be read, models cannot be converted (the error names all
            of them), or the folder cannot be written to.
    """
    bundle = source if isinstance(source, Bundle) else read_bundle(source)
    results = convert_models(bundle, **options)
    write_models(bundle, results, folder, external_data)
    return results


def convert_models(bundle: Bundle, **options: Any) -> dict[str, Result]:  # noqa: ANN401 - as above
    """Return the conversion of every model of a bundle.

    Raises:
        BundleError: models cannot be converted (the error names all of them), or two models would
            become one file.
    """
    files_of(bundle)  # raises its error before any conversion takes time
    results: dict[str, Result] = {}
    problems = []
    for name, data in bundle.models.items():
        try:
            results[name] = convert(data, **keep_possible_names(name, data, options))
        except ConversionError as error:
            problems.append(f"{name}: {error}")
    if problems:
        raise BundleError("\n".join(problems))
    return results


def keep_possible_names(
    name: str, source: str | bytes, options: Mapping[str, Any]
) -> Mapping[str, Any]:
    """Return the options of one of several models; without a signature it keeps tensor names."""
    if options.get("names") != "signature" or has_signature(
        read_model(source), options.get("signature")
    ):
        return options
    _logger.warning(
        "%s has no signature: its inputs and outputs get the names of its tensors", name
    )
    return {**options, "names": "tensor"}


def write_models(
    bundle: Bundle, results: Mapping[str, Result], folder: str | os.PathLike[str],
    external_data: int | None = None,
) -> None:  # fmt: skip
    """Write the converted models of a bundle and a manifest to a folder, all files or none.

    Raises:
        OutputError: the folder cannot be written to.
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
    """Unpacks a bundle and all bundles in it, up to a limit of bytes for all of them together."""

    def __init__(self, limit: int) -> None:
        self._left = limit

    def files(self, data: bytes, place: str = "", level: int = 0) -> Iterator[tuple[str, bytes]]:
        """Yield the files of an archive, and of archives in it, with their paths."""
        if level >= _MOST_LEVELS:
            raise BundleError(f"bundles must be nested at most {_MOST_LEVELS} deep")
        try:
            archive = zipfile.ZipFile(io.BytesIO(data))
            entries = list_entries(archive, self._left)
            self._left -= sum(entry.file_size for entry in entries)
            for entry in entries:
                path = f"{place}{_check_member_name(entry.filename)}"
                data = read_entry(archive, entry)
                if data[: len(MAGIC)] == MAGIC:
                    yield from self.files(data, f"{path}/", level + 1)
                else:
                    yield path, data
        except DAMAGED as error:
            raise BundleError(
                f"{place or 'the bundle'} must be a zip archive that is not damaged ({error})"
            ) from error


def _check_member_name(name: str) -> str:
    """Return the path of a file in the archive; BundleError if it leads out of the archive."""
    path = PurePosixPath(name.replace("\\", "/"))
    if path.is_absolute() or ".." in path.parts or not path.parts or ":" in path.parts[0]:
        raise BundleError(
            f"the path of a file in the bundle must be inside the bundle, got {name!r}"
        )
    return str(path)


def files_of(bundle: Bundle) -> dict[str, str]:
    """Return the path of the ONNX file of each model; bundles in the bundle become folders.

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
            raise BundleError(
                f"the models of the bundle must have different output files, got {file} twice"
            )
        taken.add(file)
        files[name] = file
    return files


def _describe_model(name: str, file: str, result: Result) -> dict[str, Any]:
    """Return the entry of a model in the manifest: its path, and its metadata in ONNX."""
    properties = result.skeleton.proto.metadata_props
    metadata = {p.key.partition(".")[2]: json.loads(p.value) for p in properties}
    return {"name": name, "file": file, "opset": result.opset, **metadata}


def _write(
    folder: Path, results: Mapping[str, Result], manifest: Mapping[str, Any],
    external_data: int | None,
) -> None:  # fmt: skip
    """Write all files, or none if one of them cannot be written."""
    try:
        with replace_all_atomically(folders=True) as create:
            text = json.dumps(manifest, indent=2).encode() + b"\n"
            create(_place(folder, MANIFEST)).write(text)
            for file, result in results.items():
                write_to(result.skeleton, _place(folder, file), create, external_data)
    except (OSError, ValueError) as error:
        raise OutputError(
            f"cannot write to {folder}: {getattr(error, 'strerror', None) or error}"
        ) from error


def _place(folder: Path, file: str) -> Path:
    """Return the path of a file in a folder, with symbolic links resolved.

    Raises:
        OSError: symbolic links form a circle.
        ValueError: a symbolic link leads out of the folder.
    """
    place = resolve_path(folder / file)
    if resolve_path(folder) not in place.parents:
        raise ValueError(
            f"the path {file} must stay in the folder, but a symbolic link leads out of it"
        )
    return place

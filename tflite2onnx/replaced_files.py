"""Files of earlier conversions in the folder that a conversion writes to.

A conversion must not change what the files of another one mean. Two facts decide. An ONNX file
names the file that its weights are in, so the readers of a file with weights are found in the ONNX
files themselves. A manifest lists the files that belong together, with a digest of their source.
"""

import json
import logging
import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from mmap import mmap
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, cast

import onnx

from tflite2onnx.errors import ModelFileError
from tflite2onnx.reader.source import ModelSource, map_file
from tflite2onnx.utils.mapped_files import digest_pieces, read_pieces

MANIFEST = "manifest.json"
_MOST_LEVELS = 4  # folders above a file in which a manifest may list the file
_LARGEST_MANIFEST = 1 << 26  # bytes
_SAMPLE = 4096  # bytes of a model that are digested together
_MOST_SAMPLES = 1 << 12  # of a model

_logger = logging.getLogger(__name__)


class Manifest(NamedTuple):
    """A manifest: its path, its content, and the paths of the files that it lists."""

    path: Path
    content: Mapping[str, Any]
    files: frozenset[Path]

    @property
    def source(self) -> str | None:
        """The digest of the source of the files."""
        digest = self.content.get("source")
        return digest if isinstance(digest, str) else None


def list_manifests(files: Iterable[Path]) -> list[Manifest]:
    """Return the manifests that may list some files, of which only those that exist count."""
    folders: dict[Path, None] = {}
    for file in files:
        folders |= dict.fromkeys([*file.parents][: _MOST_LEVELS + 1])
    return [manifest for folder in folders for manifest in _read_manifests(folder)]


def _read_manifests(folder: Path) -> Iterator[Manifest]:
    """Yield the manifests in a folder; other files of the same name are none."""
    for path in list_files(folder, MANIFEST):
        with suppress(OSError, ValueError, TypeError, KeyError, AttributeError):
            if path.stat().st_size <= _LARGEST_MANIFEST:
                content = json.loads(path.read_bytes())
                listed = [*(model["file"] for model in content["models"]), *content["files"]]
                found = frozenset(place for name in listed if (place := folder / name).is_file())
                yield Manifest(path, content, found)


def list_files(folder: Path, ending: str) -> list[Path]:
    """Return the files of a folder with an ending, none if the folder cannot be read.

    Path.glob takes ten times as long where the folder has many other files.
    """
    try:
        with os.scandir(folder) as entries:
            names = sorted(entry.name for entry in entries if entry.name.endswith(ending))
    except OSError:
        return []
    return [folder / name for name in names]


def digest_models(models: Mapping[str, ModelSource]) -> str:
    """Return a digest of the names of models and of their bytes, of which a part is read."""
    return digest_pieces(_sample_models(models)).hex()


def _sample_models(models: Mapping[str, ModelSource]) -> Iterator[bytes | memoryview]:
    yield " ".join(models).encode()
    for data in (each for model in models.values() for each in (model.data, model.weights or b"")):
        view = memoryview(data)
        step = max(_SAMPLE, len(view) // _MOST_SAMPLES)
        yield str(len(view)).encode()
        for start in range(0, len(view), step):
            yield from read_pieces(view[start : start + _SAMPLE])


def place_manifest(
    path: Path, known: Iterable[Manifest], content: Mapping[str, Any], files: Collection[Path],
    name: str,
) -> tuple[Path, Mapping[str, Any]]:  # fmt: skip
    """Return where a manifest of `files` is written, and its content, beside `known` manifests.

    A manifest of the same source keeps the entries of files that are not written. A manifest of
    another source that lists none of the files stays; the new manifest then has a `name`. If all
    files that it lists are written, it is replaced.

    Raises:
        OSError: a manifest lists written files together with others, or no name is left.
    """
    taken, replaced, own = set(), [], None
    for manifest in known:
        common = manifest.files.intersection(files)
        if manifest.source == content["source"] and manifest.path.parent == path.parent:
            own = own or manifest
        elif not common:
            taken.add(manifest.path)
        else:
            replaced.append(manifest)
            if manifest.files.difference(files):
                _refuse(manifest, common)
    places = [path, *([path.with_name(f"{name}.{MANIFEST}")] if name else [])]
    place = own.path if own else next((each for each in places if each not in taken), None)
    if place is None:
        raise OSError(f"{path.name} is that of another conversion; give another folder")
    for manifest in replaced:
        if manifest.path != place:
            _refuse(manifest, manifest.files)
    if own is not None:
        return place, _merge(own, content, files)
    if place.is_file():
        _logger.warning("%s is replaced: it is not that of this model or bundle", place)
    return place, content


def _refuse(manifest: Manifest, common: Collection[Path]) -> NoReturn:
    raise OSError(
        f"{manifest.path.name} lists {min(common).name} with the files of another conversion; give"
        " another folder"
    )


def _merge(old: Manifest, content: Mapping[str, Any], files: Collection[Path]) -> Mapping[str, Any]:
    """Return the content of a manifest with the entries of files that stay."""
    folder, left = old.path.parent, old.files.difference(files)
    models = [model for model in old.content["models"] if folder / model["file"] in left]
    names = [name for name in old.content["files"] if folder / name in left]
    return {
        **content,
        "models": [*content["models"], *models],
        "files": [*content["files"], *names],
    }


def check_single_file(path: Path) -> None:
    """Raise OSError if a file that is to be replaced alone has the weights of ONNX files.

    Likewise if a manifest lists it.
    """
    if not path.is_file():
        return
    if path.suffix != ".onnx":
        _check_readers(list_readers(path), path)
    for manifest in list_manifests([path]):
        if path in manifest.files:
            raise OSError(
                f"{manifest.path.name} lists it with the files of another conversion; give another"
                " name or folder"
            )


def check_weight_file(path: Path, written: Collection[Path]) -> None:
    """Raise OSError if a file with weights must not be replaced; warn if nothing reads it.

    `written` are the ONNX files that are written at the same time.
    """
    if not path.is_file():
        return
    readers = list_readers(path)
    _check_readers([reader for reader in readers if reader not in written], path)
    if not readers:
        _logger.warning("%s is replaced: no ONNX file beside it reads it", path)


def _check_readers(readers: Sequence[Path], path: Path) -> None:
    if readers:
        raise OSError(
            f"{readers[0].name} reads its weights from {path.name}; give another name or folder"
        )


def list_readers(path: Path) -> list[Path]:
    """Return the ONNX files beside a file that have weights in it."""
    location = onnx.StringStringEntryProto(key="location", value=path.name).SerializeToString()
    found = []
    for file in list_files(path.parent, ".onnx"):
        with suppress(ModelFileError):  # the file is empty, or cannot be read
            if cast("mmap", map_file(file).obj).find(location) >= 0:
                found.append(file)
    return found

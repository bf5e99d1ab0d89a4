"""Read bundles, which are files with several models: `.task` (a zip archive) and `.litertlm`.

A bundle holds TFLite models and other files: graphs, tokenizers, metadata, licences. An archive may
hold bundles, too. Models in an archive are recognised by their content, because the models of a
language model have names without a suffix.
"""

import logging
import os
import re
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Any

from tflite2onnx.errors import BundleError, ModelFileError
from tflite2onnx.reader.containers import litertlm
from tflite2onnx.reader.foreign_files import recognize_file
from tflite2onnx.reader.model import is_model
from tflite2onnx.reader.source import AnySource, ModelSource, open_source
from tflite2onnx.utils.archive import (
    DAMAGED,
    is_archive,
    is_inside,
    list_entries,
    open_archive,
    view_entry,
)
from tflite2onnx.utils.constant_budget import SizeLimit
from tflite2onnx.utils.unique_names import Names

_logger = logging.getLogger(__name__)

_MOST_LEVELS = 4
_LIMIT = SizeLimit(times=16, more=1 << 26)  # Limits the unpacked bytes: models hardly compress.
# The names of tokenizers and of metadata in archives of language models, which are passed on.
_METADATA_FILE = "METADATA"
_PASSED_ON = ("TOKENIZER_MODEL", _METADATA_FILE)
_MAIN_ROLE = "prefill_decode"  # also of a model that names no role
_METADATA = ("LlmMetadataProto", "ExecutorMetadataProto")
_FILE_NAMES = {
    "GenericBinaryData": "data.bin",
    "SP_Tokenizer": "tokenizer.model",
    "HF_Tokenizer_Zlib": "tokenizer.json",
    "LlmMetadataProto": "llm_metadata.pb",
    "EmbeddingMetadataProto": "embedding_metadata.pb",
    "ExecutorMetadataProto": "executor_metadata.pb",
    "TtsMetadataProto": "tts_metadata.pb",
    "AsrMetadataProto": "asr_metadata.pb",
}


@dataclass(frozen=True)
class Bundle:
    """The models of a bundle by their paths in it, and its other files.

    `files` are the files that are passed on with the models: tokenizers, and metadata of language
    models. `others` are the paths of all other files. `description` is the bundle's metadata, as
    dictionaries, lists, strings and numbers. `name` is that of the bundle's file without its
    suffix, "" if the bundle was given as bytes.
    """

    models: Mapping[str, ModelSource]
    others: tuple[str, ...] = ()
    files: Mapping[str, memoryview] = field(default_factory=dict)
    description: Mapping[str, Any] = field(default_factory=dict)
    name: str = ""


def find_name(source: AnySource) -> str:
    """Return the name of a file without its suffix, as a part of a file name; "" for bytes."""
    if not isinstance(source, (str, os.PathLike)):
        return ""
    return re.sub(r"[^\w.-]", "_", Path(os.fspath(source)).stem, flags=re.ASCII)


def is_bundle(source: AnySource) -> bool:
    """Return whether a file, given as a path or as its bytes, is a bundle.

    A file that cannot be read is not a bundle, and neither is a pipe, which can be read once only.
    """
    if isinstance(source, (str, os.PathLike)):
        try:
            if stat.S_ISFIFO(os.stat(source).st_mode):  # noqa: PTH116 - likewise
                return False
            with open(source, "rb") as file:  # noqa: PTH123 - the path may be any os.PathLike
                return _has_magic(file.read(len(litertlm.MAGIC)))
        except (OSError, ValueError):
            return False
    return _has_magic(open_source(source).data)


def _has_magic(data: bytes | memoryview) -> bool:
    return is_archive(data) or litertlm.is_litertlm(data)


def read_bundle(source: AnySource) -> Bundle:
    """Read all models of a bundle, and of the bundles in it.

    Raises:
        BundleError: the bundle cannot be read, is not a bundle, is damaged, has no model, would
            unpack to much more than its size, or has a file whose name leads out of the bundle.
    """
    try:
        data = open_source(source).data
    except ModelFileError as error:
        raise BundleError(str(error)) from error
    if is_model(data):
        raise BundleError("the file must be a bundle, got a single TFLite model: use `convert`")
    bundle = _read_litertlm(data) if litertlm.is_litertlm(data) else _read_archive(data)
    if not bundle.models:
        got = recognize_file(data) or "the bundle must have a TFLite model in it, got none"
        raise BundleError(got)
    return replace(bundle, name=find_name(source))


def _read_archive(data: memoryview) -> Bundle:
    contents: dict[str, memoryview] = {}
    for name, content in _Unpacker(_LIMIT.compute(len(data))).unpack_files(data):
        if name in contents:
            raise BundleError(f"file names in the bundle must be unique, got {name!r} twice")
        contents[name] = content
    models = {name: ModelSource(item) for name, item in contents.items() if is_model(item)}
    files = {
        name: content
        for name, content in contents.items()
        if name not in models and PurePosixPath(name).name in _PASSED_ON
    }
    others = tuple(name for name in contents if name not in models and name not in files)
    return Bundle(models, others, files, _describe_archive(files))


def _describe_archive(files: Mapping[str, memoryview]) -> Mapping[str, Any]:
    """Return the metadata of a language model; none, with a warning, if they are damaged."""
    data = bytes(files.get(_METADATA_FILE, b""))
    try:
        metadata = litertlm.read_task_metadata(data)
    except litertlm.GARBAGE as error:
        _logger.warning(
            "the file %s of the bundle is ignored: it is damaged, or no metadata of a language"
            " model (%s)",
            _METADATA_FILE,
            error,
        )
        return {}
    return {"format": "task", "metadata": metadata} if any(metadata.values()) else {}


class _Unpacker:
    """Unpacks a bundle and all bundles in it, up to a limit of bytes for all of them together."""

    def __init__(self, limit: int) -> None:
        self._left = limit

    def unpack_files(
        self, data: memoryview, place: str = "", level: int = 0
    ) -> Iterator[tuple[str, memoryview]]:
        """Yield the files of an archive, and of archives in it, with their paths."""
        if level >= _MOST_LEVELS:
            raise BundleError(f"bundles must be nested at most {_MOST_LEVELS} deep")
        try:
            archive = open_archive(data)
            entries = list_entries(archive, self._left)
            self._left -= sum(entry.file_size for entry in entries)
            for entry in entries:
                path = f"{place}{_check_member_name(entry.filename)}"
                content = view_entry(archive, entry, data)
                if is_archive(content):
                    yield from self.unpack_files(content, f"{path}/", level + 1)
                else:
                    yield path, content
        except DAMAGED as error:
            raise BundleError(
                f"{place or 'the bundle'} is truncated or damaged ({error}): download it again"
            ) from error


def _check_member_name(name: str) -> str:
    """Return the path of a file in the archive; BundleError if it leads out of the archive."""
    if not is_inside(name):
        raise BundleError(
            f"the path of a file in the bundle must be inside the bundle, got {name!r}"
        )
    return str(PurePosixPath(name.replace("\\", "/")))


def _read_litertlm(data: memoryview) -> Bundle:
    """Read a `.litertlm` file; a model has the name of its role."""
    container = litertlm.read_container(data)
    weights: dict[str, list[memoryview]] = {}
    for section in container.sections:
        if section.kind == "TFLiteWeights":
            weights.setdefault(section.role, []).append(section.data)
    models: dict[str, ModelSource] = {}
    files: dict[str, memoryview] = {}
    sections: list[dict[str, Any]] = []
    notes: dict[str, Any] = {}
    make_unique = Names().make_unique
    for section in container.sections:
        described: dict[str, Any] = {"type": section.kind, "bytes": len(section.data)}
        described |= {"items": section.items} if section.items else {}
        try:
            if section.kind == "TFLiteModel":
                described["name"] = make_unique(_clean_role(section.role) or _MAIN_ROLE)
                # several models of a role have their weights in the same sequence
                found = weights.get(section.role, [section.data[:0]])
                part = found.pop(0) if len(found) > 1 else found[0]
                models[described["name"]] = ModelSource(section.data, weights=part)
            elif section.kind in _FILE_NAMES:
                described["name"] = make_unique(_make_file_name(section))
                files[described["name"]] = _read_content(section)
            if section.kind in _METADATA:
                notes |= litertlm.read_metadata(section)
        except litertlm.GARBAGE as error:
            raise BundleError(
                f"section {len(sections)} ({section.kind}) of the .litertlm file is damaged"
                f" ({error})"
            ) from error
        sections.append(described)
    description = {
        "format": "litertlm",
        "version": ".".join(map(str, container.version)),
        "sections": sections,
        "metadata": {**container.metadata, **notes},
    }
    return Bundle(models, (), files, description)


def _read_content(section: litertlm.Section) -> memoryview:
    """Return the content of a section as the bytes of a file."""
    if section.kind == "HF_Tokenizer_Zlib":
        return memoryview(litertlm.unpack_tokenizer(section.data))
    return section.data


def _make_file_name(section: litertlm.Section) -> str:
    """Return the name of a file; a tokenizer of another model than the language model names it."""
    role = _clean_role(section.role)
    start = "" if role in ("", _MAIN_ROLE) else f"{role}_"
    return start + _FILE_NAMES[section.kind]


def _clean_role(role: str) -> str:
    """Return a role as a part of a file name."""
    return re.sub(r"[^\w-]", "_", role, flags=re.ASCII)[:100]

"""Read `.litertlm` files: the header, and the sections that it lists.

The file begins with `LITERTLM`, three version numbers of 4 bytes, 4 bytes of padding and the end of
the header in 8 bytes. From byte 32 on the header is a flatbuffer (see `litertlm_schema`). Sections
are read when they are used, because the file is memory-mapped. The file is not trusted.
"""

import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tflite2onnx.errors import BundleError
from tflite2onnx.reader.containers.litertlm_schema import SECTION_TYPES
from tflite2onnx.reader.containers.protobuf import decode_message
from tflite2onnx.reader.flatbuffer import Table, TableReader, Vector, read_root
from tflite2onnx.utils.constant_budget import SizeLimit

MAGIC = b"LITERTLM"
_MAJOR = 1
_START, _HEADER = struct.Struct("<8s3I4xQ"), 32
# The exceptions that damaged bytes raise.
GARBAGE = (struct.error, IndexError, ValueError, TypeError, OverflowError, zlib.error)
_SIZE = struct.Struct("<Q")  # The size of a tokenizer, which is before its compressed bytes.
# limits the bytes of a tokenizer: text compresses to a third or less
_LIMIT = SizeLimit(times=64, more=1 << 20)


@dataclass(frozen=True)
class Section:
    """A section: its type, the names and values that describe it, its offsets, and its bytes."""

    kind: str
    items: Mapping[str, Any]
    begin: int
    end: int
    data: memoryview

    @property
    def role(self) -> str:
        """The role of a model or tokenizer, such as "prefill_decode"; "" if the file names none."""
        named = (value for key, value in self.items.items() if key.lower() == "model_type")
        return str(next(named, "")).lower().removeprefix("tf_lite_")


@dataclass(frozen=True)
class Container:
    """A `.litertlm` file: its version, the metadata of the whole file, and its sections."""

    version: tuple[int, int, int]
    metadata: Mapping[str, Any]
    sections: tuple[Section, ...]


def is_litertlm(data: memoryview | bytes) -> bool:
    """Return whether the bytes of a file begin as those of a `.litertlm` file."""
    return bytes(data[: len(MAGIC)]) == MAGIC


def read_container(data: memoryview) -> Container:
    """Read the header of a `.litertlm` file.

    Raises:
        BundleError: the file is truncated or damaged, or has another major version.
    """
    try:
        _, major, minor, patch, end = _START.unpack_from(data)
        if major != _MAJOR:
            raise BundleError(
                f"the version of a .litertlm file must be {_MAJOR}, got {major}.{minor}.{patch}"
            )
        if not _HEADER < end <= len(data):
            raise ValueError(f"the header must end at {_HEADER + 1} to {len(data)}, got {end}")
        root = read_root(data[_HEADER:end], "LiteRTLMMetaData")
        reader = _HeaderReader(2 * (end - _HEADER))
        system, listed = root["system_metadata"], root["section_metadata"]
        metadata = reader.read_items(system["entries"]) if system else {}
        tables = reader.read_tables(listed["objects"]) if listed else []
        sections = tuple(_read_section(reader, data, table, end) for table in tables)
        _check_places(sections)
    except GARBAGE as error:
        raise BundleError(f"the .litertlm file is truncated or damaged ({error})") from error
    return Container((major, minor, patch), metadata, sections)


def unpack_tokenizer(data: memoryview) -> bytes:
    """Return the text of a tokenizer of Hugging Face; ValueError if damaged, or far too large."""
    (size,) = _SIZE.unpack_from(data)
    limit = _LIMIT.compute(len(data))
    if size > limit:
        raise ValueError(f"the tokenizer must unpack to at most {limit:,} bytes, got {size:,}")
    unpacker = zlib.decompressobj()
    text = unpacker.decompress(data[_SIZE.size :], size + 1)
    if len(text) != size or not unpacker.eof:
        raise ValueError(f"the tokenizer must unpack to {size:,} bytes")
    return text


def read_metadata(section: Section) -> dict[str, Any]:
    """Return the content of a section of metadata; ValueError if the section is damaged."""
    return decode_message(bytes(section.data), section.kind.removesuffix("Proto"))


def read_task_metadata(data: bytes) -> dict[str, Any]:
    """Return the file METADATA of an archive as LlmMetadata; ValueError if it is damaged.

    LiteRT-LM's archives have LlmMetadata, MediaPipe's have LlmParameters.
    """
    try:
        metadata = decode_message(data, "LlmMetadata")
    except ValueError:
        metadata = {}
    if "start_token" in metadata:
        return metadata
    given = decode_message(data, "LlmParameters")
    metadata = {"stop_tokens": [{"token_str": text} for text in given.get("stop_tokens", ())]}
    if "start_token" in given:
        metadata["start_token"] = {"token_str": given["start_token"]}
    elif "start_token_id" in given:
        metadata["start_token"] = {"token_ids": {"ids": [given["start_token_id"]]}}
    if template := given.get("prompt_template"):
        affixes = {key: template.get(f"prompt_{key}", "") for key in ("prefix", "suffix")}
        first = template.get("session_prefix", "")
        metadata["prompt_templates"] = {"session_prefix": first, "user": affixes}
    if given.get("input_output_normalizations"):
        metadata["maps_bytes_to_characters"] = True
    return metadata


class _HeaderReader(TableReader):
    def read_items(self, vector: Vector) -> dict[str, Any]:
        items = {}
        for pair in self.read_tables(vector):
            value = pair["value"]
            content = None if value is None else value["value"]
            is_text = isinstance(content, bytes)
            items[self.read_text(pair["key"])] = self.read_text(content) if is_text else content
        return items


def _read_section(reader: _HeaderReader, data: memoryview, table: Table, header: int) -> Section:
    begin, end, number = table["begin_offset"], table["end_offset"], table["data_type"]
    # An empty last section begins after the end of the file.
    if begin != end and not header <= begin <= end <= len(data):
        raise ValueError(
            f"a section must be at {header:,} to {len(data):,}, got {begin:,} to {end:,}"
        )
    kind = SECTION_TYPES[number] if number < len(SECTION_TYPES) else f"type {number}"
    return Section(kind, reader.read_items(table["items"]), begin, end, data[begin:end])


def _check_places(sections: tuple[Section, ...]) -> None:
    """Raise ValueError if sections overlap: a few bytes could then be many models."""
    end = 0
    places = [section for section in sections if section.begin < section.end]
    for section in sorted(places, key=lambda section: (section.begin, section.end)):
        if section.begin < end:
            raise ValueError(f"sections must not overlap, got one that begins at {section.begin:,}")
        end = section.end

"""The bytes of buffers: in the flatbuffer, after the flatbuffer, or in another file."""

from collections.abc import Sequence
from typing import Any, NoReturn

from tflite2onnx.errors import ModelFileError
from tflite2onnx.reader.flatbuffer import Table, Vector
from tflite2onnx.reader.source import ModelSource

_PLAIN = (None, b"", b"unpacked")  # LiteRT's names for external weights that are not packed


class StoredBytes:
    """Finds the bytes of buffers and of external weights; wrong offsets raise ModelFileError.

    `groups` are the files with external weights, and `slices` the external buffers.
    """

    def __init__(
        self, source: ModelSource, buffers: Vector, groups: Sequence[Table], slices: Sequence[Table]
    ) -> None:
        self._source, self._buffers, self._groups = source, buffers, groups
        self._slices = {slice_table["id"]: slice_table for slice_table in slices}
        self._weights: dict[str, memoryview] = {}

    def read_tensor(self, tensor: Table) -> memoryview:
        """Return the bytes of a tensor, which may be empty."""
        if not tensor["external_buffer"]:
            return self.read_buffer(tensor["buffer"])
        group = self._slices.get(tensor["external_buffer"])
        if group is None:
            fail_damaged(f"it has no external buffer {tensor['external_buffer']}")
        if group["packing"] not in _PLAIN:
            packing = group["packing"].decode("utf-8", "replace")
            raise ModelFileError(f"the packing of external weights must be unpacked, got {packing}")
        weights = self._read_group(expect_item(self._groups, group["group"], "a group of weights"))
        end = group["offset"] + group["length"]
        if end > len(weights):
            raise ModelFileError(
                f"the external weights of the model are truncated: they must have at least {end:,}"
                f" bytes, got {len(weights):,}"
            )
        return weights[group["offset"] : end]

    def _read_group(self, group: Table) -> memoryview:
        name = (group["name"] or b"").decode("utf-8", "replace")
        if name not in self._weights:
            self._weights[name] = self._source.read_weights(name)
        return self._weights[name]

    def read_buffer(self, index: int) -> memoryview:
        """Return the bytes of a buffer, which may be empty; buffer 0 is always empty."""
        if index == 0:
            return self._source.data[:0]
        buffer = expect_item(self._buffers, index, "a buffer")
        return memoryview(buffer["data"]) or self.read_at(buffer["offset"], buffer["size"])

    def read_at(self, offset: int, size: int) -> memoryview:
        """Return bytes after the flatbuffer; the offsets 0 and 1 mean that there are no bytes."""
        data = self._source.data
        if offset <= 1:
            return data[:0]
        if offset + size > len(data):
            raise ModelFileError(
                "the TFLite model is truncated: a buffer ends after the end of the file"
            )
        return data[offset : offset + size]


def fail_damaged(reason: str) -> NoReturn:
    """Raise ModelFileError with the reason."""
    raise ModelFileError(f"the TFLite model is damaged: {reason}")


def expect_item(items: Any, index: int, role: str) -> Any:  # noqa: ANN401 - a sequence of anything
    """Return an item; ModelFileError if the index is wrong."""
    if not 0 <= index < len(items):
        fail_damaged(f"the index of {role} must be below {len(items)}, got {index}")
    return items[index]

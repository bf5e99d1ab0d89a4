"""FlexBuffers, the schema-less format of the options of custom operators and composites."""

import struct
from collections.abc import Sequence
from typing import Any

from tflite2onnx.utils.constant_budget import SizeLimit

# Values may share children, so a few bytes can encode billions of values. Valid flexbuffers share
# only names.
_LIMIT = SizeLimit(times=16, more=256)


class FlexbufferError(ValueError):
    """The bytes are not a valid flexbuffer."""


def decode(data: bytes) -> Any:  # noqa: ANN401 - a flexbuffer holds any JSON-like value
    """Return a flexbuffer as dicts, lists, scalars, strings and bytes.

    Raises:
        FlexbufferError: the bytes are not a flexbuffer, or share so many values that the decoded
            values would be far larger than the bytes.
    """
    from flatbuffers import flexbuffers  # noqa: PLC0415 - few models have flexbuffers

    try:
        return _FlexDecoder(data).decode_value(flexbuffers.GetRoot(data))
    except (
        struct.error,
        ArithmeticError,
        AssertionError,
        AttributeError,
        LookupError,
        RecursionError,
        TypeError,
        ValueError,
    ) as error:
        raise FlexbufferError(f"not a valid flexbuffer: {error}") from error


def decode_map(raw: bytes) -> dict[str, Any]:
    """Return the options in a flexbuffer; none if the bytes are no flexbuffer, as in the kernels.

    Some custom operators store a C struct instead of a flexbuffer.
    """
    try:
        options = decode(raw) if raw else {}
    except FlexbufferError:
        return {}
    return options if isinstance(options, dict) else {}


class _FlexDecoder:
    def __init__(self, data: bytes) -> None:
        self._left = _LIMIT.compute(len(data))

    def decode_value(self, ref: Any) -> Any:  # noqa: ANN401 - a flexbuffers.Ref, which has no types
        self._use_budget(1)
        if ref.IsMap:
            items = ref.AsMap
            self._use_budget(len(items))
            keys = [self._decode_bytes(key.AsKeyBytes) for key in items.Keys]
            return {
                key.decode("utf-8", "replace"): self.decode_value(items.Values[i])
                for i, key in enumerate(keys)
                if _search_key(keys, key) == i
            }
        if ref.IsVector or ref.IsTypedVector or ref.IsFixedTypedVector:
            kind = "" if ref.IsVector else "Typed" if ref.IsTypedVector else "FixedTyped"
            items = getattr(ref, f"As{kind}Vector")
            # Before the loop, because elements of zero bytes take time to read but no space in the
            # file.
            self._use_budget(len(items))
            return [self.decode_value(item) for item in items]
        if ref.IsString or ref.IsKey:
            return self._decode_text(ref.AsStringBytes)
        return self._decode_bytes(ref.AsBlob) if ref.IsBlob else ref.Value

    def _decode_text(self, raw: bytes) -> str | bytes:
        """Return a text; bytes that are not UTF-8, for example a protobuf, stay bytes."""
        try:
            return self._decode_bytes(raw).decode()
        except UnicodeDecodeError:
            return raw

    def _decode_bytes(self, raw: bytes) -> bytes:
        self._use_budget(len(raw))
        return raw

    def _use_budget(self, amount: int) -> None:
        self._left -= amount
        if self._left < 0:
            raise FlexbufferError("it must not list more values than its size allows")


def _search_key(keys: Sequence[bytes], key: bytes) -> int:
    """Return the index at which the kernels' binary search (bsearch of C) ends.

    A flexbuffer's keys are sorted. The kernels do not find each key of a damaged file.
    """
    low, high = 0, len(keys)
    while low < high:
        middle = (low + high) // 2
        if keys[middle] == key:
            return middle
        low, high = (middle + 1, high) if keys[middle] < key else (low, middle)
    return low

"""passes/flex/node_def.py: the attributes of Flex operators."""

from __future__ import annotations

import pytest

from tests.support.flex import Type, node_def
from tflite2onnx.contrib.flex.node_def import decode
from tflite2onnx.errors import OperatorError


def test_attributes_are_decoded_as_encoded() -> None:
    attributes = {
        "T": Type(1),
        "strides": [1, 2, 3, 1],
        "padding": "SAME",
        "keep_dims": True,
        "off": False,
        "alpha": 0.25,
        "axis": -2,
        "names": ["one", "two"],
        "ratios": [0.5, -1.5],
        "none": [],
        "flags": [True, False],
        "types": [Type(1), Type(3)],
        "raw": b"\xff\x00",
        "large": 1 << 40,
    }
    assert decode(node_def("Mine", **attributes)) == attributes
    assert decode(b"") == {}


def test_unpacked_lists_of_numbers_are_read() -> None:
    """Lists of numbers are also read in the older encoding, with a field for each number."""
    entry = b"\x0a\x01s\x12\x06\x0a\x04\x18\x01\x18\x02"
    raw = b"\x2a" + bytes([len(entry)]) + entry
    assert decode(raw) == {"s": [1, 2]}


def test_attributes_of_unused_kinds_are_read_as_none() -> None:
    entry = b"\x0a\x01s\x12\x02\x3a\x00"  # a shape
    raw = b"\x2a" + bytes([len(entry)]) + entry
    assert decode(raw) == {"s": None}


@pytest.mark.parametrize(
    "raw",
    [
        b"\x2a\x7f",
        b"\x2a\x02\x0a\x7f",
        b"\x2a\x00",
        b"\x80",
        b"\xff" * 12,
        b"\x0b",
        b"\x2a\x05\x0a\x01s\x10\x01",
    ],
)
def test_refuses_malformed_bytes(raw: bytes) -> None:
    with pytest.raises(OperatorError):
        decode(raw)


def test_every_truncation_is_an_error_or_fewer_attributes() -> None:
    raw = node_def("Mine", strides=[1, 2, 3, 1], padding="SAME", alpha=0.5)
    for size in range(len(raw)):
        try:
            found = decode(raw[:size])
        except OperatorError:
            continue
        assert len(found) < 3

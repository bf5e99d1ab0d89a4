"""Read the NodeDef of a Flex operator: the attributes of a TensorFlow operator.

Operators have few kinds of attributes: numbers, strings, dtypes, and lists of these.
"""

from typing import Any

import numpy as np

from tflite2onnx.custom_options import read_fields, read_integers
from tflite2onnx.rewriting import as_operator_error

# Field numbers of NodeDef, of an entry in its map of attributes, and of AttrValue.
_ATTRIBUTES = 5
_KEY, _VALUE = 1, 2
_LIST, _TEXT, _INTEGER, _REAL, _TRUTH, _TYPE = 1, 2, 3, 4, 5, 6


def decode(data: bytes) -> dict[str, Any]:
    """Return the attributes. Dtypes are numbers; strings that are not UTF-8 are bytes.

    Raises:
        OperatorError: the bytes are not a NodeDef.
    """
    with as_operator_error():
        entries = [dict(read_fields(x)) for number, x in read_fields(data) if number == _ATTRIBUTES]
        return {entry[_KEY].decode(): _read_attribute(entry.get(_VALUE, b"")) for entry in entries}


def _read_attribute(data: bytes) -> Any:  # noqa: ANN401 - of any of the kinds above
    """Return the content of an AttrValue; None for kinds that are not read, such as a tensor."""
    result = None
    for number, content in read_fields(data):
        fields = read_fields(content) if number == _LIST else [(number, content)]
        items = [item for field in fields for item in _list_items(*field)]
        result = items if number == _LIST else next(iter(items), None)
    return result


def _list_items(number: int, content: Any) -> list[Any]:  # noqa: ANN401 - as read
    """Return the values of a field; AttrValue and its lists have the same field numbers."""
    if number == _TEXT:
        try:
            return [content.decode()]
        except UnicodeDecodeError:
            return [content]
    if number == _REAL:
        return [*np.frombuffer(content, "<f4").tolist()]
    if number not in (_INTEGER, _TRUTH, _TYPE):
        return []
    integers = read_integers(content)
    return [bool(n) for n in integers] if number == _TRUTH else integers

"""reader/flexbuffer.py: the options of custom operators and of composites."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from flatbuffers import flexbuffers

from tests.support import Build
from tests.support.reading import only_op
from tflite2onnx.reader import flexbuffer
from tflite2onnx.reader.model import read_model

if TYPE_CHECKING:
    pass


CUSTOM: dict[str, Any] = {
    "size": 3,
    "scale": 0.25,
    "name": "naïve",
    "yes": True,
    "nothing": None,
    "data": b"\0\1",
    "list": [1, "two", [3.5]],
    "numbers": [1, 2, 3],
    "none": [],
    "deep": {"er": {"est": -1}},
}


def test_custom_options_are_read_as_fields_or_bytes() -> None:
    """Options in a flexbuffer are read as fields; other bytes are kept as bytes."""
    m = Build()
    x = m.input([2], name="x")
    m.output(*m.custom("Mine", [x], [[2]], CUSTOM))
    op = only_op(m)
    assert (op.code, op.custom, dict(op.options)) == ("Mine", True, CUSTOM)
    assert op.custom_options == bytes(flexbuffers.Dumps(CUSTOM))
    for raw in (b"", b"\x01", b"a C struct, say", bytes(flexbuffers.Dumps([1, 2]))):
        m = Build()
        m.output(*m.custom("Mine", [m.input([2])], [[2]], raw))
        assert (only_op(m).custom_options, dict(only_op(m).options)) == (raw, {})


def test_typed_vectors_and_keys_are_read() -> None:
    """Typed vectors, keys and tuples, which other languages than Python write, are read."""
    builder = flexbuffers.Builder()
    with builder.Map():
        builder.TypedVectorFromElements("typed", [1, 2, 3])
        builder.FixedTypedVectorFromElements("fixed", [0.5, 1.5])
        builder.Key("key")
        builder.Key("a key")
        builder.IndirectInt("indirect", -5)
        with builder.TypedVector("names"):
            builder.Key("one")
            builder.Key("two")
    m = Build()
    m.output(*m.custom("Mine", [m.input([2])], [[2]], bytes(builder.Finish())))
    assert dict(only_op(m).options) == {
        "typed": [1, 2, 3],
        "fixed": [0.5, 1.5],
        "key": "a key",
        "indirect": -5,
        "names": ["one", "two"],
    }


def test_attributes_of_a_composite_are_read() -> None:
    """The attributes of a composite are a flexbuffer in a field."""
    m = Build()
    body = m.subgraph("body")
    body.output(*body.op("ABS", [body.input([2])], [[2]]))
    attributes = bytes(flexbuffers.Dumps({"axis": 1}))
    m.output(
        *m.op(
            "STABLEHLO_COMPOSITE",
            [m.input([2])],
            [[2]],
            name="odml.rms_norm",
            decomposition_subgraph_index=1,
            composite_attributes=attributes,
        )
    )
    (op,) = read_model(m.bytes()).graphs[0].ops
    assert op.options.composite_attributes == {"axis": 1}
    assert (op.options.name, op.options.decomposition_subgraph_index) == ("odml.rms_norm", 1)


def build_nested(levels: int, *, cyclic: bool = False) -> bytes:
    """Return a flexbuffer of nested vectors; each vector lists the vector before it twice."""
    integer, vector = (flexbuffers.Type.Pack(t, 0) for t in (1, flexbuffers.Type.VECTOR))
    innermost = bytes([2, 7, 7, integer, integer])
    # An entry is the distance back to another vector; in a cycle it is the vector itself.
    further = bytes([2, 0, 1, vector, vector]) if cyclic else bytes([2, 5, 6, vector, vector])
    return innermost + further * levels + bytes([4, vector, 1])


def test_refuses_shared_values_beyond_a_limit() -> None:
    """Shared values count for each reference, so that small files cannot expand without bound."""
    assert flexbuffer.decode(build_nested(2)) == [[[7, 7], [7, 7]], [[7, 7], [7, 7]]]
    for data in (build_nested(60), build_nested(500), build_nested(3, cyclic=True)):
        with pytest.raises(flexbuffer.FlexbufferError, match="not a valid flexbuffer"):
            flexbuffer.decode(data)


def test_strings_that_are_not_text_stay_bytes() -> None:
    """A string may hold bytes that are not UTF-8, such as a protobuf."""
    builder = flexbuffers.Builder()
    with builder.Map():
        builder.Key("raw")
        builder.String("caf")
    data = bytes(builder.Finish()).replace(b"caf", b"\xff\xfe\x01")
    assert flexbuffer.decode(data) == {"raw": b"\xff\xfe\x01"}


def test_keys_that_are_not_sorted_are_not_found() -> None:
    """The kernels search keys by halves, and do not find each key of a damaged file."""
    builder = flexbuffers.Builder()
    with builder.Map():
        for key, value in (("first", 1), ("second", 2)):
            builder.Key(key)
            builder.Int(value)
    data = bytes(builder.Finish()).replace(b"first", b"third")
    assert flexbuffer.decode(data) == {"second": 2}

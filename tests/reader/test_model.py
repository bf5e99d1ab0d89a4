"""reader/model.py and graph.py: models of all versions, and damaged models."""

from __future__ import annotations

import gc
import os
import struct
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema
from flatbuffers import flexbuffers

from tests.support import Build, pack
from tests.support.reading import absolute, float32, int32, only_op
from tflite2onnx import convert
from tflite2onnx.errors import ModelFileError, UnsupportedOperators
from tflite2onnx.graph import Options
from tflite2onnx.reader import flatbuffer
from tflite2onnx.reader.model import read_model
from tflite2onnx.tensor import DType

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


# Files


def test_names_shapes_types_and_options_are_read() -> None:
    """Names, shapes, types and options are read."""
    m = Build("of the test")
    m.output(
        *m.op(
            "MAX_POOL_2D",
            [m.input([2, 5, 7, 3], name="x")],
            [m.tensor([2, 2, 3, 3], name="y")],
            filter_height=2,
            filter_width=3,
            stride_h=2,
            stride_w=2,
            padding="VALID",
            fused_activation_function="RELU6",
        )
    )
    model = read_model(m.bytes())
    (graph,) = model.graphs
    (op,) = graph.ops
    assert (model.description, model.version, model.signatures) == ("of the test", 3, ())
    assert (graph.name, [t.name for t in graph.tensors]) == ("main", ["x", "y"])
    assert (op.code, op.index, op.custom, op.version) == ("MAX_POOL_2D", 0, False, 3)
    assert (op.inputs, op.outputs, op.intermediates) == (graph.inputs, graph.outputs, ())
    assert dict(op.options) == {
        "padding": "VALID",
        "stride_w": 2,
        "stride_h": 2,
        "filter_width": 3,
        "filter_height": 2,
        "fused_activation_function": "RELU6",
    }
    (x,) = graph.inputs
    assert (x.shape, x.rank, x.elements, x.nbytes) == ((2, 5, 7, 3), 4, 210, 840)
    assert (x.dtype, x.shape_signature, x.is_variable) == (DType.FLOAT32, (), False)
    assert [x.data, x.quantization, x.sparsity] == [None] * 3


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview, lambda b: np.frombuffer(b, "i1")])
def test_model_may_be_any_bytes_like_object(kind: Callable[[bytes], Any]) -> None:
    """A model may be any bytes-like object; its constants are read-only."""
    m = Build()
    m.output(m.constant([1.5, 2.5]))
    (tensor,) = read_model(kind(m.bytes() + b"\0" * (-len(m.bytes()) % 4))).graphs[0].outputs
    assert tensor.data is not None
    assert tensor.data.tolist() == [1.5, 2.5]
    assert not tensor.data.flags.writeable


def test_a_file_stays_mapped_while_views_live(tmp_path: Path) -> None:
    """Constants are views on the mapped file, also if the file is read-only or is deleted."""
    m = Build()
    values = np.arange(1 << 16, dtype=np.float32)
    m.output(m.constant(values))
    path = tmp_path / "model.tflite"
    path.write_bytes(m.bytes())
    path.chmod(0o400)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        (tensor,) = read_model(path).graphs[0].outputs
        path.unlink()
        gc.collect()
        assert tensor.data is not None
        assert not tensor.data.flags.owndata
        assert not tensor.data.flags.writeable
        np.testing.assert_array_equal(tensor.data, values)
        del tensor
        gc.collect()


@pytest.mark.parametrize("at", [2**31 + 16, 2**32 + 16])
def test_buffers_after_the_flatbuffer_are_read(tmp_path: Path, at: int) -> None:
    """Models over 2 GB have buffers after the flatbuffer; here the file is sparse."""
    m = Build()
    x, values = m.input([3], name="x"), float32([1, 2, 3])
    m.output(*m.custom("Mine", [x, m.constant(values, external=True)], [[3]], external=True))
    buffer, operator = m.model().buffers[1], m.model().subgraphs[0].operators[0]
    options = bytes(flexbuffers.Dumps({"size": 7}))
    buffer.offset, buffer.size = at, 12
    operator.largeCustomOptionsOffset, operator.largeCustomOptionsSize = at + 16, len(options)
    operator.customOptions = None
    path = tmp_path / "large.tflite"
    with path.open("wb") as file:
        file.write(pack(m.model()))
        file.seek(at)
        file.write(values.tobytes() + bytes(4) + options)
    (op,) = read_model(path).graphs[0].ops
    assert op.inputs[1] is not None
    assert op.inputs[1].data is not None
    assert op.inputs[1].data.tolist() == [1, 2, 3]
    assert (op.custom_options, dict(op.options)) == (options, {"size": 7})
    os.truncate(path, at + 8)
    with pytest.raises(ModelFileError, match="ends after the end of the file"):
        read_model(path)


def test_each_kind_of_wrong_file_has_its_message(tmp_path: Path) -> None:
    """Each kind of file has its own message."""
    path = tmp_path / "model.tflite"
    with pytest.raises(ModelFileError, match=r"cannot read .*model\.tflite: No such file"):
        read_model(path)
    with pytest.raises(ModelFileError, match="it is a folder; give a file in it"):
        read_model(tmp_path)
    with pytest.raises(ModelFileError, match=r"cannot read a\0b: .*embedded null"):
        read_model("a\0b")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ModelFileError, match=r"it is a pipe, .* - and standard input"):
        read_model(tmp_path / "pipe")
    path.write_bytes(b"")
    with pytest.raises(ModelFileError, match="is empty"):
        read_model(path)
    for content, reason in (
        (b"PK\x03\x04 and more", "zip archive"),
        (b"\x08\0\0\0", "too short"),
        (b"oh dear, no model", "TFL3 is missing"),
        (b"<html>oh dear</html>", "a web page"),
        (b" <!DOCTYPE html>", "a web page"),
        (b"version https://git-lfs.github.com/spec/v1\noid", "run git lfs pull"),
        (b"\x89HDF\r\n\x1a\n", r"a Keras model \(.h5\)"),
        (b"PK\x03\x04 metadata.json config.json", r"a Keras model \(.keras\)"),
        (b"PK\x03\x04 archive/data.pkl", "a PyTorch model"),
        (b"\x08\x0a\x12\x0btflite2onnx", "this is an ONNX model"),
        (b"\x08\0\0\0TFL3", "truncated or damaged"),
    ):
        path.write_bytes(content)
        with pytest.raises(ModelFileError, match=reason):
            read_model(path)


# Operators


def test_the_code_is_the_larger_of_two() -> None:
    """Old files have a one-byte code, new files have both codes or only the new code."""
    for old, new, name in ((0, 101, "ABS"), (101, 0, "ABS"), (127, 150, "GELU"), (5, 101, "ABS")):
        m = absolute()
        code = m.model().operatorCodes[0]
        code.deprecatedBuiltinCode, code.builtinCode = old, new
        assert only_op(m).code == name
    m = absolute()
    m.model().operatorCodes[0].builtinCode = 9999
    assert only_op(m).code == "operator code 9999"
    with pytest.raises(UnsupportedOperators, match=r"operator code 9999 \(operator 0, y\)"):
        convert(m.bytes())


def test_options_stand_in_two_tables() -> None:
    """The second union has newer options; an unknown table is ignored."""
    m = Build()
    x = m.input([2, 2], name="x")
    value = m.constant(np.float32(0))
    m.output(*m.op("DILATE", [x, m.constant(int32([2, 2])), value], [[3, 3]]))
    m.output(*m.op("STABLEHLO_CONCATENATE", [x, x], [[2, 4]], dimension=1))
    m.output(*m.op("BUCKETIZE", [x], [[2, 2]], boundaries=[1, 2]))
    m.output(*m.op("STABLEHLO_CASE", [x], [[2, 2]], branch_subgraph_indices=[0]))
    m.output(*m.op("RELU", [x], [[2, 2]]))
    m.output(*m.op("CONCATENATION", [x, x], [[2, 4]], axis=1))
    m.model().subgraphs[0].operators[-1].builtinOptionsType = 255
    dilate, concatenate, bucketize, case, relu, unknown = read_model(m.bytes()).graphs[0].ops
    assert dict(dilate.options) == {}
    assert dict(concatenate.options) == {"dimension": 1}
    assert bucketize.options.boundaries == (1.0, 2.0)
    assert dict(case.options) == {"branch_subgraph_indices": (0,)}
    assert dict(unknown.options) == {"axis": 0, "fused_activation_function": "NONE"}
    assert relu.options.fused_activation_function == 0


def test_options_behave_like_a_mapping() -> None:
    """Options are attributes and items; without a table all are 0."""
    options = Options({"axis": 3})
    assert (options.axis, options["axis"], len(options), list(options)) == (3, 3, 1, ["axis"])
    with pytest.raises(AttributeError, match="size"):
        _ = options.size
    with pytest.raises(AttributeError, match="_axis"):
        _ = Options()._axis  # noqa: SLF001 - private names are no fields
    assert (Options().anything, Options().get("anything")) == (0, None)


def test_options_of_every_kind_are_read() -> None:
    """Strings, vectors of strings, and numbers that an enumeration lacks."""
    m = Build()
    x = m.input([2], name="x")
    m.output(
        *m.op(
            "VAR_HANDLE",
            [],
            [m.tensor([1], dtype="resource")],
            container="box",
            shared_name="shared\0name",
        )
    )
    m.output(*m.op("ADD", [x, x], [[2]], fused_activation_function=77))
    m.output(*m.op("SQUEEZE", [x], [[2]]))
    handle, add, squeeze = read_model(m.bytes()).graphs[0].ops
    assert dict(handle.options) == {"container": "box", "shared_name": "shared"}
    assert add.options.fused_activation_function == "NONE"
    assert squeeze.options.squeeze_dims == ()


def test_absent_inputs_are_none_and_outputs_dropped() -> None:
    """-1 is an absent input of an operator, and is dropped from outputs and from the graph."""
    m = Build()
    x, w = m.input([2, 3]), m.constant(np.ones((5, 3), np.float32))
    m.output(*m.op("FULLY_CONNECTED", [x, w, None], [[2, 5]]))
    graph = m.model().subgraphs[0]
    graph.operators[0].outputs = [*graph.operators[0].outputs, -1]
    graph.outputs = [-1, *graph.outputs]
    graph.inputs = [*graph.inputs, -1]
    (graph,) = read_model(m.bytes()).graphs
    (op,) = graph.ops
    assert [t is None for t in op.inputs] == [False, False, True]
    assert (op.outputs, len(graph.inputs)) == (graph.outputs, 1)


def test_intermediates_have_their_quantization() -> None:
    """Intermediate tensors have the quantization of values inside an operator."""
    m = Build()
    inner = m.tensor([0], dtype="int16", scale=0.5, name="inner")
    x = m.input([2], name="x")
    m.output(*m.op("ABS", [x], [[2]], intermediates=[inner]))
    (tensor,) = only_op(m).intermediates
    assert (tensor.name, tensor.dtype, tensor.data) == ("inner", DType.INT16, tensor.data)
    assert tensor.quantization is not None
    assert tensor.quantization.scale.tolist() == [0.5]


# Sub-graphs, signatures, metadata


def test_duplicate_and_missing_names_get_numbers() -> None:
    """Inputs and outputs keep their names; duplicates and missing names get numbers."""
    m = Build()
    inner = [m.tensor([2], name=n) for n in ("y", "", "x_2", "x", "x")]
    x = m.input([2], name="x")
    y = m.tensor([2], name="y")
    anonymous = m.tensor([2], name="")
    m.model().subgraphs[0].tensors[anonymous.index].name = None
    for source, target in zip([x, *inner], [*inner, y], strict=True):
        m.op("ABS", [source], [target])
    m.output(y, y)
    tensors = read_model(m.bytes()).graphs[0].tensors
    assert [t.name for t in tensors] == [
        "y_0",
        "tensor_1",
        "x_2",
        "x_3",
        "x_4",
        "x",
        "y",
        "tensor_7",
    ]
    m = Build()
    for name in ("a", "a_2", "a", "a_2_1"):
        m.tensor([2], name=name)
    assert [t.name for t in read_model(m.bytes()).graphs[0].tensors] == [
        "a",
        "a_2",
        "a_2_1",
        "a_2_1_3",
    ]


def test_signatures_name_tensors_of_their_sub_graph() -> None:
    """Each signature names tensors of its own sub-graph."""
    m = absolute()
    other = m.subgraph("other")
    a = other.input([5], name="a")
    (b,) = other.op("NEG", [a], [[5]])
    other.output(b)
    m.signature("second", {"in": a}, {"out": b})
    m.metadata("min_runtime_version", b"1.5.0")
    model = read_model(m.bytes())
    (signature,) = model.signatures
    assert (signature.key, signature.subgraph) == ("second", 1)
    assert signature.inputs == {"in": model.graphs[1].inputs[0]}
    assert signature.outputs == {"out": model.graphs[1].outputs[0]}
    assert model.metadata == {"min_runtime_version": b"1.5.0"}
    assert [g.name for g in model.graphs] == ["main", "other"]


def test_model_without_outputs_is_read_but_not_converted() -> None:
    """A model without outputs can be read, but not converted."""
    m = Build()
    m.op("ABS", [m.input([2])], [[2]])
    assert read_model(m.bytes()).graphs[0].outputs == ()
    with pytest.raises(ModelFileError, match="must have an output"):
        convert(m.bytes())


# Contents of damaged files


def expect_damage(change: Callable[[Any], None], reason: str) -> None:
    """Require a ModelFileError for a model of one ABS after a change."""
    m = absolute()
    change(m.model())
    with pytest.raises(ModelFileError, match=reason):
        read_model(m.bytes())


def test_refuses_indices_out_of_range() -> None:
    """Indices of tensors, operator codes, buffers and sub-graphs out of range are errors."""

    def tensor(model: Any) -> None:
        model.subgraphs[0].operators[0].inputs = [2]

    def negative(model: Any) -> None:
        model.subgraphs[0].operators[0].inputs = [-2]

    def output(model: Any) -> None:
        model.subgraphs[0].outputs = [7]

    def code(model: Any) -> None:
        model.subgraphs[0].operators[0].opcodeIndex = 1

    def buffer(model: Any) -> None:
        model.subgraphs[0].tensors[0].buffer = 9

    def signature(model: Any) -> None:
        model.signatureDefs = [schema.SignatureDefT([], [], "main", 1)]

    expect_damage(tensor, r"index of a tensor of ABS \(operator 0\) must be below 2, got 2")
    expect_damage(negative, "must be below 2, got -2")
    expect_damage(output, "an output of the graph must be below 2, got 7")
    expect_damage(code, "operator 0's code must be below 1, got 1")
    expect_damage(buffer, "the index of a buffer must be below .*, got 9")
    expect_damage(signature, "the subgraph of signature main must be below 1, got 1")


def test_refuses_unknown_types_and_impossible_shapes() -> None:
    """Errors: unknown types, huge shapes, missing external buffers, and an empty model."""

    def set_unknown_type(model: Any) -> None:
        model.subgraphs[0].tensors[0].type = 77

    def change_shape(*shape: int) -> Callable[[Any], None]:
        def change(model: Any) -> None:
            model.subgraphs[0].tensors[0].shape = int32(list(shape))

        return change

    def external(model: Any) -> None:
        model.subgraphs[0].tensors[0].externalBuffer = 1

    def remove_subgraphs(model: Any) -> None:
        model.subgraphs = []

    expect_damage(set_unknown_type, r"the type of tensor x must be one of TFLite's, got 77")
    expect_damage(change_shape(2, -1), r"the shape of tensor x must have .*, got \[2, -1\]")
    expect_damage(change_shape(*[2**31 - 1] * 3), "the shape of tensor x must have")
    expect_damage(change_shape(*[1] * 33), "the shape of tensor x must have")
    expect_damage(external, "it has no external buffer 1")
    expect_damage(remove_subgraphs, "it has no subgraph")


def test_refuses_tensors_read_before_they_are_computed() -> None:
    """Each tensor must be computed once, and before it is read."""
    m = Build()
    x = m.input([2], name="x")
    y, z = m.tensor([2], name="y"), m.tensor([2], name="z")
    m.op("ABS", [y], [z])
    m.op("ABS", [x], [y])
    m.output(z)
    with pytest.raises(ModelFileError, match=r"ABS \(operator 0, z\) reads y before ABS \(op"):
        read_model(m.bytes())
    m.model().subgraphs[0].operators.reverse()
    assert read_model(m.bytes())
    m.model().subgraphs[0].tensors[y.index].isVariable = True
    m.model().subgraphs[0].operators.reverse()
    assert read_model(m.bytes()), "state is there before it is computed"
    for outputs, reason in (
        ([z, z], r"ABS \(operator 0, z\) computes z, which is an output of ABS \(operator 0, z\)"),
        ([x], "computes x, which is an input"),
        ([m.constant(float32([1, 2]), name="c")], "computes c, which is constant"),
    ):
        m.model().subgraphs[0].operators[0].outputs = [t.index for t in outputs]
        with pytest.raises(ModelFileError, match=reason):
            read_model(m.bytes())
    m.model().subgraphs[0].inputs = [x.index, x.index]
    with pytest.raises(ModelFileError, match="its inputs must be different tensors"):
        read_model(m.bytes())


def test_refuses_parts_shared_beyond_a_limit() -> None:
    """Shared parts are limited: a small file could declare more tensors than fit in memory."""
    data = bytearray(absolute().bytes())
    graph = schema.Model.GetRootAs(data).Subgraphs(0)
    start = graph._tab.Vector(graph._tab.Offset(4)) - 4  # noqa: SLF001 - the tensors' vector
    data[start : start + 4] = int32([2**28]).tobytes()
    with pytest.raises(ModelFileError, match="its parts must take at most"):
        read_model(bytes(data))


def test_refuses_offsets_outside_the_flatbuffer() -> None:
    """Offsets before the start, after the end, or outside a vector are errors."""
    data = bytearray(absolute().bytes())
    (position,) = struct.unpack_from("<I", data)
    for distance in (position + 1, -(1 << 20)):
        struct.pack_into("<i", data, position, distance)
        with pytest.raises(ModelFileError, match=r"damaged \(it refers to a place outside of its"):
            read_model(bytes(data))
    subgraphs = flatbuffer.read_root(memoryview(absolute().bytes()))["subgraphs"]
    with pytest.raises(IndexError):
        subgraphs[1]

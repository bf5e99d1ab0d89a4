"""writer.py: the contents of the ONNX file, and writing it."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnxruntime
import pytest

from tests.support import Build, check, random_inputs
from tests.support.small import build_flattening, chain, convolve, network
from tflite2onnx import convert, writer
from tflite2onnx.builder import messages
from tflite2onnx.builder.builder import Builder, Port
from tflite2onnx.emit import Emitted
from tflite2onnx.errors import OutputError
from tflite2onnx.tensor import DType, Tensor
from tflite2onnx.utils.mapped_files import write_elements

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tflite2onnx import Result


def build_large() -> bytes:
    """Return a model with small constants and large ones, of float32 and of float16."""
    m = Build()
    generator = np.random.default_rng(0)
    x = convolve(m, m.input((1, 7, 5, 3), name="x"), 17, "image")
    half = m.constant(generator.standard_normal((1, 7, 5, 17)).astype(np.float16), name="half")
    (real,) = m.op("DEQUANTIZE", [half], [m.tensor([1, 7, 5, 17], name="real")])
    (y,) = m.op("ADD", [x, real], [m.tensor([1, 7, 5, 17], name="sum")])
    (z,) = m.op("MUL", [y, m.constant(np.float32(3))], [m.tensor([1, 7, 5, 17], name="y")])
    m.output(z)
    return m.bytes()


def run_file(path: Path, result: Result, data: bytes) -> list[Any]:
    """Return the outputs of the file for random inputs."""
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    arrays = random_inputs(data, 0)
    pairs = zip(result.inputs, arrays, strict=True)
    outputs: list[Any] = session.run(None, {e.name: a.transpose(e.order) for e, a in pairs})
    return outputs


# Contents of the file


@pytest.mark.parametrize("data", [network(), build_large(), build_flattening(), chain("ABS")])
def test_saved_file_equals_the_model_of_the_result(tmp_path: Path, data: bytes) -> None:
    """The streamed file, the serialized model and `Result.model` are equal."""
    result = convert(data)
    path = tmp_path / "out.onnx"
    assert result.save(path) == result.size == path.stat().st_size
    assert path.read_bytes() == result.skeleton.serialize()
    assert onnx.load(path) == result.model
    whole = tmp_path / "whole.onnx"
    onnx.save(result.model, whole)
    assert onnx.load(whole) == onnx.load(path)
    onnx.checker.check_model(path, full_check=True)


def test_large_weights_are_not_copied() -> None:
    """Large weights are views on the TFLite file until they are written, also if transposed."""
    data = network()
    result = convert(data, io_layout="onnx")
    assert len(result.skeleton.weights) == 2
    for _, elements in result.skeleton.weights:
        assert elements.base is not None
        assert not elements.flags.owndata


def test_the_same_model_gives_the_same_bytes(tmp_path: Path) -> None:
    """A file has the same bytes each time it is written."""
    for name in ("a", "b"):
        convert(build_large()).save(tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


@pytest.mark.parametrize(
    ("number", "encoded"),
    [(0, b"\0"), (127, b"\x7f"), (128, b"\x80\1"), (300, b"\xac\2"), (2**31, b"\x80" * 4 + b"\b")],
)
def test_lengths_are_encoded_as_varints(number: int, encoded: bytes) -> None:
    """Lengths are encoded as varints of protobuf."""
    assert messages.encode_varint(number) == encoded


def test_values_have_their_actual_types_and_shapes() -> None:
    """Each value has its actual type and shape in value_info."""
    result = check(build_flattening(), layouts={"image": ("NHWC", "NCHW")})
    graph = result.model.graph
    made = {o for n in graph.node for o in n.output} - {o.name for o in graph.output}
    assert {i.name for i in graph.value_info} == made
    data = build_large()
    model = check(data).model
    infos = list(model.graph.value_info)
    assert {i.name for i in infos} == {o for n in model.graph.node for o in n.output} - {"y"}
    wide = onnx.ModelProto()
    wide.CopyFrom(model)
    wide.graph.output.extend(infos)
    session = onnxruntime.InferenceSession(wide.SerializeToString())
    array = np.ones([d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim])
    outputs = session.run(None, {"x": array.astype(np.float32)})
    for info, output in zip(wide.graph.output, outputs, strict=True):
        kind = info.type.tensor_type
        assert tuple(d.dim_value for d in kind.shape.dim) == output.shape
        assert onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type) == output.dtype


def test_tensor_shapes_are_written_without_shape_inference(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shapes of tensors are written without onnx.shape_inference, which is slow to import."""
    models = [network(), build_flattening(), chain("LOGISTIC", "RELU")]
    whole = [convert(data).model for data in models]
    monkeypatch.setattr(messages, "shape_inference", None)
    assert [convert(data).model for data in models] == whole
    for model in whole:
        inferred = onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True)
        assert inferred.graph.value_info == model.graph.value_info


def test_shapes_between_tensors_are_inferred() -> None:
    """Values inside an operator of several nodes get inferred shapes."""
    m = Build()
    (y,) = m.op("GELU", [convolve(m, m.input((1, 7, 5, 19)), 29, "made")], [[1, 7, 5, 29]])
    m.output(y)
    graph = check(m.bytes(), opset=17).model.graph
    made = {o for n in graph.node for o in n.output} - {graph.output[0].name}
    assert {i.name for i in graph.value_info} == made
    assert len(made) > 1
    for info in graph.value_info:
        assert [d.dim_value for d in info.type.tensor_type.shape.dim] == [1, 29, 7, 5]


def test_result_counts_transposes_and_their_bytes() -> None:
    """The result counts Transposes and the bytes that they write."""
    result = convert(network(), io_layout="tflite")
    assert result.transposes == 2
    assert result.bytes_moved == 4 * (2 * 5 * 7 * 3 + 2 * 5 * 7 * 13)
    assert convert(network()).transposes == convert(network()).bytes_moved == 0


def test_values_have_tensor_names_and_nodes_numbers() -> None:
    """Values have the names of their tensors, constants unique names, and nodes numbers."""
    graph = check(network()).model.graph
    assert [n.output[0] for n in graph.node] == ["hidden", "positive", "y"]
    assert [n.name for n in graph.node] == ["0", "1", "2"]
    assert {i.name for i in graph.initializer} == {
        "hidden/filters",
        "hidden/biases",
        "y/filters",
        "y/biases",
    }


def test_long_names_of_inner_tensors_lose_packages() -> None:
    """The modules in the long name of an inner tensor lose their packages; other names stay."""
    m = Build()
    x = m.input((2, 5, 7, 3))
    model = "my.networks.Model/torch.nn.modules.container.Layers_0"
    linear = "torch.nn.modules.linear.Linear"
    wishes = [f"{model}/{linear}_1;;{model}/{linear}_2;7", "my.networks.Model;1", "layers.0.conv"]
    wishes.append(f"{model}/{linear};9")  # of the output
    for wish in wishes:
        (x,) = m.op("EXP", [x], [m.tensor(x.shape, name=wish)])
    m.output(x)
    assert [n.output[0] for n in check(m.bytes()).model.graph.node] == [
        "Model/Layers_0/Linear_1;;Model/Layers_0/Linear_2;7",
        *wishes[1:],
    ]


def test_duplicate_names_of_values_get_numbers() -> None:
    """Inputs and outputs keep their names; duplicates of other values get numbers."""
    m = Build()
    x = m.input((2, 5, 7, 3), name="_1")
    (a,) = m.op("ABS", [x], [m.tensor(x.shape, name="constant")])
    (b,) = m.op("ADD", [a, m.constant(np.float32(2), name="y")], [m.tensor(x.shape, name="y_1")])
    m.output(convolve(m, b, 11, "y/Relu"), a)
    result = check(m.bytes(), io_layout="tflite")
    graph = result.model.graph
    names = [o for n in graph.node for o in n.output]
    names += [i.name for i in (*graph.initializer, *graph.input)]
    assert len(names) == len(set(names))
    assert len({n.name for n in graph.node}) == len(graph.node)
    assert [e.name for e in result.inputs] == [i.name for i in graph.input] == ["_1"]
    assert [e.name for e in result.outputs] == [o.name for o in graph.output]
    assert {"y/Relu", "constant"} == {o.name for o in graph.output}


def test_domains_of_nodes_are_imported() -> None:
    """Domains of nodes are imported; the opset of the default domain determines the IR version."""
    g = Builder(17)
    names = g.node(
        "LabelEncoder",
        np.array([2, 3]),
        domain="ai.onnx.ml",
        keys_int64s=[3],
        values_strings=["three"],
        default_string="?",
    )
    made = g.node("Mine", names, domain="my.domain", times=2)
    tensor = Tensor("y", (2,), DType.FLOAT32)
    port = Port("y", made, tensor, (0,), DType.FLOAT32)
    emitted = Emitted(tuple(g.nodes), g.opset, (), (port,), (), {})
    model = writer.assemble("graph", emitted, {}, "1").proto
    imports = [(i.domain, i.version) for i in model.opset_import]
    assert imports == [("", 17), ("ai.onnx.ml", 3), ("my.domain", 1)]
    assert [n.domain for n in model.graph.node] == ["ai.onnx.ml", "my.domain"]
    assert model.ir_version == 8
    onnx.checker.check_model(model)


# Outputs that need their own node


def test_output_that_is_an_input_gets_a_number() -> None:
    """An output that is also an input gets its own name with a number."""
    m = Build()
    x = m.input([2, 3], name="x")
    m.output(x, *m.op("ABS", [x], [m.tensor([2, 3], name="x_1")]), x)
    result = check(m.bytes())
    assert [e.name for e in result.outputs] == ["x_2", "x_1", "x_3"]


def test_repeated_output_gets_a_number() -> None:
    """The second of two equal outputs gets its own name with a number."""
    m = Build()
    y = convolve(m, m.input((2, 5, 7, 3)), 11, "y")
    m.output(y, y, y)
    result = check(m.bytes())
    assert [e.name for e in result.outputs] == ["y", "y_1", "y_2"]
    layouts = {"y": ("NHWC", "NHWC")}
    assert [e.order for e in check(m.bytes(), layouts=layouts).outputs] == [(0, 1, 2, 3)] * 3


def test_second_output_of_one_value_is_an_identity() -> None:
    """A TRANSPOSE without a node gives two outputs of one value; one is an Identity."""
    m = Build()
    x = m.input([2, 3, 5], name="x")
    (a,) = m.op("ABS", [x], [m.tensor([2, 3, 5], name="a")])
    to = m.constant(np.array([2, 0, 1], np.int32))
    (b,) = m.op("TRANSPOSE", [a, to], [m.tensor([5, 2, 3], name="b")])
    m.output(a, b)
    result = check(m.bytes(), layouts={"b": ("WNH", "NHW")})
    assert [n.op_type for n in result.model.graph.node] == ["Abs", "Identity"]


def test_constant_output_is_copied_by_a_node() -> None:
    """A constant output is copied by a node, as some runtimes refuse initializers as outputs."""
    m = Build()
    constant = m.constant(np.arange(6, dtype=np.float32).reshape(2, 3), name="c")
    m.output(constant, *m.op("ABS", [m.input([2, 3])], [[2, 3]]), constant)
    assert [e.name for e in check(m.bytes()).outputs] == ["c", "tensor_2", "c_1"]


# Writing the file


@pytest.fixture
def result() -> Result:
    """Return a result to write."""
    return convert(build_large())


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    """Return a folder that may contain only out.onnx after the test."""
    yield tmp_path
    assert {p.name for p in tmp_path.iterdir()} <= {"out.onnx"}


@pytest.mark.parametrize("failure", [OSError(28, "No space left on device"), KeyboardInterrupt()])
@pytest.mark.parametrize("old", [None, b"old"])
@pytest.mark.parametrize("unnamed", [False, True])
def test_failure_while_saving_leaves_the_old_file(
    place: Path,
    result: Result,
    monkeypatch: pytest.MonkeyPatch,
    failure: BaseException,
    old: bytes | None,
    *,
    unnamed: bool,
) -> None:
    """After a failure there is no partial or temporary file, and an existing file is unchanged."""
    if not unnamed:
        monkeypatch.delattr(os, "O_TMPFILE", raising=False)
    path = place / "out.onnx"
    if old:
        path.write_bytes(old)
    written: list[int] = []

    def fail_at_the_second(file: Any, data: Any) -> None:
        written.append(data.nbytes)
        if len(written) == 2:
            assert len(list(place.iterdir())) <= 1 + bool(old)
            raise failure
        write_elements(file, data)

    monkeypatch.setattr("tflite2onnx.writer.write_elements", fail_at_the_second)  # a full disk
    interrupted = isinstance(failure, KeyboardInterrupt)
    with pytest.raises(KeyboardInterrupt if interrupted else OutputError):
        result.save(path)
    assert len(written) == 2
    assert (path.read_bytes() if path.exists() else None) == old


def test_existing_file_is_replaced(place: Path, result: Result) -> None:
    """An existing file is replaced, also a longer one."""
    path = place / "out.onnx"
    path.write_bytes(b"old" * 10**6)
    result.save(path)
    assert onnx.load(path) == result.model


def test_new_file_has_the_default_permissions(place: Path, result: Result) -> None:
    """A new file has the default permissions."""
    old = os.umask(0o027)
    try:
        result.save(place / "out.onnx")
    finally:
        os.umask(old)
    assert stat.S_IMODE((place / "out.onnx").stat().st_mode) == 0o640


def test_a_link_stays_a_link(tmp_path: Path, result: Result) -> None:
    """The target of a symbolic link is replaced, or created."""
    (tmp_path / "there").mkdir()
    link = tmp_path / "link.onnx"
    link.symlink_to(tmp_path / "there" / "out.onnx")
    for _ in range(2):
        result.save(link)
        assert link.is_symlink()
        assert onnx.load(link) == result.model
    assert [p.name for p in (tmp_path / "there").iterdir()] == ["out.onnx"]


def test_file_name_of_maximum_length_is_written(tmp_path: Path, result: Result) -> None:
    """A file name of the maximum length works, although a temporary suffix would not fit."""
    path = tmp_path / ("x" * 250 + ".onnx")
    result.save(path)
    assert onnx.load(path) == result.model


def test_pipe_is_written_in_place(tmp_path: Path, result: Result) -> None:
    """Files that are not regular are written in place."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        result.save(pipe)
        assert os.read(reader, 2 * result.size) == result.skeleton.serialize()
    finally:
        os.close(reader)
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_error_gives_the_path_that_cannot_be_written(
    place: Path, result: Result, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message gives the path as the user gave it, and the reason."""
    with pytest.raises(OutputError, match=f"cannot write {place}: Is a directory"):
        result.save(place)
    with pytest.raises(OutputError, match=r"cannot write .*/none/out.onnx: No such file"):
        result.save(place / "none" / "out.onnx")
    path = place / "out.onnx"
    path.write_bytes(b"old")
    with pytest.raises(OutputError, match=r"out.onnx/x: Not a directory"):
        result.save(path / "x")
    with pytest.raises(OutputError, match=r"null (byte|character)"):
        result.save("a\0b")
    monkeypatch.setattr(os, "access", lambda *_: False)  # the superuser would always have access
    with pytest.raises(OutputError, match="Permission denied"):
        result.save(path)
    assert path.read_bytes() == b"old"


def test_a_device_is_written_to(result: Result) -> None:
    """A device is written to, and is not replaced."""
    with pytest.raises(OutputError, match="cannot write /dev/full: No space left on device"):
        result.save("/dev/full")
    assert result.save("/dev/null") == result.size
    assert Path("/dev/null").is_char_device()


# Models above 2 GB


def test_external_weights_are_aligned_with_relative_path(
    tmp_path: Path, result: Result, monkeypatch: pytest.MonkeyPatch
) -> None:
    """External weights are aligned, and the model refers to their file by a relative path."""
    result.save(tmp_path / "one.onnx")
    want = run_file(tmp_path / "one.onnx", result, build_large())
    monkeypatch.setattr(writer, "LARGEST_FILE", result.size - 1)
    path = tmp_path / "two.onnx"
    data = tmp_path / "two.onnx.data"
    assert result.save(path) == path.stat().st_size + data.stat().st_size
    assert {p.name for p in tmp_path.iterdir()} == {"one.onnx", "two.onnx", "two.onnx.data"}
    for w, h in zip(want, run_file(path, result, build_large()), strict=True):
        np.testing.assert_array_equal(w, h)
    loaded = onnx.load(path)
    assert {i.name: onnx.numpy_helper.to_array(i).tobytes() for i in loaded.graph.initializer} == {
        i.name: onnx.numpy_helper.to_array(i).tobytes() for i in result.model.graph.initializer
    }
    bare = onnx.load(path, load_external_data=False)
    apart = [i for i in bare.graph.initializer if i.data_location == onnx.TensorProto.EXTERNAL]
    assert len(apart) == len(result.skeleton.weights) == 2
    for initializer in apart:
        entries = {e.key: e.value for e in initializer.external_data}
        assert entries["location"] == "two.onnx.data"
        assert int(entries["offset"]) % 64 == 0


@pytest.mark.parametrize("name", ["out.onnx", "out.onnx.data"])
def test_model_and_external_data_are_both_written_or_none(
    tmp_path: Path, result: Result, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """If one of the two files cannot be written, neither is."""
    monkeypatch.setattr(writer, "LARGEST_FILE", 1000)
    (tmp_path / name).mkdir()
    with pytest.raises(OutputError, match="Is a directory"):
        result.save(tmp_path / "out.onnx")
    assert [p.name for p in tmp_path.iterdir()] == [name]


def test_model_of_exactly_the_limit_is_one_file(
    tmp_path: Path, result: Result, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model of exactly the limit, which is ONNX's, is one file."""
    assert writer.LARGEST_FILE == onnx.checker.MAXIMUM_PROTOBUF
    monkeypatch.setattr(writer, "LARGEST_FILE", result.size)
    result.save(tmp_path / "out.onnx")
    assert [p.name for p in tmp_path.iterdir()] == ["out.onnx"]

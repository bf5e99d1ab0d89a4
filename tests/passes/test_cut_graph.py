"""passes/cut_graph.py: the operators, inputs and states of a part, and what is refused."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from tests.support import Build, Subgraph, Tensor
from tests.support.control import add_if, graph
from tests.support.metadata import pack_metadata
from tests.support.small import network
from tests.support.streams import SHAPE, assign, handle, initialise, read_variable
from tflite2onnx import convert, verify
from tflite2onnx.errors import OptionError, VerifyError
from tflite2onnx.passes.cut_graph import cut_graph
from tflite2onnx.reader.metadata import BUFFER
from tflite2onnx.reader.model import read_model
from tflite2onnx.verification.entry_point import cut_entry_point


def cut_part(
    data: bytes, inputs: list[str] | None = None, outputs: list[str] | None = None
) -> tuple[list[str], list[str], list[str]]:
    """Return the input names, the output names and the operators of a part."""
    part = cut_graph(read_model(data), 0, inputs, outputs)
    names = [t.name for t in part.inputs], [t.name for t in part.outputs]
    return *names, [op.code for op in part.ops]


def unary(m: Subgraph, code: str, x: Tensor, name: str) -> Tensor:
    """Return the named output of an operator with one input."""
    return m.op(code, [x], [m.tensor(x.shape, name=name)])[0]


def build_branches() -> bytes:
    """Return a -> NEG -> "b" -> ABS -> "y"; "c" -> EXP -> "z"; and "w" = "b" + "c"."""
    m = Build()
    a, c = m.input([2, 3], name="a"), m.input([2, 3], name="c")
    b = unary(m, "NEG", a, "b")
    y, z = unary(m, "ABS", b, "y"), unary(m, "EXP", c, "z")
    m.output(y, z, *m.op("ADD", [b, c], [m.tensor([2, 3], name="w")]))
    return m.bytes()


@pytest.mark.parametrize(
    ("inputs", "outputs", "want"),
    [
        (None, ["b"], (["a"], ["b"], ["NEG"])),
        (None, ["z", "y"], (["a", "c"], ["z", "y"], ["NEG", "ABS", "EXP"])),
        (["b"], ["y"], (["b"], ["y"], ["ABS"])),
        (["c", "b"], None, (["c", "b"], ["y", "z", "w"], ["ABS", "EXP", "ADD"])),
        (["b"], ["b"], (["b"], ["b"], [])),
        (["c", "b"], ["w", "b"], (["c", "b"], ["w", "b"], ["ADD"])),
    ],
)
def test_part_has_only_operators_that_outputs_need(inputs: Any, outputs: Any, want: Any) -> None:
    """A part has only the operators that its outputs need."""
    assert cut_part(build_branches(), inputs, outputs) == want
    result = convert(build_branches(), inputs=inputs, outputs=outputs)
    assert [end.name for end in result.inputs] == want[0]
    assert verify(build_branches(), result, per_operator=True).ok


@pytest.mark.parametrize(
    ("inputs", "outputs", "message"),
    [
        (["bb"], None, "`inputs`: the model has no tensor bb; did you mean b?"),
        (None, ["nothing"], "`outputs`: the model has no tensor nothing"),
        (
            ["b"],
            None,
            "`inputs`: the outputs also need c; name every input that is needed, or fewer",
        ),
        (["a", "b"], ["y"], "`inputs`: no output needs a"),
        (["b", "z"], ["y"], "`inputs`: no output needs z"),
    ],
)
def test_refuses_ends_that_do_not_fit_the_model(inputs: Any, outputs: Any, message: str) -> None:
    """The error is one line that says what to do."""
    with pytest.raises(OptionError) as error:
        convert(build_branches(), inputs=inputs, outputs=outputs)
    assert str(error.value).startswith(message)


def test_constant_may_be_an_output_but_no_input() -> None:
    """A constant may be an output, but not an input."""
    result = convert(network(), outputs=["hidden/filters", "hidden"])
    assert verify(network(), result).ok
    with pytest.raises(OptionError, match="hidden/filters is a constant; an input must be"):
        convert(network(), inputs=["hidden/filters"])


def test_outputs_of_an_operator_become_inputs_together() -> None:
    """Either all outputs of an operator are inputs of the part, or none."""
    m = Build()
    x = m.input([2, 6], name="x")
    pieces = [m.tensor([2, 3], name=name) for name in ("one", "two")]
    one, two = m.op("SPLIT", [m.constant(np.int32(1)), x], pieces, num_splits=2)
    m.output(*m.op("ADD", [one, two], [m.tensor([2, 3], name="y")]))
    data = m.bytes()
    assert cut_part(data, ["one", "two"]) == (["one", "two"], ["y"], ["ADD"])
    with pytest.raises(OptionError, match=r"SPLIT \(operator 0, one\) computes one and another"):
        convert(data, inputs=["x", "one"])


def test_refuses_outputs_that_no_operator_computes() -> None:
    m = Build()
    x = m.input([2], name="x")
    m.tensor([2], name="stray")
    m.output(unary(m, "NEG", x, "y"))
    with pytest.raises(OptionError, match="`outputs`: no operator computes stray"):
        convert(m.bytes(), outputs=["stray"])


def test_quantized_tensors_keep_their_type() -> None:
    """The part reads and writes the file's integers."""
    m = Build()
    x = m.input([1, 4], dtype="int8", scale=0.1, zero_point=3, name="x")
    for name, scale in (("one", 0.2), ("two", 0.3), ("y", 0.4)):
        target = m.tensor([1, 4], dtype="int8", scale=scale, zero_point=-5, name=name)
        (x,) = m.op("ADD", [x, x], [target])
    m.output(x)
    result = convert(m.bytes(), inputs=["one"], outputs=["two"])
    assert [end.dtype for end in (*result.inputs, *result.outputs)] == ["int8", "int8"]
    assert verify(m.bytes(), result, per_operator=True).ok


# State


def build_memories() -> bytes:
    """Return x + variable "first" -> "middle", which is assigned; and the same with "second"."""
    m = Build()
    x = m.input(SHAPE, name="x")
    zeros = np.zeros(SHAPE, np.float32)
    initialise(m, first=zeros, second=zeros)
    for variable, name in (("first", "middle"), ("second", "y")):
        old = read_variable(m, handle(m, variable))
        (x,) = m.op("ADD", [x, old], [m.tensor(SHAPE, name=name)])
        assign(m, handle(m, variable), x)
    m.output(x)
    return m.bytes()


@pytest.mark.parametrize(
    ("inputs", "outputs", "states"),
    [
        (None, ["middle"], ["first"]),
        (["middle"], None, ["second"]),
        (None, ["middle", "y"], ["first", "second"]),
    ],
)
def test_part_has_the_states_that_it_reads(inputs: Any, outputs: Any, states: list[str]) -> None:
    """A part has the states that it reads, and the operators that assign them."""
    result = convert(build_memories(), inputs=inputs, outputs=outputs)
    assert [state.variable for state in result.states] == states
    assert verify(build_memories(), result, samples=3).ok


def test_refuses_to_cut_at_a_variable() -> None:
    m = Build()
    x = m.input([1, 4], name="x")
    generator = np.random.default_rng(0)
    features = m.constant(generator.standard_normal((3, 4)).astype(np.float32))
    times = m.constant(generator.standard_normal((3, 5)).astype(np.float32))
    memory = m.tensor([1, 15], name="memory", variable=True)
    hidden = unary(m, "NEG", x, "hidden")
    (y,) = m.op("SVDF", [hidden, features, times, None, memory], [[1, 3]], rank=1)
    m.output(unary(m, "ABS", y, "y"))
    data = m.bytes()
    assert cut_part(data, ["hidden"])[2] == ["SVDF", "ABS"]
    assert verify(data, convert(data, inputs=["hidden"]), samples=3).ok
    with pytest.raises(
        OptionError, match="`inputs`: memory is a variable, at which a model cannot"
    ):
        convert(data, inputs=["memory"])


def test_refuses_to_cut_at_a_handle() -> None:
    model = read_model(build_memories())
    name = next(op.outputs[0].name for op in model.graphs[0].ops if op.code == "VAR_HANDLE")
    with pytest.raises(OptionError, match="is of type resource, at which a model cannot be cut"):
        cut_graph(model, 0, None, [name])


def test_part_with_sub_graphs_has_their_assignments() -> None:
    """A part with an IF that reads a variable has the operator that assigns it."""
    m = Build()
    x, choice = m.input(SHAPE, name="x"), m.input([], dtype="bool", name="choice")
    initialise(m, memory=np.ones(SHAPE, np.float32))

    def recall(inner: Subgraph, _: Any) -> list[Tensor]:
        return [unary(inner, "ABS", read_variable(inner, handle(inner)), "recalled")]

    (made,) = add_if(m, choice, [x], recall, lambda inner, xs: [unary(inner, "NEG", xs[0], "n")])
    m.output(unary(m, "ABS", made, "y"))
    assign(m, handle(m), unary(m, "EXP", x, "exponential"))
    data = m.bytes()
    part = cut_part(data, None, [read_model(data).graphs[0].ops[1].outputs[0].name])
    assert {"IF", "ASSIGN_VARIABLE", "EXP", "CALL_ONCE"} <= {*part[2]}
    assert "ABS" not in part[2]


def test_refuses_tensors_of_other_sub_graphs() -> None:
    """A cut must name tensors of the converted sub-graph."""
    m = Build()
    x = m.input(SHAPE, name="x")
    inner = graph(m, "other", [x], lambda g, xs: [unary(g, "NEG", xs[0], "inside")])
    m.output(unary(m, "ABS", x, "y"))
    assert inner.index == 1
    message = (
        "`outputs`: inside is in the sub-graph other; a model can be cut at the tensors of the"
    )
    with pytest.raises(OptionError, match=message):
        convert(m.bytes(), outputs=["inside"])


# Other properties of a part


def test_signatures_keep_the_names_that_remain() -> None:
    m = Build()
    a, b = m.input([2], name="a"), m.input([2], name="b")
    y, z = unary(m, "NEG", a, "y"), unary(m, "ABS", b, "z")
    m.output(y, z)
    m.signature("main", {"first": a, "second": b}, {"one": y, "two": z})
    result = convert(m.bytes(), outputs=["z"], names="signature", rename={"two": "2"})
    assert [end.name for end in (*result.inputs, *result.outputs)] == ["second", "2"]
    said = {p.key: p.value for p in result.model.metadata_props}
    assert said["tflite2onnx.signatures"] == (
        '{"main": {"inputs": {"second": "second"}, "outputs": {"two": "2"}}}'
    )
    assert said["tflite2onnx.cut"] == '{"inputs": ["b"], "outputs": ["z"]}'
    assert json.loads(said["tflite2onnx.options"])["rename"] == {"two": "2"}
    report = verify(m.bytes(), result.model)
    assert report.ok
    assert [each.name for each in report.tensors] == ["z"]


def test_refuses_to_cut_files_without_inputs() -> None:
    """A file without inputs cannot be cut for LiteRT, because it has no vector of inputs."""
    m = Build()
    (x,) = m.op("FILL", [m.constant(np.array([2], np.int32)), m.constant(np.float32(1))], [[2]])
    m.output(unary(m, "NEG", unary(m, "EXP", x, "x"), "y"))
    data = m.bytes()
    assert cut_entry_point(data, {}) is data
    with pytest.raises(VerifyError, match="the main sub-graph must have inputs, got none"):
        cut_entry_point(data, {"inputs": ["x"], "outputs": ["y"]})
    with pytest.raises(
        VerifyError, match="cannot be cut as the ONNX model: `inputs`: the model has"
    ):
        cut_entry_point(data, {"inputs": ["z"], "outputs": ["y"]})


def test_remaining_tensors_keep_their_metadata() -> None:
    """Remaining inputs and outputs keep their metadata; new inputs have none."""
    m = Build()
    a, b = m.input([2], name="a"), m.input([2], name="b")
    m.output(unary(m, "NEG", unary(m, "EXP", a, "c"), "y"), unary(m, "ABS", b, "z"))
    tensors = {key: [{"name": name} for name in key] for key in ("ab", "yz")}
    subgraph = {"input_tensor_metadata": tensors["ab"], "output_tensor_metadata": tensors["yz"]}
    m.metadata(BUFFER, pack_metadata({"name": "model", "subgraph_metadata": [subgraph]}))
    result = convert(m.bytes(), inputs=["b", "c"])
    said = {p.key: p.value for p in result.model.metadata_props}
    assert json.loads(said["tflite2onnx.metadata"]) == {
        "name": "model", "inputs": [{"name": "b"}, {}], "outputs": [{"name": "y"}, {"name": "z"}],
    }  # fmt: skip

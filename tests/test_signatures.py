"""signatures.py: models with several entry points."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest

from tests.support import Build, Subgraph, check, run_onnx, run_signature
from tests.support.runtimes import runners, session
from tests.support.streams import SHAPE, assign, handle, initialise, read_variable
from tflite2onnx import convert, verify
from tflite2onnx.cli import main
from tflite2onnx.errors import OptionError
from tflite2onnx.options import NameSource
from tflite2onnx.verification.onnx_model import open_model

if TYPE_CHECKING:
    from pathlib import Path

X = np.linspace(-4, 4, 30, dtype=np.float32).reshape(SHAPE)


def unary(m: Subgraph, code: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Add "in" -> operator -> "out" to a sub-graph; return inputs and outputs of a signature."""
    x = m.input(SHAPE, name=f"{code}_x")
    (y,) = m.op(code, [x], [m.tensor(SHAPE, name=f"{code}_y")])
    m.output(y)
    return {"in": x}, {"out": y}


def build_signatures() -> bytes:
    """Return a model with the signatures "minus", "same" (of the main graph) and "size"."""
    m = Build()
    ends = unary(m, "NEG")
    m.signature("minus", *ends)
    m.signature("same", *ends)
    m.signature("size", *unary(m.subgraph("size"), "ABS"))
    return m.bytes()


def names(result: Any) -> tuple[list[str], list[str]]:
    """Return the names of inputs and outputs."""
    ends = result.model.graph.input, result.model.graph.output
    inputs, outputs = ([each.name for each in kind] for kind in ends)
    return inputs, outputs


@pytest.mark.parametrize(
    ("key", "want"),
    [
        (None, (["NEG_x"], ["NEG_y"])),
        ("minus", (["NEG_x"], ["NEG_y"])),
        ("same", (["NEG_x"], ["NEG_y"])),
        ("size", (["ABS_x"], ["ABS_y"])),
    ],
)
def test_requested_signature_is_converted(
    key: str | None, want: tuple[list[str], list[str]]
) -> None:
    result = convert(build_signatures(), signature=key)
    assert names(result) == want
    (y,) = run_onnx(result.model, {want[0][0]: X})
    np.testing.assert_array_equal(
        y, run_signature(build_signatures(), key or "minus", {"in": X})["out"]
    )


def test_names_of_the_signature_are_in_model_and_metadata() -> None:
    """The names of the signature are in the model, in the result and in the metadata."""
    result = convert(build_signatures(), signature="size", names="signature")
    assert names(result) == (["in"], ["out"])
    assert [e.name for e in (*result.inputs, *result.outputs)] == ["in", "out"]
    properties = {p.key: p.value for p in result.model.metadata_props}
    said = json.loads(properties["tflite2onnx.signatures"])
    assert said == {"size": {"inputs": {"in": "in"}, "outputs": {"out": "out"}}}
    (y,) = run_onnx(result.model, {"in": X})
    np.testing.assert_array_equal(y, np.abs(X))


def test_metadata_list_all_signatures_of_the_graph() -> None:
    properties = {p.key: p.value for p in convert(build_signatures()).model.metadata_props}
    ends = {"inputs": {"in": "NEG_x"}, "outputs": {"out": "NEG_y"}}
    assert json.loads(properties["tflite2onnx.signatures"]) == {"minus": ends, "same": ends}


def test_names_that_are_not_one_to_one_are_resolved() -> None:
    """An input that is an output, an output with two names, and an output without a name."""
    m = Build()
    x = m.input(SHAPE, name="x")
    (y,) = m.op("NEG", [x], [m.tensor(SHAPE, name="y")])
    (z,) = m.op("ABS", [y], [m.tensor(SHAPE, name="a")])
    m.output(x, y, y, z)
    m.signature("main", {"a": x}, {"a": x, "first": y, "second": y})
    result = convert(m.bytes(), names="signature")
    assert names(result) == (["a"], ["a_1", "first", "second", "a_2"])
    made = run_onnx(result.model, {"a": X})
    for have, want in zip(made, [X, -X, -X, abs(X)], strict=True):
        np.testing.assert_array_equal(have, want)


def test_warning_lists_signatures_that_are_not_converted(caplog: pytest.LogCaptureFixture) -> None:
    """A warning lists the signatures that are not converted, unless one was requested."""
    convert(build_signatures())
    message = (
        "the model has the signatures minus, same, size; only minus is converted: choose one with"
        " `signature`"
    )
    assert caplog.record_tuples == [("tflite2onnx.signatures", logging.WARNING, message)]
    caplog.clear()
    convert(build_signatures(), signature="same")
    m = Build()
    ends = unary(m, "NEG")
    m.signature("one", *ends)
    m.signature("two", *ends)
    convert(m.bytes())
    assert caplog.records == []


def test_warning_names_eight_signatures_only(caplog: pytest.LogCaptureFixture) -> None:
    """A warning is one line, whatever the number of signatures."""
    m = Build()
    unary(m, "NEG")
    for i in range(30):
        m.signature(f"decode_{i}", *unary(m.subgraph(f"decode_{i}"), "ABS"))
    convert(m.bytes())
    assert "decode_7 and 22 more; no signature is converted" in caplog.text
    assert all(len(record.getMessage()) < 300 for record in caplog.records)


def test_main_graph_without_signature_is_converted(caplog: pytest.LogCaptureFixture) -> None:
    m = Build()
    unary(m, "NEG")
    m.signature("size", *unary(m.subgraph("size"), "ABS"))
    assert names(convert(m.bytes())) == (["NEG_x"], ["NEG_y"])
    assert "the model has the signatures size; no signature is converted" in caplog.text
    with pytest.raises(OptionError, match="must be tensor, because the model has no signature"):
        convert(m.bytes(), names="signature")


def test_unknown_signatures_and_kinds_of_names_are_refused() -> None:
    with pytest.raises(OptionError, match="minus, same or size, got sise; did you mean size"):
        convert(build_signatures(), signature="sise")
    with pytest.raises(OptionError, match="`signature` must be minus, same or size, got x"):
        convert(build_signatures(), signature="x")
    m = Build()
    unary(m, "NEG")
    with pytest.raises(
        OptionError, match="`signature` must not be given, because the model has none, got x"
    ):
        convert(m.bytes(), signature="x")
    with pytest.raises(OptionError, match="`names` must be tensor or signature, got 'short'"):
        convert(build_signatures(), names="short")  # type: ignore[arg-type]


@pytest.mark.parametrize("key", ["minus", "size"])
@pytest.mark.parametrize("names", ["tensor", "signature"])
def test_converted_signature_is_verified(key: str, names: NameSource) -> None:
    """Verification runs the converted signature in LiteRT."""
    result = convert(build_signatures(), signature=key, names=names)
    report = verify(build_signatures(), result)
    assert report.ok
    assert len(report.tensors) == 1
    assert verify(build_signatures(), result.model).ok
    other = "minus" if key == "size" else "size"
    for each in result.model.metadata_props:
        if each.key == "tflite2onnx.signatures":
            each.value = f'{{"{other}": {{}}}}'
    assert not verify(build_signatures(), result.model).ok


# State


def build_shared_variable(*, initialised: bool) -> bytes:
    """Return a model with two signatures, which "set" and "get" a variable."""
    m = Build()
    x = m.input(SHAPE, name="x")
    if initialised:
        initialise(m, memory=np.ones(SHAPE, np.float32))
    (twice,) = m.op("ADD", [x, x], [m.tensor(SHAPE, name="twice")])
    assign(m, handle(m), twice)
    m.output(twice)
    m.signature("set", {"x": x}, {"twice": twice})
    other = m.subgraph("get")
    y = other.input(SHAPE, name="y")
    (z,) = other.op(
        "ADD", [read_variable(other, handle(other)), y], [other.tensor(SHAPE, name="z")]
    )
    assign(other, handle(other), z)
    other.output(z)
    m.signature("get", {"memory": y}, {"z": z})
    return m.bytes()


@pytest.mark.parametrize("initialised", [False, True])
def test_signatures_share_variables_as_states(*, initialised: bool) -> None:
    """A variable is an output of one signature and an input of the other.

    One signature sets the variable, and the other reads it. Both determine the initial value.
    """
    data = build_shared_variable(initialised=initialised)
    one, two = (convert(data, signature=key, names="signature") for key in ("set", "get"))
    assert names(one) == (["x", "memory"], ["twice", "memory/next"])
    assert names(two) == (["memory", "memory_1"], ["z", "memory/next"])
    np.testing.assert_array_equal(two.states[0].initial, np.full(SHAPE, initialised, np.float32))
    _, memory = run_onnx(one.model, {"x": X})
    _, memory = run_onnx(two.model, {"memory": X, "memory_1": memory})
    np.testing.assert_array_equal(memory, 3 * X)
    for result in (one, two):
        properties = {p.key: p.value for p in result.model.metadata_props}
        said = json.loads(properties["tflite2onnx.states"])
        assert [each["variable"] for each in said] == ["memory"]
        assert [state.variable for state in result.states] == ["memory"]


def test_signatures_in_turn_share_variables_as_in_litert() -> None:
    """Both signatures share the variables, as in one LiteRT interpreter."""
    data, keys = build_shared_variable(initialised=True), ("set", "get")
    converted = [convert(data, signature=k, names="signature", io_layout="tflite") for k in keys]
    live = [session(each.model, optimize=True) for each in converted]
    wanted, kept = runners(data, keys), dict[str, Any]()
    for step, turn in enumerate([0, 1, 1, 0, 0, 1, 1, 1, 0, 1, 1, 0]):
        feeds = {converted[turn].inputs[0].name: X + step}
        states = converted[turn].states
        known = {s.input.name: kept[s.variable] for s in states if s.variable in kept}
        made, *after = live[turn].run(None, {**feeds, **known})
        kept |= {s.variable: value for s, value in zip(states, after, strict=True)}
        (want,) = wanted[turn](**feeds).values()
        np.testing.assert_allclose(made, want, rtol=1e-6)


@pytest.mark.parametrize(
    ("words", "complaint", "name"),
    [
        ([], "the model has the signatures one, two\\x1b; only one is converted: choose", "x"),
        (["--quiet"], "", "x"),
        (["--signature", "two\x1b"], "", "y"),
        (["--signature", "one", "--names", "signature"], "", "in"),
    ],
)
def test_command_line_lists_signatures_left_out(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, words: list[str], complaint: str, name: str
) -> None:
    """The signatures that are left out are listed on stderr, with control characters escaped."""
    m = Build()
    for graph, key, end in ((m, "one", "x"), (m.subgraph("other"), "two\x1b", "y")):
        x = graph.input([2], name=end)
        (y,) = graph.op("ABS", [x], [[2]])
        graph.output(y)
        m.signature(key, {"in": x}, {"out": y})
    path, out = tmp_path / "model.tflite", tmp_path / "out.onnx"
    path.write_bytes(m.bytes())
    assert main([str(path), str(out), *words]) == 0
    err = capsys.readouterr().err
    assert complaint in err
    assert err.count("\n") == bool(complaint)
    assert onnx.load(out).graph.input[0].name == name


@pytest.mark.parametrize(
    ("name", "order"), [("kv_cache_v_0", (0, 1, 2, 3)), ("image", (0, 3, 1, 2))]
)
def test_caches_keep_layout_of_file(name: str, order: tuple[int, ...]) -> None:
    """Signatures pass caches to each other, so a cache has one layout in all of them."""
    m = Build()
    x, filters = m.input((1, 4, 5, 3)), m.constant(np.ones((3, 1, 1, 3), np.float32))
    operands = [x, filters, m.constant(np.ones(3, np.float32))]
    (y,) = m.op("CONV_2D", operands, [(1, 4, 5, 3)], stride_h=1, stride_w=1)
    m.output(y)
    m.signature("decode", {name: x}, {name: y})
    result = check(m.bytes())
    assert [end.order for end in (*result.inputs, *result.outputs)] == [order, order]


def read_signatures(model: onnx.ModelProto) -> dict[str, Any]:
    properties = {entry.key: entry.value for entry in model.metadata_props}
    read: dict[str, Any] = json.loads(properties["tflite2onnx.signatures"])
    return read


def test_metadata_name_only_outputs_that_exist(caplog: pytest.LogCaptureFixture) -> None:
    """Quantizers append an operator after an output; the signature keeps the tensor before it."""
    m = Build()
    x = m.input(SHAPE, name="x")
    (y,) = m.op("NEG", [x], [m.tensor(SHAPE, name="y")])
    (z,) = m.op("ABS", [y], [m.tensor(SHAPE, name="z")])
    m.output(z)
    m.signature("serve", {"in": x}, {"before": y, "after": z})
    data = m.bytes()
    made: dict[str, dict[str, Any]] = {"tensor": {}, "signature": {"names": "signature"}}
    made["rename"] = {"rename": {"z": "w"}}
    for options in made.values():
        result = convert(data, **options)
        ends = read_signatures(result.model)["serve"]
        assert list(ends["outputs"]) == ["after"]
        assert ([*ends["inputs"].values()], [*ends["outputs"].values()]) == names(result)
        assert verify(data, result).ok
    assert "before of the signature serve is not among the outputs of the model" in caplog.text
    caplog.clear()
    ends = read_signatures(convert(data, outputs=["y"]).model)["serve"]
    assert ends["outputs"] == {"before": "y"}
    assert not caplog.text


def test_signatures_of_a_model_that_takes_pictures_name_its_own_ends() -> None:
    m = Build()
    x = m.input([1, 6, 8, 3], name="pixels")
    (y,) = m.op("NEG", [x], [m.tensor([1, 6, 8, 3], name="y")])
    m.output(y)
    m.signature("serve", {"in": x}, {"out": y})
    result = convert(m.bytes(), preprocess={"mean": 0, "std": 1})
    assert names(result)[0] == ["image"]
    for model, inputs in ((result, {}), (result.parts["network"], {"in": "pixels"})):
        ends = read_signatures(model.model)["serve"]
        assert ends == {"inputs": inputs, "outputs": {"out": "y"}}
    opened = open_model(result.model)
    assert opened.signatures == {"serve": {"inputs": {"in": "pixels"}, "outputs": {"out": "y"}}}

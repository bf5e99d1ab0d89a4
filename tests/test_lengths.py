"""bundle/lengths.py: signatures that differ in a length only become one graph."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnxruntime
import pytest

from tests.support import Build
from tests.support.decoder import LENGTH, build_decoder, build_language_model
from tflite2onnx import convert, convert_bundle, verify
from tflite2onnx.bundle import make_bundle
from tflite2onnx.bundle.lengths import join_lengths
from tflite2onnx.cli import main
from tflite2onnx.errors import OptionError
from tflite2onnx.options import NameSource
from tflite2onnx.reader.model import read_model

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

Array = np.ndarray[Any, np.dtype[Any]]
PREFILLS = (3, 5)
FORMS = [
    {"mask": "float32"},
    {"mask": "bool"},
    {"mask": "", "tokens_first": True},
    {"mask": "float32", "tokens_first": True},
]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Change to an empty folder."""
    monkeypatch.chdir(tmp_path)


def _feed(shapes: Mapping[str, tuple[int, ...]], count: int, mask: str) -> dict[str, Array]:
    """Return the inputs of a prefill of `count` tokens, by the names of the signature."""
    random = np.random.default_rng(count)
    seen = np.arange(LENGTH)[None] <= np.arange(count)[:, None]
    given: dict[str, Array] = {
        "tokens": np.arange(count, dtype=np.int32)[None],
        "input_pos": np.arange(count, dtype=np.int32),
        "mask": np.where(seen, 0, -1e9).astype(np.float32)[None, None],
    }
    if mask == "bool":
        given["mask"] = seen[None, None]
    caches = {name: shape for name, shape in shapes.items() if "cache" in name}
    made = {n: random.standard_normal(s).astype(np.float32) for n, s in caches.items()}
    return {**{name: given[name] for name in shapes if name in given}, **made}


@pytest.mark.parametrize("form", FORMS)
def test_joined_graph_equals_litert_at_each_length(form: Mapping[str, Any]) -> None:
    """The joined graph computes LiteRT's results for each signature, and for other lengths."""
    from ai_edge_litert.interpreter import Interpreter  # noqa: PLC0415 - slow to import

    data = build_decoder(prefills=PREFILLS, **form)
    results = convert_bundle(make_bundle(data), "out", lengths="joined")
    assert list(results) == ["decode", "prefill"]
    session = onnxruntime.InferenceSession("out/prefill.onnx")
    metadata = session.get_modelmeta().custom_metadata_map
    names = json.loads(metadata["tflite2onnx.signatures"])
    assert list(names) == [f"prefill_{count}" for count in PREFILLS]
    interpreter = Interpreter(model_content=data)
    whole: dict[int, dict[str, Array]] = {}
    for count, key in zip(PREFILLS, names, strict=True):
        runner = interpreter.get_signature_runner(key)
        shapes = {n: tuple(d["shape"]) for n, d in runner.get_input_details().items()}
        feeds = _feed(shapes, count, form["mask"])
        called = names[key]
        given = {called["inputs"][name]: array for name, array in feeds.items()}
        made = dict(
            zip([o.name for o in session.get_outputs()], session.run(None, given), strict=True)
        )
        for name, array in runner(**feeds).items():
            np.testing.assert_allclose(made[called["outputs"][name]], array, atol=1e-5)
        whole[count] = given
    shorter = {
        name: array[tuple(slice(None, 4 if n == 5 else None) for n in array.shape)]
        for name, array in whole[5].items()
    }
    long, short = (session.run(None, given) for given in (whole[5], shorter))
    for a, b in zip(long, short, strict=True):
        axis = a.shape.index(LENGTH)
        # Four tokens are written as four of five are.
        np.testing.assert_allclose(
            np.take(a, range(4), axis), np.take(b, range(4), axis), atol=1e-5
        )


def test_command_joins_and_verifies_lengths(capsys: pytest.CaptureFixture[str]) -> None:
    """A container joins them by default, and `verify` finds them in the folder."""
    data = build_language_model(build_decoder(mask="", tokens_first=True, prefills=PREFILLS))
    with open("model.litertlm", "wb") as file:  # noqa: PTH123 - as a user does
        file.write(data)
    assert main(["model.litertlm", "out", "--verify"]) == 0
    with open("out/manifest.json") as file:  # noqa: PTH123
        files = [each["file"] for each in json.load(file)["models"]]
    assert files == ["prefill_decode_decode.onnx", "prefill_decode_prefill.onnx"]
    assert main(["verify", "model.litertlm", "out"]) == 0
    assert "prefill_decode (prefill)" in capsys.readouterr().out
    for option in (["--lengths", "each"], ["--static"], ["--opset", "12"], ["--target", "coreml"]):
        results = convert_bundle("model.litertlm", "each", **_read_option(option))
        assert len(results) == 1 + len(PREFILLS)


def _read_option(option: list[str]) -> dict[str, Any]:
    name, *values = option
    value: Any = values[0] if values else True
    return {name.removeprefix("--"): int(value) if value == "12" else value}


def test_verification_compares_each_signature_at_its_length() -> None:
    """Each signature is compared at its length: a model that is right for one only is wrong."""
    data = build_decoder(prefills=PREFILLS)
    result = convert_bundle(make_bundle(data), "out", lengths="joined")["prefill"]
    model = result.model
    assert verify(data, model).ok
    lengths = [n for n in model.graph.node if n.op_type in ("Slice", "Concat")]
    assert lengths
    (positions,) = (i for i in model.graph.input if "pos" in i.name)
    # The graph computes five tokens as three and two that are 0.
    names = {each.name for each in model.graph.initializer}
    bound = "three"
    assert bound not in names
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.array([3], np.int32), bound))
    for node in model.graph.node:
        for i, name in enumerate(node.input):
            if name == positions.name:
                node.input[i] = "positions/least"
    least = onnx.helper.make_node("Min", [positions.name, bound], ["positions/least"])
    model.graph.node.insert(0, least)
    report = verify(data, model)
    assert not report.ok


@pytest.mark.parametrize("names", ["tensor", "signature"])
def test_verification_recognises_a_file_of_joined_signatures(names: NameSource) -> None:
    """The tensors between the operators of the joined graph are compared, too."""
    data = build_decoder(prefills=PREFILLS)
    model = convert_bundle(make_bundle(data), "out", lengths="joined", names=names)["prefill"].model
    report = verify(data, model, per_operator=True)
    assert report.ok
    assert len(report.tensors) > 10
    assert len(report.operators) > 10


def test_verification_of_signatures_that_do_not_join_compares_outputs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """If no graph can be joined again, only the outputs are compared."""
    data = build_decoder(prefills=PREFILLS)
    model = convert_bundle(make_bundle(data), "out", lengths="joined")["prefill"].model
    monkeypatch.setattr("tflite2onnx.verification.onnx_model.join_lengths", lambda _: [])
    report = verify(data, model)
    assert report.ok
    assert not report.tensors


def test_inputs_have_the_name_of_no_single_signature() -> None:
    """Inputs and outputs have the name of no single signature."""
    data = build_decoder(prefills=PREFILLS)
    for names, expected in (("tensor", "prefill_tokens"), ("signature", "tokens")):
        results = convert_bundle(make_bundle(data), "out", lengths="joined", names=names)
        assert results["prefill"].inputs[0].name == expected


def test_joined_lengths_are_refused_for_one_signature() -> None:
    with pytest.raises(OptionError, match="`lengths` must be auto or each for one signature"):
        convert(build_decoder(), lengths="joined", signature="decode")
    with pytest.raises(OptionError, match="`lengths` joined must be given without"):
        convert(build_decoder(), lengths="joined", static=True)


def _build(*forms: Mapping[str, Any]) -> bytes:
    """Return a model with a signature for each form."""
    m = Build()
    for index, form in enumerate(forms):
        g = m if index == 0 else m.subgraph("other")
        count, width = form["count"], form.get("width", 4)
        x = g.input([count, width], name=f"x{index}")
        words: Any = {"dtype": form.get("dtype", "float32")}
        wide = g.input([form.get("other", 2), 2], name=f"w{index}", **words)
        begin = g.constant(np.array([form.get("begin", 0), 0], np.int32))
        size = g.constant(np.array([form.get("size", count), 2], np.int32))
        (part,) = g.op("SLICE", [x, begin, size], [[form.get("size", count), 2]])
        added = g.constant(np.array(form.get("added", [[1]]), np.float32))
        second = part if form.get("twice") else added
        (y,) = g.op(form.get("code", "ADD"), [part, second], [[form.get("size", count), 2]])
        (z,) = g.op("RELU", [wide], [g.tensor([form.get("other", 2), 2], **words)])
        if form.get("more"):
            (y,) = g.op("RELU", [y], [[count, 2]])
        if form.get("swapped"):
            y, z = z, y
        g.output(y, z)
        named = {"y": part if form.get("inner") else y, "z": z}
        m.signature(f"f_{form.get('key', count)}", {"x": x, form.get("name", "w"): wide}, named)
    return m.bytes()


@pytest.mark.parametrize(
    ("second", "reason"),
    [
        ({"count": 5}, ""),
        ({"count": 5, "added": [[2]]}, "must be equal in all signatures, but for one length"),
        ({"count": 5, "added": [[1, 2]]}, "must be equal in all signatures, but for one length"),
        ({"count": 5, "code": "MUL"}, "must be the same operator"),
        ({"count": 5, "more": True}, "must have as many operators"),
        ({"count": 5, "twice": True}, "must read the same tensors"),
        ({"count": 5, "swapped": True}, "must have the same outputs"),
        ({"count": 5, "inner": True}, "f_5 must name inputs and outputs"),
        ({"count": 5, "dtype": "int32"}, "w0 must have the same type"),
        ({"count": 5, "size": 4}, "but for one length"),
        ({"count": 5, "name": "v"}, "must have the same inputs and outputs"),
        ({"count": 5, "other": 3}, "the inputs must differ in one length"),
        ({"count": 5, "width": 6, "key": 9}, "the inputs must differ in one length"),
    ],
)
def test_signatures_that_differ_in_more_than_a_length_are_not_joined(
    second: Mapping[str, Any], reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    joined = join_lengths(read_model(_build({"count": 3}, second)))
    assert len(joined) == (not reason)
    assert reason in caplog.text
    assert bool(caplog.text) == bool(reason)

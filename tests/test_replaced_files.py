"""Conversions into a folder of other conversions: what these mean stays, or the user is told."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnxruntime
import pytest

from tests.support import Build
from tests.support.litertlm import model_part, pack_litertlm
from tests.test_bundle import archive
from tflite2onnx import convert, convert_bundle
from tflite2onnx.cli import main
from tflite2onnx.errors import OutputError

if TYPE_CHECKING:
    from collections.abc import Mapping

Array = np.ndarray[Any, Any]


def build(seed: int, name: str = "y") -> bytes:
    """Return a layer with random weights."""
    m = Build()
    x = m.input([1, 64], name=f"{name}_x")
    weights = np.random.default_rng(seed).standard_normal((64, 64)).astype(np.float32)
    w = m.constant(weights, name=f"{name}_w")
    (y,) = m.op("FULLY_CONNECTED", [x, w, None], [m.tensor([1, 64], name=name)])
    m.output(y)
    m.signature("first", {"x": x}, {"y": y})
    other = m.subgraph("other")
    x = other.input([1, 64], name=f"{name}_x2")
    w = other.constant(weights, name=f"{name}_w2")
    (y,) = other.op("FULLY_CONNECTED", [x, w, None], [other.tensor([1, 64], name=f"{name}2")])
    other.output(y)
    m.signature("second", {"x": x}, {"y": y})
    return m.bytes()


def run_all() -> dict[str, Array]:
    """Return the output of each ONNX file of the folder `out`."""
    outputs = {}
    for path in sorted(Path("out").rglob("*.onnx")):
        session = onnxruntime.InferenceSession(path)
        (x,) = session.get_inputs()
        (outputs[path.name],) = session.run(None, {x.name: np.ones((1, 64), np.float32)})
    return outputs


def read_manifests() -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(Path("out").glob("*manifest.json"))}


def expect_unchanged(before: Mapping[str, Any], after: Mapping[str, Any]) -> None:
    assert before.keys() <= after.keys()
    for name, value in before.items():
        np.testing.assert_array_equal(value, after[name])


@pytest.fixture(autouse=True)
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Write bundles `one` and `two` without a file in common, and models, to the directory."""
    monkeypatch.chdir(tmp_path)
    for seed, name in enumerate(("one", "two")):
        model = build(seed, name)
        Path(f"{name}.task").write_bytes(archive({f"{name}.tflite": model}))
        Path(f"{name}.tflite").write_bytes(model)


def test_two_bundles_share_a_folder(capsys: pytest.CaptureFixture[str]) -> None:
    """README sends two bundles into one folder; each may be converted again."""
    assert main(["one.task", "out"]) == 0
    outputs, manifests = run_all(), read_manifests()
    assert main(["two.task", "out"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == (
        "wrote 2 models and two.manifest.json to out"
    )
    expect_unchanged(outputs, run_all())
    expect_unchanged(manifests, read_manifests())
    assert {path.name for path in Path("out").iterdir()} == {
        "manifest.json", "weights.data", "two.manifest.json", "two.weights.data",
        "one_first.onnx", "one_second.onnx", "two_first.onnx", "two_second.onnx",
    }  # fmt: skip
    before = {path: path.read_bytes() for path in Path("out").iterdir()}
    for name in ("one", "two", "one"):
        assert main([f"{name}.task", "out"]) == 0
    assert {path: path.read_bytes() for path in Path("out").iterdir()} == before
    assert capsys.readouterr().err == ""
    for name in ("one", "two"):
        assert main(["verify", f"{name}.task", "out"]) == 0


def test_the_bundles_of_the_readme_share_a_folder() -> None:
    """The commands of README run, with small bundles under its names."""
    text = Path(__file__).parents[1].joinpath("README.md").read_text()
    commands = re.findall(r"^tflite2onnx (\S+\.(?:task|litertlm)) (\S+)", text, re.MULTILINE)
    assert len({folder for _, folder in commands}) == 1 < len(commands)
    for seed, (name, _) in enumerate(commands):
        data = archive({"a.tflite": build(seed)}) if name.endswith(".task") else None
        Path(name).write_bytes(data or pack_litertlm([model_part(build(seed))]))
    made: dict[str, Array] = {}
    for name, _ in commands:
        assert main([name, "out"]) == 0
        outputs = run_all()
        expect_unchanged(made, outputs)
        assert len(outputs) > len(made)
        made = outputs
    for name, _ in commands:
        assert main(["verify", name, "out"]) == 0


def test_a_bundle_without_a_name_is_refused_in_the_folder_of_another() -> None:
    convert_bundle("one.task", "out")
    before = {path: path.read_bytes() for path in Path("out").iterdir()}
    with pytest.raises(OutputError, match=r"manifest\.json is that of another conversion"):
        convert_bundle(Path("two.task").read_bytes(), "out")
    assert {path: path.read_bytes() for path in Path("out").iterdir()} == before


def test_a_part_of_the_same_source_keeps_the_other_files() -> None:
    """The manifest and the weights of files that stay are those of before."""
    assert main(["one.task", "out"]) == 0
    outputs = run_all()
    Path("out/one_first.onnx").rename("out/kept.onnx")
    assert main(["one.task", "out", "--quantization", "float", "--external-data", "0"]) == 1
    Path("out/kept.onnx").rename("out/one_first.onnx")
    assert main(["one.task", "out", "--signature", "first"]) == 0
    expect_unchanged(outputs, run_all())
    (manifest,) = read_manifests().values()
    files = [model["file"] for model in json.loads(manifest)["models"]]
    assert sorted(files) == ["one.onnx", "one_first.onnx", "one_second.onnx"]


def test_a_part_of_another_bundle_is_not_replaced(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["one.task", "out"]) == 0
    outputs, manifests = run_all(), read_manifests()
    Path("new.task").write_bytes(archive({"one.tflite": build(7, "one"), "a": build(8, "a")}))
    assert main(["new.task", "out", "--signature", "first"]) == 0  # writes one.onnx
    expect_unchanged(outputs, run_all())
    assert main(["one.tflite", "out/one_first.onnx"]) == 1
    assert "manifest.json lists it with the files of another conversion" in capsys.readouterr().err
    Path("half.task").write_bytes(archive({"one_first.tflite": build(7)}))
    assert main(["half.task", "out", "--signature", "first"]) == 1
    error = capsys.readouterr().err
    assert "manifest.json lists one_first.onnx with the files of another conversion" in error
    expect_unchanged(outputs, run_all())
    expect_unchanged(manifests, read_manifests())


def test_all_files_of_another_bundle_are_replaced_with_a_warning(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["one.task", "out"]) == 0
    Path("one.task").write_bytes(archive({"one.tflite": build(7, "one")}))
    assert main(["one.task", "out"]) == 0
    assert list(read_manifests()) == ["manifest.json"]
    error = capsys.readouterr().err
    assert "manifest.json is replaced: it is not that of this model or bundle" in error


def test_signatures_of_two_models_are_not_mixed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["one.tflite", "-o", "out", "--signature", "all"]) == 0
    outputs = run_all()
    Path("two.task").write_bytes(archive({"first.tflite": build(3, "b")}))
    assert main(["two.task", "out", "--signature", "first"]) == 1
    assert "lists first.onnx with the files of another" in capsys.readouterr().err
    expect_unchanged(outputs, run_all())


def test_weights_that_another_file_reads_are_not_replaced(
    caplog: pytest.LogCaptureFixture,
) -> None:
    Path("out").mkdir()
    convert("one.tflite", "out/one.onnx", external_data=0)
    Path("out/copy.onnx").write_bytes(Path("out/one.onnx").read_bytes())
    outputs = run_all()
    with pytest.raises(OutputError, match=r"copy\.onnx reads its weights from one\.onnx\.data"):
        convert("two.tflite", "out/one.onnx", external_data=0)
    with pytest.raises(OutputError, match=r"copy\.onnx reads its weights from one\.onnx\.data"):
        convert("two.tflite", "out/one.onnx.data")
    assert main(["two.tflite", "out/new.onnx", "--report", "out/one.onnx.data", "-q"]) == 1
    expect_unchanged(outputs, run_all())
    Path("out/copy.onnx").unlink()
    Path("out/one.onnx").unlink()
    convert("two.tflite", "out/one.onnx", external_data=0)
    assert "one.onnx.data is replaced: no ONNX file beside it reads it" in caplog.text


def test_files_that_are_no_manifests_are_replaced_with_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    Path("out").mkdir()
    for content in (b"old", b"[]", b'{"models": [], "name": "a web page"}'):
        Path("out/manifest.json").write_bytes(content)
        convert_bundle("one.task", "out")
        assert "manifest.json is replaced" in caplog.text
        caplog.clear()

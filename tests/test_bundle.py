"""Bundles: all models are converted or none, and malicious archives are refused."""

from __future__ import annotations

import io
import json
import mmap
import tracemalloc
import zipfile
from typing import TYPE_CHECKING

import numpy as np
import onnx
import onnxruntime
import pytest

import tflite2onnx
from tests.golden.records import ASSETS
from tests.support import Build
from tests.support.small import chain, network
from tests.support.task import METADATA
from tflite2onnx import bundle as module
from tflite2onnx.bundle import convert_bundle, is_bundle, read_bundle
from tflite2onnx.cli import main
from tflite2onnx.errors import BundleError, ConversionError, LayoutError, OutputError, VerifyError
from tflite2onnx.reader.containers import bundle as containers

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tflite2onnx.verification import Report

    Captured = pytest.CaptureFixture[str]


def archive(files: Mapping[str, bytes], method: int = zipfile.ZIP_STORED) -> bytes:
    """Return a zip archive."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", method) as out:
        for name, data in files.items():
            out.writestr(name, data)
    return made.getvalue()


def build_wrong_size_archive(size: int) -> bytes:
    """Return an archive of a file of zeros with a declared size of 100 bytes."""
    made, piece = io.BytesIO(), bytes(1 << 20)
    with (
        zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as out,
        out.open("zeros", "w") as file,
    ):
        for _ in range(0, size, len(piece)):
            file.write(piece)
    return made.getvalue().replace(size.to_bytes(4, "little"), (100).to_bytes(4, "little"))


def unknown() -> bytes:
    """Return a model with an unknown custom operator."""
    m = Build()
    m.output(*m.custom("mystery", [m.input([2, 3])], [[2, 3]]))
    return m.bytes()


MODEL = (ASSETS / "keywords_int8.tflite").read_bytes()
FILES = {
    "detector.tflite": MODEL,
    "landmarks.task": archive({"points.tflite": MODEL, "LICENCE": b"free"}),
    "TF_LITE_PREFILL": MODEL,
    "geometry.binarypb": b"xx",
}


@pytest.fixture
def task(tmp_path: Path) -> Path:
    """Write a bundle that contains another bundle."""
    path = tmp_path / "face.task"
    path.write_bytes(archive(FILES))
    return path


def test_models_are_recognized_by_their_content() -> None:
    found = read_bundle(archive(FILES, zipfile.ZIP_DEFLATED))
    assert list(found.models) == [
        "detector.tflite",
        "landmarks.task/points.tflite",
        "TF_LITE_PREFILL",
    ]
    assert found.others == ("landmarks.task/LICENCE", "geometry.binarypb")


def test_every_model_is_converted(task: Path, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    results = convert_bundle(task, folder, io_layout="tflite")
    assert list(results) == list(read_bundle(task).models)
    made = {str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file()}
    assert made == {
        "detector.onnx",
        "landmarks/points.onnx",
        "TF_LITE_PREFILL.onnx",
        "manifest.json",
        "weights.data",
    }
    want = tflite2onnx.convert(MODEL, io_layout="tflite").model
    assert onnx.load(folder / "landmarks/points.onnx") == want
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["other_files"] == ["landmarks.task/LICENCE", "geometry.binarypb"]
    (first, *_) = manifest["models"]
    assert (first["name"], first["file"]) == ("detector.tflite", "detector.onnx")
    assert first["inputs"][0]["onnx_shape"] == list(results["detector.tflite"].inputs[0].onnx_shape)


def test_equal_weights_are_stored_once(tmp_path: Path) -> None:
    """Models of one folder share a file of weights."""
    data = network()
    convert_bundle(archive({"a": data, "b": data, "in.task/c": data}), tmp_path / "out")
    alone = tflite2onnx.convert(data)
    stored = sum(weight.nbytes for _, weight in alone.skeleton.weights)
    size = (tmp_path / "out" / "weights.data").stat().st_size
    assert stored <= size < stored + 64 * len(alone.skeleton.weights)
    assert not (tmp_path / "out" / "in" / "weights.data").exists()
    results = []
    for name in ("a.onnx", "b.onnx", "in/c.onnx"):
        session = onnxruntime.InferenceSession(tmp_path / "out" / name)
        feeds = {each.name: np.ones(each.shape, np.float32) for each in session.get_inputs()}
        results.append(session.run(None, feeds)[0])
    np.testing.assert_array_equal(results[0], results[1])
    np.testing.assert_array_equal(results[0], results[2])


def test_stored_files_are_not_copied(tmp_path: Path) -> None:
    """A stored file of an archive is read in place; a wrong checksum is found."""
    path = tmp_path / "a.task"
    path.write_bytes(archive({"a": MODEL}))
    assert isinstance(read_bundle(path).models["a"].data.obj, mmap.mmap)
    data = bytearray(path.read_bytes())
    data[data.index(b"TFL3") + 100] ^= 1
    with pytest.raises(BundleError, match="Bad CRC-32 for file 'a'"):
        read_bundle(bytes(data))


def test_one_bad_model_prevents_all_output(tmp_path: Path) -> None:
    data = archive({"good.tflite": MODEL, "bad.tflite": unknown(), "worse.tflite": unknown()})
    with pytest.raises(BundleError, match=r"bad\.tflite: 1 operator.*\n.*\nworse\.tflite"):
        convert_bundle(data, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_unwritable_folder_is_refused(task: Path, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    (folder / "manifest.json").mkdir(parents=True)
    with pytest.raises(OutputError, match="cannot write to"):
        convert_bundle(task, folder)
    assert [p.name for p in folder.rglob("*")] == ["manifest.json"]


@pytest.mark.parametrize("name", ["b.onnx", "weights.data"])
def test_failed_bundle_leaves_existing_files_unchanged(tmp_path: Path, name: str) -> None:
    """After an error existing files are unchanged, and new folders are removed."""
    folder = tmp_path / "out"
    folder.mkdir()
    for old in ("a.onnx", "manifest.json"):
        (folder / old).write_bytes(b"old")
    (folder / name).mkdir()
    data = archive({"in.task/x": MODEL, "a": MODEL, "b": MODEL})
    with pytest.raises(OutputError, match="Is a directory"):
        convert_bundle(data, folder)
    assert {p.name for p in folder.rglob("*")} == {"a.onnx", "manifest.json", name}
    assert (folder / "a.onnx").read_bytes() == (folder / "manifest.json").read_bytes() == b"old"


def test_file_in_place_of_a_folder_is_refused(tmp_path: Path) -> None:
    data = archive({"a": MODEL, "a.onnx/b": MODEL})
    with pytest.raises(OutputError, match="cannot write to"):
        convert_bundle(data, tmp_path / "some" / "where")
    assert not list(tmp_path.iterdir())


def test_links_that_leave_the_folder_are_not_followed(tmp_path: Path) -> None:
    """Symbolic links out of the output folder are not followed, neither of files nor of folders."""
    folder, elsewhere = tmp_path / "out", tmp_path / "elsewhere"
    folder.mkdir()
    elsewhere.mkdir()
    (elsewhere / "a.onnx").write_bytes(b"old")
    (tmp_path / "link").symlink_to(folder)
    for name, to in (("a.onnx", "../elsewhere/a.onnx"), ("in", "../elsewhere"), ("loop", "loop")):
        link = folder / name
        link.symlink_to(to)
        data = archive({f"{name.removesuffix('.onnx')}": MODEL, f"{name}.task/a": MODEL})
        with pytest.raises(OutputError, match="symbolic link"):
            convert_bundle(data, tmp_path / "link")
        link.unlink()
        assert not list(folder.iterdir())
    assert [p.read_bytes() for p in elsewhere.iterdir()] == [b"old"]
    (folder / "a.onnx").symlink_to("b.onnx")
    convert_bundle(archive({"a": MODEL}), tmp_path / "link")
    assert {p.name for p in folder.iterdir()} == {"a.onnx", "b.onnx", "manifest.json"}


def test_a_single_model_is_no_bundle() -> None:
    with pytest.raises(BundleError, match="got a single TFLite model: use `convert`"):
        convert_bundle(MODEL, "out")


def test_colliding_output_names_are_refused() -> None:
    with pytest.raises(BundleError, match=r"different output files, got a\.onnx twice"):
        convert_bundle(archive({"a.tflite": MODEL, "a": MODEL}), "unused")


@pytest.mark.parametrize("name", ["/etc/x.tflite", "../x.tflite", "a/../../x", "C:\\x.tflite"])
def test_names_that_leave_the_folder_are_refused(name: str) -> None:
    with pytest.raises(BundleError, match="must be inside the bundle"):
        read_bundle(archive({name: MODEL}))


def rename_member(old: bytes, new: bytes) -> bytes:
    """Return a bundle with a member name that zipfile would not write."""
    return archive({old.decode(): MODEL}).replace(old, new)


@pytest.mark.parametrize("name", [b"\0.tflite", b"\0" * 8, b"../mmmmm", b"./././..", b"..\0....."])
def test_invalid_member_names_are_refused(name: bytes) -> None:
    """Member names that are empty, that leave the bundle, or that contain NUL are refused."""
    with pytest.raises(BundleError, match="must be inside the bundle"):
        read_bundle(rename_member(b"x.tflite", name))


def test_duplicate_member_names_are_refused() -> None:
    data = archive({"one": MODEL, "two": MODEL}).replace(b"two", b"one")
    with pytest.raises(BundleError, match="must be unique, got 'one' twice"):
        read_bundle(data)


def nest_bundle(levels: int) -> bytes:
    data = archive({"model.tflite": MODEL})
    for _ in range(levels):
        data = archive({"inner.task": data})
    return data


def test_bundles_nested_too_deep_are_refused() -> None:
    assert len(read_bundle(nest_bundle(3)).models) == 1
    with pytest.raises(BundleError, match="nested at most 4 deep"):
        read_bundle(nest_bundle(4))


def test_bundle_that_would_fill_the_memory_is_refused() -> None:
    data = archive({"zeros": bytes(containers._LIMIT.more + (1 << 22))}, zipfile.ZIP_DEFLATED)  # noqa: SLF001 - the limit itself
    with pytest.raises(BundleError, match=r"it must have at most .* files and"):
        read_bundle(data)


def test_sizes_of_nested_bundles_are_limited_together() -> None:
    """The sizes of nested bundles are limited together, not only each alone."""
    zeros = archive({"zeros": bytes(containers._LIMIT.more // 4)}, zipfile.ZIP_DEFLATED)  # noqa: SLF001 - the limit itself
    assert len(read_bundle(archive({"one": zeros, "model": MODEL})).models) == 1
    many = {f"{i}.task": zeros for i in range(40)}
    with pytest.raises(BundleError, match=r"it must have at most .* files and"):
        read_bundle(archive(many, zipfile.ZIP_DEFLATED))


def test_members_are_read_up_to_their_declared_size() -> None:
    """Members are decompressed up to their declared size only."""
    size = 1 << 28
    data = build_wrong_size_archive(size)
    tracemalloc.start()
    try:
        with pytest.raises(BundleError, match="CRC"):
            read_bundle(data)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(data) < size >> 7
    assert most < 4 * len(data)


def test_lzma_compression_is_refused() -> None:
    with pytest.raises(BundleError, match="got compression method 14"):
        read_bundle(archive({"model": MODEL}, zipfile.ZIP_LZMA))


def test_damaged_bundles_are_refused(task: Path) -> None:
    data = task.read_bytes()
    for broken in (b"", data[:1000], data.replace(b"TFL3", b"TFL4", 1), b"PK\x03\x04 no archive"):
        with pytest.raises(BundleError):
            read_bundle(broken)


def test_bundle_without_a_model_is_refused() -> None:
    with pytest.raises(BundleError, match="must have a TFLite model"):
        read_bundle(archive({"readme": b"nothing here"}))


def test_models_and_folders_are_not_bundles(tmp_path: Path) -> None:
    assert not is_bundle(ASSETS / "keywords_int8.tflite")
    assert not is_bundle(tmp_path)
    assert not is_bundle("no\0file")
    with pytest.raises(BundleError, match="cannot read"):
        read_bundle(tmp_path / "missing.task")
    with pytest.raises(ConversionError, match="convert_bundle"):
        tflite2onnx.convert(archive(FILES))


# The command line


def test_command_converts_all_models_of_a_bundle(task: Path, capsys: Captured) -> None:
    assert main([str(task)]) == 0
    said = capsys.readouterr().out
    assert "landmarks.task/points.tflite:" in said
    assert f"wrote 3 models and manifest.json to {task.with_suffix('')}" in said
    assert (task.with_suffix("") / "detector.onnx").exists()


def test_command_verifies_all_models_of_a_bundle(
    task: Path, tmp_path: Path, capsys: Captured
) -> None:
    assert main([str(task), str(tmp_path / "out"), "--verify"]) == 0
    assert capsys.readouterr().out.count("PASSED") == 3


def test_what_cannot_be_verified_is_not_written(
    task: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    def fails(*_: object, **__: object) -> Report:
        raise VerifyError("LiteRT cannot run the model")

    monkeypatch.setattr("tflite2onnx.verification.verify", fails)
    assert main([str(task), str(tmp_path / "out"), "--verify"]) == 1
    assert "LiteRT cannot run the model" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_verify_of_a_bundle_finds_wrong_conversions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    path = tmp_path / "one.task"
    path.write_bytes(archive({"chain.tflite": chain()}))

    def convert_wrongly(*_: object) -> tflite2onnx.Result:
        return tflite2onnx.convert(chain("NEG"))

    monkeypatch.setattr(module, "convert_read_model", convert_wrongly)
    assert main(["-q", str(path), str(tmp_path / "out"), "--verify"]) == 2
    said = capsys.readouterr()
    assert "chain.tflite: output" in said.err
    assert not said.out


def test_each_model_of_a_bundle_is_verified(task: Path, tmp_path: Path, capsys: Captured) -> None:
    """Each model is verified against its file, or converted first; the output names each model."""
    folder = tmp_path / "out"
    convert_bundle(task, folder)
    for words in ([str(folder)], []):
        assert main(["verify", str(task), *words]) == 0
        said = capsys.readouterr()
        assert said.out.count(" right, 0 differ, 0 wrong") == 3
        assert "landmarks.task/points.tflite:\n" in said.out
        assert not said.err
    (folder / "landmarks" / "points.onnx").unlink()
    assert main(["verify", "-q", str(task), str(folder)]) == 1
    assert "landmarks.task/points.tflite: cannot read" in capsys.readouterr().err
    assert main(["verify", str(task), "--input", "x=x.npy"]) == 1
    assert "--input must be given for one model, got a bundle" in capsys.readouterr().err


def test_layout_mapping_is_refused_for_a_bundle(
    task: Path, tmp_path: Path, capsys: Captured
) -> None:
    mapping = tmp_path / "layouts.json"
    mapping.write_text("{}")
    assert main([str(task), "--layout", str(mapping)]) == 1
    assert "bundle" in capsys.readouterr().err
    assert issubclass(LayoutError, ConversionError)


@pytest.mark.parametrize(
    ("metadata", "told"),
    [(b"\xff\xff\xff", True), (METADATA[:-1], True), (METADATA, False), (b"", False)],
    ids=["damaged", "truncated", "right", "empty"],
)
def test_damaged_metadata_of_a_bundle_are_reported(
    tmp_path: Path, capsys: Captured, metadata: bytes, *, told: bool
) -> None:
    """The models are converted, and the file is passed on."""
    files = {"TF_LITE_PREFILL_DECODE": chain("ABS"), "METADATA": metadata}
    (tmp_path / "x.task").write_bytes(archive(files))
    commands = (
        [str(tmp_path / "x.task"), str(tmp_path / "out")],
        ["inspect", str(tmp_path / "x.task")],
    )
    for words in commands:
        assert main(words) == 0
        message = (
            "warning: the file METADATA of the bundle is ignored: it is damaged, or no metadata"
        )
        assert (message in capsys.readouterr().err) == told
    assert (tmp_path / "out/METADATA").read_bytes() == metadata

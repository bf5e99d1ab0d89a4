"""reader/metadata.py: the authors' metadata, and damaged metadata."""

from __future__ import annotations

import io
import json
import tracemalloc
import zipfile
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from tests.support import Build
from tests.support.metadata import pack_metadata
from tests.support.small import chain
from tests.test_bundle import build_wrong_size_archive
from tflite2onnx import convert
from tflite2onnx.cli import main
from tflite2onnx.errors import ModelFileError
from tflite2onnx.graph import Model
from tflite2onnx.inspection import inspect
from tflite2onnx.reader import metadata
from tflite2onnx.reader.metadata import (
    AssociatedFile,
    describe_model,
    list_packed_files,
    read_model_metadata,
)
from tflite2onnx.reader.model import read_model

if TYPE_CHECKING:
    from pathlib import Path

LABELS = {"name": "labels.txt", "description": "of flowers", "type": 2, "locale": "en"}
IMAGE: dict[str, Any] = {
    "name": "image",
    "description": "a flower",
    "content": {"content_properties": ("ImageProperties", {"color_space": 1})},
    "process_units": [
        {"options": ("NormalizationOptions", {"mean": [1, 2, 3], "std": [4]})},
    ],
    "stats": {"min": [-1.5], "max": [2.5]},
}
SOUND: dict[str, Any] = {
    "content": {"content_properties": ("AudioProperties", {"sample_rate": 16000, "channels": 2})},
}
TEXT: dict[str, Any] = {
    "content": {"content_properties": ("FeatureProperties", {})},
    "process_units": [
        {
            "options": (
                "SentencePieceTokenizerOptions",
                {"sentencepiece_model": [{"name": "a"}], "vocab_file": [{"name": "b"}]},
            )
        },
        {"options": ("RegexTokenizerOptions", {"vocab_file": [{"name": "c"}]})},
    ],
}
SCORES: dict[str, Any] = {
    "name": "scores",
    "process_units": [
        {"options": ("ScoreThresholdingOptions", {"global_score_threshold": 0.25})},
        {
            "options": (
                "ScoreCalibrationOptions",
                {"score_transformation": 2, "default_score": 0.5},
            )
        },
        {},
    ],
    "associated_files": [LABELS],
}
WHOLE: dict[str, Any] = {
    "name": "Flowers",
    "description": "tells them apart",
    "version": "v1",
    "author": "Linné",
    "license": "Apache-2.0",
    "subgraph_metadata": [
        {
            "input_tensor_metadata": [IMAGE, SOUND, TEXT],
            "output_tensor_metadata": [SCORES],
            "associated_files": [{"name": "read.me", "type": 1}],
            "input_process_units": [
                {"options": ("BertTokenizerOptions", {"vocab_file": [{"name": "d"}]})}
            ],
        },
        {"input_tensor_metadata": [IMAGE]},
    ],
    "associated_files": [{"name": "later", "type": 77}],
    "min_parser_version": "1.5.0",
}


def with_metadata(raw: bytes) -> Model:
    """Return a model with metadata."""
    return read_model(chain("ABS"))._replace(metadata={"TFLITE_METADATA": raw})


def test_all_fields_are_read() -> None:
    """All fields of the model and of its main sub-graph are read."""
    found = read_model_metadata(with_metadata(pack_metadata(WHOLE)))
    assert found is not None
    assert (found.name, found.description, found.version) == ("Flowers", "tells them apart", "v1")
    assert (found.author, found.license) == ("Linné", "Apache-2.0")
    image, sound, text = found.inputs
    assert (image.name, image.description) == ("image", "a flower")
    assert (image.content, image.color_space) == ("image", "RGB")
    assert (image.mean, image.std) == ((1, 2, 3), (4,))
    assert (image.minimum, image.maximum) == ((-1.5,), (2.5,))
    assert (image.threshold, image.calibration, image.files) == (None, None, ())
    assert (sound.content, sound.sample_rate, sound.channels) == ("audio", 16000, 2)
    assert (text.content, [f.name for f in text.files]) == ("feature", ["a", "b", "c"])
    (scores,) = found.outputs
    assert (scores.content, scores.mean) == ("", ())
    assert (scores.threshold, scores.calibration) == (0.25, ("INVERSE_LOGISTIC", 0.5))
    assert scores.files == (AssociatedFile("labels.txt", "of flowers", "TENSOR_AXIS_LABELS", "en"),)
    kinds = {file.name: file.kind for file in found.files}
    assert kinds == {"later": "77", "read.me": "DESCRIPTIONS", "d": "UNKNOWN"}


def test_absent_metadata_and_fields_are_empty() -> None:
    """Models without metadata, and absent fields."""
    assert read_model_metadata(read_model(chain("ABS"))) is None
    found = read_model_metadata(with_metadata(pack_metadata({})))
    assert found is not None
    assert (found.name, found.inputs, found.files) == ("", (), ())
    found = read_model_metadata(
        with_metadata(pack_metadata({"subgraph_metadata": [{"input_tensor_metadata": [{}]}]}))
    )
    assert found is not None
    (bare,) = found.inputs
    assert (bare.name, bare.content, bare.minimum) == ("", "", ())


def test_refuses_metadata_with_another_identifier() -> None:
    """A buffer with another identifier is not metadata."""
    raw = pack_metadata(WHOLE).replace(b"M001", b"M999")
    with pytest.raises(ModelFileError, match=r"metadata .* damaged .*identifier"):
        read_model_metadata(with_metadata(raw))


@pytest.mark.parametrize("size", range(8, len(pack_metadata(WHOLE)), 7))
def test_truncated_metadata_are_read_or_refused(size: int) -> None:
    """Truncated metadata is an error, or the remaining fields are read."""
    read_damaged(pack_metadata(WHOLE)[:size])


def read_damaged(raw: bytes) -> None:
    """Read possibly damaged metadata: the result is metadata or a ModelFileError."""
    try:
        read_model_metadata(with_metadata(raw))
    except ModelFileError as error:
        assert "metadata of the TFLite model" in str(error)  # noqa: PT017 - either may be


@settings(max_examples=300)
@given(st.lists(st.tuples(st.integers(8, len(pack_metadata(WHOLE)) - 1), st.integers(0, 255))))
def test_damaged_metadata_are_read_or_refused(changes: list[tuple[int, int]]) -> None:
    """Damaged metadata is read or refused in a short time."""
    raw = bytearray(pack_metadata(WHOLE))
    for place, byte in changes:
        raw[place] = byte
    read_damaged(bytes(raw))


def test_refuses_too_many_repeated_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables that are listed repeatedly are limited."""
    monkeypatch.setattr(metadata, "_MOST_TABLES", 10)
    with pytest.raises(ModelFileError, match=r"must (have|take) at most"):
        read_model_metadata(with_metadata(pack_metadata(WHOLE)))


# Associated files


def test_refuses_too_many_bytes_of_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    """All texts together are limited, because a file may refer to one text repeatedly."""
    monkeypatch.setattr(metadata, "_MOST_BYTES", 99)
    assert read_model_metadata(with_metadata(pack_metadata({"name": "x" * 99})))
    for said in ({"name": "x" * 100}, {"name": "x" * 50, "author": "y" * 50}):
        with pytest.raises(ModelFileError, match=r"must (have|take) at most"):
            read_model_metadata(with_metadata(pack_metadata(said)))


def archive(**files: bytes) -> bytes:
    """Return a zip archive."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as target:
        target.writestr("folder/", b"")
        for name, data in files.items():
            target.writestr(name, data)
    return buffer.getvalue()


def test_files_after_the_model_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files appended to the model are read; large files are no labels."""
    data = chain("ABS") + archive(labels=b"rose\ntulip", vocab=b"x")
    (tmp_path / "model.tflite").write_bytes(data)
    want = {"labels": b"rose\ntulip", "vocab": b"x"}
    assert list_packed_files(data) == list_packed_files(tmp_path / "model.tflite") == want
    assert read_model(data).graphs
    assert list_packed_files(chain("ABS")) == {}
    with pytest.raises(ModelFileError, match="cannot read"):
        list_packed_files(tmp_path / "none.tflite")
    monkeypatch.setattr(metadata, "_MOST_BYTES", 5)
    with pytest.raises(ModelFileError, match=r"it must have at most .* files and"):
        list_packed_files(data)


def test_damaged_archive_is_ignored_or_refused() -> None:
    """A damaged archive is ignored, or is an error."""
    data = bytearray(archive(labels=bytes(np.arange(200, dtype=np.uint8)) * 9))
    for place in range(len(data)):
        damaged = data.copy()
        damaged[place] ^= 0xFF
        try:
            list_packed_files(bytes(damaged))
        except ModelFileError as error:
            assert "cannot be read" in str(error)  # noqa: PT017 - either may be


# The metadata of the ONNX model


def flowers(*, damaged: bool = False) -> bytes:
    """Return a model with metadata and with a file of labels."""
    m = Build()
    m.output(*m.op("ABS", [m.input([2, 3])], [[2, 3]]))
    raw = pack_metadata(WHOLE)
    m.metadata("TFLITE_METADATA", raw[: len(raw) // 2] if damaged else raw)
    return m.bytes() + archive(**{"labels.txt": b"rose\ntulip\n"})


def test_files_are_decompressed_up_to_their_declared_size() -> None:
    """Files are decompressed up to their declared size only."""
    data = chain("ABS") + build_wrong_size_archive(1 << 28)
    tracemalloc.start()
    try:
        assert list_packed_files(data) == {}
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 4 * len(data) < 1 << 24


def test_description_omits_absent_fields_and_includes_labels() -> None:
    """The metadata of the ONNX model omit absent fields, and include the labels."""
    data = flowers()
    said = describe_model(read_model(data), data)
    assert said["author"] == "Linné"
    assert [note.get("content", "") for note in said["inputs"]] == ["image", "audio", "feature"]
    assert "threshold" not in said["inputs"][0]
    (scores,) = said["outputs"]
    assert scores["files"][0]["labels"] == ["rose", "tulip"]
    assert describe_model(read_model(chain("ABS")), chain("ABS")) == {}


def test_metadata_are_in_the_onnx_model() -> None:
    model = convert(flowers()).model
    props = {p.key: p.value for p in model.metadata_props}
    said = json.loads(props["tflite2onnx.metadata"])
    assert said["inputs"][0]["mean"] == [1, 2, 3]
    assert said["outputs"][0]["calibration"] == ["INVERSE_LOGISTIC", 0.5]


def test_damaged_metadata_keep_no_model_from_being_converted_or_inspected(
    caplog: pytest.LogCaptureFixture,
) -> None:
    model = convert(flowers(damaged=True)).model
    assert "tflite2onnx.metadata" not in {p.key for p in model.metadata_props}
    assert "truncated or damaged" in caplog.text
    caplog.clear()
    assert inspect(flowers(damaged=True)).metadata == {}
    assert "truncated or damaged" in caplog.text


def test_inspect_prints_the_metadata(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "flowers.tflite"
    path.write_bytes(flowers())
    assert main(["inspect", str(path)]) == 0
    said = capsys.readouterr().out
    assert "author       Linné" in said
    assert "input        image, image, RGB, mean 1 2 3, std 4, minimum -1.5, maximum 2.5" in said
    assert "output       scores, threshold 0.25, labels.txt with 2 labels" in said


def test_refuses_too_many_bytes_of_labels(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sizes of all label files together are limited."""
    monkeypatch.setattr(metadata, "_MOST_BYTES", 1500)
    twice = {"output_tensor_metadata": [{"associated_files": [LABELS]}] * 2}
    m = Build()
    m.output(*m.op("ABS", [m.input([2, 3])], [[2, 3]]))
    m.metadata("TFLITE_METADATA", pack_metadata({"subgraph_metadata": [twice]}))
    data = m.bytes() + archive(**{"labels.txt": b"rose\n" * 200})
    with pytest.raises(ModelFileError, match=r"label files .* must not exceed"):
        describe_model(read_model(data), data)

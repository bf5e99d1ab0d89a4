"""External data: weights in a second file, by the command line and in Python."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

import tflite2onnx
from tests.support import run_onnx
from tests.support.small import network
from tests.test_bundle import archive
from tflite2onnx import convert, convert_bundle, writer
from tflite2onnx.cli import main
from tflite2onnx.errors import OutputError

Captured = pytest.CaptureFixture[str]
# In `network` the weights "hidden/filters" have 1296 bytes, "y/filters" 5616 bytes.
FIRST, SECOND = 1296, 5616


@pytest.fixture(autouse=True)
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Write a model to the current directory."""
    monkeypatch.chdir(tmp_path)
    Path("model.tflite").write_bytes(network())


def external(path: str = "model.onnx") -> list[int]:
    """Return the sizes of the weights that are in the second file."""
    model = onnx.load(path, load_external_data=False)
    lengths = [
        int(entry.value)
        for each in model.graph.initializer for entry in each.external_data
        if entry.key == "length"
    ]  # fmt: skip
    return sorted(lengths)


@pytest.mark.parametrize(
    ("words", "want"),
    [
        ([], []),
        (["--external-data"], [FIRST, SECOND]),
        (["--external-data-size", "0"], [FIRST, SECOND]),
        (["--external-data-size", f"{FIRST}"], [FIRST, SECOND]),
        (["--external-data-size", f"{FIRST + 1}"], [SECOND]),
        (["--external-data", "--external-data-size", "2k"], [SECOND]),
        (["--external-data-size", f"{SECOND + 1}"], []),
        (["--external-data-size=1G"], []),
    ],
)
def test_weights_of_at_least_the_size_are_external(
    capsys: Captured, words: list[str], want: list[int]
) -> None:
    """Weights of at least the given size are external; without any, there is no second file."""
    assert main(["model.tflite", *words]) == 0
    assert external() == want
    data = Path("model.onnx.data")
    assert data.exists() == bool(want)
    size = Path("model.onnx").stat().st_size + (data.stat().st_size if want else 0)
    files = "model.onnx and model.onnx.data" if want else "model.onnx"
    assert f"wrote {files}, {size:,} bytes" in capsys.readouterr().out
    x = np.linspace(-1, 1, 210, dtype=np.float32).reshape(2, 3, 5, 7)
    made, whole = onnx.load("model.onnx"), convert("model.tflite").model
    np.testing.assert_array_equal(run_onnx(made, {"x": x})[0], run_onnx(whole, {"x": x})[0])


def test_python_functions_write_external_data() -> None:
    """`convert`, `save` and `convert_bundle` have the option `external_data`."""
    convert("model.tflite", "a.onnx", external_data=1024)
    assert external("a.onnx") == [FIRST, SECOND]
    convert("model.tflite").save("b.onnx", external_data=2000)
    assert external("b.onnx") == [SECOND]
    convert_bundle(archive({"m.tflite": network()}), "bundle", external_data=2000)
    assert external("bundle/m.onnx") == [SECOND]


def test_each_model_has_its_own_second_file() -> None:
    """Each model of a bundle or folder has its own second file."""
    Path("models.task").write_bytes(archive({"m.tflite": network()}))
    assert main(["-q", ".", "-o", "out", "--external-data"]) == 0
    assert external("out/models/m.onnx") == external("out/model.onnx") == [FIRST, SECOND]


def test_model_with_external_data_is_verified() -> None:
    """A model with external data is verified, before and after it is moved to its place."""
    assert main(["-q", "model.tflite", "--external-data", "--verify"]) == 0
    assert tflite2onnx.verify("model.tflite", "model.onnx").ok


def test_all_weights_are_external_beyond_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the small weights exceed the limit of one file, all weights become external."""
    monkeypatch.setattr(writer, "LARGEST_FILE", 3000)
    convert("model.tflite", "a.onnx", external_data=2000)
    assert external("a.onnx") == [SECOND]
    monkeypatch.setattr(writer, "LARGEST_FILE", 1000)
    convert("model.tflite", "a.onnx", external_data=2000)
    assert external("a.onnx") == [FIRST, SECOND]


@pytest.mark.parametrize("taken", ["model.onnx", "model.onnx.data"])
def test_model_and_second_file_are_both_written_or_none(capsys: Captured, taken: str) -> None:
    """If one of the two files cannot be written, the other file is not written."""
    Path(taken).mkdir()
    assert main(["model.tflite", "--external-data"]) == 1
    assert "Is a directory" in capsys.readouterr().err
    assert {path.name for path in Path().iterdir()} == {"model.tflite", taken}


def test_second_file_never_replaces_the_tflite_model(capsys: Captured) -> None:
    Path("model.tflite").rename("a.onnx.data")
    assert main(["a.onnx.data", "a.onnx", "--external-data"]) == 1
    assert "cannot write a.onnx.data: it is the TFLite model" in capsys.readouterr().err
    with pytest.raises(OutputError, match="it is the TFLite model"):
        convert("a.onnx.data", "a.onnx")
    assert Path("a.onnx.data").read_bytes() == network()


def test_refuses_external_data_of_a_device(capsys: Captured) -> None:
    """A device cannot have external data, because there is no folder for the second file."""
    assert main(["model.tflite", "/dev/null", "--external-data"]) == 1
    assert "cannot write /dev/null: it must be a regular file" in capsys.readouterr().err
    assert not Path("/dev/null.data").exists()


@pytest.mark.parametrize("size", ["x", "-1", "1.5", "1T", "", "K"])
def test_refuses_sizes_that_are_no_numbers_of_bytes(capsys: Captured, size: str) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["model.tflite", f"--external-data-size={size}"])
    assert caught.value.code == 1
    err = capsys.readouterr().err
    assert (
        f"--external-data-size must be a number of bytes such as 4096, 64K or 1M, got {size}; see"
        in err
    )
    assert {path.name for path in Path().iterdir()} == {"model.tflite"}

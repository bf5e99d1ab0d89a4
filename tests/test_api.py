"""The public interface, and the interface of version 0.x."""

from __future__ import annotations

import inspect
import json
import logging
import pickle
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from importlib import metadata
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import onnx
import pytest

import tflite2onnx
from tests.support import Build
from tests.support.small import chain, network
from tflite2onnx import errors
from tflite2onnx.errors import LayoutError, ModelFileError, OptionError, OutputError


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """Return a file to convert."""
    path = tmp_path / "model.tflite"
    path.write_bytes(network())
    return path


def test_dir_has_the_public_names_only() -> None:
    """Names whose modules are imported later are listed, and imported modules are not."""
    names = dir(tflite2onnx)
    assert {*tflite2onnx.__all__} <= {*names}
    assert {"convert_bundle", "verify"} <= {*names}
    assert not {"gc", "sys", "Any", "contrib", "print_version"} & {*names}


def python(code: str, *arguments: str | Path) -> str:
    """Return the output of code in a new interpreter."""
    words = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout


# convert


def test_model_can_be_a_path_or_bytes(model: Path) -> None:
    """A model can be a str, an os.PathLike or bytes."""

    class Place:
        def __fspath__(self) -> str:
            return str(model)

    want = tflite2onnx.convert(model).model
    data = model.read_bytes()
    sources: list[Any] = [str(model), Place(), data, bytearray(data)]
    for source in sources:
        assert tflite2onnx.convert(source).model == want


def test_nothing_is_written_without_an_output_path(model: Path) -> None:
    """Without an output path nothing is written; the result can be saved later."""
    result = tflite2onnx.convert(model)
    assert list(model.parent.iterdir()) == [model]
    assert result.save(model.with_suffix(".onnx")) == result.size
    assert onnx.load(model.with_suffix(".onnx")) == result.model


def test_first_three_parameters_may_be_positional() -> None:
    """The first three parameters may be positional."""
    parameters = inspect.signature(tflite2onnx.convert).parameters
    assert list(parameters)[:5] == ["model", "output", "layouts", "io_layout", "opset"]
    kinds = [p.kind for p in parameters.values()]
    assert kinds[:3] == [inspect.Parameter.POSITIONAL_OR_KEYWORD] * 3
    assert set(kinds[3:]) == {inspect.Parameter.KEYWORD_ONLY}


def test_public_names_exist() -> None:
    """Each listed name of the public interface exists."""
    assert all(hasattr(tflite2onnx, name) for name in tflite2onnx.__all__)
    assert tflite2onnx.__version__ == metadata.version("tflite2onnx")
    assert isinstance(tflite2onnx.convert(network()), tflite2onnx.Result)
    assert isinstance(tflite2onnx.convert(network()).inputs[0], tflite2onnx.Endpoint)


# Errors


def test_every_error_is_a_conversion_error() -> None:
    """Every error of a model or an option is a ConversionError, so that one `except` is enough."""
    values = vars(errors).values()
    types = [v for v in values if isinstance(v, type) and v.__module__ == errors.__name__]
    bugs = (errors.InternalError, errors.InternalWarning)
    classes = [v for v in types if issubclass(v, BaseException) and v not in bugs]
    assert len(classes) > 5
    assert all(issubclass(c, tflite2onnx.ConversionError) for c in classes)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "No such file or directory"),
        (b"", "is empty"),
        (b"TFL3", "truncated"),
        (network()[:1000], "truncated or damaged|lists more parts"),
        (b"PK\x03\x04" + bytes(100), "zip archive"),
        (onnx.ModelProto(producer_name="somebody else").SerializeToString(), "not a TFLite model"),
        (bytes(1000), "not a TFLite model"),
    ],
)
def test_files_that_are_no_models_are_refused(
    tmp_path: Path, content: bytes | None, message: str
) -> None:
    """Missing, empty, truncated and other files are errors, and no output is written."""
    path = tmp_path / "model.tflite"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ModelFileError, match=message):
        tflite2onnx.convert(path, tmp_path / "out.onnx")
    assert not (tmp_path / "out.onnx").exists()


@pytest.mark.parametrize("way", ["same", "relative", "symbolic", "hard"])
def test_the_model_is_not_overwritten(
    model: Path, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The model is not overwritten, also if the output is a link to it or another path of it."""
    data = model.read_bytes()
    other = model.with_name("other")

    def make_link(link: Callable[[Path], None]) -> Path:
        link(model)
        return other

    ways = {
        "same": lambda: model,
        "relative": lambda: Path("..") / model.parent.name / model.name,
        "symbolic": lambda: make_link(other.symlink_to),
        "hard": lambda: make_link(other.hardlink_to),
    }
    monkeypatch.chdir(model.parent)
    with pytest.raises(OutputError, match="it is the TFLite model"):
        tflite2onnx.convert(model, ways[way]())
    assert model.read_bytes() == data


def test_an_older_file_is_overwritten(model: Path) -> None:
    """An existing output file is replaced."""
    output = model.with_suffix(".onnx")
    output.write_bytes(b"old")
    tflite2onnx.convert(model, output)
    tflite2onnx.convert(model.read_bytes(), output)
    assert onnx.load(output) == tflite2onnx.convert(model).model


def test_an_unconvertible_model_leaves_no_file(tmp_path: Path) -> None:
    """After an error there is no new file, and an existing file is unchanged."""
    m = Build()
    m.output(*m.custom("Mystery", [m.input([2])], [[2]]))
    output = tmp_path / "out.onnx"
    output.write_bytes(b"old")
    with pytest.raises(tflite2onnx.ConversionError, match="Mystery"):
        tflite2onnx.convert(m.bytes(), output)
    assert output.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [output]


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"opset": 5}, OptionError),
        ({"io_layout": "NCHW"}, OptionError),
        ({"quantization": "int8"}, OptionError),
        ({"activations": "int4"}, OptionError),
        ({"layouts": {"nobody": ("N", "N")}}, LayoutError),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], error: type[Exception]) -> None:
    """Wrong options raise an OptionError."""
    with pytest.raises(error):
        tflite2onnx.convert(network(), **options)


def test_version_option_imports_neither_numpy_nor_onnx() -> None:
    """`--version` ends before numpy and onnx are imported."""
    words = [sys.executable, "-X", "importtime", "-m", "tflite2onnx", "--version"]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert done.stdout == f"tflite2onnx {tflite2onnx.__version__}\n"
    assert not {"numpy", "onnx", "tflite2onnx.convert"} & {*done.stderr.replace("|", " ").split()}


# Process pools


def test_pool_of_processes_survives_a_refused_model(tmp_path: Path) -> None:
    """A pool converts 20 models; the model that is refused raises its error and breaks nothing."""
    files = sorted(Path("assets/models").glob("*.tflite"))
    for number in range(20 - len(files)):
        file = tmp_path / f"{number}.tflite"
        file.write_bytes(chain(*["ABS"] * (number + 1)))
        files.append(file)
    m = Build()
    m.output(*m.custom("Mystery", [m.input([2])], [[2]]))
    files[7] = tmp_path / "refused.tflite"
    files[7].write_bytes(m.bytes())
    with ProcessPoolExecutor(2, get_context("spawn")) as pool:
        found = [pool.submit(tflite2onnx.convert, file) for file in files]
        error = found.pop(7).exception()
        results = [future.result() for future in found]
    assert isinstance(error, errors.UnsupportedOperators)
    assert [problem.place for problem in error.problems] == ["Mystery (operator 0, tensor_1)"]
    del files[7]
    for file, result in zip(files, results, strict=True):
        own = tflite2onnx.convert(file)
        assert result.skeleton.serialize() == own.skeleton.serialize()
        assert result.skeleton.storage == own.skeleton.storage
    assert tflite2onnx.verify(files[0], results[0]).tensors


def test_errors_can_be_pickled() -> None:
    """An error that one process sends to another process has the same type and text."""
    for error in (
        errors.ModelFileError("x"),
        errors.OperatorError("reason", "ADD (operator 1, y)"),
        errors.FixedSizeError("reason", "ADD (operator 1, y)", ["x_0"]),
        errors.UnsupportedOperators([errors.OperatorError("reason", "ADD (operator 1, y)")]),
    ):
        again = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own bytes
        assert (type(again), str(again), vars(again).keys()) == (
            type(error), str(error), vars(error).keys()
        )  # fmt: skip


# The interface of version 0.x


def test_calls_of_version_0_still_work(model: Path) -> None:
    """The calls of version 0.x work: two or three arguments, by position or by their old names."""
    output = model.with_suffix(".onnx")
    tflite2onnx.convert(str(model), str(output))
    assert onnx.load(output) == tflite2onnx.convert(model).model
    layouts = {"x": ("NHWC", "NHWC")}
    want = tflite2onnx.convert(model, layouts=layouts).model
    tflite2onnx.convert(str(model), str(output), layouts)
    assert onnx.load(output) == want
    output.unlink()
    old: Any = tflite2onnx.convert
    old(tflite_path=str(model), onnx_path=str(output), explicit_layouts=layouts)
    assert onnx.load(output) == want
    with pytest.raises(TypeError, match="onyx_path"):
        old(str(model), onyx_path=str(output))
    with pytest.raises(ValueError, match="No such file"):
        old("none.tflite", str(output))
    assert tflite2onnx.DESCRIPTION == "Convert TensorFlow Lite models to ONNX"


def test_supported_operators_are_sorted_names_of_tflite() -> None:
    """The names are TFLite's, in alphabetical order, without internal operators."""
    names = tflite2onnx.supported_operators()
    assert names == tflite2onnx.getSupportedOperators() == sorted(set(names))
    assert {"ABS", "ADD", "CONV_2D", "RESHAPE", "TRANSPOSE"} <= set(names)
    assert "AS_PLANNED" not in names


def test_debug_log_has_stages_on_stderr(model: Path) -> None:
    """The log has the stages and their counts, by default on stderr, and only of this package."""
    code = (
        "import logging, sys, tflite2onnx; tflite2onnx.enableDebugLog(); "
        "logging.getLogger('other').debug('nothing'); tflite2onnx.convert(*sys.argv[1:])"
    )
    words = [sys.executable, "-c", code, str(model), str(model.with_suffix(".onnx"))]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert done.stdout == ""
    stages = [
        "read 3 operators",
        "canonical: 3",
        "chose forms",
        "planned 0 bytes",
        "emitted 3 nodes",
        "wrote",
    ]
    assert "nothing" not in done.stderr
    # The lines between the stages say which rules do not apply, and why.
    lines = iter(done.stderr.splitlines())
    assert all(any(stage in line for line in lines) for stage in stages)


def test_debug_log_goes_to_handlers_of_the_program(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The handlers of the program get the log messages."""
    logger = logging.getLogger("tflite2onnx")
    monkeypatch.setattr(logger, "level", logging.NOTSET)
    tflite2onnx.convert(chain("ABS"))
    assert not caplog.records
    tflite2onnx.enableDebugLog()
    try:
        tflite2onnx.convert(chain("ABS"))
    finally:
        logger.setLevel(logging.NOTSET)
    assert "emitted 1 nodes of opset 17" in caplog.text


# Imports


def test_conversion_imports_no_runtime(model: Path) -> None:
    """`import tflite2onnx`, `Stateful` and a conversion import no runtime and no TensorFlow."""
    code = """
import sys, json
before = set(sys.modules)
import tflite2onnx, tflite2onnx.cli, tflite2onnx.verification
tflite2onnx.Stateful
tflite2onnx.cli.main(["-q", sys.argv[1]])
print(json.dumps(sorted({m.split(".")[0] for m in set(sys.modules) - before})))
"""
    loaded = set(json.loads(python(code, model)))
    third_party = {"numpy", "onnx", "flatbuffers", "google", "ml_dtypes", "tflite2onnx"}
    known = loaded - set(sys.stdlib_module_names) - third_party
    assert {name for name in known if not name.startswith("_")} <= {"typing_extensions"}
    forbidden = {"onnxruntime", "ai_edge_litert", "tensorflow", "hypothesis", "pytest", "jax"}
    assert not loaded & forbidden

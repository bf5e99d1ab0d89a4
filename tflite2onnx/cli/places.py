"""The models that a command line names, and the output of each model."""

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import accumulate, islice, takewhile
from pathlib import Path

from tflite2onnx.bundle import Bundle, is_bundle, make_bundle, read_bundle
from tflite2onnx.errors import ModelFileError, OptionError, OutputError
from tflite2onnx.reader.foreign_files import EXPORT_FIRST
from tflite2onnx.utils.atomic_files import check_distinct_files, check_writable
from tflite2onnx.utils.suggestions import join_alternatives

STANDARD = "-"  # standard input if it is a model, standard output if it is an output
STANDARD_OUTPUTS = (STANDARD, "/dev/stdout")  # the latter cannot be replaced if it is a pipe
MODEL_SUFFIXES = (".tflite", ".lite", ".tfl")
BUNDLE_SUFFIXES = (".task", ".litertlm")
SUFFIXES = (*MODEL_SUFFIXES, *BUNDLE_SUFFIXES)
_DASHES = "\u2013\u2014\u2212"  # what word processors make of hyphens
_LONGEST = 4096  # characters of a path in Linux


@dataclass(frozen=True)
class Job:
    """A model to convert and the file to write, or a bundle and the folder to write to.

    A model of which each signature becomes a file is a bundle of its signatures.
    """

    model: str
    output: str
    data: bytes | None = None  # the bytes of standard input, if the model is read from there
    each_signature: bool = False
    one_of_several: bool = False
    report: str | None = None  # the page to write, or the folder of the pages of a bundle

    @property
    def source(self) -> str | bytes:
        return self.model if self.data is None else self.data

    @property
    def is_bundle(self) -> bool:
        """Whether the model becomes several files."""
        return self.each_signature or is_bundle(self.source)

    def read_bundle(self) -> Bundle:
        """Return the models of a bundle; ConversionError if the bundle cannot be read."""
        if is_bundle(self.source):
            return read_bundle(self.source)
        return make_bundle(self.source)


def split_files(files: Sequence[str], output: str | None) -> tuple[list[str], str | None]:
    """Return the models among the files of a command line, and the output (None if not given).

    `output` is the argument of -o. Without -o the second of two files is the output.

    Raises:
        OptionError: a name is empty, there are more than two files and no -o, or standard input is
            one of several models.
        OutputError: the output is named like a model.
    """
    if {"", ".onnx"} & {*files, output}:
        raise OptionError(
            "the name of a file must not be empty; is a variable of the shell not set?"
        )
    for file in files:
        if file[0] in _DASHES and not Path(file).exists():
            raise OptionError(f"an option must begin with hyphens, as in --verify, got {file}")
    check_blanks(files)
    models, outputs = list(files[:1]), list(files[1:])
    named = [file for file in (*outputs, output or "") if file.lower().endswith(".onnx")]
    if len(named) > 1 and len(named) >= len(outputs):
        raise OptionError(f"a model must have one output, got {' and '.join(named)}")
    if output is None and len(files) > 2:
        raise OptionError(
            f"the output of {len(files)} models must be given, as -o FOLDER; one model is given as"
            " MODEL.tflite OUT.onnx"
        )
    if output is None and len(files) == 2:
        output = outputs.pop()
        _check_name(output, models[0])
    models += outputs
    output = STANDARD if output in STANDARD_OUTPUTS else output
    if len(models) > 1 and STANDARD in models:
        raise OptionError(f"standard input (-) must be the only model, got {len(models)} models")
    if output is not None:
        _check_output(output, models[0])
    return models, output


def _check_name(output: str, model: str) -> None:
    """Raise OutputError if the second file is the value of an option, or has another suffix."""
    name = Path(output).name
    is_value = name[:1].isdecimal() and not name.strip("0123456789.e-")
    is_value = is_value or name.lower() in ("yes", "no", "true", "false", "on", "off")
    is_named = Path(output).suffix.lower() in ("", ".onnx", *SUFFIXES)
    if "=" in name or is_value or not (is_named or Path(output).is_dir() or is_bundle(model)):
        raise OutputError(f"cannot write {output}: the name of an ONNX model must end in .onnx")


def _check_output(path: str, model: str) -> None:
    """Raise OutputError if a file to write is the model, or has the suffix of a model."""
    if path == STANDARD:
        return
    check_distinct_files(path, model, _name_role(model))
    if path.lower().endswith(SUFFIXES) and model.lower().endswith(".onnx"):
        raise OutputError(f"cannot write {path}: the output is ONNX; onnx2tf makes a TFLite model")
    if path.lower().endswith(SUFFIXES) and not is_folder(path):
        raise OutputError(
            f"cannot write {path}: the output must not be named like a TFLite model; give the"
            " output of several models as -o FOLDER"
        )


def check_blanks(files: Sequence[str]) -> None:
    """Raise OptionError if files are parts of a name with blanks, which the shell has split."""
    for start in (i for i, file in enumerate(files) if not Path(file).exists()):
        names = accumulate(files[start:], "{} {}".format)
        with suppress(OSError):  # the name is too long
            for name in takewhile(lambda name: len(name) <= _LONGEST, islice(names, 1, None)):
                if Path(name).exists():
                    raise OptionError(f'a name with blanks must be in quotation marks, as "{name}"')


def _name_role(model: str) -> str:
    return "the folder of the models" if is_folder(model) else "the TFLite model"


def check_report(path: str, model: str) -> None:
    """Raise OutputError if the page is the model, has the suffix of a model, or is no file."""
    if path == STANDARD:
        raise OutputError("--report must be a file or a folder, got standard output (-)")
    check_distinct_files(path, model, _name_role(model))
    if path.lower().endswith(SUFFIXES) and not is_folder(path):
        raise OutputError(f"cannot write {path}: the page must not be named like a TFLite model")


def check_page(path: str, output: str | None) -> None:
    """Raise OutputError if the page of one model cannot be written, before the model is verified.

    `output` is the ONNX model.
    """
    if output is not None:
        check_distinct_files(path, output, "the ONNX model")
        check_distinct_files(path, f"{output}.data", "the file of the model's weights")
    if ends_as_folder(path) or is_folder(path):
        raise OutputError(f"cannot write {path}: the page of one model must be a file")
    if not path.lower().endswith((".html", ".htm")) and path != os.devnull:
        raise OutputError(f"cannot write {path}: the name of a page must end in .html")
    check_writable(path)


def place_one(model: str, output: str | None, *, folder: bool, data: bytes | None = None) -> Job:
    """Return the job of one model or bundle; `data` are the bytes of standard input.

    Without an output, the ONNX file is beside the model; for standard input it is standard output.
    `folder` says whether the output may be a folder. In a folder, the file of standard input is
    model.onnx.

    Raises:
        OptionError: the output of a bundle, a folder, is not given or is named like a file.
        OutputError: the output of a model is a folder.
    """
    job, is_given = Job(model, STANDARD, data), output is not None
    if output is None and data is not None and job.is_bundle:
        raise OptionError("the output of a bundle on standard input must be given, as -o FOLDER")
    if output is None:
        beside = remove_suffix(model) if job.is_bundle else name_beside(model)
        output = beside if data is None else STANDARD
    if job.is_bundle:
        if output == STANDARD or (output.lower().endswith(".onnx") and not is_folder(output)):
            job.read_bundle()  # A zip archive may be another model, which the error names.
            called = "standard output" if output == STANDARD else output
            raise OptionError(f"the output of a bundle must be a folder, got {called}")
    elif output != STANDARD and (ends_as_folder(output) or (folder and names_folder(output))):
        if Path(output).suffix and not (ends_as_folder(output) or Path(output).exists()):
            raise OutputError(
                f"cannot write {output}: the name of an ONNX model must end in .onnx; write"
                f" {output}/ for a folder of this name"
            )
        name = name_beside(model if data is None else "model.tflite")
        output = str(Path(output) / Path(name).name)
    elif is_given and is_folder(output):
        raise OutputError(f"the folder of the output must be given as -o {output}, got {output}")
    return replace(job, output=output)


def ends_as_folder(path: str) -> bool:
    """Return whether a path ends with a slash, which stands for a folder."""
    return path.endswith(("/", os.sep))


def names_folder(output: str) -> bool:
    """Return whether -o of one model is a folder: an existing one, or a new path without .onnx."""
    path = Path(output)
    return path.is_dir() or not (path.exists() or output.lower().endswith(".onnx"))


def place_all(models: Iterable[str], output: str) -> list[Job]:
    """Return the jobs of several models; models in a folder keep their relative paths.

    Raises:
        ModelFileError: a folder cannot be read, or has no model in it.
        OptionError: two models would have the same output.
        OutputError: the output is not a folder, or an output is one of the models.
    """
    folder = Path(output)
    is_file = output == STANDARD or (folder.exists() and not folder.is_dir())
    if is_file or (output.lower().endswith(".onnx") and not folder.exists()):
        raise OutputError(
            f"cannot write to {output}: the output of several models must be a folder"
        )
    jobs: dict[str, Job] = {}
    for model, place in _list_places(models):
        job = Job(model, str(folder / place), one_of_several=True)
        other = jobs.setdefault(job.output, job)
        if other is not job and _read_identity(other.model) != _read_identity(model):
            raise OptionError(
                f"{other.model} and {model} must have different outputs, got {job.output} for both;"
                " convert a folder that holds both, or rename one"
            )
    _check_outputs(list(jobs.values()))
    return list(jobs.values())


def is_done(job: Job) -> bool:
    """Return whether the output exists and is newer than the model, and so is its page if any.

    The output of a bundle is a folder, which is as new as the last file that was put into it. Its
    pages are found by a conversion only.
    """
    if job.is_bundle and job.report is not None:
        return False
    made = [job.output] if job.report is None else [job.output, job.report]
    try:
        changed, *times = (Path(file).stat().st_mtime_ns for file in (job.model, *made))
    except OSError:
        return False
    return min(times) > changed


def _list_places(models: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield each model, and its output relative to the output folder."""
    for model in models:
        places = [(model, Path(model).name)]
        if is_folder(model):
            places = [(str(Path(model) / place), place) for place in find_models(model)]
        for path, place in places:
            yield path, remove_suffix(place) if is_bundle(path) else name_beside(place)


def is_folder(path: str) -> bool:
    """Return whether a path is a folder; an empty path is not, although pathlib reads it as "."."""
    return bool(path) and Path(path).is_dir()


def find_models(folder: str) -> list[str]:
    """Return the relative paths of models and bundles below a folder; ModelFileError if none."""

    def fail(error: OSError) -> None:
        raise ModelFileError(f"cannot read {error.filename}: {error.strerror}") from error

    models = [
        os.path.relpath(Path(place) / name, folder)
        for place, _, names in os.walk(folder, onerror=fail)
        for name in names
        if name.lower().endswith(SUFFIXES)
    ]
    if not models and Path(folder, "saved_model.pb").exists():
        raise ModelFileError(f"{folder} is a SavedModel of TensorFlow, {EXPORT_FIRST}")
    if not models:
        raise ModelFileError(
            f"{folder} must have a model in it, but no file ends in {join_alternatives(SUFFIXES)}"
        )
    return sorted(models)


def _check_outputs(jobs: Sequence[Job]) -> None:
    """Raise an error if an output is one of the models, or is in a bundle's output folder."""
    models = {_read_identity(job.model) for job in jobs} - {None}
    bundles = {job.output: job.model for job in jobs if job.is_bundle}
    for job in jobs:
        if _read_identity(job.output) in models:
            raise OutputError(f"cannot write {job.output}: it is one of the models")
        for parent in bundles.keys() & set(map(str, Path(job.output).parents)):
            raise OptionError(
                f"{bundles[parent]} and {job.model} must have different folders, got {parent} for"
                " both; rename one"
            )


def _read_identity(path: str) -> tuple[int, int] | None:
    """Return the device and inode number of a file, None if there is no such file."""
    try:
        status = Path(path).stat()
    except (OSError, ValueError):
        return None
    return status.st_dev, status.st_ino


def name_beside(model: str) -> str:
    """Return the path of the ONNX file beside a model."""
    return (remove_suffix(model) if model.lower().endswith(MODEL_SUFFIXES) else model) + ".onnx"


def remove_suffix(model: str) -> str:
    """Return a path without its last suffix."""
    return os.path.splitext(model)[0]  # noqa: PTH122 - keeps the path as typed

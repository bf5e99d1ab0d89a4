"""The user's own inputs: arrays, and files or folders of arrays and pictures, as samples."""

import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tflite2onnx.errors import VerifyError
from tflite2onnx.tensor import Array
from tflite2onnx.utils.suggestions import join_alternatives
from tflite2onnx.verification.images import PICTURE_SUFFIXES, ImageInput
from tflite2onnx.verification.inputs import Detail, read_quantization

GivenArray = Array | str | os.PathLike[str]  # an array, a file of arrays, or a folder of files

_ARRAY_SUFFIXES = (".npy", ".npz")
_LARGE = 1 << 20  # bytes of a file; a larger file is mapped to memory


class GivenSample(NamedTuple):
    """One sample of an input: a function that reads its array, and its file or place in a batch."""

    read: Callable[[], Array]
    origin: str


class GivenInputs:
    """The samples of each input for which the user gave arrays or pictures.

    `count` is the number of samples, 0 if nothing was given. An input with one sample has the same
    sample in each run.
    """

    def __init__(self, samples: Mapping[str, Sequence[GivenSample]]) -> None:
        self._samples = samples
        counts = {name: len(listed) for name, listed in samples.items()}
        self.count = max(counts.values(), default=0)
        if not set(counts.values()) <= {1, self.count}:
            text = ", ".join(f"{name} {number}" for name, number in counts.items())
            raise VerifyError(f"inputs must have equal numbers of samples, or one, got {text}")

    @property
    def names(self) -> Collection[str]:
        """The inputs for which the user gave arrays or pictures."""
        return self._samples.keys()

    def read_arrays(self, index: int) -> dict[str, Array]:
        """Return the arrays of a run by input; runs beyond the samples repeat the samples."""
        return {
            name: samples[index % len(samples)].read() for name, samples in self._samples.items()
        }

    def describe_origin(self, index: int) -> str:
        """Return the file of a sample, or its position in a batch; empty if nothing was given."""
        varied = (samples for samples in self._samples.values() if len(samples) == self.count)
        return next((samples[index % len(samples)].origin for samples in varied), "")


def open_inputs(
    inputs: Mapping[str, GivenArray],
    pictures: Sequence[str | os.PathLike[str]],
    details: Sequence[Detail],
    find_image_input: Callable[[], ImageInput],
) -> GivenInputs:
    """Return the samples of the user's arrays and pictures.

    `details` are LiteRT's descriptions of the inputs. `find_image_input` returns the input that
    takes pictures.

    Raises:
        VerifyError: an input does not exist or is given twice, a file cannot be read, an array does
            not fit its input, or the inputs have different numbers of samples.
    """
    by_name = {detail["name"]: detail for detail in details}
    for name in inputs:
        if name not in by_name:
            message = f"the name of an input must be {join_alternatives(list(by_name))}, got {name}"
            raise VerifyError(message)
    samples = {name: list(_split_input(array, by_name[name])) for name, array in inputs.items()}
    if pictures:
        target = find_image_input()
        if target.name in inputs:
            raise VerifyError(f"input {target.name} must be given as arrays or pictures, got both")
        files = [file for path in pictures for file in _list_files(path, PICTURE_SUFFIXES)]
        samples[target.name] = [GivenSample(partial(target.read_array, f), str(f)) for f in files]
    return GivenInputs(samples)


def _list_files(path: str | os.PathLike[str], suffixes: Sequence[str]) -> list[Path]:
    """Return a file, or the files of a folder with these suffixes, sorted by name."""
    place = Path(path)
    if "://" in os.fspath(path):
        raise VerifyError(f"{os.fspath(path)} must be a file or a folder; download it first")
    try:
        if not place.is_dir():
            return [place]
        files = sorted(file for file in place.iterdir() if file.suffix.lower() in suffixes)
    except (OSError, ValueError) as error:
        raise VerifyError(f"cannot read {place}: {_describe_reason(error)}") from error
    if not files:
        raise VerifyError(f"{place} must have files that end in {', '.join(suffixes)}, got none")
    return files


def _split_input(arrays: GivenArray, detail: Detail) -> Iterator[GivenSample]:
    if not isinstance(arrays, (str, os.PathLike)):
        yield from _split_array(np.asarray(arrays), detail, detail["name"])
        return
    for file in _list_files(arrays, _ARRAY_SUFFIXES):
        batch = list(_split_array(_read_array(file, detail["name"]), detail, str(file)))
        # Each sample is read when it is needed, so that a folder may be larger than the memory.
        yield from (
            batch
            if len(batch) > 1
            else [GivenSample(partial(_read_single, file, detail), str(file))]
        )


def _read_single(file: Path, detail: Detail) -> Array:
    (only,) = _split_array(_read_array(file, detail["name"]), detail, str(file))
    return only.read()


def _split_array(array: Array, detail: Detail, origin: str) -> Iterator[GivenSample]:
    """Yield the samples of an array; a batch is divided along its first axis."""
    dtype, shape = np.dtype(detail["dtype"]), tuple(map(int, detail["shape"]))
    samples = _stack_samples(array, shape)
    if samples is None or not len(samples) or not _can_cast(array.dtype, dtype):
        raise VerifyError(
            f"input {detail['name']} must be {_spell(dtype)}{list(shape)} or a batch of it, got"
            f" {_spell(array.dtype)}{list(array.shape)} in {origin}{_explain_dtype(array, detail)}"
        )
    for i, sample in enumerate(samples):
        place = f"{origin}[{i}]" if len(samples) > 1 else origin
        yield GivenSample(partial(_cast_sample, sample, dtype, place), place)


def _can_cast(source: np.dtype[Any], target: np.dtype[Any]) -> bool:
    if target.kind == "S":  # LiteRT accepts bytes and str of any width
        return source.kind in "SUO"
    return source.kind not in "SUO" and np.can_cast(source, target, "same_kind")


def _spell(dtype: np.dtype[Any]) -> str:
    return "string" if dtype.kind in "SUO" else dtype.name


def _stack_samples(array: Array, shape: tuple[int, ...]) -> Array | None:
    """Return an array as [samples, *shape], None if it is neither a sample nor a batch."""
    if array.shape in (shape, shape[1:] if shape[:1] == (1,) else shape):
        return array.reshape(1, *shape)
    if array.ndim and array.shape[1:] == shape:
        return array
    is_batch = array.ndim and shape and array.shape[1:] == shape[1:]
    if is_batch and shape[0] and array.shape[0] % shape[0] == 0:
        return array.reshape(array.shape[0] // shape[0], *shape)
    return None


def _explain_dtype(array: Array, detail: Detail) -> str:
    """Return the quantization formula if an array has real numbers in place of integers."""
    quantization = read_quantization(detail)
    if array.dtype.kind != "f" or np.dtype(detail["dtype"]).kind not in "iu" or not quantization:
        return ""
    scale, zero = float(quantization.scale[0]), int(quantization.zero_point[0])
    sign = "-" if zero < 0 else "+"
    return f"; quantize real numbers first: round(x / {scale:.6g}) {sign} {abs(zero)}"


def _cast_sample(sample: Array, dtype: np.dtype[Any], place: str) -> Array:
    """Return a sample in its input's type; VerifyError if an integer is out of its range."""
    if dtype.kind == "S":
        return sample
    if dtype.kind in "iu" and sample.dtype.kind in "iu":
        limits = np.iinfo(dtype)
        low, high = int(sample.min(initial=0)), int(sample.max(initial=0))
        if low < limits.min or high > limits.max:
            raise VerifyError(
                f"values of {place} must be {limits.min} to {limits.max} ({dtype.name}), got"
                f" {low if low < limits.min else high}"
            )
    return np.array(sample, dtype)


def _read_array(path: Path, name: str) -> Array:
    """Return the array of a .npy file, or of a .npz file: the one array, or that of a name."""
    try:
        mapped = path.suffix.lower() == ".npy" and path.stat().st_size > _LARGE
        content: Any = np.load(path, mmap_mode="r" if mapped else None, allow_pickle=False)
        if isinstance(content, np.ndarray):
            return content
        with content:
            names = content.files
            chosen_name = name if name in names else names[0] if len(names) == 1 else None
            if chosen_name is not None:
                return np.asarray(content[chosen_name])
    except Exception as error:  # numpy, archives and compression raise exceptions of many classes
        raise VerifyError(f"cannot read {path}: {_describe_reason(error)}") from error
    raise VerifyError(
        f"{path} must have one array or an array {name}, got {', '.join(names) or 'none'}"
    )


def _describe_reason(error: Exception) -> str:
    """Return the operating system's message, else a description of valid files."""
    return getattr(error, "strerror", None) or "it must be a .npy or .npz file of numbers"

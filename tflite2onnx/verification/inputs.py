"""The inputs of both models: random numbers or the user's arrays, converted for the ONNX model."""

from __future__ import annotations  # numpy imports numpy.random when the name is read

from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import Enum
from types import MappingProxyType
from typing import Any

import numpy as np

from tflite2onnx.errors import VerifyError
from tflite2onnx.interface import Endpoint
from tflite2onnx.quantization.storage import decode_constant, encode_numbers
from tflite2onnx.tensor import Array, DType, Quantization
from tflite2onnx.verification.tolerance import QUANTIZED

_SMALL_INTEGERS = 8  # Integers without a scale are mostly indices into tables of unknown size.
_PATCH = 8  # the number of equal neighbours along an axis of a smooth array

_FLOATS = ("float16", "float32")  # element types of dequantized tensors
Detail = Mapping[str, Any]  # LiteRT's description of an input or an output


class RandomKind(Enum):
    """A kind of random numbers; later kinds are for models whose outputs do not vary otherwise.

    NORMAL: floats are normally distributed, integers of 8 and 16 bits uniformly over all their
    values, others from 0 to 7. UNIT: floats are between 0 and 1, and unquantized integers are 0 or
    1, which are valid indices into nearly any table. SMOOTH: numbers as with UNIT, but neighbours
    are equal as in a picture, quantized integers too. SMALL: floats are 0.001 times the floats of
    NORMAL, for models that overflow. BYTES: floats are between 0 and 255, as in a picture.
    """

    NORMAL = ""
    UNIT = "0 to 1"
    SMOOTH = "smooth"
    SMALL = "small"
    BYTES = "0 to 255"


def draw_inputs(
    interpreter: Any,
    seed: int,
    given: Mapping[str, Array] = MappingProxyType({}),
    kind: RandomKind = RandomKind.NORMAL,
) -> list[Array]:
    """Return an array for each input: the array in `given` under its name, else random numbers.

    Raises:
        VerifyError: random values of an input's type are not supported.
    """
    generator = np.random.default_rng(seed)
    arrays = []
    for detail in interpreter.get_input_details():
        name, dtype = detail["name"], np.dtype(detail["dtype"])
        shape = tuple(map(int, detail["shape"]))
        if name in given:
            arrays.append(given[name])
        else:
            arrays.append(_make_array_of_kind(generator, name, dtype, shape, kind))
    return arrays


class Samples:
    """The inputs of each run, made or read when the run begins."""

    def __init__(self, make: Callable[[int], list[Array]], count: int) -> None:
        self._make, self._count = make, count

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[list[Array]]:
        return map(self._make, range(self._count))


def _make_array_of_kind(
    generator: np.random.Generator,
    name: str,
    dtype: np.dtype[Any],
    shape: tuple[int, ...],
    kind: RandomKind,
) -> Array:
    if kind is RandomKind.SMOOTH and len(shape) > 2:
        few = (shape[0], *(-(-size // _PATCH) for size in shape[1:-1]), shape[-1])
        array = _make_array_of_kind(generator, name, dtype, few, RandomKind.UNIT)
        for axis in range(1, len(shape) - 1):
            array = array.repeat(_PATCH, axis)
        return np.ascontiguousarray(array[tuple(map(slice, shape))])
    if kind is not RandomKind.NORMAL and dtype.kind in "iu" and dtype.name not in QUANTIZED:
        return generator.integers(0, 2, shape, dtype)
    if dtype.kind == "f" and kind in (RandomKind.UNIT, RandomKind.SMOOTH, RandomKind.BYTES):
        return np.asarray(generator.random(shape) * (255 if kind is RandomKind.BYTES else 1), dtype)
    array = _make_random_array(generator, name, dtype, shape)
    return array * dtype.type(1e-3) if kind is RandomKind.SMALL and dtype.kind in "fc" else array


def _make_random_array(
    generator: np.random.Generator, name: str, dtype: np.dtype[Any], shape: tuple[int, ...]
) -> Array:
    if dtype.name in QUANTIZED:
        limits = np.iinfo(dtype)
        return generator.integers(limits.min, limits.max, shape, dtype, endpoint=True)
    if dtype.kind in "iu":
        return generator.integers(0, _SMALL_INTEGERS, shape, dtype)
    if dtype.kind == "b":
        return generator.integers(0, 2, shape, dtype)
    if dtype.kind in "fc":
        real, imaginary = generator.standard_normal((2, *shape))
        return np.asarray(real + 1j * imaginary if dtype.kind == "c" else real, dtype)
    raise VerifyError(
        f"the input {name} must be given, because there are no random values of its type"
        f" {dtype.name}: use --input NAME=FILE.npy"
    )


# Between the two models


def store_inputs(
    endpoints: Sequence[Endpoint], arrays: Sequence[Array], details: Sequence[Detail]
) -> dict[str, Array]:
    """Return the inputs of the TFLite model as the ONNX model stores them, by name.

    `details` are LiteRT's descriptions of the inputs.
    """
    return {
        endpoint.name: np.asarray(
            as_text(convert_for_onnx(endpoint, array, detail)).transpose(endpoint.order),
            np.float16 if endpoint.dtype == "float16" else None,
            order="C",
        )
        for endpoint, array, detail in zip(endpoints, arrays, details, strict=True)
    }


def as_text(array: Array) -> Array:
    """Return an array of text as Python's strings for ONNX Runtime; other arrays unchanged.

    ONNX Runtime reads a fixed-width array beyond the ends of its elements.
    """
    if array.dtype.kind not in "SUO":
        return array
    words = [w.decode("utf-8", "replace") if isinstance(w, bytes) else str(w) for w in array.flat]
    return np.array([*words, None], object)[:-1].reshape(array.shape)


def convert_for_onnx(endpoint: Endpoint, array: Array, detail: Detail) -> Array:
    """Return an array of LiteRT as real numbers or integers, depending on the ONNX model."""
    quantization = read_quantization(detail)
    if endpoint.dtype in _FLOATS and array.dtype.kind in "iu" and quantization is not None:
        return decode_constant(array, quantization)
    if endpoint.quantization is None or not (quantization or array.dtype.kind == "f"):
        return array
    numbers = array if quantization is None else decode_constant(array, quantization)
    return encode_numbers(numbers, endpoint.quantization, DType[endpoint.dtype.upper()])


def round_inputs(
    endpoints: Sequence[Endpoint], arrays: Sequence[Array], details: Sequence[Detail]
) -> list[Array]:
    """Return the inputs of LiteRT, with floats rounded to the integers of the ONNX model."""
    return [
        decode_constant(convert_for_onnx(endpoint, array, detail), endpoint.quantization)
        if endpoint.quantization is not None and array.dtype.kind == "f"
        else array
        for endpoint, array, detail in zip(endpoints, arrays, details, strict=True)
    ]


def compute_step(endpoint: Endpoint, detail: Detail) -> float:
    """Return the size of one step of LiteRT's integers in the ONNX model's real numbers.

    The size is 0 if the ONNX model has the integers themselves.
    """
    quantization = read_quantization(detail)
    integers = np.dtype(detail["dtype"]).kind in "iu"
    if quantization is None or endpoint.dtype not in _FLOATS or not integers:
        return 0.0
    return float(quantization.scale.max())


def read_quantization(detail: Detail) -> Quantization | None:
    """Return the quantization of an input or output in LiteRT, None if it is not quantized."""
    parameters = detail["quantization_parameters"]
    if not parameters["scales"].size:
        return None
    return Quantization(
        parameters["scales"], parameters["zero_points"], parameters["quantized_dimension"]
    )


def restore_layouts(endpoints: Sequence[Endpoint], arrays: Sequence[Array]) -> list[Array]:
    """Return the outputs of the ONNX model in TFLite's layouts."""
    return [
        array.transpose(np.argsort(endpoint.order)) if array.ndim == len(endpoint.order) else array
        for endpoint, array in zip(endpoints, arrays, strict=True)
    ]

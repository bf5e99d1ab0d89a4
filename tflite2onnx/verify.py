"""A converted model beside its original: ONNX Runtime against LiteRT on the same random inputs.

LiteRT runs its plain kernels, which define what the operators mean, without delegates. What is
allowed depends on what rounding does to a network:

- A float may differ by 1e-4 of the range of its output. That is ten times what rounding adds up to
  in deep float32 networks, and far less than a mistake in a layout, a padding or a constant makes.
- An integer of 8 or 16 bits is a rounded real number that may fall to either side of a step.
- A network with quantized tensors rounds after each layer, and a step here may be several steps
  some layers on. Where the outputs of one are further off, noise of a tenth of the signal (20 dB)
  is right: the roundings of a correct conversion add up to less, while a mistake in a layout, a
  padding or a scale makes noise as loud as the signal.
- LiteRT is not one reference. Its plain kernels round a product of integers twice, its reference
  kernels and XNNPACK once, and all of them round activations of a "dynamic range" network as they
  come. What is still further off is right if it is about as close as these kernels are to each
  other on the same inputs: within twice their difference or, in a quantized network, with at most
  3 dB more noise.

All else has to be equal.

Both runtimes are imported when they are needed: converting goes without them.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import reduce
from importlib import import_module
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import onnx

from tflite2onnx.convert import Result
from tflite2onnx.errors import VerifyError
from tflite2onnx.interface import Endpoint
from tflite2onnx.tensor import Array
from tflite2onnx.writer import LARGEST_FILE

TOLERANCE = 1e-4
DECIBELS = 20.0  # of signal to noise, in quantized networks
SAMPLES = 2
# How much further off than LiteRT's own kernels are from each other is still right.
_FACTOR = 2.0
_MORE_NOISE = 3.0  # dB
_OTHER_KERNELS = ("BUILTIN_REF", "AUTO")
# Integers that hold quantized numbers: every value of theirs means something.
_QUANTIZED = ("int8", "uint8", "int16")
# Other integers are mostly indices, of tables of unknown size.
_SMALL_INTEGERS = 8


@dataclass(frozen=True)
class Difference:
    """How far one output of ONNX Runtime is from LiteRT's.

    `largest` is the largest absolute difference of two elements, inf where no number can say it;
    `allowed` is what it may be. `spread` is the range of LiteRT's elements and 0. `decibels` is the
    ratio of LiteRT's elements to the differences, as signal to noise; `enough` of them are allowed
    whatever `largest` is, and inf never suffices. `reason` tells types or shapes that differ.
    """

    name: str
    dtype: str
    largest: float
    spread: float
    allowed: float
    reason: str = ""
    decibels: float = -math.inf
    enough: float = math.inf

    @property
    def relative(self) -> float:
        """`largest` as a part of the range."""
        if self.largest and not self.spread:
            return math.inf
        return self.largest / (self.spread or 1)

    @property
    def ok(self) -> bool:
        """True if the difference is allowed."""
        loud = math.isfinite(self.largest) and self.decibels >= self.enough
        return self.largest <= self.allowed or loud

    @property
    def complaint(self) -> str:
        """What is wrong, in words, if it is not `ok`."""
        if self.reason:
            return self.reason
        step = f"it differs by {self.largest:.3g} where {self.allowed:.3g} is allowed"
        if math.isinf(self.enough):
            return step
        return f"{step}, with {self.decibels:.1f} dB of signal to noise where {self.enough:.1f} do"

    def or_worse(self, other: Difference) -> Difference:
        """Return what is the worse result for the same output."""
        return max(self, other, key=lambda d: (not d.ok, d.largest))

    def beside(self, kernels: Difference) -> Difference:
        """Return the same, allowed to be about as large as that of LiteRT's own kernels is."""
        noise = math.inf if math.isinf(self.enough) else kernels.decibels - _MORE_NOISE
        allowed = max(self.allowed, _FACTOR * kernels.largest)
        return replace(self, allowed=allowed, enough=min(self.enough, noise))


@dataclass(frozen=True)
class Report:
    """What a verification found: for each output the worst of all samples."""

    outputs: tuple[Difference, ...]
    samples: int
    seed: int

    @property
    def ok(self) -> bool:
        """True if every output is as it should be."""
        return all(difference.ok for difference in self.outputs)


def verify(
    model: str | os.PathLike[str] | bytes,
    converted: Result | onnx.ModelProto | str | os.PathLike[str] | bytes,
    *,
    seed: int = 0,
    samples: int = SAMPLES,
    tolerance: float = TOLERANCE,
) -> Report:
    """Run both models on the same random inputs and compare their outputs.

    Args:
        model: the TFLite model, as a path or as the bytes of its file.
        converted: what `convert` made of it: its result, or the ONNX model (a path, the bytes of
            the file, a ModelProto), whose metadata say how its inputs and outputs are laid out.
        seed: of the random numbers.
        samples: how often to run, 1 or more times.
        tolerance: what floats may differ by, as a part of the range of their output.

    Raises:
        VerifyError: a runtime is not installed, or cannot run its model.
    """
    interpreter = interpreter_of(model)
    inputs, outputs, session = opened(converted)
    _check_same(interpreter, inputs, outputs)
    names, enough = [end.name for end in outputs], DECIBELS if _is_quantized(interpreter) else None
    arrays = [random_inputs(interpreter, seed + sample) for sample in range(samples)]
    want = [run_litert(interpreter, each) for each in arrays]
    have = [restored(outputs, run_onnx(session, stored(inputs, each))) for each in arrays]
    found = _worst(names, want, have, tolerance, enough)
    for kernels in _OTHER_KERNELS:
        if all(difference.ok for difference in found):
            break
        own = _worst(names, want, _by_other_kernels(model, kernels, arrays), tolerance, enough)
        if own:
            found = [d if d.ok else d.beside(k) for d, k in zip(found, own, strict=True)]
    return Report(tuple(found), samples, seed)


def _worst(
    names: Sequence[str],
    want: Sequence[Sequence[Array]],
    have: Sequence[Sequence[Array]],
    tolerance: float,
    enough: float | None,
) -> list[Difference]:
    """Return the worst difference of each output over all samples, none without samples."""
    samples = [
        [compare(n, a, b, tolerance, enough) for n, a, b in zip(names, *outputs, strict=True)]
        for outputs in zip(want, have, strict=False)
    ]
    return [reduce(Difference.or_worse, output) for output in zip(*samples, strict=True)]


def _is_quantized(interpreter: Any) -> bool:  # noqa: ANN401
    """Return whether integers stand for real numbers somewhere in the network."""
    return any(
        np.dtype(detail["dtype"]).name in _QUANTIZED
        and detail["quantization_parameters"]["scales"].size
        for detail in interpreter.get_tensor_details()
    )


def _by_other_kernels(
    model: str | os.PathLike[str] | bytes, kernels: str, samples: Sequence[Sequence[Array]]
) -> list[list[Array]]:
    """Return what other kernels of LiteRT make of inputs; nothing where they lack an operator."""
    try:
        interpreter = interpreter_of(model, kernels)
        return [run_litert(interpreter, arrays) for arrays in samples]
    except VerifyError:
        return []


def _check_same(interpreter: Any, inputs: Sequence[Endpoint], outputs: Sequence[Endpoint]) -> None:  # noqa: ANN401
    shapes = [tuple(detail["shape"]) for detail in interpreter.get_input_details()]
    count = len(interpreter.get_output_details())
    if shapes != [end.tflite_shape for end in inputs] or count != len(outputs):
        message = "the ONNX model was not made from this TFLite model: inputs or outputs differ"
        raise VerifyError(message)


# The runtimes


def interpreter_of(  # LiteRT's class
    model: str | os.PathLike[str] | bytes, kernels: str = "BUILTIN_WITHOUT_DEFAULT_DELEGATES"
) -> Any:  # noqa: ANN401
    """Return a LiteRT interpreter that is ready to run; `kernels` is one of OpResolverType."""
    litert = _package("ai_edge_litert.interpreter")
    source = (
        {"model_content": model} if isinstance(model, bytes) else {"model_path": os.fspath(model)}
    )
    resolver = litert.OpResolverType[kernels]
    with _blaming("LiteRT"):
        interpreter = litert.Interpreter(**source, experimental_op_resolver_type=resolver)
        interpreter.allocate_tensors()
    return interpreter


def run_litert(interpreter: Any, inputs: Sequence[Array]) -> list[Array]:  # noqa: ANN401
    """Return the outputs for these inputs, state as it is at the start."""
    with _blaming("LiteRT"):
        interpreter.reset_all_variables()
        for detail, array in zip(interpreter.get_input_details(), inputs, strict=True):
            interpreter.set_tensor(detail["index"], array)
        interpreter.invoke()
        details = interpreter.get_output_details()
        return [np.asarray(interpreter.get_tensor(detail["index"])) for detail in details]


def session_of(model: str | bytes) -> Any:  # noqa: ANN401 - an onnxruntime.InferenceSession
    """Return an ONNX Runtime session, for a path or the bytes of a file."""
    runtime = _package("onnxruntime")
    options = runtime.SessionOptions()
    options.log_severity_level = 3  # errors: warnings are about nodes that it will optimize away
    with _blaming("ONNX Runtime"):
        return runtime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def run_onnx(session: Any, feeds: Mapping[str, Array]) -> list[Array]:  # noqa: ANN401
    """Return the outputs for the inputs with these names."""
    with _blaming("ONNX Runtime"):
        return [np.asarray(output) for output in session.run(None, dict(feeds))]


def _package(name: str) -> Any:  # noqa: ANN401 - a module
    try:
        return import_module(name)
    except ImportError as error:
        message = f"verifying takes two more packages: pip install tflite2onnx[verify] ({error})"
        raise VerifyError(message) from error


@contextmanager
def _blaming(runtime: str) -> Iterator[None]:
    """Make a VerifyError of whatever a runtime raises; their own classes have no common base."""
    try:
        yield
    except Exception as error:
        message = f"{runtime} cannot run the model: {str(error).strip() or type(error).__name__}"
        raise VerifyError(message) from error


# Inputs and outputs


def opened(
    converted: Result | onnx.ModelProto | str | os.PathLike[str] | bytes,
) -> tuple[Sequence[Endpoint], Sequence[Endpoint], Any]:
    """Return the inputs and the outputs of an ONNX model, and a session that runs it."""
    if isinstance(converted, Result):
        return converted.inputs, converted.outputs, _session_of_result(converted)
    if isinstance(converted, onnx.ModelProto):
        with _blaming("ONNX Runtime"):
            converted = bytes(converted.SerializeToString())
    session = session_of(converted if isinstance(converted, bytes) else os.fspath(converted))
    properties = session.get_modelmeta().custom_metadata_map
    inputs = _described(properties.get("tflite2onnx.inputs"))
    return inputs, _described(properties.get("tflite2onnx.outputs")), session


def _session_of_result(result: Result) -> Any:  # noqa: ANN401
    if result.size <= LARGEST_FILE:
        return session_of(result.skeleton.serialized())
    with TemporaryDirectory(ignore_cleanup_errors=True) as directory:
        path = f"{directory}/model.onnx"
        result.save(path)
        return session_of(path)


def _described(text: str | None) -> list[Endpoint]:
    """Read the inputs or the outputs from what `convert` wrote into the metadata."""
    try:
        ends = json.loads(text or "")
        return [
            Endpoint(
                end["name"], end["dtype"], tuple(end["tflite_shape"]), tuple(end["onnx_shape"]),
                tuple(end["order"]),
            )
            for end in ends
        ]  # fmt: skip
    except (ValueError, TypeError, KeyError) as error:
        message = "the ONNX model does not say in its metadata how tflite2onnx laid it out"
        raise VerifyError(message) from error


def random_inputs(interpreter: Any, seed: int) -> list[Array]:  # noqa: ANN401
    """Return an array for each input of a LiteRT interpreter, of its shape and type.

    Floats are normally distributed, integers of 8 and 16 bits uniformly over all their values,
    other integers from 0 to 7.
    """
    generator = np.random.default_rng(seed)
    return [
        _random(generator, detail["name"], np.dtype(detail["dtype"]), tuple(detail["shape"]))
        for detail in interpreter.get_input_details()
    ]


def _random(
    generator: np.random.Generator, name: str, dtype: np.dtype[Any], shape: tuple[int, ...]
) -> Array:
    if dtype.name in _QUANTIZED:
        limits = np.iinfo(dtype)
        return generator.integers(limits.min, limits.max, shape, dtype, endpoint=True)
    if dtype.kind in "iu":
        return generator.integers(0, _SMALL_INTEGERS, shape, dtype)
    if dtype.kind == "b":
        return generator.integers(0, 2, shape, dtype)
    if dtype.kind in "fc":
        real, imaginary = generator.standard_normal((2, *shape))
        return np.asarray(real + 1j * imaginary if dtype.kind == "c" else real, dtype)
    message = f"the input {name} is of type {dtype.name}, of which there are no random values"
    raise VerifyError(message)


def stored(ends: Sequence[Endpoint], arrays: Sequence[Array]) -> dict[str, Array]:
    """Return the inputs of the TFLite model as the ONNX model stores them, by name."""
    pairs = zip(ends, arrays, strict=True)
    return {end.name: np.asarray(array.transpose(end.order), order="C") for end, array in pairs}


def restored(ends: Sequence[Endpoint], arrays: Sequence[Array]) -> list[Array]:
    """Return the outputs of the ONNX model in TFLite's layouts."""
    return [
        array.transpose(np.argsort(end.order)) if array.ndim == len(end.order) else array
        for end, array in zip(ends, arrays, strict=True)
    ]


# The comparison


def compare(
    name: str,
    want: Array,
    have: Array,
    tolerance: float = TOLERANCE,
    enough: float | None = None,
) -> Difference:
    """Compare an output that ONNX Runtime has made with what LiteRT wants it to be.

    Floats may differ by `tolerance` of their range, or by two of their own steps where these are
    coarser. NaN is equal to NaN, and an infinity to itself. `enough` decibels of signal to noise
    are right, too, if they are given.
    """
    kind = want.dtype.kind
    if want.dtype != have.dtype or want.shape != have.shape:
        types = [f"{a.dtype}{list(a.shape)}" for a in (want, have)]
        reason = f"{types[0]} in LiteRT, {types[1]} in ONNX Runtime"
        return Difference(name, want.dtype.name, math.inf, 0, 0, reason)
    distance = _distance(want, have)
    largest = float(distance.max(initial=0))
    real = np.abs(want) if kind == "c" else want.astype(np.float64)
    finite = real[np.isfinite(real)]
    spread = float(finite.max(initial=0) - finite.min(initial=0))
    allowed = float(want.dtype.name in _QUANTIZED)
    if kind in "fc":
        smallest = float(np.finfo(np.float32).tiny)
        part = max(tolerance, 2 * float(np.finfo(want.dtype).eps))
        allowed = part * max(spread, smallest)
    loudness = math.inf if enough is None else enough
    return Difference(
        name, want.dtype.name, largest, spread, allowed, "", _decibels(finite, distance), loudness
    )


def _decibels(signal: Array, noise: Array) -> float:
    """Return the ratio of signal to noise: inf without noise, -inf with nothing else."""
    peak = float(max(np.abs(signal).max(initial=0), noise.max(initial=0)))
    if not np.any(noise):
        return math.inf
    if not np.any(signal) or math.isinf(peak):
        return -math.inf
    loud, quiet = (float(np.linalg.norm(each / peak)) for each in (signal, noise))
    return 20 * math.log10(loud / quiet) if quiet else math.inf


def _distance(want: Array, have: Array) -> Array:
    if want.dtype.kind in "iu":
        # The difference of two signed extremes wraps around to the right unsigned number.
        steps: Array = np.maximum(want, have) - np.minimum(want, have)
        return steps.view(f"u{want.dtype.itemsize}").astype(np.float64)
    if want.dtype.kind == "b":
        return np.asarray(want != have, np.float64)
    with np.errstate(invalid="ignore"):
        apart = np.abs(want.astype(np.result_type(want, np.float64)) - have)
    same = (want == have) | (np.isnan(want) & np.isnan(have))
    return np.where(same, 0.0, np.where(np.isnan(apart), np.inf, apart))

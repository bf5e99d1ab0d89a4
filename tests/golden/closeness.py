"""Whether a converted network is as close to LiteRT as LiteRT's kernels are to each other.

Rounding errors add up over the layers of a network, and a quantized network rounds at each layer.
LiteRT has several sets of kernels with different results: its plain kernels, its reference kernels
and XNNPACK. ONNX Runtime may differ by as much as these kernels differ.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
import onnx
import onnxruntime
from ai_edge_litert.interpreter import Interpreter, OpResolverType

from tests.golden.kernels import as_assertion_error
from tests.support import difference, random_inputs
from tests.support.runtimes import Array, session
from tflite2onnx import Endpoint, Result, Stateful
from tflite2onnx.stateful import Session

_PLAIN = OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
_OTHERS = (OpResolverType.BUILTIN_REF, OpResolverType.AUTO)
_TOLERANCE = 1e-4  # allowed difference of floats, as a fraction of the largest element
_DECIBELS = 25.0  # smallest signal-to-noise ratio of quantized networks
_NPU_DECIBELS = 30.0  # the same for processors that round in their own ways
_KERNELS_DECIBELS = 3.0  # how much less than LiteRT's kernels is right, too
_NO_NOISE = 200.0
_STEPS = 50  # number of inputs of a stream
_APART = 1000  # the seeds of two streams of one range: more than a stream has
_NUMBERS = "biufc"
_QUANTIZED = ("int8", "uint8", "int16")
# Input ranges: for images, with indices for most tables; for sound, with indices for any table.
_RANGES: tuple[Mapping[str, tuple[float, float]], ...] = (
    {"float32": (0, 1), "int32": (0, 3), "int64": (0, 3)},
    {"float32": (-2, 2), "int32": (0, 1), "int64": (0, 1)},
)


_Scale = tuple[float, int]


@dataclass(frozen=True)
class Distance:
    """The difference between an array and the expected array.

    `largest` is the largest difference, `relative` the same as a fraction of the largest element,
    `decibels` the signal-to-noise ratio.
    """

    largest: float = 0.0
    relative: float = 0.0
    decibels: float = _NO_NOISE

    @staticmethod
    def measure(want: Array, have: Array, zero: int = 0) -> Distance:
        """Measure the distance; NaN is equal to NaN, and an infinity only to itself.

        `zero` is the zero point of integers.
        """
        a, b = (x.astype(complex if x.dtype.kind == "c" else float) - zero for x in (want, have))
        same = (a == b) | (np.isnan(a) & np.isnan(b))
        with np.errstate(invalid="ignore"):
            apart = np.where(same, 0.0, np.abs(a - b))
        apart[np.isnan(apart)] = math.inf
        size = np.abs(np.where(np.isfinite(a), a, 0))
        largest = float(apart.max(initial=0))
        relative = largest / max(float(size.max(initial=0)), 1e-6)
        signal, noise = (float(np.linalg.norm(x)) for x in (size, apart))
        if not noise or math.isinf(noise):
            return Distance(largest, relative, -math.inf if noise else _NO_NOISE)
        return Distance(largest, relative, 20 * math.log10(max(signal, 1e-15) / noise))

    def worse_of(self, other: Distance) -> Distance:
        """Return the worse of both in each respect."""
        return Distance(
            max(self.largest, other.largest),
            max(self.relative, other.relative),
            min(self.decibels, other.decibels),
        )

    def __str__(self) -> str:
        return f"{self.largest:.3g} ({self.relative:.2e} of the range, {self.decibels:.1f} dB)"


@dataclass(frozen=True)
class _Run:
    """LiteRT's outputs for some inputs; `quantized` marks the quantized outputs.

    `scales` are the scale and the zero point of each input, and those of each output.
    """

    inputs: Sequence[Array]
    outputs: Sequence[Array]
    quantized: Sequence[bool]
    scales: tuple[Sequence[_Scale], Sequence[_Scale]]

    @staticmethod
    def stream(
        data: bytes, inputs: Sequence[Sequence[Array]], kernels: OpResolverType = _PLAIN
    ) -> list[_Run]:
        """Run a network on one input after another, from the initial state."""
        interpreter = _interpreter(data, kernels)
        ports = interpreter.get_output_details()
        quantized = [_is_quantized(port) for port in ports]
        ends = (interpreter.get_input_details(), ports)
        scales = (
            [end["quantization"] for end in ends[0]],
            [end["quantization"] for end in ends[1]],
        )
        runs = []
        for arrays in inputs:
            for port, value in zip(interpreter.get_input_details(), arrays, strict=True):
                interpreter.set_tensor(port["index"], value)
            interpreter.invoke()
            made = [np.asarray(interpreter.get_tensor(port["index"])) for port in ports]
            runs.append(_Run(arrays, made, quantized, scales))
        return runs


def _interpreter(data: bytes, kernels: OpResolverType) -> Interpreter:
    interpreter = Interpreter(
        model_content=data, num_threads=1, experimental_op_resolver_type=kernels
    )
    interpreter.allocate_tensors()
    return interpreter


def _is_quantized(detail: Mapping[str, Any]) -> bool:
    scales = detail["quantization_parameters"]["scales"]
    return bool(scales.size) and np.dtype(detail["dtype"]).name in _QUANTIZED


@dataclass(frozen=True)
class ConvertedModel:
    """An ONNX model as bytes, its interface, and the number of consecutive runs."""

    model: bytes
    inputs: Sequence[Endpoint]
    outputs: Sequence[Endpoint]
    steps: int = 1

    @staticmethod
    def from_result(result: Result) -> ConvertedModel:
        """Return the picklable part of a result, for another process."""
        steps = _STEPS if result.states else 1
        return ConvertedModel(result.skeleton.serialize(), result.inputs, result.outputs, steps)


def _session(converted: ConvertedModel) -> onnxruntime.InferenceSession:
    model = onnx.load_model_from_string(converted.model)
    with as_assertion_error("it is no valid ONNX model"):
        onnx.checker.check_model(model, full_check=True)
    with as_assertion_error("ONNX Runtime does not take it"):
        return session(model, optimize=True)


def load(converted: ConvertedModel) -> None:
    """Check a model with the ONNX checker, and load it in ONNX Runtime.

    Raises:
        AssertionError: the checker or ONNX Runtime rejects the model.
    """
    _session(converted)


def compare_with_litert(
    data: bytes, converted: ConvertedModel, load: Callable[[ConvertedModel], Session] = _session
) -> None:
    """Compare the outputs of a runtime, by default ONNX Runtime, with those of LiteRT.

    The inputs are random. `load` loads the model in the runtime.

    The outputs of a float network may differ by 1e-4 of their range. The outputs of a quantized
    network need a signal-to-noise ratio of 25 dB, or may differ by one step. Either may differ by
    as much as LiteRT's own kernels differ. A network with state has to meet this limit at each step
    of a stream of inputs.

    Raises:
        AssertionError: an output differs by more than the limit.
        RuntimeError: LiteRT cannot run the network.
    """
    live = load(converted)
    streams = _streams(data, converted.steps)
    made = [_run_onnx(stream, converted, live) for stream in streams]
    quantized = any(map(_is_quantized, _interpreter(data, _PLAIN).get_tensor_details()))
    others: list[list[list[_Run]]] | None = None
    for step in range(converted.steps):
        runs, have = [stream[step] for stream in streams], [stream[step] for stream in made]
        distances = _distances(runs, have)
        far = [
            f"{end.name}: {distance}"
            for end, distance, steps in zip(
                converted.outputs, distances, runs[0].quantized, strict=True
            )
            if not _is_close(distance, quantized=quantized, steps=steps)
        ]
        if not far:
            continue
        others = _run_other_kernels(data, streams) if others is None else others
        whole, own = reduce(Distance.worse_of, distances), _ambiguity(runs, others, step)
        if whole.relative > 2 * own.relative and not (
            quantized and whole.decibels >= own.decibels - 3
        ):
            raise AssertionError(f"step {step}, {'; '.join(far)}; LiteRT's kernels differ by {own}")


@dataclass(frozen=True)
class Measured:
    """How far an output is from LiteRT's at its worst step, and how far LiteRT's kernels are apart.

    Integers are measured from their zero points. `steps` says whether they are quantized.
    """

    name: str
    distance: Distance
    own: Distance
    steps: bool

    @property
    def is_right(self) -> bool:
        """Whether the output is right for a processor that rounds in its own ways.

        It has 30 dB, at most 3 dB less than LiteRT's kernels, or differs by one step at most.
        """
        decibels = min(_NPU_DECIBELS, self.own.decibels - _KERNELS_DECIBELS)
        is_near = self.steps and self.distance.largest <= 1
        return is_near or self.distance.decibels >= decibels

    def __str__(self) -> str:
        return (
            f"{self.name} {self.distance.decibels:.1f} dB, {self.distance.largest:.3g}"
            f" (LiteRT {self.own.decibels:.1f}, {self.own.largest:.3g})"
        )


def measure_outputs(
    data: bytes,
    converted: ConvertedModel,
    load: Callable[[ConvertedModel], Session],
    count: int = 1,
) -> list[Measured]:
    """Return how far each output of a runtime is from LiteRT's, for random inputs.

    `count` is the number of inputs, or of streams of them, in each range. A few numbers after a
    Softmax need more than one, because a step before it is many steps after it.

    Raises:
        AssertionError: an output has another shape or type.
        RuntimeError: LiteRT cannot run the network.
    """
    live = load(converted)
    streams = _streams(data, converted.steps, count)
    made = [_run_onnx(stream, converted, live) for stream in streams]
    others = _run_other_kernels(data, streams)
    measured = []
    for step in range(converted.steps):
        runs, have = [stream[step] for stream in streams], [stream[step] for stream in made]
        kernels = [[stream[step].outputs for stream in each] for each in others]
        own = [_distances(runs, each, from_zero=True) for each in kernels]
        own.append([Distance() for _ in runs[0].outputs])
        worst = [reduce(Distance.worse_of, each) for each in zip(*own, strict=True)]
        found = zip(_distances(runs, have, from_zero=True), worst, strict=True)
        measured.append([*found])
    return [
        Measured(
            end.name,
            reduce(Distance.worse_of, [step[i][0] for step in measured]),
            reduce(Distance.worse_of, [step[i][1] for step in measured]),
            streams[0][0].quantized[i],
        )
        for i, end in enumerate(converted.outputs)
    ]


def _is_close(distance: Distance, *, quantized: bool, steps: bool) -> bool:
    return (
        distance.relative <= _TOLERANCE
        or (quantized and distance.decibels >= _DECIBELS)
        or (steps and distance.largest <= 1)
    )


def _streams(data: bytes, length: int, count: int = 1) -> list[list[_Run]]:
    """Return LiteRT's runs of random streams that it accepts: indices must be in range.

    `count` is their number in each range.
    """
    streams: list[list[_Run]] = []
    refusals: list[RuntimeError] = []
    for i in range(len(_RANGES) * count):
        turn, place = divmod(i, len(_RANGES))
        ranges, first = _RANGES[place], place + turn * _APART
        seeds = range(first, first + len(_RANGES) * length, len(_RANGES))
        try:
            streams.append(_Run.stream(data, [random_inputs(data, s, **ranges) for s in seeds]))
        except RuntimeError as error:
            refusals.append(error)
    if not streams:
        raise refusals[0]
    return streams


def _run_onnx(
    stream: Sequence[_Run], converted: ConvertedModel, live: Session
) -> list[list[Array]]:
    """Return the outputs of a runtime for the same inputs, in TFLite's layouts."""
    session = Stateful(live)
    return [_step(run, converted, session) for run in stream]


def _step(run: _Run, converted: ConvertedModel, session: Stateful) -> list[Array]:
    pairs = zip(converted.inputs, run.inputs, run.scales[0], strict=True)
    feeds = {
        end.name: np.ascontiguousarray(_dequantize(x, end, scale).transpose(end.order))
        for end, x, scale in pairs
    }
    outputs = [*zip(converted.outputs, session.run(None, feeds), strict=True)]
    for end, have in outputs:
        rank = len(end.order)
        assert have.ndim == rank, f"{end.name}: rank must be {rank}, got {have.ndim}"
    made = [
        _quantize(have.transpose(np.argsort(end.order)), want, scale)
        for (end, have), want, scale in zip(outputs, run.outputs, run.scales[1], strict=True)
    ]
    for end, want, have in zip(converted.outputs, run.outputs, made, strict=True):
        if want.dtype.kind not in _NUMBERS or (want.dtype, want.shape) != (have.dtype, have.shape):
            unlike = difference(want, have)
            assert not unlike, f"{end.name}: {unlike}"
    return made


def _dequantize(x: Array, end: Endpoint, scale: _Scale) -> Array:
    """Return the real numbers of integers if an input takes floats."""
    if not scale[0] or x.dtype.kind not in "iu" or np.dtype(end.dtype) != np.float32:
        return x
    return (x.astype(np.float32) - np.float32(scale[1])) * np.float32(scale[0])


def _quantize(have: Array, want: Array, scale: _Scale) -> Array:
    """Return the integers of real numbers if LiteRT has integers."""
    if not scale[0] or want.dtype.kind not in "iu" or have.dtype != np.float32:
        return have
    limits, numbers = np.iinfo(want.dtype), np.round(have / np.float32(scale[0])) + scale[1]
    return np.clip(numbers, limits.min, limits.max).astype(want.dtype)


def _distances(
    runs: Sequence[_Run], made: Sequence[Sequence[Array]], *, from_zero: bool = False
) -> list[Distance]:
    """Return the distance of each output over all runs together, `from_zero` points or not."""
    zeros = [zero if from_zero else 0 for _, zero in runs[0].scales[1]]
    return [
        Distance.measure(
            np.stack([r.outputs[i] for r in runs]), np.stack([m[i] for m in made]), zero
        )
        if want.dtype.kind in _NUMBERS
        else Distance()
        for i, (want, zero) in enumerate(zip(runs[0].outputs, zeros, strict=True))
    ]


def _run_other_kernels(data: bytes, streams: Sequence[Sequence[_Run]]) -> list[list[list[_Run]]]:
    """Run LiteRT's other kernels on the same inputs, if they can run the network."""
    others = []
    for kernels in _OTHERS:
        with contextlib.suppress(RuntimeError, ValueError):
            inputs = [[run.inputs for run in stream] for stream in streams]
            others.append([_Run.stream(data, each, kernels) for each in inputs])
    return others


def _ambiguity(
    runs: Sequence[_Run], others: Sequence[Sequence[Sequence[_Run]]], step: int
) -> Distance:
    """Return the distance between LiteRT's own kernels at a step."""
    made = [[stream[step].outputs for stream in streams] for streams in others]
    return reduce(
        Distance.worse_of, (d for each in made for d in _distances(runs, each)), Distance()
    )

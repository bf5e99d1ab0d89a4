"""A converted model beside its original: ONNX Runtime against LiteRT on the same inputs.

LiteRT runs its plain kernels, which define what the operators mean, without delegates. ONNX
Runtime runs the model as it is, once more with the tensors between the operators as outputs, and,
if an element is further off than one operator may be, each operator on LiteRT's own inputs. If the
model is not right, it runs again without optimizations, which tells the runtime's kernels from the
conversion. `difference` says what may differ, with one exception:

LiteRT is not one reference. Its plain kernels round a product of integers twice, its reference
kernels and XNNPACK once, and all of them round activations of a "dynamic range" network as they
come. A tensor of the network that is further off than is allowed is right if it is about as close
as these kernels are to each other on the same inputs: within twice their difference or, in a
quantized network, with at most 3 dB more noise.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

from tflite2onnx.convert import convert
from tflite2onnx.errors import OptionError, VerifyError
from tflite2onnx.graph import Graph
from tflite2onnx.passes.inline_subgraphs import runs_graphs
from tflite2onnx.reader.model import read_model
from tflite2onnx.tensor import Array
from tflite2onnx.verification.entry_point import move_signature_first
from tflite2onnx.verification.images import image_input
from tflite2onnx.verification.inner_tensors import InnerTensors, Place, match_places
from tflite2onnx.verification.inputs import sample
from tflite2onnx.verification.onnx_model import (
    ConvertedModel,
    OpenedModel,
    locate_tensors,
    open_model,
)
from tflite2onnx.verification.results import Report
from tflite2onnx.verification.runner import Found, Progress, Run
from tflite2onnx.verification.runtimes import ModelFile, interpreter_of
from tflite2onnx.verification.tolerance import TOLERANCE
from tflite2onnx.writer import Skeleton

SAMPLES = 2


def verify(  # noqa: PLR0913 - options
    model: ModelFile,
    converted: ConvertedModel | None = None,
    *,
    inputs: Mapping[str, Array] | None = None,
    images: Sequence[str | os.PathLike[str]] = (),
    seed: int = 0,
    samples: int | None = None,
    tolerance: float = TOLERANCE,
    tensors: bool = True,
    per_operator: bool = False,
    progress: Progress | None = None,
) -> Report:
    """Run both models on the same inputs and compare their outputs, and the tensors inside them.

    Args:
        model: the TFLite model, as a path or as the bytes of its file.
        converted: what `convert` made of it: its result, or the ONNX model (a path, the bytes of
            the file, a ModelProto), whose metadata say how its inputs and outputs are laid out;
            the model is converted if None.
        inputs: arrays for inputs of the TFLite model, by name, as it takes them; those that are
            not named are random.
        images: pictures (PNG, JPEG), each of which is a sample of the input that takes pictures:
            resized, and normalised as the model's metadata say. They take the package Pillow.
        seed: of the random numbers, 0 or more.
        samples: how often to run, 1 or more times; if None, twice, or as often as there are
            pictures.
        tolerance: what floats may differ by, as a part of the range of their tensor.
        tensors: compare the tensors between the operators as well.
        per_operator: run each operator on LiteRT's own inputs even if no element is far off.
        progress: is called with how many tensors are compared, and of how many.

    Raises:
        VerifyError: a runtime is not installed, or cannot run its model; or inputs do not fit.
        ConversionError: the model cannot be converted.
    """
    samples = len(images) or SAMPLES if samples is None else samples
    _check(samples, seed)
    converted = convert(model) if converted is None else converted
    ends = open_model(converted)
    both = _Both(model, converted, ends, tolerance, progress or (lambda *_: None))
    both.check_same()
    given = both.given_inputs(inputs or {}, images)
    ways = [False] * tensors + [True] * per_operator
    try:
        arrays = both.samples(seed, samples, given)
        report = both.report(arrays, seed, ways)
    except VerifyError:
        if any(given):
            raise
        arrays = both.samples(seed, samples, [{}], tame=True)
        report = both.report(arrays, seed, ways)
    if report.ok:
        return report
    return replace(report, right_unoptimized=both.is_right_unoptimized(arrays, report))


def _check(samples: int, seed: int) -> None:
    if samples < 1:
        raise OptionError(f"there is nothing to verify on {samples} samples")
    if seed < 0:
        raise OptionError(f"the seed of the random numbers is {seed}; it can be 0 or more")


class _Both:
    """The two models, and how they are compared."""

    def __init__(
        self,
        model: ModelFile,
        converted: ConvertedModel,
        ends: OpenedModel,
        tolerance: float,
        progress: Progress,
        *,
        optimize: bool = True,
    ) -> None:
        self._source, self._model = model, move_signature_first(model, ends.signature)
        self._converted, self._ends = converted, ends
        self._tolerance, self._progress = tolerance, progress
        self._optimize = optimize

    def check_same(self) -> None:
        """Raise VerifyError if the ONNX model has other inputs or outputs than the TFLite model."""
        shapes = [tuple(detail["shape"]) for detail in self._interpreter.get_input_details()]
        count, ends = len(self._interpreter.get_output_details()), self._ends
        if shapes != [end.tflite_shape for end in ends.inputs] or count != len(ends.outputs):
            raise VerifyError(
                "the ONNX model was not made from this TFLite model: inputs or outputs differ"
            )

    def given_inputs(
        self, inputs: Mapping[str, Array], images: Sequence[str | os.PathLike[str]]
    ) -> list[Mapping[str, Array]]:
        """Return what is given for the inputs by name, of one sample after another."""
        if not images:
            return [inputs]
        target = image_input(self._model, self._interpreter.get_input_details())
        return [{**inputs, target.name: target.array(path)} for path in images]

    def samples(
        self, seed: int, count: int, given: Sequence[Mapping[str, Array]], *, tame: bool = False
    ) -> list[list[Array]]:
        """Return inputs for so many runs; see `sample`."""
        return [
            sample(self._interpreter, seed + i, given[i % len(given)], tame=tame)
            for i in range(count)
        ]

    def report(self, arrays: Sequence[Sequence[Array]], seed: int, ways: Sequence[bool]) -> Report:
        """Compare both; operators run alone as well if anything is further off than one may be.

        `ways` are those in which tensors inside are compared: each operator alone, or not.
        """
        run, (outputs, inner) = self._compare_samples(arrays, ways)
        differences = [c.difference for each in inner.values() for c in each.values()]
        if True not in ways and not all(
            each.is_within for each in (*outputs.values(), *differences)
        ):
            inner |= self._compare_samples(arrays, [True])[1][1]
        chain = inner.get(False, {})
        run.allow_kernel_differences(arrays, self._places if chain else (), outputs, chain)
        graph = self._graph
        return Report(
            tuple(outputs.values()),
            len(arrays),
            seed,
            tuple(chain.values()),
            tuple(inner.get(True, {}).values()),
            tuple(op.code for op in graph.ops if runs_graphs(op)),
            tuple(tensor.name for tensor in graph.outputs),
        )

    def is_right_unoptimized(self, arrays: Sequence[Sequence[Array]], report: Report) -> bool:
        """Return whether all is right if ONNX Runtime does not optimize the ONNX model."""
        try:
            other = _Both(
                self._source,
                self._converted,
                open_model(self._converted, optimize=False),
                self._tolerance,
                lambda *_: None,
                optimize=False,
            )
            return other.report(arrays, report.seed, [True] if report.operators else []).ok
        except VerifyError:  # it has no kernel for a node
            return False

    def _compare_samples(
        self, arrays: Sequence[Sequence[Array]], ways: Sequence[bool]
    ) -> tuple[Run, Found]:
        """Compare both, inside in each of some ways: operators alone, or not."""
        interpreter = interpreter_of(self._model, inner=bool(ways))
        run = Run(self._model, interpreter, self._ends, self._tolerance, self._progress)
        walks = [
            InnerTensors(self._skeleton, self._places, alone=way, optimize=self._optimize)
            for way in ways
            if self._places
        ]
        return run, run.compare_samples(arrays, walks)

    @cached_property
    def _interpreter(self) -> Any:
        """What knows the inputs and outputs; it is not run."""
        return interpreter_of(self._model)

    @cached_property
    def _graph(self) -> Graph:
        return read_model(self._model).graphs[0]

    @cached_property
    def _skeleton(self) -> Skeleton:
        return locate_tensors(self._source, self._converted, self._ends)

    @cached_property
    def _places(self) -> list[Place]:
        return match_places(self._graph, self._skeleton)

"""Compare a converted model with its original: ONNX Runtime and LiteRT run on the same inputs.

LiteRT runs its plain kernels, which define the semantics of the operators, without delegates. ONNX
Runtime runs the unchanged model, then the model with the tensors between the operators as outputs.
If an element exceeds the limit of a single element, ONNX Runtime also runs each operator on
LiteRT's own inputs. If the verification fails, ONNX Runtime runs the model again without
optimizations, to distinguish errors of its kernels from errors of the conversion. tolerance.py
defines the limits, with one exception:

LiteRT's kernels differ from each other. Its plain kernels round a product of integers twice, its
reference kernels and XNNPACK once, and all of them round the activations of a "dynamic range"
network at run time. A tensor of the network that exceeds its limit is accepted if its difference
is comparable to the difference between these kernels on the same inputs: at most twice as large
or, in a quantized network, with at most 3 dB more noise.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

from tflite2onnx.convert import convert
from tflite2onnx.errors import OptionError, VerifyError
from tflite2onnx.graph import Graph
from tflite2onnx.passes.dynamic_shapes import infer_shapes
from tflite2onnx.passes.inline_subgraphs import runs_graphs
from tflite2onnx.quantization.table import describe_operator
from tflite2onnx.reader.model import read_model
from tflite2onnx.tensor import Shape
from tflite2onnx.verification.entry_point import (
    cut_entry_point,
    move_signature_first,
    resize_entry_point,
)
from tflite2onnx.verification.given_inputs import GivenArray, GivenInputs, open_inputs
from tflite2onnx.verification.images import find_image_input
from tflite2onnx.verification.inner_tensors import InnerTensors, Place, match_places
from tflite2onnx.verification.inputs import Samples, sample
from tflite2onnx.verification.onnx_model import (
    ConvertedModel,
    OpenedModel,
    locate_tensors,
    open_model,
)
from tflite2onnx.verification.results import Report
from tflite2onnx.verification.runner import Found, Progress, Run
from tflite2onnx.verification.runtimes import ModelFile, open_interpreter, session_of
from tflite2onnx.writer import Skeleton

SAMPLES = 2


def verify(  # noqa: PLR0913 - options
    model: ModelFile,
    converted: ConvertedModel | None = None,
    *,
    inputs: Mapping[str, GivenArray] | None = None,
    images: Sequence[str | os.PathLike[str]] = (),
    seed: int = 0,
    samples: int | None = None,
    tolerance: float | None = None,
    tensors: bool = True,
    per_operator: bool = False,
    progress: Progress | None = None,
) -> Report:
    """Run both models on the same inputs; compare their outputs and the tensors between operators.

    Args:
        model: the TFLite model, as a path or as the bytes of its file.
        converted: the result of `convert`, or the ONNX model (a path, the bytes of the file, a
            ModelProto), whose metadata contain the layouts of its inputs and outputs. If None, the
            model is converted first.
        inputs: arrays for inputs of the TFLite model, by name, in TFLite's layout and element
            type; all other inputs are random. An array is one sample or a batch of samples. The
            path of a .npy file, of a .npz file with one array or an array of the input's name, or
            of a folder of these files stands for its arrays.
        images: pictures (PNG, JPEG) or folders of pictures; each picture is a sample of the image
            input. Pictures are resized, and normalised according to the model's metadata. The
            package Pillow is needed.
        seed: the seed of the random numbers, 0 or more.
        samples: the number of runs, 1 or more; None means one run per sample of `inputs` and
            `images`, or two runs if there are none.
        tolerance: the allowed difference of floats, as a fraction of the range of their tensor,
            above 0. None means 1e-4; for a model of half precision 1e-2, or 30 dB of signal to
            noise.
        tensors: compare the tensors between the operators as well.
        per_operator: run each operator on LiteRT's own inputs even if no element exceeds its limit.
        progress: a callback that gets the number of tensors compared so far, and the total.

    Raises:
        VerifyError: a runtime is not installed or cannot run its model, or inputs do not match the
            model.
        ConversionError: the model cannot be converted.
    """
    _check_arguments(SAMPLES if samples is None else samples, seed, tolerance)
    converted = convert(model) if converted is None else converted
    ends = open_model(converted)
    both = _Both(model, converted, ends, tolerance, progress or (lambda *_: None))
    both.check_same()
    given = both.open_inputs(inputs or {}, images)
    count = given.count or SAMPLES if samples is None else samples
    ways = [False] * tensors + [True] * per_operator
    try:
        arrays = both.samples(seed, count, given)
        report = both.report(arrays, seed, ways)
    except VerifyError:
        if given.count:
            raise
        arrays = both.samples(seed, count, given, tame=True)
        report = both.report(arrays, seed, ways)
    names = tuple(given.origin(i) or f"seed {seed + i}" for i in range(count))
    report = replace(report, sample_names=names)
    if report.ok:
        return report
    return replace(report, right_unoptimized=both.is_right_unoptimized(arrays, report))


def _check_arguments(samples: int, seed: int, tolerance: float | None) -> None:
    if tolerance is not None and not 0 < tolerance < math.inf:
        raise OptionError(f"tolerance must be a finite number above 0, got {tolerance}")
    if samples < 1:
        raise OptionError(f"the number of samples must be at least 1, got {samples}")
    if seed < 0:
        raise OptionError(f"the seed must be at least 0, got {seed}")


class _Both:
    """The two models, and the options of their comparison."""

    def __init__(
        self,
        model: ModelFile,
        converted: ConvertedModel,
        ends: OpenedModel,
        tolerance: float | None,
        progress: Progress,
        *,
        optimize: bool = True,
    ) -> None:
        self._source, self._whole = model, move_signature_first(model, ends.signature)
        self._model = cut_entry_point(self._whole, ends.part)
        # An interpreter that describes the inputs and outputs; it is never invoked.
        self._interpreter = open_interpreter(self._model)
        shapes = [end.tflite_shape for end in ends.inputs]
        self._is_resized = _list_input_shapes(self._interpreter) != shapes
        if self._is_resized:
            self._model = resize_entry_point(self._model, shapes)
            self._interpreter = open_interpreter(self._model)
        self._converted, self._ends = converted, ends
        self._tolerance, self._progress = tolerance, progress
        self._optimize = optimize

    def check_same(self) -> None:
        """Raise VerifyError if the inputs or outputs of the two models do not match."""
        shapes = _list_input_shapes(self._interpreter)
        count, ends = len(self._interpreter.get_output_details()), self._ends
        if shapes != [end.tflite_shape for end in ends.inputs] or count != len(ends.outputs):
            raise VerifyError(
                "the ONNX model must be converted from this TFLite model, but its inputs or outputs"
                " differ"
            )

    def open_inputs(
        self, inputs: Mapping[str, GivenArray], images: Sequence[str | os.PathLike[str]]
    ) -> GivenInputs:
        """Return the samples of the user's arrays and pictures."""
        details = self._interpreter.get_input_details()
        return open_inputs(inputs, images, details, lambda: find_image_input(self._whole, details))

    def samples(self, seed: int, count: int, given: GivenInputs, *, tame: bool = False) -> Samples:
        """Return the inputs of `count` runs; see `sample`."""
        return Samples(
            lambda i: sample(self._interpreter, seed + i, given.read_arrays(i), tame=tame), count
        )

    def report(self, arrays: Samples, seed: int, ways: Sequence[bool]) -> Report:
        """Compare both models; if an element exceeds its limit, also run each operator alone.

        `ways` are the modes in which tensors between operators are compared: True runs each
        operator alone, on LiteRT's own inputs; False runs the whole network.
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
        compared = [c for each in inner.values() for c in each.values()]
        names = {c.name for c in compared if not c.difference.ok}
        storage = {name: describe_operator(self._skeleton.plan, name) for name in names}
        return Report(
            tuple(outputs.values()),
            len(arrays),
            seed,
            tuple(chain.values()),
            tuple(inner.get(True, {}).values()),
            tuple(op.code for op in graph.ops if runs_graphs(op)),
            tuple(tensor.name for tensor in graph.outputs),
            storage=storage,
        )

    def is_right_unoptimized(self, arrays: Samples, report: Report) -> bool:
        """Return whether the verification succeeds with ONNX Runtime's optimizations disabled."""
        try:
            other = _Both(
                self._source,
                self._converted,
                open_model(self._converted, partial(session_of, optimize=False)),
                self._tolerance,
                lambda *_: None,
                optimize=False,
            )
            return other.report(arrays, report.seed, [True] if report.operators else []).ok
        except VerifyError:  # ONNX Runtime has no kernel for a node
            return False

    def _compare_samples(self, arrays: Samples, ways: Sequence[bool]) -> tuple[Run, Found]:
        """Compare both models, and the tensors between operators in each of the modes `ways`."""
        interpreter = open_interpreter(self._model, inner=bool(ways))
        run = Run(self._model, interpreter, self._ends, self._tolerance, self._progress)
        walks = [
            InnerTensors(self._skeleton, self._places, alone=way, optimize=self._optimize)
            for way in ways
            if self._places
        ]
        return run, run.compare_samples(arrays, walks)

    @cached_property
    def _graph(self) -> Graph:
        graph = read_model(self._model).graphs[0]
        return infer_shapes(graph) if self._is_resized else graph

    @cached_property
    def _skeleton(self) -> Skeleton:
        return locate_tensors(self._source, self._converted, self._ends)

    @cached_property
    def _places(self) -> list[Place]:
        return match_places(self._graph, self._skeleton)


def _list_input_shapes(interpreter: Any) -> list[Shape]:
    return [tuple(map(int, detail["shape"])) for detail in interpreter.get_input_details()]

"""A converted model beside its original: ONNX Runtime against LiteRT on the same inputs.

LiteRT runs its plain kernels, which define what the operators mean, without delegates; ONNX
Runtime the model as it is, and once more with the tensors between the operators as outputs. What
may differ is said in `difference`, with one exception:

LiteRT is not one reference. Its plain kernels round a product of integers twice, its reference
kernels and XNNPACK once, and all of them round activations of a "dynamic range" network as they
come. What is further off than is allowed is right if it is about as close as these kernels are to
each other on the same inputs: within twice their difference or, in a quantized network, with at
most 3 dB more noise.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from tflite2onnx.convert import convert
from tflite2onnx.errors import OptionError, VerifyError
from tflite2onnx.inline import runs_graphs
from tflite2onnx.reader import read
from tflite2onnx.tensor import Array
from tflite2onnx.verification.converted import ConvertedModel, Opened, inside, opened
from tflite2onnx.verification.difference import TOLERANCE
from tflite2onnx.verification.entry import with_entry
from tflite2onnx.verification.findings import Report
from tflite2onnx.verification.images import image_input
from tflite2onnx.verification.run import Found, Progress, Run
from tflite2onnx.verification.runtimes import ModelFile, interpreter_of
from tflite2onnx.verification.samples import sample
from tflite2onnx.verification.tensors import Inside, Place, places
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
        per_operator: also run each operator on LiteRT's own inputs, so that differences do not
            add up.
        progress: is called with how many tensors are compared, and of how many.

    Raises:
        VerifyError: a runtime is not installed, or cannot run its model; or inputs do not fit.
        ConversionError: the model cannot be converted.
    """
    samples = len(images) or SAMPLES if samples is None else samples
    _check(samples, seed)
    converted = convert(model) if converted is None else converted
    ends = opened(converted)
    source, model = model, with_entry(model, ends.signature)
    interpreter = interpreter_of(model, inner=tensors or per_operator)
    _check_same(interpreter, ends)
    given = _given(model, interpreter, inputs or {}, images)
    arrays = [sample(interpreter, seed + i, given[i % len(given)]) for i in range(samples)]
    skeleton = inside(source, converted, ends) if tensors or per_operator else None
    graph = read(model).graphs[0]
    found = [] if skeleton is None else places(graph, skeleton)

    both = _Both(model, ends, skeleton, found, tolerance, progress or (lambda *_: None))
    ways = [False] * tensors + [True] * per_operator
    try:
        outputs, inner = both.found(interpreter, arrays, ways)
    except VerifyError:
        if any(given):
            raise
        outputs, inner = both.found_tamely(seed, samples, ways)
    closed = tuple(op.code for op in graph.ops if runs_graphs(op))
    return Report(outputs, samples, seed, inner.get(False, ()), inner.get(True, ()), closed)


def _check(samples: int, seed: int) -> None:
    if samples < 1:
        message = f"there is nothing to verify on {samples} samples"
        raise OptionError(message)
    if seed < 0:
        message = f"the seed of the random numbers is {seed}; it can be 0 or more"
        raise OptionError(message)


class _Both(NamedTuple):
    """The two models, the ONNX model's inside if it is looked at, and how they are compared."""

    model: ModelFile
    ends: Opened
    skeleton: Skeleton | None
    places: Sequence[Place]
    tolerance: float
    progress: Progress

    def found(
        self, interpreter: Any, arrays: Sequence[Sequence[Array]], ways: Sequence[bool]
    ) -> Found:
        """Compare both, and operators alone too if their errors may have added up."""
        outputs, inner = self.compared(interpreter, arrays, ways)
        wrong = any(not c.difference.ok for each in inner.values() for c in each)
        if wrong and True not in ways:
            inner |= self.compared(interpreter_of(self.model, inner=True), arrays, [True])[1]
        return outputs, inner

    def found_tamely(self, seed: int, samples: int, ways: Sequence[bool]) -> Found:
        """Compare both on numbers that are indices of whatever the model looks up."""
        interpreter = interpreter_of(self.model, inner=bool(ways))
        arrays = [sample(interpreter, seed + i, {}, tame=True) for i in range(samples)]
        return self.found(interpreter, arrays, ways)

    def compared(
        self, interpreter: Any, arrays: Sequence[Sequence[Array]], ways: Sequence[bool]
    ) -> Found:
        """Compare both on some samples, inside in each of some ways: operators alone, or not."""
        known = self.skeleton if self.places else None
        walks = [] if known is None else [Inside(known, self.places, alone=way) for way in ways]
        run = Run(self.model, interpreter, self.ends, self.tolerance, self.progress)
        return run.compared(arrays, walks)


def _given(
    model: ModelFile, interpreter: Any, inputs: Mapping[str, Array],
    images: Sequence[str | os.PathLike[str]],
) -> list[Mapping[str, Array]]:  # fmt: skip
    """Return what is given for the inputs by name, of one sample after another."""
    if not images:
        return [inputs]
    target = image_input(model, interpreter.get_input_details())
    return [{**inputs, target.name: target.array(path)} for path in images]


def _check_same(interpreter: Any, ends: Opened) -> None:
    shapes = [tuple(detail["shape"]) for detail in interpreter.get_input_details()]
    count = len(interpreter.get_output_details())
    if shapes != [end.tflite_shape for end in ends.inputs] or count != len(ends.outputs):
        message = "the ONNX model was not made from this TFLite model: inputs or outputs differ"
        raise VerifyError(message)

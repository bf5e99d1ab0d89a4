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

from collections.abc import Mapping, Sequence
from typing import Any

from tflite2onnx.convert import convert
from tflite2onnx.errors import OptionError, VerifyError
from tflite2onnx.reader import read
from tflite2onnx.tensor import Array
from tflite2onnx.verification.converted import ConvertedModel, Opened, inside, opened
from tflite2onnx.verification.difference import TOLERANCE
from tflite2onnx.verification.findings import Report
from tflite2onnx.verification.run import Progress, Run
from tflite2onnx.verification.runtimes import ModelFile, interpreter_of
from tflite2onnx.verification.samples import sample
from tflite2onnx.verification.tensors import Inside, places

SAMPLES = 2


def verify(  # noqa: PLR0913 - options
    model: ModelFile,
    converted: ConvertedModel | None = None,
    *,
    inputs: Mapping[str, Array] | None = None,
    seed: int = 0,
    samples: int = SAMPLES,
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
        seed: of the random numbers.
        samples: how often to run, 1 or more times.
        tolerance: what floats may differ by, as a part of the range of their tensor.
        tensors: compare the tensors between the operators as well.
        per_operator: also run each operator on LiteRT's own inputs, so that differences do not
            add up.
        progress: is called with how many tensors are compared, and of how many.

    Raises:
        VerifyError: a runtime is not installed, or cannot run its model; or inputs do not fit.
        ConversionError: the model cannot be converted.
    """
    if samples < 1:
        message = f"there is nothing to verify on {samples} samples"
        raise OptionError(message)
    converted = convert(model) if converted is None else converted
    interpreter = interpreter_of(model, inner=tensors or per_operator)
    ends = opened(converted)
    _check_same(interpreter, ends)
    walks = _walks(model, converted, ends, [False] * tensors + [True] * per_operator)
    run = Run(model, interpreter, ends, walks, tolerance)
    arrays = [sample(interpreter, seed + i, inputs or {}) for i in range(samples)]
    outputs, inner = run.compared(arrays, progress or (lambda *_: None))
    found = {walk.alone: each for walk, each in zip(walks, inner, strict=True)}
    return Report(outputs, samples, seed, found.get(False, ()), found.get(True, ()))


def _walks(
    model: ModelFile, converted: ConvertedModel, ends: Opened, alone: Sequence[bool]
) -> list[Inside]:
    """Return the ways in which to go through the tensors inside; none if they are not known."""
    skeleton = inside(model, converted, ends) if alone else None
    if skeleton is None:
        return []
    found = places(read(model).graphs[0], skeleton)
    return [Inside(skeleton, found, alone=each) for each in alone if found]


def _check_same(interpreter: Any, ends: Opened) -> None:  # noqa: ANN401
    shapes = [tuple(detail["shape"]) for detail in interpreter.get_input_details()]
    count = len(interpreter.get_output_details())
    if shapes != [end.tflite_shape for end in ends.inputs] or count != len(ends.outputs):
        message = "the ONNX model was not made from this TFLite model: inputs or outputs differ"
        raise VerifyError(message)

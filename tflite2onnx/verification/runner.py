"""Run both models on the same samples and compare their results."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from tflite2onnx.errors import VerifyError
from tflite2onnx.tensor import Array
from tflite2onnx.verification.inner_tensors import (
    InnerTensors,
    TensorComparison,
    TensorPlace,
    as_stored,
    compare_tensor,
)
from tflite2onnx.verification.inputs import (
    Detail,
    Samples,
    as_text,
    compute_step,
    convert_for_onnx,
    restore_layouts,
    round_inputs,
    store_inputs,
)
from tflite2onnx.verification.kernels.other_kernels import OTHER_KERNELS, OperatorKernels
from tflite2onnx.verification.onnx_model import OpenedModel
from tflite2onnx.verification.runtimes import (
    PLAIN_KERNELS,
    REFERENCE_KERNELS,
    has_half_endpoints,
    has_quantized_tensors,
    read_inner_tensor,
    run_litert,
    run_onnx,
)
from tflite2onnx.verification.tolerance import (
    DECIBELS,
    HALF_DECIBELS,
    HALF_TOLERANCE,
    LARGEST,
    QUANTIZED,
    TOLERANCE,
    Difference,
    Limits,
    compare,
)

Progress = Callable[[int, int], None]
# The differences of outputs by name, and those of inner tensors by whether operators run alone,
# then by name.
Found = tuple[dict[str, Difference], dict[bool, dict[str, TensorComparison]]]
_Each = TypeVar("_Each", Difference, TensorComparison)

# Kernels between which the tensors can be read, unlike kernels of XNNPACK.
_OPEN_KERNELS = REFERENCE_KERNELS


class NothingShownError(Exception):
    """An output of LiteRT has no finite element, or is the same number everywhere."""


class Run:
    """Runs both models and compares their tensors.

    `open_model` opens the TFLite model with other kernels (see `open_interpreter`), and
    `operator_kernels` runs its operators with other kernels.
    """

    def __init__(
        self,
        open_model: Callable[..., Any],
        interpreter: Any,
        opened: OpenedModel,
        tolerance: float | None,
        progress: Progress,
        operator_kernels: OperatorKernels,
    ) -> None:
        self._open, self._interpreter, self._opened = open_model, interpreter, opened
        self._operator_kernels = operator_kernels
        self._progress = progress
        has_half = opened.options.float16 or has_half_endpoints(interpreter)
        is_half = has_half and tolerance is None
        half = HALF_DECIBELS if is_half else math.inf
        noise = DECIBELS if has_quantized_tensors(interpreter) else half
        part = tolerance or (HALF_TOLERANCE if is_half else TOLERANCE)
        bound = DECIBELS if opened.options.with_target().quantization == "symmetric" else half
        self._limits = Limits(part, noise, decibels_alone=bound)

    def compare_samples(
        self,
        samples: Samples,
        walks: Sequence[InnerTensors] = (),
        *,
        kernels: str = "",
        must_show: bool = False,
    ) -> Found:
        """Return the worst sample of each output and each tensor; state is reset at the start.

        `kernels` are those of LiteRT that run in place of the interpreter's.

        Raises:
            NothingShownError: with `must_show`, an output of the first sample is the same number
            everywhere.
        """
        self._opened.session.reset()
        outputs: dict[str, Difference] = {}
        levels: list[_Levels] = [_Levels() for _ in self._opened.outputs]
        inner: dict[bool, dict[str, TensorComparison]] = {walk.alone: {} for walk in walks}
        total = len(samples) * sum(len(walk.places) for walk in walks)
        done = 0
        interpreter = self._open(kernels) if kernels else self._interpreter
        details = self._interpreter.get_input_details()
        for index, sample in enumerate(samples):
            arrays = round_inputs(self._opened.inputs, sample, details)
            litert = run_litert(interpreter, arrays)
            for level, array in zip(levels, litert, strict=True):
                level.add(array)
            if must_show and any(level.find() is not None for level in levels):
                raise NothingShownError
            feeds = store_inputs(self._opened.inputs, arrays, details)
            state = self._opened.session.state
            feeds |= state
            onnx = restore_layouts(self._opened.outputs, run_onnx(self._opened.session, feeds))
            _keep_worst(outputs, self._compare_outputs(self._as_onnx(litert), onnx), index)
            for walk in walks:
                if walk.alone and state:  # after the first run LiteRT has another state
                    done += len(walk.places)
                    continue
                for comparison in walk.compare_tensors(
                    interpreter, feeds, self._limits, self._run_operators
                ):
                    _keep_worst(inner[walk.alone], [comparison], index)
                    done += 1
                    self._progress(done, total)
        for endpoint, level in zip(self._opened.outputs, levels, strict=True):
            outputs[endpoint.name] = replace(outputs[endpoint.name], level=level.find())
        return outputs, inner

    def _run_operators(self, place: TensorPlace) -> Iterator[tuple[str, Array]]:
        """Yield the results of LiteRT's other kernels for the operators of a place."""
        return self._operator_kernels.run_operator(place, self._interpreter)

    def select_nearest_kernels(self, samples: Samples, outputs: dict[str, Difference]) -> None:
        """Compare outputs with LiteRT's other kernels, too; the nearest kernels count.

        Floats within their limits are not compared again: floats are never equal bit for bit.
        """
        for kernels, named in OTHER_KERNELS.items():
            if not any(map(_may_be_nearer, outputs.values())):
                return
            try:
                found, _ = self.compare_samples(samples, kernels=kernels)
            except VerifyError:  # a kernel of this kind is missing for an operator
                continue
            for name, output in outputs.items():
                outputs[name] = output.select_nearer(found[name], named)

    def _compare_outputs(
        self, litert: Sequence[Array], onnx: Sequence[Array]
    ) -> Iterator[Difference]:
        """Compare the outputs of LiteRT, in ONNX's types, with ONNX's in the same layout."""
        details: Sequence[Detail] = self._interpreter.get_output_details()
        for endpoint, detail, a, b in zip(self._opened.outputs, details, litert, onnx, strict=True):
            texts, other = as_text(a), as_text(b)
            if texts.dtype != other.dtype and endpoint.dtype == "float16":
                other = other.astype(texts.dtype)
            limits = self._limits._replace(step=compute_step(endpoint, detail))
            yield compare(endpoint.name, texts, other, limits)

    def _as_onnx(self, arrays: Sequence[Array]) -> list[Array]:
        """Return outputs of LiteRT in the types and scales of the ONNX model."""
        details: Sequence[Detail] = self._interpreter.get_output_details()
        pairs = zip(self._opened.outputs, arrays, details, strict=True)
        return [convert_for_onnx(endpoint, array, detail) for endpoint, array, detail in pairs]

    def allow_kernel_differences(
        self,
        samples: Samples,
        places: Sequence[TensorPlace],
        outputs: dict[str, Difference],
        chain: dict[str, TensorComparison],
    ) -> None:
        """Widen the limits of failing tensors by the differences of LiteRT's other kernels.

        `chain` are the tensors as the whole network computes them. The limits of operators that run
        alone are unchanged, because the differences between kernels accumulate over the network.
        """
        for kernels, named in reversed(OTHER_KERNELS.items()):
            far = {name for name, output in chain.items() if not output.difference.ok}
            wrong = [p for p in places if kernels == _OPEN_KERNELS and p.tensor.name in far]
            if all(output.ok for output in outputs.values()) and not wrong:
                continue
            try:
                differences, comparisons = self._compare_kernels(kernels, samples, wrong)
            except VerifyError:  # a kernel of this kind is missing for an operator
                continue
            for name, output in outputs.items():
                outputs[name] = (
                    output if output.ok else output.allow_kernel_noise(differences[name], named)
                )
            for name, comparison in comparisons.items():
                allowed = chain[name].difference.allow_kernel_noise(comparison.difference, named)
                chain[name] = replace(chain[name], difference=allowed)

    def _compare_kernels(
        self, kernels: str, samples: Samples, within: Sequence[TensorPlace]
    ) -> tuple[dict[str, Difference], dict[str, TensorComparison]]:
        """Return the differences of other kernels from plain kernels in outputs and in `within`."""
        # Only a new interpreter sets the states of a network to their initial values.
        first, other = (self._open(kind, inner=bool(within)) for kind in (PLAIN_KERNELS, kernels))
        outputs: dict[str, Difference] = {}
        inner: dict[str, TensorComparison] = {}
        for index, arrays in enumerate(samples):
            litert, onnx = (run_litert(kind, arrays) for kind in (first, other))
            both = (self._as_onnx(kind) for kind in (litert, onnx))
            _keep_worst(outputs, self._compare_outputs(*both), index)
            for place in within:
                a, b = (read_inner_tensor(kind, place.litert) for kind in (first, other))
                if a is not None and b is not None and a.shape == b.shape:
                    b = as_stored(place, b)
                    _keep_worst(inner, [compare_tensor(place, a, b, self._limits)], index)
        return outputs, inner


def _may_be_nearer(output: Difference) -> bool:
    """Return whether other kernels of LiteRT may be nearer to an output in a way that counts."""
    return bool(output.largest) and (not output.is_within or output.dtype in QUANTIZED)


class _Levels:
    """The range of the elements of an output, over several samples."""

    def __init__(self) -> None:
        self._low, self._high, self._count = math.inf, -math.inf, 0

    def add(self, array: Array) -> None:
        if array.dtype.kind not in "fiu":
            return
        # Kernels limit results to the range of float32: the largest numbers stand for infinities.
        finite = array[np.abs(array) < LARGEST] if array.dtype.kind == "f" else array
        self._count += array.size
        if finite.size:
            self._low = min(self._low, float(finite.min()))
            self._high = max(self._high, float(finite.max()))

    def find(self) -> float | None:
        """Return the number if all are equal, NaN if none is finite; None if numbers differ."""
        if self._count < 2 or self._low < self._high:
            return None
        return self._low if self._low == self._high else math.nan


def _keep_worst(worst: dict[str, _Each], more: Iterable[_Each], sample: int) -> None:
    for each in (candidate.with_sample(sample) for candidate in more):
        before = worst.get(each.name)
        worst[each.name] = each if before is None else before.select_worse(each)

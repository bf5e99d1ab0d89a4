"""Runs operators of a network with LiteRT's other kernels, on the inputs of its plain kernels.

LiteRT's plain kernels define what the operators mean, but some of them are wrong or coarse: the
kernel for int4 weights overwrites a weight beside a weight of -8, and kernels that round twice
differ from those that round once. An operator that equals another kernel of LiteRT is right.
"""

from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np

from tflite2onnx.errors import VerifyError
from tflite2onnx.reader.model import read_model
from tflite2onnx.tensor import Array, Tensor
from tflite2onnx.verification.entry_point import cut_entry_point, resize_entry_point
from tflite2onnx.verification.inner_tensors import TensorPlace
from tflite2onnx.verification.kernels.isolated import IsolatedRuntime
from tflite2onnx.verification.runtimes import (
    FASTEST_KERNELS,
    REFERENCE_KERNELS,
    BatchInterpreter,
    ModelFile,
    read_inner_tensor,
    run_litert,
)

# The kernels other than the plain ones, by name, the likeliest first: ONNX Runtime rounds like
# XNNPACK.
OTHER_KERNELS = {
    FASTEST_KERNELS: "default kernels (XNNPACK)",
    REFERENCE_KERNELS: "reference kernels",
}


class OperatorKernels:
    """Runs operators of a network, one at a time; `model` is the network for one sample."""

    def __init__(self, model: ModelFile, runtime: IsolatedRuntime) -> None:
        self._model, self._runtime = model, runtime

    def run_operator(self, place: TensorPlace, interpreter: Any) -> Iterator[tuple[str, Array]]:
        """Yield the results of the operators of a place, with the names of the kernels.

        `interpreter` has run the whole network with plain kernels. Kernels that LiteRT does not
        have, or that end its process, yield nothing.
        """
        is_batch = isinstance(interpreter, BatchInterpreter)
        samples = interpreter.samples if is_batch else [interpreter]
        parts = dict.fromkeys((place, place._replace(ops=place.others)))
        for part, (kernels, named) in product(parts, OTHER_KERNELS.items()):
            try:
                results = [self._run_sample(part, sample, kernels) for sample in samples]
            except VerifyError:
                continue
            known = [result for result in results if result is not None]
            if len(known) == len(samples):
                yield named, np.concatenate(known) if is_batch else known[0]

    def _run_sample(self, place: TensorPlace, interpreter: Any, kernels: str) -> Array | None:
        """Return the result for one sample, None if LiteRT has not kept an input."""
        inputs = _list_inputs(place)
        part = {"inputs": [t.name for t in inputs], "outputs": [place.tensor.name]}
        model = cut_entry_point(self._model, part)
        graph = read_model(model).graphs[0]
        indices = [graph.tensors.index(tensor) for tensor in graph.inputs]
        arrays = [read_inner_tensor(interpreter, index) for index in indices]
        known = [array for array in arrays if array is not None]
        if len(known) < len(arrays) or not arrays:
            return None
        model = resize_entry_point(model, [array.shape for array in known])
        other = self._runtime.open(model, kernels)
        try:
            return run_litert(other, known)[0]
        finally:
            other.close()


def _list_inputs(place: TensorPlace) -> list[Tensor]:
    """Return the tensors that the operators of a place read and do not compute."""
    computed = {tensor for op in place.ops for tensor in op.outputs}
    read = dict.fromkeys(t for op in place.ops for t in op.present if not t.has_data)
    return [tensor for tensor in read if tensor not in computed]

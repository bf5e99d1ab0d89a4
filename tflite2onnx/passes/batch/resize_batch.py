"""Give the inputs of a graph a batch of a size that the user chooses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from tflite2onnx.errors import OperatorError, OptionError
from tflite2onnx.graph import Graph
from tflite2onnx.passes.batch.add_batch import MixedSamplesError, add_batch
from tflite2onnx.passes.batch.inputs import find_shared_states
from tflite2onnx.passes.batch.loop_samples import loop_samples
from tflite2onnx.passes.dynamic_shapes import axis_name, infer_shapes
from tflite2onnx.passes.normalise import eliminate_dead_operators
from tflite2onnx.passes.shape_walk import OperatorOf
from tflite2onnx.tensor import Tensor

Size = int | str
LOOP = "loop:"


class Batch(NamedTuple):
    """What a user says of a batch: its size, and whether a loop computes sample by sample."""

    size: Size
    loops: bool = False

    @classmethod
    def from_text(cls, batch: Size) -> Batch:
        """Read a number, a name, or either of them after `loop:`."""
        text = str(batch)
        size = text.removeprefix(LOOP)
        return cls(int(size) if size.isdecimal() else size, text.startswith(LOOP))


def list_sample_sizes(
    graph: Graph, shapes: Mapping[str, Sequence[Size]], batch: Size | None
) -> dict[str, Sequence[Size]]:
    """Return the shapes of inputs for one sample: the first size may be that of the batch.

    Raises:
        OptionError: the first size of an input that takes one sample is neither 1 nor the batch.
    """
    if batch is None:
        return dict(shapes)
    size = Batch.from_text(batch).size
    for tensor in graph.inputs:
        first, *_ = (*shapes.get(tensor.name, ()), 1)
        if tensor.shape[:1] == (1,) and first not in (1, size):
            raise OptionError(
                f"the first size of {tensor.name} must be 1 or the batch, {size}, got {first}"
            )
    return {
        name: (1, *sizes[1:]) if sizes and sizes[0] == size else sizes
        for name, sizes in shapes.items()
    }


def find_batch_problem(graph: Graph, operator_of: OperatorOf) -> str:
    """Return why a graph has no batch of independent samples, empty if it has one."""
    try:
        _add_samples(graph, Batch(1), operator_of)
    except (OptionError, OperatorError) as error:
        return str(error.__cause__ or error)
    return ""


def resize_batch(graph: Graph, text: Size, operator_of: OperatorOf) -> tuple[Graph, dict[str, str]]:
    """Return the graph for a batch, and the names of its size by name of the axis.

    Raises:
        OptionError: the graph cannot compute a batch of this size.
    """
    wanted = Batch.from_text(text)
    batch, size = _add_samples(graph, wanted, operator_of), wanted.size
    shared = () if wanted.loops else find_shared_states(graph)
    resized = {t: _resize_input(t, size) for t in batch.inputs if t not in shared}
    words = {axis_name(t, 0): size for t in resized.values()} if isinstance(size, str) else {}
    initial = graph.initial
    if isinstance(size, int):
        initial = tuple(
            x if t in shared else np.repeat(x if t.rank == x.ndim else x[None], size, 0)
            for x, t in zip(initial, batch.inputs[len(graph.own_inputs) :], strict=True)
        )
    elif len(shared) < len(initial):
        raise OptionError("batch must be a number for a model with states")
    batch = replace(batch.replace_tensors(resized), initial=initial)
    return infer_shapes(eliminate_dead_operators(batch)), words


def _add_samples(graph: Graph, batch: Batch, operator_of: OperatorOf) -> Graph:
    if not graph.inputs:
        raise OptionError("batch must be of a model with inputs, got none")
    try:
        return (loop_samples if batch.loops else add_batch)(graph, operator_of)
    except MixedSamplesError as error:
        hint = "" if batch.loops else f"; {LOOP}{batch.size} computes sample by sample"
        raise OptionError(
            f"batch must be 1, because samples are not independent: {error}{hint}"
        ) from error


def _resize_input(tensor: Tensor, size: Size) -> Tensor:
    signature = tensor.shape_signature if tensor.dynamic_axes else tensor.shape
    first = (size, size) if isinstance(size, int) else (1, -1)
    return replace(
        tensor, shape=(first[0], *tensor.shape[1:]), shape_signature=(first[1], *signature[1:])
    )

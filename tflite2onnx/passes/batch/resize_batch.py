"""Give the inputs of a graph a batch of a size that the user chooses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from tflite2onnx.errors import OperatorError, OptionError
from tflite2onnx.graph import Graph
from tflite2onnx.passes.batch.add_batch import add_batch
from tflite2onnx.passes.batch.batch_builder import ADDED, compute_size, make_list
from tflite2onnx.passes.batch.inputs import find_shared_states
from tflite2onnx.passes.batch.loop_samples import expect_no_computed_sizes, loop_samples
from tflite2onnx.passes.batch.mixed_samples import MixedSamplesError
from tflite2onnx.passes.batch.places import has_samples
from tflite2onnx.passes.dynamic_shapes import (
    enlarge_samples,
    find_equal_sizes,
    infer_shapes,
    name_dimensions,
    report_fixed_axes,
)
from tflite2onnx.passes.rewriter import Rewriter
from tflite2onnx.passes.shape_walk import OperatorOf
from tflite2onnx.passes.simplify import eliminate_dead_operators
from tflite2onnx.tensor import DType, Tensor, name_axis
from tflite2onnx.utils.dimension import Dim, Dimension

Size = int | str
LOOP = "loop:"


class Batch(NamedTuple):
    """The user's option for a batch: its size, and whether a loop computes sample by sample."""

    size: Size
    loops: bool = False

    @classmethod
    def from_text(cls, batch: Size) -> Batch:
        """Read a number, a name, or either of them after `loop:`."""
        text = str(batch)
        size = text.removeprefix(LOOP)
        return cls(int(size) if size.isdecimal() else size, text.startswith(LOOP))


def list_sample_sizes(
    graph: Graph, shapes: Mapping[str, Sequence[Size]], batch: Size
) -> dict[str, Sequence[Size]]:
    """Return the shapes of inputs for one sample: the first size may be the batch.

    Raises:
        OptionError: the first size of an input that takes one sample is neither 1 nor the batch.
    """
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
        _add_samples(graph, Batch(1), operator_of, {})
    except (OptionError, OperatorError) as error:
        return str(error.__cause__ or error)
    return ""


def resize_batch(
    graph: Graph, text: Size, operator_of: OperatorOf, words: Mapping[str, str]
) -> tuple[Graph, dict[str, str]]:
    """Return the graph for a batch, and the names of sizes by name of the axis.

    `words` are the user's names of other dynamic sizes.

    Raises:
        OptionError: the graph cannot compute a batch of this size.
    """
    option = Batch.from_text(text)
    batch, size = _add_samples(graph, option, operator_of, words), option.size
    shared = () if option.loops else find_shared_states(graph)
    resized = {t: _resize_input(t, size) for t in batch.inputs if t not in shared}
    counted = {name_axis(t, 0): size for t in resized.values()} if isinstance(size, str) else {}
    states = batch.inputs[len(graph.own_inputs) :]
    batch = batch.replace_tensors(resized)
    pairs = zip(graph.initial, states, strict=True)
    initial = [x if t.rank == x.ndim else x[None] for x, t in pairs]
    if isinstance(size, int):
        singles = zip(initial, states, strict=True)
        initial = [x if t in shared else np.repeat(x, size, 0) for x, t in singles]
    else:
        repeated = [resized[t] for t in states if t in resized]
        counted |= {name_axis(t, 0): f"{size}_or_1" for t in repeated}
        batch = _repeat_states(batch, repeated)
    batch = replace(batch, initial=tuple(initial))
    return infer_shapes(eliminate_dead_operators(batch)), {**words, **counted}


def _repeat_states(graph: Graph, states: Sequence[Tensor]) -> Graph:
    """Return the graph that repeats states of one sample for all samples of the batch.

    The number of samples is not known before the first run, so the initial values have one sample.
    The states of all samples, which the first run returns, are not changed.
    """
    if not states:
        return graph
    rw = Rewriter(ADDED)
    count = compute_size(rw, graph.inputs[0], 0)
    inner = {t: replace(t, name=f"{t.name}/samples", is_variable=False) for t in states}
    for state, whole in inner.items():
        rest = make_list(state.shape[1:])
        sizes = Tensor("sizes", (state.rank,), DType.INT32)
        rw.op("CONCATENATION", count, rest, output=sizes, axis=0)
        rw.op("BROADCAST_TO", state, sizes, output=whole)
    used = [op.with_inputs(inner) for op in graph.ops]
    outputs = tuple(inner.get(t, t) for t in graph.outputs)
    return replace(graph, ops=(*rw.ops, *used), outputs=outputs)


def _add_samples(
    graph: Graph, batch: Batch, operator_of: OperatorOf, words: Mapping[str, str]
) -> Graph:
    if not graph.inputs:
        raise OptionError(
            "`batch` must be given for a model with inputs, got a model without inputs"
        )
    if batch.loops and words:
        raise OptionError(
            f"the size {next(iter(words.values()))} must be a number with the batch"
            f" {LOOP}{batch.size}: a loop computes samples of one size"
        )
    try:
        if batch.loops:
            return loop_samples(graph, operator_of)
        return _add_to_axes(enlarge_samples(graph, operator_of), operator_of, words)
    except MixedSamplesError as error:
        hint = "" if batch.loops else _propose_loop(graph, batch, operator_of)
        raise OptionError(
            f"`batch` must be 1, because samples are not independent: {error}{hint}"
        ) from error


def _propose_loop(graph: Graph, batch: Batch, operator_of: OperatorOf) -> str:
    """Return that a loop computes the samples, or why it does not."""
    try:
        expect_no_computed_sizes(graph, operator_of)
    except MixedSamplesError as error:
        return f"; {error}"
    return f"; {LOOP}{batch.size} computes sample by sample"


def _add_to_axes(graph: Graph, operator_of: OperatorOf, words: Mapping[str, str]) -> Graph:
    """Return the graph for a batch, in which other sizes are dynamic if samples are independent."""
    try:
        return _add_with_equal_sizes(graph, operator_of, words)
    except MixedSamplesError as error:
        static = _fix_inner_sizes(graph)
        if static is graph:
            raise
        reason = str(error)
    added = add_batch(static, operator_of, {}, {})
    if words:
        raise OptionError(
            f"the size {next(iter(words.values()))} cannot be dynamic because {reason}"
        )
    axes = [name_axis(t, i) for t in graph.inputs for i in sorted(t.dynamic_axes - {0})]
    report_fixed_axes(dict.fromkeys(axes, reason), graph.inputs)
    return added


def _add_with_equal_sizes(graph: Graph, operator_of: OperatorOf, words: Mapping[str, str]) -> Graph:
    """Return the graph for a batch, in which sizes are equal that operators require to be equal."""
    replacements = dict[Dimension, Dim]()
    sizes = dict.fromkeys(name_dimensions(graph.inputs, words).values())
    order = {size: i for i, size in enumerate(sizes)}
    while True:
        try:
            return add_batch(graph, operator_of, words, replacements)
        except MixedSamplesError as error:
            # If these sizes differ, the network does not run for a single sample.
            replaced = find_equal_sizes(error.dims, order, words, broadcasts=error.broadcasts)
            both = (*replaced.keys(), *replaced.values())
            if replaced.keys() <= replacements.keys() or any(map(has_samples, both)):
                raise
            replacements |= replaced


def _fix_inner_sizes(graph: Graph) -> Graph:
    """Return the graph in which only the first sizes are dynamic."""
    inputs = {
        t: replace(t, shape_signature=(t.shape_signature[0], *t.shape[1:]))
        for t in graph.inputs
        if t.dynamic_axes - {0}
    }
    return graph.replace_tensors(inputs) if inputs else graph


def _resize_input(tensor: Tensor, size: Size) -> Tensor:
    signature = tensor.shape_signature if tensor.dynamic_axes else tensor.shape
    first = (size, size) if isinstance(size, int) else (1, -1)
    return replace(
        tensor, shape=(first[0], *tensor.shape[1:]), shape_signature=(first[1], *signature[1:])
    )

"""Compute a batch sample by sample: a loop runs the network for one sample.

This is possible for networks that `add_batch` refuses, because they mix samples: networks with
WHERE or with a suppression of boxes, for example. The sizes of the outputs must be the same for all
samples.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from tflite2onnx.graph import Graph, Op
from tflite2onnx.passes.batch.batch_builder import ADDED, compute_size, make_list
from tflite2onnx.passes.batch.inputs import add_first_axis, has_batch_axis
from tflite2onnx.passes.batch.mixed_samples import MixedSamplesError
from tflite2onnx.passes.rewriter import Rewriter
from tflite2onnx.passes.shape_walk import OperatorOf, ShapeWalk
from tflite2onnx.tensor import DType, Shape, Tensor
from tflite2onnx.utils.dimension import has_dimensions


def loop_samples(graph: Graph, operator_of: OperatorOf) -> Graph:
    """Return the graph for a batch, whose size is the first size of all inputs and outputs.

    The inputs are declared with the shapes of one sample, and a first size of 1. All other sizes
    are as in the file.

    Raises:
        MixedSamplesError: the size of an output is known at run time only.
    """
    expect_no_computed_sizes(graph, operator_of)
    fixed_inputs = [replace(t, shape_signature=()) for t in graph.inputs]
    declared = [t if has_batch_axis(t) else add_first_axis(t) for t in fixed_inputs]
    rw, number = Rewriter(ADDED), _make_number("sample")
    count = compute_size(rw, declared[0], 0)
    buffers = [_make_buffer(rw, t, count) for t in graph.outputs]
    inner = [replace(t, name=f"{t.name}/whole") for t in buffers]
    body = Graph("sample", (number, *inner), (), ())
    body = _make_body(body, graph, declared, count)
    first = rw.op("LESS", make_list([0]), count, output=_make_condition())
    ends = [replace(t, name=y.name) for t, y in zip(buffers, graph.outputs, strict=True)]
    inputs = (first, make_list([0]), *buffers)
    loop = Op("WHILE", 0, inputs, (_make_number("samples"), *ends), graphs=(body,))
    return replace(graph, inputs=tuple(declared), outputs=tuple(ends), ops=(*rw.ops, loop))


def expect_no_computed_sizes(graph: Graph, operator_of: OperatorOf) -> None:
    """Raise MixedSamplesError if the size of an output depends on data."""
    tensors = ShapeWalk(graph, operator_of, {}).walk()
    for tensor in graph.outputs:
        if has_dimensions(tensors.get(tensor, tensor).shape):
            raise MixedSamplesError(
                f"the size of {tensor.name} is known at run time only, and samples may have other"
                " sizes: `outputs` must name a tensor before it"
            )


def _make_body(body: Graph, graph: Graph, inputs: Sequence[Tensor], count: Tensor) -> Graph:
    """Return the sub-graph that computes one sample, and writes it into the whole outputs."""
    number, *whole = body.inputs
    rw = Rewriter(ADDED)
    scalar = rw.op("RESHAPE", number, make_list([]), output=Tensor("sample", (), DType.INT32))
    for old, new in zip(graph.inputs, inputs, strict=True):
        index = number if old.rank == new.rank else scalar
        rw.op("GATHER", new, index, output=old, axis=0, batch_dims=0)
    # The outputs of all samples keep the names, so the tensors of one sample get other names.
    inner = {t: replace(t, name=f"{t.name}/sample") for t in (*graph.inputs, *graph.outputs)}
    rw.ops += graph.ops
    parts: list[Tensor] = []
    for sample, target in zip(graph.outputs, whole, strict=True):
        shape = (1, *target.shape[1:])
        part = replace(target, name=f"{target.name}/part", shape=shape)
        rw.op("RESHAPE", sample, make_list(shape), output=part)
        zeros = [make_list([0] * (len(shape) - 1))] if len(shape) > 1 else []
        place = Tensor("place", (len(shape),), DType.INT32)
        rw.op("CONCATENATION", number, *zeros, output=place, axis=0)
        following = replace(target, name=f"{target.name}/next")
        parts.append(rw.op("DYNAMIC_UPDATE_SLICE", target, part, place, output=following))
    following = rw.op("ADD", number, make_list([1]), output=_make_number("sample"))
    goes_on = rw.op("LESS", following, count, output=_make_condition())
    done = replace(body, ops=tuple(rw.ops), outputs=(goes_on, following, *parts))
    return done.replace_tensors(inner)


def _make_buffer(rw: Rewriter, output: Tensor, count: Tensor) -> Tensor:
    rest: Shape = output.shape[1:] if output.shape[:1] == (1,) else output.shape
    shape = (1, *rest)
    zeros = replace(
        output, data=np.zeros(shape, output.dtype.numpy), shape=shape, shape_signature=()
    )
    sizes = Tensor("sizes", (len(shape),), DType.INT32)
    rw.op("CONCATENATION", count, make_list(rest), output=sizes, axis=0)
    buffer = replace(zeros, name=f"{output.name}/first", data=None)
    return rw.op("BROADCAST_TO", zeros, sizes, output=buffer)


def _make_number(name: str) -> Tensor:
    return Tensor(name, (1,), DType.INT32)


def _make_condition() -> Tensor:
    return Tensor("goes_on", (1,), DType.BOOL)

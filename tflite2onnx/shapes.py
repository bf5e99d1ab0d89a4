"""Shapes that a file leaves to the kernels.

A converter that does not know an operator does not know what it makes: the outputs of custom
operators are often declared as if they had no axes. Kernels say otherwise when they are prepared.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from tflite2onnx.graph import Graph, Op
from tflite2onnx.tensor import Shape, Tensor


def shaped(graph: Graph, shapes_of: Callable[[Op], Sequence[Shape] | None]) -> Graph:
    """Return the graph with the shapes that operators know better than the file."""
    known: dict[Tensor, Tensor] = {}
    ops = []
    for op in graph.ops:
        here = op
        if not known.keys().isdisjoint(op.inputs):
            inputs = tuple(None if t is None else known.get(t, t) for t in op.inputs)
            here = replace(op, inputs=inputs)
        if (shapes := shapes_of(here)) is not None:
            known |= {
                tensor: replace(tensor, shape=tuple(shape), shape_signature=())
                for tensor, shape in zip(op.outputs, shapes, strict=False)
                if tensor.shape != tuple(shape)
            }
            here = replace(here, outputs=tuple(known.get(t, t) for t in op.outputs))
        ops.append(here)
    if not known:
        return graph
    return replace(
        graph, ops=tuple(ops),
        outputs=tuple(known.get(t, t) for t in graph.outputs),
        tensors=tuple(known.get(t, t) for t in graph.tensors),
    )  # fmt: skip

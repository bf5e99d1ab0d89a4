"""Correct the shapes that files declare for outputs of custom operators.

Converters do not know the output shapes of custom operators and often declare an empty shape. The
kernels compute the shapes in Prepare, and so does `Operator.infer_outputs`.
"""

from __future__ import annotations

from dataclasses import replace

from tflite2onnx.graph import Graph, Op
from tflite2onnx.op import shapes_for
from tflite2onnx.tensor import Tensor


def override_declared_shapes(graph: Graph) -> Graph:
    """Return the graph with the shapes of `infer_outputs` in place of the declared shapes."""
    known: dict[Tensor, Tensor] = {}

    def change(op: Op) -> list[Op]:
        here = op.with_inputs(known)
        shapes = shapes_for(here)
        if shapes is None:
            return [here]
        known.update(
            (tensor, replace(tensor, shape=tuple(shape), shape_signature=()))
            for tensor, shape in zip(op.outputs, shapes, strict=False)
            if tensor.shape != tuple(shape)
        )
        return [replace(here, outputs=tuple(known.get(t, t) for t in op.outputs))]

    changed = graph.rewrite(change, known)
    tensors = tuple(known.get(t, t) for t in graph.tensors)
    return replace(changed, tensors=tensors) if known else graph

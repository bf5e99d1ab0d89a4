"""Correct the shapes that files declare for outputs of custom operators.

Converters do not know the output shapes of custom operators and often declare an empty shape. The
kernels compute the shapes in Prepare, and so does `Operator.infer_outputs`.
"""

from __future__ import annotations

from dataclasses import replace

from tflite2onnx.errors import OperatorError, as_operator_error
from tflite2onnx.graph import Graph, Op
from tflite2onnx.op import operator_for
from tflite2onnx.op.base import OutputShape, Unknown
from tflite2onnx.tensor import Tensor


def override_declared_shapes(graph: Graph) -> Graph:
    """Return the graph with the shapes of `infer_outputs` in place of the declared shapes."""
    known: dict[Tensor, Tensor] = {}

    def change(op: Op) -> list[Op]:
        here = op.with_inputs(known)
        known.update(zip(op.outputs, _shaped_outputs(here), strict=True))
        outputs = tuple(known[t] for t in op.outputs)
        return [here if outputs == op.outputs else replace(here, outputs=outputs)]

    changed = graph.rewrite(change, known)
    tensors = tuple(known.get(t, t) for t in graph.tensors)
    return replace(changed, tensors=tensors)


def _shaped_outputs(op: Op) -> tuple[Tensor, ...]:
    """Return the outputs of an operator, of a custom operator with the shapes of its kernel."""
    if not op.custom:
        return op.outputs
    try:
        with as_operator_error():
            shapes = operator_for(op).infer_outputs() or [t.shape for t in op.outputs]
            return tuple(map(_with_shape, op.outputs, shapes))
    except OperatorError:  # reported later, with all other problems
        return op.outputs


def _with_shape(tensor: Tensor, shape: OutputShape) -> Tensor:
    declared = tensor.shape if tensor.rank == len(shape) else (1,) * len(shape)
    pairs = zip(shape, declared, strict=True)
    sizes = tuple((old or 1) if isinstance(new, Unknown) else int(new) for new, old in pairs)
    return tensor if sizes == tensor.shape else replace(tensor, shape=sizes, shape_signature=())

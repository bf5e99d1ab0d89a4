"""LOGISTIC whose results are what a model says: scores, right to their last digits however small.

ONNX Runtime's Sigmoid is a quotient of polynomials, which errs by up to 1e-7, whatever the result:
that leaves three digits of a score of 1e-4, and none of one of 1e-8. Inside a network this is lost
among larger numbers, as it is in an output of many. What an output of few gives is spelled out,
1 / (1 + exp(-x)), which errs by a part of the result only, as LiteRT's kernel does.
"""

from __future__ import annotations

import numpy as np

from tflite2onnx.graph import Graph, Op
from tflite2onnx.op import rules_for
from tflite2onnx.passes.rewriter import Rewriter
from tflite2onnx.tensor import DType, Tensor

_FEW = 1024  # elements: four nodes for more of them would take time


def expand_output_sigmoid(graph: Graph) -> Graph:
    """Return the graph with other operators for LOGISTIC where an output gives its results."""
    told = {t for t in graph.own_outputs if t.elements <= _FEW}
    _trace(graph, told)

    def change(op: Op) -> list[Op]:
        is_score = op.is_builtin("LOGISTIC") and not told.isdisjoint(op.outputs)
        return _expand_sigmoid(op) if is_score else [op]

    return graph.rewrite(change)


def _trace(graph: Graph, told: set[Tensor]) -> None:
    """Add what is moved, and nothing else, on its way to one of the tensors."""
    for op in reversed(graph.ops):
        if told.isdisjoint(op.outputs):
            continue
        for inner in op.graphs:
            told.update(inner.outputs)
            _trace(inner, told)
        operator = rules_for(op)
        if operator is not None and operator.moves_only:
            told.update(t for t in op.inputs if t is not None)


def _expand_sigmoid(op: Op) -> list[Op]:
    """Return operators that do the same; the operator itself if it has many or other results."""
    match op.inputs, op.outputs:
        case [[Tensor(dtype=DType.FLOAT32) as x], [Tensor(dtype=DType.FLOAT32) as y]] if (
            x.shape == y.shape and y.elements <= _FEW
        ):
            pass
        case _:
            return [op]
    rw, one = Rewriter(op), Tensor("one", (), DType.FLOAT32, np.asarray(np.float32(1)))
    power = rw.op("EXP", rw.op("NEG", x, like=y, name="negative"), like=y, name="power")
    rw.op("DIV", one, rw.op("ADD", power, one, like=y, name="total"), output=y)
    return rw.ops

"""Compute few sigmoid outputs accurately: LOGISTIC becomes 1 / (1 + exp(-x)).

Sigmoid is in runtimes a rational approximation with an absolute error of up to 1e-7 for every
result: a score of 1e-4 keeps three digits, and a score of 1e-8 keeps none. The expression has a
    small relative error, like LiteRT's kernel. The negation becomes part of a dense layer or
    convolution before LOGISTIC.

A LOGISTIC is replaced if:

1. its result is an output of the model, or reaches an output through operators that only move
   elements, also out of sub-graphs;
2. the output has at most 16 elements. A single score is often below 1e-3, where Sigmoid differs
   from LiteRT by more than 1e-4 of the output. If there are many scores, one of them is large;
3. its input and output are float32 and have the same shape.

docs/performance.md has the numbers. If the fastest forms are requested, `spell_out` replaces EXP,
ADD and DIV by Softplus and POW.
"""

from tflite2onnx.graph import NO_OP, Graph, Op
from tflite2onnx.op import find_operator
from tflite2onnx.op.base import moves_elements
from tflite2onnx.passes.patterns.matching import Match
from tflite2onnx.passes.patterns.rules import rule
from tflite2onnx.passes.rewriter import Rewriter
from tflite2onnx.tensor import Tensor

_FEW = 16  # the largest number of elements of an output of scores


def _find_scores(graph: Graph) -> set[Tensor]:
    """Return small outputs, and tensors whose elements other operators only move to them."""
    results, waiting = set[Tensor](), [t for t in graph.own_outputs if t.elements <= _FEW]
    for tensor in waiting:  # the loop appends to the list
        op = graph.producers.find(tensor)
        if tensor not in results and op is not NO_OP:
            waiting += (t for inner in op.graphs for t in inner.outputs)
            waiting += op.present if moves_elements(find_operator(op)) else ()
        results.add(tensor)
    return results


@rule("LOGISTIC of scores", "MUL, EXP, ADD, DIV", ("LOGISTIC", "x"))
def expand_output_sigmoid(match: Match) -> list[Op] | str:
    """Return what replaces the match, or why nothing does."""
    x, y = match.x, match.output
    if y not in match.analyze(_find_scores) or y.elements > _FEW or not match.keeps_shape():
        return "the result must be an output of the model, of at most 16 elements"
    rw = Rewriter(match.last)
    power = rw.op("EXP", rw.op("MUL", x, -1, like=y, name="negative"), like=y, name="power")
    rw.op("DIV", 1, rw.op("ADD", power, 1, like=y, name="total"), output=y)
    return rw.ops

"""The sum of two dense layers of one row: the second adds the result of the first as its bias.

Gemm adds any matrix of the shape of its result, so that the sum needs no node. A step of an LSTM
that is spelled out has such a sum. ADD is replaced if

1. its inputs are the outputs of FULLY_CONNECTED with constant float32 weights, of one row, and
   nothing else reads them;
2. neither applies an activation, and the second, which takes over the sum, has no bias.

If neither has a bias, an ADD of a constant to the sum is the bias of the first.
"""

from __future__ import annotations

from dataclasses import replace

from tflite2onnx.graph import Graph, Op
from tflite2onnx.passes.patterns.matching import Matcher, is_float
from tflite2onnx.tensor import Tensor

_BIAS = 2  # the input
_MATRIX = 2  # axes


def chain_products(graph: Graph) -> Graph:
    """Return the graph with sums of dense layers computed by one of the layers."""
    matcher = Matcher(graph)
    return graph.rewrite(
        lambda op: _chain_layers(op, matcher) if op.is_builtin("ADD") and op.outputs else [op]
    )


def _chain_layers(op: Op, matcher: Matcher) -> list[Op]:
    """Return the two layers, or ADD itself unless the conditions hold.

    If the sum is added to a constant, both sums are replaced at the second ADD.
    """
    first, second, bias = _find_layers(op, matcher)
    if first is None or second is None:
        return [op]
    if bias is not None:
        name = f"{op.outputs[0].name}/first"
        outputs = (replace(first.outputs[0], name=name),)
        first = replace(first, inputs=(*first.inputs[:_BIAS], bias), outputs=outputs)
    inputs = (*second.inputs[:_BIAS], first.outputs[0])
    last = replace(second, inputs=inputs, outputs=op.outputs).with_activation(op.activation)
    return [last] if bias is None else [first, last]


def _find_layers(op: Op, matcher: Matcher) -> tuple[Op | None, Op | None, Tensor | None]:
    """Return the layers of a sum, the second without a bias; and a constant that is added too."""
    producers = [matcher.graph.producers.get(t) for t in op.inputs if t is not None]
    constants = [t for t in op.inputs if t is not None and t.data is not None]
    inner = next((each for each in producers if each is not None and each.is_builtin("ADD")), None)
    if constants and inner is not None and _is_bias(constants[0], op, inner, matcher):
        first, second, bias = _find_layers(inner, matcher)
        plain = bias is None and not any(each and _has_bias(each) for each in (first, second))
        return (first, second, constants[0]) if plain else (None, None, None)
    first, second = (*producers, None, None)[:2]
    for layer in (first, second):
        if layer is None or first is second or not _is_row_product(layer, op, matcher):
            return None, None, None
    if second is not None and _has_bias(second):
        first, second = second, first
    fits = second is not None and not _has_bias(second)
    return (first, second, None) if fits else (None, None, None)


def _is_bias(constant: Tensor, op: Op, inner: Op, matcher: Matcher) -> bool:
    """Return whether an ADD adds one number for each column to the sum of `inner`."""
    total = inner.outputs[0]
    fits = is_float(constant) and constant.elements == total.elements == total.shape[-1]
    once = matcher.graph.readers.find_only_reader(total) is op
    return fits and once and inner.activation == "NONE" and total.sizes == op.outputs[0].sizes


def _is_row_product(op: Op, reader: Op, matcher: Matcher) -> bool:
    """Return whether an operator is a dense layer of one row, and only the reader reads it."""
    if not op.is_builtin("FULLY_CONNECTED") or op.activation != "NONE":
        return False
    constants, y = [t for t in op.inputs[1:] if t is not None], op.outputs[0]
    fixed = all(t.data is not None and is_float(t) for t in constants)
    once = matcher.graph.readers.find_only_reader(y) is reader
    row = y.rank == _MATRIX and y.shape[0] == 1 and y.sizes == reader.outputs[0].sizes
    return fixed and once and row and is_float(y) and not y.symbols


def _has_bias(op: Op) -> bool:
    return len(op.inputs) > _BIAS and op.inputs[_BIAS] is not None

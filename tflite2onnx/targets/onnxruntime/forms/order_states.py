"""The orders of states of 8 bits: TFLite's, because ONNX Runtime convolves 8 bits channels-last.

A plan expects convolutions to read channels first, and would store their states in this order. ONNX
Runtime moves the Transposes of an 8-bit convolution to the states, where up to two remain for each:
of three microWakeWord networks it runs 29, 47 and 79 nodes then, and 23, 36 and 59 with TFLite's
order. A state that is joined with an input of the model has the order of the input.
"""

from collections.abc import Mapping

from tflite2onnx.graph import Graph
from tflite2onnx.layout import Order, make_identity
from tflite2onnx.quantization.storage import is_quantized
from tflite2onnx.tensor import Tensor

_BITS = 8
_MOVES = ("EXPAND_DIMS", "QUANTIZE", "RESHAPE", "SQUEEZE", "TRANSPOSE")


def find_state_orders(graph: Graph) -> Mapping[Tensor, Order]:
    """Return the orders of states of 8 bits, by the inputs of the graph."""
    inputs = graph.inputs[len(graph.own_inputs) :]
    states = {t for t in inputs if is_quantized(t) and t.dtype.bits == _BITS}
    own = set(graph.own_inputs)
    for op in graph.ops if states else ():
        if not own.isdisjoint(op.present):
            states.difference_update(op.present)
            own.update(op.outputs if op.code in _MOVES else ())
    return {t: make_identity(t.rank) for t in states}

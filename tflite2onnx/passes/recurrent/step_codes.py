"""Whether a graph may have steps of recurrent layers, which few graphs have (`passes`)."""

from tflite2onnx.graph import Graph

PRODUCTS = ("FULLY_CONNECTED", "BATCH_MATMUL")
LAST = ("MUL", "ADD", "TANH", "RELU")  # the operators that compute h: of an LSTM, GRU, RNN


def may_have_steps(graph: Graph) -> bool:
    """Return whether a graph has the operators of a step, or products by similar weights."""
    codes = graph.codes
    # All cells have a product.
    if codes.isdisjoint(PRODUCTS) or codes.isdisjoint(LAST):
        return False
    if "MUL" in codes and ("HARD_SIGMOID" in codes or ("LOGISTIC" in codes and "TANH" in codes)):
        return True
    weights = [op.operand(1) for op in graph.ops if op.is_builtin(*PRODUCTS)]
    rows = [(t.shape, t.values[:1].tobytes() if t.has_data else t) for t in weights if t.elements]
    return len({*rows}) < len(rows)

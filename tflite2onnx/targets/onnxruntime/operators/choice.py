"""The choice between two forms of a computation, which the processor decides at load."""

from tflite2onnx.builder.builder import Body, Builder, Value, View
from tflite2onnx.builder.nodes import Node
from tflite2onnx.op.traits import MadeOperator, Movement


class ExactChoice(MadeOperator, Movement):
    """EXACT_CHOICE: its first input where products of int8 are exact, else its second.

    Both inputs have the same elements, computed in different forms (`nodes/choices.py`). Without
    nodes that test the processor, and in nested graphs, it is the second.
    """

    codes = ("EXACT_CHOICE",)
    operands = "T, T -> T"
    tflite = "..., ... -> ..."
    keeps_shape = True

    def emit(self, g: Builder, y: View, joined: View, plain: View) -> Value:
        if g.is_nested or not g.plan.finds_processor:
            return plain.value
        bodies = {}
        for name, view in (("then_branch", joined), ("else_branch", plain)):
            inner = g.make_nested()
            result = inner.Identity(view.value)
            bodies[name] = Body(view.tensor.name, (), tuple(inner.nodes), (result,), ())
        made = Value()
        g.nodes.append(Node("If", (g.int8_is_exact,), (made,), bodies))
        return made

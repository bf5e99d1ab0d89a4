"""Operators that passes replace: calls of sub-graphs, and operators on variables."""

from tflite2onnx.op.base import Operator, OperatorError
from tflite2onnx.quantization.declarations import Moves

# The option that has the index of the sub-graph.
CALLS = {"STABLEHLO_COMPOSITE": "decomposition_subgraph_index", "CALL": "subgraph"}
# Operators whose only operands or options are resources.
RESOURCES = ("VAR_HANDLE", "READ_VARIABLE", "ASSIGN_VARIABLE", "CALL_ONCE")


class Call(Operator):
    """STABLEHLO_COMPOSITE and CALL: calls, which `inline_subgraphs` replaces."""

    codes = tuple(CALLS)


class LoweredVariable(Operator):
    """VAR_HANDLE, READ_VARIABLE, ASSIGN_VARIABLE, CALL_ONCE: states (`lift_variables`)."""

    codes = RESOURCES
    quantization = Moves()

    def check(self) -> None:
        raise OperatorError(
            "its resource handle is used by an operator other than READ_VARIABLE or ASSIGN_VARIABLE"
        )

"""Replace sub-graphs that combine two elements by the name of their computation.

STABLEHLO_SCATTER, STABLEHLO_REDUCE and STABLEHLO_REDUCE_WINDOW have a sub-graph. LiteRT does not
run the sub-graph: it computes with the operator in the sub-graph. Without operators in the
sub-graph, the result is the second element.
"""

from dataclasses import replace

from tflite2onnx.operators import Op
from tflite2onnx.rewriting import MadeOptions, Model

# The option that has the index of the sub-graph.
_REGIONS = {
    "STABLEHLO_SCATTER": "update_computation_subgraph_index",
    "STABLEHLO_REDUCE": "body_subgraph_index",
    "STABLEHLO_REDUCE_WINDOW": "body_subgraph_index",
}
# The reduction of each computation. Converters of PyTorch write builtin operators into sub-graphs,
# which LiteRT's kernels do not run.
_REDUCTIONS = {
    **dict.fromkeys(("STABLEHLO_ADD", "ADD"), "add"),
    **dict.fromkeys(("STABLEHLO_MULTIPLY", "MUL"), "mul"),
    **dict.fromkeys(("STABLEHLO_MAXIMUM", "MAXIMUM"), "max"),
    **dict.fromkeys(("STABLEHLO_MINIMUM", "MINIMUM"), "min"),
    **dict.fromkeys(("STABLEHLO_AND", "LOGICAL_AND"), "and"),
    **dict.fromkeys(("STABLEHLO_OR", "LOGICAL_OR"), "or"),
}
# The same results for bools: of integers, every number but 0 is true.
OF_BOOLS = {"add": "or", "mul": "and", "max": "or", "min": "and", "and": "and", "or": "or"}


class ComputationOptions(MadeOptions):
    """The codes of a sub-graph's operators, separated by spaces; None if there is no sub-graph."""

    computation: str | None = None

    @property
    def reduction(self) -> str:
        """One of add, mul, max, min, and, or; "" for other computations."""
        return _REDUCTIONS.get(self.computation or "", "")


def resolve_computations(model: Model) -> Model:
    """Return the model with `ComputationOptions` in the operators that have a sub-graph."""
    graphs = (graph.rewrite(lambda op: [_add_computation(op, model)]) for graph in model.graphs)
    return model._replace(graphs=tuple(graphs))


def _add_computation(op: Op, model: Model) -> Op:
    index = op.options.get(_REGIONS.get(op.code, ""), -1)
    if op.custom or not isinstance(index, int) or not 0 <= index < len(model.graphs):
        return op
    codes = " ".join(inner.code for inner in model.graphs[index].ops)
    return replace(op, made=ComputationOptions(computation=codes))

"""Replace sub-graphs that combine two elements by the name of their computation.

STABLEHLO_SCATTER and STABLEHLO_REDUCE_WINDOW have a sub-graph. LiteRT does not run the sub-graph:
it computes with the operator in the sub-graph. Without operators in the sub-graph, the result is
the second element.
"""

from __future__ import annotations

from tflite2onnx.graph import Model, Op

# The option that has the index of the sub-graph.
_REGIONS = {
    "STABLEHLO_SCATTER": "update_computation_subgraph_index",
    "STABLEHLO_REDUCE_WINDOW": "body_subgraph_index",
}


def resolve_computations(model: Model) -> Model:
    """Return the model with an option `computation` in the operators that have a sub-graph.

    The option has the codes of the sub-graph's operators, separated by spaces. It is absent if the
    file has no such sub-graph.
    """
    graphs = (graph.rewrite(lambda op: [_add_computation(op, model)]) for graph in model.graphs)
    return model._replace(graphs=tuple(graphs))


def _add_computation(op: Op, model: Model) -> Op:
    index = op.options.get(_REGIONS.get(op.code, ""), -1)
    if op.custom or not isinstance(index, int) or not 0 <= index < len(model.graphs):
        return op
    codes = " ".join(inner.code for inner in model.graphs[index].ops)
    return op.with_options(computation=codes)

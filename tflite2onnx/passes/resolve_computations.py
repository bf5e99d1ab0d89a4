"""Sub-graphs that say how two elements become one: TFLite to TFLite, the whole model.

STABLEHLO_SCATTER and STABLEHLO_REDUCE_WINDOW have one. LiteRT does not run it but looks which
operator it holds, and computes with that; no operator at all means to take the second element.
"""

from __future__ import annotations

from dataclasses import replace

from tflite2onnx.graph import Model, Op, Options

# Which option names the sub-graph.
_REGIONS = {
    "STABLEHLO_SCATTER": "update_computation_subgraph_index",
    "STABLEHLO_REDUCE_WINDOW": "body_subgraph_index",
}


def resolve_computations(model: Model) -> Model:
    """Return a model whose operators with such a sub-graph have an option more, `computation`.

    It lists the codes of the sub-graph's operators, one after another; the option is missing
    where the sub-graph is.
    """
    graphs = tuple(
        replace(graph, ops=tuple(_add_computation(op, model) for op in graph.ops))
        if any(op.code in _REGIONS for op in graph.ops)
        else graph
        for graph in model.graphs
    )
    return model._replace(graphs=graphs)


def _add_computation(op: Op, model: Model) -> Op:
    index = op.options.get(_REGIONS.get(op.code, ""), -1)
    if op.custom or not isinstance(index, int) or not 0 <= index < len(model.graphs):
        return op
    codes = " ".join(inner.code for inner in model.graphs[index].ops)
    return replace(op, options=Options({**op.options, "computation": codes}))

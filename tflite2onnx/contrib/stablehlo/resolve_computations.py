"""Replace sub-graphs that combine two elements by the name of their computation.

STABLEHLO_SCATTER, STABLEHLO_REDUCE and STABLEHLO_REDUCE_WINDOW have a sub-graph. LiteRT does not
run the sub-graph: it computes with the operator in the sub-graph. Without operators in the
sub-graph, the result is the second element.

STABLEHLO_SORT has a sub-graph that compares two elements. It becomes the name of the comparison and
the number of the tensor that is compared.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tflite2onnx.graph import Model, Op
from tflite2onnx.made_options import MadeOptions

# The operators of comparison_direction, and the value of compare_type for IEEE 754's total order.
DIRECTIONS = ("Equal", "NotEqual", "GreaterEqual", "Greater", "LessEqual", "Less")
TOTAL_ORDER = 2

# The option that has the index of the sub-graph.
_REGIONS = {
    "STABLEHLO_SCATTER": "update_computation_subgraph_index",
    "STABLEHLO_REDUCE": "body_subgraph_index",
    "STABLEHLO_REDUCE_WINDOW": "body_subgraph_index",
}


@dataclass(frozen=True)
class ComputationOptions(MadeOptions):
    """The codes of a sub-graph's operators, separated by spaces, or a comparison such as "Less 0".

    None: the file has no such sub-graph.
    """

    computation: str | None = None


def resolve_computations(model: Model) -> Model:
    """Return the model with `ComputationOptions` in the operators that have a sub-graph."""
    graphs = (graph.rewrite(lambda op: [_add_computation(op, model)]) for graph in model.graphs)
    return model._replace(graphs=tuple(graphs))


def _add_computation(op: Op, model: Model) -> Op:
    if op.code == "STABLEHLO_SORT" and not op.custom:
        return replace(op, made=ComputationOptions(computation=_name_comparison(op, model)))
    index = op.options.get(_REGIONS.get(op.code, ""), -1)
    if op.custom or not isinstance(index, int) or not 0 <= index < len(model.graphs):
        return op
    codes = " ".join(inner.code for inner in model.graphs[index].ops)
    return replace(op, made=ComputationOptions(computation=codes))


def _name_comparison(op: Op, model: Model) -> str:
    """Return the comparison of a sort and the number of its key, such as "Less 0"; else ""."""
    index = op.options.get("comparator_subgraph_index", -1)
    if not isinstance(index, int) or not 0 <= index < len(model.graphs):
        return ""
    graph = model.graphs[index]
    if len(graph.ops) != 1 or graph.ops[0].outputs != graph.outputs:
        return ""
    (inner,) = graph.ops
    if inner.code == "STABLEHLO_COMPARE":
        plain = inner.options.get("compare_type", 0) != TOTAL_ORDER
        name = DIRECTIONS[inner.options.comparison_direction] if plain else ""
    else:
        name = inner.code.title().replace("_", "")
    swapped = {"Less": "Greater", "LessEqual": "GreaterEqual"}
    swapped |= {value: key for key, value in swapped.items()}
    for key in range(len(graph.inputs) // 2):
        pair = graph.inputs[2 * key : 2 * key + 2]
        if inner.inputs in (pair, pair[::-1]):
            name = name if inner.inputs == pair else swapped.get(name, "")
            return f"{name} {key}" if name else ""
    return ""

"""How the target wants a planned graph: its forms, its operators, and its rewriting of nodes."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from tflite2onnx.emit import NodeRewrite, keep_nodes
from tflite2onnx.op.base import Operator
from tflite2onnx.options import ConversionOptions
from tflite2onnx.passes import apply_passes
from tflite2onnx.planning import PlannedGraph
from tflite2onnx.targets.table import import_part


def apply_forms(graph: PlannedGraph, options: ConversionOptions) -> PlannedGraph:
    """Return the graph in the forms of the target; the graph itself if the options want none.

    It is unchanged, too, if the forms lack a tensor whose order the user wants.
    """
    if not options.has_forms:
        return graph
    changed = apply_passes(import_part(options.target, "forms").list_forms(options), graph)
    computed = [{t for op in each.walk_ops() for t in op.outputs} for each in (graph, changed)]
    lost = computed[0] - computed[1]
    keeps_all = lost.isdisjoint(graph.planning.user_orders)
    return changed if keeps_all and isinstance(changed, PlannedGraph) else graph


def find_operators(options: ConversionOptions) -> Mapping[str, type[Operator]]:
    """Return the classes of operators that the target has in place of the canonical ones."""
    if not options.has_forms:
        return MappingProxyType({})
    classes: Mapping[str, type[Operator]] = import_part(options.target, "operators").OPERATORS
    return classes


def find_rewrite(options: ConversionOptions) -> NodeRewrite:
    """Return how the target rewrites the nodes of the main graph."""
    if not options.has_forms:
        return keep_nodes
    rewrite: NodeRewrite = import_part(options.target, "nodes").rewrite_nodes
    return rewrite

"""The driver of forms: it rewrites the operators of a planned graph as a runtime wants them."""

from __future__ import annotations

from importlib import import_module

from tflite2onnx.options import ConversionOptions
from tflite2onnx.passes import apply_passes
from tflite2onnx.planning import PlannedGraph


def apply_forms(graph: PlannedGraph, options: ConversionOptions) -> PlannedGraph:
    """Return the graph in the forms of the target; the graph itself if the options want none.

    It is unchanged, too, if the forms lack a tensor whose order the user wants.
    """
    if options.forms != "fastest":
        return graph
    forms = import_module("tflite2onnx.targets.onnxruntime.forms")
    changed = apply_passes(forms.list_forms(options), graph)
    computed = [{t for op in each.walk_ops() for t in op.outputs} for each in (graph, changed)]
    lost = computed[0] - computed[1]
    keeps_all = lost.isdisjoint(graph.planning.user_orders)
    return changed if keeps_all and isinstance(changed, PlannedGraph) else graph

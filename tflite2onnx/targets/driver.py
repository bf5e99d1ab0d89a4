"""How the target wants a planned graph: its forms, its operators, and its passes over nodes."""

from collections.abc import Collection, Mapping, Sequence
from itertools import chain

from tflite2onnx.builder.node_passes import NodePass
from tflite2onnx.emit import PLAIN_PASSES
from tflite2onnx.errors import OptionError
from tflite2onnx.graph import Graph
from tflite2onnx.layout import Order
from tflite2onnx.op import OperatorTable
from tflite2onnx.op.base import Operator
from tflite2onnx.options import ConversionOptions
from tflite2onnx.passes import apply_passes
from tflite2onnx.planning import PlannedGraph
from tflite2onnx.targets import every_target
from tflite2onnx.targets.table import has_part, import_part
from tflite2onnx.tensor import Tensor


def apply_forms(graph: PlannedGraph, options: ConversionOptions) -> PlannedGraph:
    """Return the graph in the forms of the target; the graph itself if the options want none.

    It is unchanged, too, if the forms lack a tensor whose order the user wants.
    """
    if not options.has_forms:
        return graph
    groups = import_part(options.target, "forms").list_groups(options)
    changed = apply_passes(chain.from_iterable(groups), graph)
    computed = [{t for op in each.walk_ops() for t in op.outputs} for each in (graph, changed)]
    lost = computed[0] - computed[1]
    keeps_all = lost.isdisjoint(graph.planning.user_orders)
    return changed if keeps_all and isinstance(changed, PlannedGraph) else graph


def find_state_orders(graph: Graph, options: ConversionOptions) -> Mapping[Tensor, Order]:
    """Return the orders that the target wants for states, by input; others are planned."""
    is_float = options.quantization in ("float", "rounded")
    if not options.frees_states or is_float or not graph.initial:
        return {}
    orders: Mapping[Tensor, Order] = import_part(options.target, "forms").find_state_orders(graph)
    return orders


def find_inner_states(graph: Graph, options: ConversionOptions) -> Collection[Tensor]:
    """Return the inputs and outputs of states that are stored as inside the model."""
    if not (options.frees_states or options.quantization == "rounded"):
        return ()
    own = {*graph.own_inputs, *graph.own_outputs}
    return frozenset(t for t in (*graph.inputs, *graph.outputs) if t not in own)


def find_operators(options: ConversionOptions) -> Mapping[str, type[Operator]]:
    """Return the classes of operators that the target has in place of the canonical ones.

    Those of operators that the runtime computes wrongly are kept if the options want no forms.
    """
    has_faults = has_part(options.target, "faults")
    parts = [*["operators"] * options.has_forms, *["faults"] * has_faults]
    paths: dict[str, str] = {}
    for part in parts:
        paths |= import_part(options.target, part).PATHS
    return OperatorTable(paths)


def list_node_passes(options: ConversionOptions) -> Sequence[NodePass]:
    """Return the passes of the target over the nodes of the main graph.

    A target without forms rewrites nodes that its runtime refuses or computes wrongly, so that the
    canonical conversion has its nodes, too.

    Raises:
        OptionError: the target has no 16 bits around products.
    """
    is_canonical = not options.has_forms and (
        has_part(options.target, "forms") or not has_part(options.target, "nodes")
    )
    nodes = None if is_canonical else import_part(options.target, "nodes")
    passes: Sequence[NodePass] | None = PLAIN_PASSES if nodes is None else nodes.PASSES
    if options.activations == "uint16":
        passes = getattr(nodes, "WIDE_PASSES", None)
    if passes is None:
        message = f"`activations` must be auto, int8 or uint8 for {options.target}, got uint16"
        raise OptionError(message)
    return (*every_target.PASSES, *passes)

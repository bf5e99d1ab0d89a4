"""Nodes that only one branch of a choice needs become nodes of this branch.

`EXACT_CHOICE` has two forms of a computation, of which ONNX Runtime runs one. It replaces the If by
the nodes of one branch when it loads the model (`builder.adaptive_weights`), but it does not remove
nodes before an If whose outputs no node reads.
"""

from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence

from tflite2onnx.builder.builder import Builder, find_bodies, walk_nodes
from tflite2onnx.builder.node_passes import Rewritten
from tflite2onnx.builder.nodes import Node, Value


def fill_branches(g: Builder, nodes: Sequence[Node], results: Sequence[Value]) -> Rewritten:
    """Return the nodes of the main graph, and the values that branches compute now."""
    choices = [node for node in nodes if node.op_type == "If" and g.int8_is_exact in node.inputs]
    if not choices:
        return Rewritten((*nodes,))
    # Who reads a value: a branch, or the main graph.
    readers: dict[Value | None, set[Hashable]] = defaultdict(set)
    for result in results:
        readers[result].add(None)
    moved: dict[Hashable, list[Node]] = defaultdict(list)
    kept: list[Node] = []
    for node in reversed(nodes):
        users = set[Hashable]().union(*(readers[value] for value in node.outputs))
        branch = next(iter(users)) if len(users) == 1 else None
        (kept if branch is None else moved[branch]).append(node)
        for value in node.present:
            readers[value].add(branch)
        for name, body in find_bodies(node).items():
            place = (node.outputs, name) if branch is None and node in choices else branch
            for value in (v for inner in walk_nodes(body.nodes) for v in inner.present):
                readers[value].add(place)
    filled = tuple(_fill(node, moved) for node in reversed(kept))
    values = frozenset(v for part in moved.values() for node in part for v in node.outputs)
    for value in values:
        g.types.pop(value, None)
    return Rewritten(filled, changed=values)


def _fill(node: Node, moved: Mapping[Hashable, Sequence[Node]]) -> Node:
    """Return an If whose branches have the moved nodes first."""
    bodies = {
        name: body._replace(nodes=(*reversed(moved[node.outputs, name]), *body.nodes))
        for name, body in find_bodies(node).items()
        if (node.outputs, name) in moved
    }
    return node._replace(attributes={**node.attributes, **bodies}) if bodies else node

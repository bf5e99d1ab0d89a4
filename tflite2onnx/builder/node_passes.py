"""Passes over the nodes of a graph, after layouts and storage are known.

A pass has one signature: it takes the builder, the nodes and the results of a graph, and returns or
yields the nodes that replace them. `Rewritten` says more than that, and `Stayed` why a node stays.
Each target has a sequence of passes, in the order in which they apply. A pass may leave nodes that
nothing reads any more: `drop_dead_nodes` is a pass, too.
"""

import logging
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from tflite2onnx.builder.builder import Builder, eliminate_dead_nodes, walk_nodes
from tflite2onnx.builder.nodes import Node, Value
from tflite2onnx.utils.console import count, shorten

_logger = logging.getLogger(__name__)
_losses = _logger.getChild("losses")  # the report lists them apart

Merged = Mapping[Value, Value]


class Rewritten(NamedTuple):
    """The nodes of a graph after a pass.

    `merged` has the values of removed nodes, with the equal values that stay. `changed` are values
    that hold other elements now than the tensors. `stayed` has the nodes that the pass could not
    replace, by the reason, for the log.
    """

    nodes: tuple[Node, ...]
    merged: Merged = MappingProxyType({})
    changed: Collection[Value] = frozenset()
    stayed: Mapping[str, Sequence[Node]] = MappingProxyType({})


class Stayed(NamedTuple):
    """A node that a pass could not replace, and why."""

    node: Node
    reason: str


Yielded = Iterator[Node | Stayed]
NodePass = Callable[
    [Builder, Sequence[Node], Sequence[Value]], Iterable[Node] | Iterable[Node | Stayed] | Rewritten
]


def apply_node_passes(
    passes: Iterable[NodePass], g: Builder, nodes: Sequence[Node], results: Sequence[Value]
) -> Rewritten:
    """Return the nodes after all passes, and the values that they merged and changed."""
    merged: Merged = {}
    changed: set[Value] = set()
    for change in passes:
        made = change(g, nodes, results)
        made = made if isinstance(made, Rewritten) else _collect(made)
        if _logger.isEnabledFor(logging.DEBUG):
            _log_changes(change.__name__.lstrip("_"), g, nodes, made)
        nodes = made.nodes
        merged = {**{x: made.merged.get(y, y) for x, y in merged.items()}, **made.merged}
        changed.update(made.changed)
    return Rewritten((*nodes,), merged, changed)


def _collect(made: Iterable[Node | Stayed]) -> Rewritten:
    nodes, stayed = list[Node](), defaultdict[str, list[Node]](list)
    for each in made:
        nodes.append(each.node if isinstance(each, Stayed) else each)
        if isinstance(each, Stayed):
            stayed[each.reason].append(each.node)
    return Rewritten((*nodes,), stayed=stayed)


def keep(node: Node, kinds: Collection[str], reason: str) -> Node | Stayed:
    """Return a node that a pass does not replace, with the reason if it is of these kinds."""
    return Stayed(node, reason) if node.op_type in kinds else node


def drop_dead_nodes(_: Builder, nodes: Sequence[Node], results: Sequence[Value]) -> Iterable[Node]:
    """Return the nodes on which the results depend."""
    return eliminate_dead_nodes(nodes, results)


def replace_nodes(
    nodes: Iterable[Node], build: Callable[[Node], Sequence[Node] | str]
) -> Rewritten:
    """Return nodes in which those that `build` makes of a node replace it.

    If a node stays, `build` returns the reason, "" for a node that is not of the kind.
    """
    stayed: dict[str, list[Node]] = defaultdict(list)
    replaced: list[Node] = []
    for node in nodes:
        made = build(node)
        if isinstance(made, str):
            stayed[made].append(node)
        replaced += [node] if isinstance(made, str) else made
    stayed.pop("", None)
    return Rewritten((*replaced,), stayed=stayed)


def _log_changes(name: str, g: Builder, nodes: Sequence[Node], made: Rewritten) -> None:
    """Log the operators of the nodes that a pass removed and added, and why nodes stayed."""
    before, after = (
        {(node[:3], id(node.attributes)): node for node in walk_nodes(each)}
        for each in (nodes, made.nodes)
    )
    gone = [node for key, node in before.items() if key not in after]
    come = [node for key, node in after.items() if key not in before]
    kinds = Counter(node.op_type for node in come)
    kinds.subtract(node.op_type for node in gone)
    signed = ", ".join(f"{number:+} {kind}" for kind, number in kinds.items() if number)
    if gone or come:
        numbers = signed or f"{count(len(gone), 'node')} changed"
        _logger.debug("%s: %s%s", name, numbers, _find_place(g, gone or come))
    for reason, kept in made.stayed.items():
        number = count(len(kept), "node")
        _losses.debug("%s: %s stayed%s: %s", name, number, _find_place(g, kept), reason)


def _find_place(g: Builder, nodes: Iterable[Node]) -> str:
    """Return words for the first tensor of the file that one of the nodes computes, if any."""
    tensors = {value: tensor for tensor, value, _ in g.walk_stored_tensors()}
    found = (tensors[y].name for node in nodes for y in node.outputs if y in tensors)
    name = next(found, "")
    return f" (the first for {shorten(name)})" if name else ""
